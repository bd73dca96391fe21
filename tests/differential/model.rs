//! A key under several limits, as DESIGN and the interface describe it: all are taken from or none, nobody
//! passes a booking, and what is held comes back with its lease.
use crate::exact::*;
use crate::law::{Charge, Law};

/// How a limit is made when a key is new.
pub type Maker = Box<dyn Fn(u64) -> Law>;

pub struct Term {
    pub make: Maker,
    pub per_call: bool,
    /// Starts empty.
    pub empty: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Done,
    Denied,
    Never,
    Stale,
}

/// Every field of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    pub status: Status,
    pub index: usize,
    pub figures: Figures,
    pub retry: u64,
    pub at: u64,
}

struct Booking {
    charges: Vec<Charge>,
    weights: Vec<u64>,
    at: u64,
    /// Of a semaphore: when its lease ends.
    ends: u64,
    settled: bool,
    over: bool,
    /// A booking ahead that nothing was booked after, nor settled since, is taken back whole.
    before: Option<(Vec<Law>, u64)>,
    cancelled: bool,
}

pub struct Model {
    terms: Vec<Term>,
    laws: Option<Vec<Law>>,
    booked: u64,
    blocked: u64,
    /// Numbers are indices; those of before a reset are over.
    bookings: Vec<Booking>,
    /// Bookings ahead that can be taken back, the newest last.
    ahead: Vec<usize>,
}

enum Outcome {
    Admit,
    Later(u64),
    TooFar(u64),
    Release,
    Never,
}

impl Model {
    pub fn new(terms: Vec<Term>) -> Model {
        Model {
            terms,
            laws: None,
            booked: 0,
            blocked: 0,
            bookings: vec![],
            ahead: vec![],
        }
    }

    fn fresh(&self, now: u64) -> Vec<Law> {
        self.terms.iter().map(|term| (term.make)(now)).collect()
    }

    fn laws(&self, now: u64) -> Vec<Law> {
        self.laws.clone().unwrap_or_else(|| self.fresh(now))
    }

    /// What starts empty fills from its first use, also where that is denied.
    fn meet(&mut self, now: u64) {
        if self.laws.is_none() && self.terms.iter().any(|term| term.empty) {
            self.laws = Some(self.fresh(now));
        }
    }

    fn base(&self, now: u64) -> u64 {
        now.max(self.booked).max(self.blocked)
    }

    fn weights(&self, asked: &[u64]) -> Vec<u64> {
        let each = |(i, term): (usize, &Term)| {
            let weight = asked[i % asked.len()];
            if term.per_call { weight.min(1) } else { weight }
        };
        self.terms.iter().enumerate().map(each).collect()
    }

    fn decide(&self, laws: &[Law], now: u64, weights: &[u64]) -> (Outcome, usize) {
        let base = self.base(now);
        let waits: Vec<Wait> = laws
            .iter()
            .zip(weights)
            .map(|(law, weight)| law.wait(base, *weight))
            .collect();
        if let Some(index) = waits.iter().position(|wait| *wait == Wait::Never) {
            return (Outcome::Never, index);
        }
        if let Some(index) = waits.iter().position(|wait| *wait == Wait::Release) {
            return (Outcome::Release, index);
        }
        let (mut most, mut index) = (0, 0);
        for (i, wait) in waits.iter().enumerate() {
            if let Wait::After(wait) = wait
                && *wait > most
            {
                (most, index) = (*wait, i);
            }
        }
        let at = base + most;
        if at == now {
            return (Outcome::Admit, 0);
        }
        if most == 0 {
            // A booking or a penalty is in the way: of the first that counts by time.
            let counts = |(law, weight): (&Law, &u64)| !law.holds() && *weight > 0;
            index = laws.iter().zip(weights).position(counts).unwrap_or(0);
        }
        match at - now <= MOST_AHEAD {
            true => (Outcome::Later(at), index),
            false => (Outcome::TooFar(at), index),
        }
    }

    /// The numbers of the limit at `index`, or of the tightest.
    fn numbers(&self, laws: &[Law], now: u64, index: Option<usize>) -> (usize, Figures) {
        let base = self.base(now);
        let one = |(i, law): (usize, &Law)| {
            let mut figures = law.figures(now, base);
            if base > now && (self.blocked > now || !law.holds()) {
                figures.remaining = 0;
                figures.reset += base - now;
            }
            (i, figures)
        };
        let mut all = laws.iter().enumerate().map(one);
        match index {
            Some(index) => all.nth(index).unwrap(),
            None => all.min_by_key(|(_, figures)| figures.remaining).unwrap(),
        }
    }

    fn told(&self, laws: &[Law], now: u64, status: Status, retry: u64) -> Told {
        let (index, figures) = self.numbers(laws, now, None);
        Told {
            status,
            index,
            figures,
            retry,
            at: now,
        }
    }

    /// The numbers as they are.
    pub fn look(&self, now: u64, status: Status) -> Told {
        self.told(&self.laws(now), now, status, 0)
    }

    fn refused(&self, laws: &[Law], now: u64, index: usize, wait: Option<u64>) -> Told {
        let (index, figures) = self.numbers(laws, now, Some(index));
        Told {
            status: wait.map_or(Status::Never, |_| Status::Denied),
            index,
            figures,
            retry: wait.map_or(u64::MAX, |wait| wait.max(1)),
            at: now,
        }
    }

    /// When leases that end make room, and the rates allow it.
    fn release_after(&self, laws: &[Law], now: u64, weights: &[u64]) -> u64 {
        let mut held: Vec<&Booking> = self.bookings.iter().filter(|b| !b.over).collect();
        held.sort_by_key(|booking| booking.ends);
        let mut later = laws.to_vec();
        let mut ends = now;
        for booking in held {
            give_back(&mut later, booking);
            ends = booking.ends;
            let full = later.iter().zip(weights);
            if full
                .filter(|(law, _)| law.holds())
                .all(|(l, w)| l.wait(now, *w) == Wait::Now)
            {
                break;
            }
        }
        let of_rates: Vec<u64> = laws
            .iter()
            .zip(weights)
            .map(|(law, weight)| if law.holds() { 0 } else { *weight })
            .collect();
        let rates = match self.decide(laws, now, &of_rates).0 {
            Outcome::Later(at) | Outcome::TooFar(at) => at,
            _ => self.base(now),
        };
        ends.max(rates) - now
    }

    pub fn peek(&self, now: u64, asked: &[u64]) -> Told {
        let (laws, weights) = (self.laws(now), self.weights(asked));
        if weights.iter().all(|weight| *weight == 0) {
            return self.told(&laws, now, Status::Done, 0);
        }
        let (outcome, index) = self.decide(&laws, now, &weights);
        match outcome {
            Outcome::Admit => self.told(&laws, now, Status::Done, 0),
            Outcome::Later(at) | Outcome::TooFar(at) => {
                self.refused(&laws, now, index, Some(at - now))
            }
            Outcome::Release => {
                let wait = self.release_after(&laws, now, &weights);
                self.refused(&laws, now, index, Some(wait))
            }
            Outcome::Never => self.refused(&laws, now, index, None),
        }
    }

    /// Takes, at most so far ahead. The number of the booking, if something was taken.
    pub fn book(
        &mut self,
        now: u64,
        asked: &[u64],
        wait: u64,
        lease: u64,
    ) -> (Told, Option<usize>) {
        self.meet(now);
        let laws = self.laws(now);
        let weights = self.weights(asked);
        if weights.iter().all(|weight| *weight == 0) {
            return (self.told(&laws, now, Status::Done, 0), None);
        }
        let at = match self.decide(&laws, now, &weights).0 {
            Outcome::Admit => now,
            Outcome::Later(at) if at - now <= wait => at,
            _ => return (self.peek(now, asked), None),
        };
        let mut taken = laws.clone();
        let charges = taken
            .iter_mut()
            .zip(&weights)
            .map(|(law, weight)| law.take(now, at, *weight))
            .collect();
        let number = self.bookings.len();
        let mut each = taken.iter().zip(&weights);
        let held = each.any(|(law, weight)| law.holds() && *weight > 0);
        self.bookings.push(Booking {
            charges,
            weights,
            at,
            ends: now + lease,
            settled: false,
            over: !held,
            before: (at > now).then_some((laws, self.booked)),
            cancelled: false,
        });
        if at > now {
            self.booked = at;
            self.ahead.push(number);
        }
        let told = Told {
            at,
            ..self.told_after(taken, now, at - now)
        };
        (told, Some(number))
    }

    fn told_after(&mut self, laws: Vec<Law>, now: u64, retry: u64) -> Told {
        let told = self.told(&laws, now, Status::Done, retry);
        self.laws = Some(laws);
        told
    }

    /// Leases that have ended give back.
    pub fn expire(&mut self, now: u64) {
        for number in 0..self.bookings.len() {
            if !self.bookings[number].over && self.bookings[number].ends <= now {
                self.end(number);
            }
        }
    }

    fn end(&mut self, number: usize) {
        let booking = &mut self.bookings[number];
        booking.over = true;
        if let Some(laws) = &mut self.laws {
            give_back(laws, booking);
        }
    }

    /// Of what is held: whether it was still held.
    pub fn release(&mut self, number: usize) -> bool {
        let held = !self.bookings[number].over;
        if held {
            self.end(number);
        }
        held
    }

    /// Whether it took of a semaphore.
    pub fn holds(&self, number: usize) -> bool {
        let charges = &self.bookings[number].charges;
        charges.iter().any(|charge| matches!(charge, Charge::Held))
    }

    pub fn is_held(&self, number: usize, now: u64) -> bool {
        let booking = &self.bookings[number];
        !booking.over && booking.ends > now
    }

    pub fn renew(&mut self, number: usize, now: u64, lease: u64) -> bool {
        let booking = &mut self.bookings[number];
        if !booking.over {
            booking.ends = now + lease;
        }
        !booking.over
    }

    /// How long it goes on if it is not renewed.
    pub fn left(&self, number: usize, now: u64) -> u64 {
        self.bookings[number].ends.saturating_sub(now)
    }

    /// Whether it can be taken back whole, or is due.
    pub fn can_unbook(&self, number: usize, now: u64) -> bool {
        let booking = &self.bookings[number];
        booking.at <= now || booking.before.is_some()
    }

    /// Ends a booking that is not due. If others have booked after it, its slot passes unused, unless they
    /// are ended as well.
    pub fn unbook(&mut self, number: usize, now: u64) -> Status {
        if self.bookings[number].at <= now {
            return Status::Stale;
        }
        if self.ahead.last() != Some(&number) {
            // Of those that were ended before, what is due by now has passed for good.
            for other in &self.ahead {
                let other = &mut self.bookings[*other];
                other.cancelled &= other.at > now;
            }
        }
        self.bookings[number].cancelled = true;
        while let Some(newest) = self.ahead.last() {
            let newest = &mut self.bookings[*newest];
            if !newest.cancelled {
                break;
            }
            let (laws, booked) = newest.before.take().expect("it can be taken back");
            (self.laws, self.booked) = (Some(laws), booked);
            self.ahead.pop();
        }
        Status::Done
    }

    /// To what was used, once.
    pub fn settle(&mut self, number: usize, now: u64, actual: u64) {
        let base = self.base(now);
        let Some(laws) = &mut self.laws else { return };
        let booking = &mut self.bookings[number];
        assert!(!booking.settled);
        booking.settled = true;
        for (i, law) in laws.iter_mut().enumerate() {
            let weight = booking.weights[i];
            if weight > 0 && actual != weight && !self.terms[i].per_call {
                law.settle(now, base, &booking.charges[i], weight, actual);
            }
        }
        // What is booked can no longer be taken back as if nothing had been settled.
        for number in self.ahead.drain(..) {
            self.bookings[number].before = None;
        }
    }

    pub fn penalize(&mut self, now: u64, span: u64) {
        self.meet(now);
        self.blocked = self.blocked.max(now + span);
    }

    pub fn reset(&mut self, now: u64) {
        // Whoever holds something holds nothing.
        self.bookings
            .iter_mut()
            .for_each(|booking| booking.over = true);
        self.laws = Some(self.fresh(now));
        (self.booked, self.blocked) = (0, 0);
        self.ahead.clear();
    }

    /// As if it had never been.
    pub fn forget(&mut self) {
        self.bookings
            .iter_mut()
            .for_each(|booking| booking.over = true);
        self.laws = None;
        (self.booked, self.blocked) = (0, 0);
        self.ahead.clear();
    }

    /// A bucket that started empty may be forgotten from then on; then it is empty again.
    pub fn forgotten_at(&self) -> Option<u64> {
        let laws = self.laws.iter().flatten().zip(&self.terms);
        let empty = laws.filter(|(_, term)| term.empty);
        let at = empty.map(|(law, _)| match law {
            Law::Bucket(law) => law.forgotten_at(),
            Law::Steps(law) => law.forgotten_at(),
            law => unreachable!("{law:?}"),
        });
        at.min()
    }
}

fn give_back(laws: &mut [Law], booking: &Booking) {
    for (law, weight) in laws.iter_mut().zip(&booking.weights) {
        if let Law::Semaphore { used, .. } = law {
            *used = used.saturating_sub(*weight);
        }
    }
}
