//! What a caller says of a limit, and the checks that make it one.
use crate::config::LEASE_MS;
use crate::limit::decide::Limits;
use crate::limit::fixed_window::{Align, FixedWindow};
use crate::limit::interval_bucket::IntervalBucket;
use crate::limit::pacer::Pacer;
use crate::limit::rule::{Limit, Rule};
use crate::limit::semaphore::Semaphore;
use crate::limit::sliding_counter::SlidingCounter;
use crate::limit::sliding_log::SlidingLog;
use crate::limit::time::Span;
use crate::limit::token_bucket::TokenBucket;

/// A limit in plain numbers, as the C ABI carries it.
#[derive(Clone, Copy, Debug)]
pub struct LimitSpec {
    pub kind: u32,
    pub flags: u32,
    pub capacity: u64,
    pub refill: u64,
    pub period_us: u64,
    pub lease_ms: u32,
    pub burst_earn_permille: u32,
    pub version: u32,
    pub reserved: u32,
}

pub const SEMAPHORE: u32 = 1;
pub const TOKEN_BUCKET: u32 = 2;
pub const PACER: u32 = 3;
pub const SLIDING_LOG: u32 = 4;
pub const SLIDING_COUNTER: u32 = 5;
pub const FIXED_WINDOW: u32 = 6;
pub const UNLIMITED: u32 = 7;
pub const NEVER_ADMIT: u32 = 8;

pub const PER_CALL: u32 = 1;
pub const INTERVAL: u32 = 2;
pub const START_EMPTY: u32 = 4;
pub const ALIGN_FIRST_USE: u32 = 8;
pub const NO_RENEW: u32 = 16;

/// The limits of a limiter, or which one is wrong and how.
pub fn limits(specs: &[LimitSpec]) -> Result<Limits, String> {
    let version = specs.iter().map(|spec| spec.version).max().unwrap_or(0);
    let limits: Vec<Limit> = specs
        .iter()
        .enumerate()
        .map(|(i, spec)| {
            spec.limit()
                .map_err(|message| format!("limits[{i}].{message}"))
        })
        .collect::<Result<_, _>>()?;
    Limits::new(limits, version)
}

/// What a kind reads: its name, and the flags and fields that may differ from their defaults.
struct Reads {
    name: &'static str,
    flags: u32,
    fields: &'static [&'static str],
}

const fn reads(kind: u32) -> Option<Reads> {
    Some(match kind {
        SEMAPHORE => Reads {
            name: "a semaphore",
            flags: PER_CALL | NO_RENEW,
            fields: &["capacity", "lease_ms"],
        },
        TOKEN_BUCKET => Reads {
            name: "a token bucket",
            flags: PER_CALL | INTERVAL | START_EMPTY,
            fields: &["capacity", "refill", "period_us"],
        },
        PACER => Reads {
            name: "a pacer",
            flags: PER_CALL,
            fields: &["capacity", "refill", "period_us", "burst_earn_permille"],
        },
        SLIDING_LOG => Reads {
            name: "a sliding log",
            flags: PER_CALL,
            fields: &["capacity", "period_us"],
        },
        SLIDING_COUNTER => Reads {
            name: "a sliding counter",
            flags: PER_CALL,
            fields: &["capacity", "period_us"],
        },
        FIXED_WINDOW => Reads {
            name: "a fixed window",
            flags: PER_CALL | ALIGN_FIRST_USE,
            fields: &["capacity", "period_us"],
        },
        UNLIMITED => Reads {
            name: "an unlimited limit",
            flags: PER_CALL,
            fields: &[],
        },
        NEVER_ADMIT => Reads {
            name: "a limit that never admits",
            flags: PER_CALL,
            fields: &[],
        },
        _ => return None,
    })
}

impl LimitSpec {
    /// The limit this describes, or which field is wrong and what it may be.
    pub fn limit(&self) -> Result<Limit, String> {
        let reads = reads(self.kind).ok_or_else(|| {
            format!(
                "kind must be {SEMAPHORE} to {NEVER_ADMIT}, not {}",
                self.kind
            )
        })?;
        self.check_unread(&reads)?;
        let window = Span(self.period_us);
        let rule = match self.kind {
            SEMAPHORE => {
                let lease = u64::from(self.lease_ms);
                if lease != 0 && !LEASE_MS.contains(&lease) {
                    let (least, most) = (LEASE_MS.start(), LEASE_MS.end());
                    return Err(format!(
                        "lease_ms must be 0 or {least} to {most}, not {lease}"
                    ));
                }
                let renew = self.flags & NO_RENEW == 0;
                Rule::Semaphore(Semaphore::new(self.capacity, Span::millis(lease), renew)?)
            }
            TOKEN_BUCKET if self.flags & INTERVAL != 0 => Rule::IntervalBucket(
                IntervalBucket::new(self.capacity, self.refill, window, self.starts_empty())?,
            ),
            TOKEN_BUCKET => Rule::TokenBucket(TokenBucket::new(
                self.capacity,
                self.refill,
                window,
                self.starts_empty(),
            )?),
            PACER => Rule::Pacer(Pacer::new(
                self.capacity,
                self.refill,
                window,
                self.burst_earn_permille.into(),
            )?),
            SLIDING_LOG => Rule::SlidingLog(SlidingLog::new(self.capacity, window)?),
            SLIDING_COUNTER => Rule::SlidingCounter(SlidingCounter::new(self.capacity, window)?),
            FIXED_WINDOW => Rule::FixedWindow(FixedWindow::new(
                self.capacity,
                window,
                if self.flags & ALIGN_FIRST_USE == 0 {
                    Align::Clock
                } else {
                    Align::FirstUse
                },
            )?),
            UNLIMITED => Rule::Unlimited,
            _ => Rule::Never,
        };
        Ok(Limit {
            rule,
            per_call: self.flags & PER_CALL != 0,
        })
    }

    fn starts_empty(&self) -> bool {
        self.flags & START_EMPTY != 0
    }

    /// A field that the kind does not read is most likely a mistake, so it must keep its default.
    fn check_unread(&self, reads: &Reads) -> Result<(), String> {
        let unread = |field: &str| !reads.fields.contains(&field);
        if self.reserved != 0 {
            return Err(format!("reserved must be 0, not {}", self.reserved));
        }
        if self.flags & !reads.flags != 0 {
            let odd = self.flags & !reads.flags;
            return Err(format!("flags: {} does not take {odd:#x}", reads.name));
        }
        for (field, value, default) in [
            ("capacity", self.capacity, 0),
            ("refill", self.refill, 0),
            ("period_us", self.period_us, 0),
            ("lease_ms", self.lease_ms.into(), 0),
            ("burst_earn_permille", self.burst_earn_permille.into(), 500),
        ] {
            if unread(field) && value != default {
                return Err(format!(
                    "{field}: {} does not read it, so it must be {default}, not {value}",
                    reads.name
                ));
            }
        }
        Ok(())
    }
}
