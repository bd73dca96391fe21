//! One operation on a key, until it goes into a call.
use super::wire::Batch;
use crate::limit::time::Span;
use crate::limit::weights::Weights;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// Take, or book a time at most so far ahead; `None` is without limit.
    Book {
        wait: Option<Span>,
        weights: Weights,
    },
    Peek(Weights),
    /// Give back a booking that is not due.
    Unbook(Box<str>),
    Settle(Box<str>, u64),
    Reset,
    /// Admit nothing for so long.
    Penalize(Span),
}

impl Op {
    pub fn add_to(&self, batch: &mut Batch<'_>) {
        match self {
            Op::Book { wait, weights } => batch.book(*wait, weights),
            Op::Peek(weights) => batch.peek(weights),
            Op::Unbook(booking) => batch.unbook(booking),
            Op::Settle(booking, actual) => batch.settle(booking, *actual),
            Op::Reset => batch.reset(),
            Op::Penalize(span) => batch.penalize(*span),
        }
    }
}
