//! Sliding log: at most `limit` units in any window, exactly, by remembering every admission.
use std::collections::VecDeque;

use crate::limit::bounds::{self, MAX_COUNT};
use crate::limit::rule::{Figures, Wait};
use crate::limit::time::{Span, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    limit: u64,
    window: Span,
}

/// Admissions in order. Sums run on, so that the weight between two entries is one subtraction and
/// every question is a binary search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    entries: VecDeque<Entry>,
    /// The running sum before the first entry.
    gone: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    time: Time,
    /// Weight of this entry and of all before it, modulo 2^64.
    sum: u64,
}

/// What one admission took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogCharge {
    pub weight: u64,
    at: Time,
}

impl Log {
    /// Weight up to and including the entry before `index`, from the first entry.
    fn before(&self, index: usize) -> u64 {
        match index {
            0 => 0,
            _ => self.entries[index - 1].sum.wrapping_sub(self.gone),
        }
    }

    fn total(&self) -> u64 {
        self.before(self.entries.len())
    }

    fn last_sum(&self) -> u64 {
        self.entries.back().map_or(self.gone, |entry| entry.sum)
    }

    /// How many entries are a window old or older at `at`.
    fn expired(&self, at: Time, window: Span) -> usize {
        self.entries
            .partition_point(|entry| entry.time + window <= at)
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
        log.entries
            .back()
            .map_or(Time(0), |entry| entry.time + self.window)
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
        let last = log
            .entries
            .partition_point(|entry| entry.sum.wrapping_sub(log.gone) < must_leave);
        Wait::After((log.entries[last].time + self.window).since(at))
    }

    /// Forgets what is a window old now (not at `at`: until then the charge may be undone).
    pub fn charge(&self, log: &mut Log, now: Time, at: Time, weight: u64) -> LogCharge {
        while log
            .entries
            .front()
            .is_some_and(|entry| entry.time + self.window <= now)
        {
            log.gone = log.entries.pop_front().expect("there is a front").sum;
        }
        let sum = log.last_sum().wrapping_add(weight);
        match log.entries.back_mut() {
            Some(last) if last.time == at => last.sum = sum,
            last => {
                debug_assert!(last.is_none_or(|last| last.time < at), "time runs forward");
                log.entries.push_back(Entry { time: at, sum });
            }
        }
        LogCharge { weight, at }
    }

    pub fn undo(&self, log: &mut Log, charge: &LogCharge) {
        self.adjust(log, &mut charge.clone(), 0);
    }

    /// Corrects the entry of the charge, as long as it is remembered.
    pub fn adjust(&self, log: &mut Log, charge: &mut LogCharge, actual: u64) {
        let index = log.entries.partition_point(|entry| entry.time < charge.at);
        if log.entries.get(index).is_none_or(|e| e.time != charge.at) {
            return;
        }
        let held = log.before(index + 1) - log.before(index);
        let weight = charge.weight.min(held);
        let others = log.total() - weight;
        let actual = actual.min(MAX_COUNT.saturating_sub(others));
        for entry in log.entries.range_mut(index..) {
            entry.sum = entry.sum.wrapping_sub(weight).wrapping_add(actual);
        }
        if log.before(index) == log.before(index + 1) {
            log.entries.remove(index);
        }
        charge.weight = actual;
    }

    /// Reset is when the oldest entry leaves.
    pub fn figures(&self, log: &Log, at: Time) -> Figures {
        let expired = log.expired(at, self.window);
        let used = log.total() - log.before(expired);
        Figures {
            limit: self.limit,
            remaining: self.limit.saturating_sub(used),
            reset_after: log
                .entries
                .get(expired)
                .map_or(Span::ZERO, |entry| (entry.time + self.window).since(at)),
        }
    }
}
