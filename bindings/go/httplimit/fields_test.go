package httplimit

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"testing"
	"time"

	limiter "github.com/liblimiter/liblimiter/bindings/go"
)

type fieldsCase struct {
	Name, Limiter string
	Limits        []struct {
		Kind             string
		Flags            []string
		Capacity, Refill uint64
		PeriodUS         uint64 `json:"period_us"`
	}
	Names, Units []string
	Calls        []struct {
		AdvanceUS         int64 `json:"advance_us"`
		PenalizeUS        int64 `json:"penalize_us"`
		Hold              uint64
		Weight            *uint64
		Status            int
		Policy, RateLimit string
		RetryAfter        string `json:"retry_after"`
	}
}

func (c *fieldsCase) limits(t *testing.T) (limits []limiter.Limit) {
	for _, l := range c.Limits {
		period := time.Duration(l.PeriodUS) * time.Microsecond
		made, ok := map[string]limiter.Limit{
			"semaphore":       limiter.Semaphore(l.Capacity),
			"token_bucket":    limiter.TokenBucket(l.Capacity, l.Refill, period),
			"pacer":           limiter.Pacer(l.Refill, period, l.Capacity),
			"sliding_log":     limiter.SlidingLog(l.Capacity, period),
			"sliding_counter": limiter.SlidingCounter(l.Capacity, period),
			"fixed_window":    limiter.FixedWindow(l.Capacity, period),
			"unlimited":       limiter.Unlimited(),
			"never":           limiter.NeverAdmit(),
		}[l.Kind]
		if !ok {
			t.Fatalf("unknown kind %q", l.Kind)
		}
		if slices.Contains(l.Flags, "per_call") {
			made = made.PerCall()
		}
		limits = append(limits, made)
	}
	return limits
}

// The fields that every binding's middleware sets, call by call.
func TestFieldsAreThoseOfEveryBinding(t *testing.T) {
	text, err := os.ReadFile("../../../tests/conformance/ratelimit_fields.json")
	if err != nil {
		t.Skipf("not in the repository: %v", err)
	}
	var file struct{ Cases []fieldsCase }
	if err := json.Unmarshal(text, &file); err != nil || len(file.Cases) < 15 {
		t.Fatal(err, len(file.Cases))
	}
	for _, c := range file.Cases {
		t.Run(c.Name, func(t *testing.T) {
			client := open(t, limiter.WithVirtualClock())
			l, err := client.NewLimiter(map[bool]string{true: "api", false: c.Limiter}[c.Limiter == ""], c.limits(t)...)
			if err != nil {
				t.Fatal(err)
			}
			weight := uint64(1)
			h := Middleware(l, Options{Key: func(*http.Request) string { return "k" }, Names: c.Names, Units: c.Units,
				Weight: func(*http.Request) uint64 { return weight }})(served)
			for i, call := range c.Calls {
				if err := client.Advance(time.Duration(call.AdvanceUS) * time.Microsecond); err != nil {
					t.Fatal(err)
				}
				if err := l.Penalize(bg, "k", time.Duration(call.PenalizeUS)*time.Microsecond); err != nil {
					t.Fatal(err)
				}
				if _, err := l.TryAcquire("k", limiter.Weight(call.Hold)); err != nil {
					t.Fatal(err)
				}
				weight = 1
				if call.Weight != nil {
					weight = *call.Weight
				}
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
				got := fmt.Sprint(w.Code, w.Header().Values("RateLimit-Policy"), w.Header().Values("RateLimit"), w.Header().Values("Retry-After"))
				want := fmt.Sprint(call.Status, field(call.Policy), field(call.RateLimit), field(call.RetryAfter))
				if got != want {
					t.Errorf("call %d:\n%s, not\n%s", i+1, got, want)
				}
			}
		})
	}
}

// field is the values of a field; none where it is to be absent.
func field(value string) []string {
	if value == "" {
		return nil
	}
	return []string{value}
}

// Where middlewares stand in a row, each tells its own limit.
func TestFieldsOfSeveralMiddlewares(t *testing.T) {
	client := open(t, limiter.WithVirtualClock())
	var h http.Handler = served
	for name, limit := range map[string]limiter.Limit{"one": limiter.FixedWindow(5, time.Second), "two": limiter.FixedWindow(7, time.Minute)} {
		l, err := client.NewLimiter(name, limit)
		if err != nil {
			t.Fatal(err)
		}
		h = Middleware(l, Options{})(h)
	}
	r := get(h, "")
	slices.Sort(r.Header["Ratelimit"])
	if got := fmt.Sprint(r.Header["Ratelimit"], len(r.Header["Ratelimit-Policy"])); got != `["one";r=4;t=1 "two";r=6;t=20] 2` {
		t.Error(got)
	}
}

func TestRetryWhenFull(t *testing.T) {
	_, l := virtual(t, limiter.Semaphore(1).Lease(10*time.Second))
	if _, err := l.TryAcquire(""); err != nil {
		t.Fatal(err)
	}
	for given, want := range map[time.Duration]string{0: "1", 1500 * time.Millisecond: "2", time.Minute: "10"} {
		h := Middleware(l, Options{RetryWhenFull: given, Key: func(*http.Request) string { return "" }})(served)
		expect(t, get(h, ""), 429, map[string]string{"Retry-After": want})
	}
}

// What the failure policy answers has no numbers, and none are made up.
func TestNoNumbersAreMadeUp(t *testing.T) {
	for policy, status := range map[limiter.FailurePolicy]int{limiter.FailOpen: 200, limiter.FailClosed: 503} {
		c, err := limiter.Open("redis://127.0.0.1:1", limiter.WithFailurePolicy(policy))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		h := Middleware(newLimiter(t, c, limiter.FixedWindow(5, time.Second)), Options{})(served)
		expect(t, get(h, ""), status, map[string]string{"RateLimit-Policy": `"TestNoNumbersAreMadeUp";q=5;w=1`, "RateLimit": ""})
	}
}
