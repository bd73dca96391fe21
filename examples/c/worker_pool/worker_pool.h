/*
 * What the parts of the worker pool demo share. Nothing here uses the library: the record, the check
 * and the picture must not depend on what they judge.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef WORKER_POOL_H
#define WORKER_POOL_H

#include <stddef.h>
#include <stdint.h>

#define NANOS_PER_SECOND INT64_C(1000000000)
#define MOST_TASKS 20000 /* recorded in one run, and checked together */
#define MOST_FILES 4096

/* The three limits of the demo. */
#define AT_ONCE 4
#define STARTS_PER_SECOND 200
#define STARTS_BURST 20
#define BYTES_PER_SECOND (64 * 1024 * 1024)
#define BYTES_BURST (8 * 1024 * 1024)

/* What a task is assumed to read before it is known. */
#define ESTIMATED_BYTES (64 * 1024)

/* files.c: what there is to do. */

struct files {
    char *path[MOST_FILES];
    size_t count;
    size_t left_out; /* too large or unreadable */
    int more;        /* there are more than MOST_FILES; what comes after them was not looked at */
};

/* Lists the regular files under `folder`. 0, or -1 after a message on stderr. */
int files_find(const char *folder, struct files *files);
void files_free(struct files *files);

/* CRC-32 of a file (as in zip and PNG) and the bytes that were read. 0, or -1 with errno set. */
int file_checksum(const char *path, uint32_t *crc, uint64_t *bytes);

/* record.c: what happened, by this program's own clock. */

/* One admitted task. Moments are CLOCK_MONOTONIC in nanoseconds, so processes can be compared. */
struct task {
    int64_t asked;   /* before acquire was called */
    int64_t start;   /* after it returned */
    int64_t end;     /* before the permit was settled */
    int64_t settled; /* after it was settled, before it was released */
    uint64_t bytes;  /* read, and settled at */
};

struct record {
    struct task *task;
    size_t count, room;
    uint64_t asked, denied, cancelled, errors;
};

int64_t now_ns(void);

int record_new(struct record *record, size_t room);
void record_free(struct record *record);

/* Both answer 0, or -1 after a message on stderr. Loading adds to what is there. */
int record_save(const struct record *record, const char *path);
int record_load(struct record *record, const char *path);

/* check.c: whether the limits held. */

struct findings {
    size_t most_at_once;
    size_t most_starts_in_a_second;
    uint64_t most_bytes_in_a_second;
    double starts_ahead;  /* most starts beyond what the rate alone allows, in any interval */
    int late_starts;      /* so many the system may have put aside before they started: see check.c */
    double bytes_ahead;   /* the same for bytes, charged and corrected */
    double bytes_unknown; /* what beyond the burst could not be known: see check.c */
    double waited_p50_ms, waited_p99_ms, waited_most_ms;
    double seconds; /* from the first start to the last end */
    uint64_t bytes;
    int at_once_held, starts_held, bytes_held;
};

/* Sorts the record by start, and judges it. 0, or -1 after a message on stderr. */
int check(struct record *record, struct findings *findings);

/* plot.c: the picture and the table, within 80 columns, on stdout. */

/* Whether the environment (LC_ALL, LC_CTYPE, LANG) asks for more than ASCII. */
int terminal_takes_utf8(void);

/* `record` must be sorted: call check() first. */
void plot_record(const struct record *record, int ascii);
void print_findings(const struct record *record, const struct findings *findings);

#endif
