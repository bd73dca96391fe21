//! A process's part of the limits: all parts together stay within the whole.
use limiter::limit::bounds::MAX_PERIOD;
use limiter::limit::decide::Limits;
use limiter::limit::rule::{Kind, Rule};
use limiter::limit::time::Span;
use limiter::limit::token_bucket::TokenBucket;
use proptest::prelude::*;

use crate::harness::*;

fn single(rule: Rule) -> Limits {
    Limits::new(vec![weighing(rule)], 3).unwrap()
}

/// How much a part admits to somebody who asks each ten milliseconds.
fn admitted(rule: &Rule, parts: u64, seconds: u64) -> u64 {
    let mut key = Key::new(single(rule.clone()).share(parts).limits().to_vec());
    let mut total = 0;
    for _ in 0..seconds * 100 {
        total += key.drain();
        key.advance(10 * MS);
    }
    total
}

#[test]
fn the_parts_together_stay_within_the_whole() {
    for rule in each_kind(12) {
        for parts in [1, 2, 3, 5, 12] {
            let each = admitted(&rule, parts, 3);
            // At most one full capacity, or an old window's, beside what three seconds bring.
            let most = match rule {
                Rule::Semaphore(_) => 12,
                // The first slot is free.
                Rule::Pacer(_) => 12 + 3 * 12 + parts,
                _ => 12 + 3 * 12,
            };
            assert!(each * parts <= most, "{rule:?} in {parts}: {each} each");
            assert!(each > 0, "{rule:?} in {parts}");
        }
    }
}

#[test]
fn one_part_is_the_whole() {
    for rule in each_kind(12) {
        let limits = single(rule);
        assert_eq!(limits.share(1), limits);
        assert_eq!(limits.share(0), limits);
    }
}

#[test]
fn where_there_is_no_unit_for_each_everybody_keeps_one() {
    for rule in each_kind(2) {
        assert!(admitted(&rule, 7, 8) > 0, "{rule:?}");
    }
}

#[test]
fn what_has_no_rate_is_the_same_in_parts() {
    for rule in [Rule::Unlimited, Rule::Never] {
        let limits = single(rule);
        assert_eq!(limits.share(5), limits);
    }
}

/// The same units would need a period of more than ten years; a tenth of them does not.
#[test]
fn a_slow_rate_of_many_units_is_divided_too() {
    for rule in [
        bucket(100, 100, MAX_PERIOD.0),
        pacer(0, 100, MAX_PERIOD.0, 500),
        interval(100, 100, MAX_PERIOD.0, false),
    ] {
        let parts = single(rule).share(10);
        assert!(Key::new(parts.limits().to_vec()).pace(10).is_ok());
    }
}

proptest! {
    #![proptest_config(cases(2_000))]

    /// A part of a bucket is a bucket of exactly that part of the rate; of less, where no bucket has so long a
    /// period; or none, where no bucket is so slow.
    #[test]
    fn a_rate_is_divided_exactly(
        capacity in 1..100u64,
        units in 1..100u64,
        period in prop_oneof![1..10_000_000u64, Just(MAX_PERIOD.0)],
        parts in prop_oneof![1..100u64, Just(u64::MAX)],
    ) {
        let whole = TokenBucket::new(capacity, units, Span(period), false);
        let Ok(whole) = whole else { return Ok(()) };
        let limits = single(Rule::TokenBucket(whole.clone()));
        let part = limits.share(parts);
        prop_assert_eq!(part.version(), limits.version());
        match &part.limits()[0].rule {
            Rule::TokenBucket(bucket) => {
                prop_assert_eq!(bucket.capacity(), (capacity / parts).max(1));
                let (a, b) = (whole.rate(), bucket.rate());
                let product = |x: u64, y: u64| u128::from(x) * u128::from(y);
                let whole_rate = product(a.units(), b.period());
                let all_parts = product(b.units(), a.period()) * u128::from(parts);
                prop_assert!(all_parts <= whole_rate);
                if product(a.period(), parts) <= u128::from(MAX_PERIOD.0) {
                    prop_assert_eq!(all_parts, whole_rate);
                }
            }
            other => {
                let rate = whole.rate();
                prop_assert_eq!(other.kind(), Kind::Never);
                prop_assert!(u128::from(rate.period()) * u128::from(parts) > u128::from(MAX_PERIOD.0));
                // One that takes more than a hundred years to fill is none, either.
                let (part, units) = ((capacity / parts).max(1), rate.units() / parts);
                prop_assert!(TokenBucket::new(part, units, Span(rate.period()), false).is_err());
            }
        }
    }
}
