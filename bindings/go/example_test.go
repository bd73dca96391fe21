package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	limiter "github.com/liblimiter/liblimiter/bindings/go"
)

// virtual is a client whose clock only moves when the example says so.
func virtual() *limiter.Client {
	client, err := limiter.Open("memory://", limiter.WithVirtualClock())
	if err != nil {
		log.Fatal(err)
	}
	return client
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

// At most four calls at once, and 200 a second with a burst of 20.
func Example() {
	client, err := limiter.Open("memory://")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	upstream, err := client.NewLimiter("upstream",
		limiter.Semaphore(4),
		limiter.TokenBucket(20, 200, time.Second))
	if err != nil {
		log.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err = upstream.Do(ctx, "tenant-7", func(ctx context.Context) error {
		fmt.Println("working")
		return nil
	})
	fmt.Println(err)
	// Output:
	// working
	// <nil>
}

func ExampleOpen() {
	client, err := limiter.Open("memory://", limiter.WithLease(10*time.Second), limiter.WithMaxWaiting(1000))
	fmt.Println(client != nil, err)
	client.Close()

	_, err = limiter.Open("memory://", limiter.WithMaxWaiting(0))
	fmt.Println(errors.Is(err, limiter.ErrConfig))
	// Output:
	// true <nil>
	// true
}

func ExampleClient_Close() {
	client := virtual()
	jobs := must(client.NewLimiter("jobs", limiter.Semaphore(1)))
	client.Close()

	_, err := jobs.TryAcquire("")
	fmt.Println(errors.Is(err, limiter.ErrClosed))
	// Output: true
}

func ExampleClient_Shutdown() {
	client := virtual()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println(client.Shutdown(ctx))
	// Output: <nil>
}

func ExampleClient_NewLimiter() {
	client := virtual()
	defer client.Close()
	model := must(client.NewLimiter("model",
		limiter.Semaphore(10),
		limiter.TokenBucket(500, 500, time.Minute).PerCall(),
		limiter.TokenBucket(90_000, 90_000, time.Minute)))
	fmt.Println(model.Name(), len(model.Limits()))

	_, err := client.NewLimiter("none", limiter.TokenBucket(1, 0, time.Second))
	fmt.Println(errors.Is(err, limiter.ErrConfig))
	// Output:
	// model 3
	// true
}

func ExampleLimiter_Acquire() {
	client := virtual()
	defer client.Close()
	jobs := must(client.NewLimiter("jobs", limiter.Semaphore(2)))

	permit, err := jobs.Acquire(context.Background(), "printer")
	if err != nil {
		log.Fatal(err)
	}
	defer permit.Release()
	fmt.Println(permit.Remaining(), "left")
	// Output: 1 left
}

// Sign-ups are refused while Redis cannot answer, whatever the client's policy is.
func ExampleLimiter_SetFailurePolicy() {
	client := must(limiter.Open("redis://127.0.0.1:1", limiter.WithFailurePolicy(limiter.FailOpen)))
	defer client.Close()
	signUps := must(client.NewLimiter("sign-ups", limiter.FixedWindow(100, time.Hour)))

	if err := signUps.SetFailurePolicy(limiter.FailClosed); err != nil {
		log.Fatal(err)
	}
	admitted, err := signUps.Allow("198.51.100.7")
	fmt.Println(admitted, err)
	// Output: false <nil>
}

// A wait that is known to exceed the deadline is refused at once, and books nothing.
func ExampleLimiter_Acquire_deadline() {
	client := virtual()
	defer client.Close()
	reports := must(client.NewLimiter("reports", limiter.TokenBucket(1, 1, time.Hour)))
	must(reports.TryAcquire("alice"))

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := reports.Acquire(ctx, "alice")
	var denied *limiter.DeniedError
	if errors.As(err, &denied) {
		fmt.Println("come back in", denied.RetryAfter)
	}
	fmt.Println(errors.Is(err, limiter.ErrDenied), errors.Is(err, context.DeadlineExceeded))
	// Output:
	// come back in 1h0m0s
	// true true
}

func ExampleLimiter_TryAcquire() {
	client := virtual()
	defer client.Close()
	logins := must(client.NewLimiter("logins", limiter.SlidingLog(3, time.Minute)))
	for range 4 {
		_, err := logins.TryAcquire("alice")
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// limiter: logins: denied by limits[0], sliding log of 3 per 1m0s; retry after 1m0s
}

func ExampleLimiter_Allow() {
	client := virtual()
	defer client.Close()
	logins := must(client.NewLimiter("logins", limiter.FixedWindow(1, time.Minute)))
	fmt.Println(logins.Allow("alice"))
	fmt.Println(logins.Allow("alice"))
	// Output:
	// true <nil>
	// false <nil>
}

func ExampleLimiter_AllowN() {
	client := virtual()
	defer client.Close()
	disk := must(client.NewLimiter("disk", limiter.TokenBucket(64<<20, 64<<20, time.Second)))
	fmt.Println(disk.AllowN("sda", 5<<20))
	// Output: true <nil>
}

func ExampleLimiter_Wait() {
	client := virtual()
	defer client.Close()
	mails := must(client.NewLimiter("mails", limiter.TokenBucket(10, 10, time.Second)))
	for range 3 {
		if err := mails.Wait(context.Background(), "example.org"); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(must(mails.Peek(context.Background(), "example.org")).Remaining, "left")
	// Output: 7 left
}

func ExampleLimiter_Do() {
	client := virtual()
	defer client.Close()
	jobs := must(client.NewLimiter("jobs", limiter.Semaphore(1)))
	err := jobs.Do(context.Background(), "", func(ctx context.Context) error {
		return errors.New("the job's own error")
	})
	fmt.Println(err)
	fmt.Println(must(client.Stats()).InFlight, "held")
	// Output:
	// the job's own error
	// 0 held
}

func ExampleLimiter_Pace() {
	client := virtual()
	defer client.Close()
	crawl := must(client.NewLimiter("crawl", limiter.Pacer(2, time.Second, 0)))
	for range 3 {
		slot := must(crawl.Pace(context.Background(), "example.org"))
		fmt.Println("start in", slot.Delay()) // time.Sleep(slot.Delay())
	}
	// Output:
	// start in 0s
	// start in 500ms
	// start in 1s
}

func ExampleLimiter_Peek() {
	client := virtual()
	defer client.Close()
	api := must(client.NewLimiter("api", limiter.TokenBucket(5, 1, time.Second)))
	decision := must(api.Peek(context.Background(), "alice", limiter.Weight(6)))
	fmt.Println(decision.Status, decision.Limit)
	decision = must(api.Peek(context.Background(), "alice"))
	fmt.Println(decision.Status, decision.Remaining)
	// Output:
	// LIMITER_NEVER 5
	// LIMITER_OK 5
}

func ExampleLimiter_Reset() {
	client := virtual()
	defer client.Close()
	api := must(client.NewLimiter("api", limiter.FixedWindow(1, time.Hour)))
	must(api.TryAcquire("alice"))
	fmt.Println(api.Reset(context.Background(), "alice"))
	_, err := api.TryAcquire("alice")
	fmt.Println(err)
	// Output:
	// <nil>
	// <nil>
}

// The service behind the limiter said "too many requests, come back in half a minute".
func ExampleLimiter_Penalize() {
	client := virtual()
	defer client.Close()
	api := must(client.NewLimiter("api", limiter.TokenBucket(100, 100, time.Second)))
	fmt.Println(api.Penalize(context.Background(), "api.example.org", 30*time.Second))
	fmt.Println(must(api.Peek(context.Background(), "api.example.org")).RetryAfter)
	// Output:
	// <nil>
	// 30s
}

func ExampleLimiter_TryMany() {
	client := virtual()
	defer client.Close()
	api := must(client.NewLimiter("api", limiter.TokenBucket(2, 1, time.Second)))
	results := must(api.TryMany(context.Background(),
		limiter.Request{Key: "alice"},
		limiter.Request{Key: "bob", Options: []limiter.Option{limiter.Weight(2)}},
		limiter.Request{Key: "bob"}))
	for _, result := range results {
		fmt.Println(result.Permit != nil, result.Err)
	}
	// Output:
	// true <nil>
	// true <nil>
	// false limiter: api: denied by limits[0], token bucket of 2, 1 per 1s; retry after 1s
}

func ExamplePermit_Release() {
	client := virtual()
	defer client.Close()
	jobs := must(client.NewLimiter("jobs", limiter.Semaphore(1)))
	permit := must(jobs.TryAcquire(""))
	fmt.Println(permit.Release())
	fmt.Println(errors.Is(permit.Release(), limiter.ErrStale)) // a second one is harmless
	// Output:
	// <nil>
	// true
}

// 1000 tokens were estimated, and 400 were used.
func ExamplePermit_Settle() {
	client := virtual()
	defer client.Close()
	tokens := must(client.NewLimiter("tokens", limiter.TokenBucket(1000, 1000, time.Minute)))
	permit := must(tokens.TryAcquire("alice", limiter.Weight(1000)))
	fmt.Println(permit.Settle(context.Background(), 400))
	fmt.Println(must(tokens.Peek(context.Background(), "alice")).Remaining)
	// Output:
	// <nil>
	// 600
}

func ExamplePermit_Renew() {
	client := virtual()
	defer client.Close()
	jobs := must(client.NewLimiter("jobs", limiter.Semaphore(1).Lease(time.Second).NoRenew()))
	permit := must(jobs.TryAcquire(""))
	client.Advance(900 * time.Millisecond)
	fmt.Println(permit.Renew(context.Background(), 0))
	client.Advance(900 * time.Millisecond)
	fmt.Println(permit.Renew(context.Background(), 0))
	client.Advance(time.Second)
	fmt.Println(errors.Is(permit.Renew(context.Background(), 0), limiter.ErrStale))
	// Output:
	// <nil>
	// <nil>
	// true
}

func ExamplePermit_Lost() {
	client := virtual()
	defer client.Close()
	jobs := must(client.NewLimiter("jobs", limiter.Semaphore(1).Lease(time.Second)))
	permit := must(jobs.Acquire(context.Background(), "", limiter.NoRenew(), limiter.NotifyLost()))
	client.Advance(time.Second)
	<-permit.Lost()
	fmt.Println("somebody else may run now")
	// Output: somebody else may run now
}

// A resource that is told the fence refuses a holder that is older than one it has seen.
func ExamplePermit_Fence() {
	client := virtual()
	defer client.Close()
	leader := must(client.NewLimiter("leader", limiter.Semaphore(1)))
	first := must(leader.TryAcquire(""))
	first.Release()
	second := must(leader.TryAcquire(""))
	fmt.Println(second.Fence() > first.Fence())
	// Output: true
}

func ExamplePermit_Decision() {
	client := virtual()
	defer client.Close()
	api := must(client.NewLimiter("api", limiter.TokenBucket(5, 1, time.Second)))
	permit := must(api.TryAcquire("alice", limiter.Weight(2)))
	decision := permit.Decision()
	fmt.Println(decision.Remaining, "of", decision.Limit, "full again in", decision.ResetAfter)
	// Output: 3 of 5 full again in 2s
}

// A program's own tests need not sleep.
func ExampleClient_Advance() {
	client := virtual()
	defer client.Close()
	api := must(client.NewLimiter("api", limiter.TokenBucket(1, 1, time.Hour)))
	must(api.TryAcquire("alice"))
	fmt.Println(must(api.Peek(context.Background(), "alice")).RetryAfter)
	client.Advance(59 * time.Minute)
	fmt.Println(must(api.Peek(context.Background(), "alice")).RetryAfter)
	// Output:
	// 1h0m0s
	// 1m0s
}

func ExampleClient_SetClock() {
	client := virtual()
	defer client.Close()
	midnight := time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
	client.SetClock(midnight)
	fmt.Println(client.Now().UTC().Format(time.DateTime))
	// Output: 2040-01-01 00:00:00
}

func ExampleClient_Now() {
	client := virtual()
	defer client.Close()
	before := client.Now()
	client.Advance(time.Minute)
	fmt.Println(client.Now().Sub(before))
	// Output: 1m0s
}

func ExampleClient_Stats() {
	client := virtual()
	defer client.Close()
	jobs := must(client.NewLimiter("jobs", limiter.Semaphore(1)))
	must(jobs.TryAcquire(""))
	jobs.TryAcquire("")
	stats := must(client.Stats())
	fmt.Println(stats.Granted, stats.Denied, stats.InFlight)
	// Output: 1 1 1
}

func ExampleVersion() {
	major, minor, _ := limiter.Version()
	fmt.Println(major, minor)
	// Output: 0 1
}
