//! What is booked comes earlier when something is given back: by a settle to less, a wait or a slot that is
//! cancelled, limits that are raised. It is taken back and booked again in one call, in order, as far as
//! nobody else has booked behind it; of what others give back a note to all tells. And a penalty whose note
//! was lost is looked for before a booked time comes.
use std::sync::Arc;

use super::flight::Trip;
use super::lines::{self, Heard, Item, Line};
use super::ops::Stage;
use super::question::Op;
use super::rebook::UNKNOWN;
use super::wire::{Answer, Outcome};
use super::{Key, Named, Redis, Scene};
use crate::limit::time::{Span, Time};

/// On one key they are moved no more often than this, and of many that each take some time no more often
/// than this for each of them.
const PAUSE: Span = Span::millis(100);
const PAUSE_EACH: Span = Span::millis(1);
/// Most in one call: of more, the last.
const MOST: usize = 256;
/// What starts sooner than this is left alone.
const AT_ONCE: Span = Span::millis(20);
/// So long before a booked time it is looked whether a penalty stands in its way, but on one key no more
/// often than this.
const LEAD: Span = Span::millis(500);
const EVERY: Span = Span::secs(1);

/// Whether what is booked on a key is to be moved.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Sooner {
    #[default]
    No,
    /// By the heartbeat, when the pause is over.
    Planned,
    /// The question is on its line.
    Asked,
}

/// A wait whose booking is being moved, and where it was.
pub(super) struct Moved {
    serial: u64,
    was: Answer,
    /// What it has of a semaphore.
    permit: Option<u64>,
}

/// What became of a booking.
enum Then {
    Stays(Answer),
    Comes(Answer),
    Refused(Answer),
}

impl Scene<'_> {
    /// Something was given back on a key.
    pub fn sooner(&mut self, key: &Arc<Key>) {
        let (now, at_any_time) = (self.now, self.redis.tells_time());
        let Some(line) = self.shard.lines.get_mut(key) else {
            return;
        };
        if line.again.is_on() {
            return;
        }
        let count = line.booked.len() + line.moving.len();
        // Of who asks now it is not known yet whether he waits; and what moves bookings is on the line already,
        // before what gives back.
        line.gave_back = count == 0 || line.sooner == Sooner::Asked;
        if count == 0 || line.sooner != Sooner::No {
            return;
        }
        let at = line.moved_at + PAUSE.max(Span(PAUSE_EACH.0 * count.min(MOST) as u64));
        if at_any_time || at <= now {
            self.ask_sooner(key);
        } else {
            line.sooner = Sooner::Planned;
            self.see_booked_by(key, at);
        }
    }

    fn ask_sooner(&mut self, key: &Arc<Key>) {
        self.line(key).sooner = Sooner::Asked;
        self.enqueue(key, vec![Op::Look], lines::Then::Sooner);
    }

    /// The question that moves what is booked, as it is when that is sent.
    pub fn with_sooner(&mut self, item: Item) -> Item {
        let Item { key, mut ops, .. } = item;
        let now = self.now;
        let soonest = match self.redis.tells_time() {
            true => now,
            false => now + AT_ONCE,
        };
        for serial in self.booked_on(&key) {
            self.wait_due(serial);
        }
        let mut moved = Vec::new();
        for serial in self.booked_on(&key) {
            let wait = &self.shard.waits[&serial];
            if wait.held_back || wait.due.is_none_or(|due| due < soonest) {
                continue;
            }
            let Stage::Booked(was) = &wait.stage else {
                unreachable!("its line says that it is booked");
            };
            moved.push(Moved {
                serial,
                was: was.clone(),
                permit: wait.hold.as_ref().and_then(|hold| hold.held),
            });
        }
        moved.sort_by_key(|one| (one.was.at, one.serial));
        moved.drain(..moved.len().saturating_sub(MOST));
        for one in &moved {
            let wait = self.shard.waits.get_mut(&one.serial);
            wait.expect("it is booked").stage = Stage::Moving(one.was.clone());
            let line = self.line(&key);
            line.booked.remove(&one.serial);
            line.moving.insert(one.serial);
        }
        let line = self.line(&key);
        (line.sooner, line.moved_at) = (Sooner::No, now);
        let lift = |one: &Moved| match one.permit {
            Some(permit) => Op::LiftHeld(self.shard.held[&permit].id),
            None => Op::Lift(one.was.booking.clone()),
        };
        ops.splice(0..0, moved.iter().rev().map(lift));
        let count = moved.len();
        ops.extend(moved.iter().enumerate().map(|(i, one)| {
            let wait = &self.shard.waits[&one.serial];
            Op::Rebook {
                nth: (count - i) as u64,
                wait: wait.deadline.map(|deadline| deadline.since(now)),
                weights: wait.weights.clone(),
            }
        }));
        Item {
            key,
            ops,
            then: lines::Then::Moved(moved),
            ..item
        }
    }

    /// The answers to a move: those of the waits come last.
    pub fn moved(&mut self, key: &Arc<Key>, moved: Vec<Moved>, trip: &Trip, heard: &Heard) {
        let heard = heard.as_ref();
        let answers = heard.map(|answers| &answers[answers.len() - moved.len()..]);
        for (i, one) in moved.into_iter().enumerate() {
            self.line(key).moving.remove(&one.serial);
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
            let wait = self.shard.waits.get(&one.serial);
            let moving = wait.is_some_and(|wait| matches!(wait.stage, Stage::Moving(_)));
            if let Some(permit) = self.shard.started.remove(&one.serial) {
                if let Then::Stays(answer) | Then::Comes(answer) = then {
                    self.has_booked(permit, answer.booking);
                }
            } else if moving {
                self.is_moved_to(key, one.serial, trip, then);
            } else if let (None, Then::Stays(answer) | Then::Comes(answer)) = (one.permit, then) {
                // It was cancelled meanwhile.
                self.give_back(key, answer);
            }
        }
        if self.line(key).gave_back {
            self.sooner(key);
        }
        self.tidy(key);
    }

    fn is_moved_to(&mut self, key: &Arc<Key>, serial: u64, trip: &Trip, then: Then) {
        match then {
            Then::Stays(answer) => {
                let wait = self.shard.waits.get_mut(&serial).expect("it waits");
                let due = wait.due;
                wait.stage = Stage::Booked(answer);
                self.line(key).booked.insert(serial);
                match self.is_of_before(key, trip) {
                    true => self.see_anew(key, serial),
                    false => self.arm(serial, due),
                }
            }
            Then::Comes(answer) => self.book(serial, trip, answer),
            Then::Refused(answer) => {
                let wait = self.shard.waits.get_mut(&serial).expect("it waits");
                if let Some(permit) = wait.hold.as_mut().and_then(|hold| hold.held.take()) {
                    self.unhold(permit);
                }
                self.is_rebooked(serial, trip, answer);
            }
        }
    }

    /// Whose turn it is when a slot has come: who came first has it, and leaves his own to the one it was booked
    /// for. That one may have got it because somebody before him gave it back.
    pub fn in_turn(&mut self, serial: u64) -> u64 {
        let wait = &self.shard.waits[&serial];
        let line = self.shard.lines.get(&wait.key);
        let Some(&first) = line.and_then(|line| line.booked.first()) else {
            return serial;
        };
        let other = &self.shard.waits[&first];
        let (Stage::Booked(slot), Stage::Booked(later), Some(due)) =
            (&wait.stage, &other.stage, other.due)
        else {
            return serial;
        };
        let equal = wait.hold.is_none() && other.hold.is_none() && wait.weights == other.weights;
        let in_time = wait.deadline.is_none_or(|deadline| due <= deadline);
        if first >= serial || other.held_back || !equal || !in_time {
            return serial;
        }
        let (slot, later) = (Stage::Booked(slot.clone()), Stage::Booked(later.clone()));
        for (one, stage) in [(first, slot), (serial, later)] {
            self.shard.waits.get_mut(&one).expect("it waits").stage = stage;
        }
        self.arm(serial, Some(due));
        first
    }

    fn booked_on(&mut self, key: &Arc<Key>) -> Vec<u64> {
        self.line(key).booked.iter().copied().collect()
    }

    /// What is booked on a key is looked at by then.
    pub fn see_booked_by(&mut self, key: &Arc<Key>, at: Time) {
        let next = self.shard.looks.set_by(key, at);
        self.beat_by(next);
    }

    /// A time is booked on a key: a penalty may come meanwhile, and something may have come back before.
    pub fn see_before(&mut self, key: &Arc<Key>, due: Time) {
        if self.line(key).gave_back {
            self.sooner(key);
        }
        if due > self.now + EVERY && !self.redis.tells_time() {
            self.see_booked_by(key, due - LEAD);
        }
    }

    /// Looks at what is booked, on the keys whose time has come. Answers when the next one's does.
    pub fn booked_due(&mut self) -> Option<Time> {
        for key in self.shard.looks.due(self.now) {
            match self.see_booked(&key) {
                Some(next) => self.shard.looks.set(key, next),
                None => self.shard.looks.remove(&key),
            }
        }
        self.shard.looks.first()
    }

    /// Answers when to look again.
    fn see_booked(&mut self, key: &Arc<Key>) -> Option<Time> {
        let now = self.now;
        if self.shard.lines.get(key)?.sooner == Sooner::Planned {
            self.ask_sooner(key);
        }
        if self.shard.lines.get(key)?.again.is_on() {
            return self.ask_for_more(key);
        }
        let line = self.shard.lines.get(key)?;
        if !line.moving.is_empty() {
            return Some(now + PAUSE);
        }
        let due = |serial: &u64| self.shard.waits[serial].due;
        let first = line.booked.iter().filter_map(due).min()?;
        if self.redis.tells_time() {
            return None;
        }
        if first > now + LEAD {
            return Some(first - LEAD);
        }
        self.urge(key, vec![Op::Look], lines::Then::Look);
        Some(now + EVERY)
    }

    /// What is booked or waits under other limits of the same name goes by these.
    fn adopt(&mut self, named: &Arc<Named>) {
        let of = |(key, line): (&Arc<Key>, &Line)| {
            let waits = !line.booked.is_empty() || !line.queued.is_empty();
            let theirs = key.named.number == named.number && waits;
            theirs.then(|| key.bytes.clone())
        };
        let meant: Vec<Box<[u8]>> = self.shard.lines.iter().filter_map(of).collect();
        for bytes in meant {
            let (_, key) = self.redis.key(named, &bytes);
            let many = self.line(&key).booked_or_moving().len() > MOST;
            match many && !named.limits.holds() {
                true => self.book_all_again(&key),
                false => self.ask_sooner(&key),
            }
            // What is in the queue may live shorter now.
            if !self.line(&key).queued.is_empty() {
                let beat = self.now + self.redis.dice.about(key.named.life().beat);
                let next = self.shard.queues.set_by(&key, beat);
                self.beat_by(next);
            }
        }
    }
}

impl Redis {
    /// A name has got a handle with other limits.
    pub(super) fn adopts(&self, named: &Arc<Named>) {
        for index in 0..self.shards.len() {
            self.at(index, |scene| scene.adopt(named));
        }
    }
}
