/*
 * Testing code that is limited per hour, without waiting an hour.
 *
 * A memory client opened with clock = virtual stands still. The test moves the clock, and what falls
 * due on the way happens at its own time.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include <limiter.h>

#include <stdio.h>
#include <string.h>

/* The code under test: at most three reminders per hour for each user. 1 if one was sent. */
static int remind(limiter_t *reminders, const char *user) {
    limiter_request request = LIMITER_INIT(limiter_request);
    limiter_decision answer;

    request.key = user;
    request.key_len = strlen(user);
    if (limiter_acquire(reminders, &request, &answer) != LIMITER_OK) return 0;
    /* ... send it ... */
    return 1;
}

/* The test. */

static int failures;

#define EXPECT(what)                                                                               \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "virtual_clock: line %d: not so: %s\n", __LINE__, #what);              \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

static void test_three_per_hour(limiter_client_t *client, limiter_t *reminders) {
    EXPECT(remind(reminders, "ann"));
    EXPECT(remind(reminders, "ann"));
    EXPECT(remind(reminders, "ann"));
    EXPECT(!remind(reminders, "ann"));
    EXPECT(remind(reminders, "bob")); /* each key has a share of its own */

    EXPECT(limiter_clock_advance_us(client, LIMITER_HOUR - 1) == LIMITER_OK);
    EXPECT(!remind(reminders, "ann"));
    EXPECT(limiter_clock_advance_us(client, 1) == LIMITER_OK);
    EXPECT(remind(reminders, "ann"));
}

/* A wait ends in the very microsecond in which it may. */
static void test_wait(limiter_client_t *client, limiter_t *reminders) {
    limiter_request request = LIMITER_INIT(limiter_request);
    limiter_queue_t *queue = NULL;
    limiter_decision answer;

    request.key = "cid";
    request.key_len = 3;
    request.weight = 3;
    request.wait_ms = -1;
    EXPECT(limiter_queue_new(client, &queue) == LIMITER_OK);
    EXPECT(limiter_submit(queue, reminders, &request, &answer) == LIMITER_OK);
    EXPECT(limiter_submit(queue, reminders, &request, &answer) == LIMITER_PENDING);

    EXPECT(limiter_clock_advance_us(client, LIMITER_HOUR - 1) == LIMITER_OK);
    EXPECT(limiter_queue_poll(queue, &answer, 1, 0) == 0);
    EXPECT(limiter_clock_advance_us(client, 1) == LIMITER_OK);
    EXPECT(limiter_queue_poll(queue, &answer, 1, 0) == 1);
    EXPECT(answer.status == LIMITER_OK);
    EXPECT(answer.waited_us == LIMITER_HOUR);
    limiter_queue_free(queue);
}

int main(void) {
    char why[LIMITER_ERRBUF_SIZE] = "";
    limiter_limit three_per_hour = limiter_sliding_log(3, LIMITER_HOUR);
    limiter_config_t *config = limiter_config_new();
    limiter_client_t *client = NULL;
    limiter_t *reminders = NULL;

    if (limiter_config_set(config, "clock", "virtual", why, sizeof why) != LIMITER_OK
        || limiter_client_open("memory://", config, &client, why, sizeof why) != LIMITER_OK
        || limiter_new(client, "reminders", &three_per_hour, 1, &reminders, why, sizeof why)
               != LIMITER_OK) {
        fprintf(stderr, "virtual_clock: %s\n", why);
        failures++;
    } else {
        test_three_per_hour(client, reminders);
        test_wait(client, reminders);
    }
    limiter_free(reminders);
    limiter_client_free(client);
    limiter_config_free(config);
    if (failures == 0) printf("two hours of limits tested, no second slept\n");
    return failures == 0 ? 0 : 1;
}
