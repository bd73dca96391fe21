//! Long runs under full load: a limiter that promises a rate also delivers it.
use limiter::limit::rule::Rule;
use limiter::limit::time::{Span, Time};
use proptest::prelude::*;

use crate::exact::{bucket_terms, magnitude};
use crate::harness::*;
use crate::invariants::check_history;

/// Takes one unit whenever one is to be had, as an obedient caller does, until `end`.
fn saturate(key: &mut Key, weight: u64, end: Time) -> Vec<(u64, u64)> {
    let mut history = Vec::new();
    while key.now < end {
        match key.take(weight) {
            Answer::Ok(_) => history.push((key.now.0, weight)),
            denied => {
                key.advance(denied.retry_after());
                if key.now >= end {
                    break;
                }
                // B-041: an obeyed wait is never denied.
                key.take(weight).ok();
                history.push((key.now.0, weight));
            }
        }
    }
    history
}

fn admitted(rule: Rule, span: u64) -> u64 {
    let mut key = Key::of(rule.clone());
    let history = saturate(&mut key, 1, START + Span(span));
    if history.len() < 5_000 {
        check_history(&rule, &history);
    }
    history.iter().map(|(_, weight)| weight).sum()
}

#[test]
fn b_046_no_drift_down() {
    assert_eq!(admitted(bucket(1, 10, SEC), 30 * SEC), 300);
    assert_eq!(admitted(pacer(0, 10, SEC, 500), 30 * SEC), 300);
    assert_eq!(admitted(interval(1, 1, 100 * MS, false), 30 * SEC), 300);
    assert_eq!(admitted(log(10, SEC), 30 * SEC), 300);
    // Periods of no whole number of microseconds.
    assert_eq!(admitted(bucket(1, 3, SEC), 100 * SEC), 300);
    assert_eq!(admitted(pacer(0, 3_000, SEC, 500), SEC), 3_000);
    assert_eq!(admitted(bucket(2, 7, 11), 11_000), 7_001);
    // A pacer's slots are closer than a microsecond here.
    assert_eq!(admitted(pacer(0, 3, 2, 500), 10_002), 15_002);
}

#[test]
fn b_019_thousands_a_second_limit_in_both_directions() {
    for (burst, refill, period, span) in [
        (1, 8_000, SEC, 10 * SEC),
        (2, 8_000, SEC, 10 * SEC),
        (8_000, 8_000, SEC, 10 * SEC),
        (1, 1_000, 60 * SEC, 10 * SEC),
        (1_000, 1_000, 60 * SEC, 10 * SEC),
        (2, 6_000, SEC, 10 * SEC),
        (6_000, 6_000, SEC, 10 * SEC),
    ] {
        let n = admitted(bucket(burst, refill, period), span);
        let rate = span * refill / period;
        assert!((rate - 1..=rate + burst).contains(&n), "{n} of {rate}");
    }
}

/// Two admissions 166 us apart would be more than 1 + 6000/s * 166 us: where nothing can be saved up,
/// the exact upper bound costs less than a microsecond for each admission.
#[test]
fn a_bucket_of_one_keeps_the_upper_bound_to_the_microsecond() {
    let n = admitted(bucket(1, 6_000, SEC), 10 * SEC);
    assert_eq!(n, (10 * SEC).div_ceil(167));
}

#[test]
fn b_017_a_billion_a_second() {
    let billion = 1_000_000_000;
    let mut key = Key::of(bucket(billion, billion, SEC));
    key.take(billion).ok();
    assert_eq!(key.take(1).retry_after(), 1);
    key.advance(1);
    key.take(1_000).ok();
    assert_eq!(key.take(1).retry_after(), 1);
    // Within a millisecond from fresh: the burst, and what a millisecond brings.
    let mut key = Key::of(bucket(billion, billion, SEC));
    let mut sum = 0;
    for _ in 0..1_000 {
        while key.take(500_000).is_ok() {
            sum += 500_000;
        }
        key.advance(1);
    }
    assert!(sum > billion && sum <= billion + 999 * 1_000, "{sum}");
}

#[test]
fn b_047_a_wait_for_less_than_a_unit_is_a_wait() {
    let mut key = Key::of(bucket(1_000, 1_000_000, SEC));
    assert_eq!(key.drain(), 1_000);
    let mut decisions = 0;
    for _ in 0..1_000 {
        loop {
            decisions += 1;
            match key.take(1) {
                Answer::Ok(_) => break,
                denied => key.advance(denied.retry_after()),
            };
        }
    }
    assert!(decisions <= 2_000, "two calls for each admission at most");
}

/// What the reference's try mode admits 1.75 times too much of.
#[test]
fn a_pacer_with_burst_keeps_its_rate_over_time() {
    for permille in [0, 500, 1_000] {
        let n = admitted(pacer(10, 10, SEC, permille), 60 * SEC);
        assert!((600..=611).contains(&n), "{permille}: {n}");
    }
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn a_saturated_bucket_delivers_its_rate(
        (capacity, refill, period) in bucket_terms(),
        weight in magnitude(1, 1 << 48),
        n in 1u64..400,
    ) {
        let weight = weight.min(capacity);
        let mut key = Key::of(bucket(capacity, refill, period));
        key.take(capacity).ok();
        for _ in 0..n {
            if let Answer::Denied { retry_after, .. } = key.take(weight) {
                key.advance(retry_after.0);
                key.take(weight).ok();
            }
        }
        // It took no longer than the rate needs, but for the last microsecond. Only where there is no
        // room to save up what a begun microsecond brings, each admission may cost one.
        let needed = (n as u128 * weight as u128 * period as u128).div_ceil(refill as u128);
        let took = key.now.since(START).0 as u128;
        if capacity - weight >= refill.div_ceil(period) {
            prop_assert_eq!(took, needed);
        } else {
            prop_assert!((needed..needed + n as u128).contains(&took));
        }
    }

    #[test]
    fn a_saturated_pacer_delivers_its_rate(
        (_, refill, period) in bucket_terms(),
        burst in 0u64..5,
        permille in 0u64..=1000,
        n in 1u64..200,
    ) {
        let most = 3_155_760_000_000_000u128 * refill as u128 / period as u128;
        prop_assume!(u128::from(burst) <= most);
        let mut key = Key::of(pacer(burst, refill, period, permille));
        for _ in 0..burst + 1 {
            prop_assert_eq!(key.take(1).ok().at(), START);
        }
        for _ in 0..n {
            if let Answer::Denied { retry_after, .. } = key.take(1) {
                prop_assert!(retry_after.0 < 1 << 53);
                key.advance(retry_after.0);
                key.take(1).ok();
            }
        }
        let needed = (n as u128 * period as u128).div_ceil(refill as u128);
        prop_assert!(key.now.since(START).0 as u128 <= needed);
    }
}
