/* Blocking acquires: order, deadlines, cancel, shutdown. Waiters are threads; arrival order is made
 * certain by the stats, and time is virtual wherever time matters. */
#include "steps.h"

static limiter_request ask_as(uint64_t user_data, uint64_t weight, int32_t wait_ms) {
    limiter_request request = ask(NULL, weight, wait_ms);
    request.user_data = user_data;
    return request;
}

static void B_095_first_come_first_served(void) {
    enum { N = 20 };
    limiter_client_t *client = open_real();
    limiter_t *limiter = make1(client, limiter_semaphore(1));
    limiter_permit held = try_once(limiter, 1).permit;
    volatile int arrivals = 0;
    waiter waiters[N];
    uint64_t fence = 0;
    int i;
    for (i = 0; i < N; i++) {
        waiters[i].arrivals = &arrivals;
        waiter_start(&waiters[i], client, limiter, ask(NULL, 1, -1));
        CHECK_STATUS(try_once(limiter, 1).status, LIMITER_DENIED);
    }
    for (i = 0; i < N; i++) {
        limiter_decision got;
        CHECK_OK(limiter_release(limiter, held));
        got = waiter_join(&waiters[i]);
        CHECK_OK(got.status);
        CHECK_EQ(waiters[i].order, i + 1);
        CHECK(got.fence > fence);
        fence = got.fence;
        held = got.permit;
        CHECK_EQ(stats_of(client).waiting, N - 1 - i);
    }
    CHECK_OK(limiter_release(limiter, held));
    CHECK_EQ(stats_of(client).in_flight, 0);
    close_client(client, limiter);
}

static void a_try_never_overtakes_those_who_wait(void) {
    limiter_client_t *client = open_real();
    limiter_t *limiter = make1(client, limiter_semaphore(3));
    limiter_permit held = try_once(limiter, 2).permit;
    waiter big;
    big.arrivals = NULL;
    waiter_start(&big, client, limiter, ask(NULL, 3, -1));
    CHECK_STATUS(try_once(limiter, 1).status, LIMITER_DENIED); /* though one is free */
    CHECK_STATUS(peek(limiter, NULL, 1).status, LIMITER_DENIED);
    CHECK_OK(try_once(limiter, 0).status);                     /* a look is no overtaking */
    CHECK_OK(acquire(limiter, "another key", 3, 0).status);
    CHECK_OK(limiter_release(limiter, held));
    CHECK_OK(waiter_join(&big).status);
    close_client(client, limiter);
}

static void B_089_single_releases_wake_one_who_wants_three(void) {
    limiter_client_t *client = open_real();
    limiter_t *limiter = make1(client, limiter_semaphore(3));
    limiter_permit held[3];
    waiter big;
    int i;
    for (i = 0; i < 3; i++) held[i] = try_once(limiter, 1).permit;
    big.arrivals = NULL;
    waiter_start(&big, client, limiter, ask(NULL, 3, -1));
    for (i = 0; i < 2; i++) {
        CHECK_OK(limiter_release(limiter, held[i]));
        CHECK_EQ(stats_of(client).waiting, 1);
    }
    CHECK_OK(limiter_release(limiter, held[2]));
    CHECK_OK(waiter_join(&big).status);
    close_client(client, limiter);
}

static void B_091_B_097_a_cancelled_head_blocks_nobody(void) {
    limiter_client_t *client = open_real();
    limiter_t *limiter = make1(client, limiter_semaphore(10));
    limiter_permit held = try_once(limiter, 5).permit;
    waiter head, next;
    limiter_decision got;
    head.arrivals = next.arrivals = NULL;
    waiter_start(&head, client, limiter, ask_as(1, 10, -1));
    waiter_start(&next, client, limiter, ask_as(2, 5, -1));
    CHECK_EQ(limiter_cancel_waits(client, 1), 1);
    got = waiter_join(&head);
    CHECK_STATUS(got.status, LIMITER_CANCELLED);
    CHECK_EQ(got.permit, 0);
    CHECK_EQ(got.user_data, 1);
    CHECK_OK(waiter_join(&next).status);
    CHECK_OK(limiter_release(limiter, held));
    CHECK_EQ(peek(limiter, NULL, 1).remaining, 5);
    CHECK_EQ(stats_of(client).cancelled, 1);
    close_client(client, limiter);
}

static void B_074_a_head_whose_time_is_up_blocks_nobody(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_semaphore(10));
    limiter_permit held = try_once(limiter, 5).permit;
    waiter head, next;
    limiter_decision got;
    head.arrivals = next.arrivals = NULL;
    waiter_start(&head, client, limiter, ask(NULL, 10, 1900));
    waiter_start(&next, client, limiter, ask(NULL, 5, 60000));
    advance(client, MS(1900) - 1);
    CHECK_EQ(stats_of(client).waiting, 2);
    advance(client, 1);
    got = waiter_join(&head);
    CHECK_STATUS(got.status, LIMITER_DENIED);
    CHECK_EQ(got.permit, 0);
    CHECK_EQ(got.waited_us, MS(1900));
    CHECK(got.retry_after_us > 0);
    got = waiter_join(&next);
    CHECK_OK(got.status);
    CHECK_EQ(got.waited_us, MS(1900));
    CHECK_OK(limiter_release(limiter, held));
    CHECK_OK(limiter_release(limiter, got.permit));
    CHECK_OK(try_once(limiter, 10).status); /* nothing was taken by who was denied */
    close_client(client, limiter);
}

static void B_092_forty_cancelled_waiters_leave_no_trace(void) {
    enum { N = 40 };
    limiter_client_t *client = open_real();
    limiter_t *limiter = make1(client, limiter_semaphore(4));
    limiter_permit held = try_once(limiter, 4).permit;
    waiter waiters[N];
    int i;
    for (i = 0; i < N; i++) {
        waiters[i].arrivals = NULL;
        waiter_start(&waiters[i], client, limiter, ask_as(7, 1, -1));
    }
    CHECK_EQ(limiter_cancel_waits(client, 8), 0);
    CHECK_EQ(limiter_cancel_waits(client, 7), N);
    CHECK_EQ(limiter_cancel_waits(client, 7), 0);
    for (i = 0; i < N; i++) CHECK_STATUS(waiter_join(&waiters[i]).status, LIMITER_CANCELLED);
    CHECK_OK(limiter_release(limiter, held));
    CHECK_OK(try_once(limiter, 4).status);
    close_client(client, limiter);
}

static void a_lease_that_ends_admits_the_next(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_semaphore(1));
    limiter_request request = ask(NULL, 1, 0);
    limiter_decision held;
    waiter next;
    request.flags = LIMITER_NO_RENEW;
    request.lease_ms = 1000;
    CHECK_OK(limiter_acquire(limiter, &request, &held));
    next.arrivals = NULL;
    waiter_start(&next, client, limiter, ask(NULL, 1, -1));
    advance(client, S(5));
    CHECK_EQ(waiter_join(&next).waited_us, S(1));
    close_client(client, limiter);
}

static void rates_book_the_moment_and_admit_then(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_token_bucket(1, 1, S(1)));
    waiter waiters[3];
    int i;
    CHECK_OK(try_once(limiter, 1).status);
    for (i = 0; i < 3; i++) {
        waiters[i].arrivals = NULL;
        waiter_start(&waiters[i], client, limiter, ask(NULL, 1, 3000));
    }
    CHECK_STATUS(acquire(limiter, NULL, 1, 3999).status, LIMITER_DENIED); /* the fourth: 4 s */
    CHECK_EQ(try_once(limiter, 1).retry_after_us, S(4));
    for (i = 0; i < 3; i++) {
        limiter_decision got;
        advance(client, S(1));
        got = waiter_join(&waiters[i]);
        CHECK_OK(got.status);
        CHECK_EQ(got.waited_us, (i + 1) * S(1));
    }
    close_client(client, limiter);
}

static void a_cancelled_booking_is_given_back(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_token_bucket(1, 1, S(1)));
    waiter last;
    CHECK_OK(try_once(limiter, 1).status);
    last.arrivals = NULL;
    waiter_start(&last, client, limiter, ask_as(5, 1, -1));
    CHECK_EQ(try_once(limiter, 1).retry_after_us, S(2));
    CHECK_EQ(limiter_cancel_waits(client, 5), 1);
    CHECK_STATUS(waiter_join(&last).status, LIMITER_CANCELLED);
    CHECK_EQ(try_once(limiter, 1).retry_after_us, S(1));
    close_client(client, limiter);
}

static void semaphore_and_rate_together(void) {
    limiter_client_t *client = open_virtual();
    limiter_limit limits[2];
    limiter_t *limiter;
    limiter_permit held;
    waiter next;
    limits[0] = limiter_semaphore(1);
    limits[1] = limiter_token_bucket(1, 1, S(10));
    limiter = make(client, "both", limits, 2);
    held = try_once(limiter, 1).permit;
    next.arrivals = NULL;
    waiter_start(&next, client, limiter, ask(NULL, 1, -1));
    advance(client, S(4));
    CHECK_OK(limiter_release(limiter, held)); /* the rate still stands in the way */
    CHECK_EQ(stats_of(client).waiting, 1);
    advance(client, S(6) - 1);
    CHECK_EQ(stats_of(client).waiting, 1);
    advance(client, 1);
    CHECK_EQ(waiter_join(&next).waited_us, S(10));
    close_client(client, limiter);
}

static void a_penalty_puts_off_those_who_wait_in_their_order(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_token_bucket(1, 1, S(1)));
    waiter first, second;
    CHECK_OK(try_once(limiter, 1).status);
    first.arrivals = second.arrivals = NULL;
    waiter_start(&first, client, limiter, ask(NULL, 1, -1));
    waiter_start(&second, client, limiter, ask(NULL, 1, -1));
    CHECK_OK(limiter_penalize(limiter, NULL, 0, S(60)));
    advance(client, S(60) - 1);
    CHECK_EQ(stats_of(client).waiting, 2);
    advance(client, S(3));
    CHECK(waiter_join(&first).waited_us >= S(60));
    {
        limiter_decision got = waiter_join(&second);
        CHECK_EQ(got.waited_us, first.decision.waited_us + S(1)); /* their distance is kept */
    }
    close_client(client, limiter);
}

static void max_waiting_bounds_the_waits(void) {
    limiter_client_t *client = open_with("max_waiting", "2");
    limiter_t *limiter = make1(client, limiter_semaphore(1));
    limiter_permit held = try_once(limiter, 1).permit;
    waiter waiters[2];
    int i;
    for (i = 0; i < 2; i++) {
        waiters[i].arrivals = NULL;
        waiter_start(&waiters[i], client, limiter, ask_as(3, 1, -1));
    }
    CHECK_STATUS(acquire(limiter, NULL, 1, -1).status, LIMITER_OVERLOADED);
    CHECK_STATUS(acquire(limiter, NULL, 1, 0).status, LIMITER_DENIED); /* does not wait */
    CHECK_EQ(stats_of(client).overloaded, 1);
    CHECK_EQ(limiter_cancel_waits(client, 3), 2);
    for (i = 0; i < 2; i++) waiter_join(&waiters[i]);
    CHECK_OK(limiter_release(limiter, held));
    close_client(client, limiter);
}

static void shutdown_ends_every_wait(void) {
    enum { N = 10 };
    limiter_client_t *client = open_real();
    limiter_t *limiter = make1(client, limiter_semaphore(1));
    waiter waiters[N];
    int i;
    CHECK_OK(try_once(limiter, 1).status);
    for (i = 0; i < N; i++) {
        waiters[i].arrivals = NULL;
        waiter_start(&waiters[i], client, limiter, ask(NULL, 1, -1));
    }
    CHECK_OK(limiter_client_shutdown(client, 10000));
    for (i = 0; i < N; i++) CHECK_STATUS(waiter_join(&waiters[i]).status, LIMITER_CLOSED);
    close_client(client, limiter);
}

static void B_140_a_limiter_may_be_freed_while_its_waits_go_on(void) {
    limiter_client_t *client = open_real();
    limiter_t *limiter = make1(client, limiter_semaphore(1)), *other = make1(client, limiter_semaphore(1));
    limiter_queue_t *queue = NULL;
    limiter_request request = ask(NULL, 1, -1);
    limiter_decision got;
    limiter_permit held = try_once(limiter, 1).permit;
    CHECK_OK(limiter_queue_new(client, &queue));
    CHECK_STATUS(limiter_submit(queue, other, &request, &got), LIMITER_PENDING);
    limiter_free(other);
    CHECK_OK(limiter_release(limiter, held));
    CHECK_EQ(limiter_queue_poll(queue, &got, 1, 10000), 1);
    CHECK_OK(got.status);
    limiter_queue_free(queue);
    close_client(client, limiter);
}

static void real_time_waits_are_neither_short_nor_long(void) {
    limiter_client_t *client = open_real();
    limiter_t *limiter = make1(client, limiter_token_bucket(1, 1, MS(50)));
    int64_t began, took;
    limiter_decision got;
    began = check_now_us();
    CHECK_OK(try_once(limiter, 1).status);
    got = acquire(limiter, NULL, 1, 10000);
    took = check_now_us() - began;
    CHECK_OK(got.status);
    CHECK(took >= 50000 && took < 5000000 && (int64_t)got.waited_us <= took);
    limiter_free(limiter);
    limiter = make1(client, limiter_semaphore(1));
    CHECK_OK(try_once(limiter, 1).status);
    began = check_now_us();
    got = acquire(limiter, NULL, 1, 80);
    took = check_now_us() - began;
    CHECK_STATUS(got.status, LIMITER_DENIED);
    CHECK(took >= 80000 && took < 5000000);
    CHECK(got.waited_us >= 80000);
    close_client(client, limiter);
}

/* I3 and I4 under load: never more than the capacity at once, all of it there afterwards. */
typedef struct hammer {
    limiter_t *limiter;
    limiter_client_t *client;
    volatile int *inside;
    unsigned seed;
    int rounds;
} hammer;

static void *hammer_run(void *argument) {
    hammer *self = (hammer *)argument;
    int i;
    for (i = 0; i < self->rounds; i++) {
        int weight = 1 + (int)(rand_r(&self->seed) % 3), wait = (int)(rand_r(&self->seed) % 3) - 1;
        limiter_request request = ask_as(rand_r(&self->seed) % 2 ? 9 : 1, (uint64_t)weight, wait);
        limiter_decision got;
        limiter_status status = limiter_acquire(self->limiter, &request, &got);
        if (status == LIMITER_OK) {
            CHECK(__sync_add_and_fetch(self->inside, weight) <= 5);
            if (i % 7 == 0) sched_yield();
            __sync_sub_and_fetch(self->inside, weight);
            CHECK_OK(limiter_release(self->limiter, got.permit));
        } else {
            CHECK(status == LIMITER_DENIED || status == LIMITER_CANCELLED);
        }
        if (i % 13 == 0) CHECK(limiter_cancel_waits(self->client, 9) >= 0);
    }
    return NULL;
}

static void B_098_random_acquire_cancel_release_conserves_the_capacity(void) {
    enum { N = 8 };
    limiter_client_t *client = open_real();
    limiter_t *limiter = make1(client, limiter_semaphore(5));
    volatile int inside = 0;
    pthread_t threads[N];
    hammer hammers[N];
    limiter_stats stats;
    int i;
    for (i = 0; i < N; i++) {
        hammers[i].limiter = limiter;
        hammers[i].client = client;
        hammers[i].inside = &inside;
        hammers[i].seed = (unsigned)i + 1;
        hammers[i].rounds = check_times(20000);
        CHECK(pthread_create(&threads[i], NULL, hammer_run, &hammers[i]) == 0);
    }
    for (i = 0; i < N; i++) pthread_join(threads[i], NULL);
    stats = stats_of(client);
    CHECK_EQ(stats.waiting, 0);
    CHECK_EQ(stats.in_flight, 0);
    CHECK_EQ(stats.granted, stats.released);
    CHECK_OK(try_once(limiter, 5).status);
    close_client(client, limiter);
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        CHECK_TEST(B_095_first_come_first_served),
        CHECK_TEST(a_try_never_overtakes_those_who_wait),
        CHECK_TEST(B_089_single_releases_wake_one_who_wants_three),
        CHECK_TEST(B_091_B_097_a_cancelled_head_blocks_nobody),
        CHECK_TEST(B_074_a_head_whose_time_is_up_blocks_nobody),
        CHECK_TEST(B_092_forty_cancelled_waiters_leave_no_trace),
        CHECK_TEST(a_lease_that_ends_admits_the_next),
        CHECK_TEST(rates_book_the_moment_and_admit_then),
        CHECK_TEST(a_cancelled_booking_is_given_back),
        CHECK_TEST(semaphore_and_rate_together),
        CHECK_TEST(a_penalty_puts_off_those_who_wait_in_their_order),
        CHECK_TEST(max_waiting_bounds_the_waits),
        CHECK_TEST(shutdown_ends_every_wait),
        CHECK_TEST(B_140_a_limiter_may_be_freed_while_its_waits_go_on),
        CHECK_TEST(real_time_waits_are_neither_short_nor_long),
        CHECK_TEST(B_098_random_acquire_cancel_release_conserves_the_capacity),
    };
    return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
