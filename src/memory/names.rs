//! Who is who: limits under names, and the identity of a key.
//!
//! A key is known by a keyed 128-bit hash of its name, its kinds of limit and its bytes. No bytes are
//! kept, and nobody who does not know the seed can make two keys meet.
use crate::sync::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::limit::decide::Limits;
use crate::permit::Numbers;

/// Limits under a name. Equal ones are the same object.
pub struct Named {
    pub limits: Limits,
    /// Of this object among all of its client, while it lives.
    pub(super) number: u64,
    identity: u128,
    family: Arc<Family>,
}

/// All limits of one name and the same kinds: they share their keys' state.
struct Family {
    newest: AtomicU32,
    members: Mutex<Vec<Weak<Named>>>,
}

impl Named {
    /// What a key without any state is decided under: these limits, unless a newer version is open.
    pub(super) fn current(self: &Arc<Named>) -> Arc<Named> {
        let newest = self.family.newest.load(Ordering::Relaxed);
        if self.limits.version() >= newest {
            return self.clone();
        }
        let members = self.family.members.lock();
        let living = members.iter().filter_map(Weak::upgrade);
        living
            .max_by_key(|named| named.limits.version())
            .unwrap_or_else(|| self.clone())
    }
}

/// The identity of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct KeyId {
    low: u64,
    high: u64,
}

impl KeyId {
    pub fn shard(&self) -> usize {
        self.low as usize % Numbers::SHARDS
    }

    /// Which of a shard's tables.
    pub fn table(&self) -> usize {
        self.low as usize / Numbers::SHARDS
    }

    /// Where in that table.
    pub fn hash(&self) -> u64 {
        self.high
    }
}

/// The names of one client.
pub(super) struct Names {
    seed: (u64, u64),
    families: Mutex<Families>,
}

#[derive(Default)]
struct Families {
    by_identity: HashMap<u128, Weak<Family>>,
    by_number: HashMap<u64, Weak<Named>>,
    next_number: u64,
}

impl Names {
    pub fn new() -> Names {
        let random = || RandomState::new().build_hasher().finish();
        Names {
            seed: (random(), random()),
            families: Mutex::default(),
        }
    }

    /// Some number for each index that others cannot guess.
    pub fn seed(&self, index: usize) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.seed.0, self.seed.1);
        hasher.write_usize(index);
        hasher.finish()
    }

    pub fn key(&self, named: &Named, key: &[u8]) -> KeyId {
        let mut hasher = SipHasher13::new_with_keys(self.seed.0, self.seed.1);
        hasher.write_u128(named.identity);
        hasher.write(key);
        let hash = hasher.finish128();
        KeyId {
            low: hash.h1,
            high: hash.h2,
        }
    }

    pub fn intern(&self, name: &[u8], limits: Limits) -> Arc<Named> {
        let identity = self.identity(name, &limits);
        let mut families = self.families.lock();
        let family = families.family(identity);
        let mut members = family.members.lock();
        members.retain(|named| named.strong_count() > 0);
        let known = members
            .iter()
            .filter_map(Weak::upgrade)
            .find(|named| named.limits == limits);
        if let Some(known) = known {
            return known;
        }
        family.newest.fetch_max(limits.version(), Ordering::Relaxed);
        let number = families.next_number;
        families.next_number += 1;
        let named = Arc::new(Named {
            limits,
            number,
            identity,
            family: family.clone(),
        });
        members.push(Arc::downgrade(&named));
        families.by_number.insert(number, Arc::downgrade(&named));
        drop(members);
        named
    }

    /// The limits of this number, if they are still in use anywhere.
    pub fn find(&self, number: u64) -> Option<Arc<Named>> {
        self.families.lock().by_number.get(&number)?.upgrade()
    }

    fn identity(&self, name: &[u8], limits: &Limits) -> u128 {
        let mut hasher = SipHasher13::new_with_keys(!self.seed.0, self.seed.1);
        hasher.write_usize(name.len());
        hasher.write(name);
        for kind in limits.shape() {
            hasher.write_u8(kind as u8);
        }
        hasher.finish128().as_u128()
    }
}

impl Families {
    fn family(&mut self, identity: u128) -> Arc<Family> {
        if let Some(family) = self.by_identity.get(&identity).and_then(Weak::upgrade) {
            return family;
        }
        // Clears away what nobody uses, before the maps grow: bounded, and rare enough.
        if self.by_identity.len() == self.by_identity.capacity() {
            self.by_identity
                .retain(|_, family| family.strong_count() > 0);
        }
        if self.by_number.len() == self.by_number.capacity() {
            self.by_number.retain(|_, named| named.strong_count() > 0);
        }
        let family = Arc::new(Family {
            newest: AtomicU32::new(0),
            members: Mutex::default(),
        });
        self.by_identity.insert(identity, Arc::downgrade(&family));
        family
    }
}
