//! Penalties and resets, here and in other processes, which hear of it by a note to all: what is booked on the
//! key has another time then, and does not start before that is known. A note comes a moment later, and may
//! get lost; who has waited for longer than a second has looked before: what starts until then starts.
//!
//! What is held ends by a reset. Whoever holds it is told as soon as the note of that has come.
//!
//! Where a semaphore is among the limits Redis knows who has booked, moves all of it itself, and is asked for
//! the new times. What is booked of rates alone is known here only, and booked anew: [`rebook`](super::rebook).
use std::sync::Arc;

use super::flight::Trip;
use super::lines::Line;
use super::{Key, Redis, Scene};
use crate::limit::time::Time;

/// What was heard of a key, which goes by the hash of its name in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Penalty {
    place: Box<str>,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Nothing starts before then, by the key's clock.
    Until(Time),
    /// It was reset, as this one.
    Reset(u64),
    /// What is booked may start sooner.
    Sooner,
}

impl Penalty {
    /// `None`: not one of ours.
    pub fn parse(message: &[u8]) -> Option<Penalty> {
        let text = std::str::from_utf8(message).ok()?;
        let (letter, rest) = text.split_once(' ')?;
        let (what, place) = match letter {
            "W" => (What::Sooner, rest),
            "P" => {
                let (until, place) = rest.split_once(' ')?;
                (What::Until(Time(until.parse().ok()?)), place)
            }
            "R" => {
                let (reset, place) = rest.split_once(' ')?;
                (What::Reset(reset.parse().ok()?), place)
            }
            _ => return None,
        };
        (!place.is_empty()).then(|| Penalty {
            place: place.into(),
            what,
        })
    }
}

/// What a key goes by in a note.
pub(super) fn place(key: &Key) -> Box<str> {
    let mut keys = key.named.rules.target.names().keys(&key.bytes);
    let name = keys.next().expect("it is stored somewhere");
    redis::Script::new(&name).get_hash().into()
}

impl Redis {
    /// What was heard of penalties.
    pub fn penalized(&self, penalties: &[Penalty]) {
        if penalties.is_empty() {
            return;
        }
        for shard in 0..self.shards.len() {
            self.shielded(shard, |scene| {
                for one in penalties {
                    if one.what != What::Sooner {
                        scene.void_noted(&one.place);
                    }
                    if let Some(key) = scene.shard.places.get(&one.place).cloned() {
                        scene.heard_of(&key, one.what);
                    }
                }
            });
        }
    }
}

impl Scene<'_> {
    fn heard_of(&mut self, key: &Arc<Key>, what: What) {
        match what {
            What::Until(until) => self.put_off(key, until),
            What::Reset(reset) => self.was_reset(key, reset),
            What::Sooner => self.sooner(key),
        }
    }

    /// Nothing starts on a key before then, by the key's clock; 0: there is no penalty.
    pub fn put_off(&mut self, key: &Arc<Key>, until: Time) {
        let now = self.now;
        let line = self.line(key);
        if until > Time(0) && until != line.blocked {
            (line.blocked, line.heard) = (until, now);
            match key.named.limits.holds() {
                true => line
                    .booked_or_moving()
                    .into_iter()
                    .for_each(|one| self.see_anew(key, one)),
                false => self.book_all_again(key),
            }
        }
        self.tidy(key);
    }

    /// What was booked on a key is booked no more. `reset`: which one it was.
    pub fn was_reset(&mut self, key: &Arc<Key>, reset: u64) {
        let now = self.now;
        let line = self.line(key);
        if reset != line.reset {
            (line.reset, line.blocked, line.heard) = (reset, Time(0), now);
            match key.named.limits.holds() {
                true => line
                    .booked_or_moving()
                    .into_iter()
                    .for_each(|one| self.requeue(one)),
                false => self.book_all_again(key),
            }
            self.see_held(key);
        }
        self.tidy(key);
    }

    /// A call was sent before the last penalty, or reset, was heard of.
    pub fn is_of_before(&self, key: &Arc<Key>, trip: &Trip) -> bool {
        let heard = |line: &Line| trip.sent < line.heard;
        self.shard.lines.get(key).is_some_and(heard)
    }

    /// The time of a wait that is booked may be another one by now.
    pub fn see_anew(&mut self, key: &Arc<Key>, serial: u64) {
        match key.named.limits.holds() {
            true => {
                self.hold_back(serial);
                self.ask_time(serial);
            }
            false => self.book_again(key, serial),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_and_others_are_not() {
        let read = |text: &str| Penalty::parse(text.as_bytes());
        let penalty = read("P 1700000000000000 0beec7b5ea3f0fdbc95d0dd47f3c5bc275da8a33");
        assert_eq!(
            penalty,
            Some(Penalty {
                place: "0beec7b5ea3f0fdbc95d0dd47f3c5bc275da8a33".into(),
                what: What::Until(Time(1_700_000_000_000_000))
            })
        );
        let sooner = read("W 0beec7b5ea3f0fdbc95d0dd47f3c5bc275da8a33").unwrap();
        assert_eq!((sooner.what, sooner.place.len()), (What::Sooner, 40));
        assert_eq!(read("R 17 abc").unwrap().what, What::Reset(17));
        for odd in [
            "", "W ", "P", "P ", "P 12", "P x y", "G 12 y", "P -1 y", "R abc", "R 1 ",
        ] {
            assert_eq!(read(odd), None, "{odd}");
        }
    }
}
