/* Acquires whose answer a callback receives: which thread, how often, what may be called there. */
#include "steps.h"

typedef struct seen {
    limiter_client_t *client;
    limiter_t *limiter;
    limiter_queue_t *queue;
    volatile int calls;
    limiter_decision last;
    int64_t user_data[64]; /* in the order of the calls */
    char thread[32];
    pid_t tid;
    volatile limiter_status blocking[5];
    volatile int hold; /* the callback stays inside while this is set */
} seen;

static void note(void *user_data, const limiter_decision *decision) {
    seen *self = (seen *)user_data;
    int n = self->calls;
    self->last = *decision;
    if (n < 64) self->user_data[n] = (int64_t)decision->user_data;
    CHECK(pthread_getname_np(pthread_self(), self->thread, sizeof self->thread) == 0);
    self->tid = gettid();
    __sync_add_and_fetch(&self->calls, 1);
    while (self->hold) check_nap_us(200);
}

static seen *new_seen(limiter_client_t *client) {
    seen *self = (seen *)calloc(1, sizeof(seen));
    CHECK(self != NULL);
    self->client = client;
    self->limiter = make1(client, limiter_semaphore(2));
    return self;
}

static void free_seen(seen *self) {
    close_client(self->client, self->limiter);
    free(self);
}

static limiter_op start(seen *self, uint64_t weight, int32_t wait_ms, uint64_t user_data) {
    limiter_request request = ask(NULL, weight, wait_ms);
    limiter_op op = 0;
    request.user_data = user_data;
    CHECK_STATUS(limiter_acquire_cb(self->limiter, &request, note, self, &op), LIMITER_PENDING);
    CHECK(op != 0);
    return op;
}

static void runs_once_on_a_named_thread_even_if_decided_at_once(void) {
    static const struct {
        uint64_t weight;
        limiter_status status;
    } rows[] = {{1, LIMITER_OK}, {1, LIMITER_OK}, {1, LIMITER_DENIED}, {3, LIMITER_NEVER}, {0, LIMITER_OK}};
    seen *self = new_seen(open_virtual());
    pid_t first = 0;
    int i;
    for (i = 0; i < 5; i++) {
        limiter_op op = start(self, rows[i].weight, 0, (uint64_t)i);
        CHECK_SOON(self->calls == i + 1);
        CHECK_STATUS(self->last.status, rows[i].status);
        CHECK_EQ(self->last.user_data, i);
        CHECK_EQ(self->last.op, op);
        CHECK((self->last.permit != 0) == (i < 2));
        CHECK(strncmp(self->thread, "limiter-", 8) == 0);
        CHECK(self->tid != gettid());
        if (i == 0) first = self->tid;
        CHECK_EQ(self->tid, first); /* one thread of their own */
        CHECK_STATUS(limiter_cancel(self->client, op, 0), LIMITER_STALE);
    }
    CHECK_OK(limiter_client_shutdown(self->client, 10000));
    CHECK_EQ(self->calls, 5);
    free_seen(self);
}

static void the_op_is_nullable(void) {
    seen *self = new_seen(open_virtual());
    CHECK_STATUS(limiter_acquire_cb(self->limiter, NULL, note, self, NULL), LIMITER_PENDING);
    CHECK_SOON(self->calls == 1);
    CHECK_OK(self->last.status);
    free_seen(self);
}

/* The callback thread is kept awake, so that it runs each as soon as it can. */
typedef struct early {
    limiter_op op;
    volatile int calls;
} early;

static void compare_op(void *user_data, const limiter_decision *decision) {
    early *self = (early *)user_data;
    CHECK(self->op == decision->op);
    CHECK_OK(decision->status);
    self->calls++;
}

static void the_op_is_set_before_the_callback_runs(void) {
    enum { MOST = 100000 };
    limiter_client_t *client = open_real();
    limiter_limit limit = KIND(LIMITER_UNLIMITED);
    limiter_t *limiter = make1(client, limit);
    early *each = (early *)calloc(MOST, sizeof *each);
    int i, times = check_times(MOST);
    CHECK(each != NULL);
    for (i = 0; i < times; i++) {
        CHECK_STATUS(limiter_acquire_cb(limiter, NULL, compare_op, &each[i], &each[i].op),
                     LIMITER_PENDING);
    }
    CHECK_OK(limiter_client_shutdown(client, -1));
    for (i = 0; i < times; i++) CHECK_EQ(each[i].calls, 1);
    close_client(client, limiter);
    free(each);
}

/* Who detaches owns user_data again, and may free it: the callback has not begun and will not. Who is told
 * STALE leaves it to the callback. */
static void free_it(void *user_data, const limiter_decision *decision) {
    (void)decision;
    free(user_data);
}

static void user_data_has_one_owner_whoever_wins(void) {
    limiter_client_t *client = open_real();
    limiter_t *limiter = make1(client, limiter_semaphore(1));
    int i, times = check_times(20000);
    for (i = 0; i < times; i++) {
        limiter_request request = ask(NULL, 1, 0);
        void *user_data = malloc(16);
        limiter_op op = 0;
        limiter_status status;
        CHECK(user_data != NULL);
        CHECK_STATUS(limiter_acquire_cb(limiter, &request, free_it, user_data, &op), LIMITER_PENDING);
        if (i % 2) sched_yield();
        status = limiter_cancel(client, op, LIMITER_DETACH);
        if (status == LIMITER_OK) {
            free(user_data);
        } else {
            CHECK_STATUS(status, LIMITER_STALE);
        }
        CHECK_OK(limiter_reset(limiter, NULL, 0));
    }
    close_client(client, limiter);
}

static void waits_complete_in_order(void) {
    seen *self = new_seen(open_virtual());
    limiter_permit held = try_once(self->limiter, 2).permit;
    int i;
    for (i = 0; i < 3; i++) start(self, 2, -1, (uint64_t)i);
    CHECK_EQ(self->calls, 0);
    for (i = 0; i < 3; i++) {
        CHECK_OK(limiter_release(self->limiter, held));
        CHECK_SOON(self->calls == i + 1);
        CHECK_OK(self->last.status);
        CHECK_EQ(self->user_data[i], i);
        held = self->last.permit;
    }
    free_seen(self);
}

static void never_while_inside_a_call_of_ours(void) {
    seen *self = new_seen(open_virtual());
    self->hold = 1;
    start(self, 1, 0, 0);
    CHECK_SOON(self->calls == 1);
    start(self, 1, 0, 1); /* returns though the callback thread is busy */
    CHECK_EQ(self->calls, 1);
    self->hold = 0;
    CHECK_SOON(self->calls == 2);
    free_seen(self);
}

static void cancel_calls_back_once_and_detach_never(void) {
    seen *self = new_seen(open_virtual());
    limiter_op cancelled, detached;
    CHECK_OK(try_once(self->limiter, 2).status);
    cancelled = start(self, 1, -1, 1);
    detached = start(self, 1, -1, 2);
    CHECK_OK(limiter_cancel(self->client, detached, LIMITER_DETACH));
    CHECK_OK(limiter_cancel(self->client, cancelled, 0));
    CHECK_SOON(self->calls == 1);
    CHECK_STATUS(self->last.status, LIMITER_CANCELLED);
    CHECK_EQ(self->last.user_data, 1);
    CHECK_OK(limiter_client_shutdown(self->client, 10000));
    CHECK_EQ(self->calls, 1);
    free_seen(self);
}

static void shutdown_completes_every_wait(void) {
    seen *self = new_seen(open_virtual());
    int i;
    CHECK_OK(try_once(self->limiter, 2).status);
    for (i = 0; i < 10; i++) start(self, 1, -1, (uint64_t)i);
    CHECK_OK(limiter_client_shutdown(self->client, 10000));
    CHECK_EQ(self->calls, 10); /* "callbacks that are due run" before it returns */
    CHECK_STATUS(self->last.status, LIMITER_CLOSED);
    free_seen(self);
}

static void shutdown_with_a_stuck_callback_times_out(void) {
    seen *self = new_seen(open_real());
    self->hold = 1;
    start(self, 1, 0, 0);
    CHECK_SOON(self->calls == 1);
    CHECK_STATUS(limiter_client_shutdown(self->client, 20), LIMITER_TIMEOUT);
    CHECK_STATUS(try_once(self->limiter, 1).status, LIMITER_CLOSED); /* closed all the same */
    self->hold = 0;
    CHECK_OK(limiter_client_shutdown(self->client, 10000));
    free_seen(self);
}

static void blocking_calls(void *user_data, const limiter_decision *decision) {
    seen *self = (seen *)user_data;
    limiter_request request = ask(NULL, 1, 10000);
    limiter_decision out;
    self->blocking[0] = limiter_acquire(self->limiter, &request, &out);
    self->blocking[1] = limiter_queue_poll(self->queue, &out, 1, 10000);
    self->blocking[2] = limiter_client_shutdown(self->client, 10000);
    self->blocking[3] = limiter_client_free(self->client);
    request.wait_ms = -1;
    self->blocking[4] = limiter_acquire(self->limiter, &request, &out);
    /* Everything else may be called. */
    CHECK_OK(acquire(self->limiter, "other", 1, 0).status);
    CHECK_EQ(limiter_queue_poll(self->queue, &out, 1, 0), 0);
    CHECK_OK(peek(self->limiter, "other", 1).status);
    CHECK_OK(limiter_release(self->limiter, decision->permit));
    CHECK_STATUS(limiter_cancel(self->client, decision->op, 0), LIMITER_STALE);
    CHECK_OK(limiter_penalize(self->limiter, "third", 5, 1));
    CHECK_OK(limiter_reset(self->limiter, "third", 5));
    CHECK_EQ(stats_of(self->client).waiting, 0);
    limiter_free(make1(self->client, limiter_semaphore(2)));
    __sync_add_and_fetch(&self->calls, 1);
}

static void blocking_calls_from_a_callback_would_deadlock(void) {
    seen *self = new_seen(open_real());
    limiter_stats stats;
    int i;
    CHECK_OK(limiter_queue_new(self->client, &self->queue));
    CHECK_STATUS(limiter_acquire_cb(self->limiter, NULL, blocking_calls, self, NULL), LIMITER_PENDING);
    CHECK_SOON(self->calls == 1);
    for (i = 0; i < 5; i++) CHECK_STATUS(self->blocking[i], LIMITER_WOULD_DEADLOCK);
    stats = stats_of(self->client); /* what was refused took nothing: "other" is held, no more */
    CHECK_EQ(stats.in_flight, 1);
    CHECK_OK(try_once(self->limiter, 2).status);
    limiter_queue_free(self->queue);
    free_seen(self);
}

static void chain(void *user_data, const limiter_decision *decision) {
    seen *self = (seen *)user_data;
    CHECK_OK(decision->status);
    CHECK_OK(limiter_release(self->limiter, decision->permit));
    if (__sync_add_and_fetch(&self->calls, 1) < 1000) {
        CHECK_STATUS(limiter_acquire_cb(self->limiter, NULL, chain, self, NULL), LIMITER_PENDING);
    }
}

static void a_callback_may_start_the_next(void) {
    seen *self = new_seen(open_real());
    CHECK_STATUS(limiter_acquire_cb(self->limiter, NULL, chain, self, NULL), LIMITER_PENDING);
    CHECK_SOON(self->calls == 1000);
    CHECK_EQ(stats_of(self->client).in_flight, 0);
    free_seen(self);
}

/* B-098: cancels from within callbacks, against a thread that cancels the same operations. */
typedef struct racers {
    seen *self;
    limiter_op ops[64];
    volatile int completions, grants;
} racers;

static void race_callback(void *user_data, const limiter_decision *decision) {
    racers *race = (racers *)user_data;
    int i = (int)decision->user_data;
    if (decision->status == LIMITER_OK) {
        __sync_add_and_fetch(&race->grants, 1);
        CHECK_OK(limiter_release(race->self->limiter, decision->permit));
    } else {
        CHECK_STATUS(decision->status, LIMITER_CANCELLED);
    }
    if (race->ops[(i + 7) % 64]) (void)limiter_cancel(race->self->client, race->ops[(i + 7) % 64], 0);
    __sync_add_and_fetch(&race->completions, 1);
}

static void B_098_cancel_from_within_a_callback(void) {
    seen *self = new_seen(open_real());
    int round, rounds = check_times(200), i;
    for (round = 0; round < rounds; round++) {
        racers race;
        limiter_permit held = try_once(self->limiter, 2).permit;
        memset(&race, 0, sizeof race);
        race.self = self;
        CHECK(held != 0);
        for (i = 0; i < 64; i++) {
            limiter_request request = ask(NULL, 1, -1);
            request.user_data = (uint64_t)i;
            CHECK_STATUS(limiter_acquire_cb(self->limiter, &request, race_callback, &race, &race.ops[i]),
                         LIMITER_PENDING);
        }
        CHECK_OK(limiter_release(self->limiter, held));
        for (i = 63; i >= 0; i -= 3) (void)limiter_cancel(self->client, race.ops[i], 0);
        CHECK_SOON(race.completions == 64);
        CHECK_SOON(stats_of(self->client).in_flight == 0);
    }
    free_seen(self);
}

static volatile int lost_calls;
static volatile limiter_permit lost_permit;
static char lost_thread[32];

static void on_lost(void *user_data, limiter_permit permit) {
    CHECK(user_data == &lost_calls);
    CHECK(pthread_getname_np(pthread_self(), lost_thread, sizeof lost_thread) == 0);
    lost_permit = permit;
    __sync_add_and_fetch(&lost_calls, 1);
}

static void the_lost_hook_is_told_of_each_lost_permit(void) {
    limiter_config_t *config = limiter_config_new();
    limiter_client_t *client = NULL;
    limiter_t *limiter;
    limiter_request request = ask(NULL, 1, 0);
    limiter_decision held, released;
    CHECK_OK(limiter_config_set(config, "clock", "virtual", NULL, 0));
    limiter_config_set_lost(config, on_lost, (void *)(uintptr_t)&lost_calls);
    CHECK_OK(limiter_client_open(NULL, config, &client, NULL, 0));
    limiter_config_free(config);
    limiter = make1(client, limiter_semaphore(2));
    request.flags = LIMITER_NO_RENEW;
    request.lease_ms = 100;
    CHECK_OK(limiter_acquire(limiter, &request, &held));
    CHECK_OK(limiter_acquire(limiter, &request, &released));
    CHECK_OK(limiter_release(limiter, released.permit)); /* given back in time: not lost */
    advance(client, MS(100));
    CHECK_SOON(lost_calls == 1);
    CHECK(lost_permit == held.permit);
    CHECK(strncmp(lost_thread, "limiter-", 8) == 0);
    CHECK_EQ(stats_of(client).lost, 1);
    CHECK_OK(limiter_client_shutdown(client, 10000));
    CHECK_EQ(lost_calls, 1);
    close_client(client, limiter);
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        CHECK_TEST(runs_once_on_a_named_thread_even_if_decided_at_once),
        CHECK_TEST(the_op_is_nullable),
        CHECK_TEST(the_op_is_set_before_the_callback_runs),
        CHECK_TEST(user_data_has_one_owner_whoever_wins),
        CHECK_TEST(waits_complete_in_order),
        CHECK_TEST(never_while_inside_a_call_of_ours),
        CHECK_TEST(cancel_calls_back_once_and_detach_never),
        CHECK_TEST(shutdown_completes_every_wait),
        CHECK_TEST(shutdown_with_a_stuck_callback_times_out),
        CHECK_TEST(blocking_calls_from_a_callback_would_deadlock),
        CHECK_TEST(a_callback_may_start_the_next),
        CHECK_TEST(B_098_cancel_from_within_a_callback),
        CHECK_TEST(the_lost_hook_is_told_of_each_lost_permit),
    };
    return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
