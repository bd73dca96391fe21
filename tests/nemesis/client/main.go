// A process of the nemesis in Go; see client.c for what it is given and tells. It does not fork.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	limiter "github.com/liblimiter/liblimiter/bindings/go"
)

var (
	told  *os.File
	count atomic.Int64
)

// now is CLOCK_MONOTONIC, which all processes share.
func now() int64 {
	var span syscall.Timespec
	const monotonic = 1
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&span)), 0)
	return span.Nano() / 1000
}

func tell(words ...any) {
	if _, err := told.WriteString(fmt.Sprintln(words...)); err != nil {
		os.Exit(3)
	}
}

// isFine: Redis may be away; nothing else may go wrong.
func isFine(err error) bool {
	for _, fine := range []error{limiter.ErrDenied, limiter.ErrBackend, limiter.ErrUnknownOutcome,
		limiter.ErrTimeout, limiter.ErrStale, context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, fine) {
			return true
		}
	}
	return false
}

func hold(ctx context.Context, held *limiter.Limiter, dice *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(dice.IntN(600))*time.Millisecond)
	defer cancel()
	permit, err := held.Acquire(ctx, "", limiter.NotifyLost())
	if err != nil {
		if !isFine(err) {
			tell("X held", err)
		}
		time.Sleep(5 * time.Millisecond)
		return
	}
	id := count.Add(1)
	tell("G", os.Getpid(), id, now())
	span := time.Duration(dice.IntN(40_000)) * time.Microsecond
	if dice.IntN(40) == 0 {
		span = 2500 * time.Millisecond // longer than a lease lasts
	}
	select {
	case <-time.After(span):
		tell("E", os.Getpid(), id, now())
	case <-permit.Lost():
		tell("L", os.Getpid(), id, now())
	}
	if err := permit.Release(); err != nil && !isFine(err) {
		tell("X release", err)
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var err error
	if told, err = os.OpenFile(os.Args[2], os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600); err != nil {
		os.Exit(3)
	}
	seed, _ := strconv.ParseUint(os.Args[3], 10, 64)
	client, err := limiter.Open(os.Args[1])
	if err != nil {
		os.Exit(4)
	}
	held, err := client.NewLimiter("held", limiter.Semaphore(3).Lease(2*time.Second))
	if err != nil {
		os.Exit(4)
	}
	rate, err := client.NewLimiter("rate", limiter.TokenBucket(20, 200, time.Second))
	if err != nil {
		os.Exit(4)
	}
	var all sync.WaitGroup
	for n := range uint64(3) {
		all.Add(1)
		go func() {
			defer all.Done()
			dice := rand.New(rand.NewPCG(seed, n))
			for ctx.Err() == nil {
				hold(ctx, held, dice)
			}
		}()
	}
	all.Add(1)
	go func() {
		defer all.Done()
		for ctx.Err() == nil {
			admitted, err := rate.Allow("")
			switch {
			case admitted:
				tell("A", now())
			case err != nil && !isFine(err):
				tell("X rate", err)
			}
			time.Sleep(3 * time.Millisecond)
		}
	}()
	all.Wait()
	if err := client.Close(); err != nil && !isFine(err) {
		tell("X close", err)
		os.Exit(5)
	}
}
