//! Asynchronous acquires for native worker pools: a callback, or a pair of hooks around each task.
use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

use crate::decision::{Decision, Status};
use crate::ffi::args::{Versioned, can_be, handle, told_size, versioned_or_init};
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
/// (nullable) is the number for limiter_cancel(), also in the decision, and is set before the callback
/// runs. Anything else: nothing was started, `*op` is 0, and it is never called. Never waits.
///
/// `user_data` is yours again when the callback runs. It does not run after limiter_cancel() with
/// LIMITER_DETACH answered LIMITER_OK: then it is yours to free from there.
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
        let op = op.as_mut().map(|op| {
            *op = 0;
            op
        });
        let callback = callback.ok_or(Status::Invalid)?;
        let request = versioned_or_init(request)?;
        let user_data = UserData::new(user_data);
        let told = op.is_some().then(Told::default);
        let until = told.as_ref().map(|told| told.0.clone());
        let completed = Box::new(move |decision: Decision| {
            if let Some(until) = until {
                until.wait();
            }
            callback(user_data.get(), &limiter_decision::from(decision));
        });
        let started = handle(limiter)?.0.acquire_cb(&read(&request)?, completed)?;
        if let Some(op) = op {
            *op = started;
        }
        drop(told);
        Ok(Status::Pending)
    })
}

/// Dropped, however that comes about, once the caller has its `op`: the callback waits for that.
#[derive(Default)]
struct Told(Arc<OnceLock<()>>);

impl Drop for Told {
    fn drop(&mut self) {
        let _ = self.0.set(());
    }
}

/// To be called before a task with its limiter_slot, for pools that take a function pointer:
/// limiter_acquire() with the slot's request; the answer is in the slot. Start the task only on
/// LIMITER_OK. LIMITER_INVALID, with nothing taken and the slot as it was, while it holds a permit, for
/// NULL, and for a wrong struct_size.
///
/// # Safety
/// See the header.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_before_task(slot: *mut c_void) -> limiter_status {
    let slot = slot.cast::<limiter_slot>();
    let ready = guard(Err(Status::Panic), || unsafe {
        let size = told_size(slot, LEAST_SLOT, size_of::<limiter_slot>())?;
        // The request is the slot's last field and grows with it.
        let fits = (*slot).request.struct_size <= size - REQUEST_AT;
        match fits && (*slot).decision.permit == 0 {
            true => Ok(()),
            false => Err(Status::Invalid),
        }
    });
    match ready {
        Ok(()) => unsafe {
            let (request, decision) = (&raw const (*slot).request, &raw mut (*slot).decision);
            limiter_acquire((*slot).limiter, request, decision)
        },
        Err(status) => status as limiter_status,
    }
}

/// To be called after the task, with the same slot: releases what limiter_before_task() took and sets the
/// slot's permit to 0; does nothing if that is 0 already. Reads no more of the slot than its size, limiter
/// and decision.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_after_task(slot: *mut c_void) {
    let slot = slot.cast::<limiter_slot>();
    guard((), || unsafe {
        if !slot.is_null() && can_be((*slot).struct_size, LEAST_SLOT) {
            let permit = std::mem::take(&mut (*slot).decision.permit);
            if permit != 0 {
                limiter_release((*slot).limiter, permit);
            }
        }
    })
}

const REQUEST_AT: usize = std::mem::offset_of!(limiter_slot, request);
const LEAST_SLOT: usize = REQUEST_AT + limiter_request::LEAST;
