//! Clocks far ahead, and many threads that book and cancel while a clock moves.
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use limiter::decision::{Decision, Status};
use limiter::limit::time::{Span, Time};
use limiter::limiter::{Limiter, spec};
use limiter::op::Request;

use crate::place::*;

on_both![
    b_064_many_threads_that_book_and_cancel_never_exceed_the_rate,
    b_067_who_lost_its_lease_is_told_and_gives_nothing_back,
    b_070_in_the_year_2100_every_number_is_as_exact_as_today,
];

fn b_064_many_threads_that_book_and_cancel_never_exceed_the_rate(place: &Place) {
    const BURST: u64 = 10;
    // In seconds of the clock: Redis keeps its keys by its own, and this one stands still while many ask.
    const EACH: u64 = 2;
    let desk = Desk::new(place.client(), &[bucket(BURST, EACH, SECOND)]);
    let start = desk.client.clock_now().unwrap();
    let (kept, over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for n in 0..32u64 {
            let (desk, kept, over) = (&desk, &kept, &over);
            scope.spawn(move || {
                for round in n.. {
                    if over.load(Ordering::Acquire) {
                        break;
                    }
                    let most = Some(Span::secs(20));
                    let booked = desk.limiter.pace(&weigh(1, most)).unwrap();
                    if booked.status != Status::Ok {
                        std::thread::yield_now();
                        continue;
                    }
                    // What may have begun counts.
                    let cancel = round % 2 == 0 && booked.retry_after_us > 0;
                    if !cancel || desk.limiter.release(booked.permit) != Ok(Status::Ok) {
                        kept.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        for _ in 0..100 {
            std::thread::sleep(std::time::Duration::from_millis(1));
            desk.pass(SECOND);
        }
        over.store(true, Ordering::Release);
    });
    let elapsed = desk.client.clock_now().unwrap().since(start).0 / SECOND + 20;
    let kept = kept.into_inner();
    assert!(
        kept <= BURST + EACH * elapsed,
        "{kept} in {elapsed} s of the clock"
    );
    assert!(kept > BURST, "nobody got anything: {kept}");
    desk.pass(HOUR);
    assert_eq!(desk.remaining(), BURST);
}

fn b_067_who_lost_its_lease_is_told_and_gives_nothing_back(place: &Place) {
    let desk = Desk::new(place.client(), &[ending(1, 1_000)]);
    let request = Request {
        tell_lost: true,
        ..weigh(1, None)
    };
    let began = desk.queue.submit(&desk.limiter, &request).unwrap();
    // Granted at once, or with the completion.
    let first = match began.status {
        Status::Ok => began,
        _ => *desk.done().first().expect("it is granted"),
    };
    assert_eq!(first.status, Status::Ok);
    desk.pass(3 * SECOND);
    let second = desk.takes(1);
    let told = desk.done();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(
        (told[0].status, told[0].permit),
        (Status::Stale, first.permit)
    );
    assert_eq!(desk.release(first.permit), Status::Stale);
    assert_eq!(desk.try_(1).status, Status::Denied);
    assert_eq!(desk.release(second), Status::Ok);
    assert_eq!(desk.remaining(), 1);
}

/// A mix of calls on every kind, from a time on.
fn mixed(place: &Place, name: &str, at: u64) -> Vec<Decision> {
    let client = place.client();
    assert_eq!(client.clock_set(Time(at)), Ok(Status::Ok));
    let mut seen = vec![];
    for (n, one) in [
        bucket(10, 7, 3 * SECOND),
        bucket(3, 1_000_000_000, SECOND),
        limit(spec::PACER, 5, 3, SECOND),
        limit(spec::SLIDING_LOG, 10, 0, SECOND),
        limit(spec::SLIDING_COUNTER, 10, 0, SECOND),
        limit(spec::FIXED_WINDOW, 10, 0, SECOND),
        ending(10, 60_000),
    ]
    .into_iter()
    .enumerate()
    {
        let limiter = Limiter::new(&client, &format!("{name} {n}"), &[one]).unwrap();
        for round in 0..40u64 {
            let wait = Some(Span((round % 3) * 200_000));
            let call = weigh(round % 5, wait);
            seen.push(match one.kind {
                spec::SEMAPHORE => limiter.acquire(&weigh(round % 5, Some(Span::ZERO))),
                _ => limiter.pace(&call),
            });
            assert_eq!(
                client.clock_advance(Span(33_333 * (round % 4))),
                Ok(Status::Ok)
            );
        }
    }
    let plain = |one: Result<Decision, Status>| Decision {
        permit: 0,
        // Tells the time, as a fence must.
        fence: 0,
        ..one.unwrap()
    };
    seen.into_iter().map(plain).collect()
}

fn b_070_in_the_year_2100_every_number_is_as_exact_as_today(place: &Place) {
    const TODAY: u64 = 1_767_225_600 * SECOND;
    const IN_2100: u64 = 4_102_444_800 * SECOND;
    let (now, then) = (mixed(place, "now", TODAY), mixed(place, "then", IN_2100));
    assert!(now.iter().any(|one| one.status == Status::Denied));
    for (n, (now, then)) in now.iter().zip(&then).enumerate() {
        assert_eq!(now, then, "call {n}");
    }
}
