//! One shard with its lock held: where everything that concerns its keys is decided.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Memory;
use super::held::Held;
use super::keys::{Key, Keys};
use super::leave::{CALLS, Group, Rest};
use super::line::Told;
use super::paced::Paced;
use super::pieces;
use super::spent::{OfBucket, Spent};
use super::wait::Wait;
use crate::callback::Callbacks;
use crate::decision::Status;
use crate::limit::booking::More;
use crate::limit::time::Time;
use crate::op::Wakes;
use crate::pages::{Few, Pages};
use crate::permit::Recent;
use crate::stats::Stripe;

/// A part of the keys and everything about them, under one lock.
pub(super) struct Shard {
    pub keys: Keys,
    pub book: Book,
}

/// Permits and waits of a shard's keys. What grows with their number is in pages: a hash table or a vector
/// would stand still at times to move all that it holds.
pub(super) struct Book {
    pub index: usize,
    /// Semaphore permits, by serial.
    pub held: Pages<u64, Held>,
    /// What they took of limits beyond the first.
    pub more: Pages<u64, More>,
    /// Of semaphore permits and paced ones.
    pub next_serial: u64,
    /// Permits that need not come back.
    pub recent: Recent<Spent>,
    /// The same of the busiest path.
    pub buckets: Recent<OfBucket>,
    /// Those whose callers sleep to a time ahead.
    pub paced: Paced,
    /// Permits that resets have ended and whose records are still to be dropped.
    pub ended: Vec<Few<(Time, u64)>>,
    /// Paced calls of lines that resets have ended, to be dropped as well.
    pub untold: Vec<BTreeMap<u64, Told>>,
    /// Operations under way, by serial.
    pub waits: Pages<u64, Wait>,
    /// The same by what they end together by.
    pub groups: Pages<(Group, u64)>,
    /// Waits that are being ended, by the operation before which they came.
    pub leaving: BTreeMap<u64, Group>,
    /// Since keys that are as new were looked for; see [`super::leave::CALLS`].
    pub calls: u32,
    /// The latest epoch of a key; see [`super::keys::Live`].
    pub epoch: u64,
}

/// A locked shard at one instant.
pub(super) struct Scene<'a> {
    pub memory: &'a Memory,
    pub book: &'a mut Book,
    pub now: Time,
    pub wakes: &'a mut Wakes,
    pub stats: &'a Stripe,
    pub rest: BTreeSet<Rest>,
}

/// Wakes whom something was delivered to, also when a bug unwinds: they were told, and are told once. To be
/// made before the lock is taken, so that it is released by then.
struct Waking<'a> {
    wakes: Wakes,
    callbacks: &'a Callbacks,
}

impl Drop for Waking<'_> {
    fn drop(&mut self) {
        let wakes = std::mem::take(&mut self.wakes);
        let wake = AssertUnwindSafe(|| wakes.wake(self.callbacks));
        match std::thread::panicking() {
            true => drop(catch_unwind(wake)),
            false => wake.0(),
        }
    }
}

impl Shard {
    /// `first`: where serials start.
    pub fn new(index: usize, first: u64) -> Shard {
        Shard {
            keys: Keys::new(),
            book: Book {
                index,
                held: Pages::default(),
                more: Pages::default(),
                next_serial: first,
                recent: Recent::new(first),
                buckets: Recent::new(first),
                paced: Paced::default(),
                ended: Vec::new(),
                untold: Vec::new(),
                waits: Pages::default(),
                groups: Pages::default(),
                leaving: BTreeMap::new(),
                calls: 0,
                epoch: 0,
            },
        }
    }
}

/// Records of ended permits that one call drops, and of paced ones.
const SWEPT: usize = 32;

impl Memory {
    /// Acts on a shard at the present time, then wakes whom that concerns; then does what is left, with the
    /// shard free for others in between. And keeps house: each call does a little.
    pub(super) fn at<R>(
        &self,
        shard: usize,
        act: impl FnOnce(&mut Keys, &mut Scene<'_>) -> R,
    ) -> R {
        self.due(shard, |keys, scene| {
            scene.keep_house();
            act(keys, scene)
        })
    }

    /// [`Memory::at`] for what falls due. Keeps no house: the timer's thread could free in one go what others
    /// have allocated one after another, and leave them with the pieces.
    pub(super) fn due<R>(
        &self,
        shard: usize,
        act: impl FnOnce(&mut Keys, &mut Scene<'_>) -> R,
    ) -> R {
        let (result, mut rest) = self.once(shard, act);
        while let Some(next) = rest.pop_first() {
            rest.extend(self.go_on(shard, next));
        }
        result
    }

    pub(super) fn once<R>(
        &self,
        shard: usize,
        act: impl FnOnce(&mut Keys, &mut Scene<'_>) -> R,
    ) -> (R, BTreeSet<Rest>) {
        let mut waking = Waking {
            wakes: Wakes::default(),
            callbacks: &self.callbacks,
        };
        let mut guard = self.shards[shard].lock();
        let Shard { keys, book } = &mut *guard;
        let mut scene = Scene {
            memory: self,
            book,
            // Read under the lock, so that a key never sees time run backwards.
            now: self.clock.now(),
            wakes: &mut waking.wakes,
            stats: self.stats.stripe(shard),
            rest: BTreeSet::new(),
        };
        let result = act(keys, &mut scene);
        (result, scene.rest)
    }
}

impl Scene<'_> {
    /// Nothing is begun once the backend was shut down. Asked under the lock: whoever is let through is
    /// still seen by the shutdown.
    pub fn open(&self) -> Result<(), Status> {
        if self.memory.is_closed() {
            Err(Status::Closed)
        } else {
            Ok(())
        }
    }

    fn keep_house(&mut self) {
        self.drop_ended(SWEPT);
        self.drop_untold(SWEPT);
        self.book.paced.drop_ended(SWEPT);
        // What the call itself frees, about.
        pieces::freed(1);
        self.book.calls += 1;
        if self.book.calls >= CALLS {
            self.book.calls = 0;
            self.rest.insert(Rest::Keys);
        }
    }

    pub fn insert(&self, keys: &mut Keys, key: Key) {
        let forgotten = keys.insert(key, self.now, &self.memory.names);
        self.stats.keys.add(1);
        self.stats.keys.sub(forgotten as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    use crate::decision::Decision;

    use crate::op::{Relay, Sink};

    #[test]
    fn who_was_told_before_a_bug_unwound_is_woken() {
        let memory = Memory::virtually(1);
        let (tell, told) = mpsc::channel();
        let then = {
            let memory = memory.clone();
            move |decision: Decision| {
                memory.at(3, |_, _| ());
                tell.send(decision.status).unwrap();
            }
        };
        let bug = catch_unwind(AssertUnwindSafe(|| {
            memory.at(3, |_, scene| {
                let relay = Relay {
                    then: Box::new(then),
                    op: 1,
                    queue: None,
                };
                scene.deliver(Sink::Relay(relay), Decision::of(Status::Denied));
                panic!("a bug");
            })
        }));
        assert!(bug.is_err());
        assert_eq!(told.try_recv(), Ok(Status::Denied));
    }
}
