//! What a script answers.
use redis::Value;

use super::{Era, Taken, run};
use crate::limit::rule::Figures;
use crate::limit::time::{Span, Time};

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It came after its `not_after`: nothing was done. The server's time.
    Late(Time),
    Done {
        /// The server's time; for what the next call is not to be run after.
        server: Time,
        /// The key's time, which never runs backwards: what answers count in.
        now: Time,
        /// Of a semaphore's state.
        era: Option<Era>,
        /// One for each operation.
        answers: Vec<Answer>,
    },
}

/// The answer to one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub outcome: Outcome,
    /// The limit that stands in the way most.
    pub index: Option<usize>,
    /// Of that limit, else of the tightest.
    pub figures: Figures,
    /// Granted: until it begins. Denied: until it might pass. Queued: until it may be asked for again.
    pub retry_after: Span,
    /// Grows with every grant of a semaphore.
    pub fence: u64,
    /// How many wait before it.
    pub position: u64,
    /// From when on it is granted, in the key's time.
    pub at: Time,
    /// What was taken, for [`settle`](super::Batch::settle) and [`unbook`](super::Batch::unbook); empty
    /// if nothing was. Of a settled booking, what it is now.
    pub booking: Taken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Granted from `at` on, renewed, released, cancelled, settled, ...: done.
    Done,
    Denied,
    Never,
    /// Waits; it has to be asked for again before its life is over.
    Queued,
    /// Known no more, or due already: nothing was done.
    Stale,
    /// Given up before; its request came late, or out of order.
    Dead,
    /// Cancelled after it was granted, which was given back.
    Returned,
}

/// The answer is none that a script of ours gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(pub String);

impl Reply {
    /// Reads the answer to a batch of `ops` operations.
    pub fn read(value: &Value, ops: usize) -> Result<Reply, Malformed> {
        let malformed = || Malformed(format!("{value:.200?}"));
        let Value::Array(items) = value else {
            return Err(malformed());
        };
        let texts: Option<Vec<&[u8]>> = items.iter().map(bytes).collect();
        let texts = texts.ok_or_else(malformed)?;
        Reply::parse(&texts, ops).ok_or_else(malformed)
    }

    fn parse(texts: &[&[u8]], ops: usize) -> Option<Reply> {
        if let [second, micro, text, weight @ ..] = texts
            && text.starts_with(b"1;")
        {
            return Reply::run(second, micro, text, weight, ops);
        }
        let server = Time(number(texts.first()?)?);
        let [_, now, era, answers @ ..] = texts else {
            return (texts.len() == 1).then_some(Reply::Late(server));
        };
        let answers: Vec<Answer> = answers
            .iter()
            .map(|text| Answer::parse(std::str::from_utf8(text).ok()?))
            .collect::<Option<_>>()?;
        let era = match era.len() {
            0 => None,
            _ => Some(Era::parse(era)?),
        };
        (answers.len() == ops).then_some(Reply::Done {
            server,
            now: Time(number(now)?),
            era,
            answers,
        })
    }
}

impl Reply {
    /// That of scripts/fast.lua.
    fn run(
        second: &[u8],
        micro: &[u8],
        text: &[u8],
        weight: &[&[u8]],
        ops: usize,
    ) -> Option<Reply> {
        let now = number(second)?.checked_mul(1_000_000)?;
        let now = Time(now.checked_add(number(micro)?)?);
        let text = std::str::from_utf8(text).ok()?;
        let weight = match weight {
            [] => 1,
            [weight] => number(weight)?,
            _ => return None,
        };
        Some(Reply::Done {
            server: now,
            now,
            era: None,
            answers: run::answers(now, text, weight, ops)?,
        })
    }
}

impl Answer {
    fn parse(text: &str) -> Option<Answer> {
        let (head, booking) = text.split_once('|')?;
        let mut words = head.split(' ');
        let outcome = match words.next()? {
            "O" => Outcome::Done,
            "D" => Outcome::Denied,
            "N" => Outcome::Never,
            "Q" => Outcome::Queued,
            "S" => Outcome::Stale,
            "X" => Outcome::Dead,
            "R" => Outcome::Returned,
            _ => return None,
        };
        // Beyond all numbers.
        let number = |word: &str| match word {
            "-1" => Some(u64::MAX),
            word => number(word.as_bytes()),
        };
        let numbers: Vec<u64> = words.map(number).collect::<Option<_>>()?;
        let [index, limit, remaining, retry, reset, fence, position, at] = numbers[..] else {
            return None;
        };
        Some(Answer {
            outcome,
            index: (index > 0).then(|| index as usize - 1),
            figures: Figures {
                limit,
                remaining,
                reset_after: Span(reset),
            },
            retry_after: Span(retry),
            fence,
            position,
            at: Time(at),
            booking: booking.into(),
        })
    }
}

fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        Value::SimpleString(text) => Some(text.as_bytes()),
        _ => None,
    }
}

fn number(text: &[u8]) -> Option<u64> {
    if !text.first()?.is_ascii_digit() {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(texts: &[&str]) -> Value {
        let bulk = |text: &&str| Value::BulkString(text.as_bytes().to_vec());
        Value::Array(texts.iter().map(bulk).collect())
    }

    #[test]
    fn answers_are_read_field_by_field() {
        let texts = [
            "7",
            "8",
            "00000000000000ff",
            "Q 2 3 -1 -1 6 7 8 9|1 2|3",
            "O 0 1 0 0 0 0 0 8|",
        ];
        let Ok(Reply::Done {
            server,
            now,
            era,
            answers,
        }) = Reply::read(&value(&texts), 2)
        else {
            panic!("readable");
        };
        assert_eq!((server, now, era), (Time(7), Time(8), Some(Era(255))));
        let first = Answer {
            outcome: Outcome::Queued,
            index: Some(1),
            figures: Figures {
                limit: 3,
                remaining: u64::MAX,
                reset_after: Span(6),
            },
            retry_after: Span(u64::MAX),
            fence: 7,
            position: 8,
            at: Time(9),
            booking: "1 2|3".into(),
        };
        assert_eq!(answers[0], first);
        assert!(answers[1].index.is_none() && answers[1].booking.is_empty());
        assert_eq!(Reply::read(&value(&["5"]), 3), Ok(Reply::Late(Time(5))));
    }

    #[test]
    fn what_is_no_answer_of_ours_is_refused() {
        let good = "O 0 1 0 0 0 0 0 8|";
        for odd in [
            vec![],
            vec!["x"],
            vec!["7", "8"],
            vec!["7", "8", "era", good],
            vec!["7", "8", ""],
            vec!["7", "8", "", good, good],
            vec!["7", "-8", "", good],
            vec!["7", "8", "", ""],
            vec!["7", "8", "", "O 0 1 0 0 0 0 0|"],
            vec!["7", "8", "", "O 0 1 0 0 0 0 0 8 9|"],
            vec!["7", "8", "", "O 0 1 0 0 0 0 0 8"],
            vec!["7", "8", "", "Y 0 1 0 0 0 0 0 8|"],
            vec!["7", "8", "", "O 0 nan 0 0 0 0 0 8|"],
        ] {
            assert!(Reply::read(&value(&odd), 1).is_err(), "{odd:?}");
        }
        assert!(Reply::read(&Value::Nil, 1).is_err());
        assert!(Reply::read(&Value::Array(vec![Value::Int(1)]), 0).is_err());
    }
}
