/*
 * Whether the limits held, judged from the record alone.
 *
 * What is fair. The library admits a task at some moment g; the record knows the moment s >= g when the
 * task's thread was running again. In between the thread may have been put aside by the system, so the
 * record can show starts closer together than they were admitted. A tolerance in milliseconds would
 * forgive anything on a busy machine. It is not needed: a task that was admitted but does not run yet
 * holds its place among the AT_ONCE. So of the starts recorded in an interval all but AT_ONCE were also
 * admitted in it, and
 *
 *     starts recorded in any interval of length t  <=  burst + rate * t + AT_ONCE
 *
 * holds for every honest limiter on every machine, and whoever lets through five more than the limit
 * allows, once, is found out. The number of tasks at once needs no allowance at all: a permit is held
 * from before `start` until after `settled`.
 *
 * Bytes are charged twice: the estimate when a task is admitted, and the difference to the true size
 * when it is settled; they were read at some time between start and settling. What a task in work will
 * turn out to need nobody can know. So at both ends of an interval there may be AT_ONCE tasks whose
 * bytes the limiter rightly counted outside it:
 *
 *     bytes in any interval of length t  <=  burst + rate * t + AT_ONCE estimates
 *                                            + the 2 * AT_ONCE largest corrections
 *
 * A kill. The tasks it cuts off are in flight until that moment. What they held comes back when the lease
 * and what Redis adds to it are over, at the latest; that it did shows when AT_ONCE tasks are in flight
 * again, as long as there is more to do than that.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "worker_pool.h"

#include <stdio.h>
#include <stdlib.h>

#define UNSURE (2 * AT_ONCE)

/*
 * Units charged at a moment known to lie between two. It counts in an interval [a, b] if since >= a
 * and when <= b. What is charged counts if it certainly fell in the interval (since = earliest,
 * when = latest); what is given back counts if it possibly did (the other way round).
 */
struct charge {
    int64_t when, since;
    double units;
};

static int by_start(const void *left, const void *right) {
    const struct task *a = left, *b = right;
    return (a->start > b->start) - (a->start < b->start);
}

static int by_moment(const void *left, const void *right) {
    const int64_t *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

static int by_when(const void *left, const void *right) {
    const struct charge *a = left, *b = right;
    return (a->when > b->when) - (a->when < b->when);
}

/*
 * The most that was charged in any interval, less what `rate` allows in it: every pair of moments is
 * looked at. `charge` is sorted by `when`.
 */
static double most_ahead(const struct charge *charge, size_t count, double rate) {
    double most = 0;
    size_t i, k;

    for (i = 0; i < count; i++) {
        const int64_t begin = charge[i].since;
        double sum = 0;
        if (charge[i].units <= 0) continue;
        for (k = 0; k < count; k++) {
            double ahead;
            if (charge[k].since < begin) continue;
            sum += charge[k].units;
            ahead = sum - rate * (double)(charge[k].when - begin) / (double)NANOS_PER_SECOND;
            if (ahead > most) most = ahead;
        }
    }
    return most;
}

static void check_starts(const struct record *record, struct charge *charge, struct findings *found) {
    size_t i, first = 0;

    for (i = 0; i < record->count; i++) {
        int64_t start = record->task[i].start;
        charge[i].when = charge[i].since = start;
        charge[i].units = 1;
        while (record->task[first].start <= start - NANOS_PER_SECOND) first++;
        if (i - first + 1 > found->most_starts_in_a_second) {
            found->most_starts_in_a_second = i - first + 1;
        }
    }
    found->starts_ahead = most_ahead(charge, record->count, STARTS_PER_SECOND);
    found->late_starts = AT_ONCE;
    found->starts_held = found->starts_ahead <= STARTS_BURST + found->late_starts + 0.001;
}

static void add_to_largest(double *largest, double value) {
    size_t i;
    for (i = 0; i < UNSURE; i++) {
        if (value > largest[i]) {
            const double smaller = largest[i];
            largest[i] = value;
            value = smaller;
        }
    }
}

static void check_bytes(const struct record *record, struct charge *charge, struct findings *found) {
    double largest[UNSURE] = {0}; /* corrections, falling */
    size_t i, count = 0;

    for (i = 0; i < record->count; i++) {
        const struct task *task = &record->task[i];
        const double difference = (double)task->bytes - ESTIMATED_BYTES;
        struct charge *estimate = &charge[count++], *correction = &charge[count++];

        estimate->when = estimate->since = task->start;
        estimate->units = ESTIMATED_BYTES;
        correction->since = difference > 0 ? task->start : task->settled;
        correction->when = difference > 0 ? task->settled : task->end;
        correction->units = difference;
        add_to_largest(largest, difference);
    }
    qsort(charge, count, sizeof *charge, by_when);
    found->bytes_ahead = most_ahead(charge, count, BYTES_PER_SECOND);
    found->bytes_unknown = (double)AT_ONCE * ESTIMATED_BYTES;
    for (i = 0; i < UNSURE; i++) found->bytes_unknown += largest[i];
    found->bytes_held = found->bytes_ahead <= BYTES_BURST + found->bytes_unknown;
}

static void check_at_once(const struct record *record, int64_t *moment, struct findings *found) {
    const size_t count = record->count;
    size_t i, ended = 0;

    for (i = 0; i < count; i++) moment[i] = record->task[i].settled;
    qsort(moment, count, sizeof *moment, by_moment);
    for (i = 0; i < count; i++) {
        while (moment[ended] <= record->task[i].start) ended++;
        if (i + 1 - ended > found->most_at_once) found->most_at_once = i + 1 - ended;
    }
    found->seconds = (double)(moment[count - 1] - record->task[0].start) / (double)NANOS_PER_SECOND;
    found->at_once_held = found->most_at_once <= AT_ONCE;
}

/* `moment` holds the ends, sorted. */
static void check_back(const struct record *record, const int64_t *moment, struct findings *found) {
    const int64_t longest = (lease_and_allowance(record->lease_ms) + TO_NOTICE_MS) * NANOS_PER_MS;
    size_t i, ended = 0;

    found->back_held = 1;
    if (record->killed == 0) return;
    for (i = 0; i < record->count && found->back == 0; i++) {
        const int64_t start = record->task[i].start;
        while (moment[ended] <= start) ended++;
        if (start > record->killed && i + 1 - ended >= AT_ONCE) found->back = start;
    }
    found->back_judged = found->back != 0 || record->seen - record->killed > longest;
    if (found->back_judged) found->back_held = found->back != 0 && found->back - record->killed <= longest;
}

static void measure_waits(const struct record *record, int64_t *wait, struct findings *found) {
    const size_t count = record->count;
    size_t i;

    for (i = 0; i < count; i++) wait[i] = record->task[i].start - record->task[i].asked;
    qsort(wait, count, sizeof *wait, by_moment);
    found->waited_p50_ms = (double)wait[(count - 1) / 2] / 1e6;
    found->waited_p99_ms = (double)wait[(count - 1) * 99 / 100] / 1e6;
    found->waited_most_ms = (double)wait[count - 1] / 1e6;
}

static void measure_bytes(const struct record *record, struct charge *charge, struct findings *found) {
    uint64_t sum = 0;
    size_t i, first = 0;

    for (i = 0; i < record->count; i++) {
        charge[i].when = record->task[i].settled;
        charge[i].units = (double)record->task[i].bytes;
        found->bytes += record->task[i].bytes;
    }
    qsort(charge, record->count, sizeof *charge, by_when);
    for (i = 0; i < record->count; i++) {
        sum += (uint64_t)charge[i].units;
        while (charge[first].when <= charge[i].when - NANOS_PER_SECOND) {
            sum -= (uint64_t)charge[first++].units;
        }
        if (sum > found->most_bytes_in_a_second) found->most_bytes_in_a_second = sum;
    }
}

int check(struct record *record, struct findings *found) {
    static const struct findings nothing;
    struct charge *charge;
    int64_t *moment;

    *found = nothing;
    found->at_once_held = found->starts_held = found->bytes_held = found->back_held = 1;
    if (record->count == 0) return 0;
    charge = calloc(2 * record->count, sizeof *charge);
    moment = calloc(record->count, sizeof *moment);
    if (charge == NULL || moment == NULL) {
        fprintf(stderr, "worker_pool: out of memory\n");
        free(charge);
        free(moment);
        return -1;
    }
    qsort(record->task, record->count, sizeof *record->task, by_start);
    check_at_once(record, moment, found);
    check_back(record, moment, found);
    measure_waits(record, moment, found);
    check_starts(record, charge, found);
    check_bytes(record, charge, found);
    measure_bytes(record, charge, found);
    free(charge);
    free(moment);
    return 0;
}
