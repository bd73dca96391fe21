//! Limits of random numbers, for both backends and for the model.
use limiter::limit::fixed_window::{Align, FixedWindow};
use limiter::limit::interval_bucket::IntervalBucket;
use limiter::limit::rule::{Limit, Rule};
use limiter::limit::semaphore::Semaphore;
use limiter::limit::sliding_counter::SlidingCounter;
use limiter::limit::sliding_log::SlidingLog;
use limiter::limit::time::Span;
use limiter::limit::token_bucket::TokenBucket;

use crate::buckets::{Bucket, Steps};
use crate::law::Law;
use crate::model::Term;
use crate::pacer::Pacer;
use crate::random::Random;
use crate::windows::{Counter, Log, Window};

pub const SECOND: u64 = 1_000_000;
pub const HOUR: u64 = 3_600 * SECOND;
const TEN_YEARS: u64 = 315_576_000_000_000;
pub const LEASE: u64 = 60 * SECOND;

/// What the numbers of a limit are.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    pub kind: u64,
    capacity: u64,
    refill: u64,
    pub period: u64,
    flag: bool,
    permille: u64,
    per_call: bool,
}

pub const KINDS: u64 = 9;
pub const SEMAPHORE: u64 = 8;

impl Spec {
    /// Numbers from every day and from the edges.
    pub fn draw(random: &mut Random, kind: u64) -> Spec {
        let capacity = [1, 2, 3, 5, 10, 100, 1_000, 999_983, 1 << 20, 1 << 48];
        let refill = [1, 2, 3, 7, 10, 333, 1_000, 999_983, 1_000_000_000, 1 << 48];
        let period = [
            1,
            3,
            7,
            1_000,
            10_000,
            333_333,
            SECOND,
            60 * SECOND,
            HOUR,
            TEN_YEARS,
        ];
        loop {
            let spec = Spec {
                kind,
                capacity: random.pick(&capacity) - u64::from(kind == 2 && random.below(3) == 0),
                refill: random.pick(&refill),
                period: random.pick(&period),
                flag: random.below(3) == 0,
                permille: random.pick(&[1, 333, 500, 1_000]),
                per_call: random.below(5) == 0,
            };
            // What is booked ahead of a log is counted up to 2^50 in all.
            let counted = kind != 3 || spec.capacity <= 1 << 40;
            // Out of range together, or a burst that is forgotten before it is earned back: draw again.
            let earned = u128::from(spec.capacity) * u128::from(spec.period) * 1_000
                / (u128::from(spec.refill) * u128::from(spec.permille));
            let forgotten = kind == 2 && earned >= u128::from(TEN_YEARS);
            // With more than a slot in a microsecond, one that was forgotten tells of one only.
            let forgotten = forgotten || kind == 2 && spec.refill > spec.period;
            if spec.rule().is_ok() && !forgotten && counted {
                return spec;
            }
        }
    }

    fn rule(&self) -> Result<Rule, String> {
        let (capacity, refill, period) = (self.capacity, self.refill, Span(self.period));
        Ok(match self.kind {
            0 => Rule::TokenBucket(TokenBucket::new(capacity, refill, period, self.flag)?),
            1 => Rule::IntervalBucket(IntervalBucket::new(capacity, refill, period, self.flag)?),
            2 => Rule::Pacer(limiter::limit::pacer::Pacer::new(
                capacity,
                refill,
                period,
                self.permille,
            )?),
            3 => Rule::SlidingLog(SlidingLog::new(capacity, period)?),
            4 => Rule::SlidingCounter(SlidingCounter::new(capacity, period)?),
            5 => {
                let align = if self.flag {
                    Align::FirstUse
                } else {
                    Align::Clock
                };
                Rule::FixedWindow(FixedWindow::new(capacity, period, align)?)
            }
            6 => Rule::Unlimited,
            7 => Rule::Never,
            _ => Rule::Semaphore(Semaphore::new(capacity, Span(LEASE), false)?),
        })
    }

    pub fn limit(&self) -> Limit {
        Limit {
            rule: self.rule().unwrap(),
            per_call: self.per_call,
        }
    }

    pub fn term(&self) -> Term {
        let spec = *self;
        let (capacity, refill, period, flag) = (self.capacity, self.refill, self.period, self.flag);
        let make = move |now| match spec.kind {
            0 => Law::Bucket(Bucket::new(capacity, refill, period, flag, now)),
            1 => Law::Steps(Steps::new(capacity, refill, period, flag, now)),
            2 => Law::Pacer(Pacer::new(capacity, refill, period, spec.permille, now)),
            3 => Law::Log(Log::new(capacity, period)),
            4 => Law::Counter(Counter::new(capacity, period)),
            5 => Law::Window(Window::new(capacity, period, flag)),
            6 => Law::Unlimited,
            7 => Law::Never,
            _ => Law::Semaphore { capacity, used: 0 },
        };
        Term {
            make: Box::new(make),
            per_call: self.per_call,
            empty: self.kind < 2 && flag,
        }
    }

    /// A length of time that matters under it.
    pub fn span(&self, random: &mut Random) -> u64 {
        let unit = (self.period / self.refill.max(1)).max(1);
        match random.below(10) {
            0 => 0,
            1 => 1,
            2 => unit,
            3 => unit - 1,
            4 => self.period,
            5 => self.period - 1,
            6 => self.period + 1,
            7 => random.below(2 * self.period),
            8 => random.below(3 * unit),
            _ => random.below(10 * unit + 2),
        }
    }

    pub fn weight(&self, random: &mut Random) -> u64 {
        match random.below(12) {
            0 => 0,
            1..=4 => 1,
            5 => 2,
            6 => self.capacity,
            7 => self.capacity + 1,
            8 => self.capacity / 2,
            9 => 1 << 48,
            _ => random.below(self.capacity.min(1 << 40) + 1),
        }
    }
}
