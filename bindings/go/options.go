package limiter

import (
	"log/slog"
	"math"
	"strconv"
	"time"
)

// A ClientOption is a setting of [Open].
type ClientOption func(*clientOptions)

type clientOptions struct {
	settings []string // key, value, key, value
	logger   *slog.Logger
	logLevel slog.Level
}

// WithSetting sets one of the C library's settings by its name; the other options are short for it.
func WithSetting(key, value string) ClientOption {
	return func(o *clientOptions) { o.settings = append(o.settings, key, value) }
}

func millisSetting(key string, d time.Duration) ClientOption {
	ms := d / time.Millisecond
	if d%time.Millisecond > 0 {
		ms++
	}
	return WithSetting(key, strconv.FormatInt(int64(ms), 10))
}

// WithVirtualClock makes a client's clock stand still until [Client.Advance], so that tests need not
// sleep. On Redis give it a prefix of its own: nobody else may use its keys.
func WithVirtualClock() ClientOption {
	return WithSetting("clock", "virtual")
}

// WithLease sets how long permits live unless renewed; 30 s by default.
func WithLease(d time.Duration) ClientOption { return millisSetting("lease_ms", d) }

// WithMaxWaiting sets how many waits may be under way; more are refused with ErrOverloaded. The
// default is 100 000.
func WithMaxWaiting(n int) ClientOption { return WithSetting("max_waiting", strconv.Itoa(n)) }

// WithMaxPenalty sets the longest [Limiter.Penalize]; an hour by default.
func WithMaxPenalty(d time.Duration) ClientOption { return millisSetting("max_penalty_ms", d) }

// WithPrefix sets what Redis keys begin with; "limiter" by default.
func WithPrefix(prefix string) ClientOption { return WithSetting("prefix", prefix) }

// WithCommandTimeout sets the longest wait for one Redis answer; 250 ms by default.
func WithCommandTimeout(d time.Duration) ClientOption { return millisSetting("command_timeout_ms", d) }

// WithDenyCache sets for how long a denial by rates is repeated without asking Redis, as long as it stands: 0
// to 1 s, 1 s by default. What the client itself does to the key is noticed at once, what others do (a reset,
// a settle, a raised limit) by then.
func WithDenyCache(d time.Duration) ClientOption { return millisSetting("deny_cache_ms", d) }

// WithTakeAhead lets a process take units of a busy token bucket ahead, and admit calls with them without asking
// Redis. They are kept for so long at most: 0 to 1 s, 0 by default, which is off.
func WithTakeAhead(d time.Duration) ClientOption { return millisSetting("take_ahead_ms", d) }

// FailurePolicy is what is answered when Redis cannot.
type FailurePolicy string

// The failure policies. Decisions made by one are marked Degraded.
const (
	FailWithError FailurePolicy = "error"  // ErrBackend; the default
	FailOpen      FailurePolicy = "open"   // everything is admitted
	FailClosed    FailurePolicy = "closed" // everything is denied
	FailLocal     FailurePolicy = "local"  // this process's share of the limits, in its memory
)

// WithFailurePolicy sets what is answered when Redis cannot.
func WithFailurePolicy(p FailurePolicy) ClientOption { return WithSetting("on_failure", string(p)) }

// WithProcesses tells how many processes share the limiters, which is what FailLocal divides by until
// Redis has told it. 1 to 1 000 000, by default 1.
func WithProcesses(n int) ClientOption { return WithSetting("processes", strconv.Itoa(n)) }

// WithCredentials sets the Redis user and password in place of the URL's. An empty user is the
// server's default user.
func WithCredentials(username, password string) ClientOption {
	return func(o *clientOptions) {
		if username != "" {
			o.settings = append(o.settings, "username", username)
		}
		o.settings = append(o.settings, "password", password)
	}
}

// WithTLSCAFile sets a PEM file of authorities in place of the system's.
func WithTLSCAFile(path string) ClientOption { return WithSetting("tls_ca_file", path) }

// WithTLSInsecure skips the verification of the server. For tests.
func WithTLSInsecure() ClientOption { return WithSetting("tls_insecure", "yes") }

// WithLogger sends the library's log records of at least this level to logger. Records that come
// faster than it takes them are dropped.
func WithLogger(logger *slog.Logger, level slog.Level) ClientOption {
	return func(o *clientOptions) { o.logger, o.logLevel = logger, level }
}

// An Option refines one request.
type Option struct {
	set     optionKind
	number  uint64
	weights []uint64
}

type optionKind uint8

const (
	setWeight optionKind = iota + 1
	setWeights
	setMaxWait
	setLease
	setFlag
)

// Weight sets the units to take from each limit that counts weight; 1 by default. 0 takes nothing,
// is always admitted and only fills in the numbers.
func Weight(n uint64) Option { return Option{set: setWeight, number: n} }

// Weights gives each limit a weight of its own, in the limits' order; one with weight 0 is left
// alone.
func Weights(n ...uint64) Option { return Option{set: setWeights, weights: n} }

// MaxWait sets the longest wait, rounded up to milliseconds, where the context's deadline is later
// or there is none. 0 tries once. For [Limiter.Pace] it is the longest delay to accept. A negative
// one waits without limit, which is the default. One beyond 24 days, like a deadline beyond them,
// counts as 24 days (2^31 - 1 ms).
func MaxWait(d time.Duration) Option { return Option{set: setMaxWait, number: uint64(d)} }

// Lease sets how long this permit lives unless it is renewed, 100 ms to a day.
func Lease(d time.Duration) Option { return Option{set: setLease, number: uint64(d)} }

// NoRenew leaves this permit's renewal to [Permit.Renew]; otherwise the library renews it.
func NoRenew() Option { return Option{set: setFlag, number: flagNoRenew} }

// NotifyLost makes [Permit.Lost] report the loss of the lease. For Acquire; [Limiter.Do] does it by
// itself.
func NotifyLost() Option { return Option{set: setFlag, number: flagTellLost} }

const noLimit = time.Duration(-1)

// request is what the options come to.
type request struct {
	weight   uint64
	weights  []uint64
	maxWait  time.Duration // negative: no limit
	leaseMS  uint32
	flags    uint32
	userData uint64
}

// ask applies options. It is small and takes no address of its result, so that neither escapes.
func ask(options []Option) request {
	q := request{weight: 1, maxWait: noLimit}
	for i := range options {
		o := &options[i]
		switch o.set {
		case setWeight:
			q.weight = o.number
		case setWeights:
			q.weights = o.weights
		case setMaxWait:
			q.maxWait = time.Duration(o.number)
		case setLease:
			q.leaseMS = max(1, millisUp(time.Duration(o.number))) // 0 would mean the default
		case setFlag:
			q.flags |= uint32(o.number)
		}
	}
	return q
}

// waitMS is a longest wait in the C library's terms: milliseconds, rounded up, and at most what fits;
// negative for none.
func waitMS(d time.Duration) int32 {
	if d < 0 {
		return -1
	}
	return int32(min(millisUp(d), math.MaxInt32))
}
