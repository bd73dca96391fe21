//! Those who wait for rates: each has a time by which its turn comes whatever happens to those before it, and
//! takes what it wants when its turn has come, which may be earlier.
//!
//! A booking is made in a copy of the key, where all who wait have taken what they want. The key itself
//! knows of those only whose turn has come, so that what is given back to it is there for the next.
use crate::limit::booking::Booking;
use crate::limit::decide::{Limits, Outcome};
use crate::limit::key::KeyState;
use crate::limit::rule::{Charge, State};
use crate::limit::time::Time;

impl Limits {
    /// When the rates let it pass if nothing else comes before: from `from` on. `None`: never.
    pub fn turn(&self, key: &KeyState, from: Time, booking: &Booking) -> Option<Time> {
        match self.decide(key, from, &booking.rates()).outcome {
            Outcome::Later(at) | Outcome::TooFar(at) => Some(at),
            Outcome::Admit | Outcome::Release => Some(key.base(from)),
            Outcome::Never => None,
        }
    }

    /// Takes of rates what was booked elsewhere, at `at`; what it holds it has already. `since`: when it was
    /// first asked for.
    pub fn take_turn(
        &self,
        key: &mut KeyState,
        now: Time,
        at: Time,
        since: Time,
        booking: &Booking,
    ) -> Booking {
        let taken = self.take(key, now.min(at), at, &booking.rates(), since);
        taken.holding(booking)
    }

    /// Gives up a booking: all that it took, if nothing was booked after it. False: the slot passes unused.
    pub fn give_up(&self, key: &mut KeyState, now: Time, booking: Booking) -> bool {
        booking.seq > 0 && booking.at > now && self.cancel_rates(key, now, booking)
    }

    /// What a booking made elsewhere holds is held of this key, too.
    pub fn hold(&self, key: &mut KeyState, booking: &Booking) {
        for (state, charge) in key.states.all_mut().iter_mut().zip(booking.charges.all()) {
            if let (State::Semaphore(used), Charge::Semaphore(weight)) = (state, charge) {
                *used += *weight;
            }
        }
    }

    /// Whether `actual` is more than was taken.
    pub fn is_more(&self, booking: &Booking, actual: u64) -> bool {
        let mut charges = self.limits().iter().zip(booking.charges.all());
        charges.any(|(limit, charge)| !limit.per_call && (1..actual).contains(&charge.weight()))
    }

    /// What [`settle`](Limits::settle) to more would take, in a key that does not know the booking: at its end.
    pub fn owe(&self, key: &mut KeyState, now: Time, booking: &Booking, actual: u64) {
        let base = key.base(now);
        let states = key.states.all_mut().iter_mut();
        let charges = booking.charges.all();
        for ((limit, state), charge) in self.limits().iter().zip(states).zip(charges) {
            let weight = charge.weight();
            if !limit.per_call && (1..actual).contains(&weight) {
                limit.rule.owe(state, base, actual - weight);
            }
        }
    }
}
