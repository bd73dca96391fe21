package limiter

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// threads is how many operating system threads the process has.
func threads(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip(err)
	}
	for _, line := range strings.Split(string(status), "\n") {
		if rest, ok := strings.CutPrefix(line, "Threads:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(rest))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("no Threads line")
	return 0
}

const waiters, mostThreads = 10_000, 50

// All of ten thousand waiters return within 100 ms of a cancel, on fewer than 50 threads. A machine
// that is busy with other things gets several attempts at the first, and then has to show that they
// need no more than a few times what as many goroutines need on it that wait for the context alone.
func TestTenThousandWaiters(t *testing.T) {
	bound, attempts := 100*time.Millisecond, 10
	if raceEnabled {
		bound = time.Second
	}
	for _, test := range []struct {
		name string
		key  func(int) string
	}{
		{"one key", func(int) string { return "k" }},
		{"many keys", func(i int) string { return strconv.Itoa(i % 100) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			best, work, alone := time.Hour, time.Hour, time.Duration(0)
			for range attempts {
				took, used := cancelWaiters(t, test.key)
				best, work = min(best, took), min(work, used)
				if best <= bound {
					break
				}
				alone = max(alone, cancelNothing(t))
			}
			if best > bound && work > 10*alone {
				t.Errorf("a cancel took %v at best, and %v of processors, %v for the context alone", best, work, alone)
			}
			n := threads(t)
			if n >= mostThreads {
				t.Errorf("%d threads", n)
			}
			t.Logf("all returned in %v (%v of processors), %d threads", best, work, n)
		})
	}
}

// cancelWaiters makes the waiters, cancels them all, and tells how long that took, by the clock and
// of processors.
func cancelWaiters(t *testing.T, key func(int) string) (took, used time.Duration) {
	c := open(t)
	l := newLimiter(t, c, Semaphore(1))
	for i := range waiters {
		if _, err := l.TryAcquire(key(i)); i == 0 && err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	errs := make([]error, waiters)
	var all sync.WaitGroup
	for i := range waiters {
		all.Add(1)
		go func() {
			defer all.Done()
			_, errs[i] = l.Acquire(ctx, key(i))
		}()
	}
	untilWaiting(t, c, waiters)
	if n := threads(t); n >= mostThreads {
		t.Errorf("%d threads while waiting", n)
	}
	start, before := time.Now(), processorTime(t)
	cancel()
	all.Wait()
	took, used = time.Since(start), processorTime(t)-before
	for _, err := range errs {
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	if s := stats(t, c); s.Waiting != 0 {
		t.Errorf("%d still wait", s.Waiting)
	}
	if n := len(c.reactor.waits) + len(c.reactor.early); n != 0 {
		t.Errorf("%d answers still expected", n)
	}
	return took, used
}

// cancelNothing is cancelWaiters without a limiter, of processors.
func cancelNothing(t *testing.T) time.Duration {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var all, ready sync.WaitGroup
	for range waiters {
		all.Add(1)
		ready.Add(1)
		go func() {
			defer all.Done()
			ready.Done()
			select {
			case <-ctx.Done():
			case <-make(chan int):
			}
		}()
	}
	ready.Wait()
	before := processorTime(t)
	cancel()
	all.Wait()
	return processorTime(t) - before
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func TestTenThousandGrants(t *testing.T) {
	c := open(t)
	l := newLimiter(t, c, Semaphore(4))
	var all sync.WaitGroup
	for range waiters {
		all.Add(1)
		go func() {
			defer all.Done()
			if err := l.Do(context.Background(), "k", func(context.Context) error { return nil }); err != nil {
				t.Error(err)
			}
		}()
	}
	all.Wait()
	if n := threads(t); n >= mostThreads {
		t.Errorf("%d threads", n)
	}
	if s := stats(t, c); s.Granted != waiters || s.InFlight != 0 || s.Waiting != 0 {
		t.Errorf("%+v", s)
	}
}
