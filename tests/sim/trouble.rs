//! What goes wrong: processes die, stand still and leave, connections end, the server stands still, clocks
//! step, keys get lost, limits change.
use std::time::Duration;

use limiter::decision::Status;

use crate::process::{Ancestry, Process};
use crate::task::{Done, State, Task};
use crate::world::{Event, LEASE, PROCESSES, World};

/// What goes wrong besides the network and the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Base,
    /// The server's clock steps, forward no more than leases allow for.
    Steps,
    /// It steps back by seconds.
    Back,
    /// Single keys get lost.
    Evict,
    /// All keys get lost.
    Flush,
    /// Capacities change.
    Change,
    /// Keys are reset.
    Reset,
    /// Answers get lost, to what arrives and is run.
    Deaf,
}

impl Mode {
    pub const ALL: [Mode; 8] = [
        Mode::Base,
        Mode::Steps,
        Mode::Back,
        Mode::Evict,
        Mode::Flush,
        Mode::Change,
        Mode::Reset,
        Mode::Deaf,
    ];

    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// Keys get lost.
    pub fn loses(self) -> bool {
        matches!(self, Mode::Evict | Mode::Flush)
    }
}

impl World {
    pub fn trouble(&mut self) {
        if !self.faulty {
            return;
        }
        let p = self.random.below(self.processes.len() as u64) as usize;
        match self.random.below(9) {
            0 => self.crash(p),
            1 => self.leave(p),
            2 | 8 => self.pause(p),
            3 => {
                self.count("cuts");
                let length = self.between(300_000, 2_500_000);
                let process = &mut self.processes[p];
                match self.random.below(2) {
                    0 => (process.cut_from, process.cut_until) = (self.now, self.now + length),
                    _ => process.deaf_until = self.now + length,
                }
                let how = if process.deaf_until > self.now {
                    "hears nothing"
                } else {
                    "is cut off"
                };
                self.tell(format!("p{p} {how} for {length}"));
                self.hurt(p, self.now + length);
                self.excuse(length);
            }
            4 => {
                let length = self.between(50_000, 1_000_000);
                self.tell(format!("p{p} cannot connect for {length}"));
                self.processes[p].down_until = self.now + length;
                self.hurt(p, self.now + length);
                self.disconnect(p);
                self.excuse(length);
            }
            5 => {
                self.tell(format!("p{p} loses its connections"));
                self.hurt(p, self.now);
                self.disconnect(p);
            }
            6 => {
                self.count("freezes");
                let length = self.between(100_000, 1_500_000);
                self.tell(format!("the server stands still for {length}"));
                self.frozen_until = self.now + length;
                self.hurt_all(self.now + length);
                self.excuse(length);
            }
            _ => self.deaf = !self.deaf,
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
            Mode::Reset => self.reset(p),
            Mode::Deaf => self.deafen(),
        }
        let least = if self.mode == Mode::Base {
            200_000
        } else {
            1_500_000
        };
        let at = self.now + self.between(least, 2_500_000);
        self.push(at, Event::Trouble);
    }

    /// A process hears nothing. One is chosen that renews by hand, and does so now.
    fn deafen(&mut self) {
        let by_hand = |task: &Task| matches!(&task.state, State::Holds { ask, .. } if !ask.renew);
        let chosen = |process: &Process| process.up && process.tasks.iter().any(by_hand);
        let Some(p) = self.processes.iter().position(chosen) else {
            return;
        };
        self.count("deaf");
        let length = self.between(300_000, 1_500_000);
        self.tell(format!(
            "p{p} hears nothing for {length}, and then is not heard"
        ));
        let process = &mut self.processes[p];
        process.deaf_until = self.now + length;
        (process.cut_from, process.cut_until) = (self.now + 60_000, self.now + length);
        self.hurt(p, self.now + length);
        self.excuse(length);
        for t in 0..self.processes[p].tasks.len() {
            if by_hand(&self.processes[p].tasks[t]) {
                let pause = self.between(0, 30_000);
                self.alarm(p, t, pause);
            }
        }
    }

    /// A process ends without a word.
    pub fn crash(&mut self, p: usize) {
        if !self.processes[p].up {
            return;
        }
        self.count("crashes");
        self.tell(format!("p{p} dies"));
        self.bury(p);
    }

    /// A process that is dead, or done, is gone; another one takes its place.
    pub fn bury(&mut self, p: usize) {
        self.end_alone(p);
        let process = &mut self.processes[p];
        process.up = false;
        process.life += 1;
        process.outbox.die();
        if let Some(channel) = self.channels.remove(&p) {
            self.dead.push((channel, self.now));
        }
        // What was under way ends for whoever asked, and nobody is there to hear it.
        let process = &self.processes[p];
        process.show(self.now);
        drop(process.outbox.flights());
        self.flying.retain(|_, flying| flying.p != p);
        let process = &self.processes[p];
        let _ = process.redis.shutdown(Some(Duration::ZERO));
        let process = &mut self.processes[p];
        let mut fibers = std::mem::take(&mut process.fibers);
        for _ in 0..1_000 {
            fibers.retain(|(_, fiber)| fiber.resume().is_none());
            if fibers.is_empty() {
                break;
            }
        }
        if !fibers.is_empty() {
            self.found("a call goes on though its client is closed".into());
        }
        let at = self.now + self.between(10_000, 2_000_000);
        self.push(at, Event::Rise { p });
    }

    pub fn rise(&mut self, p: usize) {
        let life = self.processes[p].life;
        let tasks = 3 + self.random.below(3);
        let parent = self.random.below(PROCESSES as u64) as usize;
        let lives = |one: &Process| one.up && !one.closing;
        let forks = parent != p && lives(&self.processes[parent]) && self.random.below(2) == 0;
        let parent = forks.then_some(parent);
        self.processes[p] = self.born(life, parent);
        if let Some(parent) = parent {
            self.inherits(p, parent);
        }
        for t in 0..tasks as usize {
            self.processes[p].tasks.push(Task::new());
            let pause = self.between(0, 200_000);
            self.alarm(p, t, pause);
        }
    }

    pub fn born(&mut self, life: u64, parent: Option<usize>) -> Process {
        let mut ancestry = Ancestry {
            seed: self.random.next(),
            forks: 0,
        };
        if let Some(parent) = parent {
            let parent = self.processes[parent].ancestry;
            ancestry.forks = parent.forks + 1;
            if self.twins {
                ancestry.seed = parent.seed;
            }
        }
        let drift = self.random.below(5) as i64 - 2;
        Process::new(life, self.now, ancestry, drift, &self.limits, self.without)
    }

    /// A forked child knows its parent's numbers, and nothing that it does with them has an effect.
    fn inherits(&mut self, p: usize, parent: usize) {
        self.count("forks");
        self.tell(format!("p{p} is forked from p{parent}"));
        let redis = self.processes[p].redis.clone();
        let mut heard = vec![];
        for task in &self.processes[parent].tasks {
            match task.state {
                State::Holds { permit, .. } => heard.extend([
                    redis.release(permit),
                    redis.renew(permit, None),
                    redis.settle(permit, 0),
                ]),
                State::Waits { op, .. } => {
                    heard.extend([redis.cancel(op, true), redis.cancel(op, false)])
                }
                _ => {}
            }
        }
        if heard.iter().any(|status| *status != Status::Forked) {
            self.found(format!("a child has its parent's: {heard:?}"));
        }
        if !self.processes[p].outbox.flights().is_empty() {
            self.found("a child speaks for its parent".into());
        }
    }

    /// A process shuts down in order.
    fn leave(&mut self, p: usize) {
        let process = &mut self.processes[p];
        if !process.up || process.closing {
            return;
        }
        process.closing = true;
        self.count("exits");
        self.tell(format!("p{p} shuts down"));
        let redis = self.processes[p].redis.clone();
        self.begin_fiber(p, usize::MAX, move || {
            redis.shutdown(Some(Duration::ZERO));
            Done::Closed
        });
    }

    fn pause(&mut self, p: usize) {
        self.count("pauses");
        let length = self.between(50_000, 3_000_000);
        self.tell(format!("p{p} stands still for {length}"));
        let until = self.now + length;
        self.processes[p].paused_until = self.processes[p].paused_until.max(until);
        self.processes[p].paused_at = self.now;
        self.hurt(p, self.now + length);
        self.excuse(length);
    }

    fn step(&mut self, step: i64) {
        self.count("steps");
        self.tell(format!("the server's clock steps by {step}"));
        self.offset += step;
        self.hurt_all(self.now);
        self.excuse(step.unsigned_abs());
    }

    fn lose(&mut self) {
        self.count("losses");
        self.hurt_all(self.now);
        self.set_server_time();
        let now = self.now;
        let flush = self.mode == Mode::Flush;
        let which = self.random.next();
        self.kept.clear();
        for audit in self.audits.values_mut() {
            if !flush {
                self.kept.append(&mut audit.ends(&self.server));
            }
            let one = (which % audit.keys.len() as u64) as usize;
            for (i, key) in audit.keys.iter().enumerate() {
                if flush || i == one {
                    self.server.data.lose(key);
                }
            }
            audit.lost(now);
        }
        if flush {
            self.server.data.lose_all();
        }
        self.tell("keys are lost".into());
        // What was sent before one knew may come after what is said then.
        self.slow_until = now + self.between(0, 500_000);
        self.excuse(3 * LEASE);
    }

    fn change(&mut self) {
        self.count("changes");
        let capacity = 1 + self.random.below(4);
        self.tell(format!("the capacity is {capacity}"));
        self.limits = crate::world::with_capacity(&self.limits, capacity);
        for p in 0..self.processes.len() {
            let (at, life) = (self.now + self.between(0, 400_000), self.processes[p].life);
            self.push(at, Event::Adopt { p, life });
        }
    }

    pub fn adopt(&mut self, p: usize) {
        for (n, (name, limits)) in self.limits.iter().enumerate() {
            self.processes[p].adopt(n, name, limits.clone());
        }
    }

    fn reset(&mut self, p: usize) {
        if !self.processes[p].up || self.processes[p].closing {
            return;
        }
        self.count("resets");
        let (limiter, key) = self.somewhere();
        let process = &self.processes[p];
        let (redis, named) = (process.redis.clone(), process.named[limiter].clone());
        self.tell(format!("p{p} resets {limiter} {key:?}"));
        self.begin_fiber(p, usize::MAX, move || {
            Done::Changed(redis.reset(&named, key))
        });
    }
}
