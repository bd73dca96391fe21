//! The ends of every range: refused beyond, exact up to there.
use limiter::limit::bounds::{MAX_AHEAD, MAX_FILL, MAX_PERIOD, MAX_UNITS};
use limiter::limit::decide::Outcome;
use limiter::limit::fixed_window::{Align, FixedWindow};
use limiter::limit::interval_bucket::IntervalBucket;
use limiter::limit::pacer::Pacer;
use limiter::limit::rate::muldiv;
use limiter::limit::semaphore::Semaphore;
use limiter::limit::sliding_counter::SlidingCounter;
use limiter::limit::sliding_log::SlidingLog;
use limiter::limit::time::{Span, Time};
use limiter::limit::token_bucket::TokenBucket;
use limiter::limit::weights::Weights;
use proptest::prelude::*;

use crate::exact::{bucket_terms, magnitude};
use crate::harness::*;

/// The year 2100.
const LATE: Time = Time(4_102_444_800_000_000);
const TEN_YEARS: u64 = MAX_PERIOD.0;

fn refused<T: std::fmt::Debug>(made: Result<T, String>, parts: &[&str]) {
    let message = made.unwrap_err();
    for part in parts {
        assert!(message.contains(part), "{message} has no {part}");
    }
}

#[test]
fn b_001_b_016_b_022_out_of_range_is_refused_with_the_range() {
    let second = Span(SEC);
    for bad in [0, MAX_UNITS + 1, u64::MAX] {
        let value = bad.to_string();
        let capacity = ["capacity", "1 to 281474976710656", value.as_str()];
        refused(Semaphore::new(bad, Span::ZERO, true), &capacity);
        refused(TokenBucket::new(bad, 1, second, false), &capacity);
        refused(IntervalBucket::new(bad, 1, second, false), &capacity);
        refused(SlidingLog::new(bad, second), &capacity);
        refused(SlidingCounter::new(bad, second), &capacity);
        refused(FixedWindow::new(bad, second, Align::Clock), &capacity);
        let refill = ["refill", "1 to 281474976710656", value.as_str()];
        refused(TokenBucket::new(1, bad, second, false), &refill);
        refused(IntervalBucket::new(1, bad, second, false), &refill);
        refused(Pacer::new(1, bad, second, 500), &refill);
    }
    for bad in [0, TEN_YEARS + 1, u64::MAX] {
        let bad = Span(bad);
        let period = ["period_us", "1 to 315576000000000"];
        refused(TokenBucket::new(1, 1, bad, false), &period);
        refused(IntervalBucket::new(1, 1, bad, false), &period);
        refused(Pacer::new(1, 1, bad, 500), &period);
        refused(SlidingLog::new(1, bad), &period);
        refused(SlidingCounter::new(1, bad), &period);
        refused(FixedWindow::new(1, bad, Align::FirstUse), &period);
    }
    refused(
        Pacer::new(MAX_UNITS + 1, 1, second, 500),
        &["capacity", "0 to 281474976710656"],
    );
    refused(
        Pacer::new(1, 1, second, 1_001),
        &["burst_earn_permille", "0 to 1000", "1001"],
    );
    refused(
        TokenBucket::new(1, 1_001, Span(1), false),
        &["1000 per microsecond", "1001 in 1"],
    );
    refused(
        Pacer::new(1, 1_000_000_001, second, 500),
        &["1000 per microsecond"],
    );
    let fill = ["capacity * period_us / refill", "3155760000000000"];
    refused(TokenBucket::new(11, 1, MAX_PERIOD, false), &fill);
    refused(TokenBucket::new(MAX_UNITS, 1, MAX_PERIOD, false), &fill);
    // A fraction of a microsecond too long is too long.
    let most = MAX_FILL.0 * 7 / 1_000;
    for units in [most - 1, most] {
        TokenBucket::new(units, 7, Span(1_000), false).unwrap();
        Pacer::new(units, 7, Span(1_000), 500).unwrap();
    }
    refused(TokenBucket::new(most + 1, 7, Span(1_000), false), &fill);
    refused(Pacer::new(most + 1, 7, Span(1_000), 500), &fill);
    refused(IntervalBucket::new(11, 1, MAX_PERIOD, false), &fill);
    refused(Pacer::new(11, 1, MAX_PERIOD, 500), &fill);
}

#[test]
fn the_ends_of_the_ranges_are_allowed() {
    TokenBucket::new(10, 1, MAX_PERIOD, true).unwrap();
    TokenBucket::new(MAX_UNITS, MAX_UNITS, Span(MAX_UNITS / 1_000 + 1), false).unwrap();
    TokenBucket::new(MAX_UNITS, 1_000, Span(1), false).unwrap();
    IntervalBucket::new(MAX_UNITS, MAX_UNITS, Span(1), false).unwrap();
    IntervalBucket::new(10, 1, MAX_PERIOD, false).unwrap();
    Pacer::new(0, 1, MAX_PERIOD, 0).unwrap();
    Pacer::new(MAX_UNITS, 1_000, Span(1), 1_000).unwrap();
    SlidingLog::new(MAX_UNITS, MAX_PERIOD).unwrap();
    SlidingCounter::new(MAX_UNITS, MAX_PERIOD).unwrap();
    FixedWindow::new(MAX_UNITS, Span(1), Align::Clock).unwrap();
    Semaphore::new(MAX_UNITS, Span::ZERO, false).unwrap();
}

#[test]
fn one_in_ten_years() {
    for now in [Time(0), START, LATE] {
        let mut key = Key::at(vec![weighing(bucket(1, 1, TEN_YEARS))], now);
        key.take(1).ok();
        assert_eq!(key.take(1).retry_after(), TEN_YEARS);
        key.advance(TEN_YEARS - 1);
        assert_eq!(key.take(1).retry_after(), 1);
        key.advance(1).take(1).ok();
    }
}

#[test]
fn b_016_the_largest_bucket_counts_to_the_last_unit() {
    for period in [1, 315, TEN_YEARS] {
        let refill = (MAX_UNITS / 10 + 1).min(1_000 * period);
        for now in [START, LATE] {
            let mut key = Key::at(vec![weighing(bucket(MAX_UNITS, refill, period))], now);
            key.take(MAX_UNITS - 1).ok();
            assert_eq!(key.remaining(), 1);
            key.take(1).ok();
            assert_eq!(key.remaining(), 0);
            let exact = (MAX_UNITS as u128 * period as u128).div_ceil(refill as u128) as u64;
            assert_eq!(key.take(MAX_UNITS).retry_after(), exact);
            key.advance(exact - 1);
            assert!(!key.take(MAX_UNITS).is_ok());
            key.advance(1).take(MAX_UNITS).ok();
        }
    }
}

#[test]
fn b_007_b_008_b_010_too_heavy_is_never_at_once() {
    for rule in each_kind(10) {
        let paced = matches!(rule, limiter::limit::rule::Rule::Pacer(_));
        let mut key = Key::of(rule);
        for weight in [
            11,
            16,
            1 << 48,
            (1 << 48) + 1,
            1 << 53,
            u64::MAX - 1,
            u64::MAX,
        ] {
            for _ in 0..3 {
                let never = matches!(key.take(weight), Answer::Never { index: 0 });
                // A pacer spaces any weight, up to ten years' worth.
                let expected = !paced || weight as u128 * SEC as u128 / 10 > TEN_YEARS as u128;
                assert_eq!(never, expected, "{weight} of {:?}", key.limits);
                key.advance(1_000);
            }
        }
    }
}

#[test]
fn every_weight_on_every_kind() {
    for rule in each_kind(MAX_UNITS / 1_000_000) {
        for weight in [
            0,
            1,
            MAX_UNITS / 1_000_000,
            MAX_UNITS / 1_000_000 + 1,
            MAX_UNITS,
            u64::MAX,
        ] {
            let mut key = Key::of(rule.clone());
            key.advance(3 * SEC);
            for _ in 0..4 {
                if weight == 0 {
                    assert_eq!(key.decide(&Weights::One(0)).outcome, Outcome::Admit);
                } else {
                    key.pace(weight);
                }
                key.advance(1);
            }
        }
    }
}

#[test]
fn what_cannot_be_booked_within_ten_years_is_not() {
    let mut key = Key::of(bucket(1, 1, TEN_YEARS));
    key.pace(1).ok();
    assert_eq!(key.delay(1), MAX_AHEAD.0);
    let verdict = key.decide(&Weights::One(1));
    assert_eq!(
        verdict.outcome,
        Outcome::TooFar(START + Span(2 * TEN_YEARS))
    );
    assert_eq!(key.pace(1).retry_after(), 2 * TEN_YEARS);
    assert_eq!(MAX_FILL.0, 10 * TEN_YEARS);
}

/// Its sums would run over behind more bookings than it can count.
#[test]
fn a_log_books_no_more_than_it_can_count() {
    let most = MAX_UNITS;
    let mut key = Key::of(log(most, SEC));
    for ahead in 0..16 {
        assert_eq!(key.delay(most), ahead * SEC);
    }
    let before = key.state.clone();
    let verdict = key.decide(&Weights::One(most));
    assert_eq!(verdict.outcome, Outcome::TooFar(START + Span(16 * SEC)));
    assert_eq!(key.pace(most).retry_after(), 16 * SEC);
    assert_eq!(key.state, before);
    // What is a window old makes room.
    key.advance(SEC);
    assert_eq!(key.delay(most), 15 * SEC);
    assert!(!key.pace(1).is_ok());
}

/// As one, what was cancelled in a row is still small enough for a script.
#[test]
fn many_that_are_cancelled_in_a_row_are_no_larger_together() {
    for rule in [
        bucket(MAX_UNITS, 1_000_000_000, SEC),
        interval(MAX_UNITS, 1_000_000_000, SEC, false),
        pacer(0, 1_000_000_000, SEC, 500),
        log(MAX_UNITS, SEC),
        counter(MAX_UNITS, SEC),
        fixed(MAX_UNITS, SEC),
    ] {
        let mut key = Key::of(rule);
        let booked = (0..40).filter_map(|_| match key.pace(MAX_UNITS) {
            Answer::Ok(booking) => Some(booking),
            _ => None,
        });
        let booked: Vec<_> = booked.collect();
        let (last, others) = booked.split_last().unwrap();
        for booking in others {
            key.cancel(booking.clone());
            for number in numbers(&key.state) {
                assert!(number < 1 << 53, "{:?}", key.state);
            }
        }
        key.cancel(last.clone());
        assert_eq!(key.state.booked_until().max(key.now), key.now);
    }
}

/// Every number in a state, read off its debug form.
fn numbers(state: &impl std::fmt::Debug) -> Vec<u64> {
    format!("{state:?}")
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
        .collect()
}

proptest! {
    #![proptest_config(cases(1_000))]

    /// B-070: at the end of this century all of it still fits a script's numbers.
    #[test]
    fn b_070_no_number_exceeds_two_to_the_53(
        (capacity, refill, period) in bucket_terms(),
        permille in 0u64..=1000,
        kind in 0usize..7,
        calls in prop::collection::vec((any::<u64>(), magnitude(0, u64::MAX), any::<u64>()), 1..40),
    ) {
        let rule = match kind {
            0 => bucket(capacity, refill, period),
            1 => empty_bucket(capacity, refill, period),
            2 => interval(capacity.min(10 * refill), refill, period, false),
            3 => pacer(capacity, refill, period, permille),
            4 => counter(capacity, period),
            5 => fixed(capacity, period),
            _ => fixed_from_first_use(capacity, period),
        };
        let mut key = Key::at(vec![weighing(rule)], LATE);
        for (weight, actual, gap) in calls {
            let weight = weight % capacity + 1;
            if let Answer::Ok(mut booking) = key.pace(weight) {
                key.settle(&mut booking, actual);
            }
            for number in numbers(&key.state) {
                prop_assert!(number < 1 << 53, "{:?}", key.state);
            }
            prop_assert!(key.fresh_at().0 < 1 << 54);
            if gap % 4 == 0 {
                key.advance(gap % 1_000_000);
            }
        }
    }

    #[test]
    fn muldiv_is_exact(a in any::<u64>(), b in any::<u64>(), n in 1..=u64::MAX) {
        let (q, r) = muldiv(a, b, n);
        let product = a as u128 * b as u128;
        if product / (n as u128) < u64::MAX as u128 {
            prop_assert_eq!(q as u128 * n as u128 + r as u128, product);
            prop_assert!(r < n);
        } else {
            prop_assert_eq!(q, u64::MAX);
        }
    }
}
