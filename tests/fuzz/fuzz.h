/* Bytes as a source of choices: the same bytes are the same run. Past the end all choices are 0. */
#ifndef FUZZ_H
#define FUZZ_H

#include <limiter.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(condition)                                                                      \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);          \
            abort();                                                                         \
        }                                                                                    \
    } while (0)

typedef struct bytes {
    const uint8_t *at, *end;
} bytes;

static inline uint8_t byte(bytes *from) {
    return from->at < from->end ? *from->at++ : 0;
}

/* Below `most`; `most` is at least 1. */
static inline size_t choice(bytes *from, size_t most) {
    return byte(from) % most;
}

/* Mostly small, and each edge there is. */
static inline uint64_t number(bytes *from) {
    static const uint64_t edges[] = {0, 1, 2, 3, 10, 1000, 1000000, (uint64_t)1 << 48,
                                     ((uint64_t)1 << 48) + 1, (uint64_t)1 << 53, (uint64_t)1 << 63,
                                     UINT64_MAX - 1, UINT64_MAX};
    uint8_t kind = byte(from);
    uint64_t value = 0;
    int i;
    if (kind < 160) return kind % 8;
    if (kind < 220) return edges[kind % (sizeof edges / sizeof edges[0])];
    for (i = 0; i < 8; i++) value = value << 8 | byte(from);
    return value;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
