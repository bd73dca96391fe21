/*
 * The journals of all processes that shared the limits, as one record to be judged.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "worker_pool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int record_new(struct record *record, size_t room) {
    memset(record, 0, sizeof *record);
    record->task = calloc(room, sizeof *record->task);
    if (record->task == NULL) {
        fprintf(stderr, "worker_pool: out of memory\n");
        return -1;
    }
    record->room = room;
    return 0;
}

void record_free(struct record *record) {
    free(record->task);
    record->task = NULL;
    record->count = record->room = 0;
}

/*
 * When a process ended that left tasks in flight: as whoever killed it says, or else when it was last seen
 * alive.
 */
static int64_t end_of(const struct journal *journal) {
    int64_t end = journal->killed != 0 ? journal->killed : journal->seen;
    size_t i;
    for (i = 0; i < journal->count; i++) {
        const struct task *task = &journal->task[i];
        if (task->start > end) end = task->start;
        if (task->settled > end) end = task->settled;
    }
    return end;
}

static void add_counts(struct record *record, const struct journal *journal) {
    if (record->errors == 0) {
        memcpy(record->first_error, journal->first_error, sizeof record->first_error);
        record->first_error[sizeof record->first_error - 1] = '\0';
    }
    record->processes++;
    record->asked += journal->asked;
    record->denied += journal->denied;
    record->cancelled += journal->cancelled;
    record->errors += journal->errors;
    if (journal->lease_ms > record->lease_ms) record->lease_ms = journal->lease_ms;
    if (journal->seen > record->seen) record->seen = journal->seen;
}

/* A task that was cut off held its permit until then, and is charged what it asked for: it never settled. */
static void add_task(struct record *record, const struct task *task, int64_t end) {
    struct task *added = &record->task[record->count++];
    *added = *task;
    if (task->settled != 0) return;
    added->end = added->settled = end;
    added->bytes = ESTIMATED_BYTES;
    record->cut_off++;
}

int record_add(struct record *record, const struct journal *journal) {
    const int64_t end = end_of(journal);
    const size_t cut_off = record->cut_off;
    size_t i;

    if (journal->count > record->room - record->count) {
        fprintf(stderr, "worker_pool: more than %zu tasks in all\n", record->room);
        return -1;
    }
    add_counts(record, journal);
    for (i = 0; i < journal->count; i++) add_task(record, &journal->task[i], end);
    if (record->cut_off > cut_off) {
        if (end > record->killed) record->killed = end;
        record->unanswered += journal->asked - journal->count - journal->denied - journal->cancelled;
    }
    return 0;
}

static int is_sound(const struct journal *journal, size_t size) {
    size_t i;

    if (size < sizeof *journal || memcmp(journal->magic, JOURNAL_MAGIC, sizeof journal->magic) != 0
        || journal->count > (size - sizeof *journal) / sizeof *journal->task) {
        return 0;
    }
    for (i = 0; i < journal->count; i++) {
        const struct task *task = &journal->task[i];
        if (task->asked > task->start) return 0;
        if (task->settled != 0 && (task->start > task->end || task->end > task->settled)) return 0;
    }
    return 1;
}

int record_load(struct record *record, const char *path) {
    const size_t most = sizeof(struct journal) + MOST_TASKS * sizeof(struct task);
    struct journal *journal = malloc(most);
    FILE *file = fopen(path, "rb");
    int result = -1;

    if (journal == NULL) {
        fprintf(stderr, "worker_pool: out of memory\n");
    } else if (file == NULL) {
        fprintf(stderr, "worker_pool: cannot read %s: %s\n", path, strerror(errno));
    } else if (!is_sound(journal, fread(journal, 1, most, file))) {
        fprintf(stderr, "worker_pool: %s is no record of this program\n", path);
    } else {
        result = record_add(record, journal);
    }
    if (file != NULL) fclose(file);
    free(journal);
    return result;
}
