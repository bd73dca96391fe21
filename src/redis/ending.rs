//! What ends before its time: a wait that is cancelled or detached, a queue that is freed, and all of it
//! at shutdown. What was taken is given back.
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::heartbeat::AGAIN;
use super::ops::{Stage, Wait};
use super::{Redis, Scene, Shard};
use crate::callback;
use crate::decision::{Decision, Status};
use crate::op::{Sink, cancel_completed};
use crate::permit::Numbers;
use crate::queue::Queue;
use crate::sync::{Mutex, hand_over};

/// How long a shutdown waits at most for its connections to be closed.
const CLOSING: Duration = Duration::from_millis(500);

impl Scene<'_> {
    /// Ends a wait that has not been granted; what was booked is given back. An answer that is still
    /// under way will find nobody and be given back then. False: it is over already.
    fn end(&mut self, serial: u64, status: Status, silent: bool) -> bool {
        self.wait_due(serial);
        let Some(wait) = self.shard.waits.get_mut(&serial) else {
            return false;
        };
        let (key, since) = (wait.key.clone(), wait.since);
        let held = wait.hold.as_mut().map(|hold| hold.held.take());
        let mut decision = Decision::of(status);
        match std::mem::replace(&mut wait.stage, Stage::Asked) {
            Stage::Booked(answer) => {
                if held.is_none() {
                    self.give_back(&key, answer);
                }
            }
            // If it is not known yet, it will find nobody.
            Stage::Here(op) => self.ended_here.extend(op),
            Stage::Asked | Stage::Queued | Stage::Last => {}
            Stage::Moving(_) | Stage::Returning | Stage::Again => {}
        }
        if let Some(held) = held {
            match held.map(|held| self.unhold(held)) {
                Some(held) => {
                    self.say_cancel(&key, held.id, held.ends);
                    self.sooner(&key);
                }
                None => self.give_up_id(serial),
            }
        }
        decision.waited_us = self.now.since(since).0;
        if silent {
            self.remove(serial);
        } else {
            // Nothing is lost if nobody hears of it.
            let _ = self.complete(serial, decision);
        }
        true
    }

    /// A detached wait does not hear of its end, except a thread, which would wait for ever.
    fn cancel(&mut self, serial: u64, detach: bool) -> bool {
        let wait = self.shard.waits.get(&serial);
        let silent = detach && wait.is_some_and(|wait| !wait.is_thread());
        let ended = self.end(serial, Status::Cancelled, silent);
        if ended {
            self.stats.cancelled.add(1);
        }
        ended
    }

    fn chosen(&self, matches: impl Fn(&Wait) -> bool) -> Vec<u64> {
        let waits = self.shard.waits.iter();
        let mut serials: Vec<u64> = waits
            .filter(|(_, wait)| matches(wait))
            .map(|(serial, _)| *serial)
            .collect();
        serials.sort_unstable();
        serials
    }

    fn cancel_all(&mut self, detach: bool, matches: impl Fn(&Wait) -> bool) -> usize {
        let serials = self.chosen(matches);
        // The last first: then its time is given back whole.
        let serials = serials.into_iter().rev();
        serials
            .filter(|serial| self.cancel(*serial, detach))
            .count()
    }

    pub fn close(&mut self) {
        for serial in self.chosen(|_| true).into_iter().rev() {
            self.end(serial, Status::Closed, false);
        }
        self.release_all();
        self.say_now();
        self.shard.recent.forget(|_| true);
    }
}

impl Redis {
    /// Ends a wait. Its completion is CANCELLED, or OK if the grant came first; with `detach` there is
    /// none, and a grant that was not taken yet is given back. STALE: it was taken before.
    pub fn cancel(&self, op: u64, detach: bool) -> Status {
        let (shard, serial) = match self.numbers.read(op) {
            Ok((shard, serial)) => (shard, self.operations.find(serial)),
            Err(status) => return status,
        };
        if self.at(shard, |scene| scene.cancel(serial, detach)) {
            return Status::Ok;
        }
        let give_back = |untaken: &Decision| self.return_grant(untaken);
        cancel_completed(op, detach, &self.queues, &self.callbacks, give_back)
    }

    /// Ends all waits of requests with this `user_data`, those of parked threads included. Answers how
    /// many there were.
    pub fn cancel_waits(&self, user_data: u64) -> usize {
        let theirs = |wait: &Wait| wait.user_data == user_data;
        (0..self.shards.len())
            .map(|index| self.at(index, |scene| scene.cancel_all(false, theirs)))
            .sum()
    }

    /// Nobody polls a queue any more: its waits are detached, grants that were not polled given back.
    pub fn free_queue(&self, queue: &Arc<Queue>) {
        let unpolled = queue.free();
        let theirs =
            |wait: &Wait| matches!(&wait.sink, Sink::Queue(other) if Arc::ptr_eq(other, queue));
        for index in 0..self.shards.len() {
            self.at(index, |scene| scene.cancel_all(true, theirs));
        }
        for decision in unpolled {
            self.return_grant(&decision);
        }
    }

    fn return_grant(&self, decision: &Decision) {
        if let Some(local) = self.local_of(decision.permit) {
            return local.return_grant(decision);
        }
        if let (Status::Ok, Ok((shard, serial))) =
            (decision.status, self.numbers.read(decision.permit))
        {
            self.at(shard, |scene| scene.return_permit(serial));
        }
    }

    /// Ends everything: waits complete with CLOSED, what they had booked is given back, due callbacks
    /// are waited for up to `timeout` (`None`: without limit), and later calls answer CLOSED. TIMEOUT if
    /// that took longer, or Redis could not be told in time of what is given back.
    pub fn shutdown(&self, timeout: Option<Duration>) -> Status {
        if callback::inside() {
            return Status::WouldDeadlock;
        }
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        let left = || deadline.map(|d| d.saturating_duration_since(Instant::now()));
        self.close();
        if let Some(local) = self.local.memory() {
            local.shutdown(left());
        }
        // No call lasts longer than its own deadline; what fails is said once more.
        let longest = self.command_timeout * 2;
        let said = self.all_said(left().map_or(longest, |left| left.min(longest)));
        let carrier = self.carrier.lock().take();
        if let Some(carrier) = carrier {
            carrier.close(CLOSING);
        }
        self.timer.join();
        if self.callbacks.drain(left()) && said {
            Status::Ok
        } else {
            Status::Timeout
        }
    }

    /// Waits until no call is under way, and all is said that ends something in Redis.
    fn all_said(&self, longest: Duration) -> bool {
        let until = Instant::now() + longest;
        let left = || until.saturating_duration_since(Instant::now());
        while self.flown(left()) {
            let unsaid = |shard: &Mutex<Shard>| !shard.lock().unsaid.is_empty();
            if !self.shards.iter().any(unsaid) {
                return true;
            }
            if left().is_zero() {
                return false;
            }
            std::thread::sleep(Duration::from_micros(AGAIN.0).min(left()));
            for index in 0..Numbers::SHARDS {
                self.shielded(index, |scene| scene.say_now());
            }
        }
        false
    }

    /// Waits until no call is under way.
    pub(super) fn flown(&self, longest: Duration) -> bool {
        while !self.is_still() && hand_over() {}
        let flights = self.flights.lock();
        let under_way = |flights: &mut usize| *flights > 0;
        *self.landed.wait_timeout_while(flights, longest, under_way) == 0
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        for index in 0..Numbers::SHARDS {
            self.shielded(index, |scene| scene.close());
        }
        self.timer.close();
        self.callbacks.close();
        for queue in self.queues.all() {
            queue.close();
        }
    }
}
