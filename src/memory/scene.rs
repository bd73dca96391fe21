//! One shard with its lock held: where everything that concerns its keys is decided.

use std::collections::{BTreeMap, BTreeSet};

use super::Memory;
use super::held::Held;
use super::keys::{Key, Keys};
use super::paced::Paced;
use super::spent::Spent;
use super::wait::Wait;
use crate::decision::Status;
use crate::limit::time::Time;
use crate::op::Wakes;
use crate::permit::Recent;
use crate::stats::Stripe;

/// A part of the keys and everything about them, under one lock.
pub(super) struct Shard {
    pub keys: Keys,
    pub book: Book,
}

/// Permits and waits of a shard's keys. What grows with their number is a tree: a hash table or a vector
/// would stand still at times to move all that it holds.
pub(super) struct Book {
    pub index: usize,
    /// Semaphore permits, by serial.
    pub held: BTreeMap<u64, Box<Held>>,
    /// Of semaphore permits and paced ones.
    pub next_serial: u64,
    /// Permits that need not come back.
    pub recent: Recent<Spent>,
    /// Those whose callers sleep to a time ahead.
    pub paced: Paced,
    /// Permits that resets have ended and whose records are still to be dropped.
    pub ended: Vec<BTreeSet<(Time, u64)>>,
    /// Operations under way, by serial.
    pub waits: BTreeMap<u64, Box<Wait>>,
    /// The same by what they are cancelled by: `user_data`, serial.
    pub tags: BTreeSet<(u64, u64)>,
    /// The latest epoch of a key; see [`super::keys::Live`].
    pub epoch: u64,
}

/// A locked shard at one instant.
pub(super) struct Scene<'a> {
    pub memory: &'a Memory,
    pub book: &'a mut Book,
    pub now: Time,
    pub wakes: Wakes,
    pub stats: &'a Stripe,
}

impl Shard {
    /// `first`: where serials start.
    pub fn new(index: usize, first: u64) -> Shard {
        Shard {
            keys: Keys::new(),
            book: Book {
                index,
                held: BTreeMap::new(),
                next_serial: first,
                recent: Recent::new(first),
                paced: Paced::default(),
                ended: Vec::new(),
                waits: BTreeMap::new(),
                tags: BTreeSet::new(),
                epoch: 0,
            },
        }
    }
}

/// Records of ended permits that one call drops.
const SWEPT: usize = 32;

impl Memory {
    /// Acts on a shard at the present time, then wakes whom that concerns.
    pub(super) fn at<R>(
        &self,
        shard: usize,
        act: impl FnOnce(&mut Keys, &mut Scene<'_>) -> R,
    ) -> R {
        let mut guard = self.shards[shard].lock();
        let Shard { keys, book } = &mut *guard;
        let mut scene = Scene {
            memory: self,
            book,
            // Read under the lock, so that a key never sees time run backwards.
            now: self.clock.now(),
            wakes: Wakes::default(),
            stats: self.stats.stripe(shard),
        };
        scene.sweep(SWEPT);
        let result = act(keys, &mut scene);
        let wakes = scene.wakes;
        drop(guard);
        wakes.wake(&self.callbacks);
        result
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

    pub fn insert(&self, keys: &mut Keys, key: Key) {
        let forgotten = keys.insert(key, self.now, &self.memory.names);
        self.stats.keys.add(1);
        self.stats.keys.sub(forgotten as u64);
    }
}
