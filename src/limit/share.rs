//! A part of a limiter's limits: what each of several processes may do if none hears of the others.
//!
//! The parts together allow no more than the whole, as long as there is a unit for each: where a
//! capacity is smaller than the number of parts, each keeps one unit, so that it is not locked out.
use crate::limit::bounds::MAX_PERIOD;
use crate::limit::decide::Limits;
use crate::limit::fixed_window::FixedWindow;
use crate::limit::interval_bucket::IntervalBucket;
use crate::limit::pacer::Pacer;
use crate::limit::rate::Rate;
use crate::limit::rule::{Limit, Rule};
use crate::limit::semaphore::Semaphore;
use crate::limit::sliding_counter::SlidingCounter;
use crate::limit::sliding_log::SlidingLog;
use crate::limit::time::Span;
use crate::limit::token_bucket::TokenBucket;

impl Limits {
    /// One of `parts` equal parts, rounded down. Of a rate that would fall below the slowest there can be,
    /// nothing is admitted.
    pub fn share(&self, parts: u64) -> Limits {
        let parts = parts.max(1);
        let share = |limit: &Limit| Limit {
            rule: share(&limit.rule, parts).unwrap_or(Rule::Never),
            per_call: limit.per_call,
        };
        let shares = self.limits().iter().map(share).collect();
        Limits::new(shares, self.version()).expect("as many as there were")
    }
}

fn share(rule: &Rule, parts: u64) -> Result<Rule, String> {
    let part = |units: u64| (units / parts).max(1);
    let longer = |span: u64, times: u64| Span(span.saturating_mul(times));
    Ok(match rule {
        Rule::Semaphore(rule) => {
            let capacity = part(rule.capacity());
            Rule::Semaphore(Semaphore::new(capacity, rule.lease, rule.renew)?)
        }
        Rule::TokenBucket(rule) => {
            let (units, period) = slower(rule.rate(), parts);
            let capacity = part(rule.capacity());
            Rule::TokenBucket(TokenBucket::new(
                capacity,
                units,
                period,
                rule.starts_empty(),
            )?)
        }
        Rule::IntervalBucket(rule) => {
            let refill = part(rule.refill());
            let period = longer(rule.period().0, parts.div_ceil(rule.refill()).max(1));
            let capacity = part(rule.capacity());
            let empty = rule.starts_empty();
            Rule::IntervalBucket(IntervalBucket::new(capacity, refill, period, empty)?)
        }
        Rule::Pacer(rule) => {
            let (units, period) = slower(rule.rate(), parts);
            let burst = rule.burst() / parts;
            Rule::Pacer(Pacer::new(burst, units, period, rule.earn_permille())?)
        }
        Rule::SlidingLog(rule) => {
            Rule::SlidingLog(SlidingLog::new(part(rule.limit()), rule.window())?)
        }
        Rule::SlidingCounter(rule) => {
            Rule::SlidingCounter(SlidingCounter::new(part(rule.limit()), rule.window())?)
        }
        Rule::FixedWindow(rule) => {
            let limit = part(rule.limit());
            Rule::FixedWindow(FixedWindow::new(limit, rule.window(), rule.align())?)
        }
        Rule::Unlimited => Rule::Unlimited,
        Rule::Never => Rule::Never,
    })
}

/// A rate's `parts`th part. Exactly: the same units in a longer period; where that would be too long, fewer
/// units in the same, rounded down so that all parts together are no more than the whole.
fn slower(rate: &Rate, parts: u64) -> (u64, Span) {
    let longer = Span(rate.period().saturating_mul(parts));
    match longer <= MAX_PERIOD {
        true => (rate.units(), longer),
        false => (rate.units() / parts, Span(rate.period())),
    }
}
