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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ffi::args::Versioned;
    use crate::ffi::client::{limiter_client_free, limiter_client_open};
    use crate::ffi::limiter::{limiter_free, limiter_new};
    use crate::ffi::types::*;
    use crate::ffi::verbs::limiter_acquire;

    /// In this build of the library the key "a bug" panics under its shard's lock.
    #[test]
    fn b_139_a_panic_is_a_status_and_harms_nobody_else() {
        unsafe {
            let (mut client, mut limiter) = (std::ptr::null_mut(), std::ptr::null_mut());
            let (url, config, nowhere) = (std::ptr::null(), std::ptr::null(), std::ptr::null_mut());
            assert_eq!(
                limiter_client_open(url, config, &mut client, nowhere, 0),
                LIMITER_OK
            );
            let limit = limiter_limit {
                kind: LIMITER_SEMAPHORE,
                capacity: 9,
                ..Versioned::INIT
            };
            let made = limiter_new(client, c"n".as_ptr(), &limit, 1, &mut limiter, nowhere, 0);
            assert_eq!(made, LIMITER_OK);
            let ask = |key: &str| {
                let request = limiter_request {
                    key: key.as_ptr().cast(),
                    key_len: key.len(),
                    ..Versioned::INIT
                };
                let mut decision = std::mem::MaybeUninit::<limiter_decision>::zeroed();
                limiter_acquire(limiter, &request, decision.as_mut_ptr())
            };
            for round in 0..3 {
                assert_eq!(ask("a bug"), LIMITER_PANIC);
                // Enough keys that some share the shard of the one that panicked.
                for i in 0..5_000 {
                    assert_eq!(ask(&i.to_string()), LIMITER_OK, "round {round}, key {i}");
                }
            }
            limiter_free(limiter);
            assert_eq!(limiter_client_free(client), LIMITER_OK);
        }
    }

    #[test]
    fn a_message_is_cut_at_a_character_and_terminated() {
        for (room, expected) in [(0, ""), (1, ""), (2, ""), (3, "é"), (4, "éa"), (99, "éab")] {
            let mut buffer = [0x55; 100];
            let refuse = || Err(Refusal::invalid("éab"));
            let status = unsafe { set_up(buffer.as_mut_ptr(), room, refuse) };
            assert_eq!(status, LIMITER_INVALID);
            let written: Vec<u8> = buffer[..room].iter().map(|&c| c as u8).collect();
            let end = written.iter().position(|&c| c == 0).unwrap_or(0);
            assert_eq!(&written[..end], expected.as_bytes());
            assert!(
                buffer[room..].iter().all(|&c| c == 0x55),
                "nothing is written beyond"
            );
        }
    }
}
