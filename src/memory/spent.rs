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

/// What it took.
enum Took {
    Any(Booking),
    /// What it takes is known in the line of its key, for a time that lies ahead.
    Told {
        order: u64,
        at: Time,
    },
}

/// What a permit is that took something of one limit, a token bucket, which it left at `end`. Small, because it
/// is written at every call of the busiest path.
pub(super) struct OfBucket {
    key: KeyId,
    rules: u64,
    weight: u64,
    end: Tick,
    settled: bool,
}

const _: () = assert!(size_of::<Option<OfBucket>>() <= 64);

/// What is asked of a record of either.
pub(super) struct Known {
    pub key: KeyId,
    pub rules: u64,
    pub settled: bool,
}

impl Spent {
    pub fn new(key: KeyId, named: &Named, booking: Booking) -> Spent {
        Spent {
            key,
            rules: named.rules(),
            took: Took::Any(booking),
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
        self.took = Took::Any(booking);
    }

    pub fn key(&self) -> KeyId {
        self.key
    }

    /// From when on it is admitted.
    pub fn at(&self) -> Time {
        match &self.took {
            Took::Any(booking) => booking.at(),
            Took::Told { at, .. } => *at,
        }
    }

    fn known(&self) -> Known {
        Known {
            key: self.key,
            rules: self.rules,
            settled: self.settled,
        }
    }

    /// Corrects its key to what was used. A key that was forgotten and came back under other limits has
    /// nothing of this booking; one that was changed to other limits says so by its epoch.
    pub fn correct(&mut self, key: &mut Key, now: Time, actual: u64) {
        if key.named.rules() != self.rules {
            return;
        }
        match &mut self.took {
            Took::Told { order, .. } => key.settle_told(now, *order, actual),
            Took::Any(booking) => {
                // Those from before a reset are remembered no more.
                booking.follow(&key.state);
                key.settle(now, booking, actual);
            }
        }
    }
}

impl OfBucket {
    pub fn new(key: KeyId, named: &Named, weight: u64, end: Tick) -> OfBucket {
        OfBucket {
            key,
            rules: named.rules(),
            weight,
            end,
            settled: false,
        }
    }

    fn known(&self) -> Known {
        Known {
            key: self.key,
            rules: self.rules,
            settled: self.settled,
        }
    }

    /// [`Spent::correct`].
    fn correct(&self, key: &mut Key, now: Time, actual: u64) {
        if key.named.rules() != self.rules {
            return;
        }
        let Rule::TokenBucket(bucket) = &key.named.limits.limits()[0].rule else {
            unreachable!("the same limits as then")
        };
        let charge = Charge::TokenBucket(bucket.charged(self.weight, self.end));
        let mut booking = Booking::of(charge);
        booking.follow(&key.state);
        key.settle(now, &mut booking, actual);
    }
}

impl Book {
    /// Remembers a permit for a while, because it may be settled. Answers the serial of its number.
    fn remember(&mut self, spent: Spent, now: Time) -> u64 {
        self.paced.trim(now);
        Serial::Spent(self.recent.push(spent)).bits()
    }

    /// [`Book::remember`].
    #[inline(always)]
    pub fn remember_bucket(&mut self, spent: OfBucket, now: Time) -> u64 {
        self.paced.trim(now);
        Serial::Bucket(self.buckets.push(spent)).bits()
    }

    /// What is remembered of a permit.
    pub fn spent(&mut self, serial: &Serial) -> Option<Known> {
        match serial {
            Serial::Bucket(serial) => self.buckets.get_mut(*serial).map(|spent| spent.known()),
            Serial::Spent(serial) => self.recent.get_mut(*serial).map(|spent| spent.known()),
            Serial::Paced(serial) => self.paced.get_mut(*serial).map(|spent| spent.known()),
            Serial::Held(_) => None,
        }
    }

    /// Forgets a permit. True: it was remembered.
    pub fn forget_spent(&mut self, serial: &Serial) -> bool {
        match serial {
            Serial::Bucket(serial) => self.buckets.take(*serial).is_some(),
            Serial::Spent(serial) => self.recent.take(*serial).is_some(),
            Serial::Paced(serial) => self.paced.take(*serial).is_some(),
            Serial::Held(_) => false,
        }
    }

    fn settled(&mut self, serial: &Serial) -> Option<&mut bool> {
        match serial {
            Serial::Bucket(serial) => Some(&mut self.buckets.get_mut(*serial)?.settled),
            Serial::Spent(serial) => Some(&mut self.recent.get_mut(*serial)?.settled),
            Serial::Paced(serial) => Some(&mut self.paced.get_mut(*serial)?.settled),
            Serial::Held(_) => None,
        }
    }

    /// Corrects a key to what a permit's call used.
    fn correct(&mut self, serial: &Serial, key: &mut Key, now: Time, actual: u64) {
        let spent = match serial {
            Serial::Bucket(serial) => {
                let spent = self.buckets.get_mut(*serial);
                return spent.map_or((), |spent| spent.correct(key, now, actual));
            }
            Serial::Spent(serial) => self.recent.get_mut(*serial),
            Serial::Paced(serial) => self.paced.get_mut(*serial),
            Serial::Held(_) => None,
        };
        if let Some(spent) = spent {
            spent.correct(key, now, actual);
        }
    }

    /// Takes back what a permit took that nobody has used, as far as settling can.
    pub fn return_spent(&mut self, serial: &Serial, key: &mut Key, now: Time) {
        if self.spent(serial).is_some_and(|spent| !spent.settled) {
            self.correct(serial, key, now, 0);
        }
        self.forget_spent(serial);
    }

    /// Forgets those of a key, or all.
    pub fn forget_all_spent(&mut self, key: Option<KeyId>) {
        let theirs = |of: KeyId| key.is_none_or(|key| key == of);
        self.buckets.forget(|spent| theirs(spent.key));
        self.recent.forget(|spent| theirs(spent.key));
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
                Took::Any(booking) => key.unpace(self.now, booking),
                Took::Told { order, .. } => key.untell(self.now, order),
            }
            self.serve(key);
        }
        Status::Ok
    }

    pub fn settle_spent(&mut self, keys: &mut Keys, serial: Serial, actual: u64) -> Option<()> {
        let (memory, now) = (self.memory, self.now);
        let spent = self.book.spent(&serial).filter(|spent| !spent.settled)?;
        let (id, rules) = (spent.key, spent.rules);
        let mut key = keys.find(id, &memory.names);
        if let Some(key) = &mut key {
            self.serve_before_settling(key);
        }
        // Those who were served just now may have been too many to remember this one.
        *self.book.settled(&serial)? = true;
        if let Some(key) = &mut key
            && !key.is_forgettable(now)
        {
            self.book.correct(&serial, key, now, actual);
            self.serve(key);
            return Some(());
        }
        // The key is as new, and may have been forgotten; it may still have to take what was used beyond
        // the estimate. Where nobody uses these limits any more, nobody would notice.
        let newest = memory.names.find(rules).map(|named| named.current());
        let Some(named) = newest.filter(|newest| newest.rules() == rules) else {
            return Some(());
        };
        let mut anew = Key::fresh(id, named, now);
        self.book.correct(&serial, &mut anew, now, actual);
        match key {
            _ if anew.is_forgettable(now) => {}
            Some(key) => (key.named, key.state) = (anew.named, anew.state),
            None => self.insert(keys, anew),
        }
        Some(())
    }
}
