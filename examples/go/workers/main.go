// Workers runs a pool of 16 goroutines over 60 tasks, of which at most 4 run at once and 100 start
// in a second.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	limiter "github.com/liblimiter/liblimiter/bindings/go"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	most, took, err := run(ctx, 60)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("60 tasks in %v, at most %d at once\n", took.Round(time.Millisecond), most)
}

// run does the tasks and tells how many ran at once at most.
func run(ctx context.Context, tasks int) (most int64, took time.Duration, err error) {
	client, err := limiter.Open("memory://")
	if err != nil {
		return 0, 0, err
	}
	defer client.Close()
	upstream, err := client.NewLimiter("upstream",
		limiter.Semaphore(4),
		limiter.TokenBucket(10, 100, time.Second))
	if err != nil {
		return 0, 0, err
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	queue := make(chan int)
	var running, peak atomic.Int64
	var pool sync.WaitGroup
	start := time.Now()
	for range 16 {
		pool.Add(1)
		go func() {
			defer pool.Done()
			for range queue {
				if err := upstream.Do(ctx, "", func(context.Context) error { return task(&running, &peak) }); err != nil {
					cancel(err) // the others stop waiting at once
				}
			}
		}()
	}
	for i := range tasks {
		queue <- i
	}
	close(queue)
	pool.Wait()
	return peak.Load(), time.Since(start), context.Cause(ctx)
}

func task(running, peak *atomic.Int64) error {
	now := running.Add(1)
	defer running.Add(-1)
	for {
		seen := peak.Load()
		if now <= seen || peak.CompareAndSwap(seen, now) {
			break
		}
	}
	time.Sleep(5 * time.Millisecond)
	return nil
}
