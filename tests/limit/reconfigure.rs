//! Parameters that change while running: clamped, never reset.
use proptest::prelude::*;

use crate::exact::bucket_terms;
use crate::harness::*;

fn reopened(rule: limiter::limit::rule::Rule, key: &mut Key) {
    key.reopen(vec![weighing(rule)]);
}

#[test]
fn b_130_lowering_clamps_what_is_there() {
    let mut key = Key::of(bucket(1_000, 1, HOUR));
    key.take(1).ok();
    reopened(bucket(10, 1, HOUR), &mut key);
    assert_eq!(key.drain(), 10);

    let mut key = Key::of(interval(1_000, 1, HOUR, false));
    key.take(1).ok();
    reopened(interval(10, 1, HOUR, false), &mut key);
    assert_eq!(key.drain(), 10);
}

#[test]
fn b_131_the_wait_is_that_of_the_new_rate() {
    let mut key = Key::of(bucket(1, 1, HOUR));
    key.drain();
    reopened(bucket(1, 100, HOUR), &mut key);
    assert_eq!(key.take(1).retry_after(), 36 * SEC);
}

#[test]
fn b_056_remaining_is_at_most_the_new_limit() {
    for (before, after) in each_kind(10).into_iter().zip(each_kind(5)) {
        let mut key = Key::of(before);
        key.take(1);
        reopened(after, &mut key);
        // A pacer has its slot beside the burst.
        assert!(key.remaining() <= 6);
        assert!(key.figures().limit <= 6);
    }
}

#[test]
fn b_133_b_134_a_semaphore_takes_its_new_size_at_once() {
    let mut key = Key::of(semaphore(1));
    let mut held = vec![key.take(1).ok()];
    reopened(semaphore(5), &mut key);
    held.extend((0..4).map(|_| key.take(1).ok()));
    assert!(!key.take(1).is_ok());
    reopened(semaphore(2), &mut key);
    for live in (2..5).rev() {
        assert!(matches!(key.take(1), Answer::Release { .. }), "{live} live");
        key.release(&held.pop().unwrap());
    }
    assert!(matches!(key.take(1), Answer::Release { .. }));
    key.release(&held.pop().unwrap());
    key.take(1).ok();
}

#[test]
fn raising_adds_room_that_is_empty_and_keeps_what_is_there() {
    for rule in [bucket, |n, m, period| interval(n, m, period, false)] {
        let mut key = Key::of(rule(10, 1, HOUR));
        key.take(7).ok();
        reopened(rule(15, 1, HOUR), &mut key);
        assert_eq!(key.remaining(), 3);
        reopened(rule(2, 1, HOUR), &mut key);
        assert_eq!(key.remaining(), 2);
        reopened(rule(20, 1, HOUR), &mut key);
        assert_eq!(key.drain(), 2);
        assert_eq!(key.take(1).retry_after(), HOUR);
    }
}

/// It could have been forgotten, and would be full then.
#[test]
fn a_bucket_that_is_as_new_is_full_under_other_limits_too() {
    for rule in [bucket, |n, m, period| interval(n, m, period, false)] {
        let mut key = Key::of(rule(10, 1, SEC));
        reopened(rule(15, 1, SEC), &mut key);
        assert_eq!(key.remaining(), 15);
        key.take(3).ok();
        key.advance(3 * SEC);
        reopened(rule(30, 1, 2 * SEC), &mut key);
        assert_eq!(key.remaining(), 30);
        key.take(30).ok();
        reopened(rule(1, 1, 2 * SEC), &mut key);
        // Full again, but not as new: there were limits under which it would not be.
        key.advance(59 * SEC);
        assert_eq!(key.remaining(), 1);
        reopened(rule(30, 1, 2 * SEC), &mut key);
        assert_eq!(key.remaining(), 1);
    }
}

#[test]
fn a_key_that_was_reset_is_as_new_under_other_limits_too() {
    for rule in [bucket, |n, m, period| interval(n, m, period, false)] {
        let mut key = Key::of(rule(5, 1, HOUR));
        key.drain();
        key.pace(5).ok();
        key.limits.reset(&mut key.state, key.now);
        for n in [100, 7, 300] {
            reopened(rule(n, 1, HOUR), &mut key);
            assert_eq!(key.remaining(), n);
        }
        // Once it is used, it is not.
        key.take(300).ok();
        reopened(rule(400, 1, HOUR), &mut key);
        assert_eq!(key.remaining(), 0);
        // Nor is what was owed before forgotten, should it fit by now.
        reopened(rule(1, 1, SEC), &mut key);
        key.advance(SEC);
        reopened(rule(400, 1, HOUR), &mut key);
        assert!(key.remaining() <= 1);
    }
}

/// A window made shorter does not end in the past, with what was used in it a moment ago.
#[test]
fn a_window_from_first_use_that_is_shortened_still_counts() {
    let mut key = Key::of(fixed_from_first_use(5, HOUR));
    key.take(1).ok();
    key.advance(HOUR / 2).take(4).ok();
    reopened(fixed_from_first_use(5, HOUR / 60), &mut key);
    assert_eq!(key.drain(), 0);
    key.advance(HOUR / 60);
    assert_eq!(key.drain(), 5);
}

#[test]
fn debt_is_kept() {
    for rule in [bucket, |n, m, period| interval(n, m, period, false)] {
        let mut key = Key::of(rule(10, 10, SEC));
        let mut booking = key.take(10).ok();
        key.settle(&mut booking, 50);
        reopened(rule(20, 10, SEC), &mut key);
        assert_eq!(key.take(1).retry_after().div_ceil(SEC), 5);
        assert_eq!(
            key.figures().reset_after,
            limiter::limit::time::Span(6 * SEC)
        );
    }
}

#[test]
fn a_fraction_that_accrued_is_kept_at_the_same_rate() {
    let mut key = Key::of(bucket(10, 1, SEC));
    key.take(10).ok();
    key.advance(900 * MS);
    reopened(bucket(20, 1, SEC), &mut key);
    assert_eq!(key.take(1).retry_after(), 100 * MS);
}

#[test]
fn windows_keep_what_they_counted() {
    let kinds: [fn(u64, u64) -> limiter::limit::rule::Rule; 4] =
        [log, counter, fixed, fixed_from_first_use];
    for kind in kinds {
        let mut key = Key::of(kind(10, 10 * SEC));
        key.take(6).ok();
        reopened(kind(8, 10 * SEC), &mut key);
        assert_eq!(key.remaining(), 2);
        reopened(kind(4, 10 * SEC), &mut key);
        assert_eq!(key.remaining(), 0);
        assert!(!key.take(1).is_ok());
        reopened(kind(8, 20 * SEC), &mut key);
        assert_eq!(key.remaining(), 2);
        reopened(kind(8, 30 * SEC), &mut key);
        assert_eq!(key.drain(), 2);
    }
}

#[test]
fn bookings_stay_and_what_follows_comes_after_them() {
    for (before, after) in each_kind(2).into_iter().zip(each_kind(7)) {
        let mut key = Key::of(before);
        if key.limits.holds() {
            continue;
        }
        let last = (0..7).map(|_| key.pace(1).ok().at()).max().unwrap();
        reopened(after, &mut key);
        assert!(key.pace(1).ok().at() >= last);
    }
}

/// What was taken before a change can still be released, and neither settled nor cancelled.
#[test]
fn old_permits_are_released_but_not_settled() {
    let mut key = Key::new(vec![weighing(semaphore(5)), weighing(bucket(10, 1, HOUR))]);
    let mut booking = key.take(5).ok();
    key.reopen(vec![weighing(semaphore(5)), weighing(bucket(10, 2, HOUR))]);
    key.settle(&mut booking, 0);
    assert_eq!(key.figures_of(1).remaining, 5);
    key.release(&booking);
    assert_eq!(key.figures_of(0).remaining, 5);
}

proptest! {
    #![proptest_config(cases(2_000))]

    /// Whatever changes to whatever: the tokens are kept, as far as they fit.
    #[test]
    fn a_bucket_keeps_its_tokens_at_any_price(
        (c0, r0, p0) in bucket_terms(),
        (c1, r1, p1) in bucket_terms(),
        taken in any::<u64>(),
    ) {
        let mut key = Key::of(bucket(c0, r0, p0));
        let taken = taken % (c0 + 1);
        if taken > 0 {
            key.take(taken).ok();
        }
        let tokens = c0 - taken;
        reopened(bucket(c1, r1, p1), &mut key);
        let expected = match taken {
            0 => c1,
            _ => tokens.min(c1),
        };
        prop_assert_eq!(key.remaining(), expected);
        if expected > 0 {
            key.take(expected).ok();
        }
        prop_assert!(!key.take(1).is_ok());
        prop_assert_eq!(key.figures().reset_after.0 as u128,
            (c1 as u128 * p1 as u128).div_ceil(r1 as u128));
    }

    /// Back and forth between any terms never yields more than the largest of them allow, between any two
    /// takes, also where keys that are as new are forgotten.
    #[test]
    fn toggled_buckets_mint_nothing(
        steps in prop::bool::ANY,
        terms in prop::collection::vec((1u64..20, 1u64..5, 1u64..60), 2..5),
        calls in prop::collection::vec(
            (any::<prop::sample::Index>(), 1u64..20, 0u64..60, prop::bool::ANY), 1..40),
    ) {
        let rule = |(n, m, period): (u64, u64, u64)| match steps {
            true => interval(n, m, period, false),
            false => bucket(n, m, period),
        };
        let capacity = terms.iter().map(|t| t.0).max().unwrap();
        // Of steps, the last of those before may come at once with the first of those after.
        let brings = |us: u64| {
            let most = terms.iter().map(|t| (us * t.1).div_ceil(t.2) + u64::from(steps) * 4).max();
            most.unwrap()
        };
        let mut key = Key::of(rule(terms[0]));
        let mut taken: Vec<(limiter::limit::time::Time, u64)> = Vec::new();
        for (pick, weight, gap, forget) in &calls {
            if *forget {
                key.forget_if_fresh();
            }
            reopened(rule(terms[pick.index(terms.len())]), &mut key);
            if key.take(*weight).is_ok() {
                taken.push((key.now, *weight));
            }
            for (i, (since, _)) in taken.iter().enumerate() {
                let sum: u64 = taken[i..].iter().map(|(_, weight)| weight).sum();
                let bound = capacity + brings(key.now.since(*since).0);
                prop_assert!(sum <= bound, "{sum} of {bound} since {since:?}: {taken:?}");
            }
            key.advance(*gap);
        }
    }

    /// Back and forth between any two sets of terms never yields units.
    #[test]
    fn changing_terms_mints_nothing(
        terms in prop::collection::vec((1u64..20, 1u64..20, 1u64..60), 2..6),
        calls in prop::collection::vec((any::<prop::sample::Index>(), 1u64..4, 0u64..3), 1..40),
    ) {
        let most = terms.iter().map(|t| t.0).max().unwrap();
        let fastest = terms.iter().map(|t| t.1.div_ceil(t.2)).max().unwrap();
        for kind in 0..4 {
            let rule = |(n, m, period): (u64, u64, u64)| match kind {
                0 => bucket(most, m, period),
                1 => pacer(most, m, period, 1_000),
                2 => fixed(n, 60),
                _ => log(n, 60),
            };
            let mut key = Key::of(rule(terms[0]));
            let mut sum = 0;
            for (pick, weight, gap) in &calls {
                reopened(rule(terms[pick.index(terms.len())]), &mut key);
                if key.take(*weight).is_ok() {
                    sum += weight;
                }
                key.advance(*gap);
            }
            let elapsed = key.now.since(START).0;
            let bound = match kind {
                0 => most + fastest * elapsed,
                1 => most + fastest * (elapsed + 1) + 4,
                _ => most * (elapsed / 60 + 2),
            };
            prop_assert!(sum <= bound, "{kind}: {sum} in {elapsed}");
        }
    }
}

/// Between two refills there is a whole period, of whichever length.
#[test]
fn a_shorter_period_does_not_pay_several_refills_at_once() {
    let mut key = Key::of(interval(10, 1, HOUR, false));
    key.drain();
    key.advance(HOUR - SEC);
    reopened(interval(10, 1, 60 * SEC, false), &mut key);
    assert_eq!(key.drain(), 1, "the last was more than a minute ago");
    for _ in 0..3 {
        assert_eq!(key.take(1).retry_after(), 60 * SEC);
        key.advance(60 * SEC);
        assert_eq!(key.drain(), 1);
    }
}

/// One and the same time does not pay for what was taken under both limits.
#[test]
fn what_other_limits_owe_is_not_paid_by_the_time_that_pays_for_these() {
    for rule in [bucket, |n, m, period| interval(n, m, period, false)] {
        let (slow, small) = (rule(13, 2, 13 * SEC), rule(3, 3, 20 * SEC));
        let mut key = Key::of(slow.clone());
        key.take(8).ok();
        let mut sum = 8;
        for _ in 0..30 {
            reopened(small.clone(), &mut key);
            sum += key.drain();
            key.advance(20 * SEC);
            key.forget_if_fresh();
        }
        reopened(slow, &mut key);
        sum += key.drain();
        // As much as the quicker of the two brings, and what was there at first.
        assert!(sum <= 13 + 30 * 20 * 2 / 13, "{sum}");
    }
}
