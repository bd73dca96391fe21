/* Opening, sharing, shutting down and freeing, in every order the header allows. */
#include "fixture.h"

static void opens_with_defaults_and_starts_no_thread(void) {
    static const char *const urls[] = {NULL, "memory://"};
    size_t i;
    for (i = 0; i < CHECK_COUNT(urls); i++) {
        limiter_client_t *client = NULL;
        limiter_t *limiter;
        CHECK_OK(limiter_client_open(urls[i], NULL, &client, NULL, 0));
        CHECK(client != NULL);
        limiter = make1(client, limiter_token_bucket(2, 1, LIMITER_SECOND));
        CHECK_OK(try_once(limiter, 1).status);
        CHECK_EQ(thread_count(), 1); /* "there are none until something needs one" */
        close_client(client, limiter);
    }
}

static void frees_ignore_null(void) {
    limiter_config_free(NULL);
    limiter_free(NULL);
    limiter_queue_free(NULL);
    CHECK_OK(limiter_client_free(NULL));
}

static void settings_are_copied_at_open(void) {
    limiter_config_t *config = limiter_config_new();
    limiter_client_t *first, *second;
    CHECK_OK(limiter_config_set(config, "clock", "virtual", NULL, 0));
    CHECK_OK(limiter_client_open(NULL, config, &first, NULL, 0));
    CHECK_OK(limiter_config_set(config, "clock", "monotonic", NULL, 0));
    CHECK_OK(limiter_client_open(NULL, config, &second, NULL, 0));
    limiter_config_free(config);
    CHECK_OK(limiter_clock_advance_us(first, 1));
    CHECK_STATUS(limiter_clock_advance_us(second, 1), LIMITER_UNSUPPORTED);
    CHECK_OK(limiter_client_free(first));
    CHECK_OK(limiter_client_free(second));
}

static void limits_and_name_are_read_during_the_call_only(void) {
    limiter_client_t *client = open_virtual();
    limiter_limit limits[2];
    char name[16] = "gone";
    limiter_t *limiter;
    limits[0] = limiter_semaphore(1);
    limits[1] = limiter_token_bucket(5, 1, LIMITER_HOUR);
    limiter = make(client, name, limits, 2);
    memset(limits, 0xff, sizeof limits);
    memset(name, 0xff, sizeof name);
    CHECK_OK(try_once(limiter, 1).status);
    CHECK_STATUS(try_once(limiter, 1).status, LIMITER_DENIED);
    close_client(client, limiter);
}

static void handles_of_one_name_share_state(void) {
    limiter_client_t *client = open_virtual();
    limiter_limit limit = limiter_semaphore(1);
    limiter_t *a = make(client, "shared", &limit, 1), *b = make(client, "shared", &limit, 1);
    limiter_t *other = make(client, "other", &limit, 1);
    limiter_decision held = try_once(a, 1);
    CHECK_OK(held.status);
    CHECK_STATUS(try_once(b, 1).status, LIMITER_DENIED);
    CHECK_OK(try_once(other, 1).status);
    /* Any limiter of the client takes a permit back, even one of another name. */
    CHECK_OK(limiter_release(other, held.permit));
    CHECK_OK(try_once(b, 1).status);
    limiter_free(a);
    limiter_free(other);
    close_client(client, b);
}

static void kinds_of_one_name_do_not_meet(void) {
    limiter_client_t *client = open_virtual();
    limiter_limit semaphore = limiter_semaphore(1), bucket = limiter_token_bucket(1, 1, LIMITER_HOUR);
    limiter_t *a = make(client, "name", &semaphore, 1), *b = make(client, "name", &bucket, 1);
    CHECK_OK(try_once(a, 1).status);
    CHECK_OK(try_once(b, 1).status);
    CHECK_STATUS(try_once(a, 1).status, LIMITER_DENIED);
    CHECK_STATUS(try_once(b, 1).status, LIMITER_DENIED);
    limiter_free(a);
    close_client(client, b);
}

static void clients_of_one_process_do_not_meet(void) {
    limiter_client_t *one = open_virtual(), *two = open_virtual();
    limiter_t *a = make1(one, limiter_semaphore(1)), *b = make1(two, limiter_semaphore(1));
    limiter_decision held = try_once(a, 1);
    CHECK_OK(held.status);
    CHECK_OK(try_once(b, 1).status);
    close_client(two, b);
    CHECK_OK(limiter_release(a, held.permit));
    close_client(one, a);
}

static void a_freed_limiter_leaves_the_names_state(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_semaphore(1));
    limiter_decision held = try_once(limiter, 1);
    limiter_free(limiter);
    limiter = make1(client, limiter_semaphore(1));
    CHECK_STATUS(try_once(limiter, 1).status, LIMITER_DENIED);
    CHECK_OK(limiter_release(limiter, held.permit));
    CHECK_OK(try_once(limiter, 1).status);
    close_client(client, limiter);
}

/* Every call on a client that is shut down answers CLOSED, through handles that outlive it. */
static void check_closed(limiter_t *limiter, limiter_queue_t *queue, limiter_permit held) {
    limiter_request request = LIMITER_INIT(limiter_request);
    limiter_decision decision;
    request.user_data = 42;
    CHECK_STATUS(limiter_acquire(limiter, &request, &decision), LIMITER_CLOSED);
    CHECK_STATUS(decision.status, LIMITER_CLOSED);
    CHECK_EQ(decision.permit, 0);
    CHECK_EQ(decision.user_data, 42);
    request.wait_ms = 10000;
    CHECK_STATUS(limiter_acquire(limiter, &request, &decision), LIMITER_CLOSED);
    CHECK_STATUS(limiter_peek(limiter, &request, &decision), LIMITER_CLOSED);
    CHECK_STATUS(limiter_try_many(limiter, &request, &decision, 1), LIMITER_CLOSED);
    CHECK_STATUS(limiter_acquire_cb(limiter, &request, (limiter_completion_fn)abort, NULL, NULL),
                 LIMITER_CLOSED);
    CHECK_STATUS(limiter_reset(limiter, NULL, 0), LIMITER_CLOSED);
    CHECK_STATUS(limiter_penalize(limiter, NULL, 0, 1), LIMITER_CLOSED);
    CHECK_STATUS(limiter_renew(limiter, held, 0), LIMITER_CLOSED);
    CHECK_STATUS(limiter_settle(limiter, held, 1), LIMITER_CLOSED);
    CHECK_STATUS(limiter_release(limiter, held), LIMITER_CLOSED);
    CHECK_STATUS(limiter_submit(queue, limiter, &request, &decision), LIMITER_CLOSED);
    CHECK_EQ(decision.op, 0);
    CHECK_STATUS(limiter_queue_poll(queue, &decision, 1, 0), LIMITER_CLOSED);
    CHECK_STATUS(limiter_queue_poll(queue, &decision, 1, -1), LIMITER_CLOSED);
}

static void shutdown_closes_every_verb_and_may_be_repeated(void) {
    limiter_client_t *client = open_real();
    limiter_t *limiter = make1(client, limiter_semaphore(2)), *pacer;
    limiter_limit pace = limiter_pacer(1, 1000, 0);
    limiter_queue_t *queue = NULL;
    limiter_decision held = try_once(limiter, 1), decision;
    limiter_request request = LIMITER_INIT(limiter_request);
    char error[LIMITER_ERRBUF_SIZE] = "";
    limiter_t *late = (limiter_t *)&held;
    limiter_queue_t *late_queue = (limiter_queue_t *)&held;
    pacer = make(client, "pacer", &pace, 1);
    CHECK_OK(limiter_queue_new(client, &queue));
    CHECK_OK(limiter_client_shutdown(client, 1000));
    CHECK_OK(limiter_client_shutdown(client, 0));
    CHECK_OK(limiter_client_shutdown(client, -1));
    check_closed(limiter, queue, held.permit);
    CHECK_STATUS(limiter_pace(pacer, &request, &decision), LIMITER_CLOSED);
    CHECK_EQ(limiter_pace_ms(pacer, NULL, 0, 1), LIMITER_CLOSED);
    CHECK_STATUS(limiter_new(client, "x", &pace, 1, &late, error, sizeof error), LIMITER_CLOSED);
    CHECK(late == NULL && error[0] != '\0');
    CHECK_STATUS(limiter_queue_new(client, &late_queue), LIMITER_CLOSED);
    CHECK(late_queue == NULL);
    limiter_queue_free(queue);
    limiter_free(pacer);
    close_client(client, limiter);
}

static void the_client_may_be_freed_first(void) {
    limiter_client_t *client = open_real();
    limiter_t *limiter = make1(client, limiter_semaphore(2));
    limiter_queue_t *queue = NULL;
    limiter_decision held = try_once(limiter, 1);
    CHECK_OK(held.status);
    CHECK_OK(limiter_queue_new(client, &queue));
    CHECK_OK(limiter_client_free(client));
    check_closed(limiter, queue, held.permit);
    limiter_free(limiter);
    limiter_queue_free(queue);
}

static void the_queue_may_be_freed_last_or_first(void) {
    int last;
    for (last = 0; last < 2; last++) {
        limiter_client_t *client = open_real();
        limiter_t *limiter = make1(client, limiter_semaphore(1));
        limiter_queue_t *queue = NULL;
        limiter_decision pending = LIMITER_INIT(limiter_decision);
        limiter_request request = ask(NULL, 1, -1);
        CHECK_OK(limiter_queue_new(client, &queue));
        CHECK_OK(try_once(limiter, 1).status);
        CHECK_STATUS(limiter_submit(queue, limiter, &request, &pending), LIMITER_PENDING);
        if (!last) limiter_queue_free(queue);
        close_client(client, limiter);
        if (last) {
            CHECK_EQ(limiter_queue_poll(queue, &pending, 1, 0), 1);
            CHECK_STATUS(pending.status, LIMITER_CLOSED);
            limiter_queue_free(queue);
        }
    }
}

static void many_clients_come_and_go(void) {
    int i, times = check_times(2000);
    for (i = 0; i < times; i++) {
        limiter_client_t *client = i % 2 ? open_virtual() : open_real();
        limiter_t *limiter = make1(client, limiter_semaphore(1));
        CHECK_OK(try_once(limiter, 1).status);
        close_client(client, limiter);
    }
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        CHECK_TEST(opens_with_defaults_and_starts_no_thread),
        CHECK_TEST(frees_ignore_null),
        CHECK_TEST(settings_are_copied_at_open),
        CHECK_TEST(limits_and_name_are_read_during_the_call_only),
        CHECK_TEST(handles_of_one_name_share_state),
        CHECK_TEST(kinds_of_one_name_do_not_meet),
        CHECK_TEST(clients_of_one_process_do_not_meet),
        CHECK_TEST(a_freed_limiter_leaves_the_names_state),
        CHECK_TEST(shutdown_closes_every_verb_and_may_be_repeated),
        CHECK_TEST(the_client_may_be_freed_first),
        CHECK_TEST(the_queue_may_be_freed_last_or_first),
        CHECK_TEST(many_clients_come_and_go),
    };
    return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
