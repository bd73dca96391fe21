package limiter

// The calls that set up, observe and end: errors come with a text, nothing here is hot.

/*
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <limiter.h>

// Log records go into a pipe that a goroutine reads. A record is at most PIPE_BUF bytes, so it is
// written whole or, where the pipe is full, not at all; it never blocks.
static void limiter_go_log(void *user_data, int32_t level, const char *message) {
    char line[1024];
    int saved = errno;
    int length = snprintf(line, sizeof line, "%d%s", (int)level, message);
    if (length >= (int)sizeof line) {
        length = (int)sizeof line - 1;
    }
    if (length > 0) {
        line[length] = '\n'; // in place of the NUL
        if (write((int)(intptr_t)user_data, line, (size_t)length + 1) < 0) {
            // full: this record is dropped
        }
    }
    errno = saved;
}

static inline void limiter_go_set_log(limiter_config_t *config, int32_t level, int fd) {
    limiter_config_set_log(config, level, limiter_go_log, (void *)(intptr_t)fd);
}

static inline void limiter_go_log_to(int fd, int32_t level, const char *message) {
    limiter_go_log((void *)(intptr_t)fd, level, message);
}

static inline limiter_stats limiter_go_stats(limiter_client_t *client, limiter_status *status) {
    limiter_stats stats = LIMITER_INIT(limiter_stats);
    *status = limiter_stats_get(client, &stats);
    return stats;
}
*/
import "C"

import (
	"fmt"
	"unsafe"
)

// message is an errbuf.
type message [C.LIMITER_ERRBUF_SIZE]C.char

func (m *message) fail(s C.limiter_status) error {
	if s == C.LIMITER_OK {
		return nil
	}
	return &Error{Status(s), C.GoString(&m[0])}
}

// abiError is nil if the loaded library is one that this package was built for.
func abiError() error {
	have, want := uint32(C.limiter_abi_version()), uint32(C.LIMITER_ABI)
	if have == want {
		return nil
	}
	return &Error{StatusUnsupported, fmt.Sprintf(
		"the loaded liblimiter has ABI %d, and this program was built for ABI %d: rebuild it with go build -a, or install liblimiter.so.%d",
		have, want, want)}
}

// cOpen opens a client with settings in their order, which go in pairs of key and value.
func cOpen(url string, settings []string, logLevel int, logFD uintptr) (clientHandle, error) {
	config := C.limiter_config_new()
	if config == nil {
		return nil, &Error{Status: StatusResource}
	}
	defer C.limiter_config_free(config)
	var text message
	for i := 0; i < len(settings); i += 2 {
		key, value := C.CString(settings[i]), C.CString(settings[i+1])
		s := C.limiter_config_set(config, key, value, &text[0], C.size_t(len(text)))
		C.free(unsafe.Pointer(key))
		C.free(unsafe.Pointer(value))
		if err := text.fail(s); err != nil {
			return nil, err
		}
	}
	if logLevel > 0 {
		C.limiter_go_set_log(config, C.int32_t(logLevel), C.int(logFD))
	}
	address := C.CString(url)
	defer C.free(unsafe.Pointer(address))
	var client clientHandle
	s := C.limiter_client_open(address, config, &client, &text[0], C.size_t(len(text)))
	return client, text.fail(s)
}

func cShutdown(client clientHandle, timeoutMS int32) Status {
	return Status(C.limiter_client_shutdown(client, C.int32_t(timeoutMS)))
}

func cFreeClient(client clientHandle) Status { return Status(C.limiter_client_free(client)) }

func cNewLimiter(client clientHandle, name string, limits []Limit) (limiterHandle, error) {
	raw := make([]C.limiter_limit, len(limits)+1) // one more, so that it has an address
	for i, l := range limits {
		period, err := l.periodUS()
		if err != nil {
			return nil, err
		}
		raw[i] = C.limiter_limit{
			struct_size:         C.sizeof_limiter_limit,
			kind:                C.uint32_t(l.kind),
			flags:               C.uint32_t(l.flags),
			capacity:            C.uint64_t(l.capacity),
			refill:              C.uint64_t(l.refill),
			period_us:           C.uint64_t(period),
			lease_ms:            C.uint32_t(millisUp(l.lease)),
			burst_earn_permille: C.uint32_t(l.earn()),
			version:             C.uint32_t(l.version),
		}
	}
	title := C.CString(name)
	defer C.free(unsafe.Pointer(title))
	var text message
	var limiter limiterHandle
	s := C.limiter_new(client, title, &raw[0], C.size_t(len(limits)), &limiter, &text[0], C.size_t(len(text)))
	return limiter, text.fail(s)
}

// cSetLimiter sets a limiter's own setting.
func cSetLimiter(l limiterHandle, name, setting string) error {
	key, value := C.CString(name), C.CString(setting)
	defer C.free(unsafe.Pointer(key))
	defer C.free(unsafe.Pointer(value))
	var text message
	return text.fail(C.limiter_set(l, key, value, &text[0], C.size_t(len(text))))
}

func cFreeLimiter(l limiterHandle) { C.limiter_free(l) }

// cNewQueue makes a queue and tells its descriptor.
func cNewQueue(client clientHandle) (queueHandle, int, error) {
	var queue queueHandle
	if s := C.limiter_queue_new(client, &queue); s != C.LIMITER_OK {
		return nil, -1, failure(Status(s))
	}
	fd := int(C.limiter_queue_fd(queue))
	if fd < 0 {
		C.limiter_queue_free(queue)
		return nil, -1, failure(Status(fd))
	}
	return queue, fd, nil
}

func cFreeQueue(queue queueHandle) { C.limiter_queue_free(queue) }

func cAdvance(client clientHandle, us uint64) Status {
	return Status(C.limiter_clock_advance_us(client, C.uint64_t(us)))
}

func cSetClock(client clientHandle, us uint64) Status {
	return Status(C.limiter_clock_set_us(client, C.uint64_t(us)))
}

func cNow(client clientHandle) uint64 { return uint64(C.limiter_clock_now_us(client)) }

func cStats(client clientHandle) (Stats, Status) {
	var status C.limiter_status
	s := C.limiter_go_stats(client, &status)
	return Stats{
		Granted:       uint64(s.granted),
		Denied:        uint64(s.denied),
		Never:         uint64(s.never),
		Cancelled:     uint64(s.cancelled),
		Released:      uint64(s.released),
		Settled:       uint64(s.settled),
		Lost:          uint64(s.lost),
		Overloaded:    uint64(s.overloaded),
		Degraded:      uint64(s.degraded),
		BackendErrors: uint64(s.backend_errors),
		BackendCalls:  uint64(s.backend_calls),
		Connects:      uint64(s.connects),
		InFlight:      uint64(s.in_flight),
		Waiting:       uint64(s.waiting),
		Keys:          uint64(s.keys),
	}, Status(status)
}

// cLog writes a record as the library does.
func cLog(fd uintptr, level int, message string) {
	text := C.CString(message)
	defer C.free(unsafe.Pointer(text))
	C.limiter_go_log_to(C.int(fd), C.int32_t(level), text)
}

func cVersion() uint32 { return uint32(C.limiter_version()) }

func statusName(s Status) string { return C.GoString(C.limiter_status_name(C.limiter_status(s))) }

func statusMessage(s Status) string {
	return C.GoString(C.limiter_status_message(C.limiter_status(s)))
}
