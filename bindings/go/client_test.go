package limiter

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestOpenRefusesWhatCannotBeUsed(t *testing.T) {
	for _, test := range []struct {
		name   string
		url    string
		option ClientOption
		says   string
	}{
		{"scheme", "gopher://x", nil, "memory://"},
		{"setting", "", WithSetting("colour", "red"), "colour"},
		{"value", "", WithLease(time.Millisecond), "lease_ms"},
		{"negative", "", WithMaxPenalty(-time.Second), "max_penalty_ms"},
		{"NUL", "memory://\x00", nil, "NUL"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var options []ClientOption
			if test.option != nil {
				options = append(options, test.option)
			}
			c, err := Open(test.url, options...)
			if c != nil || !errors.Is(err, ErrConfig) {
				t.Fatalf("%v", err)
			}
			if !strings.Contains(err.Error(), test.says) {
				t.Errorf("%q does not say %q", err, test.says)
			}
		})
	}
}

func TestEveryOptionIsTaken(t *testing.T) {
	for name, options := range map[string][]ClientOption{
		"memory://": {WithVirtualClock(), WithLease(time.Minute), WithMaxWaiting(10), WithMaxPenalty(time.Hour),
			WithPrefix("p"), WithCommandTimeout(time.Second), WithFailurePolicy(FailLocal), WithProcesses(3)},
		"redis://localhost:1": {WithCredentials("u", "p"), WithFailurePolicy(FailOpen)},
	} {
		c, err := Open(name, options...)
		if name != "memory://" && errors.Is(err, ErrConfig) && strings.Contains(err.Error(), "must be memory://") {
			t.Logf("built without Redis: %v", err)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		c.Close()
	}
}

func TestNewLimiterRefusesWhatIsOutOfRange(t *testing.T) {
	c := open(t)
	for _, test := range []struct {
		name   string
		limits []Limit
		says   string
	}{
		{"none", nil, ""},
		{"zero", []Limit{{}}, ""},
		{"capacity 0", []Limit{Semaphore(0)}, "capacity"},
		{"capacity", []Limit{Semaphore(1), Semaphore(1<<48 + 1)}, "capacity"},
		{"rate 0", []Limit{TokenBucket(1, 0, time.Second)}, "refill"},
		{"rate", []Limit{TokenBucket(1, 1e9+1, time.Second)}, ""},
		{"part of a microsecond", []Limit{TokenBucket(1, 1, 1500*time.Nanosecond)}, "1.5µs"},
		{"negative", []Limit{SlidingLog(1, -time.Second)}, "-1s"},
		{"lease", []Limit{Semaphore(1).Lease(-1)}, "lease"},
		{"lease of none", []Limit{Semaphore(1).Lease(0)}, "lease"},
		{"longest", []Limit{FixedWindow(1, math.MaxInt64/1000*1000)}, "period"},
		{"flag of another kind", []Limit{Semaphore(1).Interval()}, ""},
		{"earn", []Limit{Pacer(1, time.Second, 1).BurstEarn(1001)}, "earn"},
		{"seventeen", make([]Limit, 17), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			l, err := c.NewLimiter("x", test.limits...)
			if l != nil || !errors.Is(err, ErrConfig) && !errors.Is(err, ErrInvalid) {
				t.Fatalf("%v", err)
			}
			if !strings.Contains(err.Error(), test.says) {
				t.Errorf("%q does not say %q", err, test.says)
			}
		})
	}
	for _, name := range []string{"", "a\x00b", "\xff", strings.Repeat("x", 1025)} {
		if _, err := c.NewLimiter(name, Semaphore(1)); err == nil {
			t.Errorf("the name %.9q is taken", name)
		}
	}
}

func TestEdgesOfRatesWork(t *testing.T) {
	c := open(t, WithVirtualClock())
	for name, limit := range map[string]Limit{
		"one in ten years":         TokenBucket(1, 1, 10*365*24*time.Hour),
		"a thousand million a s":   TokenBucket(1e9, 1e9, time.Second),
		"two to the forty-eighth":  Semaphore(1 << 48),
		"a burst of none":          Pacer(1, time.Second, 0).BurstEarn(0),
		"a burst earned at once":   Pacer(1, time.Second, 5).BurstEarn(1000),
		"unlimited":                Unlimited(),
		"windows by the first use": FixedWindow(1, time.Second).AlignFirstUse(),
	} {
		l, err := c.NewLimiter(name, limit)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := l.TryAcquire("k"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCloseEndsEveryWaitAndLaterCalls(t *testing.T) {
	c := open(t)
	l := newLimiter(t, c, Semaphore(1))
	rate, err := c.NewLimiter("rate", TokenBucket(1, 1, time.Second))
	if err != nil {
		t.Fatal(err)
	}
	held := mustAcquire(t, l, "")
	errs := make(chan error)
	for range 100 {
		go func() {
			_, err := l.Acquire(context.Background(), "")
			errs <- err
		}()
	}
	untilWaiting(t, c, 100)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if err := <-errs; !errors.Is(err, ErrClosed) {
			t.Fatalf("a wait ended with %v", err)
		}
	}
	if err := held.Release(); !errors.Is(err, ErrClosed) && !errors.Is(err, ErrStale) {
		t.Errorf("Release: %v", err)
	}
	_, acquire := l.Acquire(context.Background(), "")
	_, try := l.TryAcquire("")
	_, pace := rate.Pace(bg, "")
	_, peek := l.Peek(bg, "")
	_, many := l.TryMany(bg, Request{})
	_, made := c.NewLimiter("later", Semaphore(1))
	for verb, err := range map[string]error{
		"Acquire": acquire, "TryAcquire": try, "Pace": pace, "Peek": peek, "NewLimiter": made, "TryMany": many,
		"Wait":     rate.Wait(context.Background(), ""),
		"Do":       l.Do(context.Background(), "", func(context.Context) error { t.Error("ran"); return nil }),
		"Reset":    l.Reset(bg, ""),
		"Penalize": l.Penalize(bg, "", time.Second),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", verb, err)
		}
	}
	if err := c.Close(); err != nil {
		t.Errorf("again: %v", err)
	}
}

// Close meets calls of every kind at every instant: no crash, no hang, no lost goroutine.
func TestCloseWhileInUse(t *testing.T) {
	for range 50 {
		c, err := Open("")
		if err != nil {
			t.Fatal(err)
		}
		l, err := c.NewLimiter("x", Semaphore(2))
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 8 {
			all.Add(1)
			go func() {
				defer all.Done()
				for {
					p, err := l.Acquire(context.Background(), "k", NotifyLost())
					if errors.Is(err, ErrClosed) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					runtime.Gosched()
					p.Release()
				}
			}()
		}
		time.Sleep(200 * time.Microsecond)
		for range 2 {
			all.Add(1)
			go func() {
				defer all.Done()
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}()
		}
		all.Wait()
	}
}

func TestDescriptorsAreGivenBack(t *testing.T) {
	descriptors := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip(err)
		}
		return len(entries)
	}
	use := func() {
		c, err := Open("", WithLogger(slog.New(slog.DiscardHandler), slog.LevelDebug))
		if err != nil {
			t.Fatal(err)
		}
		l, err := c.NewLimiter("x", Semaphore(1))
		if err != nil {
			t.Fatal(err)
		}
		p, err := l.Acquire(context.Background(), "")
		if err != nil {
			t.Fatal(err)
		}
		p.Release()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	use()
	before := descriptors()
	for range 50 {
		use()
	}
	eventually(t, "descriptors", func() bool {
		runtime.GC()
		return descriptors() <= before
	})
}

// What could not be waited for may still write to the log, so its pipe stays.
func TestLogPipeOutlivesABackgroundThatGoesOn(t *testing.T) {
	for status, kept := range map[Status]bool{StatusOK: false, StatusTimeout: true, StatusWouldDeadlock: true} {
		pipe, err := openLogPipe(slog.New(slog.DiscardHandler), slog.LevelInfo)
		if err != nil {
			t.Fatal(err)
		}
		ownedClient{log: pipe}.free(func(clientHandle) Status { return status })
		if _, err := pipe.write.Write([]byte("1late\n")); (err == nil) != kept {
			t.Errorf("%v: %v", status, err)
		}
		if kept {
			pipe.close()
		}
	}
}

func TestClock(t *testing.T) {
	c := open(t, WithVirtualClock())
	before := c.Now()
	if err := c.Advance(90 * time.Second); err != nil {
		t.Fatal(err)
	}
	if got := c.Now().Sub(before); got != 90*time.Second {
		t.Errorf("%v passed", got)
	}
	if err := c.SetClock(before.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := c.Now(); !got.Equal(before.Add(time.Hour)) {
		t.Errorf("it is %v", got)
	}
	for _, d := range []time.Duration{-1, 1, time.Second + 999} {
		if err := c.Advance(d); !errors.Is(err, ErrInvalid) {
			t.Errorf("by %v: %v", d, err)
		}
	}
	if err := c.SetClock(time.Unix(-1, 0)); !errors.Is(err, ErrInvalid) {
		t.Errorf("before 1970: %v", err)
	}
	if err := open(t).Advance(time.Second); !errors.Is(err, ErrUnsupported) {
		t.Errorf("on a real clock: %v", err)
	}
}

func TestErrorsMatchTheirVariablesOnly(t *testing.T) {
	all := map[Status]error{
		StatusDenied: ErrDenied, StatusNever: ErrNever, StatusInvalid: ErrInvalid, StatusConfig: ErrConfig,
		StatusClosed: ErrClosed, StatusTimeout: ErrTimeout, StatusCancelled: ErrCancelled, StatusBackend: ErrBackend,
		StatusUnknownOutcome: ErrUnknownOutcome, StatusStale: ErrStale, StatusForked: ErrForked,
		StatusOverloaded: ErrOverloaded, StatusResource: ErrResource, StatusUnsupported: ErrUnsupported,
	}
	for status := range all {
		for other, target := range all {
			a := answer{Decision: Decision{Status: status}}
			for _, err := range []error{failure(status), a.failure(false)} {
				if errors.Is(err, target) != (status == other) {
					t.Errorf("%v (%v) and %v", status, err, other)
				}
			}
		}
		if name := status.String(); !strings.HasPrefix(name, "LIMITER_") || name == "LIMITER_?" {
			t.Errorf("%d is named %s", status, name)
		}
	}
	if failure(StatusOK) != nil {
		t.Error("OK is an error")
	}
	detailed := &Error{StatusConfig, "a detail"}
	if errors.Is(ErrConfig, detailed) || !errors.Is(detailed, ErrConfig) {
		t.Error("a detail is not matched as it should be")
	}
}

func TestLogRecordsReachTheLogger(t *testing.T) {
	var text bytes.Buffer
	p, err := openLogPipe(slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug})), slog.LevelInfo)
	if err != nil {
		t.Fatal(err)
	}
	for level, want := range map[slog.Level]int{slog.LevelDebug - 4: 4, slog.LevelDebug: 4, slog.LevelInfo: 3,
		slog.LevelWarn: 2, slog.LevelError: 1, slog.LevelError + 4: 0} {
		if got := libraryLevel(level); got != want {
			t.Errorf("%v is %d", level, got)
		}
	}
	long := strings.Repeat("x", 5000)
	for level, message := range []string{"", "one", "two", "three", long} {
		if level > 0 {
			cLog(p.descriptor(), level, message)
		}
	}
	p.close()
	for _, want := range []string{"level=ERROR msg=one", "level=WARN msg=two", "level=INFO msg=three", "level=DEBUG msg=xxx"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in %q", want, text.String())
		}
	}
	if lines := strings.Count(text.String(), "\n"); lines != 4 {
		t.Errorf("%d lines", lines)
	}
}

func TestFullLogPipeDoesNotBlock(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	p := &logPipe{write: write}
	for range 1000 {
		cLog(p.descriptor(), 1, strings.Repeat("x", 1000))
	}
}

// The library is exchanged below a program that was built for another ABI.
func TestWrongABIIsSaidClearly(t *testing.T) {
	if os.Getenv("LIMITER_TEST_WRONG_ABI") != "" {
		_, err := Open("")
		if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "ABI 99") {
			t.Fatalf("%v", err)
		}
		os.Stdout.WriteString("refused\n")
		return
	}
	dir := t.TempDir()
	source, library := filepath.Join(dir, "abi.c"), filepath.Join(dir, "abi.so")
	if err := os.WriteFile(source, []byte("unsigned limiter_abi_version(void) { return 99; }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-o", library, source).CombinedOutput(); err != nil {
		t.Skipf("no C compiler: %v %s", err, out)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestWrongABIIsSaidClearly$")
	cmd.Env = append(os.Environ(), "LIMITER_TEST_WRONG_ABI=1", "LD_PRELOAD="+library)
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("refused")) {
		t.Errorf("%v: %s", err, out)
	}
}

func TestALimiterHasItsOwnFailurePolicy(t *testing.T) {
	c, err := Open("")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l, err := c.NewLimiter("n", Semaphore(1))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []FailurePolicy{"error", FailOpen, FailClosed, FailLocal} {
		if err := l.SetFailurePolicy(p); err != nil {
			t.Errorf("%q: %v", p, err)
		}
	}
	for _, p := range []FailurePolicy{"", "OPEN", "open\x00"} {
		if err := l.SetFailurePolicy(p); !errors.Is(err, ErrConfig) {
			t.Errorf("%q: %v", p, err)
		}
	}
}

func TestKindsAndLimitsSayWhatTheyAre(t *testing.T) {
	for kind := KindSemaphore; kind <= KindNeverAdmit; kind++ {
		if name := kind.String(); name == "" || strings.HasPrefix(name, "kind") {
			t.Errorf("%d is %q", kind, kind)
		}
	}
	l := newLimiter(t, open(t), Semaphore(2), TokenBucket(3, 4, time.Second), Pacer(5, time.Minute, 6), FixedWindow(7, time.Hour), Unlimited())
	want := `"TestKindsAndLimitsSayWhatTheyAre" [semaphore of 2 token bucket of 3, 4 per 1s pacer of 5 per 1m0s, burst 6 fixed window of 7 per 1h0m0s unlimited]`
	if l.String() != want || Kind(0).String() != "kind 0" || Kind(9).String() != "kind 9" {
		t.Errorf("%v, %v, %v", l, Kind(0), Kind(9))
	}
}
