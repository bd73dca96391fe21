//! Sliding log: at most `limit` units in any window, exactly, by remembering every admission.
use crate::limit::bounds::{self, MAX_BOOKED, MAX_COUNT};
pub use crate::limit::log::Log;
use crate::limit::rule::{Figures, Wait};
use crate::limit::time::{Span, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    limit: u64,
    window: Span,
}

/// What one admission took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogCharge {
    pub weight: u64,
    at: Time,
    /// Of several, joined: that of the first.
    from: Time,
}

impl LogCharge {
    /// What undoes both, of which the later came right after this one.
    pub fn join(&self, later: &LogCharge) -> LogCharge {
        LogCharge {
            weight: (self.weight + later.weight).min(MAX_BOOKED),
            from: self.from,
            ..*later
        }
    }
}

impl SlidingLog {
    pub fn new(limit: u64, window: Span) -> Result<SlidingLog, String> {
        bounds::check_capacity(limit)?;
        bounds::check_period(window)?;
        Ok(SlidingLog { limit, window })
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    pub fn window(&self) -> Span {
        self.window
    }

    pub fn fresh_at(&self, log: &Log) -> Time {
        log.last().map_or(Time(0), |entry| entry.time + self.window)
    }

    pub fn wait(&self, log: &Log, at: Time, weight: u64) -> Wait {
        if weight > self.limit {
            return Wait::Never;
        }
        // So much of the oldest weight must have left.
        let must_leave = log.total().saturating_sub(self.limit - weight);
        if log.before(log.expired(at, self.window)) >= must_leave {
            return Wait::Now;
        }
        let last = log.find(|entry| log.through(entry) < must_leave);
        let last = log.get(last).expect("less than all must leave");
        Wait::After((last.time + self.window).since(at))
    }

    /// Bookings ahead are remembered, too; sums stay exact.
    pub fn has_room(&self, log: &Log, now: Time, weight: u64) -> bool {
        self.used(log, now).saturating_add(weight) <= MAX_BOOKED
    }

    /// What is less than a window old at `at`.
    fn used(&self, log: &Log, at: Time) -> u64 {
        log.total() - log.before(log.expired(at, self.window))
    }

    /// Forgets what is a window old now (not at `at`: until then the charge may be undone).
    pub fn charge(&self, log: &mut Log, now: Time, at: Time, weight: u64) -> LogCharge {
        log.expire(now, self.window);
        match log.last() {
            Some(last) if last.time == at => {
                let last = log.find(|entry| entry.time < at);
                log.add(last, weight);
            }
            last => {
                debug_assert!(last.is_none_or(|last| last.time < at), "time runs forward");
                log.push(at, weight);
            }
        }
        LogCharge {
            weight,
            at,
            from: at,
        }
    }

    pub fn undo(&self, log: &mut Log, charge: &LogCharge) {
        let mut left = charge.weight;
        while left > 0 {
            let behind = log.find(|entry| entry.time <= charge.at);
            let after = log.before(behind);
            let Some(last) = log.previous(behind).filter(|last| last.time >= charge.from) else {
                return;
            };
            let place = log.find(|entry| entry.time < last.time);
            let weight = left.min(after - log.before(place));
            log.add(place, 0u64.wrapping_sub(weight));
            left -= weight;
        }
    }

    /// Corrects the entry of the charge, as long as it is remembered.
    pub fn adjust(&self, log: &mut Log, charge: &mut LogCharge, actual: u64) {
        let place = log.find(|entry| entry.time < charge.at);
        let Some(entry) = log.get(place).filter(|entry| entry.time == charge.at) else {
            return;
        };
        let held = log.through(entry) - log.before(place);
        let weight = charge.weight.min(held);
        let others = log.total() - weight;
        // Bookings ahead may count more than that already, and keep it.
        let actual = actual.min(MAX_COUNT.saturating_sub(others).max(weight));
        log.add(place, actual.wrapping_sub(weight));
        charge.weight = actual;
    }

    /// Takes `extra` from `at` on, which is not before what was logged.
    pub fn owe(&self, log: &mut Log, at: Time, extra: u64) {
        let extra = extra.min(MAX_COUNT.saturating_sub(log.total()));
        if extra > 0 {
            self.charge(log, Time(0), at, extra);
        }
    }

    /// Reset is when the oldest entry leaves.
    pub fn figures(&self, log: &Log, at: Time) -> Figures {
        Figures {
            limit: self.limit,
            remaining: self.limit.saturating_sub(self.used(log, at)),
            reset_after: log
                .get(log.expired(at, self.window))
                .map_or(Span::ZERO, |entry| (entry.time + self.window).since(at)),
        }
    }
}
