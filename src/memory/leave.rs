//! What there may be very much of is done some at a time, so that nobody else waits long for the shard: waits
//! that end together, and what a call leaves over.
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Memory;
use super::keys::{Key, Keys};
use super::names::{KeyId, Named};
use super::scene::Scene;
use super::wait::Wait;
use crate::op::Sink;
use crate::permit::Numbers;
use crate::queue::Queue;

/// Permits or waits that are seen to while a shard is locked.
pub(super) const SOME: usize = 256;
/// After so many calls on a shard the next places of some shard are looked at for keys that are as new: so
/// about as many places as there are calls.
pub(super) const CALLS: u32 = 32;
const PLACES: usize = 32;

/// What is still to be done after a call has held its shard for long enough; the same call does it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rest {
    /// Keys that are as new, wherever they are.
    Keys,
    /// Leases of a key that are over, and those who wait for what they held.
    Key(KeyId),
    /// A wait that is due, once its key is up to date.
    Wait(u64),
}

/// By what waits end together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Group {
    /// The `user_data` of their requests.
    Tagged(u64),
    /// Their completion queue, by its address.
    Of(usize),
}

impl Group {
    pub fn of(wait: &Wait) -> impl Iterator<Item = Group> + use<> {
        let queue = match &wait.sink {
            Sink::Queue(queue) => Some(Group::of_queue(queue)),
            _ => None,
        };
        [Group::Tagged(wait.user_data)].into_iter().chain(queue)
    }

    fn of_queue(queue: &Arc<Queue>) -> Group {
        Group::Of(Arc::as_ptr(queue) as usize)
    }
}

/// How far those of one shard have got.
struct Progress {
    who: Group,
    /// Who came later stays.
    before: u64,
    from: u64,
    ended: usize,
    keys: BTreeSet<KeyId>,
}

impl Memory {
    /// Does what is left of a call on a shard. Answers what is left of that.
    pub(super) fn go_on(&self, shard: usize, rest: Rest) -> BTreeSet<Rest> {
        match rest {
            Rest::Keys => {
                self.sweep_next();
                BTreeSet::new()
            }
            Rest::Key(id) => self.once(shard, |keys, scene| scene.catch_up(keys, id)).1,
            Rest::Wait(serial) => {
                self.once(shard, |keys, scene| scene.wait_due(keys, serial))
                    .1
            }
        }
    }

    /// Forgets some keys that are as new of the shard whose turn it is. Where it is busy, its turn comes again.
    pub(super) fn sweep_next(&self) {
        let shard = self.swept.fetch_add(1, Ordering::Relaxed) % Numbers::SHARDS;
        if let Some(mut guard) = self.shards[shard].try_lock() {
            let now = self.clock.now();
            let forgotten = guard.keys.sweep(PLACES, now, &self.names);
            self.stats.stripe(shard).keys.sub(forgotten as u64);
        }
    }

    /// Ends all waits of requests with this `user_data`, those of parked threads included, in the order in
    /// which they came. Answers how many there were.
    pub fn cancel_waits(&self, user_data: u64) -> usize {
        self.leave(Group::Tagged(user_data))
    }

    /// Nobody polls a queue any more: its waits are detached, grants that were not polled given back.
    pub fn free_queue(&self, queue: &Arc<Queue>) {
        // From here on a grant that comes finds nobody to take it.
        let unpolled = queue.free();
        self.leave(Group::of_queue(queue));
        for decision in unpolled {
            self.return_grant(&decision);
        }
    }

    /// Those who wait do so under the newest limits, also if nobody asks from now on. Whose time is booked
    /// starts then at the latest.
    pub(super) fn limits_changed(&self, named: &Named) {
        for shard in 0..Numbers::SHARDS {
            let mut from = Some(0);
            while let Some(next) = from {
                from = self.at(shard, |keys, scene| scene.waiting_kin(keys, named, next));
            }
        }
    }

    fn leave(&self, who: Group) -> usize {
        let before = self.operations.next();
        let one = |shard| {
            let mut progress = Progress {
                who,
                before,
                from: 0,
                ended: 0,
                keys: BTreeSet::new(),
            };
            while self.at(shard, |keys, scene| scene.leave_some(keys, &mut progress)) {}
            progress.ended
        };
        (0..Numbers::SHARDS).map(one).sum()
    }
}

impl Scene<'_> {
    /// Whether a wait is about to end with others. Until then it is not admitted, nor passed by others.
    pub fn is_leaving(&self, serial: u64) -> bool {
        let mut leaving = self.book.leaving.iter();
        leaving.any(|(before, who)| serial < *before && self.book.groups.contains(&(*who, serial)))
    }

    /// Ends the next of those who leave. False: those were the last; only then others move up.
    fn leave_some(&mut self, keys: &mut Keys, progress: &mut Progress) -> bool {
        let &mut Progress {
            who, before, from, ..
        } = progress;
        let theirs = self.book.groups.from((who, from)).map(|(one, ())| *one);
        let theirs = theirs.take_while(|one| *one < (who, before));
        let next: Vec<u64> = theirs.take(SOME).map(|(_, serial)| serial).collect();
        self.book.leaving.insert(before, who);
        for &serial in &next {
            // Some may be over by now: what fell due for one of them may have ended others.
            let Some(wait) = self.book.waits.get(&serial) else {
                continue;
            };
            progress.keys.insert(wait.key);
            let detach = matches!(who, Group::Of(_));
            progress.ended += usize::from(self.take_out(keys, serial, detach).is_some());
        }
        let more = next.len() == SOME;
        if more {
            progress.from = next[SOME - 1] + 1;
        } else {
            self.book.leaving.remove(&before);
            let keys = std::mem::take(&mut progress.keys);
            self.rest.extend(keys.into_iter().map(Rest::Key));
        }
        more
    }

    /// Goes on where a call on a key has stopped.
    fn catch_up(&mut self, keys: &mut Keys, id: KeyId) {
        if let Some(key) = keys.find(id, &self.memory.names) {
            let named = key.named.clone();
            self.draw(key);
            if self.is_behind(key) {
                return;
            }
            self.refresh(key, &named);
            if self.is_behind(key) {
                return;
            }
            self.pump(key);
            if key.live.as_ref().is_some_and(|live| live.doubted.is_some()) {
                self.rest.insert(Rest::Key(id));
            }
        }
    }

    /// Looks at the next who wait, and sees to it that their keys are brought up to date if they are of these
    /// limits' family. Answers where to go on.
    fn waiting_kin(&mut self, keys: &mut Keys, named: &Named, from: u64) -> Option<u64> {
        let next = self.book.waits.from(from).take(SOME);
        let next: Vec<(u64, KeyId)> = next.map(|(serial, wait)| (*serial, wait.key)).collect();
        for (_, id) in &next {
            let key = keys.find(*id, &self.memory.names);
            let waited_for = |key: &mut Key| key.has_queue() || key.has_line();
            if key.is_some_and(|key| waited_for(key) && key.named.is_kin(named)) {
                self.rest.insert(Rest::Key(*id));
            }
        }
        next.get(SOME - 1).map(|(serial, _)| serial + 1)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    use crate::decision::Status;
    use crate::limit::decide::Limits;
    use crate::limit::rule::{Limit, Rule};
    use crate::limit::semaphore::Semaphore;
    use crate::limit::time::Span;
    use crate::memory::Named;
    use crate::op::{Relay, Request, Weights};
    use crate::stats::Stats;

    const MANY: u64 = 10_000;

    struct Crowd {
        memory: Arc<Memory>,
        named: Arc<Named>,
        /// How many still waited when the first was told.
        waiting: Arc<AtomicU64>,
        told: Arc<AtomicU64>,
    }

    impl Crowd {
        fn new(rule: Semaphore) -> Crowd {
            let memory = Memory::virtually(2 * MANY as usize);
            let limit = Limit {
                rule: Rule::Semaphore(rule),
                per_call: false,
            };
            Crowd {
                named: memory.limiter(b"n", Limits::new(vec![limit], 0).unwrap()),
                memory,
                waiting: Arc::default(),
                told: Arc::default(),
            }
        }

        fn try_(&self, weight: u64) -> Status {
            let request = Request {
                weights: Weights::Same(weight),
                ..Request::TRY
            };
            self.memory.acquire_blocking(&self.named, &request).status
        }

        fn gather(&self) {
            for _ in 0..MANY {
                let stats: Arc<Stats> = self.memory.stats().clone();
                let (waiting, told) = (self.waiting.clone(), self.told.clone());
                let then = move |_| {
                    if told.fetch_add(1, Ordering::Relaxed) == 0 {
                        waiting.store(stats.totals().waiting, Ordering::Relaxed);
                    }
                };
                let relay = Relay {
                    then: Box::new(then),
                    op: 1,
                    queue: None,
                };
                let request = Request {
                    wait: None,
                    user_data: 7,
                    ..Request::TRY
                };
                let pending = self
                    .memory
                    .acquire(&self.named, &request, Sink::Relay(relay));
                assert_eq!(pending.status, Status::Pending);
            }
        }

        /// Nobody is told with the shard locked: so it was free while most still waited.
        #[track_caller]
        fn assert_told_in_turns(&self) {
            assert_eq!(self.told.load(Ordering::Relaxed), MANY);
            let waiting = self.waiting.load(Ordering::Relaxed);
            assert!(waiting >= MANY - 2 * SOME as u64, "{waiting}");
        }
    }

    fn semaphore(renew: bool) -> Semaphore {
        Semaphore::new(MANY, Span::secs(60), renew).unwrap()
    }

    #[test]
    fn a_release_that_admits_very_many_lets_others_in_between() {
        let crowd = Crowd::new(semaphore(true));
        let request = Request {
            weights: Weights::Same(MANY),
            ..Request::TRY
        };
        let held = crowd.memory.acquire_blocking(&crowd.named, &request);
        crowd.gather();
        assert_eq!(crowd.memory.release(held.permit), Status::Ok);
        crowd.assert_told_in_turns();
    }

    #[test]
    fn cancelled_together_they_let_others_in_between() {
        let crowd = Crowd::new(semaphore(true));
        assert_eq!(crowd.try_(MANY), Status::Ok);
        crowd.gather();
        assert_eq!(crowd.memory.cancel_waits(7), MANY as usize);
        crowd.assert_told_in_turns();
    }

    #[test]
    fn leases_that_end_together_let_others_in_between_and_their_room_is_there_at_once() {
        for waiting in [true, false] {
            let crowd = Crowd::new(semaphore(false));
            for _ in 0..MANY {
                assert_eq!(crowd.try_(1), Status::Ok);
            }
            if waiting {
                crowd.gather();
            }
            // The timer has not got to it.
            let over = crowd.memory.clock_now() + Span::secs(60);
            crowd.memory.clock.show(over);
            if waiting {
                assert_eq!(crowd.try_(1), Status::Denied);
                crowd.assert_told_in_turns();
            } else {
                assert_eq!(crowd.try_(MANY), Status::Ok);
            }
        }
    }

    /// Waits of one tag on one queue, with a deadline that passes before the timer gets to it; and what
    /// their holder had is over then too, or not.
    fn overdue(lease: Span, count: u64) -> (Crowd, Arc<Queue>) {
        let rule = Semaphore::new(3, lease, false).unwrap();
        let crowd = Crowd::new(rule);
        let descriptor = Queue::open_descriptor().unwrap();
        let queue = crowd.memory.queue(descriptor);
        assert_eq!(crowd.try_(2), Status::Ok);
        for n in 0..count {
            let request = Request {
                wait: Some(Span::millis(n % 3 * 10)),
                user_data: 7,
                ..Request::TRY
            };
            let sink = Sink::Queue(queue.clone());
            let asked = crowd.memory.acquire(&crowd.named, &request, sink);
            // The first is granted, renewed, and never polled.
            let status = [Status::Pending, Status::Ok][usize::from(n == 0)];
            assert!(asked.status == status || n.is_multiple_of(3), "{asked:?}");
        }
        let over = crowd.memory.clock_now() + Span::secs(1);
        crowd.memory.clock.show(over);
        (crowd, queue)
    }

    #[test]
    fn those_who_are_over_when_all_are_ended_end_once() {
        for lease in [Span::millis(500), Span::secs(60)] {
            for count in [2, 8, SOME as u64, 3 * SOME as u64] {
                let (crowd, queue) = overdue(lease, count);
                let waiting = crowd.memory.stats().totals().waiting;
                let ended = crowd.memory.cancel_waits(7) as u64;
                let told = queue.poll(10_000, Some(std::time::Duration::ZERO)).unwrap();
                assert_eq!(told.len() as u64, waiting, "each once");
                let cancelled = told.iter().filter(|one| one.status == Status::Cancelled);
                assert_eq!(cancelled.count() as u64, ended);
                assert_eq!(crowd.memory.stats().totals().waiting, 0);
                assert!(
                    crowd
                        .memory
                        .shards
                        .iter()
                        .all(|s| s.lock().book.leaving.is_empty())
                );
            }
        }
    }

    #[test]
    fn a_queue_that_is_freed_loses_nothing_to_waits_that_are_over() {
        for count in [2, 8, 3 * SOME as u64] {
            let (crowd, queue) = overdue(Span::millis(500), count);
            crowd.memory.free_queue(&queue);
            assert_eq!(crowd.memory.stats().totals().waiting, 0);
            assert_eq!(crowd.try_(3), Status::Ok, "all is there");
        }
    }
}
