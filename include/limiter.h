/*
 * liblimiter: limits what programs do across machines. How many things run at once, how fast they
 * start, how much is used per window; from memory or from Redis, with the same answers.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 * Generated from src/ffi by cbindgen; change it there.
 *
 * THE IDEA
 *   A limiter is a name and one or more limits. To acquire takes from all of them at once, or from
 *   none. What you then hold is a permit: release gives back what can be given back (a semaphore's
 *   weight), settle corrects what was estimated (tokens, bytes). Call acquire before a task and
 *   release after it; you need not know what is limited.
 *
 *       limiter_client_t *client;
 *       limiter_t *limiter;
 *       limiter_limit limits[] = {limiter_semaphore(4),
 *                                 limiter_token_bucket(20, 200, LIMITER_SECOND)};
 *       limiter_request request = LIMITER_INIT(limiter_request);
 *       limiter_decision decision;
 *
 *       if (limiter_client_open("memory://", NULL, &client, NULL, 0) != LIMITER_OK ||
 *           limiter_new(client, "upstream", limits, 2, &limiter, NULL, 0) != LIMITER_OK) {
 *           return 1;
 *       }
 *       request.wait_ms = 5000;
 *       if (limiter_acquire(limiter, &request, &decision) == LIMITER_OK) {
 *           work();
 *           limiter_release(limiter, decision.permit);
 *       }
 *
 * WORDS
 *   client    a backend (memory or Redis) and what runs in the background for it
 *   limiter   a name with limits; handles of one name share their state
 *   limit     one rule: a semaphore, a token bucket, a pacer, a window
 *   key       whose share it is: a user, an endpoint; any bytes, may be empty
 *   weight    units taken; 0 takes nothing and only looks
 *   permit    what an admitted call holds; a number
 *   lease     how long a permit lives unless it is renewed
 *   decision  the answer with its numbers
 *   degraded  answered by the failure policy because the backend could not answer
 *
 * STATUS
 *   Every answer is a limiter_status: 0 is LIMITER_OK, positive is another answer (PENDING, DENIED,
 *   NEVER), negative is an error. Numbers are never changed or reused. There is no errno and no
 *   last-error: calls that set something up take an errbuf (nullable), and write to it, on error, a
 *   NUL-terminated English message, cut to fit. A call that fails changes nothing, but for
 *   LIMITER_UNKNOWN_OUTCOME and LIMITER_PANIC, after which nobody knows.
 *
 * NUMBERS AND UNITS
 *   *_us is microseconds, *_ms milliseconds. Waits are rounded up, what is granted is rounded
 *   down. Arithmetic is exact for every rate from 1 per 10 years to 1 000 000 000 per second and
 *   for capacities to 2^48. What lies outside a range is refused with the range in the message.
 *
 * STRUCTS
 *   Those that begin with struct_size are set up with LIMITER_INIT; one that was only zeroed has no
 *   size and is refused. They only ever grow at the end: a smaller size (an older program) is
 *   accepted and means the defaults for what it lacks, down to the fields without which it asks for
 *   nothing (limiter_limit through period_us, limiter_request through weight); a larger one is
 *   accepted as long as what this library does not know is zero. Sizes are multiples of 8.
 *   limiter_decision never changes its size.
 *
 * OWNERSHIP
 *   Every *_new and *_open has a *_free, which must be the last call on that object and ignores
 *   NULL. What you pass in is copied or used only during the call. Permits and operations are plain
 *   numbers: copying them is harmless, and a second release is detected (LIMITER_STALE).
 *
 * THREADS
 *   Every function may be called from any thread at any time; only a *_free must not run together
 *   with another call on its object. Blocking: limiter_acquire and limiter_before_task with a wait,
 *   limiter_queue_poll with a timeout, limiter_client_shutdown and limiter_client_free. On Redis
 *   limiter_acquire and limiter_before_task without a wait, limiter_pace, limiter_renew,
 *   limiter_settle, limiter_peek, limiter_reset, limiter_penalize and limiter_try_many take one
 *   round trip, bounded by command_timeout_ms; on memory they take none. limiter_release never
 *   waits. Library threads block every signal and have names that begin with "limiter-"; there are
 *   none until something needs one. The library installs no signal or exit handlers and its calls
 *   are not async-signal-safe.
 *
 * CALLBACKS
 *   run on one library thread of their own, in the order of the events, perhaps before the call
 *   that asked for one has returned. From a callback the blocking functions named above answer
 *   LIMITER_WOULD_DEADLOCK; everything else may be called. Do not unwind or longjmp out of one. A
 *   child forked in a callback has every signal blocked and must not return from the callback.
 *
 * FORK
 *   Handles stay valid in a forked child, also in a grandchild and through daemon(). The child's
 *   first call makes it a background of its own; the parent's threads, connections, permits and
 *   waits stay the parent's (its permits answer LIMITER_FORKED in the child). A memory client
 *   starts afresh in the child, its virtual clock too. A queue keeps its descriptor's number,
 *   unless the child has closed it and put something else there. Free handles in the child or leave
 *   them; neither disturbs the parent.
 *
 * LEAVING
 *   A process may exit, return from main or be killed at any moment and in any state: the exit code
 *   is untouched. (A main thread that ends by pthread_exit() frees its clients first: the library's
 *   threads take no signals.) limiter_client_shutdown first gives back what is held; what a killed
 *   process held on Redis comes back a little after its lease: see LIMITER_SEMAPHORE. Where the
 *   system has no memory left, the process ends by abort().
 */

#ifndef LIMITER_H
#define LIMITER_H

#include <stddef.h>
#include <stdint.h>
#if defined(__GNUC__) || defined(__clang__)
#define LIMITER_API __attribute__((visibility("default")))
#define LIMITER_MUST_USE __attribute__((warn_unused_result))
#else
#define LIMITER_API
#define LIMITER_MUST_USE
#endif

/*
 * Start every struct that has a struct_size with this; it sets that field and each default:
 *     limiter_request request = LIMITER_INIT(limiter_request);
 * It is an initializer: for a declaration, not for an assignment.
 */
#define LIMITER_INIT(type) LIMITER_INIT_##type
#define LIMITER_INIT_limiter_limit {sizeof(limiter_limit), 0, 0, 0, 0, 0, 0, 500, 0, 0}
#define LIMITER_INIT_limiter_request \
    {sizeof(limiter_request), NULL, 0, 1, NULL, 0, 0, 0, 0, 0, 0}
#define LIMITER_INIT_limiter_stats \
    {sizeof(limiter_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
#define LIMITER_INIT_limiter_decision \
    {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0, 0, 0, 0, 0}}
#define LIMITER_INIT_limiter_slot \
    {sizeof(limiter_slot), NULL, LIMITER_INIT_limiter_decision, LIMITER_INIT_limiter_request}

/* Lengths of time, in the unit of every *_us field. */
#define LIMITER_MILLISECOND UINT64_C(1000)
#define LIMITER_SECOND UINT64_C(1000000)
#define LIMITER_MINUTE UINT64_C(60000000)
#define LIMITER_HOUR UINT64_C(3600000000)
#define LIMITER_DAY UINT64_C(86400000000)


/*
 * VERSIONS -------------------------------------------------------------------------------------
 */

/* ABI number; equals N in `liblimiter.so.N`. Compare with limiter_abi_version(). */
#define LIMITER_ABI 0

#define LIMITER_VERSION_MAJOR 0

#define LIMITER_VERSION_MINOR 1

#define LIMITER_VERSION_PATCH 0

/* Enough room for every message that is written to an `errbuf`. */
#define LIMITER_ERRBUF_SIZE 512


/*
 * STATUS ---------------------------------------------------------------------------------------
 *
 * The values of limiter_status. Never renumbered, never reused.
 */

/* Done. For an acquire: admitted, and `permit` is held, if anything was charged. */
#define LIMITER_OK 0

/* Started; exactly one completion will follow. */
#define LIMITER_PENDING 1

/* Not admitted within the wait that was allowed; `retry_after_us` says when to come back. */
#define LIMITER_DENIED 2

/*
 * Can never be admitted: heavier than the limit can ever hold, more than 10 years of a pacer's
 * rate, or a limit of kind LIMITER_NEVER_ADMIT. Waiting is pointless, and `retry_after_us` is
 * UINT64_MAX.
 */
#define LIMITER_NEVER 3

/* An argument is NULL where it must not be, out of range, or makes no sense here. */
#define LIMITER_INVALID -1

/*
 * A URL, a configuration key or value, or a limit was refused; errbuf says why and what is allowed.
 */
#define LIMITER_CONFIG -2

/* The client has been shut down. */
#define LIMITER_CLOSED -3

/*
 * A deadline of the library's own (a shutdown's, a command's) passed before anything was decided.
 */
#define LIMITER_TIMEOUT -4

/* The wait was ended by limiter_cancel() or limiter_cancel_waits(); nothing is held or charged. */
#define LIMITER_CANCELLED -5

/* The backend cannot be reached or answered with an error; nothing was charged. */
#define LIMITER_BACKEND -6

/* The request was sent and its answer lost: it was charged once or not at all. */
#define LIMITER_UNKNOWN_OUTCOME -7

/*
 * The permit or operation is over: released before, expired, lost, already settled, or never was.
 */
#define LIMITER_STALE -8

/* The permit or operation belongs to the process that forked this one. */
#define LIMITER_FORKED -9

/* A blocking function was called from a callback. */
#define LIMITER_WOULD_DEADLOCK -10

/* As many waits as `max_waiting` allows are under way; nothing was started. */
#define LIMITER_OVERLOADED -11

/* The system refused a descriptor or a thread. */
#define LIMITER_RESOURCE -12

/* This limiter or backend cannot do that. */
#define LIMITER_UNSUPPORTED -13

/*
 * A bug in this library was caught at its border. Please report it. The call may have had an
 * effect.
 */
#define LIMITER_PANIC -99

/*
 * limiter_pace_ms() only: such a weight can never fit (its results below zero are all "not
 * booked").
 */
#define LIMITER_PACE_NEVER -1000


/*
 * KINDS OF LIMIT -------------------------------------------------------------------------------
 *
 * The values of limiter_limit.kind. 0 is none of them.
 */

/*
 * At most `capacity` units are held at once. First in, first out over all processes. A permit lives
 * for `lease_ms` and is renewed in the background while it is held. So what a killed process held
 * on Redis is free again within its lease, or within 350 ms and four fifths of a lease below 1750
 * ms; and what is not renewed, at the end of its lease, on Redis up to 350 ms or a twentieth of it
 * later, whichever is longer.
 */
#define LIMITER_SEMAPHORE 1

/*
 * Up to `capacity` units are saved up; `refill` units come back every `period_us`, continuously or,
 * with LIMITER_INTERVAL, all at the period's end. Starts full or, with LIMITER_START_EMPTY, empty.
 * In any interval of length t it admits at most capacity + refill * t / period_us; with
 * LIMITER_INTERVAL at most capacity + refill * (whole periods in t + 1).
 *
 * Source: GCRA, ITU-T I.371, in exact integers.
 */
#define LIMITER_TOKEN_BUCKET 2

/*
 * `refill` units per `period_us`, evenly spaced. `capacity` (may be 0) is the burst: units let
 * through at once on top, earned back in quiet times at burst_earn_permille/1000 of the rate (with
 * 0 only as the key is as new, after 10 years). In any interval of t microseconds it admits at most
 * capacity + refill * (t + 1) / period_us + one call's weight. A weight that takes more than 10
 * years at the rate is answered LIMITER_NEVER.
 *
 * Source: the pacing of distributed-pacer, with its excess in try mode removed.
 */
#define LIMITER_PACER 3

/*
 * At most `capacity` units in any window of `period_us`, exactly: it remembers each admission,
 * bookings ahead included, until it is a window old, in 16 bytes. At most 2^52 units at a time:
 * what would be booked beyond that is denied. An admission exactly one window old no longer counts.
 */
#define LIMITER_SLIDING_LOG 4

/*
 * About `capacity` units in any window of `period_us`: the current window's count plus the previous
 * one's share that the sliding window still covers, rounded up. Constant memory.
 */
#define LIMITER_SLIDING_COUNTER 5

/*
 * At most `capacity` units in each window of `period_us`; across an edge up to twice that. Windows
 * begin at whole multiples of `period_us` since 1970 or, with LIMITER_ALIGN_FIRST_USE, at the first
 * use.
 */
#define LIMITER_FIXED_WINDOW 6

/* Always admits. It has no parameters: see limiter_limit on fields that a kind does not read. */
#define LIMITER_UNLIMITED 7

/* Never admits: every weight but 0 is answered LIMITER_NEVER. It has no parameters either. */
#define LIMITER_NEVER_ADMIT 8


/*
 * FLAGS ----------------------------------------------------------------------------------------
 */

/*
 * `limiter_limit.flags`: count calls, not weight (the number of requests beside the bytes they
 * move).
 */
#define LIMITER_PER_CALL 1

/* `limiter_limit.flags`, token bucket: the refill comes all at once at each period's end. */
#define LIMITER_INTERVAL 2

/*
 * `limiter_limit.flags`, token bucket: a new key starts with nothing saved up, and so does one that
 * has been full, with nobody asking, for twice the time it fills in, at least for a minute, at most
 * for 10 years.
 */
#define LIMITER_START_EMPTY 4

/*
 * `limiter_limit.flags`, fixed window: the first window starts at the first use, not by the clock.
 */
#define LIMITER_ALIGN_FIRST_USE 8

/*
 * `limiter_limit.flags` or `limiter_request.flags`, semaphore: the library does not renew the
 * permit; it ends after its lease unless limiter_renew() is called.
 */
#define LIMITER_NO_RENEW 16

/*
 * `limiter_request.flags`, limiter_submit() only: when the permit's lease is lost, one more
 * completion arrives on the queue that it was submitted on, with status LIMITER_STALE and the same
 * permit, user_data and op (0 where the submit was answered at once).
 */
#define LIMITER_TELL_LOST 32

/* `limiter_decision.flags`: answered by the failure policy, not by the backend. */
#define LIMITER_DEGRADED 1

/*
 * `limiter_decision.flags`, with LIMITER_DEGRADED: the request was sent and its answer lost, so it
 * was charged once or not at all, where the policy `error` answers LIMITER_UNKNOWN_OUTCOME. Without
 * this flag it was not charged.
 */
#define LIMITER_MAYBE_CHARGED 2

/* `limiter_decision.index`: no limit is meant. */
#define LIMITER_NO_INDEX UINT32_MAX

/*
 * limiter_cancel(): nothing arrives any more for this operation, and a grant that comes late, or
 * waits unpolled in the queue, is given back.
 */
#define LIMITER_DETACH 1


/*
 * HANDLES AND STRUCTS --------------------------------------------------------------------------
 */

/* A backend and the background that serves it. Opaque; thread-safe. */
typedef struct limiter_client_t limiter_client_t;

/* Settings of a client before it is opened. Opaque; one thread at a time. */
typedef struct limiter_config_t limiter_config_t;

/* Where finished operations wait to be polled. Opaque; thread-safe. */
typedef struct limiter_queue_t limiter_queue_t;

/* A name and its limits. Opaque; thread-safe. */
typedef struct limiter_t limiter_t;

/* How a call ended. 0 and above are answers, below 0 are errors. */
typedef int32_t limiter_status;

/*
 * Receives log records of `level` 1 (error), 2 (warning), 3 (info), 4 (debug). Called on any
 * thread, possibly on several at once; must not block and must not call this library. `message` is
 * valid during the call only and never holds a password.
 */
typedef void (*limiter_log_fn)(void *user_data, int32_t level, const char *message);

/* A permit: what an admitted call holds. 0 is none. */
typedef uint64_t limiter_permit;

/* Told of each permit whose lease ended while it was held: see CALLBACKS above. */
typedef void (*limiter_lost_fn)(void *user_data, limiter_permit permit);

/*
 * One rule of a limiter. Use a constructor such as limiter_semaphore(), or LIMITER_INIT.
 *
 * Ranges: capacity 1 to 2^48 (a pacer's burst from 0); refill 1 to 2^48; period_us 1 to 10 years;
 * at most 1000 units per microsecond; capacity * period_us / refill at most 100 years. A field that
 * the kind does not read must keep its default.
 */
typedef struct limiter_limit {
    /* sizeof(limiter_limit), set by LIMITER_INIT. The same in each element of an array. */
    size_t struct_size;
    /* LIMITER_SEMAPHORE to LIMITER_NEVER_ADMIT. Default 0, which is refused. */
    uint32_t kind;
    /* LIMITER_PER_CALL and those of the kind. Default 0. */
    uint32_t flags;
    /* Most units: held at once, saved up, in a window; the burst of a pacer. */
    uint64_t capacity;
    /* Token bucket and pacer: units that come back per period. */
    uint64_t refill;
    /* Token bucket and pacer: the period. Windows: the window's length. */
    uint64_t period_us;
    /* Semaphore: the lease of a permit, 100 to 86 400 000. Default 0: the client's lease_ms. */
    uint32_t lease_ms;
    /* Pacer: how fast burst is earned back, in thousandths of the rate, 0 to 1000. Default 500. */
    uint32_t burst_earn_permille;
    /*
     * Number of this configuration; the limiter's is the largest of its limits'. Where the same
     * name is open with other parameters, a lower number cannot bring older ones back. Default 0.
     */
    uint32_t version;
    /* Must be 0. */
    uint32_t reserved;
} limiter_limit;

/* One question. Set up with LIMITER_INIT(limiter_request): an empty key, weight 1, no wait. */
typedef struct limiter_request {
    /* sizeof(limiter_request), set by LIMITER_INIT. The same in each element of an array. */
    size_t struct_size;
    /*
     * Whose share: `key_len` bytes of any value, read during the call. NULL with length 0 is the
     * empty key.
     */
    const char *key;
    /* 0 to 65 536. */
    size_t key_len;
    /*
     * Units to take from each limit that counts weight. 0 takes nothing, is always admitted, never
     * jumps a queue and only fills in the numbers. Default 1.
     */
    uint64_t weight;
    /*
     * Nullable: a weight for each limit instead, in their order, read during the call; a limit with
     * weight 0 is left alone; for one with LIMITER_PER_CALL any other counts as 1. `weight` is then
     * not read.
     */
    const uint64_t *weights;
    /* Length of `weights`: the limiter's number of limits, or 0 where `weights` is NULL. */
    size_t weights_len;
    /*
     * Longest wait until admission: 0 tries once, a negative one waits without limit, but for a
     * start that would lie over 10 years ahead. A wait known to be longer is denied at once, or
     * when that becomes known. For limiter_pace(): the longest delay to accept. Default 0.
     */
    int32_t wait_ms;
    /* Semaphore: this permit's lease, 100 to 86 400 000. Default 0: the limit's. */
    uint32_t lease_ms;
    /* LIMITER_NO_RENEW, LIMITER_TELL_LOST. Default 0. */
    uint32_t flags;
    /* Must be 0. */
    uint32_t reserved;
    /* Comes back in the decision; what limiter_cancel_waits() goes by. Never dereferenced. */
    uint64_t user_data;
} limiter_request;

/* An operation under way. 0 is none. */
typedef uint64_t limiter_op;

/* The answer, with its numbers. 128 bytes, for ever; the library writes all of it. */
typedef struct limiter_decision {
    /* How it ended; the same as the function's result. */
    limiter_status status;
    /* LIMITER_DEGRADED, perhaps with LIMITER_MAYBE_CHARGED; otherwise 0. */
    uint32_t flags;
    /* What is now held; 0 unless the status is LIMITER_OK and something was charged. */
    limiter_permit permit;
    /* The operation under way or completed; 0 where there was none. */
    limiter_op op;
    /* The request's. */
    uint64_t user_data;
    /*
     * Units that the limit named by `index` allows at most. A pacer's is its burst and what comes
     * in one microsecond, which is one up to a million a second.
     */
    uint64_t limit;
    /*
     * Units of it that could be taken at this moment if nobody waited. 0 <= remaining <= limit.
     * Where a pacer has one, it lets one call of any weight through.
     */
    uint64_t remaining;
    /*
     * Denied: coming back after exactly this is admitted if nobody else comes, never 0; several
     * limits: the longest of those that deny. Where only a release can help, and permits are
     * renewed, nobody knows when that comes: then it is the lease, as a hint; where more than 64
     * leases have to end, it is when the 64th does, to ask again. Those who wait for a semaphore
     * before are not reckoned with, nor that a bucket with LIMITER_START_EMPTY begins to fill by a
     * first acquire only. Behind more than 4096 who wait for rates, some of whom have left, it may
     * be later than need be, not earlier. limiter_pace(): how long to sleep before starting. Never:
     * UINT64_MAX. Otherwise 0.
     */
    uint64_t retry_after_us;
    /*
     * Until that limit is as good as new if nobody else comes; of a sliding log, until its oldest
     * entry leaves. 0 of a semaphore, except while a penalty lasts: nobody knows when its holders
     * release. As long as a penalty lasts, nothing remains, and it is reckoned from its end.
     */
    uint64_t reset_after_us;
    /* How long the call waited. */
    uint64_t waited_us;
    /*
     * Semaphore: grows with every grant on the key, so that a resource can refuse an older holder.
     * Otherwise 0.
     */
    uint64_t fence;
    /*
     * Whose `limit`, `remaining` and `reset_after_us` these are: a limit's position, from 0. Denied
     * or never: the one that refused; of several, the first semaphore that is full, else the one
     * that takes longest. Otherwise the one with the least remaining. LIMITER_NO_INDEX where there
     * are no numbers: with errors, with PENDING, and where the call was admitted after a wait,
     * because they have changed since (limiter_peek() tells).
     */
    uint32_t index;
    /* Pending: how many waited ahead when it was queued. */
    uint32_t queue_position;
    /* 0. */
    uint64_t reserved[5];
} limiter_decision;

/* Receives a completion: see CALLBACKS above. `decision` is valid during the call only. */
typedef void (*limiter_completion_fn)(void *user_data, const struct limiter_decision *decision);

/*
 * Counters of one client in this process since it was opened or forked. They only grow, except
 * where a gauge is named.
 */
typedef struct limiter_stats {
    /* sizeof(limiter_stats), set by LIMITER_INIT; the library writes no further. */
    size_t struct_size;
    /*
     * Admitted calls that charged something; what a detached or freed queue gave back is among
     * them.
     */
    uint64_t granted;
    /* Answers LIMITER_DENIED, at once or after a wait. */
    uint64_t denied;
    /* Answers LIMITER_NEVER. */
    uint64_t never;
    /* Waits that were cancelled or detached. */
    uint64_t cancelled;
    /* Permits released. */
    uint64_t released;
    /* Permits settled. */
    uint64_t settled;
    /* Permits whose lease ended while held. */
    uint64_t lost;
    /*
     * Answers LIMITER_OVERLOADED, and words of lost leases that were dropped because 65 536 had not
     * been taken.
     */
    uint64_t overloaded;
    /* Answers of the failure policy. */
    uint64_t degraded;
    /* Requests the backend failed to answer. */
    uint64_t backend_errors;
    /* Scripts sent to the backend. */
    uint64_t backend_calls;
    /* Times a connection to the backend was made. */
    uint64_t connects;
    /* Gauge: permits of semaphores held now. */
    uint64_t in_flight;
    /* Gauge: waits under way now. */
    uint64_t waiting;
    /* Gauge: keys in memory now. */
    uint64_t keys;
    /* How many forks lie between the process that loaded the library and this one. */
    uint64_t fork_generation;
} limiter_stats;

/*
 * What limiter_before_task() and limiter_after_task() share: one for each task that may run at a
 * time.
 */
typedef struct limiter_slot {
    /* sizeof(limiter_slot), set by LIMITER_INIT. */
    size_t struct_size;
    /* Whom to ask. */
    struct limiter_t *limiter;
    /* The latest answer; its permit is what limiter_after_task() releases. */
    struct limiter_decision decision;
    /* What to ask for. */
    struct limiter_request request;
} limiter_slot;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus


/*
 * SETTINGS -------------------------------------------------------------------------------------
 *
 * A client that needs none passes NULL. Keys and values are strings:
 *
 *     clock               monotonic | virtual     virtual, for tests, stands still until
 *                                                 limiter_clock_advance_us()
 *     lease_ms            100 to 86400000         default 30000: a permit's life unless renewed
 *     max_waiting         1 to 10000000           default 100000: waits under way, and paced calls
 *                                                 behind a wait; more answer LIMITER_OVERLOADED
 *     max_penalty_ms      1 to 86400000           default 3600000: longest limiter_penalize()
 *
 * and those that only a client on Redis reads (any other checks them too):
 *
 *     prefix              up to 256 bytes         default "limiter": what Redis keys begin with
 *     command_timeout_ms  1 to 60000              default 250: longest wait for one Redis answer
 *     deny_cache_ms       0 to 1000               default 1000: for so long at most a denial by
 *                                                 rates is repeated without asking Redis, as long
 *                                                 as it stands and this client leaves the key alone
 *     take_ahead_ms       0 to 1000               default 0, off: for so long at most units of a
 *                                                 busy token bucket are kept that were taken
 *                                                 ahead, to admit calls without asking Redis
 *     on_failure          error | open |          default error: when Redis cannot answer, the call
 *                         closed | local          fails (LIMITER_BACKEND); or passes; or is
 *                                                 denied; or is decided in this process, by the
 *                                                 limits divided by the number of processes
 *     processes           1 to 1000000            default 1: that number, until Redis has told it
 *     username, password  1 to 1024 bytes         default: those of the URL
 *     sentinel_username,  1 to 1024 bytes         default: none; the sentinels' own
 *     sentinel_password
 *     tls_ca_file         a PEM file              default: the system's authorities
 *     tls_insecure        no | yes                default no: yes skips verifying the server
 */

/* New settings, all at their defaults. Never NULL. Free them with limiter_config_free(). */
LIMITER_API struct limiter_config_t *limiter_config_new(void);

/*
 * Sets `key` to `value`; both are NUL-terminated UTF-8 and copied. LIMITER_CONFIG for an unknown
 * key or a value out of range: errbuf names the key, and of a value what is allowed, and the
 * setting stays as it was. LIMITER_INVALID for NULL or text that is not UTF-8.
 */
LIMITER_API
limiter_status limiter_config_set(struct limiter_config_t *config,
                                  const char *key,
                                  const char *value,
                                  char *errbuf,
                                  size_t errcap);

/*
 * Sends log records up to `level` (1 error to 4 debug; 0 none) to `log`, or nowhere for NULL, which
 * is the default. `user_data` is handed to each call and must live as long as the client: until
 * limiter_client_free() answered LIMITER_OK, see there.
 */
LIMITER_API
void limiter_config_set_log(struct limiter_config_t *config,
                            int32_t level,
                            limiter_log_fn log,
                            void *user_data);

/*
 * Calls `lost` for each permit whose lease ended while it was held, or nothing for NULL, which is
 * the default. `user_data` is handed to each call and must live as long as the client: until
 * limiter_client_free() answered LIMITER_OK, see there.
 */
LIMITER_API
void limiter_config_set_lost(struct limiter_config_t *config,
                             limiter_lost_fn lost,
                             void *user_data);

/* Frees settings; a client that was opened with them keeps its copy. NULL is ignored. */
LIMITER_API void limiter_config_free(struct limiter_config_t *config);


/*
 * CLIENT ---------------------------------------------------------------------------------------
 *
 * One client for each backend is enough for a program: it is made for many threads.
 */

/*
 * Opens a client. `url` says where the state lives; NULL means "memory://", which is this process's
 * own memory. redis://[user:password@]host[:port][/database], rediss:// (TLS), unix:///path,
 * redis-cluster://host:port,host:port and redis-sentinel://host:port,host:port/master share it over
 * all processes that use the name; rediss-cluster:// and rediss-sentinel:// with TLS. `config` is
 * copied; NULL means the defaults. Never connects and never waits: a backend that is down shows at
 * the first call. On success `*client` is set, to be freed with limiter_client_free(); on failure
 * it is NULL. LIMITER_CONFIG for a URL that cannot be used; the message never repeats a password.
 */
LIMITER_API
LIMITER_MUST_USE
limiter_status limiter_client_open(const char *url,
                                   const struct limiter_config_t *config,
                                   struct limiter_client_t **client,
                                   char *errbuf,
                                   size_t errcap);

/*
 * Ends a client's work: no new call is accepted, every wait completes with LIMITER_CLOSED,
 * callbacks that are due run, and permits still held are released, for up to `timeout_ms`
 * (negative: without limit). LIMITER_TIMEOUT if that did not suffice; the client is closed all the
 * same. May be repeated, and called from any thread; handles stay valid and answer LIMITER_CLOSED.
 * Blocks. Not from a callback.
 */
LIMITER_API
limiter_status limiter_client_shutdown(struct limiter_client_t *client,
                                       int32_t timeout_ms);

/*
 * Shuts a client down, if that was not done, for up to a second, and frees it. Its limiters and
 * queues stay valid, answer LIMITER_CLOSED, and may be freed before or after. NULL is ignored.
 * Blocks. Not from a callback: there it answers LIMITER_WOULD_DEADLOCK and frees nothing.
 *
 * LIMITER_TIMEOUT: freed, but a callback took longer than that second, and those behind it are
 * still to run, the log and lost-lease hooks included: what they use must live on, and nothing
 * tells when they are done. Who cannot have that calls limiter_client_shutdown() first, with as
 * much time as it takes.
 */
LIMITER_API
limiter_status limiter_client_free(struct limiter_client_t *client);


/*
 * LIMITER --------------------------------------------------------------------------------------
 *
 * Limiters of one name and the same kinds of limit, in the same order, share their state: within a
 * memory client, or across all processes on one Redis. A bucket with LIMITER_INTERVAL is a kind of
 * its own. Other kinds under the same name are another limiter.
 *
 * A key takes room from its first charge until it is as good as new. After that a memory client
 * forgets it, a few at a time, as calls come on any key and as a virtual clock is moved; one that
 * nobody calls keeps them.
 */

/*
 * Makes a limiter: `name` (1 to 1024 bytes of UTF-8) and 1 to 16 limits, read during the call; each
 * acquire takes from all of them or from none. On success `*limiter` is set, to be freed with
 * limiter_free(); on failure it is NULL. LIMITER_CONFIG when a limit is out of range: errbuf says
 * which one, which field and what is allowed; also for a name of another length. LIMITER_INVALID
 * for NULL, no or too many limits, a wrong struct_size, or a name that is not UTF-8.
 *
 * Opening a name again with other numbers changes it for everybody from the next call on (unless
 * limiter_limit.version is lower), whichever handle is used: state is clamped, never reset.
 * Lowering a bucket keeps at most what now fits; raising it adds room that is empty, unless the key
 * is as new, which time makes it, and limiter_reset(); a semaphore lowered below what is held
 * admits nobody until enough came back. A window made shorter counts what it still covers; made
 * longer again, it does not know what was over by then. Those who wait go by the new numbers; a
 * wait whose time is booked starts then at the latest (see limiter_acquire()). See
 * limiter_limit.version.
 */
LIMITER_API
LIMITER_MUST_USE
limiter_status limiter_new(struct limiter_client_t *client,
                           const char *name,
                           const struct limiter_limit *limits,
                           size_t count,
                           struct limiter_t **limiter,
                           char *errbuf,
                           size_t errcap);

/*
 * Sets `key` of this limiter to `value`, from its next call on; both are NUL-terminated UTF-8 and
 * read during the call. One key so far:
 *
 *     on_failure          error | open |          default: the client's, see there
 *                         closed | local
 *
 * LIMITER_CONFIG for another key or value: errbuf names the key, or the values that are allowed,
 * and the setting stays as it was. LIMITER_INVALID for NULL or text that is not UTF-8. Never
 * blocks.
 */
LIMITER_API
limiter_status limiter_set(struct limiter_t *limiter,
                           const char *key,
                           const char *value,
                           char *errbuf,
                           size_t errcap);

/* Frees a limiter. The name's state, permits and waits go on. NULL is ignored. */
LIMITER_API void limiter_free(struct limiter_t *limiter);


/*
 * THE VERBS ------------------------------------------------------------------------------------
 *
 * For each of them a NULL request means LIMITER_INIT(limiter_request): the empty key, weight 1, no
 * wait. LIMITER_INVALID for a NULL limiter or out, a key over 65 536 bytes, a wrong struct_size, an
 * unknown flag, a lease_ms out of range, a reserved field that is not 0, or weights_len that is not
 * the number of limits; nothing is changed then. LIMITER_CLOSED after a shutdown. On Redis each may
 * also answer LIMITER_BACKEND or LIMITER_UNKNOWN_OUTCOME.
 */

/*
 * Takes from all limits, or from none; waits for it up to `wait_ms`.
 *
 * LIMITER_OK: admitted; release `out->permit` when done. LIMITER_DENIED: not within `wait_ms`;
 * where that is known beforehand the answer comes at once; nothing is charged. LIMITER_NEVER,
 * LIMITER_CANCELLED, LIMITER_CLOSED, LIMITER_OVERLOADED, LIMITER_BACKEND, LIMITER_UNKNOWN_OUTCOME
 * as named above. Those who wait for one key are admitted in the order in which they came, and a
 * call that does not wait never overtakes one that does.
 *
 * Where only rates and windows stand in the way, a wait books its start as it begins, and those who
 * come later book behind it. That is when it starts at the latest, unless a penalty puts it off. It
 * starts earlier, and those behind it in their order, once there is room: because less was used
 * than was thought (limiter_settle()), one before it was cancelled, or the limits were raised. On
 * Redis that is within a tenth of a second, where neither another process nor limiter_pace() has
 * booked behind it; elsewhere what is given back serves those who come later.
 *
 * A permit of a limiter without a semaphore need not be released: there is nothing to give back,
 * and the library forgets old ones by itself, but not before it has granted 1024 more (keys are
 * spread over 64 parts with 1024 each). Until then it can be settled.
 *
 * Blocks up to `wait_ms`, whatever signals arrive. Not from a callback, unless `wait_ms` is 0.
 */
LIMITER_API
LIMITER_MUST_USE
limiter_status limiter_acquire(struct limiter_t *limiter,
                               const struct limiter_request *request,
                               struct limiter_decision *out);

/*
 * Books the next moment at which `request->weight` may start, and answers how long to sleep until
 * then: `out->retry_after_us`, 0 for now. The slot is yours, so sleep, then start. Waits for
 * nothing itself. LIMITER_DENIED, with nothing booked, if the sleep would be longer than `wait_ms`
 * (0: no sleep at all; negative: any, up to 10 years). limiter_release() on `out->permit` before
 * its time gives the slot back; with more than 65 536 slots ahead in one of the 64 parts of the
 * keys, those furthest ahead come on time, but their permits are LIMITER_STALE. LIMITER_INVALID for
 * a limiter that holds a semaphore: limiter_acquire() is the verb for it.
 */
LIMITER_API
LIMITER_MUST_USE
limiter_status limiter_pace(struct limiter_t *limiter,
                            const struct limiter_request *request,
                            struct limiter_decision *out);

/*
 * limiter_pace() for any delay, in one number: how many milliseconds to sleep, rounded up, or a
 * negative status with nothing booked. A weight that can never fit, or not within 10 years, answers
 * LIMITER_PACE_NEVER. Where the failure policy denies, it is the error behind that.
 */
LIMITER_API
int64_t limiter_pace_ms(struct limiter_t *limiter,
                        const char *key,
                        size_t key_len,
                        uint64_t weight);

/*
 * What limiter_acquire() without a wait would answer now, charging nothing: LIMITER_OK,
 * LIMITER_DENIED or LIMITER_NEVER, with no permit and the numbers as they are before anything is
 * taken.
 */
LIMITER_API
limiter_status limiter_peek(struct limiter_t *limiter,
                            const struct limiter_request *request,
                            struct limiter_decision *out);

/*
 * Makes a key as new: rates and windows start afresh, permits held on it become LIMITER_STALE, and
 * those who wait are admitted as the new state allows. A penalty ends. Also heals a Redis key that
 * somebody else wrote to.
 */
LIMITER_API
limiter_status limiter_reset(struct limiter_t *limiter,
                             const char *key,
                             size_t key_len);

/*
 * Lets nothing start on a key for `retry_after_us` from now (cut to max_penalty_ms): what to call
 * when the service behind it said "too many requests, come back in". A running penalty is never
 * shortened by another one. Calls that were admitted go on; those booked or waiting are put off, in
 * their order and no faster than the limits allow from then on. A time that limiter_pace() has told
 * stays. On Redis other processes hear of it by a note: what they have booked is put off a moment
 * later.
 */
LIMITER_API
limiter_status limiter_penalize(struct limiter_t *limiter,
                                const char *key,
                                size_t key_len,
                                uint64_t retry_after_us);

/*
 * `count` (to 65 536; more is LIMITER_INVALID and leaves `out` as it was) requests without a wait,
 * decided in their order, each for itself, as if by limiter_acquire() one after another: `out[i]`
 * answers `requests[i]`. wait_ms is not read, and `requests` is NULL for none only. LIMITER_OK when
 * all were decided, whatever the answers, also for none at all; otherwise nothing was done, and
 * each `out[i]` has the status of the call. One round trip on Redis.
 */
LIMITER_API
limiter_status limiter_try_many(struct limiter_t *limiter,
                                const struct limiter_request *requests,
                                struct limiter_decision *out,
                                size_t count);


/*
 * PERMITS --------------------------------------------------------------------------------------
 *
 * `limiter` is the one that granted the permit, or another of the same client. A number that this
 * client never gave is LIMITER_STALE like one that is over.
 */

/*
 * Gives a permit back: the semaphore's weight goes to those who wait; what was taken from rates and
 * windows stays taken (limiter_settle() corrects that). A slot of limiter_pace() that is still to
 * come is given back whole, if nothing has been booked behind it; else it passes unused, as a time
 * that was told stays. LIMITER_STALE, with no effect, for a permit that is over; LIMITER_INVALID
 * for 0; LIMITER_FORKED for one of the parent's; LIMITER_CLOSED once the client is shut down, which
 * has released it. Never waits; may be called from a callback.
 */
LIMITER_API
limiter_status limiter_release(struct limiter_t *limiter,
                               limiter_permit permit);

/*
 * Makes a permit live for `lease_ms` (100 to 86 400 000) from now; 0 means the lease it was granted
 * with. Only of use with LIMITER_NO_RENEW: otherwise the library renews in time. LIMITER_STALE if
 * the permit is over or lost: then somebody else may hold what you held.
 */
LIMITER_API
limiter_status limiter_renew(struct limiter_t *limiter,
                             limiter_permit permit,
                             uint32_t lease_ms);

/*
 * Corrects an estimate: the permit's call used `actual_weight`, not the weight it asked for.
 * Windows count it as if it had asked for that from the start. A bucket is given back what time has
 * not brought back since, which is taken to pay for the oldest first: all of it, if it is settled
 * before what was taken at the time has come back; so settle early, or have a burst above what
 * comes while a call runs. A pacer is given back what was granted last. Those who wait start
 * earlier for it where they can (see limiter_acquire()). More is charged, beyond the limit if need
 * be, and later calls wait for it; those that have their time already keep it. Applies to each
 * limit that counts weight and that this call took from, except semaphores (also where the request
 * gave a weight for each limit: all of them are corrected to the same). Once for each permit,
 * before it is released: after that LIMITER_STALE with no effect, and also, on a limiter without a
 * semaphore, once the permit is forgotten, which is not before 1024 later ones were granted. A
 * permit that is never settled stays at its estimate. What was used beyond it is taken when it is
 * settled, whatever has come back since. Where no limit is there to correct, as with semaphores
 * alone, LIMITER_OK with no effect. LIMITER_INVALID, with no effect, for more than 2^48.
 */
LIMITER_API
limiter_status limiter_settle(struct limiter_t *limiter,
                              limiter_permit permit,
                              uint64_t actual_weight);


/*
 * COMPLETION QUEUE -----------------------------------------------------------------------------
 *
 * For event loops, and for runtimes that must not be called back: submit, go on, and poll when the
 * descriptor is readable. One queue serves any number of waits and threads.
 */

/*
 * Makes a queue. On success `*queue` is set, to be freed with limiter_queue_free().
 * LIMITER_RESOURCE when the process has no descriptor left.
 */
LIMITER_API
LIMITER_MUST_USE
limiter_status limiter_queue_new(struct limiter_client_t *client,
                                 struct limiter_queue_t **queue);

/*
 * The queue's descriptor, for poll, epoll or an event library: readable as long as completions
 * wait, and for good once the client is shut down (limiter_queue_poll() then answers
 * LIMITER_CLOSED). Do not read, write or close it. Its number stays the same for the queue's life,
 * also across fork; call this or any other function on the queue once in the child before the child
 * polls the descriptor. A child that closes all descriptors, as daemons do, does so before that
 * call; if it has something else on the number by then, that is left alone and the queue has
 * another: ask again. Negative: a status.
 */
LIMITER_API
int32_t limiter_queue_fd(const struct limiter_queue_t *queue);

/*
 * Starts an acquire that completes on `queue`; queue and limiter belong to one client. Never waits.
 *
 * LIMITER_OK, LIMITER_DENIED and every other answer but PENDING: decided at once, `*out` is the
 * whole answer and no completion follows. LIMITER_PENDING: `out->op` is set, and exactly one
 * completion with that op and the request's user_data will be polled, perhaps by another thread
 * before this returns.
 */
LIMITER_API
LIMITER_MUST_USE
limiter_status limiter_submit(struct limiter_queue_t *queue,
                              struct limiter_t *limiter,
                              const struct limiter_request *request,
                              struct limiter_decision *out);

/*
 * Moves up to `cap` completions to `out`, oldest first, and answers their number. If there is none,
 * waits for the first up to `timeout_ms` (0: not at all; negative: without limit) and answers 0
 * when none came. A negative result is a status: LIMITER_CLOSED once the client is shut down and
 * every completion was polled. Each completion goes to exactly one caller. Not from a callback with
 * a timeout.
 */
LIMITER_API
LIMITER_MUST_USE
int32_t limiter_queue_poll(struct limiter_queue_t *queue,
                           struct limiter_decision *out,
                           size_t cap,
                           int32_t timeout_ms);

/*
 * Ends a wait that limiter_submit() or limiter_acquire_cb() started. Its completion still arrives,
 * exactly once: LIMITER_CANCELLED, or LIMITER_OK where the grant came first (release it). With
 * `flags` LIMITER_DETACH nothing arrives any more (so a callback's user_data is yours to free), and
 * a grant that came first is given back for you. LIMITER_STALE, with no effect: it was polled or
 * called back before, or that is happening now. LIMITER_OK again for one that was cancelled and not
 * polled yet. Never waits; may be called from a callback.
 */
LIMITER_API
limiter_status limiter_cancel(struct limiter_client_t *client,
                              limiter_op op,
                              uint32_t flags);

/*
 * Ends every wait of this client whose request had this `user_data`, blocked limiter_acquire()
 * calls of other threads included, as limiter_cancel() without flags does: what a worker pool calls
 * to stop. 0 is what a request has by default, so it ends every wait that was not marked. Answers
 * how many it ended, or a negative status. Never waits.
 */
LIMITER_API
int32_t limiter_cancel_waits(struct limiter_client_t *client,
                             uint64_t user_data);

/*
 * Frees a queue: its waits are detached, grants that were not polled are given back, and its
 * descriptor is closed. Before or after its client. NULL is ignored.
 */
LIMITER_API void limiter_queue_free(struct limiter_queue_t *queue);


/*
 * WORKER POOLS ---------------------------------------------------------------------------------
 *
 * A pool that is event-driven takes the callback; one that calls a function before and after each
 * task takes the pair of hooks.
 */

/*
 * Starts an acquire whose answer `callback` receives: see CALLBACKS above. LIMITER_PENDING: it will
 * be called exactly once, even where the answer is known already, and perhaps before this returns;
 * `*op` (nullable) is the number for limiter_cancel(), also in the decision, and is set before the
 * callback runs. Anything else: nothing was started, `*op` is 0, and it is never called. Never
 * waits.
 *
 * `user_data` is yours again when the callback runs. It does not run after limiter_cancel() with
 * LIMITER_DETACH answered LIMITER_OK: then it is yours to free from there.
 */
LIMITER_API
LIMITER_MUST_USE
limiter_status limiter_acquire_cb(struct limiter_t *limiter,
                                  const struct limiter_request *request,
                                  limiter_completion_fn callback,
                                  void *user_data,
                                  limiter_op *op);

/*
 * To be called before a task with its limiter_slot, for pools that take a function pointer:
 * limiter_acquire() with the slot's request; the answer is in the slot. Start the task only on
 * LIMITER_OK. LIMITER_INVALID, with nothing taken and the slot as it was, while it holds a permit,
 * for NULL, and for a wrong struct_size.
 */
LIMITER_API
LIMITER_MUST_USE
limiter_status limiter_before_task(void *slot);

/*
 * To be called after the task, with the same slot: releases what limiter_before_task() took and
 * sets the slot's permit to 0; does nothing if that is 0 already. Reads no more of the slot than
 * its size, limiter and decision.
 */
LIMITER_API
void limiter_after_task(void *slot);


/*
 * VIRTUAL CLOCK --------------------------------------------------------------------------------
 *
 * A client opened with clock = virtual stands still until it is told to go on, so a program's own
 * tests need not sleep. It starts at 1 000 000 000 000 000 microseconds. Waits run on it too: a
 * call that blocks returns only when another thread moves the clock, so a test with one thread
 * waits for nothing, or submits. LIMITER_UNSUPPORTED on every other client.
 *
 * On Redis such a client tells the server its own time, so nobody else may use the same keys: give
 * it a prefix of its own. What has been asked is answered, and who waits is looked at, when the
 * clock is moved, also by 0: that blocks for some round trips (LIMITER_TIMEOUT: an answer took too
 * long).
 */

/*
 * Lets `us` microseconds pass. Everything that falls due on the way (booked starts, deadlines,
 * leases) happens in order and at its own time before this returns; callbacks are started, not
 * awaited. LIMITER_INVALID, and no time passes, if that would lead beyond the largest time, 2^52.
 */
LIMITER_API
limiter_status limiter_clock_advance_us(struct limiter_client_t *client,
                                        uint64_t us);

/*
 * Sets the clock to `us` microseconds since 1970. Forwards is limiter_clock_advance_us(); backwards
 * is what a clock that steps back does to a limiter: no time has passed, limiter_clock_now_us()
 * stays where it was, and the next step forward counts from `us`. LIMITER_INVALID beyond the
 * largest time, 2^52.
 */
LIMITER_API
limiter_status limiter_clock_set_us(struct limiter_client_t *client,
                                    uint64_t us);

/*
 * What the clock shows, in microseconds since 1970; real time for a clock that is not virtual. 0
 * for a NULL client.
 */
LIMITER_API
uint64_t limiter_clock_now_us(const struct limiter_client_t *client);


/*
 * OBSERVATION ----------------------------------------------------------------------------------
 */

/*
 * Reads a client's counters into `*stats`, whose struct_size must be set (LIMITER_INIT); no further
 * than that is written. The counters are read one after another, not at one instant.
 */
LIMITER_API
limiter_status limiter_stats_get(struct limiter_client_t *client,
                                 struct limiter_stats *stats);

/* Version of the loaded library: major << 16 | minor << 8 | patch. */
LIMITER_API uint32_t limiter_version(void);

/*
 * ABI number of the loaded library. A program or binding made for another LIMITER_ABI must not use
 * it.
 */
LIMITER_API
uint32_t limiter_abi_version(void);

/*
 * A status's name, such as "LIMITER_DENIED"; "LIMITER_?" for a number that is none. Static, never
 * NULL.
 */
LIMITER_API
const char *limiter_status_name(limiter_status status);

/* A status in an English sentence without a full stop. Static, never NULL. */
LIMITER_API const char *limiter_status_message(limiter_status status);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/*
 * Limits made in one expression. Each has the defaults of LIMITER_INIT(limiter_limit); see there
 * for ranges and sources.
 */

/* At most `capacity` units held at once. */
static inline limiter_limit limiter_semaphore(uint64_t capacity) {
    limiter_limit limit = LIMITER_INIT(limiter_limit);
    limit.kind = LIMITER_SEMAPHORE;
    limit.capacity = capacity;
    return limit;
}

/* `refill` units per `period_us`, and up to `capacity` saved up: a bucket that starts full. */
static inline limiter_limit limiter_token_bucket(uint64_t capacity, uint64_t refill,
                                                 uint64_t period_us) {
    limiter_limit limit = LIMITER_INIT(limiter_limit);
    limit.kind = LIMITER_TOKEN_BUCKET;
    limit.capacity = capacity;
    limit.refill = refill;
    limit.period_us = period_us;
    return limit;
}

/* `refill` units per `period_us`, evenly spaced, and up to `burst` more after a quiet time. */
static inline limiter_limit limiter_pacer(uint64_t refill, uint64_t period_us, uint64_t burst) {
    limiter_limit limit = LIMITER_INIT(limiter_limit);
    limit.kind = LIMITER_PACER;
    limit.refill = refill;
    limit.period_us = period_us;
    limit.capacity = burst;
    return limit;
}

/* At most `capacity` units in any `window_us` whatever: strict, remembers each admission. */
static inline limiter_limit limiter_sliding_log(uint64_t capacity, uint64_t window_us) {
    limiter_limit limit = LIMITER_INIT(limiter_limit);
    limit.kind = LIMITER_SLIDING_LOG;
    limit.capacity = capacity;
    limit.period_us = window_us;
    return limit;
}

/* About `capacity` units in any `window_us`, from two counters. */
static inline limiter_limit limiter_sliding_counter(uint64_t capacity, uint64_t window_us) {
    limiter_limit limit = LIMITER_INIT(limiter_limit);
    limit.kind = LIMITER_SLIDING_COUNTER;
    limit.capacity = capacity;
    limit.period_us = window_us;
    return limit;
}

/* At most `capacity` units in each window of `window_us`, aligned to the clock. */
static inline limiter_limit limiter_fixed_window(uint64_t capacity, uint64_t window_us) {
    limiter_limit limit = LIMITER_INIT(limiter_limit);
    limit.kind = LIMITER_FIXED_WINDOW;
    limit.capacity = capacity;
    limit.period_us = window_us;
    return limit;
}

/* The same limit, counting calls instead of their weight. */
static inline limiter_limit limiter_per_call(limiter_limit limit) {
    limit.flags |= LIMITER_PER_CALL;
    return limit;
}

#endif  /* LIMITER_H */
