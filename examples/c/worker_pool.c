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
 * What concerns the library is in make_limiter() and run_task(); the rest is a pool like any other.
 * The parts in worker_pool/ (files, record, check, plot) do not use the library.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _XOPEN_SOURCE 700

#include "worker_pool/worker_pool.h"

#include <limiter.h>

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST_THREADS 256

enum { HELD = 0, EXCEEDED = 1, CANNOT_RUN = 2 };

struct options {
    const char *files, *url, *name, *record;
    long threads, tasks, seconds, hold_ms;
    int check_only, ascii, first_record;
};

struct pool {
    const struct options *options;
    limiter_client_t *client;
    limiter_t *limiter;
    struct files files;
    int64_t deadline;

    pthread_mutex_t lock; /* guards what follows */
    struct record record;
    size_t next_task;
    size_t running_tasks, running_threads;
    uint64_t bytes;
    uint32_t checksum; /* of all checksums, in no order */
    char first_error[256];
};

static volatile sig_atomic_t interrupted; /* the signal that did it, or -1 for a failure */

static void interrupt(int signal_number) {
    interrupted = signal_number;
}

static void sleep_ms(long ms) {
    struct timespec left;
    left.tv_sec = ms / 1000;
    left.tv_nsec = ms % 1000 * 1000000;
    while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}

/* THE LIMITS ------------------------------------------------------------------------------------ */

static int make_limiter(struct pool *pool) {
    char why[LIMITER_ERRBUF_SIZE] = "";
    limiter_limit limits[3];
    limiter_status status;

    /*
     * A request has one weight, here the bytes. per_call says which limits count calls instead: a
     * task of 64 KiB is one task at once and one start, but 65 536 bytes.
     */
    limits[0] = limiter_per_call(limiter_semaphore(AT_ONCE));
    limits[1] = limiter_per_call(
        limiter_token_bucket(STARTS_BURST, STARTS_PER_SECOND, LIMITER_SECOND));
    limits[2] = limiter_token_bucket(BYTES_BURST, BYTES_PER_SECOND, LIMITER_SECOND);

    status = limiter_client_open(pool->options->url, NULL, &pool->client, why, sizeof why);
    if (status != LIMITER_OK) {
        fprintf(stderr, "worker_pool: cannot open %s: %s\n", pool->options->url, why);
        return -1;
    }
    status = limiter_new(pool->client, pool->options->name, limits, 3, &pool->limiter, why,
                         sizeof why);
    if (status != LIMITER_OK) {
        fprintf(stderr, "worker_pool: cannot make the limiter: %s\n", why);
        return -1;
    }
    return 0;
}

/* With the pool's lock held. */
static void note_error(struct pool *pool, const char *where, const char *what) {
    if (pool->record.errors++ == 0) {
        snprintf(pool->first_error, sizeof pool->first_error, "%s: %s", where, what);
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
        pool->record.denied++; /* not before this run's time is over */
    } else if (status == LIMITER_CANCELLED) {
        pool->record.cancelled++;
    } else {
        note_error(pool, "limiter_acquire", limiter_status_message(status));
    }
    pthread_mutex_unlock(&pool->lock);
}

/* How long a task stays after the checksum, as a real one would that sends the file somewhere. */
static long hold_ms(const struct pool *pool, size_t number) {
    if (pool->options->hold_ms >= 0) return pool->options->hold_ms;
    /* First slow tasks, so that "4 at once" is what holds them; then quick ones: "200 per second". */
    return number < (size_t)pool->options->tasks / 2 ? 25 : 2;
}

static void work(struct pool *pool, size_t number, struct task *task) {
    const char *path = pool->files.path[number % pool->files.count];
    uint32_t crc;
    int failed = file_checksum(path, &crc, &task->bytes);

    pthread_mutex_lock(&pool->lock);
    if (failed) note_error(pool, path, strerror(errno));
    pool->checksum ^= crc;
    pool->bytes += task->bytes;
    pthread_mutex_unlock(&pool->lock);
    sleep_ms(hold_ms(pool, number));
}

/* Whether there may be time for another task. */
static int run_task(struct pool *pool, size_t number) {
    limiter_request request = LIMITER_INIT(limiter_request);
    limiter_decision decision;
    limiter_status status;
    struct task task;

    memset(&task, 0, sizeof task);
    task.asked = now_ns();
    if (task.asked >= pool->deadline) return 0;
    request.weight = ESTIMATED_BYTES;
    request.wait_ms = (int32_t)((pool->deadline - task.asked) / 1000000);
    request.user_data = (uintptr_t)pool; /* what cancel_waits goes by */

    pthread_mutex_lock(&pool->lock);
    pool->record.asked++;
    pthread_mutex_unlock(&pool->lock);
    status = limiter_acquire(pool->limiter, &request, &decision);
    if (status != LIMITER_OK) {
        note_refusal(pool, status);
        return status != LIMITER_DENIED;
    }
    task.start = now_ns();

    pthread_mutex_lock(&pool->lock);
    pool->running_tasks++;
    pthread_mutex_unlock(&pool->lock);
    work(pool, number, &task);
    pthread_mutex_lock(&pool->lock);
    pool->running_tasks--;
    pthread_mutex_unlock(&pool->lock);

    task.end = now_ns();
    expect_ok(pool, "limiter_settle", limiter_settle(pool->limiter, decision.permit, task.bytes));
    task.settled = now_ns();
    expect_ok(pool, "limiter_release", limiter_release(pool->limiter, decision.permit));

    pthread_mutex_lock(&pool->lock);
    pool->record.task[pool->record.count++] = task;
    pthread_mutex_unlock(&pool->lock);
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

#define LINE 72 /* what wraps stays: so there is room for the ^C that a terminal shows, too */

/* One line on stderr that rewrites itself; nothing where stderr is a file or a CI log. */
static void show_progress(struct pool *pool, size_t threads) {
    static const char bar[] = "####################";
    size_t done, in_flight, tasks = (size_t)pool->options->tasks;
    uint64_t bytes;
    char line[256];

    if (!isatty(STDERR_FILENO)) return;
    pthread_mutex_lock(&pool->lock);
    done = pool->record.count;
    in_flight = pool->running_tasks;
    bytes = pool->bytes;
    pthread_mutex_unlock(&pool->lock);
    snprintf(line, sizeof line, "[%-20.*s] %zu of %zu done, %zu in flight, %zu threads, %.1f MiB",
             (int)(done * 20 / tasks), bar, done, tasks, in_flight, threads,
             (double)bytes / (1024 * 1024));
    fprintf(stderr, "\r%-*.*s", LINE, LINE, line);
}

static void watch(struct pool *pool) {
    size_t threads;
    do {
        sleep_ms(50);
        /* Again each time: a thread may just have been on its way into acquire. */
        if (interrupted) limiter_cancel_waits(pool->client, (uintptr_t)pool);
        pthread_mutex_lock(&pool->lock);
        threads = pool->running_threads;
        pthread_mutex_unlock(&pool->lock);
        show_progress(pool, threads);
    } while (threads > 0);
    if (isatty(STDERR_FILENO)) fprintf(stderr, "\r%*s\r", LINE + 7, "");
}

static int run_pool(struct pool *pool) {
    pthread_t thread[MOST_THREADS];
    long started, i;
    int error = 0;

    pool->deadline = now_ns() + pool->options->seconds * NANOS_PER_SECOND;
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

/* THE REPORT ------------------------------------------------------------------------------------ */

static int report(struct record *record, const struct options *options, const char *first_error) {
    struct findings found;
    int held;

    if (check(record, &found) != 0) return CANNOT_RUN;
    held = found.at_once_held && found.starts_held && found.bytes_held;
    plot_record(record, options->ascii);
    print_findings(record, &found);
    if (interrupted > 0) printf("INTERRUPTED: the record ends where it was.\n");
    if (record->errors > 0) {
        printf("FAILED: %" PRIu64 " errors; the first: %s\n", record->errors, first_error);
    } else if (record->count == 0 && interrupted == 0) {
        printf("FAILED: nothing was admitted, so nothing was shown\n");
    } else if (held && record->count > 0) {
        printf("HELD: no limit was exceeded at any moment of the record.\n");
    }
    if (!held) printf("EXCEEDED: the record shows more than the limits allow.\n");
    if (!held || record->errors > 0) return EXCEEDED;
    if (interrupted > 0) return 128 + interrupted;
    return record->count > 0 ? HELD : EXCEEDED;
}

static int check_records(const struct options *options, int count, char **path) {
    struct record record;
    int i, result;

    if (record_new(&record, MOST_TASKS) != 0) return CANNOT_RUN;
    for (i = 0; i < count; i++) {
        if (record_load(&record, path[i]) != 0) {
            record_free(&record);
            return CANNOT_RUN;
        }
    }
    printf("%d record%s, checked as one\n\n", count, count == 1 ? "" : "s");
    result = report(&record, options, "see the run that made the record");
    record_free(&record);
    return result;
}

static int run_and_report(struct pool *pool) {
    const struct options *options = pool->options;
    int result;

    if (files_find(options->files, &pool->files) != 0) return CANNOT_RUN;
    if (record_new(&pool->record, (size_t)options->tasks) != 0) return CANNOT_RUN;
    if (make_limiter(pool) != 0) return CANNOT_RUN;
    printf("%ld threads, %ld tasks over %s%zu files", options->threads, options->tasks,
           pool->files.more ? "the first " : "", pool->files.count);
    if (pool->files.left_out > 0) printf(" (%zu too large or unreadable)", pool->files.left_out);
    printf(", state in %s\n", options->url);
    printf("limits: %d at once; %d starts a second, burst %d; %d MiB a second, burst %d MiB\n\n",
           AT_ONCE, STARTS_PER_SECOND, STARTS_BURST, BYTES_PER_SECOND >> 20, BYTES_BURST >> 20);
    fflush(stdout);
    if (run_pool(pool) != 0) return CANNOT_RUN;
    result = report(&pool->record, options, pool->first_error);
    printf("checksum of all tasks: %08" PRIx32 "\n", pool->checksum);
    if (options->record != NULL && record_save(&pool->record, options->record) != 0) {
        return CANNOT_RUN;
    }
    return result;
}

/* OPTIONS --------------------------------------------------------------------------------------- */

static const char usage[] =
    "usage: worker_pool [options] [DIR]             runs the pool, checks, shows it\n"
    "       worker_pool [--ascii] --check FILE...   checks records of runs as one\n"
    "  --files DIR    the files to checksum, with those of its folders  default .\n"
    "  --threads N    1 to 256                                          default 16\n"
    "  --tasks N      1 to 20000; the files are gone over again         default 800\n"
    "  --seconds N    1 to 3600; after that nothing starts any more     default 10\n"
    "  --hold MS      0 to 10000; how long a task stays after its checksum; default\n"
    "                 25 for the first half of the tasks, then 2\n"
    "  --url URL      where the limits' state lives              default memory://\n"
    "  --name NAME    the limiter's name                         default worker-pool\n"
    "  --record FILE  writes what happened to FILE\n"
    "  --ascii        draws with plain characters, as where the locale is not UTF-8\n"
    "exit code: 0 the limits held; 1 one was exceeded or a task failed; 2 it could\n"
    "not run; 130 the limits held until Ctrl-C\n";

static int parse_number(const char *text, long least, long most, long *value) {
    char *end;
    errno = 0;
    *value = strtol(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && *value >= least && *value <= most;
}

static int set_option(struct options *options, const char *name, const char *value) {
    if (strcmp(name, "--files") == 0) {
        options->files = value;
    } else if (strcmp(name, "--url") == 0) {
        options->url = value;
    } else if (strcmp(name, "--name") == 0) {
        options->name = value;
    } else if (strcmp(name, "--record") == 0) {
        options->record = value;
    } else if (strcmp(name, "--threads") == 0) {
        return parse_number(value, 1, MOST_THREADS, &options->threads);
    } else if (strcmp(name, "--tasks") == 0) {
        return parse_number(value, 1, MOST_TASKS, &options->tasks);
    } else if (strcmp(name, "--seconds") == 0) {
        return parse_number(value, 1, 3600, &options->seconds);
    } else if (strcmp(name, "--hold") == 0) {
        return parse_number(value, 0, 10000, &options->hold_ms);
    } else {
        return 0;
    }
    return 1;
}

static int parse_options(int argc, char **argv, struct options *options) {
    int i;
    for (i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--ascii") == 0) {
            options->ascii = 1;
        } else if (strcmp(argv[i], "--check") == 0 && i + 1 < argc) {
            options->check_only = 1;
            options->first_record = i + 1;
            return 0;
        } else if (i + 1 < argc && set_option(options, argv[i], argv[i + 1])) {
            i++;
        } else if (argv[i][0] != '-') {
            options->files = argv[i];
        } else {
            fprintf(stderr, "worker_pool: cannot take \"%s%s%s\"\n%s", argv[i],
                    i + 1 < argc ? " " : "", i + 1 < argc ? argv[i + 1] : "", usage);
            return -1;
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    static struct pool pool; /* large: it lists the files */
    struct options options = {".", "memory://", "worker-pool", NULL, 16, 800, 10, -1, 0, 0, 0};
    struct sigaction action;
    int result;

    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(usage, stdout);
        return HELD;
    }
    options.ascii = !terminal_takes_utf8();
    if (parse_options(argc, argv, &options) != 0) return CANNOT_RUN;
    if (options.check_only) {
        return check_records(&options, argc - options.first_record, argv + options.first_record);
    }
    memset(&action, 0, sizeof action);
    action.sa_handler = interrupt;
    action.sa_flags = (int)SA_RESETHAND; /* a second one ends it at once */
    if (sigemptyset(&action.sa_mask) != 0 || sigaction(SIGINT, &action, NULL) != 0
        || sigaction(SIGTERM, &action, NULL) != 0) {
        fprintf(stderr, "worker_pool: cannot watch for an interrupt: %s\n", strerror(errno));
        return CANNOT_RUN;
    }
    if (pthread_mutex_init(&pool.lock, NULL) != 0) {
        fprintf(stderr, "worker_pool: cannot make a mutex\n");
        return CANNOT_RUN;
    }
    pool.options = &options;
    result = run_and_report(&pool);
    limiter_free(pool.limiter);
    limiter_client_free(pool.client);
    record_free(&pool.record);
    files_free(&pool.files);
    pthread_mutex_destroy(&pool.lock);
    return result;
}
