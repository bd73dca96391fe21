/* A host that loads, uses and unloads the library at run time, twice over: plugin COPY-A COPY-B, two
 * files of the same library. The library stays in memory after dlclose (it may have threads), and two
 * loaded copies do not meet. */
#include "limiter.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef limiter_status (*open_fn)(const char *, const limiter_config_t *, limiter_client_t **, char *, size_t);
typedef limiter_status (*new_fn)(limiter_client_t *, const char *, const limiter_limit *, size_t, limiter_t **,
                                 char *, size_t);
typedef limiter_status (*acquire_fn)(limiter_t *, const limiter_request *, limiter_decision *);
typedef limiter_status (*callback_fn)(limiter_t *, const limiter_request *, limiter_completion_fn, void *,
                                      limiter_op *);

typedef struct copy {
    void *library;
    acquire_fn acquire;
    callback_fn acquire_cb;
    limiter_t *limiter;
} copy;

static void fail(const char *what) {
    const char *why = dlerror();
    fprintf(stderr, "plugin: %s: %s\n", what, why ? why : "");
    exit(1);
}

/* POSIX's way to a function pointer; a cast would not be ISO C. */
static void look_up(void *library, const char *name, void *function) {
    *(void **)function = dlsym(library, name);
    if (*(void **)function == NULL) fail(name);
}

static copy load(const char *path) {
    copy c;
    open_fn client_open;
    new_fn make;
    limiter_client_t *client = NULL;
    limiter_limit limit = limiter_semaphore(1);
    c.library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!c.library) fail(path);
    look_up(c.library, "limiter_client_open", &client_open);
    look_up(c.library, "limiter_new", &make);
    look_up(c.library, "limiter_acquire", &c.acquire);
    look_up(c.library, "limiter_acquire_cb", &c.acquire_cb);
    if (client_open(NULL, NULL, &client, NULL, 0) != LIMITER_OK) fail("open");
    if (make(client, "plugin", &limit, 1, &c.limiter, NULL, 0) != LIMITER_OK) fail("new");
    return c;
}

static void count(void *calls, const limiter_decision *decision) {
    (void)decision;
    __sync_add_and_fetch((volatile int *)calls, 1);
}

int main(int argc, char **argv) {
    static volatile int calls;
    limiter_request request = LIMITER_INIT(limiter_request);
    limiter_decision out;
    copy copies[2];
    int i;
    if (argc != 3) return 2;
    for (i = 0; i < 2; i++) copies[i] = load(argv[i + 1]);
    for (i = 0; i < 2; i++) { /* each has its own state, and threads of its own */
        if (copies[i].acquire(copies[i].limiter, NULL, &out) != LIMITER_OK) fail("acquire");
        request.wait_ms = 20;
        if (copies[i].acquire(copies[i].limiter, &request, &out) != LIMITER_DENIED) fail("wait");
        request.wait_ms = -1;
        if (copies[i].acquire_cb(copies[i].limiter, &request, count, (void *)(size_t)&calls, NULL) !=
            LIMITER_PENDING) fail("callback");
    }
    for (i = 0; i < 2; i++) {
        if (dlclose(copies[i].library) != 0) fail("dlclose");
        /* never unloaded, so its code and threads are still there */
        if (copies[i].acquire(copies[i].limiter, NULL, &out) != LIMITER_DENIED) fail("after dlclose");
    }
    return 0;
}
