/*
 * A pool of threads under three limits at once, taken as one decision before each task:
 *
 *     at most 4 tasks at once
 *     at most 200 starts per second, with a burst of 20
 *     at most 64 MiB read per second, settled at each file's true size
 *
 * A task is the checksum of a real file. What a file costs is not known before it is read (as with an
 * answer's size, or the tokens of a language model), so a task asks with an estimate and settles at
 * the truth. The program keeps a record of its own, by its own clock, and at the end judges the
 * limits from it alone. It exits 0 if they held, 1 if one was exceeded or something failed, 2 if it
 * could not run, and as a shell has it (130) if they held until somebody pressed Ctrl-C.
 *
 * With --processes 3 it is three such pools in three processes that share the limits through Redis, and
 * with --kill one of them is killed in the middle. Nothing else changes in what they do.
 *
 * What concerns the library is in make_limiter(), answers() and run_task(); the rest is a pool like any
 * other. The parts in worker_pool/ do not use the library.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _XOPEN_SOURCE 700

#include "worker_pool/worker_pool.h"

#include <limiter.h>

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct pool {
    const struct options *options;
    size_t process; /* which one of options->processes, from 0 */
    limiter_client_t *client;
    limiter_t *limiter;
    struct files files;
    int64_t begin, deadline;
    struct journal *journals[MOST_PROCESSES], *journal;

    pthread_mutex_t lock; /* guards what follows, and the counts in the journal */
    size_t next_task, running_threads;
    uint32_t checksum;    /* of all checksums, in no order */
    char backend_says[256];
};

static volatile sig_atomic_t interrupted; /* the signal that did it, or -1 for a failure */

static void interrupt(int signal_number) {
    interrupted = signal_number;
}

/* THE LIMITS ------------------------------------------------------------------------------------ */

/* Without what is nobody's business: user and password. */
static void show_url(const char *url, char *shown, size_t size) {
    const char *host = strstr(url, "://"), *at;
    size_t length;

    host = host != NULL ? host + 3 : url;
    length = strcspn(host, "/?");
    for (at = host + length; at > host && at[-1] != '@'; at--) continue;
    length = strcspn(at, "?");
    snprintf(shown, size, "%.*s%.*s", (int)(host - url), url, (int)length, at);
}

/* Told by the library: why it cannot reach Redis, for instance, and that it is "; trying on". */
static void hear(void *user_data, int32_t level, const char *message) {
    struct pool *pool = user_data;
    (void)level;
    pthread_mutex_lock(&pool->lock);
    snprintf(pool->backend_says, sizeof pool->backend_says, "%.*s", (int)strcspn(message, ";"), message);
    pthread_mutex_unlock(&pool->lock);
}

static int make_limiter(struct pool *pool) {
    const struct options *options = pool->options;
    char why[LIMITER_ERRBUF_SIZE] = "";
    limiter_config_t *config = limiter_config_new();
    limiter_limit limits[3];
    limiter_status status;

    /*
     * A request has one weight, here the bytes. per_call says which limits count calls instead: a
     * task of 64 KiB is one task at once and one start, but 65 536 bytes.
     */
    limits[0] = limiter_per_call(limiter_semaphore(AT_ONCE));
    limits[0].lease_ms = (uint32_t)options->lease_ms;
    limits[1] = limiter_per_call(
        limiter_token_bucket(STARTS_BURST, STARTS_PER_SECOND, LIMITER_SECOND));
    limits[2] = limiter_token_bucket(BYTES_BURST, BYTES_PER_SECOND, LIMITER_SECOND);

    limiter_config_set_log(config, 2, hear, pool); /* 2: errors and warnings */
    status = limiter_client_open(options->url, config, &pool->client, why, sizeof why);
    limiter_config_free(config);
    if (status != LIMITER_OK) {
        fprintf(stderr, "worker_pool: cannot use this URL: %s\n", why);
        return -1;
    }
    status = limiter_new(pool->client, options->name, limits, 3, &pool->limiter, why, sizeof why);
    if (status != LIMITER_OK) {
        fprintf(stderr, "worker_pool: cannot make the limiter: %s\n", why);
        return -1;
    }
    return 0;
}

static void free_limiter(struct pool *pool) {
    limiter_free(pool->limiter);
    limiter_client_free(pool->client);
    pool->limiter = NULL;
    pool->client = NULL;
}

/* To open a client connects to nothing. Whether Redis is there shows when it is asked something. */
static int answers(struct pool *pool) {
    const int64_t give_up = now_ns() + 2 * NANOS_PER_SECOND;
    limiter_decision decision;
    char url[256];

    for (;;) {
        const limiter_status status = limiter_peek(pool->limiter, NULL, &decision);
        if (status >= 0) return 1;
        if (interrupted || now_ns() > give_up) {
            show_url(pool->options->url, url, sizeof url);
            pthread_mutex_lock(&pool->lock);
            fprintf(stderr, "worker_pool: no answer from %s: %s\n", url,
                    *pool->backend_says ? pool->backend_says : limiter_status_message(status));
            pthread_mutex_unlock(&pool->lock);
            return 0;
        }
        sleep_ms(100);
    }
}

/* With the pool's lock held. */
static void note_error(struct pool *pool, const char *where, const char *what) {
    if (pool->journal->errors++ == 0) {
        snprintf(pool->journal->first_error, sizeof pool->journal->first_error, "%s: %s", where, what);
    }
}

static void expect_ok(struct pool *pool, const char *where, limiter_status status) {
    if (status == LIMITER_OK) return;
    pthread_mutex_lock(&pool->lock);
    note_error(pool, where, limiter_status_message(status));
    pthread_mutex_unlock(&pool->lock);
}

static void note_refusal(struct pool *pool, limiter_status status) {
    pthread_mutex_lock(&pool->lock);
    if (status == LIMITER_DENIED) {
        pool->journal->denied++; /* not before this run's time is over */
    } else if (status == LIMITER_CANCELLED) {
        pool->journal->cancelled++;
    } else {
        note_error(pool, "limiter_acquire", limiter_status_message(status));
    }
    pthread_mutex_unlock(&pool->lock);
    if (status < 0 && status != LIMITER_CANCELLED) sleep_ms(100); /* it may need a moment */
}

/* Each process has each so-manieth file, if there are enough for all. */
static const char *file_of(const struct pool *pool, size_t number) {
    const size_t processes = (size_t)pool->options->processes, count = pool->files.count;
    const size_t part = (count + processes - 1 - pool->process) / processes;
    if (count < processes) return pool->files.path[number % count];
    return pool->files.path[number % part * processes + pool->process];
}

static void work(struct pool *pool, size_t number, struct task *task) {
    const char *path = file_of(pool, number);
    uint32_t crc;
    int failed = file_checksum(path, &crc, &task->bytes);

    pthread_mutex_lock(&pool->lock);
    if (failed) note_error(pool, path, strerror(errno));
    pool->checksum ^= crc;
    pool->journal->bytes += task->bytes;
    pthread_mutex_unlock(&pool->lock);
    sleep_ms(options_hold_ms(pool->options, number, task->start - pool->begin));
}

/* Whether there may be time for another task. */
static int run_task(struct pool *pool, size_t number) {
    limiter_request request = LIMITER_INIT(limiter_request);
    limiter_decision decision;
    limiter_status status;
    struct task *task;
    const int64_t asked = now_ns();

    if (asked >= pool->deadline) return 0;
    request.weight = ESTIMATED_BYTES;
    request.wait_ms = (int32_t)((pool->deadline - asked) / NANOS_PER_MS);
    request.user_data = (uintptr_t)pool; /* what cancel_waits goes by */

    pthread_mutex_lock(&pool->lock);
    pool->journal->asked++;
    pthread_mutex_unlock(&pool->lock);
    status = limiter_acquire(pool->limiter, &request, &decision);
    if (status != LIMITER_OK) {
        note_refusal(pool, status);
        return status != LIMITER_DENIED;
    }
    pthread_mutex_lock(&pool->lock);
    task = journal_start(pool->journal, asked, now_ns());
    pthread_mutex_unlock(&pool->lock);

    work(pool, number, task);

    task->end = now_ns();
    expect_ok(pool, "limiter_settle", limiter_settle(pool->limiter, decision.permit, task->bytes));
    pthread_mutex_lock(&pool->lock);
    journal_end(pool->journal, task, now_ns());
    pthread_mutex_unlock(&pool->lock);
    expect_ok(pool, "limiter_release", limiter_release(pool->limiter, decision.permit));
    return 1;
}

/* THE POOL -------------------------------------------------------------------------------------- */

static int take_number(struct pool *pool, size_t *number) {
    int more;
    pthread_mutex_lock(&pool->lock);
    more = !interrupted && pool->next_task < (size_t)pool->options->tasks
           && now_ns() < pool->deadline;
    if (more) *number = pool->next_task++;
    pthread_mutex_unlock(&pool->lock);
    return more;
}

static void *worker(void *argument) {
    struct pool *pool = argument;
    size_t number;

    while (take_number(pool, &number) && run_task(pool, number)) continue;
    pthread_mutex_lock(&pool->lock);
    pool->running_threads--;
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static void watch(struct pool *pool) {
    const int is_alone = pool->options->processes == 1;
    size_t threads, done;
    do {
        sleep_ms(20);
        /* Again each time: a thread may just have been on its way into acquire. */
        if (interrupted) limiter_cancel_waits(pool->client, (uintptr_t)pool);
        pthread_mutex_lock(&pool->lock);
        threads = pool->running_threads;
        done = pool->journal->done;
        pool->journal->seen = now_ns();
        pthread_mutex_unlock(&pool->lock);
        if (is_alone) show_progress(&pool->journal, 1, (double)done / (double)pool->options->tasks);
    } while (threads > 0);
    if (is_alone) clear_progress();
}

static int run_pool(struct pool *pool) {
    pthread_t thread[MOST_THREADS];
    long started, i;
    int error = 0;

    pool->running_threads = (size_t)pool->options->threads;
    for (started = 0; started < pool->options->threads; started++) {
        error = pthread_create(&thread[started], NULL, worker, pool);
        if (error != 0) break;
    }
    if (error != 0) {
        fprintf(stderr, "worker_pool: cannot start thread %ld: %s\n", started + 1, strerror(error));
        pthread_mutex_lock(&pool->lock);
        pool->running_threads -= (size_t)(pool->options->threads - started);
        pthread_mutex_unlock(&pool->lock);
        interrupted = -1;
    }
    watch(pool);
    for (i = 0; i < started; i++) pthread_join(thread[i], NULL);
    return error == 0 ? 0 : -1;
}

/* What each of several processes does, with a client of its own. */
static int run_process(size_t number, void *argument) {
    struct pool *pool = argument;
    int result = CANNOT_RUN;

    pool->process = number;
    pool->journal = pool->journals[number];
    if (make_limiter(pool) == 0 && run_pool(pool) == 0) result = HELD;
    free_limiter(pool);
    return result;
}

/* THE RUN --------------------------------------------------------------------------------------- */

static int make_journals(struct pool *pool) {
    const struct options *options = pool->options;
    char path[4096];
    long i;

    for (i = 0; i < options->processes; i++) {
        const char *file = options->record;
        if (file != NULL && options->processes > 1) {
            snprintf(path, sizeof path, "%s.%ld", file, i + 1);
            file = path;
        }
        pool->journals[i] = journal_new(file, (size_t)options->tasks, options->lease_ms);
        if (pool->journals[i] == NULL) return -1;
    }
    pool->journal = pool->journals[0];
    return 0;
}

static void print_plan(const struct pool *pool) {
    const struct options *options = pool->options;
    char url[256];

    show_url(options->url, url, sizeof url);
    if (options->processes == 1) {
        printf("%ld threads, %ld tasks", options->threads, options->tasks);
    } else {
        printf("%ld processes with %ld threads each, %ld s", options->processes, options->threads,
               options->seconds);
    }
    printf(" over %s%zu files", pool->files.more ? "the first " : "", pool->files.count);
    if (pool->files.left_out > 0) printf(" (%zu too large or unreadable)", pool->files.left_out);
    printf(",%cstate in %s\n", options->processes == 1 ? ' ' : '\n', url);
    printf("limits: %d at once; %d starts a second, burst %d; %d MiB a second, burst %d MiB\n\n",
           AT_ONCE, STARTS_PER_SECOND, STARTS_BURST, BYTES_PER_SECOND >> 20, BYTES_BURST >> 20);
    fflush(stdout);
}

static int run_and_report(struct pool *pool) {
    const struct options *options = pool->options;
    int result;

    if (files_find(options->files, &pool->files) != 0 || make_journals(pool) != 0
        || make_limiter(pool) != 0 || !answers(pool)) {
        return CANNOT_RUN;
    }
    print_plan(pool);
    pool->begin = now_ns();
    pool->deadline = pool->begin + options->seconds * NANOS_PER_SECOND;
    if (options->processes == 1) {
        if (run_pool(pool) != 0) return CANNOT_RUN;
        result = report_journals(options, pool->journals, interrupted);
        printf("checksum of all tasks: %08" PRIx32 "\n", pool->checksum);
        return result;
    }
    free_limiter(pool); /* the processes do the work */
    if (fleet_run(options, pool->journals, pool->begin, run_process, pool, &interrupted) != 0) {
        return CANNOT_RUN;
    }
    return report_journals(options, pool->journals, interrupted);
}

static int watch_for_signals(void) {
    struct sigaction action;

    memset(&action, 0, sizeof action);
    action.sa_handler = interrupt;
    action.sa_flags = (int)SA_RESETHAND; /* a second one ends it at once */
    if (sigemptyset(&action.sa_mask) == 0 && sigaction(SIGINT, &action, NULL) == 0
        && sigaction(SIGTERM, &action, NULL) == 0) {
        return 0;
    }
    fprintf(stderr, "worker_pool: cannot watch for an interrupt: %s\n", strerror(errno));
    return -1;
}

int main(int argc, char **argv) {
    static struct pool pool; /* large: it lists the files */
    struct options options;
    char name[64];
    int i, result = options_read(argc, argv, &options);

    if (result != 0) return result > 0 ? HELD : CANNOT_RUN;
    if (options.check_only) {
        return report_files(&options, argc - options.first_record, argv + options.first_record);
    }
    if (options.name == NULL && options.processes > 1) {
        snprintf(name, sizeof name, "worker-pool-%ld-%ld", (long)time(NULL), (long)getpid());
        options.name = name; /* who runs this elsewhere on the same Redis is no part of it */
    } else if (options.name == NULL) {
        options.name = "worker-pool";
    }
    if (watch_for_signals() != 0) return CANNOT_RUN;
    if (pthread_mutex_init(&pool.lock, NULL) != 0) {
        fprintf(stderr, "worker_pool: cannot make a mutex\n");
        return CANNOT_RUN;
    }
    pool.options = &options;
    result = run_and_report(&pool);
    free_limiter(&pool);
    for (i = 0; i < MOST_PROCESSES; i++) journal_free(pool.journals[i]);
    files_free(&pool.files);
    pthread_mutex_destroy(&pool.lock);
    return result;
}
