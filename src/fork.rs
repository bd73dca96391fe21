//! What a fork does to this library: a generation counter, and values that each generation makes
//! afresh.
//!
//! A child inherits memory but no threads: locks may be held by threads that do not exist in it, and
//! sockets are shared with the parent. So nothing of the parent's is used, or even dropped, in the
//! child: the atfork handler only counts, and the first use in a new generation builds a new value
//! and leaks the inherited one.
#![allow(unsafe_code)]
use std::ffi::c_int;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
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

/// A descriptor whose number the host knows. The host inherits it on a fork; in the child it may have closed
/// it, as daemons close everything, and have opened something of its own on that number.
///
/// So a number is only touched after looking whose it is. All eventfds are one inode, and the kernel gives
/// their ids out again, so neither tells one from another. What an open file does keep, whoever inherits
/// it, is where its signals go: a lent one names a signal, which is never sent (O_ASYNC is off), and the
/// process that opened it.
pub struct Lent(ManuallyDrop<OwnedFd>);

/// Who opened what a number stands for.
#[derive(PartialEq, Eq)]
enum Opener {
    /// This process, here.
    Us,
    /// A process that this one was forked from.
    Ancestor,
    /// Not this library; or nobody, it is free.
    Stranger,
}

/// The largest signal: a descriptor's default is none.
const MARK: c_int = 64;
/// Of fcntl(2), which the libc crate does not name.
const F_SETSIG: c_int = 10;
const F_GETSIG: c_int = 11;

impl Lent {
    pub fn new(descriptor: OwnedFd) -> io::Result<Lent> {
        let number = descriptor.as_raw_fd();
        control(number, F_SETSIG, MARK)?;
        control(number, libc::F_SETOWN, std::process::id() as c_int)?;
        Ok(Lent(ManuallyDrop::new(descriptor)))
    }

    /// The same on `number`, if that is the one an ancestor lent, or free. The parent's object stays as it
    /// is. Where the host has something of its own there, it keeps the number it has.
    pub fn at(self, number: RawFd) -> io::Result<Lent> {
        let here = self.0.as_raw_fd();
        if here == number {
            return Ok(self);
        }
        let taken = match opener(number) {
            // SAFETY: a plain system call; nothing in this process owns what is replaced.
            Opener::Ancestor => match unsafe { libc::dup3(here, number, libc::O_CLOEXEC) } {
                -1 => return Err(io::Error::last_os_error()),
                taken => taken,
            },
            // The first free number from there on: if it is not this one, or none, somebody has this one.
            _ => match control(here, libc::F_DUPFD_CLOEXEC, number) {
                Ok(taken) => taken,
                Err(_) => return Ok(self),
            },
        };
        // SAFETY: it was just made. What is not returned is closed.
        let other = Lent(ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(taken) }));
        Ok(if taken == number { other } else { self })
    }
}

impl AsFd for Lent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if opener(self.0.as_raw_fd()) == Opener::Us {
            // SAFETY: not used again.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}

/// Closes what an ancestor lent, if it is still there: nothing owns it in this process.
pub fn close_inherited(number: RawFd) {
    if opener(number) == Opener::Ancestor {
        // SAFETY: as above.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    }
}

fn opener(number: RawFd) -> Opener {
    if control(number, F_GETSIG, 0).ok() != Some(MARK) {
        return Opener::Stranger;
    }
    // Fails, or answers 0, for one that has ended.
    match control(number, libc::F_GETOWN, 0) {
        Ok(owner) if owner == std::process::id() as c_int => Opener::Us,
        _ => Opener::Ancestor,
    }
}

fn control(number: RawFd, command: c_int, argument: c_int) -> io::Result<c_int> {
    // SAFETY: a plain system call; these commands take a number and no pointer.
    match unsafe { libc::fcntl(number, command, argument) } {
        -1 => Err(io::Error::last_os_error()),
        answer => Ok(answer),
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
    #[inline]
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
