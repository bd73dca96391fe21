//! A process: tasks that acquire, hold and release, and a heartbeat for all of them. What a process may
//! believe is in here; it is what the backend's client does, without its threads.
use limiter::limit::time::{Span, Time};
use limiter::limit::weights::Weights;
use limiter::redis::wire::{Answer, Batch, Era, Id, Note, Outcome, Reply};

use super::mutants::Client;
use super::world::{Event, Sent, World};
use super::{DEAD, GRACE, LEASE, Mode, POLL, TIMEOUT};

pub struct Process {
    /// Counts its lives.
    pub life: u64,
    /// How far it takes the server's clock to be ahead.
    pub offset: i64,
    /// Until then nothing reaches anybody.
    pub cut_until: u64,
    pub tasks: Vec<Task>,
}

pub struct Task {
    pub state: State,
    /// Which of its alarms counts.
    pub alarm: u64,
    /// Requests for its id that were not answered.
    pub open: u32,
}

#[derive(Clone, Debug)]
pub enum State {
    Idle,
    Asks {
        id: Id,
        weights: Vec<u64>,
        give_up: u64,
        queued: bool,
    },
    Holds {
        id: Id,
        weights: Vec<u64>,
        era: Era,
        /// From when on, by the key's time and by its own.
        at: Time,
        start: u64,
        /// Believed until then.
        deadline: u64,
        renew_at: u64,
        until: u64,
    },
    Ends {
        id: Id,
        cancel: bool,
        tries: u32,
    },
}

/// What was asked for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Acquire,
    Renew,
    Release,
    Cancel,
}

#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub task: usize,
    pub verb: Verb,
    pub id: Id,
}

impl State {
    pub fn id(&self) -> Option<Id> {
        match self {
            State::Idle => None,
            State::Asks { id, .. } | State::Holds { id, .. } | State::Ends { id, .. } => Some(*id),
        }
    }
}

impl World {
    fn task(&mut self, p: usize, t: usize) -> &mut Task {
        &mut self.processes[p].tasks[t]
    }

    fn wrong(&self, how: Client) -> bool {
        self.mutant.is_some_and(|mutant| mutant.client == how)
    }

    fn alarm(&mut self, p: usize, t: usize, at: u64) {
        let life = self.processes[p].life;
        let task = self.task(p, t);
        task.alarm += 1;
        let alarm = task.alarm;
        self.push(at, Event::Alarm { p, life, t, alarm });
    }

    /// Sends operations for tasks in one call.
    fn send(&mut self, p: usize, asked: Vec<Asked>) {
        if asked.is_empty() {
            return;
        }
        let process = &self.processes[p];
        let known = process.tasks.iter().find_map(|task| match task.state {
            State::Holds { era, .. } => Some(era),
            _ => None,
        });
        let not_after = self.now as i64 + process.offset + (TIMEOUT + GRACE) as i64;
        let not_after = (!self.wrong(Client::NoNotAfter)).then_some(Time(not_after as u64));
        let holds = known.is_some();
        let known = known.filter(|_| !self.wrong(Client::NoEra));
        let life = process.life;
        let ops: Vec<Operation> = asked
            .iter()
            .map(|asked| self.operation(p, *asked))
            .collect();
        for one in &asked {
            if one.verb == Verb::Acquire {
                self.task(p, one.task).open += 1;
            }
        }
        let sent = Sent {
            p,
            life,
            asked,
            at: self.now,
            holds,
        };
        self.dispatch(sent, known, not_after, &ops);
    }

    fn operation(&self, p: usize, asked: Asked) -> Operation {
        let task = &self.processes[p].tasks[asked.task];
        let dead = task.open > 0 && !self.wrong(Client::NoDead);
        let dead = dead.then_some(Span(DEAD));
        match (&task.state, asked.verb) {
            (
                State::Asks {
                    weights, give_up, ..
                },
                Verb::Acquire,
            ) => {
                let wait = Span(give_up.saturating_sub(self.now));
                Operation::Acquire(asked.id, wait, weights.clone())
            }
            (State::Holds { weights, era, .. }, Verb::Renew) => {
                Operation::Renew(asked.id, *era, weights.clone())
            }
            (State::Ends { .. }, Verb::Release) => Operation::Release(asked.id, dead),
            (State::Ends { .. }, Verb::Cancel) => Operation::Cancel(asked.id, dead),
            other => unreachable!("{other:?}"),
        }
    }

    fn ask(&mut self, p: usize, t: usize, verb: Verb) {
        let id = self.task(p, t).state.id().expect("it is busy");
        let asked = Asked { task: t, verb, id };
        self.send(p, vec![asked]);
        let mut at = self.now + TIMEOUT;
        if let State::Asks { give_up, .. } = self.task(p, t).state {
            at = at.min(give_up.max(self.now + 1));
        }
        self.alarm(p, t, at);
    }

    fn begin(&mut self, p: usize, t: usize) {
        let id = self.new_id();
        let weights = self.some_weights();
        let give_up = self.now + self.between(100_000, 8_000_000);
        self.task(p, t).open = 0;
        self.task(p, t).state = State::Asks {
            id,
            weights,
            give_up,
            queued: false,
        };
        self.ask(p, t, Verb::Acquire);
    }

    fn idle(&mut self, p: usize, t: usize) {
        self.task(p, t).state = State::Idle;
        let pause = self.between(1_000, 400_000);
        self.alarm(p, t, self.now + pause);
    }

    /// Over, and nothing of it may be left at the server.
    fn over(&mut self, p: usize, t: usize, id: Id) {
        self.gone(id);
        self.idle(p, t);
    }

    fn end(&mut self, p: usize, t: usize, cancel: bool) {
        let state = self.task(p, t).state.clone();
        self.note_start(&state);
        let id = state.id().expect("it is busy");
        if cancel && self.wrong(Client::NoCancel) {
            return self.over(p, t, id);
        }
        self.task(p, t).state = State::Ends {
            id,
            cancel,
            tries: 0,
        };
        self.ask(p, t, if cancel { Verb::Cancel } else { Verb::Release });
    }

    pub fn alarmed(&mut self, p: usize, t: usize) {
        let state = self.task(p, t).state.clone();
        match state {
            State::Idle if self.faulty => self.begin(p, t),
            State::Idle => {}
            State::Asks {
                give_up, queued, ..
            } => {
                if self.now >= give_up {
                    self.end(p, t, true);
                } else if queued {
                    // The heartbeat asks for it.
                    self.alarm(p, t, give_up);
                } else {
                    self.count("timeouts");
                    if self.wrong(Client::NewId) {
                        let id = self.new_id();
                        if let State::Asks { id: old, .. } = &mut self.task(p, t).state {
                            let old = std::mem::replace(old, id);
                            self.gone(old);
                        }
                    }
                    self.ask(p, t, Verb::Acquire);
                }
            }
            State::Holds {
                deadline, until, ..
            } => {
                if self.now >= deadline.min(until) {
                    self.end(p, t, false);
                } else {
                    self.alarm(p, t, deadline.min(until));
                }
            }
            State::Ends { id, cancel, tries } => {
                self.count("timeouts");
                if tries >= 8 {
                    return self.idle(p, t);
                }
                self.task(p, t).state = State::Ends {
                    id,
                    cancel,
                    tries: tries + 1,
                };
                self.ask(p, t, if cancel { Verb::Cancel } else { Verb::Release });
            }
        }
    }

    /// Renews permits and asks for waits, all in one call.
    pub fn beat(&mut self, p: usize) {
        let now = self.now;
        let mut asked = vec![];
        for (i, task) in self.processes[p].tasks.iter_mut().enumerate() {
            let verb = match &mut task.state {
                State::Asks { queued: true, .. } => Verb::Acquire,
                State::Holds { renew_at, .. } if *renew_at <= now => {
                    *renew_at = now + POLL;
                    Verb::Renew
                }
                _ => continue,
            };
            let id = task.state.id().expect("it is busy");
            asked.push(Asked { task: i, verb, id });
        }
        self.send(p, asked);
        let life = self.processes[p].life;
        let pause = self.between(POLL * 8 / 10, POLL * 12 / 10);
        self.push(now + pause, Event::Beat { p, life });
    }

    pub fn noted(&mut self, p: usize, note: Note) {
        let (Note::Granted(id) | Note::Denied(id) | Note::Never(id)) = note;
        let tasks = &self.processes[p].tasks;
        let asks = |task: &Task| matches!(task.state, State::Asks { id: own, .. } if own == id);
        if let Some(t) = tasks.iter().position(asks) {
            self.ask(p, t, Verb::Acquire);
        }
    }

    pub fn answered(&mut self, sent: &Sent, reply: &Reply) {
        let p = sent.p;
        let (server, done) = match reply {
            Reply::Late(server) => (*server, None),
            Reply::Done {
                server,
                era,
                answers,
                ..
            } => (*server, Some((era.expect("it has one"), answers))),
        };
        let trip = self.now - sent.at;
        if trip <= TIMEOUT {
            self.processes[p].offset = server.0 as i64 - (sent.at + trip / 2) as i64;
        }
        for (i, asked) in sent.asked.iter().enumerate() {
            if self.task(p, asked.task).state.id() != Some(asked.id) {
                continue;
            }
            if asked.verb == Verb::Acquire {
                let open = &mut self.task(p, asked.task).open;
                *open = open.saturating_sub(1);
            }
            match done {
                None => self.late(p, asked),
                Some((era, answers)) => self.heard(sent, asked, era, &answers[i]),
            }
        }
    }

    fn late(&mut self, p: usize, asked: &Asked) {
        self.count("late");
        match (&self.task(p, asked.task).state, asked.verb) {
            (State::Asks { .. }, Verb::Acquire)
            | (State::Ends { .. }, Verb::Release | Verb::Cancel) => {
                self.ask(p, asked.task, asked.verb);
            }
            _ => {}
        }
    }

    fn heard(&mut self, sent: &Sent, asked: &Asked, era: Era, answer: &Answer) {
        let (p, t, id) = (sent.p, asked.task, asked.id);
        let counted = match self.wrong(Client::FromReceipt) {
            true => self.now,
            false => sent.at,
        };
        let lasts = counted + LEASE * 99 / 100 - 1_000;
        match (self.task(p, t).state.clone(), asked.verb, answer.outcome) {
            (State::Asks { weights, .. }, Verb::Acquire, Outcome::Done) => {
                let wait = answer.retry_after.0;
                let until = self.now + wait + self.between(10_000, 2_500_000);
                self.count("granted");
                let deadline = lasts + wait;
                self.task(p, t).state = State::Holds {
                    id,
                    weights,
                    era,
                    at: answer.at,
                    start: self.now + wait,
                    deadline,
                    renew_at: sent.at + LEASE / 3,
                    until,
                };
                self.alarm(p, t, deadline.min(until).max(self.now));
            }
            (State::Asks { give_up, .. }, Verb::Acquire, Outcome::Queued) => {
                if let State::Asks { queued, .. } = &mut self.task(p, t).state {
                    *queued = true;
                }
                self.alarm(p, t, give_up.max(self.now));
            }
            // An earlier request for it may still be under way.
            (State::Asks { .. }, Verb::Acquire, _) if self.task(p, t).open > 0 => {
                self.end(p, t, true);
            }
            (State::Asks { .. }, Verb::Acquire, _) => self.over(p, t, id),
            (State::Holds { .. }, Verb::Renew, Outcome::Done) => {
                let State::Holds {
                    deadline,
                    renew_at,
                    era: own,
                    start,
                    until,
                    ..
                } = &mut self.task(p, t).state
                else {
                    unreachable!("it holds")
                };
                *own = era;
                // A booking's lease begins with it.
                *deadline = (*deadline).max(lasts.max(*start));
                *renew_at = sent.at + LEASE / 3;
                let at = (*deadline).min(*until);
                self.alarm(p, t, at);
            }
            (
                State::Holds {
                    era: own, deadline, ..
                },
                Verb::Renew,
                _,
            ) => {
                self.count("lost");
                // Whoever is in time after a loss keeps its permit.
                if self.mode == Mode::Evict && own != era && self.now < deadline {
                    self.audit
                        .found(format!("{} was lost with the state", id.0));
                }
                let state = self.task(p, t).state.clone();
                self.note_start(&state);
                self.idle(p, t);
            }
            (State::Ends { .. }, Verb::Release | Verb::Cancel, _) => self.over(p, t, id),
            _ => {}
        }
    }
}

/// An operation as it is put into a batch.
pub enum Operation {
    Acquire(Id, Span, Vec<u64>),
    Renew(Id, Era, Vec<u64>),
    Release(Id, Option<Span>),
    Cancel(Id, Option<Span>),
}

impl Operation {
    pub fn add_to(&self, batch: &mut Batch) {
        let each = |weights: &Vec<u64>| Weights::Each(weights.clone().into());
        match self {
            Operation::Acquire(id, wait, weights) => {
                batch.acquire(*id, Some(*wait), (Span(LEASE), true), &each(weights))
            }
            Operation::Renew(id, era, weights) => {
                batch.renew(*id, (Span(LEASE), true), *era, &each(weights))
            }
            Operation::Release(id, dead) => batch.release(*id, *dead),
            Operation::Cancel(id, dead) => batch.cancel(*id, *dead),
        }
    }
}
