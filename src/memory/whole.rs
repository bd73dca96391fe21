//! What concerns a whole key, a whole queue or the whole backend: penalty, reset, cancel, shutdown.
use std::sync::Arc;

use super::keys::{Key, Keys};
use super::names::{KeyId, Named};
use super::scene::Scene;
use super::wait::Stage;
use crate::decision::Status;
use crate::limit::time::Span;
use crate::op::Sink;

/// Records of permits that a reset drops itself; more are dropped by the calls that follow.
const ENDED: usize = 256;

impl Scene<'_> {
    /// Nothing starts on a key for so long; what is booked is booked anew. False: not yet, ask again.
    pub fn penalize(
        &mut self,
        keys: &mut Keys,
        named: &Arc<Named>,
        id: KeyId,
        length: Span,
    ) -> bool {
        let until = self.now + length.min(self.memory.options.max_penalty);
        if keys.find(id, &self.memory.names).is_none() {
            let key = Key::fresh(id, named.current(), self.now);
            self.insert(keys, key);
        }
        let key = keys
            .find(id, &self.memory.names)
            .expect("it was made if it was not there");
        self.expire(key);
        self.serve(key);
        self.adopt(key, named);
        let longer = until > key.state.blocked_until();
        let puts_off = longer && self.first_promised(key).is_some_and(|at| at < until);
        if puts_off && !self.let_told_pass(key) {
            return false;
        }
        key.named.limits.penalize(&mut key.state, self.now, until);
        if puts_off {
            self.put_off(key);
        }
        self.end_hopeless(key);
        self.pump(key);
        true
    }

    /// Makes a key as new: permits on it end, and those who wait are decided anew, in their order.
    pub fn reset(&mut self, keys: &mut Keys, named: &Arc<Named>, id: KeyId) {
        let mut key = keys.find(id, &self.memory.names);
        if let Some(key) = &mut key {
            self.serve(key);
        }
        // Also of a key that was as new and has been forgotten.
        self.book.forget_all_spent(Some(id));
        self.book.paced.forget(id, self.book.next_serial);
        self.book.paced.drop_ended(ENDED);
        let Some(key) = key else {
            if named.limits.starts_empty() {
                // It fills from now on, as one that is not forgotten.
                let key = Key::fresh(id, named.current(), self.now);
                self.insert(keys, key);
            }
            return;
        };
        self.adopt(key, named);
        key.named.limits.reset(&mut key.state, self.now);
        let Some(live) = &mut key.live else { return };
        self.stats.in_flight.sub(live.permits.len() as u64);
        self.book.ended.push(std::mem::take(&mut live.permits));
        self.book.epoch += 1;
        live.epoch = self.book.epoch;
        if key.named.limits.holds() {
            // What they hold is theirs no more.
            live.line = None;
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
        } else {
            self.start_over(key);
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
        let id = self.book.waits.get(&serial)?.key;
        let key = keys.find(id, &self.memory.names);
        let key = key.expect("a key with a wait stays");
        self.serve(key);
        let wait = self.book.waits.get(&serial)?;
        let silent = detach && !matches!(wait.sink, Sink::Thread(_));
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
        self.book.more.clear();
        self.book.forget_all_spent(None);
        self.book.paced.clear();
    }
}
