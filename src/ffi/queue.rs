//! limiter_queue_t: asynchronous acquires that complete on a pollable descriptor.
use crate::client::ClientQueue;
use crate::decision::Status;
use crate::ffi::args::{handle, out};
use crate::ffi::guard::{guard, status};
use crate::ffi::types::*;
use crate::ffi::verbs::{answer, wait_of};

/// == Completion queue ==
///
/// For event loops, and for runtimes that must not be called back: submit, go on, and poll when the
/// descriptor is readable. One queue serves any number of waits and threads.
/// ==
/// Makes a queue. On success `*queue` is set, to be freed with limiter_queue_free(). LIMITER_RESOURCE when
/// the process has no descriptor left.
///
/// # Safety
/// See the header.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_queue_new(
    client: *mut limiter_client_t,
    queue: *mut *mut limiter_queue_t,
) -> limiter_status {
    status(|| unsafe {
        let place = out(queue)?;
        *place = std::ptr::null_mut();
        let made = ClientQueue::new(&handle(client)?.0)?;
        *place = Box::into_raw(Box::new(limiter_queue_t(made)));
        Ok(Status::Ok)
    })
}

/// The queue's descriptor, for poll, epoll or an event library: readable as long as completions wait, and
/// for good once the client is shut down (limiter_queue_poll() then answers LIMITER_CLOSED). Do not read, write or close it. Its number stays the same for the queue's life, also across
/// fork; call this or any other function on the queue once in the child before the child polls the
/// descriptor. A child that closes all descriptors, as daemons do, does so before that call; if it has
/// something else on the number by then, that is left alone and the queue has another: ask again.
/// Negative: a status.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_queue_fd(queue: *const limiter_queue_t) -> i32 {
    guard(LIMITER_PANIC, || {
        let queue = match unsafe { handle(queue) } {
            Ok(queue) => queue,
            Err(status) => return status as i32,
        };
        queue.0.descriptor().unwrap_or_else(|status| status as i32)
    })
}

/// Starts an acquire that completes on `queue`; queue and limiter belong to one client. Never waits.
///
/// LIMITER_OK, LIMITER_DENIED and every other answer but PENDING: decided at once, `*out` is the whole
/// answer and no completion follows. LIMITER_PENDING: `out->op` is set, and exactly one completion
/// with that op and the request's user_data will be polled, perhaps by another thread before this
/// returns.
///
/// # Safety
/// See the header.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_submit(
    queue: *mut limiter_queue_t,
    limiter: *mut limiter_t,
    request: *const limiter_request,
    out: *mut limiter_decision,
) -> limiter_status {
    unsafe {
        answer(request, out, |request, out| {
            let submitted = handle(queue)?.0.submit(&handle(limiter)?.0, request);
            Ok(out.give(submitted?))
        })
    }
}

/// Moves up to `cap` completions to `out`, oldest first, and answers their number. If there is none,
/// waits for the first up to `timeout_ms` (0: not at all; negative: without limit) and answers 0 when
/// none came. A negative result is a status: LIMITER_CLOSED once the client is shut down and every
/// completion was polled. Each completion goes to exactly one caller. Not from a callback with a
/// timeout.
///
/// # Safety
/// See the header.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_queue_poll(
    queue: *mut limiter_queue_t,
    out: *mut limiter_decision,
    cap: usize,
    timeout_ms: i32,
) -> i32 {
    guard(LIMITER_PANIC, || {
        let polled = unsafe { handle(queue) }.and_then(|queue| {
            if out.is_null() || cap == 0 {
                return Err(Status::Invalid);
            }
            queue
                .0
                .poll(cap.min(i32::MAX as usize), wait_of(timeout_ms))
        });
        match polled {
            Err(status) => status as i32,
            Ok(completions) => {
                for (i, decision) in completions.iter().enumerate() {
                    // SAFETY: `out` has room for `cap`, and poll gives no more.
                    unsafe { out.add(i).write((*decision).into()) };
                }
                completions.len() as i32
            }
        }
    })
}

/// Ends a wait that limiter_submit() or limiter_acquire_cb() started. Its completion still arrives,
/// exactly once: LIMITER_CANCELLED, or LIMITER_OK where the grant came first (release it). With
/// `flags` LIMITER_DETACH nothing arrives any more (so a callback's user_data is yours to free), and a
/// grant that came first is given back for you. LIMITER_STALE, with no effect: it was polled or called
/// back before, or that is happening now. LIMITER_OK again for one that was cancelled and not polled yet.
/// Never waits; may be called from a callback.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_cancel(
    client: *mut limiter_client_t,
    op: limiter_op,
    flags: u32,
) -> limiter_status {
    status(|| {
        let client = unsafe { handle(client) }?;
        if op == 0 || flags & !LIMITER_DETACH != 0 {
            return Err(Status::Invalid);
        }
        client.0.cancel(op, flags & LIMITER_DETACH != 0)
    })
}

/// Ends every wait of this client whose request had this `user_data`, blocked limiter_acquire()
/// calls of other threads included, as limiter_cancel() without flags does: what a worker pool calls to
/// stop. 0 is what a request has by default, so it ends every wait that was not marked. Answers how many
/// it ended, or a negative status. Never waits.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_cancel_waits(
    client: *mut limiter_client_t,
    user_data: u64,
) -> i32 {
    guard(LIMITER_PANIC, || {
        let ended = unsafe { handle(client) }.and_then(|client| client.0.cancel_waits(user_data));
        ended.map_or_else(|status| status as i32, |n| n.min(i32::MAX as usize) as i32)
    })
}

/// Frees a queue: its waits are detached, grants that were not polled are given back, and its
/// descriptor is closed. Before or after its client. NULL is ignored.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_queue_free(queue: *mut limiter_queue_t) {
    guard((), || {
        if !queue.is_null() {
            drop(unsafe { Box::from_raw(queue) });
        }
    })
}
