//! The keys of one shard: what is stored of each, and when one can be forgotten.
use std::sync::Arc;

use super::line::Line;
use super::names::{KeyId, Named, Names};
use super::pieces;
use super::table::{Entry, Table};
use crate::limit::decide::KeyState;
use crate::limit::rate::Tick;
use crate::limit::time::Time;
use crate::pages::Few;

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
    /// Semaphore permits held: when they end unless they are renewed, and their serials.
    pub permits: Few<(Time, u64)>,
    /// Permits of another epoch were ended by a reset.
    pub epoch: u64,
    /// Fencing number of the latest grant.
    pub fence: u64,
    /// Waits that nothing was taken for yet, by serial of their operation.
    pub queue: Few<u64>,
    /// From which one on those of the queue may have become too heavy for their limits.
    pub doubted: Option<u64>,
    /// Waits that only rates stand in the way of.
    pub booked: Few<u64>,
    /// Where they are, or paced calls between them.
    pub line: Option<Box<Line>>,
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
    pub fn is_forgettable(&self, now: Time) -> bool {
        let idle = self.live.as_ref().is_none_or(|live| live.is_idle(now));
        idle && self.named.limits.fresh_at(&self.state) <= now
    }

    /// A key that is as new may have been forgotten, or not: that makes no difference. Of one that was, no
    /// other epoch is known.
    pub fn forget_epochs(&mut self, now: Time) {
        if self.state.epoch() > 0 && self.is_forgettable(now) {
            self.state = self.named.limits.fresh(now);
        }
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
    /// How many hold or wait.
    pub fn people(&self) -> usize {
        self.permits.len() + self.queue.len() + self.booked.len()
    }

    fn is_idle(&self, now: Time) -> bool {
        let unused = self.people() == 0;
        // A fencing number that ran ahead of the clock must not be handed out again.
        unused && self.fence < now.0
    }

    /// Numbers the next grant. It also grows over the key being forgotten, because the clock does.
    pub fn next_fence(&mut self, now: Time) -> u64 {
        self.fence = now.0.max(self.fence + 1);
        self.fence
    }
}

/// What is stored of a key.
pub(super) enum Slot {
    Plain(Plain),
    Full(Box<Key>),
}

/// A key of one token bucket that nobody waits for: most keys of a program that has many. So it is
/// written as small as it can be, in bytes that need no alignment.
pub(super) struct Plain {
    /// More than any time needs.
    us: [u8; 7],
    rem: [u8; 4],
    /// Number of its limits.
    named: [u8; 4],
}

const _: () = assert!(size_of::<Option<Entry<Slot>>>() == 32);

impl Plain {
    fn new(tick: Tick, named: u64) -> Option<Plain> {
        let [us @ .., top] = tick.us.to_le_bytes();
        let rem = u32::try_from(tick.rem).ok()?.to_le_bytes();
        let named = u32::try_from(named).ok()?.to_le_bytes();
        (top == 0).then_some(Plain { us, rem, named })
    }

    pub fn named(&self) -> u64 {
        u32::from_le_bytes(self.named).into()
    }

    pub fn tick(&self) -> Tick {
        let [a, b, c, d, e, f, g] = self.us;
        Tick {
            us: u64::from_le_bytes([a, b, c, d, e, f, g, 0]),
            rem: u32::from_le_bytes(self.rem).into(),
        }
    }

    pub fn state(&self) -> KeyState {
        KeyState::of_tick(self.tick())
    }

    /// Takes on a new state. False, and unchanged, if that needs more room.
    pub fn set(&mut self, tick: Tick) -> bool {
        let [us @ .., top] = tick.us.to_le_bytes();
        let Ok(rem) = u32::try_from(tick.rem) else {
            return false;
        };
        if top == 0 {
            (self.us, self.rem) = (us, rem.to_le_bytes());
        }
        top == 0
    }
}

impl Key {
    fn into_slot(self: Box<Key>) -> Slot {
        let tick = self.state.as_tick().filter(|_| self.live.is_none());
        match tick.and_then(|tick| Plain::new(tick, self.named.number())) {
            Some(plain) => {
                self.named.count_key();
                Slot::Plain(plain)
            }
            None => Slot::Full(self),
        }
    }
}

impl Slot {
    /// The whole key, which takes more room from now on.
    pub fn full(&mut self, id: KeyId, names: &Names) -> &mut Key {
        if let Slot::Plain(plain) = self {
            let named = names.of_plain(plain.named());
            named.uncount_key();
            *self = Slot::Full(Box::new(Key {
                id,
                named,
                state: plain.state(),
                live: None,
            }));
        }
        match self {
            Slot::Full(key) => key,
            Slot::Plain(_) => unreachable!("made full above"),
        }
    }
}

/// Many small tables rather than one, and more the more keys there are, so that to grow is always short.
/// One after another is split in two, or two become one again (linear hashing): there is never more to move
/// at once than a table.
pub(super) struct Keys {
    tables: Vec<Table<Slot>>,
    /// Up to where keys that are as new were looked for: table, place.
    swept: (usize, usize),
}

/// Keys of a table beyond which there are to be more tables.
const CROWDED: usize = 256;
/// Whole keys that one call looks at.
const WHOLE: usize = 64;
/// Pieces of memory that a whole key lies in, about.
const PIECES: u32 = 8;
/// Keys of two tables up to which they become one.
const LONELY: usize = 96;

impl Keys {
    pub fn new() -> Keys {
        Keys {
            tables: vec![Table::new()],
            swept: (0, 0),
        }
    }

    #[inline]
    pub fn slot(&mut self, id: KeyId) -> Option<&mut Slot> {
        let table = self.table(id);
        self.tables[table].find(id)
    }

    /// The whole key. Not for the busiest paths: see [`Slot::full`].
    pub fn find(&mut self, id: KeyId, names: &Names) -> Option<&mut Key> {
        Some(self.slot(id)?.full(id, names))
    }

    /// Adds a key that is not there. Before its table would grow, keys that are as new are forgotten: the
    /// work is bounded by the table and paid for by the keys added since. Answers how many were forgotten.
    pub fn insert(&mut self, key: Key, now: Time, names: &Names) -> usize {
        let id = key.id;
        let table = self.table(id);
        let Err(slot) = self.tables[table].insert(id, Box::new(key).into_slot()) else {
            return 0;
        };
        let forgotten = self.forget_idle(table, now, names);
        if self.tables[table].len() > CROWDED {
            self.split();
        }
        let table = self.table(id);
        let added = self.tables[table].insert(id, slot);
        assert!(added.is_ok(), "room was made");
        forgotten
    }

    fn forget_idle(&mut self, table: usize, now: Time, names: &Names) -> usize {
        let table = &mut self.tables[table];
        let before = table.len();
        table.sift(needed(now, names));
        before - table.len()
    }

    /// Looks at the next few of all places for keys that are as new, and forgets them; at the end of a table
    /// it gives up what room it no longer needs. Answers how many were forgotten.
    pub fn sweep(&mut self, places: usize, now: Time, names: &Names) -> usize {
        let (index, place) = self.swept;
        let Some(table) = self.tables.get_mut(index) else {
            self.swept = (0, 0);
            return 0;
        };
        let before = table.len();
        let next = table.sweep(place, places, needed(now, names));
        let forgotten = before - table.len();
        self.swept = match next {
            Some(place) => (index, place),
            None => {
                if table.is_sparse() {
                    table.sift(Some);
                }
                self.join();
                (index + 1, 0)
            }
        };
        forgotten
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
        let (mut keys, mut permits) = (0, 0);
        for entry in old.tables.iter().flat_map(Table::iter) {
            keys += 1;
            match &entry.value {
                Slot::Plain(plain) => names.of_plain(plain.named()).uncount_key(),
                Slot::Full(key) => {
                    permits += key
                        .live
                        .as_ref()
                        .map_or(0, |live| live.permits.len() as u64)
                }
            }
        }
        (keys, permits)
    }

    pub fn tables(&self) -> &[Table<Slot>] {
        &self.tables
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

/// Gives up keys that are as new; others it keeps, as small as they can be. Of whole keys, which lie in many
/// places, it looks at some.
fn needed(now: Time, names: &Names) -> impl FnMut(Entry<Slot>) -> Option<Entry<Slot>> {
    let mut known: Option<Arc<Named>> = None;
    let mut whole = 0;
    move |Entry { id, value }| match value {
        Slot::Full(key) if whole == WHOLE => Some(Entry {
            id,
            value: Slot::Full(key),
        }),
        Slot::Full(key) if key.is_forgettable(now) => {
            whole += 1;
            pieces::freed(PIECES);
            None
        }
        Slot::Full(key) => {
            whole += 1;
            let value = key.into_slot();
            Some(Entry { id, value })
        }
        Slot::Plain(plain) => {
            // Most are of the same limits as the one before.
            let same = known.take().filter(|named| named.number() == plain.named());
            let named = known.insert(same.unwrap_or_else(|| names.of_plain(plain.named())));
            if named.limits.fresh_at(&plain.state()) > now {
                return Some(Entry {
                    id,
                    value: Slot::Plain(plain),
                });
            }
            named.uncount_key();
            None
        }
    }
}
