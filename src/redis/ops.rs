//! Operations under way: asked of Redis, or booked and waiting here until their time.
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::flight::Trip;
use super::lines::Then;
use super::link::{Failure, Silence};
use super::policy;
use super::question::Op;
use super::queued::Hold;
use super::rebook::UNKNOWN;
use super::wire::{Answer, Outcome};
use super::{Key, Named, Redis, Scene};
use crate::config::FailurePolicy;
use crate::decision::{DEGRADED, Decision, NO_LIMIT, Status};
use crate::limit::time::{Span, Time};
use crate::limit::weights::Weights;
use crate::op::{Parker, Sink};
use crate::timer::Due;

/// An acquire that is not decided yet, or whose booked time has not come.
pub(super) struct Wait {
    pub key: Arc<Key>,
    pub sink: Sink,
    pub user_data: u64,
    /// As they are asked for again if the booking has to be moved.
    pub weights: Weights,
    pub since: Time,
    pub deadline: Option<Time>,
    pub stage: Stage,
    /// A time was booked for it, so it has waited.
    pub waited: bool,
    /// When something happens to it without anybody's doing: its booked time, or its deadline.
    pub due: Option<Time>,
    /// Its booking is of before a penalty or a reset: it does not start before it has been booked anew.
    pub held_back: bool,
    /// It asks for a semaphore.
    pub hold: Option<Hold>,
}

pub(super) enum Stage {
    /// The answer is under way.
    Asked,
    /// In the semaphore's queue, as far as is known.
    Queued,
    /// Its deadline has come, and one more answer is under way.
    Last,
    /// Taken, to start when it is due.
    Booked(Answer),
    /// As it was booked; it is being moved, and may start until that is known.
    Moving(Answer),
    /// What it had booked is being given back.
    Returning,
    /// To be booked, or booked anew, with others.
    Again,
    /// Decided in this process in place of Redis: by an operation there, if it waits.
    Here(Option<u64>),
}

impl Wait {
    pub fn is_thread(&self) -> bool {
        matches!(self.sink, Sink::Thread(_))
    }

    fn asked(&self) -> bool {
        matches!(self.stage, Stage::Asked)
    }
}

impl Scene<'_> {
    /// Begins an acquire. Answers its number.
    pub fn begin(&mut self, wait: Wait, patience: Option<Span>) -> Result<u64, Status> {
        let redis = self.redis;
        if redis.waiting.fetch_add(1, Ordering::Relaxed) >= redis.options.config.max_waiting {
            redis.waiting.fetch_sub(1, Ordering::Relaxed);
            self.stats.overloaded.add(1);
            return Err(Status::Overloaded);
        }
        self.stats.waiting.add(1);
        let serial = redis.operations.next();
        let (key, deadline) = (wait.key.clone(), wait.deadline);
        let book = Op::Book {
            wait: patience,
            deadline: deadline.filter(|_| patience != Some(Span::ZERO)),
            weights: wait.weights.clone(),
            patient: true,
        };
        let id = wait.hold.as_ref().map(|hold| hold.id);
        self.shard.waits.insert(serial, wait);
        if patience != Some(Span::ZERO) {
            self.heeds_notes(&key);
        }
        match id {
            None if self.joins(&key, serial, patience) => {}
            None => self.enqueue(&key, vec![book], Then::Acquire(serial)),
            Some(id) => {
                self.shard.ids.insert(id, serial);
                let (key, op, id) = self.question(serial, deadline);
                self.enqueue(&key, vec![op], Then::Hold(serial, id));
            }
        }
        Ok(self.number(serial))
    }

    pub fn number(&self, serial: u64) -> u64 {
        self.redis.numbers.make(self.index, serial)
    }

    /// Redis has answered an acquire, or has not.
    pub fn answered(
        &mut self,
        key: &Arc<Key>,
        serial: u64,
        trip: &Trip,
        answer: Result<Answer, Failure>,
    ) {
        let known = self.shard.waits.contains_key(&serial);
        match answer {
            Ok(answer) if !known => self.give_back(key, answer),
            Err(_) if !known => {}
            Err(failure) => self.fail(serial, &failure),
            Ok(answer) => match answer.outcome {
                Outcome::Done if answer.retry_after > Span::ZERO => {
                    self.book(serial, trip, answer);
                }
                Outcome::Done => {
                    let weights = self.shard.waits[&serial].weights.clone();
                    self.admitted_there(key, &weights, answer.figures.reset_after);
                    self.grant(serial, answer);
                }
                Outcome::Queued => self.comes_later(key, serial, answer.retry_after),
                _ => {
                    let refusal = refusal(&answer);
                    self.count_refusal(refusal.status);
                    let weights = self.shard.waits[&serial].weights.clone();
                    self.remember_denial(key, weights, trip, &answer);
                    self.complete(serial, refusal);
                }
            },
        }
    }

    /// A time is booked for a wait; it is granted here when that has come.
    pub fn book(&mut self, serial: u64, trip: &Trip, answer: Answer) {
        // From the moment at which the answer is here: never too early.
        let due = self.now + answer.retry_after;
        let wait = self.shard.waits.get_mut(&serial).expect("asked for it");
        let key = wait.key.clone();
        wait.stage = Stage::Booked(answer);
        wait.waited = true;
        self.unqueue(&key, serial);
        self.line(&key).booked.insert(serial);
        self.listen = true;
        if self.is_of_before(&key, trip) {
            return self.see_anew(&key, serial);
        }
        self.arm(serial, Some(due));
        self.see_before(&key, due);
    }

    /// Sees to it that a wait is looked at when it is due.
    pub fn arm(&mut self, serial: u64, due: Option<Time>) {
        let op = self.number(serial);
        let wait = self.shard.waits.get_mut(&serial).expect("it waits");
        let before = std::mem::replace(&mut wait.due, due);
        if before == due {
            return;
        }
        if let Sink::Thread(parker) = &wait.sink
            && !self.redis.clock.is_virtual()
        {
            // It sleeps by itself.
            self.wakes.nudge(Arc::clone(parker));
            return;
        }
        if let Some(at) = before {
            self.redis.timer.disarm(at, Due::Wait(op));
        }
        if let Some(at) = due {
            self.redis.timer.arm(at, Due::Wait(op));
        }
    }

    /// What falls due for a wait by now: its booked time has come, or its deadline.
    pub fn wait_due(&mut self, serial: u64) {
        let Some(wait) = self.shard.waits.get_mut(&serial) else {
            return;
        };
        if wait.due.is_none_or(|due| due > self.now) {
            return;
        }
        match &wait.stage {
            Stage::Booked(_) | Stage::Moving(_) if wait.held_back => self.ends_held_back(serial),
            Stage::Booked(answer) | Stage::Moving(answer) => {
                let answer = answer.clone();
                let first = self.in_turn(serial);
                self.grant(first, answer);
            }
            Stage::Queued | Stage::Last => self.last_word(serial),
            Stage::Again => self.last_chance(serial),
            // It is looked at again when that has become of it.
            Stage::Returning => self.arm(serial, None),
            Stage::Asked | Stage::Here(_) => {}
        }
    }

    pub fn grant(&mut self, serial: u64, answer: Answer) {
        let wait = &self.shard.waits[&serial];
        let key = wait.key.clone();
        // What it was told when its time was booked, or with others, is not so any more.
        let mut decision = match wait.waited {
            true => Decision::of(Status::Ok),
            false => numbers(&answer, Status::Ok),
        };
        if wait.waited {
            decision.waited_us = self.now.since(wait.since).0;
        }
        let held = wait.hold.as_ref().and_then(|hold| hold.held);
        let moving = matches!(wait.stage, Stage::Moving(_));
        if key.named.holds(&wait.weights) {
            decision.fence = answer.fence;
        }
        if let Some(held) = held {
            decision.permit = self.start(held);
        } else if !answer.booking.is_empty() {
            let booking = match moving {
                true => UNKNOWN.into(),
                false => answer.booking,
            };
            decision.permit = self.permit(&key, booking, false);
            if moving {
                self.shard.started.insert(serial, decision.permit);
            }
        }
        if !self.complete(serial, decision)
            && let Ok((_, permit)) = self.redis.numbers.read(decision.permit)
        {
            self.return_permit(permit);
        }
    }

    pub fn fail(&mut self, serial: u64, failure: &Failure) {
        let key = self.shard.waits[&serial].key.clone();
        let wait = &self.shard.waits[&serial];
        if let Some(hold) = &wait.hold
            && (!wait.asked() || !failure.not_executed() || self.shard.open.has(hold.id, self.now))
        {
            self.give_up_id(serial);
        }
        // Whatever came of a permit is given back by its id; what rates were charged is not.
        let charges = key.named.has_rates() || self.shard.waits[&serial].hold.is_none();
        if self.redis.policy(&key.named) == FailurePolicy::Local {
            self.stats.backend_errors.add(1);
            return self.pass_on(serial, policy::flags(failure, charges));
        }
        let decision = self.failed(&key.named, failure, charges);
        self.complete(serial, decision);
    }

    /// What the failure policy answers, counted.
    pub fn failed(&mut self, named: &Named, failure: &Failure, charges: bool) -> Decision {
        let decision = policy::answer(self.redis.policy(named), failure, charges);
        self.stats.backend_errors.add(1);
        if decision.flags & DEGRADED != 0 {
            self.stats.degraded.add(1);
        }
        decision
    }

    pub fn count_refusal(&self, status: Status) {
        match status {
            Status::Never => self.stats.never.add(1),
            _ => self.stats.denied.add(1),
        }
    }

    /// Ends an operation with its one completion. False: nobody takes it.
    pub fn complete(&mut self, serial: u64, decision: Decision) -> bool {
        let wait = self.remove(serial);
        // A thread that did not have to wait has called, not begun an operation.
        let called = wait.is_thread() && !wait.waited;
        let decision = Decision {
            op: if called { 0 } else { self.number(serial) },
            user_data: wait.user_data,
            ..decision
        };
        self.wakes
            .deliver(wait.sink, decision, &self.redis.callbacks)
    }

    pub fn remove(&mut self, serial: u64) -> Wait {
        let op = self.number(serial);
        let wait = self.shard.waits.remove(&serial).expect("it waits");
        if let Some(due) = wait.due.filter(|_| !wait.is_thread()) {
            self.redis.timer.disarm(due, Due::Wait(op));
        }
        if let Some(line) = self.shard.lines.get_mut(&wait.key) {
            line.booked.remove(&serial);
            line.moving.remove(&serial);
            line.again.waits.remove(&serial);
        }
        if let Some(hold) = &wait.hold {
            self.drop_hold(&wait.key, serial, hold);
        }
        self.tidy(&wait.key);
        self.redis.waiting.fetch_sub(1, Ordering::Relaxed);
        self.stats.waiting.sub(1);
        wait
    }

    /// A wait is for a semaphore in Redis no more.
    pub fn drop_hold(&mut self, key: &Arc<Key>, serial: u64, hold: &Hold) {
        self.shard.ids.remove(&hold.id);
        self.unqueue(key, serial);
    }

    /// A wait is in the semaphore's queue no more.
    pub fn unqueue(&mut self, key: &Arc<Key>, serial: u64) {
        if let Some(line) = self.shard.lines.get_mut(key)
            && line.queued.remove(&serial)
            && line.queued.is_empty()
        {
            self.shard.queues.remove(key);
        }
    }
}

impl Redis {
    /// Waits for a completion. The thread sleeps to a booked time by itself.
    pub(super) fn park(&self, parker: &Parker, op: u64) -> Decision {
        // Every call ends by its deadline; this is for the case that the thread that sees to it died.
        let longest = self.command_timeout * 3 + Duration::from_secs(2);
        let mut asked = Instant::now();
        loop {
            let due = self.attend(op);
            let sleep = due.and_then(|due| self.clock.sleep_until(due));
            if let Some(decision) = parker.wait(Some(sleep.unwrap_or(longest))) {
                return decision;
            }
            if due.is_some() {
                asked = Instant::now();
            } else if asked.elapsed() > longest {
                let (shard, serial) = self.operation(op);
                self.at(shard, |scene| {
                    if scene.shard.waits.get(&serial).is_some_and(Wait::asked) {
                        scene.fail(serial, &Failure::Ambiguous(Silence::Timeout));
                    }
                });
            }
        }
    }

    fn operation(&self, op: u64) -> (usize, u64) {
        let (shard, serial) = self.numbers.read(op).expect("an operation of this backend");
        (shard, self.operations.find(serial))
    }

    /// Does what is due for an operation, and answers when it is to be attended again.
    pub(super) fn attend(&self, op: u64) -> Option<Time> {
        let (shard, serial) = self.operation(op);
        self.at(shard, |scene| {
            scene.wait_due(serial);
            scene.shard.waits.get(&serial)?.due
        })
    }
}

/// An answer's numbers.
pub(super) fn numbers(answer: &Answer, status: Status) -> Decision {
    Decision {
        index: answer.index.map_or(NO_LIMIT, |index| index as u32),
        limit: answer.figures.limit,
        remaining: answer.figures.remaining,
        reset_after_us: answer.figures.reset_after.0,
        ..Decision::of(status)
    }
}

/// Why not, and when to come back.
pub(super) fn refusal(answer: &Answer) -> Decision {
    let status = match answer.outcome {
        Outcome::Never => Status::Never,
        _ => Status::Denied,
    };
    Decision {
        retry_after_us: answer.retry_after.0,
        ..numbers(answer, status)
    }
}
