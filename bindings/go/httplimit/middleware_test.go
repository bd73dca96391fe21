package httplimit

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	limiter "github.com/liblimiter/liblimiter/bindings/go"
)

var bg = context.Background()

func open(t testing.TB, options ...limiter.ClientOption) *limiter.Client {
	t.Helper()
	c, err := limiter.Open("memory://", options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func virtual(t testing.TB, limits ...limiter.Limit) (*limiter.Client, *limiter.Limiter) {
	t.Helper()
	c := open(t, limiter.WithVirtualClock())
	return c, newLimiter(t, c, limits...)
}

func newLimiter(t testing.TB, c *limiter.Client, limits ...limiter.Limit) *limiter.Limiter {
	t.Helper()
	l, err := c.NewLimiter(t.Name(), limits...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

var served = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "served") })

func get(h http.Handler, from string) *http.Response {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = from
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func expect(t *testing.T, r *http.Response, status int, fields map[string]string) {
	t.Helper()
	if r.StatusCode != status {
		t.Errorf("status %d, not %d", r.StatusCode, status)
	}
	for name, want := range fields {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s: %q, not %q", name, got, want)
		}
	}
}

func TestMiddlewareTellsTheLimits(t *testing.T) {
	c, l := virtual(t, limiter.TokenBucket(2, 1, 1500*time.Millisecond))
	h := Middleware(l, Options{})(served)
	policy := `"TestMiddlewareTellsTheLimits";q=2;w=3`
	expect(t, get(h, "192.0.2.1:1"), 200, map[string]string{
		"RateLimit-Policy": policy, "RateLimit": `"TestMiddlewareTellsTheLimits";r=1;t=2`, "Retry-After": ""})
	expect(t, get(h, "192.0.2.1:2"), 200, map[string]string{"RateLimit": `"TestMiddlewareTellsTheLimits";r=0;t=3`})
	denied := get(h, "192.0.2.1:3")
	expect(t, denied, 429, map[string]string{
		"RateLimit-Policy": policy, "RateLimit": `"TestMiddlewareTellsTheLimits";r=0;t=2`, "Retry-After": "2",
		"Content-Type": "application/problem+json"})
	var p problem
	if err := json.NewDecoder(denied.Body).Decode(&p); err != nil || !slices.Equal(p.Violated, []string{"TestMiddlewareTellsTheLimits"}) ||
		!strings.HasSuffix(p.Type, "#quota-exceeded") {
		t.Errorf("%+v, %v", p, err)
	}
	expect(t, get(h, "192.0.2.2:1"), 200, nil)

	seconds, err := strconv.Atoi(denied.Header.Get("Retry-After"))
	if err != nil {
		t.Fatal(err)
	}
	c.Advance(time.Duration(seconds) * time.Second)
	expect(t, get(h, "192.0.2.1:4"), 200, nil)
}

// A client that obeys Retry-After is never denied again.
func TestRetryAfterIsHonest(t *testing.T) {
	for _, limit := range []limiter.Limit{
		limiter.TokenBucket(1, 7, 10*time.Second), limiter.Pacer(3, time.Second, 0), limiter.SlidingLog(2, 700*time.Millisecond),
		limiter.SlidingCounter(3, 2*time.Second), limiter.FixedWindow(1, 1100*time.Millisecond),
	} {
		c, l := virtual(t, limit)
		h := Middleware(l, Options{})(served)
		denials := 0
		for range 300 {
			r := get(h, "192.0.2.1:1")
			if r.StatusCode == 200 {
				continue
			}
			denials++
			n, err := strconv.Atoi(r.Header.Get("Retry-After"))
			if err != nil || n < 1 {
				t.Fatalf("Retry-After %q", r.Header.Get("Retry-After"))
			}
			c.Advance(time.Duration(n) * time.Second)
			expect(t, get(h, "192.0.2.1:1"), 200, nil)
		}
		if denials == 0 {
			t.Error("nothing was denied")
		}
	}
}

func TestSeveralLimitsAreTold(t *testing.T) {
	_, l := virtual(t, limiter.Semaphore(3), limiter.FixedWindow(2, time.Hour), limiter.Unlimited())
	h := Middleware(l, Options{Names: []string{"at once", `a "hour"`, "all"}})(served)
	policy := `"at once";q=3;qu="concurrent-requests", "a \"hour\"";q=2;w=3600`
	expect(t, get(h, "192.0.2.1:1"), 200, map[string]string{"RateLimit-Policy": policy})
	get(h, "192.0.2.1:1")
	denied := get(h, "192.0.2.1:1")
	expect(t, denied, 429, map[string]string{"RateLimit-Policy": policy})
	if got := denied.Header.Get("RateLimit"); !strings.HasPrefix(got, `"a \"hour\"";r=0;t=`) {
		t.Errorf("RateLimit: %s", got)
	}
}

func TestNeverIsDeniedWithoutRetryAfter(t *testing.T) {
	_, l := virtual(t, limiter.TokenBucket(5, 1, time.Second))
	h := Middleware(l, Options{Weight: func(*http.Request) uint64 { return 6 }})(served)
	expect(t, get(h, ""), 429, map[string]string{"Retry-After": ""})
}

func TestMiddlewarePanicsOnNamesThatDoNotFit(t *testing.T) {
	c, l := virtual(t, limiter.Semaphore(1))
	two, err := c.NewLimiter("two", limiter.Semaphore(1), limiter.Unlimited())
	if err != nil {
		t.Fatal(err)
	}
	for _, made := range []func(){
		func() { Middleware(two, Options{Names: []string{"Same", "same"}}) },
		func() { Middleware(l, Options{})(nil) },
	} {
		func() {
			defer func() {
				if text, ok := recover().(string); !ok || !strings.HasPrefix(text, "httplimit: ") {
					t.Error("no panic that says why")
				}
			}()
			made()
		}()
	}
	for _, opts := range []Options{{Names: []string{"a", "b"}}, {Names: []string{"ü"}}, {Units: []string{"", ""}}, {Names: []string{""}}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v is taken", opts)
				}
			}()
			Middleware(l, opts)
		}()
	}
}

func TestPermitIsHeldUntilTheHandlerReturns(t *testing.T) {
	c, l := virtual(t, limiter.Semaphore(1))
	inside, leave := make(chan struct{}), make(chan struct{})
	h := Middleware(l, Options{})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if PermitFrom(r.Context()) == nil {
			t.Error("no permit")
		}
		close(inside)
		<-leave
		panic(http.ErrAbortHandler)
	}))
	var done sync.WaitGroup
	done.Add(1)
	go func() {
		defer done.Done()
		defer func() { recover() }()
		get(h, "192.0.2.1:1")
	}()
	<-inside
	expect(t, get(h, "192.0.2.1:2"), 429, nil)
	close(leave)
	done.Wait()
	if s, _ := c.Stats(); s.InFlight != 0 {
		t.Errorf("%d held", s.InFlight)
	}
	if PermitFrom(context.Background()) != nil {
		t.Error("a permit from nowhere")
	}
}

func TestRequestsMayWait(t *testing.T) {
	c := open(t)
	l := newLimiter(t, c, limiter.Semaphore(1))
	h := Middleware(l, Options{MaxWait: time.Minute})(served)
	held, err := l.TryAcquire("192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, func() { held.Release() })
	expect(t, get(h, "192.0.2.1:1"), 200, nil)

	if held, err = l.TryAcquire("192.0.2.1"); err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(20*time.Millisecond, cancel)
	r := httptest.NewRequest("GET", "/", nil).WithContext(ctx)
	r.RemoteAddr = "192.0.2.1:1"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r) // the client is gone
	if body := w.Body.String(); body != "" || w.Code != 503 {
		t.Errorf("%d %q", w.Code, body)
	}
}

func TestBackendErrorsAreNoDenials(t *testing.T) {
	for _, open := range []bool{false, true} {
		c, l := virtual(t, limiter.Semaphore(1))
		c.Close()
		var told error
		h := Middleware(l, Options{FailClosed: !open, OnError: func(_ *http.Request, err error) { told = err }})(served)
		r := get(h, "")
		if want := map[bool]int{false: 503, true: 200}[open]; r.StatusCode != want || r.Header.Get("RateLimit") != "" {
			t.Errorf("open %v: %d %v", open, r.StatusCode, r.Header)
		}
		if !errors.Is(told, limiter.ErrClosed) {
			t.Errorf("told of %v", told)
		}
	}
}

func TestOptionsReplaceTheDefaults(t *testing.T) {
	_, l := virtual(t, limiter.TokenBucket(100, 100, time.Minute))
	h := Middleware(l, Options{
		Key:       func(r *http.Request) string { return r.Header.Get("Api-Key") },
		Weight:    func(*http.Request) uint64 { return 60 },
		Denied:    func(w http.ResponseWriter, _ *http.Request, err error) { w.WriteHeader(418) },
		NoHeaders: true,
	})(served)
	expect(t, get(h, "192.0.2.1:1"), 200, map[string]string{"RateLimit": "", "RateLimit-Policy": ""})
	expect(t, get(h, "192.0.2.2:1"), 418, map[string]string{"RateLimit": "", "Retry-After": "12"})
}

func TestSettleInTheHandler(t *testing.T) {
	_, l := virtual(t, limiter.TokenBucket(100, 1, time.Second))
	h := Middleware(l, Options{Key: func(*http.Request) string { return "" }, Units: []string{"content-bytes"},
		Weight: func(*http.Request) uint64 { return 100 }})(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := PermitFrom(r.Context()).Settle(bg, 30); err != nil {
				t.Error(err)
			}
		}))
	expect(t, get(h, ""), 200, map[string]string{"RateLimit-Policy": `"TestSettleInTheHandler";q=100;qu="content-bytes";w=100`})
	if d, _ := l.Peek(bg, ""); d.Remaining != 70 {
		t.Errorf("%d remain", d.Remaining)
	}
}

func TestClientIP(t *testing.T) {
	for from, want := range map[string]string{
		"192.0.2.1:80":                  "192.0.2.1",
		"[2001:db8:1:2:3:4:5:6]:80":     "2001:db8:1:2::/64",
		"[2001:db8:1:2:ffff::1]:80":     "2001:db8:1:2::/64",
		"[::ffff:192.0.2.1]:80":         "192.0.2.1",
		"[fe80::1%eth0]:80":             "fe80::/64",
		"@":                             "@",
		"":                              "",
		"192.0.2.1":                     "192.0.2.1",
		"unix-socket-without-a-port:80": "unix-socket-without-a-port",
	} {
		if got := ClientIP(&http.Request{RemoteAddr: from}); got != want {
			t.Errorf("%q: %q, not %q", from, got, want)
		}
	}
}

func TestQuotas(t *testing.T) {
	for _, test := range []struct {
		limit         limiter.Limit
		quota, window uint64
	}{
		{limiter.Semaphore(7), 7, 0},
		{limiter.TokenBucket(20, 200, time.Second), 200, 1},
		{limiter.TokenBucket(1000, 10, time.Second), 1000, 100},
		{limiter.TokenBucket(5, 3, time.Second), 5, 2},
		{limiter.TokenBucket(1, 1, 10*365*24*time.Hour), 1, 315360000},
		{limiter.TokenBucket(1<<48, 1<<48, 100*time.Hour), 1 << 48, 360000},
		{limiter.TokenBucket(1<<48, 1000, time.Microsecond), 1 << 48, 281475},
		{limiter.Pacer(10, time.Minute, 3), 10, 60},
		{limiter.SlidingLog(5, time.Second), 5, 1},
		{limiter.SlidingCounter(5, 100*time.Millisecond), 50, 1},
		{limiter.FixedWindow(5, 1500*time.Millisecond), 5, 2},
		{limiter.FixedWindow(1<<48, time.Microsecond), maxInteger, 1},
	} {
		if quota, window, ok := quotaOf(test.limit); quota != test.quota || window != test.window || !ok {
			t.Errorf("%+v: %d in %d s, %v", test.limit, quota, window, ok)
		}
	}
	for _, limit := range []limiter.Limit{limiter.Unlimited(), limiter.NeverAdmit()} {
		if _, _, ok := quotaOf(limit); ok {
			t.Errorf("%+v has a quota", limit)
		}
	}
}

func TestSecondsRoundUp(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		-1: 0, 0: 0, 1: 1, time.Second - 1: 1, time.Second: 1, time.Second + 1: 2, math.MaxInt64: math.MaxInt64 / int64(time.Second),
	} {
		if got := seconds(d); got != want {
			t.Errorf("%v: %d, not %d", d, got, want)
		}
	}
}
