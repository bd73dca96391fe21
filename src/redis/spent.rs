//! Permits: what was taken can be settled once, and a paced slot that is to come can be given back.
use std::sync::Arc;

use super::lines::{Item, Slot, Then};
use super::link::Failure;
use super::policy;
use super::question::Op;
use super::wire::{Answer, Outcome};
use super::{Key, Redis, Scene};
use crate::decision::Status;
use crate::limit::time::Span;

/// A permit that holds nothing that would have to come back.
pub(super) struct Spent {
    pub key: Arc<Key>,
    booking: Box<str>,
    settled: bool,
    /// The caller sleeps until then by itself, and may give the time back before.
    paced: bool,
}

impl Scene<'_> {
    /// The number of a permit for what was taken.
    pub fn permit(&mut self, key: &Arc<Key>, booking: Box<str>, paced: bool) -> u64 {
        let spent = Spent {
            key: key.clone(),
            booking,
            settled: false,
            paced,
        };
        let serial = self.shard.recent.push(spent, |_| false);
        self.stats.granted.add(1);
        self.redis.numbers.make(self.index, serial)
    }

    /// Gives back what an answer took and nobody will use.
    pub fn give_back(&mut self, key: &Arc<Key>, answer: Answer) {
        if answer.outcome != Outcome::Done || answer.booking.is_empty() {
            return;
        }
        let op = match answer.retry_after {
            Span::ZERO => Op::Settle(answer.booking, 0),
            _ => Op::Unbook(answer.booking),
        };
        self.enqueue(key, Item::new(vec![op], Then::Nobody));
    }

    /// Gives back what an unused permit took, as far as settling can.
    pub fn return_permit(&mut self, serial: u64) {
        if let Some(spent) = self
            .shard
            .recent
            .take(serial)
            .filter(|spent| !spent.settled)
        {
            let op = Op::Settle(spent.booking, 0);
            self.enqueue(&spent.key, Item::new(vec![op], Then::Nobody));
        }
    }

    fn release(&mut self, serial: u64) -> Status {
        let Some(spent) = self.shard.recent.take(serial) else {
            return Status::Stale;
        };
        self.stats.released.add(1);
        if spent.paced {
            let op = Op::Unbook(spent.booking);
            self.enqueue(&spent.key, Item::new(vec![op], Then::Nobody));
        }
        Status::Ok
    }

    /// Asks Redis to correct a permit's charge.
    fn begin_settle(&mut self, serial: u64, actual: u64) -> Option<Arc<Slot>> {
        let spent = self.shard.recent.get_mut(serial).filter(|s| !s.settled)?;
        spent.settled = true;
        let (key, booking) = (spent.key.clone(), spent.booking.clone());
        let slot = Arc::<Slot>::default();
        let op = Op::Settle(booking, actual);
        self.enqueue(&key, Item::new(vec![op], Then::Tell(slot.clone())));
        Some(slot)
    }

    fn end_settle(&mut self, serial: u64, heard: Result<Answer, Failure>) -> Status {
        let spent = self.shard.recent.get_mut(serial);
        match heard {
            Ok(answer) if answer.outcome == Outcome::Done => {
                if let Some(spent) = spent {
                    spent.booking = answer.booking;
                }
                self.stats.settled.add(1);
                Status::Ok
            }
            Ok(_) => Status::Stale,
            Err(failure) => {
                self.stats.backend_errors.add(1);
                if let Some(spent) = spent.filter(|_| failure.not_executed()) {
                    spent.settled = false;
                }
                policy::status(&failure)
            }
        }
    }
}

impl Redis {
    /// Gives a permit back.
    pub fn release(&self, permit: u64) -> Status {
        if let Some(local) = self.local_of(permit) {
            return local.release(permit);
        }
        self.on_permit(permit, |scene, serial| scene.release(serial))
    }

    /// A permit of rates alone lives as long as it is remembered.
    pub fn renew(&self, permit: u64, lease: Option<Span>) -> Status {
        if let Some(local) = self.local_of(permit) {
            return local.renew(permit, lease);
        }
        self.on_permit(permit, |scene, serial| {
            match scene.shard.recent.get_mut(serial) {
                Some(_) => Status::Ok,
                None => Status::Stale,
            }
        })
    }

    /// Corrects what a permit's call was charged to what it used. Once.
    pub fn settle(&self, permit: u64, actual: u64) -> Status {
        if let Some(local) = self.local_of(permit) {
            return local.settle(permit, actual);
        }
        let (shard, serial) = match self.numbers.read(permit) {
            Ok(number) => number,
            Err(status) => return status,
        };
        let begun = self.at(shard, |scene| {
            scene.open().map(|()| scene.begin_settle(serial, actual))
        });
        let slot = match begun {
            Err(closed) => return closed,
            Ok(None) => return Status::Stale,
            Ok(Some(slot)) => slot,
        };
        let heard = self.one(&slot);
        self.at(shard, |scene| scene.end_settle(serial, heard))
    }

    fn on_permit(&self, permit: u64, act: impl FnOnce(&mut Scene<'_>, u64) -> Status) -> Status {
        match self.numbers.read(permit) {
            Err(status) => status,
            Ok((shard, serial)) => self.at(shard, |scene| match scene.open() {
                Err(closed) => closed,
                Ok(()) => act(scene, serial),
            }),
        }
    }
}
