//! The busiest path of all: one token bucket, a key that nobody waits for, and an answer that is at hand.
//! The same as for any key, which a test compares, without what only other keys need.
use super::Memory;
use super::admit::Asker;
use super::keys::Slot;
use super::leave::{CALLS, Rest};
use super::names::{KeyId, Named};
use super::scene::Shard;
use super::spent::OfBucket;
use crate::decision::{Decision, Status};
use crate::limit::bounds::MAX_AHEAD;
use crate::limit::rule::{Limit, Rule, Wait};
use crate::limit::time::Span;
use crate::op::{Request, Sink, Weights};

impl Memory {
    /// `None`: it is not such a key, or the answer is to be waited for. Nothing has happened then.
    #[inline(always)]
    pub(super) fn ask_plain(
        &self,
        named: &Named,
        id: KeyId,
        request: &Request,
        asker: &Asker,
    ) -> Option<Decision> {
        let Weights::Same(weight) = request.weights else {
            return None;
        };
        let [limit] = named.limits.limits() else {
            return None;
        };
        let Limit {
            rule: Rule::TokenBucket(bucket),
            per_call,
        } = limit
        else {
            return None;
        };
        if matches!(asker, Asker::Sink(Sink::Callback(_))) {
            return None;
        }
        let mut guard = self.shards[id.shard()].lock();
        let Shard { keys, book } = &mut *guard;
        let Some(Slot::Plain(plain)) = keys.slot(id) else {
            return None;
        };
        if plain.named() != named.number()
            || !named.is_newest()
            || self.is_closed()
            || !book.ended.is_empty()
        {
            return None;
        }
        let now = self.clock.now();
        let weight = if *per_call { weight.min(1) } else { weight };
        let peek = matches!(asker, Asker::Peek);
        let stats = self.stats.stripe(book.index);
        let mut owed = plain.tick().since(now);
        let mut permit = 0;
        let passes = match weight {
            0 => Ok(owed),
            _ => bucket.fits(owed, weight),
        };
        let (status, retry_after) = match passes {
            Ok(_) if peek || weight == 0 => (Status::Ok, 0),
            Ok(after) => {
                let end = after.from(now);
                if !plain.set(end) {
                    return None;
                }
                owed = after;
                let serial = book.remember_bucket(OfBucket::new(id, named, weight, end), now);
                permit = self.numbers.make(book.index, serial);
                stats.granted.bump();
                (Status::Ok, 0)
            }
            Err(Wait::After(wait)) => {
                let patient = asker.patience(request).is_none_or(|most| wait <= most);
                if patient && wait <= MAX_AHEAD {
                    return None;
                }
                if !peek {
                    stats.denied.bump();
                }
                (Status::Denied, wait.0)
            }
            Err(_) => {
                if !peek {
                    stats.never.bump();
                }
                (Status::Never, Span::MAX.0)
            }
        };
        book.calls += 1;
        if book.calls >= CALLS {
            book.calls = 0;
            drop(guard);
            self.go_on(id.shard(), Rest::Keys);
        }
        let figures = bucket.figures_of(owed);
        Some(Decision {
            status,
            permit,
            user_data: request.user_data,
            limit: figures.limit,
            remaining: figures.remaining,
            retry_after_us: retry_after,
            reset_after_us: figures.reset_after.0,
            index: 0,
            ..Decision::of(status)
        })
    }
}
