//! Counts what a thread allocates and frees.
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, counted for each thread.
struct Counted;

#[global_allocator]
static COUNTED: Counted = Counted;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
}

fn count(bytes: usize) {
    CALLS.set(CALLS.get() + 1);
    BYTES.set(BYTES.get() + bytes);
}

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(layout.size());
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(layout.size() + size);
        unsafe { System.realloc(place, layout, size) }
    }
}

/// Two tables of some hundred keys may be written anew, and all of their keys dropped.
const MOST_CALLS: usize = 4_000;
const MOST_BYTES: usize = 384 * 1024;

/// One call of the library, which must be a small one.
#[track_caller]
pub fn call<T>(body: impl FnOnce() -> T) -> T {
    CALLS.set(0);
    BYTES.set(0);
    let result = body();
    let (calls, bytes) = (CALLS.get(), BYTES.get());
    assert!(
        calls <= MOST_CALLS && bytes <= MOST_BYTES,
        "one call allocated and freed {bytes} bytes in {calls} steps"
    );
    result
}

/// One call that must need no memory.
#[track_caller]
pub fn call_without<T>(body: impl FnOnce() -> T) -> T {
    CALLS.set(0);
    let result = body();
    assert_eq!(CALLS.get(), 0, "one call allocated or freed");
    result
}
