/*
 * What happened, task by task, and how it is kept in a file so that the records of several processes
 * can be checked as one.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _XOPEN_SOURCE 700

#include "worker_pool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail with this clock and a valid pointer */
    return (int64_t)now.tv_sec * NANOS_PER_SECOND + now.tv_nsec;
}

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

int record_save(const struct record *record, const char *path) {
    size_t i;
    int failed;
    FILE *file = fopen(path, "w");

    if (file == NULL) {
        fprintf(stderr, "worker_pool: cannot write %s: %s\n", path, strerror(errno));
        return -1;
    }
    fprintf(file, "# asked denied cancelled errors; then for each task: asked start end settled"
                  " (ns, CLOCK_MONOTONIC) bytes\n");
    fprintf(file, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", record->asked,
            record->denied, record->cancelled, record->errors);
    for (i = 0; i < record->count; i++) {
        const struct task *task = &record->task[i];
        fprintf(file, "%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRIu64 "\n", task->asked,
                task->start, task->end, task->settled, task->bytes);
    }
    failed = ferror(file);
    if (fclose(file) != 0 || failed) {
        fprintf(stderr, "worker_pool: cannot write %s: the disk refused\n", path);
        return -1;
    }
    return 0;
}

static int load_counts(struct record *record, FILE *file) {
    uint64_t asked, denied, cancelled, errors;
    char line[256];

    if (fgets(line, sizeof line, file) == NULL || line[0] != '#') return -1;
    if (fscanf(file, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &asked, &denied, &cancelled,
               &errors) != 4) {
        return -1;
    }
    record->asked += asked;
    record->denied += denied;
    record->cancelled += cancelled;
    record->errors += errors;
    return 0;
}

static int load_tasks(struct record *record, FILE *file) {
    for (;;) {
        struct task task;
        int fields = fscanf(file, "%" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNu64,
                            &task.asked, &task.start, &task.end, &task.settled, &task.bytes);
        if (fields == EOF) return 0;
        if (fields != 5 || record->count == record->room) return -1;
        if (task.asked > task.start || task.start > task.end || task.end > task.settled) return -1;
        record->task[record->count++] = task;
    }
}

int record_load(struct record *record, const char *path) {
    int result;
    FILE *file = fopen(path, "r");

    if (file == NULL) {
        fprintf(stderr, "worker_pool: cannot read %s: %s\n", path, strerror(errno));
        return -1;
    }
    result = load_counts(record, file);
    if (result == 0) result = load_tasks(record, file);
    fclose(file);
    if (result != 0) {
        fprintf(stderr, "worker_pool: %s is no record of this program, or it holds more than %d"
                        " tasks with the others\n", path, MOST_TASKS);
    }
    return result;
}
