/* What a server sends, and URLs: any bytes are an answer or are refused. */
#include "fuzz.h"

void limiter_fuzz_reply(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    limiter_fuzz_reply(data, size);
    return 0;
}
