//! The C ABI's numbers and structs: what a C program sees and may embed.
use std::ffi::{c_char, c_void};

/// == Versions ==
/// ==
/// ABI number; equals N in `liblimiter.so.N`. Compare with limiter_abi_version().
pub const LIMITER_ABI: u32 = 0;
pub const LIMITER_VERSION_MAJOR: u32 = 0;
pub const LIMITER_VERSION_MINOR: u32 = 1;
pub const LIMITER_VERSION_PATCH: u32 = 0;

/// Enough room for every message that is written to an `errbuf`.
pub const LIMITER_ERRBUF_SIZE: usize = 512;

/// How a call ended. 0 and above are answers, below 0 are errors.
pub type limiter_status = i32;

/// == Status ==
///
/// The values of limiter_status. Never renumbered, never reused.
/// ==
/// Done. For an acquire: admitted, and `permit` is held, if anything was charged.
pub const LIMITER_OK: i32 = 0;
/// Started; exactly one completion will follow.
pub const LIMITER_PENDING: i32 = 1;
/// Not admitted within the wait that was allowed; `retry_after_us` says when to come back.
pub const LIMITER_DENIED: i32 = 2;
/// Can never be admitted: heavier than the limit can ever hold, more than 10 years of a pacer's rate,
/// or a limit of kind LIMITER_NEVER_ADMIT. Waiting is pointless, and `retry_after_us` is UINT64_MAX.
pub const LIMITER_NEVER: i32 = 3;
/// An argument is NULL where it must not be, out of range, or makes no sense here.
pub const LIMITER_INVALID: i32 = -1;
/// A URL, a configuration key or value, or a limit was refused; errbuf says why and what is allowed.
pub const LIMITER_CONFIG: i32 = -2;
/// The client has been shut down.
pub const LIMITER_CLOSED: i32 = -3;
/// A deadline of the library's own (a shutdown's, a command's) passed before anything was decided.
pub const LIMITER_TIMEOUT: i32 = -4;
/// The wait was ended by limiter_cancel() or limiter_cancel_waits(); nothing is held or charged.
pub const LIMITER_CANCELLED: i32 = -5;
/// The backend cannot be reached or answered with an error; nothing was charged.
pub const LIMITER_BACKEND: i32 = -6;
/// The request was sent and its answer lost: it was charged once or not at all.
pub const LIMITER_UNKNOWN_OUTCOME: i32 = -7;
/// The permit or operation is over: released before, expired, lost, already settled, or never was.
pub const LIMITER_STALE: i32 = -8;
/// The permit or operation belongs to the process that forked this one.
pub const LIMITER_FORKED: i32 = -9;
/// A blocking function was called from a callback.
pub const LIMITER_WOULD_DEADLOCK: i32 = -10;
/// As many waits as `max_waiting` allows are under way; nothing was started.
pub const LIMITER_OVERLOADED: i32 = -11;
/// The system refused a descriptor or a thread.
pub const LIMITER_RESOURCE: i32 = -12;
/// This limiter or backend cannot do that.
pub const LIMITER_UNSUPPORTED: i32 = -13;
/// A bug in this library was caught at its border. Please report it. The call may have had an effect.
pub const LIMITER_PANIC: i32 = -99;

/// limiter_pace_ms() only: such a weight can never fit (its results below zero are all "not booked").
pub const LIMITER_PACE_NEVER: i64 = -1000;

/// == Kinds of limit ==
///
/// The values of limiter_limit.kind. 0 is none of them.
/// ==
/// At most `capacity` units are held at once. First in, first out over all processes. A permit lives
/// for `lease_ms` and is renewed in the background while it is held. So what a killed process held on
/// Redis is free again within its lease, or within 350 ms and four fifths of a lease below 1750 ms; and
/// what is not renewed, at the end of its lease, on Redis up to 350 ms or a twentieth of it later, whichever is
/// longer.
pub const LIMITER_SEMAPHORE: u32 = 1;
/// Up to `capacity` units are saved up; `refill` units come back every `period_us`, continuously or,
/// with LIMITER_INTERVAL, all at the period's end. Starts full or, with LIMITER_START_EMPTY, empty.
/// In any interval of length t it admits at most capacity + refill * t / period_us; with
/// LIMITER_INTERVAL at most capacity + refill * (whole periods in t + 1).
///
/// Source: GCRA, ITU-T I.371, in exact integers.
pub const LIMITER_TOKEN_BUCKET: u32 = 2;
/// `refill` units per `period_us`, evenly spaced. `capacity` (may be 0) is the burst: units let
/// through at once on top, earned back in quiet times at burst_earn_permille/1000 of the rate (with 0 only as the key is as new, after 10 years). In any
/// interval of t microseconds it admits at most capacity + refill * (t + 1) / period_us + one call's weight. A weight that takes
/// more than 10 years at the rate is answered LIMITER_NEVER.
///
/// Source: the pacing of distributed-pacer, with its excess in try mode removed.
pub const LIMITER_PACER: u32 = 3;
/// At most `capacity` units in any window of `period_us`, exactly: it remembers each admission, bookings
/// ahead included, until it is a window old, in 16 bytes. At most 2^52 units at a time: what would be booked beyond that is denied. An admission exactly one window old no longer counts.
pub const LIMITER_SLIDING_LOG: u32 = 4;
/// About `capacity` units in any window of `period_us`: the current window's count plus the previous
/// one's share that the sliding window still covers, rounded up. Constant memory.
pub const LIMITER_SLIDING_COUNTER: u32 = 5;
/// At most `capacity` units in each window of `period_us`; across an edge up to twice that. Windows
/// begin at whole multiples of `period_us` since 1970 or, with LIMITER_ALIGN_FIRST_USE, at the first
/// use.
pub const LIMITER_FIXED_WINDOW: u32 = 6;
/// Always admits. It has no parameters: see limiter_limit on fields that a kind does not read.
pub const LIMITER_UNLIMITED: u32 = 7;
/// Never admits: every weight but 0 is answered LIMITER_NEVER. It has no parameters either.
pub const LIMITER_NEVER_ADMIT: u32 = 8;

/// == Flags ==
/// ==
/// `limiter_limit.flags`: count calls, not weight (the number of requests beside the bytes they move).
pub const LIMITER_PER_CALL: u32 = 1;
/// `limiter_limit.flags`, token bucket: the refill comes all at once at each period's end.
pub const LIMITER_INTERVAL: u32 = 2;
/// `limiter_limit.flags`, token bucket: a new key starts with nothing saved up, and so does one that has been
/// full, with nobody asking, for twice the time it fills in, at least for a minute, at most for 10 years.
pub const LIMITER_START_EMPTY: u32 = 4;
/// `limiter_limit.flags`, fixed window: the first window starts at the first use, not by the clock.
pub const LIMITER_ALIGN_FIRST_USE: u32 = 8;
/// `limiter_limit.flags` or `limiter_request.flags`, semaphore: the library does not renew the
/// permit; it ends after its lease unless limiter_renew() is called.
pub const LIMITER_NO_RENEW: u32 = 16;
/// `limiter_request.flags`, limiter_submit() only: when the permit's lease is lost, one more completion
/// arrives on the queue that it was submitted on, with status LIMITER_STALE and the same permit, user_data
/// and op (0 where the submit was answered at once).
pub const LIMITER_TELL_LOST: u32 = 32;

/// `limiter_decision.flags`: answered by the failure policy, not by the backend.
pub const LIMITER_DEGRADED: u32 = 1;
/// `limiter_decision.flags`, with LIMITER_DEGRADED: the request was sent and its answer lost, so it was
/// charged once or not at all, where the policy `error` answers LIMITER_UNKNOWN_OUTCOME. Without this flag
/// it was not charged.
pub const LIMITER_MAYBE_CHARGED: u32 = 2;
/// `limiter_decision.index`: no limit is meant.
pub const LIMITER_NO_INDEX: u32 = u32::MAX;

/// limiter_cancel(): nothing arrives any more for this operation, and a grant that comes late, or
/// waits unpolled in the queue, is given back.
pub const LIMITER_DETACH: u32 = 1;

/// == Handles and structs ==
/// ==
/// A backend and the background that serves it. Opaque; thread-safe.
pub struct limiter_client_t(pub(crate) std::sync::Arc<crate::client::Client>);

/// Settings of a client before it is opened. Opaque; one thread at a time.
pub struct limiter_config_t(pub(crate) crate::config::Config);

/// A name and its limits. Opaque; thread-safe.
pub struct limiter_t(pub(crate) crate::limiter::Limiter);

/// Where finished operations wait to be polled. Opaque; thread-safe.
pub struct limiter_queue_t(pub(crate) crate::client::ClientQueue);

/// A permit: what an admitted call holds. 0 is none.
pub type limiter_permit = u64;

/// An operation under way. 0 is none.
pub type limiter_op = u64;

/// One rule of a limiter. Use a constructor such as limiter_semaphore(), or LIMITER_INIT.
///
/// Ranges: capacity 1 to 2^48 (a pacer's burst from 0); refill 1 to 2^48; period_us 1 to 10 years; at
/// most 1000 units per microsecond; capacity * period_us / refill at most 100 years. A field that the
/// kind does not read must keep its default.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct limiter_limit {
    /// sizeof(limiter_limit), set by LIMITER_INIT. The same in each element of an array.
    pub struct_size: usize,
    /// LIMITER_SEMAPHORE to LIMITER_NEVER_ADMIT. Default 0, which is refused.
    pub kind: u32,
    /// LIMITER_PER_CALL and those of the kind. Default 0.
    pub flags: u32,
    /// Most units: held at once, saved up, in a window; the burst of a pacer.
    pub capacity: u64,
    /// Token bucket and pacer: units that come back per period.
    pub refill: u64,
    /// Token bucket and pacer: the period. Windows: the window's length.
    pub period_us: u64,
    /// Semaphore: the lease of a permit, 100 to 86 400 000. Default 0: the client's lease_ms.
    pub lease_ms: u32,
    /// Pacer: how fast burst is earned back, in thousandths of the rate, 0 to 1000. Default 500.
    pub burst_earn_permille: u32,
    /// Number of this configuration; the limiter's is the largest of its limits'. Where the same name is
    /// open with other parameters, a lower number cannot bring older ones back. Default 0.
    pub version: u32,
    /// Must be 0.
    pub reserved: u32,
}

/// One question. Set up with LIMITER_INIT(limiter_request): an empty key, weight 1, no wait.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct limiter_request {
    /// sizeof(limiter_request), set by LIMITER_INIT. The same in each element of an array.
    pub struct_size: usize,
    /// Whose share: `key_len` bytes of any value, read during the call. NULL with length 0 is the
    /// empty key.
    pub key: *const c_char,
    /// 0 to 65 536.
    pub key_len: usize,
    /// Units to take from each limit that counts weight. 0 takes nothing, is always admitted, never
    /// jumps a queue and only fills in the numbers. Default 1.
    pub weight: u64,
    /// Nullable: a weight for each limit instead, in their order, read during the call; a limit with
    /// weight 0 is left alone; for one with LIMITER_PER_CALL any other counts as 1. `weight` is then not read.
    pub weights: *const u64,
    /// Length of `weights`: the limiter's number of limits, or 0 where `weights` is NULL.
    pub weights_len: usize,
    /// Longest wait until admission: 0 tries once, a negative one waits without limit, but for a start that would
    /// lie over 10 years ahead. A wait known to be longer is denied at once, or when that becomes known. For limiter_pace(): the longest delay to accept. Default 0.
    pub wait_ms: i32,
    /// Semaphore: this permit's lease, 100 to 86 400 000. Default 0: the limit's.
    pub lease_ms: u32,
    /// LIMITER_NO_RENEW, LIMITER_TELL_LOST. Default 0.
    pub flags: u32,
    /// Must be 0.
    pub reserved: u32,
    /// Comes back in the decision; what limiter_cancel_waits() goes by. Never dereferenced.
    pub user_data: u64,
}

/// The answer, with its numbers. 128 bytes, for ever; the library writes all of it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct limiter_decision {
    /// How it ended; the same as the function's result.
    pub status: limiter_status,
    /// LIMITER_DEGRADED, perhaps with LIMITER_MAYBE_CHARGED; otherwise 0.
    pub flags: u32,
    /// What is now held; 0 unless the status is LIMITER_OK and something was charged.
    pub permit: limiter_permit,
    /// The operation under way or completed; 0 where there was none.
    pub op: limiter_op,
    /// The request's.
    pub user_data: u64,
    /// Units that the limit named by `index` allows at most. A pacer's is its burst and what comes in one
    /// microsecond, which is one up to a million a second.
    pub limit: u64,
    /// Units of it that could be taken at this moment if nobody waited. 0 <= remaining <= limit. Where a
    /// pacer has one, it lets one call of any weight through.
    pub remaining: u64,
    /// Denied: coming back after exactly this is admitted if nobody else comes, never 0; several limits:
    /// the longest of those that deny. Where only a release can help, and permits are renewed, nobody
    /// knows when that comes: then it is the lease, as a hint; where more than 64 leases have to end, it is
    /// when the 64th does, to ask again. Those who wait for a semaphore before are not reckoned with, nor that
    /// a bucket with LIMITER_START_EMPTY begins to fill by a first acquire only. Behind more than 4096 who wait
    /// for rates, some of whom have left, it may be later than need be, not earlier. limiter_pace(): how long
    /// to sleep before starting. Never: UINT64_MAX. Otherwise 0.
    pub retry_after_us: u64,
    /// Until that limit is as good as new if nobody else comes; of a sliding log, until its oldest entry
    /// leaves. 0 of a semaphore, except while a penalty lasts: nobody knows when its holders release. As long as a penalty lasts, nothing remains, and it is reckoned from its end.
    pub reset_after_us: u64,
    /// How long the call waited.
    pub waited_us: u64,
    /// Semaphore: grows with every grant on the key, so that a resource can refuse an older holder.
    /// Otherwise 0.
    pub fence: u64,
    /// Whose `limit`, `remaining` and `reset_after_us` these are: a limit's position, from 0. Denied or
    /// never: the one that refused; of several, the first semaphore that is full, else the one that takes
    /// longest. Otherwise the one with the
    /// least remaining. LIMITER_NO_INDEX where there are no numbers: with errors, with PENDING, and where
    /// the call was admitted after a wait, because they have changed since (limiter_peek() tells).
    pub index: u32,
    /// Pending: how many waited ahead when it was queued.
    pub queue_position: u32,
    /// 0.
    pub reserved: [u64; 5],
}

/// Counters of one client in this process since it was opened or forked. They only grow, except where
/// a gauge is named.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct limiter_stats {
    /// sizeof(limiter_stats), set by LIMITER_INIT; the library writes no further.
    pub struct_size: usize,
    /// Admitted calls that charged something; what a detached or freed queue gave back is among them.
    pub granted: u64,
    /// Answers LIMITER_DENIED, at once or after a wait.
    pub denied: u64,
    /// Answers LIMITER_NEVER.
    pub never: u64,
    /// Waits that were cancelled or detached.
    pub cancelled: u64,
    /// Permits released.
    pub released: u64,
    /// Permits settled.
    pub settled: u64,
    /// Permits whose lease ended while held.
    pub lost: u64,
    /// Answers LIMITER_OVERLOADED, and words of lost leases that were dropped because 65 536 had not been
    /// taken.
    pub overloaded: u64,
    /// Answers of the failure policy.
    pub degraded: u64,
    /// Requests the backend failed to answer.
    pub backend_errors: u64,
    /// Scripts sent to the backend.
    pub backend_calls: u64,
    /// Times a connection to the backend was made.
    pub connects: u64,
    /// Gauge: permits of semaphores held now.
    pub in_flight: u64,
    /// Gauge: waits under way now.
    pub waiting: u64,
    /// Gauge: keys in memory now.
    pub keys: u64,
    /// How many forks lie between the process that loaded the library and this one.
    pub fork_generation: u64,
}

/// What limiter_before_task() and limiter_after_task() share: one for each task that may run at a time.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct limiter_slot {
    /// sizeof(limiter_slot), set by LIMITER_INIT.
    pub struct_size: usize,
    /// Whom to ask.
    pub limiter: *mut limiter_t,
    /// The latest answer; its permit is what limiter_after_task() releases.
    pub decision: limiter_decision,
    /// What to ask for.
    pub request: limiter_request,
}

/// Receives log records of `level` 1 (error), 2 (warning), 3 (info), 4 (debug). Called on any thread,
/// possibly on several at once; must not block and must not call this library. `message` is valid
/// during the call only and never holds a password.
pub type limiter_log_fn =
    Option<extern "C" fn(user_data: *mut c_void, level: i32, message: *const c_char)>;

/// Receives a completion: see CALLBACKS above. `decision` is valid during the call only.
pub type limiter_completion_fn =
    Option<extern "C" fn(user_data: *mut c_void, decision: *const limiter_decision)>;

/// Told of each permit whose lease ended while it was held: see CALLBACKS above.
pub type limiter_lost_fn = Option<extern "C" fn(user_data: *mut c_void, permit: limiter_permit)>;
