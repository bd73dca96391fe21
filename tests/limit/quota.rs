//! Units taken ahead of their use: whoever takes them, and whenever they are used or not, all together get no
//! more than the bucket admits.
use limiter::limit::quota::Quota;
use limiter::limit::rate::Tick;
use limiter::limit::rule::Wait;
use limiter::limit::time::{Span, Time};
use limiter::limit::token_bucket::TokenBucket;
use proptest::prelude::*;

use crate::harness::*;

#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    /// One process takes so many ahead; what it had before is gone.
    Ahead(usize, u64),
    /// One process uses so many of its own.
    Use(usize, u64),
    /// Somebody asks the bucket itself.
    Try(u64),
}

fn steps(gap: u64) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..gap).prop_map(Step::Pass),
        2 => (0..3usize, 1..40u64).prop_map(|(who, count)| Step::Ahead(who, count)),
        4 => (0..3usize, 1..20u64).prop_map(|(who, count)| Step::Use(who, count)),
        2 => (1..10u64).prop_map(Step::Try),
    ];
    prop::collection::vec(step, 1..80)
}

/// As a batch of tries would: so many pass. Answers where the first slot begins, and how many there are.
fn take(bucket: &TokenBucket, tat: &mut Tick, now: Time, weight: u64, count: u64) -> (Tick, u64) {
    let first = (*tat).max(Tick::at(now));
    let fits = bucket.figures(*tat, now).remaining / weight;
    let count = count.min(fits);
    for _ in 0..count {
        assert_eq!(bucket.wait(*tat, now, weight), Wait::Now);
        *tat = bucket
            .rate()
            .add((*tat).max(Tick::at(now)), bucket.rate().cost(weight));
    }
    (first, count)
}

/// I1: in no window more than a full bucket and what the window brings.
fn stays_within(started: &[(Time, u64)], capacity: u64, units: u64, period: u64) {
    for (i, (from, _)) in started.iter().enumerate() {
        let mut sum = 0u128;
        for (at, weight) in &started[i..] {
            sum += u128::from(*weight);
            let brought = u128::from(at.since(*from).0) * u128::from(units);
            let most = u128::from(capacity) * u128::from(period) + brought;
            assert!(
                sum * u128::from(period) <= most,
                "{sum} in {:?}",
                at.since(*from)
            );
        }
    }
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn what_is_used_of_quotas_stays_within_the_bucket(
        capacity in 1..60u64,
        units in 1..50u64,
        period in prop_oneof![Just(7u64), Just(1_000), Just(SEC), 1..SEC],
        weight in 1..4u64,
        steps in steps(40_000),
    ) {
        prop_assume!(weight <= capacity);
        let bucket = TokenBucket::new(capacity, units, Span(period), false).unwrap();
        let (mut now, mut tat) = (START, bucket.fresh(START));
        let mut quotas: [Option<Quota>; 3] = [None, None, None];
        let mut started: Vec<(Time, u64)> = Vec::new();
        for step in steps {
            match step {
                Step::Pass(us) => now = now + Span(us),
                Step::Ahead(who, count) => {
                    let (first, count) = take(&bucket, &mut tat, now, weight, count);
                    quotas[who] = Some(Quota::new(&bucket, weight, first, count));
                }
                Step::Use(who, count) => {
                    for _ in 0..count {
                        let Some(quota) = &mut quotas[who] else { break };
                        let Some(end) = quota.take(now) else { break };
                        // It is where the bucket could have had it.
                        prop_assert!(bucket.rate().sub(end, bucket.rate().cost(weight)) >= Tick::at(now));
                        started.push((now, weight));
                    }
                }
                Step::Try(count) => {
                    let (_, count) = take(&bucket, &mut tat, now, weight, count);
                    started.extend((0..count).map(|_| (now, weight)));
                }
            }
        }
        stays_within(&started, capacity, units, period);
    }

    /// Used at once, or as fast as the bucket fills, none is lost.
    #[test]
    fn what_is_used_in_time_is_not_lost(
        capacity in 2..60u64,
        units in 1..50u64,
        period in 1..SEC,
        count in 1..40u64,
    ) {
        let bucket = TokenBucket::new(capacity, units, Span(period), false).unwrap();
        let mut tat = bucket.fresh(START);
        let (first, count) = take(&bucket, &mut tat, START, 1, count);
        let mut at_once = Quota::new(&bucket, 1, first, count);
        for _ in 0..count {
            prop_assert!(at_once.take(START).is_some());
        }
        prop_assert!(at_once.take(START).is_none());
        let mut in_time = Quota::new(&bucket, 1, first, count);
        let mut next = first;
        for _ in 0..count {
            let end = in_time.take(Time(next.us));
            prop_assert!(end.is_some());
            next = end.unwrap();
        }
        // One that is late by a whole slot has lost one, and no more.
        let mut late = Quota::new(&bucket, 1, first, count);
        let second = Time(bucket.rate().add(first, bucket.rate().cost(1)).us);
        let mut used = 0;
        while late.take(second).is_some() {
            used += 1;
        }
        prop_assert_eq!(used, count - u64::from(second > START));
    }
}
