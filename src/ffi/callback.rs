//! Asynchronous acquires for native worker pools: a callback, or a pair of hooks around each task.
use std::ffi::c_void;

use crate::decision::{Decision, Status};
use crate::ffi::args::{Versioned, handle, out, versioned_or_init};
use crate::ffi::config::UserData;
use crate::ffi::guard::{guard, status};
use crate::ffi::permit::limiter_release;
use crate::ffi::types::*;
use crate::ffi::verbs::{limiter_acquire, read};

/// == Worker pools ==
///
/// A pool that is event-driven takes the callback; one that calls a function before and after each
/// task takes the pair of hooks.
/// ==
/// Starts an acquire whose answer `callback` receives: see CALLBACKS above. LIMITER_PENDING: it will be
/// called exactly once, even where the answer is known already, and perhaps before this returns; `*op`
/// (nullable, and to stay valid until this returns) is the number for limiter_cancel(), also in the
/// decision. Anything else: nothing was started and it is never called. Never waits.
///
/// # Safety
/// See the header.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_acquire_cb(
    limiter: *mut limiter_t,
    request: *const limiter_request,
    callback: limiter_completion_fn,
    user_data: *mut c_void,
    op: *mut limiter_op,
) -> limiter_status {
    status(|| unsafe {
        if let Some(op) = op.as_mut() {
            *op = 0;
        }
        let callback = callback.ok_or(Status::Invalid)?;
        let request = versioned_or_init(request)?;
        let user_data = UserData::new(user_data);
        let completed = Box::new(move |decision: Decision| {
            callback(user_data.get(), &limiter_decision::from(decision));
        });
        let started = handle(limiter)?.0.acquire_cb(&read(&request)?, completed)?;
        if let Some(op) = op.as_mut() {
            *op = started;
        }
        Ok(Status::Pending)
    })
}

/// To be called before a task with its limiter_slot, for pools that take a function pointer:
/// limiter_acquire() with the slot's request; the answer is in the slot. Start the task only on
/// LIMITER_OK. LIMITER_INVALID, with nothing taken, while the slot holds a permit.
///
/// # Safety
/// See the header.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_before_task(slot: *mut c_void) -> limiter_status {
    guard(LIMITER_PANIC, || unsafe {
        match checked(slot) {
            Ok(slot) if (*slot).decision.permit != 0 => LIMITER_INVALID,
            Ok(slot) => limiter_acquire(
                (*slot).limiter,
                &raw const (*slot).request,
                &raw mut (*slot).decision,
            ),
            Err(status) => status as i32,
        }
    })
}

/// To be called after the task, with the same slot: releases what limiter_before_task() took and sets the
/// slot's permit to 0; does nothing if that is 0 already. Reads no more of the slot than its size, limiter
/// and decision.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_after_task(slot: *mut c_void) {
    guard((), || unsafe {
        if let Ok(slot) = checked(slot) {
            let permit = std::mem::take(&mut (*slot).decision.permit);
            if permit != 0 {
                limiter_release((*slot).limiter, permit);
            }
        }
    })
}

/// The slot, if its size is one this library knows.
unsafe fn checked(slot: *mut c_void) -> Result<*mut limiter_slot, Status> {
    let slot = slot.cast::<limiter_slot>();
    let head = std::mem::offset_of!(limiter_slot, request) + limiter_request::LEAST;
    match unsafe { out(slot.cast::<usize>()) } {
        Ok(size) if *size >= head => Ok(slot),
        _ => Err(Status::Invalid),
    }
}
