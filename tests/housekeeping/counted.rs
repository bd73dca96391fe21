//! Counts what a thread allocates and frees, and who frees it. Some allocators, the C library's among them, put
//! off merging small pieces that were freed, until the thread that they were allocated by asks for a large one:
//! that call then merges them all. So it is counted how many small ones such a call finds.
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The system's allocator, counted for each thread.
struct Counted;

#[global_allocator]
static COUNTED: Counted = Counted;

/// Beyond what is merged late.
const LARGE: usize = 1024;
/// Threads that are told apart; those after them share numbers.
const THREADS: usize = 256;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
    static BYTES: Cell<usize> = const { Cell::new(0) };
    static MERGED: Cell<usize> = const { Cell::new(0) };
    /// Number of the thread; 0: it has none yet.
    static NUMBER: Cell<usize> = const { Cell::new(0) };
}

static THREADS_SEEN: AtomicUsize = AtomicUsize::new(0);
/// Small pieces that were freed, and not used again, since the thread that they were allocated by asked for a
/// large one.
static FREED: [AtomicUsize; THREADS] = [const { AtomicUsize::new(0) }; THREADS];
/// Small pieces that a thread has allocated and nobody has freed.
static SMALL: [AtomicUsize; THREADS] = [const { AtomicUsize::new(0) }; THREADS];

fn thread() -> usize {
    if NUMBER.get() == 0 {
        NUMBER.set(1 + THREADS_SEEN.fetch_add(1, Relaxed) % (THREADS - 1));
    }
    NUMBER.get()
}

/// Pieces of this thread's that its next large one finds to be merged.
pub fn unmerged() -> usize {
    FREED[thread()].load(Relaxed)
}

/// Small pieces of this thread's that are in use.
pub fn small() -> usize {
    SMALL[thread()].load(Relaxed)
}

fn count(bytes: usize) {
    CALLS.set(CALLS.get() + 1);
    BYTES.set(BYTES.get() + bytes);
}

/// In front of each piece there is room for the number of who allocated it. Answers how much.
fn room(layout: Layout) -> (Layout, usize) {
    let front = layout.align().max(size_of::<usize>());
    let whole = Layout::from_size_align(front + layout.size(), front).expect("small enough");
    (whole, front)
}

// SAFETY: the system's allocator does the work; what it gives is larger than asked for by what lies in front.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        let freed = &FREED[thread()];
        if layout.size() > LARGE {
            MERGED.set(MERGED.get() + freed.swap(0, Relaxed));
        } else {
            SMALL[thread()].fetch_add(1, Relaxed);
            let less = |freed: usize| freed.checked_sub(1);
            let _ = freed.fetch_update(Relaxed, Relaxed, less);
        }
        let (whole, front) = room(layout);
        unsafe {
            let place = System.alloc(whole);
            if place.is_null() {
                return place;
            }
            place.cast::<usize>().write(thread());
            place.add(front)
        }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(layout.size());
        let (whole, front) = room(layout);
        unsafe {
            let place = place.sub(front);
            if layout.size() <= LARGE {
                let whose = place.cast::<usize>().read();
                FREED[whose].fetch_add(1, Relaxed);
                SMALL[whose].fetch_sub(1, Relaxed);
            }
            System.dealloc(place, whole);
        }
    }
}

/// Two tables of some hundred keys may be written anew, and all of their keys dropped.
const MOST_CALLS: usize = 4_000;
const MOST_BYTES: usize = 384 * 1024;
const MOST_MERGED: usize = 4_000;

/// One call of the library, which must be a small one.
#[track_caller]
pub fn call<T>(body: impl FnOnce() -> T) -> T {
    CALLS.set(0);
    BYTES.set(0);
    MERGED.set(0);
    let result = body();
    let (calls, bytes, merged) = (CALLS.get(), BYTES.get(), MERGED.get());
    assert!(
        calls <= MOST_CALLS && bytes <= MOST_BYTES,
        "one call allocated and freed {bytes} bytes in {calls} steps"
    );
    assert!(merged <= MOST_MERGED, "one call merged {merged} pieces");
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
