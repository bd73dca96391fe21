//! Who is who: limits under names, and the identity of a key.
//!
//! A key is known by a 128-bit hash of its bytes, keyed by its name and its kinds of limit. No bytes are
//! kept, and nobody who does not know the seed can make two keys meet.
use crate::sync::Mutex;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use siphasher::sip128::{Hash128, Hasher128, SipHasher13};

use crate::limit::decide::Limits;
use crate::memory::key_count::KeyCount;
use crate::permit::Numbers;

/// Limits under a name. Equal ones are the same object.
pub struct Named {
    pub limits: Limits,
    /// Its version, then which opening of the name was its last. A key is decided under the highest rank
    /// it was used under, so that two handles with different numbers cannot take turns.
    rank: AtomicU64,
    /// Of this object among all of its client, while it lives.
    number: u64,
    /// What its keys are hashed with; the same for all of a family.
    secret: (u64, u64),
    /// The empty key's, which is the only one of many limiters.
    empty: KeyId,
    /// The first of those that differ from this one in nothing but their version; `None`: it is itself.
    first: Option<Arc<Named>>,
    family: Arc<Family>,
    /// Keys that are stored under the number alone: they keep it from being dropped, too.
    plain_keys: KeyCount,
}

/// All limits of one name and the same kinds: they share their keys' state.
struct Family {
    /// The highest rank so far.
    newest: AtomicU64,
    /// Openings so far.
    opened: AtomicU64,
    members: Mutex<Vec<Weak<Named>>>,
}

impl Named {
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The number that all have which are of one family and differ in nothing but their version.
    pub(super) fn rules(&self) -> u64 {
        self.first
            .as_ref()
            .map_or(self.number, |first| first.number)
    }

    pub(super) fn key(&self, key: &[u8]) -> KeyId {
        if key.is_empty() {
            self.empty
        } else {
            hash(self.secret, key)
        }
    }

    /// A key is stored under the number.
    pub(super) fn count_key(&self) {
        self.plain_keys.count();
    }

    /// It is no more.
    pub(super) fn uncount_key(&self) {
        self.plain_keys.uncount();
    }

    pub(super) fn rank(&self) -> u64 {
        self.rank.load(Ordering::Relaxed)
    }

    pub(super) fn is_newest(&self) -> bool {
        self.rank() >= self.family.newest.load(Ordering::Relaxed)
    }

    /// Whether both are of one family.
    pub(super) fn is_kin(&self, other: &Named) -> bool {
        Arc::ptr_eq(&self.family, &other.family)
    }

    /// What a key is decided under: these limits, unless a higher rank is open.
    pub(super) fn current(self: &Arc<Named>) -> Arc<Named> {
        if self.is_newest() {
            return self.clone();
        }
        let members = self.family.members.lock();
        let living = members.iter().filter_map(Weak::upgrade);
        living
            .max_by_key(|named| named.rank())
            .unwrap_or_else(|| self.clone())
    }
}

fn hash(secret: (u64, u64), bytes: &[u8]) -> KeyId {
    let hasher = SipHasher13::new_with_keys(secret.0, secret.1);
    let Hash128 { h1, h2 } = hasher.hash(bytes);
    KeyId { low: h1, high: h2 }
}

/// The identity of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct KeyId {
    low: u64,
    high: u64,
}

impl KeyId {
    #[cfg(test)]
    pub fn of(low: u64, high: u64) -> KeyId {
        KeyId { low, high }
    }

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
    by_identity: BTreeMap<u128, Weak<Family>>,
    by_number: BTreeMap<u64, Arc<Named>>,
    next_number: u64,
    /// Up to where what nobody uses was looked for.
    seen_identity: u128,
    seen_number: u64,
}

impl Names {
    pub fn new() -> Names {
        let random = || {
            let mut hasher = RandomState::new().build_hasher();
            // Children of one process inherit std's random keys; they differ in this.
            hasher.write_u32(std::process::id());
            hasher.write_u128(
                SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .map_or(0, |t| t.as_nanos()),
            );
            hasher.finish()
        };
        Names::seeded((random(), random()))
    }

    pub fn seeded(seed: (u64, u64)) -> Names {
        Names {
            seed,
            families: Mutex::default(),
        }
    }

    /// Some number for each index that others cannot guess.
    pub fn seed(&self, index: usize) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.seed.0, self.seed.1);
        hasher.write_usize(index);
        hasher.finish()
    }

    /// The object of these limits, and whether others were in force until now.
    pub fn intern(&self, name: &[u8], limits: Limits) -> (Arc<Named>, bool) {
        let identity = self.identity(name, &limits);
        let mut families = self.families.lock();
        let family = families.family(identity);
        let mut members = family.members.lock();
        let alike = |named: &Arc<Named>| named.limits.limits() == limits.limits();
        let alike: Vec<Arc<Named>> = members
            .iter()
            .filter_map(Weak::upgrade)
            .filter(alike)
            .collect();
        let known = alike
            .iter()
            .find(|named| named.limits.version() == limits.version());
        let opened = family.opened.fetch_add(1, Ordering::Relaxed) + 1;
        let rank = u64::from(limits.version()) << 32 | opened.min(u32::MAX.into());
        let before = family.newest.fetch_max(rank, Ordering::Relaxed);
        let replaces = before != 0 && before < rank;
        if let Some(known) = known {
            let replaces = replaces && known.rank() != before;
            known.rank.store(rank, Ordering::Relaxed);
            return (known.clone(), replaces);
        }
        let number = families.next_number;
        families.next_number += 1;
        let secret = (identity as u64, (identity >> 64) as u64);
        let named = Arc::new(Named {
            limits,
            rank: AtomicU64::new(rank),
            number,
            secret,
            empty: hash(secret, &[]),
            first: alike
                .first()
                .map(|one| one.first.clone().unwrap_or_else(|| one.clone())),
            family: family.clone(),
            plain_keys: KeyCount::new(),
        });
        members.push(Arc::downgrade(&named));
        drop(members);
        families.by_number.insert(number, named.clone());
        families.drop_unused();
        (named, replaces)
    }

    /// The limits of this number, if they are still in use anywhere.
    pub fn find(&self, number: u64) -> Option<Arc<Named>> {
        self.families.lock().by_number.get(&number).cloned()
    }

    /// The limits of a key that is stored under their number.
    pub fn of_plain(&self, number: u64) -> Arc<Named> {
        self.find(number)
            .expect("they are kept while a key has their number")
    }

    /// The secret of a family: nobody who does not know the seed can tell it.
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
        let family = Arc::new(Family {
            newest: AtomicU64::new(0),
            opened: AtomicU64::new(0),
            members: Mutex::default(),
        });
        self.by_identity.insert(identity, Arc::downgrade(&family));
        family
    }

    /// Looks at the next few of all for what nobody uses, and drops it: each new one pays for two, so there
    /// are never many. The newest of a family stay as long as there are others, which would return
    /// otherwise. Under the lock no number can be looked up, and under that of its family no member be found
    /// by name.
    fn drop_unused(&mut self) {
        for _ in 0..2 {
            self.drop_unused_number();
            self.drop_unused_identity();
        }
    }

    fn drop_unused_number(&mut self) {
        let Some((&number, named)) = self.by_number.range(self.seen_number..).next() else {
            self.seen_number = 0;
            return;
        };
        self.seen_number = number + 1;
        let family = named.family.clone();
        let mut members = family.members.lock();
        let handles = || Arc::strong_count(named) - 1;
        if named.plain_keys.is_unused(handles) && (members.len() == 1 || !named.is_newest()) {
            members.retain(|member| member.as_ptr() != Arc::as_ptr(named));
            self.by_number.remove(&number);
        }
    }

    fn drop_unused_identity(&mut self) {
        let Some((&identity, family)) = self.by_identity.range(self.seen_identity..).next() else {
            self.seen_identity = 0;
            return;
        };
        self.seen_identity = identity.wrapping_add(1);
        if family.strong_count() == 0 {
            self.by_identity.remove(&identity);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    use crate::decision::Status;
    use crate::limit::rule::{Limit, Rule};
    use crate::limit::semaphore::Semaphore;
    use crate::limit::time::Span;
    use crate::memory::Memory;
    use crate::op::Request;

    fn limits(version: u32) -> Limits {
        Limits::new(
            vec![Limit {
                rule: Rule::Unlimited,
                per_call: false,
            }],
            version,
        )
        .unwrap()
    }

    #[test]
    fn what_nobody_uses_is_forgotten_and_what_a_key_was_stored_under_is_not() {
        let names = Names::new();
        let (used, _) = names.intern(b"used", limits(0));
        used.count_key();
        let number = used.number();
        drop(used);
        for n in 0..10_000u32 {
            names.intern(&n.to_le_bytes(), limits(0));
            names.intern(b"one name", limits(n));
        }
        let families = names.families.lock();
        assert!(
            families.by_number.len() < 20_000,
            "{}",
            families.by_number.len()
        );
        assert!(
            families.by_identity.len() < 20_000,
            "{}",
            families.by_identity.len()
        );
        drop(families);
        assert_eq!(names.of_plain(number).number(), number);
        assert_eq!(names.intern(b"used", limits(0)).0.number(), number);
    }

    #[test]
    fn an_old_handle_waits_for_no_lock_of_its_family_where_the_key_is_up_to_date() {
        let memory = Memory::virtually(1);
        let of = |capacity| {
            let semaphore = Semaphore::new(capacity, Span::secs(1), true).unwrap();
            let limit = Limit {
                rule: Rule::Semaphore(semaphore),
                per_call: false,
            };
            memory.limiter(b"n", Limits::new(vec![limit], 0).unwrap())
        };
        let (old, new) = (of(1), of(2));
        let first = memory.acquire_blocking(&new, &Request::TRY);
        assert_eq!(first.status, Status::Ok);
        let members = new.family.members.lock();
        let (tell, told) = mpsc::channel();
        let memory = memory.clone();
        std::thread::spawn(move || {
            let ask = || memory.acquire_blocking(&old, &Request::TRY).status;
            tell.send([ask(), ask()])
        });
        let asked = told.recv_timeout(Duration::from_secs(60));
        assert_eq!(asked, Ok([Status::Ok, Status::Denied]));
        drop(members);
    }
}
