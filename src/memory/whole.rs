//! What concerns a whole key, a whole queue or the whole backend: penalty, reset, cancel, shutdown.
use std::sync::Arc;

use super::keys::{Key, Keys};
use super::names::{KeyId, Named};
use super::scene::Scene;
use super::wait::Stage;
use crate::decision::Status;
use crate::limit::decide::{Booking, Outcome};
use crate::limit::time::{Span, Time};
use crate::op::Sink;

/// Records of permits that a reset drops itself; more are dropped by the calls that follow.
const ENDED: usize = 256;

impl Scene<'_> {
    /// Nothing starts on a key for so long; what is booked is booked anew.
    pub fn penalize(&mut self, keys: &mut Keys, named: &Arc<Named>, id: KeyId, length: Span) {
        let until = self.now + length.min(self.memory.options.max_penalty);
        if keys.find(id, &self.memory.names).is_none() {
            let key = Key::fresh(id, named.current(), self.now);
            self.insert(keys, key);
        }
        let key = keys
            .find(id, &self.memory.names)
            .expect("it was made if it was not there");
        self.expire(key);
        self.start_due(key);
        let first = self.moved_first(key, until);
        let old = first.is_some() && key.named.limits.has_old(&key.state, self.booked(key));
        // Under the limits it was booked under: they may change now.
        let mut unbooked = match first {
            Some(_) if !old => self.unbook(key),
            _ => Vec::new(),
        };
        self.adopt(key, named);
        if let Some(first) = first.filter(|_| old) {
            let limits = &key.named.limits;
            match limits.put_off(&mut key.state, first, until.since(first)) {
                Some(by) => self.put_off(key, by),
                None => unbooked = self.unbook(key),
            }
        }
        key.named.limits.penalize(&mut key.state, self.now, until);
        self.rebook(key, unbooked);
        self.end_hopeless(key);
        self.pump(key);
    }

    /// The first time that is booked, if a new penalty until then concerns it: it lasts beyond those before
    /// and beyond this time.
    fn moved_first(&self, key: &Key, until: Time) -> Option<Time> {
        let first = self.booked(key).next()?.at();
        (until > first.max(key.state.blocked_until())).then_some(first)
    }

    /// What is booked, in its order.
    fn booked<'b>(&'b self, key: &'b Key) -> impl Iterator<Item = &'b Booking> {
        let booked = key.live.iter().flat_map(|live| live.booked.iter());
        booked.map(|serial| match &self.book.waits[serial].stage {
            Stage::Booked(booking) => booking,
            Stage::Queued => unreachable!("its key says that it is booked"),
        })
    }

    /// Moves those whose bookings were moved as they are, in one go as for [`Scene::rebook`].
    fn put_off(&mut self, key: &mut Key, by: Span) {
        let serials = key.live.iter().flat_map(|live| live.booked.iter());
        let serials: Vec<u64> = serials.copied().collect();
        let mut late = Vec::new();
        for serial in serials {
            let wait = self.wait_mut(serial);
            let Stage::Booked(booking) = &mut wait.stage else {
                unreachable!("its key says that it is booked");
            };
            booking.put_off(by);
            let at = booking.at();
            match wait.deadline.is_some_and(|deadline| deadline < at) {
                true => late.push(serial),
                false => self.arm(serial, Some(at)),
            }
        }
        for serial in late {
            self.end(key, serial, Status::Denied);
        }
    }

    /// Takes back what is booked, in its order.
    fn unbook(&mut self, key: &mut Key) -> Vec<(u64, Booking)> {
        let Some(live) = &key.live else {
            return Vec::new();
        };
        let mut unbooked = Vec::with_capacity(live.booked.len());
        for &serial in live.booked.iter() {
            match std::mem::replace(&mut self.wait_mut(serial).stage, Stage::Queued) {
                Stage::Booked(booking) => unbooked.push((serial, booking)),
                Stage::Queued => unreachable!("its key says that it is booked"),
            }
        }
        let bookings = unbooked.iter().map(|(_, booking)| booking);
        key.named.limits.unbook(&mut key.state, self.now, bookings);
        unbooked
    }

    /// Books anew, in the same order, or ends what would now start after its deadline, or never. All in one
    /// go, many as they may be: every answer on this key, when a call can start and whether that is in time,
    /// goes by where the last booking ends, so none can be given before.
    pub fn rebook(&mut self, key: &mut Key, unbooked: Vec<(u64, Booking)>) {
        let mut ending = Vec::new();
        for (serial, old) in unbooked {
            let limits = &key.named.limits;
            let latest = self.wait_mut(serial).deadline.unwrap_or(Time::MAX);
            match limits.rebook(&mut key.state, self.now, &old, latest) {
                Ok(booking) => {
                    let at = booking.at();
                    self.wait_mut(serial).stage = Stage::Booked(booking);
                    self.arm(serial, Some(at));
                }
                Err(why) => {
                    limits.release(&mut key.state, &old);
                    ending.push((serial, why));
                }
            }
        }
        // When all are booked: only then is it known when to come back.
        for (serial, why) in ending {
            let status = match why {
                Outcome::Never => Status::Never,
                _ => Status::Denied,
            };
            self.end(key, serial, status);
        }
    }

    /// Makes a key as new: permits on it end, and those who wait are decided anew, in their order: all in
    /// one go, for the reason that [`Scene::rebook`] has.
    pub fn reset(&mut self, keys: &mut Keys, id: KeyId) {
        let mut key = keys.find(id, &self.memory.names);
        if let Some(key) = &mut key {
            self.start_due(key);
        }
        // Also of a key that was as new and has been forgotten.
        self.book.recent.forget(|spent| spent.key() == id);
        self.book.paced.forget(id, self.book.next_serial);
        self.book.paced.drop_ended(ENDED);
        let Some(key) = key else { return };
        key.named.limits.reset(&mut key.state, self.now);
        let Some(live) = &mut key.live else { return };
        self.stats.in_flight.sub(live.permits.len() as u64);
        self.book.ended.push(std::mem::take(&mut live.permits));
        self.book.epoch += 1;
        live.epoch = self.book.epoch;
        let booked = std::mem::take(&mut live.booked);
        for &serial in booked.iter() {
            live.queue.insert(serial);
        }
        for &serial in booked.iter() {
            let wait = self.wait_mut(serial);
            wait.stage = Stage::Queued;
            let deadline = wait.deadline;
            self.arm(serial, deadline);
        }
        self.pump(key);
        self.drop_ended(ENDED);
    }

    /// Ends a wait. False: it is over already. A detached one does not hear of it, except a thread, which
    /// would wait for ever.
    pub fn cancel(&mut self, keys: &mut Keys, serial: u64, detach: bool) -> bool {
        let Some(id) = self.take_out(keys, serial, detach) else {
            return false;
        };
        let key = keys.find(id, &self.memory.names);
        self.pump(key.expect("its wait was there a moment ago"));
        true
    }

    /// [`Scene::cancel`], of which the caller pumps the key it answers.
    pub fn take_out(&mut self, keys: &mut Keys, serial: u64, detach: bool) -> Option<KeyId> {
        self.wait_due(keys, serial);
        let wait = self.book.waits.get(&serial)?;
        let silent = detach && !matches!(wait.sink, Sink::Thread(_));
        let key = keys
            .find(wait.key, &self.memory.names)
            .expect("a key with a wait stays");
        if silent {
            self.abandon(key, serial);
        } else {
            self.end(key, serial, Status::Cancelled);
        }
        self.stats.cancelled.add(1);
        Some(key.id)
    }

    /// Ends everything: waits with CLOSED, permits are released, keys forgotten.
    pub fn close(&mut self, keys: &mut Keys) {
        let serials: Vec<u64> = self.book.waits.iter().map(|(serial, _)| *serial).collect();
        for serial in serials {
            self.wait_due(keys, serial);
            let Some(wait) = self.book.waits.get(&serial) else {
                continue;
            };
            let key = keys
                .find(wait.key, &self.memory.names)
                .expect("a key with a wait stays");
            self.end(key, serial, Status::Closed);
        }
        let (keys, permits) = keys.clear(&self.memory.names);
        self.stats.keys.sub(keys);
        self.stats.in_flight.sub(permits);
        self.stats.released.add(permits);
        self.book.held.clear();
        self.book.ended.clear();
        self.book.left.clear();
        self.book.recent.forget(|_| true);
        self.book.paced.clear();
    }
}
