//! Small pieces of memory that were freed. Some allocators put off merging them, until somebody asks for a large
//! piece and has to wait while all are merged: the C library's does. So somebody asks now and then, while they
//! are few.
use std::cell::Cell;
use std::hint::black_box;

/// Pieces that are merged, and sorted by size among very many others, within some microseconds.
const MANY: u32 = 16;
/// Bytes that no allocator takes for small.
const LARGE: usize = 2 * 1024;

thread_local! {
    static FREED: Cell<u32> = const { Cell::new(0) };
}

/// The calling thread frees so many, about.
pub(super) fn freed(pieces: u32) {
    let freed = FREED.get() + pieces;
    if freed < MANY {
        FREED.set(freed);
        return;
    }
    FREED.set(0);
    drop(black_box(Vec::<u8>::with_capacity(LARGE)));
}
