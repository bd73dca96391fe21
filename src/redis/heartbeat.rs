//! The heartbeat: whatever is held or waits is said again before Redis forgets it, and what could not be
//! said is tried again. Its questions overtake those of callers, so that a flood of these harms no
//! permit.
use std::sync::Arc;

use super::lines::Then;
use super::link::Failure;
use super::question::Op;
use super::wire::{Id, Note};
use super::{Key, Redis, Rule, Scene, dice};
use crate::limit::time::{Span, Time};

/// The first so many in a queue are asked for at each beat, in case that a note was lost. The others
/// only when half of their life is over.
const HEAD: usize = 16;
/// What could not be said is tried again after this.
pub(super) const AGAIN: Span = Span::millis(100);
/// Two beats are not closer.
const LEAST: Span = Span::millis(5);

/// What is to be said until it is heard, or does not matter any more.
pub(super) struct Unsaid {
    key: Arc<Key>,
    op: Op,
    at: Time,
    until: Time,
}

impl Redis {
    /// Does what is due by now. Answers when it is to be called again; `None`: when the carrier is
    /// stirred.
    pub fn beat(&self) -> Option<Time> {
        // Whoever plans something from now on stirs.
        self.next_beat(Time::MAX);
        if self.is_closed() {
            return None;
        }
        let again = Some(self.clock.now() + AGAIN);
        let beat = |shard| self.shielded(shard, |scene| scene.beat()).unwrap_or(again);
        let next = (0..self.shards.len()).filter_map(beat).min()?;
        let next = next.max(self.clock.now() + LEAST);
        self.next_beat(next);
        Some(next)
    }

    /// What was heard of waits.
    pub fn noted(&self, notes: &[Note]) {
        let id = |note: &Note| match *note {
            Note::Granted(id) | Note::Denied(id) | Note::Never(id) => id,
        };
        let mut ids: Vec<Id> = notes.iter().map(id).collect();
        // Those of one shard together, in their order.
        ids.sort_by_key(|id| dice::shard_of(*id));
        for ids in ids.chunk_by(|a, b| dice::shard_of(*a) == dice::shard_of(*b)) {
            self.shielded(dice::shard_of(ids[0]), |scene| {
                ids.iter().for_each(|id| scene.noted(*id));
            });
        }
    }

    /// From now on notes arrive; those before may be lost.
    pub fn listens(&self) {
        for shard in 0..self.shards.len() {
            self.shielded(shard, |scene| scene.look_now());
        }
    }
}

impl Scene<'_> {
    /// Something is to be done by the heartbeat at this time.
    pub fn beat_by(&mut self, at: Time) {
        self.beat_by = self.beat_by.min(at);
    }

    /// Does what is due, and answers when to come again.
    fn beat(&mut self) -> Option<Time> {
        // This may grant what is to be renewed then.
        let booked = self.booked_due();
        let renewal = self.renew_due();
        let look = self.look_due();
        let say = self.say_due();
        self.shard.open.tidy(self.now);
        // What is planned here is in these.
        self.beat_by = Time::MAX;
        [renewal, look, say, booked].into_iter().flatten().min()
    }

    fn look_now(&mut self) {
        let now = self.now;
        self.shard.queues.set_all(now);
        if !self.shard.queues.is_empty() {
            self.beat_by(now);
        }
    }

    /// Asks for waits, on the keys whose time has come.
    fn look_due(&mut self) -> Option<Time> {
        for key in self.shard.queues.due(self.now) {
            let beat = self.look(&key);
            let next = self.now + self.redis.dice.about(beat);
            self.shard.queues.set(key, next);
        }
        self.shard.queues.first()
    }

    /// Answers when to look again.
    fn look(&mut self, key: &Arc<Key>) -> Span {
        let mut beat = Span::MAX;
        let mut chosen = Vec::new();
        for (i, serial) in self.shard.lines[key].queued.iter().enumerate() {
            let wait = &self.shard.waits[serial];
            let life = wait.key.named.life();
            beat = beat.min(life.beat);
            // It will be looked at again before its life is over by more than this.
            let old = Span(life.wait.0 / 2 - life.beat.0 / 5);
            let hold = wait.hold.as_ref().expect("it waits for a semaphore");
            let due = i < HEAD || self.now.since(hold.asked) >= old;
            if due && !self.shard.open.under_way(hold.id) {
                chosen.push(*serial);
            }
        }
        for serial in chosen {
            self.ask_again(serial);
        }
        beat
    }

    /// What ends something could not be said.
    pub fn say_again(&mut self, key: &Arc<Key>, op: Op, until: Time, failure: &Failure) {
        // Redis would say no again.
        let refused = matches!(
            failure,
            Failure::WrongType { .. } | Failure::Permanent { .. }
        );
        let at = self.now + AGAIN;
        if at < until && !refused && self.redis.keeps(Rule::SaysAgain) {
            self.shard.unsaid.push(Unsaid {
                key: key.clone(),
                op,
                at,
                until,
            });
            self.beat_by(at);
        }
    }

    /// Says now what could not be said before.
    pub fn say_now(&mut self) {
        for unsaid in std::mem::take(&mut self.shard.unsaid) {
            self.urge(&unsaid.key, vec![unsaid.op], Then::End(unsaid.until));
        }
    }

    fn say_due(&mut self) -> Option<Time> {
        let now = self.now;
        let due = |unsaid: &mut Unsaid| unsaid.at <= now;
        let due: Vec<Unsaid> = self.shard.unsaid.extract_if(.., due).collect();
        for unsaid in due {
            self.urge(&unsaid.key, vec![unsaid.op], Then::End(unsaid.until));
        }
        self.shard.unsaid.iter().map(|unsaid| unsaid.at).min()
    }
}

#[cfg(test)]
mod tests {
    use crate::callback::Callbacks;
    use crate::clock::Clock;
    use crate::config::{Config, Log};
    use crate::limit::time::{Span, Time};
    use crate::redis::{Carrier, Dice, Flight, Named, Options, Redis, World, settings};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Weak};

    /// Nothing is ever sent.
    struct Nowhere;

    impl Carrier for Nowhere {
        fn carry(&self, flight: Flight) {
            drop(flight);
        }
        fn listen(&self, _: &str) {}
        fn stir(&self) {}
        fn count_in(&self, _: Weak<Named>) {}
        fn connects(&self) -> u64 {
            0
        }
    }

    fn nowhere(config: Config) -> Arc<Redis> {
        let world = World {
            clock: Arc::new(Clock::virtual_clock()),
            dice: Dice::system(),
            carrier: Some(Arc::new(Nowhere)),
            without: None,
        };
        let options = Options {
            link: settings("redis://127.0.0.1:1", &config).unwrap(),
            config,
            fork_generation: 0,
        };
        Redis::on(world, options, Arc::default(), Callbacks::new(None))
    }

    #[test]
    fn what_each_call_may_say_is_logged_now_and_then() {
        let said = Arc::new(AtomicUsize::new(0));
        let counts = said.clone();
        let config = Config {
            log: Some(Log {
                level: 4,
                write: Arc::new(move |_, _| {
                    counts.fetch_add(1, Ordering::SeqCst);
                }),
            }),
            ..Config::default()
        };
        let redis = nowhere(config);
        for times in 1..=3 {
            (0..100).for_each(|_| redis.complain("odd"));
            assert_eq!(said.load(Ordering::SeqCst), times);
            redis.clock.show(redis.clock.now() + Span::secs(10));
        }
        redis.close();
    }

    #[test]
    fn a_bug_in_one_shard_costs_the_others_no_beat_and_itself_one_call() {
        let redis = nowhere(Config::default());
        let bug = catch_unwind(AssertUnwindSafe(|| redis.at(3, |_| panic!("a bug"))));
        assert!(bug.is_err());
        // A permit that is not there is to be renewed: each beat of the shard unwinds.
        redis.at(3, |scene| scene.shard.renewals.insert((Time(0), 1)));
        let due = redis.clock.now();
        let last = redis.shards.len() - 1;
        redis.at(last, |scene| {
            scene.shard.renewals.insert((due + Span(7), 1))
        });
        for _ in 0..3 {
            assert!(redis.beat().is_some(), "and it is tried again");
        }
        redis.at(3, |scene| assert_eq!(scene.shard.renewals.len(), 1));
        redis.at(last, |scene| scene.shard.renewals.clear());
        redis.close();
    }
}
