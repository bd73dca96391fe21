package limiter

import (
	"fmt"
	"math"
	"time"
)

// Kind is what a limit does.
type Kind uint32

// The kinds, as in the C header.
const (
	KindSemaphore      Kind = 1
	KindTokenBucket    Kind = 2
	KindPacer          Kind = 3
	KindSlidingLog     Kind = 4
	KindSlidingCounter Kind = 5
	KindFixedWindow    Kind = 6
	KindUnlimited      Kind = 7
	KindNeverAdmit     Kind = 8
)

var kindNames = [...]string{
	KindSemaphore: "semaphore", KindTokenBucket: "token bucket", KindPacer: "pacer", KindSlidingLog: "sliding log",
	KindSlidingCounter: "sliding counter", KindFixedWindow: "fixed window", KindUnlimited: "unlimited",
	KindNeverAdmit: "never admit",
}

// String is the kind in words, such as "token bucket".
func (k Kind) String() string {
	if k == 0 || int(k) >= len(kindNames) {
		return fmt.Sprintf("kind %d", uint32(k))
	}
	return kindNames[k]
}

// Flags of a limit; equal to the C header's.
const (
	flagPerCall       = 1
	flagInterval      = 2
	flagStartEmpty    = 4
	flagAlignFirstUse = 8
	flagNoRenew       = 16
	flagTellLost      = 32
)

// Limit is one rule of a limiter. Make one with [Semaphore], [TokenBucket] and the other
// constructors, and refine it with its methods, each of which returns a changed copy:
//
//	limiter.TokenBucket(500, 500, time.Minute).PerCall()
//
// What is out of range is refused by [Client.NewLimiter], with the range in the error. Periods are
// whole microseconds.
type Limit struct {
	kind     Kind
	flags    uint32
	capacity uint64
	refill   uint64
	period   time.Duration
	lease    time.Duration
	earnSlow uint32 // burst earn rate below the default of 500 thousandths, so that zero is the default
	earnFast uint32 // the same above it
	version  uint32
}

// Semaphore lets at most capacity units be held at once, first in, first out over all processes. A
// permit is renewed in the background while it is held; a killed process's permits come back when
// their lease ends.
func Semaphore(capacity uint64) Limit {
	return Limit{kind: KindSemaphore, capacity: capacity}
}

// TokenBucket saves up to capacity units, of which refill come back per period, continuously. It
// starts full.
func TokenBucket(capacity, refill uint64, per time.Duration) Limit {
	return Limit{kind: KindTokenBucket, capacity: capacity, refill: refill, period: per}
}

// Pacer admits refill units per period, evenly spaced, and after quiet times up to burst more.
func Pacer(refill uint64, per time.Duration, burst uint64) Limit {
	return Limit{kind: KindPacer, capacity: burst, refill: refill, period: per}
}

// SlidingLog admits at most capacity units in any window, exactly. Its memory grows with capacity.
func SlidingLog(capacity uint64, window time.Duration) Limit {
	return Limit{kind: KindSlidingLog, capacity: capacity, period: window}
}

// SlidingCounter admits about capacity units in any window, from two counters.
func SlidingCounter(capacity uint64, window time.Duration) Limit {
	return Limit{kind: KindSlidingCounter, capacity: capacity, period: window}
}

// FixedWindow admits at most capacity units in each window, aligned to the clock; across a window's
// edge up to twice that.
func FixedWindow(capacity uint64, window time.Duration) Limit {
	return Limit{kind: KindFixedWindow, capacity: capacity, period: window}
}

// Unlimited always admits.
func Unlimited() Limit { return Limit{kind: KindUnlimited} }

// NeverAdmit never admits: every weight but 0 is answered ErrNever.
func NeverAdmit() Limit { return Limit{kind: KindNeverAdmit} }

// PerCall counts calls, not their weight: "500 requests" beside "90 000 tokens".
func (l Limit) PerCall() Limit { l.flags |= flagPerCall; return l }

// Interval makes a token bucket's refill come all at once, at each period's end.
func (l Limit) Interval() Limit { l.flags |= flagInterval; return l }

// StartEmpty makes a token bucket begin with nothing saved up.
func (l Limit) StartEmpty() Limit { l.flags |= flagStartEmpty; return l }

// AlignFirstUse makes a fixed window begin at its first use, not by the clock.
func (l Limit) AlignFirstUse() Limit { l.flags |= flagAlignFirstUse; return l }

// NoRenew leaves the renewal of a semaphore's permits to [Permit.Renew].
func (l Limit) NoRenew() Limit { l.flags |= flagNoRenew; return l }

// Lease sets how long a semaphore's permit lives unless it is renewed, 100 ms to a day.
func (l Limit) Lease(d time.Duration) Limit {
	l.lease = max(1, d) // 0 would mean the default; what is below the range is refused
	return l
}

// BurstEarn sets how fast a pacer's burst is earned back, in thousandths of its rate, 0 to 1000.
// The default is 500.
func (l Limit) BurstEarn(permille uint32) Limit {
	l.earnSlow, l.earnFast = 0, 0
	if permille < defaultEarn {
		l.earnSlow = defaultEarn - permille
	} else {
		l.earnFast = permille - defaultEarn
	}
	return l
}

// Version numbers this configuration. Where the name is open with other numbers elsewhere, a lower
// version cannot bring older ones back.
func (l Limit) Version(n uint32) Limit { l.version = n; return l }

// Kind is what the limit does.
func (l Limit) Kind() Kind { return l.kind }

// Capacity is the most units: held at once, saved up, in a window; the burst of a pacer.
func (l Limit) Capacity() uint64 { return l.capacity }

// Refill is how many units come back per Period in a token bucket or pacer; 0 for other kinds.
func (l Limit) Refill() uint64 { return l.refill }

// Period is a bucket's or pacer's period, or a window's length; 0 for other kinds.
func (l Limit) Period() time.Duration { return l.period }

// String is the limit's kind and numbers.
func (l Limit) String() string {
	switch l.kind {
	case KindTokenBucket:
		return fmt.Sprintf("%v of %d, %d per %v", l.kind, l.capacity, l.refill, l.period)
	case KindPacer:
		return fmt.Sprintf("%v of %d per %v, burst %d", l.kind, l.refill, l.period, l.capacity)
	case KindSlidingLog, KindSlidingCounter, KindFixedWindow:
		return fmt.Sprintf("%v of %d per %v", l.kind, l.capacity, l.period)
	case KindSemaphore:
		return fmt.Sprintf("%v of %d", l.kind, l.capacity)
	}
	return l.kind.String()
}

// CountsCalls says whether PerCall was asked for.
func (l Limit) CountsCalls() bool { return l.flags&flagPerCall != 0 }

const defaultEarn = 500

func (l Limit) earn() uint32 { return defaultEarn - l.earnSlow + l.earnFast }

// periodUS is the period in microseconds, or what is wrong with it.
func (l Limit) periodUS() (uint64, error) {
	if l.period < 0 || l.period%time.Microsecond != 0 {
		return 0, &Error{StatusConfig, fmt.Sprintf("period %v is not a positive number of whole microseconds", l.period)}
	}
	return uint64(l.period / time.Microsecond), nil
}

// millisUp is d in milliseconds, rounded up and cut to what fits: too much is then refused in C.
func millisUp(d time.Duration) uint32 {
	if d < 0 {
		return 1 // below every range
	}
	ms := (uint64(d) + uint64(time.Millisecond) - 1) / uint64(time.Millisecond)
	return uint32(min(ms, math.MaxUint32))
}
