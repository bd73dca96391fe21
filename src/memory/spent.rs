//! Permits of what need not come back: remembered for a while, because they may be settled, or given
//! back before their time.
use super::held::Serial;
use super::keys::{Key, Keys};
use super::names::{KeyId, Named};
use super::scene::{Book, Scene};
use crate::decision::Status;
use crate::limit::decide::Booking;
use crate::limit::rate::Tick;
use crate::limit::rule::{Charge, Rule};
use crate::limit::time::Time;

/// A permit that holds nothing that would have to come back.
pub(super) struct Spent {
    key: KeyId,
    /// Of the limits it was granted under; see [`Named::rules`].
    rules: u64,
    took: Took,
    settled: bool,
}

/// What it took: small where nothing was special, because it is written at every call.
enum Took {
    /// Of the one limit, a token bucket, which it left at `end`.
    Bucket {
        weight: u64,
        end: Tick,
    },
    Any(Box<Booking>),
    /// What it takes is known in the line of its key, for a time that lies ahead.
    Told {
        order: u64,
        at: Time,
    },
}

const _: () = assert!(size_of::<Option<Spent>>() <= 64);

impl Spent {
    pub fn new(key: KeyId, named: &Named, booking: Booking) -> Spent {
        Spent {
            key,
            rules: named.rules(),
            took: Took::Any(Box::new(booking)),
            settled: false,
        }
    }

    pub fn of_bucket(key: KeyId, named: &Named, weight: u64, end: Tick) -> Spent {
        Spent {
            key,
            rules: named.rules(),
            took: Took::Bucket { weight, end },
            settled: false,
        }
    }

    pub fn told(key: KeyId, named: &Named, at: Time, order: u64) -> Spent {
        Spent {
            key,
            rules: named.rules(),
            took: Took::Told { order, at },
            settled: false,
        }
    }

    /// What it took is known now.
    pub fn rebook(&mut self, booking: Booking) {
        self.took = Took::Any(Box::new(booking));
    }

    pub fn key(&self) -> KeyId {
        self.key
    }

    /// From when on it is admitted; that is over where nobody asks.
    pub fn at(&self) -> Time {
        match &self.took {
            Took::Bucket { .. } => Time(0),
            Took::Any(booking) => booking.at(),
            Took::Told { at, .. } => *at,
        }
    }

    /// Corrects its key to what was used. A key that was forgotten and came back under other limits has
    /// nothing of this booking; one that was changed to other limits says so by its epoch.
    pub fn correct(&mut self, key: &mut Key, now: Time, actual: u64) {
        if key.named.rules() != self.rules {
            return;
        }
        if let Took::Told { order, .. } = self.took {
            return key.settle_told(now, order, actual);
        }
        if let Took::Bucket { weight, end } = self.took {
            let Rule::TokenBucket(bucket) = &key.named.limits.limits()[0].rule else {
                unreachable!("the same limits as then")
            };
            let charge = Charge::TokenBucket(bucket.charged(weight, end));
            self.took = Took::Any(Box::new(Booking::of(charge)));
        }
        if let Took::Any(booking) = &mut self.took {
            // Those from before a reset are remembered no more.
            booking.follow(&key.state);
            key.settle(now, booking, actual);
        }
    }
}

impl Book {
    /// Remembers a permit for a while, because it may be settled. Answers the serial of its number.
    #[inline(always)]
    pub fn remember(&mut self, spent: Spent, now: Time) -> u64 {
        self.paced.trim(now);
        Serial::Recent(self.recent.push(spent)).bits()
    }
}

impl Scene<'_> {
    /// A permit that nobody has to give back.
    pub fn spent(&mut self, key: &Key, booking: Booking) -> u64 {
        let spent = Spent::new(key.id, &key.named, booking);
        let serial = self.book.remember(spent, self.now);
        self.memory.numbers.make(self.book.index, serial)
    }

    /// [`Scene::spent`] for a booking that may lie ahead.
    pub fn paced(&mut self, key: &Key, booking: Booking) -> u64 {
        if booking.at() <= self.now {
            return self.spent(key, booking);
        }
        let serial = self.next_serial();
        let spent = Spent::new(key.id, &key.named, booking);
        self.book.paced.insert(serial, spent, self.now);
        self.paced_number(serial)
    }

    pub fn paced_number(&self, serial: u64) -> u64 {
        self.number(Serial::Paced(serial))
    }

    pub fn release_paced(&mut self, keys: &mut Keys, serial: u64) -> Status {
        let Some(id) = self.book.paced.get_mut(serial).map(|spent| spent.key) else {
            return Status::Stale;
        };
        let mut key = keys.find(id, &self.memory.names);
        if let Some(key) = &mut key {
            self.serve(key);
        }
        let Some(spent) = self.book.paced.take(serial) else {
            return Status::Stale;
        };
        self.stats.released.add(1);
        if let Some(key) = key {
            match spent.took {
                Took::Any(booking) => key.unpace(self.now, *booking),
                Took::Told { order, .. } => key.untell(self.now, order),
                Took::Bucket { .. } => {}
            }
            self.serve(key);
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
        let (id, rules) = (spent.key, spent.rules);
        let mut key = keys.find(id, &memory.names);
        if let Some(key) = &mut key {
            match key.named.is_newest() {
                true => self.serve(key),
                // What was taken under other limits is settled no more, whoever is the first to call.
                false => self.pump(key),
            }
        }
        if let Some(key) = &mut key {
            key.forget_epochs(now);
        }
        // Those who were served just now may have been too many to remember this one.
        let spent = self.remembered(&serial)?;
        spent.settled = true;
        if let Some(key) = key {
            spent.correct(key, now, actual);
            self.serve(key);
            return Some(());
        }
        // The key was as new and has been forgotten; it may still have to take what was used beyond
        // the estimate. Where nobody uses these limits any more, nobody would notice.
        let newest = memory.names.find(rules).map(|named| named.current());
        if let Some(named) = newest.filter(|newest| newest.rules() == rules) {
            let mut key = Key::fresh(id, named, now);
            spent.correct(&mut key, now, actual);
            if !key.is_forgettable(now) {
                self.insert(keys, key);
            }
        }
        Some(())
    }
}
