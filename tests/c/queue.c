/* The completion queue: its descriptor, exactly one completion each, cancel and detach, many
 * pollers, shutdown. */
#include "steps.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>

typedef struct world {
    limiter_client_t *client;
    limiter_t *limiter; /* a semaphore of 2 */
    limiter_queue_t *queue;
} world;

static world open_world(limiter_client_t *client) {
    world w;
    w.client = client;
    w.limiter = make1(client, limiter_semaphore(2));
    w.queue = NULL;
    CHECK_OK(limiter_queue_new(client, &w.queue));
    CHECK(w.queue != NULL);
    return w;
}

static void close_world(world *w) {
    limiter_queue_free(w->queue);
    close_client(w->client, w->limiter);
}

static limiter_decision submit(world *w, uint64_t weight, int32_t wait_ms, uint64_t user_data) {
    limiter_request request = ask(NULL, weight, wait_ms);
    limiter_decision out = LIMITER_INIT(limiter_decision);
    limiter_status status;
    request.user_data = user_data;
    status = limiter_submit(w->queue, w->limiter, &request, &out);
    CHECK_STATUS(out.status, status);
    CHECK_EQ(out.user_data, user_data);
    CHECK((out.op != 0) == (out.status == LIMITER_PENDING));
    return out;
}

static int readable(const world *w, int timeout_ms) {
    struct pollfd p;
    p.fd = limiter_queue_fd(w->queue);
    p.events = POLLIN;
    p.revents = 0;
    return poll(&p, 1, timeout_ms) == 1 && (p.revents & POLLIN);
}

static void what_is_decided_at_once_never_completes(void) {
    world w = open_world(open_virtual());
    limiter_decision out, none;
    CHECK_OK(submit(&w, 1, 0, 1).status);
    CHECK_OK(submit(&w, 1, -1, 2).status);
    out = submit(&w, 1, 0, 3);
    CHECK_STATUS(out.status, LIMITER_DENIED);
    CHECK_STATUS(submit(&w, 3, -1, 4).status, LIMITER_NEVER);
    CHECK_OK(submit(&w, 0, -1, 5).status);
    CHECK(!readable(&w, 0));
    CHECK_EQ(limiter_queue_poll(w.queue, &none, 1, 0), 0);
    close_world(&w);
}

static void pending_completes_exactly_once_in_order(void) {
    world w = open_world(open_real());
    limiter_permit a = submit(&w, 1, 0, 0).permit, b = submit(&w, 1, 0, 0).permit;
    limiter_decision first = submit(&w, 1, -1, 11), second = submit(&w, 1, -1, 12), out[4];
    CHECK_STATUS(first.status, LIMITER_PENDING);
    CHECK_STATUS(second.status, LIMITER_PENDING);
    CHECK(first.op != second.op);
    CHECK_EQ(first.queue_position, 0);
    CHECK_EQ(second.queue_position, 1);
    CHECK(!readable(&w, 0));
    CHECK_OK(limiter_release(w.limiter, a));
    CHECK_OK(limiter_release(w.limiter, b));
    CHECK(readable(&w, 10000));
    CHECK_EQ(limiter_queue_poll(w.queue, out, 1, 0), 1); /* cap is kept, the rest stays readable */
    CHECK(readable(&w, 10000));
    CHECK_EQ(limiter_queue_poll(w.queue, out + 1, 3, 10000), 1);
    CHECK(out[0].op == first.op && out[0].user_data == 11 && out[0].permit != 0);
    CHECK(out[1].op == second.op && out[1].user_data == 12 && out[1].permit != 0);
    CHECK(out[0].permit != out[1].permit);
    CHECK_OK(out[0].status);
    CHECK(!readable(&w, 0));
    CHECK_EQ(limiter_queue_poll(w.queue, out + 2, 2, 0), 0);
    CHECK_STATUS(limiter_cancel(w.client, first.op, 0), LIMITER_STALE);
    CHECK_STATUS(limiter_cancel(w.client, first.op, LIMITER_DETACH), LIMITER_STALE);
    CHECK_OK(limiter_release(w.limiter, out[0].permit));
    CHECK_OK(limiter_release(w.limiter, out[1].permit));
    close_world(&w);
}

static void the_descriptor_is_of_the_good_kind(void) {
    world w = open_world(open_real());
    int fd = limiter_queue_fd(w.queue);
    CHECK(fd >= 0);
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
    CHECK_EQ(limiter_queue_fd(w.queue), fd);
    CHECK(!readable(&w, 0));
    limiter_queue_free(w.queue);
    CHECK(fcntl(fd, F_GETFD) < 0 && errno == EBADF);
    close_client(w.client, w.limiter);
}

static void no_descriptor_left_is_a_status(void) {
    limiter_client_t *client = open_real();
    limiter_queue_t *queues[100];
    struct rlimit few;
    limiter_status status = LIMITER_OK;
    int n = 0, i;
    CHECK(getrlimit(RLIMIT_NOFILE, &few) == 0);
    few.rlim_cur = 50;
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    while (n < 100) {
        queues[n] = (limiter_queue_t *)&n;
        status = limiter_queue_new(client, &queues[n]);
        if (status != LIMITER_OK) break;
        n++;
    }
    CHECK_STATUS(status, LIMITER_RESOURCE);
    CHECK(n > 0 && queues[n] == NULL);
    for (i = 0; i < n; i++) limiter_queue_free(queues[i]);
    CHECK_OK(limiter_queue_new(client, &queues[0])); /* descriptors came back */
    limiter_queue_free(queues[0]);
    CHECK_OK(limiter_client_free(client));
}

static void cancel_completes_as_cancelled(void) {
    world w = open_world(open_virtual());
    limiter_permit held = submit(&w, 2, 0, 0).permit;
    limiter_decision pending = submit(&w, 1, -1, 21), out;
    CHECK_OK(limiter_cancel(w.client, pending.op, 0));
    CHECK_EQ(limiter_queue_poll(w.queue, &out, 1, 10000), 1);
    CHECK_STATUS(out.status, LIMITER_CANCELLED);
    CHECK(out.op == pending.op && out.user_data == 21 && out.permit == 0);
    CHECK_STATUS(limiter_cancel(w.client, pending.op, 0), LIMITER_STALE);
    CHECK_EQ(limiter_queue_poll(w.queue, &out, 1, 0), 0);
    CHECK_OK(limiter_release(w.limiter, held));
    CHECK_OK(submit(&w, 2, 0, 0).status);
    close_world(&w);
}

static void cancel_after_the_grant_leaves_the_grant(void) {
    world w = open_world(open_virtual());
    limiter_permit held = submit(&w, 2, 0, 0).permit;
    limiter_decision pending = submit(&w, 1, -1, 0), out;
    CHECK_OK(limiter_release(w.limiter, held)); /* granted, not polled yet */
    (void)limiter_cancel(w.client, pending.op, 0);
    CHECK_EQ(limiter_queue_poll(w.queue, &out, 1, 10000), 1);
    CHECK_OK(out.status);
    CHECK_OK(limiter_release(w.limiter, out.permit));
    CHECK_OK(submit(&w, 2, 0, 0).status);
    close_world(&w);
}

static void detach_brings_nothing_and_gives_back(void) {
    world w = open_world(open_virtual());
    limiter_permit held = submit(&w, 2, 0, 0).permit;
    limiter_decision waiting = submit(&w, 1, -1, 0), granted = submit(&w, 1, -1, 0), out;
    CHECK_OK(limiter_cancel(w.client, waiting.op, LIMITER_DETACH)); /* while it waits */
    CHECK_OK(limiter_release(w.limiter, held));
    CHECK(readable(&w, 10000));
    CHECK_OK(limiter_cancel(w.client, granted.op, LIMITER_DETACH)); /* when it lies in the queue */
    CHECK(!readable(&w, 0));
    CHECK_EQ(limiter_queue_poll(w.queue, &out, 1, 0), 0);
    CHECK_STATUS(limiter_cancel(w.client, granted.op, LIMITER_DETACH), LIMITER_STALE);
    CHECK_EQ(stats_of(w.client).in_flight, 0);
    CHECK_OK(submit(&w, 2, 0, 0).status);
    close_world(&w);
}

static void cancel_waits_goes_by_user_data(void) {
    world w = open_world(open_virtual());
    limiter_decision out[4];
    int i;
    CHECK_OK(submit(&w, 2, 0, 5).status);
    for (i = 0; i < 4; i++) CHECK_STATUS(submit(&w, 1, -1, i % 2 ? 5 : 6).status, LIMITER_PENDING);
    CHECK_EQ(limiter_cancel_waits(w.client, 5), 2);
    CHECK_EQ(limiter_queue_poll(w.queue, out, 4, 10000), 2);
    for (i = 0; i < 2; i++) CHECK(out[i].status == LIMITER_CANCELLED && out[i].user_data == 5);
    CHECK_EQ(stats_of(w.client).waiting, 2);
    close_world(&w);
}

static void deadlines_complete_as_denied(void) {
    world w = open_world(open_virtual());
    limiter_decision pending, out;
    CHECK_OK(submit(&w, 2, 0, 0).status);
    pending = submit(&w, 1, 250, 0);
    advance(w.client, MS(250) - 1);
    CHECK(!readable(&w, 0));
    advance(w.client, 1);
    CHECK_EQ(limiter_queue_poll(w.queue, &out, 1, 10000), 1);
    CHECK_STATUS(out.status, LIMITER_DENIED);
    CHECK(out.op == pending.op && out.waited_us == MS(250) && out.permit == 0);
    close_world(&w);
}

static void bookings_complete_when_they_are_due(void) {
    world w = open_world(open_virtual());
    limiter_limit limit = limiter_token_bucket(1, 1, S(1));
    limiter_decision out[3];
    int i;
    limiter_free(w.limiter);
    w.limiter = make(w.client, "rate", &limit, 1);
    CHECK_OK(submit(&w, 1, -1, 0).status);
    for (i = 0; i < 3; i++) CHECK_STATUS(submit(&w, 1, -1, (uint64_t)i).status, LIMITER_PENDING);
    advance(w.client, S(1) - 1);
    CHECK(!readable(&w, 0));
    advance(w.client, S(2) + 1);
    CHECK_EQ(limiter_queue_poll(w.queue, out, 3, 10000), 3);
    for (i = 0; i < 3; i++) {
        CHECK_OK(out[i].status);
        CHECK_EQ(out[i].user_data, i);
        CHECK_EQ(out[i].waited_us, (i + 1) * S(1));
    }
    close_world(&w);
}

static void a_lost_lease_is_told_where_asked(void) {
    world w = open_world(open_virtual());
    limiter_request request = ask(NULL, 1, -1);
    limiter_permit held = submit(&w, 2, 0, 0).permit;
    limiter_decision pending, granted, lost;
    request.flags = LIMITER_NO_RENEW | LIMITER_TELL_LOST;
    request.lease_ms = 500;
    request.user_data = 31;
    CHECK_STATUS(limiter_submit(w.queue, w.limiter, &request, &pending), LIMITER_PENDING);
    CHECK_OK(limiter_release(w.limiter, held));
    CHECK_EQ(limiter_queue_poll(w.queue, &granted, 1, 10000), 1);
    CHECK_OK(granted.status);
    advance(w.client, MS(500) - 1);
    CHECK_EQ(limiter_queue_poll(w.queue, &lost, 1, 0), 0);
    advance(w.client, 1);
    CHECK_EQ(limiter_queue_poll(w.queue, &lost, 1, 10000), 1);
    CHECK_STATUS(lost.status, LIMITER_STALE);
    CHECK(lost.op == pending.op && lost.permit == granted.permit && lost.user_data == 31);
    CHECK_EQ(limiter_queue_poll(w.queue, &lost, 1, 0), 0);
    CHECK_STATUS(limiter_release(w.limiter, granted.permit), LIMITER_STALE);
    close_world(&w);
}

static void queue_and_limiter_are_of_one_client(void) {
    world w = open_world(open_virtual());
    limiter_client_t *other = open_virtual();
    limiter_t *foreign = make1(other, limiter_semaphore(1));
    limiter_decision out;
    CHECK_STATUS(limiter_submit(w.queue, foreign, NULL, &out), LIMITER_INVALID);
    CHECK_OK(try_once(foreign, 1).status); /* nothing was taken */
    close_client(other, foreign);
    close_world(&w);
}

static void poll_waits_as_long_as_it_is_told(void) {
    world w = open_world(open_real());
    limiter_decision out;
    int64_t began = check_now_us();
    CHECK_EQ(limiter_queue_poll(w.queue, &out, 1, 60), 0);
    CHECK(check_now_us() - began >= 60000);
    close_world(&w);
}

typedef struct poller {
    world *w;
    int polled, released;
} poller;

static void *poller_run(void *argument) {
    poller *self = (poller *)argument;
    limiter_decision out[3];
    int32_t i, n;
    while ((n = limiter_queue_poll(self->w->queue, out, 3, -1)) >= 0) {
        CHECK(n > 0);
        for (i = 0; i < n; i++) {
            self->polled++;
            if (out[i].status != LIMITER_OK) continue;
            self->released++;
            CHECK_OK(limiter_release(self->w->limiter, out[i].permit));
        }
    }
    CHECK_STATUS(n, LIMITER_CLOSED);
    return NULL;
}

static void two_pollers_share_and_each_gets_closed_at_the_end(void) {
    world w = open_world(open_real());
    pthread_t threads[2];
    poller pollers[2];
    int i, pending = 0, total = check_times(20000), now = 0;
    for (i = 0; i < 2; i++) {
        pollers[i].w = &w;
        pollers[i].polled = pollers[i].released = 0;
        CHECK(pthread_create(&threads[i], NULL, poller_run, &pollers[i]) == 0);
    }
    for (i = 0; i < total; i++) {
        limiter_decision out = submit(&w, 1, -1, (uint64_t)i);
        if (out.status == LIMITER_PENDING) {
            pending++;
            if (i % 5 == 0) (void)limiter_cancel(w.client, out.op, 0);
        } else {
            CHECK_OK(out.status);
            now++;
            CHECK_OK(limiter_release(w.limiter, out.permit));
        }
    }
    CHECK_SOON(stats_of(w.client).waiting == 0 && stats_of(w.client).in_flight == 0);
    CHECK_OK(limiter_client_shutdown(w.client, 10000));
    for (i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    CHECK_EQ(pollers[0].polled + pollers[1].polled, pending);
    CHECK(pollers[0].released + pollers[1].released <= pending && now + pending == total);
    close_world(&w);
}

static void after_shutdown_every_completion_is_polled_then_closed(void) {
    world w = open_world(open_real());
    limiter_decision out[8];
    int i;
    CHECK_OK(submit(&w, 2, 0, 0).status);
    for (i = 0; i < 5; i++) CHECK_STATUS(submit(&w, 1, -1, (uint64_t)i).status, LIMITER_PENDING);
    CHECK_OK(limiter_client_shutdown(w.client, 10000));
    CHECK(readable(&w, 10000));
    CHECK_EQ(limiter_queue_poll(w.queue, out, 3, -1), 3);
    CHECK_EQ(limiter_queue_poll(w.queue, out + 3, 5, -1), 2);
    for (i = 0; i < 5; i++) CHECK_STATUS(out[i].status, LIMITER_CLOSED);
    CHECK_STATUS(limiter_queue_poll(w.queue, out, 8, -1), LIMITER_CLOSED);
    close_world(&w);
}

static void a_freed_queue_gives_back_what_was_granted(void) {
    world w = open_world(open_real());
    limiter_permit held = submit(&w, 2, 0, 0).permit;
    CHECK_STATUS(submit(&w, 1, -1, 0).status, LIMITER_PENDING);
    CHECK_STATUS(submit(&w, 2, -1, 0).status, LIMITER_PENDING);
    CHECK_OK(limiter_release(w.limiter, held));
    CHECK(readable(&w, 10000)); /* one granted and unpolled, one waiting */
    limiter_queue_free(w.queue);
    w.queue = NULL;
    CHECK_SOON(stats_of(w.client).in_flight == 0 && stats_of(w.client).waiting == 0);
    CHECK_OK(try_once(w.limiter, 2).status);
    close_world(&w);
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        CHECK_TEST(what_is_decided_at_once_never_completes),
        CHECK_TEST(pending_completes_exactly_once_in_order),
        CHECK_TEST(the_descriptor_is_of_the_good_kind),
        CHECK_TEST(no_descriptor_left_is_a_status),
        CHECK_TEST(cancel_completes_as_cancelled),
        CHECK_TEST(cancel_after_the_grant_leaves_the_grant),
        CHECK_TEST(detach_brings_nothing_and_gives_back),
        CHECK_TEST(cancel_waits_goes_by_user_data),
        CHECK_TEST(deadlines_complete_as_denied),
        CHECK_TEST(bookings_complete_when_they_are_due),
        CHECK_TEST(a_lost_lease_is_told_where_asked),
        CHECK_TEST(queue_and_limiter_are_of_one_client),
        CHECK_TEST(poll_waits_as_long_as_it_is_told),
        CHECK_TEST(two_pollers_share_and_each_gets_closed_at_the_end),
        CHECK_TEST(after_shutdown_every_completion_is_polled_then_closed),
        CHECK_TEST(a_freed_queue_gives_back_what_was_granted),
    };
    return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
