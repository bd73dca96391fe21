//! Permits: what was taken can be settled once, and a paced slot that is to come can be given back. And
//! the verbs for these and for those that hold a semaphore.
use std::sync::Arc;

use super::lines::{Slot, Then};
use super::link::Failure;
use super::policy;
use super::question::Op;
use super::wire::{Answer, Outcome, Taken};
use super::{Key, Redis, Scene};
use crate::decision::Status;
use crate::limit::time::{Span, Time};

/// A permit that holds nothing that would have to come back.
pub(super) struct Spent {
    pub key: Arc<Key>,
    booking: Taken,
    settled: bool,
    /// The caller sleeps until then by itself, and may give the time back before.
    paced: bool,
}

impl Scene<'_> {
    /// The number of a permit for what was taken.
    pub fn permit(&mut self, key: &Arc<Key>, booking: Taken, paced: bool) -> u64 {
        let spent = Spent {
            key: key.clone(),
            booking,
            settled: false,
            paced,
        };
        let serial = self.shard.recent.push(spent);
        self.stats.granted.add(1);
        self.redis.numbers.make(self.index, serial << 1)
    }

    /// Gives back what an answer took and nobody will use.
    pub fn give_back(&mut self, key: &Arc<Key>, answer: Answer) {
        if answer.outcome != Outcome::Done || answer.booking.is_empty() {
            return;
        }
        let op = match answer.retry_after {
            Span::ZERO => Op::Settle(answer.booking, 0),
            // It has not started, even if its time is over.
            _ => Op::Return(answer.booking),
        };
        self.enqueue(key, vec![op], Then::Nobody);
        self.sooner(key);
    }

    /// What a permit has taken is known now.
    pub fn has_booked(&mut self, permit: u64, booking: Taken) {
        if let Ok((_, serial)) = self.redis.numbers.read(permit)
            && let Some(spent) = self.shard.recent.get_mut(serial >> 1)
        {
            spent.booking = booking;
        }
    }

    /// Gives back what an unused permit took, as far as settling can.
    pub fn return_permit(&mut self, serial: u64) {
        let serial = match Serial::of(serial) {
            Serial::Held(permit) => return self.return_held(permit),
            Serial::Spent(serial) => serial,
        };
        if let Some(spent) = self
            .shard
            .recent
            .take(serial)
            .filter(|spent| !spent.settled)
        {
            let op = Op::Settle(spent.booking, 0);
            self.enqueue(&spent.key, vec![op], Then::Nobody);
            self.sooner(&spent.key);
        }
    }

    fn release(&mut self, serial: u64) -> Status {
        let serial = match Serial::of(serial) {
            Serial::Held(permit) => return self.release_held(permit),
            Serial::Spent(serial) => serial,
        };
        let Some(spent) = self.shard.recent.take(serial) else {
            return Status::Stale;
        };
        self.stats.released.add(1);
        if spent.paced {
            let op = Op::Unbook(spent.booking);
            self.enqueue(&spent.key, vec![op], Then::Nobody);
            self.sooner(&spent.key);
        }
        Status::Ok
    }

    /// Asks Redis to correct a permit's charge.
    fn begin_settle(&mut self, serial: u64, actual: u64) -> Result<Arc<Slot>, Status> {
        let (key, booking, settled) = self.charge(serial).ok_or(Status::Stale)?;
        if std::mem::replace(settled, true) {
            return Err(Status::Stale);
        }
        let (key, op) = (key.clone(), Op::Settle(booking.clone(), actual));
        if !key.named.has_rates() {
            self.stats.settled.add(1);
            return Err(Status::Ok);
        }
        let slot = Arc::<Slot>::default();
        self.enqueue(&key, vec![op], Then::Tell(slot.clone()));
        self.sooner(&key);
        Ok(slot)
    }

    /// What a permit took, and whether that was settled.
    fn charge(&mut self, serial: u64) -> Option<(&Arc<Key>, &mut Taken, &mut bool)> {
        match Serial::of(serial) {
            Serial::Held(permit) => {
                self.lease_due(permit);
                let held = self.held(permit)?;
                Some((&held.key, &mut held.booking, &mut held.settled))
            }
            Serial::Spent(serial) => {
                let spent = self.shard.recent.get_mut(serial)?;
                Some((&spent.key, &mut spent.booking, &mut spent.settled))
            }
        }
    }

    fn end_settle(&mut self, serial: u64, heard: Result<Answer, Failure>) -> Status {
        let charge = self.charge(serial);
        match heard {
            Ok(answer) if answer.outcome == Outcome::Done => {
                if let Some((_, booking, _)) = charge {
                    *booking = answer.booking;
                }
                self.stats.settled.add(1);
                Status::Ok
            }
            Ok(_) => Status::Stale,
            Err(failure) => {
                if let Some((_, _, settled)) = charge.filter(|_| failure.not_executed()) {
                    *settled = false;
                }
                self.stats.backend_errors.add(1);
                policy::status(&failure)
            }
        }
    }
}

/// The lowest bit of a permit's serial says where its record is.
enum Serial {
    Held(u64),
    Spent(u64),
}

impl Serial {
    fn of(serial: u64) -> Serial {
        match serial & 1 {
            1 => Serial::Held(serial >> 1),
            _ => Serial::Spent(serial >> 1),
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

    /// Makes a permit live for `lease` from now; `None`: as long as it was granted for. One of rates alone
    /// lives as long as it is remembered.
    pub fn renew(&self, permit: u64, lease: Option<Span>) -> Status {
        if let Some(local) = self.local_of(permit) {
            return local.renew(permit, lease);
        }
        let (shard, serial) = match self.numbers.read(permit) {
            Ok(number) => number,
            Err(status) => return status,
        };
        let begun = self.at(shard, |scene| {
            scene.open()?;
            match Serial::of(serial) {
                Serial::Held(permit) => scene.begin_renew(permit, lease).ok_or(Status::Stale),
                Serial::Spent(serial) => Err(match scene.shard.recent.get_mut(serial) {
                    Some(_) => Status::Ok,
                    None => Status::Stale,
                }),
            }
        });
        let slot = match begun {
            Err(status) => return status,
            Ok(slot) => slot,
        };
        match self.one(&slot) {
            Ok(answer) if matches!(answer.outcome, Outcome::Done | Outcome::Queued) => Status::Ok,
            Ok(_) => Status::Stale,
            Err(failure) => {
                self.stats.stripe(shard).backend_errors.add(1);
                // Doing it once more does no harm.
                match policy::status(&failure) {
                    Status::UnknownOutcome => Status::Backend,
                    status => status,
                }
            }
        }
    }

    /// Until when a permit that holds a semaphore is believed to, if it is not renewed.
    pub fn held_until(&self, permit: u64) -> Option<Time> {
        let (shard, serial) = self.numbers.read(permit).ok()?;
        match Serial::of(serial) {
            Serial::Held(permit) => self.at(shard, |scene| scene.held_until(permit)),
            Serial::Spent(_) => None,
        }
    }

    /// The lease of a permit may have ended.
    pub(super) fn lease_due(&self, permit: u64) {
        let (shard, serial) = self.numbers.read(permit).expect("a permit of this backend");
        if let Serial::Held(permit) = Serial::of(serial) {
            self.at(shard, |scene| scene.lease_due(permit));
        }
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
            scene.open()?;
            scene.begin_settle(serial, actual)
        });
        let slot = match begun {
            Err(status) => return status,
            Ok(slot) => slot,
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
