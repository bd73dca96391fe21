//! What goes wrong besides the network: processes die, clocks step, keys get lost, limits change.
use limiter::limit::decide::Limits;
use limiter::limit::rule::{Limit, Rule};
use limiter::limit::semaphore::Semaphore;
use limiter::limit::time::Span;
use limiter::limit::token_bucket::TokenBucket;
use limiter::redis::wire::Target;

use super::process::State;
use super::world::{Event, PROCESSES, World};
use super::{LEASE, Mode};

impl World {
    pub fn crash(&mut self, p: usize) {
        self.count("crashes");
        self.tell(format!("p{p} dies"));
        self.processes[p].life += 1;
        for t in 0..self.processes[p].tasks.len() {
            let state = std::mem::replace(&mut self.processes[p].tasks[t].state, State::Idle);
            self.note_start(&state);
        }
        let at = self.now + self.between(10_000, 2_000_000);
        self.push(at, Event::Rise { p });
    }

    pub fn rise(&mut self, p: usize) {
        let life = self.processes[p].life;
        self.processes[p].offset = self.offset;
        for t in 0..self.processes[p].tasks.len() {
            let task = &mut self.processes[p].tasks[t];
            task.alarm += 1;
            let alarm = task.alarm;
            let at = self.now + self.between(0, 100_000);
            self.push(at, Event::Alarm { p, life, t, alarm });
        }
        self.push(self.now, Event::Beat { p, life });
    }

    pub fn trouble(&mut self) {
        if !self.faulty {
            return;
        }
        if self.random.below(3) == 0 {
            let p = self.random.below(PROCESSES as u64) as usize;
            self.push(self.now, Event::Crash { p });
        }
        match self.mode {
            Mode::Base => {}
            Mode::Steps => {
                // There and back: forward once in a lease at most.
                let step = match self.offset {
                    0 => self.between(0, 600_000) as i64 - 300_000,
                    off => -off,
                };
                self.step(step);
            }
            Mode::Back => {
                let step = self.between(0, 2_000_000) as i64;
                self.step(-step);
            }
            Mode::Evict | Mode::Flush => self.lose(),
            Mode::Change => self.change(),
        }
        let least = if self.mode == Mode::Base {
            300_000
        } else {
            1_500_000
        };
        let at = self.now + self.between(least, 3_000_000);
        self.push(at, Event::Trouble);
    }

    fn step(&mut self, step: i64) {
        self.count("steps");
        self.tell(format!("the clock steps by {step}"));
        self.offset += step;
        self.audit.excuse(self.now, step.unsigned_abs());
    }

    fn lose(&mut self) {
        self.count("losses");
        let keys = self.audit.keys.clone();
        let which = self.random.below(keys.len() as u64) as usize;
        for (i, key) in keys.iter().enumerate() {
            if self.mode == Mode::Flush || i == which {
                self.server.data.lose(key);
                self.tell(format!("{key} is lost"));
            }
        }
        self.audit.excuse(self.now, 3 * LEASE);
        self.audit.lost(self.now);
    }

    fn change(&mut self) {
        self.count("changes");
        let capacity = 1 + self.random.below(4);
        let rate = self.limits.limits().get(1).map(|limit| match &limit.rule {
            Rule::TokenBucket(rule) => rule.clone(),
            other => unreachable!("{other:?}"),
        });
        self.limits = limits(capacity, rate, self.limits.version() + 1);
        self.tell(format!("the capacity is {capacity}"));
        self.target = Target::new("sim", b"n", &self.limits);
        self.audit.change(self.now, capacity);
    }
}

pub fn limits(capacity: u64, rate: Option<TokenBucket>, version: u32) -> Limits {
    let semaphore = Semaphore::new(capacity, Span(LEASE), true).expect("in range");
    let rules = std::iter::once(Rule::Semaphore(semaphore)).chain(rate.map(Rule::TokenBucket));
    let limits = rules.map(|rule| Limit {
        rule,
        per_call: false,
    });
    Limits::new(limits.collect(), version).expect("in range")
}
