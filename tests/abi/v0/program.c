/* A program as it was built with the first header, limiter.h beside it: it must run with every later library
 * of this ABI number. Calls each function of that header. Not to be changed, nor is the header. */
#include "limiter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MUST(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            exit(1); \
        } \
    } while (0)

static volatile int calls;

static void called(void *user_data, const limiter_decision *decision) {
    MUST(user_data == (void *)&calls);
    MUST(decision->status == LIMITER_OK && decision->permit != 0 && decision->user_data == 9);
    calls++;
}

static void lost(void *user_data, limiter_permit permit) {
    MUST(user_data == (void *)&calls && permit != 0);
    calls += 100;
}

static void logged(void *user_data, int32_t level, const char *message) {
    (void)user_data;
    MUST(level >= 1 && level <= 4 && message[0] != 0);
}

/* Until the callback thread has made it so. */
static void until_calls(int count) {
    struct timespec nap = {0, 1000000};
    int i;
    for (i = 0; calls != count && i < 20000; i++) nanosleep(&nap, NULL);
    MUST(calls == count);
}

static limiter_client_t *open_client(void) {
    char why[LIMITER_ERRBUF_SIZE] = "";
    limiter_client_t *client = NULL;
    limiter_config_t *config = limiter_config_new();
    MUST(config != NULL);
    MUST(limiter_config_set(config, "clock", "virtual", why, sizeof why) == LIMITER_OK);
    MUST(limiter_config_set(config, "no such key", "1", why, sizeof why) == LIMITER_CONFIG && why[0]);
    limiter_config_set_log(config, 4, logged, NULL);
    limiter_config_set_lost(config, lost, (void *)(size_t)&calls);
    MUST(limiter_client_open("memory://", config, &client, why, sizeof why) == LIMITER_OK);
    limiter_config_free(config);
    return client;
}

/* One of each kind of limit, set up as a program does that knows no later field. */
static limiter_t *make_limiter(limiter_client_t *client) {
    limiter_limit limits[6];
    limiter_t *limiter = NULL;
    limits[0] = limiter_per_call(limiter_semaphore(2));
    limits[1] = limiter_token_bucket(10, 10, LIMITER_SECOND);
    limits[2] = limiter_pacer(1000, LIMITER_SECOND, 1000);
    limits[3] = limiter_sliding_log(1000, LIMITER_MINUTE);
    limits[4] = limiter_sliding_counter(1000, LIMITER_HOUR);
    limits[5] = limiter_fixed_window(1000, LIMITER_DAY);
    MUST(limiter_new(client, "all", limits, 6, &limiter, NULL, 0) == LIMITER_OK);
    MUST(limiter_set(limiter, "on_failure", "error", NULL, 0) == LIMITER_OK);
    return limiter;
}

static void verbs(limiter_client_t *client, limiter_t *limiter) {
    limiter_request request = LIMITER_INIT(limiter_request), many[2];
    limiter_decision out, outs[2];
    limiter_limit rate = limiter_token_bucket(1, 10, LIMITER_SECOND);
    limiter_t *paced = NULL;
    uint64_t now;
    request.key = "key";
    request.key_len = 3;
    request.weight = 4;
    request.user_data = 7;
    request.flags = LIMITER_NO_RENEW;
    request.lease_ms = 1000;
    memset(&out, 0x55, sizeof out);
    MUST(limiter_peek(limiter, &request, &out) == LIMITER_OK && out.permit == 0);
    MUST(limiter_acquire(limiter, &request, &out) == LIMITER_OK);
    MUST(out.status == LIMITER_OK && out.permit != 0 && out.user_data == 7 && out.fence != 0);
    MUST(out.reserved[0] == 0 && out.reserved[4] == 0);
    MUST(limiter_renew(limiter, out.permit, 2000) == LIMITER_OK);
    MUST(limiter_settle(limiter, out.permit, 9) == LIMITER_OK);
    MUST(limiter_release(limiter, out.permit) == LIMITER_OK);
    MUST(limiter_release(limiter, out.permit) == LIMITER_STALE);
    MUST(limiter_acquire(limiter, &request, &out) == LIMITER_DENIED);
    MUST(out.index == 1 && out.limit == 10 && out.remaining == 1 && out.retry_after_us == 300000);
    MUST(limiter_reset(limiter, "key", 3) == LIMITER_OK);
    MUST(limiter_penalize(limiter, "key", 3, 500) == LIMITER_OK);
    MUST(limiter_acquire(limiter, &request, &out) == LIMITER_DENIED && out.retry_after_us == 500);
    now = limiter_clock_now_us(client);
    MUST(limiter_clock_advance_us(client, 500) == LIMITER_OK);
    MUST(limiter_clock_set_us(client, now + 1000) == LIMITER_OK);
    MUST(limiter_clock_now_us(client) == now + 1000);
    many[0] = many[1] = request;
    many[1].weight = 11;
    MUST(limiter_try_many(limiter, many, outs, 2) == LIMITER_OK);
    MUST(outs[0].status == LIMITER_OK && outs[1].status == LIMITER_NEVER);
    MUST(limiter_release(limiter, outs[0].permit) == LIMITER_OK);
    MUST(limiter_new(client, "paced", &rate, 1, &paced, NULL, 0) == LIMITER_OK);
    MUST(limiter_pace_ms(paced, NULL, 0, 1) == 0 && limiter_pace_ms(paced, NULL, 0, 1) == 100);
    MUST(limiter_pace_ms(paced, NULL, 0, 2) == LIMITER_PACE_NEVER);
    request = (limiter_request)LIMITER_INIT(limiter_request);
    request.wait_ms = -1;
    MUST(limiter_pace(paced, &request, &out) == LIMITER_OK && out.retry_after_us == 200000);
    limiter_free(paced);
}

static void queue(limiter_client_t *client, limiter_t *limiter) {
    limiter_request request = LIMITER_INIT(limiter_request);
    limiter_decision held[2], out, done;
    limiter_queue_t *queue = NULL;
    int i;
    MUST(limiter_queue_new(client, &queue) == LIMITER_OK && limiter_queue_fd(queue) >= 0);
    for (i = 0; i < 2; i++) MUST(limiter_submit(queue, limiter, &request, &held[i]) == LIMITER_OK);
    request.wait_ms = -1;
    request.user_data = 8;
    MUST(limiter_submit(queue, limiter, &request, &out) == LIMITER_PENDING && out.op != 0);
    MUST(limiter_release(limiter, held[0].permit) == LIMITER_OK);
    MUST(limiter_queue_poll(queue, &done, 1, 10000) == 1);
    MUST(done.status == LIMITER_OK && done.op == out.op && done.user_data == 8);
    MUST(limiter_submit(queue, limiter, &request, &out) == LIMITER_PENDING);
    MUST(limiter_cancel(client, out.op, LIMITER_DETACH) == LIMITER_OK);
    MUST(limiter_submit(queue, limiter, &request, &out) == LIMITER_PENDING);
    MUST(limiter_cancel_waits(client, 8) == 1);
    MUST(limiter_queue_poll(queue, &out, 1, 10000) == 1 && out.status == LIMITER_CANCELLED);
    MUST(limiter_release(limiter, held[1].permit) == LIMITER_OK);
    MUST(limiter_release(limiter, done.permit) == LIMITER_OK);
    limiter_queue_free(queue);
}

static void pool(limiter_client_t *client, limiter_t *limiter) {
    limiter_request request = LIMITER_INIT(limiter_request);
    limiter_slot slot = LIMITER_INIT(limiter_slot);
    limiter_op op = 0;
    request.key = "pool";
    request.key_len = 4;
    request.user_data = 9;
    request.flags = LIMITER_NO_RENEW;
    request.lease_ms = 100;
    MUST(limiter_acquire_cb(limiter, &request, called, (void *)(size_t)&calls, &op) == LIMITER_PENDING);
    MUST(op != 0);
    until_calls(1);
    MUST(limiter_clock_advance_us(client, 100000) == LIMITER_OK);
    until_calls(101); /* the lease is lost */
    slot.limiter = limiter;
    MUST(limiter_before_task(&slot) == LIMITER_OK && slot.decision.permit != 0);
    limiter_after_task(&slot);
    MUST(slot.decision.permit == 0);
}

int main(void) {
    limiter_stats stats = LIMITER_INIT(limiter_stats);
    limiter_client_t *client = open_client();
    limiter_t *limiter = make_limiter(client);
    MUST(limiter_abi_version() == LIMITER_ABI);
    MUST(limiter_version() >= (LIMITER_VERSION_MAJOR << 16 | LIMITER_VERSION_MINOR << 8));
    MUST(strcmp(limiter_status_name(LIMITER_DENIED), "LIMITER_DENIED") == 0);
    MUST(limiter_status_message(LIMITER_DENIED)[0] != 0);
    verbs(client, limiter);
    queue(client, limiter);
    pool(client, limiter);
    MUST(limiter_stats_get(client, &stats) == LIMITER_OK);
    MUST(stats.struct_size == sizeof stats && stats.granted == 10 && stats.lost == 1);
    MUST(stats.in_flight == 0 && stats.waiting == 0 && stats.cancelled == 2);
    MUST(limiter_client_shutdown(client, 10000) == LIMITER_OK);
    limiter_free(limiter);
    MUST(limiter_client_free(client) == LIMITER_OK);
    return 0;
}
