/* The recorded answers of the systems this library replaces (tests/conformance/vectors.json), through
 * the C API. One unit there is 1000 here, so that fractional weights are whole. */
#include "fixture.h"
#include "json.h"

#define SCALE 1000

static const json *current;

static uint64_t scaled(double value) {
    return (uint64_t)(value * SCALE + 0.5);
}

static uint64_t us_of(const json *step) {
    return (uint64_t)(json_get(step, "t_s") ? json_number(step, "t_s", 0) * 1e6 + 0.5
                                            : json_number(step, "t_ms", 0) * 1e3 + 0.5);
}

/* Lets time pass until this step's, and puts the step into words for a failure. */
static void to_step(limiter_client_t *client, uint64_t start, const json *step, int number) {
    char about[200];
    snprintf(about, sizeof about, "%s, step %d", json_get(current, "name")->text, number);
    check_context(about);
    advance(client, start + us_of(step) - limiter_clock_now_us(client));
}

static limiter_limit pacer_of(const json *vector, double rate) {
    limiter_limit limit = limiter_pacer(scaled(rate), LIMITER_SECOND, scaled(json_number(vector, "burst", 0)));
    limit.burst_earn_permille = (uint32_t)(json_number(vector, "burst_earn_factor", 0.5) * 1000 + 0.5);
    return limit;
}

static void pacer(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, pacer_of(current, json_number(current, "rate_per_s", 0)));
    uint64_t start = limiter_clock_now_us(client);
    double tolerance_us = json_number(current, "tolerance_ms", 0) * 1e3;
    const json *step;
    int n = 0;
    for (step = json_get(current, "steps")->child; step; step = step->next) {
        double want_us = json_number(step, "delay_ms", -1) * 1e3, got_us;
        int try_only = json_is(json_get(step, "op"), "try");
        limiter_request request = ask(NULL, scaled(json_number(step, "weight", 1)), try_only ? 0 : -1);
        limiter_decision got = LIMITER_INIT(limiter_decision);
        to_step(client, start, step, n++);
        if (json_get(step, "rate_per_s")) {
            limiter_free(limiter);
            limiter = make1(client, pacer_of(current, json_number(step, "rate_per_s", 0)));
        }
        if (try_only) (void)!limiter_acquire(limiter, &request, &got);
        else CHECK_OK(limiter_pace(limiter, &request, &got));
        got_us = (double)got.retry_after_us;
        if (got_us < want_us - tolerance_us || got_us > want_us + tolerance_us) {
            char text[96];
            snprintf(text, sizeof text, "delay is %.3f ms, not %.3f", got_us / 1e3, want_us / 1e3);
            check_fail(__FILE__, __LINE__, text);
        }
    }
    CHECK(n > 0);
    close_client(client, limiter);
}

static void allowed_or_not(limiter_limit limit) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limit);
    uint64_t start = limiter_clock_now_us(client);
    const json *step;
    int n = 0;
    for (step = json_get(current, "steps")->child; step; step = step->next) {
        to_step(client, start, step, n++);
        CHECK_EQ(try_once(limiter, scaled(json_number(step, "weight", 1))).status == LIMITER_OK,
                 json_get(step, "allowed")->type == JSON_TRUE);
    }
    CHECK(n > 0);
    close_client(client, limiter);
}

static void token_bucket(void) {
    allowed_or_not(limiter_token_bucket(scaled(json_number(current, "capacity", 0)),
                                        scaled(json_number(current, "rate_per_s", 0)), LIMITER_SECOND));
}

static void sliding_log(void) {
    allowed_or_not(limiter_sliding_log(scaled(json_number(current, "limit", 0)),
                                       (uint64_t)(json_number(current, "window_s", 0) * 1e6)));
}

static void empty_start(void) {
    limiter_client_t *client = open_virtual();
    limiter_limit limit = limiter_token_bucket(scaled(json_number(current, "capacity", 0)),
                                               scaled(json_number(current, "refill", 0)),
                                               (uint64_t)(json_number(current, "period_s", 0) * 1e6));
    uint64_t start = limiter_clock_now_us(client);
    limiter_t *limiter;
    const json *step;
    int n = 0;
    limit.flags = LIMITER_INTERVAL | LIMITER_START_EMPTY;
    limiter = make1(client, limit);
    for (step = json_get(current, "steps")->child; step; step = step->next) {
        limiter_request request = ask(NULL, SCALE, -1);
        limiter_decision got;
        to_step(client, start, step, n++);
        CHECK_OK(limiter_pace(limiter, &request, &got));
        CHECK_EQ(us_of(step) + got.retry_after_us, json_number(step, "wake_ms", -1) * 1e3);
    }
    CHECK(n > 0);
    close_client(client, limiter);
}

int main(void) {
    static const check_test groups[] = {
        {"pacer", pacer},
        {"token_bucket", token_bucket},
        {"sliding_log", sliding_log},
        {"token_bucket_empty_start", empty_start},
    };
    json *root = json_read("tests/conformance/vectors.json");
    const json *group;
    int passed = 0, failed = 0;
    for (group = root->child; group; group = group->next) {
        size_t i = 0;
        while (i < CHECK_COUNT(groups) && strcmp(groups[i].name, group->name) != 0) i++;
        if (i == CHECK_COUNT(groups)) check_fail(__FILE__, __LINE__, group->name);
        for (current = group->child; current; current = current->next) {
            check_test test;
            int ok;
            test.name = json_get(current, "name")->text;
            test.run = groups[i].run;
            ok = check_one(&test);
            passed += ok;
            failed += !ok;
            if (!ok) printf("  FAILED %s: %s\n", groups[i].name, test.name);
        }
    }
    printf("vectors: %d passed, %d failed\n", passed, failed);
    json_free(root);
    return failed > 0 || passed < 20;
}
