/* Forks: handles work in children and grandchildren, whose use, exit and frees leave the parent's
 * permits, waits, queue and threads as they were. B-136. */
#include "steps.h"

#include <poll.h>

#if defined(__SANITIZE_ADDRESS__)
#define ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASAN 1
#endif
#endif
#ifndef ASAN
#define ASAN 0
#endif

/* Everything a parent can have when it forks. */
static struct {
    limiter_client_t *client;
    limiter_t *limiter; /* a semaphore of 4 */
    limiter_t *full;    /* a semaphore of 1, held */
    limiter_queue_t *queue;
    int fd;
    limiter_permit held;
    limiter_op waiting; /* for `full`, on `queue` */
    volatile int callbacks;
} parent;

static void count_callback(void *user_data, const limiter_decision *decision) {
    CHECK_OK(decision->status);
    CHECK_OK(limiter_release(parent.limiter, decision->permit));
    __sync_add_and_fetch((volatile int *)user_data, 1);
}

static void open_parent(limiter_client_t *client) {
    limiter_limit four = limiter_semaphore(4), one = limiter_semaphore(1);
    limiter_request request = ask(NULL, 1, -1);
    limiter_decision out;
    parent.client = client;
    parent.limiter = make(client, "four", &four, 1);
    parent.full = make(client, "one", &one, 1);
    CHECK_OK(limiter_queue_new(client, &parent.queue));
    parent.fd = limiter_queue_fd(parent.queue);
    parent.held = try_once(parent.full, 1).permit;
    CHECK(parent.held != 0);
    request.user_data = 4711;
    CHECK_STATUS(limiter_submit(parent.queue, parent.full, &request, &out), LIMITER_PENDING);
    parent.waiting = out.op;
    /* The callback thread runs in the parent, too. */
    CHECK_STATUS(limiter_acquire_cb(parent.limiter, NULL, count_callback, (void *)(uintptr_t)&parent.callbacks,
                                    NULL), LIMITER_PENDING);
    CHECK_SOON(parent.callbacks == 1);
}

/* The parent's wait completes once, its permit is its own, its capacity whole. */
static void check_parent_and_close(void) {
    limiter_decision out[2];
    CHECK_EQ(limiter_queue_fd(parent.queue), parent.fd);
    CHECK_EQ(limiter_queue_poll(parent.queue, out, 2, 0), 0);
    CHECK_STATUS(try_once(parent.full, 1).status, LIMITER_DENIED);
    CHECK_OK(limiter_release(parent.full, parent.held));
    CHECK_EQ(limiter_queue_poll(parent.queue, out, 2, 10000), 1);
    CHECK_OK(out[0].status);
    CHECK(out[0].op == parent.waiting && out[0].user_data == 4711);
    CHECK_OK(limiter_release(parent.full, out[0].permit));
    CHECK_EQ(stats_of(parent.client).in_flight, 0);
    CHECK_EQ(stats_of(parent.client).waiting, 0);
    CHECK_EQ(stats_of(parent.client).fork_generation, 0);
    CHECK_OK(try_once(parent.limiter, 4).status);
    limiter_queue_free(parent.queue);
    limiter_free(parent.full);
    close_client(parent.client, parent.limiter);
}

/* What belongs to the process above answers FORKED. */
static void child_respects_the_parents(void) {
    CHECK_STATUS(limiter_release(parent.full, parent.held), LIMITER_FORKED);
    CHECK_STATUS(limiter_renew(parent.full, parent.held, 0), LIMITER_FORKED);
    CHECK_STATUS(limiter_settle(parent.full, parent.held, 1), LIMITER_FORKED);
    CHECK_STATUS(limiter_cancel(parent.client, parent.waiting, 0), LIMITER_FORKED);
    CHECK_STATUS(limiter_cancel(parent.client, parent.waiting, LIMITER_DETACH), LIMITER_FORKED);
}

/* A memory client starts afresh; the queue keeps its descriptor's number and works. */
static void child_uses_everything(void) {
    limiter_decision held, out;
    limiter_request request = ask(NULL, 1, 20000);
    struct pollfd p;
    volatile int callbacks = 0;
    held = try_once(parent.full, 1);
    CHECK_OK(held.status);
    CHECK(held.permit != parent.held);
    CHECK_EQ(limiter_queue_fd(parent.queue), parent.fd);
    CHECK_EQ(limiter_queue_poll(parent.queue, &out, 1, 0), 0);
    request.user_data = 42;
    CHECK_STATUS(limiter_submit(parent.queue, parent.full, &request, &out), LIMITER_PENDING);
    p.fd = parent.fd;
    p.events = POLLIN;
    CHECK_EQ(poll(&p, 1, 0), 0);
    CHECK_OK(limiter_release(parent.full, held.permit));
    CHECK_EQ(poll(&p, 1, 20000), 1);
    CHECK_EQ(limiter_queue_poll(parent.queue, &out, 1, 0), 1);
    CHECK_OK(out.status);
    CHECK_EQ(out.user_data, 42);
    CHECK_EQ(poll(&p, 1, 0), 0);
    CHECK_OK(limiter_release(parent.full, out.permit));
    CHECK_STATUS(limiter_release(parent.full, out.permit), LIMITER_STALE);
    CHECK_STATUS(limiter_acquire_cb(parent.limiter, NULL, count_callback, (void *)(uintptr_t)&callbacks, NULL),
                 LIMITER_PENDING);
    CHECK_SOON(callbacks == 1);
    CHECK_SOON(stats_of(parent.client).in_flight == 0);
    CHECK_OK(try_once(parent.limiter, 4).status);
    CHECK(stats_of(parent.client).fork_generation >= 1);
}

static void *wait_for_ever(void *unused) {
    limiter_request request = ask(NULL, 1, -1);
    limiter_decision out;
    (void)!limiter_acquire(parent.full, &request, &out);
    return unused;
}

/* Leaks in a child are by design: what it inherits is left alone. So leak checkers must not look. */
static void leave(void) {
    if (ASAN) _exit(0);
    exit(0);
}

/* The C library sees to it that nobody is inside its allocator at a fork, AddressSanitizer does not: in its
 * run the load stops between two rounds for each fork, and the library's threads have to be asleep. */
static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t load_changed = PTHREAD_COND_INITIALIZER;
static int load_threads, load_at_rest, load_must_rest;

static void rest_if_told(void) {
    pthread_mutex_lock(&load_lock);
    if (load_must_rest) {
        load_at_rest++;
        pthread_cond_broadcast(&load_changed);
        while (load_must_rest) pthread_cond_wait(&load_changed, &load_lock);
        load_at_rest--;
    }
    pthread_mutex_unlock(&load_lock);
}

/* Every thread but this one is asleep. */
static int all_asleep(void) {
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    int asleep = 1;
    CHECK(tasks != NULL);
    while ((entry = readdir(tasks)) != NULL) {
        char path[300], line[256] = "";
        const char *state;
        FILE *file;
        if (entry->d_name[0] == '.' || atoi(entry->d_name) == gettid()) continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/stat", entry->d_name);
        file = fopen(path, "r");
        if (!file) continue; /* ended meanwhile */
        state = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
        if (!state || state[2] != 'S') asleep = 0;
        fclose(file);
    }
    closedir(tasks);
    return asleep;
}

static pid_t fork_at_rest(void) {
    pid_t pid;
    if (!ASAN) return fork();
    pthread_mutex_lock(&load_lock);
    load_must_rest = 1;
    while (load_at_rest < load_threads) pthread_cond_wait(&load_changed, &load_lock);
    pthread_mutex_unlock(&load_lock);
    CHECK_SOON(all_asleep());
    pid = fork();
    if (pid == 0) {
        load_threads = load_at_rest = load_must_rest = 0; /* the parent's; nothing is held, nobody waits */
        CHECK(pthread_cond_init(&load_changed, NULL) == 0);
        return pid;
    }
    pthread_mutex_lock(&load_lock);
    load_must_rest = 0;
    pthread_cond_broadcast(&load_changed);
    pthread_mutex_unlock(&load_lock);
    return pid;
}

enum { USES, GRANDCHILD, HOLDS, FREES, SHUTS_DOWN, WAITS, NOTHING_AT_ALL, FREES_UNUSED, KINDS };

static void child(int kind) {
    pthread_t thread;
    pid_t grandchild;
    switch (kind) {
    case USES:
        child_respects_the_parents();
        child_uses_everything();
        break;
    case GRANDCHILD:
        if (getpid() % 2) child_uses_everything(); /* with and without a core of the child's own */
        grandchild = fork_at_rest();
        if (grandchild == 0) {
            child_respects_the_parents();
            child_uses_everything();
            leave();
        }
        CHECK_EQ(check_reap(grandchild), 0);
        if (getpid() % 3 == 0) CHECK(try_once(parent.limiter, 0).status == LIMITER_OK);
        break;
    case HOLDS:
        CHECK_OK(try_once(parent.full, 1).status);
        CHECK_OK(try_once(parent.limiter, 3).status);
        leave();
        break;
    case FREES:
        child_uses_everything();
        limiter_queue_free(parent.queue);
        limiter_free(parent.full);
        close_client(parent.client, parent.limiter);
        break;
    case SHUTS_DOWN:
        CHECK_OK(try_once(parent.limiter, 1).status);
        CHECK_OK(limiter_client_shutdown(parent.client, 10000));
        CHECK_STATUS(try_once(parent.limiter, 1).status, LIMITER_CLOSED);
        break;
    case WAITS:
        CHECK_OK(try_once(parent.full, 1).status);
        CHECK(pthread_create(&thread, NULL, wait_for_ever, NULL) == 0);
        CHECK_SOON(stats_of(parent.client).waiting == 1);
        break;
    case FREES_UNUSED:
        limiter_queue_free(parent.queue);
        limiter_free(parent.full);
        close_client(parent.client, parent.limiter);
        break;
    default: break;
    }
    leave();
}

static void each_kind_of_child_alone(void) {
    int kind;
    open_parent(open_real());
    for (kind = 0; kind < KINDS; kind++) {
        char about[32];
        pid_t pid = fork_at_rest();
        if (pid == 0) {
            snprintf(about, sizeof about, "kind of child %d", kind);
            check_context(about);
            child(kind);
        }
        CHECK_EQ(check_reap(pid), 0);
    }
    check_parent_and_close();
}

static volatile int stop_load;

static void *load(void *argument) {
    uint64_t *rounds = (uint64_t *)argument;
    while (!stop_load) {
        limiter_decision got;
        rest_if_told();
        got = acquire(parent.limiter, *rounds % 3 ? NULL : "key", 1 + *rounds % 2, -1);
        CHECK_OK(got.status);
        CHECK_OK(limiter_release(parent.limiter, got.permit));
        ++*rounds;
    }
    return NULL;
}

static void B_136_2000_forks_under_load(void) {
    enum { THREADS = 4, AT_ONCE = 4 };
    pthread_t threads[THREADS];
    uint64_t rounds[THREADS] = {0, 0, 0, 0};
    int i, forks = check_times(2000), running = 0;
    open_parent(open_real());
    load_threads = THREADS;
    for (i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, load, &rounds[i]) == 0);
    for (i = 0; i < forks; i++) {
        pid_t pid;
        if (running == AT_ONCE) {
            CHECK_EQ(check_reap(-1), 0);
            running--;
        }
        pid = fork_at_rest();
        CHECK(pid >= 0);
        if (pid == 0) child(i % KINDS);
        running++;
    }
    while (running-- > 0) CHECK_EQ(check_reap(-1), 0);
    stop_load = 1;
    for (i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        CHECK(rounds[i] > 0);
    }
    check_parent_and_close();
}

static void works_through_daemon(void) {
    int ends[2];
    char answer = 0;
    pid_t pid;
    open_parent(open_real());
    CHECK(pipe(ends) == 0);
    pid = fork_at_rest();
    if (pid == 0) {
        close(ends[0]);
        child_uses_everything();
        if (ASAN) CHECK_SOON(all_asleep());
        CHECK(daemon(1, 1) == 0); /* this process ends in here, its child goes on */
        child_respects_the_parents();
        CHECK_EQ(write(ends[1], "+", 1), 1);
        {
            limiter_decision out = LIMITER_INIT(limiter_decision);
            limiter_request request = ask(NULL, 1, 20000);
            CHECK_OK(limiter_acquire(parent.full, &request, &out));
            CHECK_EQ(limiter_queue_fd(parent.queue), parent.fd);
        }
        child_respects_the_parents();
        CHECK_EQ(write(ends[1], "!", 1), 1);
        _exit(0);
    }
    close(ends[1]);
    CHECK_EQ(check_reap(pid), 0);
    CHECK_EQ(read(ends[0], &answer, 1), 1);
    CHECK_EQ(read(ends[0], &answer, 1), 1);
    CHECK_EQ(answer, '!');
    check_parent_and_close();
}

static void a_fork_before_the_first_use(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_semaphore(1));
    pid_t pid = fork();
    if (pid == 0) {
        CHECK_OK(try_once(limiter, 1).status);
        advance(client, S(1)); /* the virtual clock is the child's own */
        leave();
    }
    CHECK_EQ(check_reap(pid), 0);
    CHECK_OK(try_once(limiter, 1).status);
    close_client(client, limiter);
}

static void a_client_closed_before_the_fork_is_closed_after_it(void) {
    limiter_client_t *client = open_real();
    limiter_t *limiter = make1(client, limiter_semaphore(1));
    pid_t pid;
    CHECK_OK(try_once(limiter, 1).status);
    CHECK_OK(limiter_client_shutdown(client, 10000));
    pid = fork();
    if (pid == 0) {
        CHECK_STATUS(try_once(limiter, 1).status, LIMITER_CLOSED);
        close_client(client, limiter);
        leave();
    }
    CHECK_EQ(check_reap(pid), 0);
    close_client(client, limiter);
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        CHECK_TEST(each_kind_of_child_alone),
        CHECK_TEST(B_136_2000_forks_under_load),
        CHECK_TEST(works_through_daemon),
        CHECK_TEST(a_fork_before_the_first_use),
        CHECK_TEST(a_client_closed_before_the_fork_is_closed_after_it),
    };
    return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
