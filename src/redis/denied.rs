//! Denials that still stand: what was denied until a time is denied again until then, without a call. Not
//! for longer than the setting says, so that what others do to the key is heard of; what this client does
//! to it counts at once.
//!
//! Remembered are denials by rates alone: a semaphore may be released at any moment.
use std::sync::{Arc, Weak};

use super::flight::Trip;
use super::lines::Item;
use super::question::Op;
use super::wire::Answer;
use super::{Key, Named, Redis, Scene};
use crate::decision::{Decision, Status};
use crate::limit::time::{Span, Time};
use crate::limit::weights::Weights;
use crate::op::Request;

/// So many keys of one shard; a key takes the place of another one.
const PLACES: usize = 256;
/// Longer keys are not worth their room.
pub(super) const LONGEST_KEY: usize = 256;

/// Those of one shard. There are no places before the first denial.
#[derive(Default)]
pub(super) struct Denials(Vec<Option<Denial>>);

struct Denial {
    limits: Weak<Named>,
    /// How many limiters there had been by then: other limits may be of the same name.
    opened: u64,
    key: Box<[u8]>,
    weights: Weights,
    decision: Decision,
    /// It stands for whoever does not wait until this time at least, counted from before Redis was asked.
    passes: Time,
    /// When it is asked again whatever was said.
    doubted: Time,
    /// When its numbers were heard.
    heard: Time,
}

impl Denial {
    fn is_of(&self, named: &Arc<Named>, key: &[u8]) -> bool {
        std::ptr::eq(self.limits.as_ptr(), &**named) && *self.key == *key
    }

    /// As of a later time.
    fn at(&self, now: Time) -> Decision {
        let since = now.since(self.heard).0;
        let decision = &self.decision;
        Decision {
            // It stands, so it is not over: counted from when it was heard, there is some of it left.
            retry_after_us: decision.retry_after_us - since,
            reset_after_us: decision.reset_after_us.saturating_sub(since),
            ..*decision
        }
    }
}

/// Whoever was denied before may hear otherwise after this.
pub(super) fn alters(op: &Op) -> bool {
    match op {
        Op::Unbook(_) | Op::Return(_) | Op::Settle(..) | Op::Reset | Op::Penalize(_) => true,
        Op::Book { .. }
        | Op::Acquire { .. }
        | Op::Ahead(..)
        | Op::Peek(_)
        | Op::Look
        | Op::Lift(_)
        | Op::LiftHeld(_)
        | Op::Rebook { .. }
        | Op::Release(..)
        | Op::Cancel(..)
        | Op::Renew { .. } => false,
    }
}

fn place(hash: u64) -> usize {
    // The low bits have chosen the shard.
    (hash >> 32) as usize % PLACES
}

impl Redis {
    /// For how long a denial is repeated; `None`: never. Where all go by one clock that is moved by hand, numbers
    /// are exact at each instant.
    fn repeats_denials(&self) -> Option<Span> {
        let longest = self.options.config.deny_cache;
        (longest > Span::ZERO && !self.tells_time()).then_some(longest)
    }

    /// The denial of the same request that still stands.
    pub(super) fn denied(
        &self,
        named: &Arc<Named>,
        request: &Request,
        weights: &Weights,
    ) -> Option<Decision> {
        let wait = request.wait?;
        self.repeats_denials()?;
        let hash = self.hash_of(named, request.key);
        let shard = self.shards[Redis::shard_at(hash)].lock();
        let denial = shard.denials.0.get(place(hash))?.as_ref()?;
        let now = self.clock.now();
        let stands = now < denial.doubted && now + wait < denial.passes;
        if !stands
            || denial.weights != *weights
            || denial.opened != self.opened()
            || !denial.is_of(named, request.key)
            || self.is_closed()
        {
            return None;
        }
        let decision = denial.at(now);
        drop(shard);
        self.stats.stripe(Redis::shard_at(hash)).denied.add(1);
        Some(Decision {
            user_data: request.user_data,
            ..decision
        })
    }
}

impl Scene<'_> {
    /// A request without a semaphore was denied.
    pub fn remember_denial(&mut self, key: &Key, weights: Weights, trip: &Trip, answer: &Answer) {
        let Some(longest) = self.redis.repeats_denials() else {
            return;
        };
        if key.bytes.len() > LONGEST_KEY {
            return;
        }
        let line = self.shard.lines.get(key);
        if line.is_some_and(|line| line.altering > 0) {
            // What is under way was asked for before whatever is asked from now on.
            return;
        }
        let decision = super::ops::refusal(answer);
        if decision.status != Status::Denied {
            return;
        }
        let denial = Denial {
            limits: Arc::downgrade(&key.named),
            opened: self.redis.opened(),
            key: key.bytes.clone(),
            weights,
            decision,
            passes: trip.sent + answer.retry_after,
            doubted: self.now + longest,
            heard: self.now,
        };
        let places = &mut self.shard.denials.0;
        if places.is_empty() {
            places.resize_with(PLACES, || None);
        }
        places[place(self.redis.hash_of(&key.named, &key.bytes))] = Some(denial);
    }

    /// A question is asked: if it alters anything, those who ask after it are not denied unheard.
    pub fn doubt_denial(&mut self, item: &Item) {
        if item.alters {
            self.line(&item.key).altering += 1;
            self.forget_denial(&item.key);
        }
    }

    /// Something of the key is otherwise now.
    pub fn forget_denial(&mut self, key: &Key) {
        if self.shard.denials.0.is_empty() {
            return;
        }
        let hash = self.redis.hash_of(&key.named, &key.bytes);
        if let Some(denial) = self.shard.denials.0.get_mut(place(hash)) {
            *denial = None;
        }
    }
}
