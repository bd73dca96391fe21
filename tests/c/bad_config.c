/* Settings and URLs that must be refused, with a message, and without a trace. */
#include "fixture.h"

static const char *const numeric[] = {"lease_ms", "max_waiting", "max_penalty_ms", "command_timeout_ms",
                                      "processes"};

/* Strings that some parser or other takes for a number. */
static const char *const not_numbers[] = {
    "",        "NaN",    "nan",  "inf",    "-inf",     "Infinity", "-1",      "+100",
    "1e3",     "1.0",    "0x7d0", " 1000", "1000 ",    "1000ms",   "1_000",   "1,000",
    "\xd9\xa1\xd9\xa0\xd9\xa0\xd9\xa0", /* Arabic digits */
    "0",       "9223372036854775807", "9223372036854775808", "18446744073709551615",
    "18446744073709551616", "99999999999999999999999999999999999999", "-9223372036854775808",
    "1000\n",  "null",   "true", "%d",     "1000;2000"};

/* Refused with `status`, a message that names `about`, cut to fit. */
static void refused(limiter_config_t *config, const char *key, const char *value,
                    limiter_status status, const char *about) {
    char error[LIMITER_ERRBUF_SIZE], small[9];
    memset(error, '#', sizeof error);
    CHECK_STATUS(limiter_config_set(config, key, value, error, sizeof error), status);
    CHECK(memchr(error, 0, sizeof error) != NULL);
    CHECK(strlen(error) > 4 && strlen(error) < LIMITER_ERRBUF_SIZE - 1);
    if (about) CHECK(strstr(error, about) != NULL);
    memset(small, '#', sizeof small);
    CHECK_STATUS(limiter_config_set(config, key, value, small, 8), status);
    CHECK(strlen(small) <= 7 && small[8] == '#' && strncmp(small, error, strlen(small)) == 0);
    small[0] = '#';
    CHECK_STATUS(limiter_config_set(config, key, value, small, 0), status);
    CHECK(small[0] == '#');
    CHECK_STATUS(limiter_config_set(config, key, value, NULL, 0), status);
    CHECK_STATUS(limiter_config_set(config, key, value, NULL, 100), status);
}

static void numbers_are_plain_decimals_in_range(void) {
    limiter_config_t *config = limiter_config_new();
    size_t k, v;
    for (k = 0; k < CHECK_COUNT(numeric); k++) {
        for (v = 0; v < CHECK_COUNT(not_numbers); v++) {
            check_context(not_numbers[v]);
            refused(config, numeric[k], not_numbers[v], LIMITER_CONFIG, numeric[k]);
        }
    }
    limiter_config_free(config);
}

static void ranges_are_in_the_message_and_their_ends_are_taken(void) {
    static const struct {
        const char *key, *least, *most, *below, *above;
    } rows[] = {
        {"lease_ms", "100", "86400000", "99", "86400001"},
        {"max_waiting", "1", "10000000", "0", "10000001"},
        {"max_penalty_ms", "1", "86400000", "0", "86400001"},
        {"command_timeout_ms", "1", "60000", "0", "60001"},
        {"deny_cache_ms", "0", "1000", "1001", "1001"},
        {"take_ahead_ms", "0", "1000", "1001", "1001"},
        {"processes", "1", "1000000", "0", "1000001"},
    };
    limiter_config_t *config = limiter_config_new();
    size_t i;
    for (i = 0; i < CHECK_COUNT(rows); i++) {
        check_context(rows[i].key);
        CHECK_OK(limiter_config_set(config, rows[i].key, rows[i].least, NULL, 0));
        CHECK_OK(limiter_config_set(config, rows[i].key, rows[i].most, NULL, 0));
        refused(config, rows[i].key, rows[i].below, LIMITER_CONFIG, rows[i].least);
        refused(config, rows[i].key, rows[i].above, LIMITER_CONFIG, rows[i].most);
    }
    limiter_config_free(config);
}

static void keys_and_choices_are_exact(void) {
    static const struct {
        const char *key, *value, *about;
    } rows[] = {
        {"", "1", "unknown"},
        {"lease", "1000", "\"lease\""},
        {"LEASE_MS", "1000", "LEASE_MS"},
        {"lease_ms ", "1000", "lease_ms "},
        {"no.such", "1", "no.such"},
        {"%s%n", "1", "%s%n"},
        {"clock", "", "monotonic"},
        {"clock", "wall", "virtual"},
        {"clock", "Virtual", "virtual"},
        {"on_failure", "ignore", "error"},
        {"on_failure", "OPEN", "closed"},
        {"tls_insecure", "1", "yes"},
        {"tls_insecure", "true", "no"},
        {"username", "", "username"},
        {"password", "", "password"},
        {"sentinel_password", "", "sentinel_password"},
        {"tls_ca_file", "", "tls_ca_file"},
    };
    limiter_config_t *config = limiter_config_new();
    size_t i;
    for (i = 0; i < CHECK_COUNT(rows); i++) {
        check_context(rows[i].key);
        refused(config, rows[i].key, rows[i].value, LIMITER_CONFIG, rows[i].about);
    }
    limiter_config_free(config);
}

static void long_texts_are_refused_and_not_echoed_whole(void) {
    limiter_config_t *config = limiter_config_new();
    char *text = (char *)malloc(65537);
    CHECK(text != NULL);
    memset(text, 'x', 65536);
    text[65536] = 0;
    refused(config, text, "1", LIMITER_CONFIG, "unknown");
    refused(config, "clock", text, LIMITER_CONFIG, "clock");
    refused(config, "lease_ms", text, LIMITER_CONFIG, "lease_ms");
    refused(config, "prefix", text, LIMITER_CONFIG, "256");
    refused(config, "username", text, LIMITER_CONFIG, "1024");
    text[256] = 0;
    CHECK_OK(limiter_config_set(config, "prefix", text, NULL, 0));
    text[256] = 'x', text[257] = 0;
    refused(config, "prefix", text, LIMITER_CONFIG, "256");
    CHECK_OK(limiter_config_set(config, "prefix", "", NULL, 0));
    free(text);
    limiter_config_free(config);
}

static void a_password_is_never_in_a_message(void) {
    limiter_config_t *config = limiter_config_new();
    char error[LIMITER_ERRBUF_SIZE] = "", *text = (char *)malloc(4097);
    size_t i;
    for (i = 0; i < 4096; i++) text[i] = "hunter2!"[i % 8];
    text[4096] = 0;
    CHECK_STATUS(limiter_config_set(config, "password", text, error, sizeof error), LIMITER_CONFIG);
    CHECK(strstr(error, "password") != NULL && strstr(error, "hunter2") == NULL);
    free(text);
    limiter_config_free(config);
}

static void null_and_bytes_that_are_no_text_are_invalid(void) {
    limiter_config_t *config = limiter_config_new();
    refused(NULL, "clock", "virtual", LIMITER_INVALID, "config");
    refused(config, NULL, "virtual", LIMITER_INVALID, "key");
    refused(config, "clock", NULL, LIMITER_INVALID, "value");
    refused(config, "clo\xff\xfe", "virtual", LIMITER_INVALID, "key");
    refused(config, "clock", "\xc3", LIMITER_INVALID, "value");
    refused(config, "prefix", "\xed\xa0\x80", LIMITER_INVALID, "value"); /* a lone surrogate */
    limiter_config_free(config);
}

static void a_refused_setting_stays_as_it_was(void) {
    limiter_config_t *config = limiter_config_new();
    limiter_client_t *client = NULL;
    CHECK_OK(limiter_config_set(config, "clock", "virtual", NULL, 0));
    refused(config, "clock", "wall", LIMITER_CONFIG, "clock");
    refused(config, "max_waiting", "0", LIMITER_CONFIG, "max_waiting");
    CHECK_OK(limiter_client_open(NULL, config, &client, NULL, 0));
    CHECK_OK(limiter_clock_advance_us(client, 1)); /* still virtual */
    CHECK_OK(limiter_client_free(client));
    limiter_config_free(config);
}

static void a_multibyte_message_is_cut_between_characters(void) {
    limiter_config_t *config = limiter_config_new();
    char error[64];
    size_t cap, i;
    for (cap = 1; cap < sizeof error; cap++) {
        CHECK_STATUS(limiter_config_set(config, "\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac", "1", error, cap),
                     LIMITER_CONFIG);
        i = strlen(error);
        CHECK(i < cap);
        /* the euro sign is three bytes: the text ends after whole ones */
        while (i > 0 && ((unsigned char)error[i - 1] & 0xc0) == 0x80) i--;
        if (i > 0 && (unsigned char)error[i - 1] == 0xe2) CHECK(strlen(error) == i + 2);
    }
    limiter_config_free(config);
}

static void urls_that_cannot_be_used_are_refused(void) {
    static const char *const urls[] = {"",          "memory",         "memory:/",    "Memory://x:y",
                                       "http://h",  "file:///etc",    "://",         "redis",
                                       "mem ory://", "%s%s%n",        "memory//",    "tcp://127.0.0.1:1"};
    size_t i;
    for (i = 0; i < CHECK_COUNT(urls); i++) {
        char error[LIMITER_ERRBUF_SIZE] = "";
        limiter_client_t *client = (limiter_client_t *)&i;
        check_context(urls[i]);
        CHECK_STATUS(limiter_client_open(urls[i], NULL, &client, error, sizeof error), LIMITER_CONFIG);
        CHECK(client == NULL && strlen(error) > 4);
        client = (limiter_client_t *)&i;
        CHECK_STATUS(limiter_client_open(urls[i], NULL, &client, NULL, 0), LIMITER_CONFIG);
        CHECK(client == NULL);
    }
}

static void open_refuses_null_and_bad_text(void) {
    char error[LIMITER_ERRBUF_SIZE] = "";
    limiter_client_t *client = (limiter_client_t *)error;
    CHECK_STATUS(limiter_client_open(NULL, NULL, NULL, error, sizeof error), LIMITER_INVALID);
    CHECK(strstr(error, "client") != NULL);
    CHECK_STATUS(limiter_client_open("\xff://", NULL, &client, error, sizeof error), LIMITER_INVALID);
    CHECK(client == NULL && strstr(error, "url") != NULL);
}

/* A limiter's own setting is checked like a client's, and a refused one changes nothing. */
static void a_limiters_settings_are_checked(void) {
    static const char *const policies[] = {"error", "open", "closed", "local"};
    static const struct {
        const char *key, *value, *about;
        limiter_status status;
    } rows[] = {
        {"on_failure", "", "error or open or closed or local", LIMITER_CONFIG},
        {"on_failure", "OPEN", "on_failure", LIMITER_CONFIG},
        {"on_failure", "NaN", "on_failure", LIMITER_CONFIG},
        {"on_failure", NULL, "value", LIMITER_INVALID},
        {"on_failure", "\xff", "value", LIMITER_INVALID},
        {"lease_ms", "1000", "lease_ms", LIMITER_CONFIG},
        {"", "open", "\"\"", LIMITER_CONFIG},
        {NULL, "open", "key", LIMITER_INVALID},
        {"\xff", "open", "key", LIMITER_INVALID},
    };
    limiter_client_t *client = open_real();
    limiter_t *limiter = make1(client, limiter_semaphore(1));
    char error[LIMITER_ERRBUF_SIZE];
    size_t i;
    for (i = 0; i < CHECK_COUNT(policies); i++) {
        CHECK_OK(limiter_set(limiter, "on_failure", policies[i], error, sizeof error));
    }
    for (i = 0; i < CHECK_COUNT(rows); i++) {
        CHECK_STATUS(limiter_set(limiter, rows[i].key, rows[i].value, error, sizeof error),
                     rows[i].status);
        CHECK(strstr(error, rows[i].about) != NULL);
        CHECK_STATUS(limiter_set(limiter, rows[i].key, rows[i].value, NULL, 0), rows[i].status);
    }
    CHECK_STATUS(limiter_set(NULL, "on_failure", "open", error, sizeof error), LIMITER_INVALID);
    CHECK(strstr(error, "limiter") != NULL);
    close_client(client, limiter);
}

static void hooks_for_null_settings_are_ignored(void) {
    limiter_config_set_log(NULL, 4, NULL, NULL);
    limiter_config_set_lost(NULL, NULL, NULL);
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        CHECK_TEST(numbers_are_plain_decimals_in_range),
        CHECK_TEST(ranges_are_in_the_message_and_their_ends_are_taken),
        CHECK_TEST(keys_and_choices_are_exact),
        CHECK_TEST(long_texts_are_refused_and_not_echoed_whole),
        CHECK_TEST(a_password_is_never_in_a_message),
        CHECK_TEST(null_and_bytes_that_are_no_text_are_invalid),
        CHECK_TEST(a_refused_setting_stays_as_it_was),
        CHECK_TEST(a_multibyte_message_is_cut_between_characters),
        CHECK_TEST(urls_that_cannot_be_used_are_refused),
        CHECK_TEST(open_refuses_null_and_bad_text),
        CHECK_TEST(a_limiters_settings_are_checked),
        CHECK_TEST(hooks_for_null_settings_are_ignored),
    };
    return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
