/* In memory: one key from one or more threads, a million keys; and what a call costs as things grow. */
#define _POSIX_C_SOURCE 200809L
#include "bench.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TURNS 1024

static limiter_t *shared;
static double end_at;

static void *loop(void *data) {
    tally *mine = data;
    limiter_request request = ask(0);
    limiter_decision out;
    double now = now_us();
    uint64_t turn = 0;

    while (now < end_at) {
        double began = now;
        for (int i = 0; i < TURNS; i++) {
            limiter_status status;
            next_key(turn++, &request);
            status = limiter_acquire(shared, &request, &out);
            if (status < 0) die("acquire", status);
            mine->admitted += status == LIMITER_OK;
        }
        mine->decisions += TURNS;
        now = now_us();
        record_latency((now - began) / TURNS);
    }
    return NULL;
}

/* `callers` threads call as fast as they can; with many keys each of them is there before. Also `denied`,
 * wherever the state is: the second of two calls on a key, again and again. */
void run_memory(limiter_t *limiter) {
    pthread_t *threads = malloc(args.callers * sizeof *threads);
    tally *tallies = calloc(args.callers, sizeof *tallies), sum = {0, 0, 0, 0, 0};
    limiter_request request = ask(0);
    limiter_decision out;
    double begin, before = resident_kib();

    if (threads == NULL || tallies == NULL) die("memory", LIMITER_RESOURCE);
    if (strncmp(args.work, "memory-", 7) == 0) {
        for (uint64_t i = 0; i < args.size; i++) {
            key_number(i, &request);
            if (limiter_acquire(limiter, &request, &out) != LIMITER_OK) die("fill", out.status);
        }
        sum.bytes_per_key = (resident_kib() - before) * 1024 / (double)args.size;
    } else if (limiter_acquire(limiter, &request, &out) < 0) {
        die("first", out.status);
    }
    shared = limiter;
    begin = now_us();
    end_at = begin + args.seconds * 1e6;
    for (unsigned i = 0; i < args.callers; i++) {
        if (pthread_create(&threads[i], NULL, loop, &tallies[i]) != 0) die("thread", LIMITER_RESOURCE);
    }
    for (unsigned i = 0; i < args.callers; i++) {
        pthread_join(threads[i], NULL);
        sum.decisions += tallies[i].decisions, sum.admitted += tallies[i].admitted;
    }
    sum.seconds = (now_us() - begin) / 1e6;
    answer(&sum, NULL);
}

/* What is counted, by `valgrind --toggle-collect=counted`: `callers` calls, once all is in place. */
__attribute__((noinline)) void counted(limiter_t *limiter, limiter_queue_t *queue, limiter_permit permit);

void counted(limiter_t *limiter, limiter_queue_t *queue, limiter_permit permit) {
    limiter_request request = ask(0);
    limiter_decision out, next[4];

    for (unsigned i = 0; i < args.callers; i++) {
        if (queue != NULL) { /* hands the permit to the first who waits, who queues up again */
            (void)limiter_release(limiter, permit);
            if (limiter_queue_poll(queue, next, 4, 10000) != 1) die("poll", next[0].status);
            permit = next[0].permit;
            request.wait_ms = -1;
            if (limiter_submit(queue, limiter, &request, &out) != LIMITER_PENDING) die("submit", out.status);
        } else {
            next_key(i, &request);
            if (limiter_acquire(limiter, &request, &out) < 0) die("acquire", out.status);
        }
    }
}

/* So many calls that are admitted, many together; each on a key of its own, or all on one. */
static void fill(limiter_t *limiter, uint64_t count, int keys) {
    enum { CHUNK = 512 };
    static limiter_request requests[CHUNK];
    static limiter_decision out[CHUNK];

    for (uint64_t done = 0; done < count;) {
        size_t now = count - done < CHUNK ? (size_t)(count - done) : CHUNK;
        limiter_status status;
        for (size_t i = 0; i < now; i++) {
            requests[i] = ask(0);
            if (keys) key_number(done + i, &requests[i]);
        }
        status = limiter_try_many(limiter, requests, out, now);
        if (status != LIMITER_OK) die("fill", status);
        for (size_t i = 0; i < now; i++) {
            if (out[i].status != LIMITER_OK) die("fill", out[i].status);
        }
        done += now;
    }
}

/* `keys`, `waiters` or a `log` of a size: filled, then some calls are counted. */
void run_growth(void) {
    limiter_queue_t *queue = NULL;
    limiter_request request = ask(0);
    limiter_decision out = LIMITER_INIT(limiter_decision);
    limiter_t *limiter;
    tally tally = {0, 0, 0, 0, 0};
    uint64_t size = args.size;
    double began;

    if (strcmp(args.work, "waiters") == 0) args.size = 1;
    limiter = open_limiter("growth");
    if (strcmp(args.work, "keys") == 0) {
        fill(limiter, size, 1);
    } else if (strcmp(args.work, "log") == 0) { /* one entry for each call, and room for those counted */
        limiter_free(limiter);
        args.size += args.callers;
        limiter = open_limiter("growth");
        fill(limiter, size, 0);
    } else {
        if (limiter_queue_new(client, &queue) != LIMITER_OK) die("queue", LIMITER_RESOURCE);
        request.wait_ms = -1;
        if (limiter_acquire(limiter, &request, &out) != LIMITER_OK) die("first", out.status);
        for (uint64_t i = 0; i < size; i++) {
            limiter_decision wait;
            if (limiter_submit(queue, limiter, &request, &wait) != LIMITER_PENDING) die("wait", wait.status);
        }
    }
    /* Whoever measures the server looks at it now, and once more at the end. */
    printf("ready\n");
    fflush(stdout);
    (void)getchar();
    began = now_us();
    counted(limiter, queue, out.permit);
    tally.seconds = (now_us() - began) / 1e6;
    tally.decisions = tally.admitted = args.callers;
    answer(&tally, NULL);
}
