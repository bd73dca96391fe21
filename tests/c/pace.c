/* Booking the next slot: limiter_pace and limiter_pace_ms. */
#include "steps.h"

static limiter_decision pace(limiter_t *limiter, uint64_t weight, int32_t wait_ms) {
    limiter_request request = ask(NULL, weight, wait_ms);
    limiter_decision out = LIMITER_INIT(limiter_decision);
    limiter_status status = limiter_pace(limiter, &request, &out);
    CHECK_STATUS(out.status, status);
    return out;
}

static void slots_are_evenly_spaced_and_ones_own(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_pacer(10, S(1), 0));
    int i;
    for (i = 0; i < 20; i++) {
        limiter_decision got = pace(limiter, 1, -1);
        CHECK_OK(got.status);
        CHECK_EQ(got.retry_after_us, i * MS(100));
        CHECK(got.permit != 0);
    }
    advance(client, S(2));
    CHECK_EQ(pace(limiter, 1, -1).retry_after_us, 0);
    close_client(client, limiter);
}

static void any_rate_can_be_paced(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_token_bucket(2, 1, S(1)));
    CHECK_EQ(pace(limiter, 2, -1).retry_after_us, 0);
    CHECK_EQ(pace(limiter, 1, -1).retry_after_us, S(1));
    CHECK_EQ(pace(limiter, 2, -1).retry_after_us, S(3));
    CHECK_STATUS(pace(limiter, 3, -1).status, LIMITER_NEVER);
    limiter_free(limiter);
    limiter = make1(client, limiter_sliding_log(2, S(10)));
    CHECK_EQ(pace(limiter, 2, -1).retry_after_us, 0);
    CHECK_EQ(pace(limiter, 2, -1).retry_after_us, S(10));
    CHECK_EQ(pace(limiter, 1, -1).retry_after_us, S(20));
    close_client(client, limiter);
}

static void a_delay_beyond_the_callers_is_not_booked(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_pacer(1, S(1), 0));
    int i;
    CHECK_EQ(pace(limiter, 1, 0).retry_after_us, 0);
    for (i = 0; i < 10; i++) {
        limiter_decision got = pace(limiter, 1, 500);
        CHECK_STATUS(got.status, LIMITER_DENIED);
        CHECK_EQ(got.retry_after_us, S(1));
        CHECK_EQ(got.permit, 0);
        CHECK_STATUS(pace(limiter, 1, 0).status, LIMITER_DENIED);
        CHECK_STATUS(pace(limiter, 1, 999).status, LIMITER_DENIED);
    }
    CHECK_EQ(pace(limiter, 1, 1000).retry_after_us, S(1)); /* exactly the longest that is accepted */
    CHECK_EQ(stats_of(client).denied, 30);
    close_client(client, limiter);
}

static void a_slot_to_come_can_be_given_back(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_pacer(1, S(1), 0));
    limiter_permit second;
    CHECK_EQ(pace(limiter, 1, -1).retry_after_us, 0);
    second = pace(limiter, 1, -1).permit;
    CHECK_OK(limiter_release(limiter, second));
    CHECK_STATUS(limiter_release(limiter, second), LIMITER_STALE);
    CHECK_EQ(pace(limiter, 1, -1).retry_after_us, S(1)); /* it is free again */
    close_client(client, limiter);
}

static void a_penalty_puts_off_the_next_slot(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_pacer(1, S(1), 0));
    CHECK_OK(limiter_penalize(limiter, NULL, 0, S(30)));
    CHECK_EQ(pace(limiter, 1, -1).retry_after_us, S(30));
    CHECK_EQ(pace(limiter, 1, -1).retry_after_us, S(31));
    close_client(client, limiter);
}

static void a_semaphore_cannot_be_paced(void) {
    limiter_client_t *client = open_virtual();
    limiter_limit limits[2];
    limiter_t *limiter;
    limits[0] = limiter_pacer(1, S(1), 0);
    limits[1] = limiter_semaphore(1);
    limiter = make(client, "both", limits, 2);
    CHECK_STATUS(pace(limiter, 1, -1).status, LIMITER_INVALID);
    CHECK_EQ(limiter_pace_ms(limiter, NULL, 0, 1), LIMITER_INVALID);
    CHECK_OK(try_once(limiter, 1).status); /* nothing was taken */
    close_client(client, limiter);
}

static void milliseconds_are_rounded_up_and_never_is_unmistakable(void) {
    limiter_client_t *client = open_virtual();
    limiter_limit slow = limiter_token_bucket(1, 1, YEARS(10));
    limiter_t *limiter = make1(client, limiter_token_bucket(2, 3, S(1)));
    CHECK_EQ(limiter_pace_ms(limiter, NULL, 0, 2), 0);
    CHECK_EQ(limiter_pace_ms(limiter, NULL, 0, 1), 334); /* a third of a second */
    CHECK_EQ(limiter_pace_ms(limiter, "other", 5, 1), 0);
    CHECK_EQ(limiter_pace_ms(limiter, NULL, 0, 3), LIMITER_PACE_NEVER);
    CHECK_EQ(limiter_pace_ms(limiter, NULL, 0, UINT64_MAX), LIMITER_PACE_NEVER);
    CHECK_EQ(limiter_pace_ms(limiter, "third", 5, 0), 0);
    CHECK_EQ(limiter_pace_ms(limiter, "third", 5, 2), 0); /* 0 took nothing */
    advance(client, 1);
    CHECK_EQ(limiter_pace_ms(limiter, "other", 5, 1), 0);
    CHECK_EQ(limiter_pace_ms(limiter, "other", 5, 1), 334);
    limiter_free(limiter);
    limiter = make(client, "slow", &slow, 1);
    CHECK_EQ(limiter_pace_ms(limiter, NULL, 0, 1), 0);
    CHECK_EQ(limiter_pace_ms(limiter, NULL, 0, 1), YEARS(10) / 1000);
    CHECK_EQ(limiter_pace_ms(limiter, NULL, 0, 1), LIMITER_PACE_NEVER); /* not within 10 years */
    CHECK_STATUS(pace(limiter, 1, -1).status, LIMITER_DENIED);
    close_client(client, limiter);
}

/* What the failure policy denies is not what can never fit. */
static void a_policy_that_denies_is_told_from_never(void) {
    static const struct {
        const char *policy;
        int64_t answer;
    } cases[] = {{"error", LIMITER_BACKEND}, {"closed", LIMITER_BACKEND}, {"open", 0}, {"local", 0}};
    size_t i;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        limiter_config_t *config = limiter_config_new();
        limiter_client_t *client = NULL;
        limiter_t *limiter;
        CHECK_OK(limiter_config_set(config, "on_failure", cases[i].policy, NULL, 0));
        CHECK_OK(limiter_client_open("unix:///nowhere/at/all", config, &client, NULL, 0));
        limiter_config_free(config);
        limiter = make1(client, limiter_pacer(1, S(1), 0));
        CHECK_EQ(limiter_pace_ms(limiter, NULL, 0, 1), cases[i].answer);
        close_client(client, limiter);
    }
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        CHECK_TEST(slots_are_evenly_spaced_and_ones_own),
        CHECK_TEST(any_rate_can_be_paced),
        CHECK_TEST(a_delay_beyond_the_callers_is_not_booked),
        CHECK_TEST(a_slot_to_come_can_be_given_back),
        CHECK_TEST(a_penalty_puts_off_the_next_slot),
        CHECK_TEST(a_semaphore_cannot_be_paced),
        CHECK_TEST(milliseconds_are_rounded_up_and_never_is_unmistakable),
        CHECK_TEST(a_policy_that_denies_is_told_from_never),
    };
    return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
