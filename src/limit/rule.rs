//! One limit: a rule of any kind, over its [`State`]. Dispatch only; each kind's arithmetic is in its own
//! file.
//!
//! All rules are monotone: what is admissible at some time is admissible at every later time unless
//! something is charged in between. And they see time run forward: `at` never decreases.
use crate::limit::fixed_window::FixedWindow;
use crate::limit::interval_bucket::IntervalBucket;
use crate::limit::ledger::Mark;
use crate::limit::pacer::Pacer;
use crate::limit::semaphore::Semaphore;
use crate::limit::sliding_counter::SlidingCounter;
use crate::limit::sliding_log::SlidingLog;
use crate::limit::time::{Span, Time};
use crate::limit::token_bucket::TokenBucket;
use crate::limit::windows::Windows;

pub use crate::limit::state::{Charge, State};

/// One limit of a limiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    pub rule: Rule,
    /// Counts calls instead of their weight.
    pub per_call: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    Semaphore(Semaphore),
    TokenBucket(TokenBucket),
    IntervalBucket(IntervalBucket),
    Pacer(Pacer),
    SlidingLog(SlidingLog),
    SlidingCounter(SlidingCounter),
    FixedWindow(FixedWindow),
    Unlimited,
    Never,
}

/// How long until a weight passes, if nothing else is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    Now,
    /// Exactly so long, and never zero.
    After(Span),
    /// Until enough that is held has come back.
    Release,
    /// It is more than the limit ever has.
    Never,
}

/// The numbers of a limit at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    pub limit: u64,
    /// 0 <= remaining <= limit.
    pub remaining: u64,
    /// Until the limit is as good as new; of a sliding log, until its oldest entry leaves.
    pub reset_after: Span,
}

/// The kinds of rule; keys of limiters with other kinds never meet. Numbers are stored, never reused.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Semaphore = 1,
    TokenBucket = 2,
    IntervalBucket = 3,
    Pacer = 4,
    SlidingLog = 5,
    SlidingCounter = 6,
    FixedWindow = 7,
    Unlimited = 8,
    Never = 9,
}

/// A state or charge of another kind than its rule's: the shapes of limiters keep them apart.
#[cold]
pub(super) fn mixed_up(rule: &Rule, state: &State) -> ! {
    unreachable!("{:?} met the state {state:?}", rule.kind())
}

impl Rule {
    pub fn kind(&self) -> Kind {
        match self {
            Rule::Semaphore(_) => Kind::Semaphore,
            Rule::TokenBucket(_) => Kind::TokenBucket,
            Rule::IntervalBucket(_) => Kind::IntervalBucket,
            Rule::Pacer(_) => Kind::Pacer,
            Rule::SlidingLog(_) => Kind::SlidingLog,
            Rule::SlidingCounter(_) => Kind::SlidingCounter,
            Rule::FixedWindow(_) => Kind::FixedWindow,
            Rule::Unlimited => Kind::Unlimited,
            Rule::Never => Kind::Never,
        }
    }

    /// The state of a key never seen before.
    pub fn fresh(&self, now: Time) -> State {
        match self {
            Rule::Semaphore(_) => State::Semaphore(0),
            Rule::TokenBucket(rule) => State::TokenBucket(rule.fresh(now)),
            Rule::IntervalBucket(rule) => State::IntervalBucket(rule.fresh(now)),
            Rule::Pacer(rule) => State::Pacer(Box::new(rule.fresh(now))),
            Rule::SlidingLog(_) => State::SlidingLog(Box::default()),
            Rule::SlidingCounter(rule) => {
                State::SlidingCounter(Box::new(Windows::new(rule.fresh(now))))
            }
            Rule::FixedWindow(rule) => State::FixedWindow(Box::new(Windows::new(rule.fresh(now)))),
            Rule::Unlimited | Rule::Never => State::Nothing,
        }
    }

    /// A key never seen has to be remembered even if it is denied, or it would stay empty for ever.
    pub fn starts_empty(&self) -> bool {
        match self {
            Rule::TokenBucket(rule) => rule.starts_empty(),
            Rule::IntervalBucket(rule) => rule.starts_empty(),
            _ => false,
        }
    }

    /// How long an empty bucket takes to be full.
    pub fn fill(&self) -> Span {
        match self {
            Rule::TokenBucket(rule) => rule.fill(),
            Rule::IntervalBucket(rule) => rule.fill(),
            Rule::Pacer(rule) => rule.fill(),
            _ => Span::ZERO,
        }
    }

    /// From then on the state is worth no more than a fresh one and may be forgotten.
    pub fn fresh_at(&self, state: &State) -> Time {
        let fresh = match (self, state.plain()) {
            (Rule::Semaphore(_), State::Semaphore(0)) => Time(0),
            (Rule::Semaphore(_), State::Semaphore(_)) => Time::MAX,
            (Rule::TokenBucket(rule), State::TokenBucket(tat)) => rule.fresh_at(*tat),
            (Rule::IntervalBucket(rule), State::IntervalBucket(filling)) => rule.fresh_at(*filling),
            (Rule::Pacer(rule), State::Pacer(paced)) => rule.fresh_at(paced),
            (Rule::SlidingLog(rule), State::SlidingLog(log)) => rule.fresh_at(log),
            (Rule::SlidingCounter(rule), State::SlidingCounter(counts)) => {
                rule.fresh_at(counts.latest)
            }
            (Rule::FixedWindow(rule), State::FixedWindow(windows)) => rule.fresh_at(windows.latest),
            (Rule::Unlimited | Rule::Never, State::Nothing) => Time(0),
            (rule, state) => mixed_up(rule, state),
        };
        match state {
            State::Ledgered(with) => fresh.max(with.ledger.until),
            _ => fresh,
        }
    }

    /// Whether `weight` can be remembered besides what is booked already.
    pub fn has_room(&self, state: &State, now: Time, weight: u64) -> bool {
        match (self, state) {
            (Rule::SlidingLog(rule), State::SlidingLog(log)) => rule.has_room(log, now, weight),
            _ => true,
        }
    }

    /// How long from `at` until `weight` passes.
    pub fn wait(&self, state: &State, at: Time, weight: u64) -> Wait {
        if weight == 0 {
            return Wait::Now;
        }
        match (self, state.plain()) {
            (Rule::TokenBucket(rule), State::TokenBucket(tat)) => rule.wait(*tat, at, weight),
            (Rule::Semaphore(rule), State::Semaphore(used)) => rule.wait(*used, weight),
            (Rule::IntervalBucket(rule), State::IntervalBucket(filling)) => {
                rule.wait(*filling, at, weight)
            }
            (Rule::Pacer(rule), State::Pacer(paced)) => rule.wait(paced, at, weight),
            (Rule::SlidingLog(rule), State::SlidingLog(log)) => rule.wait(log, at, weight),
            (Rule::SlidingCounter(rule), State::SlidingCounter(counts)) => {
                rule.wait(counts.latest, at, weight)
            }
            (Rule::FixedWindow(rule), State::FixedWindow(windows)) => {
                rule.wait(windows.latest, at, weight)
            }
            (Rule::Unlimited, _) => Wait::Now,
            (Rule::Never, _) => Wait::Never,
            (rule, state) => mixed_up(rule, state),
        }
    }

    /// Takes `weight` at `at`, when it passes. `now` is the time of the call.
    #[inline]
    pub fn charge(&self, state: &mut State, now: Time, at: Time, weight: u64) -> Charge {
        if weight == 0 {
            return Charge::Nothing;
        }
        if let (Rule::TokenBucket(rule), State::TokenBucket(tat)) = (self, &mut *state) {
            // By far the most frequent.
            return Charge::TokenBucket(rule.charge(tat, now, at, weight, Mark::default()));
        }
        let mark = state.mark(now);
        let charge = self.charge_plain(state.plain_mut(), now, at, weight, mark);
        if let State::Ledgered(with) = state {
            with.ledger.charged(match (self, &with.bucket) {
                (Rule::TokenBucket(rule), State::TokenBucket(tat)) => rule.full_at(*tat),
                (Rule::IntervalBucket(rule), State::IntervalBucket(filling)) => {
                    rule.full_at(*filling)
                }
                (rule, state) => mixed_up(rule, state),
            });
        }
        charge
    }

    fn charge_plain(
        &self,
        state: &mut State,
        now: Time,
        at: Time,
        weight: u64,
        mark: Mark,
    ) -> Charge {
        match (self, state) {
            (Rule::TokenBucket(rule), State::TokenBucket(tat)) => {
                Charge::TokenBucket(rule.charge(tat, now, at, weight, mark))
            }
            (Rule::Semaphore(_), State::Semaphore(used)) => {
                *used += weight;
                Charge::Semaphore(weight)
            }
            (Rule::IntervalBucket(rule), State::IntervalBucket(filling)) => {
                Charge::IntervalBucket(rule.charge(filling, now, at, weight, mark))
            }
            (Rule::Pacer(rule), State::Pacer(paced)) => {
                Charge::Pacer(Box::new(rule.charge(paced, now, at, weight)))
            }
            (Rule::SlidingLog(rule), State::SlidingLog(log)) => {
                Charge::SlidingLog(rule.charge(log, now, at, weight))
            }
            (Rule::SlidingCounter(rule), State::SlidingCounter(counts)) => {
                Charge::SlidingCounter(rule.charge(counts, now, at, weight))
            }
            (Rule::FixedWindow(rule), State::FixedWindow(windows)) => {
                Charge::FixedWindow(rule.charge(windows, now, at, weight))
            }
            (Rule::Unlimited | Rule::Never, _) => Charge::Nothing,
            (rule, state) => mixed_up(rule, state),
        }
    }

    /// One charge that is undone as two in a row are, if there is one.
    pub fn join(&self, earlier: &Charge, later: &Charge) -> Option<Charge> {
        match (self, earlier, later) {
            (Rule::Semaphore(_), _, _) => Some(Charge::Nothing),
            (_, charge, Charge::Nothing) | (_, Charge::Nothing, charge) => Some(charge.clone()),
            (Rule::TokenBucket(rule), Charge::TokenBucket(a), Charge::TokenBucket(b)) => {
                Some(Charge::TokenBucket(rule.join(a, b)))
            }
            (Rule::IntervalBucket(_), Charge::IntervalBucket(a), Charge::IntervalBucket(b)) => {
                Some(Charge::IntervalBucket(a.join(b)))
            }
            (Rule::Pacer(rule), Charge::Pacer(a), Charge::Pacer(b)) => {
                rule.join(a, b).map(|both| Charge::Pacer(Box::new(both)))
            }
            (Rule::SlidingLog(_), Charge::SlidingLog(a), Charge::SlidingLog(b)) => {
                Some(Charge::SlidingLog(a.join(b)))
            }
            (Rule::SlidingCounter(_), Charge::SlidingCounter(a), Charge::SlidingCounter(b)) => {
                a.join(b).map(Charge::SlidingCounter)
            }
            (Rule::FixedWindow(_), Charge::FixedWindow(a), Charge::FixedWindow(b)) => {
                a.join(b).map(Charge::FixedWindow)
            }
            _ => None,
        }
    }

    /// The numbers at `at`; `now` is the time of the call.
    pub fn figures(&self, state: &State, now: Time, at: Time) -> Figures {
        match (self, state.plain()) {
            (Rule::TokenBucket(rule), State::TokenBucket(tat)) => rule.figures(*tat, at),
            (Rule::Semaphore(rule), State::Semaphore(used)) => rule.figures(*used),
            (Rule::IntervalBucket(rule), State::IntervalBucket(filling)) => {
                rule.figures(*filling, at)
            }
            (Rule::Pacer(rule), State::Pacer(paced)) => rule.figures(paced, now, at),
            (Rule::SlidingLog(rule), State::SlidingLog(log)) => rule.figures(log, at),
            (Rule::SlidingCounter(rule), State::SlidingCounter(counts)) => {
                rule.figures(counts.latest, at)
            }
            (Rule::FixedWindow(rule), State::FixedWindow(windows)) => {
                rule.figures(windows.latest, at)
            }
            (Rule::Unlimited, _) => Figures {
                limit: u64::MAX,
                remaining: u64::MAX,
                reset_after: Span::ZERO,
            },
            (Rule::Never, _) => Figures {
                limit: 0,
                remaining: 0,
                reset_after: Span::ZERO,
            },
            (rule, state) => mixed_up(rule, state),
        }
    }

    /// Makes a state of the rule `from`, of the same kind, one of this rule: clamped, never reset.
    pub fn reconfigure(&self, from: &Rule, state: &mut State, now: Time, base: Time) {
        if let State::Ledgered(with) = state {
            with.ledger.restart();
        }
        match (self, from, state.plain_mut()) {
            (Rule::TokenBucket(rule), Rule::TokenBucket(from), State::TokenBucket(tat)) => {
                rule.reconfigure(from, tat, base)
            }
            (
                Rule::IntervalBucket(rule),
                Rule::IntervalBucket(from),
                State::IntervalBucket(filling),
            ) => rule.reconfigure(from, filling, base),
            (Rule::Pacer(rule), Rule::Pacer(from), State::Pacer(paced)) => {
                rule.reconfigure(from, paced, now, base)
            }
            (
                Rule::SlidingCounter(rule),
                Rule::SlidingCounter(from),
                State::SlidingCounter(counts),
            ) => rule.reconfigure(from, counts, base),
            (Rule::FixedWindow(rule), Rule::FixedWindow(from), State::FixedWindow(windows)) => {
                rule.reconfigure(from, windows, base)
            }
            // What is held, and what is logged, is the same under any parameters.
            (rule, from, state) if rule.kind() == from.kind() => {
                debug_assert!(!matches!(state, State::Ledgered(_)));
            }
            (rule, _, state) => mixed_up(rule, state),
        }
    }
}
