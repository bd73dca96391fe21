/*
 * What the parts of the worker pool demo share. Nothing here uses the library: the record, the check
 * and the picture must not depend on what they judge.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef WORKER_POOL_H
#define WORKER_POOL_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

#define NANOS_PER_SECOND INT64_C(1000000000)
#define NANOS_PER_MS INT64_C(1000000)
#define MOST_TASKS 20000 /* recorded by one process, and checked together */
#define MOST_FILES 4096
#define MOST_THREADS 256
#define MOST_PROCESSES 8

/* The three limits of the demo. */
#define AT_ONCE 4
#define STARTS_PER_SECOND 200
#define STARTS_BURST 20
#define BYTES_PER_SECOND (64 * 1024 * 1024)
#define BYTES_BURST (8 * 1024 * 1024)

/* What a task is assumed to read before it is known. */
#define ESTIMATED_BYTES (64 * 1024)

enum { HELD = 0, EXCEEDED = 1, CANNOT_RUN = 2 }; /* exit codes */

/* options.c: what was asked for. */

struct options {
    const char *files, *url, *name, *record;
    long threads, tasks, seconds, hold_ms, lease_ms, processes, kill_ms;
    int check_only, ascii, first_record;
};

/* Reads the command line. 0; 1 if it asked for help, which was given; -1 after a message on stderr. */
int options_read(int argc, char **argv, struct options *options);

/* How long a task stays after its checksum, as a real one would that sends the file somewhere. */
long options_hold_ms(const struct options *options, size_t number, int64_t since_begin);

/* The longest time after which what a killed process held must be held by others: the lease, and what the
   library grants a server's clock on top of it. */
int64_t lease_and_allowance(int64_t lease_ms);

/* What it may take others, on a busy machine, to notice. */
#define TO_NOTICE_MS 1000

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

/* journal.c: what one process does, as it happens, by its own clock. */

/* One admitted task. Moments are CLOCK_MONOTONIC in nanoseconds, so processes can be compared. */
struct task {
    int64_t asked;   /* before acquire was called */
    int64_t start;   /* after it returned */
    int64_t end;     /* before the permit was settled */
    int64_t settled; /* after it was settled, before it was released; 0 before that */
    uint64_t bytes;  /* read, and settled at */
};

#define JOURNAL_MAGIC "wpool 1\n"

/* Memory that others see and that outlives the process: what was written stays if it is killed. */
struct journal {
    char magic[8];
    uint64_t room, count; /* of tasks */
    uint64_t asked, denied, cancelled, errors, done, bytes;
    int64_t lease_ms;
    int64_t seen;   /* the process was alive then */
    int64_t killed; /* when it was killed, if the one who did it tells */
    char first_error[256];
    struct task task[];
};

int64_t now_ns(void);
void sleep_ms(long ms);

/*
 * Makes an empty journal with room for so many tasks, in the file `path` or, for NULL, in memory that
 * processes forked from now on share. NULL after a message on stderr.
 */
struct journal *journal_new(const char *path, size_t room, int64_t lease_ms);
void journal_free(struct journal *journal);

/* One thread at a time; the answer is for journal_end(). */
struct task *journal_start(struct journal *journal, int64_t asked, int64_t start);
void journal_end(struct journal *journal, struct task *task, int64_t settled);

/* How many tasks were started and are not over. Any process. */
size_t journal_in_flight(const struct journal *journal);

/* record.c: what is judged: the journals of all processes that shared the limits. */

struct record {
    struct task *task; /* of a task that a kill cut off, end and settled are that moment */
    size_t count, room, processes;
    uint64_t asked, denied, cancelled, errors, unanswered;
    int64_t lease_ms;
    int64_t seen;   /* the last process that was alive was so until then */
    int64_t killed; /* the last process that was killed with tasks in flight was so then; 0: none was */
    size_t cut_off; /* how many tasks that cut off */
    char first_error[256];
};

/* All answer 0, or -1 after a message on stderr. */
int record_new(struct record *record, size_t room);
int record_add(struct record *record, const struct journal *journal);
int record_load(struct record *record, const char *path);
void record_free(struct record *record);

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
    int64_t back;     /* the moment after a kill when AT_ONCE tasks were in flight again; 0: never */
    int back_judged;  /* there was a kill, and somebody lived long enough after it */
    int back_held;    /* not judged, or in time */
};

/* Sorts the record by start, and judges it. 0, or -1 after a message on stderr. */
int check(struct record *record, struct findings *findings);

/* plot.c: the picture and the table, within 80 columns, on stdout. */

/* Whether the environment (LC_ALL, LC_CTYPE, LANG) asks for more than ASCII. */
int terminal_takes_utf8(void);

/* `record` must be sorted: call check() first. */
void plot_record(const struct record *record, const struct findings *findings, int ascii);
void print_findings(const struct record *record, const struct findings *findings);

/* One line on stderr that rewrites itself; nothing where stderr is a file or a CI log. */
void show_progress(struct journal *const *journal, size_t processes, double part);
void clear_progress(void);

/* report.c: picture, table and verdict on stdout; the answer is the exit code. */

int report_files(const struct options *options, int count, char **path);
int report_journals(const struct options *options, struct journal *const *journal, int interrupted);

/* fleet.c: several processes, one of which may be killed. */

/*
 * Runs `work` in so many processes at once, each with its number and journal; what it answers is that
 * process's exit code. 0; -1 if one could not be started or ended in another way than it was meant to,
 * after a message on stderr. `interrupted` is looked at all the time: once it is not 0, all are asked to
 * end. With kill_ms >= 0 one of them is killed that long after `begin`, while it has tasks in flight.
 */
int fleet_run(const struct options *options, struct journal *const *journal, int64_t begin,
              int (*work)(size_t number, void *argument), void *argument,
              const volatile sig_atomic_t *interrupted);

#endif
