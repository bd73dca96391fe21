/* Counters and the log hook. */
#include "steps.h"

static void every_counter_counts_its_own(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_semaphore(2));
    limiter_queue_t *queue = NULL;
    limiter_request request = ask(NULL, 1, -1);
    limiter_decision first, second, pending;
    limiter_stats s = stats_of(client);
    CHECK(s.granted == 0 && s.denied == 0 && s.keys == 0 && s.fork_generation == 0);
    first = try_once(limiter, 1);
    second = try_once(limiter, 1);
    s = stats_of(client);
    CHECK(s.granted == 2 && s.in_flight == 2 && s.keys == 1 && s.released == 0);
    CHECK_STATUS(try_once(limiter, 1).status, LIMITER_DENIED);
    CHECK_STATUS(try_once(limiter, 3).status, LIMITER_NEVER);
    s = stats_of(client);
    CHECK(s.denied == 1 && s.never == 1 && s.granted == 2);
    CHECK_OK(limiter_queue_new(client, &queue));
    CHECK_STATUS(limiter_submit(queue, limiter, &request, &pending), LIMITER_PENDING);
    CHECK_EQ(stats_of(client).waiting, 1);
    CHECK_OK(limiter_cancel(client, pending.op, 0));
    s = stats_of(client);
    CHECK(s.waiting == 0 && s.cancelled == 1 && s.denied == 1);
    CHECK_OK(limiter_settle(limiter, first.permit, 1));
    CHECK_OK(limiter_release(limiter, first.permit));
    CHECK_STATUS(limiter_release(limiter, first.permit), LIMITER_STALE);
    s = stats_of(client);
    CHECK(s.released == 1 && s.in_flight == 1 && s.settled == 1);
    CHECK_OK(limiter_release(limiter, second.permit));
    s = stats_of(client);
    CHECK(s.in_flight == 0 && s.released == 2 && s.lost == 0 && s.overloaded == 0);
    CHECK(s.degraded == 0 && s.backend_errors == 0 && s.backend_calls == 0 && s.connects == 0);
    limiter_queue_free(queue);
    close_client(client, limiter);
}

static void a_deadline_counts_as_denied_once(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_semaphore(1));
    limiter_queue_t *queue = NULL;
    limiter_request request = ask(NULL, 1, 100);
    limiter_decision pending;
    CHECK_OK(try_once(limiter, 1).status);
    CHECK_OK(limiter_queue_new(client, &queue));
    CHECK_STATUS(limiter_submit(queue, limiter, &request, &pending), LIMITER_PENDING);
    advance(client, MS(100));
    CHECK_EQ(stats_of(client).denied, 1);
    CHECK_EQ(stats_of(client).waiting, 0);
    limiter_queue_free(queue);
    close_client(client, limiter);
}

static void keys_that_are_as_new_are_dropped_in_time(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_token_bucket(1, 1, S(1)));
    int i, n = check_times(300000);
    for (i = 0; i < n; i++) { /* each key is used once, and full again a second later */
        char key[24];
        snprintf(key, sizeof key, "%d", i);
        CHECK_OK(acquire(limiter, key, 1, 0).status);
        if (i % 100 == 0) advance(client, S(1));
    }
    if (n >= 100000) CHECK(stats_of(client).keys < 30000);
    close_client(client, limiter);
}

static void the_virtual_clock_shows_what_it_was_set_to(void) {
    limiter_client_t *client = open_virtual(), *real = open_real();
    uint64_t start = limiter_clock_now_us(client);
    struct timespec wall;
    int64_t difference;
    CHECK(start > 0);
    CHECK_EQ(limiter_clock_now_us(client), start);
    advance(client, 12345);
    CHECK_EQ(limiter_clock_now_us(client), start + 12345);
    CHECK_OK(limiter_clock_set_us(client, start + S(100)));
    CHECK_EQ(limiter_clock_now_us(client), start + S(100));
    advance(client, 0);
    CHECK_EQ(limiter_clock_now_us(client), start + S(100));
    clock_gettime(CLOCK_REALTIME, &wall);
    difference = (int64_t)limiter_clock_now_us(real) - ((int64_t)wall.tv_sec * 1000000 + wall.tv_nsec / 1000);
    CHECK(difference > -5000000 && difference < 5000000);
    CHECK_OK(limiter_client_free(real));
    CHECK_OK(limiter_client_free(client));
}

static volatile int log_calls, log_worst;
static char log_last[512];

static void on_log(void *user_data, int32_t level, const char *message) {
    CHECK(user_data == &log_calls);
    CHECK(level >= 1 && level <= 4 && message != NULL && message[0] != '\0');
    snprintf(log_last, sizeof log_last, "%s", message);
    log_worst = level > log_worst ? level : log_worst;
    __sync_add_and_fetch(&log_calls, 1);
}

static int calls_at_level(int32_t level, limiter_log_fn log) {
    limiter_config_t *config = limiter_config_new();
    limiter_client_t *client = NULL;
    limiter_t *limiter;
    limiter_request request = ask(NULL, 1, 0);
    limiter_decision held;
    log_calls = log_worst = 0;
    CHECK_OK(limiter_config_set(config, "clock", "virtual", NULL, 0));
    limiter_config_set_log(config, level, log, (void *)(uintptr_t)&log_calls);
    CHECK_OK(limiter_client_open(NULL, config, &client, NULL, 0));
    limiter_config_free(config);
    limiter = make1(client, limiter_semaphore(1));
    request.flags = LIMITER_NO_RENEW;
    request.lease_ms = 100;
    CHECK_OK(limiter_acquire(limiter, &request, &held));
    advance(client, MS(100));
    CHECK_OK(limiter_client_shutdown(client, 10000)); /* which lets the callbacks run */
    close_client(client, limiter);
    return log_calls;
}

/* Opening and closing are debug records, a lost lease is a warning. */
static void the_log_hook_hears_up_to_its_level(void) {
    CHECK(calls_at_level(4, on_log) >= 3);
    CHECK_EQ(log_worst, 4);
    CHECK_EQ(calls_at_level(3, on_log), 1);
    CHECK_EQ(log_worst, 2);
    CHECK_EQ(calls_at_level(2, on_log), 1);
    CHECK(strstr(log_last, "lease") != NULL);
    CHECK_EQ(calls_at_level(1, on_log), 0);
    CHECK_EQ(calls_at_level(0, on_log), 0);
    CHECK_EQ(calls_at_level(-1, on_log), 0);
    CHECK_EQ(calls_at_level(4, NULL), 0);
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        CHECK_TEST(every_counter_counts_its_own),
        CHECK_TEST(a_deadline_counts_as_denied_once),
        CHECK_TEST(keys_that_are_as_new_are_dropped_in_time),
        CHECK_TEST(the_virtual_clock_shows_what_it_was_set_to),
        CHECK_TEST(the_log_hook_hears_up_to_its_level),
    };
    return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
