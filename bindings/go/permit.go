package limiter

import (
	"context"
	"runtime"
	"time"
)

// Decision is an answer with its numbers.
type Decision struct {
	Status        Status
	Degraded      bool          // answered by the failure policy because the backend could not
	MaybeCharged  bool          // degraded, sent, and the answer lost: charged once or not at all
	Index         int           // position of the limit that refused, else of the tightest; -1: no numbers
	Limit         uint64        // units that limit allows at most
	Remaining     uint64        // units of it that could be taken at this moment
	RetryAfter    time.Duration // denied: when to come back; Pace: how long to sleep
	ResetAfter    time.Duration // until that limit is as good as new if nobody else comes
	Waited        time.Duration // how long the call waited
	Fence         uint64        // semaphore: grows with every grant on the key; otherwise 0
	QueuePosition int           // how many waited ahead when the call was queued
}

// Permit is what an admitted call holds. It has no finalizer: see the package's notes on permits.
type Permit struct {
	limiter  *Limiter
	id       uint64 // 0: nothing was charged, so there is nothing to give back
	watched  uint64 // not 0: the loss of its lease is watched under this user_data
	lost     chan struct{}
	decision Decision
}

// Decision is the answer that granted the permit.
func (p *Permit) Decision() Decision { return p.decision }

// Remaining is how many units could still be taken when the permit was granted.
func (p *Permit) Remaining() uint64 { return p.decision.Remaining }

// Fence is a number that grows with every grant of a semaphore on one key, so that a resource can
// refuse an older holder; 0 without a semaphore.
func (p *Permit) Fence() uint64 { return p.decision.Fence }

// Degraded says that the failure policy granted the permit, not the backend.
func (p *Permit) Degraded() bool { return p.decision.Degraded }

// Delay is how long to sleep before starting what [Limiter.Pace] booked.
func (p *Permit) Delay() time.Duration { return p.decision.RetryAfter }

// Lost is closed when the lease of the permit was lost: somebody else may hold now what it held. It
// is nil, and so never ready, unless the permit was acquired with [NotifyLost]. It keeps silent about
// [Limiter.Reset], which ends permits on purpose; Release and Renew tell of that.
func (p *Permit) Lost() <-chan struct{} { return p.lost }

// Release gives the permit back: a semaphore's weight goes to those who wait; what was taken from
// rates and windows stays taken. A slot of [Limiter.Pace] that is still to come is given back whole.
// It never waits. ErrStale, with no effect, if the permit is over: released before, or its lease
// lost. Also, after some thousand later calls, for a permit of a limiter without a semaphore, which
// need not be released.
func (p *Permit) Release() error {
	if p == nil || p.id == 0 {
		return nil
	}
	if p.watched != 0 {
		p.limiter.client.reactor.unwatch(p.watched)
	}
	way := p.limiter.client.gate.enter()
	status := cRelease(p.limiter.handle, p.id)
	way.Unlock()
	runtime.KeepAlive(p.limiter)
	return failure(status)
}

// Settle corrects an estimate: the call used actual units, not the weight it asked for. Less is
// given back, more is charged, beyond the limit if need be. Once, before Release; it applies to the
// limits that count weight, except semaphores. ErrInvalid beyond 1<<48.
func (p *Permit) Settle(ctx context.Context, actual uint64) error {
	if p == nil || p.id == 0 {
		return nil
	}
	return p.limiter.ask(ctx, func() Status { return cSettle(p.limiter.handle, p.id, actual) })
}

// Renew makes the permit live for a lease from now; 0 means the lease it was granted with. Only of
// use with NoRenew: otherwise the library renews in time. ErrStale if the permit is over.
func (p *Permit) Renew(ctx context.Context, lease time.Duration) error {
	if p == nil || p.id == 0 {
		return nil
	}
	ms := millisUp(lease)
	if ms != 0 && (ms < minLease || ms > maxLease) {
		return &Error{StatusInvalid, leaseDetail(ms)}
	}
	return p.limiter.ask(ctx, func() Status { return cRenew(p.limiter.handle, p.id, ms) })
}
