//! One limit, corrected: what was charged is taken back, or turns out to have been more or less. Dispatch only.
use crate::limit::bounds::MAX_COUNT;
use crate::limit::rule::{Charge, Rule, State, mixed_up};
use crate::limit::time::Time;

impl Rule {
    /// Takes the newest charge back: the state is as it was before, but for corrections of older charges.
    pub fn undo(&self, state: &mut State, charge: &Charge) {
        match (self, state.plain_mut(), charge) {
            (_, _, Charge::Nothing) => {}
            (Rule::Semaphore(_), State::Semaphore(used), Charge::Semaphore(weight)) => {
                *used = used.saturating_sub(*weight);
            }
            (Rule::TokenBucket(rule), State::TokenBucket(tat), Charge::TokenBucket(charge)) => {
                rule.undo(tat, charge)
            }
            (
                Rule::IntervalBucket(rule),
                State::IntervalBucket(filling),
                Charge::IntervalBucket(charge),
            ) => rule.undo(filling, charge),
            (Rule::Pacer(rule), State::Pacer(paced), Charge::Pacer(charge)) => {
                rule.undo(paced, charge)
            }
            (Rule::SlidingLog(rule), State::SlidingLog(log), Charge::SlidingLog(charge)) => {
                rule.undo(log, charge)
            }
            (
                Rule::SlidingCounter(rule),
                State::SlidingCounter(counts),
                Charge::SlidingCounter(charge),
            ) => rule.undo(counts, charge),
            (Rule::FixedWindow(rule), State::FixedWindow(windows), Charge::FixedWindow(charge)) => {
                rule.undo(windows, charge)
            }
            (rule, state, _) => mixed_up(rule, state),
        }
    }

    /// Corrects a charge to the `actual` weight, which was more. What is taken, is taken now, whatever has
    /// come back since: so it makes no difference whether a state that is as new was forgotten meanwhile.
    pub fn raise(
        &self,
        state: &mut State,
        now: Time,
        base: Time,
        charge: &mut Charge,
        actual: u64,
    ) {
        debug_assert!(actual > charge.weight());
        match (self, state.plain_mut(), charge) {
            (Rule::TokenBucket(rule), State::TokenBucket(tat), Charge::TokenBucket(charge)) => {
                rule.raise(tat, now, base, charge, actual)
            }
            (
                Rule::IntervalBucket(rule),
                State::IntervalBucket(filling),
                Charge::IntervalBucket(charge),
            ) => rule.raise(filling, now, charge, actual),
            (Rule::Pacer(rule), State::Pacer(paced), Charge::Pacer(charge)) => {
                rule.raise(paced, now, base, charge, actual)
            }
            (_, state, charge) => self.recount(state, charge, actual),
        }
    }

    /// Corrects a charge to the `actual` weight, which was less.
    pub fn lower(&self, state: &mut State, base: Time, charge: &mut Charge, actual: u64) {
        debug_assert!(actual < charge.weight());
        match (self, charge) {
            (Rule::TokenBucket(rule), Charge::TokenBucket(charge)) => {
                let with = state.ledgered();
                let State::TokenBucket(tat) = &mut with.bucket else {
                    mixed_up(self, &with.bucket)
                };
                rule.lower(tat, &mut with.ledger, base, charge, actual);
            }
            (Rule::IntervalBucket(rule), Charge::IntervalBucket(charge)) => {
                let with = state.ledgered();
                let State::IntervalBucket(filling) = &mut with.bucket else {
                    mixed_up(self, &with.bucket)
                };
                rule.lower(filling, &mut with.ledger, base, charge, actual);
            }
            (Rule::Pacer(rule), Charge::Pacer(charge)) => {
                let State::Pacer(paced) = state else {
                    mixed_up(self, state)
                };
                rule.lower(paced, charge, actual);
            }
            (_, charge) => self.recount(state, charge, actual),
        }
    }

    /// The kinds that count can correct in both directions alike. A semaphore's weight is held, not
    /// used up: it comes back when it is released.
    fn recount(&self, state: &mut State, charge: &mut Charge, actual: u64) {
        match (self, state, charge) {
            (Rule::SlidingLog(rule), State::SlidingLog(log), Charge::SlidingLog(charge)) => {
                rule.adjust(log, charge, actual)
            }
            (
                Rule::SlidingCounter(rule),
                State::SlidingCounter(counts),
                Charge::SlidingCounter(charge),
            ) => rule.adjust(counts, charge, actual),
            (Rule::FixedWindow(rule), State::FixedWindow(windows), Charge::FixedWindow(charge)) => {
                rule.adjust(windows, charge, actual)
            }
            (Rule::Semaphore(_), _, _) | (_, _, Charge::Nothing) => {}
            (rule, state, _) => mixed_up(rule, state),
        }
    }

    /// Takes `extra` from `at` on without asking, in a state that does not know the charge it belongs to.
    pub fn owe(&self, state: &mut State, at: Time, extra: u64) {
        let extra = extra.min(MAX_COUNT);
        match (self, state.plain_mut()) {
            (Rule::TokenBucket(rule), State::TokenBucket(tat)) => rule.owe(tat, at, extra),
            (Rule::IntervalBucket(rule), State::IntervalBucket(filling)) => {
                rule.owe(filling, at, extra);
            }
            (Rule::Pacer(rule), State::Pacer(paced)) => rule.owe(paced, at, extra),
            (Rule::SlidingLog(rule), State::SlidingLog(log)) => rule.owe(log, at, extra),
            (Rule::SlidingCounter(rule), State::SlidingCounter(counts)) => {
                rule.owe(counts, at, extra)
            }
            (Rule::FixedWindow(rule), State::FixedWindow(windows)) => rule.owe(windows, at, extra),
            (Rule::Semaphore(_) | Rule::Unlimited | Rule::Never, _) => {}
            (rule, state) => mixed_up(rule, state),
        }
    }
}
