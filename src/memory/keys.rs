//! The keys of one shard, in tables, and when they are forgotten.
use std::sync::Arc;

use super::names::{KeyId, Named, Names};
use super::pieces;
use super::slot::Plain;
use super::table::{Entry, Table};
use crate::dense::Dense;
use crate::limit::time::Time;

pub(super) use super::key::{Key, Live};
pub(super) use super::slot::Slot;

/// Many small tables rather than one, and more the more keys there are, so that to grow is always short.
/// One after another is split in two, or two become one again (linear hashing): there is never more to move
/// at once than a table.
pub(super) struct Keys {
    tables: Vec<Table<Slot>>,
    /// Those of which more is known than fits into a table.
    whole: Dense<Key>,
    /// Up to where keys that are as new were looked for: table, place.
    swept: (usize, usize),
    /// And down to which whole key.
    seen: usize,
}

/// Keys of a table beyond which there are to be more tables.
const CROWDED: usize = 256;
/// Whole keys that are looked at before a table grows.
const WHOLE: usize = 64;
/// Keys of two tables up to which they become one.
const LONELY: usize = 96;

impl Keys {
    pub fn new() -> Keys {
        Keys {
            tables: vec![Table::new()],
            whole: Dense::default(),
            swept: (0, 0),
            seen: 0,
        }
    }

    #[inline]
    pub fn slot(&mut self, id: KeyId) -> Option<&mut Slot> {
        let table = self.table(id);
        self.tables[table].find(id)
    }

    /// The whole key, which takes more room from then on.
    pub fn find(&mut self, id: KeyId, names: &Names) -> Option<&mut Key> {
        let table = self.table(id);
        let slot = self.tables[table].find(id)?;
        let index = match slot {
            Slot::Full(index) => *index as usize,
            Slot::Plain(plain) => {
                let named = names.of_plain(plain.named());
                named.uncount_key();
                let index = self.whole.push(Key {
                    id,
                    named,
                    state: plain.state(),
                    live: None,
                });
                *slot = full(index);
                index
            }
        };
        self.whole.get_mut(index)
    }

    /// Adds a key that is not there. Before its table would grow, keys that are as new are forgotten: the
    /// work is bounded by the table and paid for by the keys added since. Answers how many were forgotten.
    pub fn insert(&mut self, key: Key, now: Time, names: &Names) -> usize {
        let id = key.id;
        let mut table = self.table(id);
        let mut forgotten = 0;
        if !self.tables[table].has_room(id) {
            let places = self.tables[table].room();
            let (_, plain) = self.forget_plain(table, 0, places, now, names);
            forgotten = plain + self.forget_whole(WHOLE, now);
            self.tables[table].sift(Some);
            if self.tables[table].len() > CROWDED {
                self.split();
            }
            table = self.table(id);
        }
        let slot = match Plain::of(&key) {
            Some(plain) => {
                key.named.count_key();
                Slot::Plain(plain)
            }
            None => full(self.whole.push(key)),
        };
        self.tables[table].insert(id, slot);
        forgotten
    }

    /// Looks at the next few of all places and of all whole keys for keys that are as new, and forgets them; at
    /// the end of a table it gives up what room it no longer needs. Answers how many were forgotten.
    pub fn sweep(&mut self, places: usize, now: Time, names: &Names) -> usize {
        let whole = self.forget_whole(places, now);
        let (index, place) = self.swept;
        if index >= self.tables.len() {
            self.swept = (0, 0);
            return whole;
        }
        let (next, plain) = self.forget_plain(index, place, places, now, names);
        self.swept = (index, next);
        if next >= self.tables[index].room() {
            let table = &mut self.tables[index];
            if table.is_sparse() {
                table.sift(Some);
            }
            self.join();
            self.swept = (index + 1, 0);
        }
        whole + plain
    }

    /// Looks at `most` places of a table from `place` on, and forgets keys that are as new. Answers where to go
    /// on, and how many were forgotten.
    fn forget_plain(
        &mut self,
        table: usize,
        mut place: usize,
        most: usize,
        now: Time,
        names: &Names,
    ) -> (usize, usize) {
        let table = &mut self.tables[table];
        let mut known: Option<Arc<Named>> = None;
        let mut forgotten = 0;
        for _ in 0..most {
            let Some(entry) = table.at(place) else { break };
            if let Some(Entry {
                value: Slot::Plain(plain),
                ..
            }) = entry
            {
                // Most are of the same limits as the one before.
                let same = known.take().filter(|named| named.number() == plain.named());
                let named = known.insert(same.unwrap_or_else(|| names.of_plain(plain.named())));
                if named.limits.fresh_at(&plain.state()) <= now {
                    table.remove_at(place);
                    named.uncount_key();
                    forgotten += 1;
                    continue;
                }
            }
            place += 1;
        }
        (place, forgotten)
    }

    /// Looks at the next of the whole keys, forgets those that are as new, and makes others as small as they can
    /// be. From the last one to the first, which is about the order in which they were made: what they lie in
    /// besides becomes free side by side. Answers how many were forgotten.
    fn forget_whole(&mut self, most: usize, now: Time) -> usize {
        let mut forgotten = 0;
        for _ in 0..most {
            let Some(index) = self.seen.min(self.whole.len()).checked_sub(1) else {
                self.seen = usize::MAX;
                break;
            };
            self.seen = index;
            let key = self.whole.get(index).expect("less than there are");
            let id = key.id;
            if key.is_forgettable(now) {
                forgotten += 1;
                let table = self.table(id);
                self.tables[table].remove(id);
                self.drop_whole(index);
            } else if let Some(plain) = Plain::of(key) {
                key.named.count_key();
                let table = self.table(id);
                let slot = self.tables[table].find(id);
                *slot.expect("each whole key is in a table") = Slot::Plain(plain);
                self.drop_whole(index);
            }
        }
        forgotten
    }

    /// Drops a whole key that no table knows of any more. The last one has its number then.
    fn drop_whole(&mut self, index: usize) {
        let dropped = self.whole.swap_remove(index);
        pieces::freed(dropped.pieces());
        if let Some(id) = self.whole.get(index).map(|moved| moved.id) {
            let table = self.table(id);
            let slot = self.tables[table].find(id);
            *slot.expect("each whole key is in a table") = full(index);
        }
    }

    /// One table less, if it and the one that it was split from have few keys.
    fn join(&mut self) {
        let last = self.tables.len() - 1;
        if last == 0 {
            return;
        }
        let half = last - (1 << last.ilog2());
        if self.tables[half].len() + self.tables[last].len() > LONELY {
            return;
        }
        let removed = self.tables.pop().expect("more than one");
        let kept = std::mem::replace(&mut self.tables[half], Table::new());
        let both = kept.into_entries().chain(removed.into_entries());
        let mut both: Vec<Entry<Slot>> = both.collect();
        both.sort_by_key(|entry| entry.id.hash());
        self.tables[half].fill(both);
    }

    /// One table more: that which is next in line gives it half of its keys.
    fn split(&mut self) {
        let tables = self.tables.len();
        let half = tables - (1 << tables.ilog2());
        let mut moved = Vec::new();
        self.tables.push(Table::new());
        let mut old = std::mem::replace(&mut self.tables[half], Table::new());
        old.sift(|entry| {
            if self.table(entry.id) == half {
                return Some(entry);
            }
            moved.push(entry);
            None
        });
        self.tables[half] = old;
        self.tables[tables].fill(moved);
    }

    /// Forgets all. Answers how many there were, and how many permits were held on them.
    pub fn clear(&mut self, names: &Names) -> (u64, u64) {
        let old = std::mem::replace(self, Keys::new());
        let mut keys = 0;
        for entry in old.tables.iter().flat_map(Table::iter) {
            keys += 1;
            if let Slot::Plain(plain) = &entry.value {
                names.of_plain(plain.named()).uncount_key();
            }
        }
        let lives = old.whole.iter().filter_map(|key| key.live.as_ref());
        (keys, lives.map(|live| live.permits.len() as u64).sum())
    }

    pub fn tables(&self) -> &[Table<Slot>] {
        &self.tables
    }

    pub fn whole(&self) -> &Dense<Key> {
        &self.whole
    }

    /// Which table a key is in: by as many bits as tell all tables apart, or one less where that table is
    /// yet to be made.
    #[inline]
    fn table(&self, id: KeyId) -> usize {
        let mask = self.tables.len().next_power_of_two() - 1;
        let table = id.table() & mask;
        if table < self.tables.len() {
            table
        } else {
            table & mask >> 1
        }
    }
}

/// Where the whole key of this number is.
fn full(index: usize) -> Slot {
    Slot::Full(
        index
            .try_into()
            .expect("fewer keys than memory has room for"),
    )
}
