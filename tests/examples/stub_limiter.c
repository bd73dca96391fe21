/*
 * A stand-in for the library that can be told to lie, so that the demo's own check is seen to find it
 * out. STUB = honest | at-once | starts | burst | bytes.
 */
#define _XOPEN_SOURCE 700
#include <limiter.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct limiter_config_t { int unused; };
struct limiter_client_t { int unused; };
struct limiter_t { int unused; };

static struct limiter_config_t the_config;
static struct limiter_client_t the_client;
static struct limiter_t the_limiter;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int held;
static double starts, bytes, last; /* saved up, and when */
static int most_at_once = 4;
static double starts_rate = 200, starts_burst = 20, bytes_rate = 67108864, bytes_burst = 8388608;
static int settles = 1;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

limiter_status limiter_client_open(const char *url, const struct limiter_config_t *config,
                                   struct limiter_client_t **client, char *errbuf, size_t errcap) {
    const char *lie = getenv("STUB");
    (void)url, (void)config, (void)errbuf, (void)errcap;
    if (lie == NULL) lie = "honest";
    if (strcmp(lie, "at-once") == 0) most_at_once = 5;
    if (strcmp(lie, "starts") == 0) starts_rate = 210;
    if (strcmp(lie, "burst") == 0) starts_burst = 26;
    if (strcmp(lie, "bytes") == 0) settles = 0;
    starts = starts_burst;
    bytes = bytes_burst;
    last = now();
    *client = &the_client;
    return LIMITER_OK;
}

limiter_status limiter_new(struct limiter_client_t *client, const char *name,
                           const struct limiter_limit *limits, size_t count,
                           struct limiter_t **limiter, char *errbuf, size_t errcap) {
    (void)client, (void)name, (void)limits, (void)count, (void)errbuf, (void)errcap;
    *limiter = &the_limiter;
    return LIMITER_OK;
}

limiter_status limiter_peek(struct limiter_t *limiter, const struct limiter_request *request,
                            struct limiter_decision *out) {
    (void)limiter, (void)request, (void)out;
    return LIMITER_OK;
}

static int admitted(double weight) {
    double at = now();
    int ok;
    pthread_mutex_lock(&lock);
    starts += (at - last) * starts_rate;
    bytes += (at - last) * bytes_rate;
    last = at;
    if (starts > starts_burst) starts = starts_burst;
    if (bytes > bytes_burst) bytes = bytes_burst;
    ok = held < most_at_once && starts >= 1 && bytes >= weight;
    if (ok) {
        held++;
        starts -= 1;
        bytes -= weight;
    }
    pthread_mutex_unlock(&lock);
    return ok;
}

limiter_status limiter_acquire(struct limiter_t *limiter, const struct limiter_request *request,
                               struct limiter_decision *out) {
    double until = now() + request->wait_ms * 1e-3;
    (void)limiter;
    memset(out, 0, sizeof *out);
    while (!admitted((double)request->weight)) {
        struct timespec nap = {0, 500000};
        if (now() > until) return out->status = LIMITER_DENIED;
        nanosleep(&nap, NULL);
    }
    out->permit = request->weight;
    return out->status = LIMITER_OK;
}

limiter_status limiter_settle(struct limiter_t *limiter, limiter_permit permit, uint64_t actual) {
    (void)limiter;
    pthread_mutex_lock(&lock);
    if (settles) bytes += (double)permit - (double)actual;
    pthread_mutex_unlock(&lock);
    return LIMITER_OK;
}

limiter_status limiter_release(struct limiter_t *limiter, limiter_permit permit) {
    (void)limiter, (void)permit;
    pthread_mutex_lock(&lock);
    held--;
    pthread_mutex_unlock(&lock);
    return LIMITER_OK;
}

int32_t limiter_cancel_waits(struct limiter_client_t *client, uint64_t user_data) {
    (void)client, (void)user_data;
    return 0;
}

const char *limiter_status_message(limiter_status status) { (void)status; return "stub"; }
void limiter_free(struct limiter_t *limiter) { (void)limiter; }
limiter_status limiter_client_free(struct limiter_client_t *client) { (void)client; return 0; }
struct limiter_config_t *limiter_config_new(void) { return &the_config; }
void limiter_config_free(struct limiter_config_t *config) { (void)config; }
void limiter_config_set_log(struct limiter_config_t *config, int32_t level, limiter_log_fn log,
                            void *user_data) {
    (void)config, (void)level, (void)log, (void)user_data;
}
