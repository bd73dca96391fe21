//! When something falls due: one ordered set of events, and who fires them.
//!
//! On a real clock a thread of its own sleeps precisely to the next event; it starts with the first.
//! On a virtual clock there is no thread: whoever moves the clock fires what is due on the way, in
//! order, each at its own time.
use crate::sync::{Condvar, Mutex};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;

use crate::clock::Clock;
use crate::decision::Status;
use crate::limit::time::{Span, Time};
use crate::pages::Pages;
use crate::runtime;

/// What falls due. The order breaks ties: a lease that ends makes room before anyone gives up waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Due {
    /// A permit's lease ends.
    Lease(u64),
    /// A booked wait may start, or a queued one gives up: which, its owner knows.
    Wait(u64),
}

/// Is told of due events, without a shard's lock held. What it is told may be out of date.
pub trait Fire: Send + Sync {
    fn fire(&self, due: Due);
}

/// The events of one client.
pub struct Timer {
    clock: Arc<Clock>,
    owner: OnceLock<Weak<dyn Fire>>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    events: Pages<(Time, Due)>,
    thread: Option<JoinHandle<()>>,
    closed: bool,
}

impl Timer {
    pub fn new(clock: Arc<Clock>) -> Arc<Timer> {
        Arc::new(Timer {
            clock,
            owner: OnceLock::new(),
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Names who is told. Once, before the first event.
    pub fn serve(&self, owner: Weak<dyn Fire>) {
        assert!(self.owner.set(owner).is_ok(), "a timer has one owner");
    }

    /// Makes sure that events will fire. To be asked before relying on it.
    pub fn ready(self: &Arc<Timer>) -> Result<(), Status> {
        self.start(&mut self.state.lock())
    }

    fn start(self: &Arc<Timer>, state: &mut State) -> Result<(), Status> {
        if state.thread.is_none() && !state.closed && !self.clock.is_virtual() {
            let timer = Arc::clone(self);
            let spawned = runtime::spawn("limiter-timer", move || timer.run());
            state.thread = Some(spawned.map_err(|_| Status::Resource)?);
        }
        Ok(())
    }

    /// Adds an event. Where nobody asked whether the timer is [ready](Timer::ready), because nothing was to
    /// fall due when that could be answered, it is made so; if the system refuses now, the next event tries
    /// again.
    pub fn arm(self: &Arc<Timer>, at: Time, due: Due) {
        let mut state = self.state.lock();
        let _ = self.start(&mut state);
        let first = state
            .events
            .first()
            .is_none_or(|(first, ())| (at, due) < *first);
        state.events.insert((at, due), ());
        if first && state.thread.is_some() {
            self.changed.notify_one();
        }
    }

    pub fn disarm(&self, at: Time, due: Due) {
        self.state.lock().events.remove(&(at, due));
    }

    /// Events that are to come.
    pub fn len(&self) -> usize {
        self.state.lock().events.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Moves a virtual clock forwards.
    pub fn advance(&self, by: Span) -> Result<(), Status> {
        self.travel(|source| source.advance(by))
    }

    /// Sets a virtual clock, which may step back: then no time has passed.
    pub fn set(&self, raw: Time) -> Result<(), Status> {
        self.travel(|source| source.set(raw))
    }

    fn travel(
        &self,
        to: impl FnOnce(&mut crate::clock::Source) -> Result<Time, Status>,
    ) -> Result<(), Status> {
        let mut source = self.clock.source().ok_or(Status::Unsupported)?;
        let target = to(&mut source)?;
        loop {
            let next = self.take_due(&mut self.state.lock(), target);
            let Some((at, due)) = next else { break };
            self.clock.show(at);
            self.fire(due);
        }
        self.clock.show(target);
        Ok(())
    }

    /// When the next event falls due.
    pub fn next(&self) -> Option<Time> {
        self.state.lock().events.first().map(|((at, _), ())| *at)
    }

    /// Fires what is due by then, for whoever moves the clock by steps of its own.
    pub fn fire_by(&self, now: Time) {
        loop {
            let next = self.take_due(&mut self.state.lock(), now);
            let Some((_, due)) = next else { return };
            self.fire(due);
        }
    }

    /// No event fires any more, except one that is being fired.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.events.clear();
        self.changed.notify_all();
    }

    /// Waits for the thread to end, after [`Timer::close`].
    pub fn join(&self) {
        let thread = self.state.lock().thread.take();
        runtime::join(thread);
    }

    fn take_due(&self, state: &mut State, now: Time) -> Option<(Time, Due)> {
        let (&(at, _), ()) = state.events.first()?;
        let due = (at <= now).then(|| state.events.pop_first()).flatten();
        due.map(|(event, ())| event)
    }

    /// False: there is nobody to tell any more.
    fn fire(&self, due: Due) -> bool {
        let owner = self.owner.get().and_then(Weak::upgrade);
        owner.is_some_and(|owner| {
            owner.fire(due);
            true
        })
    }

    fn run(&self) {
        let mut state = self.state.lock();
        while !state.closed {
            if let Some((_, due)) = self.take_due(&mut state, self.clock.now()) {
                drop(state);
                // A bug that unwinds has spoilt one event; the others still fall due.
                let fired = catch_unwind(AssertUnwindSafe(|| self.fire(due)));
                if matches!(fired, Ok(false)) {
                    return;
                }
                state = self.state.lock();
                continue;
            }
            let sleep = state
                .events
                .first()
                .and_then(|((at, _), ())| self.clock.sleep_until(*at));
            state = match sleep {
                Some(sleep) => self.changed.wait_timeout(state, sleep),
                None => self.changed.wait(state),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Log(Arc<Clock>, Mutex<Vec<(Time, Due)>>, Condvar);

    impl Fire for Log {
        fn fire(&self, due: Due) {
            self.1.lock().push((self.0.now(), due));
            self.2.notify_all();
        }
    }

    fn timer(clock: Clock) -> (Arc<Timer>, Arc<Log>) {
        let clock = Arc::new(clock);
        let timer = Timer::new(clock.clone());
        let log = Arc::new(Log(clock, Mutex::default(), Condvar::new()));
        let owner: Weak<dyn Fire> = Arc::downgrade(&(log.clone() as Arc<dyn Fire>));
        timer.serve(owner);
        (timer, log)
    }

    #[test]
    fn a_virtual_clock_fires_in_order_each_at_its_time() {
        let (timer, log) = timer(Clock::virtual_clock());
        let start = timer.clock.now();
        let at = |s| start + Span::secs(s);
        for (s, due) in [
            (3, Due::Wait(1)),
            (1, Due::Wait(9)),
            (3, Due::Lease(5)),
            (2, Due::Wait(2)),
        ] {
            timer.arm(at(s), due);
        }
        timer.disarm(at(2), Due::Wait(2));
        timer.advance(Span::secs(3)).unwrap();
        let fired = log.1.lock().clone();
        assert_eq!(
            fired,
            [
                (at(1), Due::Wait(9)),
                (at(3), Due::Lease(5)),
                (at(3), Due::Wait(1))
            ]
        );
        assert_eq!(timer.clock.now(), at(3));
    }

    #[test]
    fn a_real_clock_fires_by_itself_and_is_not_moved_by_hand() {
        let (timer, log) = timer(Clock::monotonic());
        let start = timer.clock.now();
        timer.arm(start + Span::secs(3600), Due::Wait(2));
        timer.arm(start + Span::millis(2), Due::Wait(1));
        let fired = log.1.lock();
        let fired = log.2.wait_while(fired, |fired| fired.is_empty());
        assert_eq!(fired[0].1, Due::Wait(1));
        assert!(fired[0].0 >= start + Span::millis(2));
        assert_eq!(fired.len(), 1);
        assert_eq!(timer.advance(Span(1)), Err(Status::Unsupported));
        timer.close();
    }
}
