/* Public bug reports of other limiters, sections A to D, I, J and L of the list, as tables: rates,
 * windows, their numbers, clocks, changes of parameters. B-nnn is the report's number. */
#include "steps.h"

static const scenario inputs[] = {
    {"B-005 a limit that never admits says so at once", {KIND(LIMITER_NEVER_ADMIT), NOTHING}, {NOTHING, NOTHING},
     {{0, TRY, 1, LIMITER_NEVER, -1, ANY}, {0, PEEK, 1, LIMITER_NEVER, -1, ANY}, {0, TRY, 0, LIMITER_OK, 0, ANY}}},
    {"B-007 B-008 more than the burst is never", {TB(10, 10, S(10)), NOTHING}, {NOTHING, NOTHING},
     {{0, TRY, 16, LIMITER_NEVER, -1, ANY}, {0, TRY, 11, LIMITER_NEVER, -1, ANY},
      {0, TRY, 10, LIMITER_OK, 0, 0}, {H(1), TRY, 16, LIMITER_NEVER, -1, ANY}, {0, TRY, 10, LIMITER_OK, 0, 0}}},
    {"B-011 B-013 a negative weight is a huge one", {TB(10, 10, S(10)), NOTHING}, {NOTHING, NOTHING},
     {{0, TRY, (uint64_t)-500, LIMITER_NEVER, -1, ANY}, {0, TRY, UINT64_MAX, LIMITER_NEVER, -1, ANY},
      {0, TRY, (uint64_t)1 << 63, LIMITER_NEVER, -1, ANY}, {0, PEEK, 1, LIMITER_OK, 0, 10}}},
    {"B-014 B-127 a refund is capped, token bucket", {TB(10, 1, H(1)), NOTHING}, {NOTHING, NOTHING},
     {{0, TRY, 5, LIMITER_OK, 0, 5}, {0, SETTLE, 0, LIMITER_OK, 0, 0}, {0, SETTLE, 0, LIMITER_STALE, 0, 0},
      {0, PEEK, 1, LIMITER_OK, 0, 10}, {0, DRAIN, 0, 0, 0, 10}}},
    {"B-014 B-127 a refund is capped, sliding log", {LOG(10, H(1)), NOTHING}, {NOTHING, NOTHING},
     {{0, TRY, 5, LIMITER_OK, 0, 5}, {0, SETTLE, 0, LIMITER_OK, 0, 0}, {0, SETTLE, 0, LIMITER_STALE, 0, 0},
      {0, PEEK, 1, LIMITER_OK, 0, 10}, {0, DRAIN, 0, 0, 0, 10}}},
    {"B-014 B-127 a refund is capped, sliding counter", {COUNTER(10, H(1)), NOTHING}, {NOTHING, NOTHING},
     {{0, TRY, 5, LIMITER_OK, 0, 5}, {0, SETTLE, 0, LIMITER_OK, 0, 0}, {0, SETTLE, 0, LIMITER_STALE, 0, 0},
      {0, PEEK, 1, LIMITER_OK, 0, 10}, {0, DRAIN, 0, 0, 0, 10}}},
    {"B-014 B-127 a refund is capped, fixed window", {WINDOW(10, H(1)), NOTHING}, {NOTHING, NOTHING},
     {{0, TRY, 5, LIMITER_OK, 0, 5}, {0, SETTLE, 0, LIMITER_OK, 0, 0}, {0, SETTLE, 0, LIMITER_STALE, 0, 0},
      {0, PEEK, 1, LIMITER_OK, 0, 10}, {0, DRAIN, 0, 0, 0, 10}}},
    {"B-016 one per ten years", {TB(1, 1, YEARS(10)), NOTHING}, {NOTHING, NOTHING},
     {{0, TRY, 1, LIMITER_OK, 0, 0}, {0, TRY, 1, LIMITER_DENIED, YEARS(10), 0},
      {YEARS(10) - 1, TRY, 1, LIMITER_DENIED, 1, 0}, {1, TRY, 1, LIMITER_OK, 0, 0}}},
    {"B-017 a billion per second", {TB(1000000000, 1000000000, S(1)), NOTHING}, {NOTHING, NOTHING},
     {{0, TRY, 1000000000, LIMITER_OK, 0, 0}, {0, TRY, 1, LIMITER_DENIED, 1, 0},
      {1, TRY, 1001, LIMITER_DENIED, 1, 1000}, {0, TRY, 1000, LIMITER_OK, 0, 0},
      {MS(1), TRY, 1000001, LIMITER_DENIED, 1, 1000000}}},
    {"B-020 a slow bucket starts full", {TB(1, 1, S(10000)), NOTHING}, {NOTHING, NOTHING},
     {{0, TRY, 1, LIMITER_OK, 0, 0}, {0, TRY, 1, LIMITER_DENIED, S(10000), 0}}},
    {"B-023 a window of one", {LOG(1, S(10)), NOTHING}, {NOTHING, NOTHING},
     {{0, TRY, 1, LIMITER_OK, 0, 0}, {0, TRY, 1, LIMITER_DENIED, S(10), 0},
      {S(10) - 1, TRY, 1, LIMITER_DENIED, 1, 0}, {1, TRY, 1, LIMITER_OK, 0, 0}}},
    {"B-025 weight 0 costs nothing", {WINDOW(3, S(10)), NOTHING}, {NOTHING, NOTHING},
     {{0, TRY, 0, LIMITER_OK, 0, 3}, {0, TRY, 0, LIMITER_OK, 0, 3}, {0, DRAIN, 0, 0, 0, 3},
      {0, TRY, 0, LIMITER_OK, 0, 0}}},
};

static const scenario precision[] = {
    {"B-031 a wait under a second", {TB(1, 2, S(1)), NOTHING}, {NOTHING, NOTHING},
     {{0, TRY, 1, LIMITER_OK, 0, 0}, {0, TRY, 1, LIMITER_DENIED, MS(500), 0},
      {MS(500), TRY, 1, LIMITER_OK, 0, 0}}},
    {"B-032 half a second", {TB(1, 1, MS(500)), NOTHING}, {NOTHING, NOTHING},
     {{0, TRY, 1, LIMITER_OK, 0, 0}, {0, TRY, 1, LIMITER_DENIED, MS(500), 0}}},
    {"B-032 a second and a half", {WINDOW(1, MS(1500)), NOTHING}, {NOTHING, NOTHING},
     {{0, TRY, 1, LIMITER_OK, 0, 0}, {MS(1500), TRY, 1, LIMITER_OK, 0, 0}}},
    {"B-032 600.001 seconds", {LOG(1, US(600001000)), NOTHING}, {NOTHING, NOTHING},
     {{0, TRY, 1, LIMITER_OK, 0, 0}, {S(600), TRY, 1, LIMITER_DENIED, MS(1), 0},
      {MS(1), TRY, 1, LIMITER_OK, 0, 0}}},
    {"B-037 the bucket is not forgotten after 30 s", {TB(1, 1, S(60)), NOTHING}, {NOTHING, NOTHING},
     {{0, TRY, 1, LIMITER_OK, 0, 0}, {S(31), TRY, 1, LIMITER_DENIED, S(29), 0},
      {S(29), TRY, 1, LIMITER_OK, 0, 0}}},
    {"B-038 nor after an hour", {TB(1, 1, H(2)), NOTHING}, {NOTHING, NOTHING},
     {{0, TRY, 1, LIMITER_OK, 0, 0}, {MIN(61), TRY, 1, LIMITER_DENIED, MIN(59), 0}}},
    {"B-040 100 ms, not 0", {TB(1, 10, S(1)), NOTHING}, {NOTHING, NOTHING},
     {{0, TRY, 1, LIMITER_OK, 0, 0}, {0, TRY, 1, LIMITER_DENIED, MS(100), 0}}},
    {"B-043 a fraction that accrued is not lost", {TB(10, 10, S(10)), NOTHING}, {NOTHING, NOTHING},
     {{0, TRY, 10, LIMITER_OK, 0, 0}, {MS(1750), TRY, 1, LIMITER_OK, 0, 0}, {MS(250), TRY, 1, LIMITER_OK, 0, 0}}},
    {"B-044 nor ignored in the wait", {TB(1, 1, S(1)), NOTHING}, {NOTHING, NOTHING},
     {{0, TRY, 1, LIMITER_OK, 0, 0}, {MS(900), TRY, 1, LIMITER_DENIED, MS(100), 0}}},
    {"B-047 a deficit below one unit is a wait", {TB(1000, 1000000, S(1)), NOTHING}, {NOTHING, NOTHING},
     {{0, TRY, 1000, LIMITER_OK, 0, 0}, {0, TRY, 1, LIMITER_DENIED, 1, 0}, {1, TRY, 1, LIMITER_OK, 0, 0},
      {0, TRY, 1, LIMITER_DENIED, 1, 0}}},
    {"B-052 exactly k after k periods", {TB(5, 7, S(1)), NOTHING}, {NOTHING, NOTHING},
     {{0, DRAIN, 0, 0, 0, 5}, {US(428572), DRAIN, 0, 0, 0, 3}, {US(142856), DRAIN, 0, 0, 0, 0},
      {US(1), DRAIN, 0, 0, 0, 1}}},
    {"B-053 at 0 left the next is told when", {TB(2, 1, S(1)), NOTHING}, {NOTHING, NOTHING},
     {{0, TRY, 2, LIMITER_OK, 0, 0}, {0, PEEK, 1, LIMITER_DENIED, S(1), 0}}},
    {"B-055 until the oldest leaves", {LOG(3, S(10)), NOTHING}, {NOTHING, NOTHING},
     {{0, TRY, 1, LIMITER_OK, 0, 2}, {S(4), TRY, 1, LIMITER_OK, 0, 1}, {S(4), TRY, 1, LIMITER_OK, 0, 0},
      {0, TRY, 1, LIMITER_DENIED, S(2), 0}, {S(2), TRY, 1, LIMITER_OK, 0, 0}}},
    {"B-058 idle just under a refill gives no second burst", {TB(10, 10, S(1)), NOTHING}, {NOTHING, NOTHING},
     {{0, DRAIN, 0, 0, 0, 10}, {US(999999), DRAIN, 0, 0, 0, 9}, {S(100), DRAIN, 0, 0, 0, 10}}},
    {"B-059 peek is pure", {TB(3, 1, S(1)), NOTHING}, {NOTHING, NOTHING},
     {{0, TRY, 1, LIMITER_OK, 0, 2}, {0, PEEK, 1, LIMITER_OK, 0, 2}, {0, PEEK, 3, LIMITER_DENIED, S(1), 2},
      {0, PEEK, 4, LIMITER_NEVER, -1, ANY}, {0, PEEK, 2, LIMITER_OK, 0, 2}, {0, DRAIN, 0, 0, 0, 2},
      {0, PEEK, 1, LIMITER_DENIED, S(1), 0}, {0, PEEK, 1, LIMITER_DENIED, S(1), 0}}},
    {"B-103 five at once, the sixth in a fifth of a second", {TB(5, 5, S(1)), NOTHING}, {NOTHING, NOTHING},
     {{0, DRAIN, 0, 0, 0, 5}, {0, TRY, 1, LIMITER_DENIED, MS(200), 0}}},
    {"B-143 an old entry is gone before it is counted", {LOG(2, S(1)), NOTHING}, {NOTHING, NOTHING},
     {{0, TRY, 2, LIMITER_OK, 0, 0}, {MS(1001), TRY, 1, LIMITER_OK, 0, 1}}},
    {"B-146 strict: ten in any minute", {LOG(10, MIN(1)), NOTHING}, {NOTHING, NOTHING},
     {{0, DRAIN, 0, 0, 0, 10}, {S(30), DRAIN, 0, 0, 0, 0}, {US(29999999), DRAIN, 0, 0, 0, 0},
      {1, DRAIN, 0, 0, 0, 10}}},
    {"B-148 the wait goes on where it was", {TB(5, 1, MIN(1)), NOTHING}, {NOTHING, NOTHING},
     {{0, DRAIN, 0, 0, 0, 5}, {S(59), TRY, 1, LIMITER_DENIED, S(1), 0}}},
    {"B-149 the burst is its own number", {TB(1000, 1000, S(10)), NOTHING}, {NOTHING, NOTHING},
     {{0, DRAIN, 0, 0, 0, 1000}}},
    {"B-149 whatever the rate", {TB(100, 100, S(1)), NOTHING}, {NOTHING, NOTHING}, {{0, DRAIN, 0, 0, 0, 100}}},
};

static const scenario several[] = {
    {"B-124 the longest of those that deny", {TB(1, 1, S(10)), TB(1, 1, S(3))}, {NOTHING, NOTHING},
     {{0, TRY, 1, LIMITER_OK, 0, 0}, {0, TRY, 1, LIMITER_DENIED, S(10), 0},
      {S(3), TRY, 1, LIMITER_DENIED, S(7), 0}, {S(7), TRY, 1, LIMITER_OK, 0, 0}}},
    {"B-128 more than was asked becomes a debt", {TB(100, 1, S(1)), NOTHING}, {NOTHING, NOTHING},
     {{0, TRY, 100, LIMITER_OK, 0, 0}, {0, SETTLE, 130, LIMITER_OK, 0, 0}, {0, SETTLE, 999, LIMITER_STALE, 0, 0},
      {0, TRY, 1, LIMITER_DENIED, S(31), 0}, {S(31), TRY, 1, LIMITER_OK, 0, 0}}},
};

static const scenario changes[] = {
    {"B-056 remaining is within the new limit", {TB(10, 1, H(1)), NOTHING}, {TB(5, 1, H(1)), NOTHING},
     {{0, TRY, 1, LIMITER_OK, 0, 9}, {0, REOPEN, 0, 0, 0, 0}, {0, PEEK, 1, LIMITER_OK, 0, 5},
      {0, DRAIN, 0, 0, 0, 5}}},
    {"B-130 lowered", {TB(1000, 1, H(1)), NOTHING}, {TB(10, 1, H(1)), NOTHING},
     {{0, TRY, 1, LIMITER_OK, 0, 999}, {0, REOPEN, 0, 0, 0, 0}, {0, DRAIN, 0, 0, 0, 10}}},
    {"B-131 a new rate is a new wait", {TB(1, 1, H(1)), NOTHING}, {TB(1, 100, H(1)), NOTHING},
     {{0, TRY, 1, LIMITER_OK, 0, 0}, {0, TRY, 1, LIMITER_DENIED, H(1), 0}, {0, REOPEN, 0, 0, 0, 0},
      {0, TRY, 1, LIMITER_DENIED, S(36), 0}, {S(36), TRY, 1, LIMITER_OK, 0, 0}}},
    {"B-130 a lowered window keeps what was used", {WINDOW(10, H(1)), NOTHING}, {WINDOW(4, H(1)), NOTHING},
     {{0, TRY, 3, LIMITER_OK, 0, 7}, {0, REOPEN, 0, 0, 0, 0}, {0, DRAIN, 0, 0, 0, 1}}},
    {"B-130 a lowered log keeps what was used", {LOG(10, H(1)), NOTHING}, {LOG(4, H(1)), NOTHING},
     {{0, TRY, 6, LIMITER_OK, 0, 4}, {0, REOPEN, 0, 0, 0, 0}, {0, PEEK, 1, LIMITER_DENIED, H(1), 0},
      {H(1), DRAIN, 0, 0, 0, 4}}},
};

static const scenario waits[] = {
    {"B-101 a refusal books nothing", {PACER(1, S(1), 0), NOTHING}, {NOTHING, NOTHING},
     {{0, PACE, 1, LIMITER_OK, 0, ANY}, {0, TRY, 1, LIMITER_DENIED, S(1), ANY}, {0, TRY, 1, LIMITER_DENIED, S(1), ANY},
      {0, TRY, 1, LIMITER_DENIED, S(1), ANY}, {0, PACE, 1, LIMITER_OK, S(1), ANY}, {0, PACE, 1, LIMITER_OK, S(2), ANY}}},
    {"penalize: nothing starts before", {TB(5, 5, S(1)), NOTHING}, {NOTHING, NOTHING},
     {{0, TRY, 1, LIMITER_OK, 0, 4}, {0, PENALIZE, S(7), LIMITER_OK, 0, 0}, {0, TRY, 1, LIMITER_DENIED, S(7), 0},
      {0, PENALIZE, S(3), LIMITER_OK, 0, 0}, {S(5), TRY, 1, LIMITER_DENIED, S(2), 0},
      {S(2), DRAIN, 0, 0, 0, 5}}},
    {"penalize: at most the configured hour", {TB(5, 5, S(1)), NOTHING}, {NOTHING, NOTHING},
     {{0, PENALIZE, UINT64_MAX, LIMITER_OK, 0, 0}, {0, TRY, 1, LIMITER_DENIED, H(1), 0}}},
    {"reset: as new", {TB(5, 1, H(1)), NOTHING}, {NOTHING, NOTHING},
     {{0, DRAIN, 0, 0, 0, 5}, {0, RESET, 0, LIMITER_OK, 0, 0}, {0, DRAIN, 0, 0, 0, 5},
      {0, PENALIZE, S(7), LIMITER_OK, 0, 0}, {0, RESET, 0, LIMITER_OK, 0, 0}, {0, TRY, 5, LIMITER_OK, 0, 0}}},
};

#define RUN_ALL(table) \
    static void table##_table(void) { \
        size_t i; \
        for (i = 0; i < CHECK_COUNT(table); i++) run_scenario(&table[i]); \
    }
RUN_ALL(inputs)
RUN_ALL(precision)
RUN_ALL(several)
RUN_ALL(changes)
RUN_ALL(waits)

/* Saturates a limit for `seconds` by obeying each retry_after; I6 and both bounds of I1. */
static uint64_t saturate(limiter_limit limit, uint64_t seconds) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limit);
    uint64_t end = limiter_clock_now_us(client) + seconds * 1000000, admitted = 0;
    while (1) {
        limiter_decision got = try_once(limiter, 1);
        if (got.status == LIMITER_OK) {
            admitted++;
            continue;
        }
        CHECK_STATUS(got.status, LIMITER_DENIED);
        if (limiter_clock_now_us(client) + got.retry_after_us >= end) break;
        if (got.retry_after_us > 1) advance(client, got.retry_after_us - 1);
        if (got.retry_after_us > 1) CHECK_STATUS(try_once(limiter, 1).status, LIMITER_DENIED);
        advance(client, 1);
        CHECK_OK(try_once(limiter, 1).status);
        admitted++;
    }
    close_client(client, limiter);
    return admitted;
}

static void B_019_B_041_B_046_B_146_saturated_rates_neither_drift_up_nor_down(void) {
    static const struct {
        uint64_t capacity, refill, period_us, seconds;
    } rows[] = {{1, 8000, S(1), 10}, {1000, 1000, S(60), 60}, {7, 6000, S(1), 10}, {1, 10, S(1), 30},
                {10, 10, S(60), 60}, {3, 7, S(11), 1000},     {1, 3, S(1), 300},   {2, 999983, S(7), 1}};
    size_t i;
    for (i = 0; i < CHECK_COUNT(rows); i++) {
        char about[80];
        uint64_t seconds = (uint64_t)check_times((int)rows[i].seconds);
        uint64_t earned = rows[i].refill * seconds * 1000000 / rows[i].period_us;
        uint64_t got;
        /* Each admission takes two calls, on Redis two round trips: minutes. */
        if (getenv("LIMITER_TEST_URL") && earned > 3000) continue;
        got = saturate(limiter_token_bucket(rows[i].capacity, rows[i].refill, rows[i].period_us),
                       seconds);
        snprintf(about, sizeof about, "row %zu admitted %" PRIu64, i, got);
        check_context(about);
        CHECK(got <= rows[i].capacity + earned);
        CHECK(got + 1 >= rows[i].capacity + earned);
        /* a pacer without burst: one at once, then the same rate */
        got = saturate(limiter_pacer(rows[i].refill, rows[i].period_us, 0), seconds);
        snprintf(about, sizeof about, "pacer row %zu admitted %" PRIu64, i, got);
        check_context(about);
        CHECK(got <= 1 + earned);
        /* obeyed waits are whole microseconds, so each admission may come up to one late */
        CHECK(got + 1 + got * rows[i].refill / rows[i].period_us >= earned);
    }
}

static void B_034_the_edge_of_a_window_is_never_an_error(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_fixed_window(1, MS(10)));
    int i;
    for (i = 0; i < 3000; i++) {
        limiter_decision got = try_once(limiter, 1);
        CHECK_OK(got.status);
        got = try_once(limiter, 1);
        CHECK_STATUS(got.status, LIMITER_DENIED);
        CHECK(got.retry_after_us >= 1 && got.retry_after_us <= 10000);
        advance(client, got.retry_after_us - 1); /* the window's last microsecond */
        CHECK_STATUS(try_once(limiter, 1).status, LIMITER_DENIED);
        advance(client, 1);
    }
    close_client(client, limiter);
}

static void B_065_a_clock_that_steps_back_is_no_time_passed(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_token_bucket(10, 1, S(1)));
    uint64_t start;
    CHECK_EQ(drain(limiter, NULL), 10);
    advance(client, S(10));
    CHECK_EQ(drain(limiter, NULL), 10);
    start = limiter_clock_now_us(client);
    CHECK_OK(limiter_clock_set_us(client, start - S(3)));
    CHECK_EQ(drain(limiter, NULL), 0);
    CHECK_EQ(try_once(limiter, 1).retry_after_us, S(1)); /* no stall of three seconds */
    advance(client, S(1));
    CHECK_EQ(drain(limiter, NULL), 1); /* it goes on at once, and nothing is credited twice */
    CHECK_OK(limiter_clock_set_us(client, start));
    CHECK(drain(limiter, NULL) <= 2);
    close_client(client, limiter);
}

static void B_145_a_key_in_debt_survives_a_flood_of_others(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_token_bucket(1, 1, H(1)));
    int i, keys = check_times(200000);
    CHECK_OK(acquire(limiter, "debtor", 1, 0).status);
    for (i = 0; i < keys; i++) {
        char key[24];
        if (i % 1000 == 0) advance(client, S(1)); /* lets none of them become as new */
        snprintf(key, sizeof key, "key %d", i);
        CHECK_OK(acquire(limiter, key, 1, 0).status);
    }
    CHECK_STATUS(acquire(limiter, "debtor", 1, 0).status, LIMITER_DENIED);
    advance(client, H(1));
    CHECK_OK(acquire(limiter, "debtor", 1, 0).status);
    close_client(client, limiter);
}

typedef struct crowd {
    limiter_t *limiter;
    int calls;
    int admitted;
} crowd;

static void *crowd_run(void *argument) {
    crowd *self = (crowd *)argument;
    int i;
    for (i = 0; i < self->calls; i++) self->admitted += try_once(self->limiter, 1).status == LIMITER_OK;
    return NULL;
}

static void B_142_a_crowd_of_threads_gets_exactly_the_capacity(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_token_bucket(100, 1, H(1)));
    pthread_t threads[64];
    crowd crowds[64];
    int i, admitted = 0;
    for (i = 0; i < 64; i++) {
        crowds[i].limiter = limiter;
        crowds[i].calls = 156;
        crowds[i].admitted = 0;
        CHECK(pthread_create(&threads[i], NULL, crowd_run, &crowds[i]) == 0);
    }
    for (i = 0; i < 64; i++) {
        pthread_join(threads[i], NULL);
        admitted += crowds[i].admitted;
    }
    CHECK_EQ(admitted, 100);
    close_client(client, limiter);
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        CHECK_TEST(inputs_table),
        CHECK_TEST(precision_table),
        CHECK_TEST(several_table),
        CHECK_TEST(changes_table),
        CHECK_TEST(waits_table),
        CHECK_TEST(B_019_B_041_B_046_B_146_saturated_rates_neither_drift_up_nor_down),
        CHECK_TEST(B_034_the_edge_of_a_window_is_never_an_error),
        CHECK_TEST(B_065_a_clock_that_steps_back_is_no_time_passed),
        CHECK_TEST(B_145_a_key_in_debt_survives_a_flood_of_others),
        CHECK_TEST(B_142_a_crowd_of_threads_gets_exactly_the_capacity),
    };
    return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
