//! What few keys have: bookings ahead, penalties, cancelled bookings that others came after.
use crate::limit::decide::Booking;
use crate::limit::time::{Span, Time};

/// Most cancelled bookings that a key remembers in order to undo them exactly.
const MAX_PARKED: usize = 128;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    pub booked_until: Time,
    pub blocked_until: Time,
    /// Number of the newest booking that is not undone.
    pub seq: u64,
    /// Bookings of another epoch mean nothing any more.
    pub epoch: u32,
    /// Until then a booking of another epoch might come to be settled, and other limits do not find the key as
    /// new.
    epoch_until: Time,
    /// How long buckets of epochs that are not over take to fill.
    fill: Span,
    /// Cancelled, but others have booked since.
    parked: Vec<Parked>,
}

/// A cancelled booking whose slot passes unused, unless all that came after are cancelled as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parked(pub Booking);

impl Ahead {
    pub fn base(&self, now: Time) -> Time {
        now.max(self.booked_until).max(self.blocked_until)
    }

    pub fn needed_until(&self) -> Time {
        self.booked_until
            .max(self.blocked_until)
            .max(self.epoch_until)
    }

    /// Nothing would be lost with it. An epoch other than the first has to stay: there may be bookings of
    /// it that are still to be settled.
    pub fn is_over(&self, now: Time) -> bool {
        self.epoch == 0 && self.needed_until() <= now
    }

    /// Counts a booking; answers where the bookings ended before.
    pub fn book(&mut self, at: Time) -> Time {
        self.seq += 1;
        std::mem::replace(&mut self.booked_until, at)
    }

    /// Takes the newest booking out; answers the next one to undo, if that was cancelled before.
    pub fn unbook(&mut self, newest: &Booking) -> Option<Parked> {
        debug_assert_eq!(newest.seq, self.seq);
        self.booked_until = newest.previous;
        self.seq -= 1;
        let next = self.parked.iter().position(|p| p.0.seq == self.seq)?;
        Some(self.parked.swap_remove(next))
    }

    /// Remembers a cancelled booking. When there are too many, the one due first goes.
    pub fn park(&mut self, now: Time, parked: Parked) {
        self.parked.retain(|p| p.0.at() > now);
        self.parked.push(parked);
        if self.parked.len() > MAX_PARKED {
            let first = (0..self.parked.len()).min_by_key(|i| self.parked[*i].0.seq);
            self.parked.swap_remove(first.expect("not empty"));
        }
    }

    pub fn next_epoch(&mut self, now: Time, needed: Time, fill: Span) {
        self.epoch = self.epoch.wrapping_add(1);
        if self.epoch_until <= now {
            self.fill = Span::ZERO;
        }
        self.fill = self.fill.max(fill);
        self.epoch_until = self.epoch_until.max(needed);
        self.parked.clear();
    }

    /// Something is taken at `at`. What buckets of former limits owe is not paid by the time that pays for
    /// this, else limits changed back and forth would yield more than any of them: those buckets would be full
    /// when nothing was taken for as long as they take to fill.
    pub fn taken(&mut self, now: Time, at: Time) {
        if self.epoch_until > now {
            self.epoch_until = self.epoch_until.max(at + self.fill);
        }
    }
}
