//go:build redis

package limiter

// What only Redis can show. tools/redis.sh runs these beside a server, which LIMITER_TEST_URL names.

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// proxy stands before the server, and can swallow its answers.
type proxy struct {
	url  string
	mute atomic.Bool
}

func newProxy(t *testing.T) *proxy {
	server, ok := strings.CutPrefix(os.Getenv("LIMITER_TEST_URL"), "unix://")
	if !ok {
		t.Fatal("LIMITER_TEST_URL is no unix:// URL: run by tools/redis.sh")
	}
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "p")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	p := &proxy{url: "unix://" + path}
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("unix", server)
			if err != nil {
				near.Close()
				continue
			}
			go func() {
				io.Copy(far, near)
				far.Close()
			}()
			go func() {
				defer near.Close()
				buf := make([]byte, 1<<16)
				for {
					n, err := far.Read(buf)
					if err != nil {
						return
					}
					if !p.mute.Load() {
						near.Write(buf[:n])
					}
				}
			}()
		}
	}()
	return p
}

func openRedis(t *testing.T, url string, options ...ClientOption) *Client {
	t.Helper()
	c, err := Open(url, append(options, WithPrefix(t.Name()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// An answer of the failure policy says whether the request may have been charged all the same.
func TestRedisMaybeCharged(t *testing.T) {
	for _, test := range []struct {
		policy FailurePolicy
		lost   bool // its answer, or all of the server
	}{{FailOpen, true}, {FailClosed, true}, {FailWithError, true}, {FailOpen, false}, {FailClosed, false}, {FailWithError, false}} {
		t.Run(string(test.policy), func(t *testing.T) {
			p := newProxy(t)
			url := p.url
			if !test.lost {
				url += "-nobody"
			}
			c := openRedis(t, url, WithFailurePolicy(test.policy))
			l := newLimiter(t, c, FixedWindow(9, time.Hour))
			if test.lost {
				if _, err := l.TryAcquire("k"); err != nil { // connects
					t.Fatal(err)
				}
			}
			p.mute.Store(true)
			permit, err := l.TryAcquire("k")
			var denied *DeniedError
			switch test.policy {
			case FailOpen:
				if err != nil || !permit.Degraded() || permit.Decision().MaybeCharged != test.lost {
					t.Errorf("%v, %+v", err, permit)
				}
			case FailClosed:
				if !errors.As(err, &denied) || !denied.Degraded || denied.MaybeCharged != test.lost {
					t.Errorf("%+v", err)
				}
			default:
				want := map[bool]error{true: ErrUnknownOutcome, false: ErrBackend}[test.lost]
				if !errors.Is(err, want) {
					t.Errorf("%v, not %v", err, want)
				}
			}
		})
	}
}

// The verbs that take a round trip, and end with their context while its answer is under way.
func TestRedisRoundTrips(t *testing.T) {
	p := newProxy(t)
	c := openRedis(t, p.url, WithCommandTimeout(3*time.Second))
	l, err := c.NewLimiter("rate", Pacer(1, time.Hour, 0))
	if err != nil {
		t.Fatal(err)
	}
	s := newLimiter(t, c, Semaphore(1), FixedWindow(9, time.Hour))
	held, err := s.TryAcquire("k", NoRenew())
	if err != nil {
		t.Fatal(err)
	}
	verbs := map[string]func(context.Context) error{
		"Settle":   func(ctx context.Context) error { return held.Settle(ctx, 3) },
		"Renew":    func(ctx context.Context) error { return held.Renew(ctx, 0) },
		"Penalize": func(ctx context.Context) error { return l.Penalize(ctx, "other", time.Second) },
		"Reset":    func(ctx context.Context) error { return l.Reset(ctx, "other") },
		"Peek": func(ctx context.Context) error {
			_, err := s.Peek(ctx, "k")
			return err
		},
		"Pace": func(ctx context.Context) error {
			permit, err := l.Pace(ctx, "k")
			if err == nil {
				err = permit.Release()
			}
			return err
		},
		"TryMany": func(ctx context.Context) error {
			results, err := s.TryMany(ctx, Request{Key: "many"})
			if err == nil {
				err = results[0].Permit.Release()
			}
			return err
		},
	}
	for name, verb := range verbs {
		if err := verb(bg); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	delete(verbs, "Settle") // the permit is settled
	p.mute.Store(true)
	ends := make(chan error, len(verbs))
	ctx, cancel := context.WithCancel(bg)
	for name, verb := range verbs {
		go func() {
			err := verb(ctx)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
			ends <- err
		}()
	}
	eventually(t, "calls under way", func() bool { return len(c.slots) == len(verbs) })
	cancel()
	for range verbs {
		<-ends
	}
	p.mute.Store(false)
	// The calls themselves end with their own deadline, and give their slots back.
	eventually(t, "slots", func() bool { return len(c.slots) == 0 })
}

func TestRedisNoPermitIsLostBetweenCancelAndGrant(t *testing.T) {
	c := openRedis(t, os.Getenv("LIMITER_TEST_URL"), WithCommandTimeout(10*time.Second))
	cancelsMeetGrants(t, c, 60, 20*time.Millisecond)
}

// Where nothing was heard before the context's deadline nobody has denied, and where the failure policy
// denies it was not the deadline.
func TestRedisSilenceIsNoDenial(t *testing.T) {
	p := newProxy(t)
	c := openRedis(t, p.url, WithCommandTimeout(time.Second))
	l := newLimiter(t, c, Semaphore(1))
	mustAcquire(t, l, "other") // connects
	p.mute.Store(true)
	ctx, cancel := context.WithTimeout(bg, 30*time.Millisecond)
	defer cancel()
	if _, err := l.Acquire(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrDenied) {
		t.Errorf("no answer: %v", err)
	}
	c = openRedis(t, p.url+"-nobody", WithFailurePolicy(FailClosed))
	ctx, cancel = context.WithTimeout(bg, time.Minute)
	defer cancel()
	if _, err := newLimiter(t, c, Semaphore(1)).Acquire(ctx, "k"); errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrDenied) {
		t.Errorf("denied by the policy: %v", err)
	}
}
