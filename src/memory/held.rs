//! Permits: what is granted, released, renewed, settled, and ends by itself.

use super::keys::{Key, Keys};
use super::leave::{Rest, SOME};
use super::names::{KeyId, Named};
use super::scene::{Book, Scene};
use crate::decision::Status;
use crate::limit::decide::Booking;
use crate::limit::time::{Span, Time};
use crate::op::{Request, Tell};
use crate::permit::Numbers;
use crate::timer::Due;

/// A permit that holds a semaphore.
pub(super) struct Held {
    key: KeyId,
    /// Of the key when it was granted: a reset ends all permits by changing it.
    epoch: u64,
    /// Of several charges the first; [`Book::more`] has the others.
    booking: Booking,
    settled: bool,
    lease: Span,
    /// When it ends unless it is renewed; [`NEVER`]: it is renewed in the background, which in one's own
    /// memory means that it lives as long as the process.
    ends: Time,
    tell: Option<Tell>,
}

/// No time at which anything happens.
const NEVER: Time = Time::MAX;

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

impl Book {
    fn hold(&mut self, serial: u64, mut held: Held) {
        let (booking, more) = held.booking.split();
        held.booking = booking;
        self.held.insert(serial, held);
        if let Some(more) = more {
            self.more.insert(serial, more);
        }
    }

    fn unhold(&mut self, serial: u64) -> Option<Held> {
        let mut held = self.held.remove(&serial)?;
        if !self.more.is_empty()
            && let Some(more) = self.more.remove(&serial)
        {
            held.booking = held.booking.join(more);
        }
        Some(held)
    }

    /// What a permit took.
    pub fn booking(&self, serial: u64) -> Option<Booking> {
        let booking = self.held.get(&serial)?.booking.clone();
        Some(match self.more.get(&serial) {
            Some(more) => booking.join(more.clone()),
            None => booking,
        })
    }
}

impl Terms {
    /// Whether a permit on these terms lives as long as it is held.
    pub fn renewed(&self, named: &Named) -> bool {
        self.renew && named.limits.renews()
    }
}

/// The lowest bits of the serial in a permit's number say where its record is.
pub(super) enum Serial {
    Bucket(u64),
    Held(u64),
    Spent(u64),
    Paced(u64),
}

impl Serial {
    pub fn of(bits: u64) -> Serial {
        let serial = bits >> 2;
        match bits & 3 {
            0 => Serial::Bucket(serial),
            1 => Serial::Held(serial),
            2 => Serial::Spent(serial),
            _ => Serial::Paced(serial),
        }
    }

    pub fn bits(self) -> u64 {
        match self {
            Serial::Bucket(serial) => serial << 2,
            Serial::Held(serial) => serial << 2 | 1,
            Serial::Spent(serial) => serial << 2 | 2,
            Serial::Paced(serial) => serial << 2 | 3,
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

    pub fn number(&self, serial: Serial) -> u64 {
        self.memory.numbers.make(self.book.index, serial.bits())
    }

    /// A serial that no held or paced permit has.
    pub fn next_serial(&mut self) -> u64 {
        loop {
            let serial = self.book.next_serial;
            self.book.next_serial = (serial + 1) % Numbers::PERMITS;
            // They begin again after years, and one may be held for so long.
            if !self.book.held.contains(&serial) {
                return serial;
            }
        }
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
            return (self.spent(key, booking), 0);
        }
        let serial = self.next_serial();
        let number = self.number(Serial::Held(serial));
        let lease = terms
            .lease
            .or(key.named.limits.lease())
            .unwrap_or(self.memory.options.lease);
        let ends = match terms.renewed(&key.named) {
            true => NEVER,
            false => self.now + lease,
        };
        let id = key.id;
        let live = key.live(&mut self.book.epoch);
        live.permits.insert((ends, serial));
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
        self.book.hold(serial, held);
        self.arm_lease(ends, serial);
        self.stats.in_flight.add(1);
        (number, fence)
    }

    fn arm_lease(&self, ends: Time, serial: u64) {
        if ends != NEVER {
            let number = self.number(Serial::Held(serial));
            self.memory.timer.arm(ends, Due::Lease(number));
        }
    }

    fn disarm_lease(&self, ends: Time, serial: u64) {
        if ends != NEVER {
            let number = self.number(Serial::Held(serial));
            self.memory.timer.disarm(ends, Due::Lease(number));
        }
    }

    pub fn release(&mut self, keys: &mut Keys, serial: u64) -> Status {
        let serial = match Serial::of(serial) {
            Serial::Held(serial) => serial,
            Serial::Paced(serial) => return self.release_paced(keys, serial),
            other => {
                if !self.book.forget_spent(&other) {
                    return Status::Stale;
                }
                self.stats.released.add(1);
                return Status::Ok;
            }
        };
        let Some(key) = self.holder(keys, serial) else {
            return Status::Stale;
        };
        self.unhold(key, serial);
        self.stats.released.add(1);
        self.pump(key);
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
            self.book.unhold(serial);
            return None;
        };
        if ends <= self.now {
            self.lose(key, serial);
            self.pump(key);
            return None;
        }
        Some(key)
    }

    /// A permit that nobody took is given back: whoever might have had it is told nothing of a lost lease.
    fn silence(&mut self, serial: u64) {
        if let Some(held) = self.book.held.get_mut(&serial) {
            held.tell = None;
        }
    }

    /// Takes a permit off its key. The caller pumps.
    fn unhold(&mut self, key: &mut Key, serial: u64) -> Held {
        let held = self.book.unhold(serial).expect("a live permit");
        let live = key.live.as_mut().expect("it holds a permit");
        let known = live.permits.remove(&(held.ends, serial));
        assert!(known && live.epoch == held.epoch, "it holds this permit");
        self.disarm_lease(held.ends, serial);
        key.release(&held.booking);
        self.stats.in_flight.sub(1);
        held
    }

    /// Drops some of the records of permits that a reset ended: not all at once, there may be a million.
    pub fn drop_ended(&mut self, most: usize) {
        for _ in 0..most {
            let Some(ended) = self.book.ended.last_mut() else {
                return;
            };
            match ended.pop_first() {
                Some((ends, serial)) => {
                    self.book.unhold(serial);
                    self.disarm_lease(ends, serial);
                }
                None => drop(self.book.ended.pop()),
            }
        }
    }

    /// A lease ended while the permit was held: whoever held it is told. The caller pumps.
    fn lose(&mut self, key: &mut Key, serial: u64) {
        let held = self.unhold(key, serial);
        self.stats.lost.add(1);
        let permit = self.number(Serial::Held(serial));
        let callbacks = &self.memory.callbacks;
        let untold = self.wakes.lost(permit, held.tell.as_ref(), callbacks);
        self.stats.overloaded.add(untold);
    }

    /// Ends the leases that are over, whether or not the timer has got to it. If there are many, the call
    /// goes on with the rest. The caller pumps.
    pub fn expire(&mut self, key: &mut Key) -> bool {
        for n in 0.. {
            let first = key.live.as_ref().and_then(|live| live.permits.first());
            let over = first.copied().filter(|(ends, _)| *ends <= self.now);
            let Some((_, serial)) = over else {
                return n > 0;
            };
            if n == SOME {
                self.rest.insert(Rest::Key(key.id));
                break;
            }
            self.lose(key, serial);
        }
        true
    }

    /// What is left to do on a key may change what it answers.
    pub fn is_behind(&self, key: &Key) -> bool {
        self.rest.contains(&Rest::Key(key.id))
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
        let serial = Serial::of(serial);
        if let Serial::Held(serial) = serial {
            let mut held = self.unhold(key, serial);
            key.settle(self.now, &mut held.booking, 0);
        } else {
            self.book.return_spent(&serial, key, self.now);
        }
    }

    /// [`Scene::give_back`] for a permit that was granted a while ago.
    pub fn return_unused(&mut self, keys: &mut Keys, serial: u64) {
        let key = match Serial::of(serial) {
            Serial::Held(serial) => {
                self.silence(serial);
                self.holder(keys, serial)
            }
            other => {
                let id = self.book.spent(&other).map(|spent| spent.key);
                id.and_then(|id| keys.find(id, &self.memory.names))
            }
        };
        if let Some(key) = key {
            self.serve(key);
            self.give_back(key, serial);
            self.pump(key);
        }
    }

    pub fn renew(&mut self, keys: &mut Keys, serial: u64, lease: Option<Span>) -> Status {
        let serial = match Serial::of(serial) {
            Serial::Held(serial) => serial,
            other => {
                let known = self.book.spent(&other).is_some();
                return if known { Status::Ok } else { Status::Stale };
            }
        };
        let Some(key) = self.holder(keys, serial) else {
            return Status::Stale;
        };
        let held = self.book.held.get_mut(&serial).expect("it has a holder");
        let before = held.ends;
        if before == NEVER {
            return Status::Ok;
        }
        let ends = self.now + lease.unwrap_or(held.lease);
        held.ends = ends;
        let live = key.live.as_mut().expect("it holds a permit");
        live.permits.remove(&(before, serial));
        live.permits.insert((ends, serial));
        self.disarm_lease(before, serial);
        self.arm_lease(ends, serial);
        Status::Ok
    }

    pub fn settle(&mut self, keys: &mut Keys, serial: u64, actual: u64) -> Status {
        let settled = match Serial::of(serial) {
            Serial::Held(serial) => self.settle_held(keys, serial, actual),
            other => self.settle_spent(keys, other, actual),
        };
        if settled.is_none() {
            return Status::Stale;
        }
        self.stats.settled.add(1);
        Status::Ok
    }

    fn settle_held(&mut self, keys: &mut Keys, serial: u64, actual: u64) -> Option<()> {
        let key = self.holder(keys, serial)?;
        self.serve_before_settling(key);
        if self.book.held.get(&serial)?.settled {
            return None;
        }
        let mut held = self.book.unhold(serial)?;
        held.settled = true;
        key.settle(self.now, &mut held.booking, actual);
        self.book.hold(serial, held);
        self.serve(key);
        Some(())
    }

    /// What was taken under other limits is settled no more, whoever is the first to call.
    pub fn serve_before_settling(&mut self, key: &mut Key) {
        match key.named.is_newest() {
            true => self.serve(key),
            false => self.pump(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::limit::decide::Limits;
    use crate::limit::rule::{Limit, Rule};
    use crate::limit::semaphore::Semaphore;
    use crate::memory::Memory;
    use crate::op::Sink;
    use crate::queue::Queue;

    /// Its lease is over, and the timer is late.
    #[test]
    fn nobody_is_told_of_a_lost_lease_of_what_was_detached() {
        let memory = Memory::virtually(10);
        let lease = Span::secs(1);
        let limit = Limit {
            rule: Rule::Semaphore(Semaphore::new(1, lease, false).unwrap()),
            per_call: false,
        };
        let named = memory.limiter(b"n", Limits::new(vec![limit], 0).unwrap());
        let held = memory.acquire_blocking(&named, &Request::TRY);
        let queue = memory.queue(Queue::open_descriptor().unwrap());
        let request = Request {
            wait: None,
            tell_lost: true,
            ..Request::TRY
        };
        let waits = memory.acquire(&named, &request, Sink::Queue(queue.clone()));
        assert_eq!(memory.release(held.permit), Status::Ok);
        memory.clock.show(memory.clock_now() + lease);
        assert_eq!(memory.cancel(waits.op, true), Status::Ok);
        memory.clock_advance(lease);
        assert_eq!(queue.poll(9, Some(std::time::Duration::ZERO)).unwrap(), []);
        assert_eq!(
            memory.acquire_blocking(&named, &Request::TRY).status,
            Status::Ok
        );
    }
}
