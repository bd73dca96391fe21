//! Queues: deadlines, cancelled heads, who is woken, and in which order.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use limiter::decision::Status;
use limiter::limit::time::Span;
use limiter::op::Request;

use crate::place::*;
use crate::support::{eventually, secs};

on_both![
    b_074_a_wait_of_1_9_seconds_ends_then_and_without_a_permit,
    b_082_each_release_has_its_own_answer,
    b_089_single_releases_wake_who_waits_for_several,
    b_091_a_cancelled_head_lets_smaller_ones_pass_at_once,
    b_092_forty_cancelled_waits_take_no_permit_with_them,
    b_095_b_097_all_are_served_in_the_order_they_came,
    b_098_cancelling_from_within_a_callback_and_at_random_blocks_nobody,
    b_140_who_frees_or_exits_with_waits_leaves_no_permit_behind,
];

fn b_074_a_wait_of_1_9_seconds_ends_then_and_without_a_permit(place: &Place) {
    let desk = Desk::new(place.client(), &[semaphore(1)]);
    let held = desk.takes(1);
    let op = desk.waits(&weigh(1, Some(Span::millis(1_900))));
    desk.pass(1_899_999);
    assert_eq!(desk.answers(), []);
    desk.pass(1);
    let ended = desk.done();
    assert_eq!((ended.len(), ended[0].op), (1, op));
    assert_eq!((ended[0].status, ended[0].permit), (Status::Denied, 0));
    assert_eq!(desk.release(held), Status::Ok);
    desk.takes(1);
    assert_eq!(desk.try_(1).status, Status::Denied);
}

fn b_082_each_release_has_its_own_answer(place: &Place) {
    let desk = Desk::new(place.client(), &[semaphore(2)]);
    let short = Request {
        renew: false,
        lease: Some(Span::secs(1)),
        ..Request::TRY
    };
    let expired = desk.limiter.acquire(&short).unwrap().permit;
    let live = desk.takes(1);
    desk.pass(SECOND);
    let released = [live, expired, 12_345].map(|permit| desk.release(permit));
    assert_eq!(released, [Status::Ok, Status::Stale, Status::Stale]);
    assert_eq!(desk.remaining(), 2);
}

fn b_089_single_releases_wake_who_waits_for_several(place: &Place) {
    let desk = Desk::new(place.client(), &[semaphore(3)]);
    let held = [0; 3].map(|_| desk.takes(1));
    let op = desk.waits(&weigh(3, None));
    for (n, permit) in held.into_iter().enumerate() {
        assert_eq!(desk.answers(), [], "before release {n}");
        assert_eq!(desk.release(permit), Status::Ok);
    }
    assert_eq!(desk.answers(), [(op, Status::Ok)]);
}

fn b_091_a_cancelled_head_lets_smaller_ones_pass_at_once(place: &Place) {
    let desk = Desk::new(place.client(), &[semaphore(10)]);
    desk.takes(5);
    let large = desk.waits(&weigh(10, None));
    let small = desk.waits(&weigh(5, None));
    assert_eq!(desk.answers(), [], "nobody overtakes");
    assert_eq!(desk.client.cancel(large, true), Ok(Status::Ok));
    assert_eq!(desk.answers(), [(small, Status::Ok)]);
}

fn b_092_forty_cancelled_waits_take_no_permit_with_them(place: &Place) {
    let desk = Desk::new(place.client(), &[semaphore(1)]);
    let held = desk.takes(1);
    let waits: Vec<u64> = (0..40).map(|_| desk.waits(&weigh(1, None))).collect();
    for op in waits {
        assert_eq!(desk.client.cancel(op, true), Ok(Status::Ok));
    }
    assert_eq!(desk.release(held), Status::Ok);
    assert_eq!(desk.answers(), []);
    assert_eq!(desk.remaining(), 1);
}

fn b_095_b_097_all_are_served_in_the_order_they_came(place: &Place) {
    let desk = Desk::new(place.client(), &[semaphore(1)]);
    let mut held = desk.takes(1);
    let waits: Vec<u64> = (0..50)
        .map(|_| {
            let op = desk.waits(&weigh(1, None));
            // It has its place before the next one comes.
            desk.pass(0);
            op
        })
        .collect();
    // Every fifth changes its mind, the first of all too.
    for op in waits.iter().step_by(5) {
        assert_eq!(desk.client.cancel(*op, true), Ok(Status::Ok));
    }
    for (n, op) in waits.iter().enumerate().filter(|(n, _)| n % 5 != 0) {
        assert_eq!(desk.try_(1).status, Status::Denied, "{n}");
        assert_eq!(desk.release(held), Status::Ok);
        let granted = desk.done();
        assert_eq!(granted.len(), 1, "{n}: {granted:?}");
        assert_eq!((granted[0].op, granted[0].status), (*op, Status::Ok), "{n}");
        held = granted[0].permit;
    }
    assert_eq!(desk.release(held), Status::Ok);
    assert_eq!(desk.remaining(), 1);
}

fn b_098_cancelling_from_within_a_callback_and_at_random_blocks_nobody(place: &Place) {
    // In real time: callbacks have a thread of their own.
    let client = place.with(&place.config(&[]));
    let desk = Arc::new(Desk::new(client.clone(), &[semaphore(2)]));
    let (tell, told) = mpsc::channel();
    let patient = weigh(1, Some(Span::secs(60)));
    let mut first = desk.limiter.acquire(&weigh(2, None)).unwrap();
    for _ in 0..20 {
        let victim = desk.limiter.acquire_cb(&patient, {
            let tell = tell.clone();
            Box::new(move |decision| tell.send(decision).unwrap())
        });
        let victim = victim.unwrap();
        let op = desk.limiter.acquire_cb(&weigh(1, Some(Span::millis(1))), {
            let (client, tell) = (client.clone(), tell.clone());
            Box::new(move |decision| {
                assert_eq!(client.cancel(victim, false), Ok(Status::Ok));
                tell.send(decision).unwrap();
            })
        });
        op.unwrap();
        let ended = [0; 2].map(|_| told.recv_timeout(secs(60)).unwrap().status);
        assert_eq!(ended, [Status::Denied, Status::Cancelled]);
    }
    assert_eq!(desk.limiter.release(first.permit), Ok(Status::Ok));
    let grants = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for n in 0..8u64 {
            let (desk, client, grants) = (&desk, &client, &grants);
            scope.spawn(move || {
                let mut dice = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(n + 1);
                for _ in 0..300 {
                    dice = dice.rotate_left(13).wrapping_mul(5).wrapping_add(n);
                    let (tell, told) = mpsc::channel();
                    let started = desk.limiter.acquire_cb(
                        &weigh(1 + dice % 2, Some(Span::secs(60))),
                        Box::new(move |decision| tell.send(decision).unwrap()),
                    );
                    let op = started.unwrap();
                    if dice.is_multiple_of(3) {
                        // STALE where it was granted first.
                        let _ = client.cancel(op, false).unwrap();
                    }
                    let ended = told.recv_timeout(secs(60)).expect("it is stuck");
                    if ended.status == Status::Ok {
                        grants.fetch_add(1, Ordering::Relaxed);
                        assert_eq!(desk.limiter.release(ended.permit), Ok(Status::Ok));
                    } else {
                        assert_eq!(ended.status, Status::Cancelled);
                    }
                }
            });
        }
    });
    assert!(grants.into_inner() >= 800);
    eventually("all is there again", secs(30), || {
        first = desk.limiter.acquire(&weigh(2, Some(Span::ZERO))).unwrap();
        first.status == Status::Ok
    });
    assert_eq!(client.stats().unwrap().waiting, 0);
}

/// Holds, waits in a thread and in a queue, and exits; nothing in the test program itself.
#[test]
fn leaver() {
    let Ok(url) = std::env::var("LIMITER_CASE") else {
        return;
    };
    let mut config = limiter::config::Config::default();
    config.set("lease_ms", "1000").unwrap();
    let client = limiter::client::Client::open(&url, &config).unwrap();
    let desk = Arc::new(Desk::new(client, &[semaphore(2)]));
    let held = desk.limiter.acquire(&weigh(2, Some(Span::secs(60))));
    assert_eq!(held.unwrap().status, Status::Ok);
    desk.waits(&weigh(1, None));
    let waiting = desk.clone();
    std::thread::spawn(move || waiting.limiter.acquire(&weigh(1, None)));
    eventually("both wait", secs(60), || {
        desk.client.stats().unwrap().waiting == 2
    });
    std::process::exit(7);
}

fn b_140_who_frees_or_exits_with_waits_leaves_no_permit_behind(place: &Place) {
    let program = std::env::current_exe().unwrap();
    for _ in 0..3 {
        let mut child = std::process::Command::new(&program);
        child.args(["--exact", "waits::leaver"]);
        let ended = child.env("LIMITER_CASE", place.url()).status().unwrap();
        assert_eq!(ended.code(), Some(7), "the exit code is its own");
    }
    let observer = Desk::new(place.with(&place.config(&[])), &[semaphore(2)]);
    let all = observer.limiter.acquire(&weigh(2, Some(Span::secs(60))));
    let all = all.unwrap();
    assert_eq!(all.status, Status::Ok, "leases end");
    // Freed with a permit held and with waits: its holder gives it back, and who waits is told or gone.
    let client = place.with(&place.config(&[]));
    let desk = Desk::new(client.clone(), &[semaphore(2)]);
    observer.limiter.release(all.permit).unwrap();
    let mine = desk.limiter.acquire(&weigh(1, Some(Span::secs(60))));
    assert_eq!(mine.unwrap().status, Status::Ok);
    let op = desk.waits(&weigh(2, None));
    let Desk { limiter, queue, .. } = desk;
    drop(limiter);
    assert_eq!(client.shutdown(Some(secs(60))), Ok(Status::Ok));
    let ended = queue.poll(9, Some(secs(0)));
    if let Ok(ended) = ended {
        assert_eq!((ended[0].op, ended[0].status), (op, Status::Closed));
    }
    drop((queue, client));
    let all = observer.limiter.acquire(&weigh(2, Some(Span::secs(60))));
    assert_eq!(all.unwrap().status, Status::Ok);
}
