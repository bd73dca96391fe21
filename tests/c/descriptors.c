/* A queue's descriptor number and a host that closes every descriptor itself, as daemons do: what has come
 * to be the host's at that number stays as it is, and the queue works. */
#include "fixture.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

/* What the host opens at the queue's number after it closed everything. */
enum { NOTHING_THERE, A_FILE, AN_EVENTFD, A_SOCKET, ANOTHER_QUEUE, THINGS };
static const char *const things[] = {"nothing", "a file", "an eventfd", "a socket", "another queue"};

static struct {
    limiter_client_t *client;
    limiter_t *limiter; /* a semaphore of 1 */
    limiter_queue_t *queue;
    int number;
} ours;

static void open_ours(void) {
    ours.client = open_real();
    ours.limiter = make1(ours.client, limiter_semaphore(1));
    CHECK_OK(limiter_queue_new(ours.client, &ours.queue));
    ours.number = limiter_queue_fd(ours.queue);
    CHECK(ours.number >= 3);
}

static void close_everything(void) {
    int fd;
    for (fd = 3; fd < 256; fd++) close(fd);
}

/* What the host has there, with something in it that a stranger's read or write would change. */
typedef struct thing {
    int kind;
    struct stat is;
    limiter_queue_t *queue;
} thing;

static thing open_thing(int kind) {
    thing host;
    int fd = -1, ends[2];
    memset(&host, 0, sizeof host);
    host.kind = kind;
    if (kind == A_FILE) fd = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    if (kind == AN_EVENTFD) fd = eventfd(7, EFD_NONBLOCK);
    if (kind == A_SOCKET) {
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
        fd = ends[0];
        CHECK_EQ(write(ends[1], "host", 4), 4);
    }
    if (kind == ANOTHER_QUEUE) {
        limiter_client_t *client = open_real();
        /* A queue gets the first free number: so all before that one are taken. */
        while ((fd = open("/dev/null", O_RDONLY)) < ours.number) CHECK(fd >= 3);
        close(fd);
        CHECK_OK(limiter_queue_new(client, &host.queue));
        fd = limiter_queue_fd(host.queue);
        CHECK_EQ(fd, ours.number);
    }
    if (kind != NOTHING_THERE && fd != ours.number) {
        CHECK_EQ(dup2(fd, ours.number), ours.number);
        close(fd);
    }
    if (kind == A_FILE) CHECK_EQ(write(ours.number, "host", 4), 4);
    if (kind != NOTHING_THERE) CHECK(fstat(ours.number, &host.is) == 0);
    return host;
}

static void check_thing(const thing *host) {
    struct stat is;
    struct pollfd p;
    uint64_t counter = 0;
    char text[16] = "";
    if (host->kind == NOTHING_THERE) return;
    CHECK(fstat(ours.number, &is) == 0);
    CHECK(is.st_ino == host->is.st_ino && is.st_dev == host->is.st_dev && is.st_size == host->is.st_size);
    p.fd = ours.number;
    p.events = POLLIN;
    switch (host->kind) {
    case A_FILE:
        CHECK_EQ(lseek(ours.number, 0, SEEK_CUR), 4);
        CHECK_EQ(pread(ours.number, text, sizeof text, 0), 4);
        CHECK(strcmp(text, "host") == 0);
        break;
    case AN_EVENTFD:
        CHECK_EQ(read(ours.number, &counter, sizeof counter), sizeof counter);
        CHECK_EQ(counter, 7);
        CHECK_EQ(write(ours.number, &counter, sizeof counter), sizeof counter);
        break;
    case A_SOCKET:
        CHECK_EQ(recv(ours.number, text, sizeof text, MSG_PEEK), 4);
        CHECK(strcmp(text, "host") == 0);
        break;
    case ANOTHER_QUEUE:
        CHECK_EQ(limiter_queue_fd(host->queue), ours.number);
        CHECK_EQ(poll(&p, 1, 0), 0);
        break;
    default: check_fail(__FILE__, __LINE__, "no such thing");
    }
}

/* A wait on the queue completes, and its descriptor says so. */
static void use_the_queue(void) {
    limiter_request request = ask(NULL, 1, 20000);
    limiter_decision held = try_once(ours.limiter, 1), out;
    struct pollfd p;
    CHECK_OK(held.status);
    CHECK_STATUS(limiter_submit(ours.queue, ours.limiter, &request, &out), LIMITER_PENDING);
    p.fd = limiter_queue_fd(ours.queue);
    p.events = POLLIN;
    CHECK(p.fd >= 0);
    CHECK_EQ(poll(&p, 1, 0), 0);
    CHECK_OK(limiter_release(ours.limiter, held.permit));
    CHECK_EQ(poll(&p, 1, 20000), 1);
    CHECK_EQ(limiter_queue_poll(ours.queue, &out, 1, 0), 1);
    CHECK_OK(out.status);
    CHECK_EQ(poll(&p, 1, 0), 0);
    CHECK_OK(limiter_release(ours.limiter, out.permit));
}

static void free_ours(void) {
    limiter_queue_free(ours.queue);
    close_client(ours.client, ours.limiter);
}

static void child(int kind, int uses) {
    thing host;
    close_everything();
    host = open_thing(kind);
    if (uses) {
        use_the_queue();
        check_thing(&host);
        CHECK((limiter_queue_fd(ours.queue) == ours.number) == (kind == NOTHING_THERE));
        use_the_queue();
    }
    free_ours();
    check_thing(&host);
    if (kind == NOTHING_THERE) CHECK(fcntl(ours.number, F_GETFD) < 0 && errno == EBADF);
    _exit(0);
}

static void each_child(int daemon_first) {
    int kind, uses;
    open_ours();
    for (kind = 0; kind < THINGS; kind++) {
        for (uses = 0; uses < 2; uses++) {
            char about[100];
            pid_t pid = fork();
            if (pid == 0) {
                snprintf(about, sizeof about, "%s, %s", things[kind], uses ? "used" : "only freed");
                check_context(about);
                if (daemon_first) {
                    /* Its parent is gone, and with it whatever knew the descriptor. */
                    pid_t grandchild = fork();
                    if (grandchild != 0) _exit(check_reap(grandchild));
                }
                child(kind, uses);
            }
            CHECK_EQ(check_reap(pid), 0);
        }
    }
    CHECK_EQ(limiter_queue_fd(ours.queue), ours.number);
    use_the_queue();
    free_ours();
}

static void a_child_that_closed_everything(void) {
    each_child(0);
}

static void a_grandchild_that_closed_everything(void) {
    each_child(1);
}

/* The process that opened the queue is gone, and the kernel gives its numbers to others. */
static void a_daemon_that_closed_everything(void) {
    int kind;
    for (kind = 0; kind < THINGS; kind++) {
        int ends[2];
        char answer = 0;
        pid_t pid;
        CHECK(pipe(ends) == 0);
        pid = fork();
        if (pid == 0) {
            pid_t opener = getpid();
            thing host;
            check_context(things[kind]);
            CHECK_EQ(dup2(ends[1], 300), 300); /* beyond what it closes */
            close(ends[0]);
            close(ends[1]);
            open_ours();
            CHECK(daemon(1, 1) == 0); /* this process ends in here, its child goes on */
            CHECK_SOON(kill(opener, 0) < 0);
            close_everything();
            host = open_thing(kind);
            use_the_queue();
            check_thing(&host);
            free_ours();
            check_thing(&host);
            CHECK_EQ(write(300, "!", 1), 1);
            _exit(0);
        }
        close(ends[1]);
        CHECK_EQ(check_reap(pid), 0);
        CHECK_EQ(read(ends[0], &answer, 1), 1);
        close(ends[0]);
    }
}

/* Against the rules, but freeing must not make it worse. */
static void a_process_that_closed_everything_may_free(void) {
    int kind;
    for (kind = 0; kind < THINGS; kind++) {
        thing host;
        check_context(things[kind]);
        if (kind == ANOTHER_QUEUE) continue; /* of the same process: the two cannot be told apart */
        open_ours();
        close_everything();
        host = open_thing(kind);
        free_ours();
        check_thing(&host);
        close_everything();
    }
}

/* Nothing closed: the number is the queue's in each generation, and a free closes it. */
static void a_child_keeps_the_number_and_closes_it_once(void) {
    int uses;
    open_ours();
    for (uses = 0; uses < 2; uses++) {
        pid_t pid = fork();
        if (pid == 0) {
            if (uses) use_the_queue();
            if (uses) CHECK_EQ(limiter_queue_fd(ours.queue), ours.number);
            limiter_queue_free(ours.queue);
            CHECK(fcntl(ours.number, F_GETFD) < 0 && errno == EBADF);
            _exit(0);
        }
        CHECK_EQ(check_reap(pid), 0);
    }
    free_ours();
    CHECK(fcntl(ours.number, F_GETFD) < 0 && errno == EBADF);
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        CHECK_TEST(a_child_that_closed_everything),
        CHECK_TEST(a_grandchild_that_closed_everything),
        CHECK_TEST(a_daemon_that_closed_everything),
        CHECK_TEST(a_process_that_closed_everything_may_free),
        CHECK_TEST(a_child_keeps_the_number_and_closes_it_once),
    };
    return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
