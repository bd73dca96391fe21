//! One operation on a key, until it goes into a call.
use super::wire::{Batch, Era, Id, Taken};
use crate::limit::time::{Span, Time};
use crate::limit::weights::Weights;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// Take, or book a time at most so far ahead, and not after the deadline; `None` is without limit.
    Book {
        wait: Option<Span>,
        deadline: Option<Time>,
        weights: Weights,
        /// It may be told to ask again in a moment.
        patient: bool,
    },
    /// Take what includes a semaphore, or wait for it until then; `None` is without limit.
    Acquire {
        id: Id,
        deadline: Option<Time>,
        lease: Span,
        renewed: bool,
        weights: Weights,
    },
    /// Take so often, as many as there are, for those who will ask; only where nothing is in the way.
    Ahead(Weights, u64),
    Peek(Weights),
    /// Give back a booking that is not due.
    Unbook(Taken),
    /// Give back a booking to be booked anew. It has not started, whatever its time.
    Return(Taken),
    /// Take back a booking, if none was made after it, to be booked again in the same call.
    Lift(Taken),
    /// The same of what a permit has booked of rates.
    LiftHeld(Id),
    /// Book again what was taken back as the nth in this call, from 1.
    Rebook {
        nth: u64,
        wait: Option<Span>,
        weights: Weights,
    },
    /// Until when is nothing admitted?
    Look,
    /// Give back a permit, and keep its id out for so long.
    Release(Id, Option<Span>),
    /// End the wait of this id, or give back what it was granted.
    Cancel(Id, Option<Span>),
    /// Prolong a permit.
    Renew {
        id: Id,
        lease: Span,
        renewed: bool,
        era: Era,
        weights: Weights,
    },
    Settle(Taken, u64),
    Reset,
    /// Admit nothing for so long.
    Penalize(Span),
}

impl Op {
    /// Running it twice is running it once. The like of [`Batch::class`].
    pub fn may_repeat(&self) -> bool {
        !matches!(
            self,
            Op::Book { .. }
                | Op::Ahead(..)
                | Op::Unbook(_)
                | Op::Return(_)
                | Op::Lift(_)
                | Op::Settle(..)
        )
    }

    /// `now`: the time of the client's clock.
    pub fn add_to(&self, batch: &mut Batch<'_>, now: Time) {
        match self {
            Op::Book {
                wait,
                deadline,
                weights,
                patient,
            } => {
                let left = deadline.map(|deadline| deadline.since(now));
                let wait = match (*wait, left) {
                    (Some(wait), Some(left)) => Some(wait.min(left)),
                    (wait, left) => wait.or(left),
                };
                match patient {
                    true => batch.await_time(wait, weights),
                    false => batch.book(wait, weights),
                }
            }
            Op::Acquire {
                id,
                deadline,
                lease,
                renewed,
                weights,
            } => {
                let wait = deadline.map(|deadline| deadline.since(now));
                batch.acquire(*id, wait, (*lease, *renewed), weights);
            }
            Op::Ahead(weights, count) => batch.take_ahead(weights, *count),
            Op::Peek(weights) => batch.peek(weights),
            Op::Unbook(booking) => batch.unbook(booking),
            Op::Return(booking) => batch.give_back(booking),
            Op::Lift(booking) => batch.lift(booking),
            Op::LiftHeld(id) => batch.lift_held(*id),
            Op::Rebook { nth, wait, weights } => batch.rebook(*nth, *wait, weights),
            Op::Look => batch.look(),
            Op::Release(id, dead) => batch.release(*id, *dead),
            Op::Cancel(id, dead) => batch.cancel(*id, *dead),
            Op::Renew {
                id,
                lease,
                renewed,
                era,
                weights,
            } => batch.renew(*id, (*lease, *renewed), *era, weights),
            Op::Settle(booking, actual) => batch.settle(booking, *actual),
            Op::Reset => batch.reset(),
            Op::Penalize(span) => batch.penalize(*span),
        }
    }
}
