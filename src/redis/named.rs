//! Limits under a name, and their keys.
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use super::local::StandIn;
use super::penalty;
use super::queued::{self, Life};
use super::wire::Target;
use crate::config::Own;
use crate::limit::decide::Limits;
use crate::limit::rule::{Kind, Rule};
use crate::limit::weights::Weights;

/// Limits under a name.
pub struct Named {
    pub limits: Limits,
    /// Of all handles of the name the same.
    pub(super) number: u128,
    pub(super) target: Target,
    pub(super) own: Arc<Own>,
    pub(super) stand_in: StandIn,
    /// If there is a semaphore among them.
    pub(super) life: Option<Life>,
}

impl Named {
    pub(super) fn life(&self) -> &Life {
        self.life.as_ref().expect("there is a semaphore")
    }

    /// Whether something of a semaphore is asked for.
    pub(super) fn holds(&self, weights: &Weights) -> bool {
        queued::holds(&self.limits, weights)
    }

    /// One at a time.
    pub(super) fn is_lock(&self) -> bool {
        let semaphore = |rule: &Rule| matches!(rule, Rule::Semaphore(rule) if rule.capacity() == 1);
        matches!(self.limits.limits(), [limit] if semaphore(&limit.rule))
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
