//! What a rule of any kind remembers of a key, and what an admission took of it.
use crate::limit::fixed_window::{Window, WindowCharge};
use crate::limit::interval_bucket::{Filling, IntervalCharge};
use crate::limit::ledger::{Ledger, Ledgered, Mark};
use crate::limit::pacer::{Paced, PacerCharge};
use crate::limit::rate::Tick;
use crate::limit::sliding_counter::{CounterCharge, Counts};
use crate::limit::sliding_log::{Log, LogCharge};
use crate::limit::time::Time;
use crate::limit::token_bucket::BucketCharge;
use crate::limit::windows::Windows;

/// What a rule remembers of a key. Small, because there are many keys; what is larger is boxed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Of rules that remember nothing.
    Nothing,
    /// Units in use.
    Semaphore(u64),
    TokenBucket(Tick),
    IntervalBucket(Filling),
    FixedWindow(Box<Windows<Window>>),
    SlidingCounter(Box<Windows<Counts>>),
    SlidingLog(Box<Log>),
    Pacer(Box<Paced>),
    /// A bucket that something was given back to lately.
    Ledgered(Box<Ledgered>),
}

/// What one admission took from one limit: enough to undo or correct it later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Charge {
    Nothing,
    Semaphore(u64),
    TokenBucket(BucketCharge),
    IntervalBucket(IntervalCharge),
    FixedWindow(WindowCharge),
    SlidingCounter(CounterCharge),
    SlidingLog(LogCharge),
    Pacer(Box<PacerCharge>),
}

impl Charge {
    /// Units charged.
    pub fn weight(&self) -> u64 {
        match self {
            Charge::Nothing => 0,
            Charge::Semaphore(weight) => *weight,
            Charge::TokenBucket(charge) => charge.weight,
            Charge::IntervalBucket(charge) => charge.weight,
            Charge::FixedWindow(charge) => charge.weight,
            Charge::SlidingCounter(charge) => charge.weight,
            Charge::SlidingLog(charge) => charge.weight,
            Charge::Pacer(charge) => charge.weight,
        }
    }
}

impl State {
    /// Pieces of memory of its own, about.
    pub(super) fn pieces(&self) -> u32 {
        match self {
            State::Nothing
            | State::Semaphore(_)
            | State::TokenBucket(_)
            | State::IntervalBucket(_) => 0,
            _ => 1,
        }
    }

    /// The state itself, past its ledger.
    pub(super) fn plain(&self) -> &State {
        match self {
            State::Ledgered(with) => &with.bucket,
            plain => plain,
        }
    }

    pub(super) fn plain_mut(&mut self) -> &mut State {
        match self {
            State::Ledgered(with) => &mut with.bucket,
            plain => plain,
        }
    }

    /// The sum of refunds that a charge has to remember. A ledger that nobody can ask any more goes.
    pub(super) fn mark(&mut self, now: Time) -> Mark {
        let State::Ledgered(with) = self else {
            return Mark::default();
        };
        if with.ledger.until > now {
            return with.ledger.sum;
        }
        let bucket = std::mem::replace(&mut with.bucket, State::Nothing);
        *self = bucket;
        Mark::default()
    }

    /// The bucket with a ledger, which it gets if it has none.
    pub(super) fn ledgered(&mut self) -> &mut Ledgered {
        if !matches!(self, State::Ledgered(_)) {
            let bucket = std::mem::replace(self, State::Nothing);
            *self = State::Ledgered(Box::new(Ledgered {
                bucket,
                ledger: Ledger::default(),
            }));
        }
        let State::Ledgered(with) = self else {
            unreachable!("made above")
        };
        with
    }
}
