/*
 * Hundreds of waits in one thread: a completion queue in an event loop.
 *
 * limiter_submit() starts an acquire and returns at once. Its answer is either there already, or comes
 * later through the queue, whose descriptor poll(2), epoll, kqueue or any event library can watch.
 * Some of the waits are cancelled here; each wait is answered exactly once all the same.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _POSIX_C_SOURCE 200809L

#include <limiter.h>

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define JOBS 400
#define WAIT_MS 10000

struct tally {
    unsigned admitted, cancelled, pending;
};

static int fail(const char *where, limiter_status status) {
    fprintf(stderr, "event_loop: %s: %s\n", where, limiter_status_message(status));
    return -1;
}

/* An answer, wherever it came from. The job itself would start here; this one is over at once. */
static int answered(limiter_t *limiter, const limiter_decision *answer, struct tally *tally) {
    limiter_status status;

    if (answer->status == LIMITER_CANCELLED) {
        tally->cancelled++; /* nothing is held and nothing was charged */
        return 0;
    }
    if (answer->status != LIMITER_OK) return fail("acquire", answer->status);
    tally->admitted++;
    status = limiter_release(limiter, answer->permit);
    return status == LIMITER_OK ? 0 : fail("limiter_release", status);
}

static int submit_jobs(limiter_client_t *client, limiter_t *limiter, limiter_queue_t *queue,
                       struct tally *tally) {
    limiter_request request = LIMITER_INIT(limiter_request);
    limiter_decision answer;
    unsigned job;

    request.wait_ms = WAIT_MS;
    for (job = 0; job < JOBS; job++) {
        limiter_status status;
        request.user_data = job; /* comes back in the answer: a number or a pointer of yours */
        status = limiter_submit(queue, limiter, &request, &answer);
        if (status != LIMITER_PENDING) {
            /* Decided at once; nothing will come through the queue. */
            if (answered(limiter, &answer, tally) != 0) return -1;
            continue;
        }
        tally->pending++;
        if (job % 10 != 9) continue;
        /* Every tenth is no longer wanted. STALE would mean that its answer was polled already. */
        status = limiter_cancel(client, answer.op, 0);
        if (status != LIMITER_OK && status != LIMITER_STALE) return fail("limiter_cancel", status);
    }
    return 0;
}

static int loop(limiter_t *limiter, limiter_queue_t *queue, struct tally *tally) {
    struct pollfd watched;
    watched.fd = limiter_queue_fd(queue);
    watched.events = POLLIN;
    if (watched.fd < 0) return fail("limiter_queue_fd", watched.fd);

    while (tally->pending > 0) {
        limiter_decision answer[32];
        int32_t count, i;

        /* A real loop watches its sockets in the same call. Every job here ends by its deadline. */
        int ready = poll(&watched, 1, WAIT_MS + 5000);
        if (ready < 0 && errno != EINTR) {
            fprintf(stderr, "event_loop: poll: %s\n", strerror(errno));
            return -1;
        }
        if (ready == 0) {
            fprintf(stderr, "event_loop: %u jobs were never answered\n", tally->pending);
            return -1;
        }
        count = limiter_queue_poll(queue, answer, 32, 0); /* takes what there is, never waits */
        if (count < 0) return fail("limiter_queue_poll", count);
        for (i = 0; i < count; i++) {
            tally->pending--;
            if (answered(limiter, &answer[i], tally) != 0) return -1;
        }
    }
    return 0;
}

static int run(limiter_client_t *client, limiter_t *limiter, limiter_queue_t *queue) {
    struct tally tally = {0, 0, 0};
    unsigned started;

    if (submit_jobs(client, limiter, queue, &tally) != 0) return 1;
    started = tally.pending;
    if (loop(limiter, queue, &tally) != 0) return 1;
    printf("%d jobs, %u of them had to wait: %u admitted, %u cancelled\n", JOBS, started,
           tally.admitted, tally.cancelled);
    return tally.admitted + tally.cancelled == JOBS ? 0 : 1;
}

int main(void) {
    char why[LIMITER_ERRBUF_SIZE] = "";
    limiter_limit limits[2];
    limiter_client_t *client = NULL;
    limiter_t *limiter = NULL;
    limiter_queue_t *queue = NULL;
    int result = 1;

    limits[0] = limiter_semaphore(10);
    limits[1] = limiter_token_bucket(50, 1000, LIMITER_SECOND);
    if (limiter_client_open("memory://", NULL, &client, why, sizeof why) != LIMITER_OK
        || limiter_new(client, "jobs", limits, 2, &limiter, why, sizeof why) != LIMITER_OK) {
        fprintf(stderr, "event_loop: %s\n", why);
    } else if (limiter_queue_new(client, &queue) != LIMITER_OK) {
        fprintf(stderr, "event_loop: no descriptor left for a queue\n");
    } else {
        result = run(client, limiter, queue);
    }
    limiter_queue_free(queue);
    limiter_free(limiter);
    limiter_client_free(client);
    return result;
}
