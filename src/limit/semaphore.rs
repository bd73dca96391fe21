//! Semaphore: at most `capacity` units held at once. Who holds them, and until when, the backend knows.
use crate::limit::bounds;
use crate::limit::rule::{Figures, Wait};
use crate::limit::time::Span;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Semaphore {
    capacity: u64,
    /// How long a permit lives unrenewed. Zero: the client's default.
    pub lease: Span,
    /// The library renews permits while they are held.
    pub renew: bool,
}

impl Semaphore {
    pub fn new(capacity: u64, lease: Span, renew: bool) -> Result<Semaphore, String> {
        bounds::check_capacity(capacity)?;
        Ok(Semaphore {
            capacity,
            lease,
            renew,
        })
    }

    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    pub fn wait(&self, used: u64, weight: u64) -> Wait {
        if weight > self.capacity {
            return Wait::Never;
        }
        // After the capacity was lowered, more may be in use than fits.
        if used > self.capacity - weight {
            return Wait::Release;
        }
        Wait::Now
    }

    pub fn figures(&self, used: u64) -> Figures {
        Figures {
            limit: self.capacity,
            remaining: self.capacity.saturating_sub(used),
            reset_after: Span::ZERO,
        }
    }
}
