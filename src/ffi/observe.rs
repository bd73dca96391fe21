//! Observation: counters, versions, the names of statuses.
use std::ffi::{CStr, c_char};

use crate::decision::Status;
use crate::ffi::args::{handle, told_size, write_sized};
use crate::ffi::guard::status;
use crate::ffi::types::*;
use crate::stats::Totals;

/// == Observation ==
/// ==
/// Reads a client's counters into `*stats`, whose struct_size must be set (LIMITER_INIT); no further than
/// that is written. The counters are read one after another, not at one instant.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_stats_get(
    client: *mut limiter_client_t,
    stats: *mut limiter_stats,
) -> limiter_status {
    status(|| unsafe {
        let client = handle(client)?;
        // What is in it is not read.
        let size = told_size(stats, 2 * size_of::<u64>(), usize::MAX)?;
        write_sized(stats, size, &limiter_stats::from(client.0.stats()?));
        Ok(Status::Ok)
    })
}

/// Version of the loaded library: major << 16 | minor << 8 | patch.
#[unsafe(no_mangle)]
pub extern "C" fn limiter_version() -> u32 {
    LIMITER_VERSION_MAJOR << 16 | LIMITER_VERSION_MINOR << 8 | LIMITER_VERSION_PATCH
}

/// ABI number of the loaded library. A program or binding made for another LIMITER_ABI must not use it.
#[unsafe(no_mangle)]
pub extern "C" fn limiter_abi_version() -> u32 {
    LIMITER_ABI
}

/// A status's name, such as "LIMITER_DENIED"; "LIMITER_?" for a number that is none. Static, never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn limiter_status_name(status: limiter_status) -> *const c_char {
    words(status).0.as_ptr()
}

/// A status in an English sentence without a full stop. Static, never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn limiter_status_message(status: limiter_status) -> *const c_char {
    words(status).1.as_ptr()
}

fn words(status: limiter_status) -> (&'static CStr, &'static CStr) {
    match status {
        LIMITER_OK => (c"LIMITER_OK", c"done"),
        LIMITER_PENDING => (c"LIMITER_PENDING", c"started; a completion will follow"),
        LIMITER_DENIED => (c"LIMITER_DENIED", c"not admitted within the allowed wait"),
        LIMITER_NEVER => (c"LIMITER_NEVER", c"can never be admitted"),
        LIMITER_INVALID => (c"LIMITER_INVALID", c"an argument makes no sense"),
        LIMITER_CONFIG => (c"LIMITER_CONFIG", c"a setting or limit was refused"),
        LIMITER_CLOSED => (c"LIMITER_CLOSED", c"the client is shut down"),
        LIMITER_TIMEOUT => (c"LIMITER_TIMEOUT", c"the library's own deadline passed"),
        LIMITER_CANCELLED => (c"LIMITER_CANCELLED", c"the wait was cancelled"),
        LIMITER_BACKEND => (c"LIMITER_BACKEND", c"the backend cannot answer"),
        LIMITER_UNKNOWN_OUTCOME => (
            c"LIMITER_UNKNOWN_OUTCOME",
            c"the answer was lost; charged at most once",
        ),
        LIMITER_STALE => (c"LIMITER_STALE", c"the permit or operation is over"),
        LIMITER_FORKED => (c"LIMITER_FORKED", c"it belongs to the parent process"),
        LIMITER_WOULD_DEADLOCK => (
            c"LIMITER_WOULD_DEADLOCK",
            c"a blocking call from a callback",
        ),
        LIMITER_OVERLOADED => (c"LIMITER_OVERLOADED", c"too many waits are under way"),
        LIMITER_RESOURCE => (c"LIMITER_RESOURCE", c"the system refused a resource"),
        LIMITER_UNSUPPORTED => (c"LIMITER_UNSUPPORTED", c"not possible here"),
        LIMITER_PANIC => (c"LIMITER_PANIC", c"a bug in the library was caught"),
        _ => (c"LIMITER_?", c"no status of this library"),
    }
}

impl From<Totals> for limiter_stats {
    fn from(totals: Totals) -> limiter_stats {
        limiter_stats {
            struct_size: size_of::<limiter_stats>(),
            granted: totals.granted,
            denied: totals.denied,
            never: totals.never,
            cancelled: totals.cancelled,
            released: totals.released,
            settled: totals.settled,
            lost: totals.lost,
            overloaded: totals.overloaded,
            degraded: totals.degraded,
            backend_errors: totals.backend_errors,
            backend_calls: totals.backend_calls,
            connects: totals.connects,
            in_flight: totals.in_flight,
            waiting: totals.waiting,
            keys: totals.keys,
            fork_generation: crate::fork::generation(),
        }
    }
}
