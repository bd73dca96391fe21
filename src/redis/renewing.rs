//! Permits are renewed, in the background or by their holders; and Redis is asked whether they are still there.
use std::sync::Arc;

use super::flight::Trip;
use super::held::{Held, Lease, ends};
use super::lines::{Heard, Slot, Then};
use super::question::Op;
use super::rebook::UNKNOWN;
use super::wire::{Answer, Id, Outcome};
use super::{Key, Rule, Scene};
use crate::limit::time::{Span, Time};

/// A renewal that failed is asked for again after this, or after a part of the lease.
const AGAIN: Span = Span::millis(100);
/// And what is being moved after this.
const SOON: Span = Span::millis(5);

impl Scene<'_> {
    /// Renews a permit when a third of its lease is over.
    pub fn plan(&mut self, permit: u64, sent: Time) {
        let held = &self.shard.held[&permit];
        if held.goes_on() {
            let early = self.redis.keeps(Rule::RenewsEarly);
            let part = if early {
                held.lease.0 / 3
            } else {
                held.lease.0
            };
            self.plan_at(permit, sent + Span(part));
        }
    }

    pub fn plan_at(&mut self, permit: u64, at: Time) {
        self.unplan(permit);
        let held = self.shard.held.get_mut(&permit).expect("a live permit");
        held.renew_at = Some(at);
        self.shard.renewals.insert((at, permit));
        self.beat_by(at);
    }

    pub fn unplan(&mut self, permit: u64) {
        let held = self.shard.held.get_mut(&permit).expect("a live permit");
        if let Some(at) = held.renew_at.take() {
            self.shard.renewals.remove(&(at, permit));
        }
    }

    /// Asks Redis to prolong a permit. None: there is nothing to prolong.
    pub fn begin_renew(&mut self, permit: u64, lease: Option<Span>) -> Option<Arc<Slot>> {
        if !self.holds(permit) {
            return None;
        }
        let held = &self.shard.held[&permit];
        // In the background it is always renewed for the same time.
        let lease = lease.filter(|_| !held.renew).unwrap_or(held.lease);
        let slot = Arc::<Slot>::default();
        let (key, id, (op, lease)) = (held.key.clone(), held.id, held.renewal(lease));
        self.begin_renewal(id);
        let then = Then::Renew(permit, id, lease, Some(slot.clone()));
        self.enqueue(&key, vec![op], then);
        Some(slot)
    }

    /// It could make the permit anew when that was given up.
    fn begin_renewal(&mut self, id: Id) {
        if self.redis.keeps(Rule::RenewalsToo) {
            self.shard.open.begin(id);
        }
    }

    /// Renews the permits that are due for it. Answers when the next one is.
    pub fn renew_due(&mut self) -> Option<Time> {
        while let Some(&(at, permit)) = self.shard.renewals.first() {
            if at > self.now {
                return Some(at);
            }
            self.unplan(permit);
            let held = &self.shard.held[&permit];
            let (key, id) = (held.key.clone(), held.id);
            let (op, lease) = held.renewal(held.lease);
            self.begin_renewal(id);
            self.urge(&key, vec![op], Then::Renew(permit, id, lease, None));
        }
        None
    }

    /// Redis has renewed a permit, or has not.
    pub fn renewed(&mut self, permit: u64, lease: Lease, trip: &Trip, heard: &Heard) {
        let (now, from) = (self.now, self.counts_from(trip));
        let Some(held) = self.shard.held.get_mut(&permit) else {
            return;
        };
        match heard.as_ref().map(|answers| &answers[0]) {
            Ok(answer) if matches!(answer.outcome, Outcome::Done | Outcome::Queued) => {
                let lasts = from + lease.lasts;
                held.booked &= held.wait.is_some();
                held.ends = held.ends.max(ends(now, &held.key, lease.full, answer));
                held.era = trip.era.expect("a semaphore has one");
                if held.booking == *UNKNOWN {
                    held.booking = answer.booking.clone();
                }
                // Without renewal the caller says how long it lives, which may be shorter than before.
                held.deadline = match held.renew || held.wait.is_some() {
                    true => held.deadline.max(lasts),
                    false => lasts,
                };
                let wait = held.wait;
                self.plan(permit, trip.sent);
                if answer.outcome == Outcome::Queued {
                    // Redis is moving it, and cannot say yet where to.
                    self.plan_at(permit, now + SOON);
                } else if let Some(serial) = wait {
                    self.has_time(serial, permit, trip, answer.clone());
                }
                if self.shard.held[&permit].deadline < self.shard.held[&permit].armed {
                    self.arm_lease(permit);
                }
            }
            Ok(_) => {
                let held = self.lose(permit);
                self.keep_out(&held);
            }
            Err(_) => {
                if held.goes_on() {
                    let pause = AGAIN.min(Span(held.lease.0 / 12));
                    self.plan_at(permit, now + pause);
                }
            }
        }
    }

    /// The permits on a key may have been ended by somebody else: Redis is asked.
    pub fn see_held(&mut self, key: &Arc<Key>) {
        let now = self.now;
        for permit in self.line(key).held.clone() {
            let held = &self.shard.held[&permit];
            if held.goes_on() {
                self.plan_at(permit, now);
                continue;
            }
            let (key, id) = (held.key.clone(), held.id);
            // For no longer than it lives anyway.
            let (op, _) = held.renewal(held.deadline.since(now));
            self.begin_renewal(id);
            self.urge(&key, vec![op], Then::See(permit, id));
        }
    }

    /// Redis has said whether a permit is there, or has not.
    pub fn seen(&mut self, permit: u64, heard: &Heard) {
        let gone = |answers: &Vec<Answer>| answers[0].outcome != Outcome::Done;
        if heard.as_ref().is_ok_and(gone) && self.shard.held.contains_key(&permit) {
            let held = self.lose(permit);
            self.keep_out(&held);
        }
    }
}

impl Held {
    /// It is renewed in the background.
    pub fn goes_on(&self) -> bool {
        self.renew || self.wait.is_some() || self.booked
    }

    fn renewal(&self, lease: Span) -> (Op, Lease) {
        let life = self.key.named.life();
        let op = Op::Renew {
            id: self.id,
            lease: life.asked(lease, self.renew),
            renewed: self.renew,
            era: self.era,
            weights: self.weights.clone(),
        };
        let lease = Lease {
            full: lease,
            lasts: life.lasts(lease, self.renew),
        };
        (op, lease)
    }
}
