//! Reading what a C caller passed: pointers that may be null, structs that may be of another version.
use std::ffi::{CStr, c_char};

use crate::decision::Status;
use crate::ffi::types::*;

/// A handle, or INVALID for null.
///
/// # Safety
/// `handle` is null or a live object for the time of the call.
pub unsafe fn handle<'a, T>(handle: *const T) -> Result<&'a T, Status> {
    unsafe { handle.as_ref() }.ok_or(Status::Invalid)
}

/// Where an answer goes, or INVALID for null.
///
/// # Safety
/// `out` is null or valid for writes for the time of the call.
pub unsafe fn out<'a, T>(out: *mut T) -> Result<&'a mut T, Status> {
    unsafe { out.as_mut() }.ok_or(Status::Invalid)
}

/// A C string as UTF-8.
///
/// # Safety
/// `text` is null or NUL-terminated.
pub unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Status> {
    if text.is_null() {
        return Err(Status::Invalid);
    }
    unsafe { CStr::from_ptr(text) }
        .to_str()
        .map_err(|_| Status::Invalid)
}

/// `length` elements at `start`; null is the empty slice and only with length 0.
///
/// # Safety
/// `start` is null or valid for `length` elements for the time of the call.
pub unsafe fn slice<'a, T>(start: *const T, length: usize) -> Result<&'a [T], Status> {
    if length == 0 {
        return Ok(&[]);
    }
    if start.is_null() || length > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Status::Invalid);
    }
    Ok(unsafe { std::slice::from_raw_parts(start, length) })
}

/// A struct that begins with `struct_size` and only ever grew at its end.
///
/// # Safety
/// Implementors are `repr(C)`, plain data valid for every bit pattern, and begin with a `usize`.
pub unsafe trait Versioned: Copy {
    /// What LIMITER_INIT makes.
    const INIT: Self;
    /// The smallest size that makes sense: through the fields without which there is no question.
    const LEAST: usize;

    fn struct_size(&self) -> usize;
}

/// Whether a struct of some program can have this size: through the fields without which it makes no sense,
/// and no field cut in two, as they are grouped in eights.
pub fn can_be(size: usize, least: usize) -> bool {
    (least..=1 << 16).contains(&size) && size.is_multiple_of(8)
}

/// The size that a struct tells of itself, if there is nothing in it beyond the `known` bytes.
///
/// # Safety
/// `from` is null or points at a struct whose first field is its true size.
pub unsafe fn told_size<T>(from: *const T, least: usize, known: usize) -> Result<usize, Status> {
    if from.is_null() {
        return Err(Status::Invalid);
    }
    let size = unsafe { from.cast::<usize>().read() };
    if !can_be(size, least) {
        return Err(Status::Invalid);
    }
    let bytes = unsafe { std::slice::from_raw_parts(from.cast::<u8>(), size) };
    match bytes.iter().skip(known).all(|&b| b == 0) {
        true => Ok(size),
        false => Err(Status::Invalid),
    }
}

/// Reads a versioned struct: a smaller one is completed with the defaults, a larger one must be zero
/// beyond what this library knows.
///
/// # Safety
/// As for [`told_size`].
pub unsafe fn versioned<T: Versioned>(from: *const T) -> Result<T, Status> {
    let size = unsafe { told_size(from, T::LEAST, size_of::<T>()) }?;
    if size == size_of::<T>() {
        // SAFETY: all of it is there.
        return Ok(unsafe { from.read_unaligned() });
    }
    let mut known = T::INIT;
    // SAFETY: both sides are valid for the smaller of the two sizes.
    unsafe {
        let copied = size.min(size_of::<T>());
        std::ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut known).cast(), copied);
    }
    Ok(known)
}

/// Reads a versioned struct, or what LIMITER_INIT makes for null.
///
/// # Safety
/// As for [`told_size`].
pub unsafe fn versioned_or_init<T: Versioned>(from: *const T) -> Result<T, Status> {
    match from.is_null() {
        true => Ok(T::INIT),
        false => unsafe { versioned(from) },
    }
}

/// Reads an array of versioned structs, whose stride is the size the first one tells. What is wrong with
/// which one, if not all are as they should be.
///
/// # Safety
/// As for [`told_size`], for `count` elements of one size.
pub unsafe fn versioned_array<T: Versioned>(
    from: *const T,
    count: usize,
) -> Result<Vec<T>, (usize, &'static str)> {
    let mut read = Vec::with_capacity(count.min(1024));
    let mut next = from;
    for i in 0..count {
        let element = unsafe { versioned(next) }.map_err(|_| (i, unsafe { oddity(next) }))?;
        let size = read.first().map_or(element.struct_size(), T::struct_size);
        if element.struct_size() != size {
            return Err((i, "struct_size is not the same as the first one's"));
        }
        read.push(element);
        next = unsafe { next.byte_add(size) };
    }
    Ok(read)
}

/// Why [`versioned`] refused this one.
///
/// # Safety
/// As for [`told_size`].
unsafe fn oddity<T: Versioned>(from: *const T) -> &'static str {
    match unsafe { from.cast::<usize>().as_ref() } {
        None => "is NULL",
        Some(0) => "struct_size is 0: set it up with LIMITER_INIT",
        Some(&size) if can_be(size, T::LEAST) => {
            "struct_size is of a later version, with a setting that this library does not know"
        }
        Some(_) => "struct_size is no size of this struct: set it up with LIMITER_INIT",
    }
}

// SAFETY: repr(C), integers and pointers only.
unsafe impl Versioned for limiter_limit {
    const INIT: limiter_limit = limiter_limit {
        struct_size: size_of::<limiter_limit>(),
        kind: 0,
        flags: 0,
        capacity: 0,
        refill: 0,
        period_us: 0,
        lease_ms: 0,
        burst_earn_permille: 500,
        version: 0,
        reserved: 0,
    };
    const LEAST: usize = std::mem::offset_of!(limiter_limit, lease_ms);

    fn struct_size(&self) -> usize {
        self.struct_size
    }
}

// SAFETY: as above.
unsafe impl Versioned for limiter_request {
    const INIT: limiter_request = limiter_request {
        struct_size: size_of::<limiter_request>(),
        key: std::ptr::null(),
        key_len: 0,
        weight: 1,
        weights: std::ptr::null(),
        weights_len: 0,
        wait_ms: 0,
        lease_ms: 0,
        flags: 0,
        reserved: 0,
        user_data: 0,
    };
    const LEAST: usize = std::mem::offset_of!(limiter_request, weights);

    fn struct_size(&self) -> usize {
        self.struct_size
    }
}

/// Copies `value` to a caller's struct of `size` bytes and leaves its size field as it was.
///
/// # Safety
/// `to` is valid for `size` bytes.
pub unsafe fn write_sized<T: Copy>(to: *mut T, size: usize, value: &T) {
    let skip = size_of::<usize>();
    let end = size.min(size_of::<T>());
    if end > skip {
        // SAFETY: within both.
        unsafe {
            std::ptr::copy_nonoverlapping(
                (&raw const *value).cast::<u8>().add(skip),
                to.cast::<u8>().add(skip),
                end - skip,
            );
        }
    }
}
