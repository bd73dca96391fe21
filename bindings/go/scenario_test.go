package limiter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sync/atomic"
	"testing"
	"time"
)

// The scenarios that every language runs: see tests/scenarios/README.md for the format.

func repositoryFile(t *testing.T, parts ...string) []byte {
	t.Helper()
	path := filepath.Join(append([]string{"..", ".."}, parts...)...)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Skipf("not in the repository: %v", err)
	}
	return text
}

type scenarioLimit struct {
	Kind              string
	Flags             []string
	Capacity, Refill  uint64
	PeriodUS          uint64  `json:"period_us"`
	LeaseMS           uint32  `json:"lease_ms"`
	BurstEarnPermille *uint32 `json:"burst_earn_permille"`
	Version           uint32
}

type scenarioStep struct {
	Op, As, Permit, Submit, Cancel, Completes, Pending string

	Key          string
	Weight       *uint64
	Weights      []uint64
	WaitMS       int32   `json:"wait_ms"`
	LeaseMS      *uint32 `json:"lease_ms"`
	Flags        []string
	Actual       uint64
	RetryAfterUS uint64 `json:"retry_after_us"`
	AdvanceUS    uint64 `json:"advance_us"`
	StepBackUS   uint64 `json:"step_back_us"`
	Detach       bool
	Limits       []scenarioLimit
	Requests     []scenarioStep
	Expect       json.RawMessage
}

type scenario struct {
	Name, Clock, Backend string
	Config               map[string]string
	Limits               []scenarioLimit
	Steps                []scenarioStep
}

var scenarioKinds = map[string]Kind{
	"semaphore": KindSemaphore, "token_bucket": KindTokenBucket, "pacer": KindPacer,
	"sliding_log": KindSlidingLog, "sliding_counter": KindSlidingCounter,
	"fixed_window": KindFixedWindow, "unlimited": KindUnlimited, "never": KindNeverAdmit,
}

func (s *scenarioLimit) limit(t *testing.T) Limit {
	kind, ok := scenarioKinds[s.Kind]
	if !ok {
		t.Fatalf("unknown kind %q", s.Kind)
	}
	l := Limit{kind: kind, capacity: s.Capacity, refill: s.Refill, period: time.Duration(s.PeriodUS) * time.Microsecond}
	for _, flag := range s.Flags {
		l = map[string]func() Limit{
			"per_call": l.PerCall, "interval": l.Interval, "start_empty": l.StartEmpty,
			"align_first_use": l.AlignFirstUse, "no_renew": l.NoRenew,
		}[flag]()
	}
	if s.BurstEarnPermille != nil {
		l = l.BurstEarn(*s.BurstEarnPermille)
	}
	if s.LeaseMS != 0 {
		l = l.Lease(time.Duration(s.LeaseMS) * time.Millisecond)
	}
	return l.Version(s.Version)
}

func (s *scenarioStep) options() (options []Option) {
	if s.Weight != nil {
		options = append(options, Weight(*s.Weight))
	}
	if s.Weights != nil {
		options = append(options, Weights(s.Weights...))
	}
	if s.LeaseMS != nil {
		options = append(options, Lease(time.Duration(*s.LeaseMS)*time.Millisecond))
	}
	for _, flag := range s.Flags {
		if flag != "no_renew" {
			panic(flag)
		}
		options = append(options, NoRenew())
	}
	return append(options, MaxWait(time.Duration(s.WaitMS)*time.Millisecond))
}

// outcome is what a step came to, in the words of the scenarios.
type outcome map[string]any

func (r *scenarioRun) outcome(p *Permit, err error) outcome {
	var denied *DeniedError
	var never *NeverError
	var other *Error
	switch {
	case err == nil && p != nil:
		o := decisionOutcome(p.decision)
		o["permit"], o["fence"] = p.id != 0, p.Fence()
		return o
	case err == nil:
		return outcome{"status": "OK"}
	case errors.As(err, &denied):
		return decisionOutcome(Decision{Status: StatusDenied, Index: denied.Index, Limit: denied.Limit, Remaining: denied.Remaining,
			RetryAfter: denied.RetryAfter, ResetAfter: denied.ResetAfter, Waited: denied.Waited, Degraded: denied.Degraded})
	case errors.As(err, &never):
		return decisionOutcome(Decision{Status: StatusNever, Index: never.Index, Limit: never.Limit})
	case errors.As(err, &other):
		return decisionOutcome(Decision{Status: other.Status})
	case errors.Is(err, context.Canceled):
		return decisionOutcome(Decision{Status: StatusCancelled})
	}
	r.t.Fatalf("an error of no kind: %v", err)
	return nil
}

func decisionOutcome(d Decision) outcome {
	return outcome{
		"status": d.Status.String()[len("LIMITER_"):], "permit": false, "index": d.Index, "limit": d.Limit,
		"remaining": d.Remaining, "retry_after_us": d.RetryAfter.Microseconds(),
		"reset_after_us": d.ResetAfter.Microseconds(), "waited_us": d.Waited.Microseconds(),
		"queue_position": d.QueuePosition, "fence": d.Fence, "degraded": d.Degraded,
	}
}

type scenarioWait struct {
	cancel context.CancelFunc
	done   chan struct{}
	permit *Permit
	err    error
	looked bool
	// Go always detaches: the context's error is what ends the call, and no completion follows.
	detached bool
}

type scenarioRun struct {
	t       *testing.T
	name    string
	client  *Client
	limiter *Limiter
	permits map[string]*Permit
	waits   map[string]*scenarioWait
}

// scenarioURL is the Redis to run on; empty: in memory.
var scenarioURL = os.Getenv("LIMITER_TEST_URL")

// scenarios counts them, for keys of their own.
var scenarios atomic.Int64

func TestScenarios(t *testing.T) {
	var file struct{ Scenarios []scenario }
	if err := json.Unmarshal(repositoryFile(t, "tests", "scenarios", "scenarios.json"), &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Scenarios) < 50 {
		t.Fatalf("only %d scenarios were read", len(file.Scenarios))
	}
	for _, s := range file.Scenarios {
		t.Run(s.Name, func(t *testing.T) { runScenario(t, &s, false) })
		if scenarioURL == "" && s.Backend == "" {
			t.Run("as if remote/"+s.Name, func(t *testing.T) { runScenario(t, &s, true) })
		}
	}
}

// runScenario runs it on memory; with remote, by the calls that a client of Redis makes.
func runScenario(t *testing.T, s *scenario, remote bool) {
	if s.Backend == "" && s.Clock != "virtual" || s.Backend != "" && s.Backend != "none" {
		t.Fatalf("unknown clock %q or backend %q", s.Clock, s.Backend)
	}
	var options []ClientOption
	if s.Clock == "virtual" {
		options = append(options, WithVirtualClock())
	}
	for key, value := range s.Config {
		options = append(options, WithSetting(key, value))
	}
	r := &scenarioRun{t: t, name: s.Name, permits: map[string]*Permit{}, waits: map[string]*scenarioWait{}}
	if s.Backend == "" && scenarioURL == "" {
		r.client = open(t, options...)
	} else if s.Backend == "none" {
		r.client = openURL(t, "redis://127.0.0.1:1", options...)
	} else {
		prefix := fmt.Sprintf("go:%d:%d", os.Getpid(), scenarios.Add(1))
		options = append(options, WithPrefix(prefix), WithCommandTimeout(20*time.Second))
		r.client = openURL(t, scenarioURL, options...)
	}
	if remote {
		r.client.slots = make(chan struct{}, remoteCalls)
	}
	if s.Limits != nil {
		if err := r.open(s.Limits); err != nil {
			t.Fatal(err)
		}
	}
	for i := range s.Steps {
		r.step(i, &s.Steps[i])
		r.rest()
	}
	for name, w := range r.waits {
		select {
		case <-w.done:
			if !w.looked && !w.detached {
				t.Errorf("%s completed unasked for: %v", name, w.err)
			}
		default:
			w.cancel()
		}
	}
}

func openURL(t *testing.T, url string, options ...ClientOption) *Client {
	c, err := Open(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// rest lets everything happen that is under way on Redis.
func (r *scenarioRun) rest() {
	if scenarioURL != "" {
		_ = r.client.Advance(0) // a client that a step has closed has nothing under way
	}
}

func (r *scenarioRun) open(limits []scenarioLimit) error {
	made := make([]Limit, len(limits))
	for i := range limits {
		made[i] = limits[i].limit(r.t)
	}
	l, err := r.client.NewLimiter(r.name, made...)
	if err == nil {
		r.limiter = l
	}
	return err
}

func (r *scenarioRun) step(i int, s *scenarioStep) {
	r.t.Helper()
	switch {
	case s.Op == "try_many":
		r.tryMany(i, s)
	case s.Op != "":
		r.check(i, s.Expect, r.verb(s))
	case s.Submit != "":
		r.check(i, s.Expect, r.submit(s))
	case s.Cancel != "":
		r.waits[s.Cancel].cancel()
		if s.Detach {
			<-r.waits[s.Cancel].done
			r.waits[s.Cancel].detached = true
			r.waits[s.Cancel].permit.Release() // where the grant won, the caller has it
		}
	case s.Completes != "":
		w := r.waits[s.Completes]
		select {
		case <-w.done:
		case <-time.After(10 * time.Second):
			r.t.Fatalf("step %d: %s did not complete", i, s.Completes)
		}
		w.looked = true
		r.permits[s.Completes] = w.permit
		r.check(i, s.Expect, r.outcome(w.permit, w.err))
	case s.Pending != "":
		r.settle()
		select {
		case <-r.waits[s.Pending].done:
			if r.waits[s.Pending].detached {
				return
			}
			r.t.Fatalf("step %d: %s completed: %v", i, s.Pending, r.waits[s.Pending].err)
		default:
		}
	case s.AdvanceUS != 0:
		r.must(i, r.client.Advance(time.Duration(s.AdvanceUS)*time.Microsecond))
	case s.StepBackUS != 0:
		r.must(i, r.client.SetClock(r.client.Now().Add(-time.Duration(s.StepBackUS)*time.Microsecond)))
	default:
		r.t.Fatalf("step %d is none", i)
	}
}

func (r *scenarioRun) must(i int, err error) {
	if err != nil {
		r.t.Fatalf("step %d: %v", i, err)
	}
}

// settle lets what the library has completed reach the goroutines that wait for it.
func (r *scenarioRun) settle() {
	r.rest()
	time.Sleep(2 * time.Millisecond)
}

func (r *scenarioRun) verb(s *scenarioStep) outcome {
	l := r.limiter
	switch s.Op {
	case "try", "acquire", "pace":
		var p *Permit
		var err error
		switch s.Op {
		case "try":
			p, err = l.TryAcquire(s.Key, s.options()...)
		case "acquire":
			p, err = l.Acquire(context.Background(), s.Key, s.options()...)
		case "pace":
			p, err = l.Pace(bg, s.Key, s.options()...)
		}
		r.permits[s.As] = p
		return r.outcome(p, err)
	case "peek":
		d, err := l.Peek(bg, s.Key, s.options()...)
		if err != nil {
			return r.outcome(nil, err)
		}
		return decisionOutcome(d)
	case "release":
		return r.outcome(nil, r.permits[s.Permit].Release())
	case "renew":
		var lease time.Duration
		if s.LeaseMS != nil {
			lease = time.Duration(*s.LeaseMS) * time.Millisecond
		}
		return r.outcome(nil, r.permits[s.Permit].Renew(bg, lease))
	case "settle":
		return r.outcome(nil, r.permits[s.Permit].Settle(bg, s.Actual))
	case "reset":
		return r.outcome(nil, l.Reset(bg, s.Key))
	case "penalize":
		return r.outcome(nil, l.Penalize(bg, s.Key, time.Duration(s.RetryAfterUS)*time.Microsecond))
	case "open":
		return r.outcome(nil, r.open(s.Limits))
	case "shutdown":
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return r.outcome(nil, r.client.Shutdown(ctx))
	case "stats":
		stats, err := r.client.Stats()
		o := r.outcome(nil, err)
		v := reflect.ValueOf(stats)
		for i := range v.NumField() {
			o[snake(v.Type().Field(i).Name)] = v.Field(i).Uint()
		}
		return o
	}
	r.t.Fatalf("unknown op %q", s.Op)
	return nil
}

func snake(name string) string {
	var out []rune
	for i, c := range name {
		if c >= 'A' && c <= 'Z' {
			if c += 'a' - 'A'; i > 0 {
				out = append(out, '_')
			}
		}
		out = append(out, c)
	}
	return string(out)
}

// submit is the first half of Acquire, whose answer no caller sees, and starts the second.
func (r *scenarioRun) submit(s *scenarioStep) outcome {
	loop, err := r.client.loop()
	if err != nil {
		return r.outcome(nil, err)
	}
	q := ask(s.options())
	a := cSubmit(loop.queue, r.limiter.handle, s.Key, &q, waitMS(q.maxWait))
	if a.Status != StatusPending {
		var p *Permit
		if err = a.failure(false); err == nil {
			p = r.limiter.permit(&a)
			r.permits[s.Submit] = p
		}
		return r.outcome(p, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &scenarioWait{cancel: cancel, done: make(chan struct{})}
	r.waits[s.Submit] = w
	l := r.limiter
	go func() {
		defer close(w.done)
		a, err := loop.await(ctx, a.op, false)
		if err == nil {
			err = a.failure(false)
		}
		if w.err = err; err == nil {
			w.permit = l.permit(&a)
		}
	}()
	if scenarioURL != "" {
		// Redis never answers at once: what was decided at once comes by the queue.
		r.settle()
		if !bytes.Contains(s.Expect, []byte("PENDING")) {
			<-w.done
			w.looked = true
			r.permits[s.Submit] = w.permit
			return r.outcome(w.permit, w.err)
		}
	}
	return decisionOutcome(a.Decision)
}

func (r *scenarioRun) tryMany(i int, s *scenarioStep) {
	requests := make([]Request, len(s.Requests))
	for j := range s.Requests {
		requests[j] = Request{s.Requests[j].Key, s.Requests[j].options()}
	}
	results, err := r.limiter.TryMany(bg, requests...)
	r.must(i, err)
	var expect []json.RawMessage
	r.must(i, json.Unmarshal(s.Expect, &expect))
	if len(expect) != len(results) {
		r.t.Fatalf("step %d: %d results for %d", i, len(results), len(expect))
	}
	for j, result := range results {
		r.permits[s.Requests[j].As] = result.Permit
		r.check(i, expect[j], r.outcome(result.Permit, result.Err))
	}
}

func (r *scenarioRun) check(i int, expect json.RawMessage, got outcome) {
	r.t.Helper()
	want := outcome{}
	if expect != nil {
		r.must(i, json.Unmarshal(expect, &want))
	}
	if _, ok := want["status"]; !ok {
		want["status"] = "OK"
	}
	for field, value := range want {
		if field == "fence_after" {
			if earlier := r.permits[value.(string)].Fence(); got["fence"].(uint64) <= earlier {
				r.t.Errorf("step %d: fence %v is not above %v", i, got["fence"], earlier)
			}
			continue
		}
		have, ok := got[field]
		if number, isNumber := value.(float64); isNumber {
			value = fmt.Sprintf("%.0f", number)
		}
		if !ok || fmt.Sprint(have) != fmt.Sprint(value) {
			r.t.Errorf("step %d: %s is %v, not %v", i, field, have, value)
		}
	}
}
