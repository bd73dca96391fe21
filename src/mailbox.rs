//! What waits to be picked up, oldest first, and can be taken back before it is.
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// A queue from which an entry in the middle can be taken by its key. Each key is used once.
pub struct Mailbox<K, T> {
    /// May name entries that were taken back.
    order: VecDeque<K>,
    entries: HashMap<K, T>,
}

impl<K: Copy + Eq + Hash, T> Mailbox<K, T> {
    pub fn new() -> Mailbox<K, T> {
        Mailbox {
            order: VecDeque::new(),
            entries: HashMap::new(),
        }
    }

    pub fn push(&mut self, key: K, entry: T) {
        let clash = self.entries.insert(key, entry).is_some();
        assert!(!clash, "a key is used once");
        self.order.push_back(key);
    }

    pub fn pop(&mut self) -> Option<T> {
        loop {
            let key = self.order.pop_front()?;
            if let Some(entry) = self.entries.remove(&key) {
                return Some(entry);
            }
        }
    }

    pub fn get(&self, key: &K) -> Option<&T> {
        self.entries.get(key)
    }

    /// Takes an entry back. What it leaves in the order is cleared away before it is the larger part.
    pub fn take(&mut self, key: &K) -> Option<T> {
        let entry = self.entries.remove(key)?;
        if self.order.len() > 64 + 2 * self.entries.len() {
            let entries = &self.entries;
            self.order.retain(|key| entries.contains_key(key));
        }
        Some(entry)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl<K: Copy + Eq + Hash, T> Default for Mailbox<K, T> {
    fn default() -> Self {
        Mailbox::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_in_order_and_those_taken_back_do_not_come() {
        let mut mailbox = Mailbox::new();
        for key in 0..5 {
            mailbox.push(key, key * 10);
        }
        assert_eq!(mailbox.take(&0), Some(0));
        assert_eq!(mailbox.take(&0), None);
        assert_eq!(mailbox.take(&3), Some(30));
        let rest: Vec<i32> = std::iter::from_fn(|| mailbox.pop()).collect();
        assert_eq!(rest, [10, 20, 40]);
        assert!(mailbox.is_empty());
    }

    #[test]
    fn taking_back_behind_an_entry_that_stays_does_not_grow_the_order() {
        let mut mailbox = Mailbox::new();
        mailbox.push(0, ());
        for key in 1..10_000 {
            mailbox.push(key, ());
            mailbox.take(&key);
            assert!(mailbox.order.len() <= 64 + 2 * (mailbox.len() + 1));
        }
        assert_eq!(mailbox.len(), 1);
    }
}
