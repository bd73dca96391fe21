/* The pair of hooks around each task of a pool, and the slot they share. */
#include "fixture.h"

static void a_task_runs_between_the_hooks(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_semaphore(1));
    limiter_slot slot = LIMITER_INIT(limiter_slot), other = LIMITER_INIT(limiter_slot);
    limiter_status (*before)(void *) = limiter_before_task; /* a pool takes function pointers */
    void (*after)(void *) = limiter_after_task;
    slot.limiter = other.limiter = limiter;
    CHECK_OK(before(&slot));
    CHECK_OK(slot.decision.status);
    CHECK(slot.decision.permit != 0);
    CHECK_STATUS(before(&other), LIMITER_DENIED);
    CHECK_STATUS(other.decision.status, LIMITER_DENIED);
    after(&other); /* took nothing, gives nothing back */
    CHECK_STATUS(before(&other), LIMITER_DENIED);
    after(&slot);
    CHECK_EQ(slot.decision.permit, 0);
    after(&slot); /* once */
    CHECK_EQ(stats_of(client).released, 1);
    CHECK_OK(before(&other));
    after(&other);
    CHECK_OK(before(&slot)); /* a slot is used again and again */
    after(&slot);
    CHECK_EQ(stats_of(client).in_flight, 0);
    close_client(client, limiter);
}

static void a_slot_that_holds_a_permit_takes_no_second(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_semaphore(5));
    limiter_slot slot = LIMITER_INIT(limiter_slot);
    limiter_permit held;
    slot.limiter = limiter;
    CHECK_OK(limiter_before_task(&slot));
    held = slot.decision.permit;
    CHECK_STATUS(limiter_before_task(&slot), LIMITER_INVALID);
    CHECK(slot.decision.permit == held); /* not forgotten either */
    CHECK_EQ(stats_of(client).in_flight, 1);
    limiter_after_task(&slot);
    CHECK_EQ(stats_of(client).in_flight, 0);
    close_client(client, limiter);
}

static void the_slots_request_is_what_is_asked(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_semaphore(5));
    limiter_slot slot = LIMITER_INIT(limiter_slot);
    slot.limiter = limiter;
    slot.request.key = "user";
    slot.request.key_len = 4;
    slot.request.weight = 3;
    slot.request.user_data = 99;
    CHECK_OK(limiter_before_task(&slot));
    CHECK_EQ(slot.decision.user_data, 99);
    CHECK_EQ(peek(limiter, "user", 1).remaining, 2);
    CHECK_EQ(peek(limiter, NULL, 1).remaining, 5);
    slot.request.weight = 9;
    limiter_after_task(&slot);
    CHECK_STATUS(limiter_before_task(&slot), LIMITER_NEVER);
    limiter_after_task(&slot);
    close_client(client, limiter);
}

static void slots_that_make_no_sense_are_invalid(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_semaphore(5));
    static const size_t sizes[] = {0, 8, 16, 64, 143, 168, 217, 65544, SIZE_MAX - 7};
    limiter_slot slot = LIMITER_INIT(limiter_slot);
    size_t i;
    CHECK_STATUS(limiter_before_task(&slot), LIMITER_INVALID); /* no limiter */
    CHECK_STATUS(slot.decision.status, LIMITER_INVALID);
    limiter_after_task(&slot);
    slot.limiter = limiter;
    slot.request.flags = 1u << 31;
    CHECK_STATUS(limiter_before_task(&slot), LIMITER_INVALID);
    CHECK_EQ(slot.decision.permit, 0);
    slot.request.flags = 0;
    for (i = 0; i < CHECK_COUNT(sizes); i++) {
        slot.struct_size = sizes[i];
        slot.decision.permit = 0;
        CHECK_STATUS(limiter_before_task(&slot), LIMITER_INVALID);
        slot.decision.permit = 77;
        limiter_after_task(&slot);
        CHECK_EQ(slot.decision.permit, 77); /* not touched */
    }
    slot.struct_size = sizeof slot;
    slot.decision.permit = 0;
    CHECK_OK(limiter_before_task(&slot));
    limiter_after_task(&slot);
    close_client(client, limiter);
}

/* Slots of an older and of a later program, and of one whose request says it goes on beyond its slot. */
static void slots_of_other_sizes(void) {
    limiter_client_t *client = open_virtual();
    limiter_t *limiter = make1(client, limiter_semaphore(5));
    struct {
        limiter_slot slot;
        uint64_t more[2];
    } later;
    size_t least = offsetof(limiter_slot, request) + offsetof(limiter_request, weights);
    limiter_slot fresh = LIMITER_INIT(limiter_slot);
    memset(&later, 0, sizeof later);
    later.slot = fresh;
    later.slot.limiter = limiter;
    later.slot.struct_size = least; /* an older one: key and weight, no more */
    later.slot.request.struct_size = offsetof(limiter_request, weights);
    later.slot.request.flags = 1u << 31; /* not in it */
    CHECK_OK(limiter_before_task(&later.slot));
    limiter_after_task(&later.slot);
    later.slot.request.struct_size = sizeof(limiter_request); /* beyond the slot's end */
    later.slot.request.flags = 0;
    CHECK_STATUS(limiter_before_task(&later.slot), LIMITER_INVALID);
    later.slot.struct_size = sizeof later;
    CHECK_OK(limiter_before_task(&later.slot));
    limiter_after_task(&later.slot);
    later.slot.request.struct_size = sizeof(limiter_request) + sizeof later.more; /* it grew */
    CHECK_OK(limiter_before_task(&later.slot));
    limiter_after_task(&later.slot);
    later.more[1] = 1; /* something that this library does not know */
    CHECK_STATUS(limiter_before_task(&later.slot), LIMITER_INVALID);
    later.slot.request.struct_size = sizeof(limiter_request);
    CHECK_STATUS(limiter_before_task(&later.slot), LIMITER_INVALID);
    CHECK_EQ(later.slot.decision.permit, 0);
    CHECK_EQ(stats_of(client).in_flight, 0);
    CHECK_EQ(stats_of(client).granted, 3);
    close_client(client, limiter);
}

typedef struct worker {
    limiter_slot slot;
    volatile int *running;
    int tasks;
    pthread_t thread;
} worker;

static void *work(void *argument) {
    worker *self = (worker *)argument;
    int i;
    for (i = 0; i < self->tasks; i++) {
        CHECK_OK(limiter_before_task(&self->slot));
        CHECK(__sync_add_and_fetch(self->running, 1) <= 3);
        sched_yield();
        __sync_sub_and_fetch(self->running, 1);
        limiter_after_task(&self->slot);
    }
    return NULL;
}

static void a_pool_never_runs_more_than_the_limit(void) {
    enum { N = 12 };
    static const limiter_slot fresh = LIMITER_INIT(limiter_slot);
    limiter_client_t *client = open_real();
    limiter_t *limiter = make1(client, limiter_semaphore(3));
    volatile int running = 0;
    worker workers[N];
    int i, tasks = check_times(2000);
    for (i = 0; i < N; i++) {
        workers[i].slot = fresh;
        workers[i].slot.limiter = limiter;
        workers[i].slot.request.wait_ms = -1;
        workers[i].running = &running;
        workers[i].tasks = tasks;
        CHECK(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    }
    for (i = 0; i < N; i++) pthread_join(workers[i].thread, NULL);
    CHECK_EQ(stats_of(client).granted, N * tasks);
    CHECK_EQ(stats_of(client).released, N * tasks);
    close_client(client, limiter);
}

int main(int argc, char **argv) {
    static const check_test tests[] = {
        CHECK_TEST(a_task_runs_between_the_hooks),
        CHECK_TEST(a_slot_that_holds_a_permit_takes_no_second),
        CHECK_TEST(the_slots_request_is_what_is_asked),
        CHECK_TEST(slots_that_make_no_sense_are_invalid),
        CHECK_TEST(slots_of_other_sizes),
        CHECK_TEST(a_pool_never_runs_more_than_the_limit),
    };
    return check_main(argc, argv, tests, CHECK_COUNT(tests));
}
