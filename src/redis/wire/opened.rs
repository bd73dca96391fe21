//! When limiters were opened, by the server's clock.
//!
//! Of limiters with one name and one config version that differ in their numbers the last opened decides,
//! in all processes: a stored key knows by when its limits were opened, and follows later ones only. So
//! they cannot take turns, and nobody mints tokens by changing to and fro.
//!
//! No process knows the server's clock before its first call. Until then it tells how long ago it opened a
//! limiter, and the script counts back. From the first answer on, it reckons all its openings by one
//! distance between the clocks, so that they keep their order whatever either clock does later. If the
//! server's clock is set back, what was opened before decides until it has caught up: one set of numbers
//! all the while, and a higher version overrules it.
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::Clock;
use crate::limit::time::{Span, Time};

/// The openings of one client.
pub struct Openings {
    clock: Arc<Clock>,
    start: Time,
    /// The latest, in microseconds after the start.
    last: AtomicU64,
    /// The server's time at the start, rather too late than too early; zero until it is known.
    base: AtomicU64,
}

/// When a limiter was opened.
#[derive(Clone, Debug, Default)]
pub enum Opened {
    /// Anew with each call.
    #[default]
    Always,
    /// By the server's clock.
    At(Time),
    /// So many microseconds after the start of its client.
    After(Arc<Openings>, u64),
}

/// How that is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    At(Time),
    Ago(Span),
}

impl fmt::Debug for Openings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Openings").finish_non_exhaustive()
    }
}

impl Openings {
    /// `clock` is the client's.
    pub fn new(clock: Arc<Clock>) -> Openings {
        Openings {
            start: clock.now(),
            clock,
            last: AtomicU64::new(0),
            base: AtomicU64::new(0),
        }
    }

    /// A limiter is opened now; no two at one time.
    pub fn open(self: &Arc<Openings>) -> Opened {
        let now = self.elapsed();
        let later = |last: u64| Some(now.max(last + 1));
        let last = self
            .last
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
        let last = last.expect("there is always a later time");
        Opened::After(self.clone(), now.max(last + 1))
    }

    fn elapsed(&self) -> u64 {
        self.clock.now().since(self.start).0
    }
}

impl Opened {
    pub(super) fn told(&self) -> Told {
        match self {
            Opened::Always => Told::Ago(Span::ZERO),
            Opened::At(time) => Told::At(*time),
            Opened::After(all, after) => match all.base.load(Ordering::Relaxed) {
                0 => Told::Ago(Span(all.elapsed().saturating_sub(*after))),
                base => Told::At(Time(base + after)),
            },
        }
    }

    /// A call that told so was run when the server's clock stood at `server`. Of several such calls the
    /// latest count counts: no key has a later one stored, and the order among all openings stays.
    pub(super) fn learn(&self, told: Told, server: Time) {
        if let (Opened::After(all, after), Told::Ago(age)) = (self, told) {
            let base = server.0.saturating_sub(age.0).saturating_sub(*after);
            all.base.fetch_max(base.max(1), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(opened: &Opened) -> u64 {
        match opened.told() {
            Told::At(time) => time.0,
            Told::Ago(_) => panic!("the server's clock is known"),
        }
    }

    #[test]
    fn openings_keep_their_order_whatever_is_learned_when() {
        let clock = Arc::new(Clock::virtual_clock());
        let all = Arc::new(Openings::new(clock.clone()));
        let opened: Vec<Opened> = (0..1_000).map(|_| all.open()).collect();
        clock.show(Clock::VIRTUAL_START + Span::secs(5));
        let (a, b) = (opened[0].told(), opened[999].told());
        assert_eq!(a, Told::Ago(Span(4_999_999)), "no two at one time");
        assert_eq!(b, Told::Ago(Span(4_999_000)));
        // Two calls were under way when the clock was not known; the second took longer.
        opened[0].learn(a, Time(1_000_000_000));
        let before: Vec<u64> = opened.iter().map(at).collect();
        assert_eq!(before[0], 1_000_000_000 - 4_999_999, "as the script counts");
        opened[999].learn(b, Time(1_000_300_000));
        let after: Vec<u64> = opened.iter().map(at).collect();
        assert_eq!(after[999], 1_000_300_000 - 4_999_000);
        for stamps in [&before, &after] {
            assert!(stamps.windows(2).all(|two| two[0] < two[1]));
        }
        assert!(before.iter().zip(&after).all(|(a, b)| a < b));
        // What is learned later, or told by the clock, moves nothing.
        opened[7].learn(Told::Ago(Span::secs(3)), Time(500_000));
        opened[7].learn(Told::At(Time(9)), Time(u64::MAX >> 12));
        assert_eq!(after, opened.iter().map(at).collect::<Vec<u64>>());
    }
}
