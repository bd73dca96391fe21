//! Sorted maps and sets for what there may be very much of. Entries lie in pages of some kilobytes, so that no
//! call moves or frees more than a page, and nothing is left behind in pieces so small and so many that an
//! allocator puts off merging them until some later call has to merge them all.
use std::collections::VecDeque;
use std::ops::Index;

/// Room that is not worth giving up.
const FEW: usize = 16;

/// A sorted map.
pub struct Pages<K, V = ()> {
    /// Of those behind the first none is empty.
    pages: VecDeque<Page<K, V>>,
    len: usize,
}

struct Page<K, V> {
    /// None of the page's keys is before this, and all of the pages' before are.
    from: K,
    keys: VecDeque<K>,
    values: VecDeque<V>,
}

impl<K, V> Default for Pages<K, V> {
    fn default() -> Pages<K, V> {
        Pages {
            pages: VecDeque::new(),
            len: 0,
        }
    }
}

impl<K: Copy + Ord, V> Page<K, V> {
    fn new(from: K) -> Page<K, V> {
        Page {
            from,
            keys: VecDeque::new(),
            values: VecDeque::new(),
        }
    }

    /// Room for one more, but for no more than a full page.
    fn make_room(&mut self, most: usize) {
        let len = self.keys.len();
        if len == self.keys.capacity() {
            let more = len.max(4).min(most - len);
            self.keys.reserve_exact(more);
            self.values.reserve_exact(more);
        }
    }

    fn split_off(&mut self, at: usize) -> Page<K, V> {
        let (keys, values) = (self.keys.split_off(at), self.values.split_off(at));
        let from = keys[0];
        Page { from, keys, values }
    }

    fn append(&mut self, mut behind: Page<K, V>) {
        self.keys.append(&mut behind.keys);
        self.values.append(&mut behind.values);
    }

    fn remove(&mut self, at: usize) -> Option<(K, V)> {
        Some((self.keys.remove(at)?, self.values.remove(at)?))
    }

    fn entries(&self, from: usize) -> impl Iterator<Item = (&K, &V)> {
        self.keys.range(from..).zip(self.values.range(from..))
    }

    /// Gives up most of the room that is not used any more.
    fn shrink(&mut self) {
        if self.keys.len() * 4 < self.keys.capacity() && self.keys.capacity() > FEW {
            self.keys.shrink_to(self.keys.len() * 2);
            self.values.shrink_to(self.values.len() * 2);
        }
    }
}

impl<K: Copy + Ord, V> Pages<K, V> {
    const BYTES: usize = 32 * 1024;
    /// Entries of a full page.
    const PAGE: usize = {
        let fit = Self::BYTES / (size_of::<K>() + size_of::<V>());
        if fit < 16 { 16 } else { fit }
    };

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn clear(&mut self) {
        *self = Pages::default();
    }

    /// Page and index of a key, or of where it would have to go.
    fn place(&self, key: &K) -> Result<(usize, usize), (usize, usize)> {
        let page = self.pages.partition_point(|page| page.from <= *key);
        let page = page.saturating_sub(1);
        let Some(found) = self.pages.get(page) else {
            return Err((0, 0));
        };
        match found.keys.binary_search(key) {
            Ok(index) => Ok((page, index)),
            Err(index) => Err((page, index)),
        }
    }

    pub fn contains(&self, key: &K) -> bool {
        self.place(key).is_ok()
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        let (page, index) = self.place(key).ok()?;
        Some(&self.pages[page].values[index])
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let (page, index) = self.place(key).ok()?;
        Some(&mut self.pages[page].values[index])
    }

    /// Adds an entry; answers the one that it takes the place of.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let (mut page, mut index) = match self.place(&key) {
            Ok((page, index)) => {
                let old = &mut self.pages[page].values[index];
                return Some(std::mem::replace(old, value));
            }
            Err(place) => place,
        };
        if self.pages.is_empty() {
            self.pages.push_back(Page::new(key));
        }
        let full = &mut self.pages[page];
        if full.keys.len() == Self::PAGE {
            let half = Self::PAGE / 2;
            // What comes in order leaves full pages behind.
            let next = match index == Self::PAGE {
                true => Page::new(key),
                false => full.split_off(half),
            };
            let kept = full.keys.len();
            full.shrink();
            self.pages.insert(page + 1, next);
            if index == Self::PAGE || index > kept {
                (page, index) = (page + 1, index - kept);
            }
        }
        let page = &mut self.pages[page];
        page.from = page.from.min(key);
        page.make_room(Self::PAGE);
        page.keys.insert(index, key);
        page.values.insert(index, value);
        self.len += 1;
        None
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        let (page, index) = self.place(key).ok()?;
        self.take(page, index).map(|(_, value)| value)
    }

    pub fn pop_first(&mut self) -> Option<(K, V)> {
        self.take(0, 0)
    }

    fn take(&mut self, page: usize, index: usize) -> Option<(K, V)> {
        let taken = self.pages.get_mut(page)?.remove(index)?;
        self.len -= 1;
        self.tidy(page);
        Some(taken)
    }

    /// After something was taken out of a page.
    fn tidy(&mut self, page: usize) {
        let left = self.pages[page].keys.len();
        if left > Self::PAGE / 4 {
            return;
        }
        if self.pages.len() == 1 {
            self.pages[0].shrink();
            return;
        }
        if left == 0 {
            self.pages.remove(page);
            return;
        }
        let low = page.min(self.pages.len() - 2);
        if self.pages[low].keys.len() + self.pages[low + 1].keys.len() <= Self::PAGE / 2 {
            let behind = self.pages.remove(low + 1).expect("there are two");
            self.pages[low].append(behind);
        }
    }

    pub fn first(&self) -> Option<(&K, &V)> {
        let page = self.pages.front()?;
        Some((page.keys.front()?, page.values.front()?))
    }

    pub fn last(&self) -> Option<(&K, &V)> {
        let page = self.pages.back()?;
        Some((page.keys.back()?, page.values.back()?))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.pages.iter().flat_map(|page| page.entries(0))
    }

    /// Those from a key on.
    pub fn from(&self, key: K) -> impl Iterator<Item = (&K, &V)> {
        let (page, index) = self.place(&key).unwrap_or_else(|place| place);
        let page = page.min(self.pages.len());
        let first = self.pages.range(page..).take(1);
        let rest = self.pages.range((page + 1).min(self.pages.len())..);
        let first = first.flat_map(move |page| page.entries(index));
        first.chain(rest.flat_map(|page| page.entries(0)))
    }
}

impl<K: Copy + Ord, V> Index<&K> for Pages<K, V> {
    type Output = V;

    fn index(&self, key: &K) -> &V {
        self.get(key).expect("an entry that is there")
    }
}

/// A sorted set, of which most have one element or none: that needs no memory of its own.
pub struct Few<T> {
    first: Option<T>,
    more: Option<Box<Pages<T>>>,
}

impl<T> Default for Few<T> {
    fn default() -> Few<T> {
        Few {
            first: None,
            more: None,
        }
    }
}

impl<T: Copy + Ord> Few<T> {
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.more.as_ref().map_or(0, |more| more.len())
    }

    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub fn first(&self) -> Option<&T> {
        self.first.as_ref()
    }

    /// False: it was there.
    pub fn insert(&mut self, new: T) -> bool {
        let later = match self.first {
            None => {
                self.first = Some(new);
                return true;
            }
            Some(first) if first == new => return false,
            Some(first) => {
                self.first = Some(first.min(new));
                first.max(new)
            }
        };
        let more = self.more.get_or_insert_default();
        more.insert(later, ()).is_none()
    }

    /// False: it was not there.
    pub fn remove(&mut self, old: &T) -> bool {
        if self.first.as_ref() == Some(old) {
            return self.pop_first().is_some();
        }
        let more = self.more.as_mut();
        more.is_some_and(|more| more.remove(old).is_some())
    }

    pub fn pop_first(&mut self) -> Option<T> {
        let next = self.more.as_mut().and_then(|more| more.pop_first());
        std::mem::replace(&mut self.first, next.map(|(next, ())| next))
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let more = self.more.iter().flat_map(|more| more.iter());
        self.first.iter().chain(more.map(|(one, ())| one))
    }

    /// Those from one on.
    pub fn from(&self, from: T) -> impl Iterator<Item = &T> {
        let first = self.first.iter().filter(move |first| **first >= from);
        let more = self.more.iter().flat_map(move |more| more.from(from));
        first.chain(more.map(|(one, ())| one))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// In an order that looks like none.
    fn mixed(n: u64) -> u64 {
        n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
    }

    #[track_caller]
    fn same(pages: &Pages<u64, [u64; 40]>, map: &BTreeMap<u64, [u64; 40]>) {
        assert_eq!(pages.len(), map.len());
        assert!(pages.iter().eq(map));
        assert_eq!(pages.first(), map.first_key_value());
        assert_eq!(pages.last(), map.last_key_value());
        for from in [0, 1 << 22, 1 << 23, u64::MAX] {
            assert!(pages.from(from).take(90).eq(map.range(from..).take(90)));
        }
        // Of two neighbours one is not nearly empty.
        assert!(pages.pages.len() <= 2 + 8 * map.len() / Pages::<u64, [u64; 40]>::PAGE);
    }

    #[test]
    fn pages_hold_what_a_map_holds_in_whatever_order_it_comes_and_goes() {
        type Order = fn(u64) -> u64;
        let orders: [Order; 3] = [|n| n, |n| 10_000 - n, mixed];
        for (put, take) in orders.iter().flat_map(|a| orders.map(|b| (a, b))) {
            let (mut pages, mut map) = (Pages::default(), BTreeMap::new());
            for n in 0..3_000 {
                let key = put(n);
                assert_eq!(pages.insert(key, [n; 40]), map.insert(key, [n; 40]));
                assert_eq!(pages.insert(key, [n + 1; 40]), map.insert(key, [n + 1; 40]));
                if n % 301 == 0 {
                    same(&pages, &map);
                }
                if n % 3 == 0 {
                    let key = take(n / 2);
                    assert_eq!(pages.get(&key), map.get(&key));
                    assert_eq!(pages.get_mut(&key), map.get_mut(&key));
                    assert_eq!(pages.remove(&key), map.remove(&key));
                }
            }
            same(&pages, &map);
            for n in 0..3_000 {
                let key = take(n);
                assert_eq!(pages.contains(&key), map.contains_key(&key));
                assert_eq!(pages.remove(&key), map.remove(&key));
                if n % 301 == 0 {
                    same(&pages, &map);
                    assert_eq!(pages.pop_first(), map.pop_first());
                }
            }
            same(&pages, &map);
            while let Some(first) = map.pop_first() {
                assert_eq!(pages.pop_first(), Some(first));
            }
            assert_eq!((pages.pop_first(), pages.is_empty()), (None, true));
            assert!(pages.pages.iter().all(|page| page.keys.capacity() <= FEW));
        }
    }

    #[test]
    fn few_are_a_set() {
        let (mut few, mut set) = (Few::default(), BTreeSet::new());
        for n in 0..20_000 {
            let one = mixed(n) % 30;
            match n % 5 {
                0 | 1 => assert_eq!(few.insert(one), set.insert(one)),
                2 if n % 3 == 0 => assert_eq!(few.pop_first(), set.pop_first()),
                _ => assert_eq!(few.remove(&one), set.remove(&one)),
            }
            assert_eq!(few.first(), set.first());
            assert_eq!((few.len(), few.is_empty()), (set.len(), set.is_empty()));
            assert!(few.iter().eq(&set) && few.from(15).eq(set.range(15..)));
        }
    }
}
