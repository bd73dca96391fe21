//! Evenly spaced slots, a burst on top that is earned while it is quiet, and an envelope over both.
use crate::exact::*;

#[derive(Clone, Debug)]
pub struct Pacer {
    burst: u64,
    /// Units a microsecond.
    rate: Q,
    earn_permille: u64,
    slots: Slots,
}

/// All in microseconds of the rate.
#[derive(Clone, Debug)]
struct Slots {
    /// The next free one.
    next: Q,
    /// Used of the burst.
    level: Q,
    /// Thousandths of a microsecond by which it is less: the burst comes back in whole ones.
    carry: u64,
    since: u64,
    /// When all that was let pass would have come through at the rate.
    envelope: Q,
    charges: u64,
}

#[derive(Clone, Debug)]
pub struct PacerCharge {
    now: u64,
    at: u64,
    before: Slots,
    after: Slots,
}

impl Pacer {
    pub fn new(burst: u64, units: u64, period: u64, earn_permille: u64, now: u64) -> Pacer {
        Pacer {
            burst,
            rate: ratio(units, period),
            earn_permille,
            slots: Slots {
                next: q(now),
                level: q(0),
                carry: 0,
                since: now,
                envelope: q(now),
                charges: 0,
            },
        }
    }

    fn cost(&self, weight: u64) -> Q {
        q(weight) / &self.rate
    }

    /// The level that counts, and what it is less by.
    fn level(&self, now: u64) -> (Q, u64) {
        let slots = &self.slots;
        if slots.next > q(now) {
            return (slots.level.clone(), slots.carry);
        }
        let quiet = now.saturating_sub(slots.since);
        let earned = quiet * self.earn_permille + slots.carry;
        let level = less(&slots.level, &q(earned / 1000));
        let carry = if level > q(0) { earned % 1000 } else { 0 };
        (level, carry)
    }

    pub fn wait(&self, at: u64, weight: u64) -> Wait {
        if ceil(&self.cost(weight)) > MOST_AHEAD {
            return Wait::Never;
        }
        Wait::until(ceil(&self.slots.next), at)
    }

    pub fn take(&mut self, now: u64, at: u64, weight: u64) -> PacerCharge {
        let before = self.slots.clone();
        let (cost, full) = (self.cost(weight), self.cost(self.burst));
        let (level, carry) = self.level(now);
        let envelope = before.envelope.clone().max(q(at)) + &cost;
        let free = before.next <= q(at) && &level + &cost <= full && envelope <= q(at) + &full;
        let slots = &mut self.slots;
        if free {
            (slots.level, slots.carry) = (level + cost, carry);
        } else {
            // A slot in the microsecond before keeps its fraction.
            let slot = match ceil(&before.next) == at {
                true => before.next.clone(),
                false => before.next.clone().max(q(at)),
            };
            slots.next = slot + cost;
            (slots.level, slots.carry) = (full, 0);
        }
        slots.envelope = envelope;
        slots.since = slots.since.max(now);
        slots.charges += 1;
        PacerCharge {
            now,
            at,
            before,
            after: self.slots.clone(),
        }
    }

    fn reset_at(&self) -> u64 {
        let slots = &self.slots;
        let level = ceil(&slots.level);
        let earn = match (level, self.earn_permille) {
            (0, _) => 0,
            (_, 0) => MOST_AHEAD,
            (level, permille) => ceil(&(q(level) * ratio(1000, permille))).min(MOST_AHEAD),
        };
        let quiet = ceil(&slots.next).max(ceil(&slots.envelope));
        quiet.max(slots.since + earn)
    }

    pub fn figures(&self, now: u64, at: u64) -> Figures {
        let slots = &self.slots;
        // Slots of this microsecond: more than one beyond a million a second.
        let now_free = match ceil(&slots.next) {
            next if next > at => 0,
            next if next < at => 1,
            _ => floor(&((q(at) - &slots.next) * &self.rate)) + 1,
        };
        let used = self.level(now).0.max(less(&slots.envelope, &q(at)));
        let left = less(&self.cost(self.burst), &used);
        let burst = match slots.next > q(at) {
            true => 0,
            false => floor(&(left * &self.rate)),
        };
        Figures {
            limit: self.burst + ceil(&self.rate),
            remaining: burst + now_free,
            reset: self.reset_at().saturating_sub(at),
        }
    }

    /// Decided again, if it is the newest; else the slots after it are spaced already.
    pub fn lower(&mut self, charge: &PacerCharge, actual: u64) {
        let (slots, after) = (&self.slots, &charge.after);
        if (slots.charges, slots.since) != (after.charges, after.since) {
            return;
        }
        // What was settled upward since is not paid by the quiet before the charge.
        let kept = |now: &Q, before: &Q, after: &Q| match now > after {
            true => now - less(after, &before.clone().max(q(charge.now))),
            false => before.clone(),
        };
        let charges = slots.charges;
        let next = kept(&slots.next, &charge.before.next, &after.next);
        let envelope = kept(&slots.envelope, &charge.before.envelope, &after.envelope);
        self.slots = charge.before.clone();
        (self.slots.next, self.slots.envelope) = (next, envelope);
        if actual > 0 {
            self.take(charge.now, charge.at, actual);
        }
        self.slots.charges = charges + 1;
    }

    pub fn raise(&mut self, now: u64, base: u64, charge: &PacerCharge, extra: u64) {
        if self.slots.next <= q(now) {
            (self.slots.level, self.slots.carry) = self.level(now);
            self.slots.since = self.slots.since.max(now);
        }
        let (extra, most) = (self.cost(extra), q(base + MOST_DEBT));
        let raised = |from: Q| (&from + &extra).min(most.clone()).max(from);
        let next = self.slots.next.clone().max(q(charge.at.max(now)));
        self.slots.next = raised(next);
        self.slots.envelope = raised(self.slots.envelope.clone().max(q(now)));
    }
}
