package httplimit

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	limiter "github.com/liblimiter/liblimiter/bindings/go"
)

func TestOnlyWhatCouldNotBeAskedIsUnanswered(t *testing.T) {
	for err, want := range map[error]bool{
		limiter.ErrBackend: true, limiter.ErrUnknownOutcome: true, limiter.ErrTimeout: true, limiter.ErrClosed: true,
		limiter.ErrInvalid: false, limiter.ErrConfig: false, limiter.ErrCancelled: false, limiter.ErrStale: false,
		limiter.ErrForked: false, limiter.ErrOverloaded: false, limiter.ErrResource: false, limiter.ErrUnsupported: false,
		limiter.ErrDenied: false, limiter.ErrNever: false, &limiter.Error{Status: limiter.StatusPanic}: false,
		&limiter.Error{Status: limiter.StatusWouldDeadlock}: false, context.Canceled: false, io.EOF: false,
	} {
		if unanswered(err) != want {
			t.Errorf("%v", err)
		}
	}
}

// sent is a base that counts what goes out.
func sent(n *int) tripper {
	return func(*http.Request) (*http.Response, error) {
		*n++
		return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
	}
}

// What a request can bring about itself is no way around the limit.
func TestNothingARequestDoesOpensTheDoor(t *testing.T) {
	long := strings.Repeat("x", 65_537)
	for _, test := range []struct {
		name   string
		key    string
		wait   time.Duration
		err    error
		status int
	}{
		{"a key too long", long, 0, limiter.ErrInvalid, 400},
		{"too many waits", "k", time.Minute, limiter.ErrOverloaded, 503},
	} {
		for _, closed := range []bool{false, true} {
			t.Run(test.name, func(t *testing.T) {
				c := open(t, limiter.WithMaxWaiting(1))
				l := newLimiter(t, c, limiter.Semaphore(1))
				if _, err := l.TryAcquire("k"); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(bg)
				defer cancel()
				go l.Acquire(ctx, "k")
				for s, _ := c.Stats(); s.Waiting != 1; s, _ = c.Stats() {
					time.Sleep(time.Millisecond)
				}
				var told error
				tell := func(_ *http.Request, err error) { told = err }
				key := func(*http.Request) string { return test.key }
				h := Middleware(l, Options{Key: key, MaxWait: test.wait, FailClosed: closed, OnError: tell})(served)
				expect(t, get(h, ""), test.status, nil)
				if !errors.Is(told, test.err) {
					t.Errorf("told of %v", told)
				}
				out := 0
				transport := &Transport{Limiter: l, Key: key, MaxWait: time.Minute, FailClosed: closed, Base: sent(&out)}
				if _, err := transport.RoundTrip(httptest.NewRequest("GET", "http://x/", nil)); !errors.Is(err, test.err) || out != 0 {
					t.Errorf("%v, %d sent", err, out)
				}
			})
		}
	}
}

func TestWithoutALimiter(t *testing.T) {
	body := &stream{}
	r := httptest.NewRequest("POST", "http://x/", nil)
	r.Body = body
	if _, err := (&Transport{}).RoundTrip(r); err == nil || !strings.Contains(err.Error(), "without a Limiter") || !body.closed {
		t.Error(err)
	}
	defer func() {
		if text, ok := recover().(string); !ok || !strings.Contains(text, "without a Limiter") {
			t.Error("no panic that says why")
		}
	}()
	Middleware(nil, Options{})
}

func TestALostLeaseIsTold(t *testing.T) {
	c, l := virtual(t, limiter.Semaphore(1).Lease(time.Second).NoRenew(), limiter.TokenBucket(9, 9, time.Second))
	var told error
	tell := func(_ *http.Request, err error) { told = err }
	h := Middleware(l, Options{OnError: tell})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { c.Advance(2 * time.Second) }))
	expect(t, get(h, ""), 200, nil)
	if !errors.Is(told, limiter.ErrStale) {
		t.Errorf("told of %v", told)
	}
	told = nil
	out := 0
	r, err := (&Transport{Limiter: l, OnError: tell, Base: sent(&out)}).RoundTrip(httptest.NewRequest("GET", "http://x/", nil))
	if err != nil {
		t.Fatal(err)
	}
	c.Advance(2 * time.Second)
	r.Body.Close()
	if !errors.Is(told, limiter.ErrStale) {
		t.Errorf("told of %v", told)
	}
}

// A panic, whoever's it is, keeps neither the permit nor the connection.
func TestPanicsKeepNothing(t *testing.T) {
	send := func(transport *Transport) {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		transport.RoundTrip(httptest.NewRequest("GET", "http://x/", nil))
	}
	c, l := virtual(t, limiter.Semaphore(1))
	send(&Transport{Limiter: l, Base: tripper(func(*http.Request) (*http.Response, error) { panic("base") })})
	if s, _ := c.Stats(); s.InFlight != 0 || s.Granted != 1 {
		t.Errorf("%+v", s)
	}
	body := &stream{}
	send(&Transport{Limiter: l, OnError: func(*http.Request, error) { panic("told") },
		Base: tripper(func(*http.Request) (*http.Response, error) {
			c.Close() // so that the penalty cannot be stored
			return &http.Response{StatusCode: 429, Body: body, Header: http.Header{"Retry-After": {"1"}}}, nil
		})})
	if s, _ := c.Stats(); !body.closed || s.InFlight != 0 {
		t.Errorf("closed %v, %+v", body.closed, s)
	}
}
