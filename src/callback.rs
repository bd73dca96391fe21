//! The thread on which callbacks run: its own, so that a slow one delays nothing but other callbacks.
use crate::sync::{Condvar, Mutex};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::config::LostHook;
use crate::decision::{Decision, Status};
use crate::fork;
use crate::mailbox::Mailbox;
use crate::runtime;

/// Receives the completion of one operation.
pub type Callback = Box<dyn FnOnce(Decision) + Send>;

thread_local! {
    /// 1 + the fork generation in which this thread runs callbacks; 0 in other threads. A child that was
    /// forked in a callback is not in one.
    static INSIDE: Cell<u64> = const { Cell::new(0) };
}

/// Whether the calling thread is running a callback: then it must not block in this library.
pub fn inside() -> bool {
    INSIDE.get() == fork::generation() + 1
}

/// Callbacks that are due, in order. Its lock is taken last, under a shard's.
pub struct Callbacks {
    lost: Option<LostHook>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    due: Mailbox<Key, Job>,
    /// How many of them are words of lost leases.
    lost: usize,
    thread: Option<JoinHandle<()>>,
    busy: bool,
    closed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Completion(u64),
    Lost(u64),
}

enum Job {
    Completion(Decision, Callback),
    Lost(u64),
}

impl Callbacks {
    /// Words of lost leases that wait to be told at most; more are dropped. Completions are bounded by
    /// whoever starts what completes.
    pub const MOST_LOST: usize = 65_536;

    /// `lost` is told of each permit whose lease ended while it was held.
    pub fn new(lost: Option<LostHook>) -> Arc<Callbacks> {
        Arc::new(Callbacks {
            lost,
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Who is told of a lost lease.
    pub fn lost(&self) -> Option<LostHook> {
        self.lost.clone()
    }

    /// Makes sure that callbacks will run. To be asked before promising one.
    pub fn ready(self: &Arc<Callbacks>) -> Result<(), Status> {
        let mut state = self.state.lock();
        if state.thread.is_none() && !state.closed {
            let callbacks = Arc::clone(self);
            let spawned = runtime::spawn("limiter-callback", move || callbacks.run());
            state.thread = Some(spawned.map_err(|_| Status::Resource)?);
        }
        Ok(())
    }

    /// Queues a completion, to be followed by [`Callbacks::wake`] once no lock is held.
    pub fn push(&self, decision: Decision, callback: Callback) {
        let job = Job::Completion(decision, callback);
        self.state
            .lock()
            .due
            .push(Key::Completion(decision.op), job);
    }

    /// Queues word of a lost lease, as [`Callbacks::push`] does, if anybody wants it. False: it is
    /// dropped, because too many were not told yet.
    pub fn push_lost(self: &Arc<Callbacks>, permit: u64) -> bool {
        if self.lost.is_none() || self.ready().is_err() {
            return true;
        }
        let mut state = self.state.lock();
        let room = state.lost < Callbacks::MOST_LOST;
        if room {
            state.due.push(Key::Lost(permit), Job::Lost(permit));
            state.lost += 1;
        }
        room
    }

    pub fn wake(&self) {
        self.changed.notify_all();
    }

    /// Whether this operation's callback waits to be run.
    pub fn holds(&self, op: u64) -> bool {
        self.state.lock().due.has(&Key::Completion(op))
    }

    /// Callbacks that have not begun.
    pub fn len(&self) -> usize {
        self.state.lock().due.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Completions whose callbacks have not begun, without the words of lost leases: whoever asks knows how
    /// many there may be.
    pub fn completions(&self) -> usize {
        let state = self.state.lock();
        state.due.len() - state.lost
    }

    /// Takes back a completion whose callback has not begun.
    pub fn take(&self, op: u64) -> Option<Decision> {
        match self.state.lock().due.take(&Key::Completion(op))? {
            Job::Completion(decision, _) => Some(decision),
            Job::Lost(_) => unreachable!("its key is another"),
        }
    }

    /// Waits until every callback that is due has run; false if that took longer than `timeout`.
    pub fn drain(&self, timeout: Option<Duration>) -> bool {
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        let mut state = self.state.lock();
        while state.busy || !state.due.is_empty() {
            state = match deadline {
                None => self.changed.wait(state),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return false;
                    }
                    self.changed.wait_timeout(state, left)
                }
            };
        }
        true
    }

    /// The thread ends when it has run what is due.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    /// Waits for the thread to end, after [`Callbacks::close`] and [`Callbacks::drain`].
    pub fn join(&self) {
        let thread = self.state.lock().thread.take();
        runtime::join(thread);
    }

    fn run(&self) {
        INSIDE.set(fork::generation() + 1);
        let mut state = self.state.lock();
        loop {
            let Some((_, job)) = state.due.pop() else {
                if state.closed {
                    return;
                }
                state = self.changed.wait(state);
                continue;
            };
            state.lost -= usize::from(matches!(job, Job::Lost(_)));
            state.busy = true;
            drop(state);
            // A callback that unwinds has had its call; the others still want theirs.
            let _ = catch_unwind(AssertUnwindSafe(|| self.call(job)));
            while !inside() {
                // The callback forked, and this is the child: what is due here is the parent's.
                std::thread::park();
            }
            state = self.state.lock();
            state.busy = false;
            self.changed.notify_all();
        }
    }

    fn call(&self, job: Job) {
        match job {
            Job::Completion(decision, callback) => callback(decision),
            Job::Lost(permit) => {
                if let Some(lost) = &self.lost {
                    lost(permit);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn done(op: u64) -> Decision {
        Decision {
            op,
            ..Decision::of(Status::Ok)
        }
    }

    #[test]
    fn callbacks_run_in_order_on_their_thread_and_one_that_unwinds_stops_no_other() {
        let (tell, told) = mpsc::channel();
        let callbacks = Callbacks::new(None);
        callbacks.ready().unwrap();
        for op in 1..=3 {
            let tell = tell.clone();
            let callback = move |d: Decision| {
                let name = std::thread::current().name().map(str::to_owned);
                tell.send((d.op, name, inside())).unwrap();
                assert_ne!(d.op, 2, "on purpose");
            };
            callbacks.push(done(op), Box::new(callback));
        }
        callbacks.wake();
        assert!(callbacks.drain(Some(Duration::from_secs(60))));
        let name = Some("limiter-callback".to_owned());
        let expected: Vec<_> = (1..=3).map(|op| (op, name.clone(), true)).collect();
        assert_eq!(told.try_iter().collect::<Vec<_>>(), expected);
        assert!(!inside());
        callbacks.close();
    }

    #[test]
    fn words_of_lost_leases_that_come_faster_than_they_are_told_are_bounded() {
        let (go, gone) = mpsc::channel::<()>();
        let gone = Mutex::new(gone);
        let told = Arc::new(Mutex::new(0));
        let count = told.clone();
        let callbacks = Callbacks::new(Some(Arc::new(move |_| *count.lock() += 1)));
        callbacks.push(done(1), Box::new(move |_| gone.lock().recv().unwrap()));
        for permit in 0..Callbacks::MOST_LOST as u64 {
            assert!(callbacks.push_lost(permit));
        }
        assert!(!callbacks.push_lost(u64::MAX));
        // Who asks for a callback is not to wait for them.
        assert!(callbacks.completions() <= 1);
        callbacks.wake();
        go.send(()).unwrap();
        assert!(callbacks.drain(None));
        assert_eq!(*told.lock(), Callbacks::MOST_LOST);
        assert!(callbacks.push_lost(u64::MAX));
        callbacks.close();
        assert!(callbacks.drain(None));
    }

    #[test]
    fn one_taken_back_does_not_run_and_a_busy_one_is_waited_for() {
        let (go, gone) = mpsc::channel::<()>();
        let callbacks = Callbacks::new(None);
        callbacks.push(done(1), Box::new(move |_| gone.recv().unwrap()));
        callbacks.push(done(2), Box::new(|_| panic!("taken back")));
        assert!(callbacks.holds(2));
        assert_eq!(callbacks.take(2).map(|d| d.op), Some(2));
        assert_eq!(callbacks.take(2), None);
        assert!(!callbacks.drain(Some(Duration::ZERO)));
        callbacks.ready().unwrap();
        assert!(!callbacks.drain(Some(Duration::from_millis(1))));
        go.send(()).unwrap();
        assert!(callbacks.drain(None));
        callbacks.close();
    }
}
