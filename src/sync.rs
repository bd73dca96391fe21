//! Locks that a panic does not poison. A panic is a bug that the C boundary answers with PANIC; it must
//! not take every later call on the same keys with it. They are std's own underneath, on plain futexes:
//! nothing that a fork could leave locked for ever outside the objects themselves. With the feature
//! "shuttle" they are those of a scheduler that tries one order of threads after another: for
//! tests/interleavings, and of no use elsewhere.
use std::cell::RefCell;
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

#[cfg(feature = "shuttle")]
use shuttle::sync as locks;
#[cfg(not(feature = "shuttle"))]
use std::sync as locks;

pub use locks::MutexGuard;
pub use std::sync::atomic;

thread_local! {
    static HAND_OVER: RefCell<Option<Box<dyn Fn()>>> = const { RefCell::new(None) };
}

/// This thread is one of a simulation, where one at a time runs: where it would sleep until something
/// happens, it lets the others run.
pub fn simulate(hand_over: impl Fn() + 'static) {
    HAND_OVER.set(Some(Box::new(hand_over)));
}

/// Lets others run, if this thread is simulated: then true.
pub fn hand_over() -> bool {
    HAND_OVER
        .with_borrow(|hand_over| hand_over.as_ref().map(|it| it()))
        .is_some()
}

#[derive(Debug, Default)]
pub struct Mutex<T>(locks::Mutex<T>);

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(locks::Mutex::new(value))
    }

    /// `None`: somebody has it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(held)) => Some(held.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
pub struct Condvar(locks::Condvar);

impl Condvar {
    pub const fn new() -> Condvar {
        Condvar(locks::Condvar::new())
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        longest: Duration,
    ) -> MutexGuard<'a, T> {
        self.0
            .wait_timeout(guard, longest)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    pub fn wait_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        self.0
            .wait_while(guard, condition)
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        longest: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        let waited = self.0.wait_timeout_while(guard, longest, condition);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_under_the_lock_leaves_it_usable() {
        let counter = Mutex::new(1);
        let bug = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            *counter.lock() += 1;
            let _guard = counter.lock();
            panic!("a bug");
        }));
        assert!(bug.is_err());
        let guard = counter.lock();
        assert_eq!(*guard, 2);
        assert!(counter.try_lock().is_none());
        drop(guard);
        assert_eq!(counter.try_lock().as_deref(), Some(&2));
    }
}
