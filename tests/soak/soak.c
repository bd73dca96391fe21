/*
 * The library in use for long, in little time: leases of a tenth of a second, so that a minute has as many
 * as five hours of ordinary ones, with forks, clients that come and go, waits that are cancelled, leases
 * that are lost, and (run.sh) connections that are cut. Between rounds everything comes to rest. What the
 * process has then (memory, descriptors, threads, permits, waits, keys) has to be what it had after the
 * first round.
 *
 *     soak SECONDS ROUNDS           on memory, or on LIMITER_TEST_URL
 */
#include "../c/fixture.h"

enum { WORKERS = 6, LIMITERS = 5, KEYS = 40, OPEN = 64 };

/* What all threads of a round share. */
static struct {
    limiter_client_t *client;
    limiter_t *limiter[LIMITERS];
    int over;
} soak;

static long calls, forks, churned;

static int is_over(void) {
    return __atomic_load_n(&soak.over, __ATOMIC_SEQ_CST);
}

/* Of xorshift's family; each thread has its own. */
static unsigned dice(uint64_t *seed, unsigned sides) {
    *seed ^= *seed << 13, *seed ^= *seed >> 7, *seed ^= *seed << 17;
    return (unsigned)((*seed >> 20) % sides);
}

static void nap(unsigned us) {
    struct timespec length = {0, 0};
    length.tv_nsec = (long)us * 1000;
    nanosleep(&length, NULL);
}

/* Any answer is right but one that says that the library or this program is wrong. */
static void sound(limiter_status status) {
    CHECK(status != LIMITER_PANIC && status != LIMITER_INVALID && status != LIMITER_CLOSED
          && status != LIMITER_FORKED && status != LIMITER_UNSUPPORTED && status != LIMITER_RESOURCE);
    __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
}

static limiter_request question(uint64_t *seed, char key[16]) {
    limiter_request request = LIMITER_INIT(limiter_request);
    snprintf(key, 16, "key %u", dice(seed, KEYS));
    request.key = key;
    request.key_len = strlen(key);
    request.weight = 1 + dice(seed, 3);
    request.wait_ms = dice(seed, 4) ? (int32_t)dice(seed, 60) : 0;
    return request;
}

/* Takes, uses, and gives back: or does not, and its lease ends by itself. */
static void use(limiter_t *limiter, uint64_t *seed) {
    char key[16];
    limiter_request request = question(seed, key);
    limiter_decision answer;
    int forgets = dice(seed, 20) == 0;
    if (forgets) request.flags = LIMITER_NO_RENEW;
    sound(limiter_acquire(limiter, &request, &answer));
    if (answer.status != LIMITER_OK) return;
    if (dice(seed, 3) == 0) sound(limiter_settle(limiter, answer.permit, dice(seed, 5)));
    if (dice(seed, 10) == 0) sound(limiter_renew(limiter, answer.permit, 100));
    /* Sometimes for longer than a lease. */
    nap(dice(seed, 30) == 0 ? 150000 : dice(seed, 3000));
    if (!forgets) sound(limiter_release(limiter, answer.permit));
}

static void *work(void *argument) {
    uint64_t seed = 88172645463325252ULL + (uint64_t)(uintptr_t)argument;
    while (!is_over()) {
        limiter_t *limiter = soak.limiter[dice(&seed, LIMITERS)];
        char key[16];
        limiter_request request = question(&seed, key), many[16];
        limiter_decision answer, answers[16];
        size_t i;
        switch (dice(&seed, 40)) {
        case 0: sound(limiter_reset(limiter, request.key, request.key_len)); break;
        case 1: sound(limiter_penalize(limiter, request.key, request.key_len, dice(&seed, 20000))); break;
        case 2: sound(limiter_peek(limiter, &request, &answer)); break;
        case 3:
            for (i = 0; i < 16; i++) many[i] = request;
            sound(limiter_try_many(limiter, many, answers, 16));
            for (i = 0; i < 16; i++) {
                if (answers[i].permit) sound(limiter_release(limiter, answers[i].permit));
            }
            break;
        case 4:
            request.wait_ms = 100;
            sound(limiter_pace(soak.limiter[LIMITERS - 1], &request, &answer));
            if (answer.permit && dice(&seed, 2)) sound(limiter_release(limiter, answer.permit));
            break;
        default: use(limiter, &seed);
        }
    }
    return NULL;
}

/* Many waits in one thread, of which some are cancelled and some forgotten. */
static void *submit(void *argument) {
    uint64_t seed = 2463534242ULL;
    limiter_queue_t *queue = NULL;
    int open = 0;
    (void)argument;
    CHECK_OK(limiter_queue_new(soak.client, &queue));
    while (!is_over() || open > 0) {
        limiter_decision answer[OPEN];
        int32_t count, i;
        while (!is_over() && open < OPEN) {
            char key[16];
            limiter_request request = question(&seed, key);
            limiter_t *limiter = soak.limiter[dice(&seed, LIMITERS)];
            request.user_data = (uint64_t)(uintptr_t)limiter;
            request.flags = dice(&seed, 2) ? LIMITER_TELL_LOST : 0;
            sound(limiter_submit(queue, limiter, &request, answer));
            if (answer->status == LIMITER_OK) sound(limiter_release(limiter, answer->permit));
            if (answer->status != LIMITER_PENDING) continue;
            open++;
            if (dice(&seed, 6) == 0) {
                uint32_t flags = dice(&seed, 2) ? LIMITER_DETACH : 0;
                limiter_status ended = limiter_cancel(soak.client, answer->op, flags);
                sound(ended);
                if (ended == LIMITER_OK && flags) open--;
            }
        }
        count = limiter_queue_poll(queue, answer, OPEN, 100);
        CHECK(count >= 0);
        for (i = 0; i < count; i++) {
            limiter_t *limiter = (limiter_t *)(uintptr_t)answer[i].user_data;
            sound(answer[i].status);
            if (answer[i].status == LIMITER_STALE) continue; /* the word of a lost lease */
            open--;
            if (answer[i].status != LIMITER_OK || !answer[i].permit) continue;
            if (dice(&seed, 20) == 0) nap(20000);
            sound(limiter_release(limiter, answer[i].permit));
        }
    }
    limiter_queue_free(queue);
    return NULL;
}

/* Clients and limiters that come and go, in every state. */
static void *churn(void *argument) {
    uint64_t seed = 521288629ULL;
    (void)argument;
    while (!is_over()) {
        limiter_client_t *client = open_with("lease_ms", "500");
        limiter_t *limiter = make1(client, limiter_semaphore(1));
        limiter_queue_t *queue = NULL;
        limiter_decision answer;
        unsigned i;
        CHECK_OK(limiter_queue_new(client, &queue));
        for (i = dice(&seed, 4); i > 0; i--) {
            limiter_request request = ask("churn", 1, 500);
            sound(limiter_submit(queue, limiter, &request, &answer));
        }
        if (dice(&seed, 2)) limiter_queue_free(queue), queue = NULL;
        if (dice(&seed, 2)) limiter_client_shutdown(client, 200);
        limiter_client_free(client);
        limiter_queue_free(queue);
        limiter_free(limiter);
        __atomic_add_fetch(&churned, 1, __ATOMIC_RELAXED);
        nap(50000);
    }
    return NULL;
}

static void child(void) {
    uint64_t seed = (uint64_t)getpid();
    int i;
    alarm(60); /* one that hangs is one that fails */
    for (i = 0; i < 20; i++) use(soak.limiter[dice(&seed, LIMITERS)], &seed);
    _exit(0);
}

static void *fork_now_and_then(void *argument) {
    (void)argument;
    while (!is_over()) {
        int status = -1;
        pid_t pid = fork();
        if (pid == 0) child();
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
        CHECK_EQ(status, 0);
        __atomic_add_fetch(&forks, 1, __ATOMIC_RELAXED);
        nap(100000);
    }
    return NULL;
}

/* -------------------------------------------------------------------------------------------- */

/* What the process has. */
typedef struct belongings {
    long kilobytes, descriptors, threads;
    limiter_stats stats;
} belongings;

static long status_field(const char *name) {
    char line[256];
    long value = -1;
    FILE *file = fopen("/proc/self/status", "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, name, strlen(name)) == 0) value = strtol(line + strlen(name), NULL, 10);
    }
    fclose(file);
    return value;
}

static long descriptor_count(void) {
    long count = 0;
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder != NULL);
    while (readdir(folder)) count++;
    closedir(folder);
    return count - 3; /* ".", ".." and the folder itself */
}

static belongings look(void) {
    belongings now;
    now.kilobytes = status_field("VmRSS:");
    now.descriptors = descriptor_count();
    now.threads = status_field("Threads:");
    now.stats = stats_of(soak.client);
    return now;
}

/* Nothing is asked any more: permits end by their leases, and keys are forgotten as others are asked. */
static belongings rest(void) {
    belongings now = look();
    int tries;
    for (tries = 0; tries < 1200; tries++) {
        char key[16];
        limiter_decision answer;
        unsigned n;
        now = look();
        if (now.stats.waiting == 0 && now.stats.in_flight == 0 && now.stats.keys == 0) return now;
        for (n = 0; n < 256; n++) { /* some in each part of the table */
            limiter_request request = ask(key, 1, 0);
            snprintf(key, sizeof key, "other %u", n);
            request.key_len = strlen(key);
            sound(limiter_peek(soak.limiter[1], &request, &answer));
        }
        nap(50000);
    }
    fprintf(stderr, "waiting %" PRIu64 ", in flight %" PRIu64 ", keys %" PRIu64 "\n", now.stats.waiting,
            now.stats.in_flight, now.stats.keys);
    CHECK(!"it comes to rest within a minute");
    return now;
}

static void run_round(int seconds) {
    pthread_t threads[WORKERS + 3];
    size_t i;
    __atomic_store_n(&soak.over, 0, __ATOMIC_SEQ_CST);
    for (i = 0; i < WORKERS; i++) CHECK_EQ(pthread_create(&threads[i], NULL, work, (void *)(i + 1)), 0);
    CHECK_EQ(pthread_create(&threads[i++], NULL, submit, NULL), 0);
    CHECK_EQ(pthread_create(&threads[i++], NULL, churn, NULL), 0);
    CHECK_EQ(pthread_create(&threads[i++], NULL, fork_now_and_then, NULL), 0);
    sleep((unsigned)seconds);
    __atomic_store_n(&soak.over, 1, __ATOMIC_SEQ_CST);
    while (i > 0) pthread_join(threads[--i], NULL);
}

static void bar(long value, long most) {
    long length = most > 0 ? value * 40 / most : 0;
    while (length-- > 0) putchar('#');
    putchar('\n');
}

int main(int argc, char **argv) {
    int seconds = argc > 1 ? atoi(argv[1]) : 20, rounds = argc > 2 ? atoi(argv[2]) : 4, n;
    limiter_limit limits[3];
    belongings first, now;
    size_t i;

    memset(&first, 0, sizeof first);
    soak.client = open_with("lease_ms", "100");
    soak.limiter[0] = make(soak.client, "held", (limits[0] = limiter_semaphore(4), limits), 1);
    soak.limiter[1] = make(soak.client, "rate", (limits[0] = limiter_token_bucket(50, 500, LIMITER_SECOND), limits), 1);
    soak.limiter[2] = make(soak.client, "log", (limits[0] = limiter_sliding_log(40, LIMITER_SECOND), limits), 1);
    limits[0] = limiter_per_call(limiter_semaphore(3));
    limits[1] = limiter_token_bucket(20, 200, LIMITER_SECOND);
    limits[2] = limiter_fixed_window(500, LIMITER_SECOND);
    soak.limiter[3] = make(soak.client, "all", limits, 3);
    soak.limiter[4] = make(soak.client, "paced", (limits[0] = limiter_pacer(300, LIMITER_SECOND, 5), limits), 1);

    printf("round     calls    lost  churned  forks  descriptors  threads  memory\n");
    for (n = 1; n <= rounds; n++) {
        run_round(seconds / rounds > 0 ? seconds / rounds : 1);
        now = rest();
        if (n == 1) first = now;
        printf("%5d %9ld %7" PRIu64 " %8ld %6ld %12ld %8ld %7ld kB ", n, calls, now.stats.lost, churned, forks,
               now.descriptors, now.threads, now.kilobytes);
        bar(now.kilobytes, first.kilobytes * 2);
        fflush(stdout);
        CHECK_EQ(now.threads, first.threads);
        /* A connection may be away and not needed yet. */
        CHECK(now.descriptors <= first.descriptors + 3);
        /* The allocator's own reserve differs from round to round; what leaks adds up. */
        CHECK(now.kilobytes < first.kilobytes * 3 / 2 + 4096);
    }
    for (i = 0; i < LIMITERS; i++) limiter_free(soak.limiter[i]);
    CHECK_OK(limiter_client_shutdown(soak.client, 10000));
    CHECK_OK(limiter_client_free(soak.client));
    for (n = 0; n < 100 && status_field("Threads:") > 1; n++) nap(50000);
    CHECK_EQ(status_field("Threads:"), 1);
    printf("soak: 1 passed, 0 failed\n");
    return 0;
}
