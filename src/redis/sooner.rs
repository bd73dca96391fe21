//! What is booked comes earlier when something is given back: by a settle to less, a wait or a slot that is
//! cancelled, limits that are raised. It is taken back and booked again in one call, in order, as far as
//! nobody else has booked behind it; of what others give back a note to all tells. And a penalty whose note
//! was lost is looked for before a booked time comes.
use std::sync::Arc;

use super::heartbeat::due_by;
use super::lines::{Item, Line, Then};
use super::ops::Stage;
use super::question::Op;
use super::rebook::Moved;
use super::{Key, Named, Redis, Scene};
use crate::limit::time::{Span, Time};

/// On one key they are moved no more often than this, and of many that each take some time no more often
/// than this for each of them.
const PAUSE: Span = Span::millis(100);
const PAUSE_EACH: Span = Span::millis(1);
/// More than this are left where they are.
const MOST: usize = 1000;
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

impl Scene<'_> {
    /// Something was given back on a key.
    pub fn sooner(&mut self, key: &Arc<Key>) {
        let (now, at_any_time) = (self.now, self.redis.tells_time());
        let Some(line) = self.shard.lines.get_mut(key) else {
            return;
        };
        let count = line.booked.len() + line.moving;
        // Of who asks now it is not known yet whether he waits.
        line.gave_back = count == 0;
        if count == 0 || count > MOST || line.sooner != Sooner::No {
            return;
        }
        let at = line.moved_at + PAUSE.max(Span(PAUSE_EACH.0 * count as u64));
        if at_any_time || at <= now {
            self.ask_sooner(key);
        } else {
            line.sooner = Sooner::Planned;
            self.see_booked_by(key, at);
        }
    }

    fn ask_sooner(&mut self, key: &Arc<Key>) {
        self.line(key).sooner = Sooner::Asked;
        self.enqueue(key, vec![Op::Look], Then::Sooner);
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
            let wait = self.shard.waits.get_mut(&serial).expect("it is booked");
            if wait.due.is_none_or(|due| due < soonest) {
                continue;
            }
            let Stage::Booked(was) = &wait.stage else {
                unreachable!("its line says that it is booked");
            };
            let was = was.clone();
            wait.stage = Stage::Moving(was.clone());
            let permit = wait.hold.as_ref().and_then(|hold| hold.held);
            moved.push(Moved {
                serial,
                was,
                due: None,
                permit,
            });
        }
        let line = self.line(&key);
        for one in &moved {
            line.booked.remove(&one.serial);
        }
        (line.sooner, line.moved_at, line.moving) = (Sooner::No, now, moved.len());
        moved.sort_by_key(|one| (one.was.at, one.serial));
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
            then: Then::Moved(None, moved),
            ..item
        }
    }

    fn booked_on(&mut self, key: &Arc<Key>) -> Vec<u64> {
        self.line(key).booked.iter().copied().collect()
    }

    /// What is booked on a key is looked at by then.
    fn see_booked_by(&mut self, key: &Arc<Key>, at: Time) {
        let next = self.shard.looks.entry(key.clone()).or_insert(at);
        *next = at.min(*next);
        let next = *next;
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
        for key in due_by(&self.shard.looks, self.now) {
            match self.see_booked(&key) {
                Some(next) => drop(self.shard.looks.insert(key, next)),
                None => drop(self.shard.looks.remove(&key)),
            }
        }
        self.shard.looks.values().min().copied()
    }

    /// Answers when to look again.
    fn see_booked(&mut self, key: &Arc<Key>) -> Option<Time> {
        let now = self.now;
        if self.shard.lines.get(key)?.sooner == Sooner::Planned {
            self.ask_sooner(key);
        }
        let line = self.shard.lines.get(key)?;
        if line.moving > 0 {
            return Some(now + PAUSE);
        }
        let first = self.shard.waits[line.booked.first()?].due?;
        if self.redis.tells_time() {
            return None;
        }
        if first > now + LEAD {
            return Some(first - LEAD);
        }
        self.urge(key, vec![Op::Look], Then::Look);
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
            self.ask_sooner(&key);
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
