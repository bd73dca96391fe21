//! The client: its settings and, for each process it is used in, the core that does the work.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::backend::Backend;
use crate::callback::{self, Callbacks};
use crate::clock::Clock;
use crate::config::{ClockKind, Config, Level, LostHook};
use crate::decision::Status;
use crate::fork::{self, ForkLocal};
use crate::limit::time::{Span, Time};
use crate::memory::{self, Memory};
use crate::permit::Numbers;
use crate::redis::{self, Redis};
use crate::stats::{Stats, Totals};

mod queue;

pub use queue::ClientQueue;

/// A backend and its settings. Shared by all handles made from it, so it outlives each of them.
pub struct Client {
    config: Config,
    /// Where Redis is; `None`: the state lives in this process.
    redis: Option<redis::link::Settings>,
    core: ForkLocal<Core>,
    /// Closed in this process and in those forked from it later.
    closed: AtomicBool,
}

/// What does the work in one process.
pub struct Core {
    pub backend: Backend,
}

impl Client {
    /// Never connects. The message never repeats the URL, which may hold a password.
    pub fn open(url: &str, config: &Config) -> Result<Arc<Client>, String> {
        let redis = match url.split_once("://") {
            Some(("memory", "")) => None,
            Some(("memory", _)) => return Err("nothing follows memory://".into()),
            Some(_) => Some(redis::settings(url, config)?),
            None => return Err("the URL must be memory:// or a Redis URL, as redis://host".into()),
        };
        fork::watch();
        let kind = if redis.is_some() { "Redis" } else { "memory" };
        config.log(Level::Debug, &format!("client opened: {kind}"));
        Ok(Arc::new(Client {
            config: config.clone(),
            redis,
            core: ForkLocal::empty(),
            closed: AtomicBool::new(false),
        }))
    }

    /// What does the work in this process.
    #[inline]
    pub fn core(&self) -> Result<&Core, Status> {
        match self.core.get() {
            Some(core) if !self.closed.load(Ordering::Acquire) => Ok(core),
            _ => self.open_core(),
        }
    }

    #[cold]
    fn open_core(&self) -> Result<&Core, Status> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Status::Closed);
        }
        let core = self.core.get_or_build(|| Ok(self.build()))?;
        // A shutdown that came while this was built has not seen it.
        if self.closed.load(Ordering::Acquire) {
            core.backend.shutdown(Some(Duration::ZERO));
            return Err(Status::Closed);
        }
        Ok(core)
    }

    /// What did the work in this process, also after it was closed.
    pub fn core_if_built(&self) -> Option<&Core> {
        self.core.get()
    }

    fn build(&self) -> Core {
        let config = &self.config;
        let stats = Arc::new(Stats::default());
        let callbacks = Callbacks::new(lost_hook(config));
        let backend = match &self.redis {
            None => Backend::Memory(memory(config, stats, callbacks)),
            Some(link) => {
                let options = redis::Options {
                    config: config.clone(),
                    link: link.clone(),
                    fork_generation: fork::generation(),
                };
                Backend::Redis(Redis::new(options, stats, callbacks))
            }
        };
        Core { backend }
    }

    /// Ends all waits, gives back what is held, lets the callbacks that are due run.
    pub fn shutdown(&self, timeout: Option<Duration>) -> Result<Status, Status> {
        if callback::inside() {
            return Err(Status::WouldDeadlock);
        }
        let again = self.closed.swap(true, Ordering::AcqRel);
        let ended = self.core.get().map(|core| core.backend.shutdown(timeout));
        match ended {
            Some(Status::Timeout) => {
                let message = "shutdown: its time passed before every callback had run";
                self.config.log(Level::Warning, message);
            }
            _ if again => {}
            _ => self.config.log(Level::Debug, "client shut down"),
        }
        Ok(ended.unwrap_or(Status::Ok))
    }

    /// Ends the wait `op`.
    pub fn cancel(&self, op: u64, detach: bool) -> Result<Status, Status> {
        Ok(self.core()?.backend.cancel(op, detach))
    }

    /// Ends all waits of this tag; how many there were.
    pub fn cancel_waits(&self, user_data: u64) -> Result<usize, Status> {
        Ok(self.core()?.backend.cancel_waits(user_data))
    }

    pub fn clock_advance(&self, by: Span) -> Result<Status, Status> {
        Ok(self.core()?.backend.clock_advance(by))
    }

    pub fn clock_set(&self, to: Time) -> Result<Status, Status> {
        Ok(self.core()?.backend.clock_set(to))
    }

    pub fn clock_now(&self) -> Result<Time, Status> {
        Ok(self.core()?.backend.clock_now())
    }

    /// The counters, also of a client that is closed.
    pub fn stats(&self) -> Result<Totals, Status> {
        let core = self.core.get_or_build(|| Ok(self.build()))?;
        Ok(core.backend.totals())
    }
}

fn memory(config: &Config, stats: Arc<Stats>, callbacks: Arc<Callbacks>) -> Arc<Memory> {
    let clock = Arc::new(match config.clock {
        ClockKind::Monotonic => Clock::monotonic(),
        ClockKind::Virtual => Clock::virtual_clock(),
    });
    let options = memory::Options {
        max_waiting: config.max_waiting,
        max_penalty: config.max_penalty,
        lease: config.lease,
        numbers: Numbers::new(fork::generation()),
    };
    Memory::new(clock, options, stats, callbacks)
}

/// What is told of a lost lease: the log, then the caller's hook. On the callback thread.
fn lost_hook(config: &Config) -> Option<LostHook> {
    let hook = config.lost.clone();
    let Some(log) = config.log.clone().filter(|log| log.hears(Level::Warning)) else {
        return hook;
    };
    Some(Arc::new(move |permit| {
        let message = format!("the lease of permit {permit:#x} ended while it was held");
        (log.write)(Level::Warning, &message);
        if let Some(hook) = &hook {
            hook(permit);
        }
    }))
}
