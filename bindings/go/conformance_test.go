package limiter

import (
	"encoding/json"
	"math"
	"testing"
	"time"
)

// What the systems we must equal answered: tests/conformance/vectors.json.

type vectorStep struct {
	TimeMS  float64 `json:"t_ms"`
	TimeS   float64 `json:"t_s"`
	Op      string
	Weight  float64
	DelayMS float64  `json:"delay_ms"`
	WakeMS  float64  `json:"wake_ms"`
	Rate    *float64 `json:"rate_per_s"`
	Allowed bool
}

type vector struct {
	Name        string
	Rate        float64 `json:"rate_per_s"`
	Burst       float64
	EarnFactor  float64 `json:"burst_earn_factor"`
	ToleranceMS float64 `json:"tolerance_ms"`
	Capacity    float64
	Limit       float64
	WindowS     float64 `json:"window_s"`
	Refill      float64
	PeriodS     float64 `json:"period_s"`
	Steps       []vectorStep
}

// scale makes the fractional weights of the vectors whole: all are quarters at the finest.
const scale = 1000

func units(x float64) uint64 { return uint64(math.Round(x * scale)) }

func TestConformance(t *testing.T) {
	var groups struct {
		Pacer       []vector
		TokenBucket []vector `json:"token_bucket"`
		EmptyStart  []vector `json:"token_bucket_empty_start"`
		SlidingLog  []vector `json:"sliding_log"`
	}
	if err := json.Unmarshal(repositoryFile(t, "tests", "conformance", "vectors.json"), &groups); err != nil {
		t.Fatal(err)
	}
	if len(groups.Pacer) == 0 || len(groups.TokenBucket) == 0 || len(groups.EmptyStart) == 0 || len(groups.SlidingLog) == 0 {
		t.Fatal("a group is empty")
	}
	for _, v := range groups.Pacer {
		t.Run("pacer/"+v.Name, func(t *testing.T) { runVector(t, &v, pacerOf(&v, v.Rate), pacerStep) })
	}
	for _, v := range groups.TokenBucket {
		limit := TokenBucket(units(v.Capacity), units(v.Rate), time.Second)
		t.Run("token_bucket/"+v.Name, func(t *testing.T) { runVector(t, &v, limit, tryStep) })
	}
	for _, v := range groups.SlidingLog {
		limit := SlidingLog(units(v.Limit), time.Duration(v.WindowS*float64(time.Second)))
		t.Run("sliding_log/"+v.Name, func(t *testing.T) { runVector(t, &v, limit, tryStep) })
	}
	for _, v := range groups.EmptyStart {
		limit := TokenBucket(uint64(v.Capacity), uint64(v.Refill), time.Duration(v.PeriodS*float64(time.Second))).Interval().StartEmpty()
		t.Run("empty_start/"+v.Name, func(t *testing.T) { runVector(t, &v, limit, wakeStep) })
	}
}

func pacerOf(v *vector, rate float64) Limit {
	return Pacer(units(rate), time.Second, units(v.Burst)).BurstEarn(uint32(math.Round(v.EarnFactor * 1000)))
}

type vectorRun func(t *testing.T, i int, v *vector, c *Client, l *Limiter)

func runVector(t *testing.T, v *vector, limit Limit, step vectorRun) {
	c := open(t, WithVirtualClock())
	l, err := c.NewLimiter("vector", limit)
	if err != nil {
		t.Fatal(err)
	}
	start := c.Now()
	for i := range v.Steps {
		s := &v.Steps[i]
		at := start.Add(time.Duration(math.Round(s.TimeMS*1000+s.TimeS*1e6)) * time.Microsecond)
		if err := c.Advance(at.Sub(c.Now())); err != nil {
			t.Fatal(err)
		}
		step(t, i, v, c, l)
	}
}

func pacerStep(t *testing.T, i int, v *vector, c *Client, l *Limiter) {
	s := &v.Steps[i]
	if s.Rate != nil {
		changed, err := c.NewLimiter("vector", pacerOf(v, *s.Rate))
		if err != nil {
			t.Fatal(err)
		}
		l = changed
	}
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	var got float64
	if s.Op == "pace" {
		p, err := l.Pace(bg, "", Weight(units(s.Weight)))
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		got = ms(p.Delay())
	} else if p, err := l.TryAcquire("", Weight(units(s.Weight))); err != nil {
		got = ms(err.(*DeniedError).RetryAfter)
	} else {
		got = ms(p.Delay())
	}
	if math.Abs(got-s.DelayMS) > v.ToleranceMS {
		t.Errorf("step %d (%s): %v ms, not %v", i, s.Op, got, s.DelayMS)
	}
}

func tryStep(t *testing.T, i int, v *vector, _ *Client, l *Limiter) {
	s := &v.Steps[i]
	if _, err := l.TryAcquire("", Weight(units(s.Weight))); (err == nil) != s.Allowed {
		t.Errorf("step %d at %v s: allowed is %v: %v", i, s.TimeS, err == nil, err)
	}
}

func wakeStep(t *testing.T, i int, v *vector, _ *Client, l *Limiter) {
	s := &v.Steps[i]
	p, err := l.Pace(bg, "")
	if err != nil {
		t.Fatalf("step %d: %v", i, err)
	}
	if got := s.TimeMS + float64(p.Delay())/float64(time.Millisecond); math.Abs(got-s.WakeMS) > 1 {
		t.Errorf("step %d: runs at %v ms, not %v", i, got, s.WakeMS)
	}
}
