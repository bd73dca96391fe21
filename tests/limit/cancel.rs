//! Bookings that are cancelled: all that they took comes back, whatever the order.
use limiter::limit::decide::Booking;
use limiter::limit::rule::{Limit, Rule};
use limiter::limit::time::Span;
use limiter::limit::weights::Weights;
use proptest::prelude::*;

use crate::harness::*;

/// Two keys answer alike: now and later, whatever is asked.
pub fn assert_alike(a: &Key, b: &Key, most_weight: u64, horizon: u64) {
    for step in 0..12 {
        let (mut a, mut b) = (a.clone(), b.clone());
        a.advance(horizon * step / 11);
        b.advance(horizon * step / 11);
        assert_eq!(a.figures(), b.figures());
        for weight in [1, most_weight / 2 + 1, most_weight] {
            let weights = Weights::One(weight);
            assert_eq!(a.decide(&weights), b.decide(&weights));
            assert_eq!(
                a.pace(weight).is_ok().then(|| a.figures()),
                b.pace(weight).is_ok().then(|| b.figures())
            );
        }
    }
}

fn some_rule() -> impl Strategy<Value = Rule> {
    (0..10usize, 1u64..12, 1u64..12, 1u64..60).prop_map(|(kind, n, m, period)| match kind {
        0 => bucket(n, m, period),
        1 => empty_bucket(n, m, period),
        2 => interval(n, m, period, false),
        3 => interval(n, m, period, true),
        4 => pacer(n - 1, m, period, 500),
        5 => log(n, period),
        6 => counter(n, period),
        7 => fixed(n, period),
        8 => fixed_from_first_use(n, period),
        _ => semaphore(10_000),
    })
}

fn some_limits() -> impl Strategy<Value = Vec<Limit>> {
    prop::collection::vec(some_rule().prop_map(weighing), 1..4)
}

/// Some history, then the given bookings, each with a pause before it.
fn with_history(limits: Vec<Limit>, history: &[(u64, u64)]) -> Key {
    let mut key = Key::new(limits);
    for (weight, gap) in history {
        key.pace(*weight);
        key.advance(*gap);
    }
    key
}

/// What is booked ahead of the key's time, each booking with the key as it was before.
fn book(key: &mut Key, weights: &[(u64, u64)], gaps: bool) -> Vec<(Key, Booking)> {
    let mut booked = Vec::new();
    for (weight, gap) in weights {
        if gaps {
            key.advance(*gap);
        }
        let before = key.clone();
        if let Answer::Ok(booking) = key.pace(*weight) {
            booked.push((before, booking));
        }
    }
    booked.retain(|(_, booking)| booking.at() > key.now);
    booked
}

proptest! {
    #![proptest_config(cases(2_000))]

    /// The newest k of the bookings are cancelled, in any order: the key is as before the first of them.
    #[test]
    fn cancelled_in_any_order_leaves_nothing(
        limits in some_limits(),
        history in prop::collection::vec((1u64..8, 0u64..20), 0..6),
        weights in prop::collection::vec((1u64..8, 0u64..3), 1..12),
        keep in any::<prop::sample::Index>(),
        order in Just(()).prop_perturb(|_, mut rng| rng.next_u64()),
        penalty in 0u64..50,
    ) {
        let mut key = with_history(limits, &history);
        if penalty > 25 {
            key.penalize(penalty);
        }
        let mut booked = book(&mut key, &weights, true);
        prop_assume!(!booked.is_empty());
        let mut cancelled = booked.split_off(keep.index(booked.len()));
        let mut before = cancelled[0].0.clone();
        before.now = key.now;
        let mut order = order;
        while !cancelled.is_empty() {
            order = order.wrapping_mul(6364136223846793005).wrapping_add(1);
            let pick = (order >> 33) as usize % cancelled.len();
            prop_assert!(key.cancel(cancelled.swap_remove(pick).1));
        }
        assert_alike(&key, &before, 7, 400);
    }

    /// Bookings that stay keep their times; what is booked next comes no earlier than without the
    /// cancelled ones, and no later than with them.
    #[test]
    fn cancelled_in_the_middle_harms_nobody(
        limits in some_limits(),
        weights in prop::collection::vec((1u64..8, 0u64..1), 2..12),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 1..8),
    ) {
        let mut key = Key::new(limits.clone());
        let mut booked = book(&mut key, &weights, false);
        prop_assume!(!booked.is_empty());
        let with = key.clone();
        for pick in picks {
            if !booked.is_empty() {
                let at = pick.index(booked.len());
                prop_assert!(key.cancel(booked.remove(at).1));
            }
        }
        let last = booked.last().map_or(key.now, |(_, b)| b.at());
        if let Answer::Ok(next) = key.clone().pace(1) {
            prop_assert!(next.at() >= last, "first come, first served");
            let unchanged = with.clone().pace(1).ok();
            prop_assert!(next.at() <= unchanged.at());
        }
    }
}

#[test]
fn a_due_booking_is_admitted_and_stays() {
    for rule in each_kind(1) {
        if matches!(rule, Rule::Semaphore(_)) {
            continue;
        }
        let mut key = Key::of(rule);
        key.pace(1).ok();
        let booking = key.pace(1).ok();
        key.now = booking.at();
        let before = key.state.clone();
        assert!(!key.cancel(booking));
        assert_eq!(key.state, before);
    }
}

#[test]
fn any_number_cancelled_in_order_is_undone() {
    let mut key = Key::of(bucket(1, 1, SEC));
    key.take(1).ok();
    let booked: Vec<Booking> = (0..1_000).map(|_| key.pace(1).ok()).collect();
    for booking in booked {
        assert!(key.cancel(booking));
    }
    assert_eq!(key.delay(1), SEC);
}

#[test]
fn the_gaps_remembered_are_bounded() {
    let mut key = Key::of(bucket(1, 1, SEC));
    key.take(1).ok();
    let booked = (0..600).map(|n| (n, key.pace(1).ok()));
    let (even, odd): (Vec<_>, Vec<_>) = booked
        .collect::<Vec<_>>()
        .into_iter()
        .partition(|(n, _)| n % 2 == 0);
    for (_, booking) in even.into_iter().chain(odd) {
        assert!(key.cancel(booking));
    }
    // What lies behind the last 128 gaps is undone; the slots before pass unused, which is safe.
    assert_eq!(key.delay(1), (600 - 2 * 128) * SEC);
}

#[test]
fn a_semaphore_beside_a_rate_comes_back_with_the_booking() {
    let mut key = Key::new(vec![weighing(semaphore(2)), weighing(bucket(1, 1, SEC))]);
    let first = key.pace(1).ok();
    let second = key.pace(1).ok();
    assert_eq!(second.at(), START + Span(SEC));
    assert!(matches!(key.pace(1), Answer::Release { index: 0 }));
    assert!(key.cancel(second));
    assert_eq!(key.figures_of(0).remaining, 1);
    let second = key.pace(1).ok();
    assert_eq!(second.at(), START + Span(SEC));
    key.advance(2 * SEC);
    key.release(&first);
    key.release(&second);
    assert_eq!(key.figures_of(0).remaining, 2);
}

/// B-101: refusals book nothing.
#[test]
fn b_101_refused_by_deadline_books_nothing() {
    let mut key = Key::of(pacer(0, 1, SEC, 500));
    key.take(1).ok();
    for _ in 0..10 {
        let refused = key.pace_within(&Weights::One(1), Span(SEC / 2));
        assert_eq!(refused.retry_after(), SEC);
    }
    assert_eq!(key.delay(1), SEC);
}
