package limiter

import (
	"runtime"
	"time"
)

// Pace books the next moment at which the weight may start. Sleep [Permit.Delay], then start;
// releasing the permit before gives the slot back. A delay longer than [MaxWait] is refused with a
// [*DeniedError] and nothing is booked. ErrInvalid for a limiter with a semaphore.
func (l *Limiter) Pace(key string, options ...Option) (*Permit, error) {
	q := ask(options)
	l.client.block()
	a := cPace(l.handle, key, &q, waitMS(q.maxWait))
	l.client.unblock()
	runtime.KeepAlive(l)
	if err := a.failure(false); err != nil {
		return nil, err
	}
	return l.permit(&a), nil
}

// Peek is what TryAcquire would answer now, charging nothing. A denial is a decision here, not an
// error.
func (l *Limiter) Peek(key string, options ...Option) (Decision, error) {
	q := ask(options)
	l.client.block()
	a := cPeek(l.handle, key, &q)
	l.client.unblock()
	runtime.KeepAlive(l)
	if a.Status < 0 {
		return Decision{Status: a.Status, Index: -1}, failure(a.Status)
	}
	return a.Decision, nil
}

// Reset makes a key as new: rates and windows start afresh, permits held on it become stale, and
// those who wait are admitted as the new state allows.
func (l *Limiter) Reset(key string) error {
	l.client.block()
	status := cReset(l.handle, key)
	l.client.unblock()
	runtime.KeepAlive(l)
	return failure(status)
}

// Penalize lets nothing start on a key before retryAfter has passed: what to call when the service
// behind it said "too many requests, come back in". Bounded by [WithMaxPenalty]; a running penalty
// is never shortened.
func (l *Limiter) Penalize(key string, retryAfter time.Duration) error {
	if retryAfter <= 0 {
		return nil
	}
	us := (uint64(retryAfter) + uint64(time.Microsecond) - 1) / uint64(time.Microsecond)
	l.client.block()
	status := cPenalize(l.handle, key, us)
	l.client.unblock()
	runtime.KeepAlive(l)
	return failure(status)
}

// Request is one question of [Limiter.TryMany].
type Request struct {
	Key     string
	Options []Option
}

// Result is one answer of [Limiter.TryMany]: a permit, or the error that TryAcquire would return.
type Result struct {
	Permit *Permit
	Err    error
}

// TryMany decides up to 65 536 requests without a wait, in their order, each for itself. On Redis
// that is one round trip. The error is not nil only if nothing was decided.
func (l *Limiter) TryMany(requests ...Request) ([]Result, error) {
	if len(requests) == 0 {
		return nil, nil
	}
	keys, queries := make([]string, len(requests)), make([]request, len(requests))
	for i, r := range requests {
		keys[i], queries[i] = r.Key, ask(r.Options)
	}
	l.client.block()
	raw, status := cTryMany(l.handle, keys, queries)
	l.client.unblock()
	runtime.KeepAlive(l)
	if err := failure(status); err != nil {
		return nil, err
	}
	results := make([]Result, len(raw))
	for i := range raw {
		a := toAnswer(&raw[i])
		if err := a.failure(false); err != nil {
			results[i].Err = err
		} else {
			results[i].Permit = l.permit(&a)
		}
	}
	return results, nil
}
