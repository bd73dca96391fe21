//! The words every layer shares: how a call ended, and the numbers of its answer.

/// How a call ended. Zero and positive values are answers, negative ones are errors.
/// Numbers are part of the ABI and never change.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    Ok = 0,
    /// Started; exactly one completion follows.
    Pending = 1,
    /// Not admitted within the wait that was allowed.
    Denied = 2,
    /// Can never be admitted: the weight exceeds what the limit can ever hold, or the rate is zero.
    Never = 3,
    Invalid = -1,
    Config = -2,
    Closed = -3,
    Timeout = -4,
    Cancelled = -5,
    Backend = -6,
    UnknownOutcome = -7,
    Stale = -8,
    Forked = -9,
    WouldDeadlock = -10,
    Overloaded = -11,
    Resource = -12,
    Unsupported = -13,
    Panic = -99,
}

/// [`Decision::flags`]: answered by the failure policy, not by the backend.
pub const DEGRADED: u32 = 1;

/// [`Decision::flags`]: sent to the backend, and the answer lost, so it may have been charged there.
pub const MAYBE_CHARGED: u32 = 2;

/// [`Decision::index`]: there are no numbers, or no single limit is meant.
pub const NO_LIMIT: u32 = u32::MAX;

/// The answer to one request, with its numbers. Durations are microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    pub status: Status,
    pub flags: u32,
    /// The permit held; 0 is none.
    pub permit: u64,
    /// The operation this answers; 0 where there was none.
    pub op: u64,
    /// Echo of the request's.
    pub user_data: u64,
    /// Of the limit that `index` names.
    pub limit: u64,
    pub remaining: u64,
    pub retry_after_us: u64,
    pub reset_after_us: u64,
    pub waited_us: u64,
    /// Grows with every grant of a semaphore key; 0 where there is none.
    pub fence: u64,
    /// The limit that denied, else the tightest; [`NO_LIMIT`] where there are no numbers.
    pub index: u32,
    /// Waiters ahead of a pending request.
    pub queue_position: u32,
}

impl Decision {
    /// An answer that carries no numbers.
    pub const fn of(status: Status) -> Decision {
        Decision {
            status,
            flags: 0,
            permit: 0,
            op: 0,
            user_data: 0,
            limit: 0,
            remaining: 0,
            retry_after_us: 0,
            reset_after_us: 0,
            waited_us: 0,
            fence: 0,
            index: NO_LIMIT,
            queue_position: 0,
        }
    }
}
