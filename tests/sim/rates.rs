//! What a key's rates admitted, by the server's own answers, judged by an exact replay.
use std::collections::{BTreeMap, BTreeSet};

use limiter::limit::decide::{Limits, Outcome as Verdict};
use limiter::limit::rule::{Kind, Limit, Rule};
use limiter::limit::time::{Span, Time};
use limiter::limit::token_bucket::TokenBucket;
use limiter::limit::weights::Weights;
use limiter::redis::wire::{Answer, Outcome, Reply};

use crate::seen::Asked;

pub struct Rates {
    limits: Limits,
    taken: Vec<Taken>,
    ids: BTreeSet<String>,
    /// Nothing may start before, in the key's time.
    blocked: Time,
    /// Since then what is booked is moved.
    moved_since: Option<Time>,
    pub violation: Option<String>,
}

struct Taken {
    at: Time,
    /// The same in the key's time.
    begins: Time,
    weights: Vec<u64>,
    booking: String,
    id: String,
}

impl Rates {
    pub fn new(limits: &Limits) -> Rates {
        // What was given back a pacer does not forget altogether: its burst is earned. But it stays within
        // the bucket of its rate that holds its burst and one more.
        let within = |rule: &Rule| match rule {
            Rule::Pacer(pacer) => {
                let (rate, burst) = (pacer.rate(), pacer.burst());
                let bucket = TokenBucket::new(burst + 1, rate.units(), Span(rate.period()), false);
                Rule::TokenBucket(bucket.expect("in range"))
            }
            rule => rule.clone(),
        };
        let each = limits.limits().iter().map(|limit| Limit {
            rule: within(&limit.rule),
            per_call: limit.per_call,
        });
        Rates {
            limits: Limits::new(each.collect(), 1).expect("in range"),
            taken: vec![],
            ids: BTreeSet::new(),
            blocked: Time(0),
            moved_since: None,
            violation: None,
        }
    }

    /// A call was run, at this time of the world if the server's clock is not to be relied on. `known`: who
    /// held or waited before it. `booked`: what there is of permits after it, with their times, unless they are
    /// being moved.
    pub fn after(
        &mut self,
        asked: &[Asked],
        reply: &Reply,
        known: &BTreeSet<String>,
        booked: Option<&BTreeMap<String, (Time, String)>>,
        world: Option<u64>,
    ) {
        let Reply::Done { now, answers, .. } = reply else {
            return;
        };
        let time = |key: Time| match world {
            Some(world) => Time(1_000_000_000 + world + key.0 - now.0),
            None => key,
        };
        let mut lifted: Vec<Option<Taken>> = vec![];
        for (asked, answer) in asked.iter().zip(answers) {
            let done = answer.outcome == Outcome::Done;
            match asked.letter {
                // What was granted before the clock stepped has a time that nobody knows here.
                'A' if world.is_some() && answer.at < *now => {}
                'T' | 'B' | 'P' | 'M' | 'A' if done && !answer.booking.is_empty() => {
                    self.takes(asked, answer, time(answer.at), known);
                }
                'V' => {
                    let found = self.taken.iter().position(|one| match asked.id.is_empty() {
                        true => one.booking == asked.booking,
                        false => one.id == asked.id,
                    });
                    let found = found.filter(|_| done);
                    lifted.push(found.map(|i| self.taken.swap_remove(i)));
                }
                'W' if done => {
                    // What nobody could see being taken is not there.
                    if let Some(mut one) = lifted[asked.number as usize - 1].take() {
                        let later = time(answer.at) > one.at && self.blocked <= one.at;
                        if later && world.is_none() {
                            let text = format!("{asked:?} comes later than it was: {}", one.at.0);
                            self.violation.get_or_insert(text);
                        }
                        (one.at, one.begins) = (time(answer.at), answer.at);
                        one.booking = answer.booking.to_string();
                        self.taken.push(one);
                    }
                }
                'U' | 'D' if done => self.taken.retain(|one| one.booking != asked.booking),
                'C' if answer.outcome == Outcome::Returned => {
                    // Of one that has begun the rates keep their part.
                    let begun = self.moved_since.unwrap_or(*now);
                    self.taken
                        .retain(|one| one.id != asked.id || one.begins <= begun);
                }
                'S' if done => self.settled(asked, answer),
                'Z' => {
                    self.blocked = self.blocked.max(Time(time(*now).0 + asked.number));
                    self.moved_since.get_or_insert(*now);
                }
                'X' => {
                    self.blocked = Time(0);
                    self.taken.clear();
                }
                _ => {}
            }
        }
        if let (Some(since), Some(booked)) = (self.moved_since, booked) {
            self.moved_since = None;
            let time = |at: Time| if at > *now { Some(time(at)) } else { None };
            self.is_moved(since, booked, time);
        }
    }

    /// Permits that were booked are so for other times, or not any more.
    fn is_moved(
        &mut self,
        since: Time,
        booked: &BTreeMap<String, (Time, String)>,
        time: impl Fn(Time) -> Option<Time>,
    ) {
        let blocked = self.blocked;
        let mut early = None;
        self.taken.retain_mut(|one| {
            if one.id.is_empty() || one.begins <= since {
                return true;
            }
            let Some((begins, booking)) = booked.get(&one.id) else {
                return false;
            };
            let Some(at) = time(*begins) else {
                return *begins == one.begins;
            };
            (one.at, one.begins, one.booking) = (at, *begins, booking.clone());
            if at < blocked {
                early = Some(format!("{} starts at {} in a penalty", one.id, at.0));
            }
            true
        });
        self.violation = self.violation.take().or(early);
    }

    fn takes(&mut self, asked: &Asked, answer: &Answer, at: Time, known: &BTreeSet<String>) {
        if !asked.id.is_empty() && !self.ids.insert(asked.id.clone()) {
            return;
        }
        if at < self.blocked && !known.contains(&asked.id) {
            let text = format!(
                "{asked:?} starts at {} in a penalty until {}",
                at.0, self.blocked.0
            );
            self.violation.get_or_insert(text);
        }
        let asked_for = asked.weights.as_ref().expect("something is taken");
        let limits = self.limits.limits().iter().enumerate();
        let weights = limits.map(|(i, limit)| match limit.rule.kind() {
            Kind::Semaphore => 0,
            _ => asked_for.of(limit, i),
        });
        self.taken.push(Taken {
            at,
            begins: answer.at,
            weights: weights.collect(),
            booking: answer.booking.to_string(),
            id: asked.id.clone(),
        });
    }

    /// It counts as the least of what it took and what it used.
    fn settled(&mut self, asked: &Asked, answer: &Answer) {
        let per_call: Vec<bool> = self.limits.limits().iter().map(|l| l.per_call).collect();
        if let Some(one) = self
            .taken
            .iter_mut()
            .find(|one| one.booking == asked.booking)
        {
            for (weight, per_call) in one.weights.iter_mut().zip(per_call) {
                if !per_call {
                    *weight = (*weight).min(asked.number);
                }
            }
            one.booking = answer.booking.to_string();
        }
    }

    /// They go by a clock's windows.
    pub fn aligned(&self) -> bool {
        let mut kinds = self.limits.limits().iter().map(|limit| limit.rule.kind());
        kinds.any(|kind| matches!(kind, Kind::FixedWindow | Kind::SlidingCounter))
    }

    /// All that was taken fits into the limits, each at its time.
    pub fn judge(&mut self) -> Result<(), String> {
        if let Some(violation) = self.violation.take() {
            return Err(violation);
        }
        self.taken.sort_by_key(|one| one.at);
        let first = self.taken.first().map_or(Time(0), |one| one.at);
        let mut key = self.limits.fresh(first);
        // What was settled at nothing is a peek.
        let used = |one: &&Taken| one.weights.iter().any(|weight| *weight > 0);
        for one in self.taken.iter().filter(used) {
            let weights = Weights::Each(one.weights.clone().into());
            match self.limits.decide(&key, one.at, &weights).outcome {
                Verdict::Admit => drop(self.limits.commit(&mut key, one.at, one.at, &weights)),
                other => {
                    let near = self
                        .taken
                        .iter()
                        .filter(|other| other.at <= one.at && other.at.0 + 3_000_000 > one.at.0);
                    let near: Vec<_> = near.map(|one| (one.at.0, &one.weights)).collect();
                    return Err(format!(
                        "more than the rates allow at {}: {other:?}, after {near:?}",
                        one.at.0
                    ));
                }
            }
        }
        Ok(())
    }
}
