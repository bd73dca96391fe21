//! What a request is answered: whether it passes, why not and when to come back, and with which numbers.
use super::key::Key;
use super::names::Named;
use super::scene::Scene;
use crate::decision::{Decision, Status};
use crate::limit::decide::{Outcome, Verdict};
use crate::limit::key::KeyState;
use crate::limit::rule::{Figures, Kind, Limit};
use crate::limit::time::{Span, Time};
use crate::limit::weights::Weights;

impl Scene<'_> {
    /// What the limits say, and that nobody overtakes those who wait for a release.
    pub fn verdict(&self, key: &Key, weights: &Weights) -> Verdict {
        let limits = &key.named.limits;
        let verdict = limits.decide(key.outlook(), self.now, weights);
        let passed = !matches!(verdict.outcome, Outcome::Never | Outcome::Release);
        if passed && limits.holds() && key.has_queue() {
            let semaphore = |limit: &Limit| limit.rule.kind() == Kind::Semaphore;
            let index = limits.limits().iter().position(semaphore);
            return Verdict {
                outcome: Outcome::Release,
                index: index.expect("it holds"),
            };
        }
        verdict
    }

    /// When a wait for a release can end at the earliest: that is as soon as all but the semaphores allow.
    pub fn soonest(&self, key: &Key, weights: &Weights) -> Time {
        let limits = &key.named.limits;
        let rates = limits.of_rates(weights);
        match limits.decide(key.outlook(), self.now, &rates).outcome {
            Outcome::Later(at) | Outcome::TooFar(at) => at,
            // Of nothing but semaphores.
            _ => key.outlook().base(self.now),
        }
    }

    /// Why not, and when to come back.
    pub fn refusal(&self, key: &Key, weights: &Weights, verdict: Verdict) -> Decision {
        let hint = match verdict.outcome {
            Outcome::Release => {
                let soonest = self.soonest(key, weights).since(self.now);
                self.release_hint(key, weights).max(soonest)
            }
            _ => Span::ZERO,
        };
        refusal(&key.named, key.outlook(), self.now, verdict, hint)
    }

    /// When what is held may have come back, whatever else is in the way. Exact where leases that are not
    /// renewed tell and nobody is waiting, unless more than MOST of them have to end: then it is when the
    /// last of those does, to ask again. A permit that is renewed can come back any time, and its lease is
    /// as good a guess as any.
    fn release_hint(&self, key: &Key, weights: &Weights) -> Span {
        /// Leases looked at, so that a denial costs no more than this. The same in scripts/holders.lua.
        const MOST: usize = 64;
        let limits = &key.named.limits;
        let lease = limits.lease().unwrap_or(self.memory.options.lease);
        let Some(live) = &key.live else { return lease };
        let ending = live
            .permits
            .iter()
            .take_while(|(ends, _)| *ends != Time::MAX);
        let mut in_use = limits.in_use(&key.state);
        let mut hint = lease;
        for (n, &(ends, serial)) in ending.take(MOST).enumerate() {
            let booking = self.book.booking(serial);
            in_use.release(&booking.expect("a permit of this key"));
            if limits.fits(&in_use, weights) {
                return ends.since(self.now);
            }
            if n + 1 == MOST {
                hint = ends.since(self.now);
            }
        }
        hint
    }

    pub fn count_refusal(&self, status: Status) {
        match status {
            Status::Never => self.stats.never.add(1),
            _ => self.stats.denied.add(1),
        }
    }

    /// An answer with the numbers of the limit at `index`, or of the tightest.
    pub fn numbers(&self, key: &Key, status: Status, index: Option<usize>) -> Decision {
        numbers(&key.named, key.outlook(), self.now, status, index)
    }
}

fn numbers(
    named: &Named,
    state: &KeyState,
    now: Time,
    status: Status,
    index: Option<usize>,
) -> Decision {
    let (index, figures) = named.limits.figures(state, now, index);
    let Figures {
        limit,
        remaining,
        reset_after,
    } = figures;
    Decision {
        index: index as u32,
        limit,
        remaining,
        reset_after_us: reset_after.0,
        ..Decision::of(status)
    }
}

/// `hint`: when what is held may have come back.
fn refusal(named: &Named, state: &KeyState, now: Time, verdict: Verdict, hint: Span) -> Decision {
    let (status, retry_after) = match verdict.outcome {
        Outcome::Never => (Status::Never, u64::MAX),
        Outcome::Later(at) | Outcome::TooFar(at) => (Status::Denied, at.since(now).0),
        Outcome::Release => (Status::Denied, hint.0),
        Outcome::Admit => (Status::Denied, 0),
    };
    Decision {
        retry_after_us: retry_after.max(1),
        ..numbers(named, state, now, status, Some(verdict.index))
    }
}
