//! The answer of scripts/fast.lua: what was stored of a token bucket, and for what it was asked how often.
//! The decisions follow from that by the bucket's own rule.
use super::reply::{Answer, Outcome};
use super::taken::{Taken, Units};
use crate::limit::rate::Tick;
use crate::limit::rule::{Figures, Wait};
use crate::limit::time::{Span, Time};
use crate::limit::token_bucket::TokenBucket;

/// A plain bucket as it is stored, see scripts/state.lua.
struct Stored {
    tat: Tick,
    epoch: u64,
    per_call: bool,
    bucket: TokenBucket,
}

/// Plain decimal, of any width.
fn number(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

impl Stored {
    fn parse(text: &str) -> Option<Stored> {
        let parts: Vec<&str> = text.split(';').collect();
        let ["1", head, _version, limit, _seen, state] = parts[..] else {
            return None;
        };
        let (us, rem) = state.split_once(' ')?;
        let (_, epoch) = head.rsplit_once(' ')?;
        let mut words = limit.split(' ');
        let per_call = match words.next()? {
            "T0" => false,
            "T1" => true,
            _ => return None,
        };
        let numbers: Vec<u64> = words.map(number).collect::<Option<_>>()?;
        let [capacity, units, period, 0] = numbers[..] else {
            return None;
        };
        let bucket = TokenBucket::new(capacity, units, Span(period), false).ok()?;
        let tat = Tick {
            us: number(us)?,
            rem: number(rem)?,
        };
        (tat.rem < bucket.rate().units()).then_some(Stored {
            tat,
            epoch: number(epoch)?,
            per_call,
            bucket,
        })
    }

    /// Takes it if it passes. The answer, and whether it was taken.
    fn take(&mut self, now: Time, weight: u64) -> (Answer, bool) {
        let weight = if self.per_call { weight.min(1) } else { weight };
        let (rate, before) = (self.bucket.rate(), self.tat);
        let (outcome, retry, booking) = match self.bucket.wait(before, now, weight) {
            Wait::Now => {
                let start = before.max(Tick::at(now));
                let cost = rate.cost(weight);
                self.tat = rate.add(start, cost);
                let booking = Taken::Units(Units {
                    at: now,
                    epoch: self.epoch,
                    weight,
                    cost,
                    end: self.tat,
                });
                (Outcome::Done, Span::ZERO, booking)
            }
            Wait::After(span) => (Outcome::Denied, span, Taken::default()),
            Wait::Never | Wait::Release => (Outcome::Never, Span::MAX, Taken::default()),
        };
        let figures: Figures = self.bucket.figures(self.tat, now);
        let answer = Answer {
            outcome,
            index: Some(0),
            figures,
            retry_after: retry,
            fence: 0,
            position: 0,
            at: now,
            booking,
        };
        (answer, outcome == Outcome::Done)
    }
}

/// One answer for each of `count` calls in a row.
pub(super) fn answers(now: Time, text: &str, weight: u64, count: usize) -> Option<Vec<Answer>> {
    let mut stored = Stored::parse(text)?;
    let mut answers = Vec::with_capacity(count);
    while answers.len() < count {
        let (answer, taken) = stored.take(now, weight);
        if !taken {
            // Nothing changes for those that follow.
            answers.resize(count, answer);
            break;
        }
        answers.push(answer);
    }
    Some(answers)
}
