package limiter

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"
)

// A grant may be polled before the goroutine that asked for it has said that it waits.
func TestAnswerThatComesEarlyIsKept(t *testing.T) {
	c := open(t)
	l := newLimiter(t, c, Semaphore(1))
	held := mustAcquire(t, l, "")
	loop, err := c.loop()
	if err != nil {
		t.Fatal(err)
	}
	q := ask(nil)
	pending := cSubmit(loop.queue, l.handle, "", &q, -1)
	if pending.Status != StatusPending {
		t.Fatal(pending.Status)
	}
	held.Release()
	early := func() int {
		loop.mu.Lock()
		defer loop.mu.Unlock()
		return len(loop.early)
	}
	eventually(t, "early answer", func() bool { return early() == 1 })
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	a, err := loop.await(gone, pending.op, false) // the grant was first
	if err != nil || a.Status != StatusOK || a.permit == 0 || early() != 0 {
		t.Errorf("%+v, %v, %d left", a, err, early())
	}
}

// Whoever waits when the reactor ends, or comes later, is told, even of a wait the library forgot.
func TestNobodyWaitsForAReactorThatIsGone(t *testing.T) {
	c, err := Open("")
	if err != nil {
		t.Fatal(err)
	}
	loop, err := c.loop()
	if err != nil {
		t.Fatal(err)
	}
	const noSuchOperation = math.MaxUint64
	done := make(chan answer, 1)
	go func() {
		a, _ := loop.await(context.Background(), noSuchOperation, false)
		done <- a
	}()
	eventually(t, "waiter", func() bool {
		loop.mu.Lock()
		defer loop.mu.Unlock()
		return len(loop.waits) == 1
	})
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if a := <-done; a.Status != StatusClosed {
		t.Errorf("%v", a.Status)
	}
	if _, err := loop.await(context.Background(), noSuchOperation, false); !errors.Is(err, ErrClosed) {
		t.Errorf("later: %v", err)
	}
	if _, err := loop.submit(context.Background(), nil, "", &request{}, 0, false); !errors.Is(err, ErrClosed) {
		t.Errorf("submit: %v", err)
	}
}

// A cancel that meets the reactor's end leaves no answer in a channel that somebody else waits on next.
func TestACancelThatMeetsTheEndLeavesNoAnswerBehind(t *testing.T) {
	for range 20 {
		c := open(t)
		l := newLimiter(t, c, Semaphore(1))
		mustAcquire(t, l, "k")
		loop, err := c.loop()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(bg)
		done := make(chan error, 1)
		go func() {
			_, err := l.Acquire(ctx, "k")
			done <- err
		}()
		var wait chan answer
		eventually(t, "waiter", func() bool {
			loop.mu.Lock()
			defer loop.mu.Unlock()
			for _, wait = range loop.waits {
			}
			return wait != nil
		})
		loop.mu.Lock()
		cancel()
		eventually(t, "detached wait", func() bool { return stats(t, c).Waiting == 0 })
		loop.mu.Unlock()
		loop.end() // before the one who cancelled gets the lock
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		if len(wait) != 0 {
			t.Fatal("an answer is left for somebody else")
		}
	}
}

func TestWaitsAreRoundedUpToMilliseconds(t *testing.T) {
	for d, want := range map[time.Duration]int32{
		0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, 2 * time.Second: 2000, -1: -1, math.MinInt64: -1,
		math.MaxInt32 * time.Millisecond: math.MaxInt32, math.MaxInt32*time.Millisecond + 1: math.MaxInt32, math.MaxInt64: math.MaxInt32,
	} {
		if got := waitMS(d); got != want {
			t.Errorf("%v: %d, not %d", d, got, want)
		}
	}
	for d, want := range map[time.Duration]uint32{-1: 1, 0: 0, 1: 1, 1000 * time.Hour: 3_600_000_000, math.MaxInt64: math.MaxUint32} {
		if got := millisUp(d); got != want {
			t.Errorf("%v: %d, not %d", d, got, want)
		}
	}
}

func TestDurationsSaturate(t *testing.T) {
	for us, want := range map[uint64]time.Duration{
		0: 0, 1: time.Microsecond, math.MaxUint64: math.MaxInt64 / 1000 * 1000, 1 << 62: math.MaxInt64 / 1000 * 1000,
	} {
		if got := fromMicros(us); got != want {
			t.Errorf("%d: %d, not %d", us, got, want)
		}
	}
}

func TestGateLetsAFewIn(t *testing.T) {
	g := newGate()
	if n := len(g.ways); n < 2 || n > mostWays {
		t.Fatalf("%d ways", n)
	}
	var all sync.WaitGroup
	for range 1000 {
		all.Add(1)
		go func() {
			defer all.Done()
			g.enter().Unlock()
		}()
	}
	all.Wait()
	g.shut()
	for range 100 {
		way := g.enter()
		if !way.shut {
			t.Error("a way is open")
		}
		way.Unlock()
	}
}
