/* Signals are the host program's: none reaches a library thread, no handler changes, and no storm of
 * them disturbs a wait. */
#include "steps.h"

#include <sys/time.h>

static volatile int waits_started;

static void release_it(void *user_data, const limiter_decision *decision) {
    limiter_t *limiter = (limiter_t *)user_data;
    if (decision->permit) CHECK_OK(limiter_release(limiter, decision->permit));
    __sync_add_and_fetch(&waits_started, 1);
}

/* Makes every thread the library has: the timer's and the callbacks'. */
static void start_threads(limiter_client_t *client, limiter_t *limiter) {
    limiter_decision got;
    (void)client;
    CHECK_STATUS(limiter_acquire_cb(limiter, NULL, release_it, limiter, NULL), LIMITER_PENDING);
    CHECK_SOON(waits_started > 0);
    got = try_once(limiter, 1);
    CHECK_OK(got.status);
    CHECK_STATUS(acquire(limiter, NULL, 1, 5).status, LIMITER_DENIED);
    CHECK_OK(limiter_release(limiter, got.permit));
}

/* How many threads named limiter-* there are; each must block every signal that can be blocked. */
static int check_library_threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    int found = 0;
    CHECK(tasks != NULL);
    while ((entry = readdir(tasks)) != NULL) {
        char path[300], line[256], name[64] = "";
        FILE *status;
        uint64_t blocked = 0;
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
        status = fopen(path, "r");
        if (!status) continue; /* ended meanwhile */
        while (fgets(line, sizeof line, status)) {
            if (strncmp(line, "Name:\t", 6) == 0) {
                line[strcspn(line, "\n")] = 0;
                snprintf(name, sizeof name, "%.60s", line + 6);
            }
            if (strncmp(line, "SigBlk:\t", 8) == 0) blocked = strtoull(line + 8, NULL, 16);
        }
        fclose(status);
        if (strncmp(name, "limiter-", 8) == 0) {
            /* not KILL, STOP, nor the two that the C library keeps for itself (32, 33) */
            uint64_t exempt = (uint64_t)1 << (SIGKILL - 1) | (uint64_t)1 << (SIGSTOP - 1) |
                              (uint64_t)3 << 31;
            check_context(name);
            CHECK_EQ(blocked | exempt, UINT64_MAX);
            found++;
        } else {
            CHECK_EQ(atoi(entry->d_name), getpid()); /* the only other one is ours */
        }
    }
    closedir(tasks);
    return found;
}

static void library_threads_block_every_signal(void) {
    limiter_client_t *client = open_real();
    limiter_t *limiter = make1(client, limiter_semaphore(1));
    start_threads(client, limiter);
    CHECK(check_library_threads() >= 1);
    close_client(client, limiter);
}

static void masks_and_handlers_are_left_alone(void) {
    struct sigaction before[65], after;
    sigset_t mask_before, mask_after;
    limiter_client_t *client;
    limiter_t *limiter;
    int i;
    sigemptyset(&mask_before);
    sigaddset(&mask_before, SIGUSR2);
    CHECK(pthread_sigmask(SIG_SETMASK, &mask_before, NULL) == 0);
    for (i = 1; i < 65; i++) {
        memset(&before[i], 0, sizeof before[i]);
        if (sigaction(i, NULL, &before[i]) != 0) before[i].sa_flags = -1;
    }
    client = open_real();
    limiter = make1(client, limiter_semaphore(1));
    start_threads(client, limiter);
    close_client(client, limiter);
    for (i = 1; i < 65; i++) {
        memset(&after, 0, sizeof after);
        if (sigaction(i, NULL, &after) != 0) after.sa_flags = -1;
        CHECK(after.sa_handler == before[i].sa_handler && after.sa_flags == before[i].sa_flags);
    }
    CHECK(before[SIGPIPE].sa_handler == SIG_DFL);
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &mask_after) == 0);
    for (i = 1; i < 65; i++) CHECK_EQ(sigismember(&mask_after, i), sigismember(&mask_before, i));
}

static volatile int alarms, foreign;
static pid_t main_tid;

static void on_alarm(int signal) {
    (void)signal;
    alarms++;
    foreign |= gettid() != main_tid;
}

/* SIGALRM every millisecond, without SA_RESTART, for this thread to get. */
static void start_storm(void) {
    struct sigaction action;
    struct itimerval every;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_alarm;
    main_tid = gettid();
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    memset(&every, 0, sizeof every);
    every.it_value.tv_usec = every.it_interval.tv_usec = 1000;
    CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
}

static void stop_storm(void) {
    struct itimerval none;
    memset(&none, 0, sizeof none);
    CHECK(setitimer(ITIMER_REAL, &none, NULL) == 0);
    CHECK(alarms > 20);
    CHECK(!foreign);
}

typedef struct releaser {
    limiter_client_t *client;
    limiter_t *limiter;
    limiter_permit permit;
    volatile int go;
} releaser;

static void *release_when_told(void *argument) {
    releaser *self = (releaser *)argument;
    while (!self->go || stats_of(self->client).waiting == 0) check_nap_us(500);
    check_nap_us(100000); /* let the storm blow over a wait that is under way */
    CHECK_OK(limiter_release(self->limiter, self->permit));
    return NULL;
}

static void a_storm_of_signals_disturbs_no_wait(void) {
    limiter_client_t *client = open_real();
    limiter_t *limiter = make1(client, limiter_semaphore(1));
    limiter_limit rate = limiter_token_bucket(1, 1, MS(100));
    limiter_t *bucket = make(client, "rate", &rate, 1);
    limiter_queue_t *queue = NULL;
    limiter_decision held = try_once(limiter, 1), got;
    sigset_t alarm_only;
    pthread_t thread;
    releaser r;
    int64_t began;
    int i;
    CHECK_OK(limiter_queue_new(client, &queue));
    r.client = client;
    r.limiter = limiter;
    r.permit = held.permit;
    r.go = 0;
    sigemptyset(&alarm_only);
    sigaddset(&alarm_only, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm_only, NULL);
    CHECK(pthread_create(&thread, NULL, release_when_told, &r) == 0);
    pthread_sigmask(SIG_UNBLOCK, &alarm_only, NULL);
    start_storm();

    began = check_now_us();
    got = acquire(limiter, NULL, 1, 200);
    CHECK_STATUS(got.status, LIMITER_DENIED);
    CHECK(check_now_us() - began >= 200000 && got.waited_us >= 200000);

    began = check_now_us();
    CHECK_EQ(limiter_queue_poll(queue, &got, 1, 200), 0);
    CHECK(check_now_us() - began >= 200000);

    CHECK_OK(try_once(bucket, 1).status);
    for (i = 0; i < 3; i++) {
        began = check_now_us();
        got = acquire(bucket, NULL, 1, 20000);
        CHECK_OK(got.status);
        CHECK(got.waited_us > 0 && check_now_us() - began >= (int64_t)got.waited_us);
    }

    r.go = 1;
    got = acquire(limiter, NULL, 1, -1);
    CHECK_OK(got.status);
    CHECK_OK(limiter_release(limiter, got.permit));
    CHECK_OK(limiter_client_shutdown(client, 10000));
    stop_storm();
    pthread_join(thread, NULL);
    limiter_queue_free(queue);
    limiter_free(bucket);
    close_client(client, limiter);
}

static void a_forked_childs_threads_block_them_too(void) {
    limiter_client_t *client = open_real();
    limiter_t *limiter = make1(client, limiter_semaphore(1));
    pid_t pid;
    start_threads(client, limiter);
    pid = fork();
    if (pid == 0) {
        waits_started = 0;
        start_threads(client, limiter);
        CHECK(check_library_threads() >= 1);
        _exit(0);
    }
    CHECK_EQ(check_reap(pid), 0);
    close_client(client, limiter);
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        CHECK_TEST(library_threads_block_every_signal),
        CHECK_TEST(masks_and_handlers_are_left_alone),
        CHECK_TEST(a_storm_of_signals_disturbs_no_wait),
        CHECK_TEST(a_forked_childs_threads_block_them_too),
    };
    return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
