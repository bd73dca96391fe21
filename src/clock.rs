//! The time a client lives by: a clock of the system that never runs backwards, or one that a test moves.
use crate::sync::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};

use crate::decision::Status;
use crate::limit::time::{Monotone, Span, Time};

/// Microseconds since 1970 as they stood when the clock was made, and never backwards from there.
pub struct Clock(Kind);

enum Kind {
    /// A clock of the system, moved so that it showed wall time at the start: windows align to that, and
    /// later changes of the wall clock have no effect.
    System { id: ClockId, ahead: u64 },
    Virtual {
        shown: AtomicU64,
        source: Mutex<Source>,
    },
}

/// What a virtual clock was set to, which may step back, and what becomes of it.
pub struct Source {
    raw: Time,
    monotone: Monotone,
}

impl Clock {
    /// Where a virtual clock starts: far enough from zero that windows have a past.
    pub const VIRTUAL_START: Time = Time(1_000_000_000_000_000);
    /// A virtual clock stops here: that leaves room for the longest waits in a signed 64-bit and in a double.
    pub const VIRTUAL_END: Time = Time(1 << 52);

    /// Stands still while the machine is suspended.
    pub fn monotonic() -> Clock {
        Clock::system(ClockId::CLOCK_MONOTONIC)
    }

    /// Goes on while the machine is suspended, as the clocks of others do.
    pub fn boottime() -> Clock {
        Clock::system(ClockId::CLOCK_BOOTTIME)
    }

    fn system(id: ClockId) -> Clock {
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let wall = wall.as_secs() * 1_000_000 + u64::from(wall.subsec_micros());
        Clock(Kind::System {
            id,
            ahead: wall.wrapping_sub(read(id)),
        })
    }

    /// A clock that stands still until it is moved.
    pub fn virtual_clock() -> Clock {
        let raw = Clock::VIRTUAL_START;
        let mut monotone = Monotone::default();
        monotone.observe(raw);
        let source = Mutex::new(Source { raw, monotone });
        Clock(Kind::Virtual {
            shown: AtomicU64::new(raw.0),
            source,
        })
    }

    pub fn now(&self) -> Time {
        match &self.0 {
            Kind::System { id, ahead } => Time(read(*id).wrapping_add(*ahead)),
            Kind::Virtual { shown, .. } => Time(shown.load(Ordering::Acquire)),
        }
    }

    pub fn is_virtual(&self) -> bool {
        matches!(self.0, Kind::Virtual { .. })
    }

    /// How long to sleep until `at`; `None` where no sleep helps because the clock is virtual.
    pub fn sleep_until(&self, at: Time) -> Option<Duration> {
        match &self.0 {
            Kind::System { .. } => Some(Duration::from_micros(at.since(self.now()).0)),
            Kind::Virtual { .. } => None,
        }
    }

    /// The right to move a virtual clock; held by one thread at a time.
    pub(crate) fn source(&self) -> Option<MutexGuard<'_, Source>> {
        match &self.0 {
            Kind::System { .. } => None,
            Kind::Virtual { source, .. } => Some(source.lock()),
        }
    }

    /// Shows `at` from now on, unless that is in the past. Only for the holder of the source, or where one
    /// thread does everything.
    pub fn show(&self, at: Time) {
        if let Kind::Virtual { shown, .. } = &self.0 {
            shown.fetch_max(at.0, Ordering::AcqRel);
        }
    }
}

impl Source {
    /// Sets the raw clock; answers what it means for a clock that never runs backwards. Beyond the end is
    /// refused.
    pub(crate) fn set(&mut self, raw: Time) -> Result<Time, Status> {
        if raw > Clock::VIRTUAL_END {
            return Err(Status::Invalid);
        }
        self.raw = raw;
        let now = self.monotone.observe(self.raw);
        if now > Clock::VIRTUAL_END {
            // Set back and forth, it has added up beyond the end: there it stops.
            let beyond = now.since(Clock::VIRTUAL_END);
            self.monotone.skew = Span(self.monotone.skew.0.saturating_sub(beyond.0));
            self.monotone.seen = Clock::VIRTUAL_END;
        }
        Ok(now.min(Clock::VIRTUAL_END))
    }

    pub(crate) fn advance(&mut self, by: Span) -> Result<Time, Status> {
        if by > Clock::VIRTUAL_END.since(self.monotone.seen) {
            return Err(Status::Invalid);
        }
        self.set(self.raw + by)
    }
}

/// Microseconds since the machine started. Asked of the system directly, because `Instant` tells only
/// differences, and makes them dear.
fn read(id: ClockId) -> u64 {
    let now = clock_gettime(id).expect("every Linux has these clocks");
    now.tv_sec() as u64 * 1_000_000 + now.tv_nsec() as u64 / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_clock_set_back_stands_still_and_then_goes_on() {
        let clock = Clock::virtual_clock();
        let start = clock.now();
        assert_eq!(start, Clock::VIRTUAL_START);
        let go = |to: Time| clock.show(to);
        let mut source = clock.source().unwrap();
        go(source.advance(Span::secs(10)).unwrap());
        assert_eq!(clock.now(), start + Span::secs(10));
        go(source.set(start + Span::secs(7)).unwrap());
        assert_eq!(clock.now(), start + Span::secs(10));
        go(source.advance(Span::secs(1)).unwrap());
        assert_eq!(clock.now(), start + Span::secs(11));
    }

    #[test]
    fn a_virtual_clock_goes_to_its_end_and_not_beyond() {
        let clock = Clock::virtual_clock();
        let mut source = clock.source().unwrap();
        let left = Clock::VIRTUAL_END.since(Clock::VIRTUAL_START);
        assert_eq!(
            source.set(Clock::VIRTUAL_END + Span(1)),
            Err(Status::Invalid)
        );
        for beyond in [left + Span(1), Span(u64::MAX)] {
            assert_eq!(source.advance(beyond), Err(Status::Invalid));
        }
        assert_eq!(source.advance(Span(0)), Ok(Clock::VIRTUAL_START));
        assert_eq!(source.advance(left), Ok(Clock::VIRTUAL_END));
        // Set back, it has not more to go.
        assert_eq!(source.set(Clock::VIRTUAL_START), Ok(Clock::VIRTUAL_END));
        assert_eq!(source.advance(Span(1)), Err(Status::Invalid));
        assert_eq!(source.advance(Span(0)), Ok(Clock::VIRTUAL_END));
    }

    #[test]
    fn the_systems_clocks_start_at_wall_time_and_sleep_to_their_own_microsecond() {
        for clock in [Clock::monotonic(), Clock::boottime()] {
            let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            assert!(clock.now().0.abs_diff(wall.as_micros() as u64) < 5_000_000);
            let due = clock.now() + Span(300);
            std::thread::sleep(clock.sleep_until(due).unwrap());
            assert!(clock.now() >= due);
            assert_eq!(clock.sleep_until(due), Some(Duration::ZERO));
        }
    }
}
