//! Redis on a virtual clock, so that tests need not sleep: calls carry the client's time instead of being
//! told the server's. All who use a key must then be of one client, as nobody else's time would be the
//! same.
//!
//! Answers come when they come, and nothing is done here by itself. So whoever moves the clock, even by
//! nothing, waits until all that was asked is answered, and what is in a semaphore's queue has been looked
//! at: then everything has happened that would happen by that time.
use super::Redis;
use crate::clock::Source;
use crate::decision::Status;
use crate::limit::time::{Span, Time};

impl Redis {
    /// When something here falls due next, for whoever moves the clock of a [`World`].
    pub fn next_due(&self) -> Option<Time> {
        let local = self.local.memory().and_then(|memory| memory.next_due());
        [self.timer.next(), local].into_iter().flatten().min()
    }

    /// Does what has fallen due here by now, for the same.
    pub fn fire_due(&self) {
        self.timer.fire_by(self.clock.now());
        if let Some(local) = self.local.memory() {
            local.fire_due();
        }
    }

    /// Lets time pass on a virtual clock; what falls due happens in order, each at its own time.
    pub fn clock_advance(&self, by: Span) -> Status {
        self.travel(|source| source.advance(by))
    }

    /// Sets a virtual clock. Backwards, no time has passed.
    pub fn clock_set(&self, to: Time) -> Status {
        self.travel(|source| source.set(to))
    }

    fn travel(&self, to: impl FnOnce(&mut Source) -> Result<Time, Status>) -> Status {
        let Some(mut source) = self.clock.source() else {
            return Status::Unsupported;
        };
        let target = match to(&mut source) {
            Ok(target) => target,
            Err(status) => return status,
        };
        loop {
            let Some(beat) = self.rest() else {
                return Status::Timeout;
            };
            let next = [self.timer.next(), beat].into_iter().flatten().min();
            let now = self.clock.now();
            match next.filter(|next| *next <= target) {
                Some(next) => {
                    self.clock.show(next);
                    self.timer.fire_by(next);
                }
                None if now < target => self.clock.show(target),
                None => return Status::Ok,
            }
        }
    }

    /// Lets everything happen that would by now. Answers when the heartbeat does something next; nothing if
    /// an answer took too long.
    fn rest(&self) -> Option<Option<Time>> {
        let longest = self.command_timeout * 2;
        self.flown(longest).then_some(())?;
        self.listens();
        loop {
            let beat = self.beat();
            if self.is_still() {
                return Some(beat);
            }
            self.flown(longest).then_some(())?;
        }
    }

    pub(super) fn is_still(&self) -> bool {
        *self.flights.lock() == 0
    }
}
