//! The same random calls for all three.
use std::sync::Arc;

use limiter::callback::Callbacks;
use limiter::clock::Clock;
use limiter::decision::{Decision, Status as Ended};
use limiter::limit::decide::Limits;
use limiter::limit::time::{Monotone, Span, Time};
use limiter::limit::weights::Weights;
use limiter::memory::{Memory, Named, Options};
use limiter::op::{self, Request};
use limiter::permit::Numbers;
use limiter::redis::wire::{Answer, Batch, Era, Head, Holding, Id, Outcome, Reply, Taken, Target};
use limiter::stats::Stats;

use crate::exact::Figures;
use crate::model::*;
use crate::random::Random;
use crate::server::Server;
use crate::spec::*;

/// One of the two backends beside a model of its own: their clocks differ where one was set back.
pub struct Run {
    pub specs: Vec<Spec>,
    pub holds: bool,
    pub random: Random,
    pub raw: u64,
    memory: Arc<Memory>,
    named: Arc<Named>,
    pub by_memory: Model,
    pub server: Server,
    target: Target,
    pub by_script: Model,
    pub clock: Monotone,
    pub fences: [u64; 2],
    /// Permits of both, by the models' numbers; and what is gone of them.
    pub made: Vec<Both>,
    seen: Vec<String>,
    pub latest: u64,
    pub decisions: u64,
}

pub struct Both {
    /// Something of a semaphore.
    held: bool,
    memory: (usize, u64),
    script: (usize, Taken, Id),
    settled: bool,
    over: bool,
}

const NAME: &[u8] = b"n";

impl Run {
    pub fn new(mut random: Random, kinds: &[u64]) -> Run {
        let specs: Vec<Spec> = kinds.iter().map(|k| Spec::draw(&mut random, *k)).collect();
        let limits = specs.iter().map(Spec::limit).collect();
        let limits = Limits::new(limits, 0).unwrap();
        let options = Options {
            max_waiting: 10,
            max_penalty: Span(HOUR),
            lease: Span(LEASE),
            numbers: Numbers::new(0),
        };
        let clock = Arc::new(Clock::virtual_clock());
        let memory = Memory::new(
            clock,
            options,
            Arc::new(Stats::default()),
            Callbacks::new(None),
        );
        let terms = || specs.iter().map(Spec::term).collect();
        let raw = Clock::VIRTUAL_START.0 + 123_457;
        Run {
            named: memory.limiter(NAME, limits.clone()),
            memory,
            by_memory: Model::new(terms()),
            by_script: Model::new(terms()),
            server: Server::new(),
            target: Target::new("l", NAME, &limits),
            holds: limits.holds(),
            specs,
            random,
            raw,
            clock: Monotone::default(),
            fences: [0; 2],
            made: vec![],
            seen: vec![],
            latest: 0,
            decisions: 0,
        }
    }

    fn story(&self) -> String {
        let latest = self.seen.len().saturating_sub(40);
        format!("{:#?}\n{}", self.specs, self.seen[latest..].join("\n"))
    }

    /// The memory's time, with what is due done.
    pub fn memory_now(&mut self) -> u64 {
        assert_eq!(self.memory.clock_set(Time(self.raw)), Ended::Ok);
        let now = self.memory.clock_now().0;
        self.by_memory.expire(now);
        now
    }

    /// What time it is to the script.
    pub fn script_now(&self) -> u64 {
        let mut clock = self.clock;
        clock.observe(Time(self.raw)).0
    }

    /// What is asked of the script, and when that is to it. `then` is the model's answer.
    fn script<T>(
        &mut self,
        ask: impl Fn(&mut Batch),
        then: impl FnOnce(&mut Model, u64) -> T,
    ) -> (Vec<Answer>, T) {
        self.server.data.now.set(self.raw);
        let raw = Time(self.raw);
        if self.server.data.is_empty() {
            self.clock = Monotone {
                seen: raw,
                skew: Span::ZERO,
            };
        }
        let mut ahead = self.clock;
        let now = ahead.observe(raw).0;
        let writes = self.server.data.writes.get();
        let head = Head {
            now: Some(raw),
            not_after: None,
        };
        let mut batch = match self.holds {
            false => self.target.batch(head),
            true => self.target.holding(
                head,
                Holding {
                    known: None,
                    fresh: Era(7),
                    channel: "",
                    lease: Span(LEASE),
                    claim: Span(LEASE),
                    allowance: Span::ZERO,
                    life: Span(LEASE),
                    tells_unheard: true,
                },
            ),
        };
        ask(&mut batch);
        let count = batch.len();
        let reply = self.server.call(&batch.on(b"k"));
        let reply = reply.unwrap_or_else(|error| panic!("{error}\n{}", self.story()));
        self.seen.push(format!("{now}: {reply:?}"));
        let Ok(Reply::Done {
            server,
            now: found,
            answers,
            ..
        }) = Reply::read(&reply, count)
        else {
            panic!("{reply:?}\n{}", self.story());
        };
        assert_eq!((server.0, found.0), (self.raw, now), "{}", self.story());
        if self.server.data.writes.get() != writes {
            self.clock = ahead;
        }
        self.by_script.expire(now);
        (answers, then(&mut self.by_script, now))
    }

    fn check_memory(&mut self, told: Told, now: u64, took: bool, found: Decision) {
        let ended = match told.status {
            Status::Done => Ended::Ok,
            Status::Denied => Ended::Denied,
            Status::Never => Ended::Never,
            Status::Stale => Ended::Stale,
        };
        let expected = Decision {
            index: told.index as u32,
            limit: told.figures.limit,
            remaining: told.figures.remaining,
            reset_after_us: told.figures.reset,
            retry_after_us: told.retry,
            // Any but 0, where something was taken.
            permit: if took { found.permit.max(1) } else { 0 },
            fence: found.fence,
            ..Decision::of(ended)
        };
        assert_eq!(found, expected, "memory at {now}, model; {}", self.story());
    }

    fn check_script(&mut self, told: Told, took: bool, found: &Answer) {
        let outcome = match told.status {
            Status::Done => Outcome::Done,
            Status::Denied => Outcome::Denied,
            Status::Never => Outcome::Never,
            Status::Stale => Outcome::Stale,
        };
        let figures = Figures {
            limit: found.figures.limit,
            remaining: found.figures.remaining,
            reset: found.figures.reset_after.0,
        };
        let expected = (
            outcome,
            Some(told.index),
            told.figures,
            told.retry,
            told.at,
            0,
        );
        let answer = (
            found.outcome,
            found.index,
            figures,
            found.retry_after.0,
            found.at.0,
            found.position,
        );
        assert_eq!(answer, expected, "script, model; {}", self.story());
        assert_eq!(!found.booking.is_empty(), took, "{}", self.story());
    }

    /// Grows with each grant of a semaphore.
    fn check_fence(&mut self, side: usize, grows: bool, fence: u64) {
        if grows {
            assert!(fence > self.fences[side], "{fence} {}", self.story());
            self.fences[side] = fence;
        } else {
            assert_eq!(fence, 0, "{}", self.story());
        }
    }

    fn request<'a>(asked: &'a [u64], wait: u64, lease: u64) -> Request<'a> {
        Request {
            key: b"k",
            weights: match asked {
                [one] => op::Weights::Same(*one),
                each => op::Weights::Each(each),
            },
            wait: (wait < u64::MAX).then_some(Span(wait)),
            lease: Some(Span(lease)),
            renew: false,
            ..Request::TRY
        }
    }

    fn weights(asked: &[u64]) -> Weights {
        match asked {
            [one] => Weights::One(*one),
            each => Weights::Each(each.into()),
        }
    }

    pub fn book(&mut self, asked: &[u64], wait: u64, lease: u64, often: usize) {
        self.seen.push(format!(
            "{}: book {asked:?} within {wait}, lease {lease}",
            self.raw
        ));
        let (holds, weights) = (self.holds, Run::weights(asked));
        let ids: Vec<Id> = (0..often)
            .map(|_| Id(u128::from(self.random.next()) + 1))
            .collect();
        let ask = |batch: &mut Batch| {
            for id in &ids {
                match holds {
                    true => batch.acquire(*id, Some(Span::ZERO), (Span(lease), false), &weights),
                    false => batch.book((wait < u64::MAX).then_some(Span(wait)), &weights),
                }
            }
        };
        let model = |model: &mut Model, now| -> Vec<(Told, Option<usize>)> {
            (0..often)
                .map(|_| model.book(now, asked, wait, lease))
                .collect()
        };
        let (answers, by_script) = self.script(ask, model);
        let request = Run::request(asked, wait, lease);
        for (n, answer) in answers.iter().enumerate() {
            let (told, number) = by_script[n];
            self.check_script(told, number.is_some(), answer);
            self.check_fence(1, holds && number.is_some(), answer.fence);
            let now = self.memory_now();
            let found = match (holds, wait) {
                (true, _) => self.memory.try_one(&self.named, &request),
                (_, 0) => self.memory.acquire_blocking(&self.named, &request),
                _ => self.memory.pace(&self.named, &request),
            };
            let (told, of_memory) = self.by_memory.book(now, asked, wait, lease);
            self.check_memory(told, now, of_memory.is_some(), found);
            // In Redis also a permit that takes nothing of the semaphore is one of those on it.
            let held = of_memory.is_some_and(|number| self.by_memory.holds(number));
            self.check_fence(0, held, found.fence);
            self.decisions += 1;
            // Where one clock was set back, one may take what the other does not.
            if let (Some(script), Some(memory)) = (number, of_memory) {
                self.made.push(Both {
                    held: self.by_memory.holds(memory),
                    memory: (memory, found.permit),
                    script: (script, answer.booking.clone(), ids[n]),
                    settled: false,
                    over: false,
                });
            }
        }
    }

    pub fn peek(&mut self, asked: &[u64]) {
        self.seen.push(format!("{}: peek {asked:?}", self.raw));
        let weights = Run::weights(asked);
        let ask = |batch: &mut Batch| batch.peek(&weights);
        let (answers, told) = self.script(ask, |model, now| model.peek(now, asked));
        self.check_script(told, false, &answers[0]);
        let now = self.memory_now();
        let found = self
            .memory
            .peek(&self.named, &Run::request(asked, 0, LEASE));
        let told = self.by_memory.peek(now, asked);
        self.check_memory(told, now, false, found);
        self.decisions += 1;
    }

    /// One of the latest, for which that holds.
    fn one_of(&mut self, fits: impl Fn(&Both) -> bool) -> Option<usize> {
        let latest = self.made.len().saturating_sub(12);
        let fitting: Vec<usize> = (latest..self.made.len())
            .filter(|n| fits(&self.made[*n]))
            .collect();
        match fitting.len() {
            0 => None,
            count => Some(fitting[self.random.below(count as u64) as usize]),
        }
    }

    pub fn settle(&mut self, actual: u64) {
        let Some(n) = self.one_of(|both| !both.settled && !both.over) else {
            return;
        };
        self.seen
            .push(format!("{}: settle {n} to {actual}", self.raw));
        let both = &mut self.made[n];
        both.settled = true;
        let both_held = both.held;
        let ((memory, permit), (script, text, _)) = (both.memory, both.script.clone());
        let now = self.memory_now();
        let held = !both_held || self.by_memory.is_held(memory, now);
        let ended = self.memory.settle(permit, actual);
        assert_eq!(ended == Ended::Ok, held, "{ended:?} {}", self.story());
        if held {
            self.by_memory.settle(memory, now, actual);
        }
        // A client asks for what it still holds only.
        let there = self.script_now();
        if !both_held || self.by_script.is_held(script, there) {
            let (answers, told) = self.script(
                |batch| batch.settle(&text, actual),
                |model, now| {
                    model.settle(script, now, actual);
                    model.look(now, Status::Done)
                },
            );
            let found = Answer {
                booking: Taken::default(),
                ..answers[0].clone()
            };
            self.check_script(told, false, &found);
        }
        self.decisions += 1;
    }

    pub fn unbook(&mut self) {
        let Some(n) = self.one_of(|both| !both.settled && !both.over) else {
            return;
        };
        let ((memory, permit), (script, text, _)) =
            (self.made[n].memory, self.made[n].script.clone());
        let now = self.memory_now();
        let there = self.script_now();
        if !self.by_memory.can_unbook(memory, now) || !self.by_script.can_unbook(script, there) {
            return;
        }
        self.seen.push(format!("{}: unbook {n}", self.raw));
        self.made[n].over = true;
        let due = self.by_memory.unbook(memory, now) == Status::Stale;
        let ended = self.memory.release(permit);
        assert!(due || ended == Ended::Ok, "{ended:?} {}", self.story());
        let (answers, told) = self.script(
            |batch| batch.unbook(&text),
            |model, now| {
                let status = model.unbook(script, now);
                model.look(now, status)
            },
        );
        self.check_script(told, false, &answers[0]);
        self.decisions += 1;
    }

    /// Gives back what is held, or makes it last longer.
    pub fn leave(&mut self, renew: Option<u64>) {
        let Some(n) = self.one_of(|both| both.held && !both.over) else {
            return;
        };
        self.seen
            .push(format!("{}: leave {n}, {renew:?}", self.raw));
        let ((memory, permit), (script, _, id)) =
            (self.made[n].memory, self.made[n].script.clone());
        self.made[n].over = renew.is_none();
        let now = self.memory_now();
        let (ended, held) = match renew {
            None => (self.memory.release(permit), self.by_memory.release(memory)),
            Some(lease) => (
                self.memory.renew(permit, Some(Span(lease))),
                self.by_memory.renew(memory, now, lease),
            ),
        };
        assert_eq!(ended == Ended::Ok, held, "{ended:?} {}", self.story());
        let ask = |batch: &mut Batch| match renew {
            None => batch.release(id, None),
            Some(lease) => batch.renew(id, (Span(lease), false), Era(7), &Weights::One(0)),
        };
        let (answers, held) = self.script(ask, |model, now| match renew {
            None => model.release(script),
            // Its end comes no earlier than it was: who holds it lets go by himself.
            Some(lease) => model.renew(script, now, lease.max(model.left(script, now))),
        });
        let done = answers[0].outcome == Outcome::Done;
        assert_eq!(done, held, "{:?} {}", answers[0], self.story());
        self.decisions += 1;
    }

    pub fn whole(&mut self, penalty: Option<u64>) {
        self.seen.push(format!("{}: whole {penalty:?}", self.raw));
        let now = self.memory_now();
        let act = |model: &mut Model, now| match penalty {
            Some(span) => model.penalize(now, span),
            None => model.reset(now),
        };
        act(&mut self.by_memory, now);
        let ended = match penalty {
            Some(span) => self.memory.penalize(&self.named, b"k", Span(span)),
            None => self.memory.reset(&self.named, b"k"),
        };
        assert_eq!(ended, Ended::Ok);
        let ask = |batch: &mut Batch| match penalty {
            Some(span) => batch.penalize(Span(span)),
            None => batch.reset(),
        };
        let (answers, told) = self.script(ask, |model, now| {
            act(model, now);
            model.look(now, Status::Done)
        });
        let told = Told {
            // A penalty tells until when it holds.
            at: if penalty.is_some() {
                answers[0].at.0
            } else {
                told.at
            },
            ..told
        };
        self.check_script(told, false, &answers[0]);
        if penalty.is_none() {
            self.made.clear();
        }
        self.decisions += 1;
    }
}
