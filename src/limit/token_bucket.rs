//! Token bucket, refilled continuously: GCRA (ITU-T I.371) in exact integers.
//!
//! The state is one point, `tat`: when the bucket will be full again. Units owed are the time until
//! then. Admitted: owed + cost <= the time from empty to full.
use crate::limit::bounds::{self, MAX_DEBT, MAX_FILL};
use crate::limit::ledger::{Ledger, Mark};
use crate::limit::rate::{Rate, Tick};
use crate::limit::rule::{Figures, Wait};
use crate::limit::time::{Span, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    capacity: u64,
    rate: Rate,
    /// From empty to full: the cost of the capacity.
    full: Tick,
    /// The cost of one unit: what is asked for most, without a division.
    unit: Tick,
    starts_empty: bool,
}

/// What one admission took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketCharge {
    pub weight: u64,
    cost: Tick,
    /// How long the bucket would be full before, from then on.
    idle: Tick,
    /// `tat` right after the charge.
    end: Tick,
    /// The ledger's sum at that time.
    mark: Mark,
}

impl TokenBucket {
    pub fn new(
        capacity: u64,
        refill: u64,
        period: Span,
        starts_empty: bool,
    ) -> Result<TokenBucket, String> {
        bounds::check_capacity(capacity)?;
        let rate = Rate::new(refill, period)?;
        let full = rate.cost(capacity);
        check_fill(full.ceil())?;
        Ok(TokenBucket {
            capacity,
            rate,
            full,
            unit: rate.cost(1),
            starts_empty,
        })
    }

    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    pub fn rate(&self) -> &Rate {
        &self.rate
    }

    pub fn starts_empty(&self) -> bool {
        self.starts_empty
    }

    #[inline]
    fn cost(&self, weight: u64) -> Tick {
        match weight {
            1 => self.unit,
            weight => self.rate.cost(weight),
        }
    }

    pub fn fresh(&self, now: Time) -> Tick {
        if self.starts_empty {
            return self.rate.add(Tick::at(now), self.full);
        }
        Tick::at(now)
    }

    /// How long it takes from empty to full.
    pub fn fill(&self) -> Span {
        Span(self.full.ceil())
    }

    /// When it is full, if nothing more is taken.
    pub fn full_at(&self, tat: Tick) -> Time {
        Time(tat.ceil())
    }

    /// An idle bucket that started empty is forgotten, that is empty again, some time after it is full.
    pub fn fresh_at(&self, tat: Tick) -> Time {
        if self.starts_empty {
            return self.full_at(tat) + bounds::kept_full(self.fill());
        }
        self.full_at(tat)
    }

    pub fn wait(&self, tat: Tick, at: Time, weight: u64) -> Wait {
        let fits = self.fits(tat.since(at), weight);
        fits.err().unwrap_or(Wait::Now)
    }

    /// Whether `weight` fits into what is owed: then what is owed after it.
    #[inline(always)]
    pub fn fits(&self, owed: Tick, weight: u64) -> Result<Tick, Wait> {
        if weight > self.capacity {
            return Err(Wait::Never);
        }
        let after = self.rate.add(owed, self.cost(weight));
        if after <= self.full {
            return Ok(after);
        }
        Err(Wait::After(Span(self.rate.sub(after, self.full).ceil())))
    }

    /// What a charge of `weight` at its time took that left the state `end`, if it is never undone.
    pub fn charged(&self, weight: u64, end: Tick) -> BucketCharge {
        BucketCharge {
            weight,
            cost: self.cost(weight),
            idle: Tick::ZERO,
            end,
            mark: Mark::default(),
        }
    }

    /// What comes to be owed before it is undone is not paid by the quiet before `now`, which is over.
    #[inline]
    pub fn charge(
        &self,
        tat: &mut Tick,
        now: Time,
        at: Time,
        weight: u64,
        mark: Mark,
    ) -> BucketCharge {
        let start = Tick::at(at).max(*tat);
        let idle = self.rate.sub(start, Tick::at(now).max(*tat));
        let cost = self.cost(weight);
        *tat = self.rate.add(start, cost);
        BucketCharge {
            weight,
            cost,
            idle,
            end: *tat,
            mark,
        }
    }

    pub fn undo(&self, tat: &mut Tick, charge: &BucketCharge) {
        *tat = self.rate.sub(*tat, self.rate.add(charge.cost, charge.idle));
    }

    /// What undoes both, of which the later came right after the earlier.
    pub fn join(&self, earlier: &BucketCharge, later: &BucketCharge) -> BucketCharge {
        BucketCharge {
            cost: self.rate.add(earlier.cost, later.cost),
            idle: self.rate.add(earlier.idle, later.idle),
            ..later.clone()
        }
    }

    /// Gives back what was not used, as far as time has not already given it back. The part of `charge`
    /// that is still owed at `base` is at least its end, less what was refunded since, less `base`; it is
    /// more if some of that was charged later, which would take a list to know.
    pub fn lower(
        &self,
        tat: &mut Tick,
        ledger: &mut Ledger,
        base: Time,
        charge: &mut BucketCharge,
        actual: u64,
    ) {
        let rate = &self.rate;
        ledger.charged(self.full_at(*tat));
        let mut owed = Tick::ZERO;
        if charge.mark.era == ledger.sum.era {
            let since = rate.sub(ledger.sum.refunded, charge.mark.refunded);
            charge.end = rate.sub(charge.end, since);
            owed = rate.sub(charge.end, Tick::at(base));
        }
        let refund = rate.sub(charge.cost, rate.cost(actual)).min(owed);
        *tat = rate.sub(*tat, refund);
        ledger.set(rate.add(ledger.sum.refunded, refund));
        charge.weight = actual;
        charge.cost = rate.sub(charge.cost, refund);
        charge.end = rate.sub(charge.end, refund);
        charge.mark = ledger.sum;
    }

    /// Takes what was used beyond the estimate, into debt if need be.
    pub fn raise(
        &self,
        tat: &mut Tick,
        now: Time,
        base: Time,
        charge: &mut BucketCharge,
        actual: u64,
    ) {
        let most = Tick::at(base + MAX_DEBT);
        let extra = self.rate.sub(self.rate.cost(actual), charge.cost);
        let from = Tick::at(now).max(*tat);
        let raised = self.rate.add(from, extra).min(most).max(*tat);
        let taken = self.rate.sub(raised, *tat);
        *tat = raised;
        charge.weight = actual;
        charge.cost = self.rate.add(charge.cost, taken);
    }

    /// Takes `extra` from `at` on, into debt if need be.
    pub fn owe(&self, tat: &mut Tick, at: Time, extra: u64) {
        let most = Tick::at(at + MAX_DEBT);
        let from = Tick::at(at).max(*tat);
        *tat = self.rate.add(from, self.cost(extra)).min(most).max(*tat);
    }

    pub fn figures(&self, tat: Tick, at: Time) -> Figures {
        self.figures_of(tat.since(at))
    }

    /// The numbers of a bucket that owes so much.
    #[inline(always)]
    pub fn figures_of(&self, owed: Tick) -> Figures {
        Figures {
            limit: self.capacity,
            remaining: self.rate.brings(self.rate.sub(self.full, owed)),
            reset_after: Span(owed.ceil()),
        }
    }

    /// Carries the tokens that are there, or the debt, over to this bucket from another, as far as they fit.
    /// Room that is new is empty, else to lower the capacity and to raise it again would make tokens; a price
    /// that changed is paid for what is owed.
    pub fn reconfigure(&self, from: &TokenBucket, tat: &mut Tick, base: Time) {
        let owed = from.rate.sub(*tat, Tick::at(base));
        let lost = from.capacity.saturating_sub(self.capacity);
        let gained = self.capacity.saturating_sub(from.capacity);
        let owed = if self.rate == from.rate {
            let kept = self.rate.sub(owed, self.rate.cost(lost));
            self.rate.add(kept, self.rate.cost(gained))
        } else {
            let units = from.rate.brings_up(owed).saturating_sub(lost);
            self.rate.add(self.rate.cost(units), self.rate.cost(gained))
        };
        let most = Tick::at(base + MAX_DEBT);
        *tat = self.rate.add(Tick::at(base), owed).min(most);
    }
}

/// Refuses a bucket that takes longer than [`MAX_FILL`] to fill.
pub fn check_fill(us: u64) -> Result<(), String> {
    if us <= MAX_FILL.0 {
        return Ok(());
    }
    Err(format!(
        "capacity * period_us / refill must be at most {}, which is a hundred years",
        MAX_FILL.0
    ))
}
