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

    /// It lies in more than one piece of memory.
    pub fn is_scattered(&self) -> bool {
        matches!(self.charges, Charges::Many(_))
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
