/* Single sentences of the header that no other test holds the library to. */
#include "steps.h"

#include <poll.h>

static int readable(limiter_queue_t *queue) {
    struct pollfd p;
    p.fd = limiter_queue_fd(queue);
    p.events = POLLIN;
    return poll(&p, 1, 0);
}

/* "the library forgets old ones by itself, but not before it has granted 1024 more" */
static void a_permit_can_be_settled_until_1024_more_were_granted(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_token_bucket(5000, 1, LIMITER_DAY));
    limiter_limit window = limiter_fixed_window(5000, LIMITER_DAY);
    limiter_t *other = make(client, "other", &window, 1);
    int one_key, i;
    for (one_key = 0; one_key < 2; one_key++) {
        limiter_permit first = acquire(limiter, "key", 10, 0).permit;
        for (i = 0; i < 1023; i++) {
            char key[16];
            snprintf(key, sizeof key, "%d", i);
            CHECK_OK(acquire(i % 2 && !one_key ? other : limiter, one_key ? "key" : key, 1, 0).status);
        }
        CHECK_OK(limiter_settle(limiter, first, 1));
        CHECK_STATUS(limiter_settle(limiter, first, 1), LIMITER_STALE);
    }
    limiter_free(other);
    close_client(client, limiter);
}

/* "LIMITER_CLOSED once the client is shut down, which has released it" */
static void after_a_shutdown_a_permit_was_released(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_semaphore(1));
    limiter_permit held = try_once(limiter, 1).permit;
    limiter_stats stats;
    CHECK_EQ(stats_of(client).in_flight, 1);
    CHECK_OK(limiter_client_shutdown(client, 10000));
    CHECK_STATUS(limiter_release(limiter, held), LIMITER_CLOSED);
    CHECK_STATUS(limiter_renew(limiter, held, 0), LIMITER_CLOSED);
    CHECK_STATUS(limiter_settle(limiter, held, 0), LIMITER_CLOSED);
    stats = stats_of(client);
    CHECK(stats.in_flight == 0 && stats.released == 1);
    close_client(client, limiter);
}

/* "readable as long as completions wait, and for good once the client is shut down" */
static void a_closed_queue_stays_readable(void) {
    limiter_client_t *client = open_virtual();
    limiter_queue_t *queue = NULL;
    limiter_decision out;
    int i;
    CHECK_OK(limiter_queue_new(client, &queue));
    CHECK_EQ(readable(queue), 0);
    CHECK_OK(limiter_client_shutdown(client, 10000));
    for (i = 0; i < 3; i++) {
        CHECK_EQ(readable(queue), 1);
        CHECK_STATUS(limiter_queue_poll(queue, &out, 1, -1), LIMITER_CLOSED);
    }
    limiter_queue_free(queue);
    CHECK_OK(limiter_client_free(client));
}

/* "LIMITER_OK, LIMITER_DENIED or LIMITER_NEVER, with the same numbers and no permit" */
static void a_peek_answers_as_an_acquire_would(void) {
    static const struct {
        uint64_t weight;
        limiter_status status;
    } rows[] = {{3, LIMITER_OK}, {4, LIMITER_DENIED}, {6, LIMITER_NEVER}};
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_token_bucket(5, 1, LIMITER_SECOND));
    int i;
    CHECK_OK(try_once(limiter, 2).status);
    for (i = 2; i >= 0; i--) { /* the one that takes comes last */
        limiter_decision looked = peek(limiter, NULL, rows[i].weight), asked;
        CHECK_STATUS(looked.status, rows[i].status);
        CHECK_EQ(looked.permit, 0);
        CHECK_EQ(looked.index, 0);
        CHECK(looked.limit == 5 && looked.remaining == 3);
        asked = try_once(limiter, rows[i].weight);
        if (i > 0) CHECK(memcmp(&looked, &asked, sizeof asked) == 0);
        CHECK_STATUS(asked.status, rows[i].status);
    }
    close_client(client, limiter);
}

/* "Waits that were cancelled or detached." */
static void a_detached_wait_counts_as_cancelled(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_semaphore(1));
    limiter_queue_t *queue = NULL;
    limiter_request request = ask(NULL, 1, -1);
    limiter_decision out;
    int i;
    CHECK_OK(limiter_queue_new(client, &queue));
    CHECK_OK(try_once(limiter, 1).status);
    for (i = 0; i < 2; i++) {
        CHECK_STATUS(limiter_submit(queue, limiter, &request, &out), LIMITER_PENDING);
        CHECK_OK(limiter_cancel(client, out.op, i == 0 ? 0 : LIMITER_DETACH));
        CHECK_EQ(stats_of(client).cancelled, i + 1);
    }
    CHECK_EQ(limiter_queue_poll(queue, &out, 1, 0), 1);
    CHECK_EQ(limiter_queue_poll(queue, &out, 1, 0), 0);
    limiter_queue_free(queue);
    close_client(client, limiter);
}

/* "one more completion arrives on the queue that it was submitted on" */
static void a_lost_lease_is_told_on_its_own_queue(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_semaphore(4));
    limiter_queue_t *queues[2] = {NULL, NULL};
    limiter_decision granted[2], lost;
    int i;
    for (i = 0; i < 2; i++) {
        limiter_request request = ask(NULL, 1, 0);
        request.flags = LIMITER_NO_RENEW | LIMITER_TELL_LOST;
        request.lease_ms = (uint32_t)(200 - 100 * i); /* the second is lost first */
        CHECK_OK(limiter_queue_new(client, &queues[i]));
        CHECK_OK(limiter_submit(queues[i], limiter, &request, &granted[i]));
    }
    advance(client, MS(200));
    for (i = 0; i < 2; i++) {
        CHECK_EQ(limiter_queue_poll(queues[i], &lost, 1, 10000), 1);
        CHECK_STATUS(lost.status, LIMITER_STALE);
        CHECK(lost.permit == granted[i].permit);
        CHECK_EQ(limiter_queue_poll(queues[i], &lost, 1, 0), 0);
        limiter_queue_free(queues[i]);
    }
    close_client(client, limiter);
}

/* "A weight that takes more than 10 years at the rate is answered LIMITER_NEVER." */
static void a_pacer_takes_no_call_of_more_than_10_years(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_pacer(10, YEARS(10), 0));
    CHECK_STATUS(try_once(limiter, 11).status, LIMITER_NEVER);
    CHECK_STATUS(limiter_pace_ms(limiter, NULL, 0, 11), LIMITER_PACE_NEVER);
    CHECK_EQ(limiter_pace_ms(limiter, NULL, 0, 10), 0);
    CHECK_EQ(limiter_pace_ms(limiter, NULL, 0, 1), YEARS(10) / 1000);
    CHECK_STATUS(limiter_pace_ms(limiter, NULL, 0, 1), LIMITER_PACE_NEVER); /* in 11 years */
    close_client(client, limiter);
}

/* "Denied or never: the one that refused; of several, the one that takes longest. Otherwise the one with
 * the least remaining." */
static void the_index_says_whose_numbers_these_are(void) {
    limiter_client_t *client = open_virtual();
    limiter_limit limits[3];
    limiter_t *limiter;
    limiter_queue_t *queue = NULL;
    limiter_decision got;
    limiter_request request = ask(NULL, 1, -1);
    limits[0] = limiter_per_call(limiter_semaphore(3));
    limits[1] = limiter_per_call(limiter_token_bucket(4, 4, S(4)));
    limits[2] = limiter_token_bucket(100, 100, S(100));
    limiter = make(client, "several", limits, 3);
    got = peek(limiter, NULL, 1);
    CHECK(got.index == 0 && got.limit == 3 && got.remaining == 3);
    got = try_once(limiter, 98);
    CHECK_OK(got.status);
    CHECK(got.index == 0 && got.limit == 3 && got.remaining == 2); /* before 2 of 100: the first */
    CHECK_OK(limiter_release(limiter, got.permit));
    got = try_once(limiter, 0);
    CHECK(got.index == 2 && got.limit == 100 && got.remaining == 2);
    got = try_once(limiter, 3);
    CHECK_STATUS(got.status, LIMITER_DENIED);
    CHECK(got.index == 2 && got.remaining == 2 && got.retry_after_us == S(1));
    got = try_once(limiter, 101);
    CHECK_STATUS(got.status, LIMITER_NEVER);
    CHECK(got.index == 2 && got.limit == 100);
    CHECK_OK(try_once(limiter, 1).status);
    CHECK_OK(try_once(limiter, 1).status);
    got = try_once(limiter, 1);
    CHECK_STATUS(got.status, LIMITER_DENIED); /* 3 of 4 starts used, but no unit is left */
    CHECK(got.index == 2 && got.remaining == 0);
    CHECK_OK(limiter_queue_new(client, &queue));
    CHECK_STATUS(limiter_submit(queue, limiter, &request, &got), LIMITER_PENDING);
    CHECK(got.index == LIMITER_NO_INDEX && got.limit == 0); /* they will have changed by then */
    limiter_queue_free(queue);
    close_client(client, limiter);
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        CHECK_TEST(a_permit_can_be_settled_until_1024_more_were_granted),
        CHECK_TEST(after_a_shutdown_a_permit_was_released),
        CHECK_TEST(a_closed_queue_stays_readable),
        CHECK_TEST(a_peek_answers_as_an_acquire_would),
        CHECK_TEST(a_detached_wait_counts_as_cancelled),
        CHECK_TEST(a_lost_lease_is_told_on_its_own_queue),
        CHECK_TEST(a_pacer_takes_no_call_of_more_than_10_years),
        CHECK_TEST(the_index_says_whose_numbers_these_are),
    };
    return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
