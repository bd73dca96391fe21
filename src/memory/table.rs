//! A table that is filled to the brim: entries in the order of their hashes, with gaps, and no more
//! memory than a quarter above what they need. Searching is a short walk from where the hash points.
//!
//! What can be spared is swept out a few places at a time, and all of it before the table grows.
use super::names::KeyId;

/// Entries by the hash of their key. Empty places hold `None`, which must cost no room of its own.
pub(super) struct Table<T> {
    /// Each entry lies at its home or behind it; between the two there is no gap and no larger hash.
    places: Vec<Option<Entry<T>>>,
    /// Homes; a few places behind the last serve those that are pushed over the end.
    homes: usize,
    entries: usize,
}

pub(super) struct Entry<T> {
    pub id: KeyId,
    pub value: T,
}

/// Places that are free behind the last.
const OVERHANG: usize = 16;

impl<T> Table<T> {
    pub const fn new() -> Table<T> {
        Table {
            places: Vec::new(),
            homes: 0,
            entries: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.entries
    }

    #[inline]
    pub fn find(&mut self, id: KeyId) -> Option<&mut T> {
        let place = self.place(id).ok()?;
        self.places[place].as_mut().map(|entry| &mut entry.value)
    }

    /// Whether an entry that is not there can be added.
    pub fn has_room(&self, id: KeyId) -> bool {
        let gaps = || self.places[self.home(id)..].iter();
        self.entries * 8 < self.homes * 7 && gaps().any(Option::is_none)
    }

    /// Adds an entry that is not there, and that there is room for.
    pub fn insert(&mut self, id: KeyId, value: T) {
        let place = self.place(id).expect_err("it is not there");
        let behind = &mut self.places[place..];
        let gap = behind.iter().position(Option::is_none);
        behind[..=gap.expect("there is room")].rotate_right(1);
        behind[0] = Some(Entry { id, value });
        self.entries += 1;
    }

    /// Makes room, after leaving out what `keep` gives up. The work is paid for by the entries added
    /// since, because the room is a share of what stays.
    pub fn sift(&mut self, keep: impl FnMut(Entry<T>) -> Option<Entry<T>>) {
        let old = std::mem::replace(self, Table::new());
        let mut kept = Vec::with_capacity(old.entries);
        kept.extend(old.places.into_iter().flatten().filter_map(keep));
        self.fill(kept);
    }

    /// Makes an empty table one of these entries, which are in order.
    pub fn fill(&mut self, entries: Vec<Entry<T>>) {
        self.homes = 8 + entries.len() + entries.len() / 4;
        let last = entries
            .iter()
            .fold(0, |next, entry| self.home(entry.id).max(next) + 1);
        self.places
            .resize_with(last.max(self.homes) + OVERHANG, || None);
        self.entries = entries.len();
        let mut next = 0;
        for entry in entries {
            let place = self.home(entry.id).max(next);
            self.places[place] = Some(entry);
            next = place + 1;
        }
    }

    /// What is at a place, if anything; `None`: there are no more places.
    pub fn at(&mut self, place: usize) -> Option<Option<&mut Entry<T>>> {
        self.places.get_mut(place).map(Option::as_mut)
    }

    /// Takes out the entry at a place. The next one may be there then.
    pub fn remove_at(&mut self, place: usize) -> T {
        let entry = self.places[place].take().expect("an entry that is there");
        self.close_gap(place);
        entry.value
    }

    /// Takes out an entry that is there.
    pub fn remove(&mut self, id: KeyId) {
        let place = self.place(id).expect("an entry that is there");
        self.remove_at(place);
    }

    /// Moves those behind a place that became free nearer to their homes.
    fn close_gap(&mut self, mut gap: usize) {
        self.entries -= 1;
        while let Some(Some(next)) = self.places.get(gap + 1)
            && self.home(next.id) <= gap
        {
            self.places.swap(gap, gap + 1);
            gap += 1;
        }
    }

    /// Much of the table is empty.
    pub fn is_sparse(&self) -> bool {
        self.entries * 3 + 16 < self.homes
    }

    /// Places, taken or free.
    pub fn room(&self) -> usize {
        self.places.len()
    }

    /// All entries, in order.
    pub fn into_entries(self) -> impl Iterator<Item = Entry<T>> {
        self.places.into_iter().flatten()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Entry<T>> {
        self.places.iter().flatten()
    }

    /// Where the hash points: the hash as a fraction of the homes.
    fn home(&self, id: KeyId) -> usize {
        ((u128::from(id.hash()) * self.homes as u128) >> 64) as usize
    }

    /// Where the key is, or else where it would have to go.
    #[inline]
    fn place(&self, id: KeyId) -> Result<usize, usize> {
        let home = self.home(id);
        let mut i = home;
        while let Some(Some(entry)) = self.places.get(i) {
            if entry.id == id {
                return Ok(i);
            }
            if entry.id.hash() > id.hash() {
                break;
            }
            i += 1;
        }
        Err(i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn id(n: u64) -> KeyId {
        let mixed = u128::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        KeyId::of((mixed >> 64) as u64, mixed as u64)
    }

    /// Every entry can be found from its home, and they are in order.
    fn check<T>(table: &Table<T>) {
        let mut last = 0;
        for (i, place) in table.places.iter().enumerate() {
            if let Some(entry) = place {
                assert!(entry.id.hash() >= last);
                last = entry.id.hash();
                let home = table.home(entry.id);
                assert!(home <= i && table.places[home..i].iter().all(Option::is_some));
            }
        }
        assert_eq!(table.iter().count(), table.len());
    }

    fn add(table: &mut Table<u64>, id: KeyId, value: u64) {
        if !table.has_room(id) {
            table.sift(Some);
            assert!(table.has_room(id));
        }
        table.insert(id, value);
    }

    #[test]
    fn it_holds_what_a_map_holds_and_little_air() {
        let (mut table, mut map) = (Table::new(), HashMap::new());
        for n in 0..5_000 {
            assert!(table.find(id(n)).is_none());
            add(&mut table, id(n), n);
            map.insert(n, n);
            if n % 97 == 0 {
                check(&table);
                // Leaves out some, as they are forgotten.
                if n % 5 == 0 {
                    table.sift(|entry| (entry.value % 7 != 0).then_some(entry));
                    map.retain(|_, value| *value % 7 != 0);
                }
                if n % 3 == 0 {
                    let mut place = 0;
                    while let Some(entry) = table.at(place) {
                        if entry.is_some_and(|entry| entry.value.is_multiple_of(11)) {
                            assert_eq!(table.remove_at(place) % 11, 0);
                            check(&table);
                        } else {
                            place += 1;
                        }
                    }
                    map.retain(|_, value| *value % 11 != 0);
                }
            }
            if table.is_sparse() {
                table.sift(Some);
            }
            assert!(table.room() <= 16 + OVERHANG + 3 * table.len());
        }
        assert_eq!(table.len(), map.len());
        for n in 0..5_000 {
            assert_eq!(table.find(id(n)).copied(), map.get(&n).copied());
        }
    }

    #[test]
    fn equal_hashes_and_hashes_at_the_very_end_find_room() {
        let mut table = Table::new();
        for n in 0..200 {
            add(&mut table, KeyId::of(n, u64::MAX - n % 3), n);
            check(&table);
        }
        for n in 0..200 {
            assert_eq!(
                table.find(KeyId::of(n, u64::MAX - n % 3)),
                Some(&mut n.clone())
            );
        }
    }
}
