//! Limits in few words, for the Rust interface.
use limiter::limiter::{LimitSpec, spec};

pub fn limit(kind: u32, capacity: u64, refill: u64, period_us: u64) -> LimitSpec {
    LimitSpec {
        kind,
        flags: 0,
        capacity,
        refill,
        period_us,
        lease_ms: 0,
        burst_earn_permille: 500,
        version: 0,
        reserved: 0,
    }
}

pub fn bucket(capacity: u64, refill: u64, period_us: u64) -> LimitSpec {
    limit(spec::TOKEN_BUCKET, capacity, refill, period_us)
}

pub fn semaphore(capacity: u64) -> LimitSpec {
    limit(spec::SEMAPHORE, capacity, 0, 0)
}

/// A semaphore whose permits live for so long unless they are renewed.
pub fn leased(capacity: u64, lease_ms: u32) -> LimitSpec {
    LimitSpec {
        lease_ms,
        ..semaphore(capacity)
    }
}
