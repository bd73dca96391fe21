//! Penalties: what is booked to start before one is over is moved to after it, here and in other
//! processes, which hear of it by a note to all. It comes a moment after the penalty, and may get lost; who has
//! waited for longer than a second has looked before: what starts until then starts.
use std::sync::Arc;

use super::lines::{Line, Slot, Then};
use super::ops::{Stage, Wait};
use super::question::Op;
use super::{Key, Redis, Scene};
use crate::limit::time::Time;
use crate::limit::weights::Weights;

/// A key, by the hash of its name in Redis, and until when nothing starts there, by the key's clock; 0: what
/// is booked may start sooner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Penalty {
    place: Box<str>,
    until: Time,
}

impl Penalty {
    /// `None`: not one of ours.
    pub fn parse(message: &[u8]) -> Option<Penalty> {
        let text = std::str::from_utf8(message).ok()?;
        if let Some(place) = text.strip_prefix("W ") {
            let until = Time(0);
            return (!place.is_empty()).then(|| Penalty {
                place: place.into(),
                until,
            });
        }
        let (until, place) = text.strip_prefix("P ")?.split_once(' ')?;
        Some(Penalty {
            place: place.into(),
            until: Time(until.parse().ok()?),
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
                let of = |(key, line): (&Arc<Key>, &Line)| {
                    if !line.is_awaited() {
                        return None;
                    }
                    let meant = penalties.iter().filter(|one| *one.place == *key.place());
                    Some((key.clone(), meant.map(|one| one.until).max()?))
                };
                let meant: Vec<_> = scene.shard.lines.iter().filter_map(of).collect();
                for (key, until) in meant {
                    match until {
                        Time(0) => scene.sooner(&key),
                        until => scene.put_off(&key, until),
                    }
                }
            });
        }
    }
}

impl Scene<'_> {
    /// Nothing starts on a key before then: what is booked to is asked for anew.
    pub fn put_off(&mut self, key: &Arc<Key>, until: Time) {
        let line = self.line(key);
        line.blocked = line.blocked.max(until);
        let booked: Vec<u64> = line.booked.iter().copied().collect();
        let early = |serial: &u64| match &self.shard.waits[serial].stage {
            Stage::Booked(answer) => self.too_early(*serial, answer.at),
            _ => false,
        };
        let early: Vec<u64> = booked.iter().copied().filter(early).collect();
        if early.is_empty() {
            return self.tidy(key);
        }
        if !key.named.limits.holds() {
            booked.iter().for_each(|serial| self.is_moved(*serial));
            // Those that are not early come after those that are.
            return self.move_booked(key);
        }
        // The last first: then each gives back all that it took.
        for &serial in early.iter().rev() {
            let permit = self.hold_of(serial).held.expect("it is booked");
            let held = self.unhold(permit);
            let key = self.shard.waits[&serial].key.clone();
            self.say_cancel(&key, held.id, held.ends);
        }
        for serial in early {
            self.is_moved(serial);
            self.anew(serial);
        }
    }

    /// A time was booked before a penalty that lasts longer. A wait is moved once for each: whoever ended
    /// the penalty by a reset may be another process.
    pub fn too_early(&self, serial: u64, at: Time) -> bool {
        let wait = &self.shard.waits[&serial];
        let line = self.shard.lines.get(&wait.key);
        line.is_some_and(|line| at < line.blocked && wait.moved < line.blocked)
    }

    pub fn is_moved(&mut self, serial: u64) {
        let blocked = |wait: &Wait| Some(self.shard.lines.get(&wait.key)?.blocked);
        let blocked = self.shard.waits.get(&serial).and_then(blocked);
        if let (Some(blocked), Some(wait)) = (blocked, self.shard.waits.get_mut(&serial)) {
            wait.moved = wait.moved.max(blocked);
        }
    }

    /// Books anew what is booked on a key of rates, in one call.
    pub fn move_booked(&mut self, key: &Arc<Key>) {
        let look = Op::Peek(Weights::One(0));
        self.enqueue(key, vec![look], Then::Change(Arc::<Slot>::default()));
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
                until: Time(1_700_000_000_000_000)
            })
        );
        let sooner = read("W 0beec7b5ea3f0fdbc95d0dd47f3c5bc275da8a33").unwrap();
        assert_eq!((sooner.until, sooner.place.len()), (Time(0), 40));
        for odd in ["", "W ", "P", "P ", "P 12", "P x y", "G 12 y", "P -1 y"] {
            assert_eq!(read(odd), None, "{odd}");
        }
    }
}
