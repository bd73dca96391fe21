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
    use crate::ffi::callback::{limiter_acquire_cb, limiter_before_task};
    use crate::ffi::client::{limiter_client_free, limiter_client_open};
    use crate::ffi::limiter::{limiter_free, limiter_new};
    use crate::ffi::queue::{limiter_queue_free, limiter_queue_new, limiter_submit};
    use crate::ffi::types::*;
    use crate::ffi::verbs::*;
    use std::ptr::{null, null_mut};

    struct World {
        client: *mut limiter_client_t,
        limiter: *mut limiter_t,
        queue: *mut limiter_queue_t,
    }

    unsafe fn open(kind: u32) -> World {
        let mut world = World {
            client: null_mut(),
            limiter: null_mut(),
            queue: null_mut(),
        };
        let limit = limiter_limit {
            kind,
            capacity: 9,
            period_us: if kind == LIMITER_SEMAPHORE { 0 } else { 1 },
            ..Versioned::INIT
        };
        unsafe {
            let opened = limiter_client_open(null(), null(), &mut world.client, null_mut(), 0);
            assert_eq!(opened, LIMITER_OK);
            let (name, place) = (c"n".as_ptr(), &mut world.limiter);
            let made = limiter_new(world.client, name, &limit, 1, place, null_mut(), 0);
            assert_eq!(made, LIMITER_OK);
            assert_eq!(
                limiter_queue_new(world.client, &mut world.queue),
                LIMITER_OK
            );
        }
        world
    }

    unsafe fn close(world: World) {
        unsafe {
            limiter_queue_free(world.queue);
            limiter_free(world.limiter);
            assert_eq!(limiter_client_free(world.client), LIMITER_OK);
        }
    }

    fn request(key: &str) -> limiter_request {
        limiter_request {
            key: key.as_ptr().cast(),
            key_len: key.len(),
            user_data: 7,
            ..Versioned::INIT
        }
    }

    /// A decision in which every byte is odd.
    fn unwritten() -> limiter_decision {
        let mut decision = std::mem::MaybeUninit::uninit();
        unsafe {
            std::ptr::write_bytes(decision.as_mut_ptr(), 0x55, 1);
            decision.assume_init()
        }
    }

    /// In this build of the library the key "a bug" panics under its shard's lock.
    #[test]
    fn b_139_a_panic_is_a_status_and_harms_nobody_else() {
        unsafe {
            let world = open(LIMITER_SEMAPHORE);
            let ask = |key: &str| limiter_acquire(world.limiter, &request(key), &mut unwritten());
            for round in 0..3 {
                assert_eq!(ask("a bug"), LIMITER_PANIC);
                // Enough keys that some share the shard of the one that panicked.
                for i in 0..5_000 {
                    assert_eq!(ask(&i.to_string()), LIMITER_OK, "round {round}, key {i}");
                }
            }
            close(world);
        }
    }

    extern "C" fn never_called(_: *mut std::ffi::c_void, _: *const limiter_decision) {
        std::process::abort();
    }

    /// Whatever was in the decision before, it is defined after a bug.
    #[test]
    fn a_panic_is_in_the_decision_of_every_verb() {
        fn check(status: limiter_status, out: &limiter_decision, user_data: u64) {
            assert_eq!((status, out.status), (LIMITER_PANIC, LIMITER_PANIC));
            assert_eq!((out.permit, out.op, out.user_data), (0, 0, user_data));
            assert_eq!((out.index, out.reserved), (LIMITER_NO_INDEX, [0; 5]));
        }
        unsafe {
            let (held, paced) = (open(LIMITER_SEMAPHORE), open(LIMITER_FIXED_WINDOW));
            let ask = request("a bug");
            type Verb = unsafe extern "C" fn(
                *mut limiter_t,
                *const limiter_request,
                *mut limiter_decision,
            ) -> i32;
            for verb in [limiter_acquire as Verb, limiter_pace, limiter_peek] {
                let mut out = unwritten();
                check(verb(paced.limiter, &ask, &mut out), &out, 7);
            }
            let mut out = unwritten();
            check(
                limiter_submit(held.queue, held.limiter, &ask, &mut out),
                &out,
                7,
            );
            let (asked, mut many) = ([request("fine"), ask], [unwritten(); 3]);
            let status = limiter_try_many(held.limiter, asked.as_ptr(), many.as_mut_ptr(), 2);
            many[..2].iter().for_each(|out| check(status, out, 0));
            assert_eq!(many[2].permit, unwritten().permit);
            let mut slot = limiter_slot {
                struct_size: size_of::<limiter_slot>(),
                limiter: held.limiter,
                decision: unwritten(),
                request: ask,
            };
            slot.decision.permit = 0;
            check(
                limiter_before_task((&raw mut slot).cast()),
                &slot.decision,
                7,
            );
            let mut op = 1;
            let call = Some(never_called as extern "C" fn(_, _));
            let status = limiter_acquire_cb(held.limiter, &ask, call, null_mut(), &mut op);
            assert_eq!((status, op), (LIMITER_PANIC, 0));
            assert_eq!(
                limiter_pace_ms(paced.limiter, ask.key, ask.key_len, 1),
                i64::from(LIMITER_PANIC)
            );
            close(held);
            close(paced);
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
