/*
 * What a process does, task by task, in memory that outlives it: whoever kills it changes nothing in what
 * it has written. So nothing is kept back, and each task is written when it starts and when it is over.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */

#include "worker_pool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail with this clock and a valid pointer */
    return (int64_t)now.tv_sec * NANOS_PER_SECOND + now.tv_nsec;
}

void sleep_ms(long ms) {
    struct timespec left;
    left.tv_sec = ms / 1000;
    left.tv_nsec = ms % 1000 * 1000000;
    while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}

static size_t size_of(size_t room) {
    return sizeof(struct journal) + room * sizeof(struct task);
}

/* An empty file of that size; -1 with errno set. */
static int make_file(const char *path, size_t size) {
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file >= 0 && ftruncate(file, (off_t)size) != 0) {
        close(file);
        file = -1;
    }
    return file;
}

struct journal *journal_new(const char *path, size_t room, int64_t lease_ms) {
    struct journal *journal = MAP_FAILED;
    const size_t size = size_of(room);
    int file = path != NULL ? make_file(path, size) : -1;

    if (path == NULL || file >= 0) {
        journal = mmap(NULL, size, PROT_READ | PROT_WRITE,
                       path == NULL ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED, file, 0);
    }
    if (journal == MAP_FAILED) {
        fprintf(stderr, "worker_pool: cannot make the record%s%s: %s\n", path != NULL ? " " : "",
                path != NULL ? path : "", strerror(errno));
        if (file >= 0) close(file);
        return NULL;
    }
    if (file >= 0) close(file); /* the mapping stays */
    memcpy(journal->magic, JOURNAL_MAGIC, sizeof journal->magic);
    journal->room = room;
    journal->lease_ms = lease_ms;
    journal->seen = now_ns();
    return journal;
}

void journal_free(struct journal *journal) {
    if (journal != NULL) munmap(journal, size_of(journal->room));
}

/* The count and `settled` are what others go by, so they are written after what they stand for. */

struct task *journal_start(struct journal *journal, int64_t asked, int64_t start) {
    struct task *task = &journal->task[journal->count];
    task->asked = asked;
    task->start = start;
    __atomic_store_n(&journal->count, journal->count + 1, __ATOMIC_RELEASE);
    return task;
}

void journal_end(struct journal *journal, struct task *task, int64_t settled) {
    __atomic_store_n(&task->settled, settled, __ATOMIC_RELEASE);
    journal->done++;
}

size_t journal_in_flight(const struct journal *journal) {
    const uint64_t count = __atomic_load_n(&journal->count, __ATOMIC_ACQUIRE);
    size_t i, in_flight = 0;
    for (i = 0; i < count; i++) {
        in_flight += __atomic_load_n(&journal->task[i].settled, __ATOMIC_ACQUIRE) == 0;
    }
    return in_flight;
}
