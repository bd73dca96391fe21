//! Pacer: evenly spaced slots, and a burst that is earned while it is quiet.
//!
//! After distributed-pacer, with its excess removed: there, units let through free of a slot do not
//! slow the slots down, so under steady load the burst comes back on top of the rate. Here an envelope,
//! a bucket over all that was admitted, must agree to each free admission.
use crate::limit::bounds::{self, MAX_AHEAD, MAX_DEBT, MAX_UNITS};
use crate::limit::rate::{Rate, Tick};
use crate::limit::rule::{Figures, Wait};
use crate::limit::time::{Span, Time};
use crate::limit::token_bucket::check_fill;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pacer {
    burst: u64,
    rate: Rate,
    /// How fast the burst comes back, in thousandths of the rate.
    earn_permille: u64,
    /// The cost of the burst.
    full: Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paced {
    /// The next free slot.
    pub next: Tick,
    /// How much of the burst is used, as time at the rate.
    pub level: Tick,
    /// Thousandths of a microsecond that the level has fallen beyond what `level` says.
    pub carry: u64,
    /// When the level was last looked at.
    pub drip: Time,
    /// When all that was admitted would have come through at the rate alone.
    pub envelope: Tick,
    /// Counts charges.
    pub turn: u64,
}

/// What one admission took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacerCharge {
    pub weight: u64,
    now: Time,
    at: Time,
    before: Paced,
    after: Paced,
}

impl PacerCharge {
    /// The time tells it from one of a key that was forgotten since and counts anew.
    fn is_newest(&self, state: &Paced) -> bool {
        (state.turn, state.drip) == (self.after.turn, self.after.drip)
    }
}

impl Pacer {
    pub fn new(burst: u64, units: u64, period: Span, earn_permille: u64) -> Result<Pacer, String> {
        bounds::check("capacity", burst, 0, MAX_UNITS)?;
        bounds::check("burst_earn_permille", earn_permille, 0, 1000)?;
        let rate = Rate::new(units, period)?;
        let full = rate.cost(burst);
        check_fill(full.ceil())?;
        Ok(Pacer {
            burst,
            rate,
            earn_permille,
            full,
        })
    }

    pub fn burst(&self) -> u64 {
        self.burst
    }

    pub fn rate(&self) -> &Rate {
        &self.rate
    }

    pub fn earn_permille(&self) -> u64 {
        self.earn_permille
    }

    pub fn fresh(&self, now: Time) -> Paced {
        Paced {
            next: Tick::at(now),
            level: Tick::ZERO,
            carry: 0,
            drip: now,
            envelope: Tick::at(now),
            turn: 0,
        }
    }

    /// A slot within the microsecond before a call keeps its fraction, so the key is not as new then.
    pub fn fresh_at(&self, state: &Paced) -> Time {
        let fraction = Span((state.next.rem > 0).into());
        self.good_at(state).max(Time(state.next.ceil()) + fraction)
    }

    fn good_at(&self, state: &Paced) -> Time {
        let quiet = Time(state.next.ceil());
        let quiet = quiet.max(Time(state.envelope.ceil()));
        quiet.max(state.drip + self.time_to_earn(state.level.ceil()))
    }

    /// How long it takes to earn a whole burst.
    pub fn fill(&self) -> Span {
        self.time_to_earn(self.full.ceil())
    }

    /// How long it takes to earn back `level`. What would take longer than [`MAX_AHEAD`] is forgotten
    /// by then: so every state has an end.
    fn time_to_earn(&self, level: u64) -> Span {
        if level == 0 || level >= MAX_AHEAD.0 / 1000 * self.earn_permille {
            return if level == 0 { Span::ZERO } else { MAX_AHEAD };
        }
        let whole = level / self.earn_permille * 1000;
        let rest = level % self.earn_permille * 1000;
        Span(whole + rest.div_ceil(self.earn_permille))
    }

    /// The level at `now`: it falls in quiet times only, that is unless slots are booked ahead.
    fn leak(&self, state: &Paced, now: Time) -> (Tick, u64) {
        if state.next > Tick::at(now) {
            return (state.level, state.carry);
        }
        let elapsed = now.since(state.drip).0;
        let fine = elapsed % 1000 * self.earn_permille + state.carry;
        let fallen = (elapsed / 1000).saturating_mul(self.earn_permille) + fine / 1000;
        let level = self.rate.sub(state.level, Tick { us: fallen, rem: 0 });
        match level.is_zero() {
            true => (level, 0),
            false => (level, fine % 1000),
        }
    }

    /// Whether `cost` fits into the burst at `at`.
    fn is_free(&self, state: &Paced, now: Time, at: Time, cost: Tick) -> bool {
        if cost > self.full || state.next > Tick::at(at) {
            return false;
        }
        let (level, _) = self.leak(state, now);
        let envelope = state.envelope.max(Tick::at(at));
        self.rate.add(level, cost) <= self.full
            && self.rate.add(envelope, cost) <= self.rate.add(Tick::at(at), self.full)
    }

    /// Every weight passes at a slot, but none that would hold the slots up for longer than
    /// [`MAX_AHEAD`].
    pub fn wait(&self, state: &Paced, at: Time, weight: u64) -> Wait {
        if self.rate.cost(weight).ceil() > MAX_AHEAD.0 {
            return Wait::Never;
        }
        // A burst needs the slots to be free as well, so the slot alone decides about waiting.
        match Time(state.next.ceil()).since(at) {
            Span::ZERO => Wait::Now,
            wait => Wait::After(wait),
        }
    }

    pub fn charge(&self, state: &mut Paced, now: Time, at: Time, weight: u64) -> PacerCharge {
        let before = *state;
        let cost = self.rate.cost(weight);
        let (level, carry) = self.leak(&before, now);
        state.envelope = self.rate.add(before.envelope.max(Tick::at(at)), cost);
        state.drip = state.drip.max(now);
        state.turn += 1;
        if self.is_free(&before, now, at, cost) {
            state.level = self.rate.add(level, cost);
            state.carry = carry;
        } else {
            // A slot within the microsecond before `at` keeps its fraction, else the rate would drift.
            let slot = match before.next.ceil() == at.0 {
                true => before.next,
                false => before.next.max(Tick::at(at)),
            };
            state.next = self.rate.add(slot, cost);
            state.level = self.full;
            state.carry = 0;
        }
        PacerCharge {
            weight,
            now,
            at,
            before,
            after: *state,
        }
    }

    /// Exact if the charge is the newest; what was settled upward meanwhile stays.
    pub fn undo(&self, state: &mut Paced, charge: &PacerCharge) {
        if !charge.is_newest(state) {
            return;
        }
        let rate = &self.rate;
        // What was settled upward came after this charge, and is not paid by the quiet before it: what the
        // charge itself took goes, and that may be nothing.
        let without = |state: Tick, before: Tick, after: Tick| match state <= after {
            true => before,
            false => rate.sub(state, rate.sub(after, before.max(Tick::at(charge.now)))),
        };
        *state = Paced {
            next: without(state.next, charge.before.next, charge.after.next),
            envelope: without(
                state.envelope,
                charge.before.envelope,
                charge.after.envelope,
            ),
            ..charge.before
        };
    }

    /// What undoes both, if the later came right after the earlier: with what was settled upward between.
    pub fn join(&self, earlier: &PacerCharge, later: &PacerCharge) -> Option<PacerCharge> {
        let rate = &self.rate;
        let (found, left) = (&later.before, &earlier.after);
        let without = |all, left, found| rate.sub(rate.add(all, left), found);
        // What moved on from a time that was over did so by more than was taken.
        let told = left.next >= Tick::at(earlier.now) || left.next >= found.next;
        (earlier.is_newest(found) && told).then(|| PacerCharge {
            weight: later.weight,
            before: earlier.before,
            after: Paced {
                next: without(later.after.next, left.next, found.next),
                envelope: without(later.after.envelope, left.envelope, found.envelope),
                ..later.after
            },
            ..*earlier
        })
    }

    /// Less was used: decided again with the actual weight if nothing came after, else the slots that
    /// followed are spaced already and nothing is given back.
    pub fn lower(&self, state: &mut Paced, charge: &mut PacerCharge, actual: u64) {
        if !charge.is_newest(state) {
            return;
        }
        self.undo(state, charge);
        let turn = state.turn;
        if actual == 0 {
            charge.weight = 0;
            charge.after = Paced {
                turn: turn + 1,
                ..*state
            };
        } else {
            *charge = self.charge(state, charge.now, charge.at, actual);
        }
        state.turn = turn + 1;
    }

    /// More was used: the next slot and the envelope move.
    pub fn raise(
        &self,
        state: &mut Paced,
        now: Time,
        base: Time,
        charge: &mut PacerCharge,
        actual: u64,
    ) {
        let rate = &self.rate;
        if state.next <= Tick::at(now) {
            // It has been quiet up to now, and no longer is.
            (state.level, state.carry) = self.leak(state, now);
            state.drip = state.drip.max(now);
        }
        let most = Tick::at(base + MAX_DEBT);
        let extra = rate.sub(rate.cost(actual), rate.cost(charge.weight));
        let raised = |from: Tick| rate.add(from, extra).min(most).max(from);
        // What came free of a slot left the next one in the past.
        let next = raised(state.next.max(Tick::at(charge.at.max(now))));
        let envelope = raised(state.envelope.max(Tick::at(now)));
        // Should the charge be undone, its own correction goes with it.
        charge.after.next = rate.add(charge.after.next, rate.sub(next, state.next));
        let moved = rate.sub(envelope, state.envelope);
        charge.after.envelope = rate.add(charge.after.envelope, moved);
        (state.next, state.envelope) = (next, envelope);
        charge.weight = actual;
    }

    /// Takes `extra` from `at` on: the next slot and the envelope move.
    pub fn owe(&self, state: &mut Paced, at: Time, extra: u64) {
        let (from, most) = (Tick::at(at), Tick::at(at + MAX_DEBT));
        let cost = self.rate.cost(extra);
        let raised = |tick: Tick| self.rate.add(tick.max(from), cost).min(most).max(tick);
        state.next = raised(state.next);
        state.envelope = raised(state.envelope);
    }

    /// Single units that would pass at `at`: what is left of the burst, and the slots of this microsecond,
    /// which are more than one beyond a million a second.
    pub fn figures(&self, state: &Paced, now: Time, at: Time) -> Figures {
        let at_tick = Tick::at(at);
        let slots = match state.next.ceil() {
            next if next > at.0 => 0,
            next if next < at.0 => 1,
            _ => self.rate.brings(self.rate.sub(at_tick, state.next)) + 1,
        };
        let (level, _) = self.leak(state, now);
        let envelope = self.rate.sub(state.envelope, at_tick);
        let left = self.rate.sub(self.full, level.max(envelope));
        let free = if state.next > at_tick {
            0
        } else {
            self.rate.brings(left)
        };
        Figures {
            limit: self.burst + self.rate.units().div_ceil(self.rate.period()),
            remaining: free + slots,
            reset_after: self.good_at(state).since(at),
        }
    }

    /// Slots that are booked stay; what the burst and the envelope hold is priced anew.
    pub fn reconfigure(&self, from: &Pacer, state: &mut Paced, now: Time, base: Time) {
        let (level, _) = from.leak(state, now);
        let used = from.rate.brings_up(level);
        let ahead = from.rate.sub(state.envelope, Tick::at(base));
        let owed = self.rate.cost(from.rate.brings_up(ahead));
        let most = Tick {
            us: MAX_AHEAD.0 + self.full.ceil(),
            rem: 0,
        };
        state.next = self.rate.adopt(&from.rate, state.next);
        state.level = self.rate.cost(used).min(self.full);
        state.carry = 0;
        state.drip = state.drip.max(now);
        state.envelope = self.rate.add(Tick::at(base), owed.min(most));
    }
}
