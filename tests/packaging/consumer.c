/* A program as a user of the installed library would write it; C99 and C++11 alike. */
#include <limiter.h>

#include <stdio.h>

int main(void) {
    limiter_client_t *client = NULL;
    limiter_t *limiter = NULL;
    limiter_limit limit = limiter_semaphore(1);
    limiter_decision decision;
    char error[LIMITER_ERRBUF_SIZE] = "";
    if (limiter_abi_version() != LIMITER_ABI) return 2;
    if (limiter_client_open(NULL, NULL, &client, error, sizeof error) != LIMITER_OK ||
        limiter_new(client, "consumer", &limit, 1, &limiter, error, sizeof error) != LIMITER_OK) {
        fprintf(stderr, "%s\n", error);
        return 3;
    }
    if (limiter_acquire(limiter, NULL, &decision) != LIMITER_OK) return 4;
    if (limiter_acquire(limiter, NULL, &decision) != LIMITER_DENIED) return 5;
    limiter_free(limiter);
    return limiter_client_free(client) == LIMITER_OK ? 0 : 6;
}
