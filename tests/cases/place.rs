//! Where a case is tried, and what its tests are written in.
use std::sync::Arc;

use limiter::client::{Client, ClientQueue};
use limiter::config::Config;
use limiter::decision::{Decision, Status};
use limiter::limit::time::Span;
use limiter::limiter::{LimitSpec, Limiter, spec};
use limiter::op::{Request, Weights};

pub use crate::support::limits::*;
use crate::support::secs;
use crate::support::server::Server;

pub const SECOND: u64 = 1_000_000;
pub const HOUR: u64 = 3_600 * SECOND;

/// A backend of its own for each test.
pub struct Place {
    server: Option<Server>,
}

impl Place {
    pub fn memory() -> Place {
        Place { server: None }
    }

    pub fn redis() -> Place {
        Place {
            server: Some(Server::start()),
        }
    }

    pub fn config(&self, settings: &[(&str, &str)]) -> Config {
        let mut config = Config::default();
        // With this a busy machine is no failure.
        for (key, value) in [("command_timeout_ms", "20000")].iter().chain(settings) {
            config.set(key, value).unwrap();
        }
        config
    }

    pub fn url(&self) -> String {
        self.server.as_ref().map_or("memory://".into(), Server::url)
    }

    pub fn with(&self, config: &Config) -> Arc<Client> {
        Client::open(&self.url(), config).unwrap()
    }

    /// A client whose clock the test moves.
    pub fn client(&self) -> Arc<Client> {
        self.with(&self.config(&[("clock", "virtual")]))
    }

    /// Keys stored where they can be counted.
    pub fn keys(&self) -> u64 {
        self.server
            .as_ref()
            .map_or(0, |server| server.ask(&["DBSIZE"]))
    }
}

/// Makes two tests of each case.
macro_rules! on_both {
    ($($case:ident,)*) => {
        mod memory {
            $(#[test]
            fn $case() {
                super::$case(&crate::place::Place::memory());
            })*
        }
        mod redis {
            $(#[test]
            fn $case() {
                super::$case(&crate::place::Place::redis());
            })*
        }
    };
}
pub(crate) use on_both;

/// Its permits end after `lease_ms`.
pub fn ending(capacity: u64, lease_ms: u32) -> LimitSpec {
    LimitSpec {
        flags: spec::NO_RENEW,
        ..leased(capacity, lease_ms)
    }
}

pub fn weigh(weight: u64, wait: Option<Span>) -> Request<'static> {
    Request {
        weights: Weights::Same(weight),
        wait,
        ..Request::TRY
    }
}

/// One limiter of a client, with a queue.
pub struct Desk {
    pub client: Arc<Client>,
    pub limiter: Limiter,
    pub queue: ClientQueue,
}

impl Desk {
    pub fn new(client: Arc<Client>, limits: &[LimitSpec]) -> Desk {
        Desk {
            limiter: Limiter::new(&client, "case", limits).unwrap(),
            queue: ClientQueue::new(&client).unwrap(),
            client,
        }
    }

    pub fn try_(&self, weight: u64) -> Decision {
        self.limiter
            .acquire(&weigh(weight, Some(Span::ZERO)))
            .unwrap()
    }

    /// Takes what is there; the permit.
    #[track_caller]
    pub fn takes(&self, weight: u64) -> u64 {
        let decision = self.try_(weight);
        assert_eq!(decision.status, Status::Ok, "{decision:?}");
        decision.permit
    }

    /// Submits what has to wait; its op.
    #[track_caller]
    pub fn waits(&self, request: &Request) -> u64 {
        let decision = self.queue.submit(&self.limiter, request).unwrap();
        assert_eq!(decision.status, Status::Pending, "{decision:?}");
        decision.op
    }

    pub fn pass(&self, us: u64) {
        assert_eq!(self.client.clock_advance(Span(us)), Ok(Status::Ok));
    }

    /// What has completed once all that was started is done.
    pub fn done(&self) -> Vec<Decision> {
        self.pass(0);
        self.queue.poll(usize::MAX, Some(secs(0))).unwrap()
    }

    /// As (op, status).
    pub fn answers(&self) -> Vec<(u64, Status)> {
        self.done().iter().map(|d| (d.op, d.status)).collect()
    }

    #[track_caller]
    pub fn release(&self, permit: u64) -> Status {
        let status = self.limiter.release(permit).unwrap();
        self.pass(0);
        status
    }

    pub fn remaining(&self) -> u64 {
        let seen = self.limiter.peek(&weigh(0, None)).unwrap();
        assert_eq!(seen.status, Status::Ok);
        seen.remaining
    }
}
