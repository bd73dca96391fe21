//! The keys of one shard: what is stored of each, and when one can be forgotten.
use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashTable;

use super::names::{KeyId, Named};
use crate::limit::decide::KeyState;
use crate::limit::time::Time;

/// What is known of one key.
pub(super) struct Key {
    pub id: KeyId,
    /// What it was last decided under.
    pub named: Arc<Named>,
    pub state: KeyState,
    /// Who holds and who waits; keys that never had either are spared the room.
    pub live: Option<Box<Live>>,
}

/// Who holds and who waits. Ordered by arrival, so that leaving from the middle is cheap.
#[derive(Default)]
pub(super) struct Live {
    /// Semaphore permits held.
    pub permits: u64,
    /// Permits of another epoch were ended by a reset.
    pub epoch: u64,
    /// Fencing number of the latest grant.
    pub fence: u64,
    /// When permits end that are not renewed: (time, permit's serial).
    pub leases: BTreeSet<(Time, u64)>,
    /// Waits that nothing was taken for yet, by serial of their operation.
    pub queue: BTreeSet<u64>,
    /// Waits whose time is booked but not yet come.
    pub booked: BTreeSet<u64>,
}

impl Key {
    pub fn fresh(id: KeyId, named: Arc<Named>, now: Time) -> Key {
        let state = named.limits.fresh(now);
        Key {
            id,
            named,
            state,
            live: None,
        }
    }

    /// Nothing would be different if the key had never been used.
    fn is_forgettable(&self, now: Time) -> bool {
        let idle = self.live.as_ref().is_none_or(|live| live.is_idle(now));
        idle && self.named.limits.fresh_at(&self.state) <= now
    }

    pub fn has_queue(&self) -> bool {
        self.live
            .as_ref()
            .is_some_and(|live| !live.queue.is_empty())
    }

    /// `epoch`: one that was never used in this shard.
    pub fn live(&mut self, epoch: &mut u64) -> &mut Live {
        self.live.get_or_insert_with(|| {
            *epoch += 1;
            Box::new(Live {
                epoch: *epoch,
                ..Live::default()
            })
        })
    }
}

impl Live {
    fn is_idle(&self, now: Time) -> bool {
        let unused = self.permits == 0 && self.queue.is_empty() && self.booked.is_empty();
        // A fencing number that ran ahead of the clock must not be handed out again.
        unused && self.fence <= now.0
    }

    /// Numbers the next grant. It also grows over the key being forgotten, because the clock does.
    pub fn next_fence(&mut self, now: Time) -> u64 {
        self.fence = now.0.max(self.fence + 1);
        self.fence
    }
}

/// Sixteen small tables rather than one: growing one is short.
pub(super) struct Keys {
    tables: [HashTable<Key>; Keys::TABLES],
}

impl Keys {
    const TABLES: usize = 16;

    pub fn new() -> Keys {
        Keys {
            tables: std::array::from_fn(|_| HashTable::new()),
        }
    }

    pub fn find(&mut self, id: KeyId) -> Option<&mut Key> {
        self.table(id).find_mut(id.hash(), |key| key.id == id)
    }

    /// Adds a key that is not there. Before its table would grow, keys that are as new are forgotten: the
    /// work is bounded by the table and paid for by the keys added since. Answers how many were forgotten.
    pub fn insert(&mut self, key: Key, now: Time) -> (&mut Key, usize) {
        let table = self.table(key.id);
        let mut forgotten = 0;
        if table.len() == table.capacity() {
            let before = table.len();
            table.retain(|key| !key.is_forgettable(now));
            forgotten = before - table.len();
            let rehash = |key: &Key| key.id.hash();
            if table.len() > table.capacity() / 2 {
                table.reserve(table.capacity() + 1 - table.len(), rehash);
            } else if table.len() < table.capacity() / 8 {
                table.shrink_to(2 * table.len(), rehash);
            }
        }
        let id = key.id;
        let slot = table
            .insert_unique(id.hash(), key, |key| key.id.hash())
            .into_mut();
        (slot, forgotten)
    }

    /// Forgets all. Answers how many there were, and how many permits were held on them.
    pub fn clear(&mut self) -> (u64, u64) {
        let old = std::mem::replace(self, Keys::new());
        let (mut keys, mut permits) = (0, 0);
        for key in old.tables.iter().flatten() {
            keys += 1;
            permits += key.live.as_ref().map_or(0, |live| live.permits);
        }
        (keys, permits)
    }

    fn table(&mut self, id: KeyId) -> &mut HashTable<Key> {
        &mut self.tables[id.table() % Keys::TABLES]
    }
}
