//! What a limit's parameters may be, and the messages that say so.
//!
//! The bounds keep every number of every algorithm below 2^53, so that a Redis script, whose numbers
//! are doubles, computes exactly what this crate computes.
use crate::limit::time::Span;

/// The largest capacity, refill or window limit.
pub const MAX_UNITS: u64 = 1 << 48;

/// The longest period or window: ten years of 365.25 days.
pub const MAX_PERIOD: Span = Span(315_576_000_000_000);

/// The longest time a bucket may take from empty to full: a hundred years.
pub const MAX_FILL: Span = Span(3_155_760_000_000_000);

/// No wait longer than this is booked, and no single call may cost a pacer more.
pub const MAX_AHEAD: Span = MAX_PERIOD;

/// No debt reaches further ahead than this: a full bucket taken at the last time that can be booked.
pub const MAX_DEBT: Span = Span(MAX_FILL.0 + MAX_AHEAD.0);

/// More units than this are never counted, whatever is settled.
pub const MAX_COUNT: u64 = 1 << 50;

/// More units than this a sliding log does not count, bookings ahead included: whose sums stay exact.
pub const MAX_BOOKED: u64 = 1 << 52;

/// The most units per microsecond: 10^9 per second.
pub const MAX_PER_US: u64 = 1_000;

/// How long a bucket that starts empty and takes `fill` to be full stays full if nobody comes: twice as long, at
/// least a minute, at most ten years. Then it is as a key never seen, and empty.
pub fn kept_full(fill: Span) -> Span {
    Span(2 * fill.0).max(Span::secs(60)).min(MAX_AHEAD)
}

/// Refuses `value` outside of `least..=most`.
pub fn check(field: &str, value: u64, least: u64, most: u64) -> Result<(), String> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(format!("{field} must be {least} to {most}, not {value}"))
}

/// Refuses a window or period out of range.
pub fn check_period(period: Span) -> Result<(), String> {
    check("period_us", period.0, 1, MAX_PERIOD.0)
}

/// Refuses a capacity out of range.
pub fn check_capacity(capacity: u64) -> Result<(), String> {
    check("capacity", capacity, 1, MAX_UNITS)
}
