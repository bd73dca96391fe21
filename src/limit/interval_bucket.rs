//! Token bucket, refilled in steps: `refill` units at the end of each whole period.
//!
//! The state is what the bucket owes to being full, and since when periods count. Periods count from
//! the take that found the bucket full, so between two refills there is always a whole period.
use crate::limit::bounds::{self, MAX_COUNT, MAX_DEBT, MAX_UNITS};
use crate::limit::ledger::{Ledger, Mark};
use crate::limit::rate::{Tick, muldiv};
use crate::limit::rule::{Figures, Wait};
use crate::limit::time::{Span, Time};
use crate::limit::token_bucket::check_fill;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntervalBucket {
    capacity: u64,
    refill: u64,
    period: u64,
    starts_empty: bool,
}

/// `owed` units are missing at `anchor`; each whole period after it brings `refill` of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filling {
    pub owed: u64,
    pub anchor: Time,
}

/// What one admission took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntervalCharge {
    pub weight: u64,
    /// Still taken of it; more than the weight where a refund came too late.
    taken: u64,
    /// What the periods up to the charge brought.
    paid: u64,
    anchor_before: Time,
    after: Filling,
    /// The ledger's sum at that time.
    mark: Mark,
}

impl IntervalCharge {
    /// What undoes both, of which the later came right after this one.
    pub fn join(&self, later: &IntervalCharge) -> IntervalCharge {
        let taken = self.taken + later.taken;
        IntervalCharge {
            taken: taken.saturating_sub(later.paid),
            paid: self.paid + later.paid.saturating_sub(taken),
            anchor_before: self.anchor_before,
            ..later.clone()
        }
    }
}

impl IntervalBucket {
    pub fn new(
        capacity: u64,
        refill: u64,
        period: Span,
        starts_empty: bool,
    ) -> Result<IntervalBucket, String> {
        bounds::check_capacity(capacity)?;
        bounds::check("refill", refill, 1, MAX_UNITS)?;
        bounds::check_period(period)?;
        check_fill(capacity.div_ceil(refill).saturating_mul(period.0))?;
        Ok(IntervalBucket {
            capacity,
            refill,
            period: period.0,
            starts_empty,
        })
    }

    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    pub fn refill(&self) -> u64 {
        self.refill
    }

    pub fn period(&self) -> Span {
        Span(self.period)
    }

    pub fn starts_empty(&self) -> bool {
        self.starts_empty
    }

    pub fn fresh(&self, now: Time) -> Filling {
        Filling {
            owed: if self.starts_empty { self.capacity } else { 0 },
            anchor: now,
        }
    }

    pub fn fresh_at(&self, state: Filling) -> Time {
        let full_again = self.full_at(state);
        if self.starts_empty {
            return full_again + bounds::kept_full(self.fill());
        }
        full_again
    }

    /// How long it takes from empty to full.
    pub fn fill(&self) -> Span {
        self.time_for(self.capacity)
    }

    /// How long `units` take to come.
    fn time_for(&self, units: u64) -> Span {
        Span(units.div_ceil(self.refill).saturating_mul(self.period))
    }

    /// When it is full, if nothing more is taken.
    pub fn full_at(&self, state: Filling) -> Time {
        state.anchor + self.time_for(state.owed)
    }

    /// Units that whole periods between `anchor` and `at` bring.
    fn brought(&self, anchor: Time, at: Time) -> u64 {
        let periods = at.since(anchor).0 / self.period;
        muldiv(periods, self.refill, 1).0
    }

    /// The state as it is at `at`. A full bucket counts its periods from `at`.
    fn advance(&self, state: Filling, at: Time) -> Filling {
        let owed = state.owed.saturating_sub(self.brought(state.anchor, at));
        let periods = at.since(state.anchor).0 / self.period;
        Filling {
            owed,
            anchor: match owed {
                0 => at.max(state.anchor),
                _ => state.anchor + Span(periods * self.period),
            },
        }
    }

    pub fn wait(&self, state: Filling, at: Time, weight: u64) -> Wait {
        if weight > self.capacity {
            return Wait::Never;
        }
        let room = self.capacity - weight;
        if self.advance(state, at).owed <= room {
            return Wait::Now;
        }
        let fits = state.anchor + self.time_for(state.owed - room);
        Wait::After(fits.since(at))
    }

    /// As of a token bucket, the quiet before `now` is over.
    pub fn charge(
        &self,
        state: &mut Filling,
        now: Time,
        at: Time,
        weight: u64,
        mark: Mark,
    ) -> IntervalCharge {
        let before = match self.advance(*state, now) {
            full @ Filling { owed: 0, .. } => full,
            _ => *state,
        };
        *state = self.advance(before, at);
        let paid = before.owed - state.owed;
        state.owed += weight;
        IntervalCharge {
            weight,
            taken: weight,
            paid,
            anchor_before: before.anchor,
            after: *state,
            mark,
        }
    }

    pub fn undo(&self, state: &mut Filling, charge: &IntervalCharge) {
        state.owed = state.owed.saturating_sub(charge.taken) + charge.paid;
        state.anchor = charge.anchor_before;
    }

    /// Gives back what was not used, as far as refills have not already given it back.
    pub fn lower(
        &self,
        state: &mut Filling,
        ledger: &mut Ledger,
        base: Time,
        charge: &mut IntervalCharge,
        actual: u64,
    ) {
        ledger.charged(self.full_at(*state));
        let mut owed = 0;
        if charge.mark.era == ledger.sum.era {
            let since = ledger
                .sum
                .refunded
                .us
                .saturating_sub(charge.mark.refunded.us);
            charge.after.owed = charge.after.owed.saturating_sub(since);
            let brought = self.brought(charge.after.anchor, base);
            owed = charge.after.owed.saturating_sub(brought);
        }
        let refund = charge.taken.saturating_sub(actual).min(owed);
        state.owed = state.owed.saturating_sub(refund);
        ledger.set(Tick {
            us: ledger.sum.refunded.us + refund,
            rem: 0,
        });
        charge.weight = actual;
        charge.taken -= refund;
        charge.after.owed = charge.after.owed.saturating_sub(refund);
        charge.mark = ledger.sum;
    }

    /// Takes what was used beyond the estimate, into debt if need be.
    pub fn raise(&self, state: &mut Filling, now: Time, charge: &mut IntervalCharge, actual: u64) {
        charge.weight = actual;
        charge.taken += self.owe(state, now, actual.saturating_sub(charge.taken));
    }

    /// Takes `extra` from `at` on, into debt if need be. Answers how much there was room for.
    pub fn owe(&self, state: &mut Filling, at: Time, extra: u64) -> u64 {
        *state = self.advance(*state, at);
        let periods = MAX_DEBT.0 / self.period;
        let most = muldiv(periods, self.refill, 1).0.min(MAX_COUNT);
        let before = state.owed;
        state.owed = before.saturating_add(extra).min(most).max(before);
        state.owed - before
    }

    pub fn figures(&self, state: Filling, at: Time) -> Figures {
        let owed = self.advance(state, at).owed;
        Figures {
            limit: self.capacity,
            remaining: self.capacity.saturating_sub(owed),
            reset_after: match owed {
                0 => Span::ZERO,
                _ => self.full_at(state).since(at),
            },
        }
    }

    /// Pays for the time so far at the old terms; then as for a token bucket. Of a shorter period at most one
    /// is over: between two refills there is a whole period.
    pub fn reconfigure(&self, from: &IntervalBucket, state: &mut Filling, base: Time) {
        *state = from.advance(*state, base);
        state.anchor = state.anchor.max(base - Span(self.period));
        let lost = from.capacity.saturating_sub(self.capacity);
        let gained = self.capacity.saturating_sub(from.capacity);
        state.owed = state.owed.saturating_sub(lost) + gained;
        let periods = MAX_DEBT.0 / self.period;
        let most = muldiv(periods, self.refill, 1).0.max(self.capacity);
        state.owed = state.owed.min(most);
    }
}
