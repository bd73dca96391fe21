//! What concerns a whole key, a whole queue or the whole backend: penalty, reset, cancel, shutdown.
use std::sync::Arc;

use super::keys::{Key, Keys};
use super::names::{KeyId, Named};
use super::scene::Scene;
use super::wait::{Stage, Wait};
use crate::decision::Status;
use crate::limit::time::Span;
use crate::op::Sink;
use crate::queue::Queue;

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
        self.refresh(key, named);
        self.start_due(key);
        key.named.limits.penalize(&mut key.state, self.now, until);
        let Some(live) = &key.live else { return };
        let serials: Vec<u64> = live.booked.iter().copied().collect();
        let mut bookings = Vec::with_capacity(serials.len());
        for &serial in &serials {
            match std::mem::replace(&mut self.wait_mut(serial).stage, Stage::Queued) {
                Stage::Booked(booking) => bookings.push(booking),
                Stage::Queued => unreachable!("its key says that it is booked"),
            }
        }
        key.named
            .limits
            .rebook(&mut key.state, self.now, &mut bookings);
        let mut late = Vec::new();
        for (&serial, booking) in serials.iter().zip(bookings) {
            let at = booking.at();
            let wait = self.wait_mut(serial);
            wait.stage = Stage::Booked(booking);
            if wait.deadline.is_some_and(|deadline| at > deadline) {
                late.push(serial);
            }
            self.arm(serial, Some(at));
        }
        // The last first: then nothing was booked after it, and its time is given back.
        for serial in late.into_iter().rev() {
            self.end(key, serial, Status::Denied);
        }
        self.pump(key);
    }

    /// Makes a key as new: permits on it end, and those who wait are decided anew, in their order.
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
        self.wait_due(keys, serial);
        let Some(wait) = self.book.waits.get(&serial) else {
            return false;
        };
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
        self.pump(key);
        true
    }

    /// Ends all waits with this `user_data`, in the order in which they came. Answers how many there were.
    pub fn cancel_tagged(&mut self, keys: &mut Keys, user_data: u64) -> usize {
        let theirs = self.book.tags.range((user_data, 0)..=(user_data, u64::MAX));
        let serials: Vec<u64> = theirs.map(|(_, serial)| *serial).collect();
        let cancelled = |serial: &u64| self.cancel(keys, *serial, false);
        serials.into_iter().filter(cancelled).count()
    }

    /// Detaches all waits whose completions would go to a queue, in the order in which they came.
    pub fn detach_queue(&mut self, keys: &mut Keys, queue: &Arc<Queue>) {
        let theirs = |wait: &Wait| matches!(&wait.sink, Sink::Queue(of) if Arc::ptr_eq(of, queue));
        let waits = self.book.waits.iter().filter(|(_, wait)| theirs(wait));
        let serials: Vec<u64> = waits.map(|(serial, _)| *serial).collect();
        for serial in serials {
            self.cancel(keys, serial, true);
        }
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
