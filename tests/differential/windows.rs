//! What counts in windows: a log of all that was let pass, counts by window, and one window.
use std::collections::BTreeMap;

use crate::exact::*;

#[derive(Clone, Debug)]
pub struct Log {
    limit: u64,
    window: u64,
    passed: BTreeMap<u64, u64>,
}

impl Log {
    pub fn new(limit: u64, window: u64) -> Log {
        Log {
            limit,
            window,
            passed: BTreeMap::new(),
        }
    }

    /// What counts at `at`: one that is exactly a window old does not.
    fn counting(&self, at: u64) -> impl Iterator<Item = (u64, u64)> {
        let old = move |(time, _): &(u64, u64)| time + self.window <= at;
        self.passed.iter().map(|(t, w)| (*t, *w)).skip_while(old)
    }

    pub fn wait(&self, at: u64, weight: u64) -> Wait {
        if weight > self.limit {
            return Wait::Never;
        }
        let mut used: u64 = self.counting(at).map(|(_, weight)| weight).sum();
        let mut free_at = at;
        let mut oldest = self.counting(at);
        while used > self.limit - weight {
            let (time, weight) = oldest.next().expect("what is used was let pass");
            used -= weight;
            free_at = time + self.window;
        }
        Wait::until(free_at, at)
    }

    pub fn take(&mut self, now: u64, at: u64, weight: u64) {
        let window = self.window;
        self.passed.retain(|time, _| time + window > now);
        *self.passed.entry(at).or_default() += weight;
    }

    pub fn figures(&self, at: u64) -> Figures {
        let used = self.counting(at).map(|(_, weight)| weight).sum();
        let oldest = self.counting(at).next();
        Figures {
            limit: self.limit,
            remaining: self.limit.saturating_sub(used),
            reset: oldest.map_or(0, |(time, _)| time + self.window - at),
        }
    }

    pub fn settle(&mut self, taken_at: u64, weight: u64, actual: u64) {
        if let Some(passed) = self.passed.get_mut(&taken_at) {
            *passed = passed.saturating_sub(weight) + actual;
            if *passed == 0 {
                self.passed.remove(&taken_at);
            }
        }
    }
}

#[derive(Clone, Debug)]
pub struct Counter {
    limit: u64,
    window: u64,
    /// By the number of the window.
    counts: BTreeMap<u64, u64>,
}

impl Counter {
    pub fn new(limit: u64, window: u64) -> Counter {
        Counter {
            limit,
            window,
            counts: BTreeMap::new(),
        }
    }

    fn count(&self, window: u64) -> u64 {
        self.counts.get(&window).copied().unwrap_or(0)
    }

    /// What is used at `at`: the share of the window before is rounded up.
    fn used(&self, at: u64) -> u64 {
        let (current, into) = (at / self.window, at % self.window);
        let before = self.count(current - 1);
        let share = ratio(self.window - into, self.window);
        self.count(current) + ceil(&(share * q(before)))
    }

    pub fn wait(&self, at: u64, weight: u64) -> Wait {
        if weight > self.limit {
            return Wait::Never;
        }
        let room = self.limit - weight;
        if self.used(at) <= room {
            return Wait::Now;
        }
        for window in at / self.window.. {
            let (before, current) = (self.count(window - 1), self.count(window));
            if current > room {
                continue;
            }
            // At least so much of the window has passed when the rest of the one before is small enough.
            let least = match before {
                0 => q(0),
                _ => less(&q(1), &ratio(room - current, before)) * q(self.window),
            };
            let fits = window * self.window + ceil(&least);
            if fits >= at && fits < (window + 1) * self.window {
                return Wait::until(fits, at);
            }
        }
        unreachable!("windows go on for ever")
    }

    pub fn take(&mut self, at: u64, weight: u64) -> u64 {
        let current = at / self.window;
        self.counts.retain(|window, _| window + 2 >= current);
        *self.counts.entry(current).or_default() += weight;
        current
    }

    pub fn figures(&self, at: u64) -> Figures {
        let current = at / self.window;
        let last = match (self.count(current), self.count(current - 1)) {
            (0, 0) => 0,
            (0, _) => current + 1,
            _ => current + 2,
        };
        Figures {
            limit: self.limit,
            remaining: self.limit.saturating_sub(self.used(at)),
            reset: (last * self.window).saturating_sub(at),
        }
    }

    pub fn settle(&mut self, window: u64, weight: u64, actual: u64) {
        if let Some(count) = self.counts.get_mut(&window) {
            *count = count.saturating_sub(weight) + actual;
        }
    }
}

#[derive(Clone, Debug)]
pub struct Window {
    limit: u64,
    length: u64,
    first_use: bool,
    start: u64,
    used: u64,
}

impl Window {
    pub fn new(limit: u64, length: u64, first_use: bool) -> Window {
        Window {
            limit,
            length,
            first_use,
            start: 0,
            used: 0,
        }
    }

    /// Start and use of the window that `at` lies in.
    fn of(&self, at: u64) -> (u64, u64) {
        if self.used > 0 && at < self.start + self.length {
            return (self.start, self.used);
        }
        let aligned = at / self.length * self.length;
        (if self.first_use { at } else { aligned }, 0)
    }

    pub fn wait(&self, at: u64, weight: u64) -> Wait {
        let (start, used) = self.of(at);
        match (weight > self.limit, used + weight > self.limit) {
            (true, _) => Wait::Never,
            (_, true) => Wait::until(start + self.length, at),
            _ => Wait::Now,
        }
    }

    pub fn take(&mut self, at: u64, weight: u64) -> u64 {
        (self.start, self.used) = self.of(at);
        self.used += weight;
        self.start
    }

    pub fn figures(&self, at: u64) -> Figures {
        let (start, used) = self.of(at);
        Figures {
            limit: self.limit,
            remaining: self.limit.saturating_sub(used),
            reset: if used > 0 {
                start + self.length - at
            } else {
                0
            },
        }
    }

    pub fn settle(&mut self, start: u64, weight: u64, actual: u64) {
        if start == self.start {
            self.used = self.used.saturating_sub(weight) + actual;
        }
    }
}
