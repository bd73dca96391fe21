//! What a bucket was given back, so that nothing is given back twice.
//!
//! Time pays off what a bucket owes, in the order it was charged; so of one charge there is still owed
//! what lies between now and its end. A refund moves the ends of all later charges, too, and the
//! charges do not know: they remember the ledger's sum instead, and the difference tells.
use crate::limit::rate::Tick;
use crate::limit::rule::State;
use crate::limit::time::Time;

/// Beyond this the sum begins anew, and charges from before get nothing back.
const MAX_SUM: u64 = 1 << 52;

/// A sum of refunds. Time for a token bucket; whole units, in `us`, for an interval bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// How often the sum began anew.
    pub era: u32,
    pub refunded: Tick,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// All refunds so far.
    pub sum: Mark,
    /// When all that was charged under this ledger, or before it, would have been paid off if nothing
    /// had been refunded. Some charge may ask until then.
    pub until: Time,
}

/// A bucket with its ledger. Few keys ever have one, so it is kept out of the plain state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledgered {
    pub bucket: State,
    pub ledger: Ledger,
}

impl Ledger {
    /// Something that is paid off at `end` was charged.
    pub fn charged(&mut self, end: Time) {
        self.until = self.until.max(end);
    }

    /// Begins anew: what was charged before gets nothing back any more. For a price that changed, in which
    /// the sum would mean something else.
    pub fn restart(&mut self) {
        self.sum = Mark {
            era: self.sum.era + 1,
            refunded: Tick::ZERO,
        };
    }

    /// The sum is now `refunded`.
    pub fn set(&mut self, refunded: Tick) {
        self.sum.refunded = refunded;
        if refunded.us > MAX_SUM {
            self.restart();
        }
    }
}
