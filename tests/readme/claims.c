/*
 * What README.md says under "How it compares", and of the token bucket's first minute, as assertions.
 */
#include <limiter.h>

#include <stdio.h>
#include <string.h>

static limiter_client_t *client;
static int passed, failed;

#define EXPECT(what)                                                                               \
    do {                                                                                           \
        if (what) {                                                                                \
            passed++;                                                                              \
        } else {                                                                                   \
            failed++;                                                                              \
            fprintf(stderr, "tests/readme/claims.c:%d: not so: %s\n", __LINE__, #what);            \
        }                                                                                          \
    } while (0)

static limiter_t *made(const char *name, const limiter_limit *limits, size_t count) {
    char why[LIMITER_ERRBUF_SIZE] = "";
    limiter_t *limiter = NULL;
    if (limiter_new(client, name, limits, count, &limiter, why, sizeof why) != LIMITER_OK) {
        fprintf(stderr, "tests/readme/claims.c: %s: %s\n", name, why);
        failed++;
    }
    return limiter;
}

static void pass_us(uint64_t us) {
    EXPECT(limiter_clock_advance_us(client, us) == LIMITER_OK);
}

static limiter_status take(limiter_t *limiter, limiter_decision *answer) {
    return limiter_acquire(limiter, NULL, answer);
}

/* Tries each `step_us` for as long as `steps` say; answers how many were admitted. */
static unsigned admitted_in(limiter_t *limiter, unsigned steps, uint64_t step_us) {
    unsigned admitted = 0, i;
    limiter_decision answer;
    for (i = 0; i < steps; i++) {
        if (take(limiter, &answer) == LIMITER_OK) admitted++;
        if (limiter_clock_advance_us(client, step_us) != LIMITER_OK) failed++;
    }
    return admitted;
}

static void idle_time_is_not_credited_beyond_the_capacity(void) {
    limiter_limit limit = limiter_token_bucket(1, 1, 100 * LIMITER_MILLISECOND);
    limiter_t *limiter;
    limit.flags = LIMITER_INTERVAL | LIMITER_START_EMPTY;
    limiter = made("idle", &limit, 1);
    pass_us(25 * LIMITER_SECOND);
    EXPECT(admitted_in(limiter, 200, 500) <= 2); /* a tenth of a second: one at either end */
    limiter_free(limiter);
}

static void refused_callers_book_nothing(void) {
    limiter_limit limit = limiter_token_bucket(1, 1, LIMITER_SECOND);
    limiter_request request = LIMITER_INIT(limiter_request);
    limiter_t *limiter = made("refused", &limit, 1);
    limiter_decision answer;
    int i;

    EXPECT(take(limiter, &answer) == LIMITER_OK);
    request.wait_ms = 500;
    for (i = 0; i < 10; i++) EXPECT(limiter_acquire(limiter, &request, &answer) == LIMITER_DENIED);
    EXPECT(answer.retry_after_us == LIMITER_SECOND);
    limiter_free(limiter);
}

static void ended_waits_hold_nothing_and_swallow_nothing(void) {
    limiter_limit limit = limiter_semaphore(1);
    limiter_request request = LIMITER_INIT(limiter_request);
    limiter_t *limiter = made("waits", &limit, 1);
    limiter_decision held, late, cancelled, wanted, answer;
    limiter_queue_t *queue = NULL;

    EXPECT(limiter_queue_new(client, &queue) == LIMITER_OK);
    EXPECT(take(limiter, &held) == LIMITER_OK);
    request.wait_ms = 1900;
    EXPECT(limiter_submit(queue, limiter, &request, &late) == LIMITER_PENDING);
    request.wait_ms = -1;
    EXPECT(limiter_submit(queue, limiter, &request, &cancelled) == LIMITER_PENDING);
    EXPECT(limiter_submit(queue, limiter, &request, &wanted) == LIMITER_PENDING);

    pass_us(1899 * LIMITER_MILLISECOND);
    EXPECT(limiter_queue_poll(queue, &answer, 1, 0) == 0);
    pass_us(LIMITER_MILLISECOND);
    EXPECT(limiter_queue_poll(queue, &answer, 1, 0) == 1);
    EXPECT(answer.op == late.op && answer.status == LIMITER_DENIED && answer.permit == 0);
    EXPECT(limiter_cancel(client, cancelled.op, 0) == LIMITER_OK);
    EXPECT(limiter_queue_poll(queue, &answer, 1, 0) == 1);
    EXPECT(answer.op == cancelled.op && answer.status == LIMITER_CANCELLED);

    EXPECT(limiter_release(limiter, held.permit) == LIMITER_OK);
    EXPECT(limiter_queue_poll(queue, &answer, 1, 0) == 1);
    EXPECT(answer.op == wanted.op && answer.status == LIMITER_OK);
    EXPECT(limiter_release(limiter, answer.permit) == LIMITER_OK);
    EXPECT(limiter_release(limiter, answer.permit) == LIMITER_STALE);
    EXPECT(take(limiter, &answer) == LIMITER_OK);
    EXPECT(take(limiter, &answer) == LIMITER_DENIED);
    limiter_queue_free(queue);
    limiter_free(limiter);
}

static void one_name_for_two_kinds_is_no_conflict(void) {
    limiter_limit places = limiter_semaphore(1), rate = limiter_token_bucket(2, 1, LIMITER_HOUR);
    limiter_t *first = made("shared", &places, 1), *second = made("shared", &rate, 1);
    limiter_decision answer;

    EXPECT(take(first, &answer) == LIMITER_OK && answer.limit == 1);
    EXPECT(take(second, &answer) == LIMITER_OK && answer.limit == 2);
    EXPECT(take(first, &answer) == LIMITER_DENIED);
    EXPECT(take(second, &answer) == LIMITER_OK);
    limiter_free(first);
    limiter_free(second);
}

static void periods_go_down_to_a_microsecond(void) {
    limiter_limit limit = limiter_token_bucket(1, 1, 1);
    limiter_t *limiter = made("short", &limit, 1);
    limiter_decision answer;

    EXPECT(take(limiter, &answer) == LIMITER_OK);
    EXPECT(take(limiter, &answer) == LIMITER_DENIED && answer.retry_after_us == 1);
    pass_us(1);
    EXPECT(take(limiter, &answer) == LIMITER_OK);
    limiter_free(limiter);
}

static void a_pacer_never_exceeds_its_rate(void) {
    limiter_limit slow = limiter_pacer(10, LIMITER_SECOND, 5);
    limiter_limit fast = limiter_pacer(50000, LIMITER_SECOND, 0);
    limiter_t *limiter = made("slow pacer", &slow, 1);
    unsigned admitted = admitted_in(limiter, 10000, LIMITER_MILLISECOND);

    EXPECT(admitted >= 10 * 10 - 1 && admitted <= 10 * 10 + 5 + 1);
    limiter_free(limiter);
    limiter = made("fast pacer", &fast, 1);
    admitted = admitted_in(limiter, 100000, 10);
    EXPECT(admitted >= 50000 - 1 && admitted <= 50000 + 1);
    limiter_free(limiter);
}

static void several_limits_are_charged_together_or_not_at_all(void) {
    static const uint64_t only_the_first[] = {1, 0};
    limiter_request request = LIMITER_INIT(limiter_request);
    limiter_limit limits[2];
    limiter_t *limiter;
    limiter_decision answer;
    int i;

    limits[0] = limiter_token_bucket(10, 1, LIMITER_HOUR);
    limits[1] = limiter_token_bucket(1, 1, LIMITER_HOUR);
    limiter = made("together", limits, 2);
    EXPECT(take(limiter, &answer) == LIMITER_OK);
    for (i = 0; i < 4; i++) EXPECT(take(limiter, &answer) == LIMITER_DENIED && answer.index == 1);
    request.weights = only_the_first;
    request.weights_len = 2;
    for (i = 0; i < 9; i++) EXPECT(limiter_acquire(limiter, &request, &answer) == LIMITER_OK);
    EXPECT(limiter_acquire(limiter, &request, &answer) == LIMITER_DENIED && answer.index == 0);
    limiter_free(limiter);
}

static void retry_after_is_the_true_wait(void) {
    limiter_limit limit = limiter_token_bucket(1, 1, 100 * LIMITER_SECOND);
    limiter_t *limiter = made("wait", &limit, 1);
    limiter_decision answer;

    EXPECT(take(limiter, &answer) == LIMITER_OK);
    EXPECT(take(limiter, &answer) == LIMITER_DENIED);
    EXPECT(answer.retry_after_us == 100 * LIMITER_SECOND);
    pass_us(answer.retry_after_us - 1);
    EXPECT(take(limiter, &answer) == LIMITER_DENIED && answer.retry_after_us == 1);
    pass_us(1);
    EXPECT(take(limiter, &answer) == LIMITER_OK);
    limiter_free(limiter);
}

static void a_clock_that_steps_back_is_not_credited(void) {
    limiter_limit limit = limiter_token_bucket(1, 1, LIMITER_SECOND);
    limiter_t *limiter = made("back", &limit, 1);
    uint64_t now = limiter_clock_now_us(client);
    limiter_decision answer;

    EXPECT(take(limiter, &answer) == LIMITER_OK);
    EXPECT(limiter_clock_set_us(client, now - 10 * LIMITER_SECOND) == LIMITER_OK);
    EXPECT(take(limiter, &answer) == LIMITER_DENIED && answer.retry_after_us == LIMITER_SECOND);
    pass_us(LIMITER_SECOND);
    EXPECT(take(limiter, &answer) == LIMITER_OK);
    EXPECT(take(limiter, &answer) == LIMITER_DENIED);
    limiter_free(limiter);
}

static void a_bucket_in_debt_is_not_forgotten(void) {
    limiter_limit limit = limiter_token_bucket(1, 1, 2 * LIMITER_HOUR);
    limiter_t *limiter = made("slow", &limit, 1);
    limiter_decision answer;

    EXPECT(take(limiter, &answer) == LIMITER_OK);
    pass_us(61 * LIMITER_MINUTE);
    EXPECT(take(limiter, &answer) == LIMITER_DENIED);
    limiter_free(limiter);
}

static void the_first_minute(void) {
    limiter_limit bucket = limiter_token_bucket(10, 10, LIMITER_MINUTE);
    limiter_limit strict = limiter_sliding_log(10, LIMITER_MINUTE);
    limiter_t *limiter = made("minute", &bucket, 1);
    EXPECT(admitted_in(limiter, 601, 100 * LIMITER_MILLISECOND) == 20);
    limiter_free(limiter);
    limiter = made("strict minute", &strict, 1);
    EXPECT(admitted_in(limiter, 600, 100 * LIMITER_MILLISECOND) == 10);
    limiter_free(limiter);
}

int main(void) {
    char why[LIMITER_ERRBUF_SIZE] = "";
    limiter_config_t *config = limiter_config_new();

    if (limiter_config_set(config, "clock", "virtual", why, sizeof why) != LIMITER_OK
        || limiter_client_open("memory://", config, &client, why, sizeof why) != LIMITER_OK) {
        fprintf(stderr, "tests/readme/claims.c: %s\n", why);
        return 1;
    }
    idle_time_is_not_credited_beyond_the_capacity();
    refused_callers_book_nothing();
    ended_waits_hold_nothing_and_swallow_nothing();
    one_name_for_two_kinds_is_no_conflict();
    periods_go_down_to_a_microsecond();
    a_pacer_never_exceeds_its_rate();
    several_limits_are_charged_together_or_not_at_all();
    retry_after_is_the_true_wait();
    a_clock_that_steps_back_is_not_credited();
    a_bucket_in_debt_is_not_forgotten();
    the_first_minute();
    limiter_client_free(client);
    limiter_config_free(config);
    printf("readme-claims: %d passed, %d failed\n", passed, failed);
    return failed == 0 ? 0 : 1;
}
