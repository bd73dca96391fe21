/* On Redis: calls through a completion queue, from threads, a hundred at once, and semaphores. */
#define _POSIX_C_SOURCE 200809L
#include "bench.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 1024

static int decided(limiter_status status) {
    return status == LIMITER_OK || status == LIMITER_DENIED;
}

static limiter_queue_t *new_queue(void) {
    limiter_queue_t *queue = NULL;
    limiter_status status = limiter_queue_new(client, &queue);
    if (status != LIMITER_OK) die("queue", status);
    return queue;
}

/* `callers` requests are under way at any time: whoever is answered asks again. */
void run_async(limiter_t *limiter) {
    limiter_queue_t *queue = new_queue();
    limiter_decision *done = malloc(BATCH * sizeof *done);
    double *asked = malloc(args.callers * sizeof *asked);
    unsigned *idle = malloc(args.callers * sizeof *idle), idlers = args.callers;
    limiter_request request = ask(0);
    uint64_t turn = 0, pending = 0;
    tally tally = {0, 0, 0, 0, 0};
    limiter_decision first;
    double begin, end, now;

    if (done == NULL || asked == NULL || idle == NULL) die("memory", LIMITER_RESOURCE);
    /* Connects and brings the script; not counted. */
    if (!decided(limiter_acquire(limiter, &request, &first))) die("first", first.status);
    for (unsigned i = 0; i < args.callers; i++) idle[i] = i;
    begin = now = now_us();
    end = begin + args.seconds * 1e6;
    while (now < end || pending > 0) {
        int32_t count;
        while (now < end && idlers > 0) {
            limiter_decision out;
            limiter_status status;
            request.user_data = idle[--idlers];
            next_key(turn++, &request);
            asked[request.user_data] = now;
            status = limiter_submit(queue, limiter, &request, &out);
            if (status == LIMITER_PENDING) {
                pending++;
            } else if (decided(status)) { /* known at once */
                idle[idlers++] = (unsigned)request.user_data;
                tally.decisions++, tally.admitted += status == LIMITER_OK;
                if ((turn & 63) == 0) now = now_us();
            } else {
                die("submit", status);
            }
        }
        if (pending == 0) break;
        count = limiter_queue_poll(queue, done, BATCH, 10000);
        if (count <= 0) die("poll", count);
        now = now_us();
        for (int32_t i = 0; i < count; i++) {
            unsigned caller = (unsigned)done[i].user_data;
            if (!decided(done[i].status)) die("answer", done[i].status);
            record_latency(now - asked[caller]);
            tally.decisions++, tally.admitted += done[i].status == LIMITER_OK;
            idle[idlers++] = caller;
        }
        pending -= (uint64_t)count;
    }
    tally.seconds = (now_us() - begin) / 1e6;
    answer(&tally, NULL);
}

static limiter_t *shared;
static double end_at;

static void *caller(void *data) {
    tally *mine = data;
    limiter_request request = ask(0);
    limiter_decision out;
    double now = now_us();
    uint64_t turn = (uint64_t)(uintptr_t)mine * 7919;

    while (now < end_at) {
        double began = now;
        limiter_status status;
        next_key(turn++, &request);
        status = limiter_acquire(shared, &request, &out);
        if (!decided(status)) die("acquire", status);
        mine->decisions++, mine->admitted += status == LIMITER_OK;
        now = now_us();
        record_latency(now - began);
    }
    return NULL;
}

/* `callers` threads, each blocked until it is answered. */
void run_threads(limiter_t *limiter) {
    pthread_t *threads = malloc(args.callers * sizeof *threads);
    tally *tallies = calloc(args.callers, sizeof *tallies), sum = {0, 0, 0, 0, 0};
    limiter_request request = ask(0);
    limiter_decision first;
    double begin;

    if (threads == NULL || tallies == NULL) die("memory", LIMITER_RESOURCE);
    shared = limiter;
    if (!decided(limiter_acquire(limiter, &request, &first))) die("first", first.status);
    begin = now_us();
    end_at = begin + args.seconds * 1e6;
    for (unsigned i = 0; i < args.callers; i++) {
        if (pthread_create(&threads[i], NULL, caller, &tallies[i]) != 0) die("thread", LIMITER_RESOURCE);
    }
    for (unsigned i = 0; i < args.callers; i++) {
        pthread_join(threads[i], NULL);
        sum.decisions += tallies[i].decisions, sum.admitted += tallies[i].admitted;
    }
    sum.seconds = (now_us() - begin) / 1e6;
    answer(&sum, NULL);
}

/* All callers ask at once, and each gives its permit back at once: what self-limiters times in its own
 * benchmark. Again with a new name until the time is over. */
void run_at_once(void) {
    limiter_queue_t *queue = new_queue();
    limiter_decision out, *done = malloc(BATCH * sizeof *done);
    tally tally = {0, 0, 0, 0, 0};
    double end = now_us() + args.seconds * 1e6;

    if (done == NULL) die("memory", LIMITER_RESOURCE);
    for (unsigned round = 0; round < 2 || now_us() < end; round++) {
        char name[64];
        double begin, spent;
        unsigned answered = 0;
        limiter_t *limiter;
        limiter_request request = ask(-1);

        snprintf(name, sizeof name, "at-once-%u", round);
        begin = now_us();
        limiter = open_limiter(name);
        for (unsigned i = 0; i < args.callers; i++) {
            if (limiter_submit(queue, limiter, &request, &out) != LIMITER_PENDING) die("submit", out.status);
        }
        while (answered < args.callers) {
            int32_t count = limiter_queue_poll(queue, done, BATCH, 10000);
            if (count <= 0) die("poll", count);
            for (int32_t i = 0; i < count; i++) {
                if (done[i].status != LIMITER_OK) die("answer", done[i].status);
                (void)limiter_release(limiter, done[i].permit);
            }
            answered += (unsigned)count;
        }
        spent = now_us() - begin;
        if (round == 0) { /* it connects and brings the script */
            tally.warm_up = args.callers;
        } else {
            record_latency(spent);
            tally.decisions += args.callers, tally.admitted += args.callers;
            tally.seconds += spent / 1e6;
        }
        limiter_free(limiter);
    }
    answer(&tally, NULL);
}

/* `callers` wait for one semaphore; whoever gets it gives it back, after a millisecond where it is to be
 * judged, and queues up again. */
void run_semaphore(limiter_t *limiter) {
    limiter_queue_t *queue = new_queue();
    limiter_decision out, *done = malloc(BATCH * sizeof *done);
    double *asked = calloc(args.callers, sizeof *asked);
    int judged = strcmp(args.work, "judged") == 0;
    struct { double since; limiter_permit permit; uint64_t who; } held[64];
    size_t first = 0, last = 0, used = 1, room = 1u << 20;
    char *holds = malloc(room);
    limiter_request request = ask(-1);
    tally tally = {0, 0, 0, 0, 0};
    double begin, end, now;

    if (done == NULL || asked == NULL || holds == NULL) die("memory", LIMITER_RESOURCE);
    strcpy(holds, "[");
    begin = now = now_us();
    end = begin + args.seconds * 1e6;
    for (unsigned i = 0; i < args.callers; i++) {
        request.user_data = i;
        asked[i] = now;
        if (limiter_submit(queue, limiter, &request, &out) != LIMITER_PENDING) die("submit", out.status);
    }
    while (now < end) {
        int32_t count = limiter_queue_poll(queue, done, judged ? 16 : BATCH, first < last ? 1 : 50);
        if (count < 0) die("poll", count);
        now = now_us();
        for (int32_t i = 0; i < count; i++) {
            if (done[i].status != LIMITER_OK) die("answer", done[i].status);
            record_latency(now - asked[done[i].user_data]);
            tally.decisions++, tally.admitted++;
            held[last % 64].since = now;
            held[last % 64].permit = done[i].permit;
            held[last++ % 64].who = done[i].user_data;
            if (last - first > 63) die("too many at once", LIMITER_OVERLOADED);
            if (judged) continue;
            (void)limiter_release(limiter, done[i].permit);
            asked[done[i].user_data] = now;
            request.user_data = done[i].user_data;
            if (limiter_submit(queue, limiter, &request, &out) != LIMITER_PENDING) die("submit", out.status);
            first = last;
        }
        for (; first < last && now >= held[first % 64].since + 1000; first++) {
            double until = now_us();
            if (used + 64 < room) {
                used += (size_t)sprintf(holds + used, "%s[%.1f, %.1f]", used > 1 ? ", " : "",
                                        held[first % 64].since, until);
            }
            (void)limiter_release(limiter, held[first % 64].permit);
            request.user_data = held[first % 64].who;
            asked[request.user_data] = until;
            if (limiter_submit(queue, limiter, &request, &out) != LIMITER_PENDING) die("submit", out.status);
        }
    }
    strcpy(holds + used, "]");
    tally.seconds = (now - begin) / 1e6;
    answer(&tally, judged ? holds : NULL);
}
