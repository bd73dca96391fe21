/* What every role of the benchmark's C program shares: arguments, time, latencies, keys, the answer. */
#ifndef BENCH_H
#define BENCH_H

#include <limiter.h>
#include <stdint.h>

/* ROLE WORK CALLERS SECONDS URL KEY RATE, as the other programs take them; see benches/README.md. */
typedef struct {
    const char *role;
    char work[64]; /* the part before ':' */
    uint64_t size; /* the number after it, or 0 */
    unsigned callers;
    double seconds;
    const char *url;
    const char *key;
    uint64_t rate;
} arguments;

typedef struct {
    uint64_t decisions;
    uint64_t admitted;
    double seconds;
    double bytes_per_key;
    uint64_t warm_up; /* decisions before the time began */
} tally;

extern arguments args;
extern limiter_client_t *client;

void die(const char *what, limiter_status status);
double now_us(void);
double resident_kib(void);

/* The limiter that the work asks for, and a request that waits so long. */
limiter_t *open_limiter(const char *name);
limiter_request ask(int32_t wait_ms);

/* Keys of the work: one, or `size` of them, drawn by Zipf's law with exponent 1 or evenly. */
void draw_keys(void);
void key_number(uint64_t number, limiter_request *request);
void next_key(uint64_t turn, limiter_request *request);

void record_latency(double us);
/* Prints the one line that a program answers; `holds` is JSON, or NULL. */
void answer(const tally *tally, const char *holds);

/* The roles. */
void run_async(limiter_t *limiter);
void run_threads(limiter_t *limiter);
void run_at_once(void);
void run_semaphore(limiter_t *limiter);
void run_memory(limiter_t *limiter);
void run_growth(void);

#endif
