//! What only a fuzzer calls, in a build for it: the readers of what a server sends, which no function of
//! the interface takes.
use std::slice;

use crate::redis::read_anything;

/// `data` is of `size` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn limiter_fuzz_reply(data: *const u8, size: usize) {
    if !data.is_null() {
        // SAFETY: the caller says so.
        read_anything(unsafe { slice::from_raw_parts(data, size) });
    }
}
