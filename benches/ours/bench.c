/* The benchmark's C program, through include/limiter.h alone. */
#define _POSIX_C_SOURCE 200809L
#include "bench.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST_LATENCIES (1u << 21)
#define DRAWS (1u << 20)

arguments args;
limiter_client_t *client;

static float *latencies;
static size_t latency_count;
static pthread_mutex_t latency_lock = PTHREAD_MUTEX_INITIALIZER;
static char (*names)[16];
static uint32_t *draws;

void die(const char *what, limiter_status status) {
    fprintf(stderr, "%s %s: %s: %s\n", args.role, args.work, what, limiter_status_name(status));
    exit(1);
}

double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

double resident_kib(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%*s %ld", &pages) != 1) die("/proc/self/statm", LIMITER_RESOURCE);
    fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / 1024.0;
}

/* The most that was resident since the program began. */
static double peak_kib(void) {
    char line[256];
    double kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "VmHWM:", 6) == 0) kib = strtod(line + 6, NULL);
    }
    if (file != NULL) fclose(file);
    return kib;
}

static int is(const char *work) {
    return strcmp(args.work, work) == 0;
}

limiter_t *open_limiter(const char *name) {
    char why[LIMITER_ERRBUF_SIZE];
    limiter_t *limiter = NULL;
    limiter_limit limit = limiter_token_bucket(args.rate, args.rate, LIMITER_SECOND);

    if (is("semaphore") || is("judged") || is("at-once-semaphore") || is("waiters")) {
        limit = limiter_semaphore(args.size);
    } else if (is("at-once-bucket")) { /* 100 a millisecond, as the seed's bucket: empty at first */
        limit = limiter_token_bucket(args.size, args.size, LIMITER_MILLISECOND);
        limit.flags = LIMITER_INTERVAL | LIMITER_START_EMPTY;
    } else if (is("denied")) {
        limit = limiter_token_bucket(1, 1, LIMITER_HOUR);
    } else if (is("log")) { /* full of entries after `size`, of which the oldest leave as others come */
        limit = limiter_sliding_log(args.size, LIMITER_HOUR);
    } else if (is("memory-zipf") || is("keys")) { /* none is as new again while it is measured */
        limit = limiter_token_bucket(10000000, 1, LIMITER_MINUTE);
    }
    if (limiter_new(client, name, &limit, 1, &limiter, why, sizeof why) != LIMITER_OK) {
        fprintf(stderr, "%s\n", why);
        exit(1);
    }
    return limiter;
}

limiter_request ask(int32_t wait_ms) {
    limiter_request request = LIMITER_INIT(limiter_request);
    request.key = args.key;
    request.key_len = strlen(args.key);
    request.wait_ms = wait_ms;
    return request;
}

static uint64_t random_state = 88172645463325252u;

static double random_unit(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (double)(random_state >> 11) / 9007199254740992.0;
}

void draw_keys(void) {
    double *sums, sum = 0;
    int evenly = strstr(args.work, "keys") != NULL;
    if (args.size == 0 || (!evenly && strstr(args.work, "zipf") == NULL)) return;
    names = malloc(args.size * sizeof *names);
    draws = malloc(DRAWS * sizeof *draws);
    sums = malloc(args.size * sizeof *sums);
    if (names == NULL || draws == NULL || sums == NULL) die("keys", LIMITER_RESOURCE);
    for (uint64_t i = 0; i < args.size; i++) {
        snprintf(names[i], sizeof *names, "user:%07u", (unsigned)i % 10000000u);
        sum += evenly ? 1.0 : 1.0 / (double)(i + 1);
        sums[i] = sum;
    }
    for (size_t n = 0; n < DRAWS; n++) { /* the first whose sum is above the random number */
        double at = random_unit() * sum;
        uint64_t low = 0, high = args.size - 1;
        while (low < high) {
            uint64_t middle = (low + high) / 2;
            if (sums[middle] > at) high = middle; else low = middle + 1;
        }
        draws[n] = (uint32_t)low;
    }
    free(sums);
}

void key_number(uint64_t number, limiter_request *request) {
    request->key = names[number];
    request->key_len = strlen(names[number]);
}

void next_key(uint64_t turn, limiter_request *request) {
    if (draws != NULL) key_number(draws[turn % DRAWS], request);
}

void record_latency(double us) {
    pthread_mutex_lock(&latency_lock);
    if (latencies == NULL) latencies = malloc(MOST_LATENCIES * sizeof *latencies);
    if (latencies != NULL && latency_count < MOST_LATENCIES) latencies[latency_count++] = (float)us;
    pthread_mutex_unlock(&latency_lock);
}

static int by_size(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static double percentile(double part) {
    if (latency_count == 0) return 0;
    return (double)latencies[(size_t)(part * (double)(latency_count - 1))];
}

void answer(const tally *tally, const char *holds) {
    qsort(latencies, latency_count, sizeof *latencies, by_size);
    printf("{\"decisions\": %llu, \"admitted\": %llu, \"seconds\": %.6f, \"p50_us\": %.4f, "
           "\"p99_us\": %.4f, \"bytes_per_key\": %.1f, \"peak_kib\": %.0f, \"warm_up\": %llu%s%s}\n",
           (unsigned long long)tally->decisions, (unsigned long long)tally->admitted, tally->seconds,
           percentile(0.5), percentile(0.99), tally->bytes_per_key, peak_kib(),
           (unsigned long long)tally->warm_up, holds ? ", \"holds\": " : "",
           holds ? holds : "");
    fflush(stdout);
}

int main(int argc, char **argv) {
    char *size;
    limiter_status status = LIMITER_OK;
    limiter_config_t *config = limiter_config_new();

    if (argc != 8) {
        fprintf(stderr, "usage: %s ROLE WORK CALLERS SECONDS URL KEY RATE\n", argv[0]);
        return 2;
    }
    args.role = argv[1];
    snprintf(args.work, sizeof args.work, "%s", argv[2]);
    if ((size = strchr(args.work, ':')) != NULL) {
        *size = 0;
        args.size = strtoull(size + 1, NULL, 10);
    }
    args.callers = (unsigned)strtoul(argv[3], NULL, 10);
    args.seconds = strtod(argv[4], NULL);
    args.url = argv[5];
    args.key = argv[6];
    args.rate = strtoull(argv[7], NULL, 10);

    /* Units are taken ahead of their use. */
    if (is("ahead")) status = limiter_config_set(config, "take_ahead_ms", "100", NULL, 0);
    if (status != LIMITER_OK) die("config", status);
    /* Who waits in these works waits on purpose, also where the server takes long. */
    status = limiter_config_set(config, "command_timeout_ms", "5000", NULL, 0);
    if (status == LIMITER_OK) status = limiter_config_set(config, "max_waiting", "1000000", NULL, 0);
    if (status == LIMITER_OK) status = limiter_client_open(args.url, config, &client, NULL, 0);
    if (status != LIMITER_OK) die("open", status);
    limiter_config_free(config);
    draw_keys();
    if (strcmp(args.role, "at-once") == 0) {
        run_at_once();
    } else if (strcmp(args.role, "growth") == 0) {
        run_growth();
    } else {
        limiter_t *limiter = open_limiter("bench");
        if (strcmp(args.role, "async") == 0) run_async(limiter);
        else if (strcmp(args.role, "threads") == 0) run_threads(limiter);
        else if (strcmp(args.role, "semaphore") == 0) run_semaphore(limiter);
        else if (strcmp(args.role, "memory") == 0) run_memory(limiter);
        else die("no such role", LIMITER_INVALID);
    }
    /* Not shut down: a killed or ended process is what its leases are for, and waits go unanswered. */
    return 0;
}
