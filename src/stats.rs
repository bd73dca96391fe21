//! What a client counts: plain counters, striped so that threads on different keys do not meet.
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that many threads change. A gauge goes down as well.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Adds one. Cheaper, and only for where no other thread changes this number meanwhile.
    pub fn bump(&self) {
        self.0.store(self.get() + 1, Ordering::Relaxed);
    }

    pub fn sub(&self, n: u64) {
        self.0.fetch_sub(n, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// One stripe of the counters.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct Stripe { $($(#[$doc])* pub $name: Count,)* }

        /// All stripes added up, one after another, not at one instant.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Totals { $($(#[$doc])* pub $name: u64,)* }

        impl Totals {
            pub fn add(&mut self, other: &Totals) {
                $(self.$name = self.$name.wrapping_add(other.$name);)*
            }

            fn include(&mut self, stripe: &Stripe) {
                $(self.$name = self.$name.wrapping_add(stripe.$name.get());)*
            }
        }
    };
}

counters! {
    /// Admitted calls.
    granted,
    /// Answers DENIED, at once or after a wait.
    denied,
    /// Answers NEVER.
    never,
    /// Waits that were cancelled or detached.
    cancelled,
    /// Permits released.
    released,
    /// Permits settled.
    settled,
    /// Permits whose lease ended while held.
    lost,
    /// Answers OVERLOADED, and words of lost leases that were dropped because too many had not been taken.
    overloaded,
    /// Answers of the failure policy.
    degraded,
    /// Requests the backend failed to answer.
    backend_errors,
    /// Scripts sent to the backend.
    backend_calls,
    /// Times a connection was made.
    connects,
    /// Gauge: semaphore permits held now.
    in_flight,
    /// Gauge: waits under way now.
    waiting,
    /// Gauge: keys in memory now.
    keys,
}

/// The counters of one client.
#[derive(Debug)]
pub struct Stats {
    stripes: [Stripe; Stats::STRIPES],
}

impl Default for Stats {
    fn default() -> Stats {
        Stats {
            stripes: std::array::from_fn(|_| Stripe::default()),
        }
    }
}

impl Stats {
    pub const STRIPES: usize = 64;

    /// The stripe to count in; any number will do.
    pub fn stripe(&self, index: usize) -> &Stripe {
        &self.stripes[index % Stats::STRIPES]
    }

    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for stripe in &self.stripes {
            totals.include(stripe);
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_may_go_down_in_another_stripe_than_it_went_up_in() {
        let stats = Stats::default();
        stats.stripe(1).waiting.add(3);
        stats.stripe(66).waiting.sub(2);
        assert_eq!(
            stats.totals(),
            Totals {
                waiting: 1,
                ..Totals::default()
            }
        );
    }
}
