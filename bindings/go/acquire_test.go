package limiter

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestAcquireHonoursTheContext(t *testing.T) {
	passed, cancel := context.WithDeadline(context.Background(), time.Unix(1, 0))
	defer cancel()
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	short, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, test := range []struct {
		name    string
		ctx     context.Context
		options []Option
		is      []error
		not     []error
	}{
		{"cancelled before", gone, nil, []error{context.Canceled}, []error{ErrDenied}},
		{"deadline before", passed, nil, []error{context.DeadlineExceeded}, []error{ErrDenied}},
		{"known to exceed the deadline", short, nil, []error{ErrDenied, context.DeadlineExceeded}, []error{ErrNever}},
		{"known to exceed MaxWait", context.Background(), []Option{MaxWait(time.Second)}, []error{ErrDenied}, []error{context.DeadlineExceeded}},
		{"MaxWait is nearer than the deadline", short, []Option{MaxWait(time.Second)}, []error{ErrDenied}, []error{context.DeadlineExceeded}},
		{"try", short, []Option{MaxWait(0)}, []error{ErrDenied}, []error{context.DeadlineExceeded}},
		{"never", short, []Option{Weight(2)}, []error{ErrNever}, []error{ErrDenied, context.DeadlineExceeded}},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLimiter(t, open(t), TokenBucket(1, 1, time.Hour))
			mustAcquire(t, l, "k")
			start := time.Now()
			p, err := l.Acquire(test.ctx, "k", test.options...)
			if p != nil || err == nil {
				t.Fatalf("admitted: %v", p)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("took %v", took)
			}
			var timeout interface{ Timeout() bool } // what url.Error and others look at
			if errors.Is(err, context.DeadlineExceeded) != (errors.As(err, &timeout) && timeout.Timeout()) {
				t.Errorf("%v: whether it is a timeout", err)
			}
			for _, target := range test.is {
				if !errors.Is(err, target) {
					t.Errorf("%v is not %v", err, target)
				}
			}
			for _, target := range test.not {
				if errors.Is(err, target) {
					t.Errorf("%v is %v", err, target)
				}
			}
			if d, err := l.Peek(bg, "k"); err != nil || d.RetryAfter > time.Hour || d.RetryAfter < time.Hour-time.Minute {
				t.Errorf("it was charged: %+v, %v", d, err)
			}
		})
	}
}

// What is invalid says why, and mistakes of the caller's are errors, not crashes.
func TestInvalidRequestsSayWhy(t *testing.T) {
	l := newLimiter(t, open(t), Semaphore(1), FixedWindow(9, time.Second))
	long := strings.Repeat("x", 65_537)
	_, paced := l.Pace(bg, "k")
	_, peeked := l.Peek(bg, long)
	acquired := func(l *Limiter, ctx context.Context, key string, options ...Option) error {
		_, err := l.Acquire(ctx, key, options...)
		return err
	}
	held := mustAcquire(t, l, "held")
	many := func(requests ...Request) error {
		results, err := l.TryMany(bg, requests...)
		if results != nil {
			t.Errorf("%v", results)
		}
		return err
	}
	_, tried := (*Limiter)(nil).TryAcquire("")
	_, allowed := (&Limiter{}).Allow("")
	var none context.Context
	for says, err := range map[string]error{
		"65537 bytes":             acquired(l, bg, long),
		"at most 65536":           peeked,
		"1 weights for 2 limits":  acquired(l, bg, "k", Weights(1)),
		"a lease of 1 ms":         acquired(l, bg, "k", Lease(0)),
		"a lease of 3 ms":         held.Renew(bg, 3*time.Millisecond),
		"172800000 ms: 100 to":    held.Renew(bg, 48*time.Hour),
		"requests[2]: a key of":   many(Request{}, Request{Options: []Option{Weights(1, 1)}}, Request{Key: long}),
		"65537 requests":          many(make([]Request, 65_537)...),
		"requests[0]: NotifyLost": many(Request{Options: []Option{NotifyLost()}}),
		"semaphore":               paced,
		"a nil Context":           acquired(l, none, "k"),
		"nil Context":             l.Do(none, "k", func(context.Context) error { return nil }),
		"not made by":             tried,
		"NewLimiter":              allowed,
		"made by":                 (&Limiter{}).Reset(bg, "k"),
		"that was not":            (*Limiter)(nil).Wait(bg, "k"),
	} {
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v does not say %q", err, says)
		}
	}
}

func TestDenialCarriesItsNumbers(t *testing.T) {
	l := newLimiter(t, open(t, WithVirtualClock()), Semaphore(5), TokenBucket(2, 1, time.Minute))
	mustAcquire(t, l, "k", Weight(2))
	_, err := l.TryAcquire("k")
	var denied *DeniedError
	if !errors.As(err, &denied) {
		t.Fatal(err)
	}
	want := DeniedError{RetryAfter: time.Minute, ResetAfter: 2 * time.Minute, Limit: 2, Index: 1, limiter: l}
	if *denied != want {
		t.Errorf("%+v, not %+v", *denied, want)
	}
	says := "limiter: TestDenialCarriesItsNumbers: denied by limits[1], token bucket of 2, 1 per 1m0s; retry after 1m0s"
	if err.Error() != says {
		t.Errorf("%v", err)
	}
}

func TestDeadlineInTheQueueIsADenialWithNumbers(t *testing.T) {
	l := newLimiter(t, open(t), Semaphore(1))
	mustAcquire(t, l, "")
	// On a machine that is busy the library's answer may come too late for some.
	for attempt := 1; ; attempt++ {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
		start := time.Now()
		_, err := l.Acquire(ctx, "")
		cancel()
		var denied *DeniedError
		if !errors.As(err, &denied) || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrDenied) {
			t.Fatalf("%v", err)
		}
		if took := time.Since(start); took < 30*time.Millisecond {
			t.Errorf("took %v", took)
		}
		if denied.RetryAfter > 0 && denied.Limit == 1 && denied.Waited >= 29*time.Millisecond {
			return
		}
		if attempt == 50 {
			t.Fatalf("no numbers: %+v", *denied)
		}
	}
}

func TestDeadlineOfAVirtualClockIsReal(t *testing.T) {
	c := open(t, WithVirtualClock())
	l := newLimiter(t, c, Semaphore(1))
	mustAcquire(t, l, "")
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := l.Acquire(ctx, ""); !errors.Is(err, ErrDenied) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if s := stats(t, c); s.Waiting != 0 || s.InFlight != 1 {
		t.Errorf("%+v", s)
	}
}

func TestWaitersAreServedInOrder(t *testing.T) {
	c := open(t)
	l := newLimiter(t, c, Semaphore(1))
	held := mustAcquire(t, l, "")
	var mu sync.Mutex
	var order []int
	var all sync.WaitGroup
	for i := range 50 {
		all.Add(1)
		go func() {
			defer all.Done()
			p, err := l.Acquire(context.Background(), "")
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			p.Release()
		}()
		untilWaiting(t, c, uint64(i+1))
	}
	held.Release()
	all.Wait()
	for i, got := range order {
		if got != i {
			t.Fatalf("served as %v", order)
		}
	}
}

// Grants and cancels meet at every instant; afterwards nothing is held, and exactly the capacity
// can be.
func TestNoPermitIsLostBetweenCancelAndGrant(t *testing.T) {
	rounds := 300
	if testing.Short() {
		rounds = 50
	}
	cancelsMeetGrants(t, open(t), rounds, 400*time.Microsecond)
}

// cancelsMeetGrants cancels each wait before `longest` has passed.
func cancelsMeetGrants(t *testing.T, c *Client, rounds int, longest time.Duration) {
	const capacity, goroutines = 3, 32
	l := newLimiter(t, c, Semaphore(capacity))
	var granted, cancelled, inside atomic.Int64
	var all sync.WaitGroup
	for g := range goroutines {
		all.Add(1)
		go func() {
			defer all.Done()
			for i := range rounds {
				ctx, cancel := context.WithCancel(context.Background())
				timer := time.AfterFunc(time.Duration((g*7+i*13)%400)*longest/400, cancel)
				p, err := l.Acquire(ctx, "k")
				switch {
				case err == nil:
					granted.Add(1)
					if inside.Add(1) > capacity {
						t.Error("more than the capacity inside")
					}
					time.Sleep(time.Duration(i%3) * 50 * time.Microsecond)
					inside.Add(-1)
					if err := p.Release(); err != nil {
						t.Error(err)
					}
				case errors.Is(err, context.Canceled):
					cancelled.Add(1)
				default:
					t.Error(err)
				}
				timer.Stop()
				cancel()
			}
		}()
	}
	all.Wait()
	if granted.Load() == 0 || cancelled.Load() == 0 {
		t.Errorf("%d granted and %d cancelled: nothing met", granted.Load(), cancelled.Load())
	}
	// On Redis what was cancelled is given back a moment later.
	eventually(t, "end of what was cancelled", func() bool {
		s := stats(t, c)
		return s.InFlight == 0 && s.Waiting == 0
	})
	eventually(t, "full capacity", func() bool {
		d, err := l.Peek(bg, "k")
		return err == nil && d.Remaining == capacity
	})
	for range capacity {
		mustAcquire(t, l, "k")
	}
	if _, err := l.TryAcquire("k"); !errors.Is(err, ErrDenied) {
		t.Errorf("one too many: %v", err)
	}
}

func TestDoReleasesWhateverHappens(t *testing.T) {
	c := open(t)
	l := newLimiter(t, c, Semaphore(1))
	failed := errors.New("failed")
	if err := l.Do(context.Background(), "k", func(context.Context) error { return failed }); err != failed {
		t.Errorf("%v", err)
	}
	func() {
		defer func() { recover() }()
		l.Do(context.Background(), "k", func(context.Context) error { panic("x") })
	}()
	if err := l.Do(context.Background(), "k", func(context.Context) error {
		if got := stats(t, c).InFlight; got != 1 {
			t.Errorf("%d held inside", got)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if got := stats(t, c).InFlight; got != 0 {
		t.Errorf("%d held after", got)
	}
}

func TestLostLease(t *testing.T) {
	t.Run("ends the context of Do", func(t *testing.T) {
		c := open(t, WithVirtualClock())
		l := newLimiter(t, c, Semaphore(1).Lease(time.Second))
		err := l.Do(context.Background(), "k", func(ctx context.Context) error {
			if err := c.Advance(time.Second); err != nil {
				t.Fatal(err)
			}
			<-ctx.Done()
			if cause := context.Cause(ctx); !errors.Is(cause, ErrStale) || !strings.Contains(cause.Error(), "lease was lost") {
				t.Errorf("cause %v", cause)
			}
			return nil
		}, NoRenew())
		if !errors.Is(err, ErrStale) || !strings.Contains(err.Error(), "lease was lost") {
			t.Errorf("Do: %v", err)
		}
	})
	t.Run("closes Lost", func(t *testing.T) {
		c := open(t, WithVirtualClock())
		l := newLimiter(t, c, Semaphore(1).Lease(time.Second).NoRenew())
		p, err := l.Acquire(context.Background(), "k", NotifyLost())
		if err != nil {
			t.Fatal(err)
		}
		c.Advance(999 * time.Millisecond)
		if err := p.Renew(bg, 0); err != nil {
			t.Fatal(err)
		}
		c.Advance(999 * time.Millisecond)
		select {
		case <-p.Lost():
			t.Fatal("lost before its time")
		case <-time.After(5 * time.Millisecond):
		}
		c.Advance(time.Millisecond)
		<-p.Lost()
		if err := p.Release(); !errors.Is(err, ErrStale) {
			t.Errorf("Release: %v", err)
		}
		if got := stats(t, c).Lost; got != 1 {
			t.Errorf("%d lost", got)
		}
	})
	t.Run("is not told of a released permit", func(t *testing.T) {
		c := open(t, WithVirtualClock())
		l := newLimiter(t, c, Semaphore(1).Lease(time.Second).NoRenew())
		p, err := l.Acquire(context.Background(), "k", NotifyLost())
		if err != nil {
			t.Fatal(err)
		}
		p.Release()
		c.Advance(time.Hour)
		select {
		case <-p.Lost():
			t.Error("told")
		case <-time.After(5 * time.Millisecond):
		}
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(5*time.Millisecond, cancel)
		mustAcquire(t, l, "k")
		for _, options := range [][]Option{{NotifyLost(), MaxWait(0)}, {NotifyLost(), Weight(2)}, {NotifyLost()}} {
			if _, err := l.Acquire(ctx, "k", options...); err == nil {
				t.Error("admitted")
			}
		}
		if n := len(c.reactor.lost); n != 0 {
			t.Errorf("%d still watched", n)
		}
	})
}

func TestWaitIsRefusedWhereItWouldLoseThePermit(t *testing.T) {
	c := open(t)
	if err := newLimiter(t, c, Semaphore(1)).Wait(context.Background(), ""); !errors.Is(err, ErrInvalid) {
		t.Errorf("%v", err)
	}
	if got := stats(t, c).Granted; got != 0 {
		t.Errorf("%d granted", got)
	}
}

func TestWaitWaits(t *testing.T) {
	l := newLimiter(t, open(t), TokenBucket(1, 1, 20*time.Millisecond))
	start := time.Now()
	for range 4 {
		if err := l.Wait(context.Background(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(start); took < 59*time.Millisecond {
		t.Errorf("took %v", took)
	}
}

func TestAllow(t *testing.T) {
	c := open(t, WithVirtualClock())
	l := newLimiter(t, c, TokenBucket(2, 1, time.Second))
	for i, want := range []bool{true, true, false} {
		if got, err := l.Allow("k"); got != want || err != nil {
			t.Errorf("%d: %v, %v", i, got, err)
		}
	}
	if got, err := l.AllowN("other", 3); got || err != nil {
		t.Errorf("more than ever fits: %v, %v", got, err)
	}
	if got, err := newLimiter(t, c, Semaphore(1)).Allow("k"); got || !errors.Is(err, ErrInvalid) {
		t.Errorf("with a semaphore: %v, %v", got, err)
	}
	if n := testing.AllocsPerRun(100, func() { l.Allow("k") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	c.Close()
	if got, err := l.Allow("k"); got || !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v, %v", got, err)
	}
}

// The permit, or the denial, is all that a try allocates; and a key built for the call is not moved
// to the heap for it.
func TestTryAllocatesItsAnswerOnly(t *testing.T) {
	l := newLimiter(t, open(t), TokenBucket(1_000_000, 1, time.Minute))
	key := [2]byte{'k', 'k'}
	if n := testing.AllocsPerRun(100, func() { l.TryAcquire(string(key[:]), Weight(2), MaxWait(0)) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}
