//! What this process has booked on a key is booked anew in one call, so that nobody comes in between: with a
//! penalty or a reset, and to be [`sooner`](super::sooner).
use std::sync::Arc;

use super::lines::{self, Heard, Item};
use super::ops::{Stage, refusal};
use super::question::Op;
use super::wire::{Answer, Outcome};
use super::{Key, Scene};
use crate::decision::Decision;
use crate::limit::time::Time;

/// A wait whose booking is being moved, and where it was.
pub(super) struct Moved {
    pub serial: u64,
    pub was: Answer,
    /// When it was due, if it is not to start before there is an answer.
    pub due: Option<Time>,
    /// What it has of a semaphore.
    pub permit: Option<u64>,
}

/// A booking that is not known: it may have been made anew. Nothing comes of it.
pub(super) const UNKNOWN: &str = "-";

/// What became of a booking.
enum Then {
    Stays(Answer),
    Comes(Answer),
    Refused(Answer),
}

impl Scene<'_> {
    /// A change of the key becomes one that also moves what is booked to after it.
    pub fn with_moves(&mut self, item: Item) -> Item {
        if matches!(item.then, lines::Then::Sooner) {
            return self.with_sooner(item);
        }
        let Item { key, mut ops, .. } = item;
        let slot = match item.then {
            // On a semaphore they are asked for anew, by `changed`.
            lines::Then::Change(slot) if !key.named.limits.holds() => slot,
            then => {
                return Item {
                    key,
                    ops,
                    then,
                    ..item
                };
            }
        };
        let serials: Vec<u64> = self.line(&key).booked.iter().copied().collect();
        for serial in serials {
            self.wait_due(serial);
        }
        let serials = std::mem::take(&mut self.line(&key).booked);
        let mut moved = Vec::with_capacity(serials.len());
        let mut again = Vec::with_capacity(serials.len());
        for serial in serials {
            let wait = self.shard.waits.get_mut(&serial).expect("it is booked");
            let Stage::Booked(was) = std::mem::replace(&mut wait.stage, Stage::Asked) else {
                unreachable!("its line says that it is booked");
            };
            again.push(Op::Book {
                wait: wait.deadline.map(|deadline| deadline.since(self.now)),
                weights: wait.weights.clone(),
            });
            let due = wait.due;
            // Its old time means nothing any more.
            self.arm(serial, None);
            moved.push(Moved {
                serial,
                was,
                due,
                permit: None,
            });
        }
        if ops != [Op::Reset] {
            // The last first: then each gives back all that it took.
            let unbook = |one: &Moved| Op::Unbook(one.was.booking.clone());
            ops.splice(0..0, moved.iter().rev().map(unbook));
        }
        ops.append(&mut again);
        let then = lines::Then::Moved(Some(slot), moved);
        Item {
            key,
            ops,
            then,
            ..item
        }
    }

    /// The answers to a move: those of the waits come last.
    pub fn moved(&mut self, key: &Arc<Key>, moved: Vec<Moved>, heard: &Heard) {
        self.line(key).moving = 0;
        let heard = heard.as_ref();
        let answers = heard.map(|answers| &answers[answers.len() - moved.len()..]);
        for (i, one) in moved.into_iter().enumerate() {
            let then = match answers {
                Err(failure) if failure.not_executed() => Then::Stays(one.was),
                Err(_) => Then::Stays(Answer {
                    booking: UNKNOWN.into(),
                    ..one.was
                }),
                Ok(answers) => match &answers[i] {
                    answer if answer.outcome == Outcome::Stale => Then::Stays(one.was),
                    answer if answer.outcome == Outcome::Done => Then::Comes(answer.clone()),
                    answer => Then::Refused(answer.clone()),
                },
            };
            if let (Some(held), Then::Stays(answer) | Then::Comes(answer)) = (
                one.permit
                    .and_then(|permit| self.shard.held.get_mut(&permit)),
                &then,
            ) {
                held.booking = answer.booking.clone();
            }
            if let Some(permit) = self.shard.started.remove(&one.serial) {
                if let Then::Stays(answer) | Then::Comes(answer) = then {
                    self.has_booked(permit, answer.booking);
                }
            } else if self.shard.waits.contains_key(&one.serial) {
                self.is_moved_to(one.serial, one.due, then);
            } else if let (None, Then::Stays(answer) | Then::Comes(answer)) = (one.permit, then) {
                // It was cancelled meanwhile.
                self.give_back(key, answer);
            }
        }
        self.tidy(key);
    }

    fn is_moved_to(&mut self, serial: u64, was_due: Option<Time>, then: Then) {
        let wait = self.shard.waits.get_mut(&serial).expect("it waits");
        let key = wait.key.clone();
        match then {
            Then::Stays(answer) => {
                wait.stage = Stage::Booked(answer);
                let due = was_due.or(wait.due);
                self.line(&key).booked.insert(serial);
                self.arm(serial, due);
            }
            Then::Comes(answer) => self.book(serial, answer),
            Then::Refused(answer) => {
                let waited_us = self.now.since(wait.since).0;
                if let Some(permit) = wait.hold.as_mut().and_then(|hold| hold.held.take()) {
                    self.unhold(permit);
                }
                let refusal = Decision {
                    waited_us,
                    ..refusal(&answer)
                };
                self.count_refusal(refusal.status);
                let _ = self.complete(serial, refusal);
            }
        }
    }
}
