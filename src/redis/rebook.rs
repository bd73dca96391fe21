//! What this process has booked of rates is booked anew after a penalty or a reset, so many in a call. First
//! all of it is given back, the last first, here and in other processes: meanwhile Redis lets nobody book, so
//! that none of it is lost. Then it is booked, the first first, and with it whoever came meanwhile.
//!
//! Nothing of it starts before that is done. What may or may not have been booked is booked anew.
use std::collections::BTreeSet;
use std::sync::Arc;

use super::flight::Trip;
use super::heartbeat::AGAIN;
use super::lines::{Heard, Item, Then};
use super::link::Failure;
use super::ops::{Stage, refusal};
use super::question::Op;
use super::wire::{Answer, Outcome};
use super::{Key, Scene};
use crate::config::FailurePolicy;
use crate::decision::{Decision, Status};
use crate::limit::time::{Span, Time};

/// Most in one call.
const MOST: usize = 64;
/// So many calls in a row may fail before the waits do.
const TRIES: u32 = 20;

/// A booking that is not known: it may have been made anew. Nothing comes of it.
pub(super) const UNKNOWN: &str = "-";

/// What of a key is booked anew.
#[derive(Default)]
pub(super) struct Again {
    /// Who is to be booked, in the order in which they came.
    pub waits: BTreeSet<u64>,
    /// What is booked is given back first.
    returns: bool,
    /// A question is on the line.
    asked: bool,
    /// The next one is not asked before.
    from: Time,
    failures: u32,
}

impl Again {
    pub fn is_on(&self) -> bool {
        self.returns || self.asked || !self.waits.is_empty()
    }

    /// What is booked is not known to be given back yet.
    pub fn returns(&self) -> bool {
        self.returns
    }
}

impl Scene<'_> {
    /// Nothing that is booked on a key starts before it is booked anew.
    pub fn book_all_again(&mut self, key: &Arc<Key>) {
        let now = self.now;
        let line = self.line(key);
        let booked = line.booked_or_moving();
        if booked.is_empty() {
            return;
        }
        (line.again.returns, line.again.from) = (true, now);
        // Who has asked by now comes after those.
        for serial in line.take_waiting() {
            self.gathers(key, serial);
        }
        booked.iter().for_each(|serial| self.hold_back(*serial));
        self.go_on(key);
    }

    /// A booked wait does not start before more is known. If that takes until its deadline, it ends.
    pub fn hold_back(&mut self, serial: u64) {
        let wait = self.shard.waits.get_mut(&serial).expect("it is booked");
        wait.held_back = true;
        let deadline = wait.deadline;
        self.arm(serial, deadline);
    }

    /// The deadline of a wait has come that is held back.
    pub fn ends_held_back(&mut self, serial: u64) {
        if self.shard.waits[&serial].hold.is_some() {
            return self.ends_booked(serial);
        }
        self.leaves_booking(serial);
        self.last_chance(serial);
    }

    /// A booking of rates is given back that has not started. One that is being moved is when that is known.
    fn leaves_booking(&mut self, serial: u64) {
        let wait = self.shard.waits.get_mut(&serial).expect("it is booked");
        wait.held_back = false;
        let key = wait.key.clone();
        let stage = std::mem::replace(&mut wait.stage, Stage::Again);
        let line = self.line(&key);
        line.booked.remove(&serial);
        line.moving.remove(&serial);
        if let Stage::Booked(was) = stage
            && was.booking != *UNKNOWN
        {
            self.enqueue(&key, vec![Op::Return(was.booking)], Then::Nobody);
        }
    }

    /// Who comes while others are booked anew comes after them. False: he need not.
    pub fn joins(&mut self, key: &Arc<Key>, serial: u64, patience: Option<Span>) -> bool {
        let on = |line: &super::lines::Line| line.again.is_on();
        if patience == Some(Span::ZERO) || !self.shard.lines.get(key).is_some_and(on) {
            return false;
        }
        self.gathers(key, serial);
        self.go_on(key);
        true
    }

    /// It is to be booked with others. At its deadline it is asked for by itself.
    fn gathers(&mut self, key: &Arc<Key>, serial: u64) {
        let wait = self.shard.waits.get_mut(&serial).expect("it waits");
        wait.stage = Stage::Again;
        let deadline = wait.deadline;
        self.line(key).again.waits.insert(serial);
        self.arm(serial, deadline);
    }

    /// Its deadline has come: it hears whether it is admitted now, and why not.
    pub fn last_chance(&mut self, serial: u64) {
        self.arm(serial, None);
        let wait = self.shard.waits.get_mut(&serial).expect("it waits");
        wait.stage = Stage::Asked;
        let (key, weights) = (wait.key.clone(), wait.weights.clone());
        let line = self.line(&key);
        line.again.waits.remove(&serial);
        if line.is_behind_others(serial) {
            return self.enqueue(&key, vec![Op::Peek(weights)], Then::Why(serial));
        }
        let now = Op::Book {
            wait: Some(Span::ZERO),
            deadline: None,
            weights,
            patient: true,
        };
        self.enqueue(&key, vec![now], Then::Acquire(serial));
    }

    /// Redis has said why a wait was not admitted that others were before, or has not.
    pub fn hears_why(&mut self, serial: u64, heard: Result<Answer, Failure>) {
        if !self.shard.waits.contains_key(&serial) {
            return;
        }
        match heard {
            Ok(answer) => self.is_refused(serial, &answer),
            Err(failure) => self.fail(serial, &failure),
        }
    }

    fn is_refused(&mut self, serial: u64, answer: &Answer) {
        let wait = &self.shard.waits[&serial];
        let waited_us = match wait.waited {
            true => self.now.since(wait.since).0,
            false => 0,
        };
        let why = refusal(answer);
        let refusal = Decision {
            waited_us,
            // It might pass now that nobody is before it.
            retry_after_us: why
                .retry_after_us
                .max(u64::from(why.status == Status::Denied)),
            ..why
        };
        self.count_refusal(refusal.status);
        // Nothing is lost if nobody hears of it.
        let _ = self.complete(serial, refusal);
    }

    /// A wait was booked before a penalty or a reset that is heard of now.
    pub fn book_again(&mut self, key: &Arc<Key>, serial: u64) {
        self.hold_back(serial);
        self.line(key).again.returns = true;
        self.go_on(key);
    }

    /// Redis lets nobody book for so long.
    pub fn comes_later(&mut self, key: &Arc<Key>, serial: u64, pause: Span) {
        self.gathers(key, serial);
        let from = self.now + pause;
        let again = &mut self.line(key).again;
        again.from = again.from.max(from);
        self.go_on(key);
    }

    fn go_on(&mut self, key: &Arc<Key>) {
        if let Some(at) = self.ask_for_more(key) {
            self.see_booked_by(key, at);
        }
    }

    /// Asks what comes next, or answers when it will.
    pub fn ask_for_more(&mut self, key: &Arc<Key>) -> Option<Time> {
        let now = self.now;
        let again = &mut self.line(key).again;
        if again.asked || !again.is_on() {
            return None;
        }
        if again.from > now {
            return Some(again.from);
        }
        again.asked = true;
        self.enqueue_first(key, vec![Op::Look], Then::Again);
        None
    }

    /// The question that comes next, as it is when that is sent.
    pub fn with_more(&mut self, item: Item) -> Item {
        let Item {
            mut key, mut ops, ..
        } = item;
        let line = self.line(&key);
        let then = match line.again.returns {
            true => Then::Returned(self.returns(&key)),
            false => Then::Rebooked(self.rebooks(&key)),
        };
        match &then {
            Then::Returned(waits) if !waits.is_empty() => {
                ops.clear();
                key = self.shard.waits[&waits[0].0].key.clone();
                let back = |(_, was): &(u64, Answer)| Op::Return(was.booking.clone());
                ops.extend(waits.iter().map(back));
            }
            Then::Rebooked(serials) if !serials.is_empty() => {
                ops.clear();
                for serial in serials {
                    let wait = &self.shard.waits[serial];
                    ops.push(Op::Book {
                        wait: None,
                        deadline: wait.deadline,
                        weights: wait.weights.clone(),
                        patient: true,
                    });
                }
            }
            _ => {}
        }
        Item {
            key,
            ops,
            then,
            ..item
        }
    }

    /// The last of what is booked, to be given back: then each gives back all that it took.
    fn returns(&mut self, key: &Arc<Key>) -> Vec<(u64, Answer)> {
        let mut returned = Vec::new();
        while returned.len() < MOST {
            let Some(serial) = self.line(key).booked.pop_last() else {
                break;
            };
            let wait = self.shard.waits.get_mut(&serial).expect("it is booked");
            match std::mem::replace(&mut wait.stage, Stage::Again) {
                Stage::Booked(was) if was.booking != *UNKNOWN => {
                    wait.stage = Stage::Returning;
                    self.hold_back(serial);
                    returned.push((serial, was));
                }
                _ => self.gathers(key, serial),
            }
        }
        returned
    }

    /// The first of those who are to be booked.
    fn rebooks(&mut self, key: &Arc<Key>) -> Vec<u64> {
        let waits = &mut self.line(key).again.waits;
        let serials: Vec<u64> = (0..MOST).map_while(|_| waits.pop_first()).collect();
        for serial in &serials {
            self.shard.waits.get_mut(serial).expect("it waits").stage = Stage::Asked;
            self.arm(*serial, None);
        }
        serials
    }

    /// Bookings were given back, or were not.
    pub fn returned(&mut self, key: &Arc<Key>, returned: Vec<(u64, Answer)>, heard: &Heard) {
        let there = heard.as_ref().is_err_and(Failure::not_executed);
        for (serial, was) in returned {
            match self.shard.waits.get_mut(&serial) {
                None if there => self.give_back(key, was),
                None => {}
                Some(wait) if there => {
                    wait.stage = Stage::Booked(was);
                    self.line(key).booked.insert(serial);
                    self.hold_back(serial);
                }
                Some(_) => self.gathers(key, serial),
            }
        }
        let line = self.line(key);
        line.again.returns = !line.booked.is_empty();
        self.goes_on(key, heard);
    }

    /// Waits were booked anew, or were not.
    pub fn rebooked(&mut self, key: &Arc<Key>, serials: Vec<u64>, trip: &Trip, heard: &Heard) {
        let mut not_before = None;
        for (i, serial) in serials.into_iter().enumerate() {
            let answer = heard.as_ref().ok().map(|answers| &answers[i]);
            let Some(wait) = self.shard.waits.get_mut(&serial) else {
                // It was cancelled meanwhile.
                answer
                    .into_iter()
                    .for_each(|answer| self.give_back(key, answer.clone()));
                continue;
            };
            match answer {
                Some(answer) if answer.outcome != Outcome::Queued => {
                    wait.held_back = false;
                    self.is_rebooked(serial, trip, answer.clone());
                }
                answer => {
                    not_before = not_before.max(answer.map(|answer| answer.retry_after));
                    self.gathers(key, serial);
                }
            }
        }
        if let Some(pause) = not_before {
            let at = self.now + pause;
            self.line(key).again.from = at;
        }
        self.goes_on(key, heard);
    }

    pub fn is_rebooked(&mut self, serial: u64, trip: &Trip, answer: Answer) {
        match answer.outcome {
            Outcome::Done if answer.retry_after > Span::ZERO => self.book(serial, trip, answer),
            Outcome::Done => self.grant(serial, answer),
            _ => self.is_refused(serial, &answer),
        }
    }

    fn goes_on(&mut self, key: &Arc<Key>, heard: &Heard) {
        let at = self.now + AGAIN;
        let again = &mut self.line(key).again;
        again.asked = false;
        match heard {
            Ok(_) => again.failures = 0,
            Err(failure) => {
                (again.failures, again.from) = (again.failures + 1, at);
                let over = again.failures == TRIES;
                self.gives_up(key, over, failure);
            }
        }
        self.go_on(key);
        self.tidy(key);
    }

    /// Those who cannot be booked end as whoever is not answered.
    fn gives_up(&mut self, key: &Arc<Key>, over: bool, failure: &Failure) {
        let for_ever = matches!(
            failure,
            Failure::WrongType { .. } | Failure::Permanent { .. }
        );
        let here = failure.not_executed() && self.redis.policy(&key.named) == FailurePolicy::Local;
        if over || for_ever || here {
            let line = self.line(key);
            line.again.failures = 0;
            let mut waits = std::mem::take(&mut line.again.waits);
            if std::mem::take(&mut line.again.returns) {
                let booked = line.booked.clone();
                // The last first: then each gives back all that it took.
                let last_first = booked.iter().rev();
                last_first.for_each(|serial| self.leaves_booking(*serial));
                waits.extend(booked);
            }
            waits.iter().for_each(|serial| self.fail(*serial, failure));
        }
    }
}
