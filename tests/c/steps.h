/* Tables of steps on a virtual clock: what a public bug report did, and what must happen instead.
 * One key, one limiter; each step lets time pass, does one thing and states the whole expectation. */
#ifndef STEPS_H
#define STEPS_H

#include "fixture.h"

/* Constants of limits, for static tables. */
#define SEM(capacity) {sizeof(limiter_limit), LIMITER_SEMAPHORE, 0, capacity, 0, 0, 0, 500, 0, 0}
#define TB(capacity, refill, period) \
    {sizeof(limiter_limit), LIMITER_TOKEN_BUCKET, 0, capacity, refill, period, 0, 500, 0, 0}
#define PACER(refill, period, burst) \
    {sizeof(limiter_limit), LIMITER_PACER, 0, burst, refill, period, 0, 500, 0, 0}
#define LOG(capacity, window) \
    {sizeof(limiter_limit), LIMITER_SLIDING_LOG, 0, capacity, 0, window, 0, 500, 0, 0}
#define COUNTER(capacity, window) \
    {sizeof(limiter_limit), LIMITER_SLIDING_COUNTER, 0, capacity, 0, window, 0, 500, 0, 0}
#define WINDOW(capacity, window) \
    {sizeof(limiter_limit), LIMITER_FIXED_WINDOW, 0, capacity, 0, window, 0, 500, 0, 0}
#define KIND(kind) {sizeof(limiter_limit), kind, 0, 0, 0, 0, 0, 500, 0, 0}
#define NOTHING {sizeof(limiter_limit), 0, 0, 0, 0, 0, 0, 500, 0, 0}

#define US(n) UINT64_C(n)
#define MS(n) (UINT64_C(n) * 1000)
#define S(n) (UINT64_C(n) * 1000000)
#define MIN(n) (UINT64_C(n) * 60000000)
#define H(n) (UINT64_C(n) * 3600000000)
#define YEARS(n) (UINT64_C(n) * 31557600000000)

enum { END, TRY, PEEK, PACE, RESET, PENALIZE, DRAIN, SETTLE, REOPEN };

#define ANY INT64_MIN

typedef struct step {
    uint64_t after_us; /* let pass first */
    int verb;
    uint64_t weight;      /* PENALIZE: microseconds; SETTLE: actual weight of the last admission */
    limiter_status expect; /* DRAIN: ignored */
    int64_t retry_us;      /* retry_after_us, or ANY */
    int64_t remaining;     /* or ANY; DRAIN: how many were admitted */
} step;

#define MOST_STEPS 16

typedef struct scenario {
    const char *name; /* begins with the ids of the reports */
    limiter_limit limits[2], reopened[2];
    step steps[MOST_STEPS];
} scenario;

static inline size_t limits_of(const limiter_limit *limits) {
    return limits[1].kind ? 2 : 1;
}

static inline void run_step(limiter_client_t *client, limiter_t **limiter, const scenario *s,
                            const step *one, limiter_permit *last) {
    limiter_request request = ask(NULL, one->weight, one->verb == PACE ? -1 : 0);
    limiter_decision got = LIMITER_INIT(limiter_decision);
    if (one->after_us) advance(client, one->after_us);
    switch (one->verb) {
    case TRY: (void)!limiter_acquire(*limiter, &request, &got); break;
    case PEEK: (void)!limiter_peek(*limiter, &request, &got); break;
    case PACE: (void)!limiter_pace(*limiter, &request, &got); break;
    case RESET: CHECK_STATUS(limiter_reset(*limiter, NULL, 0), one->expect); return;
    case PENALIZE: CHECK_STATUS(limiter_penalize(*limiter, NULL, 0, one->weight), one->expect); return;
    case DRAIN: CHECK_EQ(drain(*limiter, NULL), one->remaining); return;
    case SETTLE: CHECK_STATUS(limiter_settle(*limiter, *last, one->weight), one->expect); return;
    case REOPEN: {
        limiter_t *next = make(client, "test", s->reopened, limits_of(s->reopened));
        limiter_free(*limiter);
        *limiter = next;
        return;
    }
    default: check_fail(__FILE__, __LINE__, "no such verb");
    }
    CHECK_STATUS(got.status, one->expect);
    if (one->retry_us != ANY) CHECK_EQ(got.retry_after_us, one->retry_us);
    if (one->remaining != ANY) CHECK_EQ(got.remaining, one->remaining);
    CHECK(got.remaining <= got.limit || got.status == LIMITER_INVALID);                   /* I8 */
    CHECK(got.status != LIMITER_DENIED || got.retry_after_us > 0);                        /* I6 */
    CHECK((got.permit != 0) == (got.status == LIMITER_OK && one->verb != PEEK && one->weight > 0));
    if (got.permit) *last = got.permit;
}

static inline void run_scenario(const scenario *s) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make(client, "test", s->limits, limits_of(s->limits));
    limiter_permit last = 0;
    int i;
    for (i = 0; i < MOST_STEPS && s->steps[i].verb != END; i++) {
        char about[200];
        snprintf(about, sizeof about, "%s, step %d", s->name, i);
        check_context(about);
        run_step(client, &limiter, s, &s->steps[i], &last);
    }
    CHECK(i > 0);
    close_client(client, limiter);
}

#endif
