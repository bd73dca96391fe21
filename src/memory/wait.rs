//! Those who wait: in the queue of their key, or for a time that is booked.
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::held::Terms;
use super::keys::{Key, Keys};
use super::leave::{Group, Rest, SOME};
use super::names::KeyId;
use super::scene::Scene;
use crate::decision::{Decision, Status};
use crate::limit::decide::{Booking, Outcome};
use crate::limit::time::Time;
use crate::limit::weights::Weights;
use crate::op::{Sink, Tell};
use crate::timer::Due;

/// An operation under way.
pub(super) struct Wait {
    pub key: KeyId,
    pub weights: Weights,
    pub sink: Sink,
    pub user_data: u64,
    pub terms: Terms,
    pub since: Time,
    pub deadline: Option<Time>,
    pub stage: Stage,
    /// When something happens to it without anybody's doing: its booked time, or its deadline.
    pub due: Option<Time>,
}

/// How far a wait has come.
pub(super) enum Stage {
    /// Nothing was taken yet.
    Queued,
    /// In the line of its key, to start at its time at the latest.
    Booked(Booking),
}

impl Wait {
    pub fn is_queued(&self) -> bool {
        matches!(self.stage, Stage::Queued)
    }
}

impl Scene<'_> {
    /// Counts one more wait, if that is allowed.
    pub fn begin_wait(&self) -> bool {
        let waiting = self.memory.waiting.fetch_add(1, Ordering::Relaxed);
        let room = waiting < self.memory.options.max_waiting;
        if room {
            self.stats.waiting.add(1);
        } else {
            self.memory.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        room
    }

    /// Begins a wait, at the end of the queue or booked for `at`. Answers how many wait before it.
    pub fn enter(&mut self, key: &mut Key, serial: u64, wait: Wait, at: Option<Time>) -> usize {
        let deadline = wait.deadline;
        let groups = Group::of(&wait).map(|group| (group, serial));
        for group in groups {
            self.book.groups.insert(group, ());
        }
        self.book.waits.insert(serial, wait);
        let live = key.live(&mut self.book.epoch);
        let ahead = live.queue.len() + live.booked.len();
        match at {
            Some(at) => self.book(key, serial, at),
            None => {
                live.queue.insert(serial);
                self.arm(serial, deadline);
            }
        }
        ahead
    }

    /// Books for a wait what it wants from `at` on.
    fn book(&mut self, key: &mut Key, serial: u64, at: Time) {
        let weights = &self.book.waits[&serial].weights;
        let booking = key.line_up(&mut self.book.epoch, self.now, at, weights);
        self.wait_mut(serial).stage = Stage::Booked(booking);
        let live = key.live(&mut self.book.epoch);
        live.queue.remove(&serial);
        live.booked.insert(serial);
        self.arm(serial, Some(at));
    }

    pub fn wait_mut(&mut self, serial: u64) -> &mut Wait {
        self.book
            .waits
            .get_mut(&serial)
            .expect("a wait of this shard")
    }

    /// Sees to it that a wait is looked at when it is due. An event of that time that was taken out of the timer
    /// is still to come to [`Scene::wait_due`], which goes by what the wait is then.
    pub fn arm(&mut self, serial: u64, due: Option<Time>) {
        let op = self.memory.numbers.make(self.book.index, serial);
        let wait = self
            .book
            .waits
            .get_mut(&serial)
            .expect("a wait of this shard");
        let before = std::mem::replace(&mut wait.due, due);
        if before == due {
            return;
        }
        match &wait.sink {
            Sink::Thread(parker) if !self.memory.clock.is_virtual() => {
                self.wakes.nudge(Arc::clone(parker));
            }
            _ => {
                if let Some(at) = before {
                    self.memory.timer.disarm(at, Due::Wait(op));
                }
                if let Some(at) = due {
                    self.memory.timer.arm(at, Due::Wait(op));
                }
            }
        }
    }

    /// Admits those at the head of the line and of the queue as far as the limits allow. To be called
    /// whenever something was given back, or somebody left. If there are many, the call goes on with the rest.
    pub fn pump(&mut self, key: &mut Key) {
        // Nobody may have asked since the limits were changed. One that is as new may have been forgotten, and
        // what starts empty does not begin to fill by this.
        if !key.named.is_newest() && !key.is_forgettable(self.now) {
            let named = key.named.clone();
            self.adopt(key, &named);
        }
        self.serve(key);
        if self.is_behind(key) {
            return;
        }
        for n in 0.. {
            let first = key.live.as_ref().and_then(|live| live.queue.first());
            let Some(&serial) = first else { return };
            if n == SOME {
                self.rest.insert(Rest::Key(key.id));
                return;
            }
            if self.is_leaving(serial) {
                return;
            }
            let wait = &self.book.waits[&serial];
            let deadline = wait.deadline.unwrap_or(Time::MAX);
            if deadline < self.now {
                // The timer, or the thread itself, is about to find that out.
                self.end(key, serial, Status::Denied);
                continue;
            }
            let limits = &key.named.limits;
            let verdict = limits.decide(key.outlook(), self.now, &wait.weights);
            match verdict.outcome {
                Outcome::Release => return,
                // Those at the head of the line are about to end with others, and behind them may be some who stay.
                Outcome::Admit if key.has_line() => self.book(key, serial, self.now),
                Outcome::Admit => {
                    let booking = limits.commit(&mut key.state, self.now, self.now, &wait.weights);
                    let wait = self.remove(key, serial);
                    self.admit(key, serial, wait, booking);
                }
                Outcome::Later(at) if at <= deadline => self.book(key, serial, at),
                Outcome::Later(_) | Outcome::TooFar(_) => self.end(key, serial, Status::Denied),
                Outcome::Never => self.end(key, serial, Status::Never),
            }
        }
    }

    /// Ends waits that became too heavy for limits that were lowered, as far as nobody has looked yet: some
    /// at each call, there may be very many. True if there were any; then the caller pumps.
    pub fn end_hopeless(&mut self, key: &mut Key) -> bool {
        let Some(live) = &mut key.live else {
            return false;
        };
        let Some(from) = live.doubted else {
            return false;
        };
        let next: Vec<u64> = live.queue.from(from).take(SOME).copied().collect();
        live.doubted = next.get(SOME - 1).map(|last| last + 1);
        let mut any = false;
        for serial in next {
            let weights = &self.book.waits[&serial].weights;
            let verdict = key.named.limits.decide(key.outlook(), self.now, weights);
            if verdict.outcome == Outcome::Never {
                self.end(key, serial, Status::Never);
                any = true;
            }
        }
        any
    }

    /// What falls due for a wait by now: its booked time has come, or its deadline.
    pub fn wait_due(&mut self, keys: &mut Keys, serial: u64) {
        let Some(wait) = self.book.waits.get(&serial) else {
            return;
        };
        if wait.due.is_none_or(|due| due > self.now) {
            return;
        }
        let key = keys
            .find(wait.key, &self.memory.names)
            .expect("a key with a wait stays");
        if !wait.is_queued() {
            self.serve(key);
            if self.is_due(serial, false) {
                // It is not the first, or what it was promised is void: it is looked at when it is.
                self.arm(serial, None);
            }
        }
        // A reset may have moved it to the queue just now, to the end of its patience.
        if self.is_due(serial, true) {
            // Leases that end at this very time make room first.
            self.expire(key);
            self.pump(key);
            if self.is_behind(key) {
                self.rest.insert(Rest::Wait(serial));
                return;
            }
            if self.is_due(serial, true) {
                self.end(key, serial, Status::Denied);
            }
        }
        self.pump(key);
    }

    /// It is there, in the queue or not, and its time has come.
    fn is_due(&self, serial: u64, queued: bool) -> bool {
        let wait = self.book.waits.get(&serial);
        wait.is_some_and(|wait| {
            wait.is_queued() == queued && wait.due.is_some_and(|due| due <= self.now)
        })
    }

    /// A wait in the line, whose turn has come at `at`, is granted.
    pub fn start(&mut self, key: &mut Key, serial: u64, at: Time) {
        let wait = self.remove(key, serial);
        let Stage::Booked(booking) = &wait.stage else {
            unreachable!("only what is booked starts")
        };
        let taken = key.take_turn(serial, at, wait.since, booking);
        self.admit(key, serial, wait, taken);
    }

    fn admit(&mut self, key: &mut Key, serial: u64, wait: Wait, booking: Booking) {
        let op = self.memory.numbers.make(self.book.index, serial);
        let tell = Tell::of(&wait.sink, op, wait.user_data);
        let (permit, fence) = self.permit(key, booking, &wait.terms, tell);
        let decision = Decision {
            permit,
            op,
            user_data: wait.user_data,
            waited_us: self.now.since(wait.since).0,
            fence,
            ..Decision::of(Status::Ok)
        };
        self.stats.granted.add(1);
        if !self.deliver(wait.sink, decision) {
            let (_, serial) = self.memory.numbers.read(permit).expect("made just now");
            self.give_back(key, serial);
            // Whoever called may not have meant to let others move up.
            self.rest.insert(Rest::Key(key.id));
        }
    }

    /// A wait ends without a permit; what was booked is given back. The caller pumps.
    pub fn end(&mut self, key: &mut Key, serial: u64, status: Status) {
        let wait = self.abandon(key, serial);
        let answer = match status {
            Status::Denied | Status::Never => {
                self.count_refusal(status);
                let verdict = self.verdict(key, &wait.weights);
                Decision {
                    status,
                    ..self.refusal(key, &wait.weights, verdict)
                }
            }
            _ => Decision::of(status),
        };
        let decision = Decision {
            op: self.memory.numbers.make(self.book.index, serial),
            user_data: wait.user_data,
            waited_us: self.now.since(wait.since).0,
            ..answer
        };
        // Nothing is lost if nobody hears of it.
        let _ = self.deliver(wait.sink, decision);
    }

    /// Takes a wait out and gives back what was booked for it.
    pub fn abandon(&mut self, key: &mut Key, serial: u64) -> Wait {
        let mut wait = self.remove(key, serial);
        let void = key.live.as_ref().is_some_and(|live| live.void);
        if let Stage::Booked(booking) = std::mem::replace(&mut wait.stage, Stage::Queued)
            && !void
        {
            key.leave(self.now, booking);
        }
        wait
    }

    fn remove(&mut self, key: &mut Key, serial: u64) -> Wait {
        self.disarm(serial);
        let live = key.live.as_mut().expect("somebody waits");
        let known = live.queue.remove(&serial) | live.booked.remove(&serial);
        assert!(known, "a wait is known to its key");
        self.memory.waiting.fetch_sub(1, Ordering::Relaxed);
        self.stats.waiting.sub(1);
        let wait = self.book.waits.remove(&serial);
        let wait = wait.expect("a wait of this shard");
        for group in Group::of(&wait) {
            self.book.groups.remove(&(group, serial));
        }
        wait
    }

    /// As [`Scene::arm`] with nothing, for a wait that is over.
    fn disarm(&mut self, serial: u64) {
        let op = self.memory.numbers.make(self.book.index, serial);
        let wait = self.wait_mut(serial);
        let due = wait.due.take().filter(|_| !self.attends_itself(serial));
        if let Some(at) = due {
            self.memory.timer.disarm(at, Due::Wait(op));
        }
    }

    /// A parked thread sleeps to its due time by itself, unless time is virtual.
    fn attends_itself(&self, serial: u64) -> bool {
        let thread = matches!(self.book.waits[&serial].sink, Sink::Thread(_));
        thread && !self.memory.clock.is_virtual()
    }

    pub fn deliver(&mut self, sink: Sink, decision: Decision) -> bool {
        self.wakes.deliver(sink, decision, &self.memory.callbacks)
    }
}
