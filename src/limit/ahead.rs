//! What few keys have: bookings ahead, penalties, cancelled bookings that others came after.
use crate::limit::booking::Charges;
use crate::limit::decide::Booking;
use crate::limit::time::{Span, Time};

/// Most runs of cancelled bookings that a key remembers in order to undo them exactly.
const MAX_PARKED: usize = 128;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ahead {
    pub booked_until: Time,
    pub blocked_until: Time,
    /// Number of the newest booking that is not undone.
    pub seq: u64,
    /// Bookings of another epoch mean nothing any more.
    pub epoch: u32,
    /// Until then a booking of another epoch might come to be settled.
    epoch_until: Time,
    /// How long buckets of epochs that are not over take to fill; not zero while something of those is owed, and
    /// other limits do not find the key as new.
    fill: Span,
    /// Cancelled, but others have booked since.
    parked: Vec<Parked>,
}

/// Cancelled bookings in a row, as one: their slots pass unused, unless all that came after are cancelled as
/// well. It has the charges of all, time and number of the last, and what was before the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parked {
    pub booking: Booking,
    first: u64,
}

impl From<Booking> for Parked {
    fn from(booking: Booking) -> Parked {
        Parked {
            first: booking.seq,
            booking,
        }
    }
}

impl Ahead {
    pub fn base(&self, now: Time) -> Time {
        now.max(self.booked_until).max(self.blocked_until)
    }

    pub fn needed_until(&self) -> Time {
        self.booked_until
            .max(self.blocked_until)
            .max(self.epoch_until)
    }

    /// Until then something is owed beside what the states tell.
    pub fn owed_until(&self) -> Time {
        match self.fill {
            Span::ZERO => self.booked_until.max(self.blocked_until),
            _ => self.needed_until(),
        }
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
    pub fn unbook(&mut self, newest: &Parked) -> Option<Parked> {
        debug_assert_eq!(newest.booking.seq, self.seq);
        self.booked_until = newest.booking.previous;
        self.seq = newest.first - 1;
        self.take(|parked| parked.booking.seq, self.seq)
    }

    fn take(&mut self, number: impl Fn(&Parked) -> u64, wanted: u64) -> Option<Parked> {
        let found = self.parked.iter().position(|p| number(p) == wanted)?;
        Some(self.parked.swap_remove(found))
    }

    /// Remembers a cancelled booking, together with its neighbours if their charges can be joined. When there
    /// are too many, those due first go. While a penalty lasts none of them has passed yet.
    pub(super) fn park(
        &mut self,
        now: Time,
        booking: Booking,
        join: impl Fn(&Charges, &Charges) -> Option<Charges>,
    ) {
        if self.blocked_until <= now {
            self.parked.retain(|p| p.booking.at > now);
        }
        let mut run = Parked::from(booking);
        for (first, wanted) in [(false, run.first - 1), (true, run.booking.seq + 1)] {
            let number = |p: &Parked| if first { p.first } else { p.booking.seq };
            let Some(other) = self.take(number, wanted) else {
                continue;
            };
            let (earlier, later) = if first {
                (&run, &other)
            } else {
                (&other, &run)
            };
            match join(&earlier.booking.charges, &later.booking.charges) {
                None => self.parked.push(other),
                Some(charges) => {
                    run = Parked {
                        first: earlier.first,
                        booking: Booking {
                            charges,
                            previous: earlier.booking.previous,
                            ..later.booking.clone()
                        },
                    }
                }
            }
        }
        self.parked.push(run);
        if self.parked.len() > MAX_PARKED {
            let first = (0..self.parked.len()).min_by_key(|i| self.parked[*i].first);
            self.parked.swap_remove(first.expect("not empty"));
        }
    }

    /// Something is admitted at once: all that was booked before is over, and what follows does not follow that.
    pub fn pass(&mut self) {
        self.seq += 1;
        self.parked.clear();
    }

    pub fn next_epoch(&mut self, now: Time, needed: Time, fill: Span) {
        if self.epoch_until <= now {
            self.fill = Span::ZERO;
        }
        if needed > now {
            self.fill = self.fill.max(fill).max(Span(1));
        }
        self.leave_epoch(needed);
    }

    /// Nothing is owed, and nothing is booked. Only that there was another epoch is known until `needed`.
    pub fn start_over(&mut self, needed: Time) {
        self.booked_until = Time(0);
        self.blocked_until = Time(0);
        self.fill = Span::ZERO;
        self.leave_epoch(needed);
    }

    fn leave_epoch(&mut self, needed: Time) {
        self.epoch = self.epoch.wrapping_add(1);
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
