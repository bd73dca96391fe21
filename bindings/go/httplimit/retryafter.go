package httplimit

import (
	"context"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	limiter "github.com/liblimiter/liblimiter/bindings/go"
)

// RetryAfter reads how long a response asks to wait: seconds, or a date, which is compared with the
// response's own Date so that clocks need not agree, or else with now. False if it does not ask.
func RetryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if value == "" {
		return 0, false
	}
	if strings.Trim(value, "0123456789") == "" {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n > int64(math.MaxInt64/time.Second) {
			return math.MaxInt64, true // more than fits, so bounded by the limiter's longest penalty
		}
		return time.Duration(n) * time.Second, true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return max(0, at.Sub(now)), true
}

// wait is how long a denied request is asked to wait. A rate says it exactly. Where a semaphore is full
// nobody knows when a place comes free, and the denial names a permit's lease; but a penalty, which is
// then its ResetAfter, and the other limits are exact also then.
func (m *middleware) wait(ctx context.Context, key string, weight uint64, denied *limiter.DeniedError) time.Duration {
	limits := m.policies.limits
	if denied.Index < 0 || !holds(limits[denied.Index]) {
		return denied.RetryAfter
	}
	known := max(m.opts.RetryWhenFull, denied.ResetAfter)
	if slices.ContainsFunc(limits, func(l limiter.Limit) bool { return !holds(l) }) {
		known = max(known, m.others(ctx, key, weight))
	}
	return min(denied.RetryAfter, known)
}

// others is what the limits but the semaphores say; 0 where they cannot be asked. On Redis one more call.
func (m *middleware) others(ctx context.Context, key string, weight uint64) time.Duration {
	limits := m.policies.limits
	weights := make([]uint64, len(limits))
	for i, l := range limits {
		switch {
		case holds(l):
		case l.CountsCalls():
			weights[i] = 1
		default:
			weights[i] = weight
		}
	}
	d, err := m.limiter.Peek(ctx, key, limiter.Weights(weights...))
	if err != nil || d.Status != limiter.StatusDenied || d.Index < 0 {
		return 0
	}
	if holds(limits[d.Index]) {
		return d.ResetAfter
	}
	return d.RetryAfter
}
