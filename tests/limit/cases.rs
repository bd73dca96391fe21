//! Public bug reports of other limiters, by their number.
use limiter::limit::rule::Rule;
use limiter::limit::time::Span;
use limiter::limit::weights::Weights;

use crate::harness::*;

#[test]
fn b_004_the_burst_once_and_unlimited_always() {
    let mut key = Key::of(Rule::Unlimited);
    for _ in 0..100 {
        key.take(u64::MAX).ok();
    }
}

#[test]
fn b_005_nothing_waits_for_ever() {
    let mut key = Key::of(Rule::Never);
    assert!(matches!(key.pace(1), Answer::Never { .. }));
}

#[test]
fn b_007_the_told_wait_is_enough_or_there_is_none() {
    let mut key = Key::of(bucket(10, 10, 10 * SEC));
    assert!(matches!(key.take(16), Answer::Never { .. }));
    key.take(10).ok();
    let wait = key.take(10).retry_after();
    key.advance(wait).take(10).ok();
}

#[test]
fn b_020_a_slow_bucket_starts_full() {
    let mut key = Key::of(bucket(1, 1, 10_000 * SEC));
    key.take(1).ok();
    assert_eq!(key.take(1).retry_after(), 10_000 * SEC);
}

#[test]
fn b_023_a_window_of_one() {
    let mut key = Key::of(log(1, 10 * SEC));
    key.take(1).ok();
    assert_eq!(key.take(1).retry_after(), 10 * SEC);
    key.advance(10 * SEC).take(1).ok();
    // The counter cannot know when in the previous window it was: it waits until that has faded.
    let mut key = Key::of(counter(1, 10 * SEC));
    key.take(1).ok();
    let wait = key.take(1).retry_after();
    assert!((10 * SEC..=20 * SEC).contains(&wait));
    key.advance(wait).take(1).ok();
}

#[test]
fn b_025_a_weight_of_zero_costs_nothing() {
    for rule in each_kind(5) {
        let key = Key::of(rule);
        let before = key.figures();
        for _ in 0..100 {
            key.decide(&Weights::One(0));
        }
        assert_eq!(key.figures(), before);
    }
}

#[test]
fn b_029_capacity_costs_nothing() {
    for capacity in [10_000, 1 << 31, 1 << 48] {
        let mut key = Key::of(semaphore(capacity));
        let all = key.take(capacity).ok();
        assert!(matches!(key.take(1), Answer::Release { .. }));
        key.release(&all);
        key.reopen(vec![weighing(semaphore(10))]);
        assert_eq!(key.remaining(), 10);
    }
}

#[test]
fn b_031_half_a_second_is_half_a_second() {
    let mut key = Key::of(bucket(1, 2, SEC));
    key.take(1).ok();
    assert_eq!(key.take(1).retry_after(), 500 * MS);
}

#[test]
fn b_032_periods_of_any_length() {
    for period in [500 * MS, 1_500 * MS, 600_001 * MS, 1, 333_333] {
        for rule in [
            bucket(1, 1, period),
            log(1, period),
            fixed_from_first_use(1, period),
        ] {
            let mut key = Key::of(rule);
            key.take(1).ok();
            assert_eq!(key.take(1).retry_after(), period);
            key.advance(period).take(1).ok();
        }
    }
}

#[test]
fn b_034_at_the_edge_of_a_window() {
    for kind in [fixed, counter, fixed_from_first_use] {
        let mut key = Key::of(kind(3, SEC));
        for _ in 0..1_000 {
            key.drain();
            let wait = key.take(1).retry_after();
            key.advance(wait - 1);
            assert_eq!(key.take(1).retry_after(), 1);
            assert!(key.figures().reset_after > Span::ZERO);
            key.advance(1);
        }
    }
}

#[test]
fn b_037_b_038_a_slow_bucket_is_not_forgotten_while_it_owes() {
    for (period, idle) in [(60 * SEC, 31 * SEC), (2 * HOUR, 3_660 * SEC)] {
        let mut key = Key::of(bucket(1, 1, period));
        key.take(1).ok();
        key.advance(idle);
        assert!(!key.forget_if_fresh());
        assert_eq!(key.take(1).retry_after(), period - idle);
    }
}

#[test]
fn b_040_a_denial_tells_a_wait() {
    let mut key = Key::of(bucket(1, 10, SEC));
    key.take(1).ok();
    assert_eq!(key.take(1).retry_after(), 100 * MS);
}

#[test]
fn b_043_what_is_left_of_a_unit_is_kept() {
    let mut key = Key::of(bucket(10, 10, 10 * SEC));
    key.take(10).ok();
    key.advance(1_750 * MS).take(1).ok();
    assert!(!key.take(1).is_ok());
    key.advance(250 * MS).take(1).ok();
}

#[test]
fn b_044_what_accrued_shortens_the_wait() {
    let mut key = Key::of(bucket(1, 1, SEC));
    key.take(1).ok();
    key.advance(900 * MS);
    assert_eq!(key.take(1).retry_after(), 100 * MS);
}

#[test]
fn b_052_exactly_as_many_as_time_brings() {
    for k in [1, 2, 7, 10] {
        let mut key = Key::of(bucket(10, 3, SEC));
        key.drain();
        key.advance((k * SEC).div_ceil(3));
        assert_eq!(key.drain(), k);
    }
}

#[test]
fn b_053_at_zero_left_the_next_is_told_when() {
    let mut key = Key::of(bucket(5, 1, SEC));
    assert_eq!(key.drain(), 5);
    assert_eq!(key.remaining(), 0);
    assert_eq!(key.take(1).retry_after(), SEC);
}

#[test]
fn b_055_a_log_resets_when_its_oldest_leaves() {
    let mut key = Key::of(log(3, 10 * SEC));
    for _ in 0..3 {
        key.take(1).ok();
        key.advance(4 * SEC);
    }
    key.now = START + Span(8 * SEC);
    assert_eq!(key.figures().reset_after, Span(2 * SEC));
}

#[test]
fn b_058_an_old_key_bursts_no_more_than_a_fresh_one() {
    let mut key = Key::of(bucket(10, 1, SEC));
    key.drain();
    key.advance(10 * SEC - 1);
    assert_eq!(key.drain(), 9);
    let mut key = Key::of(bucket(10, 1, SEC));
    key.drain();
    key.advance(1_000 * HOUR);
    assert_eq!(key.drain(), 10);
}

#[test]
fn b_059_a_peek_moves_nothing() {
    for rule in each_kind(5) {
        let mut key = Key::of(rule);
        key.pace(2);
        let before = (key.figures(), key.state.clone());
        for _ in 0..10 {
            key.decide(&Weights::One(1));
        }
        assert_eq!((key.figures(), key.state.clone()), before);
    }
}

#[test]
fn b_076_the_pure_count_never_falls_below_what_is_held() {
    let mut key = Key::of(semaphore(2));
    let a = key.take(1).ok();
    let b = key.take(1).ok();
    key.release(&a);
    key.release(&b);
    assert_eq!(key.remaining(), 2);
    assert_eq!(key.drain(), 2);
}

#[test]
fn b_089_b_091_what_fits_is_told_at_each_release() {
    let mut key = Key::of(semaphore(3));
    let held: Vec<_> = (0..3).map(|_| key.take(1).ok()).collect();
    for booking in &held {
        assert!(matches!(key.take(3), Answer::Release { .. }));
        key.release(booking);
    }
    key.take(3).ok();
}

#[test]
fn b_100_a_wait_that_is_too_long_is_known_at_once() {
    let mut key = Key::of(bucket(1, 1, 60 * SEC));
    key.take(1).ok();
    let denied = key.pace_within(&Weights::One(1), Span(5 * SEC));
    assert_eq!(denied.retry_after(), 60 * SEC);
}

#[test]
fn b_103_only_the_sixth_waits() {
    let mut key = Key::of(bucket(5, 5, SEC));
    let delays: Vec<u64> = (0..6).map(|_| key.delay(1)).collect();
    assert_eq!(delays, [0, 0, 0, 0, 0, 200 * MS]);
}

#[test]
fn b_104_no_wait_and_a_free_unit() {
    for rule in each_kind(1) {
        let mut key = Key::of(rule);
        if key.remaining() > 0 {
            key.pace_within(&Weights::One(1), Span::ZERO).ok();
        }
    }
}

#[test]
fn b_142_exactly_the_capacity() {
    let mut key = Key::of(bucket(100, 1, HOUR));
    assert_eq!((0..10_000).filter(|_| key.take(1).is_ok()).count(), 100);
}

#[test]
fn b_143_what_left_the_window_does_not_count() {
    let mut key = Key::of(log(2, SEC));
    key.take(2).ok();
    key.advance(1_001 * MS).take(1).ok();
}

#[test]
fn b_145_a_bucket_in_debt_survives_housekeeping() {
    let mut key = Key::of(bucket(5, 1, SEC));
    let mut admitted = 0;
    for _ in 0..100 {
        admitted += key.drain();
        key.advance(100 * MS);
        key.forget_if_fresh();
    }
    assert_eq!(admitted, 5 + 9);
}

#[test]
fn b_146_burst_and_refill_or_strictly_so_many() {
    let saturated = |rule| {
        let mut key = Key::of(rule);
        let end = START + Span(60 * SEC);
        let mut n = 0;
        while key.now < end {
            n += key.drain();
            let wait = key.take(1).retry_after();
            key.advance(wait);
        }
        n
    };
    assert_eq!(saturated(bucket(10, 10, 60 * SEC)), 19);
    assert_eq!(saturated(log(10, 60 * SEC)), 10);
}

#[test]
fn b_148_the_wait_goes_on_from_where_it_was() {
    let mut key = Key::of(bucket(5, 1, 60 * SEC));
    key.drain();
    key.advance(59 * SEC);
    assert_eq!(key.take(1).retry_after(), SEC);
}

#[test]
fn b_149_the_burst_is_said_not_derived() {
    for (capacity, refill, period) in [(1_000, 1_000, 10 * SEC), (100, 100, SEC), (7, 100, SEC)] {
        assert_eq!(Key::of(bucket(capacity, refill, period)).drain(), capacity);
    }
}

/// "Slots 31 s apart where never closer than 60 are right."
#[test]
fn an_interval_of_sixty_seconds_is_sixty_seconds() {
    for empty in [false, true] {
        let mut key = Key::of(interval(1, 1, 60 * SEC, empty));
        let mut last = None;
        for _ in 0..20 {
            let at = key.pace(1).ok().at();
            assert!(last.is_none_or(|last| at.since(last) >= Span(60 * SEC)));
            last = Some(at);
            key.advance(31 * SEC);
        }
    }
}

/// "25 s idle at 1 per 100 ms, capacity 1: 125 of 200 ran within 100 ms; right: 1."
#[test]
fn idling_saves_up_no_more_than_the_capacity() {
    for empty in [false, true] {
        let mut key = Key::of(interval(1, 1, 100 * MS, empty));
        key.advance(25 * SEC);
        let soon = (0..200).filter(|_| key.delay(1) < 100 * MS).count();
        assert_eq!(soon, 1);
    }
}

#[test]
fn a_sequential_caller_gets_one_each_period() {
    let mut key = Key::of(interval(1, 1, 100 * MS, true));
    for i in 1..50 {
        let at = key.pace(1).ok().at();
        assert_eq!(at, START + Span(i * 100 * MS));
        key.now = at;
    }
}

#[test]
fn a_bucket_that_starts_empty_fills_from_the_first_look() {
    for rule in [empty_bucket(5, 1, SEC), interval(5, 1, SEC, true)] {
        let mut key = Key::of(rule);
        assert!(key.limits.starts_empty());
        assert_eq!(key.remaining(), 0);
        assert_eq!(key.take(1).retry_after(), SEC);
        key.advance(SEC).take(1).ok();
        key.advance(10 * SEC);
        assert!(!key.forget_if_fresh(), "it would be empty again");
        assert_eq!(key.drain(), 5);
        key.advance(64 * SEC);
        assert!(
            !key.forget_if_fresh(),
            "it has been full for less than a minute"
        );
        key.advance(SEC);
        assert!(key.forget_if_fresh());
    }
}
