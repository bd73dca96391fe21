package limiter

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Limiter is a name and its limits. Limiters of one name and the same kinds of limit, in the same
// order, share their state: within a memory client, or across all processes on one Redis. It needs
// no closing.
type Limiter struct {
	client *Client
	handle limiterHandle
	name   string
	limits []Limit
	holds  bool // has a semaphore: its permits must be released
}

// NewLimiter makes a limiter of 1 to 16 limits; each acquire takes from all of them or from none.
// ErrConfig, with the limit, the field and what is allowed, where one is out of range.
//
// Opening a name again with other numbers changes it for everybody from the next call on: state is
// clamped, never reset. See [Limit.Version].
func (c *Client) NewLimiter(name string, limits ...Limit) (*Limiter, error) {
	if strings.ContainsRune(name, 0) {
		return nil, &Error{StatusConfig, "a limiter's name holds a NUL"}
	}
	handle, err := cNewLimiter(c.handle, name, limits)
	if err != nil {
		return nil, err
	}
	l := &Limiter{client: c, handle: handle, name: name, limits: slices.Clone(limits)}
	l.holds = slices.ContainsFunc(limits, func(l Limit) bool { return l.kind == KindSemaphore })
	runtime.AddCleanup(l, func(handle limiterHandle) { cFreeLimiter(handle) }, handle)
	return l, nil
}

// SetFailurePolicy sets what is answered when Redis cannot, for this limiter alone and from its next
// call on; until then it is the client's, see [WithFailurePolicy].
func (l *Limiter) SetFailurePolicy(p FailurePolicy) error {
	defer runtime.KeepAlive(l)
	if strings.ContainsRune(string(p), 0) {
		return &Error{StatusConfig, "a failure policy holds a NUL"}
	}
	return cSetLimiter(l.handle, "on_failure", string(p))
}

// Name is the limiter's name.
func (l *Limiter) Name() string { return l.name }

// String is the limiter's name and limits.
func (l *Limiter) String() string { return fmt.Sprintf("%q %v", l.name, l.limits) }

// Limits are the limiter's limits, in order.
func (l *Limiter) Limits() []Limit { return slices.Clone(l.limits) }

// Acquire takes from all limits, or from none, and waits for it as long as ctx and MaxWait allow.
// Those who wait for one key are admitted in the order in which they came.
//
// If ctx is done already its error is returned and nothing is asked. A wait known to exceed its
// deadline fails at once with a [*DeniedError]; see the package's notes on contexts.
func (l *Limiter) Acquire(ctx context.Context, key string, options ...Option) (*Permit, error) {
	q := ask(options)
	return l.acquire(ctx, key, &q)
}

func (l *Limiter) acquire(ctx context.Context, key string, q *request) (*Permit, error) {
	if q.flags&flagTellLost == 0 {
		return l.acquireWatched(ctx, key, q, nil)
	}
	lost := make(chan struct{})
	p, err := l.acquireWatched(ctx, key, q, func() { close(lost) })
	if err == nil {
		p.lost = lost
	}
	return p, err
}

// acquireWatched acquires, and tells, if asked to, when the permit's lease is lost.
func (l *Limiter) acquireWatched(ctx context.Context, key string, q *request, tell func()) (*Permit, error) {
	if err := l.usable(ctx); err != nil {
		return nil, err
	}
	longest, byContext := q.maxWait, false
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		if left <= 0 {
			return nil, context.DeadlineExceeded
		}
		if longest < 0 || left < longest {
			longest, byContext = left, true
		}
	}
	wait := waitMS(longest)
	if wait == 0 && tell == nil && !l.client.remote() {
		return l.try(key, q)
	}
	loop, err := l.client.loop()
	if err != nil {
		return nil, err
	}
	if tell != nil {
		q.flags |= flagTellLost
		q.userData = loop.watch(tell)
	}
	a, err := loop.submit(ctx, l.handle, key, q, wait, byContext)
	runtime.KeepAlive(l)
	if err == nil {
		err = l.failure(&a, key, q, byContext && !a.Degraded)
	}
	if tell != nil && (err != nil || a.permit == 0) {
		loop.unwatch(q.userData)
	}
	if err != nil {
		return nil, err
	}
	p := l.permit(&a)
	if a.permit != 0 {
		p.watched = q.userData
	}
	return p, nil
}

// TryAcquire is Acquire without a wait: admitted now, or a [*DeniedError]. A denial changes nothing,
// and it never overtakes those who wait. On Redis it waits for the answer.
func (l *Limiter) TryAcquire(key string, options ...Option) (*Permit, error) {
	q := ask(options)
	q.maxWait = 0
	if err := l.usable(context.Background()); err != nil {
		return nil, err
	}
	if !l.client.remote() && q.flags&flagTellLost == 0 {
		return l.try(key, &q)
	}
	return l.acquire(context.Background(), key, &q)
}

// try decides on memory: one call into C, without the reactor.
func (l *Limiter) try(key string, q *request) (*Permit, error) {
	a := cTry(l.handle, key, q)
	runtime.KeepAlive(l)
	if a.Status != StatusOK {
		return nil, l.failure(&a, key, q, false)
	}
	return l.permit(&a), nil
}

// usable says what a call that came here by mistake would run into.
func (l *Limiter) usable(ctx context.Context) error {
	if l == nil || l.client == nil {
		return &Error{StatusInvalid, "a Limiter that was not made by Client.NewLimiter"}
	}
	if ctx == nil {
		return &Error{StatusInvalid, "a nil Context"}
	}
	return ctx.Err()
}

// failure is the error for an answer that is not OK, with the reason where the library found a request
// invalid: it says no more than that.
func (l *Limiter) failure(a *answer, key string, q *request, byContext bool) error {
	if a.Status != StatusInvalid {
		err := a.failure(byContext)
		if denied, ok := err.(*DeniedError); ok {
			denied.limiter = l
		}
		return err
	}
	detail := ""
	switch lease := q.leaseMS; {
	case len(key) > maxKey:
		detail = fmt.Sprintf("a key of %d bytes: at most %d", len(key), maxKey)
	case len(q.weights) != 0 && len(q.weights) != len(l.limits):
		detail = fmt.Sprintf("%d weights for %d limits", len(q.weights), len(l.limits))
	case lease != 0 && (lease < minLease || lease > maxLease):
		detail = leaseDetail(lease)
	}
	return &Error{StatusInvalid, detail}
}

const maxKey = 65_536

// Milliseconds.
const minLease, maxLease = 100, 86_400_000

func leaseDetail(ms uint32) string {
	return fmt.Sprintf("a lease of %d ms: %d to %d", ms, minLease, maxLease)
}

func (l *Limiter) permit(a *answer) *Permit {
	return &Permit{limiter: l, id: a.permit, decision: a.Decision}
}

// failure is the error for an answer that is not OK.
func (a *answer) failure(byContext bool) error {
	switch a.Status {
	case StatusDenied:
		return &DeniedError{
			RetryAfter:   a.RetryAfter,
			ResetAfter:   a.ResetAfter,
			Waited:       a.Waited,
			Limit:        a.Limit,
			Remaining:    a.Remaining,
			Index:        a.Index,
			Degraded:     a.Degraded,
			MaybeCharged: a.MaybeCharged,
			deadline:     byContext,
		}
	case StatusNever:
		return &NeverError{Limit: a.Limit, Index: a.Index}
	}
	return failure(a.Status)
}

// Wait is Acquire for limiters without a semaphore, whose permits need no release. With one it is
// refused with ErrInvalid: the permit would be lost.
func (l *Limiter) Wait(ctx context.Context, key string, options ...Option) error {
	if l != nil && l.holds {
		return &Error{StatusInvalid, "Wait on a limiter with a semaphore: use Acquire or Do, and the permit is not lost"}
	}
	_, err := l.Acquire(ctx, key, options...)
	return err
}

// Do acquires, calls f and releases, also when f panics. Its error is the acquire's, or f's, or
// ErrStale where a semaphore's lease was lost while f ran. The context that f gets ends, with the
// cause ErrStale, when that happens.
func (l *Limiter) Do(ctx context.Context, key string, f func(ctx context.Context) error, options ...Option) (err error) {
	q := ask(options)
	var tell func()
	if err := l.usable(ctx); err != nil {
		return err
	}
	if l.holds {
		watched, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		ctx, tell = watched, func() { cancel(errLost) }
	}
	p, err := l.acquireWatched(ctx, key, &q, tell)
	if err != nil {
		return err
	}
	defer func() {
		if over := p.Release(); l.holds && err == nil && errors.Is(over, ErrStale) {
			err = errLost
		}
	}()
	return f(ctx)
}

// AllowN says whether n units are admitted now: TryAcquire for limiters without a semaphore, where
// nobody needs the permit or the numbers. On memory it allocates nothing. The error is not nil if
// nothing was decided; with a semaphore it is ErrInvalid, since the permit would be lost.
func (l *Limiter) AllowN(key string, n uint64) (bool, error) {
	if err := l.usable(context.Background()); err != nil {
		return false, err
	}
	if l.holds {
		return false, &Error{StatusInvalid, "Allow on a limiter with a semaphore: use TryAcquire, and the permit is not lost"}
	}
	if l.client.remote() {
		_, err := l.TryAcquire(key, Weight(n))
		if errors.Is(err, ErrDenied) || errors.Is(err, ErrNever) {
			return false, nil
		}
		return err == nil, err
	}
	status := cAllow(l.handle, key, n)
	runtime.KeepAlive(l)
	if status == StatusDenied || status == StatusNever {
		return false, nil
	}
	return status == StatusOK, failure(status)
}

// Allow is AllowN of one unit.
func (l *Limiter) Allow(key string) (bool, error) { return l.AllowN(key, 1) }
