//! A completion queue: what was decided and not yet polled, and a descriptor that says so.
use crate::sync::{Condvar, Mutex, MutexGuard};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::unistd;

use crate::decision::{Decision, Status};
use crate::fork::Lent;
use crate::mailbox::Mailbox;

/// Completions in the order in which they happened. Its lock is taken last, under a shard's.
pub struct Queue {
    descriptor: Lent,
    state: Mutex<State>,
    /// Somebody may poll.
    filled: Condvar,
}

#[derive(Default)]
struct State {
    done: Mailbox<Key, Decision>,
    /// How many of them are words of lost leases.
    lost: usize,
    /// The descriptor is readable. Only ever while `done` holds something, or all is over.
    signalled: bool,
    /// Nothing more will be started: an empty queue stays empty.
    closed: bool,
    /// Nobody will poll any more: nothing is taken in.
    freed: bool,
}

/// An operation completes once, and a permit's lease is lost at most once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Completion(u64),
    Lost(u64),
}

impl State {
    fn pop(&mut self) -> Option<Decision> {
        let (key, decision) = self.done.pop()?;
        self.lost -= usize::from(matches!(key, Key::Lost(_)));
        Some(decision)
    }

    fn take(&mut self, key: &Key) -> Option<Decision> {
        let decision = self.done.take(key)?;
        self.lost -= usize::from(matches!(key, Key::Lost(_)));
        Some(decision)
    }
}

impl Queue {
    /// Words of lost leases that wait to be polled at most; more are dropped. Completions are bounded by
    /// the waits that may be begun.
    pub const MOST_LOST: usize = 65_536;

    /// What a queue's descriptor is: non-blocking, closed on exec.
    pub fn open_descriptor() -> Result<Lent, Status> {
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        let counter = EventFd::from_flags(flags).map_err(|_| Status::Resource)?;
        Lent::new(counter.into()).map_err(|_| Status::Resource)
    }

    /// A queue on a descriptor of [`Queue::open_descriptor`], whose number the caller chooses: after a
    /// fork the child's new one is put in the place of the parent's.
    pub fn on(descriptor: Lent) -> Queue {
        Queue {
            descriptor,
            state: Mutex::default(),
            filled: Condvar::new(),
        }
    }

    /// Readable as long as completions wait, and once the queue is closed.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Takes up to `cap` completions, oldest first; waits for the first up to `timeout` (`None`: without
    /// limit). CLOSED when none is left and none will come.
    pub fn poll(&self, cap: usize, timeout: Option<Duration>) -> Result<Vec<Decision>, Status> {
        let deadline = timeout.map(|t| Instant::now().checked_add(t));
        let mut state = self.state.lock();
        while state.done.is_empty() {
            if state.closed || state.freed {
                return Err(Status::Closed);
            }
            state = match deadline {
                None | Some(None) => self.filled.wait(state),
                Some(Some(deadline)) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Ok(Vec::new());
                    }
                    self.filled.wait_timeout(state, left)
                }
            };
        }
        let count = cap.min(state.done.len());
        let polled = (0..count).map_while(|_| state.pop()).collect();
        self.settle_signal(&mut state);
        if !state.done.is_empty() {
            self.filled.notify_one();
        }
        Ok(polled)
    }

    /// Adds a completion, to be followed by [`Queue::wake`] once no lock is held. False: nobody will
    /// poll it.
    pub fn push(&self, decision: Decision) -> bool {
        let mut state = self.state.lock();
        let open = !state.freed;
        if open {
            state.done.push(Key::Completion(decision.op), decision);
        }
        open
    }

    /// Adds word of a permit whose lease was lost, as [`Queue::push`] does. False: it is dropped, because
    /// too many were not polled.
    pub fn push_lost(&self, decision: Decision) -> bool {
        let mut state = self.state.lock();
        if state.freed {
            return true;
        }
        let room = state.lost < Queue::MOST_LOST;
        if room {
            state.done.push(Key::Lost(decision.permit), decision);
            state.lost += 1;
        }
        room
    }

    /// Makes what was pushed visible outside.
    pub fn wake(&self) {
        let mut state = self.state.lock();
        if !state.done.is_empty() || state.closed {
            self.settle_signal(&mut state);
            self.filled.notify_one();
        }
    }

    /// Whether this operation's completion waits to be polled.
    pub fn holds(&self, op: u64) -> bool {
        self.state.lock().done.has(&Key::Completion(op))
    }

    /// Completions that were not polled, and words of lost leases.
    pub fn len(&self) -> usize {
        self.state.lock().done.len()
    }

    /// Completions alone: whoever asks knows how many there may be.
    pub fn completions(&self) -> usize {
        let state = self.state.lock();
        state.done.len() - state.lost
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes back an operation's unpolled completion.
    pub fn take(&self, op: u64) -> Option<Decision> {
        let mut state = self.state.lock();
        let taken = state.take(&Key::Completion(op));
        if let Some(decision) = &taken {
            state.take(&Key::Lost(decision.permit));
            self.settle_signal(&mut state);
        }
        taken
    }

    /// No completion will be added any more.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        self.settle_signal(&mut state);
        self.filled.notify_all();
    }

    /// Nobody will poll any more. Answers what was not polled.
    pub fn free(&self) -> Vec<Decision> {
        let mut state = self.state.lock();
        state.freed = true;
        let left = std::iter::from_fn(|| state.pop()).collect();
        self.settle_signal(&mut state);
        self.filled.notify_all();
        left
    }

    /// Makes the descriptor tell the truth.
    fn settle_signal(&self, state: &mut MutexGuard<'_, State>) {
        let due = !state.done.is_empty() || state.closed;
        if due == state.signalled {
            return;
        }
        state.signalled = due;
        let moved = match due {
            true => unistd::write(&self.descriptor, &1u64.to_ne_bytes()),
            false => unistd::read(&self.descriptor, &mut [0; 8]),
        };
        // The counter is 0 or 1, so neither can block; a stranger who read it is forgiven.
        debug_assert!(matches!(moved, Ok(8) | Err(Errno::EAGAIN)), "{moved:?}");
    }
}

/// The queues of a client, to find an operation whose completion was not polled yet.
#[derive(Default)]
pub struct Queues(Mutex<Vec<Weak<Queue>>>);

impl Queues {
    /// A new queue among them. `closed` is asked once it can be found: either it sees the shutdown, or the
    /// shutdown sees the queue.
    pub fn open(&self, descriptor: Lent, closed: impl FnOnce() -> bool) -> Arc<Queue> {
        let queue = Arc::new(Queue::on(descriptor));
        let mut all = self.0.lock();
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(&queue));
        drop(all);
        if closed() {
            queue.close();
        }
        queue
    }

    pub fn all(&self) -> Vec<Arc<Queue>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Whether one of them has this operation's completion, unpolled.
    pub fn hold(&self, op: u64) -> bool {
        self.all().iter().any(|queue| queue.holds(op))
    }

    /// Takes back a completion that was not polled.
    pub fn take(&self, op: u64) -> Option<Decision> {
        self.all().iter().find_map(|queue| queue.take(op))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    fn readable(queue: &Queue) -> bool {
        let mut fds = [PollFd::new(queue.descriptor(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).unwrap() == 1
    }

    fn done(op: u64) -> Decision {
        Decision {
            op,
            ..Decision::of(Status::Ok)
        }
    }

    #[test]
    fn the_descriptor_is_readable_exactly_while_completions_wait() {
        let queue = Queue::on(Queue::open_descriptor().unwrap());
        assert!(!readable(&queue));
        assert_eq!(queue.poll(9, Some(Duration::ZERO)), Ok(vec![]));
        for op in 1..=3 {
            assert!(queue.push(done(op)));
            queue.wake();
        }
        assert!(readable(&queue));
        assert_eq!(queue.poll(1, Some(Duration::ZERO)).unwrap()[0].op, 1);
        assert!(readable(&queue) && queue.holds(2));
        assert_eq!(queue.take(2).unwrap().op, 2);
        assert_eq!(queue.take(2), None);
        assert!(readable(&queue));
        assert_eq!(queue.take(3).unwrap().op, 3);
        assert!(!readable(&queue));
        queue.push(done(4));
        queue.close();
        assert_eq!(queue.poll(9, None).unwrap()[0].op, 4);
        assert_eq!(queue.poll(9, None), Err(Status::Closed));
        assert!(readable(&queue));
    }

    #[test]
    fn a_completion_goes_to_one_of_several_pollers() {
        let queue = Queue::on(Queue::open_descriptor().unwrap());
        std::thread::scope(|scope| {
            let pollers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let mut ops = vec![];
                        while let Ok(polled) = queue.poll(3, None) {
                            ops.extend(polled.iter().map(|d| d.op));
                        }
                        ops
                    })
                })
                .collect();
            for op in 1..=1000 {
                queue.push(done(op));
                queue.wake();
            }
            queue.close();
            let mut ops: Vec<u64> = pollers
                .into_iter()
                .flat_map(|p| p.join().unwrap())
                .collect();
            ops.sort();
            assert!(ops.into_iter().eq(1..=1000));
        });
    }

    #[test]
    fn words_of_lost_leases_that_nobody_polls_are_bounded_and_completions_still_come() {
        let queue = Queue::on(Queue::open_descriptor().unwrap());
        let lost = |permit| Decision {
            permit,
            ..Decision::of(Status::Stale)
        };
        for permit in 0..Queue::MOST_LOST as u64 {
            assert!(queue.push_lost(lost(permit)));
        }
        let one_more = lost(u64::MAX);
        assert!(!queue.push_lost(one_more));
        assert!(queue.push(done(7)));
        assert_eq!(queue.len(), Queue::MOST_LOST + 1);
        assert_eq!(queue.poll(1, None).unwrap(), [lost(0)]);
        assert!(queue.push_lost(one_more));
        let taken = Decision {
            permit: 1,
            ..done(8)
        };
        queue.push(taken);
        assert!(
            queue.take(8).is_some(),
            "and with it the word of its permit"
        );
        assert!(queue.push_lost(lost(1)));
        assert!(!queue.push_lost(lost(2 * u64::from(u32::MAX))));
    }

    #[test]
    fn a_freed_queue_gives_back_what_was_not_polled_and_takes_no_more() {
        let queue = Queue::on(Queue::open_descriptor().unwrap());
        queue.push(done(1));
        queue.wake();
        assert_eq!(queue.free().len(), 1);
        assert!(!queue.push(done(2)));
        assert!(!readable(&queue));
    }
}
