//! Fixed window: at most `limit` units in each window. Across an edge up to twice that.
use crate::limit::bounds::{self, MAX_COUNT};
use crate::limit::rule::{Figures, Wait};
use crate::limit::time::{Span, Time};
use crate::limit::windows::{self, Windows};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    limit: u64,
    window: Span,
    align: Align,
}

/// Where windows begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// At whole multiples of the window since the clock's epoch.
    Clock,
    /// At the first use after the window before has ended.
    FirstUse,
}

/// `used` units in the window that began at `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub start: Time,
    pub used: u64,
}

impl windows::Window for Window {
    fn start(&self) -> Time {
        self.start
    }
}

/// What one admission took, and the window it found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowCharge {
    pub weight: u64,
    start: Time,
    /// Differs from `start` where the charge began a new window.
    before: Window,
}

impl WindowCharge {
    /// What undoes both, of which the later came right after this one: of the same window.
    pub fn join(&self, later: &WindowCharge) -> Option<WindowCharge> {
        let same = later.start == later.before.start && later.start == self.start;
        same.then(|| WindowCharge {
            weight: self.weight.saturating_add(later.weight),
            ..*self
        })
    }
}

/// The beginning of the window of length `window` that `at` lies in.
pub fn aligned(at: Time, window: Span) -> Time {
    Time(at.0 - at.0 % window.0)
}

impl FixedWindow {
    pub fn new(limit: u64, window: Span, align: Align) -> Result<FixedWindow, String> {
        bounds::check_capacity(limit)?;
        bounds::check_period(window)?;
        Ok(FixedWindow {
            limit,
            window,
            align,
        })
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    pub fn window(&self) -> Span {
        self.window
    }

    pub fn align(&self) -> Align {
        self.align
    }

    pub fn fresh(&self, now: Time) -> Window {
        Window {
            start: self.start(now),
            used: 0,
        }
    }

    fn start(&self, at: Time) -> Time {
        match self.align {
            Align::Clock => aligned(at, self.window),
            Align::FirstUse => at,
        }
    }

    pub fn fresh_at(&self, state: Window) -> Time {
        match state.used {
            0 => Time(0),
            _ => state.start + self.window,
        }
    }

    /// The window that a charge at `at` would count in. One that nothing was used of has not begun.
    fn advance(&self, state: Window, at: Time) -> Window {
        if state.used == 0 || at >= state.start + self.window {
            return self.fresh(at);
        }
        state
    }

    pub fn wait(&self, state: Window, at: Time, weight: u64) -> Wait {
        if weight > self.limit {
            return Wait::Never;
        }
        let state = self.advance(state, at);
        if state.used <= self.limit - weight {
            return Wait::Now;
        }
        Wait::After((state.start + self.window).since(at))
    }

    pub fn charge(
        &self,
        state: &mut Windows<Window>,
        now: Time,
        at: Time,
        weight: u64,
    ) -> WindowCharge {
        state.forget(|window| window.start + self.window <= now);
        let before = state.latest;
        let needed = at > now && self.fresh_at(before) > now;
        state.move_on(self.advance(before, at), needed);
        state.latest.used += weight;
        WindowCharge {
            weight,
            start: state.latest.start,
            before,
        }
    }

    pub fn undo(&self, state: &mut Windows<Window>, charge: &WindowCharge) {
        if charge.start == charge.before.start {
            state.latest.used = state.latest.used.saturating_sub(charge.weight);
        } else {
            state.move_back(charge.before);
        }
    }

    /// Corrects the window the charge counts in; one that is over is left as it was.
    pub fn adjust(&self, state: &mut Windows<Window>, charge: &mut WindowCharge, actual: u64) {
        let actual = actual.min(MAX_COUNT);
        let mut all = state.all_mut();
        if let Some(window) = all.find(|window| window.start == charge.start) {
            window.used = (window.used.saturating_sub(charge.weight) + actual).min(MAX_COUNT);
            charge.weight = actual;
        }
    }

    /// Takes `extra` from `at` on.
    pub fn owe(&self, state: &mut Windows<Window>, at: Time, extra: u64) {
        state.move_on(self.advance(state.latest, at), false);
        state.latest.used = state.latest.used.saturating_add(extra).min(MAX_COUNT);
    }

    pub fn figures(&self, state: Window, at: Time) -> Figures {
        let state = self.advance(state, at);
        Figures {
            limit: self.limit,
            remaining: self.limit.saturating_sub(state.used),
            reset_after: match state.used {
                0 => Span::ZERO,
                _ => (state.start + self.window).since(at),
            },
        }
    }

    /// What was used in the window under way counts in the new window under way; one that would be over, being
    /// shorter, begins now: some of it may have been used just now.
    pub fn reconfigure(&self, from: &FixedWindow, state: &mut Windows<Window>, base: Time) {
        let mut window = from.advance(state.latest, base);
        if self.align == Align::Clock || window.start + self.window <= base {
            window.start = self.start(base);
        }
        *state = Windows::new(window);
    }
}
