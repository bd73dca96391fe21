//! Permits of bookings ahead, which their callers sleep to by themselves and may give back before: each
//! is remembered until its time, however many others come meanwhile. If there are too many, those that are
//! due last are not: they come on time, but can be neither given back nor settled.
use super::names::KeyId;
use super::spent::Spent;
use crate::limit::booking::Booking;
use crate::limit::time::Time;
use crate::pages::Pages;

/// Those of one shard, by serial.
#[derive(Default)]
pub(super) struct Paced {
    records: Pages<u64, Spent>,
    /// When their times come.
    due: Pages<(Time, u64)>,
    of_key: Pages<(KeyId, u64)>,
    /// The latest serial.
    newest: u64,
    /// Of these keys those before a serial are forgotten, and still to be dropped.
    ended: Vec<(KeyId, u64)>,
}

impl Paced {
    /// Kept without asking: they may be settled.
    const KEPT: usize = 1024;
    /// Kept at most, while their times are to come.
    const MOST: usize = 65_536;

    pub fn insert(&mut self, serial: u64, spent: Spent, now: Time) {
        // Two out for one in: so what a rush has left goes away again.
        self.trim(now);
        self.trim(now);
        self.newest = serial;
        self.due.insert((spent.at(), serial), ());
        self.of_key.insert((spent.key(), serial), ());
        self.records.insert(serial, spent);
        if self.records.len() > Paced::MOST
            && let Some((&(_, last), ())) = self.due.last()
        {
            self.drop_one(last);
        }
    }

    /// Forgets one whose time has come, if there are many, and many were granted after it.
    pub fn trim(&mut self, now: Time) {
        let newest = self.newest;
        let over = |&(at, serial): &(Time, u64)| {
            at <= now && newest.saturating_sub(serial) >= Paced::KEPT as u64
        };
        let first = self.due.first().map(|(one, ())| *one).filter(over);
        if let Some((_, serial)) = first.filter(|_| self.records.len() > Paced::KEPT) {
            self.drop_one(serial);
        }
    }

    pub fn get_mut(&mut self, serial: u64) -> Option<&mut Spent> {
        let spent = self.records.get_mut(&serial)?;
        let mut ended = self.ended.iter();
        let over = ended.any(|(key, before)| serial < *before && *key == spent.key());
        (!over).then_some(spent)
    }

    /// What one of them took is known now.
    pub fn rebook(&mut self, serial: u64, booking: Booking) {
        if let Some(spent) = self.records.get_mut(&serial) {
            self.due.remove(&(spent.at(), serial));
            spent.rebook(booking);
            self.due.insert((spent.at(), serial), ());
        }
    }

    pub fn take(&mut self, serial: u64) -> Option<Spent> {
        self.get_mut(serial)?;
        self.drop_one(serial)
    }

    fn drop_one(&mut self, serial: u64) -> Option<Spent> {
        let spent = self.records.remove(&serial)?;
        self.due.remove(&(spent.at(), serial));
        self.of_key.remove(&(spent.key(), serial));
        Some(spent)
    }

    /// Forgets those of a key that have serials before this one. They are dropped by and by.
    pub fn forget(&mut self, key: KeyId, before: u64) {
        self.ended.retain(|(of, _)| *of != key);
        self.ended.push((key, before));
    }

    /// Drops so many of the forgotten.
    pub fn drop_ended(&mut self, most: usize) {
        for _ in 0..most {
            let Some(&(key, before)) = self.ended.first() else {
                return;
            };
            let first = self.of_key.from((key, 0)).next().map(|(one, ())| *one);
            match first.filter(|one| *one < (key, before)) {
                Some((_, serial)) => drop(self.drop_one(serial)),
                None => drop(self.ended.remove(0)),
            }
        }
    }

    pub fn clear(&mut self) {
        *self = Paced::default();
    }

    pub fn len(&self) -> usize {
        self.records.len()
    }
}
