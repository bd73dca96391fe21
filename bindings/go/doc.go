// Package limiter limits what programs do across goroutines, processes and machines: how many
// things run at once, how fast they start, how much is used per window. State lives in this
// process's memory or in Redis, with the same answers.
//
// A [Limiter] is a name with one or more limits. To acquire takes from all of them at once, or from
// none; what is then held is a [Permit]:
//
//	client, err := limiter.Open("memory://")
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	upstream, err := client.NewLimiter("upstream",
//		limiter.Semaphore(4),
//		limiter.TokenBucket(20, 200, time.Second))
//	if err != nil {
//		return err
//	}
//	err = upstream.Do(ctx, "tenant-7", func(ctx context.Context) error {
//		return call(ctx)
//	})
//
// # Verbs
//
// [Limiter.Acquire] waits, [Limiter.TryAcquire] and [Limiter.Allow] do not, [Limiter.Wait] is Acquire for limiters
// whose permits need no release, [Limiter.Pace] books a slot and says how long to sleep, and
// [Limiter.Do] brackets a function. [Limiter.Peek], [Limiter.Reset], [Limiter.Penalize] and
// [Limiter.TryMany] complete them. [Permit.Release] gives back, [Permit.Settle] corrects an
// estimate, [Permit.Renew] prolongs a lease.
//
// # Contexts
//
// A context's deadline is the longest wait. Where the wait is known to exceed it, Acquire fails at
// once and books nothing, with a [*DeniedError] that matches both [ErrDenied] and
// [context.DeadlineExceeded]; the same error comes when the deadline passes in the queue. On Redis,
// where nothing was heard before the deadline, nobody has denied: that is [context.DeadlineExceeded]
// alone. A
// cancelled context ends the wait at once with [context.Canceled]; its place in the queue and what
// it had booked are given back. When a grant and a cancel meet, exactly one of them wins: either
// the error is returned and nothing is held, or the permit is returned.
//
// # Errors
//
// Failures match one of the Err variables with [errors.Is]; denials carry their numbers in a
// [*DeniedError], found with [errors.As].
//
// # Permits and the garbage collector
//
// A permit has no finalizer. One that is forgotten stays held, and is renewed, until its client is
// closed or the process ends: a collector that released it some time later would hide the bug and
// admit others at a moment nobody chose. Use [Limiter.Do], or defer Release; [Stats].InFlight shows
// what is held. Limiters need no closing; their C handles are freed with them.
//
// # Goroutines and threads
//
// All types are safe for concurrent use. A waiting goroutine costs no operating system thread: one
// goroutine for each client, parked in the runtime's network poller, hands out the grants. It is
// started by the first call that needs it and ended by [Client.Close]. Calls on memory return
// without waiting for it unless they have to wait.
//
// On Redis, Pace, Peek, Reset, Penalize, TryMany, Settle and Renew take one round trip, which
// [WithCommandTimeout] bounds, and a thread for that long; at most 24 of a client are under way at a
// time, and more wait for their turn as long as their context lasts. A context that ends meanwhile
// returns its error at once: what was sent may still take effect, except that bookings and permits
// are given back. TryMany asks many questions in one round trip. TryAcquire and Allow take a round
// trip too, but no thread; Acquire with MaxWait(0) is TryAcquire with a context.
//
// # Linking
//
// The package uses cgo and finds liblimiter with pkg-config.
package limiter
