//! What a bucket was given back, so that nothing is given back twice.
//!
//! Time pays off what a bucket owes, in the order it was charged; so of one charge there is still owed
//! what lies between now and its end. A refund moves the ends of all later charges, too, and the
//! charges do not know: they remember the ledger's sum instead, and the difference tells.
use crate::limit::rate::Tick;
use crate::limit::rule::State;
use crate::limit::time::Time;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// All refunds so far. Time for a token bucket; whole units, in `us`, for an interval bucket.
    pub refunded: Tick,
    /// When everything charged before the latest refund would have been paid off without refunds: until
    /// then some charge may still ask, so until then the sum is needed.
    pub until: Time,
}

/// A bucket with its ledger. Few keys ever have one, so it is kept out of the plain state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledgered {
    pub bucket: State,
    pub ledger: Ledger,
}

impl Ledger {
    pub fn note(&mut self, refunded: Tick, paid_off: Time) {
        self.refunded = refunded;
        self.until = self.until.max(paid_off);
    }
}
