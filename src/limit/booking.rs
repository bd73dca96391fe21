//! What a committed request took of each limit.
use crate::limit::key::KeyState;
use crate::limit::rule::Charge;
use crate::limit::time::Time;
use crate::limit::weights::Weights;

/// What a committed request took: needed to cancel it, to settle it and to release what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Booking {
    /// From when on it is admitted.
    pub(super) at: Time,
    pub(super) seq: u64,
    pub(super) epoch: u32,
    /// Where the bookings of the key ended before.
    pub(super) previous: Time,
    pub(super) charges: Charges,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Charges {
    One(Charge),
    Many(Box<[Charge]>),
}

/// Charges beyond the first that most bookings have at most.
const MORE: usize = 2;

/// The charges of a booking without the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct More {
    count: usize,
    more: [Charge; MORE],
}

impl Charges {
    pub(super) fn all(&self) -> &[Charge] {
        match self {
            Charges::One(charge) => std::slice::from_ref(charge),
            Charges::Many(charges) => charges,
        }
    }

    pub(super) fn all_mut(&mut self) -> &mut [Charge] {
        match self {
            Charges::One(charge) => std::slice::from_mut(charge),
            Charges::Many(charges) => charges,
        }
    }
}

impl Booking {
    /// Of one charge, at its time, on a key that had no other epoch.
    pub fn of(charge: Charge) -> Booking {
        Booking {
            at: Time(0),
            seq: 0,
            epoch: 0,
            previous: Time(0),
            charges: Charges::One(charge),
        }
    }

    /// From when on it is admitted.
    pub fn at(&self) -> Time {
        self.at
    }

    /// A key that was forgotten since counts its epochs anew.
    pub fn follow(&mut self, key: &KeyState) {
        self.epoch = self.epoch.min(key.epoch());
    }

    /// What it took, without what it holds.
    pub(super) fn rates(&self) -> Weights {
        let rate = |charge: &Charge| match charge {
            Charge::Semaphore(_) => 0,
            charge => charge.weight(),
        };
        match self.charges.all() {
            [charge] => Weights::One(rate(charge)),
            charges => Weights::Each(charges.iter().map(rate).collect()),
        }
    }

    /// With its first charge alone, and the others if they are few: who keeps very many bookings keeps those
    /// in a place of their own, so that not each is a small piece of memory besides.
    pub fn split(mut self) -> (Booking, Option<More>) {
        match self.charges {
            Charges::Many(charges) if charges.len() <= 1 + MORE => {
                let mut charges = charges.into_iter();
                self.charges = Charges::One(charges.next().expect("more than one"));
                let count = charges.len();
                let more = std::array::from_fn(|_| charges.next().unwrap_or(Charge::Nothing));
                (self, Some(More { count, more }))
            }
            _ => (self, None),
        }
    }

    /// What was split.
    pub fn join(mut self, more: More) -> Booking {
        if let Charges::One(first) = self.charges {
            let more = more.more.into_iter().take(more.count);
            self.charges = Charges::Many(std::iter::once(first).chain(more).collect());
        }
        self
    }

    /// With what another one holds.
    pub(super) fn holding(mut self, other: &Booking) -> Booking {
        let charges = self.charges.all_mut().iter_mut();
        for (charge, held) in charges.zip(other.charges.all()) {
            if let Charge::Semaphore(weight) = held {
                *charge = Charge::Semaphore(*weight);
            }
        }
        self
    }

    /// Something is held that has to be released.
    pub fn holds(&self) -> bool {
        self.held().any(|held| held > 0)
    }

    /// The weight it holds of each limit; of limits that are no semaphores, 0.
    pub fn held(&self) -> impl Iterator<Item = u64> {
        self.charges.all().iter().map(|charge| match charge {
            Charge::Semaphore(weight) => *weight,
            _ => 0,
        })
    }
}
