//! Permits of what need not come back: remembered for a while, because they may be settled, or given
//! back before their time.
use super::held::Serial;
use super::keys::{Key, Keys};
use super::names::{KeyId, Named};
use super::scene::Scene;
use crate::decision::Status;
use crate::limit::decide::Booking;
use crate::limit::time::Time;

/// A permit that holds nothing that would have to come back.
pub(super) struct Spent {
    key: KeyId,
    /// Of the limits it was granted under; see [`Named::rules`].
    rules: u64,
    booking: Booking,
    settled: bool,
}

impl Spent {
    pub fn key(&self) -> KeyId {
        self.key
    }

    /// From when on it is admitted.
    pub fn at(&self) -> Time {
        self.booking.at()
    }

    /// Corrects its key to what was used. A key that was forgotten and came back under other limits has
    /// nothing of this booking; one that was changed to other limits says so by its epoch.
    pub fn correct(&mut self, key: &mut Key, now: Time, actual: u64) {
        if key.named.rules() == self.rules {
            let limits = &key.named.limits;
            limits.settle(&mut key.state, now, &mut self.booking, actual);
        }
    }
}

impl Scene<'_> {
    /// A permit that nobody has to give back; remembered for a while, because it may be settled.
    pub fn spent(&mut self, key: KeyId, named: &Named, booking: Booking) -> u64 {
        self.book.paced.trim(self.now);
        let serial = self.book.recent.push(Spent {
            key,
            rules: named.rules(),
            booking,
            settled: false,
        });
        self.number(Serial::Recent(serial))
    }

    /// [`Scene::spent`] for a booking that may lie ahead.
    pub fn paced(&mut self, key: &Key, booking: Booking) -> u64 {
        if booking.at() <= self.now {
            return self.spent(key.id, &key.named, booking);
        }
        let serial = self.next_serial();
        let spent = Spent {
            key: key.id,
            rules: key.named.rules(),
            booking,
            settled: false,
        };
        self.book.paced.insert(serial, spent, self.now);
        self.number(Serial::Paced(serial))
    }

    pub fn release_paced(&mut self, keys: &mut Keys, serial: u64) -> Status {
        let Some(spent) = self.book.paced.take(serial) else {
            return Status::Stale;
        };
        self.stats.released.add(1);
        if let Some(key) = keys.find(spent.key, &self.memory.names) {
            key.named
                .limits
                .cancel(&mut key.state, self.now, spent.booking);
        }
        Status::Ok
    }

    pub fn remembered(&mut self, serial: &Serial) -> Option<&mut Spent> {
        match serial {
            Serial::Recent(serial) => self.book.recent.get_mut(*serial),
            Serial::Paced(serial) => self.book.paced.get_mut(*serial),
            Serial::Held(_) => None,
        }
    }

    pub fn settle_spent(&mut self, keys: &mut Keys, serial: Serial, actual: u64) -> Option<()> {
        let (memory, now) = (self.memory, self.now);
        let spent = self.remembered(&serial).filter(|spent| !spent.settled)?;
        spent.settled = true;
        if let Some(key) = keys.find(spent.key, &memory.names) {
            spent.correct(key, now, actual);
            return Some(());
        }
        // The key was as new and has been forgotten; it may still have to take what was used beyond
        // the estimate. Where nobody uses these limits any more, nobody would notice.
        if let Some(named) = memory.names.find(spent.rules) {
            let mut key = Key::fresh(spent.key, named, now);
            spent.correct(&mut key, now, actual);
            self.insert(keys, key);
        }
        Some(())
    }
}
