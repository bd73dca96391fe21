//! How many keys are stored under the number of some limits alone: while there is one, they are kept.
//!
//! The counting needs no lock. Whoever stores a key has a handle of the limits at that time, so the count is
//! looked at only by who has found that nobody has one any more.
use crate::sync::atomic::{AtomicU64, Ordering, fence};

pub struct KeyCount(AtomicU64);

impl KeyCount {
    pub fn new() -> KeyCount {
        KeyCount(AtomicU64::new(0))
    }

    /// By whoever has a handle, and drops it afterwards.
    pub fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// A key is no more; with all that was done to it.
    pub fn uncount(&self) {
        self.0.fetch_sub(1, Ordering::Release);
    }

    /// Neither a handle nor a key: and none can come to be. `handles` tells how many there are besides the one
    /// that looks. It must not be able to become more while this looks.
    pub fn is_unused(&self, handles: impl FnOnce() -> usize) -> bool {
        if handles() > 0 {
            return false;
        }
        // What was done by whoever dropped theirs comes before what is read now.
        fence(Ordering::Acquire);
        self.0.load(Ordering::Acquire) == 0
    }
}
