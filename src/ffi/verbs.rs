//! The verbs that ask: acquire, pace, peek, reset, penalize, many at once.
use std::ffi::c_char;
use std::time::Duration;

use crate::decision::{Decision, Status};
use crate::ffi::args::{Versioned, handle, slice, versioned_array, versioned_or_init};
use crate::ffi::guard::{guard, status};
use crate::ffi::limiter::key;
use crate::ffi::types::*;
use crate::limit::time::Span;
use crate::op::{Request, Weights};

/// == The verbs ==
///
/// For each of them a NULL request means LIMITER_INIT(limiter_request): the empty key, weight 1, no
/// wait. LIMITER_INVALID for a NULL limiter or out, a key over 65 536 bytes, a wrong struct_size, an
/// unknown flag, a lease_ms out of range, a reserved field that is not 0, or weights_len that is not the number of limits; nothing is changed then. LIMITER_CLOSED
/// after a shutdown. On Redis each may also answer LIMITER_BACKEND or LIMITER_UNKNOWN_OUTCOME.
/// ==
/// Takes from all limits, or from none; waits for it up to `wait_ms`.
///
/// LIMITER_OK: admitted; release `out->permit` when done. LIMITER_DENIED: not within `wait_ms`; where
/// that is known beforehand the answer comes at once; nothing is charged. LIMITER_NEVER, LIMITER_CANCELLED, LIMITER_CLOSED, LIMITER_OVERLOADED,
/// LIMITER_BACKEND, LIMITER_UNKNOWN_OUTCOME as named above. Those who wait for one key are admitted in
/// the order in which they came, and a call that does not wait never overtakes one that does.
///
/// Where only rates and windows stand in the way, a wait books its start as it begins, and those who come
/// later book behind it. That is when it starts at the latest, unless a penalty puts it off. It starts
/// earlier, and those behind it in their order, once there is room: because less was used than was
/// thought (limiter_settle()), one before it was cancelled, or the limits were raised. On Redis that is
/// within a tenth of a second, where neither another process nor limiter_pace() has booked behind it;
/// elsewhere what is given back serves those who come later.
///
/// A permit of a limiter without a semaphore need not be released: there is nothing to give back, and
/// the library forgets old ones by itself, but not before it has granted 1024 more (keys are spread over
/// 64 parts with 1024 each). Until then it can be settled.
///
/// Blocks up to `wait_ms`, whatever signals arrive. Not from a callback, unless `wait_ms` is 0.
///
/// # Safety
/// See the header.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_acquire(
    limiter: *mut limiter_t,
    request: *const limiter_request,
    out: *mut limiter_decision,
) -> limiter_status {
    unsafe {
        decide(limiter, request, out, |l, r, out| {
            l.acquire_to(r, |d| out.give(d))
        })
    }
}

/// Books the next moment at which `request->weight` may start, and answers how long to sleep until
/// then: `out->retry_after_us`, 0 for now. The slot is yours, so sleep, then start. Waits for nothing
/// itself. LIMITER_DENIED, with nothing booked, if the sleep would be longer than `wait_ms` (0: no
/// sleep at all; negative: any, up to 10 years). limiter_release() on `out->permit` before its time gives the slot
/// back; with more than 65 536 slots ahead in one of the 64 parts of the keys, those furthest ahead come on time, but their permits are
/// LIMITER_STALE. LIMITER_INVALID for a limiter that holds a semaphore: limiter_acquire() is the verb for it.
///
/// # Safety
/// See the header.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_pace(
    limiter: *mut limiter_t,
    request: *const limiter_request,
    out: *mut limiter_decision,
) -> limiter_status {
    unsafe { decide(limiter, request, out, |l, r, out| Ok(out.give(l.pace(r)?))) }
}

/// limiter_pace() for any delay, in one number: how many milliseconds to sleep, rounded up, or a
/// negative status with nothing booked. A weight that can never fit, or not within 10 years, answers
/// LIMITER_PACE_NEVER. Where the failure policy denies, it is the error behind that.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_pace_ms(
    limiter: *mut limiter_t,
    key: *const c_char,
    key_len: usize,
    weight: u64,
) -> i64 {
    guard(LIMITER_PANIC as i64, || {
        let request = limiter_request {
            key,
            key_len,
            weight,
            wait_ms: -1,
            ..Versioned::INIT
        };
        let mut decision = limiter_decision::from(Decision::of(Status::Invalid));
        match unsafe { limiter_pace(limiter, &request, &mut decision) } {
            LIMITER_OK => decision.retry_after_us.div_ceil(1_000) as i64,
            error if error < 0 => error as i64,
            // Denied by the failure policy: nobody knows for how long.
            _ if decision.flags & LIMITER_MAYBE_CHARGED != 0 => LIMITER_UNKNOWN_OUTCOME as i64,
            _ if decision.flags & LIMITER_DEGRADED != 0 => LIMITER_BACKEND as i64,
            _ => LIMITER_PACE_NEVER,
        }
    })
}

/// What limiter_acquire() without a wait would answer now, charging nothing: LIMITER_OK,
/// LIMITER_DENIED or LIMITER_NEVER, with no permit and the numbers as they are before
/// anything is taken.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_peek(
    limiter: *mut limiter_t,
    request: *const limiter_request,
    out: *mut limiter_decision,
) -> limiter_status {
    unsafe { decide(limiter, request, out, |l, r, out| Ok(out.give(l.peek(r)?))) }
}

/// Makes a key as new: rates and windows start afresh, permits held on it become LIMITER_STALE, and
/// those who wait are admitted as the new state allows. A penalty ends. Also heals a
/// Redis key that somebody else wrote to.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_reset(
    limiter: *mut limiter_t,
    key: *const c_char,
    key_len: usize,
) -> limiter_status {
    status(|| unsafe { handle(limiter)?.0.reset(self::key(key, key_len)?) })
}

/// Lets nothing start on a key for `retry_after_us` from now (cut to max_penalty_ms): what to call when
/// the service behind it said "too many requests, come back in". A running penalty is never
/// shortened by another one. Calls that were admitted go on; those booked or waiting are put off, in their order and no
/// faster than the limits allow from then on. A time that limiter_pace() has told stays. On Redis other
/// processes hear of it by a note: what they have booked is put off a moment later.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_penalize(
    limiter: *mut limiter_t,
    key: *const c_char,
    key_len: usize,
    retry_after_us: u64,
) -> limiter_status {
    status(|| unsafe {
        handle(limiter)?
            .0
            .penalize(self::key(key, key_len)?, Span(retry_after_us))
    })
}

/// `count` (to 65 536; more is LIMITER_INVALID and leaves `out` as it was) requests without a wait, decided in their order, each for itself, as if by
/// limiter_acquire() one after another: `out[i]` answers `requests[i]`. wait_ms is not read, and `requests` is NULL for none only. LIMITER_OK
/// when all were decided, whatever the answers, also for none at all; otherwise nothing was done, and each
/// `out[i]` has the status of the call. One round trip on Redis.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_try_many(
    limiter: *mut limiter_t,
    requests: *const limiter_request,
    out: *mut limiter_decision,
    count: usize,
) -> limiter_status {
    let decided = guard(Err(Status::Panic), || unsafe {
        let limiter = handle(limiter)?;
        if count > MOST_AT_ONCE || out.is_null() && count > 0 {
            return Err(Status::Invalid);
        }
        let raw = versioned_array(requests, count).map_err(|_| Status::Invalid)?;
        let read: Vec<Request> = raw.iter().map(|r| read(r)).collect::<Result<_, _>>()?;
        let decisions = limiter.0.try_many(&read)?;
        assert_eq!(decisions.len(), count, "one for each");
        Ok(decisions)
    });
    let writable = !out.is_null() && count <= MOST_AT_ONCE;
    for i in 0..if writable { count } else { 0 } {
        let decision = match &decided {
            Ok(decisions) => decisions[i],
            Err(status) => Decision::of(*status),
        };
        // SAFETY: `out` has room for `count`.
        unsafe { out.add(i).write(decision.into()) };
    }
    decided.map_or_else(|status| status as limiter_status, |_| LIMITER_OK)
}

/// Requests in one call.
const MOST_AT_ONCE: usize = 65_536;

/// One question to a limiter, one answer.
unsafe fn decide(
    limiter: *const limiter_t,
    request: *const limiter_request,
    answer: *mut limiter_decision,
    ask: impl FnOnce(&crate::limiter::Limiter, &Request, &Answer) -> Result<Status, Status>,
) -> limiter_status {
    unsafe {
        self::answer(request, answer, |request, out| {
            ask(&handle(limiter)?.0, request, out)
        })
    }
}

/// Where the answer to a call goes.
pub struct Answer(*mut limiter_decision);

impl Answer {
    /// Answers, and tells how it ended.
    #[inline(always)]
    pub fn give(&self, decision: Decision) -> Status {
        // SAFETY: the caller of the call said that there is room.
        unsafe { self.0.write(decision.into()) };
        decision.status
    }
}

/// Reads the request, asks, and writes the whole decision, also when nothing could be asked, or a bug was
/// caught.
///
/// # Safety
/// The pointers are null or valid for the time of the call.
pub unsafe fn answer(
    request: *const limiter_request,
    answer: *mut limiter_decision,
    ask: impl FnOnce(&Request, &Answer) -> Result<Status, Status>,
) -> limiter_status {
    if answer.is_null() {
        return LIMITER_INVALID;
    }
    let answer = Answer(answer);
    let mut user_data = 0;
    let decided = guard(Err(Status::Panic), || unsafe {
        let request = versioned_or_init(request)?;
        user_data = request.user_data;
        ask(&read(&request)?, &answer)
    });
    let status = decided.unwrap_or_else(|status| {
        answer.give(Decision {
            user_data,
            ..Decision::of(status)
        })
    });
    status as limiter_status
}

/// A request as the core takes it.
///
/// # Safety
/// The request's pointers are valid for the time of the call.
pub unsafe fn read<'a>(request: &limiter_request) -> Result<Request<'a>, Status> {
    const KNOWN: u32 = LIMITER_NO_RENEW | LIMITER_TELL_LOST;
    let lease_ok =
        request.lease_ms == 0 || crate::config::LEASE_MS.contains(&u64::from(request.lease_ms));
    let weights_ok = request.weights.is_null() == (request.weights_len == 0);
    if request.flags & !KNOWN != 0 || request.reserved != 0 || !lease_ok || !weights_ok {
        return Err(Status::Invalid);
    }
    let weights = match request.weights.is_null() {
        true => Weights::Same(request.weight),
        false if request.weights_len > 16 => return Err(Status::Invalid),
        false => Weights::Each(unsafe { slice(request.weights, request.weights_len) }?),
    };
    Ok(Request {
        key: unsafe { key(request.key, request.key_len) }?,
        weights,
        wait: u64::try_from(request.wait_ms).ok().map(Span::millis),
        lease: (request.lease_ms != 0).then(|| Span::millis(request.lease_ms.into())),
        renew: request.flags & LIMITER_NO_RENEW == 0,
        tell_lost: request.flags & LIMITER_TELL_LOST != 0,
        user_data: request.user_data,
    })
}

/// Milliseconds as C counts waits: negative is without limit.
pub fn wait_of(ms: i32) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

impl From<Decision> for limiter_decision {
    fn from(d: Decision) -> limiter_decision {
        limiter_decision {
            status: d.status as i32,
            flags: d.flags,
            permit: d.permit,
            op: d.op,
            user_data: d.user_data,
            limit: d.limit,
            remaining: d.remaining,
            retry_after_us: d.retry_after_us,
            reset_after_us: d.reset_after_us,
            waited_us: d.waited_us,
            fence: d.fence,
            index: d.index,
            queue_position: d.queue_position,
            reserved: [0; 5],
        }
    }
}
