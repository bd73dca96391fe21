/*
 * The test framework: each test runs in a process of its own, so that a crash, a hang or a failed
 * check ends that test only, and so that each begins with a library nobody has used.
 *
 *     static void opens(void) { CHECK(...); }
 *     int main(int argc, char **argv) {
 *         static const check_test tests[] = {CHECK_TEST(opens)};
 *         return check_main(argc, argv, tests, CHECK_COUNT(tests));
 *     }
 *
 * With arguments only the tests of those names run; with --here in this very process (debuggers).
 * Everything here is C99 and C++11. Written to be included first.
 */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "limiter.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK_COUNT(array) (sizeof(array) / sizeof((array)[0]))

typedef struct check_test {
    const char *name;
    void (*run)(void);
} check_test;

#define CHECK_TEST(function) {#function, function}

/* What is being checked now, printed with a failure: the row of a table, say. */
static char check_about[256];

static inline void check_context(const char *about) {
    snprintf(check_about, sizeof check_about, "%s", about);
}

/* Ends the test from whatever thread or forked process it is called in. */
__attribute__((noreturn)) static inline void check_fail(const char *file, int line, const char *what) {
    fprintf(stderr, "%s:%d: %s%s%s\n", file, line, check_about, check_about[0] ? ": " : "", what);
    fflush(NULL);
    _exit(1);
}

static inline void check_equal(const char *file, int line, const char *what, int64_t got, int64_t want) {
    if (got != want) {
        char text[512];
        snprintf(text, sizeof text, "%s is %" PRId64 ", not %" PRId64, what, got, want);
        check_fail(file, line, text);
    }
}

static inline void check_status(const char *file, int line, const char *what, int64_t got, int64_t want) {
    if (got != want) {
        char text[512];
        snprintf(text, sizeof text, "%s is %s (%" PRId64 "), not %s", what,
                 limiter_status_name((limiter_status)got), got,
                 limiter_status_name((limiter_status)want));
        check_fail(file, line, text);
    }
}

#define CHECK(condition) \
    do { \
        if (!(condition)) check_fail(__FILE__, __LINE__, #condition); \
    } while (0)
#define CHECK_EQ(got, want) check_equal(__FILE__, __LINE__, #got, (int64_t)(got), (int64_t)(want))
#define CHECK_STATUS(got, want) check_status(__FILE__, __LINE__, #got, (got), (want))
#define CHECK_OK(got) CHECK_STATUS(got, LIMITER_OK)

/* Microseconds of CLOCK_MONOTONIC. */
static inline int64_t check_now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static inline void check_nap_us(long us) {
    struct timespec nap;
    nap.tv_sec = us / 1000000;
    nap.tv_nsec = us % 1000000 * 1000;
    nanosleep(&nap, NULL);
}

/* Until `condition` holds; the test fails if it does not within 20 seconds. */
#define CHECK_SOON(condition) \
    do { \
        int64_t check_until = check_now_us() + 20000000; \
        while (!(condition)) { \
            if (check_now_us() > check_until) check_fail(__FILE__, __LINE__, "never: " #condition); \
            check_nap_us(200); \
        } \
    } while (0)

/* `times`, or fewer where every step is dear: CHECK_SCALE=20 (valgrind) makes it a twentieth. */
static inline int check_times(int times) {
    const char *text = getenv("CHECK_SCALE");
    int scale = text ? atoi(text) : 1;
    return scale > 1 ? (times / scale > 0 ? times / scale : 1) : times;
}

/* Waits for a forked process and answers its exit code, or 1000 + the signal that killed it. */
static inline int check_reap(pid_t pid) {
    int status = 0;
    while (waitpid(pid, &status, 0) < 0) CHECK(errno == EINTR);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* Runs one test in a process group of its own; answers 1 if it passed. */
static inline int check_one(const check_test *test) {
    sigset_t child, before;
    struct timespec limit;
    pid_t pid;
    int status = 0;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, &before);
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        sigprocmask(SIG_SETMASK, &before, NULL);
        test->run();
        exit(0); /* not _exit: leak checkers report here */
    }
    limit.tv_sec = getenv("CHECK_SCALE") ? 240 : 120;
    limit.tv_nsec = 0;
    while (sigtimedwait(&child, NULL, &limit) < 0) {
        if (errno == EINTR) continue;
        kill(-pid, SIGABRT);
        fprintf(stderr, "%s: ended after %ld s\n", test->name, (long)limit.tv_sec);
        break;
    }
    waitpid(pid, &status, 0);
    kill(-pid, SIGKILL); /* what it left behind */
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (WIFSIGNALED(status)) fprintf(stderr, "%s: signal %d\n", test->name, WTERMSIG(status));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static inline int check_main(int argc, char **argv, const check_test *tests, size_t count) {
    const char *program = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    int here = argc > 1 && strcmp(argv[1], "--here") == 0;
    int failed = 0, passed = 0, arg;
    size_t i;
    for (i = 0; i < count; i++) {
        int64_t began = check_now_us();
        int wanted = argc - here <= 1, ok;
        for (arg = 1 + here; arg < argc; arg++) wanted |= strcmp(argv[arg], tests[i].name) == 0;
        if (!wanted) continue;
        if (here) tests[i].run();
        ok = here || check_one(&tests[i]);
        passed += ok;
        failed += !ok;
        printf("  %s %s (%" PRId64 " ms)\n", ok ? "ok    " : "FAILED", tests[i].name,
               (check_now_us() - began) / 1000);
        fflush(stdout);
    }
    printf("%s: %d passed, %d failed\n", program, passed, failed);
    return failed > 0 || passed == 0;
}

#endif
