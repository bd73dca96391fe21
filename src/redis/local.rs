//! The `local` failure policy: while Redis does not answer, this process limits by itself, to its part
//! of the limits: what they allow, divided by the processes that were last known to use them.
//!
//! What it answers is flagged degraded. Permits it gives are its own, told by their numbers, and are
//! released to it also after Redis is back. What this process held on Redis before is not counted in.
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use redis::Value;

use super::census::{self, Census};
use super::driver::Thread;
use super::flight::Carrier;
use super::held::Terms;
use super::keys::Names;
use super::link::{self, Call, Class, Lane};
use super::ops::Stage;
use super::wire::Id;
use super::{Named, Redis, Scene, policy};
use crate::callback::Callbacks;
use crate::config::{Config, FailurePolicy};
use crate::decision::{Decision, Status};
use crate::limit::decide::{Limits, Outcome};
use crate::limit::time::Span;
use crate::limit::weights::Weights;
use crate::memory::{self, Memory};
use crate::op::{self, Relay, Request, Sink};
use crate::permit::Numbers;
use crate::stats::{Stats, Totals};
use crate::sync::Mutex;

/// The backend that stands in for Redis, made when it is first needed.
pub(super) struct Local {
    me: Id,
    memory: OnceLock<Arc<Memory>>,
    stats: Arc<Stats>,
}

/// What a limiter is there.
pub(super) struct StandIn {
    name: Box<[u8]>,
    whole: Limits,
    census: Census,
    /// Somebody sees to it that this process is counted.
    counted: AtomicBool,
    /// Its part, of so many.
    part: Mutex<Option<(u64, Arc<memory::Named>)>>,
}

impl Local {
    /// `me`: this process among all, at random.
    pub fn new(me: Id) -> Local {
        Local {
            me,
            memory: OnceLock::new(),
            stats: Arc::default(),
        }
    }

    pub fn stand_in(&self, config: &Config, name: &[u8], limits: &Limits) -> StandIn {
        let names = Names::new(&config.prefix, name, limits);
        StandIn {
            name: name.into(),
            whole: limits.clone(),
            census: Census::new(&names, self.me, config.processes),
            counted: AtomicBool::new(false),
            part: Mutex::default(),
        }
    }

    /// The backend, if it was ever needed.
    pub fn memory(&self) -> Option<&Arc<Memory>> {
        self.memory.get()
    }

    /// What is to be added to Redis's: a wait that was passed on is counted there.
    pub fn totals(&self) -> Totals {
        Totals {
            waiting: 0,
            cancelled: 0,
            ..self.stats.totals()
        }
    }
}

impl StandIn {
    fn on(&self, memory: &Memory) -> Arc<memory::Named> {
        let parts = self.census.living();
        let mut part = self.part.lock();
        match &*part {
            Some((of, named)) if *of == parts => named.clone(),
            _ => {
                let named = memory.limiter(&self.name, self.whole.share(parts));
                *part = Some((parts, named.clone()));
                named
            }
        }
    }

    /// A weight that is too much for a part alone might pass when Redis is back.
    fn fits_the_whole(&self, weights: &Weights) -> bool {
        let now = Default::default();
        let fresh = self.whole.fresh(now);
        self.whole.decide(&fresh, now, weights).outcome != Outcome::Never
    }
}

impl Named {
    /// Says in Redis that this process uses the limiter, and asks how many do.
    pub fn census(&self) -> Call {
        self.stand_in.census.call()
    }

    /// The answer to that.
    pub fn counted(&self, answer: &Value) {
        self.stand_in.census.heard(answer);
    }

    /// Among how many its limits are divided while Redis does not answer.
    pub fn living(&self) -> u64 {
        self.stand_in.census.living()
    }
}

impl Redis {
    pub(super) fn policy(&self, named: &Named) -> FailurePolicy {
        named.own.on_failure(&self.options.config)
    }

    /// The backend that stands in.
    pub(super) fn stand_in(&self) -> &Arc<Memory> {
        self.local.memory.get_or_init(|| {
            let config = &self.options.config;
            let options = memory::Options {
                max_waiting: config.max_waiting,
                max_penalty: config.max_penalty,
                lease: config.lease,
                numbers: Numbers::local(self.options.fork_generation),
            };
            let callbacks = Callbacks::new(self.callbacks.lost());
            let memory = Memory::seeded(
                self.dice.seeds().numbers(),
                self.clock.clone(),
                options,
                self.local.stats.clone(),
                callbacks,
            );
            // A shutdown that came while this was made has not seen it.
            if self.is_closed() {
                memory.shutdown(Some(Duration::ZERO));
            }
            memory
        })
    }

    /// Asks in this process what Redis did not answer.
    pub(super) fn ask_here(
        &self,
        named: &Named,
        weights: &Weights,
        flags: u32,
        ask: impl FnOnce(&Memory, &Arc<memory::Named>) -> Decision,
    ) -> Decision {
        let memory = self.stand_in();
        let decision = ask(memory, &named.stand_in.on(memory));
        self.degraded(named, weights, flags, decision)
    }

    /// As a caller hears of an answer that was given here.
    pub(super) fn degraded(
        &self,
        named: &Named,
        weights: &Weights,
        flags: u32,
        decision: Decision,
    ) -> Decision {
        let answered = matches!(
            decision.status,
            Status::Ok | Status::Denied | Status::Never | Status::Pending
        );
        if !answered {
            return decision;
        }
        let decision = Decision {
            flags: decision.flags | flags,
            ..decision
        };
        if decision.status == Status::Pending {
            return decision;
        }
        self.stats.stripe(0).degraded.add(1);
        if decision.status == Status::Never && named.stand_in.fits_the_whole(weights) {
            return Decision {
                status: Status::Denied,
                retry_after_us: policy::USUAL,
                ..decision
            };
        }
        decision
    }

    /// Where a change that Redis did not take has its effect in this process at least.
    pub(super) fn part_here(
        &self,
        named: &Named,
        status: Status,
    ) -> Option<(&Arc<Memory>, Arc<memory::Named>)> {
        let failed = matches!(status, Status::Backend | Status::UnknownOutcome);
        if !failed || self.policy(named) != FailurePolicy::Local {
            return None;
        }
        let memory = self.stand_in();
        Some((memory, named.stand_in.on(memory)))
    }

    /// Decides a wait in this process that Redis did not answer.
    pub(super) fn take_over(&self, shard: usize, serial: u64, terms: Option<Terms>, flags: u32) {
        let asked = self.at(shard, |scene| {
            let now = scene.now;
            let number = scene.number(serial);
            let wait = scene.shard.waits.get(&serial)?;
            let queue = match &wait.sink {
                Sink::Queue(queue) => Some(queue.clone()),
                _ => None,
            };
            let left = wait.deadline.map(|deadline| deadline.since(now));
            let (key, weights) = (wait.key.clone(), wait.weights.clone());
            Some((key, weights, left, wait.user_data, number, queue))
        });
        let Some((key, weights, left, user_data, op, queue)) = asked else {
            return;
        };
        let request = Request {
            key: &key.bytes,
            weights: match &weights {
                Weights::One(weight) => op::Weights::Same(*weight),
                Weights::Each(each) => op::Weights::Each(each),
            },
            wait: left,
            lease: terms.map(|terms| terms.lease),
            renew: terms.is_none_or(|terms| terms.renew),
            tell_lost: terms.is_some_and(|terms| terms.tell),
            user_data,
        };
        let redis = self.me.clone();
        let then = Box::new(move |decision| {
            if let Some(redis) = redis.upgrade() {
                redis.answered_here(shard, serial, flags, decision);
            }
        });
        let memory = self.stand_in();
        let part = key.named.stand_in.on(memory);
        let relay = Relay { then, op, queue };
        let decision = memory.acquire(&part, &request, Sink::Relay(relay));
        if decision.status != Status::Pending {
            return self.answered_here(shard, serial, flags, decision);
        }
        let waits = self.at(shard, |scene| scene.waits_here(serial, decision.op));
        if !waits {
            // Ended meanwhile, or answered.
            memory.cancel(decision.op, true);
        }
    }

    fn answered_here(&self, shard: usize, serial: u64, flags: u32, decision: Decision) {
        let taken = self.at(shard, |scene| {
            let Some(wait) = scene.shard.waits.get(&serial) else {
                return false;
            };
            let waited = match wait.waited {
                true => scene.now.since(wait.since),
                false => Span::ZERO,
            };
            let decision = self.degraded(&wait.key.named, &wait.weights, flags, decision);
            let decision = Decision {
                waited_us: waited.0,
                ..decision
            };
            scene.complete(serial, decision)
        });
        if !taken && let Some(memory) = self.local.memory() {
            memory.return_grant(&decision);
        }
    }

    /// The backend that gave a permit, if it was not Redis.
    pub(super) fn local_of(&self, permit: u64) -> Option<&Arc<Memory>> {
        self.local.memory().filter(|_| Numbers::is_local(permit))
    }

    /// Sees to it that this process is counted among those that use a limiter, if that matters.
    pub(super) fn count_in(&self, named: &Arc<Named>, carrier: &dyn Carrier) {
        let matters = self.policy(named) == FailurePolicy::Local;
        if matters && !named.stand_in.counted.swap(true, Ordering::Relaxed) {
            carrier.count_in(Arc::downgrade(named));
        }
    }
}

impl Scene<'_> {
    /// A wait that Redis did not answer is decided in this process, once the lock is released. `flags`
    /// are its decision's.
    pub fn pass_on(&mut self, serial: u64, flags: u32) {
        let wait = self.shard.waits.get_mut(&serial).expect("it waits");
        wait.stage = Stage::Here(None);
        let (hold, key) = (wait.hold.take(), wait.key.clone());
        if let Some(hold) = &hold {
            self.drop_hold(&key, serial, hold);
        }
        self.arm(serial, None);
        self.here.push((serial, hold.map(|hold| hold.terms), flags));
    }

    /// It waits there, under this number. False: it has ended.
    fn waits_here(&mut self, serial: u64, op: u64) -> bool {
        let Some(wait) = self.shard.waits.get_mut(&serial) else {
            return false;
        };
        wait.stage = Stage::Here(Some(op));
        wait.waited = true;
        true
    }
}

/// Says once that this process lives. Answers when to do so again; `None`: it does not matter any more.
pub(super) async fn beat(
    thread: &Weak<Thread>,
    redis: &Weak<Redis>,
    named: &Weak<Named>,
) -> Option<Duration> {
    let (redis, named) = (redis.upgrade()?, named.upgrade()?);
    if redis.policy(&named) != FailurePolicy::Local {
        named.stand_in.counted.store(false, Ordering::Relaxed);
        return None;
    }
    let thread = thread.upgrade()?;
    let request = link::Request::from(named.census());
    let deadline = Instant::now() + redis.command_timeout;
    let answer = thread
        .link
        .call(Lane::Control, request, deadline, Class::Idempotent)
        .await;
    Some(match answer {
        Ok(answer) => {
            named.counted(&answer);
            census::BEAT
        }
        // The last one holds. Where Redis comes and goes, each has to be heard while it is there: else
        // some would take the others for dead.
        Err(_) => census::BEAT / 8,
    })
}
