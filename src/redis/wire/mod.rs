//! What is said to a script and what it says: the one place that knows the order of its arguments and
//! of its answers. See scripts/main.lua for their meaning.
//!
//! - [`ask`]: a batch of operations on one key becomes a call. [`taken`]: what one of them took.
//! - [`opened`]: whose numbers decide.
//! - [`reply`]: what came back, as types. [`run`]: the answer to many equal questions.
mod ask;
mod opened;
mod reply;
mod run;
mod taken;

use std::fmt;

pub use ask::{Batch, HEAD_ARGS, Head, Holding, Target};
pub use opened::{Opened, Openings, Told};
pub use reply::{Answer, Malformed, Outcome, Reply};
pub use taken::{Taken, Units};

/// The code of the error for a key that holds none of our texts.
pub const GARBAGE: &str = "LIMITERGARBAGE";

/// Names a request for a semaphore, hence the permit it becomes. Random, so that nobody else can name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(pub u128);

/// The life of a semaphore's state, named at random. Another one means that the state was lost between.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Era(pub u64);

/// From the system's source of randomness: what a fork copies would name the same thing twice. Without
/// that source nothing here can be told apart, and nothing works.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::getrandom(&mut bytes).expect("the system has a source of randomness");
    bytes
}

impl Id {
    pub fn random() -> Id {
        Id(u128::from_ne_bytes(random()))
    }
}

impl Era {
    pub fn random() -> Era {
        Era(u64::from_ne_bytes(random()))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for Era {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Id {
    fn parse(text: &[u8]) -> Option<Id> {
        let text = std::str::from_utf8(text).ok().filter(|t| t.len() == 32)?;
        u128::from_str_radix(text, 16).ok().map(Id)
    }
}

impl Era {
    fn parse(text: &[u8]) -> Option<Era> {
        let text = std::str::from_utf8(text).ok().filter(|t| t.len() == 16)?;
        u64::from_str_radix(text, 16).ok().map(Era)
    }
}

/// What a process hears on its channel of a wait of its own. A hint: it may get lost, or be stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// Granted, as a claim: it has to be asked for again within the claim's time.
    Granted(Id),
    /// Its deadline came first.
    Denied(Id),
    /// It became too heavy for limits that were lowered.
    Never(Id),
}

impl Note {
    /// `None`: not one of ours.
    pub fn parse(message: &[u8]) -> Option<Note> {
        let (letter, id) = message.split_at_checked(2)?;
        let id = Id::parse(id)?;
        match letter {
            b"G " => Some(Note::Granted(id)),
            b"D " => Some(Note::Denied(id)),
            b"N " => Some(Note::Never(id)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_and_others_are_not() {
        let id = Id(0xabc);
        for (letter, note) in [
            ("G", Note::Granted(id)),
            ("D", Note::Denied(id)),
            ("N", Note::Never(id)),
        ] {
            let text = format!("{letter} {id}");
            assert_eq!(Note::parse(text.as_bytes()), Some(note));
        }
        for odd in [
            &b""[..],
            b"G",
            b"G ",
            b"G abc",
            b"X 00000000000000000000000000000abc",
        ] {
            assert_eq!(Note::parse(odd), None);
        }
        assert_eq!(Era::parse(Era(7).to_string().as_bytes()), Some(Era(7)));
        assert_eq!(Era::parse(b""), None);
    }
}
