package limiter

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

// roundTrip makes a call that on Redis waits for an answer, as long as ctx lasts. Where ctx ends
// first, the call goes on without its caller, and its answer is handed to late.
func roundTrip[T any](ctx context.Context, l *Limiter, call func() T, late func(T)) (answer T, err error) {
	defer runtime.KeepAlive(l)
	if err := l.usable(ctx); err != nil {
		return answer, err
	}
	slots := l.client.slots
	if slots == nil { // memory: it waits for nothing
		return call(), nil
	}
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return answer, ctx.Err()
	}
	if ctx.Done() == nil {
		defer func() { <-slots }()
		return call(), nil
	}
	answered := make(chan T) // unbuffered: an answer is either taken here or is late
	go func() {
		answer := call()
		<-slots
		select {
		case answered <- answer:
		case <-ctx.Done():
			late(answer)
		}
		runtime.KeepAlive(l)
	}()
	select {
	case answer = <-answered:
		return answer, nil
	case <-ctx.Done():
		return answer, ctx.Err()
	}
}

// ask is roundTrip for what answers with a status and holds nothing.
func (l *Limiter) ask(ctx context.Context, call func() Status) error {
	status, err := roundTrip(ctx, l, call, func(Status) {})
	if err != nil {
		return err
	}
	return failure(status)
}

// Pace books the next moment at which the weight may start. Sleep [Permit.Delay], then start;
// releasing the permit before gives the slot back. A delay longer than [MaxWait] is refused with a
// [*DeniedError] and nothing is booked. ErrInvalid for a limiter with a semaphore. The context
// bounds the call, not the delay; if it ends meanwhile, nothing stays booked.
func (l *Limiter) Pace(ctx context.Context, key string, options ...Option) (*Permit, error) {
	q := ask(options)
	a, err := roundTrip(ctx, l, func() answer { return cPace(l.handle, key, &q, waitMS(q.maxWait)) },
		func(a answer) { cRelease(l.handle, a.permit) })
	if err == nil && a.Status == StatusInvalid && l.holds {
		err = &Error{StatusInvalid, "Pace on a limiter with a semaphore: Acquire does both"}
	} else if err == nil {
		err = l.failure(&a, key, &q, false)
	}
	if err != nil {
		return nil, err
	}
	return l.permit(&a), nil
}

// Peek is what TryAcquire would answer now, charging nothing. A denial is a decision here, not an
// error.
func (l *Limiter) Peek(ctx context.Context, key string, options ...Option) (Decision, error) {
	q := ask(options)
	a, err := roundTrip(ctx, l, func() answer { return cPeek(l.handle, key, &q) }, func(answer) {})
	if err != nil {
		return Decision{Index: -1}, err
	}
	if a.Status < 0 {
		return Decision{Status: a.Status, Index: -1}, l.failure(&a, key, &q, false)
	}
	return a.Decision, nil
}

// Reset makes a key as new: rates and windows start afresh, permits held on it become stale, and
// those who wait are admitted as the new state allows.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	return l.ask(ctx, func() Status { return cReset(l.handle, key) })
}

// Penalize lets nothing start on a key before retryAfter has passed: what to call when the service
// behind it said "too many requests, come back in". Bounded by [WithMaxPenalty]; a running penalty
// is never shortened.
func (l *Limiter) Penalize(ctx context.Context, key string, retryAfter time.Duration) error {
	if retryAfter <= 0 {
		return nil
	}
	us := (uint64(retryAfter) + uint64(time.Microsecond) - 1) / uint64(time.Microsecond)
	return l.ask(ctx, func() Status { return cPenalize(l.handle, key, us) })
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

// TryMany decides up to 65 536 requests without a wait (MaxWait is not looked at), in their order,
// each for itself. On Redis
// that is one round trip. The error is not nil only if nothing was decided, or ctx ended meanwhile:
// then what was admitted is given back, but for what rates and windows were charged.
func (l *Limiter) TryMany(ctx context.Context, requests ...Request) ([]Result, error) {
	if len(requests) == 0 {
		return nil, nil
	}
	keys, queries := make([]string, len(requests)), make([]request, len(requests))
	for i, r := range requests {
		keys[i], queries[i] = r.Key, ask(r.Options)
	}
	type many struct {
		raw    []rawDecision
		status Status
	}
	m, err := roundTrip(ctx, l, func() (m many) {
		m.raw, m.status = cTryMany(l.handle, keys, queries)
		return m
	}, func(m many) {
		for i := range m.raw {
			cRelease(l.handle, toAnswer(&m.raw[i]).permit)
		}
	})
	if err == nil && m.status == StatusInvalid {
		err = l.whichInvalid(keys, queries)
	} else if err == nil {
		err = failure(m.status)
	}
	if err != nil {
		return nil, err
	}
	results := make([]Result, len(m.raw))
	for i := range m.raw {
		a := toAnswer(&m.raw[i])
		if a.Status != StatusOK {
			results[i].Err = l.failure(&a, keys[i], &queries[i], false)
		} else {
			results[i].Permit = l.permit(&a)
		}
	}
	return results, nil
}

// whichInvalid says which of many requests the library found invalid.
func (l *Limiter) whichInvalid(keys []string, queries []request) error {
	const most = 65_536
	if len(keys) > most {
		return &Error{StatusInvalid, fmt.Sprintf("%d requests: at most %d", len(keys), most)}
	}
	for i, key := range keys {
		q := &queries[i]
		if q.flags&flagTellLost != 0 {
			return &Error{StatusInvalid, fmt.Sprintf("requests[%d]: NotifyLost is for Acquire", i)}
		}
		invalid := l.failure(&answer{Decision: Decision{Status: StatusInvalid}}, key, q, false).(*Error)
		if invalid.Detail != "" {
			return &Error{StatusInvalid, fmt.Sprintf("requests[%d]: %s", i, invalid.Detail)}
		}
	}
	return failure(StatusInvalid)
}
