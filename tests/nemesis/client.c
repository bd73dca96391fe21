/* A process of the nemesis in C: what it holds and starts on shared limits, told as it believes it at that time.
 *   client URL FILE SEED
 * until SIGTERM; then it gives back what it has, and exits 0. Lines of the file, with microseconds of
 * CLOCK_MONOTONIC:
 *   G process permit us    holds one
 *   E process permit us    no more: written before it is given back
 *   L process permit us    was told that its lease is lost
 *   A us                   one start of the rate
 *   X words                what must not happen */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <limiter.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HOLDERS = 3 };

static limiter_client_t *client;
static limiter_t *held, *rate;
static int told = -1;
static unsigned seed;
static volatile sig_atomic_t over;

static uint64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void nap(unsigned us) {
    struct timespec span;
    span.tv_sec = us / 1000000;
    span.tv_nsec = (long)(us % 1000000) * 1000;
    nanosleep(&span, NULL);
}

/* One write, so that lines of threads and of forked children stay whole. */
static void tell(const char *format, ...) {
    char line[256];
    va_list arguments;
    int length;
    va_start(arguments, format);
    length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (write(told, line, (size_t)length) != length) _exit(3);
}

static void tell_permit(char what, limiter_permit permit) {
    tell("%c %d %" PRIu64 " %" PRIu64 "\n", what, (int)getpid(), permit, now_us());
}

static void lost(void *unused, limiter_permit permit) {
    (void)unused;
    tell_permit('L', permit);
}

/* Redis may be away; nothing else may go wrong. */
static int is_fine(limiter_status status) {
    switch (status) {
    case LIMITER_OK:
    case LIMITER_DENIED:
    case LIMITER_BACKEND:
    case LIMITER_UNKNOWN_OUTCOME:
    case LIMITER_TIMEOUT: return 1;
    default: return 0;
    }
}

static limiter_status ask(limiter_t *limiter, int32_t wait_ms, limiter_decision *answer) {
    limiter_request request = LIMITER_INIT(limiter_request);
    limiter_status status;
    request.wait_ms = wait_ms;
    status = limiter_acquire(limiter, &request, answer);
    if (!is_fine(status)) tell("X %s %s\n", limiter == held ? "held" : "rate", limiter_status_name(status));
    return status;
}

static void hold_one(unsigned *dice, int32_t wait_ms) {
    limiter_decision answer;
    limiter_status status;
    if (ask(held, wait_ms, &answer) != LIMITER_OK) {
        nap(5000); /* a dead Redis answers at once */
        return;
    }
    tell_permit('G', answer.permit);
    /* Now and then for longer than a lease lasts. */
    nap(rand_r(dice) % 40 == 0 ? 2500000 : (unsigned)rand_r(dice) % 40000);
    tell_permit('E', answer.permit);
    status = limiter_release(held, answer.permit);
    if (status != LIMITER_OK && status != LIMITER_STALE) tell("X release %s\n", limiter_status_name(status));
}

static void *hold(void *number) {
    unsigned dice = seed * 31 + (unsigned)(uintptr_t)number;
    while (!over) hold_one(&dice, (int32_t)(rand_r(&dice) % 600));
    return NULL;
}

static void *start(void *unused) {
    (void)unused;
    while (!over) {
        limiter_decision answer;
        if (ask(rate, 0, &answer) == LIMITER_OK) tell("A %" PRIu64 "\n", now_us());
        nap(3000);
    }
    return NULL;
}

/* Forked while threads are inside the library. */
static void child(unsigned dice) {
    int i;
    alarm(30);
    for (i = 0; i < 3; i++) hold_one(&dice, 300);
    _exit(0);
}

static void stop(int number) {
    (void)number;
    over = 1;
}

int main(int argc, char **argv) {
    limiter_limit three = limiter_semaphore(3), starts = limiter_token_bucket(20, 200, LIMITER_SECOND);
    limiter_config_t *config = limiter_config_new();
    pthread_t threads[HOLDERS + 1];
    struct sigaction action = {0};
    unsigned dice;
    size_t i;
    if (argc != 4) return 2;
    told = open(argv[2], O_WRONLY | O_APPEND | O_CREAT, 0600);
    dice = seed = (unsigned)strtoul(argv[3], NULL, 10);
    action.sa_handler = stop;
    sigaction(SIGTERM, &action, NULL);
    three.lease_ms = 2000;
    limiter_config_set_lost(config, lost, NULL);
    if (limiter_client_open(argv[1], config, &client, NULL, 0) != LIMITER_OK ||
        limiter_new(client, "held", &three, 1, &held, NULL, 0) != LIMITER_OK ||
        limiter_new(client, "rate", &starts, 1, &rate, NULL, 0) != LIMITER_OK)
        return 4;
    limiter_config_free(config);
    for (i = 0; i < HOLDERS; i++) pthread_create(&threads[i], NULL, hold, (void *)(uintptr_t)i);
    pthread_create(&threads[HOLDERS], NULL, start, NULL);
    while (!over) {
        pid_t pid = fork();
        int status = -1;
        if (pid == 0) child(++dice);
        while (waitpid(pid, &status, 0) != pid) continue;
        if (status != 0) tell("X a child ended with %d\n", status);
        nap(300000);
    }
    for (i = 0; i <= HOLDERS; i++) pthread_join(threads[i], NULL);
    limiter_client_shutdown(client, 5000);
    limiter_client_free(client);
    return 0;
}
