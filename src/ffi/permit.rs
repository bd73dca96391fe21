//! The verbs on a permit: release, renew, settle.
use crate::ffi::args::handle;
use crate::ffi::guard::status;
use crate::ffi::types::*;
use crate::limit::time::Span;

/// == Permits ==
///
/// `limiter` is the one that granted the permit, or another of the same client. A number that this client
/// never gave is LIMITER_STALE like one that is over.
/// ==
/// Gives a permit back: the semaphore's weight goes to those who wait; what was taken from rates and
/// windows stays taken (limiter_settle() corrects that). A slot of limiter_pace() that is still to come
/// is given back whole, if nothing has been booked behind it; else it passes unused, as a time that was told
/// stays. LIMITER_STALE, with no effect, for a permit that is over; LIMITER_INVALID for 0;
/// LIMITER_FORKED for one of the parent's; LIMITER_CLOSED once the client is shut down, which has
/// released it. Never waits; may be called from a callback.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_release(
    limiter: *mut limiter_t,
    permit: limiter_permit,
) -> limiter_status {
    status(|| unsafe { handle(limiter) }?.0.release(permit))
}

/// Makes a permit live for `lease_ms` (100 to 86 400 000) from now; 0 means the lease it was granted
/// with. Only of use with LIMITER_NO_RENEW: otherwise the library renews in time. LIMITER_STALE if the
/// permit is over or lost: then somebody else may hold what you held.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_renew(
    limiter: *mut limiter_t,
    permit: limiter_permit,
    lease_ms: u32,
) -> limiter_status {
    status(|| {
        let limiter = unsafe { handle(limiter) }?;
        let ranged = lease_ms == 0 || crate::config::LEASE_MS.contains(&lease_ms.into());
        let lease = (lease_ms != 0).then(|| Span::millis(lease_ms.into()));
        if ranged {
            limiter.0.renew(permit, lease)
        } else {
            Err(crate::decision::Status::Invalid)
        }
    })
}

/// Corrects an estimate: the permit's call used `actual_weight`, not the weight it asked for. Windows count it
/// as if it had asked for that from the start. A bucket is given back what time has not brought back since, which
/// is taken to pay for the oldest first: all of it, if it is settled before what was taken at the time has come
/// back; so settle early, or have a burst above what comes while a call runs. A pacer is given back what was
/// granted last. Those who wait start earlier for it where they can (see limiter_acquire()). More is charged, beyond the
/// limit if need be, and later calls wait for it; those that have their time already keep it. Applies to each
/// limit that counts weight and that this call took from, except semaphores (also where the request gave a
/// weight for each limit: all of them are corrected to the same). Once for each permit, before it is
/// released: after that LIMITER_STALE with no effect, and also, on a limiter without a semaphore, once the
/// permit is forgotten, which is not before 1024 later ones were granted. A permit that is never settled
/// stays at its estimate. What was used beyond it is taken when it is settled, whatever has come back since.
/// Where no limit is there to correct, as with semaphores alone, LIMITER_OK with no effect. LIMITER_INVALID,
/// with no effect, for more than 2^48.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_settle(
    limiter: *mut limiter_t,
    permit: limiter_permit,
    actual_weight: u64,
) -> limiter_status {
    status(|| unsafe { handle(limiter) }?.0.settle(permit, actual_weight))
}
