//! Permits: what is granted, released, renewed, settled, and ends by itself.
use std::sync::{Arc, Weak};

use super::keys::{Key, Keys};
use super::names::{KeyId, Named};
use super::scene::Scene;
use crate::decision::{Decision, Status};
use crate::limit::decide::Booking;
use crate::limit::time::{Span, Time};
use crate::op::{Request, Sink};
use crate::permit::Numbers;
use crate::queue::Queue;
use crate::timer::Due;

/// A permit that holds a semaphore.
pub(super) struct Held {
    key: KeyId,
    /// Of the key when it was granted: a reset ends all permits by changing it.
    epoch: u64,
    booking: Booking,
    settled: bool,
    lease: Span,
    /// When it ends unless it is renewed; `None`: it is renewed in the background, which in one's own
    /// memory means that it lives as long as the process.
    ends: Option<Time>,
    tell: Option<Tell>,
}

/// A permit that holds nothing that would have to come back.
pub(super) struct Spent {
    key: KeyId,
    /// Of the limits it was granted under.
    named: u64,
    booking: Booking,
    settled: bool,
    /// The caller sleeps until then by itself, and may give the time back before.
    paced: bool,
}

/// How long a permit lives, and who is told if it does not live as long as it is held.
pub(super) struct Terms {
    pub lease: Option<Span>,
    pub renew: bool,
    pub tell: bool,
}

impl Terms {
    pub fn of(request: &Request) -> Terms {
        Terms {
            lease: request.lease,
            renew: request.renew,
            tell: request.tell_lost,
        }
    }
}

/// Who is told of a lost lease.
pub(super) struct Tell {
    pub queue: Weak<Queue>,
    pub op: u64,
    pub user_data: u64,
}

impl Tell {
    /// Who took the grant by a queue can be told there. `op`: 0 where it was granted at once; a part has
    /// that of the whole.
    pub fn of(sink: &Sink, op: u64, user_data: u64) -> Option<Tell> {
        let (queue, op) = match sink {
            Sink::Queue(queue) => (queue, op),
            Sink::Relay(relay) => (relay.queue.as_ref()?, relay.op),
            Sink::Thread(_) | Sink::Callback(_) => return None,
        };
        Some(Tell {
            queue: Arc::downgrade(queue),
            op,
            user_data,
        })
    }
}

impl Spent {
    pub fn is_on(&self, key: KeyId) -> bool {
        self.key == key
    }
}

impl Held {
    pub fn booking(&self) -> &Booking {
        &self.booking
    }
}

impl Terms {
    /// Whether a permit on these terms lives as long as it is held.
    pub fn renewed(&self, named: &Named) -> bool {
        self.renew && named.limits.renews()
    }
}

/// The lowest bit of a permit's serial says where its record is.
enum Serial {
    Held(u64),
    Recent(u64),
}

impl Serial {
    fn of(serial: u64) -> Serial {
        if serial & 1 == 1 {
            Serial::Held(serial >> 1)
        } else {
            Serial::Recent(serial >> 1)
        }
    }
}

impl Scene<'_> {
    /// Makes sure that a permit on these terms will end when it has to.
    pub fn lease_ready(&self, key: &Key, terms: &Terms) -> Result<(), Status> {
        if key.named.limits.holds() && !terms.renewed(&key.named) {
            return self.memory.timer.ready();
        }
        Ok(())
    }

    /// Makes a permit of what was taken. Answers its number, and its fencing number where it holds a
    /// semaphore. `tell` is who would be told of a lost lease.
    pub fn permit(
        &mut self,
        key: &mut Key,
        booking: Booking,
        terms: &Terms,
        tell: Option<Tell>,
    ) -> (u64, u64) {
        if !booking.holds() {
            return (self.spent(key.id, &key.named, booking, false), 0);
        }
        let serial = self.book.next_held;
        self.book.next_held = (serial + 1) % Numbers::PERMITS;
        let number = self.memory.numbers.make(self.book.index, serial << 1 | 1);
        let lease = terms
            .lease
            .or(key.named.limits.lease())
            .unwrap_or(self.memory.options.lease);
        let ends = (!terms.renewed(&key.named)).then(|| self.now + lease);
        let id = key.id;
        let live = key.live(&mut self.book.epoch);
        live.permits += 1;
        if let Some(ends) = ends {
            live.leases.insert((ends, serial));
            self.memory.timer.arm(ends, Due::Lease(number));
        }
        let fence = live.next_fence(self.now);
        let held = Held {
            key: id,
            epoch: live.epoch,
            booking,
            settled: false,
            lease,
            ends,
            tell: tell.filter(|_| terms.tell),
        };
        self.book.held.insert(serial, held);
        self.stats.in_flight.add(1);
        (number, fence)
    }

    /// A permit that nobody has to give back; remembered for a while, because it may be settled.
    pub fn spent(&mut self, id: KeyId, named: &Named, booking: Booking, paced: bool) -> u64 {
        let now = self.now;
        let spent = Spent {
            key: id,
            named: named.number(),
            booking,
            settled: false,
            paced,
        };
        let serial = self
            .book
            .recent
            .push(spent, |spent| spent.paced && spent.booking.at() > now);
        self.memory.numbers.make(self.book.index, serial << 1)
    }

    pub fn release(&mut self, keys: &mut Keys, serial: u64) -> Status {
        let serial = match Serial::of(serial) {
            Serial::Held(serial) => serial,
            Serial::Recent(serial) => return self.release_spent(keys, serial),
        };
        let Some(key) = self.holder(keys, serial) else {
            return Status::Stale;
        };
        self.unhold(key, serial);
        self.stats.released.add(1);
        self.pump(key);
        Status::Ok
    }

    fn release_spent(&mut self, keys: &mut Keys, serial: u64) -> Status {
        let Some(spent) = self.book.recent.take(serial) else {
            return Status::Stale;
        };
        self.stats.released.add(1);
        if spent.paced
            && let Some(key) = keys.find(spent.key, &self.memory.names)
        {
            key.named
                .limits
                .cancel(&mut key.state, self.now, spent.booking);
        }
        Status::Ok
    }

    /// The key a live permit is held on. A permit that is over is forgotten: its lease may have ended a
    /// moment ago, or a reset have ended it.
    fn holder<'k>(&mut self, keys: &'k mut Keys, serial: u64) -> Option<&'k mut Key> {
        let held = self.book.held.get(&serial)?;
        let (epoch, ends) = (held.epoch, held.ends);
        let key = keys
            .find(held.key, &self.memory.names)
            .filter(|key| key.live.as_ref().is_some_and(|live| live.epoch == epoch));
        let Some(key) = key else {
            self.book.held.remove(&serial);
            return None;
        };
        if ends.is_some_and(|ends| ends <= self.now) {
            self.lose(key, serial);
            self.pump(key);
            return None;
        }
        Some(key)
    }

    /// Takes a permit off its key. The caller pumps.
    fn unhold(&mut self, key: &mut Key, serial: u64) -> Held {
        let held = self.book.held.remove(&serial).expect("a live permit");
        let live = key.live.as_mut().expect("it holds a permit");
        assert!(
            live.permits > 0 && live.epoch == held.epoch,
            "it holds this permit"
        );
        live.permits -= 1;
        if let Some(ends) = held.ends {
            live.leases.remove(&(ends, serial));
            let number = self.memory.numbers.make(self.book.index, serial << 1 | 1);
            self.memory.timer.disarm(ends, Due::Lease(number));
        }
        key.named.limits.release(&mut key.state, &held.booking);
        self.stats.in_flight.sub(1);
        held
    }

    /// A lease ended while the permit was held: whoever held it is told. The caller pumps.
    fn lose(&mut self, key: &mut Key, serial: u64) {
        let held = self.unhold(key, serial);
        self.stats.lost.add(1);
        let permit = self.memory.numbers.make(self.book.index, serial << 1 | 1);
        self.memory.callbacks.push_lost(permit);
        self.wakes.callbacks();
        let Some(tell) = held.tell else { return };
        if let Some(queue) = tell.queue.upgrade() {
            let (op, user_data) = (tell.op, tell.user_data);
            queue.push_lost(Decision {
                permit,
                op,
                user_data,
                ..Decision::of(Status::Stale)
            });
            self.wakes.queue(queue);
        }
    }

    /// Ends the leases that are over, whether or not the timer has got to it. The caller pumps.
    pub fn expire(&mut self, key: &mut Key) -> bool {
        let mut any = false;
        while let Some(&(ends, serial)) = key.live.as_ref().and_then(|live| live.leases.first()) {
            if ends > self.now {
                break;
            }
            self.lose(key, serial);
            any = true;
        }
        any
    }

    /// A lease may have ended.
    pub fn lease_due(&mut self, keys: &mut Keys, serial: u64) {
        if let Serial::Held(serial) = Serial::of(serial) {
            self.holder(keys, serial);
        }
    }

    /// Takes back a grant that nobody used: also what it took from rates, as far as settling can. The
    /// caller pumps.
    pub fn give_back(&mut self, key: &mut Key, serial: u64) {
        let mut booking = match Serial::of(serial) {
            Serial::Held(serial) => self.unhold(key, serial).booking,
            Serial::Recent(serial) => match self.book.recent.take(serial) {
                Some(spent) if spent.named == key.named.number() => spent.booking,
                Some(_) | None => return,
            },
        };
        key.named
            .limits
            .settle(&mut key.state, self.now, &mut booking, 0);
    }

    /// [`Scene::give_back`] for a permit that was granted a while ago.
    pub fn return_unused(&mut self, keys: &mut Keys, serial: u64) {
        let key = match Serial::of(serial) {
            Serial::Held(serial) => self.holder(keys, serial),
            Serial::Recent(serial) => {
                let id = self.book.recent.get_mut(serial).map(|spent| spent.key);
                id.and_then(|id| keys.find(id, &self.memory.names))
            }
        };
        if let Some(key) = key {
            self.give_back(key, serial);
            self.pump(key);
        }
    }

    pub fn renew(&mut self, keys: &mut Keys, serial: u64, lease: Option<Span>) -> Status {
        let serial = match Serial::of(serial) {
            Serial::Held(serial) => serial,
            Serial::Recent(serial) => {
                let known = self.book.recent.get_mut(serial).is_some();
                return if known { Status::Ok } else { Status::Stale };
            }
        };
        let Some(key) = self.holder(keys, serial) else {
            return Status::Stale;
        };
        let held = self.book.held.get_mut(&serial).expect("it has a holder");
        let Some(before) = held.ends else {
            return Status::Ok;
        };
        let ends = self.now + lease.unwrap_or(held.lease);
        held.ends = Some(ends);
        let live = key.live.as_mut().expect("it holds a permit");
        live.leases.remove(&(before, serial));
        live.leases.insert((ends, serial));
        let number = self.memory.numbers.make(self.book.index, serial << 1 | 1);
        self.memory.timer.disarm(before, Due::Lease(number));
        self.memory.timer.arm(ends, Due::Lease(number));
        Status::Ok
    }

    pub fn settle(&mut self, keys: &mut Keys, serial: u64, actual: u64) -> Status {
        let settled = match Serial::of(serial) {
            Serial::Held(serial) => self.settle_held(keys, serial, actual),
            Serial::Recent(serial) => self.settle_spent(keys, serial, actual),
        };
        if settled.is_none() {
            return Status::Stale;
        }
        self.stats.settled.add(1);
        Status::Ok
    }

    fn settle_held(&mut self, keys: &mut Keys, serial: u64, actual: u64) -> Option<()> {
        let key = self.holder(keys, serial)?;
        let held = self
            .book
            .held
            .get_mut(&serial)
            .filter(|held| !held.settled)?;
        held.settled = true;
        key.named
            .limits
            .settle(&mut key.state, self.now, &mut held.booking, actual);
        Some(())
    }

    fn settle_spent(&mut self, keys: &mut Keys, serial: u64, actual: u64) -> Option<()> {
        let spent = self
            .book
            .recent
            .get_mut(serial)
            .filter(|spent| !spent.settled)?;
        spent.settled = true;
        if let Some(key) = keys.find(spent.key, &self.memory.names) {
            // A key that was forgotten and came back under other limits has nothing of this booking; one
            // that was changed to other limits says so by its epoch.
            if key.named.number() == spent.named {
                key.named
                    .limits
                    .settle(&mut key.state, self.now, &mut spent.booking, actual);
            }
            return Some(());
        }
        // The key was as new and has been forgotten; it may still have to take what was used beyond
        // the estimate. Where nobody uses these limits any more, nobody would notice.
        if let Some(named) = self.memory.names.find(spent.named) {
            let mut key = Key::fresh(spent.key, named, self.now);
            key.named
                .limits
                .settle(&mut key.state, self.now, &mut spent.booking, actual);
            self.insert(keys, key);
        }
        Some(())
    }
}
