package limiter

// The calls a request makes; with cgo_client.go the only file that speaks C. Requests are put
// together on C's stack from plain values, so no Go memory that holds pointers is ever handed over,
// and decisions come back by value, so nothing is allocated for them.

/*
#cgo pkg-config: limiter
#cgo noescape limiter_go_acquire
#cgo nocallback limiter_go_acquire
#cgo noescape limiter_go_allow
#cgo nocallback limiter_go_allow
#cgo noescape limiter_go_submit
#cgo nocallback limiter_go_submit
#cgo noescape limiter_go_pace
#cgo nocallback limiter_go_pace
#cgo noescape limiter_go_peek
#cgo nocallback limiter_go_peek
#cgo noescape limiter_go_try_many
#cgo nocallback limiter_go_try_many
#cgo noescape limiter_queue_poll
#cgo nocallback limiter_queue_poll
#cgo noescape limiter_reset
#cgo nocallback limiter_reset
#cgo noescape limiter_penalize
#cgo nocallback limiter_penalize
#cgo nocallback limiter_release
#cgo nocallback limiter_renew
#cgo nocallback limiter_settle
#cgo nocallback limiter_cancel

#include <stdlib.h>
#include <limiter.h>

static inline limiter_request limiter_go_request(const char *key, size_t key_len, uint64_t weight,
                                                 const uint64_t *weights, size_t weights_len,
                                                 int32_t wait_ms, uint32_t lease_ms,
                                                 uint32_t flags, uint64_t user_data) {
    limiter_request request = LIMITER_INIT(limiter_request);
    request.key = key;
    request.key_len = key_len;
    request.weight = weight;
    request.weights = weights;
    request.weights_len = weights_len;
    request.wait_ms = wait_ms;
    request.lease_ms = lease_ms;
    request.flags = flags;
    request.user_data = user_data;
    return request;
}

static inline limiter_decision limiter_go_acquire(
    limiter_t *limiter, const char *key, size_t key_len, uint64_t weight, const uint64_t *weights,
    size_t weights_len, uint32_t lease_ms, uint32_t flags) {
    limiter_decision out = LIMITER_INIT(limiter_decision);
    limiter_request request = limiter_go_request(key, key_len, weight, weights, weights_len, 0,
                                                 lease_ms, flags, 0);
    out.status = limiter_acquire(limiter, &request, &out);
    return out;
}

static inline limiter_status limiter_go_allow(limiter_t *limiter, const char *key, size_t key_len,
                                              uint64_t weight) {
    limiter_decision out;
    limiter_request request = limiter_go_request(key, key_len, weight, NULL, 0, 0, 0, 0, 0);
    return limiter_acquire(limiter, &request, &out);
}

static inline limiter_decision limiter_go_submit(
    limiter_queue_t *queue, limiter_t *limiter, const char *key, size_t key_len, uint64_t weight,
    const uint64_t *weights, size_t weights_len, int32_t wait_ms, uint32_t lease_ms, uint32_t flags,
    uint64_t user_data) {
    limiter_decision out = LIMITER_INIT(limiter_decision);
    limiter_request request = limiter_go_request(key, key_len, weight, weights, weights_len, wait_ms,
                                                 lease_ms, flags, user_data);
    out.status = limiter_submit(queue, limiter, &request, &out);
    return out;
}

static inline limiter_decision limiter_go_pace(limiter_t *limiter, const char *key, size_t key_len,
                                               uint64_t weight, const uint64_t *weights,
                                               size_t weights_len, int32_t wait_ms) {
    limiter_decision out = LIMITER_INIT(limiter_decision);
    limiter_request request = limiter_go_request(key, key_len, weight, weights, weights_len, wait_ms,
                                                 0, 0, 0);
    out.status = limiter_pace(limiter, &request, &out);
    return out;
}

static inline limiter_decision limiter_go_peek(limiter_t *limiter, const char *key, size_t key_len,
                                               uint64_t weight, const uint64_t *weights,
                                               size_t weights_len) {
    limiter_decision out = LIMITER_INIT(limiter_decision);
    limiter_request request =
        limiter_go_request(key, key_len, weight, weights, weights_len, 0, 0, 0, 0);
    out.status = limiter_peek(limiter, &request, &out);
    return out;
}

typedef struct limiter_go_ask {
    size_t key_len;
    size_t weights_len;
    uint64_t weight;
    uint32_t lease_ms;
    uint32_t flags;
} limiter_go_ask;

// The keys and the weights of all requests stand one after another in `keys` and `weights`.
static inline limiter_status limiter_go_try_many(limiter_t *limiter, const limiter_go_ask *asks,
                                                 const char *keys, const uint64_t *weights,
                                                 limiter_decision *out, size_t count) {
    limiter_status status;
    limiter_request *requests = malloc(count * sizeof *requests);
    if (requests == NULL) {
        return LIMITER_RESOURCE;
    }
    for (size_t i = 0; i < count; i++) {
        const limiter_go_ask *ask = &asks[i];
        requests[i] = limiter_go_request(keys, ask->key_len, ask->weight,
                                         ask->weights_len != 0 ? weights : NULL, ask->weights_len,
                                         0, ask->lease_ms, ask->flags, 0);
        keys += ask->key_len;
        weights += ask->weights_len;
    }
    status = limiter_try_many(limiter, requests, out, count);
    free(requests);
    return status;
}
*/
import "C"

import (
	"math"
	"time"
	"unsafe"
)

type (
	clientHandle  = *C.limiter_client_t
	limiterHandle = *C.limiter_t
	queueHandle   = *C.limiter_queue_t
	rawDecision   = C.limiter_decision
)

// answer is a decision with what only this package needs of it.
type answer struct {
	Decision
	permit, op, userData uint64
}

func toAnswer(d *rawDecision) answer {
	a := answer{
		Decision: Decision{
			Status:        Status(d.status),
			Degraded:      d.flags&C.LIMITER_DEGRADED != 0,
			MaybeCharged:  d.flags&C.LIMITER_MAYBE_CHARGED != 0,
			Index:         int(d.index),
			Limit:         uint64(d.limit),
			Remaining:     uint64(d.remaining),
			RetryAfter:    fromMicros(uint64(d.retry_after_us)),
			ResetAfter:    fromMicros(uint64(d.reset_after_us)),
			Waited:        fromMicros(uint64(d.waited_us)),
			Fence:         uint64(d.fence),
			QueuePosition: int(d.queue_position),
		},
		permit:   uint64(d.permit),
		op:       uint64(d.op),
		userData: uint64(d.user_data),
	}
	if d.index == C.LIMITER_NO_INDEX {
		a.Index = -1
	}
	return a
}

// fromMicros saturates: the longest Duration is 292 years.
func fromMicros(us uint64) time.Duration {
	return time.Duration(min(us, math.MaxInt64/uint64(time.Microsecond))) * time.Microsecond
}

func keyData(key string) (*C.char, C.size_t) {
	if key == "" {
		return nil, 0
	}
	return (*C.char)(unsafe.Pointer(unsafe.StringData(key))), C.size_t(len(key))
}

func (q *request) weightData() (*C.uint64_t, C.size_t) {
	if len(q.weights) == 0 {
		return nil, 0
	}
	return (*C.uint64_t)(unsafe.Pointer(unsafe.SliceData(q.weights))), C.size_t(len(q.weights))
}

func cTry(l limiterHandle, key string, q *request) answer {
	k, n := keyData(key)
	w, wn := q.weightData()
	d := C.limiter_go_acquire(l, k, n, C.uint64_t(q.weight), w, wn, C.uint32_t(q.leaseMS), C.uint32_t(q.flags))
	return toAnswer(&d)
}

// cAllow is cTry for who needs no numbers.
func cAllow(l limiterHandle, key string, weight uint64) Status {
	k, n := keyData(key)
	return Status(C.limiter_go_allow(l, k, n, C.uint64_t(weight)))
}

func cSubmit(queue queueHandle, l limiterHandle, key string, q *request, waitMS int32) answer {
	k, n := keyData(key)
	w, wn := q.weightData()
	d := C.limiter_go_submit(queue, l, k, n, C.uint64_t(q.weight), w, wn, C.int32_t(waitMS),
		C.uint32_t(q.leaseMS), C.uint32_t(q.flags), C.uint64_t(q.userData))
	return toAnswer(&d)
}

func cPace(l limiterHandle, key string, q *request, waitMS int32) answer {
	k, n := keyData(key)
	w, wn := q.weightData()
	d := C.limiter_go_pace(l, k, n, C.uint64_t(q.weight), w, wn, C.int32_t(waitMS))
	return toAnswer(&d)
}

func cPeek(l limiterHandle, key string, q *request) answer {
	k, n := keyData(key)
	w, wn := q.weightData()
	d := C.limiter_go_peek(l, k, n, C.uint64_t(q.weight), w, wn)
	return toAnswer(&d)
}

// cTryMany asks all at once; asks, keys and weights hold no pointers.
func cTryMany(l limiterHandle, keys []string, queries []request) ([]rawDecision, Status) {
	asks := make([]C.limiter_go_ask, len(keys))
	var bytes []byte
	var weights []uint64
	for i, key := range keys {
		q := &queries[i]
		asks[i] = C.limiter_go_ask{
			key_len:     C.size_t(len(key)),
			weights_len: C.size_t(len(q.weights)),
			weight:      C.uint64_t(q.weight),
			lease_ms:    C.uint32_t(q.leaseMS),
			flags:       C.uint32_t(q.flags),
		}
		bytes = append(bytes, key...)
		weights = append(weights, q.weights...)
	}
	bytes, weights = append(bytes, 0), append(weights, 0) // so that both have an address
	out := make([]rawDecision, len(keys))
	s := C.limiter_go_try_many(l, unsafe.SliceData(asks), (*C.char)(unsafe.Pointer(&bytes[0])),
		(*C.uint64_t)(unsafe.Pointer(&weights[0])), unsafe.SliceData(out), C.size_t(len(keys)))
	return out, Status(s)
}

func cReset(l limiterHandle, key string) Status {
	k, n := keyData(key)
	return Status(C.limiter_reset(l, k, n))
}

func cPenalize(l limiterHandle, key string, us uint64) Status {
	k, n := keyData(key)
	return Status(C.limiter_penalize(l, k, n, C.uint64_t(us)))
}

func cRelease(l limiterHandle, permit uint64) Status {
	return Status(C.limiter_release(l, C.limiter_permit(permit)))
}

func cRenew(l limiterHandle, permit uint64, leaseMS uint32) Status {
	return Status(C.limiter_renew(l, C.limiter_permit(permit), C.uint32_t(leaseMS)))
}

func cSettle(l limiterHandle, permit, actual uint64) Status {
	return Status(C.limiter_settle(l, C.limiter_permit(permit), C.uint64_t(actual)))
}

// cDetach ends a wait of which nothing is to arrive any more; false: it is over, and was polled.
func cDetach(c clientHandle, op uint64) bool {
	return C.limiter_cancel(c, C.limiter_op(op), C.LIMITER_DETACH) == C.LIMITER_OK
}

// cPoll moves completions to buf: their number, or a status below zero.
func cPoll(queue queueHandle, buf []rawDecision) int {
	return int(C.limiter_queue_poll(queue, unsafe.SliceData(buf), C.size_t(len(buf)), 0))
}
