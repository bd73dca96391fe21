//! Connections to Redis: one process's link to one server, a master behind sentinels, or a cluster.
//!
//! A request ends with the server's answer or with a [`Failure`] that says whether it ran. The link
//! connects on first use and again for ever; callers wait to their own deadlines at most. It knows
//! nothing of what the scripts do.
//!
//! - [`endpoint`], [`settings`], [`tls`]: where and how. [`dial`]: one attempt.
//! - [`supervisor`]: keeps one connection. [`breaker`], [`pause`]: when not to try.
//! - [`node`]: a server's lanes. [`sentinel`], [`cluster`], [`slots`], [`routes`]: which server.
//! - [`request`], [`failure`], [`send`]: what is sent, and what becomes of it. [`push`]: what is heard.
//!
//! Everything runs on the runtime whose handle is given, and must be awaited there. Nothing is
//! global: after a fork the inherited link is leaked and another one made.
mod breaker;
mod cluster;
mod dial;
mod endpoint;
mod failure;
mod node;
mod pause;
mod push;
mod request;
mod routes;
mod send;
mod sentinel;
mod settings;
mod slots;
mod supervisor;
mod tls;

use std::sync::Arc;
use std::time::Instant;

use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;

use crate::sync::Mutex;

pub use dial::{Kind, Refusal};
pub use endpoint::{Addr, Credentials, Endpoint, Topology};
pub use failure::{Failure, Silence};
pub use node::{Lane, NodeHealth};
pub use push::Push;
pub use request::{Args, Call, Class, Request, Script};
pub use settings::{LinkStats, Settings};
pub use slots::slot_of;
pub use supervisor::Health;
pub use tls::Trust;

use dial::{Dialer, PUSH_BACKLOG};
use node::Maker;
use routes::Routes;
use send::Sender;
use sentinel::Sentinels;
use settings::Reporter;
use supervisor::Goal;

/// A process's connections to Redis.
pub struct Link {
    inner: Arc<Inner>,
    listeners: Mutex<Vec<AbortHandle>>,
}

struct Inner {
    routes: Routes,
    dialer: Dialer,
    settings: Arc<Settings>,
    reporter: Reporter,
}

impl Link {
    /// Connects to nothing yet. Refuses settings that can never work.
    pub fn new(handle: Handle, settings: Settings) -> Result<Link, String> {
        let endpoint = &settings.endpoint;
        let tls = match endpoint.tls {
            true => Some(settings.trust.connector()?),
            false => None,
        };
        let dialer = Dialer {
            credentials: endpoint.credentials.clone(),
            db: endpoint.db,
            tls,
            handle,
        };
        let reporter = Reporter {
            counters: Arc::default(),
            log: settings.log.clone(),
        };
        let settings = Arc::new(settings);
        let maker = Maker {
            dialer: dialer.clone(),
            settings: settings.clone(),
            reporter: reporter.clone(),
            trouble: Arc::new(Notify::new()),
        };
        let routes = routes(maker);
        let inner = Inner {
            routes,
            dialer,
            settings,
            reporter,
        };
        Ok(Link {
            inner: Arc::new(inner),
            listeners: Mutex::default(),
        })
    }

    /// Begins to connect, in the background.
    pub fn start(&self) {
        self.inner.routes.start();
    }

    /// Sends one request. Dropping the future disturbs nobody; what was sent may still run.
    pub async fn call(
        &self,
        lane: Lane,
        request: Request,
        deadline: Instant,
        class: Class,
    ) -> Result<Value, Failure> {
        self.call_told(lane, request, deadline, class).await.0
    }

    /// As [`call`](Link::call), and whether it was sent again after no reply came: then a copy of it may
    /// still run, whatever the answer is.
    pub async fn call_told(
        &self,
        lane: Lane,
        request: Request,
        deadline: Instant,
        class: Class,
    ) -> (Result<Value, Failure>, bool) {
        self.inner.one(&[request], lane, deadline, class).await
    }

    /// Sends several requests, those for one node in one write. The results are in their order. The
    /// requests must not depend on each other: the order in which they run is the given one only as
    /// long as nothing has to be sent twice.
    pub async fn batch(
        &self,
        lane: Lane,
        requests: &[Request],
        deadline: Instant,
        class: Class,
    ) -> Vec<Result<Value, Failure>> {
        let results: Vec<Mutex<Option<Result<Value, Failure>>>> =
            requests.iter().map(|_| Mutex::default()).collect();
        let keep = |index: usize, result| {
            let before = results[index].lock().replace(result);
            assert!(before.is_none(), "a request ended twice");
        };
        self.each(lane, requests, deadline, class, &keep).await;
        let taken = results.into_iter().map(|result| {
            let result = result.into_inner();
            result.expect("every request ends")
        });
        taken.collect()
    }

    /// As [`batch`](Link::batch), but each result is handed over as soon as it is known, so that a
    /// dead node of a cluster delays only what is for it.
    pub async fn each(
        &self,
        lane: Lane,
        requests: &[Request],
        deadline: Instant,
        class: Class,
        done: &(dyn Fn(usize, Result<Value, Failure>) + Send + Sync),
    ) {
        let done = |index: usize, result, _again: bool| done(index, result);
        self.inner
            .sender(lane, deadline, class, &done)
            .send(requests)
            .await;
    }

    /// Subscribes to channels; the first should be this process's own. Ends when the receiver is
    /// dropped. A receiver that is far behind loses messages.
    pub fn listen(&self, channels: Vec<Vec<u8>>) -> mpsc::Receiver<Push> {
        assert!(!channels.is_empty(), "nothing to listen to");
        let (out, receiver) = mpsc::channel(PUSH_BACKLOG);
        let listener = push::Listener {
            inner: self.inner.clone(),
            channels,
            out,
            shared: Mutex::default(),
        };
        let task = self
            .inner
            .dialer
            .handle
            .spawn(listener.run())
            .abort_handle();
        let mut listeners = self.listeners.lock();
        listeners.retain(|listener| !listener.is_finished());
        listeners.push(task);
        receiver
    }

    /// True unless a server is known to be down or failing. A link never used counts as healthy.
    pub fn is_healthy(&self) -> bool {
        self.inner.routes.is_healthy()
    }

    /// Each node's connections. For a cluster: the nodes known so far.
    pub fn health(&self) -> Vec<NodeHealth> {
        self.inner.routes.health()
    }

    pub fn stats(&self) -> LinkStats {
        self.inner.reporter.counters.snapshot()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for listener in self.listeners.get_mut() {
            listener.abort();
        }
    }
}

impl Inner {
    fn sender<'a>(
        &'a self,
        lane: Lane,
        deadline: Instant,
        class: Class,
        done: &'a send::Done<'a>,
    ) -> Sender<'a> {
        Sender {
            routes: &self.routes,
            counters: &self.reporter.counters,
            lane,
            deadline,
            class,
            done,
        }
    }

    async fn one(
        &self,
        request: &[Request; 1],
        lane: Lane,
        deadline: Instant,
        class: Class,
    ) -> (Result<Value, Failure>, bool) {
        let result = Mutex::new(None);
        let keep = |_: usize, outcome, again: bool| {
            *result.lock() = Some((outcome, again));
        };
        self.sender(lane, deadline, class, &keep)
            .send(request)
            .await;
        let result = result.lock().take();
        result.expect("every request ends")
    }
}

/// Reads a value as a map of slots, and as an error.
#[cfg(any(test, fuzzing))]
pub fn read_as_link(value: Value) {
    if let Value::ServerError(error) = &value {
        let _ = failure::classify(error);
    }
    let _ = slots::read_map(value, &Addr::Tcp("here".into(), 1));
}

fn routes(maker: Maker) -> Routes {
    let settings = maker.settings.clone();
    let endpoint = &settings.endpoint;
    match &endpoint.topology {
        Topology::Cluster(seeds) => Routes::Cluster(cluster::Cluster::new(maker, seeds.clone())),
        Topology::Single(addr) => {
            let goal = Goal::Fixed(addr.clone());
            Routes::One(maker.node(addr.to_string(), goal.clone()), goal)
        }
        Topology::Sentinel { sentinels, master } => {
            let mut dialer = maker.dialer.clone();
            dialer.credentials = settings.sentinel_credentials.clone();
            let sentinels = Sentinels::new(sentinels.clone(), master.clone(), dialer);
            let goal = Goal::Master(Arc::new(sentinels));
            Routes::One(maker.node(master.clone(), goal.clone()), goal)
        }
    }
}
