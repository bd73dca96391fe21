package httplimit_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	limiter "github.com/liblimiter/liblimiter/bindings/go"
	"github.com/liblimiter/liblimiter/bindings/go/httplimit"
)

func limit(limits ...limiter.Limit) (*limiter.Client, *limiter.Limiter) {
	client, err := limiter.Open("memory://", limiter.WithVirtualClock())
	if err != nil {
		log.Fatal(err)
	}
	l, err := client.NewLimiter("api", limits...)
	if err != nil {
		log.Fatal(err)
	}
	return client, l
}

func ExampleMiddleware() {
	client, api := limit(limiter.TokenBucket(1, 1, time.Minute))
	defer client.Close()
	handler := httplimit.Middleware(api, httplimit.Options{
		Key: func(r *http.Request) string { return r.Header.Get("Api-Key") },
	})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))

	for range 2 {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(w.Code, w.Header().Get("Retry-After"), w.Header().Get("RateLimit"), w.Header().Get("RateLimit-Policy"))
	}
	// Output:
	// 200  "api";r=0;t=60 "api";q=1;w=60
	// 429 60 "api";r=0;t=60 "api";q=1;w=60
}

// What a request really cost is known when it has been served.
func ExamplePermitFrom() {
	client, api := limit(limiter.TokenBucket(1000, 1000, time.Minute))
	defer client.Close()
	estimate := func(*http.Request) uint64 { return 800 }
	handler := httplimit.Middleware(api, httplimit.Options{Weight: estimate})(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Println(httplimit.PermitFrom(r.Context()).Settle(context.Background(), 100))
		}))
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	// Output: <nil>
}

func ExampleTransport() {
	busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer busy.Close()
	client, upstreams := limit(limiter.Semaphore(10), limiter.Pacer(50, time.Second, 10))
	defer client.Close()

	web := &http.Client{Transport: &httplimit.Transport{Limiter: upstreams}}
	defer web.CloseIdleConnections()
	response, err := web.Get(busy.URL)
	if err != nil {
		log.Fatal(err)
	}
	response.Body.Close() // releases the permit
	decision, err := upstreams.Peek(context.Background(), httplimit.Host(response.Request))
	fmt.Println(response.StatusCode, decision.RetryAfter, err)
	// Output: 429 30s <nil>
}

func ExampleRetryAfter() {
	header := http.Header{"Retry-After": {"120"}}
	fmt.Println(httplimit.RetryAfter(header, time.Now()))
	// Output: 2m0s true
}

func ExampleClientIP() {
	fmt.Println(httplimit.ClientIP(&http.Request{RemoteAddr: "[2001:db8:1:2:3:4:5:6]:443"}))
	// Output: 2001:db8:1:2::/64
}
