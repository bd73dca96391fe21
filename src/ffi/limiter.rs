//! limiter_t: a name with limits.
use std::ffi::c_char;

use crate::decision::{self, Status};
use crate::ffi::args::{slice, text, versioned_array};
use crate::ffi::config::setting;
use crate::ffi::guard::{Refusal, guard, set_up};
use crate::ffi::types::*;
use crate::limiter::{LimitSpec, Limiter, spec};

/// == Limiter ==
///
/// Limiters of one name and the same kinds of limit, in the same order, share their state: within a
/// memory client, or across all processes on one Redis. A bucket with LIMITER_INTERVAL is a kind of its
/// own. Other kinds under the same name are another limiter.
///
/// A key takes room from its first charge until it is as good as new. After that a memory client forgets it, a
/// few at a time, as calls come on any key and as a virtual clock is moved; one that nobody calls keeps them.
/// ==
/// Makes a limiter: `name` (1 to 1024 bytes of UTF-8) and 1 to 16 limits, read during the call; each
/// acquire takes from all of them or from none. On success `*limiter` is set, to be freed with
/// limiter_free(); on failure it is NULL. LIMITER_CONFIG when a limit is out of range: errbuf says
/// which one, which field and what is allowed; also for a name of another length. LIMITER_INVALID for NULL,
/// no or too many limits, a wrong struct_size, or a name that is not UTF-8.
///
/// Opening a name again with other numbers changes it for everybody from the next call on (unless
/// limiter_limit.version is lower), whichever handle is used: state is clamped, never reset. Lowering a
/// bucket keeps at most what now fits; raising it adds room that is empty, unless the key is as new, which
/// time makes it, and limiter_reset(); a semaphore lowered below what is held admits nobody until enough came back. A window made shorter counts
/// what it still covers; made longer again, it does not know what was over by then. Those who wait go
/// by the new numbers; a wait whose time is booked starts then at the latest (see limiter_acquire()). See
/// limiter_limit.version.
///
/// # Safety
/// See the header.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_new(
    client: *mut limiter_client_t,
    name: *const c_char,
    limits: *const limiter_limit,
    count: usize,
    limiter: *mut *mut limiter_t,
    errbuf: *mut c_char,
    errcap: usize,
) -> limiter_status {
    unsafe {
        set_up(errbuf, errcap, || {
            let place = limiter
                .as_mut()
                .ok_or_else(|| Refusal::invalid("limiter is NULL"))?;
            *place = std::ptr::null_mut();
            let client = client
                .as_ref()
                .ok_or_else(|| Refusal::invalid("client is NULL"))?;
            let name = text(name).map_err(|_| Refusal::invalid("name is NULL or not UTF-8"))?;
            if limits.is_null() || !(1..=16).contains(&count) {
                return Err(Refusal::invalid("limits must be an array of 1 to 16"));
            }
            let specs: Vec<LimitSpec> = versioned_array(limits, count)
                .map_err(|(i, what)| Refusal::invalid(format!("limits[{i}].{what}")))?
                .iter()
                .map(LimitSpec::from)
                .collect();
            let made = Limiter::new(&client.0, name, &specs).map_err(|(s, m)| Refusal(s, m))?;
            *place = Box::into_raw(Box::new(limiter_t(made)));
            Ok(())
        })
    }
}

/// Sets `key` of this limiter to `value`, from its next call on; both are NUL-terminated UTF-8 and read
/// during the call. One key so far:
///
///     on_failure          error | open |          default: the client's, see there
///                         closed | local
///
/// LIMITER_CONFIG for another key or value: errbuf names the key, or the values that are allowed, and the setting stays as it
/// was. LIMITER_INVALID for NULL or text that is not UTF-8. Never blocks.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_set(
    limiter: *mut limiter_t,
    key: *const c_char,
    value: *const c_char,
    errbuf: *mut c_char,
    errcap: usize,
) -> limiter_status {
    unsafe {
        set_up(errbuf, errcap, || {
            let limiter = limiter
                .as_ref()
                .ok_or_else(|| Refusal::invalid("limiter is NULL"))?;
            let (key, value) = setting(key, value)?;
            limiter.0.set(key, value).map_err(Refusal::config)
        })
    }
}

/// Frees a limiter. The name's state, permits and waits go on. NULL is ignored.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_free(limiter: *mut limiter_t) {
    guard((), || {
        if !limiter.is_null() {
            drop(unsafe { Box::from_raw(limiter) });
        }
    })
}

impl From<&limiter_limit> for LimitSpec {
    fn from(limit: &limiter_limit) -> LimitSpec {
        LimitSpec {
            kind: limit.kind,
            flags: limit.flags,
            capacity: limit.capacity,
            refill: limit.refill,
            period_us: limit.period_us,
            lease_ms: limit.lease_ms,
            burst_earn_permille: limit.burst_earn_permille,
            version: limit.version,
            reserved: limit.reserved,
        }
    }
}

/// The bytes of a key, at most 64 KiB.
///
/// # Safety
/// `key` is null or valid for `length` bytes for the time of the call.
pub unsafe fn key<'a>(key: *const c_char, length: usize) -> Result<&'a [u8], Status> {
    if length > 65_536 {
        return Err(Status::Invalid);
    }
    unsafe { slice(key.cast::<u8>(), length) }
}

/// The header's numbers are those that the layers below go by.
const _: () = {
    assert!(LIMITER_SEMAPHORE == spec::SEMAPHORE && LIMITER_TOKEN_BUCKET == spec::TOKEN_BUCKET);
    assert!(LIMITER_PACER == spec::PACER && LIMITER_SLIDING_LOG == spec::SLIDING_LOG);
    assert!(LIMITER_SLIDING_COUNTER == spec::SLIDING_COUNTER);
    assert!(LIMITER_FIXED_WINDOW == spec::FIXED_WINDOW && LIMITER_UNLIMITED == spec::UNLIMITED);
    assert!(LIMITER_NEVER_ADMIT == spec::NEVER_ADMIT && LIMITER_PER_CALL == spec::PER_CALL);
    assert!(LIMITER_INTERVAL == spec::INTERVAL && LIMITER_START_EMPTY == spec::START_EMPTY);
    assert!(LIMITER_ALIGN_FIRST_USE == spec::ALIGN_FIRST_USE);
    assert!(LIMITER_NO_RENEW == spec::NO_RENEW);
    assert!(LIMITER_DEGRADED == decision::DEGRADED && LIMITER_NO_INDEX == decision::NO_LIMIT);
    assert!(LIMITER_MAYBE_CHARGED == decision::MAYBE_CHARGED);
    assert!(LIMITER_PANIC == Status::Panic as i32 && LIMITER_FORKED == Status::Forked as i32);
    assert!(LIMITER_NEVER == Status::Never as i32 && LIMITER_STALE == Status::Stale as i32);
    assert!(size_of::<limiter_decision>() == 128);
};
