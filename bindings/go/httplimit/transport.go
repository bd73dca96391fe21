package httplimit

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	limiter "github.com/liblimiter/liblimiter/bindings/go"
)

// Transport is an http.RoundTripper that lets requests out as its limiter admits them, waiting as
// long as the request's context allows, and holds the permit until the response's body is closed.
//
// Where an upstream answers 429 or 503 with Retry-After, in seconds or as a date, the key is
// penalized: nobody that shares the limiter sends to it before then. The response itself is passed
// on as it is.
type Transport struct {
	// Limiter admits the requests. Required.
	Limiter *limiter.Limiter
	// Base sends them. Default: http.DefaultTransport.
	Base http.RoundTripper
	// Key says whose share a request takes. Default: Host.
	Key func(*http.Request) string
	// Weight says how many units a request takes. Default: 1.
	Weight func(*http.Request) uint64
	// MaxWait bounds the wait where the context does not. 0, the default, and what is negative: no
	// bound (in a Middleware 0 is not to wait at all).
	MaxWait time.Duration
	// FailClosed fails requests with the limiter's error while the backend cannot answer or the
	// client is closed. Otherwise they are sent then, without a permit.
	FailClosed bool
	// OnError is told of every request that was neither admitted nor denied nor cancelled, of
	// penalties that could not be stored, and of leases that were lost before the body was closed
	// (limiter.ErrStale).
	OnError func(*http.Request, error)
}

// Host is the host that a request goes to, with the port where one is written.
func Host(r *http.Request) string { return r.URL.Host }

// RoundTrip sends one request when it is admitted. A denial is a [*limiter.DeniedError].
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.Limiter == nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, errors.New("httplimit: a Transport without a Limiter")
	}
	key, options := t.ask(r)
	permit, err := t.Limiter.Acquire(r.Context(), key, options...)
	if err != nil && !t.excuse(r, err) {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	giveBack := sync.OnceFunc(func() {
		if err := release(t.Limiter, permit); err != nil {
			t.tell(r, err)
		}
	})
	var response *http.Response
	handed := false
	defer func() { // also where the base or OnError panics
		if handed {
			return
		}
		if response != nil && response.Body != nil {
			response.Body.Close()
		}
		giveBack()
	}()
	if response, err = t.base().RoundTrip(r); err != nil {
		return nil, err
	}
	t.penalize(key, r, response)
	if permit != nil {
		response.Body = hold(response.Body, giveBack)
	}
	handed = true
	return response, nil
}

func (t *Transport) ask(r *http.Request) (string, []limiter.Option) {
	key, weight, wait := "", uint64(1), time.Duration(-1)
	if t.Key != nil {
		key = t.Key(r)
	} else {
		key = Host(r)
	}
	if t.Weight != nil {
		weight = t.Weight(r)
	}
	if t.MaxWait > 0 {
		wait = t.MaxWait
	}
	return key, []limiter.Option{limiter.Weight(weight), limiter.MaxWait(wait)}
}

// excuse says that a request may go without a permit.
func (t *Transport) excuse(r *http.Request, err error) bool {
	if errors.Is(err, limiter.ErrDenied) || errors.Is(err, limiter.ErrNever) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	t.tell(r, err)
	return unanswered(err) && !t.FailClosed
}

func (t *Transport) tell(r *http.Request, err error) {
	if t.OnError != nil {
		t.OnError(r, err)
	}
}

func (t *Transport) penalize(key string, r *http.Request, response *http.Response) {
	if response.StatusCode != http.StatusTooManyRequests && response.StatusCode != http.StatusServiceUnavailable {
		return
	}
	if wait, ok := RetryAfter(response.Header, time.Now()); ok && wait > 0 {
		// For everybody who shares the limiter: also where this request's caller has gone.
		if err := t.Limiter.Penalize(context.WithoutCancel(r.Context()), key, wait); err != nil {
			t.tell(r, err)
		}
	}
}

func (t *Transport) base() http.RoundTripper {
	if t.Base != nil {
		return t.Base
	}
	return http.DefaultTransport
}

// CloseIdleConnections passes the call of http.Client on.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// heldBody releases a permit when it is closed.
type heldBody struct {
	io.ReadCloser
	release func()
}

func (b *heldBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

// heldStream is the body of a switched protocol, which can be written to as well.
type heldStream struct {
	heldBody
	io.Writer
}

func hold(body io.ReadCloser, release func()) io.ReadCloser {
	if body == nil {
		body = http.NoBody
	}
	held := heldBody{body, release}
	if writer, ok := body.(io.Writer); ok {
		return &heldStream{held, writer}
	}
	return &held
}
