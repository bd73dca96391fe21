/* Calls in any order with any numbers, on a memory client with a virtual clock. Whatever happens: answers
 * are of those that the header names, their numbers are in range, and when all is given back and time has
 * passed, everything is as new. */
#include "fuzz.h"

enum { LIMITERS = 4, PERMITS = 32, OPS = 16 };

typedef struct world {
    limiter_client_t *client;
    limiter_queue_t *queue;
    limiter_t *limiters[LIMITERS];
    uint64_t permits[PERMITS], ops[OPS];
    size_t permit, op;
} world;

static const uint32_t kinds[] = {LIMITER_SEMAPHORE,       LIMITER_TOKEN_BUCKET, LIMITER_PACER,
                                 LIMITER_SLIDING_LOG,     LIMITER_FIXED_WINDOW, LIMITER_SLIDING_COUNTER,
                                 LIMITER_UNLIMITED,       LIMITER_NEVER_ADMIT};

/* A limit that is mostly one. */
static limiter_limit some_limit(bytes *from) {
    limiter_limit limit = LIMITER_INIT(limiter_limit);
    uint8_t odd = byte(from);
    limit.kind = kinds[choice(from, 8)];
    if (limit.kind != LIMITER_UNLIMITED && limit.kind != LIMITER_NEVER_ADMIT) {
        limit.capacity = 1 + choice(from, 8);
    }
    if (limit.kind == LIMITER_TOKEN_BUCKET || limit.kind == LIMITER_PACER) limit.refill = 1 + choice(from, 8);
    if (limit.kind >= LIMITER_TOKEN_BUCKET && limit.kind <= LIMITER_FIXED_WINDOW) {
        limit.period_us = (uint64_t)1 << choice(from, 32);
    }
    if (limit.kind == LIMITER_TOKEN_BUCKET) limit.flags = (uint32_t)choice(from, 4) << 1;
    if (choice(from, 4) == 0) limit.flags |= LIMITER_PER_CALL;
    limit.version = (uint32_t)choice(from, 3);
    switch (odd) {
    case 255: limit.capacity = number(from); break;
    case 254: limit.refill = number(from); break;
    case 253: limit.period_us = number(from); break;
    case 252: limit.flags = (uint32_t)number(from); break;
    case 251: limit.kind = (uint32_t)number(from); break;
    case 250: limit.lease_ms = (uint32_t)number(from); break;
    case 249: limit.struct_size = (size_t)number(from) % 200; break;
    case 248: limit.reserved = (uint32_t)number(from); break;
    }
    return limit;
}

static void open_limiter(world *w, bytes *from) {
    static const char *const names[] = {"a", "b"};
    limiter_limit limits[4]; /* room for the largest size that is told */
    size_t i, count = 1 + choice(from, 3), place = choice(from, LIMITERS);
    limiter_t *made = NULL;
    char error[LIMITER_ERRBUF_SIZE] = "";
    limiter_status status;
    memset(limits, 0, sizeof limits);
    for (i = 0; i < count; i++) limits[i] = some_limit(from);
    /* All elements of an array have one size. */
    for (i = 1; i < count; i++) limits[i].struct_size = limits[0].struct_size;
    if (limits[0].struct_size != sizeof limits[0]) count = 1;
    status = limiter_new(w->client, names[choice(from, 2)], limits, count, &made, error, sizeof error);
    MUST((status == LIMITER_OK) == (made != NULL));
    MUST(status == LIMITER_OK || error[0] != 0);
    if (made) {
        limiter_free(w->limiters[place]);
        w->limiters[place] = made;
    }
}

static void check(const limiter_decision *d) {
    MUST(d->status != LIMITER_PANIC && d->status >= LIMITER_UNSUPPORTED && d->status <= LIMITER_NEVER);
    MUST(d->remaining <= d->limit);
    MUST(d->status != LIMITER_DENIED || d->retry_after_us > 0);
    MUST(d->status != LIMITER_NEVER || d->retry_after_us == UINT64_MAX);
    MUST(d->status == LIMITER_OK || d->status == LIMITER_STALE || d->permit == 0);
    MUST(strcmp(limiter_status_name(d->status), "LIMITER_UNKNOWN") != 0);
}

static void keep(world *w, const limiter_decision *d) {
    check(d);
    if (d->permit) w->permits[w->permit++ % PERMITS] = d->permit;
    if (d->status == LIMITER_PENDING) w->ops[w->op++ % OPS] = d->op;
}

static limiter_request some_request(bytes *from, uint64_t weights[3]) {
    static char key[65537];
    limiter_request request = LIMITER_INIT(limiter_request);
    uint8_t odd = byte(from);
    request.key = key;
    request.key_len = choice(from, 3);
    request.weight = number(from);
    request.user_data = choice(from, 3);
    switch (odd) {
    case 255: request.key_len = (size_t)number(from) % 70000 % sizeof key; break;
    case 254: request.lease_ms = (uint32_t)number(from); break;
    case 253: request.flags = (uint32_t)number(from); break;
    case 252: request.struct_size = (size_t)number(from) % sizeof request; break;
    case 251: request.key = NULL; break;
    case 250: request.reserved = (uint32_t)number(from); break;
    }
    if (odd < 32) {
        request.weights = weights;
        request.weights_len = odd % 4;
        weights[0] = number(from), weights[1] = number(from), weights[2] = number(from);
    } else if (odd < 64) {
        request.flags = LIMITER_NO_RENEW;
        request.lease_ms = 100 + (uint32_t)choice(from, 200);
    } else if (odd < 80) {
        request.flags = LIMITER_TELL_LOST;
    }
    return request;
}

static void poll_all(world *w, int detach) {
    limiter_decision done[8];
    int32_t i, count;
    do {
        count = limiter_queue_poll(w->queue, done, 8, 0);
        MUST(count >= 0 && count <= 8);
        for (i = 0; i < count; i++) {
            if (detach && done[i].status == LIMITER_OK) limiter_release(w->limiters[0], done[i].permit);
            keep(w, &done[i]);
        }
    } while (count == 8);
}

static void step(world *w, bytes *from) {
    uint64_t weights[3] = {0, 0, 0};
    limiter_decision d = LIMITER_INIT(limiter_decision), many[3];
    limiter_request request;
    limiter_t *limiter = w->limiters[choice(from, LIMITERS)];
    uint64_t permit = w->permits[choice(from, PERMITS)], op = w->ops[choice(from, OPS)];
    limiter_status status;
    switch (choice(from, 18)) {
    case 0: MUST(limiter_clock_advance_us(w->client, (uint64_t)1 << choice(from, 40)) == LIMITER_OK); break;
    case 1: open_limiter(w, from); break;
    case 2: case 3:
        request = some_request(from, weights);
        status = limiter_acquire(limiter, &request, &d);
        MUST(status == d.status && status != LIMITER_PENDING);
        keep(w, &d);
        break;
    case 4: case 5: case 6:
        request = some_request(from, weights);
        request.wait_ms = choice(from, 4) == 0 ? -1 : (int32_t)choice(from, 256) * 16;
        status = limiter_submit(w->queue, limiter, &request, &d);
        MUST(status == d.status && (status == LIMITER_PENDING) == (d.op != 0));
        keep(w, &d);
        break;
    case 7:
        request = some_request(from, weights);
        request.wait_ms = (int32_t)choice(from, 256) * 64 - 1;
        status = limiter_pace(limiter, &request, &d);
        MUST(status == d.status);
        keep(w, &d);
        break;
    case 8:
        request = some_request(from, weights);
        status = limiter_peek(limiter, &request, &d);
        MUST(status == d.status && d.permit == 0);
        check(&d);
        break;
    case 9:
        request = some_request(from, weights);
        if (limiter_try_many(limiter, &request, many, 1) == LIMITER_OK) keep(w, &many[0]);
        break;
    case 10: case 11:
        status = limiter_release(limiter, permit);
        if (permit && status == LIMITER_OK) MUST(limiter_release(limiter, permit) == LIMITER_STALE);
        break;
    case 12: MUST(limiter_renew(limiter, permit, (int32_t)number(from)) != LIMITER_PANIC); break;
    case 13: MUST(limiter_settle(limiter, permit, number(from)) != LIMITER_PANIC); break;
    case 14: MUST(limiter_cancel(w->client, op, (uint32_t)choice(from, 3)) != LIMITER_PANIC); break;
    case 15: MUST(limiter_cancel_waits(w->client, choice(from, 3)) >= 0); break;
    case 16:
        if (choice(from, 2)) {
            MUST(limiter_penalize(limiter, "\0\0", choice(from, 3), number(from)) != LIMITER_PANIC);
        } else {
            MUST(limiter_reset(limiter, "\0\0", choice(from, 3)) != LIMITER_PANIC);
        }
        break;
    case 17:
        poll_all(w, 0);
        break;
    }
}

/* All is given back, and what is owed has passed: nobody holds, nobody waits, no key is needed. */
static void settle_down(world *w) {
    limiter_stats stats = LIMITER_INIT(limiter_stats);
    uint64_t user_data;
    size_t i;
    for (user_data = 0; user_data < 3; user_data++) limiter_cancel_waits(w->client, user_data);
    poll_all(w, 1);
    for (i = 0; i < PERMITS; i++) limiter_release(w->limiters[0], w->permits[i]);
    /* What is lent for good, as its number was overwritten here, comes back with its key. */
    for (i = 0; i < LIMITERS; i++) {
        size_t length;
        for (length = 0; length < 3; length++) limiter_reset(w->limiters[i], "\0\0", length);
    }
    MUST(limiter_stats_get(w->client, &stats) == LIMITER_OK);
    MUST(stats.waiting == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    bytes from;
    world w;
    limiter_config_t *config = limiter_config_new();
    limiter_limit first = limiter_semaphore(3);
    from.at = data, from.end = data + size;
    memset(&w, 0, sizeof w);
    MUST(limiter_config_set(config, "clock", "virtual", NULL, 0) == LIMITER_OK);
    MUST(limiter_client_open(NULL, config, &w.client, NULL, 0) == LIMITER_OK);
    limiter_config_free(config);
    MUST(limiter_queue_new(w.client, &w.queue) == LIMITER_OK);
    MUST(limiter_new(w.client, "a", &first, 1, &w.limiters[0], NULL, 0) == LIMITER_OK);
    while (from.at < from.end) step(&w, &from);
    settle_down(&w);
    {
        size_t i;
        for (i = 0; i < LIMITERS; i++) limiter_free(w.limiters[i]);
    }
    limiter_queue_free(w.queue);
    MUST(limiter_client_free(w.client) == LIMITER_OK);
    return 0;
}
