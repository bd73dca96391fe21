//! Where randomness comes from: the system, or a seed where everything is to happen again.
use std::hash::BuildHasher;

use siphasher::sip::SipHasher13;

use super::wire::{Era, Id};
use crate::limit::time::Span;
use crate::permit::Numbers;
use crate::sync::Mutex;

pub struct Dice(Kind);

enum Kind {
    System,
    Seeded(Mutex<u64>),
}

impl Dice {
    /// Asks the system each time: a forked child never repeats what its parent had.
    pub fn system() -> Dice {
        Dice(Kind::System)
    }

    pub fn seeded(seed: u64) -> Dice {
        Dice(Kind::Seeded(Mutex::new(seed)))
    }

    fn roll(&self) -> u128 {
        match &self.0 {
            Kind::System => Id::random().0,
            Kind::Seeded(state) => {
                let mut state = state.lock();
                u128::from(split_mix(&mut state)) << 64 | u128::from(split_mix(&mut state))
            }
        }
    }

    /// An id that nobody can guess, which tells by its last bits whose it is.
    pub fn id(&self, shard: usize) -> Id {
        Id(self.roll() & !(SHARD) | shard as u128)
    }

    pub fn era(&self) -> Era {
        Era(self.roll() as u64)
    }

    /// For tables whose order nobody outside can guess.
    pub fn seeds(&self) -> Seeds {
        let both = self.roll();
        Seeds((both >> 64) as u64, both as u64)
    }

    /// Between 4/5 and 6/5 of `span`, so that processes do not keep step.
    pub fn about(&self, span: Span) -> Span {
        let fifth = span.0 / 5;
        Span(span.0 - fifth + (self.roll() as u64) % (2 * fifth + 1))
    }
}

/// Makes hashers.
#[derive(Clone, Copy)]
pub struct Seeds(u64, u64);

impl Seeds {
    pub fn numbers(self) -> (u64, u64) {
        (self.0, self.1)
    }
}

impl BuildHasher for Seeds {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0, self.1)
    }
}

const SHARD: u128 = Numbers::SHARDS as u128 - 1;

/// The shard an id was made in.
pub fn shard_of(id: Id) -> usize {
    (id.0 & SHARD) as usize
}

/// Sebastiano Vigna's SplitMix64.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_itself_and_the_system_does_not() {
        let ids = |dice: Dice| [dice.id(7), dice.id(63), dice.id(0)];
        assert_eq!(ids(Dice::seeded(5)), ids(Dice::seeded(5)));
        assert_ne!(ids(Dice::seeded(5)), ids(Dice::seeded(6)));
        assert_ne!(ids(Dice::system()), ids(Dice::system()));
        assert_eq!(ids(Dice::system()).map(shard_of), [7, 63, 0]);
        for dice in [Dice::system(), Dice::seeded(1)] {
            for _ in 0..1000 {
                assert!((80..=120).contains(&dice.about(Span(100)).0));
            }
            assert_eq!(dice.about(Span(3)), Span(3));
        }
    }
}
