/*
 * A pool whose threads never wait for a limit: a job enters the pool's queue only once it is admitted.
 *
 * limiter_acquire_cb() returns at once and calls back when the job may start. The callback runs on a
 * thread of the library, so it only hands the job over; the pool's own threads do the work and give
 * the permit back.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _POSIX_C_SOURCE 200809L

#include <limiter.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define JOBS 300
#define THREADS 8
#define MOST_AT_ONCE 3

struct pool;

struct job {
    struct pool *pool;
    struct job *next;
    limiter_permit permit;
};

struct pool {
    limiter_t *limiter;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    struct job *first, **last; /* admitted, not yet begun */
    unsigned answered, done, errors;
    unsigned at_once, most_at_once;
};

/* Called by the library, exactly once for each job whose acquire answered PENDING. */
static void admitted(void *user_data, const limiter_decision *decision) {
    struct job *job = user_data;
    struct pool *pool = job->pool;

    pthread_mutex_lock(&pool->lock);
    pool->answered++;
    if (decision->status == LIMITER_OK) {
        job->permit = decision->permit;
        job->next = NULL;
        *pool->last = job;
        pool->last = &job->next;
    } else {
        pool->errors++;
    }
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
}

static void work(void) {
    struct timespec a_millisecond = {0, 1000000};
    nanosleep(&a_millisecond, NULL);
}

static struct job *next_job(struct pool *pool) {
    struct job *job;

    pthread_mutex_lock(&pool->lock);
    while (pool->first == NULL && pool->answered < JOBS) {
        pthread_cond_wait(&pool->changed, &pool->lock);
    }
    job = pool->first;
    if (job != NULL) {
        pool->first = job->next;
        if (pool->first == NULL) pool->last = &pool->first;
        if (++pool->at_once > pool->most_at_once) pool->most_at_once = pool->at_once;
    }
    pthread_mutex_unlock(&pool->lock);
    return job;
}

static void *worker(void *argument) {
    struct pool *pool = argument;
    struct job *job;

    while ((job = next_job(pool)) != NULL) {
        limiter_status status;
        work();
        pthread_mutex_lock(&pool->lock);
        pool->at_once--;
        pool->done++;
        pthread_mutex_unlock(&pool->lock);
        status = limiter_release(pool->limiter, job->permit);
        if (status != LIMITER_OK) {
            fprintf(stderr, "callback_pool: release: %s\n", limiter_status_message(status));
        }
    }
    return NULL;
}

static void submit_jobs(struct pool *pool, struct job *job) {
    limiter_request request = LIMITER_INIT(limiter_request);
    unsigned i;

    request.wait_ms = 10000;
    for (i = 0; i < JOBS; i++) {
        limiter_status status;
        job[i].pool = pool;
        status = limiter_acquire_cb(pool->limiter, &request, admitted, &job[i], NULL);
        if (status != LIMITER_PENDING) { /* not started: the callback will never be called */
            fprintf(stderr, "callback_pool: acquire: %s\n", limiter_status_message(status));
            pthread_mutex_lock(&pool->lock);
            pool->answered++;
            pool->errors++;
            pthread_cond_broadcast(&pool->changed);
            pthread_mutex_unlock(&pool->lock);
        }
    }
}

static int run(struct pool *pool) {
    static struct job job[JOBS];
    pthread_t thread[THREADS];
    int started = 0, i;

    pool->last = &pool->first;
    if (pthread_mutex_init(&pool->lock, NULL) != 0 || pthread_cond_init(&pool->changed, NULL) != 0) {
        return 1;
    }
    while (started < THREADS && pthread_create(&thread[started], NULL, worker, pool) == 0) started++;
    if (started == 0) {
        fprintf(stderr, "callback_pool: cannot start a thread\n");
        return 1;
    }
    submit_jobs(pool, job);
    for (i = 0; i < started; i++) pthread_join(thread[i], NULL);
    printf("%u of %d jobs done by %d threads, at most %u at once\n", pool->done, JOBS, started,
           pool->most_at_once);
    return pool->done == JOBS && pool->errors == 0 && pool->most_at_once <= MOST_AT_ONCE ? 0 : 1;
}

int main(void) {
    char why[LIMITER_ERRBUF_SIZE] = "";
    limiter_limit limit = limiter_semaphore(MOST_AT_ONCE);
    limiter_client_t *client = NULL;
    struct pool pool;
    int result = 1;

    memset(&pool, 0, sizeof pool);
    if (limiter_client_open("memory://", NULL, &client, why, sizeof why) != LIMITER_OK
        || limiter_new(client, "jobs", &limit, 1, &pool.limiter, why, sizeof why) != LIMITER_OK) {
        fprintf(stderr, "callback_pool: %s\n", why);
    } else {
        result = run(&pool);
    }
    limiter_free(pool.limiter);
    limiter_client_free(client);
    return result;
}
