//! What a call took, in the words of its script: handed back as it is, to be settled or given back.
use std::fmt;

use crate::limit::rate::Tick;
use crate::limit::time::Time;

/// Nothing, if it is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    Text(Box<str>),
    /// Of a plain bucket; the text is made when it is asked for, which is seldom.
    Units(Units),
}

/// What was taken of a token bucket that nothing was booked of ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Units {
    /// When, in the key's time.
    pub at: Time,
    pub epoch: u64,
    pub weight: u64,
    pub cost: Tick,
    /// When the bucket is full again, from then on.
    pub end: Tick,
}

impl Taken {
    pub fn is_empty(&self) -> bool {
        matches!(self, Taken::Text(text) if text.is_empty())
    }
}

impl Default for Taken {
    fn default() -> Taken {
        Taken::Text(Box::default())
    }
}

impl From<&str> for Taken {
    fn from(text: &str) -> Taken {
        Taken::Text(text.into())
    }
}

impl PartialEq<str> for Taken {
    fn eq(&self, text: &str) -> bool {
        match self {
            Taken::Text(own) => **own == *text,
            Taken::Units(units) => units.to_string() == text,
        }
    }
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Taken::Text(text) => f.write_str(text),
            Taken::Units(units) => units.fmt(f),
        }
    }
}

impl fmt::Display for Units {
    /// As scripts/state.lua and scripts/token_bucket.lua write it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Units {
            at,
            epoch,
            weight,
            cost,
            end,
        } = self;
        write!(
            f,
            "{} 0 {epoch} 0|{weight} {} {} 0 0 {} {} 0 0 0",
            at.0, cost.us, cost.rem, end.us, end.rem
        )
    }
}
