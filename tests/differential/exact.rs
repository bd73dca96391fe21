//! Exact numbers, and what the interface promises of them.
use num_bigint::BigInt;
use num_rational::BigRational;

pub type Q = BigRational;

const YEAR: u64 = 31_557_600_000_000;
/// The longest wait that is booked.
pub const MOST_AHEAD: u64 = 10 * YEAR;
/// The furthest debt.
pub const MOST_DEBT: u64 = 110 * YEAR;
/// What is given back of one bucket is summed up so far; beyond that, older charges get nothing back.
pub const MOST_SUM: u64 = 1 << 52;
pub const MOST_COUNT: u64 = 1 << 50;

pub fn q(n: u64) -> Q {
    Q::from_integer(BigInt::from(n))
}

pub fn ratio(a: u64, b: u64) -> Q {
    Q::new(BigInt::from(a), BigInt::from(b))
}

/// Whole, and not below zero.
fn whole(n: Q) -> u64 {
    let n = n.to_integer();
    u64::try_from(&n).unwrap_or(if n < BigInt::from(0) { 0 } else { u64::MAX })
}

pub fn ceil(n: &Q) -> u64 {
    whole(n.ceil())
}

pub fn floor(n: &Q) -> u64 {
    whole(n.floor())
}

/// `a - b`, or nothing where that would be less.
pub fn less(a: &Q, b: &Q) -> Q {
    if a > b { a - b } else { q(0) }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    Now,
    After(u64),
    /// Until something that is held comes back.
    Release,
    Never,
}

impl Wait {
    pub fn until(at: u64, from: u64) -> Wait {
        match at.saturating_sub(from) {
            0 => Wait::Now,
            wait => Wait::After(wait),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    pub limit: u64,
    pub remaining: u64,
    pub reset: u64,
}
