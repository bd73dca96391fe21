/* Runs tests/scenarios/scenarios.json through the C API; its README says what each step means. */
#include "fixture.h"
#include "json.h"

#define MOST_NAMES 64

/* A permit or an operation that later steps speak of. */
typedef struct named {
    const char *name;
    limiter_permit permit;
    limiter_op op;
    uint64_t fence;
    int arrived, looked_at;
    limiter_decision completion;
} named;

typedef struct runner {
    const char *name;
    limiter_client_t *client;
    limiter_t *limiter;
    limiter_queue_t *queue;
    named names[MOST_NAMES];
    size_t count;
} runner;

static named *name_of(runner *r, const char *name, int create) {
    size_t i;
    for (i = 0; i < r->count; i++) {
        if (strcmp(r->names[i].name, name) == 0) return &r->names[i];
    }
    if (!create) check_fail(__FILE__, __LINE__, name);
    CHECK(r->count < MOST_NAMES);
    memset(&r->names[r->count], 0, sizeof(named));
    r->names[r->count].name = name;
    return &r->names[r->count++];
}

static uint32_t flags_of(const json *list) {
    static const struct {
        const char *name;
        uint32_t flag;
    } all[] = {{"per_call", LIMITER_PER_CALL},       {"interval", LIMITER_INTERVAL},
               {"start_empty", LIMITER_START_EMPTY}, {"align_first_use", LIMITER_ALIGN_FIRST_USE},
               {"no_renew", LIMITER_NO_RENEW},       {"tell_lost", LIMITER_TELL_LOST}};
    uint32_t flags = 0;
    const json *one;
    size_t i;
    for (one = list ? list->child : NULL; one; one = one->next) {
        for (i = 0; i < CHECK_COUNT(all) && !json_is(one, all[i].name); i++) {}
        if (i == CHECK_COUNT(all)) check_fail(__FILE__, __LINE__, one->text);
        flags |= all[i].flag;
    }
    return flags;
}

static limiter_limit limit_of(const json *from) {
    static const char *const kinds[] = {"",           "semaphore",       "token_bucket", "pacer",    "sliding_log",
                                        "sliding_counter", "fixed_window", "unlimited", "never"};
    limiter_limit limit = LIMITER_INIT(limiter_limit);
    while (limit.kind < CHECK_COUNT(kinds) && !json_is(json_get(from, "kind"), kinds[limit.kind])) limit.kind++;
    limit.flags = flags_of(json_get(from, "flags"));
    limit.capacity = json_count(from, "capacity", 0);
    limit.refill = json_count(from, "refill", 0);
    limit.period_us = json_count(from, "period_us", 0);
    limit.lease_ms = (uint32_t)json_count(from, "lease_ms", 0);
    limit.burst_earn_permille = (uint32_t)json_count(from, "burst_earn_permille", 500);
    limit.version = (uint32_t)json_count(from, "version", 0);
    return limit;
}

static limiter_status open_limiter(runner *r, const json *list) {
    limiter_limit limits[16];
    limiter_t *made = NULL;
    size_t n = 0;
    const json *one;
    limiter_status status;
    for (one = list->child; one && n < 16; one = one->next) limits[n++] = limit_of(one);
    status = limiter_new(r->client, r->name, limits, n, &made, NULL, 0);
    if (status == LIMITER_OK) {
        limiter_free(r->limiter);
        r->limiter = made;
    }
    return status;
}

static limiter_request request_of(const json *step, uint64_t weights[16]) {
    limiter_request request = LIMITER_INIT(limiter_request);
    const json *key = json_get(step, "key"), *each = json_get(step, "weights"), *one;
    if (key) request.key = key->text, request.key_len = key->length;
    request.weight = json_count(step, "weight", 1);
    for (one = each ? each->child : NULL; one; one = one->next) {
        CHECK(request.weights_len < 16);
        weights[request.weights_len++] = (uint64_t)one->number;
        request.weights = weights;
    }
    request.wait_ms = (int32_t)json_number(step, "wait_ms", 0);
    request.lease_ms = (uint32_t)json_count(step, "lease_ms", 0);
    request.flags = flags_of(json_get(step, "flags"));
    return request;
}

static void check_words(const json *expect, limiter_status got) {
    const json *word = json_get(expect, "status");
    const char *want = word ? word->text : "OK", *name = limiter_status_name(got);
    char text[128];
    snprintf(text, sizeof text, "%s, not LIMITER_%s", name, want);
    if (strcmp(name + strlen("LIMITER_"), want) != 0) check_fail(__FILE__, __LINE__, text);
}

static void check_field(const char *name, uint64_t got, const json *want) {
    char text[160];
    snprintf(text, sizeof text, "%s is %" PRIu64 ", not %.0f", name, got, want->number);
    if (want->type != JSON_NUMBER || (double)got != want->number) check_fail(__FILE__, __LINE__, text);
}

static void check_decision(runner *r, const json *expect, const limiter_decision *got) {
    const json *one;
    check_words(expect, got->status);
    for (one = expect ? expect->child : NULL; one; one = one->next) {
        const char *field = one->name;
        if (strcmp(field, "status") == 0) continue;
        if (strcmp(field, "permit") == 0) CHECK((got->permit != 0) == (one->type == JSON_TRUE));
        else if (strcmp(field, "degraded") == 0) CHECK(((got->flags & LIMITER_DEGRADED) != 0) == (one->type == JSON_TRUE));
        else if (strcmp(field, "fence_after") == 0) CHECK(got->fence > name_of(r, one->text, 0)->fence);
        else if (strcmp(field, "limit") == 0) check_field(field, got->limit, one);
        else if (strcmp(field, "remaining") == 0) check_field(field, got->remaining, one);
        else if (strcmp(field, "retry_after_us") == 0) check_field(field, got->retry_after_us, one);
        else if (strcmp(field, "reset_after_us") == 0) check_field(field, got->reset_after_us, one);
        else if (strcmp(field, "waited_us") == 0) check_field(field, got->waited_us, one);
        else if (strcmp(field, "index") == 0) check_field(field, got->index, one);
        else if (strcmp(field, "queue_position") == 0) check_field(field, got->queue_position, one);
        else check_fail(__FILE__, __LINE__, field);
    }
}

static void check_stats(const json *expect, const limiter_stats *got) {
    const json *one;
    for (one = expect ? expect->child : NULL; one; one = one->next) {
#define FIELD(field) if (strcmp(one->name, #field) == 0) { check_field(#field, got->field, one); continue; }
        FIELD(granted) FIELD(denied) FIELD(never) FIELD(cancelled) FIELD(released) FIELD(settled) FIELD(lost)
        FIELD(overloaded) FIELD(degraded) FIELD(in_flight) FIELD(waiting)
        if (getenv("LIMITER_TEST_URL") && strcmp(one->name, "keys") == 0) continue; /* they are there */
        FIELD(keys)
#undef FIELD
        check_fail(__FILE__, __LINE__, one->name);
    }
}

static void remember(runner *r, const json *step, const limiter_decision *got) {
    const json *as = json_get(step, "as");
    if (as && got->permit) {
        named *entry = name_of(r, as->text, 1);
        entry->permit = got->permit;
        entry->fence = got->fence;
    }
}

/* Takes what has arrived out of the queue, and what is on its way from Redis. */
static void collect(runner *r) {
    limiter_decision out;
    size_t i;
    if (getenv("LIMITER_TEST_URL")) (void)!limiter_clock_advance_us(r->client, 0); /* a clock of its own has nothing due */
    while (limiter_queue_poll(r->queue, &out, 1, 0) == 1) {
        for (i = 0; i < r->count && r->names[i].op != out.op; i++) {}
        CHECK(i < r->count && !r->names[i].arrived);
        r->names[i].arrived = 1;
        r->names[i].completion = out;
        r->names[i].permit = out.permit;
        r->names[i].fence = out.fence;
    }
}

static void ask_many(runner *r, const json *step) {
    limiter_request requests[32];
    limiter_decision out[32];
    uint64_t weights[32][16];
    size_t n = 0, i;
    const json *one, *expect = json_get(step, "expect")->child;
    for (one = json_get(step, "requests")->child; one; one = one->next, n++) {
        CHECK(n < 32);
        requests[n] = request_of(one, weights[n]);
    }
    CHECK_OK(limiter_try_many(r->limiter, requests, out, n));
    for (i = 0, one = json_get(step, "requests")->child; i < n; i++, one = one->next, expect = expect->next) {
        check_decision(r, expect, &out[i]);
        remember(r, one, &out[i]);
    }
}

/* The steps about a wait: submit, cancel, completes, pending. */
static int wait_step(runner *r, const json *step) {
    const json *expect = json_get(step, "expect"), *name;
    if ((name = json_get(step, "submit")) != NULL) {
        uint64_t weights[16];
        limiter_request request = request_of(step, weights);
        limiter_decision out;
        named *entry = name_of(r, name->text, 1);
        limiter_status status = limiter_submit(r->queue, r->limiter, &request, &out);
        CHECK_STATUS(out.status, status);
        if (status == LIMITER_PENDING && getenv("LIMITER_TEST_URL")) {
            /* Redis never answers at once: what was decided at once is taken from the queue. */
            limiter_op op = out.op;
            CHECK_OK(limiter_clock_advance_us(r->client, 0));
            if (limiter_queue_poll(r->queue, &out, 1, 0) == 1) CHECK_EQ(out.op, op);
        }
        entry->op = out.op;
        entry->permit = out.permit;
        entry->fence = out.fence;
        check_decision(r, expect, &out);
        remember(r, step, &out);
    } else if ((name = json_get(step, "cancel")) != NULL) {
        const json *detach = json_get(step, "detach");
        uint32_t flags = detach && detach->type == JSON_TRUE ? LIMITER_DETACH : 0;
        check_words(expect, limiter_cancel(r->client, name_of(r, name->text, 0)->op, flags));
    } else if ((name = json_get(step, "completes")) != NULL) {
        named *entry = name_of(r, name->text, 0);
        collect(r);
        CHECK(entry->arrived && !entry->looked_at);
        entry->looked_at = 1;
        check_decision(r, expect, &entry->completion);
    } else if ((name = json_get(step, "pending")) != NULL) {
        collect(r);
        CHECK(!name_of(r, name->text, 0)->arrived);
    } else {
        return 0;
    }
    return 1;
}

/* The steps that answer with a status only. */
static limiter_status plain_step(runner *r, const json *step, const json *op) {
    const json *permit = json_get(step, "permit"), *key = json_get(step, "key");
    limiter_permit number = permit ? name_of(r, permit->text, 0)->permit : 0;
    const char *bytes = key ? key->text : NULL;
    size_t length = key ? key->length : 0;
    if (json_is(op, "release")) return limiter_release(r->limiter, number);
    if (json_is(op, "renew")) return limiter_renew(r->limiter, number, (uint32_t)json_count(step, "lease_ms", 0));
    if (json_is(op, "settle")) return limiter_settle(r->limiter, number, json_count(step, "actual", 0));
    if (json_is(op, "reset")) return limiter_reset(r->limiter, bytes, length);
    if (json_is(op, "penalize")) return limiter_penalize(r->limiter, bytes, length, json_count(step, "retry_after_us", 0));
    if (json_is(op, "open")) return open_limiter(r, json_get(step, "limits"));
    if (json_is(op, "shutdown")) return limiter_client_shutdown(r->client, 1000);
    check_fail(__FILE__, __LINE__, "a step of no known kind");
    return LIMITER_INVALID;
}

static void run_json_step(runner *r, const json *step) {
    const json *op = json_get(step, "op"), *expect = json_get(step, "expect"), *us;
    uint64_t weights[16];
    limiter_request request;
    limiter_decision out = LIMITER_INIT(limiter_decision);
    if ((us = json_get(step, "advance_us")) != NULL) {
        CHECK_OK(limiter_clock_advance_us(r->client, (uint64_t)us->number));
    } else if ((us = json_get(step, "step_back_us")) != NULL) {
        CHECK_OK(limiter_clock_set_us(r->client, limiter_clock_now_us(r->client) - (uint64_t)us->number));
    } else if (wait_step(r, step)) {
        return;
    } else if (json_is(op, "try_many")) {
        ask_many(r, step);
    } else if (json_is(op, "stats")) {
        limiter_stats stats = stats_of(r->client);
        check_stats(expect, &stats);
    } else if (json_is(op, "try") || json_is(op, "acquire") || json_is(op, "pace") || json_is(op, "peek")) {
        request = request_of(step, weights);
        if (json_is(op, "try")) request.wait_ms = 0;
        if (json_is(op, "pace")) (void)!limiter_pace(r->limiter, &request, &out);
        else if (json_is(op, "peek")) (void)!limiter_peek(r->limiter, &request, &out);
        else (void)!limiter_acquire(r->limiter, &request, &out);
        check_decision(r, expect, &out);
        remember(r, step, &out);
    } else {
        check_words(expect, plain_step(r, step, op));
    }
}

static const json *current;

static void run_current(void) {
    runner r;
    const json *step, *one;
    limiter_config_t *config = limiter_config_new();
    size_t i = 0;
    memset(&r, 0, sizeof r);
    r.name = json_get(current, "name")->text;
    if (json_get(current, "clock")) {
        CHECK_OK(limiter_config_set(config, "clock", json_get(current, "clock")->text, NULL, 0));
    }
    one = json_get(current, "config");
    for (one = one ? one->child : NULL; one; one = one->next) {
        CHECK_OK(limiter_config_set(config, one->name, one->text, NULL, 0));
    }
    if (json_is(json_get(current, "backend"), "none")) {
        CHECK_OK(limiter_client_open("redis://127.0.0.1:1", config, &r.client, NULL, 0));
    } else {
        r.client = open_config(config);
    }
    limiter_config_free(config);
    CHECK_OK(limiter_queue_new(r.client, &r.queue));
    if (json_get(current, "limits")) CHECK_OK(open_limiter(&r, json_get(current, "limits")));
    for (step = json_get(current, "steps")->child; step; step = step->next) {
        char about[200];
        snprintf(about, sizeof about, "%s, step %zu", r.name, i++);
        check_context(about);
        run_json_step(&r, step);
    }
    collect(&r);
    for (i = 0; i < r.count; i++) CHECK(!r.names[i].arrived || r.names[i].looked_at);
    limiter_queue_free(r.queue);
    close_client(r.client, r.limiter);
}

int main(void) {
    json *root = json_read("tests/scenarios/scenarios.json");
    int passed = 0, failed = 0;
    for (current = json_get(root, "scenarios")->child; current; current = current->next) {
        check_test test;
        int ok;
        test.name = json_get(current, "name")->text;
        test.run = run_current;
        ok = check_one(&test);
        passed += ok;
        failed += !ok;
        if (!ok) printf("  FAILED %s\n", test.name);
    }
    printf("scenarios: %d passed, %d failed\n", passed, failed);
    json_free(root);
    return failed > 0 || passed < 50;
}
