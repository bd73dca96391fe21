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
        self.adopt(key, named);
        self.start_due(key);
        let unbooked = match self.is_moved(key, until) {
            true => self.unbook(key),
            false => Vec::new(),
        };
        key.named.limits.penalize(&mut key.state, self.now, until);
        self.rebook(key, unbooked);
        self.end_hopeless(key);
        self.pump(key);
    }

    /// Whether a new penalty until then concerns what is booked: it lasts beyond those before and beyond the
    /// first time that is booked.
    fn is_moved(&self, key: &Key, until: Time) -> bool {
        let first = key.live.as_ref().and_then(|live| live.booked.first());
        let due = first.and_then(|serial| self.book.waits[serial].due);
        until > key.state.blocked_until() && due.is_some_and(|due| until > due)
    }

    /// Before the limits change: takes back what is booked, to be booked under the new ones. What cannot be
    /// given back whole, because somebody booked after it who does not wait here, stays as it is.
    pub fn unbook_for_others(&mut self, key: &mut Key) -> Vec<(u64, Booking)> {
        self.start_due(key);
        let Some(live) = &key.live else {
            return Vec::new();
        };
        let bookings = live
            .booked
            .iter()
            .filter_map(|serial| self.booking(*serial));
        match key.named.limits.can_unbook(&key.state, bookings) {
            true => self.unbook(key),
            false => Vec::new(),
        }
    }

    fn booking(&self, serial: u64) -> Option<&Booking> {
        match &self.book.waits[&serial].stage {
            Stage::Booked(booking) => Some(booking),
            Stage::Queued => None,
        }
    }

    /// Takes back what is booked, in its order.
    fn unbook(&mut self, key: &mut Key) -> Vec<(u64, Booking)> {
        let Some(live) = &key.live else {
            return Vec::new();
        };
        let mut unbooked = Vec::with_capacity(live.booked.len());
        for &serial in &live.booked {
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
        let Some(key) = keys.find(id, &self.memory.names) else {
            return;
        };
        self.start_due(key);
        key.named.limits.reset(&mut key.state, self.now);
        self.book.recent.forget(|spent| spent.key() == id);
        self.book.paced.forget(id);
        let Some(live) = &mut key.live else { return };
        self.stats.in_flight.sub(live.permits.len() as u64);
        self.book.ended.push(std::mem::take(&mut live.permits));
        self.book.epoch += 1;
        live.epoch = self.book.epoch;
        let booked = std::mem::take(&mut live.booked);
        live.queue.extend(&booked);
        for serial in booked {
            let wait = self.wait_mut(serial);
            wait.stage = Stage::Queued;
            let deadline = wait.deadline;
            self.arm(serial, deadline);
        }
        self.pump(key);
        self.sweep(ENDED);
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
        let serials: Vec<u64> = self.book.waits.keys().copied().collect();
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
        self.book.recent.forget(|_| true);
        self.book.paced.clear();
    }
}
