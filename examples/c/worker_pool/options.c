/*
 * What was asked for.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#include "worker_pool.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_LEASE_MS 30000
#define SLOW_MS 25
#define QUICK_MS 2

static const char usage[] =
    "usage: worker_pool [options] [DIR]             runs the pool, checks, shows it\n"
    "       worker_pool [--ascii] --check FILE...   checks records of runs as one\n"
    "  --files DIR     the files to checksum, with those of its folders default .\n"
    "  --threads N     1 to 256                                         default 16\n"
    "  --tasks N       1 to 20000; the files are gone over again        default 800\n"
    "  --seconds N     1 to 3600; after that nothing starts any more    default 10\n"
    "  --hold MS       0 to 10000; how long a task stays after its checksum; default\n"
    "                  25 for the first half of the tasks, then 2\n"
    "  --url URL       where the limits' state lives; default what LIMITER_URL in the\n"
    "                  environment says, or memory://\n"
    "  --name NAME     the limiter's name          default worker-pool, or a fresh one\n"
    "                  if there are several processes\n"
    "  --lease MS      100 to 86400000; how long a permit lives that is not renewed,\n"
    "                  as those of a killed process                     default 30000\n"
    "  --processes N   1 to 8; so many share the limits, and each does its part of the\n"
    "                  files until the time is over                     default 1\n"
    "  --kill MS       0 to 3600000; kills one of the processes after so long, while\n"
    "                  it has tasks in flight                     default none\n"
    "  --record FILE   writes what happens to FILE as it happens, or to FILE.1, FILE.2\n"
    "                  and so on for several processes\n"
    "  --ascii         draws with plain characters, as where the locale is not UTF-8\n"
    "exit code: 0 the limits held; 1 one was exceeded, a task failed, or what a killed\n"
    "process held did not come back in time; 2 it could not run; 130 the limits held\n"
    "until Ctrl-C\n";

int64_t lease_and_allowance(int64_t lease_ms) {
    return lease_ms + (lease_ms / 20 > 350 ? lease_ms / 20 : 350);
}

/* By then what a killed process held is back, or comes too late. */
static long settled_ms(const struct options *options) {
    if (options->kill_ms < 0) return 0;
    return options->kill_ms + (long)lease_and_allowance(options->lease_ms) + TO_NOTICE_MS;
}

/*
 * First slow tasks, so that "4 at once" is what holds them; then quick ones: "200 per second". Whether all
 * 4 are in use again after a kill shows in slow ones only.
 */
long options_hold_ms(const struct options *options, size_t number, int64_t since_begin) {
    if (options->hold_ms >= 0) return options->hold_ms;
    if (options->processes == 1) return number < (size_t)options->tasks / 2 ? SLOW_MS : QUICK_MS;
    if (since_begin < settled_ms(options) * NANOS_PER_MS) return SLOW_MS;
    return since_begin < options->seconds * NANOS_PER_SECOND / 2 ? SLOW_MS : QUICK_MS;
}

static int parse_number(const char *text, long least, long most, long *value) {
    char *end;
    errno = 0;
    *value = strtol(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && *value >= least && *value <= most;
}

struct number {
    const char *name;
    long least, most;
    long *value;
};

static int set_option(struct options *options, const char *name, const char *value) {
    const struct number numbers[] = {
        {"--threads", 1, MOST_THREADS, &options->threads},
        {"--tasks", 1, MOST_TASKS, &options->tasks},
        {"--seconds", 1, 3600, &options->seconds},
        {"--hold", 0, 10000, &options->hold_ms},
        {"--lease", 100, 86400000, &options->lease_ms},
        {"--processes", 1, MOST_PROCESSES, &options->processes},
        {"--kill", 0, 3600000, &options->kill_ms},
    };
    const struct {
        const char *name, **value;
    } texts[] = {
        {"--files", &options->files},
        {"--url", &options->url},
        {"--name", &options->name},
        {"--record", &options->record},
    };
    size_t i;

    for (i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (strcmp(name, texts[i].name) == 0) {
            *texts[i].value = value;
            return 1;
        }
    }
    for (i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (strcmp(name, numbers[i].name) == 0) {
            return parse_number(value, numbers[i].least, numbers[i].most, numbers[i].value);
        }
    }
    return 0;
}

static int parse(int argc, char **argv, struct options *options) {
    int i;
    for (i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--ascii") == 0) {
            options->ascii = 1;
        } else if (strcmp(argv[i], "--check") == 0 && i + 1 < argc) {
            options->check_only = 1;
            options->first_record = i + 1;
            return 0;
        } else if (i + 1 < argc && set_option(options, argv[i], argv[i + 1])) {
            i++;
        } else if (argv[i][0] != '-') {
            options->files = argv[i];
        } else {
            fprintf(stderr, "worker_pool: cannot take \"%s%s%s\"\n%s", argv[i],
                    i + 1 < argc ? " " : "", i + 1 < argc ? argv[i + 1] : "", usage);
            return -1;
        }
    }
    return 0;
}

int options_read(int argc, char **argv, struct options *options) {
    const char *url = getenv("LIMITER_URL");

    memset(options, 0, sizeof *options);
    options->files = ".";
    options->url = url != NULL && *url != '\0' ? url : "memory://";
    options->threads = 16;
    options->seconds = 10;
    options->hold_ms = options->kill_ms = -1;
    options->lease_ms = DEFAULT_LEASE_MS;
    options->processes = 1;
    options->ascii = !terminal_takes_utf8();
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(usage, stdout);
        return 1;
    }
    if (parse(argc, argv, options) != 0) return -1;
    if (options->kill_ms >= 0 && options->processes == 1) {
        fprintf(stderr, "worker_pool: --kill needs --processes 2 or more\n");
        return -1;
    }
    if (settled_ms(options) > options->seconds * 1000) {
        fprintf(stderr, "worker_pool: a kill after %ld ms with a lease of %ld ms needs --seconds %ld\n",
                options->kill_ms, options->lease_ms, settled_ms(options) / 1000 + 1);
        return -1;
    }
    if (options->tasks == 0) {
        options->tasks = options->processes == 1 ? 800 : MOST_TASKS / options->processes;
    }
    return 0;
}
