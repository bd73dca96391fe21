/* What most tests need: a memory client with a virtual clock, a limiter, a question in one line. */
#ifndef FIXTURE_H
#define FIXTURE_H

#include "check.h"

#include <dirent.h>

/* A client with these settings: on memory, or where LIMITER_TEST_URL says, under keys of its own. */
static inline limiter_client_t *open_config(limiter_config_t *config) {
    static int opened;
    const char *url = getenv("LIMITER_TEST_URL");
    char error[LIMITER_ERRBUF_SIZE] = "", prefix[64];
    limiter_client_t *client = NULL;
    snprintf(prefix, sizeof prefix, "test:%ld:%d", (long)getpid(), __sync_add_and_fetch(&opened, 1));
    CHECK_OK(limiter_config_set(config, "prefix", prefix, NULL, 0));
    /* On a busy machine an answer may take its time. */
    if (url) CHECK_OK(limiter_config_set(config, "command_timeout_ms", "20000", NULL, 0));
    CHECK_OK(limiter_client_open(url ? url : "memory://", config, &client, error, sizeof error));
    return client;
}

/* With one setting (key NULL: none). */
static inline limiter_client_t *open_with(const char *key, const char *value) {
    char error[LIMITER_ERRBUF_SIZE] = "";
    limiter_config_t *config = limiter_config_new();
    limiter_client_t *client;
    CHECK(config != NULL);
    if (key) CHECK_OK(limiter_config_set(config, key, value, error, sizeof error));
    client = open_config(config);
    limiter_config_free(config);
    return client;
}

static inline limiter_client_t *open_real(void) {
    return open_with(NULL, NULL);
}

static inline limiter_client_t *open_virtual(void) {
    return open_with("clock", "virtual");
}

static inline limiter_t *make(limiter_client_t *client, const char *name, const limiter_limit *limits,
                              size_t count) {
    char error[LIMITER_ERRBUF_SIZE] = "";
    limiter_t *limiter = NULL;
    limiter_status status = limiter_new(client, name, limits, count, &limiter, error, sizeof error);
    if (status != LIMITER_OK) check_context(error);
    CHECK_OK(status);
    return limiter;
}

static inline limiter_t *make1(limiter_client_t *client, limiter_limit limit) {
    return make(client, "test", &limit, 1);
}

static inline limiter_request ask(const char *key, uint64_t weight, int32_t wait_ms) {
    limiter_request request = LIMITER_INIT(limiter_request);
    request.key = key;
    request.key_len = key ? strlen(key) : 0;
    request.weight = weight;
    request.wait_ms = wait_ms;
    return request;
}

/* One acquire; the decision's status is the function's result. */
static inline limiter_decision acquire(limiter_t *limiter, const char *key, uint64_t weight,
                                       int32_t wait_ms) {
    limiter_request request = ask(key, weight, wait_ms);
    limiter_decision decision = LIMITER_INIT(limiter_decision);
    limiter_status status = limiter_acquire(limiter, &request, &decision);
    CHECK_STATUS(decision.status, status);
    return decision;
}

static inline limiter_decision try_once(limiter_t *limiter, uint64_t weight) {
    return acquire(limiter, NULL, weight, 0);
}

static inline limiter_decision peek(limiter_t *limiter, const char *key, uint64_t weight) {
    limiter_request request = ask(key, weight, 0);
    limiter_decision decision = LIMITER_INIT(limiter_decision);
    limiter_status status = limiter_peek(limiter, &request, &decision);
    CHECK_STATUS(decision.status, status);
    return decision;
}

/* Admits weight 1 until it does not; answers how often it did. */
static inline uint64_t drain(limiter_t *limiter, const char *key) {
    uint64_t admitted = 0;
    while (acquire(limiter, key, 1, 0).status == LIMITER_OK) admitted++;
    return admitted;
}

static inline void advance(limiter_client_t *client, uint64_t us) {
    CHECK_OK(limiter_clock_advance_us(client, us));
}

static inline limiter_stats stats_of(limiter_client_t *client) {
    limiter_stats stats = LIMITER_INIT(limiter_stats);
    CHECK_OK(limiter_stats_get(client, &stats));
    return stats;
}

static inline void close_client(limiter_client_t *client, limiter_t *limiter) {
    limiter_free(limiter);
    CHECK_OK(limiter_client_free(client));
}

/* Threads of this process, from the kernel. */
static inline int thread_count(void) {
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    while (1) {
        struct dirent *entry = readdir(tasks);
        if (!entry) break;
        count += entry->d_name[0] != '.';
    }
    closedir(tasks);
    return count;
}

/* A blocking acquire in a thread of its own. */
typedef struct waiter {
    limiter_t *limiter;
    limiter_request request;
    limiter_decision decision;
    volatile int order; /* 1 for the first that came back */
    volatile int *arrivals;
    pthread_t thread;
} waiter;

static inline void *waiter_run(void *argument) {
    waiter *self = (waiter *)argument;
    limiter_status status = limiter_acquire(self->limiter, &self->request, &self->decision);
    CHECK_STATUS(self->decision.status, status);
    if (self->arrivals) self->order = __sync_add_and_fetch(self->arrivals, 1);
    return NULL;
}

/* Starts it and returns once the client counts it as waiting, so that arrival order is certain. */
static inline void waiter_start(waiter *self, limiter_client_t *client, limiter_t *limiter,
                                limiter_request request) {
    uint64_t waiting = stats_of(client).waiting;
    self->limiter = limiter;
    self->request = request;
    CHECK(pthread_create(&self->thread, NULL, waiter_run, self) == 0);
    CHECK_SOON(stats_of(client).waiting > waiting);
}

static inline limiter_decision waiter_join(waiter *self) {
    CHECK(pthread_join(self->thread, NULL) == 0);
    return self->decision;
}

#endif
