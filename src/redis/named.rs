//! Limits under a name, and their keys.
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use super::local::StandIn;
use super::penalty;
use super::queued::{self, Life};
use super::wire::Target;
use crate::config::Own;
use crate::limit::decide::Limits;
use crate::limit::rule::{Kind, Rule};
use crate::limit::weights::Weights;
use crate::sync::Mutex;

/// Limits under a name.
pub struct Named {
    pub limits: Limits,
    /// Of all handles of the name the same.
    pub(super) number: u128,
    pub(super) rules: Arc<Rules>,
    pub(super) family: Arc<Family>,
    pub(super) own: Arc<Own>,
    pub(super) stand_in: StandIn,
}

/// What a call is decided under.
pub(super) struct Rules {
    pub target: Target,
    /// If there is a semaphore among them.
    pub life: Option<Life>,
    /// Permits are renewed, unless the caller says otherwise.
    pub renews: bool,
    /// One at a time.
    lock: bool,
    rank: u64,
}

/// All limits of one name and the same kinds that this client has opened: whichever handle is used, the
/// newest are meant.
pub(super) struct Family {
    /// Rank of the newest.
    highest: AtomicU64,
    newest: Mutex<Option<Arc<Rules>>>,
}

/// Those of a client, by their number.
#[derive(Default)]
pub(super) struct Families(Mutex<Opened>);

#[derive(Default)]
struct Opened {
    members: HashMap<u128, Weak<Family>>,
    count: u32,
}

impl Families {
    /// Limits are opened: of those with the highest version the last opened are the newest.
    pub fn open(
        &self,
        number: u128,
        limits: &Limits,
        life: Option<Life>,
        target: impl FnOnce() -> Target,
    ) -> (Arc<Family>, Arc<Rules>) {
        let mut opened = self.0.lock();
        opened.count = opened.count.saturating_add(1);
        let known = opened.members.get(&number).and_then(Weak::upgrade);
        let family = known.unwrap_or_else(|| {
            if opened.members.len().is_power_of_two() {
                opened.members.retain(|_, family| family.strong_count() > 0);
            }
            Arc::new(Family {
                highest: AtomicU64::new(0),
                newest: Mutex::default(),
            })
        });
        opened.members.insert(number, Arc::downgrade(&family));
        let semaphore = |rule: &Rule| matches!(rule, Rule::Semaphore(rule) if rule.capacity() == 1);
        let rules = Arc::new(Rules {
            target: target(),
            life,
            renews: limits.renews(),
            lock: matches!(limits.limits(), [limit] if semaphore(&limit.rule)),
            rank: u64::from(limits.version()) << 32 | u64::from(opened.count),
        });
        if rules.rank >= family.highest.load(Ordering::Relaxed) {
            *family.newest.lock() = Some(rules.clone());
            family.highest.store(rules.rank, Ordering::Release);
        }
        (family, rules)
    }
}

impl Rules {
    pub fn life(&self) -> &Life {
        self.life.as_ref().expect("there is a semaphore")
    }
}

impl Named {
    /// What calls through this handle are decided under: its own limits, unless newer ones are open.
    pub(super) fn current(&self) -> Arc<Rules> {
        if self.rules.rank < self.family.highest.load(Ordering::Acquire)
            && let Some(newest) = &*self.family.newest.lock()
        {
            return newest.clone();
        }
        self.rules.clone()
    }

    /// Redis is told that of the newest limits, whichever handle asks.
    pub(super) fn life(&self) -> Life {
        *self.current().life()
    }

    /// Whether something of a semaphore is asked for.
    pub(super) fn holds(&self, weights: &Weights) -> bool {
        queued::holds(&self.limits, weights)
    }

    /// No newer limits are open.
    pub(super) fn is_newest(&self) -> bool {
        self.rules.rank >= self.family.highest.load(Ordering::Acquire)
    }

    /// Any number of equal tries are decided as one; see [`Target::runs`].
    pub(super) fn runs(&self) -> bool {
        self.rules.target.runs()
    }

    /// One at a time.
    pub(super) fn is_lock(&self) -> bool {
        self.current().lock
    }

    /// Not all that is taken comes back by a release.
    pub(super) fn has_rates(&self) -> bool {
        let mut limits = self.limits.limits().iter();
        limits.any(|limit| limit.rule.kind() != Kind::Semaphore)
    }
}

/// One key of a limiter, through one of its handles. It is the same through all of them.
pub(super) struct Key {
    pub named: Arc<Named>,
    pub bytes: Box<[u8]>,
    pub(super) place: OnceLock<Box<str>>,
}

impl Key {
    /// What it goes by in a note to all.
    pub fn place(&self) -> &str {
        self.place.get_or_init(|| penalty::place(self))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.named.number == other.named.number && self.bytes == other.bytes
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.named.number.hash(hasher);
        self.bytes.hash(hasher);
    }
}
