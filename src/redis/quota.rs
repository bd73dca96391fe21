//! Units of a hot bucket that this process took ahead of their use, to admit calls without asking Redis. Only
//! where the client's setting says so, and of limiters that are one token bucket.
//!
//! How many are taken follows from how many were used, and from how soon their slots begin; never more than the
//! bucket brings in the time for which they may be kept, nor a good part of what it holds. What is not used
//! within that time is lost, which the bucket makes good in as long. A process that dies takes no more than that
//! with it, and nothing of it is ever used twice: by what [`Quota`] says all processes together stay within what
//! the bucket admits.
//!
//! They are void after a penalty, a reset or other limits: here at once; of what others do as soon as that is
//! heard of, which at the latest is so when they are over.
use std::sync::Arc;

use super::denied::LONGEST_KEY;
use super::flight::Trip;
use super::lines::Then;
use super::link::Failure;
use super::question::Op;
use super::wire::{Answer, Outcome, Taken, Units};
use super::{Key, Named, Redis, Scene};
use crate::decision::{Decision, Status};
use crate::limit::quota::Quota;
use crate::limit::rate::Tick;
use crate::limit::rule::Rule;
use crate::limit::time::{Span, Time};
use crate::limit::token_bucket::TokenBucket;
use crate::limit::weights::Weights;
use crate::op::Request;

/// So many keys of one shard. A key whose place is taken goes without.
const PLACES: usize = 64;
/// Fewer are not worth a call.
const FEWEST: u64 = 8;
/// Of what a bucket holds, one process takes so much at once at most: a quarter.
const PARTS: u64 = 4;

/// Those of one shard. There are no places before the first.
#[derive(Default)]
pub(super) struct Stocks(Vec<Option<Stock>>);

/// What this process has of a key.
struct Stock {
    key: Arc<Key>,
    /// How many limiters there had been by then: other limits may be of the same name.
    opened: u64,
    weight: u64,
    taken: Option<Ahead>,
    /// Calls since it was asked for the last time, and when that was.
    wanted: u64,
    since: Time,
    /// How many came then.
    last: u64,
    /// Some are on their way.
    asking: bool,
    /// None are asked for before then: there was little to be had.
    rests: Time,
    /// What was sent before then is void.
    void: Time,
}

struct Ahead {
    quota: Quota,
    epoch: u64,
    /// When they were taken, by the key's clock, which stood so no sooner than `sent` and no later than
    /// `heard`, by this client's.
    at: Time,
    sent: Time,
    heard: Time,
}

impl Ahead {
    /// The key's time is that at most. Clocks differ in how fast they go by less than a part in a thousand.
    fn latest(&self, now: Time) -> Time {
        let since = now.since(self.sent).0;
        self.at + Span(since + since / 1024 + 1)
    }

    /// The key's time is that at least.
    fn earliest(&self, now: Time) -> Time {
        self.at + now.since(self.heard)
    }
}

impl Stock {
    fn new(key: Arc<Key>, opened: u64, weight: u64, now: Time) -> Stock {
        Stock {
            key,
            opened,
            weight,
            taken: None,
            wanted: 0,
            since: now,
            last: 0,
            asking: false,
            rests: now,
            void: Time(0),
        }
    }

    fn is_of(&self, named: &Named, key: &[u8]) -> bool {
        self.key.named.number == named.number && *self.key.bytes == *key
    }

    /// What is here, and what was sent for before now, is not to be used.
    fn end(&mut self, now: Time) {
        (self.taken, self.void) = (None, now);
    }

    /// Nothing is lost if another key takes its place.
    fn is_idle(&self, now: Time, longest: Span) -> bool {
        !self.asking && now.since(self.since) > longest
    }

    /// How many to ask for now; 0: none. Of a bucket that owes little the slots begin soon: of those so many are
    /// taken that some are left to the end. `owed`: how long it takes to be full.
    fn wants(&mut self, bucket: &TokenBucket, now: Time, owed: Span, longest: Span) -> u64 {
        let left = self.taken.as_ref().map_or(0, |ahead| ahead.quota.left());
        if self.asking || now < self.rests || left * 2 > self.last {
            return 0;
        }
        let since = now.since(self.since).0.max(1);
        let used = self.wanted.saturating_mul(longest.0) / since;
        let brought = |span: u64| bucket.rate().brings(Tick::at(Time(span)));
        let most = brought(longest.0).min(bucket.capacity() / PARTS) / self.weight;
        let lasting = brought(longest.0.saturating_sub(owed.0)) / self.weight;
        if used < FEWEST || most < FEWEST {
            if since > longest.0 {
                (self.wanted, self.since) = (0, now);
            }
            return 0;
        }
        (self.wanted, self.since, self.asking) = (0, now, true);
        used.max(lasting).min(most)
    }
}

/// The bucket that is all of a handle's limits, and how many units of it a request is for.
fn bucket<'a>(named: &'a Named, weights: &Weights) -> Option<(&'a TokenBucket, u64)> {
    let [limit] = named.limits.limits() else {
        return None;
    };
    match (&limit.rule, weights) {
        (Rule::TokenBucket(bucket), Weights::One(weight @ 1..)) => {
            let weight = if limit.per_call { 1 } else { *weight };
            Some((bucket, weight))
        }
        _ => None,
    }
}

fn place(hash: u64) -> usize {
    // The low bits have chosen the shard.
    (hash >> 32) as usize % PLACES
}

impl Redis {
    /// How long units are kept at most; `None`: nothing is taken ahead. Nor by a clock that is moved by hand.
    fn keeps_ahead(&self, named: &Named) -> Option<Span> {
        let longest = self.options.config.take_ahead;
        let may = longest > Span::ZERO && named.runs() && !self.tells_time();
        may.then_some(longest)
    }

    /// Admits a request by what was taken before.
    pub(super) fn admitted_here(
        &self,
        named: &Arc<Named>,
        request: &Request,
        weights: &Weights,
    ) -> Option<Decision> {
        let longest = self.keeps_ahead(named)?;
        let (bucket, weight) = bucket(named, weights)?;
        let hash = self.hash_of(named, request.key);
        let decision = self.at(Redis::shard_at(hash), |scene| {
            scene.open().ok()?;
            scene.hand_out(bucket, weight, (named, request.key), place(hash), longest)
        })?;
        Some(Decision {
            user_data: request.user_data,
            ..decision
        })
    }
}

impl Scene<'_> {
    fn hand_out(
        &mut self,
        bucket: &TokenBucket,
        weight: u64,
        (named, key): (&Named, &[u8]),
        place: usize,
        longest: Span,
    ) -> Option<Decision> {
        let opened = self.redis.opened();
        let stock = self.shard.stocks.0.get_mut(place)?.as_mut()?;
        if !stock.is_of(named, key) || stock.opened != opened || stock.weight != weight {
            return None;
        }
        let now = self.now;
        let ahead = stock.taken.as_mut()?;
        if now >= ahead.heard + longest {
            stock.taken = None;
            return None;
        }
        let end = ahead.quota.take(ahead.latest(now))?;
        stock.wanted += 1;
        let now_there = ahead.earliest(now);
        let figures = bucket.figures(end, now_there);
        let units = Units {
            at: ahead.at,
            epoch: ahead.epoch,
            weight,
            cost: bucket.rate().cost(weight),
            end,
        };
        let owed = Span(ahead.quota.end().since(now_there).ceil());
        let count = stock.wants(bucket, now, owed, longest);
        let key = stock.key.clone();
        if count > 0 {
            self.ask_ahead(&key, weight, count);
        }
        Some(Decision {
            permit: self.permit(&key, Taken::Units(units), false),
            index: 0,
            limit: figures.limit,
            remaining: figures.remaining,
            reset_after_us: figures.reset_after.0,
            ..Decision::of(Status::Ok)
        })
    }

    fn ask_ahead(&mut self, key: &Arc<Key>, weight: u64, count: u64) {
        let op = Op::Ahead(Weights::One(weight), count);
        self.enqueue(key, vec![op], Then::Ahead);
    }

    /// Redis has admitted a request of this key: the next ones may find some here.
    pub fn admitted_there(&mut self, key: &Arc<Key>, weights: &Weights, owed: Span) {
        let Some(longest) = self.redis.keeps_ahead(&key.named) else {
            return;
        };
        let Some((bucket, weight)) = bucket(&key.named, weights) else {
            return;
        };
        if key.bytes.len() > LONGEST_KEY || !key.named.is_newest() {
            return;
        }
        let (now, opened) = (self.now, self.redis.opened());
        let places = &mut self.shard.stocks.0;
        if places.is_empty() {
            places.resize_with(PLACES, || None);
        }
        let stock = &mut places[place(self.redis.hash_of(&key.named, &key.bytes))];
        let fits = |stock: &Stock| {
            let same = stock.is_of(&key.named, &key.bytes) && stock.weight == weight;
            same && stock.opened == opened
        };
        if !stock.as_ref().is_some_and(fits) {
            if stock
                .as_ref()
                .is_some_and(|stock| !stock.is_idle(now, longest))
            {
                return;
            }
            *stock = Some(Stock::new(key.clone(), opened, weight, now));
            self.listen = true;
        }
        let stock = stock.as_mut().expect("it is there");
        stock.wanted += 1;
        let count = stock.wants(bucket, now, owed, longest);
        if count > 0 {
            self.ask_ahead(key, weight, count);
        }
    }

    /// Redis has said what there is of what was asked for.
    pub fn ahead(
        &mut self,
        key: &Arc<Key>,
        asked: &Op,
        trip: &Trip,
        heard: Result<Answer, Failure>,
    ) {
        let Op::Ahead(weights, asked) = asked else {
            unreachable!("nothing else is asked for this");
        };
        let Some(longest) = self.redis.keeps_ahead(&key.named) else {
            return;
        };
        let (now, opened) = (self.now, self.redis.opened());
        let place = place(self.redis.hash_of(&key.named, &key.bytes));
        let (Some(Some(stock)), Some((bucket, weight))) = (
            self.shard.stocks.0.get_mut(place),
            bucket(&key.named, weights),
        ) else {
            return;
        };
        if !stock.is_of(&key.named, &key.bytes) || stock.weight != weight {
            return;
        }
        (stock.asking, stock.last) = (false, 0);
        let counts = stock.opened == opened && trip.sent > stock.void && !trip.again;
        if let Ok(answer) = heard
            && answer.outcome == Outcome::Done
            && let Taken::Units(units) = answer.booking
            && counts
        {
            // Of all that were asked for this is the first; those after it passed as long as they fit.
            let more = answer.figures.remaining / weight;
            stock.last = more.saturating_add(1).min(*asked);
            let first = bucket.rate().sub(units.end, units.cost);
            stock.taken = Some(Ahead {
                quota: Quota::new(bucket, weight, first, stock.last),
                epoch: units.epoch,
                at: units.at,
                sent: trip.sent,
                heard: now,
            });
        }
        if stock.last < asked / 4 {
            stock.rests = now + longest;
        }
    }

    /// What was taken ahead of a key is void.
    pub fn void_ahead(&mut self, key: &Key) {
        let now = self.now;
        let place = place(self.redis.hash_of(&key.named, &key.bytes));
        if let Some(Some(stock)) = self.shard.stocks.0.get_mut(place)
            && stock.is_of(&key.named, &key.bytes)
        {
            stock.end(now);
        }
    }

    /// The same of a key that goes by this name in notes.
    pub fn void_noted(&mut self, noted: &str) {
        let now = self.now;
        for stock in self.shard.stocks.0.iter_mut().flatten() {
            if stock.key.place() == noted {
                stock.end(now);
            }
        }
    }
}
