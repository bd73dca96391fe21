//! The decision on one request: granted, denied, or to wait.
use std::sync::Arc;

use super::held::Terms;
use super::keys::{Key, Keys};
use super::names::{KeyId, Named};
use super::scene::Scene;
use super::wait::{Stage, Wait};
use super::{Memory, refused};
use crate::decision::{Decision, Status};
use crate::limit::decide::{Outcome, Verdict};
use crate::limit::key::KeyState;
use crate::limit::time::{Span, Time};
use crate::limit::weights::Weights;
use crate::op::{self, Parker, Request, Sink, Tell};

/// Who asks, and what happens if the answer is not at hand.
pub(super) enum Asker<'a> {
    /// Only wants to know; nothing is charged.
    Peek,
    /// Does not wait.
    Try,
    /// Wants a time booked, and waits for it by itself.
    Pace,
    /// A thread that would wait; its parker is made when it has to.
    Thread(&'a mut Option<Arc<Parker>>),
    Sink(Sink),
}

impl Memory {
    #[inline(always)]
    pub(super) fn ask(&self, named: &Arc<Named>, request: &Request, asker: Asker) -> Decision {
        let id = named.key(request.key);
        match self.ask_plain(named, id, request, &asker) {
            Some(decision) => decision,
            None => self.ask_any(named, id, request, asker),
        }
    }

    #[inline(never)]
    fn ask_any(
        &self,
        named: &Arc<Named>,
        id: KeyId,
        request: &Request,
        mut asker: Asker,
    ) -> Decision {
        let weights = match request.weights {
            op::Weights::Same(weight) => Weights::One(weight),
            op::Weights::Each(each) if each.len() == named.limits.limits().len() => {
                Weights::Each(each.into())
            }
            op::Weights::Each(_) => return refused(request, Status::Invalid),
        };
        let mut again = false;
        loop {
            let answer = self.at(id.shard(), |keys, scene| {
                scene.ask(keys, named, id, request, &weights, &mut asker, again)
            });
            // Without one, the key was brought up to date meanwhile.
            if let Some(decision) = answer {
                return decision;
            }
            again = true;
        }
    }
}

impl Asker<'_> {
    /// How long the answer may lie ahead; `None`: without limit.
    pub fn patience(&self, request: &Request) -> Option<Span> {
        match self {
            Asker::Peek | Asker::Try => Some(Span::ZERO),
            Asker::Pace | Asker::Thread(_) | Asker::Sink(_) => request.wait,
        }
    }

    fn into_sink(self) -> Sink {
        match self {
            Asker::Thread(parker) => Sink::Thread(parker.insert(Arc::default()).clone()),
            Asker::Sink(sink) => sink,
            Asker::Peek | Asker::Try | Asker::Pace => unreachable!("they have no patience"),
        }
    }
}

impl Scene<'_> {
    /// `again`: the key was brought up to date for this very question.
    #[expect(clippy::too_many_arguments, reason = "one call, from one place")]
    fn ask(
        &mut self,
        keys: &mut Keys,
        named: &Arc<Named>,
        id: KeyId,
        request: &Request,
        weights: &Weights,
        asker: &mut Asker,
        again: bool,
    ) -> Option<Decision> {
        if let Err(status) = self.open() {
            return Some(refused(request, status));
        }
        #[cfg(test)]
        assert!(request.key != b"a bug", "asked for by a test");
        let peeks = matches!(asker, Asker::Peek);
        let decision = match keys.find(id, &self.memory.names) {
            // A look does not begin the filling of what starts empty.
            Some(key) if !(peeks && key.begins_anew(self.now)) => {
                self.refresh(key, named);
                if !again && key.is_dated() && !self.joins(key, request, weights, asker) {
                    self.redraw(key, false, true);
                    self.serve(key);
                }
                if self.is_behind(key) {
                    return None;
                }
                self.decide(key, request, weights, asker)
            }
            _ => {
                let mut key = Key::fresh(id, named.current(), self.now);
                let keep = key.named.limits.starts_empty() && !peeks;
                let decision = self.decide(&mut key, request, weights, asker);
                if keep || decision.permit != 0 || key.live.is_some() {
                    self.insert(keys, key);
                }
                decision
            }
        };
        let decision = Decision {
            user_data: request.user_data,
            ..decision
        };
        Some(self.hear(decision, std::mem::replace(asker, Asker::Try)))
    }

    /// Brings a key up to the present: leases that are over, limits that have changed.
    pub fn refresh(&mut self, key: &mut Key, named: &Arc<Named>) {
        self.serve(key);
        key.forget(self.now);
        let expired = self.expire(key);
        let changed = self.adopt(key, named);
        if self.end_hopeless(key) || changed || expired {
            self.pump(key);
        }
    }

    /// Brings a key under the newest limits. True if they are others; then the caller pumps.
    pub fn adopt(&mut self, key: &mut Key, named: &Arc<Named>) -> bool {
        if key.named.is_newest() {
            return false;
        }
        let newest = named.current();
        if newest.rank() <= key.named.rank() {
            return false;
        }
        self.serve(key);
        key.reconfigure(&newest.limits, self.now);
        key.named = newest;
        self.draw(key);
        if let Some(live) = &mut key.live {
            live.doubted = Some(0);
        }
        true
    }

    /// A callback hears of its answer even if that was at hand.
    fn hear(&mut self, decision: Decision, asker: Asker) -> Decision {
        let answered = matches!(decision.status, Status::Ok | Status::Denied | Status::Never);
        match asker {
            Asker::Sink(sink @ Sink::Callback(_)) if answered => {
                let (op, user_data) = (self.memory.next_op(self.book.index).0, decision.user_data);
                let taken = self.deliver(sink, Decision { op, ..decision });
                assert!(taken, "callbacks take everything");
                Decision {
                    op,
                    user_data,
                    ..Decision::of(Status::Pending)
                }
            }
            _ => decision,
        }
    }

    fn decide(
        &mut self,
        key: &mut Key,
        request: &Request,
        weights: &Weights,
        asker: &mut Asker,
    ) -> Decision {
        if weights.is_zero() {
            return self.numbers(key, Status::Ok, None);
        }
        let verdict = self.verdict(key, weights);
        let limit = asker.patience(request).map(|patience| self.now + patience);
        let in_time = |at: Time| limit.is_none_or(|limit| at <= limit);
        match (verdict.outcome, &asker) {
            // Their time has come, but those at their head are about to end with others.
            (Outcome::Admit, Asker::Thread(_) | Asker::Sink(_))
                if key.has_line() && limit != Some(self.now) =>
            {
                self.wait(key, request, weights, Some(self.now), asker)
            }
            (Outcome::Admit, _) if key.has_line() && !matches!(asker, Asker::Pace) => {
                self.refuse(key, weights, verdict, asker)
            }
            (Outcome::Admit, Asker::Peek) => self.numbers(key, Status::Ok, None),
            (Outcome::Admit, _) => self.grant(key, request, weights, self.now, asker),
            (Outcome::Later(at), Asker::Pace) if in_time(at) => {
                self.grant(key, request, weights, at, asker)
            }
            (Outcome::Later(at), _) if in_time(at) => {
                self.wait(key, request, weights, Some(at), asker)
            }
            (Outcome::Release, _)
                if limit != Some(self.now) && in_time(self.soonest(key, weights)) =>
            {
                self.wait(key, request, weights, None, asker)
            }
            _ => self.refuse(key, weights, verdict, asker),
        }
    }

    /// Counted, unless it was only a look.
    fn refuse(&self, key: &Key, weights: &Weights, verdict: Verdict, asker: &Asker) -> Decision {
        let refusal = self.refusal(key, weights, verdict);
        if !matches!(asker, Asker::Peek) {
            self.count_refusal(refusal.status);
        }
        refusal
    }

    /// It joins the line whatever the outlook might become.
    fn joins(&self, key: &Key, request: &Request, weights: &Weights, asker: &Asker) -> bool {
        let patience = match asker {
            Asker::Thread(_) | Asker::Sink(_) => asker.patience(request),
            _ => return false,
        };
        match self.verdict(key, weights).outcome {
            Outcome::Later(at) => patience.is_none_or(|patience| at <= self.now + patience),
            _ => false,
        }
    }

    /// Takes what was asked for from `at` on.
    fn grant(
        &mut self,
        key: &mut Key,
        request: &Request,
        weights: &Weights,
        at: Time,
        asker: &mut Asker,
    ) -> Decision {
        let terms = Terms::of(request);
        if let Err(status) = self.lease_ready(key, &terms) {
            return Decision::of(status);
        }
        if matches!(asker, Asker::Pace) && self.told_most(key) {
            self.stats.overloaded.add(1);
            return Decision::of(Status::Overloaded);
        }
        let limits = &key.named.limits;
        let take = |key: &mut KeyState| limits.commit(key, self.now, at, weights);
        let (permit, fence) = match asker {
            Asker::Pace if key.has_line() => (self.tell(key, at, weights), 0),
            Asker::Pace => {
                let booking = take(&mut key.state);
                (self.paced(key, booking), 0)
            }
            Asker::Sink(sink) => {
                let booking = take(&mut key.state);
                let tell = Tell::of(sink, 0, request.user_data);
                self.permit(key, booking, &terms, tell)
            }
            _ => {
                let booking = take(&mut key.state);
                self.permit(key, booking, &terms, None)
            }
        };
        self.stats.granted.add(1);
        Decision {
            permit,
            fence,
            retry_after_us: at.since(self.now).0,
            ..self.numbers(key, Status::Ok, None)
        }
    }

    /// Begins a wait: in the queue, or for a time that is booked.
    fn wait(
        &mut self,
        key: &mut Key,
        request: &Request,
        weights: &Weights,
        at: Option<Time>,
        asker: &mut Asker,
    ) -> Decision {
        let terms = Terms::of(request);
        let by_itself = matches!(asker, Asker::Thread(_));
        let ready = if by_itself {
            Ok(())
        } else {
            self.memory.timer.ready()
        };
        if let Err(status) = ready.and_then(|()| self.lease_ready(key, &terms)) {
            return Decision::of(status);
        }
        let crowded = match asker {
            Asker::Sink(Sink::Queue(queue)) => {
                queue.completions() >= self.memory.options.max_waiting
            }
            _ => false,
        };
        if crowded || !self.begin_wait() {
            self.stats.overloaded.add(1);
            return Decision::of(Status::Overloaded);
        }
        let sink = std::mem::replace(asker, Asker::Try).into_sink();
        let (op, serial) = self.memory.next_op(self.book.index);
        let wait = Wait {
            key: key.id,
            weights: weights.clone(),
            sink,
            user_data: request.user_data,
            terms,
            since: self.now,
            deadline: request.wait.map(|wait| self.now + wait),
            stage: Stage::Queued,
            due: None,
        };
        let ahead = self.enter(key, serial, wait, at);
        Decision {
            op,
            queue_position: ahead.try_into().unwrap_or(u32::MAX),
            ..Decision::of(Status::Pending)
        }
    }
}
