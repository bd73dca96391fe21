//! What changes a whole key: a penalty, a reset, and other limits.
use crate::limit::bounds::MAX_AHEAD;
use crate::limit::decide::{KeyState, Limits};
use crate::limit::rule::Kind;
use crate::limit::time::Time;

impl Limits {
    /// Admits nothing before `until`. Bookings that are made stay.
    pub fn penalize(&self, key: &mut KeyState, now: Time, until: Time) {
        let until = until.min(now + MAX_AHEAD);
        if until > now.max(key.blocked_until()) {
            key.ahead_mut().blocked_until = until;
        }
    }

    /// Makes the key as good as new. What was taken before can be neither cancelled nor settled any
    /// more, nor released: whoever holds it holds nothing.
    pub fn reset(&self, key: &mut KeyState, now: Time) {
        let needed = self.rates_fresh_at(key);
        key.states = self.fresh(now).states;
        key.ahead_mut().start_over(needed);
    }

    /// Nothing changes for a key that comes from those limits to these.
    pub fn same_rules(&self, from: &Limits) -> bool {
        let mut pairs = self.limits().iter().zip(from.limits());
        pairs.all(|(limit, old)| limit.rule == old.rule)
    }

    /// Makes a key that was used under the limits `from`, of the same shape, one of these limits.
    /// What was taken before can be released, but neither cancelled nor settled any more.
    pub fn reconfigure(&self, from: &Limits, key: &mut KeyState, now: Time) {
        let base = key.base(now);
        let needed = from.rates_fresh_at(key);
        let pairs = self.limits().iter().zip(from.limits());
        for ((limit, old), state) in pairs.zip(key.states.all_mut()) {
            if limit.rule == old.rule {
                continue;
            }
            // It may have been forgotten, or not: that makes no difference.
            if needed <= now && limit.rule.kind() != Kind::Semaphore {
                *state = limit.rule.fresh(now);
            } else {
                limit.rule.reconfigure(&old.rule, state, now, base);
            }
        }
        if !self.same_rules(from) {
            let fill = from.limits().iter().map(|limit| limit.rule.fill()).max();
            key.ahead_mut()
                .next_epoch(now, needed, fill.unwrap_or_default());
        }
    }

    fn rates_fresh_at(&self, key: &KeyState) -> Time {
        let rates = self.limits().iter().zip(key.states.all());
        rates
            .filter(|(limit, _)| limit.rule.kind() != Kind::Semaphore)
            .map(|(limit, state)| limit.rule.fresh_at(state))
            .max()
            .unwrap_or(Time(0))
            .max(key.ahead.as_ref().map_or(Time(0), |a| a.owed_until()))
    }
}
