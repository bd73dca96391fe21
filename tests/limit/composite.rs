//! Several limits together: all or none, and honest about which one stands in the way.
use limiter::limit::decide::{Limits, MAX_LIMITS, Outcome};
use limiter::limit::rule::{Kind, Rule};
use limiter::limit::semaphore::Semaphore;
use limiter::limit::time::Span;
use limiter::limit::weights::Weights;

use crate::harness::*;

#[test]
fn b_122_all_or_none() {
    let mut key = Key::new(vec![
        weighing(bucket(10, 1, HOUR)),
        weighing(bucket(1, 1, HOUR)),
    ]);
    let admitted = (0..5).filter(|_| key.take(1).is_ok()).count();
    assert_eq!(admitted, 1);
    assert_eq!(key.figures_of(0).remaining, 9);
}

#[test]
fn b_124_the_longest_wait_and_who_denies() {
    for (first, second, index) in [(10, 3, 0), (3, 10, 1), (10, 10, 0)] {
        let mut key = Key::new(vec![
            weighing(bucket(1, 1, first * SEC)),
            weighing(bucket(1, 1, second * SEC)),
        ]);
        key.take(1).ok();
        let denied = key.take(1);
        let expected = Answer::Denied {
            retry_after: Span(10 * SEC),
            index,
        };
        assert_eq!(denied, expected);
    }
}

#[test]
fn b_125_the_parent_is_not_charged_for_what_the_child_denies() {
    let mut key = Key::new(vec![weighing(fixed(5, HOUR)), weighing(fixed(1, HOUR))]);
    assert_eq!(key.drain(), 1);
    assert_eq!(key.figures_of(0).remaining, 4);
}

#[test]
fn figures_are_of_the_tightest() {
    let mut key = Key::new(vec![
        weighing(bucket(10, 1, HOUR)),
        weighing(bucket(7, 1, HOUR)),
        weighing(bucket(7, 1, HOUR)),
    ]);
    key.take(1).ok();
    assert_eq!((key.figures().limit, key.remaining()), (7, 6));
}

/// "4 at once, 200 starts a second, 64 MiB a second" with one weight.
#[test]
fn one_weight_for_calls_and_for_bytes() {
    let mib = 1 << 20;
    let mut key = Key::new(vec![
        per_call(semaphore(4)),
        per_call(bucket(200, 200, SEC)),
        weighing(bucket(64 * mib, 64 * mib, SEC)),
    ]);
    let booking = key.take(60 * mib).ok();
    assert_eq!(booking.held().collect::<Vec<_>>(), [1, 0, 0]);
    assert_eq!(key.figures_of(1).remaining, 199);
    let denied = key.take(8 * mib);
    assert_eq!(
        denied,
        Answer::Denied {
            retry_after: Span(62_500),
            index: 2
        }
    );
    assert!(matches!(key.take(65 * mib), Answer::Never { index: 2 }));
    key.take_weights(&Weights::Each([1, 1, 4 * mib].into()))
        .ok();
}

#[test]
fn a_weight_for_each_and_none_for_some() {
    let mut key = Key::new(vec![weighing(bucket(5, 1, HOUR)), weighing(log(5, HOUR))]);
    key.take_weights(&Weights::Each([5, 0].into())).ok();
    key.take_weights(&Weights::Each([0, 5].into())).ok();
    assert_eq!(key.remaining(), 0);
    assert!(!key.take_weights(&Weights::Each([0, 1].into())).is_ok());
    assert!(!key.take_weights(&Weights::Each([1, 0].into())).is_ok());
}

#[test]
fn a_semaphore_in_the_way_is_no_matter_of_time() {
    let mut key = Key::new(vec![weighing(bucket(1, 1, SEC)), weighing(semaphore(1))]);
    let held = key.take(1).ok();
    assert!(matches!(key.take(1), Answer::Release { index: 1 }));
    key.release(&held);
    assert_eq!(key.take(1).retry_after(), SEC);
    assert!(matches!(key.take(2), Answer::Never { index: 0 }));
}

/// What is booked ahead is not overtaken, by no kind.
#[test]
fn nobody_passes_a_booking() {
    for rule in each_kind(5) {
        let mut key = Key::new(vec![weighing(rule), weighing(bucket(1, 1, 10 * SEC))]);
        let first = key.pace_weights(&Weights::Each([1, 1].into())).ok();
        let Answer::Ok(second) = key.pace_weights(&Weights::Each([1, 1].into())) else {
            panic!("it can be booked")
        };
        assert!(second.at() > first.at());
        // It would fit into the first limit, and does not ask for the second.
        let third = key.take_weights(&Weights::Each([1, 0].into()));
        let waits = second.at().since(key.now).0;
        assert!(third.retry_after() >= waits);
    }
}

#[test]
fn a_penalty_holds_every_kind_back_and_ends() {
    for rule in each_kind(5) {
        let holds = matches!(rule, Rule::Semaphore(_));
        let mut key = Key::of(rule);
        key.advance(20 * SEC);
        key.penalize(7 * SEC);
        key.penalize(3 * SEC);
        assert_eq!(key.take(1).retry_after(), 7 * SEC);
        assert!(holds || key.remaining() == 0);
        assert!(key.fresh_at() >= key.now + Span(7 * SEC));
        key.advance(7 * SEC);
        key.take(1).ok();
    }
}

#[test]
fn a_peek_is_free_and_always_admitted() {
    for rule in each_kind(3) {
        let mut key = Key::of(rule);
        for step in 0..6 {
            for weights in [Weights::One(0), Weights::Each([0].into())] {
                let verdict = key.decide(&weights);
                assert_eq!(verdict.outcome, Outcome::Admit);
            }
            if step == 3 {
                key.penalize(SEC);
            }
            key.pace(1);
        }
    }
}

#[test]
fn unlimited_and_never() {
    let mut key = Key::of(Rule::Unlimited);
    key.take(u64::MAX).ok();
    assert_eq!(key.remaining(), u64::MAX);
    let mut key = Key::of(Rule::Never);
    assert!(matches!(key.take(1), Answer::Never { index: 0 }));
    assert_eq!(key.decide(&Weights::One(0)).outcome, Outcome::Admit);
    assert_eq!((key.figures().limit, key.remaining()), (0, 0));
    let mut key = Key::new(vec![weighing(Rule::Unlimited), weighing(Rule::Never)]);
    assert!(matches!(key.take(1), Answer::Never { index: 1 }));
    key.take_weights(&Weights::Each([1, 0].into())).ok();
}

#[test]
fn a_limiter_has_one_to_sixteen_limits() {
    let many = |n| Limits::new(vec![weighing(bucket(1, 1, SEC)); n], 0);
    assert!(many(0).unwrap_err().contains("1 to 16"));
    assert!(many(MAX_LIMITS + 1).unwrap_err().contains("not 17"));
    let mut key = Key::new(many(MAX_LIMITS).unwrap().limits().to_vec());
    key.take(1).ok();
    assert_eq!(key.take(1).retry_after(), SEC);
}

#[test]
fn what_a_backend_asks_of_the_limits() {
    let lease = |ms, renew| {
        weighing(Rule::Semaphore(
            Semaphore::new(5, Span::millis(ms), renew).unwrap(),
        ))
    };
    let limits = |limits| Limits::new(limits, 7).unwrap();
    let all = limits(vec![lease(0, true), lease(9_000, true), lease(3_000, true)]);
    assert_eq!(all.lease(), Some(Span::millis(3_000)));
    assert!(all.holds() && all.renews() && !all.starts_empty());
    assert_eq!(all.version(), 7);
    assert_eq!(limits(vec![lease(0, true)]).lease(), None);
    assert!(!limits(vec![lease(1_000, true), lease(1_000, false)]).renews());
    let rates = limits(vec![
        weighing(bucket(1, 1, SEC)),
        weighing(empty_bucket(1, 1, SEC)),
    ]);
    assert!(!rates.holds() && rates.renews() && rates.starts_empty());
    assert_eq!(rates.lease(), None);
    assert_eq!(rates.shape(), [Kind::TokenBucket; 2]);
    assert_eq!(
        limits(vec![weighing(interval(1, 1, SEC, false))]).shape(),
        [Kind::IntervalBucket]
    );

    let mut key = Key::new(vec![weighing(semaphore(5)), weighing(log(5, SEC))]);
    let booking = key.take_weights(&Weights::Each([2, 0].into())).ok();
    assert!(booking.holds());
    let booking = key.take_weights(&Weights::Each([0, 2].into())).ok();
    assert!(!booking.holds());
}

#[test]
fn a_state_is_small() {
    use limiter::limit::decide::KeyState;
    use limiter::limit::rule::State;
    assert!(size_of::<State>() <= 24);
    assert!(size_of::<KeyState>() <= 96);
}
