package limiter

import (
	"context"
	"io"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Client is a backend and what runs in the background for it. One for each backend is enough for a
// program.
type Client struct {
	handle clientHandle
	gate   gate
	slots  chan struct{} // remote backends: bounds the round trips, each of which takes a thread
	log    *logPipe

	mu      sync.Mutex
	reactor *reactor // nil until a call needs it
	closed  bool
}

var _ io.Closer = (*Client)(nil)

// remoteCalls is how many round trips may be under way at a time. Each takes a thread while it is,
// and the library sends together what comes together.
const remoteCalls = 24

const closeTimeout = 5 * time.Second

// Open makes a client of "memory://" (which "" means too) or of a Redis such as
// "redis://localhost:6379/0". It never connects and never waits: a backend that is down shows at
// the first call. A URL or setting that cannot be used is answered with ErrConfig.
func Open(url string, options ...ClientOption) (*Client, error) {
	if err := abiError(); err != nil {
		return nil, err
	}
	if url == "" {
		url = "memory://"
	}
	var o clientOptions
	for _, option := range options {
		option(&o)
	}
	if strings.ContainsRune(url, 0) || strings.ContainsRune(strings.Join(o.settings, ""), 0) {
		return nil, &Error{StatusConfig, "a URL or setting holds a NUL"}
	}
	log, err := openLogPipe(o.logger, o.logLevel)
	if err != nil {
		return nil, err
	}
	c := &Client{gate: newGate(), log: log}
	if !strings.HasPrefix(url, "memory:") {
		c.slots = make(chan struct{}, remoteCalls)
	}
	c.handle, err = cOpen(url, o.settings, log.level(), log.descriptor())
	if err != nil {
		log.close()
		return nil, err
	}
	// Memory only: what runs in the background is ended by Close. Freeing waits until no call can
	// be inside, which the collector knows best. A client with a reactor that is never closed is
	// never collected.
	runtime.AddCleanup(c, func(owned ownedClient) { go owned.free(cFreeClient) }, ownedClient{c.handle, log})
	return c, nil
}

type ownedClient struct {
	handle clientHandle
	log    *logPipe
}

// free ends the client. Where it could not wait for all of its background, that may still write to
// the log's pipe, whose number must then not become somebody else's: the pipe is kept.
func (o ownedClient) free(free func(clientHandle) Status) {
	if free(o.handle) == StatusOK {
		o.log.close()
	}
}

// Close is [Client.Shutdown] with at most five seconds. Closing twice is harmless.
func (c *Client) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return c.Shutdown(ctx)
}

// Shutdown ends the client's work: new calls and those that wait fail with ErrClosed, and permits
// still held are released, for as long as ctx lasts. ErrTimeout or ctx's error if that did not
// suffice, or Redis could not be told within twice [WithCommandTimeout]; the client is closed all the
// same.
func (c *Client) Shutdown(ctx context.Context) error {
	timeout := int32(-1)
	if deadline, ok := ctx.Deadline(); ok {
		timeout = waitMS(max(0, time.Until(deadline)))
	}
	done := make(chan error, 1)
	go func() {
		done <- failure(cShutdown(c.handle, timeout))
		runtime.KeepAlive(c)
	}()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		if err = failure(cShutdown(c.handle, 0)); err != nil {
			err = ctx.Err()
		}
	}
	c.mu.Lock()
	reactor, first := c.reactor, !c.closed
	c.closed = true
	c.mu.Unlock()
	if first && reactor != nil {
		reactor.stop()
	}
	return err
}

// loop is the reactor, started by the first call that needs it.
func (c *Client) loop() (*reactor, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	if c.reactor == nil {
		reactor, err := newReactor(c.handle, c.remote(), &c.gate)
		if err != nil {
			return nil, err
		}
		c.reactor = reactor
	}
	return c.reactor, nil
}

// remote says that even a call that does not wait for a limit waits for the backend.
func (c *Client) remote() bool { return c.slots != nil }

// Advance lets time pass on a virtual clock: whole microseconds, or ErrInvalid. What falls due on the
// way happens in order and at its own time; goroutines that it admits run soon after.
// ErrUnsupported on every other clock.
func (c *Client) Advance(d time.Duration) error {
	if d < 0 || d%time.Microsecond != 0 {
		return &Error{StatusInvalid, "a clock cannot advance by " + d.String()}
	}
	defer runtime.KeepAlive(c)
	return failure(cAdvance(c.handle, uint64(d/time.Microsecond)))
}

// SetClock sets a virtual clock, which shows whole microseconds: what t has below is dropped.
// Backwards is what a clock that steps back does to a limiter: no
// time has passed, and it goes on from there.
func (c *Client) SetClock(t time.Time) error {
	us := t.UnixMicro()
	if us < 0 {
		return &Error{StatusInvalid, "a clock cannot be set before 1970"}
	}
	defer runtime.KeepAlive(c)
	return failure(cSetClock(c.handle, uint64(us)))
}

// Now is what the client's clock shows.
func (c *Client) Now() time.Time {
	defer runtime.KeepAlive(c)
	return time.UnixMicro(int64(cNow(c.handle)))
}

// Stats are counters of one client since it was opened. They only grow, except the gauges.
type Stats struct {
	Granted       uint64 // admitted calls
	Denied        uint64 // calls not admitted, at once or after a wait
	Never         uint64 // calls that could never be admitted
	Cancelled     uint64 // waits that were cancelled
	Released      uint64 // permits released
	Settled       uint64 // permits settled
	Lost          uint64 // permits whose lease ended while held
	Overloaded    uint64 // calls refused because too many waited
	Degraded      uint64 // answers of the failure policy
	BackendErrors uint64 // requests the backend failed to answer
	BackendCalls  uint64 // scripts sent to the backend
	Connects      uint64 // times a connection was made
	InFlight      uint64 // gauge: permits held now
	Waiting       uint64 // gauge: waits under way now
	Keys          uint64 // gauge: keys in memory now
}

// Stats reads the counters, one after another.
func (c *Client) Stats() (Stats, error) {
	defer runtime.KeepAlive(c)
	stats, status := cStats(c.handle)
	return stats, failure(status)
}

// Version is the loaded C library's: major, minor and patch.
func Version() (major, minor, patch int) {
	v := cVersion()
	return int(v >> 16), int(v >> 8 & 0xff), int(v & 0xff)
}
