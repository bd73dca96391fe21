// The Go peers, and this library through its Go binding: ROLE WORK CALLERS SECONDS URL KEY RATE, see
// benches/README.md.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"
	limiter "github.com/liblimiter/liblimiter/bindings/go"
	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"
)

type tally struct {
	Decisions int     `json:"decisions"`
	Admitted  int     `json:"admitted"`
	Seconds   float64 `json:"seconds"`
	P50       float64 `json:"p50_us"`
	P99       float64 `json:"p99_us"`
	Peak      int     `json:"peak_kib"`
	latencies []float64
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// each runs call in so many goroutines until the time is over; turns calls are timed together.
func each(callers, turns int, length time.Duration, call func() bool) tally {
	var sum tally
	var lock sync.Mutex
	var all sync.WaitGroup
	begin := time.Now()
	for range callers {
		all.Add(1)
		go func() {
			defer all.Done()
			var mine tally
			for now := time.Now(); now.Sub(begin) < length; {
				for range turns {
					if call() {
						mine.Admitted++
					}
				}
				mine.Decisions += turns
				later := time.Now()
				mine.latencies = append(mine.latencies, later.Sub(now).Seconds()*1e6/float64(turns))
				now = later
			}
			lock.Lock()
			defer lock.Unlock()
			sum.Decisions += mine.Decisions
			sum.Admitted += mine.Admitted
			sum.latencies = append(sum.latencies, mine.latencies...)
		}()
	}
	all.Wait()
	sum.Seconds = time.Since(begin).Seconds()
	slices.Sort(sum.latencies)
	if last := len(sum.latencies) - 1; last >= 0 {
		sum.P50, sum.P99 = sum.latencies[last/2], sum.latencies[last*99/100]
	}
	return sum
}

// peak is the most that was resident since the program began.
func peak() int {
	text, err := os.ReadFile("/proc/self/status")
	check(err)
	_, after, _ := strings.Cut(string(text), "VmHWM:")
	kib, err := strconv.Atoi(strings.Fields(after)[0])
	check(err)
	return kib
}

func main() {
	if len(os.Args) != 8 {
		fmt.Fprintln(os.Stderr, "usage: ROLE WORK CALLERS SECONDS URL KEY RATE")
		os.Exit(2)
	}
	role, url, key := os.Args[1], os.Args[5], os.Args[6]
	callers, err := strconv.Atoi(os.Args[3])
	check(err)
	seconds, err := strconv.ParseFloat(os.Args[4], 64)
	check(err)
	perSecond, err := strconv.Atoi(os.Args[7])
	check(err)
	length := time.Duration(seconds * float64(time.Second))

	var sum tally
	switch role {
	case "redis_rate":
		options, err := redis.ParseURL(url)
		check(err)
		ctx := context.Background()
		limits := redis_rate.NewLimiter(redis.NewClient(options))
		limit := redis_rate.PerSecond(perSecond)
		_, err = limits.Allow(ctx, key+":first", limit) // brings the script
		check(err)
		sum = each(callers, 1, length, func() bool {
			answer, err := limits.Allow(ctx, key, limit)
			check(err)
			return answer.Allowed > 0
		})
	case "x/time/rate":
		limit := rate.NewLimiter(rate.Limit(perSecond), perSecond)
		sum = each(callers, 1024, length, limit.Allow)
	case "ours":
		client, err := limiter.Open(url)
		check(err)
		limit, err := client.NewLimiter("bench",
			limiter.TokenBucket(uint64(perSecond), uint64(perSecond), time.Second))
		check(err)
		sum = each(callers, 1024, length, func() bool {
			admitted, err := limit.Allow(key)
			check(err)
			return admitted
		})
	default:
		check(fmt.Errorf("no role %q", role))
	}
	sum.Peak = peak()
	check(json.NewEncoder(os.Stdout).Encode(sum))
}
