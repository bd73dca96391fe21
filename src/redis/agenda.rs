//! When keys are to be looked at: the first is found without a look at the others.
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::Key;
use super::dice::Seeds;
use crate::limit::time::Time;

/// Keys, each with one time. Those of one time come in the order in which they were put there.
pub(super) struct Agenda {
    places: HashMap<Arc<Key>, Place, Seeds>,
    keys: BTreeMap<Place, Arc<Key>>,
    count: u64,
}

type Place = (Time, u64);

impl Agenda {
    pub fn new(seeds: Seeds) -> Agenda {
        Agenda {
            places: HashMap::with_hasher(seeds),
            keys: BTreeMap::new(),
            count: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The first time.
    pub fn first(&self) -> Option<Time> {
        self.keys.first_key_value().map(|((at, _), _)| *at)
    }

    pub fn set(&mut self, key: Arc<Key>, at: Time) {
        self.remove(&key);
        self.count += 1;
        self.places.insert(key.clone(), (at, self.count));
        self.keys.insert((at, self.count), key);
    }

    /// No later than then. Answers when.
    pub fn set_by(&mut self, key: &Arc<Key>, at: Time) -> Time {
        match self.places.get(key) {
            Some((before, _)) if *before <= at => *before,
            _ => {
                self.set(key.clone(), at);
                at
            }
        }
    }

    pub fn set_all(&mut self, at: Time) {
        for key in std::mem::take(&mut self.keys).into_values() {
            self.set(key, at);
        }
    }

    pub fn remove(&mut self, key: &Arc<Key>) {
        if let Some(place) = self.places.remove(key) {
            self.keys.remove(&place);
        }
    }

    /// The keys whose times have come; they stay.
    pub fn due(&self, now: Time) -> Vec<Arc<Key>> {
        let due = self.keys.range(..=(now, u64::MAX));
        due.map(|(_, key)| key.clone()).collect()
    }
}
