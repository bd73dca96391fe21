//! Rates and the exact arithmetic of prices: a point in time with the fraction that a unit's price
//! leaves, so that nothing is rounded away and nothing drifts.
use std::cmp::Ordering;

use crate::limit::bounds::{self, MAX_PER_US, MAX_UNITS};
use crate::limit::time::{Span, Time};

/// `units` per `period`, in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    units: u64,
    period: u64,
}

/// A point or a length of time: `us + rem / units` microseconds, of a [`Rate`] with that many units;
/// `rem < units`. Ticks of the same rate compare as they stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tick {
    pub us: u64,
    pub rem: u64,
}

impl Ord for Tick {
    /// As one number, which is fewer steps than one part after the other.
    #[inline]
    fn cmp(&self, other: &Tick) -> Ordering {
        let whole = |tick: &Tick| u128::from(tick.us) << 64 | u128::from(tick.rem);
        whole(self).cmp(&whole(other))
    }
}

impl PartialOrd for Tick {
    #[inline]
    fn partial_cmp(&self, other: &Tick) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Tick {
    pub const ZERO: Tick = Tick { us: 0, rem: 0 };

    pub const fn at(time: Time) -> Tick {
        Tick { us: time.0, rem: 0 }
    }

    /// The first whole microsecond that is not before this.
    pub const fn ceil(self) -> u64 {
        self.us.saturating_add((self.rem > 0) as u64)
    }

    /// How far this point lies ahead of `time`; zero if it does not.
    #[inline]
    pub fn since(self, time: Time) -> Tick {
        match self.us.checked_sub(time.0) {
            Some(us) => Tick { us, rem: self.rem },
            None => Tick::ZERO,
        }
    }

    /// The point that lies so far ahead of `time`.
    #[inline]
    pub fn from(self, time: Time) -> Tick {
        Tick {
            us: self.us.saturating_add(time.0),
            rem: self.rem,
        }
    }

    pub fn is_zero(self) -> bool {
        self == Tick::ZERO
    }
}

/// `a * b / n` as quotient and remainder, exactly; a quotient beyond u64 is u64::MAX.
/// The only place where a product may be wider than a number of a Redis script.
pub fn muldiv(a: u64, b: u64, n: u64) -> (u64, u64) {
    debug_assert!(n > 0);
    if let Some(product) = a.checked_mul(b) {
        return (product / n, product % n);
    }
    let product = a as u128 * b as u128;
    let quotient = product / n as u128;
    (
        u64::try_from(quotient).unwrap_or(u64::MAX),
        (product % n as u128) as u64,
    )
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Rate {
    pub fn new(units: u64, period: Span) -> Result<Rate, String> {
        bounds::check("refill", units, 1, MAX_UNITS)?;
        bounds::check_period(period)?;
        if units.div_ceil(MAX_PER_US) > period.0 {
            return Err(format!(
                "refill must be at most {MAX_PER_US} per microsecond of period_us, not {units} in {}",
                period.0
            ));
        }
        let divisor = gcd(units, period.0);
        Ok(Rate {
            units: units / divisor,
            period: period.0 / divisor,
        })
    }

    /// Units of this rate in lowest terms; what [`Tick::rem`] counts in.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// Period in microseconds, in lowest terms.
    pub fn period(&self) -> u64 {
        self.period
    }

    /// The time that `weight` units take.
    pub fn cost(&self, weight: u64) -> Tick {
        let (us, rem) = muldiv(weight, self.period, self.units);
        Tick { us, rem }
    }

    /// Whole units that `time` brings.
    #[inline]
    pub fn brings(&self, time: Tick) -> u64 {
        let product = time.us.checked_mul(self.units);
        if let Some(parts) = product.and_then(|p| p.checked_add(time.rem)) {
            return parts / self.period;
        }
        let (whole, rest) = muldiv(time.us, self.units, self.period);
        whole.saturating_add((rest + time.rem) / self.period)
    }

    /// Units that `time` brings, a begun one counted whole.
    pub fn brings_up(&self, time: Tick) -> u64 {
        let whole = self.brings(time);
        whole.saturating_add((self.cost(whole) < time) as u64)
    }

    #[inline]
    pub fn add(&self, a: Tick, b: Tick) -> Tick {
        let rem = a.rem + b.rem;
        let carry = rem >= self.units;
        Tick {
            us: a.us.saturating_add(b.us).saturating_add(carry as u64),
            rem: if carry { rem - self.units } else { rem },
        }
    }

    /// `a - b`, zero where that would be negative.
    #[inline]
    pub fn sub(&self, a: Tick, b: Tick) -> Tick {
        if a <= b {
            return Tick::ZERO;
        }
        let borrow = a.rem < b.rem;
        Tick {
            us: a.us - b.us - borrow as u64,
            rem: if borrow {
                a.rem + self.units - b.rem
            } else {
                a.rem - b.rem
            },
        }
    }

    /// A point of the rate `from`, in ticks of this one; never earlier than it was.
    pub fn adopt(&self, from: &Rate, tick: Tick) -> Tick {
        let (rem, rest) = muldiv(tick.rem, self.units, from.units);
        let rem = rem + (rest > 0) as u64;
        if rem == self.units {
            return Tick {
                us: tick.us + 1,
                rem: 0,
            };
        }
        Tick { us: tick.us, rem }
    }
}
