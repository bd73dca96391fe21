//! Sliding log: at most `limit` units in any window, exactly, by remembering every admission.
use std::collections::VecDeque;
use std::sync::Arc;

use crate::limit::bounds::{self, MAX_COUNT};
use crate::limit::rule::{Figures, Wait};
use crate::limit::time::{Span, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    limit: u64,
    window: Span,
}

/// Admissions in order. Sums run on, so that the weight between two entries is one subtraction and
/// every question is a binary search. In pieces, so that no call moves or corrects all of a long log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// None is empty.
    pieces: VecDeque<Piece>,
    /// The running sum before the first entry.
    gone: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    /// What is added to the sums of its entries.
    base: u64,
    entries: Entries,
}

/// Of a piece that is full they are shared among copies of a key until they are changed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entries {
    Own(VecDeque<Entry>),
    Shared(Arc<VecDeque<Entry>>),
}

impl Entries {
    fn all(&self) -> &VecDeque<Entry> {
        match self {
            Entries::Own(entries) => entries,
            Entries::Shared(entries) => entries,
        }
    }

    fn all_mut(&mut self) -> &mut VecDeque<Entry> {
        match self {
            Entries::Own(entries) => entries,
            Entries::Shared(entries) => Arc::make_mut(entries),
        }
    }

    fn share(&mut self) {
        if let Entries::Own(entries) = self {
            *self = Entries::Shared(Arc::new(std::mem::take(entries)));
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    time: Time,
    /// Weight of this entry and of all before it, modulo 2^64.
    sum: u64,
}

/// Where an entry is, or would be.
#[derive(Clone, Copy)]
struct Place {
    piece: usize,
    index: usize,
}

/// Most entries of a piece.
const PIECE: usize = 512;

/// What one admission took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogCharge {
    pub weight: u64,
    at: Time,
    /// Of several, joined: that of the first.
    from: Time,
}

impl LogCharge {
    /// What undoes both, of which the later came right after this one.
    pub fn join(&self, later: &LogCharge) -> LogCharge {
        LogCharge {
            weight: self.weight.saturating_add(later.weight),
            from: self.from,
            ..*later
        }
    }
}

impl Piece {
    fn at(&self, index: usize) -> Entry {
        let Entry { time, sum } = self.entries.all()[index];
        Entry {
            time,
            sum: sum.wrapping_add(self.base),
        }
    }

    fn last(&self) -> Entry {
        self.at(self.entries.all().len() - 1)
    }
}

impl Log {
    /// The first entry for which `earlier` does not hold.
    fn find(&self, earlier: impl Fn(Entry) -> bool) -> Place {
        let piece = self.pieces.partition_point(|piece| earlier(piece.last()));
        let within = |piece: &Piece| {
            let entries = piece.entries.all();
            let base = piece.base;
            entries.partition_point(|&Entry { time, sum }| {
                earlier(Entry {
                    time,
                    sum: sum.wrapping_add(base),
                })
            })
        };
        let index = self.pieces.get(piece).map_or(0, within);
        Place { piece, index }
    }

    fn get(&self, Place { piece, index }: Place) -> Option<Entry> {
        self.pieces.get(piece).map(|piece| piece.at(index))
    }

    /// Weight of all entries before this place.
    fn before(&self, Place { piece, index }: Place) -> u64 {
        let sum = match (piece, index) {
            (0, 0) => self.gone,
            (_, 0) => self.pieces[piece - 1].last().sum,
            (_, _) => self.pieces[piece].at(index - 1).sum,
        };
        sum.wrapping_sub(self.gone)
    }

    /// The entry before this place.
    fn previous(&self, Place { piece, index }: Place) -> Option<Entry> {
        match (piece, index) {
            (0, 0) => None,
            (_, 0) => Some(self.pieces[piece - 1].last()),
            (_, _) => Some(self.pieces[piece].at(index - 1)),
        }
    }

    fn total(&self) -> u64 {
        self.last_sum().wrapping_sub(self.gone)
    }

    fn last(&self) -> Option<Entry> {
        self.pieces.back().map(Piece::last)
    }

    fn last_sum(&self) -> u64 {
        self.last().map_or(self.gone, |entry| entry.sum)
    }

    /// Behind the entries that are a window old or older at `at`.
    fn expired(&self, at: Time, window: Span) -> Place {
        self.find(|entry| entry.time + window <= at)
    }

    fn push(&mut self, time: Time, weight: u64) {
        let sum = self.last_sum().wrapping_add(weight);
        match self.pieces.back_mut() {
            Some(piece) if piece.entries.all().len() < PIECE => {
                let sum = sum.wrapping_sub(piece.base);
                piece.entries.all_mut().push_back(Entry { time, sum });
            }
            full => {
                full.into_iter().for_each(|piece| piece.entries.share());
                self.pieces.push_back(Piece {
                    base: 0,
                    entries: Entries::Own([Entry { time, sum }].into()),
                });
            }
        }
    }

    /// Forgets entries that are a window old: all, or more than come in.
    fn expire(&mut self, now: Time, window: Span) {
        let over = |entry: Entry| entry.time + window <= now;
        for _ in 0..4 {
            let Some(piece) = self.pieces.front_mut() else {
                return;
            };
            if over(piece.last()) {
                self.gone = piece.last().sum;
                self.pieces.pop_front();
                continue;
            }
            while over(piece.at(0)) {
                self.gone = piece.at(0).sum;
                piece.entries.all_mut().pop_front();
            }
            return;
        }
    }

    /// Adds to the weight of an entry, modulo 2^64. One that is left with none goes.
    fn add(&mut self, place: Place, weight: u64) {
        let Place { piece, index } = place;
        let entries = self.pieces[piece].entries.all_mut();
        for entry in entries.range_mut(index..) {
            entry.sum = entry.sum.wrapping_add(weight);
        }
        for later in self.pieces.range_mut(piece + 1..) {
            later.base = later.base.wrapping_add(weight);
        }
        let sum = self.pieces[piece].at(index).sum.wrapping_sub(self.gone);
        if sum == self.before(place) {
            let entries = self.pieces[piece].entries.all_mut();
            entries.remove(index);
            if entries.is_empty() {
                self.pieces.remove(piece);
            }
        }
    }
}

impl SlidingLog {
    pub fn new(limit: u64, window: Span) -> Result<SlidingLog, String> {
        bounds::check_capacity(limit)?;
        bounds::check_period(window)?;
        Ok(SlidingLog { limit, window })
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    pub fn window(&self) -> Span {
        self.window
    }

    pub fn fresh_at(&self, log: &Log) -> Time {
        log.last().map_or(Time(0), |entry| entry.time + self.window)
    }

    pub fn wait(&self, log: &Log, at: Time, weight: u64) -> Wait {
        if weight > self.limit {
            return Wait::Never;
        }
        // So much of the oldest weight must have left.
        let must_leave = log.total().saturating_sub(self.limit - weight);
        if log.before(log.expired(at, self.window)) >= must_leave {
            return Wait::Now;
        }
        let last = log.find(|entry| entry.sum.wrapping_sub(log.gone) < must_leave);
        let last = log.get(last).expect("less than all must leave");
        Wait::After((last.time + self.window).since(at))
    }

    /// Forgets what is a window old now (not at `at`: until then the charge may be undone).
    pub fn charge(&self, log: &mut Log, now: Time, at: Time, weight: u64) -> LogCharge {
        log.expire(now, self.window);
        match log.last() {
            Some(last) if last.time == at => {
                let last = log.find(|entry| entry.time < at);
                log.add(last, weight);
            }
            last => {
                debug_assert!(last.is_none_or(|last| last.time < at), "time runs forward");
                log.push(at, weight);
            }
        }
        LogCharge {
            weight,
            at,
            from: at,
        }
    }

    pub fn undo(&self, log: &mut Log, charge: &LogCharge) {
        let mut left = charge.weight;
        while left > 0 {
            let behind = log.find(|entry| entry.time <= charge.at);
            let after = log.before(behind);
            let Some(last) = log.previous(behind).filter(|last| last.time >= charge.from) else {
                return;
            };
            let place = log.find(|entry| entry.time < last.time);
            let weight = left.min(after - log.before(place));
            log.add(place, 0u64.wrapping_sub(weight));
            left -= weight;
        }
    }

    /// Corrects the entry of the charge, as long as it is remembered.
    pub fn adjust(&self, log: &mut Log, charge: &mut LogCharge, actual: u64) {
        let place = log.find(|entry| entry.time < charge.at);
        let Some(entry) = log.get(place).filter(|entry| entry.time == charge.at) else {
            return;
        };
        let held = entry.sum.wrapping_sub(log.gone) - log.before(place);
        let weight = charge.weight.min(held);
        let others = log.total() - weight;
        let actual = actual.min(MAX_COUNT.saturating_sub(others));
        log.add(place, actual.wrapping_sub(weight));
        charge.weight = actual;
    }

    /// Takes `extra` from `at` on, which is not before what was logged.
    pub fn owe(&self, log: &mut Log, at: Time, extra: u64) {
        let extra = extra.min(MAX_COUNT.saturating_sub(log.total()));
        if extra > 0 {
            self.charge(log, Time(0), at, extra);
        }
    }

    /// Reset is when the oldest entry leaves.
    pub fn figures(&self, log: &Log, at: Time) -> Figures {
        let expired = log.expired(at, self.window);
        let used = log.total() - log.before(expired);
        Figures {
            limit: self.limit,
            remaining: self.limit.saturating_sub(used),
            reset_after: log
                .get(expired)
                .map_or(Span::ZERO, |entry| (entry.time + self.window).since(at)),
        }
    }
}
