#include <limiter.h>
#include <stdio.h>

int main(void) {
    limiter_limit limits[] = {limiter_semaphore(4), limiter_token_bucket(20, 200, LIMITER_SECOND)};
    limiter_client_t *client; limiter_t *limiter; limiter_decision answer;
    limiter_request request = LIMITER_INIT(limiter_request);

    request.wait_ms = 5000; /* longest wait; 0 tries once */
    if (limiter_client_open("memory://", NULL, &client, NULL, 0) != LIMITER_OK) return 1;
    if (limiter_new(client, "upstream", limits, 2, &limiter, NULL, 0) != LIMITER_OK) return 1;
    if (limiter_acquire(limiter, &request, &answer) != LIMITER_OK) return 1;
    puts("one of at most 4 at once, and of at most 200 per second"); /* the task */
    return limiter_release(limiter, answer.permit);
}
