/* The tables of bad_calls.c: every function with its parameters, every kind of parameter with its bad values.
 */
#ifndef BAD_CALLS_H
#define BAD_CALLS_H

#include "fixture.h"

#define BIG ((uint64_t)1 << 63)
#define NOTHING INT64_MAX /* what a call that returns nothing returns here */
#define LONG 65537

/* Every argument of every function, good until a bad value is put in. */
typedef struct args {
    limiter_config_t *config;
    limiter_client_t *client;
    limiter_t *limiter; /* a semaphore and a bucket */
    limiter_t *rates;   /* what limiter_pace() takes */
    limiter_queue_t *queue;
    const char *setting, *value, *name, *url;
    const char *key;
    size_t key_len;
    limiter_request request[2]; /* with room for what a later version adds */
    const limiter_request *requests;
    limiter_limit limits[2];
    const limiter_limit *limits_at;
    size_t count, cap;
    limiter_decision out[2], *out_at;
    limiter_stats stats, *stats_at;
    limiter_slot slot[2];
    void *slot_at;
    limiter_permit permit;
    limiter_op op;
    uint64_t weight, actual, us;
    uint32_t flags, lease_ms;
    limiter_status status;
    limiter_completion_fn callback;
    void *place, **place_at; /* where a handle goes */
    char errbuf[LIMITER_ERRBUF_SIZE], *errbuf_at;
    size_t errcap;
} args;

/* THE FUNCTIONS --------------------------------------------------------------------------------- */

static volatile int called;
static volatile limiter_status answered;

static void note_answer(void *user_data, const limiter_decision *decision) {
    (void)user_data;
    answered = decision->status;
    __sync_add_and_fetch(&called, 1);
}

static void log_nothing(void *user_data, int32_t level, const char *message) {
    (void)user_data;
    (void)level;
    (void)message;
}

static void lose_nothing(void *user_data, limiter_permit permit) {
    (void)user_data;
    (void)permit;
}

#define CALL(name) static int64_t call_##name(args *a)
#define ERR a->errbuf_at, a->errcap

CALL(config_new) { limiter_config_t *made = limiter_config_new(); (void)a; limiter_config_free(made); return made == NULL; }
CALL(config_set) { return limiter_config_set(a->config, a->setting, a->value, ERR); }
CALL(config_set_log) { limiter_config_set_log(a->config, a->status, log_nothing, NULL); return NOTHING; }
CALL(config_set_lost) { limiter_config_set_lost(a->config, lose_nothing, NULL); return NOTHING; }
CALL(config_free) { limiter_config_free(a->config); a->config = NULL; return NOTHING; }
CALL(client_open) { return limiter_client_open(a->url, a->config, (limiter_client_t **)(void *)a->place_at, ERR); }
CALL(client_shutdown) { return limiter_client_shutdown(a->client, 10000); }
CALL(client_free) { limiter_status s = limiter_client_free(a->client); a->client = NULL; return s; }
CALL(new) { return limiter_new(a->client, a->name, a->limits_at, a->count, (limiter_t **)(void *)a->place_at, ERR); }
CALL(set) { return limiter_set(a->limiter, a->setting, a->value, ERR); }
CALL(free) { limiter_free(a->limiter); a->limiter = NULL; return NOTHING; }
CALL(acquire) { return limiter_acquire(a->limiter, a->requests, a->out_at); }
CALL(pace) { return limiter_pace(a->rates, a->requests, a->out_at); }
CALL(pace_ms) { return limiter_pace_ms(a->rates, a->key, a->key_len, a->weight); }
CALL(peek) { return limiter_peek(a->limiter, a->requests, a->out_at); }
CALL(reset) { return limiter_reset(a->limiter, a->key, a->key_len); }
CALL(penalize) { return limiter_penalize(a->limiter, a->key, a->key_len, a->us); }
CALL(try_many) { return limiter_try_many(a->limiter, a->requests, a->out_at, a->count); }
CALL(release) { return limiter_release(a->limiter, a->permit); }
CALL(renew) { return limiter_renew(a->limiter, a->permit, a->lease_ms); }
CALL(settle) { return limiter_settle(a->limiter, a->permit, a->actual); }
CALL(queue_new) { return limiter_queue_new(a->client, (limiter_queue_t **)(void *)a->place_at); }
CALL(queue_fd) { int32_t fd = limiter_queue_fd(a->queue); return fd < 0 ? fd : 0; }
CALL(submit) { return limiter_submit(a->queue, a->limiter, a->requests, a->out_at); }
CALL(queue_poll) { return limiter_queue_poll(a->queue, a->out_at, a->cap, 0); }
CALL(cancel) { return limiter_cancel(a->client, a->op, a->flags); }
CALL(cancel_waits) { int32_t n = limiter_cancel_waits(a->client, 4711); return n < 0 ? n : n - 1; }
CALL(queue_free) { limiter_queue_free(a->queue); a->queue = NULL; return NOTHING; }
CALL(acquire_cb) {
    limiter_op op = 77;
    int calls = called;
    limiter_status status = limiter_acquire_cb(a->limiter, a->requests, a->callback, NULL, &op);
    CHECK((op != 0) == (status == LIMITER_PENDING));
    if (status != LIMITER_PENDING) return status;
    CHECK_SOON(called == calls + 1);
    return answered;
}
CALL(before_task) { return limiter_before_task(a->slot_at); }
CALL(after_task) { limiter_after_task(a->slot_at); return NOTHING; }
CALL(clock_advance_us) { return limiter_clock_advance_us(a->client, a->us); }
CALL(clock_set_us) { return limiter_clock_set_us(a->client, a->us); }
CALL(clock_now_us) { return limiter_clock_now_us(a->client) == 0 ? LIMITER_INVALID : 0; }
CALL(stats_get) { return limiter_stats_get(a->client, a->stats_at); }
CALL(version) { (void)a; return limiter_version() == 0; }
CALL(abi_version) { (void)a; return limiter_abi_version() != LIMITER_ABI; }
CALL(status_name) { return strcmp(limiter_status_name(a->status), "LIMITER_?") ? 0 : LIMITER_INVALID; }
CALL(status_message) {
    return strstr(limiter_status_message(a->status), "no status") ? LIMITER_INVALID : 0;
}

/* Parameters as in the header, each NAME or NAME:KIND where the kind's name is another; "-" is one that has
 * no bad value. `good` is what the call returns when nothing is bad. */
static const struct function {
    const char *name;
    int64_t (*call)(args *);
    const char *parameters;
    int64_t good;
} functions[] = {
    {"abi_version", call_abi_version, "", 0},
    {"acquire", call_acquire, "limiter request out", 0},
    {"acquire_cb", call_acquire_cb, "limiter request callback user_data:- op:-", 0},
    {"after_task", call_after_task, "slot:free_slot", NOTHING},
    {"before_task", call_before_task, "slot", 0},
    {"cancel", call_cancel, "client op flags", 0},
    {"cancel_waits", call_cancel_waits, "client user_data:-", 0},
    {"client_free", call_client_free, "client:ignored_client", 0},
    {"client_open", call_client_open, "url config:- client:place errbuf errcap:-", 0},
    {"client_shutdown", call_client_shutdown, "client timeout_ms:-", 0},
    {"clock_advance_us", call_clock_advance_us, "client us:time", 0},
    {"clock_now_us", call_clock_now_us, "client", 0},
    {"clock_set_us", call_clock_set_us, "client us:time", 0},
    {"config_free", call_config_free, "config:ignored_config", NOTHING},
    {"config_new", call_config_new, "", 0},
    {"config_set", call_config_set, "config key:setting value errbuf errcap:-", 0},
    {"config_set_log", call_config_set_log, "config:ignored_config level log:- user_data:-", NOTHING},
    {"config_set_lost", call_config_set_lost, "config:ignored_config lost:- user_data:-", NOTHING},
    {"free", call_free, "limiter:ignored_limiter", NOTHING},
    {"new", call_new, "client name limits count limiter:place errbuf errcap:-", 0},
    {"pace", call_pace, "limiter:rates request out", 0},
    {"pace_ms", call_pace_ms, "limiter:rates key key_len:- weight:pace_weight", 0},
    {"peek", call_peek, "limiter request out", 0},
    {"penalize", call_penalize, "limiter key key_len:- retry_after_us:-", 0},
    {"queue_fd", call_queue_fd, "queue", 0},
    {"queue_free", call_queue_free, "queue:ignored_queue", NOTHING},
    {"queue_new", call_queue_new, "client queue:place", 0},
    {"queue_poll", call_queue_poll, "queue out cap timeout_ms:-", 1},
    {"release", call_release, "limiter permit", 0},
    {"renew", call_renew, "limiter permit lease_ms", 0},
    {"reset", call_reset, "limiter key key_len:-", 0},
    {"set", call_set, "limiter key:setting value:policy errbuf errcap:-", 0},
    {"settle", call_settle, "limiter permit actual_weight", 0},
    {"stats_get", call_stats_get, "client stats", 0},
    {"status_message", call_status_message, "status", 0},
    {"status_name", call_status_name, "status", 0},
    {"submit", call_submit, "queue limiter request out", 0},
    {"try_many", call_try_many, "limiter requests out count:many", 0},
    {"version", call_version, "", 0},
};

/* THE BAD VALUES -------------------------------------------------------------------------------- */

static char long_text[LONG + 1]; /* 65 537 bytes */

#define BAD(name) static void bad_##name(args *a)
BAD(null_config) { a->config = NULL; }
BAD(null_client) { a->client = NULL; }
BAD(null_limiter) { a->limiter = NULL; }
BAD(null_rates) { a->rates = NULL; }
BAD(null_queue) { a->queue = NULL; }
BAD(null_out) { a->out_at = NULL; }
BAD(null_place) { a->place_at = NULL; }
BAD(null_stats) { a->stats_at = NULL; }
BAD(null_slot) { a->slot_at = NULL; }
BAD(null_requests) { a->requests = NULL; }
BAD(null_limits) { a->limits_at = NULL; }
BAD(null_callback) { a->callback = NULL; }
BAD(null_errbuf) { a->errbuf_at = NULL; a->value = a->url = a->name = "\xff"; }
BAD(key_of_null) { a->key = a->request->key = NULL; a->key_len = a->request->key_len = 1; }
BAD(key_too_long) { a->key = a->request->key = long_text; a->key_len = a->request->key_len = LONG; }
BAD(key_2_63) { a->key_len = a->request->key_len = (size_t)BIG; }
BAD(key_minus_1) { a->key_len = a->request->key_len = SIZE_MAX; }
BAD(size_0) { memset(a->request, 0, sizeof a->request); }
BAD(size_8) { a->request->struct_size = 8; }
BAD(size_odd) { a->request->struct_size = sizeof(limiter_request) - 1; }
BAD(size_2_63) { a->request->struct_size = (size_t)BIG; }
BAD(size_minus_8) { a->request->struct_size = SIZE_MAX - 7; }
BAD(size_with_tail) { a->request->struct_size = 2 * sizeof(limiter_request); a->request[1].reserved = 1; }
BAD(unknown_flag) { a->request->flags = 1u << 31; }
BAD(request_reserved) { a->request->reserved = 1; }
BAD(request_lease_1) { a->request->lease_ms = 1; }
BAD(request_lease_minus_1) { a->request->lease_ms = UINT32_MAX; }
BAD(weights_null) { a->request->weights_len = 2; }
BAD(weights_too_few) { a->request->weights = &a->weight; a->request->weights_len = 1; }
BAD(weights_none) { a->request->weights = &a->weight; }
BAD(weights_2_63) { a->request->weights = &a->weight; a->request->weights_len = (size_t)BIG; }
BAD(weight_2_63) { a->request->weight = a->weight = BIG; }
BAD(weight_minus_1) { a->request->weight = a->weight = UINT64_MAX; }
BAD(actual_over) { a->actual = ((uint64_t)1 << 48) + 1; }
BAD(actual_2_63) { a->actual = BIG; }
BAD(actual_minus_1) { a->actual = UINT64_MAX; }
BAD(permit_0) { a->permit = 0; }
BAD(permit_made_up) { a->permit = UINT64_C(0x123456789); }
BAD(permit_2_63) { a->permit = BIG; }
BAD(permit_minus_1) { a->permit = UINT64_MAX; }
BAD(permit_next) { a->permit += 128; }
BAD(op_0) { a->op = 0; }
BAD(op_made_up) { a->op = UINT64_C(0x123456789); }
BAD(op_2_63) { a->op = BIG; }
BAD(op_minus_1) { a->op = UINT64_MAX; }
BAD(op_a_permit) { a->op = a->permit; }
BAD(flags_2) { a->flags = 2; }
BAD(flags_minus_1) { a->flags = UINT32_MAX; }
BAD(lease_1) { a->lease_ms = 1; }
BAD(lease_over) { a->lease_ms = 86400001; }
BAD(lease_minus_1) { a->lease_ms = UINT32_MAX; }
BAD(us_2_63) { a->us = BIG; }
BAD(us_minus_1) { a->us = UINT64_MAX; }
BAD(count_0) { a->count = 0; }
BAD(count_17) { a->count = 17; }
BAD(count_2_63) { a->count = (size_t)BIG; }
BAD(count_minus_1) { a->count = SIZE_MAX; }
BAD(count_over) { a->count = 65537; }
BAD(limit_zeroed) { memset(&a->limits[1], 0, sizeof a->limits[1]); }
BAD(limit_size_2_63) { a->limits[0].struct_size = (size_t)BIG; }
BAD(limit_kind_0) { a->limits[1].kind = 0; }
BAD(limit_kind_99) { a->limits[1].kind = 99; }
BAD(limit_flag) { a->limits[1].flags = 1u << 31; }
BAD(limit_capacity_0) { a->limits[1].capacity = 0; }
BAD(limit_capacity_2_63) { a->limits[1].capacity = BIG; }
BAD(limit_capacity_minus_1) { a->limits[1].capacity = UINT64_MAX; }
BAD(limit_refill_0) { a->limits[1].refill = 0; }
BAD(limit_period_0) { a->limits[1].period_us = 0; }
BAD(limit_period_minus_1) { a->limits[1].period_us = UINT64_MAX; }
BAD(setting_null) { a->setting = NULL; }
BAD(setting_empty) { a->setting = ""; }
BAD(setting_unknown) { a->setting = "lease-ms"; }
BAD(setting_long) { a->setting = long_text; }
BAD(setting_bytes) { a->setting = "\xff"; }
BAD(value_null) { a->value = NULL; }
BAD(value_empty) { a->value = ""; }
BAD(value_nan) { a->value = "NaN"; }
BAD(value_inf) { a->value = "inf"; }
BAD(value_0) { a->value = "0"; }
BAD(value_negative) { a->value = "-1"; }
BAD(value_2_63) { a->value = "9223372036854775808"; }
BAD(value_exponent) { a->value = "1e3"; }
BAD(value_long) { a->value = long_text; }
BAD(value_bytes) { a->value = "\xff"; }
BAD(name_null) { a->name = NULL; }
BAD(name_empty) { a->name = ""; }
BAD(name_long) { a->name = long_text; }
BAD(name_bytes) { a->name = "\xff"; }
BAD(url_empty) { a->url = ""; }
BAD(url_unknown) { a->url = "gopher://host"; }
BAD(url_more) { a->url = "memory://more"; }
BAD(url_port) { a->url = "redis://host:NaN"; }
BAD(url_port_over) { a->url = "redis://host:65536"; }
BAD(url_long) { a->url = long_text; }
BAD(url_bytes) { a->url = "\xff"; }
BAD(cap_0) { a->cap = 0; }
BAD(stats_size_0) { a->stats.struct_size = 0; }
BAD(stats_size_odd) { a->stats.struct_size = sizeof(limiter_stats) - 1; }
BAD(stats_size_2_63) { a->stats.struct_size = (size_t)BIG; }
BAD(stats_size_minus_8) { a->stats.struct_size = SIZE_MAX - 7; }
BAD(slot_size_0) { a->slot->struct_size = 0; }
BAD(slot_size_2_63) { a->slot->struct_size = (size_t)BIG; }
BAD(slot_with_tail) { a->slot->struct_size = 2 * sizeof(limiter_slot); a->slot[1].limiter = a->limiter; }
BAD(slot_request_size_0) { a->slot->request.struct_size = 0; }
BAD(slot_request_beyond) { a->slot->request.struct_size = sizeof(limiter_request) + 8; }
BAD(slot_null_limiter) { a->slot->limiter = NULL; }
BAD(slot_flag) { a->slot->request.flags = 1u << 31; }
BAD(slot_held) { a->slot->decision.permit = 1; }
BAD(no_permit) { a->slot->decision.permit = 0; }
BAD(status_1000) { a->status = 1000; }
BAD(status_least) { a->status = INT32_MIN; }

/* What a bad value is answered with; IGNORED: as if it was good, without an effect. */
#define IGNORED (NOTHING - 1)

static const struct bad {
    const char *kind, *what;
    void (*make)(args *);
    int64_t expect;
} bads[] = {
    {"config", "NULL", bad_null_config, LIMITER_INVALID},
    {"client", "NULL", bad_null_client, LIMITER_INVALID},
    {"limiter", "NULL", bad_null_limiter, LIMITER_INVALID},
    {"rates", "NULL", bad_null_rates, LIMITER_INVALID},
    {"queue", "NULL", bad_null_queue, LIMITER_INVALID},
    {"out", "NULL", bad_null_out, LIMITER_INVALID},
    {"place", "NULL", bad_null_place, LIMITER_INVALID},
    {"callback", "NULL", bad_null_callback, LIMITER_INVALID},
    {"ignored_config", "NULL", bad_null_config, IGNORED},
    {"ignored_client", "NULL", bad_null_client, IGNORED},
    {"ignored_limiter", "NULL", bad_null_limiter, IGNORED},
    {"ignored_queue", "NULL", bad_null_queue, IGNORED},
    {"errbuf", "NULL, with a message due", bad_null_errbuf, LIMITER_INVALID},
    {"request", "a key of NULL", bad_key_of_null, LIMITER_INVALID},
    {"request", "a key of 65 537 bytes", bad_key_too_long, LIMITER_INVALID},
    {"request", "a key of 2^63 bytes", bad_key_2_63, LIMITER_INVALID},
    {"request", "a key of -1 bytes", bad_key_minus_1, LIMITER_INVALID},
    {"request", "zeroed", bad_size_0, LIMITER_INVALID},
    {"request", "size 8", bad_size_8, LIMITER_INVALID},
    {"request", "a size that cuts a field", bad_size_odd, LIMITER_INVALID},
    {"request", "size 2^63", bad_size_2_63, LIMITER_INVALID},
    {"request", "size -8", bad_size_minus_8, LIMITER_INVALID},
    {"request", "a later one with something in it", bad_size_with_tail, LIMITER_INVALID},
    {"request", "an unknown flag", bad_unknown_flag, LIMITER_INVALID},
    {"request", "reserved", bad_request_reserved, LIMITER_INVALID},
    {"request", "lease 1", bad_request_lease_1, LIMITER_INVALID},
    {"request", "lease -1", bad_request_lease_minus_1, LIMITER_INVALID},
    {"request", "weights NULL", bad_weights_null, LIMITER_INVALID},
    {"request", "one weight for two limits", bad_weights_too_few, LIMITER_INVALID},
    {"request", "weights of length 0", bad_weights_none, LIMITER_INVALID},
    {"request", "2^63 weights", bad_weights_2_63, LIMITER_INVALID},
    {"request", "weight 2^63", bad_weight_2_63, LIMITER_NEVER},
    {"request", "weight -1", bad_weight_minus_1, LIMITER_NEVER},
    {"requests", "NULL", bad_null_requests, LIMITER_INVALID},
    {"requests", "zeroed", bad_size_0, LIMITER_INVALID},
    {"requests", "size 2^63", bad_size_2_63, LIMITER_INVALID},
    {"requests", "a later one with something in it", bad_size_with_tail, LIMITER_INVALID},
    {"requests", "a key of 65 537 bytes", bad_key_too_long, LIMITER_INVALID},
    {"requests", "a key of NULL", bad_key_of_null, LIMITER_INVALID},
    {"requests", "an unknown flag", bad_unknown_flag, LIMITER_INVALID},
    {"requests", "one weight for two limits", bad_weights_too_few, LIMITER_INVALID},
    {"many", "65 537", bad_count_over, LIMITER_INVALID},
    {"many", "2^63", bad_count_2_63, LIMITER_INVALID},
    {"many", "-1", bad_count_minus_1, LIMITER_INVALID},
    {"key", "NULL", bad_key_of_null, LIMITER_INVALID},
    {"key", "65 537 bytes", bad_key_too_long, LIMITER_INVALID},
    {"key", "2^63 bytes", bad_key_2_63, LIMITER_INVALID},
    {"key", "-1 bytes", bad_key_minus_1, LIMITER_INVALID},
    {"pace_weight", "2^63", bad_weight_2_63, LIMITER_PACE_NEVER},
    {"pace_weight", "-1", bad_weight_minus_1, LIMITER_PACE_NEVER},
    {"actual_weight", "over 2^48", bad_actual_over, LIMITER_INVALID},
    {"actual_weight", "2^63", bad_actual_2_63, LIMITER_INVALID},
    {"actual_weight", "-1", bad_actual_minus_1, LIMITER_INVALID},
    {"permit", "0", bad_permit_0, LIMITER_INVALID},
    {"permit", "made up", bad_permit_made_up, LIMITER_STALE},
    {"permit", "2^63", bad_permit_2_63, LIMITER_STALE},
    {"permit", "-1", bad_permit_minus_1, LIMITER_STALE},
    {"permit", "one to come", bad_permit_next, LIMITER_STALE},
    {"op", "0", bad_op_0, LIMITER_INVALID},
    {"op", "made up", bad_op_made_up, LIMITER_STALE},
    {"op", "2^63", bad_op_2_63, LIMITER_STALE},
    {"op", "-1", bad_op_minus_1, LIMITER_STALE},
    {"op", "a permit", bad_op_a_permit, LIMITER_STALE},
    {"flags", "2", bad_flags_2, LIMITER_INVALID},
    {"flags", "-1", bad_flags_minus_1, LIMITER_INVALID},
    {"lease_ms", "1", bad_lease_1, LIMITER_INVALID},
    {"lease_ms", "over a day", bad_lease_over, LIMITER_INVALID},
    {"lease_ms", "-1", bad_lease_minus_1, LIMITER_INVALID},
    {"time", "2^63", bad_us_2_63, LIMITER_INVALID},
    {"time", "-1", bad_us_minus_1, LIMITER_INVALID},
    {"limits", "NULL", bad_null_limits, LIMITER_INVALID},
    {"limits", "a zeroed one", bad_limit_zeroed, LIMITER_INVALID},
    {"limits", "size 2^63", bad_limit_size_2_63, LIMITER_INVALID},
    {"limits", "kind 0", bad_limit_kind_0, LIMITER_CONFIG},
    {"limits", "kind 99", bad_limit_kind_99, LIMITER_CONFIG},
    {"limits", "an unknown flag", bad_limit_flag, LIMITER_CONFIG},
    {"limits", "capacity 0", bad_limit_capacity_0, LIMITER_CONFIG},
    {"limits", "capacity 2^63", bad_limit_capacity_2_63, LIMITER_CONFIG},
    {"limits", "capacity -1", bad_limit_capacity_minus_1, LIMITER_CONFIG},
    {"limits", "refill 0", bad_limit_refill_0, LIMITER_CONFIG},
    {"limits", "period 0", bad_limit_period_0, LIMITER_CONFIG},
    {"limits", "period -1", bad_limit_period_minus_1, LIMITER_CONFIG},
    {"count", "0", bad_count_0, LIMITER_INVALID},
    {"count", "17", bad_count_17, LIMITER_INVALID},
    {"count", "2^63", bad_count_2_63, LIMITER_INVALID},
    {"count", "-1", bad_count_minus_1, LIMITER_INVALID},
    {"setting", "NULL", bad_setting_null, LIMITER_INVALID},
    {"setting", "empty", bad_setting_empty, LIMITER_CONFIG},
    {"setting", "unknown", bad_setting_unknown, LIMITER_CONFIG},
    {"setting", "64 KiB", bad_setting_long, LIMITER_CONFIG},
    {"setting", "not UTF-8", bad_setting_bytes, LIMITER_INVALID},
    {"value", "NULL", bad_value_null, LIMITER_INVALID},
    {"value", "empty", bad_value_empty, LIMITER_CONFIG},
    {"value", "NaN", bad_value_nan, LIMITER_CONFIG},
    {"value", "inf", bad_value_inf, LIMITER_CONFIG},
    {"value", "0", bad_value_0, LIMITER_CONFIG},
    {"value", "-1", bad_value_negative, LIMITER_CONFIG},
    {"value", "2^63", bad_value_2_63, LIMITER_CONFIG},
    {"value", "1e3", bad_value_exponent, LIMITER_CONFIG},
    {"value", "64 KiB", bad_value_long, LIMITER_CONFIG},
    {"value", "not UTF-8", bad_value_bytes, LIMITER_INVALID},
    {"policy", "NULL", bad_value_null, LIMITER_INVALID},
    {"policy", "empty", bad_value_empty, LIMITER_CONFIG},
    {"policy", "NaN", bad_value_nan, LIMITER_CONFIG},
    {"policy", "64 KiB", bad_value_long, LIMITER_CONFIG},
    {"policy", "not UTF-8", bad_value_bytes, LIMITER_INVALID},
    {"name", "NULL", bad_name_null, LIMITER_INVALID},
    {"name", "empty", bad_name_empty, LIMITER_CONFIG},
    {"name", "64 KiB", bad_name_long, LIMITER_CONFIG},
    {"name", "not UTF-8", bad_name_bytes, LIMITER_INVALID},
    {"url", "empty", bad_url_empty, LIMITER_CONFIG},
    {"url", "of another kind", bad_url_unknown, LIMITER_CONFIG},
    {"url", "with more", bad_url_more, LIMITER_CONFIG},
    {"url", "port NaN", bad_url_port, LIMITER_CONFIG},
    {"url", "port 65536", bad_url_port_over, LIMITER_CONFIG},
    {"url", "64 KiB", bad_url_long, LIMITER_CONFIG},
    {"url", "not UTF-8", bad_url_bytes, LIMITER_INVALID},
    {"cap", "0", bad_cap_0, LIMITER_INVALID},
    {"stats", "NULL", bad_null_stats, LIMITER_INVALID},
    {"stats", "size 0", bad_stats_size_0, LIMITER_INVALID},
    {"stats", "a size that cuts a field", bad_stats_size_odd, LIMITER_INVALID},
    {"stats", "size 2^63", bad_stats_size_2_63, LIMITER_INVALID},
    {"stats", "size -8", bad_stats_size_minus_8, LIMITER_INVALID},
    {"slot", "NULL", bad_null_slot, LIMITER_INVALID},
    {"slot", "size 0", bad_slot_size_0, LIMITER_INVALID},
    {"slot", "size 2^63", bad_slot_size_2_63, LIMITER_INVALID},
    {"slot", "a later one with something in it", bad_slot_with_tail, LIMITER_INVALID},
    {"slot", "a request of size 0", bad_slot_request_size_0, LIMITER_INVALID},
    {"slot", "a request that goes on beyond it", bad_slot_request_beyond, LIMITER_INVALID},
    {"slot", "no limiter", bad_slot_null_limiter, LIMITER_INVALID},
    {"slot", "an unknown flag", bad_slot_flag, LIMITER_INVALID},
    {"slot", "one that holds a permit", bad_slot_held, LIMITER_INVALID},
    {"free_slot", "NULL", bad_null_slot, IGNORED},
    {"free_slot", "size 0", bad_slot_size_0, IGNORED},
    {"free_slot", "size 2^63", bad_slot_size_2_63, IGNORED},
    {"free_slot", "no permit", bad_no_permit, IGNORED},
    {"status", "1000", bad_status_1000, LIMITER_INVALID},
    {"status", "-2^31", bad_status_least, LIMITER_INVALID},
    {"level", "1000", bad_status_1000, IGNORED},
    {"level", "-2^31", bad_status_least, IGNORED},
};

#endif
