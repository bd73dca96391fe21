/* Bad input at every function. A table has a row for each function of tests/abi/symbols.txt, with the names
 * of its parameters as the header declares them; each parameter is of a kind, and each kind has values that
 * must be refused. So a function or parameter that is not covered here fails the first test.
 *
 * A refusal is a clear status (in the decision and with a message, too, where there is one), and changes
 * nothing: the same call with good values then does what it always does. */
#include "bad_calls.h"

/* The next word of a row's parameters: name and kind; 0 at its end. */
static int next_parameter(const char **from, char *name, char *kind) {
    int length = 0;
    while (**from == ' ') ++*from;
    if (sscanf(*from, "%60[a-z_0-9]%n", name, &length) != 1) return 0;
    *from += length;
    strcpy(kind, name);
    if (**from == ':') {
        CHECK(sscanf(*from, ":%60[-a-z_0-9]%n", kind, &length) == 1);
        *from += length;
    }
    return 1;
}

static char *read_file(const char *path) {
    char *text = (char *)calloc(1, 200000);
    FILE *file = fopen(path, "r");
    if (!file || !text) check_fail(__FILE__, __LINE__, path);
    CHECK(fread(text, 1, 199999, file) > 0);
    fclose(file);
    return text;
}

static void drop_comments(char *text) {
    char *begin, *end;
    while ((begin = strstr(text, "/*")) != NULL && (end = strstr(begin, "*/")) != NULL) {
        memset(begin, '\n', (size_t)(end + 2 - begin));
    }
}

/* The names of a function's parameters, as the header declares them. */
static void declared(const char *header, const char *function, char *names, size_t room) {
    char start[80], word[80] = "";
    const char *at;
    size_t length = 0;
    names[0] = 0;
    snprintf(start, sizeof start, "limiter_%s(", function);
    at = strstr(header, start);
    if (!at) check_fail(__FILE__, __LINE__, start);
    for (at += strlen(start); length < sizeof word - 1; at++) {
        if ((*at >= 'a' && *at <= 'z') || *at == '_' || (*at >= '0' && *at <= '9')) {
            word[length++] = *at;
            word[length] = 0;
            continue;
        }
        if ((*at == ',' || *at == ')') && strcmp(word, "void") != 0) {
            snprintf(names + strlen(names), room - strlen(names), "%s ", word);
        }
        if (*at == ')') return;
        if (*at != '\n') length = 0;
    }
    check_fail(__FILE__, __LINE__, function);
}

static void every_function_and_parameter_has_its_row(void) {
    char *header = read_file("include/limiter.h"), *symbols = read_file("tests/abi/symbols.txt");
    char *symbol = strtok(symbols, "\n");
    size_t i, k;
    drop_comments(header);
    for (i = 0; i < CHECK_COUNT(functions); i++, symbol = strtok(NULL, "\n")) {
        char exported[80], wanted[512], given[512] = "", name[64], kind[64];
        const char *rest = functions[i].parameters;
        snprintf(exported, sizeof exported, "limiter_%s", functions[i].name);
        check_context(exported);
        if (!symbol || strcmp(symbol, exported) != 0) check_fail(__FILE__, __LINE__, symbol ? symbol : "none");
        while (next_parameter(&rest, name, kind)) {
            int values = strcmp(kind, "-") == 0;
            snprintf(given + strlen(given), sizeof given - strlen(given), "%s ", name);
            for (k = 0; k < CHECK_COUNT(bads); k++) values += strcmp(bads[k].kind, kind) == 0;
            if (values == 0) check_fail(__FILE__, __LINE__, kind);
        }
        declared(header, functions[i].name, wanted, sizeof wanted);
        if (strcmp(wanted, given) != 0) check_fail(__FILE__, __LINE__, wanted);
    }
    if (symbol) check_fail(__FILE__, __LINE__, symbol);
    free(header);
    free(symbols);
}

static limiter_op submit(args *a, uint64_t user_data) {
    limiter_request request = ask("waits", 1, -1);
    request.user_data = user_data;
    CHECK_STATUS(limiter_submit(a->queue, a->limiter, &request, a->out), LIMITER_PENDING);
    return a->out[0].op;
}

static args good_args(const char *function) {
    static const limiter_request request = LIMITER_INIT(limiter_request);
    static const limiter_slot slot = LIMITER_INIT(limiter_slot);
    limiter_limit windows[2];
    args a;
    memset(&a, 0, sizeof a);
    a.config = limiter_config_new();
    a.client = open_virtual();
    a.limits[0] = limiter_semaphore(5);
    a.limits[1] = limiter_token_bucket(70, 1, LIMITER_HOUR);
    a.limiter = make(a.client, "both", a.limits, 2);
    windows[0] = limiter_fixed_window(5, LIMITER_DAY);
    windows[1] = limiter_token_bucket(7, 1, LIMITER_HOUR);
    a.rates = make(a.client, "rates", windows, 2);
    CHECK_OK(limiter_queue_new(a.client, &a.queue));
    a.permit = acquire(a.limiter, "held", 1, 0).permit;
    CHECK_OK(acquire(a.limiter, "waits", 5, 0).status);
    a.op = submit(&a, 4711);
    if (strcmp(function, "queue_poll") == 0) CHECK_OK(limiter_cancel(a.client, a.op, 0));
    a.setting = strcmp(function, "set") == 0 ? "on_failure" : "lease_ms";
    a.value = strcmp(function, "set") == 0 ? "open" : "100";
    a.name = "name";
    a.url = "memory://";
    a.key = "key";
    a.key_len = 3;
    a.request[0] = request;
    a.count = strcmp(function, "new") == 0 ? 2 : 1;
    a.cap = 1;
    a.stats.struct_size = sizeof a.stats;
    a.slot[0] = slot;
    a.slot[0].limiter = a.limiter;
    if (strcmp(function, "after_task") == 0) CHECK_OK(limiter_before_task(&a.slot[0]));
    a.weight = 1;
    a.actual = 1;
    a.us = limiter_clock_now_us(a.client);
    a.callback = note_answer;
    return a;
}

/* Pointers into the struct itself, which was moved. */
static void point(args *a) {
    a->requests = a->request;
    a->limits_at = a->limits;
    a->out_at = a->out;
    a->stats_at = &a->stats;
    a->slot_at = a->slot;
    a->place_at = &a->place;
    a->errbuf_at = a->errbuf;
    a->errcap = sizeof a->errbuf;
    memset(a->out, 0x55, sizeof a->out);
    memset(a->errbuf, 0, sizeof a->errbuf);
    a->place = a;
}

typedef struct state {
    limiter_stats stats;
    limiter_decision both[3], rates;
    uint64_t now;
    int polled;
} state;

/* What can be seen of a client; `waiting` completions are left in the queue. */
static state look(args *a) {
    static const char *const keys[3] = {"held", "waits", "key"};
    state s;
    int i;
    memset(&s, 0, sizeof s);
    s.stats = stats_of(a->client);
    s.stats.never = 0; /* NEVER is an answer, and counted */
    for (i = 0; i < 3; i++) s.both[i] = peek(a->limiter, keys[i], 1);
    s.rates = peek(a->rates, NULL, 1);
    s.now = limiter_clock_now_us(a->client);
    return s;
}

static void check_refusal(const struct function *f, const struct bad *bad, const args *good) {
    state before = look((args *)(uintptr_t)good), after;
    args a = *good;
    int64_t got;
    int with_message = strstr(f->parameters, "errbuf") != NULL, calls;
    point(&a);
    bad->make(&a);
    calls = called;
    got = f->call(&a);
    CHECK(called == calls || bad->expect == LIMITER_NEVER);
    if (bad->expect != IGNORED) {
        CHECK_STATUS(got, bad->expect);
        if (strstr(f->parameters, " out") && a.out_at && a.count <= 65536 && strcmp(f->name, "queue_poll") != 0) {
            CHECK_STATUS(a.out[0].status, bad->expect);
            CHECK(a.out[0].permit == 0 && a.out[0].op == 0 && a.out[0].reserved[4] == 0);
            CHECK(a.out[1].permit == UINT64_C(0x5555555555555555)); /* one decision, no more */
        }
        if (strstr(f->parameters, "place") && a.place_at) CHECK(a.place == NULL);
        if (with_message && a.errbuf_at) {
            CHECK(memchr(a.errbuf, 0, sizeof a.errbuf) != NULL);
            CHECK(strlen(a.errbuf) > 4);
        }
    } else {
        CHECK(got == f->good);
    }
    after = look((args *)(uintptr_t)good);
    CHECK(memcmp(&before, &after, sizeof before) == 0);
}

static void bad_input_is_refused_and_changes_nothing(void) {
    size_t i, k;
    memset(long_text, 'x', LONG);
    for (i = 0; i < CHECK_COUNT(functions); i++) {
        const struct function *f = &functions[i];
        const char *rest = f->parameters;
        char name[64], kind[64], about[200];
        args a = good_args(f->name);
        while (next_parameter(&rest, name, kind)) {
            for (k = 0; k < CHECK_COUNT(bads); k++) {
                if (strcmp(bads[k].kind, kind) != 0) continue;
                snprintf(about, sizeof about, "limiter_%s, %s: %s", f->name, name, bads[k].what);
                check_context(about);
                check_refusal(f, &bads[k], &a);
            }
        }
        snprintf(about, sizeof about, "limiter_%s, all good", f->name);
        check_context(about);
        point(&a);
        CHECK(f->call(&a) == f->good);
        check_context("");
        if (strcmp(f->name, "client_open") == 0) CHECK_OK(limiter_client_free((limiter_client_t *)a.place));
        if (strcmp(f->name, "new") == 0) limiter_free((limiter_t *)a.place);
        if (strcmp(f->name, "queue_new") == 0) limiter_queue_free((limiter_queue_t *)a.place);
        limiter_queue_free(a.queue);
        limiter_free(a.rates);
        limiter_free(a.limiter);
        CHECK_OK(limiter_client_free(a.client));
        limiter_config_free(a.config);
    }
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        CHECK_TEST(every_function_and_parameter_has_its_row),
        CHECK_TEST(bad_input_is_refused_and_changes_nothing),
    };
    return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
