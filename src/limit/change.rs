//! What changes a whole key: a penalty, which moves what is booked; a reset; and other limits.
use crate::limit::booking::Booking;
use crate::limit::bounds::MAX_AHEAD;
use crate::limit::decide::{KeyState, Limits, Outcome};
use crate::limit::rule::{Charge, Kind};
use crate::limit::time::{Span, Time};

/// The least common multiple.
fn common(a: u64, b: u64) -> Option<u64> {
    let (mut divisor, mut rest) = (a, b);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    (a / divisor).checked_mul(b)
}

impl Limits {
    /// Admits nothing before `until`. Bookings that are made stay; see [`rebook`](Limits::rebook).
    pub fn penalize(&self, key: &mut KeyState, now: Time, until: Time) {
        let until = until.min(now + MAX_AHEAD);
        if until > now.max(key.blocked_until()) {
            key.ahead_mut().blocked_until = until;
        }
    }

    /// Some of these were made under limits that are over: what they took cannot be told from the rest.
    pub fn has_old<'b>(
        &self,
        key: &KeyState,
        mut bookings: impl Iterator<Item = &'b Booking>,
    ) -> bool {
        bookings.any(|booking| booking.epoch != key.epoch())
    }

    /// Moves all that is booked from `first` on, and with it all that was taken: nothing passes earlier for it,
    /// nor closer together. Bookings keep what they took, and can be neither cancelled nor settled any more.
    /// Answers by how much: at least so much, and by whole windows where those have their places. `None`,
    /// and nothing is moved, where some of it has to stay, or it is better booked after all that there is.
    pub fn put_off(&self, key: &mut KeyState, first: Time, by: Span) -> Option<Span> {
        let (fixed, booked) = key
            .ahead
            .as_ref()
            .map_or((Time(0), Time(0)), |a| (a.fixed_until, a.booked_until));
        let mut windows = self.limits().iter().filter_map(|l| l.rule.windows());
        let step = windows.try_fold(1, |step, window| common(step, window.0));
        let whole = Span(by.0.checked_next_multiple_of(step?)?);
        if fixed > first || whole > by.max(booked.since(first)) {
            return None;
        }
        for (limit, state) in self.limits().iter().zip(key.states.all_mut()) {
            limit.rule.put_off(state, whole);
        }
        let needed = self.rates_fresh_at(key);
        let ahead = key.ahead_mut();
        ahead.booked_until = ahead.booked_until + whole;
        ahead.next_epoch(needed);
        Some(whole)
    }

    /// Takes back what bookings took of rates, for each to be booked anew. They are not due yet, and in
    /// their order. Of one that others have booked after, and of one that was made under limits that are
    /// over, the slot passes unused.
    pub fn unbook<'b>(
        &self,
        key: &mut KeyState,
        now: Time,
        bookings: impl DoubleEndedIterator<Item = &'b Booking>,
    ) {
        for booking in bookings.rev() {
            debug_assert!(booking.at > now, "a due booking is admitted");
            self.cancel_rates(key, now, booking.clone());
        }
    }

    /// Books anew what was [unbooked](Limits::unbook), not earlier than it was. Otherwise nothing is booked,
    /// and why: it would be later than `latest`, or never.
    pub fn rebook(
        &self,
        key: &mut KeyState,
        now: Time,
        booking: &Booking,
        latest: Time,
    ) -> Result<Booking, Outcome> {
        let weights = booking.rates();
        let at = match self.decide(key, now, &weights).outcome {
            Outcome::Never => return Err(Outcome::Never),
            Outcome::Later(at) | Outcome::TooFar(at) => at.max(booking.at),
            Outcome::Admit | Outcome::Release => booking.at.max(key.base(now)),
        };
        if at > latest {
            return Err(Outcome::Later(at));
        }
        // Where only a semaphore was taken, these are all zero.
        let mut moved = self.take(key, now, at, &weights);
        let charges = moved.charges.all_mut().iter_mut();
        for (new, old) in charges.zip(booking.charges.all()) {
            if let Charge::Semaphore(weight) = old {
                *new = Charge::Semaphore(*weight);
            }
        }
        Ok(moved)
    }

    /// Makes the key as good as new. What was taken before can be neither cancelled nor settled any
    /// more, nor released: whoever holds it holds nothing.
    pub fn reset(&self, key: &mut KeyState, now: Time) {
        let needed = self.rates_fresh_at(key);
        key.states = self.fresh(now).states;
        let ahead = key.ahead_mut();
        ahead.booked_until = Time(0);
        ahead.blocked_until = Time(0);
        ahead.next_epoch(needed);
    }

    /// Nothing changes for a key that comes from those limits to these.
    pub fn same_rules(&self, from: &Limits) -> bool {
        let mut pairs = self.limits().iter().zip(from.limits());
        pairs.all(|(limit, old)| limit.rule == old.rule)
    }

    /// Makes a key that was used under the limits `from`, of the same shape, one of these limits.
    /// What was taken before can be released, but neither cancelled nor settled any more.
    pub fn reconfigure(&self, from: &Limits, key: &mut KeyState, now: Time) {
        let base = key.base(now);
        let needed = from.rates_fresh_at(key);
        let pairs = self.limits().iter().zip(from.limits());
        let mut moved = true;
        for ((limit, old), state) in pairs.zip(key.states.all_mut()) {
            if limit.rule == old.rule {
                continue;
            }
            moved &= limit.rule.windows() == old.rule.windows();
            // It may have been forgotten, or not: that makes no difference.
            if needed <= now && limit.rule.kind() != Kind::Semaphore {
                *state = limit.rule.fresh(now);
            } else {
                limit.rule.reconfigure(&old.rule, state, now, base);
            }
        }
        if !self.same_rules(from) {
            let ahead = key.ahead_mut();
            ahead.next_epoch(needed);
            if !moved {
                ahead.fixed_until = ahead.booked_until;
            }
        }
    }

    fn rates_fresh_at(&self, key: &KeyState) -> Time {
        let rates = self.limits().iter().zip(key.states.all());
        rates
            .filter(|(limit, _)| limit.rule.kind() != Kind::Semaphore)
            .map(|(limit, state)| limit.rule.fresh_at(state))
            .max()
            .unwrap_or(Time(0))
            .max(key.ahead.as_ref().map_or(Time(0), |a| a.needed_until()))
    }
}
