//! The backends behind the handles: the same verbs, whichever it is.
use std::sync::Arc;
use std::time::Duration;

use crate::config::Own;
use crate::decision::{Decision, Status};
use crate::fork::Lent;
use crate::limit::decide::Limits;
use crate::limit::time::{Span, Time};
use crate::memory::{self, Memory};
use crate::op::{Request, Sink};
use crate::queue::Queue;
use crate::redis::{self, Redis};
use crate::stats::Totals;

pub enum Backend {
    Memory(Arc<Memory>),
    Redis(Arc<Redis>),
}

/// Limits under a name, on the backend that made this.
pub enum Named {
    Memory(Arc<memory::Named>),
    Redis(Arc<redis::Named>),
}

/// The same call on either.
macro_rules! either {
    ($backend:expr, $it:ident => $call:expr) => {
        match $backend {
            Backend::Memory($it) => $call,
            Backend::Redis($it) => $call,
        }
    };
}

/// The same call on limits of either.
macro_rules! on_limits {
    ($backend:expr, $limits:expr, ($it:ident, $named:ident) => $call:expr) => {
        match ($backend, $limits) {
            (Backend::Memory($it), Named::Memory($named)) => $call,
            (Backend::Redis($it), Named::Redis($named)) => $call,
            _ => unreachable!("limits of another backend"),
        }
    };
}

impl Backend {
    /// Memory has no use for what is the limiter's own: it never fails.
    pub fn limiter(&self, name: &[u8], limits: Limits, own: Arc<Own>) -> Named {
        match self {
            Backend::Memory(memory) => Named::Memory(memory.limiter(name, limits)),
            Backend::Redis(redis) => Named::Redis(redis.limiter(name, limits, own)),
        }
    }

    pub fn queue(&self, descriptor: Lent) -> Arc<Queue> {
        either!(self, it => it.queue(descriptor))
    }

    pub fn free_queue(&self, queue: &Arc<Queue>) {
        either!(self, it => it.free_queue(queue))
    }

    pub fn acquire(&self, named: &Named, request: &Request, sink: Sink) -> Decision {
        on_limits!(self, named, (it, named) => it.acquire(named, request, sink))
    }

    /// [`Backend::acquire_blocking`] where the answer is at hand; `None`: nothing has happened.
    #[inline(always)]
    pub fn acquire_at_once(&self, named: &Named, request: &Request) -> Option<Decision> {
        match (self, named) {
            (Backend::Memory(memory), Named::Memory(named)) => {
                memory.acquire_at_once(named, request)
            }
            _ => None,
        }
    }

    #[inline(never)]
    pub fn acquire_blocking(&self, named: &Named, request: &Request) -> Decision {
        on_limits!(self, named, (it, named) => it.acquire_blocking(named, request))
    }

    pub fn pace(&self, named: &Named, request: &Request) -> Decision {
        on_limits!(self, named, (it, named) => it.pace(named, request))
    }

    pub fn peek(&self, named: &Named, request: &Request) -> Decision {
        on_limits!(self, named, (it, named) => it.peek(named, request))
    }

    pub fn try_many(&self, named: &Named, requests: &[Request]) -> Vec<Decision> {
        on_limits!(self, named, (it, named) => it.try_many(named, requests))
    }

    pub fn reset(&self, named: &Named, key: &[u8]) -> Status {
        on_limits!(self, named, (it, named) => it.reset(named, key))
    }

    pub fn penalize(&self, named: &Named, key: &[u8], span: Span) -> Status {
        on_limits!(self, named, (it, named) => it.penalize(named, key, span))
    }

    pub fn release(&self, permit: u64) -> Status {
        either!(self, it => it.release(permit))
    }

    pub fn renew(&self, permit: u64, lease: Option<Span>) -> Status {
        either!(self, it => it.renew(permit, lease))
    }

    pub fn settle(&self, permit: u64, actual: u64) -> Status {
        either!(self, it => it.settle(permit, actual))
    }

    pub fn cancel(&self, op: u64, detach: bool) -> Status {
        either!(self, it => it.cancel(op, detach))
    }

    pub fn cancel_waits(&self, user_data: u64) -> usize {
        either!(self, it => it.cancel_waits(user_data))
    }

    pub fn shutdown(&self, timeout: Option<Duration>) -> Status {
        either!(self, it => it.shutdown(timeout))
    }

    pub fn totals(&self) -> Totals {
        match self {
            Backend::Memory(memory) => memory.stats().totals(),
            Backend::Redis(redis) => redis.totals(),
        }
    }

    pub fn clock_now(&self) -> Time {
        either!(self, it => it.clock_now())
    }

    /// Moves a virtual clock.
    pub fn clock_advance(&self, by: Span) -> Status {
        either!(self, it => it.clock_advance(by))
    }

    pub fn clock_set(&self, to: Time) -> Status {
        either!(self, it => it.clock_set(to))
    }
}
