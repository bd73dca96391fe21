/* Leaving: short processes that open, use and end in every state, in every way; exit code 0 each.
 * This program is its own short process: exit --leave STATE WAY. */
#include "steps.h"

#include <spawn.h>

extern char **environ;

/* Global, so that what a state leaves behind stays reachable for leak checkers. */
static limiter_client_t *client;
static limiter_t *limiter;
static limiter_queue_t *queue;
static volatile int inside;
static const char *way;

static void leave(void) {
    if (strcmp(way, "_exit") == 0) _exit(0);
    if (strcmp(way, "quick_exit") == 0) quick_exit(0);
    exit(0);
}

/* Whether the main thread has ended: its process then shows as a zombie that still runs. */
static int main_has_ended(void) {
    char text[128] = "", *state;
    FILE *file = fopen("/proc/self/stat", "r");
    CHECK(file != NULL);
    (void)!fread(text, 1, sizeof text - 1, file);
    fclose(file);
    state = strrchr(text, ')');
    return state && state[1] == ' ' && state[2] == 'Z';
}

static void *leave_later(void *unused) {
    CHECK_SOON(main_has_ended());
    leave();
    return unused;
}

static void *waiting_thread(void *unused) {
    __sync_add_and_fetch(&inside, 1);
    (void)!acquire(limiter, NULL, 1, -1).status;
    return unused;
}

static void *polling_thread(void *unused) {
    limiter_decision out;
    __sync_add_and_fetch(&inside, 1);
    (void)!limiter_queue_poll(queue, &out, 1, -1);
    return unused;
}

static void *busy_thread(void *unused) {
    while (1) {
        limiter_decision got = acquire(limiter, "busy", 1, -1);
        if (got.status != LIMITER_OK) return unused;
        __sync_add_and_fetch(&inside, 1);
        (void)limiter_release(limiter, got.permit);
    }
}

static void *closing_thread(void *unused) {
    __sync_add_and_fetch(&inside, 1);
    (void)limiter_client_shutdown(client, -1);
    return unused;
}

static void stuck_callback(void *user_data, const limiter_decision *decision) {
    (void)user_data;
    (void)decision;
    __sync_add_and_fetch(&inside, 1);
    while (1) check_nap_us(1000000);
}

static void leaving_callback(void *user_data, const limiter_decision *decision) {
    (void)user_data;
    (void)decision;
    leave();
}

static void in_atexit(void) {
    CHECK_OK(try_once(limiter, 0).status);
    CHECK_OK(acquire(limiter, "at exit", 1, 0).status);
}

static void threads(int n, void *(*run)(void *)) {
    int i;
    for (i = 0; i < n; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, run, NULL) == 0);
    }
}

static void submit_waits(int n) {
    limiter_request request = ask(NULL, 1, -1);
    limiter_decision out;
    while (n-- > 0) CHECK_STATUS(limiter_submit(queue, limiter, &request, &out), LIMITER_PENDING);
}

static void nothing(void) {}

static void opened(void) {
    client = open_real();
    limiter = make1(client, limiter_semaphore(2));
    CHECK_OK(limiter_queue_new(client, &queue));
}

static void holding(void) {
    opened();
    CHECK_OK(try_once(limiter, 2).status);
}

static void threads_in_acquire(void) {
    holding();
    threads(4, waiting_thread);
    CHECK_SOON(stats_of(client).waiting == 4);
}

static void threads_in_poll(void) {
    holding();
    submit_waits(2);
    threads(2, polling_thread);
    CHECK_SOON(inside == 2);
}

static void waits_in_the_queue(void) {
    holding();
    submit_waits(10);
}

static void completions_unpolled(void) {
    limiter_permit held;
    opened();
    held = try_once(limiter, 2).permit;
    submit_waits(3);
    CHECK_OK(limiter_release(limiter, held));
}

static void threads_busy(void) {
    opened();
    threads(3, busy_thread);
    CHECK_SOON(inside > 3);
}

static void callback_running(void) {
    opened();
    CHECK_STATUS(limiter_acquire_cb(limiter, NULL, stuck_callback, NULL, NULL), LIMITER_PENDING);
    CHECK_SOON(inside == 1);
}

static void callbacks_pending(void) {
    int i;
    callback_running();
    for (i = 0; i < 5; i++) {
        CHECK_STATUS(limiter_acquire_cb(limiter, NULL, stuck_callback, NULL, NULL), LIMITER_PENDING);
    }
}

static void from_a_callback(void) {
    opened();
    CHECK_STATUS(limiter_acquire_cb(limiter, NULL, leaving_callback, NULL, NULL), LIMITER_PENDING);
    while (1) check_nap_us(1000000);
}

static void bookings_due(void) {
    limiter_limit limit = limiter_token_bucket(1, 1, MS(1));
    limiter_request request = ask(NULL, 1, -1);
    limiter_decision out;
    int i;
    client = open_real();
    limiter = make(client, "rate", &limit, 1);
    CHECK_OK(limiter_queue_new(client, &queue));
    for (i = 0; i < 20; i++) CHECK(limiter_submit(queue, limiter, &request, &out) >= LIMITER_OK);
}

static void shut_down(void) {
    threads_in_acquire();
    CHECK_OK(limiter_client_shutdown(client, 10000));
}

static void shutting_down(void) {
    callback_running();
    threads(2, closing_thread);
    CHECK_SOON(inside == 3);
}

static void freed(void) {
    holding();
    limiter_queue_free(queue);
    close_client(client, limiter);
    client = NULL, limiter = NULL, queue = NULL;
}

static void used_at_exit(void) {
    opened();
    CHECK(atexit(in_atexit) == 0);
}

static void in_a_forked_child(void) {
    pid_t pid;
    threads_in_acquire();
    pid = fork();
    if (pid == 0) {
        CHECK_OK(try_once(limiter, 2).status);
        threads(2, waiting_thread);
        CHECK_SOON(stats_of(client).waiting == 2);
        _exit(0);
    }
    CHECK_EQ(check_reap(pid), 0);
}

static const struct {
    const char *name;
    void (*enter)(void);
} states[] = {
#define STATE(name) {#name, name}
    STATE(nothing),          STATE(opened),           STATE(holding),           STATE(threads_in_acquire),
    STATE(threads_in_poll),  STATE(waits_in_the_queue), STATE(completions_unpolled), STATE(threads_busy),
    STATE(callback_running), STATE(callbacks_pending), STATE(from_a_callback),  STATE(bookings_due),
    STATE(shut_down),        STATE(shutting_down),    STATE(freed),             STATE(used_at_exit),
    STATE(in_a_forked_child),
#undef STATE
};

static const char *const ways[] = {"return", "exit", "_exit", "quick_exit", "pthread_exit"};

/* The short process. */
static int short_process(const char *state) {
    size_t i;
    for (i = 0; i < CHECK_COUNT(states); i++) {
        if (strcmp(states[i].name, state) == 0) states[i].enter();
    }
    if (strcmp(way, "return") == 0) return 0;
    if (strcmp(way, "pthread_exit") == 0) { /* main ends, another thread ends the process */
        threads(1, leave_later);
        pthread_exit(NULL);
    }
    leave();
    return 1;
}

static const char *self_path;

static pid_t start_short_process(size_t state, size_t with) {
    char *arguments[5], leave_word[] = "--leave";
    pid_t pid = 0;
    arguments[0] = (char *)(uintptr_t)self_path;
    arguments[1] = leave_word;
    arguments[2] = (char *)(uintptr_t)states[state].name;
    arguments[3] = (char *)(uintptr_t)ways[with];
    arguments[4] = NULL;
    /* LeakSanitizer cannot look into a main thread that has ended, and calls what only that one
     * refers to a leak: the C library's list of its destructors. */
    if (getenv("ASAN_OPTIONS")) {
        int ended = strcmp(ways[with], "pthread_exit") == 0;
        setenv("ASAN_OPTIONS", ended ? "detect_leaks=0" : "detect_leaks=1", 1);
    }
    CHECK(posix_spawn(&pid, self_path, NULL, NULL, arguments, environ) == 0);
    return pid;
}

static void B_140_1000_short_processes_end_with_0(void) {
    enum { AT_ONCE = 4 };
    struct {
        pid_t pid;
        size_t state, with;
    } running[AT_ONCE];
    int n = 0, started = 0, total = check_times(1020), i;
    while (started < total || n > 0) {
        int status = 0;
        pid_t pid;
        if (started < total && n < AT_ONCE) {
            running[n].state = (size_t)started % CHECK_COUNT(states);
            running[n].with = (size_t)started / CHECK_COUNT(states) % CHECK_COUNT(ways);
            running[n].pid = start_short_process(running[n].state, running[n].with);
            n++, started++;
            continue;
        }
        pid = waitpid(-1, &status, 0);
        for (i = 0; i < n && running[i].pid != pid; i++) {}
        CHECK(i < n);
        if (status != 0) {
            char about[128];
            snprintf(about, sizeof about, "%s then %s: wait status %#x", states[running[i].state].name,
                     ways[running[i].with], (unsigned)status);
            check_fail(__FILE__, __LINE__, about);
        }
        running[i] = running[--n];
    }
}

int main(int argc, char **argv) {
    static const check_test tests[] = {CHECK_TEST(B_140_1000_short_processes_end_with_0)};
    self_path = argv[0];
    if (argc == 4 && strcmp(argv[1], "--leave") == 0) {
        way = argv[3];
        alarm(60); /* one that hangs is a failure too */
        return short_process(argv[2]);
    }
    return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
