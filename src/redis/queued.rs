//! Waits for a semaphore: asked for by an id, in Redis's queue until they are granted, and asked for
//! again as long as they wait. An id that is given up while a request for it may be under way is kept
//! out.
use std::sync::Arc;

use super::flight::Trip;
use super::held::Terms;
use super::lines::{Heard, Then};
use super::link::{Failure, Silence};
use super::ops::{Stage, numbers, refusal};
use super::question::Op;
use super::wire::{Answer, Id, Outcome};
use super::{Key, Rule, Scene};
use crate::config::FailurePolicy;
use crate::decision::{Decision, Status};
use crate::limit::decide::Limits;
use crate::limit::rule::{Kind, Limit};
use crate::limit::time::{Span, Time};
use crate::limit::weights::Weights;

/// How long after its deadline a wait may still hear that it was granted just before.
const LAST_WORD: Span = Span::millis(30);
/// So many permits go back at most before it is tried again whether the first wait is the next.
const AHEAD: u64 = 16;

/// What a wait for a semaphore has besides.
pub(super) struct Hold {
    /// What it is asked for by. A new one if the last one came to nothing.
    pub id: Id,
    pub terms: Terms,
    /// When it was asked for last.
    pub asked: Time,
    /// A note of it came while a question was under way.
    noted: bool,
    /// What was answered last.
    heard: Option<Answer>,
    /// The permit it gets when its time has come.
    pub held: Option<u64>,
}

impl Hold {
    pub fn new(id: Id, terms: Terms) -> Hold {
        Hold {
            id,
            terms,
            asked: Time(0),
            noted: false,
            heard: None,
            held: None,
        }
    }
}

/// How long things live on a limiter's keys with a semaphore.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    /// A permit, unless it asks for another lease.
    pub lease: Span,
    /// What Redis gives a lease on top, for a clock that steps forward.
    pub allowance: Span,
    /// A grant out of the queue that was not asked for.
    pub claim: Span,
    /// A wait that is not asked for again.
    pub wait: Span,
    /// Between two looks at the head of the queue.
    pub beat: Span,
    /// How much of a lease is left in Redis when it ends here: in thousandths, and besides.
    early: (u64, Span),
}

impl Life {
    /// Where all go by one clock, a lease ends everywhere at once.
    pub fn of_one_clock(lease: Span) -> Life {
        Life {
            allowance: Span::ZERO,
            early: (0, Span::ZERO),
            ..Life::new(lease)
        }
    }

    /// How long a lease lasts here: a little less than in Redis, which counts it from later on and whose
    /// clock may be faster.
    pub fn lasts(&self, lease: Span, renewed: bool) -> Span {
        let (thousandths, besides) = self.early;
        let lease = self.asked(lease, renewed);
        Span((lease.0 - lease.0 / 1000 * thousandths).saturating_sub(besides.0))
    }

    /// What Redis is asked for. It gives an allowance on top, so that a renewed lease is less by that:
    /// what a killed process held is back within its lease. Where that would take too much, by a fifth.
    pub fn asked(&self, lease: Span, renewed: bool) -> Span {
        match renewed {
            true => Span(lease.0 - self.allowance.0.min(lease.0 / 5)),
            false => lease,
        }
    }

    pub fn new(lease: Span) -> Life {
        // Both together are no longer than a lease: a wait of a process that is gone may be granted last.
        let wait = Span(lease.0 / 2).clamp(Span::millis(500), Span::secs(2));
        Life {
            lease,
            allowance: Span::millis(350).max(Span(lease.0 / 20)),
            claim: wait,
            wait,
            beat: Span(wait.0 / 4),
            early: (10, Span::millis(1)),
        }
    }
}

/// Something of a semaphore is asked for.
pub(super) fn holds(limits: &Limits, weights: &Weights) -> bool {
    let takes = |(i, limit): (usize, &Limit)| {
        limit.rule.kind() == Kind::Semaphore && weights.of(limit, i) > 0
    };
    limits.limits().iter().enumerate().any(takes)
}

impl Scene<'_> {
    /// The question for a wait's permit.
    pub fn question(&mut self, serial: u64, deadline: Option<Time>) -> (Arc<Key>, Op, Id) {
        let now = self.now;
        let wait = self.shard.waits.get_mut(&serial).expect("it waits");
        let hold = wait.hold.as_mut().expect("it waits for a semaphore");
        hold.asked = now;
        hold.noted = false;
        hold.terms = hold.terms.under(&wait.key.named.current());
        let op = Op::Acquire {
            id: hold.id,
            deadline,
            lease: hold.terms.asked,
            renewed: hold.terms.renew,
            weights: wait.weights.clone(),
        };
        let (key, id) = (wait.key.clone(), hold.id);
        self.shard.open.begin(id);
        (key, op, id)
    }

    /// Asks for a wait again, at once.
    pub fn ask_again(&mut self, serial: u64) {
        if !self.redis.keeps(Rule::OneId) {
            return self.anew(serial);
        }
        let deadline = self.shard.waits[&serial].deadline;
        let (key, op, id) = self.question(serial, deadline);
        self.urge(&key, vec![op], Then::Hold(serial, id));
    }

    /// With a permit that goes back, the first wait of this process is asked for in the same call: it is
    /// likely to get it. Not where others come before: then a note tells. Nor where several may hold: then
    /// the grants of others may be on their way by notes, and would be heard of after a later one.
    pub fn ask_next(&mut self, key: &Arc<Key>) {
        let line = self.line(key);
        if line.ahead > 0 {
            line.ahead -= 1;
            return;
        }
        let Some(&serial) = line.queued.first().filter(|_| key.named.is_lock()) else {
            return;
        };
        let wait = &self.shard.waits[&serial];
        let id = self.hold_of(serial).id;
        if matches!(wait.stage, Stage::Queued)
            && !self.shard.open.under_way(id)
            && Arc::ptr_eq(&wait.key.named, &key.named)
        {
            let (key, op, id) = self.question(serial, wait.deadline);
            self.enqueue_next(&key, vec![op], Then::Hold(serial, id));
        }
    }

    /// As long as a request for this id may be under way, it is to be kept out for so long.
    pub fn dead(&self, id: Id) -> Option<Span> {
        let timeout = self.redis.options.config.command_timeout;
        let open = self.shard.open.has(id, self.now);
        // More than twice the longest time for which a request may be run from now on.
        let open = open && self.redis.keeps(Rule::KeepsOut);
        open.then_some(Span(2 * timeout.0) + Span::secs(1))
    }

    /// Ends a wait in Redis, and what may have been granted to it.
    pub fn say_cancel(&mut self, key: &Arc<Key>, id: Id, until: Time) {
        if !self.redis.keeps(Rule::Cancels) {
            return;
        }
        let op = Op::Cancel(id, self.dead(id));
        self.enqueue(key, vec![op], Then::End(until));
    }

    /// A wait's permit was asked for.
    pub fn hears(&mut self, serial: u64, id: Id, trip: &Trip, heard: Result<Answer, Failure>) {
        if let Some(heard) = self.of_wait(serial, id, trip, heard) {
            match heard {
                Ok(answer) => self.takes(serial, trip, answer),
                Err(failure) => self.misses(serial, &failure),
            }
        }
    }

    /// Takes note that a request has ended. What it says concerns only a wait that still goes by its id
    /// and was not granted meanwhile.
    fn of_wait<T>(
        &mut self,
        serial: u64,
        id: Id,
        trip: &Trip,
        heard: Result<T, Failure>,
    ) -> Option<Result<T, Failure>> {
        self.ended(id, trip, &heard);
        let wait = self.shard.waits.get(&serial)?;
        let hold = wait.hold.as_ref()?;
        (hold.id == id && hold.held.is_none()).then_some(heard)
    }

    /// A request for an id has ended.
    pub fn ended<T>(&mut self, id: Id, trip: &Trip, heard: &Result<T, Failure>) {
        let slack = self.redis.options.config.command_timeout;
        self.shard.open.end(id, trip, heard, slack, self.now);
    }

    fn takes(&mut self, serial: u64, trip: &Trip, answer: Answer) {
        match answer.outcome {
            Outcome::Done => self.granted(serial, trip, answer),
            Outcome::Queued => self.is_queued(serial, answer),
            Outcome::Denied | Outcome::Never => self.refuse(serial, refusal(&answer)),
            // An id is used once, so somebody meddles.
            Outcome::Stale | Outcome::Dead | Outcome::Returned => self.anew(serial),
        }
    }

    fn granted(&mut self, serial: u64, trip: &Trip, answer: Answer) {
        if answer.booking.is_empty() {
            return self.grant(serial, answer);
        }
        if self.counts_from(trip) + self.hold_of(serial).terms.lasts <= self.now {
            // The lease was over before the answer came.
            if matches!(self.shard.waits[&serial].stage, Stage::Asked) {
                return self.fail(serial, &Failure::Ambiguous(Silence::Timeout));
            }
            self.give_up_id(serial);
            return self.anew(serial);
        }
        let key = self.shard.waits[&serial].key.clone();
        self.line(&key).ahead = 0;
        let permit = self.hold(serial, trip, &answer);
        self.hold_mut(serial).held = Some(permit);
        if answer.retry_after > Span::ZERO {
            self.book(serial, trip, answer);
        } else {
            self.grant(serial, answer);
        }
    }

    fn is_queued(&mut self, serial: u64, answer: Answer) {
        let key = self.shard.waits[&serial].key.clone();
        let line = self.line(&key);
        if line.queued.first().is_none_or(|first| *first >= serial) {
            line.ahead = answer.position.min(AHEAD);
        }
        let more = answer.retry_after > Span::ZERO;
        self.hold_mut(serial).heard = Some(answer);
        let wait = self.shard.waits.get_mut(&serial).expect("it waits");
        if matches!(wait.stage, Stage::Asked) {
            self.queue(serial);
        }
        let id = self.hold_of(serial).id;
        // There is more to be ended than one call does, and this may be granted then.
        let at_once = self.hold_of(serial).noted || more;
        if at_once && !self.shard.open.under_way(id) {
            self.ask_again(serial);
        }
    }

    /// From now on a wait is asked for by the heartbeat.
    fn queue(&mut self, serial: u64) {
        let wait = self.shard.waits.get_mut(&serial).expect("it waits");
        wait.stage = Stage::Queued;
        wait.waited = true;
        let (key, deadline) = (wait.key.clone(), wait.deadline);
        self.line(&key).queued.insert(serial);
        self.arm(serial, deadline);
        let beat = self.now + self.redis.dice.about(key.named.life().beat);
        let next = self.shard.queues.set_by(&key, beat);
        self.beat_by(next);
        self.listen = true;
    }

    /// No answer.
    fn misses(&mut self, serial: u64, failure: &Failure) {
        let asked = matches!(self.shard.waits[&serial].stage, Stage::Asked);
        let final_word = matches!(
            failure,
            Failure::WrongType { .. } | Failure::Permanent { .. }
        );
        // In the queue it is asked for again, unless somebody else can answer while Redis is away.
        let named = &self.shard.waits[&serial].key.named;
        let here = failure.not_executed() && self.redis.policy(named) == FailurePolicy::Local;
        if asked || final_word || here {
            self.fail(serial, failure);
        }
    }

    /// Gives a wait's id up, if anything may be known under it.
    pub fn give_up_id(&mut self, serial: u64) {
        let wait = &self.shard.waits[&serial];
        let Some(hold) = &wait.hold else { return };
        let (key, id, lease) = (wait.key.clone(), hold.id, hold.terms.lease);
        let until = self.now + lease + key.named.life().allowance;
        self.say_cancel(&key, id, until);
    }

    /// Redis has ended a wait without a permit.
    fn refuse(&mut self, serial: u64, decision: Decision) {
        let id = self.hold_of(serial).id;
        if self.shard.open.has(id, self.now) {
            // Another request may be under way, which would begin it again.
            self.give_up_id(serial);
        }
        self.deny(serial, decision);
    }

    fn deny(&mut self, serial: u64, decision: Decision) {
        let wait = &self.shard.waits[&serial];
        let waited = match wait.waited {
            true => self.now.since(wait.since),
            false => Span::ZERO,
        };
        self.count_refusal(decision.status);
        let decision = Decision {
            waited_us: waited.0,
            ..decision
        };
        // Nothing is lost if nobody hears of it.
        let _ = self.complete(serial, decision);
    }

    /// A wait whose id came to nothing asks under another one.
    pub fn anew(&mut self, serial: u64) {
        if self.shard.open.has(self.hold_of(serial).id, self.now) {
            self.give_up_id(serial);
        }
        let id = self.redis.dice.id(self.index);
        let hold = self.hold_mut(serial);
        let old = std::mem::replace(&mut hold.id, id);
        hold.held = None;
        self.shard.ids.remove(&old);
        self.shard.ids.insert(id, serial);
        self.is_booked_no_more(serial);
        self.queue(serial);
        // After what ends the old one.
        let deadline = self.shard.waits[&serial].deadline;
        let (key, op, id) = self.question(serial, deadline);
        self.enqueue(&key, vec![op], Then::Hold(serial, id));
    }

    fn is_booked_no_more(&mut self, serial: u64) {
        let wait = self.shard.waits.get_mut(&serial).expect("it waits");
        wait.held_back = false;
        let key = wait.key.clone();
        let line = self.line(&key);
        line.booked.remove(&serial);
        line.moving.remove(&serial);
    }

    /// A reset has put a booked wait back to where it was in the queue, or has booked it anew: it is asked for
    /// again, by the same id.
    pub fn requeue(&mut self, serial: u64) {
        if let Some(permit) = self.hold_mut(serial).held.take() {
            self.unhold(permit);
        }
        self.is_booked_no_more(serial);
        self.queue(serial);
        self.ask_again(serial);
    }

    /// The deadline of a queued wait has come: it is asked for once more, in case that it was granted just
    /// now, and why not. If nothing is heard soon, it is over without.
    pub fn last_word(&mut self, serial: u64) {
        let wait = self.shard.waits.get_mut(&serial).expect("it waits");
        if matches!(wait.stage, Stage::Last) {
            self.give_up_id(serial);
            return self.ends_unheard(serial);
        }
        wait.stage = Stage::Last;
        let now = self.now;
        self.arm(serial, Some(now + LAST_WORD));
        let (key, op, id) = self.question(serial, Some(now));
        let why = Op::Peek(self.shard.waits[&serial].weights.clone());
        self.urge(&key, vec![op, why], Then::Last(serial, id));
    }

    fn ends_unheard(&mut self, serial: u64) {
        let heard = self.hold_mut(serial).heard.take();
        let denied = Decision::of(Status::Denied);
        let decision = heard.map_or(denied, |answer| numbers(&answer, Status::Denied));
        // Nobody says when, and that is a lease as everywhere.
        let retry_after_us = self.hold_of(serial).terms.lease.0;
        self.deny(
            serial,
            Decision {
                retry_after_us,
                ..decision
            },
        );
    }

    /// The deadline of a booked wait has come, and its new time is not known.
    pub fn ends_booked(&mut self, serial: u64) {
        let key = self.shard.waits[&serial].key.clone();
        match self.hold_mut(serial).held.take() {
            Some(permit) => {
                let held = self.unhold(permit);
                self.say_cancel(&key, held.id, held.ends);
            }
            None => self.give_up_id(serial),
        }
        self.ends_unheard(serial);
    }

    pub fn hears_last(&mut self, serial: u64, id: Id, trip: &Trip, heard: Heard) {
        let Some(heard) = self.of_wait(serial, id, trip, heard) else {
            return;
        };
        match heard.as_deref() {
            Ok([answer, why]) if answer.outcome == Outcome::Queued => {
                let mut why = refusal(why);
                // It might pass now that nobody is before it.
                why.status = Status::Denied;
                why.retry_after_us = why.retry_after_us.max(1);
                self.give_up_id(serial);
                self.deny(serial, why);
            }
            Ok([answer, _]) => self.takes(serial, trip, answer.clone()),
            // It ends without, in a moment.
            _ => {}
        }
    }

    /// A key was changed as a whole: what is booked there is asked for anew.
    pub fn changed(&mut self, key: &Arc<Key>, change: &Op, trip: &Trip, answer: &Answer) {
        match change {
            Op::Reset => {
                self.shard.recent.forget(|spent| spent.key == *key);
                self.end_held(key, trip);
                self.was_reset(key, answer.fence);
            }
            Op::Penalize(_) => self.put_off(key, answer.at),
            _ => unreachable!("they change no more than their own"),
        }
    }

    /// A note: whatever it says, Redis is asked.
    pub fn noted(&mut self, id: Id) {
        let Some(&serial) = self.shard.ids.get(&id) else {
            return;
        };
        let hold = self.hold_mut(serial);
        if hold.held.is_some() {
            return;
        }
        hold.noted = true;
        let queued = matches!(self.shard.waits[&serial].stage, Stage::Queued);
        if queued && !self.shard.open.under_way(id) {
            self.ask_again(serial);
        }
    }

    pub fn hold_of(&self, serial: u64) -> &Hold {
        let wait = &self.shard.waits[&serial];
        wait.hold.as_ref().expect("it waits for a semaphore")
    }

    fn hold_mut(&mut self, serial: u64) -> &mut Hold {
        let wait = self.shard.waits.get_mut(&serial).expect("it waits");
        wait.hold.as_mut().expect("it waits for a semaphore")
    }
}
