//! A quota: units of a token bucket that are taken at once, and handed out later one after another, without
//! asking the bucket again.
//!
//! Each unit has a slot: in the terms of GCRA, from what is owed before it to what is owed after it. It may be
//! handed out until its slot begins. From then on it is lost: a bucket that was asked then would have been paid
//! for by the quiet before. What starts in a window has slots that begin within it or later, and that end at
//! most as far behind it as a full bucket reaches; and no two have the same. So all who share a bucket this way
//! stay together within what the bucket admits by itself in any window.
use crate::limit::rate::{Rate, Tick};
use crate::limit::time::Time;
use crate::limit::token_bucket::TokenBucket;

#[derive(Clone, Debug)]
pub struct Quota {
    rate: Rate,
    weight: u64,
    cost: Tick,
    /// Where the slot of the next one begins.
    next: Tick,
    left: u64,
}

impl Quota {
    /// `count` times `weight`, at least 1, from `next` on.
    pub fn new(bucket: &TokenBucket, weight: u64, next: Tick, count: u64) -> Quota {
        let rate = *bucket.rate();
        Quota {
            rate,
            weight,
            cost: rate.cost(weight),
            next,
            left: count,
        }
    }

    /// How many there are, of which some may be lost by now.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Where the slot of the last one ends.
    pub fn end(&self) -> Tick {
        let all = self.rate.cost(self.left.saturating_mul(self.weight));
        self.rate.add(self.next, all)
    }

    /// Hands one out at a time that is `latest` or before. Answers where its slot ends.
    #[inline]
    pub fn take(&mut self, latest: Time) -> Option<Tick> {
        if self.next < Tick::at(latest) {
            self.lose(latest);
        }
        self.left = self.left.checked_sub(1)?;
        self.next = self.rate.add(self.next, self.cost);
        Some(self.next)
    }

    /// Those are lost whose slots have begun before.
    fn lose(&mut self, latest: Time) {
        let begun = self.rate.sub(Tick::at(latest), self.next);
        let lost = self
            .rate
            .brings_up(begun)
            .div_ceil(self.weight)
            .min(self.left);
        self.left -= lost;
        self.next = self
            .rate
            .add(self.next, self.rate.cost(lost.saturating_mul(self.weight)));
    }
}
