/*
 * The picture: two charts over time, drawn with characters, each with its limit as a line that the
 * columns must stay under; then a table.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _XOPEN_SOURCE 700

#include "worker_pool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COLUMNS 72
#define HIGHEST 12 /* rows of a chart */
#define LINE 72 /* what wraps stays: so there is room for the ^C that a terminal shows, too */

struct chart {
    double value[COLUMNS];   /* the column's height */
    double ceiling[COLUMNS]; /* what the limit allows there */
    int columns;
    double forgiven; /* how far above it a late thread alone can carry a column: see check.c */
    double per_row;
    int rows;
};

struct glyphs {
    const char *eighth[9]; /* none to full */
    const char *corner, *floor, *tick, *side;
};

static const struct glyphs unicode = {
    {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}, "└", "─", "┴", "│"};
static const struct glyphs plain = {
    {" ", ".", ".", ":", ":", ":", "#", "#", "#"}, "+", "-", "+", "|"};

int terminal_takes_utf8(void) {
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    const char *locale = NULL;
    size_t i;
    /* The first that is set and not empty decides, whether or not that locale is installed. */
    for (i = 0; i < sizeof names / sizeof *names && (locale == NULL || *locale == '\0'); i++) {
        locale = getenv(names[i]);
    }
    return locale != NULL
           && (strstr(locale, "UTF-8") != NULL || strstr(locale, "utf8") != NULL
               || strstr(locale, "utf-8") != NULL || strstr(locale, "UTF8") != NULL);
}

static int64_t column_width(int64_t length) {
    static const int64_t tenths[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000};
    size_t i = 0;
    while (i + 1 < sizeof tenths / sizeof *tenths
           && length >= tenths[i] * COLUMNS * NANOS_PER_SECOND / 10) {
        i++;
    }
    return tenths[i] * NANOS_PER_SECOND / 10;
}

/*
 * Rows from the top. The ceiling is a line at the foot of the first row that the column may not enter;
 * what is above it and not forgiven is drawn as "!".
 */
static void draw(const struct chart *chart, const struct glyphs *glyph) {
    int row, column;

    for (row = chart->rows - 1; row >= 0; row--) {
        const double bottom = row * chart->per_row;
        if (row % 2 == 1 || chart->per_row <= 1) {
            printf("%5.0f %s", bottom + chart->per_row, glyph->side);
        } else {
            printf("      %s", glyph->side);
        }
        for (column = 0; column < chart->columns; column++) {
            const double part = (chart->value[column] - bottom) / chart->per_row;
            const int eighths = part >= 1 ? 8 : part <= 0 ? 0 : 1 + (int)(part * 7);
            const int is_above = bottom >= chart->ceiling[column];
            const int is_excess = chart->value[column] > chart->ceiling[column] + chart->forgiven;
            if (is_above && is_excess && eighths > 0) {
                putchar('!');
            } else if (is_above && eighths == 0 && bottom - chart->per_row < chart->ceiling[column]) {
                putchar('_');
            } else {
                fputs(glyph->eighth[eighths], stdout);
            }
        }
        putchar('\n');
    }
}

static void draw_time(const struct chart *chart, int64_t width, const struct glyphs *glyph) {
    char label[COLUMNS + 16];
    int column;

    printf("      %s", glyph->corner);
    for (column = 0; column < chart->columns; column++) {
        fputs(column > 0 && column % 10 == 0 ? glyph->tick : glyph->floor, stdout);
    }
    memset(label, ' ', sizeof label);
    for (column = 0; column <= chart->columns; column += 10) {
        char text[16];
        int length = snprintf(text, sizeof text, "%.0f s",
                              (double)(width * column) / (double)NANOS_PER_SECOND);
        memcpy(label + column, text, (size_t)length);
        label[column + length] = '\0';
        if (column + 10 <= chart->columns) label[column + length] = ' ';
    }
    printf("\n       %s\n", label);
}

struct mark {
    int64_t moment;
    const char *text;
};

/* Under the axis, "^ text" at its moment, or "text ^" where there is no room to the right. */
static void draw_mark(const struct mark *mark, int64_t origin, int64_t width) {
    const int column = (int)((mark->moment - origin) / width), length = (int)strlen(mark->text);
    if (column + 2 + length <= COLUMNS) {
        printf("       %*s^ %s\n", column, "", mark->text);
    } else {
        printf("       %*s%s ^\n", column - 1 - length, "", mark->text);
    }
}

/* Where a process was killed, and when what it held was in use again. */
static void draw_kill(const struct record *record, const struct findings *found, int64_t width) {
    const int64_t origin = record->task[0].start;
    char text[COLUMNS];
    struct mark mark;

    if (record->killed == 0) return;
    snprintf(text, sizeof text, "a process is killed with %zu in flight", record->cut_off);
    mark.moment = record->killed;
    mark.text = text;
    draw_mark(&mark, origin, width);
    if (found->back == 0) return;
    snprintf(text, sizeof text, "all %d are in use again", AT_ONCE);
    mark.moment = found->back;
    draw_mark(&mark, origin, width);
}

static int by_moment(const void *left, const void *right) {
    const int64_t *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

/* The most tasks at once within each column. `ended` holds the sorted ends. */
static void fill_in_flight(const struct record *record, const int64_t *ended, int64_t width,
                           struct chart *chart) {
    const int64_t origin = record->task[0].start;
    size_t started = 0, over = 0;
    int column;

    for (column = 0; column < chart->columns; column++) {
        const int64_t edge = origin + (column + 1) * width;
        while (over < record->count && ended[over] <= edge - width) over++;
        chart->value[column] = (double)(started - over);
        chart->ceiling[column] = AT_ONCE;
        while (started < record->count && record->task[started].start < edge) {
            while (over < started && ended[over] <= record->task[started].start) over++;
            started++;
            if ((double)(started - over) > chart->value[column]) {
                chart->value[column] = (double)(started - over);
            }
        }
        if (chart->value[column] > chart->rows) chart->value[column] = chart->rows;
    }
}

/* Starts within each column, and how many the burst that is saved up and the rate allow there. */
static void fill_starts(const struct record *record, int64_t width, struct chart *chart) {
    const int64_t origin = record->task[0].start;
    const double per_column = STARTS_PER_SECOND * ((double)width / (double)NANOS_PER_SECOND);
    double saved = STARTS_BURST;
    int64_t at = origin;
    size_t started = 0;
    int column;

    for (column = 0; column < chart->columns; column++) {
        const int64_t edge = origin + (column + 1) * width;
        const size_t before = started;
        saved += STARTS_PER_SECOND * ((double)(edge - width - at) / (double)NANOS_PER_SECOND);
        if (saved > STARTS_BURST) saved = STARTS_BURST;
        at = edge - width;
        /* Whole starts; a moment's lateness is a small part of one. */
        chart->ceiling[column] = (double)(int)(saved + per_column + 0.05);
        for (; started < record->count && record->task[started].start < edge; started++) {
            const int64_t start = record->task[started].start;
            saved += STARTS_PER_SECOND * ((double)(start - at) / (double)NANOS_PER_SECOND);
            saved = (saved > STARTS_BURST ? STARTS_BURST : saved) - 1;
            at = start;
        }
        chart->value[column] = (double)(started - before);
    }
}

static void fit_rows(struct chart *chart) {
    double most = 0;
    int column;
    for (column = 0; column < chart->columns; column++) {
        if (chart->value[column] > most) most = chart->value[column];
        if (chart->ceiling[column] > most) most = chart->ceiling[column];
    }
    chart->per_row = 5;
    while (most > (HIGHEST - 1) * chart->per_row) chart->per_row *= 2;
    chart->rows = (int)(most / chart->per_row) + 1;
}

void plot_record(const struct record *record, const struct findings *found, int ascii) {
    const struct glyphs *glyph = ascii ? &plain : &unicode;
    struct chart chart;
    int64_t width, length = 0, *ended;
    size_t i;

    ended = calloc(record->count + 1, sizeof *ended);
    if (record->count == 0 || ended == NULL) {
        free(ended);
        return;
    }
    for (i = 0; i < record->count; i++) ended[i] = record->task[i].settled;
    qsort(ended, record->count, sizeof *ended, by_moment);
    length = ended[record->count - 1] - record->task[0].start;
    width = column_width(length);
    chart.columns = (int)(length / width) + 1;
    if (chart.columns > COLUMNS) chart.columns = COLUMNS;

    chart.rows = AT_ONCE + 1;
    chart.per_row = 1;
    chart.forgiven = 0;
    printf("TASKS IN FLIGHT%s: the most in each %d ms, and the limit of %d at once\n",
           record->processes > 1 ? " in all" : "", (int)(width / 1000000), AT_ONCE);
    fill_in_flight(record, ended, width, &chart);
    draw(&chart, glyph);
    draw_time(&chart, width, glyph);
    draw_kill(record, found, width);

    printf("STARTS in each %d ms, and what %d per second and the saved-up burst allow\n",
           (int)(width / 1000000), STARTS_PER_SECOND);
    chart.forgiven = AT_ONCE;
    fill_starts(record, width, &chart);
    fit_rows(&chart);
    draw(&chart, glyph);
    draw_time(&chart, width, glyph);
    printf("\n");
    free(ended);
}

static const char *verdict(int held) {
    return held ? "held" : "EXCEEDED";
}

static void print_back(const struct record *record, const struct findings *found) {
    char seen[40] = "not yet", allowed[40];

    if (record->killed == 0) return;
    if (found->back != 0) {
        snprintf(seen, sizeof seen, "%.2f s", (double)(found->back - record->killed) / 1e9);
    } else if (found->back_judged) {
        snprintf(seen, sizeof seen, "never");
    }
    snprintf(allowed, sizeof allowed, "%.2f + %.2f s",
             (double)lease_and_allowance(record->lease_ms) / 1e3, TO_NOTICE_MS / 1e3);
    printf("%-34s %12s  %17s   %s\n", "in use again after the kill", seen, allowed,
           found->back_judged ? verdict(found->back_held) : "not judged");
}

void print_findings(const struct record *record, const struct findings *found) {
    const double mib = 1024.0 * 1024.0;
    char allowed[40];

    printf("asked %" PRIu64 ", admitted %zu, not in time %" PRIu64 ", cancelled %" PRIu64
           "; %.1f MiB in %.1f s\n", record->asked, record->count, record->denied,
           record->cancelled, (double)found->bytes / mib, found->seconds);
    if (record->killed != 0) {
        printf("killed with %zu in flight and %" PRIu64 " waiting\n", record->cut_off, record->unanswered);
    }
    printf("waited  p50 %.1f ms, p99 %.1f ms, at most %.1f ms\n\n", found->waited_p50_ms,
           found->waited_p99_ms, found->waited_most_ms);
    printf("%-34s %12s  %17s\n", "", "seen", "allowed");
    printf("%-34s %12zu  %17d   %s\n", "most tasks at once", found->most_at_once, AT_ONCE,
           verdict(found->at_once_held));
    printf("%-34s %12zu  %17s   %s\n", "most starts in any second", found->most_starts_in_a_second,
           "see next row", "not judged");
    snprintf(allowed, sizeof allowed, "%d + %d", STARTS_BURST, found->late_starts);
    printf("%-34s %12.1f  %17s   %s\n", "starts ahead of the rate, ever", found->starts_ahead,
           allowed, verdict(found->starts_held));
    printf("%-34s %8.1f MiB  %17s   %s\n", "most bytes in any second",
           (double)found->most_bytes_in_a_second / mib, "see next row", "not judged");
    snprintf(allowed, sizeof allowed, "%.1f + %.1f MiB", BYTES_BURST / mib,
             found->bytes_unknown / mib);
    printf("%-34s %8.1f MiB  %17s   %s\n", "bytes ahead of the rate, ever",
           found->bytes_ahead / mib, allowed, verdict(found->bytes_held));
    print_back(record, found);
    printf("\nAllowed is the burst + what the record cannot know: which tasks the system was\n"
           "late to start once they were admitted, and what files in work would need.\n");
    if (record->killed != 0) {
        printf("After a kill: the lease, and what Redis adds in case its clock jumps, + what a\n"
               "busy machine takes to notice.\n");
    }
}

void show_progress(struct journal *const *journal, size_t processes, double part) {
    static const char bar[] = "####################";
    size_t i, in_flight = 0;
    uint64_t done = 0, bytes = 0;
    char line[256];

    if (!isatty(STDERR_FILENO)) return;
    for (i = 0; i < processes; i++) {
        done += journal[i]->done;
        bytes += journal[i]->bytes;
        if (journal[i]->killed == 0) in_flight += journal_in_flight(journal[i]);
    }
    snprintf(line, sizeof line, "[%-20.*s] %" PRIu64 " done, %zu in flight, %.1f MiB",
             (int)((part < 1 ? part : 1) * 20), bar, done, in_flight, (double)bytes / (1024 * 1024));
    fprintf(stderr, "\r%-*.*s", LINE, LINE, line);
}

void clear_progress(void) {
    if (isatty(STDERR_FILENO)) fprintf(stderr, "\r%*s\r", LINE + 7, "");
}
