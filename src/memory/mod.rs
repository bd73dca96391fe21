//! The embedded backend: limits whose state lives in this process.
//!
//! All that concerns one key lies in one shard, under one lock: its state, those who wait for it, the
//! permits held on it. So grant, cancel, deadline, lease and shutdown are decided one after another, and
//! an operation is completed by whoever removes it from its shard.
//!
//! Lock order: the source of a virtual clock, then one shard (never two), then one of: timer, a queue,
//! callbacks, a parker, the names. What is woken is woken after the shard's lock is released; no
//! callback and no user code runs under any lock.
mod admit;
mod answer;
mod census;
mod held;
mod key;
mod key_count;
mod keys;
mod leave;
mod line;
#[cfg(test)]
mod meetings;
mod names;
mod outlook;
mod paced;
mod pieces;
mod plain;
mod scene;
mod slot;
mod spent;
#[cfg(test)]
mod swept;
mod table;
mod turns;
mod wait;
mod whole;

use crate::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::callback::{self, Callbacks};
use crate::clock::Clock;
use crate::decision::{Decision, Status};
use crate::fork::Lent;
use crate::limit::decide::Limits;
use crate::limit::time::{Span, Time};
use crate::op::{Parker, Request, Sink, cancel_completed};
use crate::permit::{Numbers, Operations};
use crate::queue::{Queue, Queues};
use crate::stats::Stats;
use crate::timer::{Due, Fire, Timer};

use admit::Asker;
use keys::Keys;
use names::Names;
use scene::{Scene, Shard};

pub use census::Census;
pub use names::Named;

/// What a memory backend is made with.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Most waits at a time, and most completions that were not taken, in each queue and as callbacks;
    /// more are answered OVERLOADED.
    pub max_waiting: usize,
    /// No penalty is longer.
    pub max_penalty: Span,
    /// Lease of a permit whose limit and request name none.
    pub lease: Span,
    /// What permits and operations are known by.
    pub numbers: Numbers,
}

/// The backend of one client in one process.
pub struct Memory {
    options: Options,
    clock: Arc<Clock>,
    timer: Arc<Timer>,
    callbacks: Arc<Callbacks>,
    stats: Arc<Stats>,
    names: Names,
    numbers: Numbers,
    queues: Queues,
    shards: Box<[Mutex<Shard>]>,
    operations: Operations,
    waiting: AtomicUsize,
    /// Shards whose keys were looked at.
    swept: AtomicUsize,
    closed: AtomicBool,
}

#[cfg(test)]
impl Memory {
    /// On a virtual clock of its own, for tests.
    fn virtually(max_waiting: usize) -> Arc<Memory> {
        let options = Options {
            max_waiting,
            max_penalty: Span::secs(60),
            lease: Span::secs(60),
            numbers: Numbers::new(0),
        };
        let clock = Arc::new(Clock::virtual_clock());
        Memory::new(clock, options, Arc::default(), Callbacks::new(None))
    }
}

impl Memory {
    pub fn new(
        clock: Arc<Clock>,
        options: Options,
        stats: Arc<Stats>,
        callbacks: Arc<Callbacks>,
    ) -> Arc<Memory> {
        Memory::with(Names::new(), clock, options, stats, callbacks)
    }

    /// With a place for each key that these seeds alone decide on.
    pub fn seeded(
        seeds: (u64, u64),
        clock: Arc<Clock>,
        options: Options,
        stats: Arc<Stats>,
        callbacks: Arc<Callbacks>,
    ) -> Arc<Memory> {
        Memory::with(Names::seeded(seeds), clock, options, stats, callbacks)
    }

    fn with(
        names: Names,
        clock: Arc<Clock>,
        options: Options,
        stats: Arc<Stats>,
        callbacks: Arc<Callbacks>,
    ) -> Arc<Memory> {
        let shards = 0..Numbers::SHARDS;
        let memory = Arc::new(Memory {
            options,
            timer: Timer::new(clock.clone()),
            clock,
            callbacks,
            stats,
            numbers: options.numbers,
            queues: Queues::default(),
            shards: shards
                .map(|i| Mutex::new(Shard::new(i, Numbers::start(names.seed(i)))))
                .collect(),
            operations: Operations::new(Numbers::start(names.seed(Numbers::SHARDS))),
            names,
            waiting: AtomicUsize::new(0),
            swept: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        });
        let owner: Weak<dyn Fire> = Arc::downgrade(&(memory.clone() as Arc<dyn Fire>));
        memory.timer.serve(owner);
        memory
    }

    /// Limits under a name. Those of one name and the same kinds share their state.
    pub fn limiter(&self, name: &[u8], limits: Limits) -> Arc<Named> {
        let (named, replaces) = self.names.intern(name, limits);
        if replaces {
            self.limits_changed(&named);
        }
        named
    }

    /// A completion queue of this backend; see [`Queue::open_descriptor`].
    pub fn queue(&self, descriptor: Lent) -> Arc<Queue> {
        self.queues.open(descriptor, || self.is_closed())
    }

    /// Takes from all limits or from none; PENDING with `op` set where that takes time: then the sink
    /// gets the one completion. A callback sink gets every answer: PENDING, or nothing was started.
    pub fn acquire(&self, named: &Arc<Named>, request: &Request, sink: Sink) -> Decision {
        if matches!(sink, Sink::Callback(_)) {
            if self.callbacks.completions() >= self.options.max_waiting {
                self.stats.stripe(0).overloaded.add(1);
                return refused(request, Status::Overloaded);
            }
            if let Err(status) = self.callbacks.ready() {
                return refused(request, status);
            }
        }
        self.ask(named, request, Asker::Sink(sink))
    }

    /// [`Memory::acquire_blocking`] for what most programs ask most; `None`: it is not that, or the answer is
    /// not at hand, and nothing has happened.
    #[inline(always)]
    pub fn acquire_at_once(&self, named: &Named, request: &Request) -> Option<Decision> {
        let id = named.key(request.key);
        self.ask_plain(named, id, request, &Asker::Thread(&mut None))
    }

    /// [`Memory::acquire`], with the calling thread waiting for the answer.
    #[inline]
    pub fn acquire_blocking(&self, named: &Arc<Named>, request: &Request) -> Decision {
        let mut parker = None;
        let started = self.ask(named, request, Asker::Thread(&mut parker));
        if started.status == Status::Pending {
            let parker = parker.expect("it was made to wait with");
            return self.park(&parker, started.op);
        }
        started
    }

    /// Waits for a completion. On a real clock the thread sleeps to the due time by itself, which saves a
    /// hand-over from the timer's thread.
    #[cold]
    fn park(&self, parker: &Parker, op: u64) -> Decision {
        loop {
            let sleep = self.attend(op).and_then(|due| self.clock.sleep_until(due));
            if let Some(decision) = parker.wait(sleep) {
                return decision;
            }
        }
    }

    /// What an acquire without a wait would answer, charging nothing.
    pub fn peek(&self, named: &Arc<Named>, request: &Request) -> Decision {
        self.ask(named, request, Asker::Peek)
    }

    /// Books the next time at which the weight may start: `retry_after_us` from now, at most the request's
    /// wait. Releasing the permit before its time cancels the booking.
    pub fn pace(&self, named: &Arc<Named>, request: &Request) -> Decision {
        if named.limits.holds() {
            return refused(request, Status::Invalid);
        }
        self.ask(named, request, Asker::Pace)
    }

    /// Each request for itself, in order, without a wait.
    pub fn try_many(&self, named: &Arc<Named>, requests: &[Request]) -> Vec<Decision> {
        requests
            .iter()
            .map(|request| self.try_one(named, request))
            .collect()
    }

    pub fn try_one(&self, named: &Arc<Named>, request: &Request) -> Decision {
        self.ask(named, request, Asker::Try)
    }

    /// Gives a permit back.
    pub fn release(&self, permit: u64) -> Status {
        self.on_permit(permit, |keys, scene, serial| scene.release(keys, serial))
    }

    /// Makes a permit live for `lease` from now; `None`: as long as it was granted for.
    pub fn renew(&self, permit: u64, lease: Option<Span>) -> Status {
        self.on_permit(permit, |keys, scene, serial| {
            scene.renew(keys, serial, lease)
        })
    }

    /// Corrects what a permit's call was charged to what it used. Once.
    pub fn settle(&self, permit: u64, actual: u64) -> Status {
        self.on_permit(permit, |keys, scene, serial| {
            scene.settle(keys, serial, actual)
        })
    }

    /// Makes a key as new; permits on it end, and those who wait are decided anew.
    pub fn reset(&self, named: &Arc<Named>, key: &[u8]) -> Status {
        let id = named.key(key);
        self.at(id.shard(), |keys, scene| {
            scene.open().map_or_else(
                |closed| closed,
                |()| {
                    scene.reset(keys, named, id);
                    Status::Ok
                },
            )
        })
    }

    /// Lets nothing start on a key for `length`, at most [`Options::max_penalty`]. A running penalty is
    /// not shortened.
    pub fn penalize(&self, named: &Arc<Named>, key: &[u8], length: Span) -> Status {
        let id = named.key(key);
        loop {
            let done = self.at(id.shard(), |keys, scene| {
                scene.open()?;
                Ok(scene.penalize(keys, named, id, length))
            });
            match done {
                Ok(true) => return Status::Ok,
                Ok(false) => {}
                Err(closed) => return closed,
            }
        }
    }

    /// Ends a wait. Its completion is CANCELLED, or OK if the grant came first; with `detach` there is
    /// none, and a grant that was not taken yet is given back. STALE: it was taken before.
    pub fn cancel(&self, op: u64, detach: bool) -> Status {
        let (shard, serial) = match self.numbers.read(op) {
            Ok((shard, serial)) => (shard, self.operations.find(serial)),
            Err(status) => return status,
        };
        if self.at(shard, |keys, scene| scene.cancel(keys, serial, detach)) {
            return Status::Ok;
        }
        let give_back = |untaken: &Decision| self.return_grant(untaken);
        cancel_completed(op, detach, &self.queues, &self.callbacks, give_back)
    }

    /// Gives back what an untaken completion granted.
    pub fn return_grant(&self, decision: &Decision) {
        if let (Status::Ok, Ok((shard, serial))) =
            (decision.status, self.numbers.read(decision.permit))
        {
            self.at(shard, |keys, scene| scene.return_unused(keys, serial));
        }
    }

    /// Ends everything: waits complete with CLOSED, permits are released, due callbacks are waited for up
    /// to `timeout` (`None`: without limit), and later calls answer CLOSED. TIMEOUT if a callback took
    /// longer. May be repeated. WOULD_DEADLOCK from a callback, with no effect.
    pub fn shutdown(&self, timeout: Option<Duration>) -> Status {
        if callback::inside() {
            return Status::WouldDeadlock;
        }
        self.close();
        self.timer.join();
        if !self.callbacks.drain(timeout) {
            return Status::Timeout;
        }
        self.callbacks.join();
        Status::Ok
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        for i in 0..Numbers::SHARDS {
            self.at(i, |keys, scene| scene.close(keys));
        }
        self.timer.close();
        self.callbacks.close();
        for queue in self.queues.all() {
            queue.close();
        }
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// When something falls due next, for whoever moves the clock by steps of its own.
    pub fn next_due(&self) -> Option<Time> {
        self.timer.next()
    }

    /// Does what has fallen due by now, for the same.
    pub fn fire_due(&self) {
        self.timer.fire_by(self.clock.now());
    }

    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    pub fn clock_now(&self) -> Time {
        self.clock.now()
    }

    /// Lets time pass on a virtual clock; what falls due happens in order, each at its own time.
    pub fn clock_advance(&self, by: Span) -> Status {
        self.moved(self.timer.advance(by))
    }

    /// Sets a virtual clock. Backwards, no time has passed.
    pub fn clock_set(&self, to: Time) -> Status {
        self.moved(self.timer.set(to))
    }

    /// Time has passed: some keys may be as new. Some of the shards are looked at each time.
    fn moved(&self, moved: Result<(), Status>) -> Status {
        (0..Numbers::SHARDS / 4).for_each(|_| self.sweep_next());
        moved.err().unwrap_or(Status::Ok)
    }

    /// Does what is due for an operation, and answers when it is to be attended again.
    fn attend(&self, op: u64) -> Option<Time> {
        let (shard, serial) = self.numbers.read(op).expect("an operation of this backend");
        let serial = self.operations.find(serial);
        self.due(shard, |keys, scene| {
            scene.wait_due(keys, serial);
            scene.book.waits.get(&serial)?.due
        })
    }

    /// Number and serial of a new operation.
    fn next_op(&self, shard: usize) -> (u64, u64) {
        let serial = self.operations.next();
        (self.numbers.make(shard, serial), serial)
    }

    fn on_permit(
        &self,
        permit: u64,
        act: impl FnOnce(&mut Keys, &mut Scene<'_>, u64) -> Status,
    ) -> Status {
        match self.numbers.read(permit) {
            Err(status) => status,
            Ok((shard, serial)) => self.at(shard, |keys, scene| match scene.open() {
                Err(closed) => closed,
                Ok(()) => act(keys, scene, serial),
            }),
        }
    }
}

impl Fire for Memory {
    fn fire(&self, due: Due) {
        match due {
            Due::Wait(op) => {
                self.attend(op);
            }
            Due::Lease(permit) => {
                let (shard, serial) = self.numbers.read(permit).expect("a permit of this backend");
                self.due(shard, |keys, scene| scene.lease_due(keys, serial));
            }
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.close();
    }
}

/// An answer without numbers.
fn refused(request: &Request, status: Status) -> Decision {
    Decision {
        user_data: request.user_data,
        ..Decision::of(status)
    }
}
