//! Clocks that jump: a step back counts as no time passed, and time flows on from there.
use limiter::limit::time::{Monotone, Span, Time};
use proptest::prelude::*;

use crate::harness::*;
use crate::invariants::check_history;

#[test]
fn b_065_forward_back_and_still() {
    let mut clock = Monotone::default();
    let mut key = Key::of(bucket(1, 1, 10 * SEC));
    let mut at = |key: &mut Key, raw: u64| key.now = clock.observe(Time(START.0 + raw));
    at(&mut key, 0);
    key.take(1).ok();
    at(&mut key, 10 * SEC);
    key.take(1).ok();
    at(&mut key, 7 * SEC);
    assert_eq!(key.take(1).retry_after(), 10 * SEC);
    at(&mut key, 7 * SEC);
    assert_eq!(key.take(1).retry_after(), 10 * SEC);
    // It flows again from the step on: no stall until the old reading comes back.
    at(&mut key, 17 * SEC);
    key.take(1).ok();
}

/// The reference counts a step back and forth again twice.
#[test]
fn a_step_back_and_forth_is_credited_once() {
    let mut clock = Monotone::default();
    let mut key = Key::of(bucket(10, 1, SEC));
    key.now = clock.observe(START);
    assert_eq!(key.drain(), 10);
    let mut admitted = 0;
    for _ in 0..50 {
        key.now = clock.observe(START + Span(5 * SEC));
        admitted += key.drain();
        key.now = clock.observe(START);
        admitted += key.drain();
    }
    // Each way forward is time that passed by this clock; each way back is none.
    assert_eq!(admitted, 50 * 5);
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn no_clock_makes_any_kind_admit_more(
        raw in prop::collection::vec((0u64..200, 1u64..5), 1..60),
        n in 2u64..8,
    ) {
        for rule in each_kind(n) {
            if matches!(rule, limiter::limit::rule::Rule::Semaphore(_)) {
                continue;
            }
            let mut clock = Monotone::default();
            let mut key = Key::of(rule.clone());
            let mut history = Vec::new();
            let mut last = Time(0);
            for (reading, weight) in &raw {
                key.now = clock.observe(Time(START.0 + reading * 50 * MS));
                prop_assert!(key.now >= last);
                last = key.now;
                if *weight <= n && key.take(*weight).is_ok() {
                    history.push((key.now.0, *weight));
                }
            }
            check_history(&rule, &history);
        }
    }

    #[test]
    fn a_monotone_clock_counts_exactly_the_way_forward(
        raw in prop::collection::vec(0u64..1_000_000, 1..100),
    ) {
        let mut clock = Monotone::default();
        let mut expected = raw[0];
        let mut previous = raw[0];
        for reading in raw {
            expected += reading.saturating_sub(previous);
            previous = reading;
            prop_assert_eq!(clock.observe(Time(reading)).0, expected);
        }
    }
}
