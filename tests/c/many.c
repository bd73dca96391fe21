/* Many requests in one call, and numbers at their edges in the verbs that take one. */
#include "steps.h"

static void decided_in_their_order_each_for_itself(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_semaphore(3));
    limiter_request requests[6];
    limiter_decision out[6];
    static const limiter_status expect[] = {LIMITER_OK, LIMITER_NEVER, LIMITER_DENIED,
                                            LIMITER_OK, LIMITER_OK,    LIMITER_DENIED};
    size_t i;
    requests[0] = ask("a", 2, 5000); /* wait_ms is not read */
    requests[1] = ask("a", 4, -1);
    requests[2] = ask("a", 2, -1);
    requests[3] = ask("b", 3, 0);
    requests[4] = ask("a", 1, 0);
    requests[5] = ask("a", 1, 0);
    for (i = 0; i < 6; i++) requests[i].user_data = 100 + i;
    CHECK_OK(limiter_try_many(limiter, requests, out, 6));
    for (i = 0; i < 6; i++) {
        CHECK_STATUS(out[i].status, expect[i]);
        CHECK_EQ(out[i].user_data, 100 + i);
        CHECK((out[i].permit != 0) == (expect[i] == LIMITER_OK));
    }
    CHECK_OK(limiter_release(limiter, out[0].permit));
    CHECK_STATUS(limiter_release(limiter, out[0].permit), LIMITER_STALE);
    CHECK_EQ(stats_of(client).in_flight, 2);
    close_client(client, limiter);
}

static void one_bad_request_refuses_all(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_semaphore(5));
    limiter_request requests[3];
    limiter_decision out[3];
    int bad;
    for (bad = 0; bad < 3; bad++) {
        requests[0] = requests[1] = requests[2] = ask(NULL, 1, 0);
        requests[bad].flags = 1;
        CHECK_STATUS(limiter_try_many(limiter, requests, out, 3), LIMITER_INVALID);
        requests[bad].flags = 0;
        requests[bad].key_len = 65537;
        CHECK_STATUS(limiter_try_many(limiter, requests, out, 3), LIMITER_INVALID);
        requests[bad] = requests[(bad + 1) % 3];
        requests[bad].struct_size -= 8; /* sizes are the same in each element */
        CHECK_STATUS(limiter_try_many(limiter, requests, out, 3), LIMITER_INVALID);
    }
    CHECK_EQ(stats_of(client).granted, 0);
    CHECK_EQ(peek(limiter, NULL, 1).remaining, 5);
    close_client(client, limiter);
}

static void up_to_65536_of_them(void) {
    enum { N = 65536 };
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_semaphore(N));
    limiter_request *requests = (limiter_request *)malloc((N + 1) * sizeof(limiter_request));
    limiter_decision *out = (limiter_decision *)malloc((N + 1) * sizeof(limiter_decision));
    size_t i;
    CHECK(requests != NULL && out != NULL);
    for (i = 0; i < N + 1; i++) requests[i] = ask(NULL, 1, 0);
    CHECK_STATUS(limiter_try_many(limiter, requests, out, N + 1), LIMITER_INVALID);
    CHECK_STATUS(limiter_try_many(limiter, requests, out, SIZE_MAX), LIMITER_INVALID);
    CHECK_STATUS(limiter_try_many(limiter, requests, out, (size_t)1 << 63), LIMITER_INVALID);
    CHECK_EQ(stats_of(client).granted, 0);
    memset(out, 0x55, (N + 1) * sizeof(limiter_decision));
    CHECK_OK(limiter_try_many(limiter, requests, out, N));
    for (i = 0; i < N; i++) CHECK(out[i].status == LIMITER_OK && out[i].permit != 0);
    CHECK_EQ(out[N].permit, UINT64_C(0x5555555555555555));
    CHECK_STATUS(try_once(limiter, 1).status, LIMITER_DENIED);
    free(requests);
    free(out);
    close_client(client, limiter);
}

static const limiter_limit every_kind[] = {TB(10, 1, S(1)),      PACER(1, S(1), 10), LOG(10, S(10)),
                                           COUNTER(10, S(10)),   WINDOW(10, S(10)),  SEM(10),
                                           TB(10, 1000000, S(1)), KIND(LIMITER_UNLIMITED)};

/* I12: a settlement of any size neither crashes nor poisons the key for later calls; one beyond 2^48 is
 * refused and changes nothing. */
static void settlements_of_any_size(void) {
    static const uint64_t actuals[] = {0, 1, 10, 11, 1000, (uint64_t)1 << 48, ((uint64_t)1 << 48) + 1,
                                       (uint64_t)1 << 53, (uint64_t)1 << 63, UINT64_MAX - 1, UINT64_MAX};
    size_t kind, i;
    for (kind = 0; kind < CHECK_COUNT(every_kind); kind++) {
        for (i = 0; i < CHECK_COUNT(actuals); i++) {
            limiter_client_t *client = open_virtual();
            limiter_t *limiter = make1(client, every_kind[kind]);
            limiter_decision held = try_once(limiter, 5), after;
            int fits;
            char about[64];
            snprintf(about, sizeof about, "kind %zu, settled at %" PRIu64, kind, actuals[i]);
            check_context(about);
            CHECK_OK(held.status);
            fits = actuals[i] <= (uint64_t)1 << 48;
            CHECK_STATUS(limiter_settle(limiter, held.permit, actuals[i]), fits ? LIMITER_OK : LIMITER_INVALID);
            CHECK_STATUS(limiter_settle(limiter, held.permit, 5), fits ? LIMITER_STALE : LIMITER_OK);
            after = try_once(limiter, 1);
            if (!fits) CHECK_OK(after.status);
            CHECK(after.status == LIMITER_OK || after.status == LIMITER_DENIED);
            CHECK(after.remaining <= after.limit);
            if (after.status == LIMITER_DENIED) {
                CHECK(after.retry_after_us > 0);
                CHECK_EQ(after.remaining, 0);
                if (after.retry_after_us < YEARS(50)) { /* the wait is honest, however long */
                    advance(client, after.retry_after_us);
                    CHECK_OK(try_once(limiter, 1).status);
                }
            }
            CHECK_OK(limiter_reset(limiter, NULL, 0));
            CHECK_OK(try_once(limiter, 5).status);
            close_client(client, limiter);
        }
    }
}

static void weights_of_any_size(void) {
    static const uint64_t weights[] = {0, 1, 10, 11, (uint64_t)1 << 31, (uint64_t)1 << 32, (uint64_t)1 << 48,
                                       (uint64_t)1 << 53, ((uint64_t)1 << 53) + 1, (uint64_t)1 << 63, UINT64_MAX};
    size_t kind, i;
    for (kind = 0; kind < CHECK_COUNT(every_kind); kind++) {
        limiter_client_t *client = open_virtual();
        limiter_t *limiter = make1(client, every_kind[kind]);
        for (i = 0; i < CHECK_COUNT(weights); i++) {
            limiter_decision looked, got;
            char about[64];
            snprintf(about, sizeof about, "kind %zu, weight %" PRIu64, kind, weights[i]);
            check_context(about);
            CHECK_OK(limiter_reset(limiter, NULL, 0));
            looked = peek(limiter, NULL, weights[i]);
            got = try_once(limiter, weights[i]);
            CHECK_STATUS(looked.status, got.status);
            CHECK(got.status == LIMITER_OK || got.status == LIMITER_NEVER);
            CHECK(got.remaining <= got.limit);
            if (kind != 1 && kind != 7) CHECK((got.status == LIMITER_OK) == (weights[i] <= 10));
            if (got.status == LIMITER_NEVER) CHECK(peek(limiter, NULL, 1).status == LIMITER_OK);
        }
        close_client(client, limiter);
    }
}

static void penalties_of_any_length(void) {
    static const uint64_t lengths[] = {0, 1, 999, H(1), H(1) + 1, (uint64_t)1 << 52, (uint64_t)1 << 63, UINT64_MAX};
    size_t i;
    for (i = 0; i < CHECK_COUNT(lengths); i++) {
        limiter_client_t *client = open_virtual();
        limiter_t *limiter = make1(client, limiter_semaphore(1));
        uint64_t expect = lengths[i] < H(1) ? lengths[i] : H(1); /* max_penalty_ms */
        limiter_decision got;
        CHECK_OK(limiter_penalize(limiter, NULL, 0, lengths[i]));
        got = try_once(limiter, 1);
        CHECK_STATUS(got.status, expect ? LIMITER_DENIED : LIMITER_OK);
        CHECK_EQ(got.retry_after_us, expect);
        advance(client, expect);
        if (expect) CHECK_OK(try_once(limiter, 1).status);
        close_client(client, limiter);
    }
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        CHECK_TEST(decided_in_their_order_each_for_itself),
        CHECK_TEST(one_bad_request_refuses_all),
        CHECK_TEST(up_to_65536_of_them),
        CHECK_TEST(settlements_of_any_size),
        CHECK_TEST(weights_of_any_size),
        CHECK_TEST(penalties_of_any_length),
    };
    return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
