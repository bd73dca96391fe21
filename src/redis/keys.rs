//! The names of keys in Redis. `{prefix:kinds:name:key}:part`: all parts of one limiter's key share a
//! hash tag, hence a slot; different ones never share a name, whatever bytes they are made of.
use super::script::letter;
use super::wire::Id;
use crate::limit::decide::Limits;
use crate::limit::rule::Kind;

/// What a semaphore needs beside the state: what ends when, the queue, and who is who.
const HOLDER_PARTS: [&str; 3] = ["e", "q", "i"];

/// The parts that limits are stored in, in the script's order: the state, what a semaphore needs, and of
/// each sliding log its older entries.
fn parts(limits: &Limits) -> impl Iterator<Item = String> {
    let holders: &[&str] = if limits.holds() { &HOLDER_PARTS } else { &[] };
    let fixed = ["s"].iter().chain(holders).map(|part| part.to_string());
    let kinds = limits.shape().into_iter().enumerate();
    let logs = kinds.filter(|(_, kind)| *kind == Kind::SlidingLog);
    fixed.chain(logs.map(|(i, _)| format!("l{i}")))
}

/// The keys of a limiter, but for the caller's key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Names {
    /// `{prefix:kinds:name:`
    start: String,
    parts: Box<[String]>,
}

impl Names {
    /// `prefix` may have colons in it; the three parts after it have none, so it ends where they begin.
    pub fn new(prefix: &str, name: &[u8], limits: &Limits) -> Names {
        let mut start = String::from("{");
        for part in prefix.split(':') {
            encode(part.as_bytes(), &mut start);
            start.push(':');
        }
        start.extend(limits.shape().into_iter().map(letter));
        start.push(':');
        encode(name, &mut start);
        start.push(':');
        let parts = parts(limits).collect();
        Names { start, parts }
    }

    /// Where the processes are counted that use the limiter. It has one part less than the others.
    pub fn census(&self) -> String {
        let tag = self.start.strip_suffix(':').unwrap_or(&self.start);
        format!("{tag}}}:n")
    }

    /// The keys of one script call, in the script's order.
    pub fn keys(&self, key: &[u8]) -> impl Iterator<Item = String> + '_ {
        let mut tag = String::with_capacity(self.start.len() + key.len() + 3);
        tag.push_str(&self.start);
        encode(key, &mut tag);
        tag.push_str("}:");
        self.parts.iter().map(move |part| format!("{tag}{part}"))
    }
}

/// Where notes for one client are published. The script separates it from others by semicolons.
pub fn channel(prefix: &str, client: Id) -> String {
    let mut channel = String::new();
    encode(prefix.as_bytes(), &mut channel);
    format!("{}:notes:{client}", channel.replace(';', "%3b"))
}

/// Where clients hear of penalties: beside the channel of one of them, and the same for all of its prefix.
pub fn penalties(channel: &str) -> String {
    let (beside, _) = channel.rsplit_once(':').expect("a client's channel");
    format!("{beside}:penalties")
}

/// Writes what has a meaning in a key's name, and what does not print, as `%` and two digits.
fn encode(bytes: &[u8], into: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for &byte in bytes {
        match byte {
            b'%' | b'{' | b'}' | b':' | 0..=b' ' | 0x7f.. => {
                into.push('%');
                into.push(DIGITS[usize::from(byte >> 4)].into());
                into.push(DIGITS[usize::from(byte & 15)].into());
            }
            _ => into.push(byte.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::limit::rule::{Limit, Rule};
    use crate::limit::semaphore::Semaphore;
    use crate::limit::sliding_log::SlidingLog;
    use crate::limit::time::Span;
    use crate::redis::link::slot_of;

    fn limits(rules: Vec<Rule>) -> Limits {
        let limit = |rule| Limit {
            rule,
            per_call: false,
        };
        Limits::new(rules.into_iter().map(limit).collect(), 1).unwrap()
    }

    fn plain() -> Limits {
        limits(vec![Rule::Unlimited])
    }

    fn semaphore() -> Limits {
        let semaphore = Semaphore::new(1, Span::ZERO, true).unwrap();
        limits(vec![Rule::Semaphore(semaphore), Rule::Unlimited])
    }

    fn with_logs() -> Limits {
        let log = || Rule::SlidingLog(SlidingLog::new(1, Span(1)).unwrap());
        let semaphore = Rule::Semaphore(Semaphore::new(1, Span::ZERO, true).unwrap());
        limits(vec![log(), semaphore, log()])
    }

    fn all(prefix: &str, name: &[u8], limits: &Limits, key: &[u8]) -> Vec<String> {
        Names::new(prefix, name, limits).keys(key).collect()
    }

    #[test]
    fn names_read_well_where_they_can() {
        assert_eq!(
            all("app:prod", b"api", &plain(), b"user-7"),
            ["{app:prod:U:api:user-7}:s"]
        );
        assert_eq!(
            all("l", b"a b", &semaphore(), b"\0{x}%:\xff"),
            ["s", "e", "q", "i"].map(|part| format!("{{l:SU:a%20b:%00%7bx%7d%25%3a%ff}}:{part}"))
        );
        assert_eq!(
            all("l", b"n", &with_logs(), b"k"),
            ["s", "e", "q", "i", "l0", "l2"].map(|part| format!("{{l:LSL:n:k}}:{part}"))
        );
    }

    #[test]
    fn the_census_of_a_limiter_is_none_of_its_keys() {
        let census = Names::new("p", b"n", &plain()).census();
        assert_eq!(census, "{p:U:n}:n");
        // A prefix may have colons, so that an other limiter's keys have as many parts.
        let other = Names::new("p:U", b"n", &plain());
        assert!(!other.keys(b"").any(|key| key == census));
    }

    #[test]
    fn different_bytes_are_different_keys() {
        let texts: Vec<Vec<u8>> = [
            &b""[..],
            b":",
            b"::",
            b"a",
            b"a:",
            b":a",
            b"%",
            b"%3a",
            b"%%",
        ]
        .into_iter()
        .chain([
            &b"{"[..],
            b"}",
            b"{}",
            b"}{",
            b"\0",
            b"\0\0",
            b"\xff",
            b"s",
            b"U",
            b"U:",
        ])
        .map(<[u8]>::to_vec)
        .chain([vec![b'x'; 65_536], vec![0; 65_536], vec![b'%'; 65_536]])
        .collect();
        let mut seen = HashSet::new();
        let mut count = 0;
        for limits in [plain(), with_logs()] {
            for prefix in ["", "l", "l:", ":l", "l:U", "l:U:a", "{l}"] {
                for name in &texts {
                    for key in texts.iter().filter(|key| name.len() + key.len() < 70_000) {
                        let keys = all(prefix, name, &limits, key);
                        count += keys.len();
                        seen.extend(keys);
                    }
                }
            }
        }
        assert_eq!(seen.len(), count);
    }

    #[test]
    fn all_parts_share_a_slot_and_keys_spread_over_slots() {
        let mut slots = HashSet::new();
        for i in 0..4_000_u32 {
            let key = i.to_le_bytes();
            let found: HashSet<u16> = all("l", b"n}{", &semaphore(), &key)
                .iter()
                .map(|key| slot_of(key.as_bytes()))
                .collect();
            assert_eq!(found.len(), 1, "{i}");
            slots.extend(found);
        }
        // By chance 4000 keys fall into 3550 of 16384 slots.
        assert!(slots.len() > 3_400, "{}", slots.len());
        for odd in [&b""[..], b"{", b"}", b"{}", b"%7b"] {
            let keys = all("", odd, &semaphore(), odd);
            let tag = keys[0].strip_suffix(":s").unwrap();
            assert_eq!(
                tag.find('}'),
                Some(tag.len() - 1),
                "the whole name is the tag"
            );
            assert_eq!(slot_of(keys[0].as_bytes()), slot_of(keys[3].as_bytes()));
        }
    }
}
