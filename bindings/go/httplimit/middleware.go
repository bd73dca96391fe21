package httplimit

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"time"

	limiter "github.com/liblimiter/liblimiter/bindings/go"
)

// Options of [Middleware]. The zero value counts each request as 1 for its client's address, does
// not let requests wait, and lets them pass while the limiter cannot be asked.
type Options struct {
	// Key says whose share a request takes. Default: ClientIP.
	Key func(*http.Request) string
	// Weight says how many units a request takes. Default: 1.
	Weight func(*http.Request) uint64
	// MaxWait lets a request wait that long for its turn before it is denied. 0, the default: not at
	// all (in a Transport it is without bound). What is negative counts as 0.
	MaxWait time.Duration

	// FailClosed answers 503 while the backend cannot answer or the client is closed. Otherwise
	// requests pass then, without a permit.
	FailClosed bool
	// OnError is told of every request that was neither admitted nor denied, and of leases that were
	// lost while a handler ran (limiter.ErrStale). Default: nobody.
	OnError func(*http.Request, error)
	// Denied answers a denied request, and writes the status. The error is a *limiter.DeniedError,
	// with Retry-After and the RateLimit fields set, or a *limiter.NeverError, with RateLimit-Policy
	// alone: when to come back, it does not say. Default: 429 with a problem document, or 503 where
	// the failure policy denies, whoever asks.
	Denied func(http.ResponseWriter, *http.Request, error)

	// RetryWhenFull is the Retry-After where a semaphore is full: when a place comes free, nobody
	// knows. Default: a second. MaxWait is kinder to those who are asked to come back.
	RetryWhenFull time.Duration

	// Names are those of the limits in the RateLimit fields, one for each, in their order, each
	// different, also when case is ignored. Default: the limiter's, for those after the first with "-1", "-2" and so on.
	Names []string
	// Units are the quota units of the limits that count weight, in the same order, such as
	// "content-bytes"; "" is requests, or concurrent-requests for a semaphore. Default: all "".
	Units []string
	// NoHeaders leaves the RateLimit fields out.
	NoHeaders bool
}

// Middleware lets a handler serve what l admits. The permit is held until the handler returns, also
// by panic; [PermitFrom] finds it. It panics if opts do not fit the limiter's limits.
//
// Beside 429 it answers 400 where Key or Weight made of the request what the limiter refuses, and 503
// where too many wait or, with FailClosed, where the limiter cannot be asked.
func Middleware(l *limiter.Limiter, opts Options) func(http.Handler) http.Handler {
	if l == nil {
		panic("httplimit: a Middleware without a Limiter")
	}
	if opts.Key == nil {
		opts.Key = ClientIP
	}
	if opts.RetryWhenFull <= 0 {
		opts.RetryWhenFull = time.Second
	}
	policies, err := newPolicies(l, opts.Names, opts.Units)
	if err != nil {
		panic("httplimit: " + err.Error())
	}
	m := &middleware{limiter: l, opts: opts, policies: policies}
	if m.opts.Denied == nil {
		m.opts.Denied = func(w http.ResponseWriter, _ *http.Request, err error) { m.writeProblem(w, err) }
	}
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("httplimit: a Middleware without a Handler")
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, r, next) })
	}
}

type middleware struct {
	limiter  *limiter.Limiter
	opts     Options
	policies policies
}

func (m *middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	key, weight := m.opts.Key(r), uint64(1)
	if m.opts.Weight != nil {
		weight = m.opts.Weight(r)
	}
	permit, err := m.limiter.Acquire(r.Context(), key,
		limiter.Weight(weight), limiter.MaxWait(max(0, m.opts.MaxWait)))
	var denied *limiter.DeniedError
	var never *limiter.NeverError
	switch {
	case err == nil:
		defer func() {
			if err := release(m.limiter, permit); err != nil {
				m.tell(r, err)
			}
		}()
		d := permit.Decision()
		m.describe(w.Header(), d.Index, d.Remaining, d.ResetAfter)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), permitKey{}, permit)))
	case errors.As(err, &denied):
		wait := m.wait(r.Context(), key, weight, denied)
		m.describe(w.Header(), denied.Index, denied.Remaining, wait)
		setRetryAfter(w.Header(), wait)
		m.opts.Denied(w, r, err)
	case errors.As(err, &never):
		m.describe(w.Header(), -1, 0, 0)
		m.opts.Denied(w, r, err)
	case r.Context().Err() != nil: // nobody is there to read an answer
		w.WriteHeader(http.StatusServiceUnavailable)
	default:
		m.fail(w, r, next, err)
	}
}

// fail is for what is neither admitted nor denied.
func (m *middleware) fail(w http.ResponseWriter, r *http.Request, next http.Handler, err error) {
	m.tell(r, err)
	status := http.StatusInternalServerError
	switch {
	case unanswered(err) && !m.opts.FailClosed:
		next.ServeHTTP(w, r)
		return
	case unanswered(err), errors.Is(err, limiter.ErrOverloaded), errors.Is(err, limiter.ErrResource):
		status = http.StatusServiceUnavailable
		setRetryAfter(w.Header(), 0)
	case errors.Is(err, limiter.ErrInvalid):
		status = http.StatusBadRequest
	}
	http.Error(w, http.StatusText(status), status)
}

func (m *middleware) tell(r *http.Request, err error) {
	if m.opts.OnError != nil {
		m.opts.OnError(r, err)
	}
}

type permitKey struct{}

// PermitFrom is the permit that [Middleware] holds for a request, to settle it or to look at its
// lease; nil if there is none. It is released by the middleware.
func PermitFrom(ctx context.Context) *limiter.Permit {
	permit, _ := ctx.Value(permitKey{}).(*limiter.Permit)
	return permit
}

// ClientIP is the address a request came from: for IPv6 its /64, which is what one customer has.
// Behind a proxy that is the proxy's; a key function of your own then reads what your proxy sets.
func ClientIP(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	address = address.Unmap().WithZone("")
	if address.Is4() {
		return address.String()
	}
	network, _ := address.Prefix(64)
	return network.String()
}
