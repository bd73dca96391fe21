//! Public bug reports of other limiters, by the numbers of the collection: the input that broke them, and
//! what is right.

use limiter::decision::Status::*;
use limiter::limit::time::Span;
use limiter::op::Request;

use crate::kit::*;

#[test]
fn b_010_heavier_than_the_semaphore_is_refused_at_once_and_blocks_nobody() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(3)]);
    let queue = world.queue();
    assert_eq!(world.submit(&limiter, &queue, ask(4, EVER)).status, Never);
    assert_eq!(world.submit(&limiter, &queue, ask(1, EVER)).status, Ok);
}

#[test]
fn b_025_a_weight_of_zero_is_a_peek() {
    let world = World::new();
    let limiter = world.limiter("n", [slide(3, SEC)]);
    world.takes(&limiter, 1);
    for _ in 0..100 {
        let peek = world.try_(&limiter, 0);
        assert_eq!(
            (peek.status, peek.permit, peek.remaining, peek.limit),
            (Ok, 0, 2, 3)
        );
    }
    world.takes(&limiter, 2);
    assert_eq!(world.try_(&limiter, 0).status, Ok);
}

#[test]
fn b_029_work_does_not_depend_on_the_capacity() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(1 << 48)]);
    let permit = world.takes(&limiter, (1 << 48) - 1);
    world.takes(&limiter, 1);
    world.denied(&limiter, 1);
    world.memory.release(permit);
    assert_eq!(world.remaining(&limiter), (1 << 48) - 1);
}

#[test]
fn b_041_a_caller_that_obeys_is_never_denied_again() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(3, 7, SEC)]);
    for round in 0..1_000 {
        let decision = world.try_(&limiter, 1 + round % 3);
        if decision.status == Denied {
            world.pass(Span(decision.retry_after_us));
            world.takes(&limiter, 1 + round % 3);
        }
    }
}

#[test]
fn b_059_a_peek_changes_nothing() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(5, 1, SEC), slide(9, SEC)]);
    world.takes(&limiter, 3);
    let first = world.memory.peek(&limiter, &ask(1, EVER));
    for _ in 0..10 {
        assert_eq!(world.memory.peek(&limiter, &ask(1, EVER)), first);
    }
    assert_eq!((first.status, first.permit, first.remaining), (Ok, 0, 2));
    assert_eq!(world.memory.peek(&limiter, &ask(3, EVER)).status, Denied);
    assert_eq!(world.memory.peek(&limiter, &ask(9, EVER)).status, Never);
    assert_eq!(world.totals().denied + world.totals().never, 0);
}

#[test]
fn b_073_a_holder_outlives_its_lease_renewed_or_not() {
    let world = World::new();
    let queue = world.queue();
    let renewed = world.limiter("renewed", [sem(1)]);
    let request = Request {
        lease: Some(SEC),
        ..ask(1, EVER)
    };
    let held = world.submit(&renewed, &queue, request).permit;
    let second = world.waits(&renewed, &queue, ask(1, EVER));
    world.pass(Span::secs(3));
    assert_eq!(done(&queue), []);
    world.memory.release(held);
    assert_eq!(answers(&queue), [(second, Ok)]);

    let ending = world.limiter("ending", [leased(1, SEC)]);
    let held = world.takes(&ending, 1);
    world.pass(Span::millis(1_500));
    let second = world.takes(&ending, 1);
    assert_eq!(world.memory.release(held), Stale);
    assert_eq!(world.memory.release(second), Ok);
    assert_eq!(world.remaining(&ending), 1);
}

#[test]
fn b_074_a_wait_of_1_9_seconds_ends_then_and_capacity_is_intact() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(1)]);
    let queue = world.queue();
    let held = world.takes(&limiter, 1);
    let op = world.waits(&limiter, &queue, ask(1, Some(Span::millis(1_900))));
    world.pass(Span(1_899_999));
    assert_eq!(done(&queue), []);
    world.pass(Span(1));
    assert_eq!(answers(&queue), [(op, Denied)]);
    assert_eq!(world.memory.release(held), Ok);
    world.takes(&limiter, 1);
    world.denied(&limiter, 1);
}

#[test]
fn b_076_b_083_releasing_twice_late_or_garbage_never_grows_the_capacity() {
    let world = World::new();
    let limiter = world.limiter("n", [leased(5, SEC)]);
    let permits = [world.takes(&limiter, 2), world.takes(&limiter, 3)];
    for permit in permits {
        assert_eq!(world.memory.release(permit), Ok);
        assert_eq!(world.memory.release(permit), Stale);
        for garbage in [permit + 64, permit - 64, permit ^ 1, !permit, 1, 2, 3] {
            assert_ne!(world.memory.release(garbage), Ok);
        }
    }
    let late = world.takes(&limiter, 5);
    world.pass(SEC);
    assert_eq!(world.memory.release(late), Stale);
    assert_eq!(world.remaining(&limiter), 5);
}

#[test]
fn b_077_a_late_release_of_a_reaped_lease_is_no_release() {
    let world = World::new();
    let limiter = world.limiter("n", [leased(1, SEC)]);
    for _ in 0..10 {
        let first = world.takes(&limiter, 1);
        world.pass(SEC);
        let second = world.takes(&limiter, 1);
        assert_eq!(world.memory.release(first), Stale);
        world.denied(&limiter, 1);
        assert_eq!(world.memory.release(second), Ok);
    }
    assert_eq!(world.remaining(&limiter), 1);
}

#[test]
fn b_080_nobody_elses_permit_is_released() {
    let world = World::new();
    let limiter = world.limiter("n", [leased(1, SEC)]);
    let queue = world.queue();
    let a = world.takes(&limiter, 1);
    world.pass(Span::millis(1_500));
    let b = world.takes(&limiter, 1);
    world.pass(Span::millis(500));
    assert_eq!(world.memory.release(a), Stale);
    let c = world.waits(&limiter, &queue, ask(1, EVER));
    assert_eq!(done(&queue), []);
    world.memory.release(b);
    assert_eq!(answers(&queue), [(c, Ok)]);
}

#[test]
fn b_082_each_release_has_its_own_answer() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(2)]);
    let queue = world.queue();
    let short = Request {
        renew: false,
        lease: Some(SEC),
        ..ask(1, EVER)
    };
    let expired = world.submit(&limiter, &queue, short).permit;
    let live = world.takes(&limiter, 1);
    world.pass(SEC);
    let released = [live, expired, 12_345].map(|permit| world.memory.release(permit));
    assert_eq!(released, [Ok, Stale, Stale]);
    assert_eq!(world.remaining(&limiter), 2);
}

#[test]
fn b_085_a_lost_lease_is_not_silently_taken_again() {
    let world = World::new();
    let limiter = world.limiter("n", [leased(1, SEC)]);
    let lost = world.takes(&limiter, 1);
    world.pass(SEC);
    assert_eq!(
        world.memory.renew(lost, None),
        Stale,
        "also while nobody else has it"
    );
    world.takes(&limiter, 1);
    assert_eq!(world.memory.renew(lost, None), Stale);
}

#[test]
fn b_086_a_lease_belongs_to_its_permit() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(2)]);
    let queue = world.queue();
    let of = |s| Request {
        renew: false,
        lease: Some(Span::secs(s)),
        ..ask(1, EVER)
    };
    let (short, long) = (
        world.submit(&limiter, &queue, of(5)).permit,
        world.submit(&limiter, &queue, of(60)).permit,
    );
    world.pass(Span::secs(5));
    assert_eq!(world.memory.release(short), Stale);
    assert_eq!(world.memory.release(long), Ok);
}

#[test]
fn b_089_a_waiter_for_several_is_woken_by_the_last_of_single_releases() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(3)]);
    let queue = world.queue();
    let held = [0; 3].map(|_| world.takes(&limiter, 1));
    let op = world.waits(&limiter, &queue, ask(3, EVER));
    for (i, permit) in held.into_iter().enumerate() {
        assert_eq!(done(&queue), [], "before release {i}");
        world.memory.release(permit);
    }
    assert_eq!(answers(&queue), [(op, Ok)]);
}

#[test]
fn b_091_a_cancelled_head_lets_smaller_ones_pass_at_once() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(10)]);
    let queue = world.queue();
    world.takes(&limiter, 5);
    let w1 = world.waits(&limiter, &queue, ask(10, EVER));
    let w2 = world.waits(&limiter, &queue, ask(5, EVER));
    world.memory.cancel(w1, true);
    assert_eq!(answers(&queue), [(w2, Ok)]);
}

#[test]
fn b_092_cancelled_waiters_take_no_permit_with_them() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(1)]);
    let queue = world.queue();
    let held = world.takes(&limiter, 1);
    let waits: Vec<u64> = (0..40)
        .map(|_| world.waits(&limiter, &queue, ask(1, EVER)))
        .collect();
    for op in waits {
        assert_eq!(world.memory.cancel(op, true), Ok);
    }
    world.memory.release(held);
    assert_eq!(world.remaining(&limiter), 1);
    assert_eq!(done(&queue), []);
}

#[test]
fn b_100_what_takes_longer_than_the_wait_is_denied_at_once() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(1, 1, Span::secs(60))]);
    world.takes(&limiter, 1);
    let denied = world
        .memory
        .acquire_blocking(&limiter, &ask(1, Some(Span::secs(5))));
    assert_eq!((denied.status, denied.waited_us), (Denied, 0));
}

#[test]
fn b_101_refused_calls_book_nothing() {
    let world = World::new();
    let limiter = world.limiter("n", [pacer(1, SEC, 0)]);
    world.memory.pace(&limiter, &ask(1, EVER));
    for _ in 0..10 {
        let refused = world
            .memory
            .pace(&limiter, &ask(1, Some(Span::millis(500))));
        assert_eq!((refused.status, refused.permit), (Denied, 0));
    }
    assert_eq!(
        world.memory.pace(&limiter, &ask(1, EVER)).retry_after_us,
        1_000_000
    );
}

#[test]
fn b_103_waits_are_as_long_as_they_have_to_be() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(5, 5, SEC)]);
    let delays: Vec<u64> = (0..7)
        .map(|_| world.memory.pace(&limiter, &ask(1, EVER)).retry_after_us)
        .collect();
    assert_eq!(delays, [0, 0, 0, 0, 0, 200_000, 400_000]);
}

#[test]
fn b_104_a_wait_of_zero_admits_what_is_there() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(1, 1, SEC)]);
    let queue = world.queue();
    assert_eq!(
        world
            .submit(&limiter, &queue, ask(1, Some(Span::ZERO)))
            .status,
        Ok
    );
    assert_eq!(
        world
            .submit(&limiter, &queue, ask(1, Some(Span::ZERO)))
            .status,
        Denied
    );
}
