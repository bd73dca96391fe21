//! A penalty or a reset: what this process has booked on the key is booked anew in the same call, so
//! that nobody comes in between.
use std::sync::Arc;

use super::lines::{Heard, Item, Then};
use super::ops::{Stage, refusal};
use super::question::Op;
use super::wire::{Answer, Outcome};
use super::{Key, Scene};
use crate::decision::Decision;
use crate::limit::time::Time;

/// A wait whose booking is being moved, and where it was.
pub(super) struct Moved {
    serial: u64,
    was: Answer,
    due: Option<Time>,
}

impl Scene<'_> {
    /// A change of the key becomes one that also moves what is booked to after it.
    pub fn with_moves(&mut self, item: Item) -> Item {
        let Item { key, mut ops, .. } = item;
        let slot = match item.then {
            // On a semaphore they are asked for anew, by `changed`.
            Then::Change(slot) if !key.named.limits.holds() => slot,
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
            moved.push(Moved { serial, was, due });
        }
        if ops != [Op::Reset] {
            // The last first: then each gives back all that it took.
            let unbook = |one: &Moved| Op::Unbook(one.was.booking.clone());
            ops.splice(0..0, moved.iter().rev().map(unbook));
        }
        ops.append(&mut again);
        let then = Then::Moved(slot, moved);
        Item {
            key,
            ops,
            then,
            ..item
        }
    }

    /// The answers to a move: those of the waits come last.
    pub fn moved(&mut self, key: &Arc<Key>, moved: Vec<Moved>, heard: &Heard) {
        let answers = match heard {
            Ok(answers) => Some(&answers[answers.len() - moved.len()..]),
            Err(_) => None,
        };
        for (i, one) in moved.into_iter().enumerate() {
            let answer = answers.map(|answers| answers[i].clone());
            let Some(wait) = self.shard.waits.get_mut(&one.serial) else {
                // It was cancelled meanwhile.
                self.give_back(key, answer.unwrap_or(one.was));
                continue;
            };
            match answer {
                None => {
                    wait.stage = Stage::Booked(one.was);
                    self.line(key).booked.insert(one.serial);
                    self.arm(one.serial, one.due);
                }
                Some(answer) if answer.outcome == Outcome::Done => self.book(one.serial, answer),
                Some(answer) => {
                    let waited_us = self.now.since(wait.since).0;
                    let refusal = Decision {
                        waited_us,
                        ..refusal(&answer)
                    };
                    self.count_refusal(refusal.status);
                    let _ = self.complete(one.serial, refusal);
                }
            }
        }
        self.tidy(key);
    }
}
