//! Sliding counter: about `limit` units in any window, in constant memory. Counted are the current
//! window and the share of the previous one that a sliding window still covers, rounded up.
use crate::limit::bounds::{self, MAX_COUNT};
use crate::limit::fixed_window::aligned;
use crate::limit::rate::muldiv;
use crate::limit::rule::{Figures, Wait};
use crate::limit::time::{Span, Time};
use crate::limit::windows::{self, Windows};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingCounter {
    limit: u64,
    window: Span,
}

/// Units in the window that began at `start` and in the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    pub start: Time,
    pub current: u64,
    pub previous: u64,
}

impl windows::Window for Counts {
    fn start(&self) -> Time {
        self.start
    }
}

/// What one admission took, and the counts it found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CounterCharge {
    pub weight: u64,
    start: Time,
    before: Counts,
}

impl CounterCharge {
    /// What undoes both, of which the later came right after this one: of the same window.
    pub fn join(&self, later: &CounterCharge) -> Option<CounterCharge> {
        let same = later.start == later.before.start && later.start == self.start;
        same.then(|| CounterCharge {
            weight: self.weight.saturating_add(later.weight),
            ..*self
        })
    }
}

impl SlidingCounter {
    pub fn new(limit: u64, window: Span) -> Result<SlidingCounter, String> {
        bounds::check_capacity(limit)?;
        bounds::check_period(window)?;
        Ok(SlidingCounter { limit, window })
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    pub fn window(&self) -> Span {
        self.window
    }

    pub fn fresh(&self, now: Time) -> Counts {
        Counts {
            start: aligned(now, self.window),
            current: 0,
            previous: 0,
        }
    }

    pub fn fresh_at(&self, state: Counts) -> Time {
        match (state.current, state.previous) {
            (0, 0) => Time(0),
            (0, _) => state.start + self.window,
            _ => state.start + self.window + self.window,
        }
    }

    fn advance(&self, state: Counts, at: Time) -> Counts {
        let start = aligned(at, self.window);
        if start <= state.start {
            return state;
        }
        Counts {
            start,
            current: 0,
            previous: match start == state.start + self.window {
                true => state.current,
                false => 0,
            },
        }
    }

    /// The share of the previous window that still counts at `at`, which lies in the current one.
    fn share(&self, state: Counts, at: Time) -> u64 {
        let left = self.window.0 - at.since(state.start).0.min(self.window.0);
        let (whole, rest) = muldiv(state.previous, left, self.window.0);
        whole + (rest > 0) as u64
    }

    /// How far into the window `previous` has faded to at most `room`.
    fn faded(&self, previous: u64, room: u64) -> u64 {
        if previous <= room {
            return 0;
        }
        self.window.0 - muldiv(room, self.window.0, previous).0
    }

    pub fn wait(&self, state: Counts, at: Time, weight: u64) -> Wait {
        if weight > self.limit {
            return Wait::Never;
        }
        let state = self.advance(state, at);
        let room = self.limit - weight;
        let next = state.start + self.window;
        let mut fits = next + Span(self.faded(state.current, room));
        if state.current <= room {
            let fades = state.start + Span(self.faded(state.previous, room - state.current));
            fits = fits.min(fades);
        }
        match fits.since(at) {
            Span::ZERO => Wait::Now,
            wait => Wait::After(wait),
        }
    }

    pub fn charge(
        &self,
        state: &mut Windows<Counts>,
        now: Time,
        at: Time,
        weight: u64,
    ) -> CounterCharge {
        state.forget(|counts| counts.start + self.window + self.window <= now);
        let before = state.latest;
        let needed = at > now && self.fresh_at(before) > now;
        state.move_on(self.advance(before, at), needed);
        state.latest.current += weight;
        CounterCharge {
            weight,
            start: state.latest.start,
            before,
        }
    }

    pub fn undo(&self, state: &mut Windows<Counts>, charge: &CounterCharge) {
        if charge.start == charge.before.start {
            state.latest.current = state.latest.current.saturating_sub(charge.weight);
        } else {
            state.move_back(charge.before);
        }
    }

    /// Corrects the window the charge counts in, as long as it counts, wherever it is remembered.
    pub fn adjust(&self, state: &mut Windows<Counts>, charge: &mut CounterCharge, actual: u64) {
        let actual = actual.min(MAX_COUNT);
        let mut weight = charge.weight;
        for counts in state.all_mut() {
            let count = if charge.start == counts.start {
                &mut counts.current
            } else if charge.start + self.window == counts.start {
                &mut counts.previous
            } else {
                continue;
            };
            *count = (count.saturating_sub(charge.weight) + actual).min(MAX_COUNT);
            weight = actual;
        }
        charge.weight = weight;
    }

    /// Takes `extra` from `at` on.
    pub fn owe(&self, state: &mut Windows<Counts>, at: Time, extra: u64) {
        state.move_on(self.advance(state.latest, at), false);
        state.latest.current = state.latest.current.saturating_add(extra).min(MAX_COUNT);
    }

    pub fn figures(&self, state: Counts, at: Time) -> Figures {
        let state = self.advance(state, at);
        let used = state.current.saturating_add(self.share(state, at));
        Figures {
            limit: self.limit,
            remaining: self.limit.saturating_sub(used),
            reset_after: self.fresh_at(state).since(at),
        }
    }

    /// Windows of another length: all that counts now counts in the current one.
    pub fn reconfigure(&self, from: &SlidingCounter, state: &mut Windows<Counts>, base: Time) {
        let mut counts = state.latest;
        if self.window != from.window {
            let now = from.advance(counts, base);
            counts = Counts {
                start: aligned(base, self.window),
                current: (now.current + from.share(now, base)).min(MAX_COUNT),
                previous: 0,
            };
        }
        *state = Windows::new(counts);
    }
}
