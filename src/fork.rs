//! What a fork does to this library: a generation counter, and values that each generation makes
//! afresh.
//!
//! A child inherits memory but no threads: locks may be held by threads that do not exist in it, and
//! sockets are shared with the parent. So nothing of the parent's is used, or even dropped, in the
//! child: the atfork handler only counts, and the first use in a new generation builds a new value
//! and leaks the inherited one.
#![allow(unsafe_code)]
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

static GENERATION: AtomicU64 = AtomicU64::new(0);
static REGISTERED: AtomicBool = AtomicBool::new(false);

extern "C" fn count_the_child() {
    GENERATION.fetch_add(1, Ordering::SeqCst);
}

/// How many forks lie between the process that loaded the library and this one.
pub fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// Makes forks count from now on. A fork in the middle of the first call can register twice in the
/// child; counting by two is harmless.
pub fn watch() {
    if !REGISTERED.load(Ordering::Acquire) {
        // SAFETY: the handler is async-signal-safe and the library is never unloaded (-z nodelete).
        let failed = unsafe { libc::pthread_atfork(None, None, Some(count_the_child)) };
        REGISTERED.store(failed == 0, Ordering::Release);
    }
}

/// Puts `descriptor` in the place of the inherited descriptor `number`, so that a number the host knows
/// stays valid in the child while the parent's object is left alone.
pub fn replace(descriptor: OwnedFd, number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: plain system call; `number` was ours in the parent and nothing owns it in this process.
    let taken = unsafe { libc::dup3(descriptor.as_raw_fd(), number, libc::O_CLOEXEC) };
    if taken < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(unsafe { OwnedFd::from_raw_fd(taken) })
}

/// Closes an inherited descriptor that nothing owns in this process; a negative number is none.
pub fn close(number: RawFd) {
    if number >= 0 {
        // SAFETY: as in replace().
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    }
}

/// A value of this process: built on first use, again after each fork.
pub struct ForkLocal<T> {
    current: AtomicPtr<Tagged<T>>,
    /// 0, or 1 + the generation that is building. A lock held in the parent at the time of a fork
    /// carries an old generation, so the child takes it over.
    building: AtomicU64,
}

struct Tagged<T> {
    generation: u64,
    value: T,
}

impl<T: Send + Sync> ForkLocal<T> {
    pub const fn empty() -> ForkLocal<T> {
        ForkLocal {
            current: AtomicPtr::new(std::ptr::null_mut()),
            building: AtomicU64::new(0),
        }
    }

    /// The value of this generation, if it was built.
    pub fn get(&self) -> Option<&T> {
        // SAFETY: `current` is null or came from Box::into_raw, and is freed only by drop.
        let tagged = unsafe { self.current.load(Ordering::Acquire).as_ref() }?;
        (tagged.generation == generation()).then_some(&tagged.value)
    }

    /// The value of this generation; `build` makes it if this is the first use. Only one thread builds.
    pub fn get_or_build<E>(&self, build: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        if let Some(value) = self.get() {
            return Ok(value);
        }
        self.lock();
        let unlock = Unlock(&self.building);
        if self.get().is_none() {
            let tagged = Box::new(Tagged {
                generation: generation(),
                value: build()?,
            });
            // The inherited value, if any, is leaked: dropping it would disturb the parent.
            self.current.store(Box::into_raw(tagged), Ordering::Release);
        }
        drop(unlock);
        Ok(self.get().expect("just built in this generation"))
    }

    fn lock(&self) {
        let ours = generation() + 1;
        loop {
            let holder = self.building.load(Ordering::Relaxed);
            let free = holder != ours;
            if free
                && self
                    .building
                    .compare_exchange(holder, ours, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return;
            }
            std::thread::yield_now();
        }
    }
}

struct Unlock<'a>(&'a AtomicU64);

impl Drop for Unlock<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

impl<T> Drop for ForkLocal<T> {
    fn drop(&mut self) {
        let current = *self.current.get_mut();
        // SAFETY: as in get(); nobody else can reach it any more.
        let ours = unsafe { current.as_ref() }.is_some_and(|c| c.generation == generation());
        if ours {
            drop(unsafe { Box::from_raw(current) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_once_and_steals_an_inherited_lock() {
        let local = ForkLocal::<u32>::empty();
        local.building.store(u64::MAX, Ordering::Relaxed); // held by a thread of another generation
        assert_eq!(local.get_or_build(|| Ok::<_, ()>(7)), Ok(&7));
        assert_eq!(
            local.get_or_build(|| -> Result<u32, ()> { unreachable!() }),
            Ok(&7)
        );
        let failing = ForkLocal::<u32>::empty();
        assert_eq!(failing.get_or_build(|| Err("no")), Err("no"));
        assert_eq!(failing.get_or_build(|| Ok::<_, &str>(1)), Ok(&1));
    }
}
