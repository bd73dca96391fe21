/*
 * A pool that exists already and offers two hooks, one before and one after each task. It knows
 * nothing of limits and is not changed: limiter_before_task() and limiter_after_task() are the hooks.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _POSIX_C_SOURCE 200809L

#include <limiter.h>

#include <pthread.h>
#include <stdio.h>
#include <time.h>

#define THREADS 6
#define TASKS_EACH 20
#define MOST_AT_ONCE 2

/* The pool: it runs a task only if the hook before it answers 0. */

struct pool_thread {
    int32_t (*before)(void *argument);
    void (*after)(void *argument);
    void *argument; /* of both hooks; each thread has its own */
    void (*task)(void);
    int refused;
};

static void *pool_thread_main(void *argument) {
    struct pool_thread *self = argument;
    int i;

    for (i = 0; i < TASKS_EACH; i++) {
        if (self->before(self->argument) != 0) {
            self->refused++;
            continue;
        }
        self->task();
        self->after(self->argument);
    }
    return NULL;
}

/* The program. */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int done, at_once, most_at_once;

static void task(void) {
    const struct timespec a_millisecond = {0, 1000000};

    pthread_mutex_lock(&lock);
    if (++at_once > most_at_once) most_at_once = at_once;
    pthread_mutex_unlock(&lock);

    nanosleep(&a_millisecond, NULL);

    pthread_mutex_lock(&lock);
    at_once--;
    done++;
    pthread_mutex_unlock(&lock);
}

static int run(limiter_t *limiter) {
    const limiter_slot fresh = LIMITER_INIT(limiter_slot);
    limiter_slot slot[THREADS]; /* one for each task that may run at a time */
    struct pool_thread pool[THREADS];
    pthread_t thread[THREADS];
    int started, i, refused = 0;

    for (started = 0; started < THREADS; started++) {
        slot[started] = fresh;
        slot[started].limiter = limiter;
        slot[started].request.wait_ms = 5000;
        pool[started].before = limiter_before_task;
        pool[started].after = limiter_after_task;
        pool[started].argument = &slot[started];
        pool[started].task = task;
        pool[started].refused = 0;
        if (pthread_create(&thread[started], NULL, pool_thread_main, &pool[started]) != 0) {
            fprintf(stderr, "hooks: cannot start a thread\n");
            break;
        }
    }
    for (i = 0; i < started; i++) {
        pthread_join(thread[i], NULL);
        refused += pool[i].refused;
    }
    printf("%d tasks done by %d threads, %d refused, at most %d at once\n", done, started, refused,
           most_at_once);
    return done == THREADS * TASKS_EACH && most_at_once <= MOST_AT_ONCE ? 0 : 1;
}

int main(void) {
    char why[LIMITER_ERRBUF_SIZE] = "";
    limiter_limit limit = limiter_semaphore(MOST_AT_ONCE);
    limiter_client_t *client = NULL;
    limiter_t *limiter = NULL;
    int result = 1;

    if (limiter_client_open("memory://", NULL, &client, why, sizeof why) != LIMITER_OK
        || limiter_new(client, "tasks", &limit, 1, &limiter, why, sizeof why) != LIMITER_OK) {
        fprintf(stderr, "hooks: %s\n", why);
    } else {
        result = run(limiter);
    }
    limiter_free(limiter);
    limiter_client_free(client);
    return result;
}
