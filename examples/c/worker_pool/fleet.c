/*
 * Several processes that do the same work, each on its own; one of them may be killed in the middle, as a
 * crash or the system's memory killer would do it.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _XOPEN_SOURCE 700

#include "worker_pool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct fleet {
    struct journal *const *journal;
    size_t count;
    pid_t pid[MOST_PROCESSES]; /* 0: has ended */
    size_t killed;             /* which one; MOST_PROCESSES: none so far */
    int failed;
};

static int start(struct fleet *fleet, size_t number, int (*work)(size_t, void *), void *argument) {
    const pid_t parent = getpid();
    const pid_t pid = fork();

    if (pid < 0) {
        fprintf(stderr, "worker_pool: cannot start process %zu: %s\n", number + 1, strerror(errno));
        return -1;
    }
    if (pid == 0) {
        /* A terminal's Ctrl-C goes to all of them: the parent alone hears it, and passes it on. */
        signal(SIGINT, SIG_IGN);
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) _exit(CANNOT_RUN);
        _exit(work(number, argument));
    }
    fleet->pid[number] = pid;
    return 0;
}

static void ended(struct fleet *fleet, size_t number, int status) {
    fleet->pid[number] = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    if (WIFSIGNALED(status) && number == fleet->killed) return;
    if (WIFSIGNALED(status)) {
        fprintf(stderr, "worker_pool: process %zu was ended by signal %d\n", number + 1, WTERMSIG(status));
    }
    fleet->failed = 1; /* else it has said why itself */
}

/* How many are running, after those that have ended were noted. */
static size_t running(struct fleet *fleet) {
    size_t i, count = 0;
    for (i = 0; i < fleet->count; i++) {
        int status;
        if (fleet->pid[i] == 0) continue;
        if (waitpid(fleet->pid[i], &status, WNOHANG) == fleet->pid[i]) {
            ended(fleet, i, status);
        } else {
            count++;
        }
    }
    return count;
}

static void tell_all(const struct fleet *fleet, int signal_number) {
    size_t i;
    for (i = 0; i < fleet->count; i++) {
        if (fleet->pid[i] != 0) kill(fleet->pid[i], signal_number);
    }
}

/*
 * Kills a process that has so many tasks in flight. To be sure of that it is stopped first: then nothing
 * changes between the look and the kill. 1 if that was done.
 */
static int kill_one_with(struct fleet *fleet, size_t tasks) {
    size_t i;
    for (i = 0; i < fleet->count; i++) {
        int status;
        if (fleet->pid[i] == 0 || journal_in_flight(fleet->journal[i]) < tasks) continue;
        if (kill(fleet->pid[i], SIGSTOP) != 0 || waitpid(fleet->pid[i], &status, WUNTRACED) < 0) continue;
        if (!WIFSTOPPED(status)) {
            ended(fleet, i, status);
        } else if (journal_in_flight(fleet->journal[i]) < tasks) {
            kill(fleet->pid[i], SIGCONT);
        } else {
            fleet->killed = i;
            fleet->journal[i]->killed = now_ns();
            kill(fleet->pid[i], SIGKILL);
            return 1;
        }
    }
    return 0;
}

/* Waits for all to end, and does what is due meanwhile. */
static void watch(struct fleet *fleet, const struct options *options, int64_t begin,
                  const volatile sig_atomic_t *interrupted) {
    const int64_t length = options->seconds * NANOS_PER_SECOND;
    int told = 0;

    while (running(fleet) > 0) {
        const int64_t passed = now_ns() - begin;
        const int64_t late = passed - options->kill_ms * NANOS_PER_MS;
        const int kill_due = options->kill_ms >= 0 && late >= 0 && fleet->killed == MOST_PROCESSES;

        if ((*interrupted || fleet->failed) && !told) {
            tell_all(fleet, SIGTERM);
            told = 1;
        }
        /* Two permits that are missed show better than one; but one will do. */
        if (kill_due && !told) kill_one_with(fleet, late < NANOS_PER_SECOND / 2 ? 2 : 1);
        show_progress(fleet->journal, fleet->count, (double)passed / (double)length);
        sleep_ms(kill_due ? 2 : 20);
    }
    clear_progress();
}

int fleet_run(const struct options *options, struct journal *const *journal, int64_t begin,
              int (*work)(size_t number, void *argument), void *argument,
              const volatile sig_atomic_t *interrupted) {
    struct fleet fleet;
    size_t i;

    memset(&fleet, 0, sizeof fleet);
    fleet.journal = journal;
    fleet.count = (size_t)options->processes;
    fleet.killed = MOST_PROCESSES;
    for (i = 0; i < fleet.count && !fleet.failed; i++) {
        fleet.failed = start(&fleet, i, work, argument) != 0;
    }
    watch(&fleet, options, begin, interrupted);
    return fleet.failed ? -1 : 0;
}
