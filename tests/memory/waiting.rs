//! Who waits, in which order they are admitted, and when they are denied instead.
use std::sync::Arc;

use limiter::clock::Clock;
use limiter::decision::Status::*;
use limiter::decision::{Decision, NO_LIMIT};
use limiter::limit::time::Span;
use limiter::memory::Options;
use limiter::op::{Request, Sink, Weights};

use crate::kit::*;

#[test]
fn a_released_permit_goes_to_the_head_of_the_queue() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(1)]);
    let queue = world.queue();
    let first = world.takes(&limiter, 1);
    let a = world.waits(&limiter, &queue, ask(1, EVER));
    let b = world.waits(&limiter, &queue, ask(1, EVER));
    assert_eq!(done(&queue), []);
    world.pass(SEC);
    assert_eq!(world.memory.release(first), Ok);
    world.denied(&limiter, 1);
    let granted = done(&queue);
    assert_eq!((granted[0].op, granted[0].status), (a, Ok));
    assert_eq!(granted[0].waited_us, 1_000_000);
    // Its numbers would be old: whoever wants them peeks.
    assert_eq!((granted[0].limit, granted[0].index), (0, NO_LIMIT));
    assert_eq!(world.memory.release(granted[0].permit), Ok);
    assert_eq!(answers(&queue), [(b, Ok)]);
}

#[test]
fn waiters_are_told_how_many_are_ahead_and_get_their_user_data_back() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(1)]);
    let queue = world.queue();
    let held = world.takes(&limiter, 1);
    for n in 0..3 {
        let request = Request {
            user_data: 70 + n,
            ..ask(1, EVER)
        };
        let pending = world.submit(&limiter, &queue, request);
        assert_eq!(
            (pending.queue_position, pending.user_data),
            (n as u32, 70 + n)
        );
        assert_eq!((pending.permit, pending.retry_after_us), (0, 0));
    }
    world.memory.release(held);
    assert_eq!(done(&queue)[0].user_data, 70);
}

#[test]
fn a_rate_is_booked_and_the_wait_ends_at_its_time() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(1, 1, SEC)]);
    let queue = world.queue();
    world.takes(&limiter, 1);
    let ops: Vec<u64> = (0..3)
        .map(|_| world.waits(&limiter, &queue, ask(1, EVER)))
        .collect();
    assert_eq!(world.totals().waiting, 3);
    for op in ops {
        world.pass(Span(999_999));
        assert_eq!(done(&queue), []);
        world.pass(Span(1));
        assert_eq!(answers(&queue), [(op, Ok)]);
    }
    assert_eq!(world.totals().waiting, 0);
}

#[test]
fn what_falls_due_in_one_step_of_the_clock_happens_each_at_its_own_time() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(1, 1, SEC)]);
    let queue = world.queue();
    world.takes(&limiter, 1);
    for _ in 0..3 {
        world.waits(&limiter, &queue, ask(1, EVER));
    }
    world.pass(Span::secs(60));
    let waited: Vec<u64> = done(&queue).iter().map(|d| d.waited_us).collect();
    assert_eq!(waited, [1_000_000, 2_000_000, 3_000_000]);
}

#[test]
fn try_never_overtakes_those_who_wait_even_if_it_would_fit() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(10)]);
    let queue = world.queue();
    let five = world.takes(&limiter, 5);
    let heavy = world.waits(&limiter, &queue, ask(10, EVER));
    let light = world.waits(&limiter, &queue, ask(1, EVER));
    world.denied(&limiter, 1);
    assert_eq!(world.memory.peek(&limiter, &ask(1, EVER)).status, Denied);
    assert_eq!(world.memory.peek(&limiter, &ask(0, EVER)).status, Ok);
    world.memory.release(five);
    let granted = done(&queue);
    assert_eq!((granted.len(), granted[0].op), (1, heavy));
    world.memory.release(granted[0].permit);
    assert_eq!(answers(&queue), [(light, Ok)]);
}

#[test]
fn try_does_not_overtake_a_booking_either() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(10, 1, SEC)]);
    let queue = world.queue();
    world.takes(&limiter, 5);
    world.waits(&limiter, &queue, ask(10, EVER));
    // Five are there, but they are spoken for.
    assert_eq!(world.denied(&limiter, 1), Span::secs(6));
    world.pass(Span::secs(6));
    world.takes(&limiter, 1);
}

#[test]
fn a_wait_known_to_exceed_its_deadline_is_denied_at_once_and_books_nothing() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(1, 1, Span::secs(60))]);
    let queue = world.queue();
    world.takes(&limiter, 1);
    for _ in 0..10 {
        let denied = world.submit(&limiter, &queue, ask(1, Some(Span::secs(5))));
        assert_eq!((denied.status, denied.retry_after_us), (Denied, 60_000_000));
    }
    assert_eq!(world.denied(&limiter, 1), Span::secs(60));
    world.waits(&limiter, &queue, ask(1, Some(Span::secs(60))));
}

#[test]
fn rates_that_exceed_the_deadline_deny_at_once_behind_a_full_semaphore_too() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(1), tb(1, 1, Span::secs(60))]);
    let queue = world.queue();
    world.takes(&limiter, 1);
    let denied = world.submit(&limiter, &queue, ask(1, Some(Span::secs(59))));
    assert_eq!((denied.status, denied.index), (Denied, 0));
    world.waits(&limiter, &queue, ask(1, Some(Span::secs(60))));
}

#[test]
fn a_deadline_in_the_queue_denies_exactly_then_and_lets_those_behind_pass() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(2)]);
    let queue = world.queue();
    let held = world.takes(&limiter, 1);
    let heavy = world.waits(&limiter, &queue, ask(2, Some(SEC)));
    let light = world.waits(&limiter, &queue, ask(1, EVER));
    world.pass(Span(999_999));
    assert_eq!(done(&queue), []);
    world.pass(Span(1));
    let both = done(&queue);
    assert_eq!((both[0].op, both[0].status), (heavy, Denied));
    assert_eq!(both[0].waited_us, 1_000_000);
    assert!(both[0].retry_after_us > 0);
    assert_eq!((both[1].op, both[1].status), (light, Ok));
    assert_eq!(world.memory.release(held), Ok);
    assert_eq!(world.memory.release(both[1].permit), Ok);
    assert_eq!(world.remaining(&limiter), 2);
}

#[test]
fn a_grant_at_the_very_deadline_is_in_time() {
    let world = World::new();
    let limiter = world.limiter("n", [leased(1, SEC)]);
    let queue = world.queue();
    world.takes(&limiter, 1);
    let op = world.waits(&limiter, &queue, ask(1, Some(SEC)));
    world.pass(SEC);
    assert_eq!(answers(&queue), [(op, Ok)]);
}

#[test]
fn a_composite_waits_for_the_release_and_is_then_booked_for_its_rate() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(1), tb(1, 1, Span::secs(10))]);
    let queue = world.queue();
    let held = world.takes(&limiter, 1);
    let a = world.waits(&limiter, &queue, ask(1, EVER));
    let b = world.waits(&limiter, &queue, ask(1, EVER));
    world.pass(Span::secs(4));
    world.memory.release(held);
    assert_eq!(done(&queue), [], "the rate is still in the way");
    world.pass(Span::secs(6));
    let granted = done(&queue);
    assert_eq!((granted[0].op, granted.len()), (a, 1));
    world.pass(Span::secs(60));
    assert_eq!(done(&queue), [], "the first holds the semaphore");
    world.memory.release(granted[0].permit);
    assert_eq!(answers(&queue), [(b, Ok)]);
}

#[test]
fn heavier_than_the_limit_is_never_at_once_whatever_the_wait() {
    let world = World::new();
    let queue = world.queue();
    for rule in [sem(3), tb(3, 1, SEC), slide(3, SEC)] {
        let limiter = world.limiter("n", [rule]);
        let never = world.submit(&limiter, &queue, ask(4, EVER));
        assert_eq!(
            (never.status, never.index, never.retry_after_us),
            (Never, 0, u64::MAX)
        );
        world.takes(&limiter, 1);
        assert_eq!(world.submit(&limiter, &queue, ask(4, EVER)).status, Never);
    }
    assert_eq!((world.totals().never, world.totals().waiting), (6, 0));
}

#[test]
fn waiters_that_became_too_heavy_hear_never_at_once_wherever_they_stand() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(5)]);
    let queue = world.queue();
    let held = world.takes(&limiter, 5);
    let a = world.waits(&limiter, &queue, ask(1, EVER));
    let heavy = world.waits(&limiter, &queue, ask(4, EVER));
    let b = world.waits(&limiter, &queue, ask(1, EVER));
    let lowered = world.limiter("n", [sem(3)]);
    world.denied(&lowered, 1);
    assert_eq!(answers(&queue), [(heavy, Never)]);
    world.memory.release(held);
    assert_eq!(answers(&queue), [(a, Ok), (b, Ok)]);
}

#[test]
fn more_waits_than_allowed_are_answered_overloaded_and_book_nothing() {
    let options = Options {
        max_waiting: 2,
        ..OPTIONS
    };
    let world = World::with(Clock::virtual_clock(), options, None);
    let limiter = world.limiter("n", [tb(1, 1, SEC)]);
    let queue = world.queue();
    world.takes(&limiter, 1);
    world.waits(&limiter, &queue, ask(1, EVER));
    let op = world.waits(&limiter, &queue, ask(1, EVER));
    assert_eq!(
        world.submit(&limiter, &queue, ask(1, EVER)).status,
        Overloaded
    );
    assert_eq!(world.denied(&limiter, 1), Span::secs(3));
    assert_eq!(world.memory.cancel(op, false), Ok);
    world.waits(&limiter, &queue, ask(1, EVER));
    assert_eq!(world.totals().overloaded, 1);
}

/// Nobody who asks can know how many there are.
#[test]
fn words_of_lost_leases_leave_room_for_completions() {
    let options = Options {
        max_waiting: 2,
        ..OPTIONS
    };
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let gone = std::sync::Mutex::new(gone);
    let hook = Arc::new(move |_| {
        let _ = gone.lock().unwrap().recv();
    });
    let world = World::with(Clock::virtual_clock(), options, Some(hook));
    let limiter = world.limiter("n", [leased(10, SEC)]);
    let queue = world.queue();
    let told = Request {
        tell_lost: true,
        ..ask(1, EVER)
    };
    for _ in 0..5 {
        assert_eq!(world.submit(&limiter, &queue, told).status, Ok);
        // Of these the hook is told.
        world.takes(&limiter, 1);
    }
    world.pass(SEC);
    assert_eq!((queue.len(), world.totals().lost), (5, 10));
    world.takes(&limiter, 10);
    world.waits(&limiter, &queue, ask(1, EVER));
    let sink = Sink::Callback(Box::new(|_| {}));
    let waits = world.memory.acquire(&limiter, &ask(1, EVER), sink);
    assert_eq!((waits.status, world.totals().overloaded), (Pending, 0));
    drop(go);
}

#[test]
fn completions_that_nobody_takes_are_bounded_too() {
    let options = Options {
        max_waiting: 2,
        ..OPTIONS
    };
    let world = World::with(Clock::virtual_clock(), options, None);
    let limiter = world.limiter("n", [tb(1, 1, SEC)]);
    let queue = world.queue();
    world.takes(&limiter, 1);
    for _ in 0..2 {
        world.waits(&limiter, &queue, ask(1, EVER));
    }
    world.pass(Span::secs(2));
    assert_eq!(
        world.submit(&limiter, &queue, ask(1, EVER)).status,
        Overloaded
    );
    assert_eq!(done(&queue).len(), 2);
    world.waits(&limiter, &queue, ask(1, EVER));

    let (go, gone) = std::sync::mpsc::channel::<()>();
    let (begun, began) = std::sync::mpsc::channel::<()>();
    let busy = move |_: Decision| {
        begun.send(()).unwrap();
        gone.recv().unwrap();
    };
    let call = |callback| {
        world
            .memory
            .acquire(&limiter, &ask(0, EVER), Sink::Callback(callback))
    };
    assert_eq!(call(Box::new(busy)).status, Pending);
    began.recv().unwrap();
    for _ in 0..2 {
        assert_eq!(call(Box::new(|_| {})).status, Pending);
    }
    assert_eq!(
        call(Box::new(|_| unreachable!("nothing was started"))).status,
        Overloaded
    );
    go.send(()).unwrap();
    assert_eq!(world.memory.shutdown(None), Ok);
}

#[test]
fn pace_books_and_answers_the_delay() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(1, 1, SEC)]);
    let delays: Vec<u64> = (0..4)
        .map(|_| world.memory.pace(&limiter, &ask(1, EVER)).retry_after_us)
        .collect();
    assert_eq!(delays, [0, 1_000_000, 2_000_000, 3_000_000]);
    let refused = world.memory.pace(&limiter, &ask(1, Some(Span::secs(3))));
    assert_eq!(
        (refused.status, refused.retry_after_us),
        (Denied, 4_000_000)
    );
    let booked = world.memory.pace(&limiter, &ask(1, Some(Span::secs(4))));
    assert_eq!((booked.status, booked.retry_after_us), (Ok, 4_000_000));
    assert_ne!(booked.permit, 0);
    let holding = world.limiter("s", [sem(1), tb(1, 1, SEC)]);
    assert_eq!(world.memory.pace(&holding, &ask(1, EVER)).status, Invalid);
}

#[test]
fn a_paced_booking_released_before_its_time_is_given_back_and_after_it_is_not() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(1, 1, SEC)]);
    let pace = || world.memory.pace(&limiter, &ask(1, EVER));
    pace();
    let (a, b) = (pace(), pace());
    assert_eq!(world.memory.release(b.permit), Ok);
    assert_eq!(world.memory.release(b.permit), Stale);
    assert_eq!(
        pace().retry_after_us,
        2_000_000,
        "the slot of the newest is free again"
    );
    world.pass(SEC);
    assert_eq!(world.memory.release(a.permit), Ok);
    assert_eq!(pace().retry_after_us, 2_000_000, "its time had come");
}

#[test]
fn the_weights_of_each_limit_can_be_given() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(10), tb(100, 1, SEC)]);
    let each = |weights| Request {
        weights: Weights::Each(weights),
        ..Request::TRY
    };
    let taken = world.memory.acquire_blocking(&limiter, &each(&[1, 90]));
    assert_eq!((taken.status, taken.limit, taken.remaining), (Ok, 10, 9));
    let denied = world.memory.acquire_blocking(&limiter, &each(&[1, 20]));
    assert_eq!(
        (denied.status, denied.index, denied.retry_after_us),
        (Denied, 1, 10_000_000)
    );
    assert_eq!(
        world
            .memory
            .acquire_blocking(&limiter, &each(&[1, 0]))
            .status,
        Ok
    );
    for wrong in [&[1][..], &[1, 1, 1], &[]] {
        assert_eq!(
            world.memory.acquire_blocking(&limiter, &each(wrong)).status,
            Invalid
        );
    }
    assert_eq!(
        world
            .memory
            .acquire_blocking(&limiter, &each(&[0, 0]))
            .permit,
        0
    );
}

#[test]
fn many_are_tried_in_order_each_for_itself() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(2)]);
    let requests = [
        on(b"a", 2, EVER),
        on(b"a", 1, EVER),
        on(b"b", 3, EVER),
        on(b"b", 1, EVER),
    ];
    let decided = world.memory.try_many(&limiter, &requests);
    let statuses: Vec<_> = decided.iter().map(|d| d.status).collect();
    assert_eq!(statuses, [Ok, Denied, Never, Ok]);
    assert_eq!(world.totals().waiting, 0);
}

#[test]
fn a_denial_is_honest_one_tick_earlier_is_denied_and_then_it_passes() {
    let world = World::new();
    for (i, rule) in [
        tb(3, 7, SEC),
        slide(3, SEC),
        pacer(3, SEC, 2),
        leased(3, SEC),
    ]
    .into_iter()
    .enumerate()
    {
        let limiter = world.limiter(&format!("n{i}"), [rule]);
        for weight in [3, 1, 2, 3, 1, 1, 3] {
            let decision = world.try_(&limiter, weight);
            if decision.status == Ok {
                continue;
            }
            let wait = Span(decision.retry_after_us);
            world.pass(Span(wait.0 - 1));
            world.denied(&limiter, weight);
            world.pass(Span(1));
            world.takes(&limiter, weight);
        }
    }
}

#[test]
fn a_blocked_thread_is_woken_by_the_clock_a_release_and_its_deadline() {
    let world = Arc::new(World::new());
    let limiter = world.limiter("n", [sem(1), tb(2, 1, SEC)]);
    let held = world.takes(&limiter, 1);
    let blocked = |wait| {
        let (world, limiter) = (world.clone(), limiter.clone());
        let before = world.totals().waiting;
        let thread =
            std::thread::spawn(move || world.memory.acquire_blocking(&limiter, &ask(1, wait)));
        (thread, before)
    };
    let wait_for = |n: u64| {
        while world.totals().waiting != n {
            std::thread::yield_now();
        }
    };
    let (late, before) = blocked(Some(Span::secs(2)));
    wait_for(before + 1);
    world.pass(Span::secs(2));
    let denied = late.join().unwrap();
    assert_eq!((denied.status, denied.waited_us), (Denied, 2_000_000));
    let (woken, before) = blocked(EVER);
    wait_for(before + 1);
    world.memory.release(held);
    let granted = woken.join().unwrap();
    assert_eq!(granted.status, Ok);
    world.memory.release(granted.permit);
    world.takes(&limiter, 1);
}
