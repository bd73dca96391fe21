//! A key under limits with a clock of its own. Every question asked through it is also checked for what
//! must hold of every answer: honest waits, figures in range.
use limiter::limit::decide::{Booking, KeyState, Limits, Outcome, Verdict};
use limiter::limit::fixed_window::{Align, FixedWindow};
use limiter::limit::interval_bucket::IntervalBucket;
use limiter::limit::pacer::Pacer;
use limiter::limit::rule::{Figures, Limit, Rule};
use limiter::limit::semaphore::Semaphore;
use limiter::limit::sliding_counter::SlidingCounter;
use limiter::limit::sliding_log::SlidingLog;
use limiter::limit::time::{Span, Time};
use limiter::limit::token_bucket::TokenBucket;
use limiter::limit::weights::Weights;

#[path = "../support/properties.rs"]
mod properties;

pub use properties::cases;

pub const MS: u64 = 1_000;
pub const SEC: u64 = 1_000_000;
pub const HOUR: u64 = 3_600 * SEC;
/// Not a multiple of anything in sight.
pub const START: Time = Time(1_767_225_600_123_457);

pub fn bucket(capacity: u64, refill: u64, period: u64) -> Rule {
    Rule::TokenBucket(TokenBucket::new(capacity, refill, Span(period), false).unwrap())
}

pub fn empty_bucket(capacity: u64, refill: u64, period: u64) -> Rule {
    Rule::TokenBucket(TokenBucket::new(capacity, refill, Span(period), true).unwrap())
}

pub fn interval(capacity: u64, refill: u64, period: u64, empty: bool) -> Rule {
    Rule::IntervalBucket(IntervalBucket::new(capacity, refill, Span(period), empty).unwrap())
}

pub fn pacer(burst: u64, units: u64, period: u64, permille: u64) -> Rule {
    Rule::Pacer(Pacer::new(burst, units, Span(period), permille).unwrap())
}

pub fn log(limit: u64, window: u64) -> Rule {
    Rule::SlidingLog(SlidingLog::new(limit, Span(window)).unwrap())
}

pub fn counter(limit: u64, window: u64) -> Rule {
    Rule::SlidingCounter(SlidingCounter::new(limit, Span(window)).unwrap())
}

pub fn fixed(limit: u64, window: u64) -> Rule {
    Rule::FixedWindow(FixedWindow::new(limit, Span(window), Align::Clock).unwrap())
}

pub fn fixed_from_first_use(limit: u64, window: u64) -> Rule {
    Rule::FixedWindow(FixedWindow::new(limit, Span(window), Align::FirstUse).unwrap())
}

pub fn semaphore(capacity: u64) -> Rule {
    Rule::Semaphore(Semaphore::new(capacity, Span::ZERO, true).unwrap())
}

/// One rule of each kind, all with a limit of `n` and, but for the semaphore, a period of a second.
pub fn each_kind(n: u64) -> Vec<Rule> {
    vec![
        semaphore(n),
        bucket(n, n, SEC),
        empty_bucket(n, n, SEC),
        interval(n, n, SEC, false),
        interval(n, n, SEC, true),
        pacer(0, n, SEC, 500),
        pacer(n, n, SEC, 500),
        log(n, SEC),
        counter(n, SEC),
        fixed(n, SEC),
        fixed_from_first_use(n, SEC),
    ]
}

pub fn weighing(rule: Rule) -> Limit {
    Limit {
        rule,
        per_call: false,
    }
}

pub fn per_call(rule: Rule) -> Limit {
    Limit {
        rule,
        per_call: true,
    }
}

#[derive(Clone, Debug)]
pub struct Key {
    pub limits: Limits,
    pub state: KeyState,
    pub now: Time,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Ok(Booking),
    /// Denied by the limit at `index`.
    Denied {
        retry_after: Span,
        index: usize,
    },
    Release {
        index: usize,
    },
    Never {
        index: usize,
    },
}

impl Answer {
    pub fn ok(self) -> Booking {
        match self {
            Answer::Ok(booking) => booking,
            other => panic!("not admitted: {other:?}"),
        }
    }

    pub fn is_ok(&self) -> bool {
        matches!(self, Answer::Ok(_))
    }

    pub fn retry_after(&self) -> u64 {
        match self {
            Answer::Denied { retry_after, .. } => retry_after.0,
            other => panic!("not denied: {other:?}"),
        }
    }
}

impl Key {
    pub fn new(limits: Vec<Limit>) -> Key {
        Key::at(limits, START)
    }

    pub fn at(limits: Vec<Limit>, now: Time) -> Key {
        let limits = Limits::new(limits, 0).unwrap();
        let state = limits.fresh(now);
        Key { limits, state, now }
    }

    pub fn of(rule: Rule) -> Key {
        Key::new(vec![weighing(rule)])
    }

    pub fn advance(&mut self, us: u64) -> &mut Key {
        self.now = self.now + Span(us);
        self
    }

    /// I5: deciding takes the state by shared reference, so nothing is changed. I6 and I8: checked here.
    pub fn decide(&self, weights: &Weights) -> Verdict {
        let verdict = self.limits.decide(&self.state, self.now, weights);
        if let Outcome::Later(at) | Outcome::TooFar(at) = verdict.outcome {
            assert!(at > self.now, "a wait is never zero");
            let then = self.limits.decide(&self.state, at, weights);
            assert_eq!(then.outcome, Outcome::Admit, "an obeyed wait is admitted");
            let before = Time(at.0 - 1);
            if before > self.now {
                let early = self.limits.decide(&self.state, before, weights).outcome;
                let same = [Outcome::Later(at), Outcome::TooFar(at)];
                assert!(
                    same.contains(&early),
                    "a microsecond early is too early: {early:?}"
                );
            }
        }
        self.check_figures();
        verdict
    }

    fn check_figures(&self) {
        for index in 0..self.limits.limits().len() {
            let figures = self.figures_of(index);
            assert!(figures.remaining <= figures.limit, "{figures:?}");
            assert!(figures.reset_after.0 < 1 << 53, "{figures:?}");
        }
        let (index, tightest) = self.limits.figures(&self.state, self.now, None);
        assert_eq!(tightest, self.figures_of(index));
        assert!(
            (0..self.limits.limits().len())
                .all(|index| tightest.remaining <= self.figures_of(index).remaining)
        );
    }

    /// Books at the first possible time, whenever that is.
    pub fn pace_weights(&mut self, weights: &Weights) -> Answer {
        self.pace_within(weights, Span::MAX)
    }

    pub fn pace_within(&mut self, weights: &Weights, most: Span) -> Answer {
        let verdict = self.decide(weights);
        let index = verdict.index;
        let at = match verdict.outcome {
            Outcome::Admit => self.now,
            Outcome::Later(at) if at.since(self.now) <= most => at,
            Outcome::Later(at) | Outcome::TooFar(at) => {
                return Answer::Denied {
                    retry_after: at.since(self.now),
                    index,
                };
            }
            Outcome::Release => return Answer::Release { index },
            Outcome::Never => return Answer::Never { index },
        };
        let booking = self.limits.commit(&mut self.state, self.now, at, weights);
        assert_eq!(booking.at(), at);
        self.check_figures();
        Answer::Ok(booking)
    }

    pub fn pace(&mut self, weight: u64) -> Answer {
        self.pace_weights(&Weights::One(weight))
    }

    /// Delay of a booking made now.
    pub fn delay(&mut self, weight: u64) -> u64 {
        let now = self.now;
        self.pace(weight).ok().at().since(now).0
    }

    pub fn take_weights(&mut self, weights: &Weights) -> Answer {
        self.pace_within(weights, Span::ZERO)
    }

    pub fn take(&mut self, weight: u64) -> Answer {
        self.take_weights(&Weights::One(weight))
    }

    /// Takes one unit until denied; how many passed.
    pub fn drain(&mut self) -> u64 {
        let mut taken = 0;
        while self.take(1).is_ok() {
            taken += 1;
        }
        taken
    }

    pub fn cancel(&mut self, booking: Booking) -> bool {
        self.limits.cancel(&mut self.state, self.now, booking)
    }

    pub fn settle(&mut self, booking: &mut Booking, actual: u64) {
        self.limits
            .settle(&mut self.state, self.now, booking, actual);
        self.check_figures();
    }

    pub fn release(&mut self, booking: &Booking) {
        self.limits.release(&mut self.state, booking);
    }

    pub fn penalize(&mut self, span: u64) {
        let until = self.now + Span(span);
        self.limits.penalize(&mut self.state, self.now, until);
    }

    pub fn reopen(&mut self, limits: Vec<Limit>) {
        let limits = Limits::new(limits, 0).unwrap();
        limits.reconfigure(&self.limits, &mut self.state, self.now);
        self.limits = limits;
        self.check_figures();
    }

    pub fn figures(&self) -> Figures {
        self.limits.figures(&self.state, self.now, None).1
    }

    pub fn figures_of(&self, index: usize) -> Figures {
        self.limits.figures(&self.state, self.now, Some(index)).1
    }

    pub fn remaining(&self) -> u64 {
        self.figures().remaining
    }

    pub fn fresh_at(&self) -> Time {
        self.limits.fresh_at(&self.state)
    }

    /// As a backend's housekeeping does.
    pub fn forget_if_fresh(&mut self) -> bool {
        let fresh = self.fresh_at() <= self.now;
        if fresh {
            self.state = self.limits.fresh(self.now);
        }
        fresh
    }
}
