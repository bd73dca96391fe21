//! What can be asked: the same verbs as of the embedded backend.
use std::sync::Arc;
use std::time::Duration;

use super::held::Terms;
use super::lines::{Slot, Then};
use super::link::{Failure, Silence};
use super::ops::{Stage, Wait, numbers, refusal};
use super::policy;
use super::question::Op;
use super::queued::Hold;
use super::wire::{Answer, Outcome};
use super::{Key, Named, Redis};
use crate::config::{FailurePolicy, Level};
use crate::decision::{Decision, Status};
use crate::limit::time::Span;
use crate::limit::weights::Weights;
use crate::op::{self, Parker, Request, Sink};

impl Redis {
    /// Takes from all limits or from none. PENDING with `op` set: the sink gets the one completion.
    pub fn acquire(&self, named: &Arc<Named>, request: &Request, sink: Sink) -> Decision {
        match self.begin(named, request, sink) {
            Err(refusal) => refusal,
            Ok((op, ahead)) => Decision {
                op,
                queue_position: ahead.try_into().unwrap_or(u32::MAX),
                ..refused(request, Status::Pending)
            },
        }
    }

    /// [`Redis::acquire`], with the calling thread waiting for the answer.
    pub fn acquire_blocking(&self, named: &Arc<Named>, request: &Request) -> Decision {
        let parker = Arc::<Parker>::default();
        match self.begin(named, request, Sink::Thread(parker.clone())) {
            Err(refusal) => refusal,
            Ok((op, _)) => self.park(&parker, op),
        }
    }

    /// The operation, and how many of this process are booked before it. Or the answer, if there is no need
    /// for an operation.
    fn begin(
        &self,
        named: &Arc<Named>,
        request: &Request,
        sink: Sink,
    ) -> Result<(u64, usize), Decision> {
        let weights = weights(named, request).map_err(|status| refused(request, status))?;
        let known = self.denied(named, request, &weights);
        match known.or_else(|| self.admitted_here(named, request, &weights)) {
            Some(known) => Err(known),
            None => self
                .begin_anew(named, request, weights, sink)
                .map_err(|status| refused(request, status)),
        }
    }

    fn begin_anew(
        &self,
        named: &Arc<Named>,
        request: &Request,
        weights: Weights,
        sink: Sink,
    ) -> Result<(u64, usize), Status> {
        let untaken = match &sink {
            Sink::Callback(_) => {
                self.callbacks.ready()?;
                self.callbacks.completions()
            }
            Sink::Queue(queue) => queue.completions(),
            Sink::Thread(_) | Sink::Relay(_) => 0,
        };
        if untaken >= self.options.config.max_waiting {
            self.stats.stripe(0).overloaded.add(1);
            return Err(Status::Overloaded);
        }
        // A thread waits by itself, but a lease ends by itself.
        if !matches!(sink, Sink::Thread(_)) || named.limits.holds() {
            self.timer.ready()?;
        }
        let (shard, key) = self.key(named, request.key);
        self.at(shard, |scene| {
            scene.open()?;
            let rules = named.current();
            let hold = rules
                .life
                .map(|_| Hold::new(self.dice.id(shard), Terms::new(request, &rules)));
            let wait = Wait {
                sink,
                hold,
                user_data: request.user_data,
                weights,
                since: scene.now,
                deadline: request.wait.map(|wait| scene.now + wait),
                stage: Stage::Asked,
                waited: false,
                due: None,
                held_back: false,
                key: key.clone(),
            };
            let op = scene.begin(wait, request.wait)?;
            let line = scene.line(&key);
            Ok((op, line.waits()))
        })
    }

    /// What an acquire without a wait would answer, charging nothing.
    pub fn peek(&self, named: &Arc<Named>, request: &Request) -> Decision {
        self.call(named, request, Op::Peek, Calls::Peek)
    }

    /// Books the next time at which the weight may start: `retry_after_us` from now, at most the request's
    /// wait. Releasing the permit before its time cancels the booking.
    pub fn pace(&self, named: &Arc<Named>, request: &Request) -> Decision {
        if named.limits.holds() {
            return refused(request, Status::Invalid);
        }
        let wait = request.wait;
        self.call(
            named,
            request,
            |weights| Op::Book {
                wait,
                deadline: None,
                weights,
                patient: false,
            },
            Calls::Pace,
        )
    }

    fn call(
        &self,
        named: &Arc<Named>,
        request: &Request,
        op: impl FnOnce(Weights) -> Op,
        kind: Calls,
    ) -> Decision {
        match self.begin_call(named, request, op) {
            Err(status) => refused(request, status),
            Ok((shard, key, slot)) => {
                let heard = self.one(&slot);
                self.end_call(shard, &key, request, heard, kind)
            }
        }
    }

    fn begin_call(
        &self,
        named: &Arc<Named>,
        request: &Request,
        op: impl FnOnce(Weights) -> Op,
    ) -> Result<(usize, Arc<Key>, Arc<Slot>), Status> {
        let op = op(weights(named, request)?);
        let (shard, key) = self.key(named, request.key);
        let slot = Arc::<Slot>::default();
        self.at(shard, |scene| {
            scene.open()?;
            let then = Then::Tell(slot.clone());
            scene.enqueue(&key, vec![op], then);
            Ok((shard, key.clone(), slot.clone()))
        })
    }

    /// The decision that an answer means.
    fn end_call(
        &self,
        shard: usize,
        key: &Arc<Key>,
        request: &Request,
        heard: Result<Answer, Failure>,
        kind: Calls,
    ) -> Decision {
        if let Err(failure) = &heard
            && self.policy(&key.named) == FailurePolicy::Local
        {
            return self.answer_here(&key.named, request, kind, failure);
        }
        let decision = self.at(shard, |scene| match heard {
            Err(failure) => scene.failed(&key.named, &failure, kind != Calls::Peek),
            Ok(answer) if answer.outcome == Outcome::Done => {
                let mut decision = numbers(&answer, Status::Ok);
                decision.retry_after_us = answer.retry_after.0;
                if !answer.booking.is_empty() {
                    let ahead = kind == Calls::Pace && answer.retry_after > Span::ZERO;
                    decision.permit = scene.permit(key, answer.booking, ahead);
                }
                decision
            }
            Ok(answer) => {
                let refusal = refusal(&answer);
                if kind != Calls::Peek {
                    scene.count_refusal(refusal.status);
                }
                refusal
            }
        });
        Decision {
            user_data: request.user_data,
            ..decision
        }
    }

    /// What this process answers in place of Redis.
    fn answer_here(
        &self,
        named: &Named,
        request: &Request,
        kind: Calls,
        failure: &Failure,
    ) -> Decision {
        let Ok(weights) = weights(named, request) else {
            return refused(request, Status::Invalid);
        };
        self.stats.stripe(0).backend_errors.add(1);
        self.log(
            Level::Debug,
            &format!("answered in this process: {failure}"),
        );
        let flags = policy::flags(failure, kind != Calls::Peek);
        self.ask_here(named, &weights, flags, |memory, part| match kind {
            Calls::Peek => memory.peek(part, request),
            Calls::Pace => memory.pace(part, request),
        })
    }

    /// Each request for itself, in order, without a wait. All are under way together.
    pub fn try_many(&self, named: &Arc<Named>, requests: &[Request]) -> Vec<Decision> {
        let begin = |request: &Request| {
            let parker = Arc::<Parker>::default();
            let request = Request {
                wait: Some(Span::ZERO),
                ..*request
            };
            let begun = self.begin(named, &request, Sink::Thread(parker.clone()));
            begun.map(|(op, _)| (parker, op))
        };
        let begun: Vec<_> = requests.iter().map(begin).collect();
        let end = |begun: Result<(Arc<Parker>, u64), Decision>| match begun {
            Err(refusal) => refusal,
            Ok((parker, op)) => self.park(&parker, op),
        };
        begun.into_iter().map(end).collect()
    }

    /// Makes a key as new; those of this process who wait are decided anew.
    pub fn reset(&self, named: &Arc<Named>, key: &[u8]) -> Status {
        let status = self.change(named, key, Op::Reset);
        if let Some((memory, part)) = self.part_here(named, status) {
            memory.reset(&part, key);
        }
        status
    }

    /// Lets nothing start on a key for `length`, at most the client's longest penalty. A running penalty
    /// is not shortened.
    pub fn penalize(&self, named: &Arc<Named>, key: &[u8], length: Span) -> Status {
        let length = length.min(self.options.config.max_penalty);
        let status = self.change(named, key, Op::Penalize(length));
        if let Some((memory, part)) = self.part_here(named, status) {
            memory.penalize(&part, key, length);
        }
        status
    }

    fn change(&self, named: &Arc<Named>, key: &[u8], change: Op) -> Status {
        let (shard, key) = self.key(named, key);
        let slot = Arc::<Slot>::default();
        let begun = self.at(shard, |scene| {
            scene.open()?;
            scene.void_ahead(&key);
            let then = Then::Change(slot.clone());
            scene.enqueue(&key, vec![change], then);
            Ok(())
        });
        if let Err(closed) = begun {
            return closed;
        }
        match slot.wait(self.longest()) {
            Ok(_) => Status::Ok,
            Err(failure) => {
                self.stats.stripe(shard).backend_errors.add(1);
                policy::status(&failure)
            }
        }
    }

    /// The answer to a question with one operation.
    pub(super) fn one(&self, slot: &Slot) -> Result<Answer, Failure> {
        let mut answers = slot.wait(self.longest())?;
        answers.pop().ok_or(Failure::Ambiguous(Silence::Dropped))
    }

    /// Every call ends by its deadline; this is for the case that the thread that sees to it died.
    fn longest(&self) -> Duration {
        self.command_timeout * 3 + Duration::from_secs(2)
    }
}

/// What a call wants, other than an operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Calls {
    Peek,
    Pace,
}

/// The weights of a request, if there is one for each limit or one for all.
fn weights(named: &Named, request: &Request) -> Result<Weights, Status> {
    match request.weights {
        op::Weights::Same(weight) => Ok(Weights::One(weight)),
        op::Weights::Each(each) if each.len() == named.limits.limits().len() => {
            Ok(Weights::Each(each.into()))
        }
        op::Weights::Each(_) => Err(Status::Invalid),
    }
}

/// An answer without numbers.
fn refused(request: &Request, status: Status) -> Decision {
    Decision {
        user_data: request.user_data,
        ..Decision::of(status)
    }
}
