/*
 * Everything that the library does on Redis, as the user whose rights README.md gives:
 *     acl URL
 * A right that lacks shows as an error here, or in the server's ACL LOG.
 */
#include <limiter.h>

#include <stdio.h>
#include <string.h>

static int check(int holds, const char *what) {
    if (!holds) fprintf(stderr, "readme: as the ACL user: %s\n", what);
    return !holds;
}

#define CHECK(holds) \
    if (check(holds, #holds)) return 1

static limiter_request within(int32_t wait_ms) {
    limiter_request request = LIMITER_INIT(limiter_request);
    request.wait_ms = wait_ms;
    return request;
}

/* A wait behind a permit is told of its grant by a note, long before it would ask by itself. */
static int waits(limiter_client_t *client, limiter_t *limiter) {
    limiter_request request = within(20000);
    limiter_decision held, pending, granted;
    limiter_queue_t *queue;

    CHECK(limiter_queue_new(client, &queue) == LIMITER_OK);
    CHECK(limiter_acquire(limiter, &request, &held) == LIMITER_OK);
    CHECK(limiter_submit(queue, limiter, &request, &pending) == LIMITER_PENDING);
    CHECK(limiter_renew(limiter, held.permit, 0) == LIMITER_OK);
    CHECK(limiter_settle(limiter, held.permit, 2) == LIMITER_OK);
    CHECK(limiter_release(limiter, held.permit) == LIMITER_OK);
    CHECK(limiter_queue_poll(queue, &granted, 1, 20000) == 1 && granted.status == LIMITER_OK);
    CHECK(limiter_submit(queue, limiter, &request, &pending) == LIMITER_PENDING);
    CHECK(limiter_cancel(client, pending.op, 0) == LIMITER_OK);
    CHECK(limiter_queue_poll(queue, &pending, 1, 20000) == 1 && pending.status == LIMITER_CANCELLED);
    CHECK(limiter_release(limiter, granted.permit) == LIMITER_OK);
    limiter_queue_free(queue);
    return 0;
}

static int verbs(limiter_t *limiter) {
    limiter_request request = within(10000);
    limiter_decision decision;
    int i;

    for (i = 0; i < 200; i++) CHECK(limiter_acquire(limiter, NULL, &decision) == LIMITER_OK);
    CHECK(limiter_settle(limiter, decision.permit, 0) == LIMITER_OK);
    CHECK(limiter_pace(limiter, &request, &decision) == LIMITER_OK);
    CHECK(limiter_release(limiter, decision.permit) == LIMITER_OK);
    CHECK(limiter_peek(limiter, NULL, &decision) == LIMITER_OK);
    CHECK(limiter_penalize(limiter, "", 0, LIMITER_MINUTE) == LIMITER_OK);
    CHECK(limiter_peek(limiter, NULL, &decision) == LIMITER_DENIED);
    CHECK(limiter_reset(limiter, "", 0) == LIMITER_OK);
    CHECK(limiter_acquire(limiter, NULL, &decision) == LIMITER_OK);
    return 0;
}

int main(int count, char **words) {
    limiter_limit one[2], log = limiter_sliding_log(100000, LIMITER_HOUR);
    limiter_limit rates[2];
    limiter_client_t *client;
    limiter_t *limiter;
    char why[LIMITER_ERRBUF_SIZE] = "";

    one[0] = limiter_per_call(limiter_semaphore(1));
    one[1] = limiter_token_bucket(1000, 1000, LIMITER_SECOND);
    rates[0] = log;
    rates[1] = limiter_token_bucket(1000, 1000, LIMITER_SECOND);
    CHECK(count == 2 && limiter_client_open(words[1], NULL, &client, why, sizeof why) == LIMITER_OK);
    CHECK(limiter_new(client, "one", one, 2, &limiter, why, sizeof why) == LIMITER_OK);
    /* The processes that use it are counted. */
    CHECK(limiter_set(limiter, "on_failure", "local", why, sizeof why) == LIMITER_OK);
    if (waits(client, limiter) != 0) return 1;
    limiter_free(limiter);
    CHECK(limiter_new(client, "rates", rates, 2, &limiter, why, sizeof why) == LIMITER_OK);
    if (verbs(limiter) != 0) return 1;
    limiter_free(limiter);
    CHECK(limiter_client_free(client) == LIMITER_OK);
    return 0;
}
