//! What a call says and what the server answered, read back from the wire.
use limiter::limit::weights::Weights;
use limiter::redis::link::Call;
use limiter::redis::wire::{Answer, HEAD_ARGS, Reply};

/// One operation of a call; a run of equal ones is taken apart.
#[derive(Clone, Debug)]
pub struct Asked {
    pub letter: char,
    /// Of a semaphore's operations.
    pub id: String,
    pub weights: Option<Weights>,
    pub booking: String,
    /// Of a settle: to what; of a penalty: for how long; of a booking made again: which.
    pub number: u64,
}

pub struct Seen {
    pub asked: Vec<Asked>,
    /// The state's key: which limiter and key it is.
    pub key: String,
}

fn weights(text: &str) -> Weights {
    let numbers: Vec<u64> = text
        .split(',')
        .map(|n| n.parse().expect("a weight"))
        .collect();
    match numbers[..] {
        [one] => Weights::One(one),
        _ => Weights::Each(numbers.into()),
    }
}

pub fn read(call: &Call) -> Seen {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    let args: Vec<String> = call.args.iter().map(text).collect();
    let holds = call.keys.len() >= 4;
    let mut at = HEAD_ARGS[usize::from(holds)];
    let mut asked = Vec::new();
    while at < args.len() {
        let letter = args[at].chars().next().expect("a letter");
        let arg = |n: usize| args[at + n].clone();
        let one = Asked {
            letter,
            id: String::new(),
            weights: None,
            booking: String::new(),
            number: 0,
        };
        let (taken, one, count) = match letter {
            'T' | 'B' => {
                let count = arg(2).parse().expect("a count");
                let weights = Some(weights(&arg(1)));
                let more = if letter == 'B' { 3 } else { 0 };
                (2 + more, Asked { weights, ..one }, count)
            }
            'P' | 'M' => (
                2,
                Asked {
                    weights: Some(weights(&arg(2))),
                    ..one
                },
                1,
            ),
            'V' if holds => (1, Asked { id: arg(1), ..one }, 1),
            'W' => (
                3,
                Asked {
                    weights: Some(weights(&arg(3))),
                    number: arg(1).parse().expect("a number"),
                    ..one
                },
                1,
            ),
            'L' => (0, one, 1),
            'U' | 'D' | 'V' => (
                1,
                Asked {
                    booking: arg(1),
                    ..one
                },
                1,
            ),
            'K' => (
                1,
                Asked {
                    weights: Some(weights(&arg(1))),
                    ..one
                },
                1,
            ),
            'S' => {
                let number = arg(2).parse().expect("a weight");
                (
                    2,
                    Asked {
                        booking: arg(1),
                        number,
                        ..one
                    },
                    1,
                )
            }
            'X' => (0, one, 1),
            'Z' => (
                1,
                Asked {
                    number: arg(1).parse().expect("a span"),
                    ..one
                },
                1,
            ),
            'A' => (
                4,
                Asked {
                    id: arg(1),
                    weights: Some(weights(&arg(4))),
                    ..one
                },
                1,
            ),
            'R' | 'C' => (2, Asked { id: arg(1), ..one }, 1),
            'N' => (
                4,
                Asked {
                    id: arg(1),
                    weights: Some(weights(&arg(4))),
                    ..one
                },
                1,
            ),
            other => unreachable!("{other}"),
        };
        at += 1 + taken;
        asked.extend(std::iter::repeat_n(one, count));
    }
    Seen {
        asked,
        key: text(call.keys.iter().next().expect("a key")),
    }
}

/// Operations and answers in few words.
pub fn told(asked: &[Asked], reply: &Reply) -> String {
    let Reply::Done { answers, .. } = reply else {
        return "late".into();
    };
    let one = |(asked, answer): (&Asked, &Answer)| {
        let short = asked.id.get(26..).unwrap_or("");
        format!(
            "{}{short} {:?} {}",
            asked.letter, answer.outcome, answer.retry_after.0
        )
    };
    asked
        .iter()
        .zip(answers)
        .map(one)
        .collect::<Vec<_>>()
        .join(", ")
}
