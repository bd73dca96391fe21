//! The limiter: a name and its limits, checked, and the verbs on them.
use std::sync::Arc;

use crate::backend::Named;
use crate::callback::{self, Callback};
use crate::client::{Client, Core};
use crate::config::Own;
use crate::decision::{Decision, Status};
use crate::fork::ForkLocal;
use crate::limit::bounds::MAX_UNITS;
use crate::limit::decide::Limits;
use crate::limit::time::Span;
use crate::op::{Request, Sink, Weights};

pub mod spec;

pub use spec::LimitSpec;

/// A name with limits on a client.
pub struct Limiter {
    client: Arc<Client>,
    name: String,
    limits: Limits,
    count: usize,
    own: Arc<Own>,
    /// What the name means to this process's core.
    named: ForkLocal<Named>,
}

impl Limiter {
    pub fn new(
        client: &Arc<Client>,
        name: &str,
        specs: &[LimitSpec],
    ) -> Result<Limiter, (Status, String)> {
        if !(1..=1024).contains(&name.len()) {
            let message = format!("name must be 1 to 1024 bytes long, not {}", name.len());
            return Err((Status::Config, message));
        }
        let limits = spec::limits(specs).map_err(|message| (Status::Config, message))?;
        let limiter = Limiter {
            client: client.clone(),
            name: name.into(),
            limits,
            count: specs.len(),
            own: Arc::default(),
            named: ForkLocal::empty(),
        };
        let closed = |status| (status, "the client is shut down".into());
        // From now on the name has these limits.
        limiter.place().map_err(closed)?;
        Ok(limiter)
    }

    /// A setting of this limiter's own.
    pub fn set(&self, key: &str, value: &str) -> Result<(), String> {
        self.own.set(key, value)
    }

    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    #[inline]
    fn place(&self) -> Result<(&Core, &Named), Status> {
        let core = self.client.core()?;
        match self.named.get() {
            Some(named) => Ok((core, named)),
            None => self.name_it(core),
        }
    }

    #[cold]
    fn name_it<'a>(&'a self, core: &'a Core) -> Result<(&'a Core, &'a Named), Status> {
        let named = self.named.get_or_build(|| {
            let (name, own) = (self.name.as_bytes(), self.own.clone());
            Ok(core.backend.limiter(name, self.limits.clone(), own))
        })?;
        Ok((core, named))
    }

    /// Where to ask, if the request fits this limiter.
    #[inline]
    fn ready(&self, request: &Request) -> Result<(&Core, &Named), Status> {
        match request.weights {
            Weights::Each(weights) if weights.len() != self.count => Err(Status::Invalid),
            _ => self.place(),
        }
    }

    pub fn acquire(&self, request: &Request) -> Result<Decision, Status> {
        self.acquire_to(request, |decision| decision)
    }

    /// [`Limiter::acquire`] that answers through `give`, which is written out where the answer is at hand: to
    /// hand it on costs more time than some answers do.
    #[inline]
    pub fn acquire_to<T>(
        &self,
        request: &Request,
        give: impl Fn(Decision) -> T,
    ) -> Result<T, Status> {
        if request.wait != Some(Span::ZERO) && callback::inside() {
            return Err(Status::WouldDeadlock);
        }
        self.no_tell_lost(request)?;
        let (core, named) = self.ready(request)?;
        Ok(match core.backend.acquire_at_once(named, request) {
            Some(decision) => give(decision),
            None => give(core.backend.acquire_blocking(named, request)),
        })
    }

    pub fn submit(&self, request: &Request, sink: Sink) -> Result<Decision, Status> {
        let (core, named) = self.ready(request)?;
        Ok(core.backend.acquire(named, request, sink))
    }

    /// Starts an acquire whose answer `callback` receives; the operation.
    pub fn acquire_cb(&self, request: &Request, callback: Callback) -> Result<u64, Status> {
        self.no_tell_lost(request)?;
        let (core, named) = self.ready(request)?;
        let started = core
            .backend
            .acquire(named, request, Sink::Callback(callback));
        match started.status {
            Status::Pending => Ok(started.op),
            refused => Err(refused),
        }
    }

    /// Only a queue can tell of a lost lease.
    fn no_tell_lost(&self, request: &Request) -> Result<(), Status> {
        if request.tell_lost {
            Err(Status::Invalid)
        } else {
            Ok(())
        }
    }

    pub fn pace(&self, request: &Request) -> Result<Decision, Status> {
        self.no_tell_lost(request)?;
        let (core, named) = self.ready(request)?;
        Ok(core.backend.pace(named, request))
    }

    pub fn peek(&self, request: &Request) -> Result<Decision, Status> {
        self.no_tell_lost(request)?;
        let (core, named) = self.ready(request)?;
        Ok(core.backend.peek(named, request))
    }

    /// The answers, or why none was asked for.
    pub fn try_many(&self, requests: &[Request]) -> Result<Vec<Decision>, Status> {
        for request in requests {
            self.no_tell_lost(request)?;
            self.ready(request)?;
        }
        let (core, named) = self.place()?;
        Ok(core.backend.try_many(named, requests))
    }

    pub fn reset(&self, key: &[u8]) -> Result<Status, Status> {
        let (core, named) = self.place()?;
        Ok(core.backend.reset(named, key))
    }

    pub fn penalize(&self, key: &[u8], span: Span) -> Result<Status, Status> {
        let (core, named) = self.place()?;
        Ok(core.backend.penalize(named, key, span))
    }

    pub fn release(&self, permit: u64) -> Result<Status, Status> {
        Ok(self.client.core()?.backend.release(permit))
    }

    pub fn renew(&self, permit: u64, lease: Option<Span>) -> Result<Status, Status> {
        Ok(self.client.core()?.backend.renew(permit, lease))
    }

    /// INVALID beyond what a limit can have: that is a negative number in the caller's hands, or bytes of
    /// something else, and not worth a debt of a hundred years.
    pub fn settle(&self, permit: u64, actual: u64) -> Result<Status, Status> {
        if actual > MAX_UNITS {
            return Err(Status::Invalid);
        }
        Ok(self.client.core()?.backend.settle(permit, actual))
    }
}
