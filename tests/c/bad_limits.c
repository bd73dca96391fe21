/* Limiters that must be refused: limits out of range, names, counts, struct sizes. */
#include "fixture.h"

/* Refused, with a message that holds `about`; the place is NULL and the client as before. */
static void refused(limiter_client_t *client, const char *name, const limiter_limit *limits,
                    size_t count, limiter_status status, const char *about) {
    char error[LIMITER_ERRBUF_SIZE] = "";
    limiter_t *limiter = (limiter_t *)error;
    uint64_t keys = stats_of(client).keys;
    CHECK_STATUS(limiter_new(client, name, limits, count, &limiter, error, sizeof error), status);
    CHECK(limiter == NULL);
    CHECK(strlen(error) > 4);
    if (about && !strstr(error, about)) check_fail(__FILE__, __LINE__, error);
    CHECK_STATUS(limiter_new(client, name, limits, count, &limiter, NULL, 0), status);
    CHECK_EQ(stats_of(client).keys, keys);
}

typedef struct bad_limit {
    const char *what; /* also a part of the message */
    uint32_t kind, flags;
    uint64_t capacity, refill, period_us;
    uint32_t lease_ms, earn, reserved;
} bad_limit;

static const uint64_t big = (uint64_t)1 << 48, two63 = (uint64_t)1 << 63;
static const uint64_t ten_years = UINT64_C(315576000000000);

static void fields_out_of_range_are_named(void) {
    const bad_limit rows[] = {
        {"kind", 0, 0, 1, 1, 1, 0, 500, 0},
        {"kind", 9, 0, 1, 1, 1, 0, 500, 0},
        {"kind", UINT32_MAX, 0, 1, 1, 1, 0, 500, 0},
        {"capacity", LIMITER_SEMAPHORE, 0, 0, 0, 0, 0, 500, 0},
        {"capacity", LIMITER_SEMAPHORE, 0, big + 1, 0, 0, 0, 500, 0},
        {"capacity", LIMITER_SEMAPHORE, 0, two63, 0, 0, 0, 500, 0},
        {"capacity", LIMITER_SEMAPHORE, 0, UINT64_MAX, 0, 0, 0, 500, 0},
        {"lease_ms", LIMITER_SEMAPHORE, 0, 1, 0, 0, 99, 500, 0},
        {"lease_ms", LIMITER_SEMAPHORE, 0, 1, 0, 0, 86400001, 500, 0},
        {"lease_ms", LIMITER_SEMAPHORE, 0, 1, 0, 0, UINT32_MAX, 500, 0},
        {"refill", LIMITER_SEMAPHORE, 0, 1, 1, 0, 0, 500, 0},
        {"period_us", LIMITER_SEMAPHORE, 0, 1, 0, 1, 0, 500, 0},
        {"burst_earn_permille", LIMITER_SEMAPHORE, 0, 1, 0, 0, 0, 499, 0},
        {"flag", LIMITER_SEMAPHORE, LIMITER_INTERVAL, 1, 0, 0, 0, 500, 0},
        {"flag", LIMITER_SEMAPHORE, 64, 1, 0, 0, 0, 500, 0},
        {"flag", LIMITER_SEMAPHORE, LIMITER_TELL_LOST, 1, 0, 0, 0, 500, 0},
        {"reserved", LIMITER_SEMAPHORE, 0, 1, 0, 0, 0, 500, 1},
        {"capacity", LIMITER_TOKEN_BUCKET, 0, 0, 1, 1000, 0, 500, 0},
        {"capacity", LIMITER_TOKEN_BUCKET, 0, big + 1, 1000, 1, 0, 500, 0},
        {"capacity", LIMITER_TOKEN_BUCKET, 0, UINT64_MAX, 1, 1000, 0, 500, 0},
        {"refill", LIMITER_TOKEN_BUCKET, 0, 1, 0, 1000, 0, 500, 0},
        {"refill", LIMITER_TOKEN_BUCKET, 0, 1, big + 1, ten_years, 0, 500, 0},
        {"refill", LIMITER_TOKEN_BUCKET, 0, 1, UINT64_MAX, 1000, 0, 500, 0},
        {"period_us", LIMITER_TOKEN_BUCKET, 0, 1, 1, 0, 0, 500, 0},
        {"period_us", LIMITER_TOKEN_BUCKET, 0, 1, 1, ten_years + 1, 0, 500, 0},
        {"period_us", LIMITER_TOKEN_BUCKET, 0, 1, 1, two63, 0, 500, 0},
        {"1000", LIMITER_TOKEN_BUCKET, 0, 1, 1001, 1, 0, 500, 0},         /* over 1e9 a second */
        {"1000", LIMITER_TOKEN_BUCKET, 0, 1, 1000001, 1000, 0, 500, 0},   /* just over */
        {"at most", LIMITER_TOKEN_BUCKET, 0, 11, 1, ten_years, 0, 500, 0},
        {"flag", LIMITER_TOKEN_BUCKET, LIMITER_ALIGN_FIRST_USE, 1, 1, 1000, 0, 500, 0},
        {"flag", LIMITER_TOKEN_BUCKET, LIMITER_NO_RENEW, 1, 1, 1000, 0, 500, 0},
        {"lease_ms", LIMITER_TOKEN_BUCKET, 0, 1, 1, 1000, 1000, 500, 0},
        {"capacity", LIMITER_PACER, 0, big + 1, 1000, 1, 0, 500, 0},
        {"refill", LIMITER_PACER, 0, 0, 0, 1000, 0, 500, 0},
        {"period_us", LIMITER_PACER, 0, 0, 1, 0, 0, 500, 0},
        {"1000", LIMITER_PACER, 0, 0, 2000, 1, 0, 500, 0},
        {"burst_earn_permille", LIMITER_PACER, 0, 0, 1, 1000, 0, 1001, 0},
        {"burst_earn_permille", LIMITER_PACER, 0, 0, 1, 1000, 0, UINT32_MAX, 0},
        {"flag", LIMITER_PACER, LIMITER_START_EMPTY, 0, 1, 1000, 0, 500, 0},
        {"capacity", LIMITER_SLIDING_LOG, 0, 0, 0, 1000, 0, 500, 0},
        {"capacity", LIMITER_SLIDING_LOG, 0, two63, 0, 1000, 0, 500, 0},
        {"period_us", LIMITER_SLIDING_LOG, 0, 1, 0, 0, 0, 500, 0},
        {"period_us", LIMITER_SLIDING_LOG, 0, 1, 0, ten_years + 1, 0, 500, 0},
        {"refill", LIMITER_SLIDING_LOG, 0, 1, 1, 1000, 0, 500, 0},
        {"capacity", LIMITER_SLIDING_COUNTER, 0, 0, 0, 1000, 0, 500, 0},
        {"period_us", LIMITER_SLIDING_COUNTER, 0, 1, 0, UINT64_MAX, 0, 500, 0},
        {"capacity", LIMITER_FIXED_WINDOW, 0, 0, 0, 1000, 0, 500, 0},
        {"period_us", LIMITER_FIXED_WINDOW, 0, 1, 0, 0, 0, 500, 0},
        {"flag", LIMITER_FIXED_WINDOW, LIMITER_START_EMPTY, 1, 0, 1000, 0, 500, 0},
        {"refill", LIMITER_FIXED_WINDOW, 0, 1, 7, 1000, 0, 500, 0},
    };
    limiter_client_t *client = open_virtual();
    size_t i, position;
    for (i = 0; i < CHECK_COUNT(rows); i++) {
        limiter_limit limits[3], bad = LIMITER_INIT(limiter_limit);
        char about[64];
        bad.kind = rows[i].kind;
        bad.flags = rows[i].flags;
        bad.capacity = rows[i].capacity;
        bad.refill = rows[i].refill;
        bad.period_us = rows[i].period_us;
        bad.lease_ms = rows[i].lease_ms;
        bad.burst_earn_permille = rows[i].earn;
        bad.reserved = rows[i].reserved;
        snprintf(about, sizeof about, "row %zu, %s", i, rows[i].what);
        check_context(about);
        for (position = 0; position < 3; position++) {
            char where[32];
            limits[0] = limits[1] = limits[2] = limiter_semaphore(1);
            limits[position] = bad;
            snprintf(where, sizeof where, "limits[%zu]", position); /* which one ... */
            refused(client, "bad", limits, 3, LIMITER_CONFIG, where);
            refused(client, "bad", limits, 3, LIMITER_CONFIG, rows[i].what); /* ... and which field */
        }
    }
    CHECK_OK(limiter_client_free(client));
}

static void the_ends_of_the_ranges_are_taken(void) {
    limiter_client_t *client = open_virtual();
    limiter_limit rows[12];
    size_t i, n = 0;
    rows[n++] = limiter_semaphore(1);
    rows[n++] = limiter_semaphore(big);
    rows[n] = limiter_semaphore(1);
    rows[n++].lease_ms = 100;
    rows[n] = limiter_semaphore(1);
    rows[n++].lease_ms = 86400000;
    rows[n++] = limiter_token_bucket(10, 1, ten_years);
    rows[n++] = limiter_token_bucket(big, 1000, 1);
    rows[n++] = limiter_token_bucket(big, big, ten_years);
    rows[n++] = limiter_pacer(1000, 1, 0);
    rows[n] = limiter_pacer(1, ten_years, 0);
    rows[n++].burst_earn_permille = 0;
    rows[n] = limiter_pacer(1, ten_years, 10);
    rows[n++].burst_earn_permille = 1000;
    rows[n++] = limiter_fixed_window(big, 1);
    rows[n++] = limiter_sliding_counter(big, ten_years);
    CHECK_EQ(n, CHECK_COUNT(rows));
    for (i = 0; i < n; i++) {
        char about[32];
        limiter_t *limiter;
        snprintf(about, sizeof about, "row %zu", i);
        check_context(about);
        limiter = make1(client, rows[i]);
        CHECK_OK(peek(limiter, NULL, 1).status);
        limiter_free(limiter);
    }
    CHECK_OK(limiter_client_free(client));
}

static void kinds_that_read_nothing_need_nothing(void) {
    limiter_client_t *client = open_virtual();
    limiter_limit limit = LIMITER_INIT(limiter_limit);
    limiter_t *limiter;
    limit.kind = LIMITER_UNLIMITED;
    limiter = make1(client, limit);
    CHECK_OK(try_once(limiter, UINT64_MAX).status);
    limiter_free(limiter);
    limit.kind = LIMITER_NEVER_ADMIT;
    limiter = make1(client, limit);
    CHECK_STATUS(try_once(limiter, 1).status, LIMITER_NEVER);
    close_client(client, limiter);
}

static void counts_are_1_to_16(void) {
    limiter_client_t *client = open_virtual();
    limiter_limit limits[17];
    limiter_t *limiter;
    size_t i;
    for (i = 0; i < 17; i++) limits[i] = limiter_semaphore(5);
    refused(client, "n", limits, 0, LIMITER_INVALID, "16");
    refused(client, "n", limits, 17, LIMITER_INVALID, "16");
    refused(client, "n", limits, (size_t)1 << 63, LIMITER_INVALID, "16");
    refused(client, "n", limits, SIZE_MAX, LIMITER_INVALID, "16");
    refused(client, "n", NULL, 1, LIMITER_INVALID, "limits");
    limiter = make(client, "n", limits, 16);
    CHECK_OK(try_once(limiter, 5).status);
    CHECK_STATUS(try_once(limiter, 1).status, LIMITER_DENIED);
    close_client(client, limiter);
}

static void names_are_1_to_1024_bytes_of_utf8(void) {
    limiter_client_t *client = open_virtual();
    limiter_limit limit = limiter_semaphore(1);
    static const char *const good[] = {" ", "%s%n", "{a}:{b}", "a\tb\n", "\xe2\x82\xac", "../x", "'\"`$("};
    char name[1026];
    limiter_t *limiter;
    size_t i;
    memset(name, 'n', sizeof name);
    name[1025] = 0;
    refused(client, name, &limit, 1, LIMITER_CONFIG, "1024");
    name[1024] = 0;
    limiter_free(make(client, name, &limit, 1));
    refused(client, "", &limit, 1, LIMITER_CONFIG, "name");
    refused(client, NULL, &limit, 1, LIMITER_INVALID, "name");
    refused(client, "\xff", &limit, 1, LIMITER_INVALID, "name");
    refused(client, "a\xc0\x80", &limit, 1, LIMITER_INVALID, "name"); /* an overlong NUL */
    for (i = 0; i < CHECK_COUNT(good); i++) { /* and each is a name of its own */
        check_context(good[i]);
        limiter = make(client, good[i], &limit, 1);
        CHECK_OK(try_once(limiter, 1).status);
        limiter_free(limiter);
    }
    CHECK_OK(limiter_client_free(client));
}

static void null_handles_are_invalid(void) {
    char error[LIMITER_ERRBUF_SIZE] = "";
    limiter_client_t *client = open_virtual();
    limiter_limit limit = limiter_semaphore(1);
    limiter_t *limiter = (limiter_t *)error;
    CHECK_STATUS(limiter_new(NULL, "n", &limit, 1, &limiter, error, sizeof error), LIMITER_INVALID);
    CHECK(limiter == NULL && strstr(error, "client") != NULL);
    CHECK_STATUS(limiter_new(client, "n", &limit, 1, NULL, error, sizeof error), LIMITER_INVALID);
    CHECK(strstr(error, "limiter") != NULL);
    CHECK_OK(limiter_client_free(client));
}

/* An array whose elements are of another size than this header's. */
typedef struct longer_limit {
    limiter_limit known;
    uint64_t future;
} longer_limit;

static void struct_sizes_of_other_versions(void) {
    limiter_client_t *client = open_virtual();
    longer_limit longer[2];
    limiter_limit limit = limiter_semaphore(2);
    struct {
        size_t struct_size;
        uint32_t kind, flags;
        uint64_t capacity, refill, period_us;
    } shorter[2]; /* as if the header had ended before lease_ms */
    limiter_t *limiter;
    size_t size;
    memset(longer, 0, sizeof longer);
    longer[0].known = limiter_semaphore(3);
    longer[1].known = limiter_token_bucket(9, 1, LIMITER_HOUR);
    longer[0].known.struct_size = longer[1].known.struct_size = sizeof(longer_limit);
    limiter = make(client, "longer", &longer[0].known, 2);
    CHECK_EQ(drain(limiter, NULL), 3);
    limiter_free(limiter);
    longer[1].future = 1;
    refused(client, "other", &longer[0].known, 2, LIMITER_INVALID, "limits[1].struct_size is of a later");
    longer[1].future = 0, longer[0].future = (uint64_t)1 << 63;
    refused(client, "other", &longer[0].known, 2, LIMITER_INVALID, "limits[0].struct_size is of a later");
    longer[0].future = 0, longer[1].known.struct_size = sizeof(limiter_limit); /* mixed */
    refused(client, "other", &longer[0].known, 2, LIMITER_INVALID, "limits[1].struct_size is not the same");
    memset(&longer[1].known, 0, sizeof longer[1].known); /* as memset() sets one up */
    refused(client, "other", &longer[0].known, 2, LIMITER_INVALID,
            "limits[1].struct_size is 0: set it up with LIMITER_INIT");
    longer[1].known = limiter_token_bucket(9, 1, LIMITER_HOUR);
    longer[1].known.struct_size = sizeof(longer_limit);

    memset(shorter, 0, sizeof shorter);
    memcpy(&shorter[0], &limit, sizeof shorter[0]);
    memcpy(&shorter[1], &longer[0].known, sizeof shorter[1]);
    shorter[0].struct_size = shorter[1].struct_size = sizeof shorter[0];
    limiter = make(client, "shorter", (const limiter_limit *)(const void *)shorter, 2);
    CHECK_EQ(drain(limiter, NULL), 2);
    limiter_free(limiter);

    for (size = 0; size < 40; size++) { /* too short to say what is limited */
        limit.struct_size = size;
        refused(client, "other", &limit, 1, LIMITER_INVALID, "struct_size");
    }
    limit.struct_size = sizeof limit - 1;
    refused(client, "other", &limit, 1, LIMITER_INVALID, "struct_size");
    limit.struct_size = SIZE_MAX;
    refused(client, "other", &limit, 1, LIMITER_INVALID, "struct_size");
    limit.struct_size = (size_t)1 << 63;
    refused(client, "other", &limit, 1, LIMITER_INVALID, "struct_size");
    CHECK_OK(limiter_client_free(client));
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        CHECK_TEST(fields_out_of_range_are_named),
        CHECK_TEST(the_ends_of_the_ranges_are_taken),
        CHECK_TEST(kinds_that_read_nothing_need_nothing),
        CHECK_TEST(counts_are_1_to_16),
        CHECK_TEST(names_are_1_to_1024_bytes_of_utf8),
        CHECK_TEST(null_handles_are_invalid),
        CHECK_TEST(struct_sizes_of_other_versions),
    };
    return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
