/*
 * What the demo's judge finds in records that are made here, task by task: which tasks a kill cuts off,
 * until when they count, and whether what they held came back in time.
 */
#include "../../examples/c/worker_pool/worker_pool.h"

#include <stdio.h>

#define LEASE 2000
#define IN_TIME (LEASE + 350 + TO_NOTICE_MS) /* after a kill at 1000 */

static int passed, failed;
static struct journal *journals[2];

static int64_t at(int64_t ms) { return ms * NANOS_PER_MS; }

static void begin(void) {
    int i;
    for (i = 0; i < 2; i++) {
        journal_free(journals[i]);
        journals[i] = journal_new(NULL, 100, LEASE);
    }
}

/* A task of a process, from when to when; 0: it is not over. */
static void task(int process, int64_t start, int64_t end) {
    struct task *task = journal_start(journals[process], at(start), at(start));
    journals[process]->asked++;
    task->end = at(end);
    if (end != 0) journal_end(journals[process], task, at(end));
}

static void tasks(int count, int process, int64_t start, int64_t end) {
    while (count-- > 0) task(process, start, end);
}

static void ends(int process, int64_t seen, int64_t killed) {
    journals[process]->seen = at(seen);
    journals[process]->killed = at(killed);
}

static struct findings judge(struct record *record) {
    struct findings found;
    if (record_new(record, 200) != 0 || record_add(record, journals[0]) != 0
        || record_add(record, journals[1]) != 0 || check(record, &found) != 0) {
        failed++;
    }
    record_free(record);
    return found;
}

static void expect(const char *what, int holds) {
    if (holds) {
        passed++;
    } else {
        failed++;
        fprintf(stderr, "judge: %s\n", what);
    }
}

/* One process is killed at 1000 with two tasks in flight, beside two of the other. */
static void a_kill(int64_t seen, int64_t killed) {
    begin();
    tasks(2, 0, 900, 0);
    tasks(2, 1, 950, 1100);
    ends(0, seen, killed);
}

static void kills(void) {
    struct record record;
    struct findings found;

    a_kill(990, 1000);
    task(1, 999, 1100);
    ends(1, 9000, 0);
    found = judge(&record);
    expect("they are in flight until the kill", found.most_at_once == 5 && !found.at_once_held);
    expect("what was cut off", record.cut_off == 2 && record.killed == at(1000));
    expect("nothing is unanswered", record.unanswered == 0);

    a_kill(990, 1000);
    tasks(2, 1, 1001, 1100);
    journals[0]->asked += 7;
    ends(1, 9000, 0);
    found = judge(&record);
    expect("and no longer", found.most_at_once == 4 && found.at_once_held);
    expect("seven waited", record.unanswered == 7);
    expect("they charge what they asked for", found.bytes == 2 * (uint64_t)ESTIMATED_BYTES);

    a_kill(990, 0);
    task(1, 991, 1100);
    ends(1, 9000, 0);
    found = judge(&record);
    expect("or until it was last seen", found.most_at_once == 4 && record.killed == at(990));

    a_kill(700, 0);
    ends(1, 9000, 0);
    found = judge(&record);
    expect("or did something", record.killed == at(900));
}

static void comes_back(int64_t full, int64_t seen, int judged, int held) {
    struct record record;
    struct findings found;
    char what[100];

    a_kill(990, 1000);
    tasks(3, 1, 1200, 8000);
    if (full != 0) task(1, full, 8000);
    ends(1, seen, 0);
    found = judge(&record);
    snprintf(what, sizeof what, "all in use at %d, seen until %d", (int)full, (int)seen);
    expect(what, found.back == at(full) && found.back_judged == judged && found.back_held == held);
}

int main(void) {
    struct record record;
    struct findings found;

    kills();
    comes_back(1300, 9000, 1, 1);
    comes_back(1000 + IN_TIME, 9000, 1, 1);
    comes_back(1001 + IN_TIME, 9000, 1, 0);
    comes_back(0, 9000, 1, 0);
    comes_back(0, 1001 + IN_TIME, 1, 0);
    comes_back(0, 900 + IN_TIME, 0, 1);

    begin();
    tasks(4, 0, 100, 200);
    tasks(4, 1, 200, 300);
    found = judge(&record);
    expect("no kill", record.killed == 0 && !found.back_judged && found.back_held && found.at_once_held);
    expect("in flight", journal_in_flight(journals[0]) == 0);
    task(0, 300, 0);
    expect("one in flight", journal_in_flight(journals[0]) == 1);
    expect("allowances", lease_and_allowance(1000) == 1350 && lease_and_allowance(30000) == 31500);

    printf("judge: %d passed, %d failed\n", passed, failed);
    return failed != 0;
}
