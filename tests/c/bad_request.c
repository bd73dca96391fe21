/* Questions that must be refused by every verb, without an effect, in more detail than bad_calls.c: keys,
 * flags, weights, struct sizes. */
#include "fixture.h"

#define KEY_MOST 65536

typedef struct world {
    limiter_client_t *client;
    limiter_t *both;  /* a semaphore and a bucket */
    limiter_t *rates; /* what limiter_pace() takes: a bucket and a window */
    limiter_queue_t *queue;
    limiter_decision before, rates_before;
    limiter_stats stats;
} world;

static world open_world(void) {
    world w;
    limiter_limit limits[2];
    w.client = open_virtual();
    limits[0] = limiter_semaphore(5);
    limits[1] = limiter_token_bucket(7, 1, LIMITER_HOUR);
    w.both = make(w.client, "both", limits, 2);
    limits[0] = limiter_fixed_window(5, LIMITER_DAY);
    w.rates = make(w.client, "rates", limits, 2);
    w.queue = NULL;
    CHECK_OK(limiter_queue_new(w.client, &w.queue));
    CHECK_OK(try_once(w.both, 2).status);
    CHECK_OK(try_once(w.rates, 2).status);
    w.before = peek(w.both, NULL, 1);
    w.rates_before = peek(w.rates, NULL, 1);
    w.stats = stats_of(w.client);
    return w;
}

/* No key, permit, wait, charge or count more than before. */
static void check_unchanged(world *w) {
    limiter_stats now = stats_of(w->client);
    limiter_decision both = peek(w->both, NULL, 1), rates = peek(w->rates, NULL, 1), none;
    CHECK(memcmp(&both, &w->before, sizeof both) == 0);
    CHECK(memcmp(&rates, &w->rates_before, sizeof rates) == 0);
    CHECK_EQ(now.granted, w->stats.granted);
    CHECK_EQ(now.in_flight, w->stats.in_flight);
    CHECK_EQ(now.waiting, w->stats.waiting);
    CHECK_EQ(now.keys, w->stats.keys);
    CHECK_EQ(now.released, w->stats.released);
    CHECK_EQ(now.settled, w->stats.settled);
    CHECK_EQ(limiter_queue_poll(w->queue, &none, 1, 0), 0);
}

static void close_world(world *w) {
    limiter_queue_free(w->queue);
    limiter_free(w->rates);
    close_client(w->client, w->both);
}

static void never_called(void *user_data, const limiter_decision *decision) {
    (void)user_data;
    (void)decision;
    check_fail(__FILE__, __LINE__, "a callback for a call that was refused");
}

/* Every verb that takes a request refuses this one, and says so in the decision too. */
static void every_verb_refuses(world *w, const limiter_request *request) {
    limiter_decision out[2];
    limiter_op op = 77;
    int verb;
    for (verb = 0; verb < 6; verb++) {
        limiter_status status = LIMITER_OK;
        memset(out, 0x55, sizeof out);
        switch (verb) {
        case 0: status = limiter_acquire(w->both, request, out); break;
        case 1: status = limiter_peek(w->both, request, out); break;
        case 2: status = limiter_submit(w->queue, w->both, request, out); break;
        case 3: status = limiter_pace(w->rates, request, out); break;
        case 4: status = limiter_acquire_cb(w->both, request, never_called, NULL, &op); break;
        case 5: status = limiter_try_many(w->both, request, out, 1); break;
        }
        CHECK_STATUS(status, LIMITER_INVALID);
        if (verb != 4) {
            CHECK_STATUS(out[0].status, LIMITER_INVALID);
            CHECK_EQ(out[0].permit, 0);
            CHECK_EQ(out[0].op, 0);
            CHECK_EQ(out[0].index, LIMITER_NO_INDEX);
            CHECK_EQ(out[0].reserved[4], 0);
        }
        if (verb == 4) CHECK_EQ(op, 0);
        CHECK(out[1].permit == UINT64_C(0x5555555555555555)); /* writes one decision, no more */
        check_unchanged(w);
    }
}

static void fields_out_of_range(void) {
    world w = open_world();
    static const uint64_t weights[3] = {1, 1, 1};
    static const uint32_t leases[] = {1, 99, 86400001, 0x80000000u, UINT32_MAX};
    limiter_request request;
    size_t i;
    for (i = 0; i < CHECK_COUNT(leases); i++) {
        request = ask(NULL, 1, 0);
        request.lease_ms = leases[i];
        every_verb_refuses(&w, &request);
    }
    for (i = 0; i < 32; i++) {
        uint32_t flag = (uint32_t)1 << i;
        if (flag == LIMITER_NO_RENEW || flag == LIMITER_TELL_LOST) continue;
        request = ask(NULL, 1, 0);
        request.flags = flag;
        every_verb_refuses(&w, &request);
    }
    request = ask(NULL, 1, 0);
    request.reserved = 1;
    every_verb_refuses(&w, &request);
    request = ask(NULL, 1, 0);
    request.key = NULL;
    request.key_len = 1;
    every_verb_refuses(&w, &request);
    request = ask(NULL, 1, 0);
    request.weights = NULL;
    request.weights_len = 2;
    every_verb_refuses(&w, &request);
    for (i = 0; i < 5; i++) {
        static const size_t lengths[] = {0, 1, 3, (size_t)1 << 63, SIZE_MAX};
        request.weights = weights;
        request.weights_len = lengths[i];
        every_verb_refuses(&w, &request);
    }
    close_world(&w);
}

static void keys_up_to_64_kib(void) {
    world w = open_world();
    static char key[KEY_MOST + 1];
    static const size_t too_long[] = {KEY_MOST + 1, (size_t)1 << 32, (size_t)1 << 63, SIZE_MAX};
    limiter_request request = LIMITER_INIT(limiter_request);
    limiter_decision out;
    size_t i;
    memset(key, 'k', sizeof key);
    request.key = key;
    for (i = 0; i < CHECK_COUNT(too_long); i++) {
        request.key_len = too_long[i];
        every_verb_refuses(&w, &request);
        CHECK_STATUS(limiter_reset(w.both, key, too_long[i]), LIMITER_INVALID);
        CHECK_STATUS(limiter_penalize(w.both, key, too_long[i], 1000), LIMITER_INVALID);
        CHECK_EQ(limiter_pace_ms(w.rates, key, too_long[i], 1), LIMITER_INVALID);
        check_unchanged(&w);
    }
    CHECK_STATUS(limiter_reset(w.both, NULL, 1), LIMITER_INVALID);
    CHECK_STATUS(limiter_penalize(w.both, NULL, 1, 1000), LIMITER_INVALID);
    CHECK_EQ(limiter_pace_ms(w.rates, NULL, 1, 1), LIMITER_INVALID);
    check_unchanged(&w);

    request.key_len = KEY_MOST;
    request.weight = 5;
    CHECK_OK(limiter_acquire(w.both, &request, &out));
    CHECK_STATUS(limiter_acquire(w.both, &request, &out), LIMITER_DENIED);
    request.key_len = KEY_MOST - 1; /* another key */
    CHECK_OK(limiter_acquire(w.both, &request, &out));
    key[KEY_MOST - 1] = 'K'; /* differs in the last byte only */
    request.key_len = KEY_MOST;
    CHECK_OK(limiter_acquire(w.both, &request, &out));
    CHECK_EQ(limiter_pace_ms(w.rates, key, KEY_MOST, 1), 0);
    CHECK_OK(limiter_reset(w.both, key, KEY_MOST));
    CHECK_OK(limiter_penalize(w.both, key, KEY_MOST, 1000));
    close_world(&w);
}

static void keys_are_any_bytes(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_semaphore(1));
    static const struct {
        const char *bytes;
        size_t length;
    } keys[] = {{NULL, 0}, {"\0", 1}, {"\0\0", 2}, {"a", 1},   {"a\0", 2}, {"a\0b", 3}, {"{", 1},
                {"}", 1},  {"{}", 2}, {"%", 1},    {"%00", 3}, {"\xff", 1}, {"\xff\xfe", 2}, {" ", 1},
                {"\r\n", 2}, {"A", 1}, {"*", 1},   {":", 1}};
    size_t i;
    for (i = 0; i < CHECK_COUNT(keys); i++) { /* none meets another */
        limiter_request request = LIMITER_INIT(limiter_request);
        limiter_decision out;
        char about[16];
        snprintf(about, sizeof about, "key %zu", i);
        check_context(about);
        request.key = keys[i].bytes;
        request.key_len = keys[i].length;
        CHECK_OK(limiter_acquire(limiter, &request, &out));
        CHECK_STATUS(limiter_acquire(limiter, &request, &out), LIMITER_DENIED);
    }
    CHECK_STATUS(acquire(limiter, "", 1, 0).status, LIMITER_DENIED); /* "" is the empty key too */
    close_client(client, limiter);
}

/* As the header said before the fields from `weights` on, and as it may say one day. */
typedef struct shorter_request {
    size_t struct_size;
    const char *key;
    size_t key_len;
    uint64_t weight;
} shorter_request;

typedef struct longer_request {
    limiter_request known;
    uint64_t future[2];
} longer_request;

static void struct_sizes_of_other_versions(void) {
    world w = open_world();
    longer_request longer;
    shorter_request shorter;
    limiter_request request = LIMITER_INIT(limiter_request);
    limiter_decision out;
    size_t size;
    for (size = 0; size < sizeof shorter; size++) { /* too short to ask anything, or cut in a field */
        request.struct_size = size;
        every_verb_refuses(&w, &request);
    }
    for (size = sizeof shorter + 1; size < sizeof request + 8; size++) {
        if (size % 8 == 0) continue;
        request.struct_size = size;
        every_verb_refuses(&w, &request);
    }
    request.struct_size = (size_t)1 << 63;
    every_verb_refuses(&w, &request);
    request.struct_size = SIZE_MAX;
    every_verb_refuses(&w, &request);

    memset(&longer, 0, sizeof longer);
    longer.known = ask("longer", 5, 0);
    longer.known.struct_size = sizeof longer;
    longer.future[1] = 1;
    every_verb_refuses(&w, &longer.known);
    longer.future[1] = 0, longer.future[0] = (uint64_t)1 << 63;
    every_verb_refuses(&w, &longer.known);
    longer.future[0] = 0;
    CHECK_OK(limiter_acquire(w.both, &longer.known, &out));
    CHECK_STATUS(limiter_acquire(w.both, &longer.known, &out), LIMITER_DENIED);

    shorter.struct_size = sizeof shorter;
    shorter.key = "shorter";
    shorter.key_len = 7;
    shorter.weight = 5;
    CHECK_OK(limiter_acquire(w.both, (const limiter_request *)(const void *)&shorter, &out));
    CHECK_STATUS(limiter_acquire(w.both, (const limiter_request *)(const void *)&shorter, &out),
                 LIMITER_DENIED);
    close_world(&w);
}

static void a_null_request_is_the_default_one(void) {
    world w = open_world();
    limiter_decision out, many[1];
    CHECK_OK(limiter_acquire(w.both, NULL, &out));
    CHECK_EQ(peek(w.both, NULL, 1).remaining, w.before.remaining - 1);
    CHECK_OK(limiter_peek(w.both, NULL, &out));
    CHECK_OK(limiter_pace(w.rates, NULL, &out));
    CHECK_OK(limiter_submit(w.queue, w.both, NULL, &out));
    CHECK_EQ(out.op, 0);
    CHECK_OK(limiter_try_many(w.both, NULL, many, 0)); /* nothing asked */
    CHECK_OK(limiter_try_many(w.both, NULL, NULL, 0));
    close_world(&w);
}

static void a_lease_to_renew_for_is_in_range(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_semaphore(1));
    static const uint32_t leases[] = {1, 99, 86400001, 0x80000000u, UINT32_MAX};
    limiter_request request = ask(NULL, 1, 0);
    limiter_decision held;
    size_t i;
    request.flags = LIMITER_NO_RENEW;
    request.lease_ms = 1000;
    CHECK_OK(limiter_acquire(limiter, &request, &held));
    advance(client, 500000);
    for (i = 0; i < CHECK_COUNT(leases); i++) {
        CHECK_STATUS(limiter_renew(limiter, held.permit, leases[i]), LIMITER_INVALID);
    }
    advance(client, 499999);
    CHECK_STATUS(try_once(limiter, 1).status, LIMITER_DENIED);
    advance(client, 1); /* the lease was not touched */
    CHECK_OK(try_once(limiter, 1).status);
    close_client(client, limiter);
}

static void stats_of_other_sizes(void) {
    world w = open_world();
    struct {
        limiter_stats known;
        uint64_t future;
    } longer;
    struct {
        size_t struct_size;
        uint64_t granted, sentinel;
    } shorter = {16, 0, 77};
    static const size_t bad[] = {0, 1, 8, 15, 17, sizeof(limiter_stats) - 1};
    size_t i;
    for (i = 0; i < CHECK_COUNT(bad); i++) {
        limiter_stats stats;
        memset(&stats, 0x55, sizeof stats);
        stats.struct_size = bad[i];
        CHECK_STATUS(limiter_stats_get(w.client, &stats), LIMITER_INVALID);
        CHECK_EQ(stats.granted, UINT64_C(0x5555555555555555));
    }
    CHECK_OK(limiter_stats_get(w.client, (limiter_stats *)(void *)&shorter));
    CHECK_EQ(shorter.granted, 2);
    CHECK_EQ(shorter.sentinel, 77);
    memset(&longer, 0x55, sizeof longer);
    longer.known.struct_size = sizeof longer;
    CHECK_OK(limiter_stats_get(w.client, &longer.known));
    CHECK_EQ(longer.known.granted, 2);
    CHECK_EQ(longer.known.struct_size, sizeof longer);
    CHECK_EQ(longer.future, UINT64_C(0x5555555555555555)); /* "the library writes no further" */
    close_world(&w);
}

static void only_a_virtual_clock_is_moved(void) {
    limiter_client_t *real = open_real();
    CHECK_STATUS(limiter_clock_set_us(real, 1), LIMITER_UNSUPPORTED);
    CHECK_STATUS(limiter_clock_advance_us(real, 1), LIMITER_UNSUPPORTED);
    CHECK_OK(limiter_client_free(real));
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        CHECK_TEST(fields_out_of_range),
        CHECK_TEST(keys_up_to_64_kib),
        CHECK_TEST(keys_are_any_bytes),
        CHECK_TEST(struct_sizes_of_other_versions),
        CHECK_TEST(a_null_request_is_the_default_one),
        CHECK_TEST(a_lease_to_renew_for_is_in_range),
        CHECK_TEST(stats_of_other_sizes),
        CHECK_TEST(only_a_virtual_clock_is_moved),
    };
    return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
