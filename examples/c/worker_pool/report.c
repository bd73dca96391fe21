/*
 * What is told at the end, and the exit code.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "worker_pool.h"

#include <inttypes.h>
#include <stdio.h>

static int report(struct record *record, const struct options *options, int interrupted) {
    struct findings found;
    int held;

    if (check(record, &found) != 0) return CANNOT_RUN;
    held = found.at_once_held && found.starts_held && found.bytes_held;
    plot_record(record, &found, options->ascii);
    print_findings(record, &found);
    if (interrupted > 0) printf("INTERRUPTED: the record ends where it was.\n");
    if (record->errors > 0) {
        printf("FAILED: %" PRIu64 " errors; the first: %s\n", record->errors, record->first_error);
    } else if (record->count == 0 && interrupted == 0) {
        printf("FAILED: nothing was admitted, so nothing was shown\n");
    } else if (held && record->count > 0) {
        printf("HELD: no limit was exceeded at any moment of the record.\n");
    }
    if (!held) printf("EXCEEDED: the record shows more than the limits allow.\n");
    if (!found.back_held) printf("LATE: what a killed process held was not in use again in time.\n");
    if (!held || !found.back_held || record->errors > 0) return EXCEEDED;
    if (interrupted > 0) return 128 + interrupted;
    return record->count > 0 ? HELD : EXCEEDED;
}

int report_files(const struct options *options, int count, char **path) {
    struct record record;
    int i, result = 0;

    if (record_new(&record, MOST_TASKS) != 0) return CANNOT_RUN;
    for (i = 0; i < count && result == 0; i++) result = record_load(&record, path[i]);
    if (result == 0) {
        printf("%d record%s, checked as one\n\n", count, count == 1 ? "" : "s");
        result = report(&record, options, 0);
    } else {
        result = CANNOT_RUN;
    }
    record_free(&record);
    return result;
}

int report_journals(const struct options *options, struct journal *const *journal, int interrupted) {
    struct record record;
    int result = 0;
    long i;

    if (record_new(&record, MOST_TASKS) != 0) return CANNOT_RUN;
    for (i = 0; i < options->processes && result == 0; i++) result = record_add(&record, journal[i]);
    result = result == 0 ? report(&record, options, interrupted) : CANNOT_RUN;
    record_free(&record);
    return result;
}
