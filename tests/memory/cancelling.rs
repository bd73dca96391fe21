//! Waits that are cancelled, detached, or freed with their queue: each completes once, or not at all.
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use limiter::callback;
use limiter::decision::Decision;
use limiter::decision::Status::{self, *};
use limiter::limit::time::Span;
use limiter::memory::Named;
use limiter::op::{Request, Sink};
use limiter::queue::Queue;

use crate::kit::*;

#[test]
fn a_cancelled_wait_completes_as_cancelled_and_holds_up_nobody() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(10)]);
    let queue = world.queue();
    world.takes(&limiter, 5);
    let heavy = world.waits(&limiter, &queue, ask(10, EVER));
    let light = world.waits(&limiter, &queue, ask(5, EVER));
    assert_eq!(world.memory.cancel(heavy, false), Ok);
    assert_eq!(answers(&queue), [(heavy, Cancelled), (light, Ok)]);
    assert_eq!(world.memory.cancel(heavy, false), Stale);
    assert_eq!(world.memory.cancel(light, false), Stale);
    assert_eq!(world.totals().cancelled, 1);
}

#[test]
fn a_cancelled_booking_gives_its_time_back() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(1, 1, SEC)]);
    let queue = world.queue();
    world.takes(&limiter, 1);
    let a = world.waits(&limiter, &queue, ask(1, EVER));
    let b = world.waits(&limiter, &queue, ask(1, EVER));
    let c = world.waits(&limiter, &queue, ask(1, EVER));
    for op in [b, c, a] {
        assert_eq!(world.memory.cancel(op, false), Ok);
    }
    assert_eq!(
        answers(&queue),
        [(b, Cancelled), (c, Cancelled), (a, Cancelled)]
    );
    assert_eq!(world.denied(&limiter, 1), SEC);
    world.pass(SEC);
    world.takes(&limiter, 1);
    assert_eq!(done(&queue), []);
}

#[test]
fn a_cancelled_booking_of_a_composite_frees_its_semaphore_for_the_next() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(1), tb(1, 1, SEC)]);
    let queue = world.queue();
    world.memory.release(world.takes(&limiter, 1));
    let booked = world.waits(&limiter, &queue, ask(1, EVER));
    let queued = world.waits(&limiter, &queue, ask(1, EVER));
    assert_eq!(world.memory.cancel(booked, true), Ok);
    world.pass(SEC);
    assert_eq!(answers(&queue), [(queued, Ok)]);
}

#[test]
fn when_the_grant_won_cancel_answers_ok_and_the_grant_arrives() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(1)]);
    let queue = world.queue();
    let held = world.takes(&limiter, 1);
    let op = world.waits(&limiter, &queue, ask(1, EVER));
    world.memory.release(held);
    assert_eq!(world.memory.cancel(op, false), Ok);
    assert_eq!(answers(&queue), [(op, Ok)]);
    assert_eq!(world.memory.cancel(op, false), Stale);
    assert_eq!(world.memory.cancel(op, true), Stale);
    world.denied(&limiter, 1);
}

#[test]
fn a_detached_wait_says_nothing_and_a_grant_not_yet_polled_is_returned() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(1)]);
    let queue = world.queue();
    let held = world.takes(&limiter, 1);
    let waiting = world.waits(&limiter, &queue, ask(1, EVER));
    let granted = world.waits(&limiter, &queue, ask(1, EVER));
    let behind = world.waits(&limiter, &queue, ask(1, EVER));
    assert_eq!(world.memory.cancel(waiting, true), Ok);
    world.memory.release(held);
    assert_eq!(world.memory.cancel(granted, true), Ok);
    assert_eq!(answers(&queue), [(behind, Ok)]);
    assert_eq!(world.memory.cancel(waiting, true), Stale);
    assert_eq!(world.memory.cancel(granted, true), Stale);
}

#[test]
fn a_detached_grant_of_a_rate_gives_back_what_time_has_not() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(1, 1, SEC)]);
    let queue = world.queue();
    world.takes(&limiter, 1);
    let op = world.waits(&limiter, &queue, ask(1, EVER));
    world.pass(SEC);
    assert_eq!(world.memory.cancel(op, true), Ok);
    assert_eq!(done(&queue), []);
    world.takes(&limiter, 1);
}

#[test]
fn numbers_that_are_no_operation_are_refused() {
    let world = World::new();
    assert_eq!(world.memory.cancel(0, false), Invalid);
    for number in [1, 77, u64::MAX, 1 << 63] {
        assert_eq!(world.memory.cancel(number, false), Stale);
        assert_eq!(world.memory.cancel(number, true), Stale);
    }
}

#[test]
fn a_freed_queue_detaches_what_waits_and_returns_what_was_granted() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(2)]);
    let (queue, other) = (world.queue(), world.queue());
    let held = world.takes(&limiter, 2);
    world.waits(&limiter, &queue, ask(1, EVER));
    world.waits(&limiter, &queue, ask(2, EVER));
    world.waits(&limiter, &queue, ask(2, EVER));
    let theirs = world.waits(&limiter, &other, ask(2, EVER));
    world.memory.release(held);
    world.memory.free_queue(&queue);
    assert_eq!(answers(&other), [(theirs, Ok)]);
    assert_eq!((world.totals().waiting, world.totals().in_flight), (0, 1));
    assert!(queue.poll(1, Some(Duration::ZERO)).is_err());
}

#[test]
fn waits_are_cancelled_by_their_user_data_on_every_sink() {
    let world = Arc::new(World::new());
    let limiter = world.limiter("n", [sem(1)]);
    let queue = world.queue();
    world.takes(&limiter, 1);
    let mine = Request {
        user_data: 7,
        ..ask(1, EVER)
    };
    let op = world.waits(&limiter, &queue, mine);
    let other = world.waits(
        &limiter,
        &queue,
        Request {
            user_data: 8,
            ..ask(1, EVER)
        },
    );
    let (tell, told) = mpsc::channel();
    let callback = Box::new(move |decision: Decision| tell.send(decision.status).unwrap());
    world
        .memory
        .acquire(&limiter, &mine, Sink::Callback(callback));
    let thread = {
        let (world, limiter) = (world.clone(), limiter.clone());
        std::thread::spawn(move || world.memory.acquire_blocking(&limiter, &mine))
    };
    while world.totals().waiting < 4 {
        std::thread::yield_now();
    }
    assert_eq!(world.memory.cancel_waits(7), 3);
    assert_eq!(thread.join().unwrap().status, Cancelled);
    assert_eq!(told.recv(), Result::Ok(Cancelled));
    assert_eq!(answers(&queue), [(op, Cancelled)]);
    assert_eq!(world.memory.cancel_waits(7), 0);
    assert_eq!(world.memory.cancel(other, false), Ok);
}

#[test]
fn a_callback_hears_every_answer_once_on_its_own_thread() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(1)]);
    let (tell, told) = mpsc::channel();
    let ask_back = |request: Request| {
        let tell = tell.clone();
        let callback = move |decision: Decision| {
            let name = std::thread::current().name().map(str::to_owned);
            assert_eq!(name.as_deref(), Some("limiter-callback"));
            assert!(callback::inside());
            tell.send(decision).unwrap();
        };
        let pending = world
            .memory
            .acquire(&limiter, &request, Sink::Callback(Box::new(callback)));
        assert_eq!((pending.status, pending.permit), (Pending, 0));
        pending.op
    };
    let heard = || told.recv_timeout(Duration::from_secs(60)).unwrap();
    let first = ask_back(ask(1, EVER));
    let granted = heard();
    assert_eq!((granted.op, granted.status), (first, Ok));
    for (request, status) in [(ask(1, Some(Span::ZERO)), Denied), (ask(2, EVER), Never)] {
        let op = ask_back(request);
        let decision = heard();
        assert_eq!((decision.op, decision.status), (op, status));
    }
    let waiting = ask_back(ask(1, Some(SEC)));
    world.pass(SEC);
    let late = heard();
    assert_eq!((late.op, late.status), (waiting, Denied));
    let waiting = ask_back(ask(1, EVER));
    world.memory.release(granted.permit);
    assert_eq!(heard().op, waiting);
    assert_eq!(world.memory.cancel(waiting, false), Stale);
    assert_eq!(world.memory.shutdown(None), Ok);
    assert!(told.try_recv().is_err());
}

#[test]
fn a_callback_may_call_back_in_but_not_shut_down() {
    let world = Arc::new(World::new());
    let limiter = world.limiter("n", [sem(1)]);
    let held = world.takes(&limiter, 1);
    let (tell, told) = mpsc::channel::<Vec<Status>>();
    let inner = (world.clone(), limiter.clone());
    let callback = move |decision: Decision| {
        let (world, limiter) = inner;
        let released = world.memory.release(decision.permit);
        let tried = world
            .memory
            .acquire_blocking(&limiter, &ask(1, Some(Span::ZERO)))
            .status;
        let cancelled = world.memory.cancel(decision.op, true);
        tell.send(vec![
            released,
            tried,
            cancelled,
            world.memory.shutdown(None),
        ])
        .unwrap();
    };
    world
        .memory
        .acquire(&limiter, &ask(1, EVER), Sink::Callback(Box::new(callback)));
    world.memory.release(held);
    let statuses = told.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(statuses, [Ok, Ok, Stale, WouldDeadlock]);
}

#[test]
fn a_detached_callback_is_not_called_and_its_grant_returned() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(1)]);
    // Keeps the callback thread busy, so that the next completion waits in line.
    let (go, gone) = mpsc::channel::<()>();
    let busy = move |_: Decision| gone.recv().unwrap();
    world
        .memory
        .acquire(&limiter, &ask(0, EVER), Sink::Callback(Box::new(busy)));
    let called = Arc::new(AtomicU32::new(0));
    let count = called.clone();
    let callback = move |_: Decision| {
        count.fetch_add(1, Ordering::SeqCst);
    };
    let op = world
        .memory
        .acquire(&limiter, &ask(1, EVER), Sink::Callback(Box::new(callback)))
        .op;
    world.denied(&limiter, 1);
    assert_eq!(world.memory.cancel(op, false), Ok, "it will be called");
    assert_eq!(world.memory.cancel(op, true), Ok);
    world.takes(&limiter, 1);
    go.send(()).unwrap();
    assert_eq!(world.memory.shutdown(None), Ok);
    assert_eq!(called.load(Ordering::SeqCst), 0);
}

/// One of them has to move up when the one before it goes, if they do not go together.
#[test]
fn of_waits_that_end_together_none_is_admitted() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(10)]);
    let (ours, theirs) = (world.queue(), world.queue());
    let tagged = |weight, user_data| Request {
        user_data,
        ..ask(weight, EVER)
    };
    for together in [
        (|world, _| world.memory.cancel_waits(7)) as fn(&World, &Arc<Queue>) -> usize,
        |world, queue| {
            world.memory.free_queue(queue);
            2
        },
    ] {
        let held = world.takes(&limiter, 5);
        world.waits(&limiter, &ours, tagged(10, 7));
        world.waits(&limiter, &ours, tagged(5, 7));
        let other = world.waits(&limiter, &theirs, tagged(4, 8));
        assert_eq!(together(&world, &ours), 2);
        let granted = done(&theirs);
        assert_eq!(
            (granted.len(), granted[0].op, granted[0].status),
            (1, other, Ok)
        );
        assert_eq!(
            granted[0].fence,
            fence(&world, &limiter) - 1,
            "nobody else was granted"
        );
        if let std::result::Result::Ok(left) = ours.poll(9, Some(Duration::ZERO)) {
            assert!(left.iter().all(|decision| decision.status == Cancelled));
        }
        for permit in [held, granted[0].permit] {
            assert_eq!(world.memory.release(permit), Ok);
        }
        world.pass(SEC);
    }
    assert_eq!(world.totals().cancelled, 4);
}

/// The fencing number of a grant made now.
fn fence(world: &World, limiter: &Arc<Named>) -> u64 {
    let granted = world.try_(limiter, 1);
    assert_eq!(world.memory.release(granted.permit), Ok);
    granted.fence
}

/// Of so many that not each answer is worked out anew: when to come back may be later than need be, never earlier.
#[test]
fn whoever_comes_back_when_told_passes_also_behind_very_many_of_whom_some_have_left() {
    for leave in [0, 10, 1_000] {
        let world = World::new();
        let queue = world.queue();
        let limiter = world.limiter("n", [tb(1, 1, SEC)]);
        world.takes(&limiter, 1);
        let ops: Vec<u64> = (0..5_000)
            .map(|_| world.waits(&limiter, &queue, ask(1, EVER)))
            .collect();
        for op in ops.iter().step_by(5).take(leave) {
            world.memory.cancel(*op, true);
        }
        let back = world.denied(&limiter, 1);
        let left = 5_000 - leave as u64;
        assert!(back >= Span::secs(left + 1), "{back:?} behind {left}");
        assert!(back <= Span::secs(5_001), "{back:?}");
        world.pass(back);
        assert_eq!(done(&queue).len() as u64, left);
        world.takes(&limiter, 1);
    }
}
