//! What waits to be picked up, oldest first, and can be taken back before it is.
use crate::pages::Pages;

/// A queue from which an entry in the middle can be taken by its key. Each key is used once.
pub struct Mailbox<K, T> {
    /// By arrival.
    entries: Pages<u64, (K, T)>,
    /// When each arrived.
    arrivals: Pages<K, u64>,
    next: u64,
}

impl<K: Copy + Ord, T> Mailbox<K, T> {
    pub fn new() -> Mailbox<K, T> {
        Mailbox {
            entries: Pages::default(),
            arrivals: Pages::default(),
            next: 0,
        }
    }

    pub fn push(&mut self, key: K, entry: T) {
        let clash = self.arrivals.insert(key, self.next).is_some();
        assert!(!clash, "a key is used once");
        self.entries.insert(self.next, (key, entry));
        self.next += 1;
    }

    pub fn pop(&mut self) -> Option<(K, T)> {
        let (_, (key, entry)) = self.entries.pop_first()?;
        self.arrivals.remove(&key);
        Some((key, entry))
    }

    pub fn has(&self, key: &K) -> bool {
        self.arrivals.contains(key)
    }

    /// Takes an entry back.
    pub fn take(&mut self, key: &K) -> Option<T> {
        let arrival = self.arrivals.remove(key)?;
        self.entries.remove(&arrival).map(|(_, entry)| entry)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl<K: Copy + Ord, T> Default for Mailbox<K, T> {
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
        for key in [4, 3, 2, 1, 0] {
            mailbox.push(key, key * 10);
        }
        assert_eq!(mailbox.take(&0), Some(0));
        assert_eq!(mailbox.take(&0), None);
        assert_eq!(mailbox.take(&3), Some(30));
        assert!(mailbox.has(&2) && !mailbox.has(&3));
        let rest: Vec<(i32, i32)> = std::iter::from_fn(|| mailbox.pop()).collect();
        assert_eq!(rest, [(4, 40), (2, 20), (1, 10)]);
        assert!(mailbox.is_empty() && mailbox.arrivals.is_empty());
        mailbox.push(3, 5);
        assert_eq!(mailbox.len(), 1);
    }
}
