//! The one border that no panic crosses, and how answers and messages leave through it.
use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::decision::Status;
use crate::ffi::types::{LIMITER_PANIC, limiter_status};

/// Runs an entry point; a panic becomes `fallback`.
pub fn guard<T>(fallback: T, entry: impl FnOnce() -> T) -> T {
    // Nothing is observed after a panic but what the entry's own locks protect, and none poisons.
    catch_unwind(AssertUnwindSafe(entry)).unwrap_or(fallback)
}

/// Runs an entry point that answers a status.
pub fn status(entry: impl FnOnce() -> Result<Status, Status>) -> limiter_status {
    guard(LIMITER_PANIC, || match entry() {
        Ok(status) | Err(status) => status as limiter_status,
    })
}

/// Why a set-up call failed: the status and the message for errbuf.
pub struct Refusal(pub Status, pub String);

impl Refusal {
    pub fn invalid(message: impl Into<String>) -> Refusal {
        Refusal(Status::Invalid, message.into())
    }

    pub fn config(message: impl Into<String>) -> Refusal {
        Refusal(Status::Config, message.into())
    }
}

/// Runs a set-up entry point; its message goes to `errbuf`, cut at a character to fit `errcap`.
///
/// # Safety
/// `errbuf` is null or has room for `errcap` bytes.
pub unsafe fn set_up(
    errbuf: *mut c_char,
    errcap: usize,
    entry: impl FnOnce() -> Result<(), Refusal>,
) -> limiter_status {
    let refusal = guard(
        Err(Refusal(
            Status::Panic,
            "a bug in the library was caught; please report it".into(),
        )),
        entry,
    );
    let Err(Refusal(status, message)) = refusal else {
        return Status::Ok as limiter_status;
    };
    if !errbuf.is_null() && errcap > 0 {
        let mut length = message.len().min(errcap - 1);
        while !message.is_char_boundary(length) {
            length -= 1;
        }
        // SAFETY: length < errcap.
        unsafe {
            std::ptr::copy_nonoverlapping(message.as_ptr().cast(), errbuf, length);
            *errbuf.add(length) = 0;
        }
    }
    status as limiter_status
}
