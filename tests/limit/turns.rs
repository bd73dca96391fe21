//! Those who wait for rates have their turn when they were promised it, or earlier where something is given
//! back before.
use limiter::limit::decide::Booking;
use limiter::limit::rule::Rule;
use limiter::limit::time::Time;
use proptest::prelude::*;

use crate::harness::*;

/// One who waited and has had its turn.
struct Started {
    booking: Booking,
    weight: u64,
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn a_turn_comes_as_promised_or_earlier_for_what_is_given_back(
        kind in 0..11usize,
        weights in prop::collection::vec(1..=3u64, 1..20),
        later in 0..=3 * SEC,
        settles in prop::collection::vec(prop::option::of((any::<usize>(), 0..=3u64)), 20),
    ) {
        let rule = each_kind(3).swap_remove(kind);
        prop_assume!(!matches!(rule, Rule::Semaphore(_)));
        let mut key = Key::of(rule);
        key.take(2);
        key.advance(later);
        key.take(2);
        let (since, mut outlook) = (key.now, key.clone());
        let mut seen = since;
        let mut given_back = false;
        let mut started: Vec<Started> = Vec::new();
        for (weight, settle) in weights.into_iter().zip(settles) {
            let booking = outlook.pace(weight).ok();
            let turn = key.limits.turn(&key.state, seen, &booking).unwrap();
            prop_assert!(turn <= booking.at(), "{turn:?} {booking:?}");
            prop_assert!(given_back || turn == booking.at(), "{turn:?} {booking:?}");
            let taken = key.limits.take_turn(&mut key.state, turn, turn, since, &booking);
            prop_assert_eq!(taken.at(), turn);
            (seen, key.now) = (turn, turn);
            started.push(Started { booking: taken, weight });
            if let Some((i, actual)) = settle {
                let i = i % started.len();
                let Started { mut booking, weight } = started.swap_remove(i);
                if actual < weight {
                    key.settle(&mut booking, actual);
                    given_back = true;
                }
            }
        }
    }

    /// What is used beyond an estimate those behind pay for, in the outlook no less than in the key.
    #[test]
    fn an_outlook_owes_at_least_what_the_key_owes(
        kind in 0..11usize,
        weights in prop::collection::vec(1..=3u64, 1..8),
        extra in 1..=9u64,
    ) {
        let rule = each_kind(3).swap_remove(kind);
        prop_assume!(!matches!(rule, Rule::Semaphore(_)));
        let mut key = Key::of(rule);
        let mut first = key.pace(3).ok();
        let mut outlook = key.clone();
        let waiting: Vec<Booking> = weights.iter().map(|n| outlook.pace(*n).ok()).collect();
        prop_assert!(key.limits.is_more(&first, 3 + extra));
        prop_assert!(!key.limits.is_more(&first, 3));
        let now = key.now;
        outlook.limits.owe(&mut outlook.state, now, &first, 3 + extra);
        key.settle(&mut first, 3 + extra);
        // All in the line start as promised; what comes behind is promised no more than there is.
        for booking in &waiting {
            let at = booking.at().max(key.now);
            key.limits.take_turn(&mut key.state, at, at, now, booking);
            key.now = at;
        }
        let behind = outlook.delay(1) + now.0;
        let is = key.limits.turn(&key.state, key.now, &Key::of(bucket(9, 9, SEC)).take(1).ok());
        prop_assert!(is.unwrap_or(Time(0)) <= Time(behind), "{is:?} {behind}");
    }
}
