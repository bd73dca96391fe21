package limiter_test

// The limits, and the options of clients and requests.

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	limiter "github.com/liblimiter/liblimiter/bindings/go"
)

// Weights are given for each limit where one number does not fit them all.
func ExampleWeights() {
	client := virtual()
	defer client.Close()
	storage := must(client.NewLimiter("storage",
		limiter.TokenBucket(10, 10, time.Second),
		limiter.TokenBucket(64<<20, 64<<20, time.Second)))
	_, err := storage.TryAcquire("disk", limiter.Weights(1, 5<<20))
	fmt.Println(err)
	// Output: <nil>
}

func ExampleMaxWait() {
	client := virtual()
	defer client.Close()
	jobs := must(client.NewLimiter("jobs", limiter.TokenBucket(1, 1, time.Minute)))
	must(jobs.TryAcquire(""))
	_, err := jobs.Acquire(context.Background(), "", limiter.MaxWait(time.Second))
	fmt.Println(errors.Is(err, limiter.ErrDenied))
	// Output: true
}

func ExampleLimit_BurstEarn() {
	client := virtual()
	defer client.Close()
	crawl := must(client.NewLimiter("crawl", limiter.Pacer(10, time.Second, 2).BurstEarn(1000)))
	for range 4 {
		fmt.Println(must(crawl.Pace(context.Background(), "example.org")).Delay())
	}
	// Output:
	// 0s
	// 0s
	// 0s
	// 100ms
}

func ExampleSemaphore() {
	client := virtual()
	defer client.Close()
	jobs := must(client.NewLimiter("jobs", limiter.Semaphore(2)))
	for range 3 {
		_, err := jobs.TryAcquire("")
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// <nil>
	// limiter: jobs: denied by limits[0], semaphore of 2; retry after 30s
}

// Ten at once, and three a minute on average.
func ExampleTokenBucket() {
	client := virtual()
	defer client.Close()
	mails := must(client.NewLimiter("mails", limiter.TokenBucket(10, 3, time.Minute)))
	must(mails.TryAcquire("", limiter.Weight(10)))
	client.Advance(time.Minute)
	fmt.Println(must(mails.Peek(context.Background(), "")).Remaining)
	// Output: 3
}

// One call each 100 ms; after a quiet time up to two more at once.
func ExamplePacer() {
	client := virtual()
	defer client.Close()
	crawl := must(client.NewLimiter("crawl", limiter.Pacer(10, time.Second, 2)))
	for range 5 {
		fmt.Println(must(crawl.Pace(context.Background(), "")).Delay())
	}
	// Output:
	// 0s
	// 0s
	// 0s
	// 100ms
	// 200ms
}

// counted asks once a second until it is denied.
func counted(limit limiter.Limit) {
	client := virtual()
	defer client.Close()
	api := must(client.NewLimiter("api", limit))
	for {
		if _, err := api.TryAcquire(""); err != nil {
			fmt.Println(err)
			return
		}
		client.Advance(time.Second)
	}
}

func ExampleSlidingLog() {
	counted(limiter.SlidingLog(5, time.Minute))
	// Output: limiter: api: denied by limits[0], sliding log of 5 per 1m0s; retry after 55s
}

func ExampleSlidingCounter() {
	counted(limiter.SlidingCounter(5, time.Minute))
	// Output: limiter: api: denied by limits[0], sliding counter of 5 per 1m0s; retry after 27s
}

// The window ends with the minute.
func ExampleFixedWindow() {
	counted(limiter.FixedWindow(5, time.Minute))
	// Output: limiter: api: denied by limits[0], fixed window of 5 per 1m0s; retry after 15s
}

func ExampleLimit_AlignFirstUse() {
	counted(limiter.FixedWindow(5, time.Minute).AlignFirstUse())
	// Output: limiter: api: denied by limits[0], fixed window of 5 per 1m0s; retry after 55s
}

func ExampleUnlimited() {
	client := virtual()
	defer client.Close()
	free := must(client.NewLimiter("free", limiter.Unlimited()))
	fmt.Println(free.AllowN("", 1<<40))
	// Output: true <nil>
}

func ExampleNeverAdmit() {
	client := virtual()
	defer client.Close()
	off := must(client.NewLimiter("off", limiter.NeverAdmit()))
	_, err := off.TryAcquire("")
	fmt.Println(errors.Is(err, limiter.ErrNever))
	// Output: true
}

// "500 requests and 90 000 tokens a minute" is one limiter.
func ExampleLimit_PerCall() {
	client := virtual()
	defer client.Close()
	api := must(client.NewLimiter("api",
		limiter.TokenBucket(500, 500, time.Minute).PerCall(),
		limiter.TokenBucket(90_000, 90_000, time.Minute)))
	permit := must(api.TryAcquire("", limiter.Weight(89_999)))
	fmt.Println(permit.Remaining(), "of limit", permit.Decision().Index)
	// Output: 1 of limit 1
}

// All units come back at the period's end, and none are there at first.
func ExampleLimit_Interval() {
	client := virtual()
	defer client.Close()
	wages := must(client.NewLimiter("wages", limiter.TokenBucket(2, 2, time.Hour).Interval().StartEmpty()))
	for range 3 {
		fmt.Println(must(wages.Pace(context.Background(), "")).Delay())
	}
	// Output:
	// 1h0m0s
	// 1h0m0s
	// 2h0m0s
}

// A deployment that is behind does not bring its limits back.
func ExampleLimit_Version() {
	client := virtual()
	defer client.Close()
	must(client.NewLimiter("api", limiter.FixedWindow(20, time.Minute).Version(2)))
	old := must(client.NewLimiter("api", limiter.FixedWindow(10, time.Minute).Version(1)))
	fmt.Println(must(old.Peek(context.Background(), "")).Limit)
	// Output: 20
}

func ExampleWeight() {
	client := virtual()
	defer client.Close()
	disk := must(client.NewLimiter("disk", limiter.TokenBucket(64<<20, 64<<20, time.Second)))
	permit := must(disk.TryAcquire("", limiter.Weight(48<<20)))
	fmt.Println(permit.Remaining()>>20, "MiB left")
	// Output: 16 MiB left
}

// The lease is kept up by the one who works, and ends soon after he stops.
func ExampleLease() {
	client := virtual()
	defer client.Close()
	jobs := must(client.NewLimiter("jobs", limiter.Semaphore(1)))
	permit := must(jobs.TryAcquire("", limiter.Lease(time.Second), limiter.NoRenew()))
	client.Advance(2 * time.Second)
	fmt.Println(errors.Is(permit.Release(), limiter.ErrStale))
	// Output: true
}

func ExampleNotifyLost() {
	client := virtual()
	defer client.Close()
	jobs := must(client.NewLimiter("jobs", limiter.Semaphore(1).Lease(time.Second).NoRenew()))
	permit := must(jobs.Acquire(context.Background(), "", limiter.NotifyLost()))
	client.Advance(time.Second)
	select {
	case <-permit.Lost():
		fmt.Println("stop working")
	case <-time.After(time.Minute):
	}
	// Output: stop working
}

// When Redis cannot answer, this process keeps to a quarter of the limits.
func ExampleWithFailurePolicy() {
	client, err := limiter.Open("redis://localhost:1", // where nobody is
		limiter.WithFailurePolicy(limiter.FailLocal), limiter.WithProcesses(4))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	api := must(client.NewLimiter("api", limiter.FixedWindow(100, time.Hour)))
	permit := must(api.TryAcquire("alice"))
	fmt.Println(permit.Decision().Limit, permit.Degraded())
	// Output: 25 true
}

func ExampleWithLogger() {
	client, err := limiter.Open("redis://localhost",
		limiter.WithLogger(slog.Default(), slog.LevelWarn),
		limiter.WithPrefix("shop"),
		limiter.WithCommandTimeout(100*time.Millisecond),
		limiter.WithMaxPenalty(10*time.Minute),
		limiter.WithDenyCache(0),
		limiter.WithTakeAhead(100*time.Millisecond),
		limiter.WithCredentials("shop", os.Getenv("REDIS_PASSWORD")+"?"),
		limiter.WithSetting("lease_ms", "10000"))
	fmt.Println(client != nil, err)
	client.Close()
	// Output: true <nil>
}

func ExampleWithTLSCAFile() {
	client, err := limiter.Open("rediss://redis.example", limiter.WithTLSCAFile("/etc/redis/ca.pem"))
	if err != nil {
		log.Fatal(err)
	}
	client.Close()

	// In tests, against a server with a certificate of its own making.
	client, err = limiter.Open("rediss://localhost", limiter.WithTLSInsecure())
	if err != nil {
		log.Fatal(err)
	}
	client.Close()
}
