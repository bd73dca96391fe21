//! Permits that hold a semaphore: believed until a time that ends before Redis lets go of them.
use std::sync::Arc;

use super::flight::Trip;
use super::lines::Then;
use super::named::Rules;
use super::ops::Stage;
use super::question::Op;
use super::wire::{Answer, Era, Id, Taken};
use super::{Key, Rule, Scene};
use crate::decision::Status;
use crate::limit::time::{Span, Time};
use crate::op::{Request, Tell};
use crate::permit::Numbers;
use crate::timer::Due;

pub(super) struct Held {
    pub key: Arc<Key>,
    pub id: Id,
    pub lease: Span,
    /// In the background, as long as it is held.
    pub renew: bool,
    /// What the key's state was called when it was granted or renewed.
    pub era: Era,
    /// Until then it is believed: also where it is booked for later, a lease counts from when it was last
    /// heard of, so that what Redis forgot is believed no longer than that.
    pub deadline: Time,
    /// Redis lets go of it by then, if nothing more is said: the lease counts there from the booked time.
    pub ends: Time,
    /// It was booked for later, and not renewed since that time came.
    pub booked: bool,
    /// When the question was sent that it was granted to.
    pub since: Time,
    /// When the timer looks at it.
    pub armed: Time,
    /// When it is renewed next, if nothing is under way.
    pub renew_at: Option<Time>,
    pub booking: Taken,
    pub settled: bool,
    pub tell: Option<Tell>,
    /// The wait it will be granted to when its time has come.
    pub wait: Option<u64>,
    pub weights: crate::limit::weights::Weights,
}

/// A lease that is asked for, and how long it lasts here.
#[derive(Clone, Copy)]
pub(super) struct Lease {
    pub full: Span,
    pub lasts: Span,
}

/// How long a permit lives, and who is told if it does not live as long as it is held.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub lease: Span,
    /// What Redis is asked for, and how long that lasts here.
    pub asked: Span,
    pub lasts: Span,
    pub renew: bool,
    pub tell: bool,
    /// What its caller asked for.
    own_lease: Option<Span>,
    may_renew: bool,
}

impl Terms {
    pub fn new(request: &Request, rules: &Rules) -> Terms {
        Terms {
            lease: Span::ZERO,
            asked: Span::ZERO,
            lasts: Span::ZERO,
            renew: false,
            tell: request.tell_lost,
            own_lease: request.lease,
            may_renew: request.renew,
        }
        .under(rules)
    }

    /// A permit lives as the limits say by which it is granted.
    pub fn under(self, rules: &Rules) -> Terms {
        let life = rules.life();
        let lease = self.own_lease.unwrap_or(life.lease);
        let renew = self.may_renew && rules.renews;
        Terms {
            lease,
            asked: life.asked(lease, renew),
            lasts: life.lasts(lease, renew),
            renew,
            ..self
        }
    }
}

impl Scene<'_> {
    /// A permit for what was granted to a wait, from its time on.
    pub fn hold(&mut self, serial: u64, trip: &Trip, answer: &Answer) -> u64 {
        let op = self.number(serial);
        let wait = &self.shard.waits[&serial];
        let hold = wait.hold.as_ref().expect("it asked for a semaphore");
        let Terms {
            lease,
            lasts,
            renew,
            tell,
            ..
        } = hold.terms;
        let deadline = self.counts_from(trip) + lasts;
        let held = Held {
            key: wait.key.clone(),
            id: hold.id,
            lease,
            renew,
            era: trip.era.expect("a semaphore has one"),
            deadline,
            ends: ends(self.now, &wait.key, lease, answer),
            booked: answer.retry_after > Span::ZERO,
            since: trip.sent,
            armed: deadline,
            renew_at: None,
            booking: answer.booking.clone(),
            settled: false,
            tell: Tell::of(&wait.sink, op, wait.user_data).filter(|_| tell),
            wait: Some(serial),
            weights: wait.weights.clone(),
        };
        let permit = self.shard.next_held;
        self.shard.next_held = (permit + 1) % Numbers::PERMITS;
        let line = self.line(&held.key);
        line.held.insert(permit);
        line.era = trip.era;
        self.heeds_notes(&held.key);
        self.listen = true;
        self.shard.held.insert(permit, held);
        let due = Due::Lease(self.permit_number(permit));
        self.redis.timer.arm(deadline, due);
        // One that is booked has to be there when its time comes, renewed or not.
        self.plan(permit, trip.sent);
        permit
    }

    /// When a lease begins: Redis may have run the call as soon as it was sent.
    pub fn counts_from(&self, trip: &Trip) -> Time {
        match self.redis.keeps(Rule::FromSending) {
            true => trip.sent,
            false => self.now,
        }
    }

    fn permit_number(&self, permit: u64) -> u64 {
        self.redis.numbers.make(self.index, permit << 1 | 1)
    }

    /// The wait a permit was booked for has come to its time. Answers the permit's number; 0 if it holds
    /// nothing of a semaphore, so that nobody has to give it back.
    pub fn start(&mut self, permit: u64) -> u64 {
        let held = self.shard.held.get_mut(&permit).expect("a live permit");
        held.wait = None;
        if !held.key.named.holds(&held.weights) {
            let held = self.unhold(permit);
            self.say_release(&held);
            return self.permit(&held.key, held.booking, false);
        }
        if held.booked {
            // Its lease counts from now on.
            let now = self.now;
            self.plan_at(permit, now);
        } else if !held.renew {
            self.unplan(permit);
        }
        self.stats.granted.add(1);
        self.stats.in_flight.add(1);
        self.permit_number(permit)
    }

    /// Takes a permit out. Redis does not hear of it.
    pub fn unhold(&mut self, permit: u64) -> Held {
        self.unplan(permit);
        let held = self.shard.held.remove(&permit).expect("a live permit");
        let due = Due::Lease(self.permit_number(permit));
        self.redis.timer.disarm(held.armed, due);
        self.line(&held.key).held.remove(&permit);
        self.tidy(&held.key);
        held
    }

    /// Takes a permit out that somebody has.
    fn take(&mut self, permit: u64) -> Held {
        let held = self.unhold(permit);
        self.stats.in_flight.sub(1);
        held
    }

    /// Whether somebody has a permit. If its lease is over, the timer has not got to it yet; if it is booked,
    /// nobody was told its number, though anybody may guess it.
    pub fn holds(&mut self, permit: u64) -> bool {
        self.lease_due(permit);
        self.held(permit).is_some()
    }

    /// The permit that somebody has by this number.
    pub fn held(&mut self, permit: u64) -> Option<&mut Held> {
        let held = self.shard.held.get_mut(&permit);
        held.filter(|held| held.wait.is_none())
    }

    /// A lease may have ended.
    pub fn lease_due(&mut self, permit: u64) {
        let Some(held) = self.shard.held.get_mut(&permit) else {
            return;
        };
        if held.deadline > self.now || !self.redis.keeps(Rule::Loses) {
            self.arm_lease(permit);
            return;
        }
        // Redis would keep it for a while.
        let held = self.lose(permit);
        self.say_release(&held);
    }

    pub fn held_until(&self, permit: u64) -> Option<Time> {
        self.shard.held.get(&permit).map(|held| held.deadline)
    }

    pub fn arm_lease(&mut self, permit: u64) {
        let due = Due::Lease(self.permit_number(permit));
        let held = self.shard.held.get_mut(&permit).expect("a live permit");
        if held.armed != held.deadline {
            self.redis.timer.disarm(held.armed, due);
            self.redis.timer.arm(held.deadline, due);
            held.armed = held.deadline;
        }
    }

    /// A permit is over that was believed to be held: whoever has it is told. A wait whose time has not
    /// come asks anew.
    pub fn lose(&mut self, permit: u64) -> Held {
        let held = self.unhold(permit);
        if let Some(serial) = held.wait {
            self.anew(serial);
            return held;
        }
        self.stats.in_flight.sub(1);
        self.stats.lost.add(1);
        let number = self.permit_number(permit);
        let callbacks = &self.redis.callbacks;
        let untold = self.wakes.lost(number, held.tell.as_ref(), callbacks);
        self.stats.overloaded.add(untold);
        held
    }

    /// Gives a permit back to Redis.
    pub fn say_release(&mut self, held: &Held) {
        let dead = self.dead(held.id);
        let mut until = held.ends.max(self.now);
        if let Some(dead) = dead {
            // A renewal that is still under way may prolong it until then.
            until = until + dead + held.lease;
        }
        let op = match held.wait {
            // With all that it has booked.
            Some(_) => Op::Cancel(held.id, dead),
            None => Op::Release(held.id, dead),
        };
        self.enqueue(&held.key, vec![op], Then::End(until));
    }

    /// A permit is over in Redis; a request for it that is still under way must not make it anew.
    pub fn keep_out(&mut self, held: &Held) {
        if self.shard.open.has(held.id, self.now) {
            self.say_release(held);
        }
    }

    pub fn release_held(&mut self, permit: u64) -> Status {
        if !self.holds(permit) {
            return Status::Stale;
        }
        let held = self.take(permit);
        self.stats.released.add(1);
        self.say_release(&held);
        self.ask_next(&held.key);
        Status::Ok
    }

    /// Gives back what nobody used: also what it took from rates, as far as settling can.
    pub fn return_held(&mut self, permit: u64) {
        if !self.holds(permit) {
            return;
        }
        let held = self.take(permit);
        self.say_release(&held);
        if !held.settled && held.key.named.has_rates() {
            let op = Op::Settle(held.booking, 0);
            self.enqueue(&held.key, vec![op], Then::Nobody);
        }
    }

    /// Redis is asked for the time of a booked permit, which may be another one by now.
    pub fn ask_time(&mut self, serial: u64) {
        if let Some(permit) = self.hold_of(serial).held {
            let now = self.now;
            self.plan_at(permit, now);
        }
    }

    /// Redis has said when a booked permit begins.
    pub fn has_time(&mut self, serial: u64, permit: u64, trip: &Trip, answer: Answer) {
        let wait = self
            .shard
            .waits
            .get_mut(&serial)
            .expect("its permit says so");
        if !wait.held_back || !matches!(wait.stage, Stage::Booked(_)) {
            return;
        }
        wait.held_back = false;
        let held = self.shard.held.get_mut(&permit).expect("a live permit");
        held.booking = answer.booking.clone();
        self.book(serial, trip, answer);
    }

    /// A reset has ended all permits on a key that were granted before.
    pub fn end_held(&mut self, key: &Arc<Key>, trip: &Trip) {
        for permit in self.line(key).held.clone() {
            let held = &self.shard.held[&permit];
            if held.wait.is_none() && held.since <= trip.sent {
                let held = self.take(permit);
                self.keep_out(&held);
            }
        }
    }

    /// Gives back everything.
    pub fn release_all(&mut self) {
        let mut permits: Vec<u64> = self.shard.held.keys().copied().collect();
        permits.sort_unstable();
        for permit in permits {
            let held = self.unhold(permit);
            if held.wait.is_none() {
                self.stats.in_flight.sub(1);
                self.stats.released.add(1);
            }
            self.say_release(&held);
        }
    }
}

/// When Redis lets go of what it has just granted or renewed.
pub(super) fn ends(now: Time, key: &Key, lease: Span, answer: &Answer) -> Time {
    now + lease + key.named.life().allowance + answer.retry_after
}
