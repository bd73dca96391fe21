//! The numbers by which permits and operations are known outside, and what remembers them.
//!
//! A number names the process generation it was made in, the shard that knows it, and a serial. Serials
//! count up and begin again only after 2^44, so a copy of an old number is told from a live one.
use std::sync::atomic::{AtomicU64, Ordering};

use crate::decision::Status;

/// `local (1 bit) | generation (11) | serial (46) | shard (6)`. Never 0.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    generation: u64,
}

impl Numbers {
    pub const SHARDS: usize = 1 << SHARD_BITS;
    /// Permits are counted modulo this; two bits of a number's serial are left to say of which kind it is.
    pub const PERMITS: u64 = 1 << (SERIAL_BITS - 2);

    /// `generation`: how many forks lie between the process that loaded the library and this one.
    pub const fn new(generation: u64) -> Numbers {
        Numbers {
            generation: generation & (LOCAL - 1),
        }
    }

    /// Numbers of a backend that stands in for another one: none of that one's.
    pub const fn local(generation: u64) -> Numbers {
        Numbers {
            generation: generation & (LOCAL - 1) | LOCAL,
        }
    }

    /// Whether a number is from a backend that stands in for another.
    pub fn is_local(number: u64) -> bool {
        number >> (SERIAL_BITS + SHARD_BITS) & LOCAL != 0
    }

    pub fn make(&self, shard: usize, serial: u64) -> u64 {
        debug_assert!(shard < Numbers::SHARDS);
        let serial = serial & SERIAL_MASK;
        self.generation << (SERIAL_BITS + SHARD_BITS) | serial << SHARD_BITS | shard as u64
    }

    /// Shard and serial. INVALID for 0, FORKED for a number of an earlier generation, STALE for one that
    /// this process cannot have made.
    pub fn read(&self, number: u64) -> Result<(usize, u64), Status> {
        if number == 0 {
            return Err(Status::Invalid);
        }
        let generation = number >> (SERIAL_BITS + SHARD_BITS);
        if generation != self.generation {
            // A number of a stand-in is as old as its process.
            let older = generation & (LOCAL - 1) < self.generation & (LOCAL - 1);
            return Err(if older { Status::Forked } else { Status::Stale });
        }
        let shard = number as usize & (Numbers::SHARDS - 1);
        Ok((shard, number >> SHARD_BITS & SERIAL_MASK))
    }

    /// A serial to start from, so that numbers of different clients do not coincide by counting alike.
    /// Small enough to leave most serials ahead.
    pub fn start(seed: u64) -> u64 {
        1 + (seed & SERIAL_MASK >> 6)
    }
}

/// In a generation: beyond all that are counted.
const LOCAL: u64 = 1 << 11;
const SERIAL_BITS: u32 = 46;
const SHARD_BITS: u32 = 6;
const SERIAL_MASK: u64 = (1 << SERIAL_BITS) - 1;

/// Counts operations, over all shards. Serials go on beyond what a number has room for, so that they tell
/// for ever who came first.
pub struct Operations(AtomicU64);

impl Operations {
    pub fn new(first: u64) -> Operations {
        Operations(AtomicU64::new(first))
    }

    /// The serial of a new operation.
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    /// The latest operation whose number has this serial; some number without an operation if there was
    /// none yet.
    pub fn find(&self, serial: u64) -> u64 {
        let latest = self.0.load(Ordering::Relaxed).wrapping_sub(1);
        latest.wrapping_sub(latest.wrapping_sub(serial) & SERIAL_MASK)
    }
}

/// The latest records of a kind that nobody has to give back: the oldest are forgotten. Serials count up
/// by one, so a record is found by subtraction.
pub struct Recent<T> {
    /// In a circle once there are [`Recent::KEPT`].
    records: Vec<Option<T>>,
    /// Where the oldest is, which the next takes the place of.
    oldest: usize,
    /// Serial of the next.
    next: u64,
}

impl<T> Recent<T> {
    /// So many are kept.
    pub const KEPT: usize = 1024;

    pub fn new(first: u64) -> Recent<T> {
        Recent {
            records: Vec::new(),
            oldest: 0,
            next: first,
        }
    }

    /// Adds a record and answers its serial.
    #[inline(always)]
    pub fn push(&mut self, record: T) -> u64 {
        if self.records.len() < Recent::<T>::KEPT {
            self.records.push(Some(record));
        } else {
            self.records[self.oldest] = Some(record);
            self.oldest = (self.oldest + 1) % Recent::<T>::KEPT;
        }
        let serial = self.next;
        self.next = (serial + 1) % Numbers::PERMITS;
        serial
    }

    pub fn len(&self) -> usize {
        self.records.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get_mut(&mut self, serial: u64) -> Option<&mut T> {
        self.slot(serial)?.as_mut()
    }

    pub fn take(&mut self, serial: u64) -> Option<T> {
        self.slot(serial)?.take()
    }

    /// Forgets all records that match.
    pub fn forget(&mut self, matches: impl Fn(&T) -> bool) {
        for slot in &mut self.records {
            slot.take_if(|record| matches(record));
        }
    }

    fn slot(&mut self, serial: u64) -> Option<&mut Option<T>> {
        // 1 is the latest.
        let age = self.next.wrapping_sub(serial) % Numbers::PERMITS;
        let age = usize::try_from(age).ok()?;
        let from_oldest = self.records.len().checked_sub(age)?;
        if age == 0 {
            return None;
        }
        let index = (self.oldest + from_oldest) % Recent::<T>::KEPT;
        self.records.get_mut(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_as_what_they_were_made_of() {
        let numbers = Numbers::new(3);
        let number = numbers.make(63, (1 << 46) - 1);
        assert_eq!(numbers.read(number), Ok((63, (1 << 46) - 1)));
        assert_eq!(numbers.read(0), Err(Status::Invalid));
        assert_eq!(
            numbers.read(Numbers::new(2).make(1, 7)),
            Err(Status::Forked)
        );
        assert_eq!(numbers.read(Numbers::new(4).make(1, 7)), Err(Status::Stale));
        assert_ne!(Numbers::new(0).make(0, Numbers::start(0)), 0);
        let local = Numbers::local(3).make(63, 7);
        assert!(Numbers::is_local(local) && !Numbers::is_local(number));
        assert_eq!(Numbers::local(3).read(local), Ok((63, 7)));
        assert_eq!(Numbers::local(4).read(local), Err(Status::Forked));
        assert_eq!(Numbers::new(4).read(local), Err(Status::Forked));
        assert_eq!(Numbers::new(3).read(local), Err(Status::Stale));
    }

    #[test]
    fn serials_begin_again_without_a_mix_up() {
        let mut recent = Recent::new(Numbers::PERMITS - 2);
        let serials: Vec<u64> = (0..5).map(|n| recent.push(n)).collect();
        assert_eq!(serials[2..], [0, 1, 2]);
        for (n, serial) in serials.into_iter().enumerate() {
            assert_eq!(recent.take(serial), Some(n));
            let number = Numbers::new(1).make(9, serial << 1 | 1);
            assert_eq!(Numbers::new(1).read(number), Ok((9, serial << 1 | 1)));
        }
        assert_eq!(recent.take(3), None);
    }

    #[test]
    fn operations_are_found_and_in_order_when_their_numbers_begin_again() {
        let numbers = Numbers::new(5);
        for first in [1, SERIAL_MASK - 1, 3 * (SERIAL_MASK + 1) - 2, u64::MAX - 1] {
            let operations = Operations::new(first);
            let serials: Vec<u64> = (0..4).map(|_| operations.next()).collect();
            for (n, &serial) in serials.iter().enumerate() {
                assert_eq!(serial, first.wrapping_add(n as u64));
                let (shard, read) = numbers.read(numbers.make(63, serial)).unwrap();
                assert_eq!((shard, operations.find(read)), (63, serial));
            }
            let not_yet = numbers.read(numbers.make(63, first.wrapping_add(4)));
            assert!(!serials.contains(&operations.find(not_yet.unwrap().1)));
        }
    }

    #[test]
    fn recent_records_are_bounded() {
        let mut recent = Recent::new(5);
        let serials: Vec<u64> = (0..3000).map(|n| recent.push(n)).collect();
        assert_eq!(recent.records.len(), Recent::<i32>::KEPT);
        assert_eq!(recent.take(serials[0]), None);
        assert_eq!(recent.take(serials[2999]), Some(2999));
        assert_eq!(recent.take(serials[2999]), None);
        assert_eq!(recent.get_mut(serials[2500]), Some(&mut 2500));
        assert_eq!(recent.get_mut(0), None);
        assert_eq!(recent.get_mut(u64::MAX), None);
        recent.forget(|n| *n == 2500);
        assert_eq!(recent.take(serials[2500]), None);
        assert_eq!(recent.take(serials[2501]), Some(2501));
    }
}
