/* Settings and URLs of any text: taken or refused with a message, never more. The first line is the URL;
 * each that follows is "key=value". Opening never connects. */
#include "fuzz.h"

static const char *refusal(limiter_status status, const char *error, size_t cap) {
    MUST(memchr(error, 0, cap) != NULL);
    MUST(status == LIMITER_OK || status == LIMITER_CONFIG || status == LIMITER_INVALID);
    MUST((status == LIMITER_OK) == (error[0] == 0));
    return error;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = (char *)malloc(size + 1), *line, *rest;
    char error[LIMITER_ERRBUF_SIZE], small[5];
    limiter_config_t *config = limiter_config_new();
    limiter_client_t *client = NULL;
    limiter_status status, again;
    MUST(text != NULL && config != NULL);
    memcpy(text, data, size);
    text[size] = 0;
    rest = strchr(text, '\n');
    if (rest) *rest++ = 0;
    while ((line = rest) != NULL) {
        char *value;
        rest = strchr(line, '\n');
        if (rest) *rest++ = 0;
        value = strchr(line, '=');
        if (!value) continue;
        *value++ = 0;
        /* Files are not opened by setting them, but by opening the client: not under a fuzzer. */
        if (strcmp(line, "tls_ca_file") == 0) continue;
        error[0] = small[0] = 0;
        status = limiter_config_set(config, line, value, error, sizeof error);
        refusal(status, error, sizeof error);
        again = limiter_config_set(config, line, value, small, sizeof small);
        MUST(status == again && memchr(small, 0, sizeof small) != NULL);
        if (strcmp(line, "password") == 0 && strlen(value) > 8) MUST(!strstr(error, value));
    }
    error[0] = 0;
    status = limiter_client_open(text, config, &client, error, sizeof error);
    refusal(status, error, sizeof error);
    MUST((status == LIMITER_OK) == (client != NULL));
    if (client) {
        limiter_limit limit = limiter_semaphore(1);
        limiter_t *limiter = NULL;
        status = limiter_new(client, text, &limit, 1, &limiter, error, sizeof error);
        MUST((status == LIMITER_OK) == (limiter != NULL));
        limiter_free(limiter);
    }
    MUST(limiter_client_free(client) == LIMITER_OK);
    limiter_config_free(config);
    free(text);
    return 0;
}
