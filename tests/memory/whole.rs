//! Penalty, reset, shutdown, and limits that change.
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use limiter::clock::Clock;
use limiter::decision::Decision;
use limiter::decision::Status::*;
use limiter::limit::rule::Rule;
use limiter::limit::time::Span;
use limiter::limit::token_bucket::TokenBucket;
use limiter::memory::Options;
use limiter::op::Sink;

use crate::kit::*;

#[test]
fn nothing_starts_before_a_penalty_ends_whatever_the_kind() {
    let world = World::new();
    let queue = world.queue();
    for (i, rule) in [sem(5), tb(5, 1, SEC), slide(5, SEC), pacer(5, SEC, 5)]
        .into_iter()
        .enumerate()
    {
        let limiter = world.limiter(&format!("n{i}"), [rule]);
        assert_eq!(world.memory.penalize(&limiter, b"", Span::secs(10)), Ok);
        assert_eq!(world.denied(&limiter, 1), Span::secs(10));
        assert_eq!(world.memory.penalize(&limiter, b"", Span::secs(3)), Ok);
        assert_eq!(world.denied(&limiter, 1), Span::secs(10), "not shortened");
        let late = world.submit(&limiter, &queue, ask(1, Some(Span(9_999_999))));
        assert_eq!(late.status, Denied);
        let op = world.waits(&limiter, &queue, ask(1, Some(Span::secs(10))));
        world.pass(Span(9_999_999));
        assert_eq!(done(&queue), []);
        world.pass(Span(1));
        assert_eq!(answers(&queue), [(op, Ok)]);
        world.takes(&limiter, 1);
    }
}

#[test]
fn a_penalty_is_bounded_and_hits_one_key() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(1)]);
    assert_eq!(world.memory.penalize(&limiter, b"a", Span::MAX), Ok);
    let denied = world
        .memory
        .acquire_blocking(&limiter, &on(b"a", 1, Some(Span::ZERO)));
    assert_eq!(
        (denied.status, denied.retry_after_us),
        (Denied, 3_600_000_000)
    );
    let fine = world
        .memory
        .acquire_blocking(&limiter, &on(b"b", 1, Some(Span::ZERO)));
    assert_eq!(fine.status, Ok);
}

#[test]
fn a_penalty_puts_off_what_is_booked_in_order_and_denies_what_comes_too_late() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(1, 1, SEC)]);
    let queue = world.queue();
    world.takes(&limiter, 1);
    let a = world.waits(&limiter, &queue, ask(1, EVER));
    let late = world.waits(&limiter, &queue, ask(1, Some(Span::secs(3))));
    let b = world.waits(&limiter, &queue, ask(1, EVER));
    world.pass(Span::millis(500));
    world.memory.penalize(&limiter, b"", Span::secs(10));
    let denied = done(&queue);
    assert_eq!(
        (denied.len(), denied[0].op, denied[0].status),
        (1, late, Denied)
    );
    world.pass(Span(9_999_999));
    assert_eq!(done(&queue), []);
    world.pass(Span(1));
    assert_eq!(answers(&queue), [(a, Ok)]);
    world.pass(Span::secs(2));
    assert_eq!(answers(&queue), [(b, Ok)]);
}

#[test]
fn the_slot_of_a_wait_that_a_penalty_makes_too_late_goes_to_the_next() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(1, 1, SEC)]);
    let queue = world.queue();
    world.takes(&limiter, 1);
    let late = world.waits(&limiter, &queue, ask(1, Some(Span::secs(3))));
    let patient = world.waits(&limiter, &queue, ask(1, EVER));
    world.memory.penalize(&limiter, b"", Span::secs(10));
    let denied = done(&queue);
    assert_eq!((denied[0].op, denied[0].status), (late, Denied));
    assert_eq!(
        denied[0].retry_after_us, 11_000_000,
        "behind the one that waits"
    );
    world.pass(Span::secs(10));
    assert_eq!(answers(&queue), [(patient, Ok)]);
}

#[test]
fn a_penalty_that_changes_nothing_leaves_what_is_booked_as_it_is() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(1, 1, SEC)]);
    let queue = world.queue();
    world.takes(&limiter, 1);
    let a = world.waits(&limiter, &queue, ask(1, EVER));
    for penalty in [1_000_000, 500_000] {
        world.memory.penalize(&limiter, b"", Span(penalty));
        assert_eq!(world.denied(&limiter, 1), Span::secs(2), "as booked");
    }
    for penalty in [5_000_000, 5_000_000, 4_999_999, 0] {
        world.memory.penalize(&limiter, b"", Span(penalty));
        assert_eq!(world.denied(&limiter, 1), Span::secs(6), "as penalized");
    }
    world.pass(Span(4_999_999));
    assert_eq!(done(&queue), []);
    world.pass(Span(1));
    assert_eq!(answers(&queue), [(a, Ok)]);
}

#[test]
fn a_penalty_that_meets_a_change_of_limits_books_those_who_wait_once() {
    let world = World::new();
    let queue = world.queue();
    let limiter = world.limiter("n", [tb(1, 1, SEC)]);
    world.takes(&limiter, 1);
    let ops: Vec<u64> = (0..3)
        .map(|_| world.waits(&limiter, &queue, ask(1, EVER)))
        .collect();
    // Now twice as fast: still not before the penalty ends.
    let faster = world.limiter("n", [tb(1, 2, SEC)]);
    world.memory.penalize(&faster, b"", Span::millis(1_500));
    assert_eq!(world.denied(&faster, 1), Span::millis(3_000));
    for (op, after) in ops.into_iter().zip([1_500, 500, 500]) {
        world.pass(Span(after * 1_000 - 1));
        assert_eq!(done(&queue), []);
        world.pass(Span(1));
        assert_eq!(answers(&queue), [(op, Ok)]);
    }
}

#[test]
fn raised_limits_let_start_before_a_penalty_comes_and_not_after_it() {
    let world = World::new();
    let queue = world.queue();
    let limiter = world.limiter("n", [sem(1), tb(9, 1, SEC)]);
    world.takes(&limiter, 1);
    let op = world.waits(&limiter, &queue, ask(1, EVER));
    let raised = world.limiter("n", [sem(2), tb(9, 1, SEC)]);
    assert_eq!(answers(&queue), [(op, Ok)]);
    let op = world.waits(&raised, &queue, ask(1, EVER));
    world.memory.penalize(&raised, b"", Span::secs(10));
    let _raised = world.limiter("n", [sem(3), tb(9, 1, SEC)]);
    world.pass(Span(9_999_999));
    assert_eq!(done(&queue), []);
    world.pass(Span(1));
    assert_eq!(answers(&queue), [(op, Ok)]);
}

#[test]
fn a_penalty_reaches_those_who_wait_for_a_release() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(1)]);
    let queue = world.queue();
    let held = world.takes(&limiter, 1);
    let op = world.waits(&limiter, &queue, ask(1, EVER));
    world.memory.penalize(&limiter, b"", Span::secs(10));
    world.memory.release(held);
    world.pass(Span(9_999_999));
    assert_eq!(done(&queue), []);
    world.pass(Span(1));
    assert_eq!(answers(&queue), [(op, Ok)]);
}

#[test]
fn a_blocked_thread_honours_a_penalty_on_a_real_clock() {
    let world = Arc::new(World::real());
    let limiter = world.limiter("n", [tb(1, 1, SEC)]);
    // Whoever is not looked at for a second starts before there is a penalty: then once more.
    let deadline = Instant::now() + Duration::from_secs(300);
    while Instant::now() < deadline {
        let thread = {
            let (world, limiter) = (world.clone(), limiter.clone());
            std::thread::spawn(move || world.memory.acquire_blocking(&limiter, &ask(1, EVER)))
        };
        while world.totals().waiting == 0 && !thread.is_finished() {
            std::thread::yield_now();
        }
        if world.totals().waiting == 0 {
            assert_eq!(thread.join().unwrap().status, Ok);
            continue;
        }
        let length = Span::millis(1_200);
        let from = world.now();
        world.memory.penalize(&limiter, b"", length);
        assert_eq!(thread.join().unwrap().status, Ok);
        if world.now().since(from) >= length {
            return;
        }
    }
    panic!("it started before the penalty was over, each time");
}

#[test]
fn reset_makes_a_key_as_new_ends_its_permits_and_decides_those_who_wait_anew() {
    let world = World::new();
    let queue = world.queue();
    let limiter = world.limiter("n", [sem(2), tb(3, 1, SEC)]);
    let held = world.takes(&limiter, 2);
    let ops: Vec<u64> = (0..3)
        .map(|_| world.waits(&limiter, &queue, ask(1, EVER)))
        .collect();
    world.memory.penalize(&limiter, b"", Span::secs(60));
    assert_eq!(world.memory.reset(&limiter, b""), Ok);
    assert_eq!(answers(&queue), [(ops[0], Ok), (ops[1], Ok)]);
    assert_eq!(world.memory.release(held), Stale);
    assert_eq!(world.memory.settle(held, 0), Stale);
    assert_eq!((world.totals().in_flight, world.totals().waiting), (2, 1));
    let rate = world.limiter("r", [tb(2, 1, SEC)]);
    let old = world.takes(&rate, 2);
    let booked: Vec<u64> = (0..3)
        .map(|_| world.waits(&rate, &queue, ask(1, EVER)))
        .collect();
    assert_eq!(world.memory.reset(&rate, b""), Ok);
    assert_eq!(answers(&queue), [(booked[0], Ok), (booked[1], Ok)]);
    assert_eq!(world.memory.settle(old, 0), Stale);
    world.pass(SEC);
    assert_eq!(answers(&queue), [(booked[2], Ok)]);
    assert_eq!(world.memory.reset(&rate, b"never seen"), Ok);
}

#[test]
fn a_reset_that_starts_a_bucket_empty_denies_whom_it_makes_too_late() {
    let world = World::new();
    let queue = world.queue();
    let rule = TokenBucket::new(2, 1, Span::secs(10), true).unwrap();
    let limiter = world.limiter("n", [Rule::TokenBucket(rule)]);
    world.denied(&limiter, 2);
    world.pass(Span::secs(19));
    let late = world.waits(&limiter, &queue, ask(2, Some(SEC)));
    let patient = world.waits(&limiter, &queue, ask(2, EVER));
    assert_eq!(world.memory.reset(&limiter, b""), Ok);
    let denied = done(&queue);
    assert_eq!((denied[0].op, denied[0].status), (late, Denied));
    assert_eq!(
        denied[0].retry_after_us, 40_000_000,
        "behind the one that waits"
    );
    world.pass(Span::secs(20));
    assert_eq!(answers(&queue), [(patient, Ok)]);
}

#[test]
fn a_thread_that_waits_without_a_deadline_is_woken_when_a_reset_books_it() {
    let world = Arc::new(World::real());
    let limiter = world.limiter("n", [sem(1), tb(1, 1, Span::millis(30))]);
    world.takes(&limiter, 1);
    // The second is started when the first waits: who came first is admitted first, and joined first.
    let threads = [1, 2].map(|waiting| {
        let (their_world, their_limiter) = (world.clone(), limiter.clone());
        let thread = std::thread::spawn(move || {
            their_world
                .memory
                .acquire_blocking(&their_limiter, &ask(1, EVER))
        });
        while world.totals().waiting < waiting {
            std::thread::yield_now();
        }
        thread
    });
    world.memory.reset(&limiter, b"");
    for thread in threads {
        let decision = thread.join().unwrap();
        assert_eq!(decision.status, Ok);
        world.memory.release(decision.permit);
    }
}

#[test]
fn shutdown_ends_every_wait_releases_every_permit_and_refuses_every_call() {
    let world = Arc::new(World::new());
    let limiter = world.limiter("n", [sem(1)]);
    let rate = world.limiter("r", [tb(1, 1, SEC)]);
    let queue = world.queue();
    let permit = world.takes(&limiter, 1);
    world.takes(&rate, 1);
    let a = world.waits(&limiter, &queue, ask(1, EVER));
    let b = world.waits(&rate, &queue, ask(1, EVER));
    let (tell, told) = mpsc::channel();
    let callback = Box::new(move |decision: Decision| tell.send(decision.status).unwrap());
    world
        .memory
        .acquire(&limiter, &ask(1, EVER), Sink::Callback(callback));
    let thread = {
        let (world, limiter) = (world.clone(), limiter.clone());
        std::thread::spawn(move || {
            world
                .memory
                .acquire_blocking(&limiter, &ask(1, EVER))
                .status
        })
    };
    while world.totals().waiting < 4 {
        std::thread::yield_now();
    }
    assert_eq!(world.memory.shutdown(Some(Duration::from_secs(60))), Ok);
    assert_eq!(thread.join().unwrap(), Closed);
    assert_eq!(
        told.try_recv(),
        Result::Ok(Closed),
        "due callbacks have run"
    );
    let mut ended = answers(&queue);
    ended.sort_by_key(|(op, _)| *op);
    assert_eq!(ended, [(a, Closed), (b, Closed)]);
    assert_eq!(queue.poll(1, None), Err(Closed));
    let totals = world.totals();
    assert_eq!((totals.in_flight, totals.waiting, totals.keys), (0, 0, 0));
    assert_eq!(world.memory.shutdown(None), Ok);
    for status in [
        world
            .memory
            .acquire_blocking(&limiter, &ask(1, EVER))
            .status,
        world.memory.pace(&rate, &ask(1, EVER)).status,
        world.memory.peek(&limiter, &ask(1, EVER)).status,
        world.submit(&limiter, &queue, ask(1, EVER)).status,
        world.memory.release(permit),
        world.memory.renew(permit, None),
        world.memory.settle(permit, 1),
        world.memory.reset(&limiter, b""),
        world.memory.penalize(&limiter, b"", SEC),
    ] {
        assert_eq!(status, Closed);
    }
    assert_eq!(world.memory.cancel_waits(0), 0);
    assert_eq!(world.memory.cancel(a, false), Stale);
    assert!(world.queue().poll(1, None).is_err());
}

#[test]
fn a_shutdown_does_not_wait_longer_than_it_may_for_a_callback() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(1)]);
    let (go, gone) = mpsc::channel::<()>();
    let (begun, began) = mpsc::channel::<()>();
    let callback = move |_: Decision| {
        begun.send(()).unwrap();
        gone.recv().unwrap();
    };
    world
        .memory
        .acquire(&limiter, &ask(1, EVER), Sink::Callback(Box::new(callback)));
    began.recv().unwrap();
    assert_eq!(
        world.memory.shutdown(Some(Duration::from_millis(1))),
        Timeout
    );
    go.send(()).unwrap();
    assert_eq!(world.memory.shutdown(None), Ok);
}

#[test]
fn dropping_the_backend_completes_what_waits() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(1)]);
    let queue = world.queue();
    world.takes(&limiter, 1);
    let op = world.waits(&limiter, &queue, ask(1, EVER));
    drop(world);
    assert_eq!(answers(&queue), [(op, Closed)]);
    assert_eq!(queue.poll(1, None), Err(Closed));
}

#[test]
fn the_clock_is_moved_by_hand_only_where_it_is_virtual() {
    let world = World::new();
    let start = world.now();
    world.pass(SEC);
    assert_eq!(
        world.memory.clock_set(start),
        Ok,
        "back: no time has passed"
    );
    assert_eq!(world.now(), start + SEC);
    world.pass(SEC);
    assert_eq!(world.now(), start + Span::secs(2));
    let real = World::real();
    assert_eq!(real.memory.clock_advance(SEC), Unsupported);
    assert_eq!(real.memory.clock_set(start), Unsupported);
}

#[test]
fn a_clock_that_steps_back_gives_nothing_twice_and_stalls_nothing() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(10, 1, SEC)]);
    let start = world.now();
    world.takes(&limiter, 10);
    world.pass(Span::secs(10));
    world.memory.clock_set(start + Span::secs(7));
    world.takes(&limiter, 10);
    assert_eq!(world.denied(&limiter, 1), SEC);
    world.pass(SEC);
    world.takes(&limiter, 1);
}

/// What was booked before a change of limits goes by the new ones; a penalty moves it by as much as it has to,
/// and nobody else comes in between.
#[test]
fn a_penalty_moves_what_was_booked_before_a_change_of_limits_once() {
    let world = World::new();
    let queue = world.queue();
    let limiter = world.limiter("n", [tb(1, 1, SEC), sem(100)]);
    world.takes(&limiter, 1);
    let op = |wait| world.waits(&limiter, &queue, ask(1, wait));
    let ops: Vec<u64> = (0..9).map(|_| op(EVER)).collect();
    let late = op(Some(Span::secs(11)));
    let faster = world.limiter("n", [tb(1, 2, SEC), sem(100)]);
    assert_eq!(world.denied(&faster, 1), Span::millis(5_500));
    world.memory.penalize(&faster, b"", Span::secs(7));
    assert_eq!(answers(&queue), [(late, Denied)]);
    assert_eq!(world.denied(&faster, 1), Span::millis(11_500));
    world.memory.penalize(&faster, b"", Span::secs(2));
    world.pass(Span(6_999_999));
    for op in ops {
        assert_eq!(done(&queue), []);
        world.pass(Span(1));
        assert_eq!(answers(&queue), [(op, Ok)]);
        world.pass(Span(499_999));
    }
    assert_eq!(world.denied(&faster, 1), Span(1));
    world.pass(Span(1));
    world.takes(&faster, 1);
    assert_eq!(world.denied(&faster, 1), Span::millis(500));
}

/// A version is a number to tell newer from older by; it changes nothing of what was taken.
#[test]
fn a_permit_is_settled_also_after_a_change_of_nothing_but_the_version() {
    let world = World::new();
    let rule = || [tb(10, 1, Span::secs(1_000))];
    let first = world.versioned("n", 1, rule());
    let permit = world.takes(&first, 4);
    let paced = world.takes(&first, 1);
    drop(first);
    let second = world.versioned("n", 2, rule());
    assert_eq!(world.remaining(&second), 5);
    for n in 0..1_000u32 {
        world.limiter(&n.to_string(), rule());
    }
    assert_eq!(world.memory.settle(permit, 1), Ok);
    assert_eq!(world.remaining(&second), 8);
    assert_eq!(world.memory.settle(paced, 6), Ok);
    assert_eq!(world.remaining(&second), 3);
    let third = world.versioned("n", 3, [tb(10, 2, Span::secs(1_000))]);
    let permit = world.takes(&second, 1);
    drop((second, third));
    world.versioned("n", 3, rule());
    assert_eq!(world.memory.settle(permit, 9), Ok);
}

/// Whether its key was forgotten meanwhile, because it was as new, makes no difference.
#[test]
fn a_permit_of_a_key_that_was_forgotten_is_settled_or_ended_as_any_other() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(10, 1, SEC)]);
    for reset_before in [false, true] {
        if reset_before {
            world.takes(&limiter, 1);
            assert_eq!(world.memory.reset(&limiter, b""), Ok);
        }
        let (late, ended) = (world.takes(&limiter, 1), world.takes(&limiter, 1));
        while world.totals().keys > 0 {
            world.pass(SEC);
        }
        assert_eq!(world.memory.settle(late, 5), Ok);
        assert_eq!(world.remaining(&limiter), 6);
        while world.totals().keys > 0 {
            world.pass(SEC);
        }
        assert_eq!(world.memory.reset(&limiter, b""), Ok);
        assert_eq!(world.memory.settle(ended, 5), Stale);
        assert_eq!(world.remaining(&limiter), 10);
    }
}

/// A handle that is closed has not taken back what it said.
#[test]
fn limits_stay_the_newest_when_their_handle_is_gone() {
    let world = World::new();
    let old = world.versioned("n", 1, [tb(100, 1, SEC)]);
    world.takes(&old, 1);
    drop(world.versioned("n", 2, [tb(5, 1, SEC)]));
    for n in 0..1_000u32 {
        world.limiter(&n.to_string(), [sem(1)]);
    }
    assert_eq!(world.try_(&old, 6).status, Never);
    assert_eq!(world.memory.peek(&old, &ask(0, EVER)).limit, 5);
}

/// Behind who waits each paced call is remembered: no more than may wait.
#[test]
fn paced_calls_behind_who_waits_are_bounded_and_a_reset_forgets_them() {
    let options = Options {
        max_waiting: 100,
        ..OPTIONS
    };
    let world = World::with(Clock::virtual_clock(), options, None);
    let limiter = world.limiter("n", [tb(1, 1, SEC)]);
    world.takes(&limiter, 1);
    let queue = world.queue();
    let waits = (world.memory).acquire(&limiter, &ask(1, EVER), Sink::Queue(queue.clone()));
    assert_eq!(waits.status, Pending);
    let pace = || world.memory.pace(&limiter, &ask(1, EVER)).status;
    assert!((0..100).all(|_| pace() == Ok));
    let before = world.memory.peek(&limiter, &ask(1, EVER));
    assert_eq!(pace(), Overloaded);
    assert_eq!(world.memory.peek(&limiter, &ask(1, EVER)), before);
    assert_eq!(world.memory.reset(&limiter, b""), Ok);
    // The one that waited has started, and nobody is before the next.
    assert_eq!(
        world.memory.pace(&limiter, &ask(1, EVER)).retry_after_us,
        SEC.0
    );
    assert!((1..100).all(|_| pace() == Ok));
}
