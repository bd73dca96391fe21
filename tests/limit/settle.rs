//! Post-paid use: estimate, then correct. Nothing comes back twice.
use limiter::limit::rule::Rule;
use limiter::limit::time::Span;
use limiter::limit::weights::Weights;
use proptest::prelude::*;

use crate::exact::bucket_terms;
use crate::harness::*;

#[test]
fn b_128_settled_up_is_debt_and_settled_twice_is_once() {
    let mut key = Key::of(bucket(100, 10, SEC));
    let mut booking = key.take(100).ok();
    key.settle(&mut booking, 130);
    assert_eq!(key.remaining(), 0);
    assert_eq!(key.take(1).retry_after(), 3_100 * MS);
    key.settle(&mut booking, 130);
    assert_eq!(key.take(1).retry_after(), 3_100 * MS);
}

#[test]
fn b_014_b_127_no_refund_exceeds_what_was_taken() {
    for rule in each_kind(10) {
        let mut key = Key::of(rule);
        key.advance(5 * SEC);
        let limit = key.figures().limit;
        let Answer::Ok(mut booking) = key.take(1) else {
            continue;
        };
        for _ in 0..5 {
            key.settle(&mut booking, 0);
        }
        key.release(&booking);
        assert!(key.remaining() <= limit);
        assert!(key.drain() <= limit.max(10) + 1);
    }
}

/// Settled at once, less counts as if only that had been asked for.
#[test]
fn settled_down_at_once_it_is_as_if_less_had_been_taken() {
    for rule in each_kind(10) {
        let (mut settled, mut direct) = (Key::of(rule.clone()), Key::of(rule));
        for key in [&mut settled, &mut direct] {
            key.pace(1).ok();
            key.advance(SEC + 1);
        }
        let mut booking = settled.take(7).ok();
        settled.settle(&mut booking, 3);
        let _ = direct.take(3).ok();
        if settled.limits.holds() {
            assert_eq!(settled.remaining(), 2, "held until it is released");
            continue;
        }
        crate::cancel::assert_alike(&settled, &direct, 10, 3 * SEC);
    }
}

#[test]
fn what_time_gave_back_is_not_given_back_again() {
    let mut key = Key::of(bucket(10, 1, SEC));
    let mut booking = key.take(10).ok();
    key.advance(10 * SEC);
    assert_eq!(key.remaining(), 10);
    key.settle(&mut booking, 0);
    assert_eq!(key.drain(), 10);

    let mut key = Key::of(interval(10, 10, SEC, false));
    let mut booking = key.take(10).ok();
    key.advance(SEC);
    key.take(10).ok();
    key.settle(&mut booking, 0);
    assert_eq!(key.remaining(), 0);
}

/// One refund shortens what the later charges still owe.
#[test]
fn two_refunds_do_not_overlap() {
    let mut key = Key::of(bucket(30, 1, SEC));
    let mut first = key.take(20).ok();
    let mut second = key.take(10).ok();
    key.settle(&mut first, 0);
    assert_eq!(key.remaining(), 20);
    key.advance(10 * SEC);
    assert_eq!(key.remaining(), 30);
    key.advance(10 * SEC);
    key.take(30).ok();
    // The second was paid off ten seconds ago.
    key.settle(&mut second, 0);
    assert_eq!(key.drain(), 0);
}

#[test]
fn a_key_that_can_still_be_settled_wrongly_is_not_forgotten() {
    let mut key = Key::of(bucket(30, 1, SEC));
    let mut first = key.take(20).ok();
    let mut second = key.take(10).ok();
    key.settle(&mut first, 0);
    key.advance(20 * SEC);
    assert!(!key.forget_if_fresh());
    key.take(30).ok();
    key.settle(&mut second, 0);
    assert_eq!(key.drain(), 0);
    key.advance(60 * SEC);
    assert!(key.forget_if_fresh());
}

/// What was used beyond the estimate is taken now: forgetting a state that is as new makes no difference.
#[test]
fn settled_up_late_a_key_is_the_same_whether_it_was_forgotten_or_not() {
    for rule in each_kind(10) {
        if rule.starts_empty() {
            // Forgotten, it is empty.
            continue;
        }
        let mut kept = Key::of(rule);
        let mut booking = kept.take(4).ok();
        kept.release(&booking);
        kept.advance(60 * SEC);
        let mut forgotten = kept.clone();
        assert!(forgotten.forget_if_fresh());
        forgotten.settle(&mut booking.clone(), 9);
        kept.settle(&mut booking, 9);
        crate::cancel::assert_alike(&kept, &forgotten, 10, 3 * SEC);
    }
}

/// What is booked behind a penalty and taken back leaves the debt that came meanwhile.
#[test]
fn settled_up_behind_a_booking_that_is_cancelled_it_is_the_same_whether_it_was_forgotten_or_not() {
    for rule in each_kind(10)
        .into_iter()
        .filter(|rule| !rule.starts_empty())
    {
        let mut kept = Key::of(rule);
        let booking = kept.take(4).ok();
        kept.release(&booking);
        kept.advance(60 * SEC);
        let mut forgotten = kept.clone();
        assert!(forgotten.forget_if_fresh());
        for key in [&mut kept, &mut forgotten] {
            key.penalize(SEC / 2);
            let ahead = key.pace(2).ok();
            key.advance(1_000);
            key.settle(&mut booking.clone(), 9);
            key.cancel(ahead);
        }
        crate::cancel::assert_alike(&kept, &forgotten, 10, 3 * SEC);
    }
}

/// The sum of refunds is kept while anything that was charged under it may ask.
#[test]
fn a_busy_bucket_remembers_its_refunds() {
    let mut key = Key::of(bucket(1_000, 1, SEC));
    let mut first = key.take(100).ok();
    key.settle(&mut first, 30);
    let mut second = key.take(300).ok();
    key.advance(100 * SEC);
    let mut third = key.take(500).ok();
    // Owed: 230 of the second, 500 of the third.
    let mut reverse = (key.clone(), second.clone(), third.clone());
    key.settle(&mut second, 0);
    assert_eq!(key.remaining(), 500);
    key.settle(&mut third, 0);
    assert_eq!(key.remaining(), 1_000);
    // The other way round the second cannot know that what went back was not before it: it may get
    // less, never more.
    reverse.0.settle(&mut reverse.2, 0);
    assert_eq!(reverse.0.remaining(), 770);
    reverse.0.settle(&mut reverse.1, 0);
    assert_eq!(reverse.0.remaining(), 770);
    key.take(1_000).ok();
    key.settle(&mut second, 0);
    assert_eq!(key.drain(), 0);
}

/// So much is given back that the sum begins anew: what was charged before gets nothing, never too much.
#[test]
fn the_largest_refunds_do_not_overflow() {
    for rule in [
        bucket(10, 1, 315_576_000 * SEC),
        interval(1 << 48, 1 << 48, 1, false),
    ] {
        let mut key = Key::of(rule);
        let limit = key.figures().limit;
        let mut old = key.take(1).ok();
        for _ in 0..1_000 {
            let mut booking = key.take(limit - 1).ok();
            key.settle(&mut booking, 0);
            assert!(key.remaining() < limit);
        }
        key.settle(&mut old, 0);
        let left = key.remaining();
        assert!(left == limit || left == limit - 1);
    }
}

/// After a quiet time, which has paid for what came before it and not for what is used beyond an estimate.
#[test]
fn what_an_older_charge_owes_stays_when_a_newer_one_is_settled_down() {
    for burst in [0, 3] {
        let mut key = Key::of(pacer(burst, 1, SEC, 500));
        let mut older = key.take(1).ok();
        key.advance(3_600 * SEC);
        let mut newer = key.take(5).ok();
        key.settle(&mut older, 101);
        key.settle(&mut newer, 1);
        assert!(key.take(1).retry_after() >= 100 * SEC);
        key.advance(102 * SEC);
        key.take(1).ok();
    }
}

/// With more booked ahead than any window counts.
#[test]
fn a_log_that_is_full_of_the_largest_weights_far_ahead_is_settled_exactly() {
    let most = 1 << 48;
    let mut key = Key::of(log(most, SEC));
    let mut last = key.pace(most).ok();
    for _ in 1..7 {
        last = key.pace(most).ok();
    }
    key.settle(&mut last, most - 1);
    assert_eq!(key.take(1).retry_after(), 6 * SEC);
    assert_eq!(key.take(2).retry_after(), 7 * SEC);
}

#[test]
fn a_pacer_that_was_forgotten_and_used_again_gives_nothing_back_to_an_old_charge() {
    let mut key = Key::of(pacer(0, 10, SEC, 500));
    let mut old = key.take(5).ok();
    key.advance(10 * SEC);
    assert!(key.forget_if_fresh());
    key.take(5).ok();
    key.settle(&mut old, 0);
    assert_eq!(key.take(1).retry_after(), 500 * MS);
}

#[test]
fn reset_makes_the_key_new_and_old_permits_worthless() {
    for rule in each_kind(10) {
        let mut key = Key::new(vec![weighing(rule)]);
        key.advance(5 * SEC);
        let Answer::Ok(mut old) = key.take(5) else {
            continue;
        };
        let booked = key.pace_within(&Weights::One(10), Span(10 * SEC));
        key.penalize(SEC);
        key.limits.reset(&mut key.state, key.now);
        let fresh = key.limits.fresh(key.now);
        let figures = key.limits.figures(&fresh, key.now, None).1;
        assert_eq!(key.figures(), figures);
        let Answer::Ok(_) = key.take(5) else {
            continue; // starts empty
        };
        let remaining = key.remaining();
        key.settle(&mut old, 0);
        if let (Answer::Ok(booked), false) = (booked, key.limits.holds()) {
            key.cancel(booked);
        }
        assert_eq!(key.remaining(), remaining);
    }
}

#[test]
fn calls_and_what_is_held_are_not_settled() {
    let mut key = Key::new(vec![
        per_call(bucket(10, 10, SEC)),
        weighing(bucket(100, 100, SEC)),
        weighing(semaphore(50)),
    ]);
    let mut booking = key.take(40).ok();
    key.settle(&mut booking, 10);
    let remaining = |index| key.figures_of(index).remaining;
    assert_eq!([remaining(0), remaining(1), remaining(2)], [9, 90, 10]);
    key.release(&booking);
    assert_eq!(key.figures_of(2).remaining, 50);
}

/// A limit that the request left alone is left alone by its settling.
#[test]
fn only_what_was_charged_is_settled() {
    let mut key = Key::new(vec![weighing(bucket(10, 1, SEC)), weighing(log(10, SEC))]);
    let mut booking = key.take_weights(&Weights::Each([0, 5].into())).ok();
    key.settle(&mut booking, 8);
    assert_eq!(key.figures_of(0).remaining, 10);
    assert_eq!(key.figures_of(1).remaining, 2);
}

#[test]
fn the_largest_actual_is_bounded_debt() {
    for rule in each_kind(10) {
        let mut key = Key::of(rule);
        let Answer::Ok(mut booking) = key.take(1) else {
            continue;
        };
        key.settle(&mut booking, u64::MAX);
        key.settle(&mut booking, u64::MAX);
        assert!(key.fresh_at().0 < 1 << 53 || key.limits.holds());
        key.take(1);
        key.settle(&mut booking, 0);
    }
}

/// Windows between now and the last booking: what is settled in any of them stays settled when the bookings
/// behind it are cancelled.
#[test]
fn what_is_settled_while_others_are_booked_stays_when_they_are_cancelled() {
    for rule in windowed(4, SEC) {
        let mut key = Key::of(rule);
        let mut first = key.take(4).ok();
        let mut booked: Vec<_> = (0..5).map(|_| key.pace(2).ok()).collect();
        key.settle(&mut first, 1);
        key.now = booked[0].at();
        // That one is admitted.
        key.settle(&mut booked[0], 1);
        let mut direct = Key::new(key.limits.limits().to_vec());
        direct.take(1).ok();
        direct.now = key.now;
        direct.take(1).ok();
        for booking in booked.drain(1..).rev() {
            if booking.at() > key.now {
                assert!(key.cancel(booking));
            } else {
                direct.take(2).ok();
            }
        }
        crate::cancel::assert_alike(&key, &direct, 4, 3 * SEC);
    }
}

/// What counts in windows.
fn windowed(limit: u64, window: u64) -> [Rule; 4] {
    [
        fixed(limit, window),
        fixed_from_first_use(limit, window),
        counter(limit, window),
        log(limit, window),
    ]
}

proptest! {
    #![proptest_config(cases(1_500))]

    /// The same with any weights and times, whatever order they are cancelled in: as if only what was used
    /// had been asked for, and nothing booked.
    #[test]
    fn a_window_settled_before_others_are_cancelled_is_as_if_they_had_never_been(
        kind in 0..4usize,
        (limit, window) in (3u64..12, 2u64..60),
        calls in prop::collection::vec((1u64..4, 0u64..40, 0u64..4), 1..6),
        ahead in prop::collection::vec(1u64..4, 1..9),
        order in any::<u64>(),
    ) {
        let mut key = Key::of(windowed(limit, window)[kind].clone());
        let mut taken = Vec::new();
        for (weight, gap, actual) in calls {
            key.advance(gap);
            if let Answer::Ok(booking) = key.take(weight) {
                taken.push((booking, actual.min(weight)));
            }
        }
        key.drain();
        let mut direct = key.clone();
        let mut booked: Vec<_> = ahead.iter().map(|weight| key.pace(*weight).ok()).collect();
        prop_assert!(booked[0].at() > key.now);
        for (booking, actual) in &mut taken {
            direct.settle(&mut booking.clone(), *actual);
            key.settle(booking, *actual);
        }
        let mut order = order;
        while !booked.is_empty() {
            order = order.wrapping_mul(6364136223846793005).wrapping_add(1);
            let pick = (order >> 33) as usize % booked.len();
            prop_assert!(key.cancel(booked.swap_remove(pick)));
        }
        crate::cancel::assert_alike(&key, &direct, 3, 3 * window);
    }

    /// Against a bucket that knew the true weights from the start: never more is left, and when nothing
    /// came between, exactly as much.
    #[test]
    fn a_settled_bucket_has_no_more_than_the_truth(
        (capacity, refill, period) in bucket_terms(),
        calls in prop::collection::vec((any::<u64>(), any::<u64>(), 0u64..4, any::<u64>()), 1..30),
    ) {
        let mut key = Key::of(bucket(capacity, refill, period));
        let mut admitted: Vec<(Span, u64)> = Vec::new();
        let mut open = Vec::new();
        let full = (capacity as u128 * period as u128 / refill as u128) as u64;
        for (weight, actual, gap, pick) in calls {
            key.advance(full / 3 * gap / 3);
            let weight = weight % capacity + 1;
            if let Answer::Ok(booking) = key.take(weight) {
                admitted.push((key.now.since(START), weight));
                open.push((admitted.len() - 1, booking));
            }
            if pick % 2 == 0 && !open.is_empty() {
                let (id, mut booking) = open.swap_remove(pick as usize % open.len());
                let actual = actual % (admitted[id].1 + 1);
                key.settle(&mut booking, actual);
                admitted[id].1 = actual;
            }
            let mut truth = Key::of(bucket(capacity, refill, period));
            for (at, weight) in &admitted {
                truth.now = START + *at;
                if *weight > 0 {
                    truth.take(*weight).ok();
                }
            }
            truth.now = key.now;
            prop_assert!(key.remaining() <= truth.remaining());
        }
    }
}
