//! A task: what it asked for, holds, or waits for, and what it may hear.
use limiter::decision::{Decision, Status};

use crate::process::TIMEOUT;
use crate::trouble::Mode;
use crate::verbs::KEYS;
use crate::world::World;

pub struct Task {
    pub state: State,
    /// Which of its alarms counts.
    pub alarm: u64,
}

impl Task {
    pub fn new() -> Task {
        Task {
            state: State::Idle,
            alarm: 0,
        }
    }
}

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Ask {
    pub limiter: usize,
    pub key: &'static [u8],
    pub weights: Vec<u64>,
    pub wait: Option<u64>,
    pub lease: Option<u64>,
    pub renew: bool,
    /// Its process answered by itself.
    pub alone: bool,
}

#[derive(Clone, Debug)]
pub enum State {
    Idle,
    /// Has begun an operation.
    Waits {
        op: u64,
        ask: Ask,
        since: u64,
    },
    /// A thread of it is in a call.
    Calls,
    Holds {
        permit: u64,
        ask: Ask,
        until: u64,
    },
}

/// How a call that blocks ended.
pub enum Done {
    Acquired(Ask, Decision),
    Many(Ask, Vec<Decision>),
    Paced(Decision),
    Looked(Decision),
    Changed(Status),
    /// Of a permit that is held meanwhile.
    Kept(Status),
    Closed,
}

/// An operation may end so much later than its deadline: a command under way, and the last word.
const LATE: u64 = 2 * TIMEOUT + 100_000;

impl World {
    /// What a call may answer.
    fn judge_status(&mut self, p: usize, status: Status, what: &str) {
        let mode = self.mode;
        let fine = match status {
            Status::Ok | Status::Denied | Status::Cancelled => true,
            // Weights are chosen to fit, but then the capacity may be lowered.
            Status::Never => mode == Mode::Change,
            Status::Backend | Status::UnknownOutcome => self.troubled(),
            Status::Stale => what == "kept" || what == "released",
            Status::Closed => self.processes[p].closing,
            _ => false,
        };
        if !fine {
            self.found(format!("{what}: {status:?}"));
        }
        self.count(match status {
            Status::Ok => "ok",
            Status::Denied => "denied",
            Status::Cancelled => "cancelled",
            Status::Never => "never",
            Status::Backend | Status::UnknownOutcome => "failed",
            Status::Stale => "stale",
            _ => "closed",
        });
    }

    /// A completion.
    pub fn completed(&mut self, p: usize, decision: Decision) {
        if decision.status == Status::Stale && decision.permit != 0 {
            return self.lost(p, decision.permit);
        }
        let Some(t) = self.processes[p].open.remove(&decision.op) else {
            return self.found(format!("operation {:#x} completes again", decision.op));
        };
        let state = std::mem::replace(&mut self.processes[p].tasks[t].state, State::Idle);
        let State::Waits { op, ask, since } = state else {
            return self.found(format!("a completion for {state:?}"));
        };
        if op != decision.op {
            return self.found(format!(
                "operation {op:#x} is completed as {:#x}",
                decision.op
            ));
        }
        self.tell(format!(
            "p{p}.{t} {:?} after {}",
            decision.status,
            self.now - since
        ));
        self.in_time(p, since, ask.wait);
        self.judge_status(p, decision.status, "acquired");
        self.took(p, t, ask, decision);
    }

    /// It ended by its deadline, unless its process stood still.
    fn in_time(&mut self, p: usize, since: u64, wait: Option<u64>) {
        let stood = self.processes[p].paused_at >= since;
        if let Some(wait) = wait
            && !stood
            && self.now > since + wait + wait / 100 + LATE
        {
            self.found(format!(
                "it ends {} after it began, and waits {wait}",
                self.now - since
            ));
        }
    }

    fn took(&mut self, p: usize, t: usize, mut ask: Ask, decision: Decision) {
        ask.alone = self.decided(p, ask.limiter, ask.key, &ask.weights, &decision);
        let granted = decision.status == Status::Ok && decision.permit != 0;
        if decision.status != Status::Ok && decision.permit != 0 {
            self.found(format!("a permit without a grant: {:?}", decision.status));
        }
        if !granted {
            return self.rest(p, t);
        }
        self.count("granted");
        let until = self.now + self.between(5_000, 2_500_000);
        let holds = self.holds(ask.limiter);
        self.processes[p].tasks[t].state = State::Holds {
            permit: decision.permit,
            ask,
            until,
        };
        let pause = match holds {
            true => self.between(5_000, 900_000),
            false => self.between(0, 50_000),
        };
        self.alarm(p, t, pause);
    }

    /// A lease ended while it was held.
    fn lost(&mut self, p: usize, permit: u64) {
        let holds =
            |task: &Task| matches!(task.state, State::Holds { permit: own, .. } if own == permit);
        let Some(t) = self.processes[p].tasks.iter().position(holds) else {
            return;
        };
        self.count("lost");
        self.tell(format!("p{p}.{t} has lost its lease"));
        if self.processes[p].redis.held_until(permit).is_some() {
            self.found("a permit that is lost is held".into());
        }
        self.rest(p, t);
    }

    pub fn rest(&mut self, p: usize, t: usize) {
        self.processes[p].tasks[t].state = State::Idle;
        let pause = self.between(1_000, 300_000);
        self.alarm(p, t, pause);
    }

    /// A call has returned.
    pub fn returned(&mut self, p: usize, t: usize, done: Done) {
        match done {
            Done::Acquired(ask, decision) => {
                self.judge_status(p, decision.status, "acquired");
                return self.took(p, t, ask, decision);
            }
            Done::Many(ask, decisions) => {
                for (decision, key) in decisions.into_iter().zip([ask.key, KEYS[1]]) {
                    self.judge_status(p, decision.status, "tried");
                    self.decided(p, ask.limiter, key, &ask.weights, &decision);
                }
            }
            Done::Paced(decision) => {
                self.judge_status(p, decision.status, "paced");
                if decision.status == Status::Ok
                    && decision.permit != 0
                    && self.random.below(3) == 0
                {
                    let status = self.processes[p].redis.release(decision.permit);
                    self.judge_status(p, status, "released");
                }
            }
            Done::Looked(decision) => {
                self.judge_status(p, decision.status, "looked");
                if decision.permit != 0 {
                    self.found("a look takes a permit".into());
                }
            }
            Done::Changed(status) => self.judge_status(p, status, "changed"),
            Done::Kept(status) => return self.judge_status(p, status, "kept"),
            Done::Closed => return self.bury(p),
        }
        if t < self.processes[p].tasks.len() {
            self.rest(p, t);
        }
    }
}
