//! What a sliding log remembers: admissions in order, in pieces.
use std::collections::VecDeque;
use std::sync::Arc;

use crate::limit::time::{Span, Time};

/// Admissions in order. Sums run on, so that the weight between two entries is one subtraction and
/// every question is a binary search. In pieces, so that no call moves or corrects all of a long log. A short
/// one is all there is here: of many keys more would be very many small pieces of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// The running sum before the first entry.
    gone: u64,
    first: Option<Piece>,
    /// None of these is empty, nor are there any without a first.
    more: VecDeque<Piece>,
}

/// Not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    /// What is added to the sums of its entries.
    base: u64,
    entries: Entries,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Entries {
    /// So many of them are.
    Few(u8, [Entry; FEW]),
    Own(VecDeque<Entry>),
    /// Of a piece that is full they are shared among copies of a key until they are changed.
    Shared(Arc<VecDeque<Entry>>),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub time: Time,
    /// Weight of this entry and of all before it, modulo 2^64.
    pub sum: u64,
}

/// Where an entry is, or would be.
#[derive(Clone, Copy)]
pub(super) struct Place {
    piece: usize,
    index: usize,
}

/// Most entries of a piece.
const PIECE: usize = 512;
/// Entries that need no memory of their own.
const FEW: usize = 5;

impl Entries {
    fn of(entry: Entry) -> Entries {
        let mut few = [Entry::default(); FEW];
        few[0] = entry;
        Entries::Few(1, few)
    }

    fn len(&self) -> usize {
        match self {
            Entries::Few(few, _) => usize::from(*few),
            Entries::Own(entries) => entries.len(),
            Entries::Shared(entries) => entries.len(),
        }
    }

    fn at(&self, index: usize) -> Entry {
        match self {
            Entries::Few(_, entries) => entries[index],
            Entries::Own(entries) => entries[index],
            Entries::Shared(entries) => entries[index],
        }
    }

    /// The first for which `earlier` does not hold.
    fn find(&self, earlier: impl Fn(&Entry) -> bool) -> usize {
        match self {
            Entries::Few(few, entries) => entries[..usize::from(*few)].partition_point(earlier),
            Entries::Own(entries) => entries.partition_point(earlier),
            Entries::Shared(entries) => entries.partition_point(earlier),
        }
    }

    fn own(&mut self) -> &mut VecDeque<Entry> {
        if let Entries::Few(few, entries) = self {
            let mut own = VecDeque::with_capacity(4 * FEW);
            own.extend(&entries[..usize::from(*few)]);
            *self = Entries::Own(own);
        }
        match self {
            Entries::Own(entries) => entries,
            Entries::Shared(entries) => Arc::make_mut(entries),
            Entries::Few(..) => unreachable!("made one's own above"),
        }
    }

    fn push(&mut self, entry: Entry) {
        match self {
            Entries::Few(few, entries) if usize::from(*few) < FEW => {
                entries[usize::from(*few)] = entry;
                *few += 1;
            }
            entries => entries.own().push_back(entry),
        }
    }

    fn remove(&mut self, index: usize) {
        match self {
            Entries::Few(few, entries) => {
                entries[index..usize::from(*few)].rotate_left(1);
                *few -= 1;
                entries[usize::from(*few)] = Entry::default();
            }
            entries => drop(entries.own().remove(index)),
        }
    }

    /// Adds to the sums of the entries from one on.
    fn add(&mut self, from: usize, weight: u64) {
        let add = |entry: &mut Entry| entry.sum = entry.sum.wrapping_add(weight);
        match self {
            Entries::Few(few, entries) => entries[from..usize::from(*few)].iter_mut().for_each(add),
            entries => entries.own().range_mut(from..).for_each(add),
        }
    }

    fn share(&mut self) {
        if let Entries::Own(entries) = self {
            *self = Entries::Shared(Arc::new(std::mem::take(entries)));
        }
    }
}

impl Piece {
    fn at(&self, index: usize) -> Entry {
        let Entry { time, sum } = self.entries.at(index);
        Entry {
            time,
            sum: sum.wrapping_add(self.base),
        }
    }

    fn last(&self) -> Entry {
        self.at(self.entries.len() - 1)
    }
}

impl Log {
    fn piece(&self, piece: usize) -> Option<&Piece> {
        match piece {
            0 => self.first.as_ref(),
            more => self.more.get(more - 1),
        }
    }

    fn piece_mut(&mut self, piece: usize) -> &mut Piece {
        let found = match piece {
            0 => self.first.as_mut(),
            more => self.more.get_mut(more - 1),
        };
        found.expect("a piece that is there")
    }

    fn remove_piece(&mut self, piece: usize) {
        match piece {
            0 => self.first = self.more.pop_front(),
            more => drop(self.more.remove(more - 1)),
        }
    }

    /// The first entry for which `earlier` does not hold.
    pub(super) fn find(&self, earlier: impl Fn(Entry) -> bool) -> Place {
        let over = |piece: &Piece| earlier(piece.last());
        let piece = match &self.first {
            Some(first) if over(first) => 1 + self.more.partition_point(over),
            _ => 0,
        };
        let within = |piece: &Piece| {
            let base = piece.base;
            piece.entries.find(|&Entry { time, sum }| {
                earlier(Entry {
                    time,
                    sum: sum.wrapping_add(base),
                })
            })
        };
        let index = self.piece(piece).map_or(0, within);
        Place { piece, index }
    }

    pub(super) fn get(&self, Place { piece, index }: Place) -> Option<Entry> {
        self.piece(piece).map(|piece| piece.at(index))
    }

    /// The entry before this place.
    pub(super) fn previous(&self, Place { piece, index }: Place) -> Option<Entry> {
        match (piece, index) {
            (0, 0) => None,
            (_, 0) => self.piece(piece - 1).map(Piece::last),
            (_, _) => self.piece(piece).map(|piece| piece.at(index - 1)),
        }
    }

    /// Weight of all entries before this place.
    pub(super) fn before(&self, place: Place) -> u64 {
        let previous = self.previous(place);
        previous.map_or(0, |entry| self.through(entry))
    }

    pub(super) fn total(&self) -> u64 {
        self.last_sum().wrapping_sub(self.gone)
    }

    /// Weight up to and with an entry.
    pub(super) fn through(&self, entry: Entry) -> u64 {
        entry.sum.wrapping_sub(self.gone)
    }

    pub(super) fn last(&self) -> Option<Entry> {
        let last = self.more.back().or(self.first.as_ref());
        last.map(Piece::last)
    }

    fn last_sum(&self) -> u64 {
        self.last().map_or(self.gone, |entry| entry.sum)
    }

    /// Behind the entries that are a window old or older at `at`.
    pub(super) fn expired(&self, at: Time, window: Span) -> Place {
        self.find(|entry| entry.time + window <= at)
    }

    pub(super) fn push(&mut self, time: Time, weight: u64) {
        let sum = self.last_sum().wrapping_add(weight);
        let last = self.more.back_mut().or(self.first.as_mut());
        if let Some(piece) = last {
            if piece.entries.len() < PIECE {
                let sum = sum.wrapping_sub(piece.base);
                return piece.entries.push(Entry { time, sum });
            }
            piece.entries.share();
        }
        let piece = Piece {
            base: 0,
            entries: Entries::of(Entry { time, sum }),
        };
        match self.first {
            None => self.first = Some(piece),
            Some(_) => self.more.push_back(piece),
        }
    }

    /// Forgets entries that are a window old: all, or more than come in.
    pub(super) fn expire(&mut self, now: Time, window: Span) {
        let over = |entry: Entry| entry.time + window <= now;
        for _ in 0..4 {
            let Some(piece) = &mut self.first else {
                return;
            };
            if over(piece.last()) {
                self.gone = piece.last().sum;
                self.first = self.more.pop_front();
                continue;
            }
            while over(piece.at(0)) {
                self.gone = piece.at(0).sum;
                piece.entries.remove(0);
            }
            return;
        }
    }

    /// Adds to the weight of an entry, modulo 2^64. One that is left with none goes.
    pub(super) fn add(&mut self, place: Place, weight: u64) {
        let Place { piece, index } = place;
        self.piece_mut(piece).entries.add(index, weight);
        for later in self.more.range_mut(piece..) {
            later.base = later.base.wrapping_add(weight);
        }
        let sum = self.piece_mut(piece).at(index).sum.wrapping_sub(self.gone);
        if sum == self.before(place) {
            let entries = &mut self.piece_mut(piece).entries;
            entries.remove(index);
            if entries.len() == 0 {
                self.remove_piece(piece);
            }
        }
    }
}
