/* Sizes and offsets are the ABI: a program compiled against this header keeps working with a later
 * library. x86-64 and other LP64 machines. */
#include "check.h"
#include <stddef.h>

/* A static assertion of C99 and C++11 alike: an array of size -1 does not compile. */
#define SAME(got, want) extern int layout_check[(got) == (want) ? 1 : -1]
#define AT(type, field, offset) SAME(offsetof(type, field), offset)

SAME(sizeof(void *), 8);
SAME(sizeof(size_t), 8);
SAME(sizeof(limiter_status), 4);
SAME(sizeof(limiter_permit), 8);
SAME(sizeof(limiter_op), 8);

SAME(sizeof(limiter_decision), 128);
AT(limiter_decision, status, 0);
AT(limiter_decision, flags, 4);
AT(limiter_decision, permit, 8);
AT(limiter_decision, op, 16);
AT(limiter_decision, user_data, 24);
AT(limiter_decision, limit, 32);
AT(limiter_decision, remaining, 40);
AT(limiter_decision, retry_after_us, 48);
AT(limiter_decision, reset_after_us, 56);
AT(limiter_decision, waited_us, 64);
AT(limiter_decision, fence, 72);
AT(limiter_decision, index, 80);
AT(limiter_decision, queue_position, 84);
AT(limiter_decision, reserved, 88);

SAME(sizeof(limiter_limit), 56);
AT(limiter_limit, struct_size, 0);
AT(limiter_limit, kind, 8);
AT(limiter_limit, flags, 12);
AT(limiter_limit, capacity, 16);
AT(limiter_limit, refill, 24);
AT(limiter_limit, period_us, 32);
AT(limiter_limit, lease_ms, 40);
AT(limiter_limit, burst_earn_permille, 44);
AT(limiter_limit, version, 48);
AT(limiter_limit, reserved, 52);

SAME(sizeof(limiter_request), 72);
AT(limiter_request, struct_size, 0);
AT(limiter_request, key, 8);
AT(limiter_request, key_len, 16);
AT(limiter_request, weight, 24);
AT(limiter_request, weights, 32);
AT(limiter_request, weights_len, 40);
AT(limiter_request, wait_ms, 48);
AT(limiter_request, lease_ms, 52);
AT(limiter_request, flags, 56);
AT(limiter_request, reserved, 60);
AT(limiter_request, user_data, 64);

SAME(sizeof(limiter_stats), 136);
AT(limiter_stats, struct_size, 0);
AT(limiter_stats, granted, 8);
AT(limiter_stats, denied, 16);
AT(limiter_stats, never, 24);
AT(limiter_stats, cancelled, 32);
AT(limiter_stats, released, 40);
AT(limiter_stats, settled, 48);
AT(limiter_stats, lost, 56);
AT(limiter_stats, overloaded, 64);
AT(limiter_stats, degraded, 72);
AT(limiter_stats, backend_errors, 80);
AT(limiter_stats, backend_calls, 88);
AT(limiter_stats, connects, 96);
AT(limiter_stats, in_flight, 104);
AT(limiter_stats, waiting, 112);
AT(limiter_stats, keys, 120);
AT(limiter_stats, fork_generation, 128);

SAME(sizeof(limiter_slot), 216);
AT(limiter_slot, struct_size, 0);
AT(limiter_slot, limiter, 8);
AT(limiter_slot, decision, 16);
AT(limiter_slot, request, 144);

/* The numbers programs and bindings have compiled in. */
static void numbers_are_the_recorded_ones(void) {
    CHECK_EQ(LIMITER_OK, 0);
    CHECK_EQ(LIMITER_PENDING, 1);
    CHECK_EQ(LIMITER_DENIED, 2);
    CHECK_EQ(LIMITER_NEVER, 3);
    CHECK_EQ(LIMITER_INVALID, -1);
    CHECK_EQ(LIMITER_CONFIG, -2);
    CHECK_EQ(LIMITER_CLOSED, -3);
    CHECK_EQ(LIMITER_TIMEOUT, -4);
    CHECK_EQ(LIMITER_CANCELLED, -5);
    CHECK_EQ(LIMITER_BACKEND, -6);
    CHECK_EQ(LIMITER_UNKNOWN_OUTCOME, -7);
    CHECK_EQ(LIMITER_STALE, -8);
    CHECK_EQ(LIMITER_FORKED, -9);
    CHECK_EQ(LIMITER_WOULD_DEADLOCK, -10);
    CHECK_EQ(LIMITER_OVERLOADED, -11);
    CHECK_EQ(LIMITER_RESOURCE, -12);
    CHECK_EQ(LIMITER_UNSUPPORTED, -13);
    CHECK_EQ(LIMITER_PANIC, -99);
    CHECK_EQ(LIMITER_PACE_NEVER, -1000);
    CHECK_EQ(LIMITER_SEMAPHORE, 1);
    CHECK_EQ(LIMITER_TOKEN_BUCKET, 2);
    CHECK_EQ(LIMITER_PACER, 3);
    CHECK_EQ(LIMITER_SLIDING_LOG, 4);
    CHECK_EQ(LIMITER_SLIDING_COUNTER, 5);
    CHECK_EQ(LIMITER_FIXED_WINDOW, 6);
    CHECK_EQ(LIMITER_UNLIMITED, 7);
    CHECK_EQ(LIMITER_NEVER_ADMIT, 8);
    CHECK_EQ(LIMITER_PER_CALL, 1);
    CHECK_EQ(LIMITER_INTERVAL, 2);
    CHECK_EQ(LIMITER_START_EMPTY, 4);
    CHECK_EQ(LIMITER_ALIGN_FIRST_USE, 8);
    CHECK_EQ(LIMITER_NO_RENEW, 16);
    CHECK_EQ(LIMITER_TELL_LOST, 32);
    CHECK_EQ(LIMITER_DEGRADED, 1);
    CHECK_EQ(LIMITER_MAYBE_CHARGED, 2);
    CHECK_EQ(LIMITER_NO_INDEX, UINT32_MAX);
    CHECK_EQ(LIMITER_DETACH, 1);
}

static void init_macros_set_size_and_defaults(void) {
    limiter_limit limit = LIMITER_INIT(limiter_limit);
    limiter_request request = LIMITER_INIT(limiter_request);
    limiter_stats stats = LIMITER_INIT(limiter_stats);
    limiter_decision decision = LIMITER_INIT(limiter_decision);
    limiter_slot slot = LIMITER_INIT(limiter_slot);
    CHECK_EQ(limit.struct_size, sizeof limit);
    CHECK_EQ(limit.kind, 0);
    CHECK_EQ(limit.burst_earn_permille, 500);
    CHECK_EQ(limit.reserved, 0);
    CHECK_EQ(request.struct_size, sizeof request);
    CHECK_EQ(request.weight, 1);
    CHECK(request.key == NULL && request.weights == NULL && request.wait_ms == 0);
    CHECK_EQ(request.user_data, 0);
    CHECK_EQ(stats.struct_size, sizeof stats);
    CHECK_EQ(stats.fork_generation, 0);
    CHECK_EQ(decision.reserved[4], 0);
    CHECK_EQ(slot.struct_size, sizeof slot);
    CHECK_EQ(slot.request.struct_size, sizeof request);
    CHECK_EQ(slot.request.weight, 1);
    CHECK(slot.limiter == NULL);
}

static void constructors_set_what_they_say(void) {
    limiter_limit limit = limiter_semaphore(4);
    CHECK(limit.kind == LIMITER_SEMAPHORE && limit.capacity == 4 && limit.flags == 0);
    limit = limiter_token_bucket(20, 200, LIMITER_SECOND);
    CHECK(limit.kind == LIMITER_TOKEN_BUCKET && limit.capacity == 20 && limit.refill == 200);
    CHECK_EQ(limit.period_us, 1000000);
    limit = limiter_pacer(10, LIMITER_MINUTE, 3);
    CHECK(limit.kind == LIMITER_PACER && limit.capacity == 3 && limit.refill == 10);
    CHECK_EQ(limit.period_us, 60000000);
    CHECK_EQ(limit.burst_earn_permille, 500);
    limit = limiter_per_call(limiter_sliding_log(5, LIMITER_HOUR));
    CHECK(limit.kind == LIMITER_SLIDING_LOG && limit.flags == LIMITER_PER_CALL);
    limit = limiter_sliding_counter(5, LIMITER_DAY);
    CHECK(limit.kind == LIMITER_SLIDING_COUNTER && limit.period_us == UINT64_C(86400000000));
    limit = limiter_fixed_window(5, 7 * LIMITER_MILLISECOND);
    CHECK(limit.kind == LIMITER_FIXED_WINDOW && limit.capacity == 5 && limit.period_us == 7000);
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        CHECK_TEST(numbers_are_the_recorded_ones),
        CHECK_TEST(init_macros_set_size_and_defaults),
        CHECK_TEST(constructors_set_what_they_say),
    };
    return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
