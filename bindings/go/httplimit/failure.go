package httplimit

import (
	"errors"
	"slices"

	limiter "github.com/liblimiter/liblimiter/bindings/go"
)

// unanswered says that the limits could not be asked. Only this may let a request through without a
// permit. Whatever else is neither admitted nor denied may be the request's doing (a key too long,
// more waits than fit), and would be a way around the limit.
func unanswered(err error) bool {
	return slices.ContainsFunc([]error{limiter.ErrBackend, limiter.ErrUnknownOutcome, limiter.ErrTimeout, limiter.ErrClosed},
		func(target error) bool { return errors.Is(err, target) })
}

// release gives a permit back, and answers ErrStale where a semaphore's lease was lost meanwhile: then
// others may have run beside.
func release(l *limiter.Limiter, permit *limiter.Permit) error {
	err := permit.Release()
	if errors.Is(err, limiter.ErrStale) && slices.ContainsFunc(l.Limits(), holds) {
		return err
	}
	return nil
}

func holds(l limiter.Limit) bool { return l.Kind() == limiter.KindSemaphore }

// byPolicy says that the failure policy denied, whoever asked: no limit was looked at.
func byPolicy(denied *limiter.DeniedError) bool { return denied.Degraded && denied.Index < 0 }
