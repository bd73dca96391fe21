package httplimit

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	limiter "github.com/liblimiter/liblimiter/bindings/go"
)

// policies are what the RateLimit fields say about a limiter. What each kind of limit says is in
// tests/conformance/ratelimit_fields.json, which every binding is held to.
type policies struct {
	limits []limiter.Limit
	names  []string
	quoted []string // the names as structured fields write them
	field  string   // RateLimit-Policy; empty if no limit has a quota
}

func newPolicies(l *limiter.Limiter, names, units []string) (policies, error) {
	limits := l.Limits()
	if names == nil {
		names = defaultNames(l.Name(), len(limits))
	}
	if len(names) != len(limits) || units != nil && len(units) != len(limits) {
		return policies{}, fmt.Errorf("%d names and %d units for %d limits", len(names), len(units), len(limits))
	}
	p := policies{limits: limits, names: names}
	for i, name := range names {
		if slices.ContainsFunc(names[:i], func(other string) bool { return strings.EqualFold(other, name) }) {
			return policies{}, fmt.Errorf("two limits are named %q", name)
		}
	}
	var items []string
	for i, limit := range limits {
		name, err := quote(names[i])
		if err != nil {
			return policies{}, err
		}
		p.quoted = append(p.quoted, name)
		unit := ""
		if units != nil {
			unit = units[i]
		}
		quota, window, ok := quotaOf(limit)
		if !ok {
			continue
		}
		item := name + quotaPart + strconv.FormatUint(quota, 10)
		if unit == "" && limit.Kind() == limiter.KindSemaphore {
			unit = concurrent
		}
		if unit != "" {
			quoted, err := quote(unit)
			if err != nil {
				return policies{}, err
			}
			item += unitPart + quoted
		}
		if window > 0 {
			item += windowPart + strconv.FormatUint(window, 10)
		}
		items = append(items, item)
	}
	p.field = strings.Join(items, ", ")
	return p, nil
}

// defaultNames are the limiter's, numbered after the first.
func defaultNames(name string, n int) []string {
	name = strings.Map(func(r rune) rune {
		if unprintable(r) {
			return '?'
		}
		return r
	}, name)
	names := make([]string, n)
	for i := range names {
		names[i] = name
		if i > 0 {
			names[i] += "-" + strconv.Itoa(i)
		}
	}
	return names
}

func unprintable(r rune) bool { return r < ' ' || r > '~' }

// quote writes a structured field's String (RFC 9651), which is of printable ASCII.
func quote(s string) (string, error) {
	if strings.ContainsFunc(s, unprintable) || s == "" {
		return "", fmt.Errorf("%q is not a name of printable ASCII", s)
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`, nil
}

// maxInteger is the largest Integer of a structured field.
const maxInteger = 999_999_999_999_999

// What the draft calls its fields and their parameters: its editors mean to change some.
const (
	policyField = "RateLimit-Policy"
	limitField  = "RateLimit"
	quotaPart   = ";q="
	unitPart    = ";qu="
	windowPart  = ";w="
	leftPart    = ";r="
	untilPart   = ";t="
	concurrent  = "concurrent-requests" // the unit of a semaphore
)

// quotaOf is a limit in the terms of a quota policy: units, and the window in whole seconds (0:
// none). A bucket's window is the time in which it fills. What is shorter than a second is told as
// the quota of one second; other fractions are rounded up, which promises less and never more.
func quotaOf(l limiter.Limit) (quota, window uint64, ok bool) {
	switch l.Kind() {
	case limiter.KindSemaphore:
		return min(l.Capacity(), maxInteger), 0, true
	case limiter.KindTokenBucket:
		// capacity * period / refill, in nanoseconds and 128 bits.
		hi, lo := bits.Mul64(l.Capacity(), uint64(l.Period()))
		if hi >= l.Refill() {
			return 0, 0, false // refused by the library: over 100 years
		}
		if fill, rest := bits.Div64(hi, lo, l.Refill()); fill >= uint64(time.Second) {
			return min(l.Capacity(), maxInteger), ceilSeconds(fill, rest), true
		}
		return perSecond(l.Refill(), l.Period()), 1, true
	case limiter.KindPacer:
		return perWindow(l.Refill(), l.Period())
	case limiter.KindSlidingLog, limiter.KindSlidingCounter, limiter.KindFixedWindow:
		return perWindow(l.Capacity(), l.Period())
	}
	return 0, 0, false
}

func perWindow(units uint64, period time.Duration) (uint64, uint64, bool) {
	if period < time.Second {
		return perSecond(units, period), 1, true
	}
	return min(units, maxInteger), ceilSeconds(uint64(period), 0), true
}

func perSecond(units uint64, period time.Duration) uint64 {
	hi, lo := bits.Mul64(units, uint64(time.Second))
	if hi >= uint64(period) {
		return maxInteger
	}
	quota, _ := bits.Div64(hi, lo, uint64(period))
	return min(quota, maxInteger)
}

func ceilSeconds(nanos, rest uint64) uint64 {
	seconds := nanos / uint64(time.Second)
	if nanos%uint64(time.Second) != 0 || rest != 0 {
		seconds++
	}
	return seconds
}

// describe adds the RateLimit fields, which are lists: where middlewares stand in a row, each tells its
// own. The effective window of a denial is its wait, so that it never lies beyond Retry-After; a
// semaphore has none. Without numbers, which is index -1, only the policies are told.
func (m *middleware) describe(h http.Header, index int, remaining uint64, window time.Duration) {
	if m.opts.NoHeaders || m.policies.field == "" {
		return
	}
	h.Add(policyField, m.policies.field)
	if index < 0 {
		return
	}
	if _, _, ok := quotaOf(m.policies.limits[index]); !ok {
		return
	}
	item := m.policies.quoted[index] + leftPart + strconv.FormatUint(min(remaining, maxInteger), 10)
	if m.policies.limits[index].Kind() != limiter.KindSemaphore {
		item += untilPart + strconv.FormatInt(seconds(window), 10)
	}
	h.Add(limitField, item)
}

// seconds rounds up: a client that obeys is not denied again.
func seconds(d time.Duration) int64 {
	if d > math.MaxInt64-time.Second {
		return int64(math.MaxInt64 / time.Second)
	}
	return int64((max(0, d) + time.Second - 1) / time.Second)
}

// setRetryAfter is at least 1: a denial that does not know better still asks for a pause.
func setRetryAfter(h http.Header, d time.Duration) {
	h.Set("Retry-After", strconv.FormatInt(max(1, seconds(d)), 10))
}

// problem is the draft's document for what is denied (RFC 9457).
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Violated []string `json:"violated-policies,omitempty"`
}

const problemTypes = "https://iana.org/assignments/http-problem-types#"

func (m *middleware) writeProblem(w http.ResponseWriter, err error) {
	status, p := http.StatusTooManyRequests, problem{
		Type:  problemTypes + "quota-exceeded",
		Title: "Request cannot be satisfied as assigned quota has been exceeded",
	}
	var denied *limiter.DeniedError
	var never *limiter.NeverError
	index := -1
	if errors.As(err, &denied) {
		index = denied.Index
		if byPolicy(denied) {
			status = http.StatusServiceUnavailable
			p.Type = problemTypes + "temporary-reduced-capacity"
			p.Title = "Request cannot be satisfied due to temporary server capacity constraints"
		}
	} else if errors.As(err, &never) {
		p.Title, index = "Request is larger than the quota can ever be", never.Index
	}
	if index >= 0 && index < len(m.policies.names) {
		p.Violated = []string{m.policies.names[index]}
	}
	body, _ := json.Marshal(p) // strings always marshal
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	w.Write(append(body, '\n'))
}
