//! The atomics of the key table under loom, which tries every order of threads and everything that the memory
//! model lets a thread read. It is the very source of the library, on loom's atomics in place of std's.
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

#[path = "../../src/memory/key_count.rs"]
mod key_count;

use key_count::KeyCount;

/// What is counted as std's Arc counts it, and what is freed with the last.
struct Limits {
    handles: AtomicUsize,
    keys: KeyCount,
    freed: UnsafeCell<bool>,
}

impl Limits {
    fn with_handles(handles: usize) -> Arc<Limits> {
        Arc::new(Limits {
            handles: AtomicUsize::new(handles),
            keys: KeyCount::new(),
            freed: UnsafeCell::new(false),
        })
    }

    fn drop_handle(&self) {
        self.handles.fetch_sub(1, Ordering::Release);
    }

    fn is_unused(&self) -> bool {
        self.keys.is_unused(|| self.handles.load(Ordering::Relaxed))
    }

    /// Of a key's use: loom ends the test if they can be freed meanwhile.
    fn read(&self) {
        self.freed.with(|freed| assert!(!unsafe { *freed }));
    }

    fn free(&self) {
        self.freed.with_mut(|freed| unsafe { *freed = true });
    }
}

#[test]
fn limits_under_which_a_key_was_stored_are_never_found_unused() {
    loom::model(|| {
        let limits = Limits::with_handles(2);
        let users: Vec<_> = (0..2)
            .map(|_| {
                let limits = limits.clone();
                thread::spawn(move || {
                    limits.keys.count();
                    limits.drop_handle();
                })
            })
            .collect();
        assert!(!limits.is_unused());
        users.into_iter().for_each(|user| user.join().unwrap());
        assert!(!limits.is_unused());
    });
}

#[test]
fn what_was_done_with_a_key_and_a_handle_comes_before_their_limits_are_freed() {
    loom::model(|| {
        let limits = Limits::with_handles(1);
        limits.keys.count();
        let (user, forgets) = (limits.clone(), limits.clone());
        let threads = [
            thread::spawn(move || {
                user.read();
                user.keys.count();
                user.keys.uncount();
                user.drop_handle();
            }),
            thread::spawn(move || {
                forgets.read();
                forgets.keys.uncount();
            }),
        ];
        let unused = limits.is_unused();
        if unused {
            limits.free();
        }
        threads.into_iter().for_each(|one| one.join().unwrap());
        assert!(limits.is_unused(), "everybody has gone");
    });
}
