package httplimit

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	limiter "github.com/liblimiter/liblimiter/bindings/go"
)

// upstream answers each request as the test says.
func upstream(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func TestRetryAfterOfAResponse(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, test := range []struct {
		value, date string
		want        time.Duration
		ok          bool
	}{
		{"", "", 0, false},
		{"0", "", 0, true},
		{"120", "", 2 * time.Minute, true},
		{" 7 ", "", 7 * time.Second, true},
		{"-1", "", 0, false},
		{"1.5", "", 0, false},
		{"soon", "", 0, false},
		{"99999999999", "", math.MaxInt64, true},
		{"99999999999999999999999", "", math.MaxInt64, true},
		{"Fri, 02 Jan 2026 03:04:35 GMT", "", 30 * time.Second, true},
		{"Friday, 02-Jan-26 03:04:35 GMT", "", 30 * time.Second, true},
		{"Fri Jan  2 03:04:35 2026", "", 30 * time.Second, true},
		{"Fri, 02 Jan 2026 03:04:35 GMT", "Fri, 02 Jan 2026 03:04:25 GMT", 10 * time.Second, true},
		{"Thu, 01 Jan 2026 00:00:00 GMT", "", 0, true},
	} {
		h := http.Header{}
		h.Set("Retry-After", test.value)
		h.Set("Date", test.date)
		if got, ok := RetryAfter(h, now); got != test.want || ok != test.ok {
			t.Errorf("%q at %q: %v %v", test.value, test.date, got, ok)
		}
	}
}

func TestTransportPenalizes(t *testing.T) {
	for _, test := range []struct {
		name   string
		status int
		after  string
		want   time.Duration
	}{
		{"429", 429, "30", 30 * time.Second},
		{"503", 503, "30", 30 * time.Second},
		{"a date", 429, time.Now().Add(40 * time.Second).UTC().Format(http.TimeFormat), 40 * time.Second},
		{"without", 429, "", 0},
		{"another status", 500, "30", 0},
		{"success", 200, "30", 0},
		{"bounded", 429, "999999999999999999999", time.Hour},
	} {
		t.Run(test.name, func(t *testing.T) {
			url := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
				if test.after != "" {
					w.Header().Set("Retry-After", test.after)
				}
				w.WriteHeader(test.status)
			})
			_, l := virtual(t, limiter.TokenBucket(100, 100, time.Second))
			client := &http.Client{Transport: &Transport{Limiter: l}}
			defer client.CloseIdleConnections()
			r, err := client.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			r.Body.Close()
			if r.StatusCode != test.status {
				t.Errorf("status %d", r.StatusCode)
			}
			d, err := l.Peek(bg, strings.TrimPrefix(url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			if slack := test.want - d.RetryAfter; slack < 0 || slack > 2*time.Second {
				t.Errorf("penalized by %v", d.RetryAfter)
			}
			if test.want > 0 {
				_, err := (&http.Client{Transport: &Transport{Limiter: l, MaxWait: time.Second}}).Get(url)
				var denied *limiter.DeniedError
				if !errors.As(err, &denied) || denied.RetryAfter != d.RetryAfter {
					t.Errorf("not held back: %v", err)
				}
			}
		})
	}
}

func TestTransportHoldsThePermitUntilTheBodyIsClosed(t *testing.T) {
	url := upstream(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") })
	c, l := virtual(t, limiter.Semaphore(1))
	held := func() uint64 {
		s, err := c.Stats()
		if err != nil {
			t.Fatal(err)
		}
		return s.InFlight
	}
	client := &http.Client{Transport: &Transport{Limiter: l}}
	r, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r.Body)
	if string(text) != "hello" || err != nil || held() != 1 {
		t.Errorf("%q %v, %d held", text, err, held())
	}
	r.Body.Close()
	r.Body.Close()
	if s, _ := c.Stats(); s.InFlight != 0 || s.Released != 1 {
		t.Errorf("%+v", s)
	}
	failing := &Transport{Limiter: l, Base: tripper(func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF })}
	if _, err := failing.RoundTrip(httptest.NewRequest("GET", url, nil)); err != io.ErrUnexpectedEOF || held() != 0 {
		t.Errorf("%v, %d held", err, held())
	}
	bare := &Transport{Limiter: l, Base: tripper(func(*http.Request) (*http.Response, error) { return &http.Response{StatusCode: 204}, nil })}
	r, err = bare.RoundTrip(httptest.NewRequest("GET", url, nil))
	if err != nil {
		t.Fatal(err)
	}
	if r.Body.Close(); held() != 0 {
		t.Errorf("%d held", held())
	}
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type stream struct{ closed bool }

func (s *stream) Read([]byte) (int, error)    { return 0, io.EOF }
func (s *stream) Write(b []byte) (int, error) { return len(b), nil }
func (s *stream) Close() error                { s.closed = true; return nil }

func TestSwitchedProtocolsStayWritable(t *testing.T) {
	c, l := virtual(t, limiter.Semaphore(1))
	s := &stream{}
	transport := &Transport{Limiter: l, Base: tripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 101, Body: s}, nil
	})}
	r, err := transport.RoundTrip(httptest.NewRequest("GET", "http://x/", nil))
	if err != nil {
		t.Fatal(err)
	}
	w, ok := r.Body.(io.ReadWriteCloser)
	if !ok {
		t.Fatal("not writable")
	}
	if n, err := w.Write([]byte("abc")); n != 3 || err != nil {
		t.Error(n, err)
	}
	w.Close()
	if stats, _ := c.Stats(); !s.closed || stats.InFlight != 0 {
		t.Errorf("closed %v, %d held", s.closed, stats.InFlight)
	}
}

// A request that may not go has its body closed, as http.RoundTripper demands.
func TestTransportClosesTheBodyOfWhatItRefuses(t *testing.T) {
	_, l := virtual(t, limiter.NeverAdmit())
	s := &stream{}
	r := httptest.NewRequest("POST", "http://x/", nil)
	r.Body = s
	if _, err := (&Transport{Limiter: l}).RoundTrip(r); !errors.Is(err, limiter.ErrNever) || !s.closed {
		t.Errorf("%v, closed %v", err, s.closed)
	}
}

func TestTransportHonoursTheContext(t *testing.T) {
	c := open(t)
	l := newLimiter(t, c, limiter.Semaphore(1))
	if _, err := l.TryAcquire("x"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(10*time.Millisecond, cancel)
	r := httptest.NewRequest("GET", "http://x/", nil).WithContext(ctx)
	if _, err := (&Transport{Limiter: l, FailClosed: false}).RoundTrip(r); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestTransportFailsOpenOrClosed(t *testing.T) {
	for _, open := range []bool{false, true} {
		c, l := virtual(t, limiter.Semaphore(1))
		c.Close()
		var told error
		transport := &Transport{Limiter: l, FailClosed: !open, OnError: func(_ *http.Request, err error) { told = err },
			Base: tripper(func(*http.Request) (*http.Response, error) { return &http.Response{StatusCode: 200}, nil })}
		_, err := transport.RoundTrip(httptest.NewRequest("GET", "http://x/", nil))
		if open && err != nil || !open && !errors.Is(err, limiter.ErrClosed) || !errors.Is(told, limiter.ErrClosed) {
			t.Errorf("open %v: %v, told of %v", open, err, told)
		}
	}
}

func TestTransportPaces(t *testing.T) {
	url := upstream(t, func(http.ResponseWriter, *http.Request) {})
	l := newLimiter(t, open(t), limiter.Pacer(50, time.Second, 0))
	weight := uint64(0)
	client := &http.Client{Transport: &Transport{Limiter: l, Key: func(*http.Request) string { return "all" },
		Weight: func(*http.Request) uint64 { weight++; return 1 }}}
	defer client.CloseIdleConnections()
	start := time.Now()
	for range 5 {
		r, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
	}
	if took := time.Since(start); took < 79*time.Millisecond || weight != 5 {
		t.Errorf("took %v, %d weighed", took, weight)
	}
}
