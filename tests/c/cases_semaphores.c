/* Public bug reports, sections A, E, F, I and J: semaphores, leases, releases, several limits. */
#include "steps.h"

/* A permit that ends by itself: its lease is not renewed. */
static limiter_decision hold(limiter_t *limiter, uint64_t weight, uint32_t lease_ms) {
    limiter_request request = ask(NULL, weight, 0);
    limiter_decision got = LIMITER_INIT(limiter_decision);
    request.flags = LIMITER_NO_RENEW;
    request.lease_ms = lease_ms;
    (void)!limiter_acquire(limiter, &request, &got);
    return got;
}

static void B_010_more_than_the_capacity_is_never_and_blocks_nobody(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_semaphore(3));
    limiter_decision got = acquire(limiter, NULL, 4, -1);
    CHECK_STATUS(got.status, LIMITER_NEVER);
    CHECK_EQ(got.retry_after_us, UINT64_MAX);
    CHECK_EQ(got.index, 0);
    CHECK_OK(acquire(limiter, NULL, 1, -1).status);
    CHECK_STATUS(acquire(limiter, NULL, 4, 0).status, LIMITER_NEVER);
    CHECK_EQ(peek(limiter, NULL, 1).remaining, 2);
    close_client(client, limiter);
}

static void B_029_capacity_costs_nothing(void) {
    static const uint64_t capacities[] = {10000, (uint64_t)1 << 31, (uint64_t)1 << 48};
    limiter_client_t *client = open_virtual();
    size_t i;
    for (i = 0; i < CHECK_COUNT(capacities); i++) {
        limiter_t *limiter = make1(client, limiter_semaphore(capacities[i]));
        limiter_decision one = try_once(limiter, 1), rest = try_once(limiter, capacities[i] - 1);
        CHECK_OK(one.status);
        CHECK_OK(rest.status);
        CHECK_EQ(rest.remaining, 0);
        CHECK_STATUS(try_once(limiter, 1).status, LIMITER_DENIED);
        CHECK_OK(limiter_release(limiter, one.permit));
        CHECK_OK(limiter_release(limiter, rest.permit));
        CHECK_EQ(peek(limiter, NULL, 1).remaining, capacities[i]);
        limiter_free(limiter);
    }
    {
        limiter_t *limiter = make1(client, limiter_semaphore(10));
        CHECK_EQ(drain(limiter, NULL), 10);
        close_client(client, limiter);
    }
}

static void B_071_a_lease_that_is_not_renewed_ends(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_semaphore(1));
    limiter_decision held = hold(limiter, 1, 2000), denied;
    CHECK_OK(held.status);
    advance(client, MS(1500));
    denied = try_once(limiter, 1);
    CHECK_STATUS(denied.status, LIMITER_DENIED);
    CHECK_EQ(denied.retry_after_us, MS(500)); /* when it ends at the latest */
    advance(client, MS(500) - 1);
    CHECK_STATUS(try_once(limiter, 1).status, LIMITER_DENIED);
    advance(client, 1);
    CHECK_OK(try_once(limiter, 1).status);
    CHECK_STATUS(limiter_release(limiter, held.permit), LIMITER_STALE);
    CHECK_EQ(stats_of(client).lost, 1);
    close_client(client, limiter);
}

static void B_073_a_held_permit_is_renewed_and_outlives_its_lease(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_semaphore(1));
    limiter_request request = ask(NULL, 1, 0);
    limiter_decision held;
    request.lease_ms = 1000;
    CHECK_OK(limiter_acquire(limiter, &request, &held));
    advance(client, H(3));
    CHECK_STATUS(try_once(limiter, 1).status, LIMITER_DENIED);
    CHECK_OK(limiter_release(limiter, held.permit));
    CHECK_OK(try_once(limiter, 1).status);
    close_client(client, limiter);
}

static void B_076_B_077_B_083_stale_releases_never_grow_the_capacity(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_semaphore(5));
    int round;
    for (round = 0; round < 10; round++) {
        limiter_decision late = hold(limiter, 2, 100), held;
        CHECK_OK(late.status);
        advance(client, MS(100));
        held = hold(limiter, 3, 1000);
        CHECK_OK(held.status);
        CHECK_STATUS(limiter_release(limiter, late.permit), LIMITER_STALE);
        CHECK_STATUS(limiter_release(limiter, late.permit), LIMITER_STALE);
        CHECK_STATUS(limiter_renew(limiter, late.permit, 0), LIMITER_STALE);
        CHECK_STATUS(limiter_settle(limiter, late.permit, 1), LIMITER_STALE);
        CHECK_STATUS(try_once(limiter, 3).status, LIMITER_DENIED);
        CHECK_OK(limiter_release(limiter, held.permit));
        CHECK_STATUS(limiter_release(limiter, held.permit), LIMITER_STALE);
        CHECK_STATUS(limiter_release(limiter, held.permit ^ 1), LIMITER_STALE);
        CHECK_STATUS(try_once(limiter, 6).status, LIMITER_NEVER);
        CHECK_EQ(peek(limiter, NULL, 1).remaining, 5);
    }
    close_client(client, limiter);
}

static void B_080_a_late_release_is_not_of_the_next_holder(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_semaphore(1));
    limiter_decision a = hold(limiter, 1, 1000), b;
    advance(client, MS(1500));
    b = try_once(limiter, 1);
    CHECK_OK(b.status);
    CHECK(b.fence > a.fence);
    advance(client, MS(500));
    CHECK_STATUS(limiter_release(limiter, a.permit), LIMITER_STALE);
    CHECK_STATUS(try_once(limiter, 1).status, LIMITER_DENIED);
    CHECK_OK(limiter_release(limiter, b.permit));
    CHECK_OK(try_once(limiter, 1).status);
    close_client(client, limiter);
}

static void B_085_renewing_a_lost_permit_takes_nothing(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_semaphore(1));
    limiter_decision held = hold(limiter, 1, 1000);
    advance(client, MS(999));
    CHECK_OK(limiter_renew(limiter, held.permit, 0)); /* the lease it was granted with */
    advance(client, MS(999));
    CHECK_OK(limiter_renew(limiter, held.permit, 5000));
    advance(client, MS(4999));
    CHECK_STATUS(try_once(limiter, 1).status, LIMITER_DENIED);
    advance(client, MS(1));
    CHECK_STATUS(limiter_renew(limiter, held.permit, 0), LIMITER_STALE); /* though nobody else came */
    CHECK_OK(try_once(limiter, 1).status);
    close_client(client, limiter);
}

static void B_086_leases_are_of_each_permit(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_semaphore(2));
    limiter_decision shorter = hold(limiter, 1, 5000), longer = hold(limiter, 1, 60000);
    CHECK_OK(longer.status);
    advance(client, S(5));
    CHECK_STATUS(limiter_release(limiter, shorter.permit), LIMITER_STALE);
    CHECK_STATUS(try_once(limiter, 2).status, LIMITER_DENIED);
    advance(client, S(55) - 1);
    CHECK_OK(limiter_renew(limiter, longer.permit, 0));
    advance(client, 1);
    CHECK_OK(limiter_release(limiter, longer.permit));
    CHECK_OK(try_once(limiter, 2).status);
    close_client(client, limiter);
}

static void the_lease_comes_from_request_limit_or_client(void) {
    limiter_client_t *client = open_virtual();
    limiter_limit limit = limiter_semaphore(1);
    limiter_t *limiter;
    limit.flags = LIMITER_NO_RENEW;
    limiter = make(client, "the client's", &limit, 1);
    CHECK_OK(try_once(limiter, 1).status);
    CHECK_EQ(try_once(limiter, 1).retry_after_us, S(30));
    limiter_free(limiter);
    limit.lease_ms = 700;
    limiter = make(client, "the limit's", &limit, 1);
    CHECK_OK(try_once(limiter, 1).status);
    CHECK_EQ(try_once(limiter, 1).retry_after_us, MS(700));
    limiter_free(limiter);
    limiter = make(client, "the request's", &limit, 1);
    CHECK_OK(hold(limiter, 1, 300).status);
    CHECK_EQ(try_once(limiter, 1).retry_after_us, MS(300));
    close_client(client, limiter);
}

static void B_104_no_wait_with_a_free_permit(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_semaphore(1));
    CHECK_OK(acquire(limiter, NULL, 1, 0).status);
    close_client(client, limiter);
}

static void B_100_a_wait_known_to_be_too_long_is_denied_at_once(void) {
    limiter_client_t *client = open_virtual(); /* a wait would hang: this clock stands still */
    limiter_t *limiter = make1(client, limiter_token_bucket(1, 1, MIN(1)));
    limiter_decision got;
    CHECK_OK(acquire(limiter, NULL, 1, 5000).status);
    got = acquire(limiter, NULL, 1, 5000);
    CHECK_STATUS(got.status, LIMITER_DENIED);
    CHECK_EQ(got.retry_after_us, MIN(1));
    CHECK_EQ(got.waited_us, 0);
    advance(client, MIN(1));
    CHECK_OK(acquire(limiter, NULL, 1, 0).status); /* nothing was booked */
    close_client(client, limiter);
}

static void B_122_B_125_one_refusal_charges_none(void) {
    limiter_client_t *client = open_virtual();
    static const uint64_t only_a[] = {1, 0}, only_b[] = {0, 1};
    limiter_limit limits[2];
    limiter_t *limiter;
    limiter_request request = LIMITER_INIT(limiter_request);
    limiter_decision got;
    int i;
    limits[0] = limiter_token_bucket(10, 1, H(1));
    limits[1] = limiter_semaphore(1);
    limiter = make(client, "ab", limits, 2);
    CHECK_OK(try_once(limiter, 1).status);
    for (i = 0; i < 4; i++) {
        got = try_once(limiter, 1);
        CHECK_STATUS(got.status, LIMITER_DENIED);
        CHECK_EQ(got.index, 1);
    }
    request.weights = only_b;
    request.weights_len = 2;
    CHECK_STATUS(limiter_peek(limiter, &request, &got), LIMITER_DENIED);
    request.weights = only_a;
    for (i = 0; i < 9; i++) CHECK_OK(limiter_acquire(limiter, &request, &got)); /* A: 9 of 10 were left */
    CHECK_STATUS(limiter_acquire(limiter, &request, &got), LIMITER_DENIED);
    CHECK_EQ(got.index, 0);
    close_client(client, limiter);
}

static void B_124_the_answer_names_the_limit_that_denies(void) {
    limiter_client_t *client = open_virtual();
    limiter_limit limits[3];
    limiter_t *limiter;
    limiter_decision got;
    limits[0] = limiter_token_bucket(100, 100, S(1));
    limits[1] = limiter_token_bucket(1, 1, S(3));
    limits[2] = limiter_token_bucket(1, 1, S(10));
    limiter = make(client, "abc", limits, 3);
    got = try_once(limiter, 1);
    CHECK_OK(got.status);
    CHECK_EQ(got.index, 1); /* the tightest, and of several the first */
    CHECK(got.limit == 1 && got.remaining == 0);
    got = try_once(limiter, 1);
    CHECK_EQ(got.index, 2);
    CHECK_EQ(got.retry_after_us, S(10));
    got = try_once(limiter, 101);
    CHECK_STATUS(got.status, LIMITER_NEVER);
    close_client(client, limiter);
}

static void per_call_counts_calls_and_each_weight_its_limit(void) {
    limiter_client_t *client = open_virtual();
    limiter_limit limits[2];
    limiter_t *limiter;
    limiter_decision held;
    uint64_t i;
    limits[0] = limiter_per_call(limiter_fixed_window(3, H(1)));
    limits[1] = limiter_token_bucket(1000, 1, S(1));
    limiter = make(client, "calls and bytes", limits, 2);
    for (i = 0; i < 3; i++) {
        held = try_once(limiter, 300);
        CHECK_OK(held.status);
    }
    CHECK_EQ(try_once(limiter, 1).index, 0); /* three calls, though 100 bytes are left */
    CHECK_OK(try_once(limiter, 0).status);
    CHECK_OK(limiter_settle(limiter, held.permit, 0)); /* bytes come back, the call does not */
    CHECK_EQ(try_once(limiter, 1).index, 0);
    close_client(client, limiter);
}

static void B_133_a_new_capacity_counts_at_once_and_an_old_version_does_not(void) {
    limiter_client_t *client = open_virtual();
    limiter_limit one = limiter_semaphore(1), five = limiter_semaphore(5);
    limiter_t *old_limiter, *new_limiter;
    one.version = 1;
    five.version = 2;
    old_limiter = make(client, "test", &one, 1);
    CHECK_OK(try_once(old_limiter, 1).status);
    CHECK_STATUS(try_once(old_limiter, 1).status, LIMITER_DENIED);
    new_limiter = make(client, "test", &five, 1);
    CHECK_EQ(drain(new_limiter, NULL), 4);
    CHECK_STATUS(try_once(old_limiter, 1).status, LIMITER_DENIED);
    CHECK_EQ(peek(new_limiter, NULL, 1).limit, 5);
    CHECK_OK(limiter_reset(new_limiter, NULL, 0));
    CHECK_EQ(drain(new_limiter, NULL), 5);
    limiter_free(old_limiter);
    close_client(client, new_limiter);
}

static void B_134_lowered_below_what_is_held(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_semaphore(5)), *lower;
    limiter_permit held[5];
    int i;
    for (i = 0; i < 5; i++) held[i] = try_once(limiter, 1).permit;
    lower = make1(client, limiter_semaphore(2));
    for (i = 0; i < 3; i++) {
        limiter_decision got = try_once(lower, 1);
        CHECK_STATUS(got.status, LIMITER_DENIED);
        CHECK(got.limit == 2 && got.remaining == 0);
        CHECK_OK(limiter_release(lower, held[i]));
    }
    CHECK_STATUS(try_once(lower, 1).status, LIMITER_DENIED); /* two are still held */
    CHECK_OK(limiter_release(lower, held[3]));
    CHECK_OK(try_once(lower, 1).status);
    CHECK_STATUS(try_once(lower, 3).status, LIMITER_NEVER);
    limiter_free(limiter);
    close_client(client, lower);
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        CHECK_TEST(B_010_more_than_the_capacity_is_never_and_blocks_nobody),
        CHECK_TEST(B_029_capacity_costs_nothing),
        CHECK_TEST(B_071_a_lease_that_is_not_renewed_ends),
        CHECK_TEST(B_073_a_held_permit_is_renewed_and_outlives_its_lease),
        CHECK_TEST(B_076_B_077_B_083_stale_releases_never_grow_the_capacity),
        CHECK_TEST(B_080_a_late_release_is_not_of_the_next_holder),
        CHECK_TEST(B_085_renewing_a_lost_permit_takes_nothing),
        CHECK_TEST(B_086_leases_are_of_each_permit),
        CHECK_TEST(the_lease_comes_from_request_limit_or_client),
        CHECK_TEST(B_104_no_wait_with_a_free_permit),
        CHECK_TEST(B_100_a_wait_known_to_be_too_long_is_denied_at_once),
        CHECK_TEST(B_122_B_125_one_refusal_charges_none),
        CHECK_TEST(B_124_the_answer_names_the_limit_that_denies),
        CHECK_TEST(per_call_counts_calls_and_each_weight_its_limit),
        CHECK_TEST(B_133_a_new_capacity_counts_at_once_and_an_old_version_does_not),
        CHECK_TEST(B_134_lowered_below_what_is_held),
    };
    return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
