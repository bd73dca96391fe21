//! What processes answer by themselves while Redis does not: it is said to be so, and each stays within its part.
use std::collections::BTreeMap;
use std::sync::Weak;

use limiter::decision::{DEGRADED, Decision, Status};
use limiter::limit::decide::Outcome;
use limiter::limit::rule::Rule;
use limiter::limit::time::Time;
use limiter::limit::weights::Weights;
use limiter::redis::Named;
use redis::Value;

use crate::task::State;
use crate::trouble::Mode;
use crate::world::{Event, LOCAL, PROCESSES, World};

/// Of one process.
#[derive(Default)]
pub struct Alone {
    /// What it admitted out of its part of the bucket, by key, and when, by its own clock.
    taken: BTreeMap<&'static [u8], Vec<(Time, u64)>>,
    /// The least number of processes that it knew of, of each limiter.
    least: [Option<u64>; 2],
}

const BEAT: u64 = 1_000_000;

impl World {
    /// A decision is the process's own, or Redis's.
    pub fn decided(
        &mut self,
        p: usize,
        limiter: usize,
        key: &'static [u8],
        weights: &[u64],
        decision: &Decision,
    ) -> bool {
        let failed = matches!(decision.status, Status::Backend | Status::UnknownOutcome);
        let alone = decision.flags & DEGRADED != 0;
        if limiter < LOCAL && alone || limiter >= LOCAL && failed {
            self.found(format!("the policy of {limiter} is another: {decision:?}"));
        }
        if !alone {
            return false;
        }
        self.count("alone");
        let process = &mut self.processes[p];
        let now = process.time(self.now);
        if limiter > LOCAL && decision.status == Status::Ok {
            let taken = process.alone.taken.entry(key).or_default();
            taken.push((now, weights[0]));
        }
        true
    }

    /// A process says that it uses a limiter, and hears who else does.
    pub fn take_census(&mut self, p: usize, named: &Weak<Named>) {
        let Some(named) = named.upgrade() else { return };
        let (now, life) = (self.now, self.processes[p].life);
        let process = &self.processes[p];
        let cut = process.is_cut(now) || now < process.down_until.max(self.frozen_until);
        let mut pause = BEAT / 8;
        if !cut && !self.chance(8) {
            self.set_server_time();
            match self.server.call(&named.census()) {
                Ok(answer @ Value::Int(_)) if !self.chance(4) => {
                    named.counted(&answer);
                    self.knows(p);
                    pause = BEAT;
                }
                Ok(Value::Int(_)) => {}
                other => self.found(format!("a census: {other:?}")),
            }
        }
        let named = std::sync::Arc::downgrade(&named);
        self.push(now + pause, Event::Count { p, life, named });
    }

    fn knows(&mut self, p: usize) {
        let process = &mut self.processes[p];
        for (least, named) in process.alone.least.iter_mut().zip(&process.named[LOCAL..]) {
            let living = named.living();
            *least = Some(least.map_or(living, |least| least.min(living)));
        }
    }

    /// The greatest part that a process ever had of a limiter.
    fn parts(&self, p: usize, limiter: usize) -> u64 {
        let least = self.processes[p].alone.least[limiter - LOCAL];
        least.unwrap_or(u64::MAX).min(PROCESSES as u64)
    }

    /// What a process holds by itself is within its part.
    pub fn judge_alone(&mut self) {
        if matches!(self.mode, Mode::Change | Mode::Reset) {
            return;
        }
        for (p, process) in self.processes.iter().enumerate() {
            let mut held = BTreeMap::<&[u8], u64>::new();
            for task in &process.tasks {
                if let State::Holds { ask, .. } = &task.state
                    && ask.alone
                    // Of the others not everybody hears when their lease is over.
                    && ask.renew
                    && ask.limiter == LOCAL
                {
                    *held.entry(ask.key).or_default() += ask.weights[0];
                }
            }
            let part = self.limits[LOCAL].1.share(self.parts(p, LOCAL));
            let Rule::Semaphore(part) = &part.limits()[0].rule else {
                unreachable!("it is a semaphore")
            };
            if let Some(held) = held.into_values().find(|held| *held > part.capacity()) {
                let text = format!("p{p} holds {held} alone, of {}", part.capacity());
                return self.found(text);
            }
        }
    }

    /// What a process that ends started by itself was within its part.
    pub fn end_alone(&mut self, p: usize) {
        let part = self.limits[LOCAL + 1].1.share(self.parts(p, LOCAL + 1));
        let taken = std::mem::take(&mut self.processes[p].alone.taken);
        for (key, taken) in taken {
            let mut state = part.fresh(taken[0].0);
            for (at, weight) in taken {
                let weights = Weights::One(weight);
                if part.decide(&state, at, &weights).outcome != Outcome::Admit {
                    return self.found(format!(
                        "p{p} takes more than its part of {key:?} at {at:?}"
                    ));
                }
                part.commit(&mut state, at, at, &weights);
            }
        }
    }
}
