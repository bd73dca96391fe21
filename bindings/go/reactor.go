package limiter

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// reactor hands completions to the goroutines that wait for them. Its one goroutine is parked in
// the network poller on a duplicate of the queue's descriptor, which it never reads: the library
// keeps it readable as long as completions wait.
type reactor struct {
	client clientHandle
	remote bool // its backend may say nothing for a while
	queue  queueHandle
	file   *os.File
	done   chan struct{}
	gate   *gate

	mu    sync.Mutex
	ended bool
	waits map[uint64]chan answer // by operation
	early map[uint64]answer      // completions that came before their submitter could say so
	lost  map[uint64]func()      // whom to tell of a lost lease, by the request's user_data
}

// channels are reused: each receives exactly one answer for each wait, or none after a detach.
var channels = sync.Pool{New: func() any { return make(chan answer, 1) }}

var lastUserData atomic.Uint64 // 0 is that of a request nobody watches

func newReactor(client clientHandle, remote bool, gate *gate) (*reactor, error) {
	queue, fd, err := cNewQueue(client)
	if err != nil {
		return nil, err
	}
	file, err := pollable(fd)
	if err != nil {
		cFreeQueue(queue)
		return nil, &Error{StatusResource, "the queue's descriptor cannot be polled: " + err.Error()}
	}
	r := &reactor{
		client: client,
		remote: remote,
		queue:  queue,
		file:   file,
		done:   make(chan struct{}),
		gate:   gate,
		waits:  make(map[uint64]chan answer),
		early:  make(map[uint64]answer),
		lost:   make(map[uint64]func()),
	}
	go r.run()
	return r, nil
}

// pollable duplicates the queue's descriptor, so that the library's is never closed here, and
// registers it with the network poller.
func pollable(fd int) (*os.File, error) {
	syscall.ForkLock.RLock()
	own, err := syscall.Dup(fd)
	if err == nil {
		syscall.CloseOnExec(own)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, err
	}
	if err := syscall.SetNonblock(own, true); err != nil {
		syscall.Close(own)
		return nil, err
	}
	file := os.NewFile(uintptr(own), "limiter-queue")
	if err := file.SetReadDeadline(time.Time{}); err != nil { // tells whether the poller took it
		file.Close()
		return nil, err
	}
	return file, nil
}

// run polls until the client is shut down and everything was polled. The poller reports edges, so
// the queue is emptied before each wait; an edge that comes in between ends the wait at once.
func (r *reactor) run() {
	defer close(r.done)
	defer r.end()
	conn, err := r.file.SyscallConn()
	if err != nil {
		return
	}
	buf := make([]rawDecision, 64)
	err = conn.Read(func(uintptr) bool { return !r.drain(buf) })
	if err != nil { // stop()
		r.drain(buf)
	}
}

// drain polls until the queue is empty; false: there will be no more.
func (r *reactor) drain(buf []rawDecision) bool {
	for {
		n := cPoll(r.queue, buf)
		if n <= 0 {
			return n == 0
		}
		r.mu.Lock()
		for i := range buf[:n] {
			r.dispatch(toAnswer(&buf[i]))
		}
		r.mu.Unlock()
	}
}

func (r *reactor) dispatch(a answer) {
	if wait, ok := r.waits[a.op]; ok && a.op != 0 {
		delete(r.waits, a.op)
		wait <- a
		return
	}
	if a.Status == StatusStale && a.userData != 0 { // the lease of a permit was lost
		if tell, ok := r.lost[a.userData]; ok {
			delete(r.lost, a.userData)
			tell()
		}
		return
	}
	r.early[a.op] = a
}

// end answers what still waits, so that nobody waits for a reactor that is gone.
func (r *reactor) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	for op, wait := range r.waits {
		delete(r.waits, op)
		wait <- answer{Decision: Decision{Status: StatusClosed, Index: -1}}
	}
}

// stop ends the goroutine, after the client was shut down, and frees the queue.
func (r *reactor) stop() {
	r.file.SetReadDeadline(time.Unix(1, 0))
	<-r.done
	r.gate.shut()
	cFreeQueue(r.queue)
	r.file.Close()
}

// submit starts an acquire and waits for its answer or the context's end. byContext says whether
// the context's deadline is what limits the wait.
func (r *reactor) submit(ctx context.Context, l limiterHandle, key string, q *request, wait int32, byContext bool) (answer, error) {
	way := r.gate.enter()
	if way.shut { // the queue is freed
		way.Unlock()
		return answer{}, ErrClosed
	}
	a := cSubmit(r.queue, l, key, q, wait)
	way.Unlock()
	if a.Status != StatusPending {
		return a, nil
	}
	return r.await(ctx, a.op, byContext)
}

func (r *reactor) await(ctx context.Context, op uint64, byContext bool) (answer, error) {
	wait := channels.Get().(chan answer)
	r.mu.Lock()
	if a, ok := r.early[op]; ok {
		delete(r.early, op)
		r.mu.Unlock()
		channels.Put(wait)
		return a, nil
	}
	if r.ended {
		r.mu.Unlock()
		return answer{}, ErrClosed
	}
	r.waits[op] = wait
	r.mu.Unlock()

	defer channels.Put(wait)
	select {
	case a := <-wait:
		return a, nil
	case <-ctx.Done():
	}
	err := ctx.Err()
	if byContext && errors.Is(err, context.DeadlineExceeded) {
		// The library's own deadline is the same one, rounded up to a millisecond; its answer
		// carries the numbers.
		if a, ok := receive(wait, answerGrace); ok {
			return a, nil
		}
		if !r.remote { // else nobody has decided, as far as is known here
			err = &DeniedError{Index: -1, deadline: true}
		}
	}
	way := r.gate.enter()
	detached := cDetach(r.client, op)
	way.Unlock()
	if detached {
		r.mu.Lock()
		delete(r.waits, op)
		select {
		case <-wait: // end() was faster; whoever has the channel next must not find it
		default:
		}
		r.mu.Unlock()
		return answer{}, err
	}
	// It was polled before it could be cancelled: the answer is on its way, and a grant counts.
	return <-wait, nil
}

const answerGrace = 10 * time.Millisecond

func receive(wait chan answer, patience time.Duration) (answer, bool) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case a := <-wait:
		return a, true
	case <-timer.C:
		return answer{}, false
	}
}

// watch makes the user_data of a request whose lost lease is to be told, once, by a call that must
// not come back here.
func (r *reactor) watch(tell func()) uint64 {
	id := lastUserData.Add(1)
	r.mu.Lock()
	r.lost[id] = tell
	r.mu.Unlock()
	return id
}

func (r *reactor) unwatch(id uint64) {
	r.mu.Lock()
	delete(r.lost, id)
	r.mu.Unlock()
}
