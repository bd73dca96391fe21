//! What is asked, and where its answer goes.
use crate::sync::{Condvar, Mutex, hand_over};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::callback::{Callback, Callbacks};
use crate::decision::{Decision, Status};
use crate::limit::time::Span;
use crate::queue::{Queue, Queues};

/// Units to take: the same of each limit that counts weight, or a number for each limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights<'a> {
    Same(u64),
    Each(&'a [u64]),
}

/// One question.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub key: &'a [u8],
    pub weights: Weights<'a>,
    /// Longest wait; `None` is without limit, zero tries once.
    pub wait: Option<Span>,
    /// Lease of this permit; `None`: the limit's.
    pub lease: Option<Span>,
    /// Renew the permit in the background while it is held.
    pub renew: bool,
    /// Complete once more when the lease is lost. For a queue only.
    pub tell_lost: bool,
    /// Comes back in the decision; what waits are cancelled by.
    pub user_data: u64,
}

impl Request<'_> {
    /// The empty key, weight 1, no wait.
    pub const TRY: Request<'static> = Request {
        key: &[],
        weights: Weights::Same(1),
        wait: Some(Span::ZERO),
        lease: None,
        renew: true,
        tell_lost: false,
        user_data: 0,
    };
}

/// Where the one completion of an operation goes. Whoever removes the operation from its shard delivers
/// it, so it is delivered once.
pub enum Sink {
    /// A thread that waits for it.
    Thread(Arc<Parker>),
    Queue(Arc<Queue>),
    /// Also for what is decided at once: it then still answers PENDING first.
    Callback(Callback),
    /// Another backend, whose operation this is a part of.
    Relay(Relay),
}

/// Takes a completion on behalf of another operation.
pub struct Relay {
    /// Runs without any lock held. What is granted is its to use or to give back.
    pub then: Box<dyn FnOnce(Decision) + Send>,
    /// The operation it is a part of, and its queue: which hears of a lost lease.
    pub op: u64,
    pub queue: Option<Arc<Queue>>,
}

/// A cancel that finds its operation completed. The completion arrives as it is; with `detach` it is taken
/// back, and what it granted is given back. STALE: somebody has taken it.
pub fn cancel_completed(
    op: u64,
    detach: bool,
    queues: &Queues,
    callbacks: &Callbacks,
    give_back: impl FnOnce(&Decision),
) -> Status {
    let untaken = match detach {
        true => {
            let taken = callbacks.take(op).or_else(|| queues.take(op));
            taken.as_ref().map(give_back)
        }
        false => (callbacks.holds(op) || queues.hold(op)).then_some(()),
    };
    untaken.map_or(Status::Stale, |()| Status::Ok)
}

/// Whose queue hears of a lost lease, as the completion of which operation.
pub struct Tell {
    queue: Weak<Queue>,
    op: u64,
    user_data: u64,
}

impl Tell {
    /// Who took the grant by a queue can be told there. `op`: 0 where it was granted at once; a part has
    /// that of the whole.
    pub fn of(sink: &Sink, op: u64, user_data: u64) -> Option<Tell> {
        let (queue, op) = match sink {
            Sink::Queue(queue) => (queue, op),
            Sink::Relay(relay) => (relay.queue.as_ref()?, relay.op),
            Sink::Thread(_) | Sink::Callback(_) => return None,
        };
        Some(Tell {
            queue: Arc::downgrade(queue),
            op,
            user_data,
        })
    }
}

/// Where one thread waits for one completion.
#[derive(Default)]
pub struct Parker {
    state: Mutex<Parked>,
    changed: Condvar,
}

#[derive(Default)]
struct Parked {
    decision: Option<Decision>,
    /// When the operation is due has changed.
    nudged: bool,
}

impl Parker {
    /// Waits for the completion; `None` after so long (without limit if `None`), or when the time at
    /// which the operation is due has changed.
    pub fn wait(&self, longest: Option<Duration>) -> Option<Decision> {
        let nothing = |parked: &mut Parked| parked.decision.is_none() && !parked.nudged;
        while nothing(&mut self.state.lock()) && hand_over() {}
        let parked = self.state.lock();
        let mut parked = match longest {
            None => self.changed.wait_while(parked, nothing),
            Some(t) => self.changed.wait_timeout_while(parked, t, nothing),
        };
        parked.nudged = false;
        parked.decision
    }
}

/// What was delivered under a lock and is to be woken when it is released.
#[must_use]
#[derive(Default)]
pub struct Wakes {
    parkers: Vec<Arc<Parker>>,
    queues: Vec<Arc<Queue>>,
    callbacks: bool,
    relays: Vec<(Relay, Decision)>,
}

impl Wakes {
    /// Hands a decision to its sink. False: nobody will take it.
    pub fn deliver(&mut self, sink: Sink, decision: Decision, callbacks: &Callbacks) -> bool {
        match sink {
            Sink::Thread(parker) => {
                let before = parker.state.lock().decision.replace(decision);
                assert!(before.is_none(), "an operation completes once");
                self.parkers.push(parker);
                true
            }
            Sink::Queue(queue) => {
                let taken = queue.push(decision);
                self.queue(queue);
                taken
            }
            Sink::Callback(callback) => {
                callbacks.push(decision, callback);
                self.callbacks = true;
                true
            }
            Sink::Relay(relay) => {
                self.relays.push((relay, decision));
                true
            }
        }
    }

    /// Tells of a permit whose lease ended while it was held. Answers how many there was no room to tell.
    pub fn lost(&mut self, permit: u64, tell: Option<&Tell>, callbacks: &Arc<Callbacks>) -> u64 {
        let mut untold = u64::from(!callbacks.push_lost(permit));
        self.callbacks();
        if let Some(tell) = tell
            && let Some(queue) = tell.queue.upgrade()
        {
            let told = queue.push_lost(Decision {
                permit,
                op: tell.op,
                user_data: tell.user_data,
                ..Decision::of(Status::Stale)
            });
            untold += u64::from(!told);
            self.queue(queue);
        }
        untold
    }

    /// Tells a thread that its operation is due at another time than it knows.
    pub fn nudge(&mut self, parker: Arc<Parker>) {
        parker.state.lock().nudged = true;
        self.parkers.push(parker);
    }

    pub fn queue(&mut self, queue: Arc<Queue>) {
        if self
            .queues
            .last()
            .is_none_or(|last| !Arc::ptr_eq(last, &queue))
        {
            self.queues.push(queue);
        }
    }

    pub fn callbacks(&mut self) {
        self.callbacks = true;
    }

    /// Wakes whom something was delivered to. Without any lock held.
    pub fn wake(self, callbacks: &Callbacks) {
        for parker in self.parkers {
            parker.changed.notify_one();
        }
        for queue in self.queues {
            queue.wake();
        }
        if self.callbacks {
            callbacks.wake();
        }
        for (relay, decision) in self.relays {
            (relay.then)(decision);
        }
    }
}
