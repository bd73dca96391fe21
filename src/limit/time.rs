//! Time and how it may pass: microseconds as types of their own, and a clock that never runs backwards.

/// A point in time, in microseconds since the clock's epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

/// A length of time, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub u64);

impl Span {
    pub const ZERO: Span = Span(0);
    pub const MAX: Span = Span(u64::MAX);

    pub const fn millis(ms: u64) -> Span {
        Span(ms.saturating_mul(1_000))
    }

    pub const fn secs(s: u64) -> Span {
        Span(s.saturating_mul(1_000_000))
    }
}

impl Time {
    pub const MAX: Time = Time(u64::MAX);

    /// How long from `earlier` until this point; zero if it lies before `earlier`.
    pub fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl std::ops::Sub<Span> for Time {
    type Output = Time;
    fn sub(self, span: Span) -> Time {
        Time(self.0.saturating_sub(span.0))
    }
}

impl std::ops::Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

/// Turns a clock that may step back into one that does not: a step back counts as no time passed,
/// and time goes on from there at its normal pace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Monotone {
    /// The latest time handed out.
    pub seen: Time,
    /// What is added to the raw clock.
    pub skew: Span,
}

impl Monotone {
    pub fn observe(&mut self, raw: Time) -> Time {
        let now = raw + self.skew;
        if now < self.seen {
            self.skew = self.skew + self.seen.since(now);
            return self.seen;
        }
        self.seen = now;
        now
    }
}
