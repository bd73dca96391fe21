//! Rules that the client keeps so that the protocol holds. A simulation takes one away at a time, to see
//! that it would notice; what is released keeps them all.
use super::Redis;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A wait is asked for under one id until that came to nothing.
    OneId,
    /// A wait that ends is cancelled.
    Cancels,
    /// What ends something and was not heard is said again.
    SaysAgain,
    /// A call that comes too late does nothing.
    NotAfter,
    /// A lease counts from when it was asked for.
    FromSending,
    /// An id that is given up is kept out while a request for it may be under way.
    KeepsOut,
    /// A renewal is such a request.
    RenewalsToo,
    /// A permit is renewed when a third of its lease is over.
    RenewsEarly,
    /// A permit that is held says of which era it is.
    TellsEra,
    /// A permit is not believed in when its lease is over.
    Loses,
}

impl Redis {
    pub(super) fn keeps(&self, rule: Rule) -> bool {
        !cfg!(debug_assertions) || self.without != Some(rule)
    }
}
