//! Each kind against a model that is too slow and too simple to be wrong.
use limiter::limit::rule::Rule;
use limiter::limit::time::{Span, Time};
use proptest::prelude::*;

use crate::harness::*;

/// Numbers of every magnitude up to `most`.
pub fn magnitude(least: u64, most: u64) -> impl Strategy<Value = u64> {
    let bits = 64 - most.leading_zeros();
    (0..=bits, any::<u64>()).prop_map(move |(bits, x)| {
        let x = if bits == 0 { 0 } else { x >> (64 - bits) };
        x.clamp(least, most)
    })
}

/// Capacity, refill, period of a bucket that is allowed.
pub fn bucket_terms() -> impl Strategy<Value = (u64, u64, u64)> {
    (
        magnitude(1, 1 << 48),
        magnitude(1, 1 << 48),
        magnitude(1, 315_576_000_000_000),
    )
        .prop_map(|(capacity, refill, period)| {
            let period = period.max(refill.div_ceil(1_000));
            let most = 3_155_760_000_000_000u128 * refill as u128 / period as u128;
            (capacity.min(most.max(1) as u64), refill, period)
        })
}

/// Tokens times the period: whole numbers.
struct Tokens {
    now: Time,
    level: u128,
    capacity: u128,
    refill: u128,
    period: u128,
}

impl Tokens {
    fn advance(&mut self, us: u64) {
        self.now = self.now + Span(us);
        self.level = (self.level + us as u128 * self.refill).min(self.capacity * self.period);
    }

    /// None: taken. Some: so long to wait.
    fn take(&mut self, weight: u64) -> Option<u64> {
        let cost = weight as u128 * self.period;
        if cost <= self.level {
            self.level -= cost;
            return None;
        }
        Some((cost - self.level).div_ceil(self.refill) as u64)
    }
}

proptest! {
    #![proptest_config(cases(1_500))]

    #[test]
    fn token_bucket(
        (capacity, refill, period) in bucket_terms(),
        steps in prop::collection::vec((any::<u64>(), 0u32..50, any::<u64>(), 0u32..64), 1..60),
    ) {
        let mut key = Key::of(bucket(capacity, refill, period));
        let mut model = Tokens {
            now: START,
            level: capacity as u128 * period as u128,
            capacity: capacity.into(),
            refill: refill.into(),
            period: period.into(),
        };
        for (gap, gap_bits, weight, weight_bits) in steps {
            let gap = gap >> (63 - gap_bits);
            let weight = (weight >> weight_bits) % (capacity + 1);
            let weight = weight.max(1);
            key.advance(gap);
            model.advance(gap);
            let expected = model.take(weight);
            match key.take(weight) {
                Answer::Ok(_) => prop_assert_eq!(expected, None),
                denied => prop_assert_eq!(expected, Some(denied.retry_after())),
            }
            prop_assert_eq!(key.remaining() as u128, model.level / model.period);
            let missing = model.capacity * model.period - model.level;
            prop_assert_eq!(key.figures().reset_after.0 as u128, missing.div_ceil(model.refill));
        }
    }

    #[test]
    fn sliding_log(
        limit in magnitude(1, 40),
        window in magnitude(1, 400),
        steps in prop::collection::vec((0u64..80, 1u64..20), 1..80),
    ) {
        let mut key = Key::of(log(limit, window));
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for (gap, weight) in steps {
            let weight = weight.min(limit);
            key.advance(gap);
            let now = key.now.0;
            let live = |at: u64| -> u64 {
                taken.iter().filter(|(t, _)| t + window > at).map(|(_, w)| w).sum()
            };
            let expected = (now..).find(|at| live(*at) + weight <= limit).unwrap() - now;
            match key.take(weight) {
                Answer::Ok(_) => {
                    prop_assert_eq!(expected, 0);
                    taken.push((now, weight));
                }
                denied => prop_assert_eq!(denied.retry_after(), expected),
            }
            let used: u64 = taken.iter().filter(|(t, _)| t + window > now).map(|(_, w)| w).sum();
            prop_assert_eq!(key.remaining(), limit - used);
        }
    }

    #[test]
    fn sliding_counter(
        limit in magnitude(1, 40),
        window in magnitude(1, 60),
        steps in prop::collection::vec((0u64..40, 1u64..20), 1..80),
    ) {
        let mut key = Key::of(counter(limit, window));
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for (gap, weight) in steps {
            let weight = weight.min(limit);
            key.advance(gap);
            let now = key.now.0;
            // Everything times the window, so that the share of the previous one is whole.
            let passes = |at: u64, weight: u64| {
                let within = |w: u64| -> u64 {
                    taken.iter().filter(|(t, _)| t / window == w).map(|(_, w)| w).sum()
                };
                let (current, left) = (at / window, window - at % window);
                (within(current) + weight) * window + within(current - 1) * left <= limit * window
            };
            let expected = (now..).find(|at| passes(*at, weight)).unwrap() - now;
            let most = (0..=limit).rev().find(|weight| passes(now, *weight)).unwrap_or(0);
            prop_assert_eq!(key.remaining(), most);
            match key.take(weight) {
                Answer::Ok(_) => {
                    prop_assert_eq!(expected, 0);
                    taken.push((now, weight));
                }
                denied => prop_assert_eq!(denied.retry_after(), expected),
            }
        }
    }

    #[test]
    fn fixed_windows(
        limit in magnitude(1, 40),
        window in magnitude(1, 400),
        from_first_use in any::<bool>(),
        steps in prop::collection::vec((0u64..200, 1u64..20), 1..80),
    ) {
        let rule = match from_first_use {
            true => fixed_from_first_use(limit, window),
            false => fixed(limit, window),
        };
        let mut key = Key::of(rule);
        let mut used = 0;
        let mut start = None;
        for (gap, weight) in steps {
            let weight = weight.min(limit);
            key.advance(gap);
            let now = key.now.0;
            let over = start.is_none_or(|start| now >= start + window);
            let begin = match (over, from_first_use) {
                (false, _) => start.unwrap(),
                (true, true) => now,
                (true, false) => now / window * window,
            };
            let before = if over { 0 } else { used };
            match key.take(weight) {
                Answer::Ok(_) => {
                    prop_assert!(before + weight <= limit);
                    (start, used) = (Some(begin), before + weight);
                }
                denied => {
                    prop_assert!(before + weight > limit);
                    prop_assert_eq!(denied.retry_after(), begin + window - now);
                }
            }
        }
    }

    #[test]
    fn interval_bucket(
        capacity in magnitude(1, 40),
        refill in magnitude(1, 40),
        period in magnitude(1, 60),
        empty in any::<bool>(),
        steps in prop::collection::vec((0u64..100, 1u64..20), 1..60),
    ) {
        let mut key = Key::of(interval(capacity, refill, period, empty));
        let mut tokens = if empty { 0 } else { capacity };
        let mut next = key.now.0 + period;
        let mut clock = key.now.0;
        for (gap, weight) in steps {
            let weight = weight.min(capacity);
            key.advance(gap);
            // A microsecond at a time.
            while clock < key.now.0 {
                clock += 1;
                if clock == next {
                    tokens = (tokens + refill).min(capacity);
                    next += period;
                }
            }
            if tokens == capacity {
                next = clock + period;
            }
            prop_assert_eq!(key.remaining(), tokens);
            match key.take(weight) {
                Answer::Ok(_) => {
                    prop_assert!(weight <= tokens);
                    tokens -= weight;
                }
                denied => {
                    prop_assert!(weight > tokens);
                    let refills = (weight - tokens).div_ceil(refill);
                    prop_assert_eq!(denied.retry_after(), next - clock + (refills - 1) * period);
                }
            }
        }
    }

    #[test]
    fn prices(
        (_, refill, period) in bucket_terms(),
        a in magnitude(0, 1 << 48),
        b in magnitude(0, 1 << 48),
    ) {
        // No longer than a hundred years, as everywhere.
        let most = 3_155_760_000_000_000u128 * refill as u128 / period as u128;
        let (a, b) = (a.min(most as u64), b.min(most as u64));
        let Rule::TokenBucket(rule) = bucket(1, refill, period) else { unreachable!() };
        let rate = rule.rate();
        prop_assert_eq!(rate.add(rate.cost(a), rate.cost(b)), rate.cost(a + b));
        prop_assert_eq!(rate.sub(rate.cost(a + b), rate.cost(b)), rate.cost(a));
        prop_assert_eq!(rate.brings(rate.cost(a)), a);
        prop_assert_eq!(rate.brings_up(rate.cost(a)), a);
        let cost = rate.cost(a);
        let exact = a as u128 * period as u128;
        let ours = cost.us as u128 * refill as u128
            + cost.rem as u128 * (refill / rate.units()) as u128;
        prop_assert_eq!(exact, ours);
    }
}
