/* What goes before a snippet of README.md: the names that the text around it has introduced. */
#include <limiter.h>

#include <stdio.h>

static int fail(const char *what) {
    fprintf(stderr, "readme: %s\n", what);
    return 1;
}

static uint64_t ask_the_model(void) {
    return 1500;
}

int main(void) {
    char why[LIMITER_ERRBUF_SIZE] = "";
    limiter_client_t *client = NULL;
    limiter_t *limiter = NULL;

    if (ask_the_model() == 0) return 1; /* not every snippet calls it */
    if (limiter_client_open("memory://", NULL, &client, why, sizeof why) != LIMITER_OK) return fail(why);
    {
