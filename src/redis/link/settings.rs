//! How patient the link is, and what it tells: settings, counters, log.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::config::{Level, Log};

use super::endpoint::{Credentials, Endpoint};
use super::tls::Trust;

/// Everything a [`Link`](super::Link) needs to know.
#[derive(Clone, Debug)]
pub struct Settings {
    pub endpoint: Endpoint,
    pub trust: Trust,
    /// Log-in at the sentinels, which have their own.
    pub sentinel_credentials: Credentials,
    /// The longest wait for one reply before an idempotent call is tried again.
    pub attempt: Duration,
    /// The longest wait for one attempt to connect, and for the reply to a health PING.
    pub connect: Duration,
    /// Waits between attempts to connect grow from the first to the second.
    pub backoff: (Duration, Duration),
    /// A connection without any reply for this long is asked whether it lives.
    pub idle_check: Duration,
    /// How often the push connection must prove that it hears.
    pub push_check: Duration,
    /// Calls that fail in a row before most are refused at once.
    pub breaker_after: u32,
    pub log: Option<Log>,
}

impl Settings {
    pub fn new(endpoint: Endpoint) -> Settings {
        Settings {
            endpoint,
            trust: Trust::default(),
            sentinel_credentials: Credentials::default(),
            attempt: Duration::from_millis(250),
            connect: Duration::from_secs(1),
            backoff: (Duration::from_millis(50), Duration::from_secs(1)),
            idle_check: Duration::from_secs(10),
            push_check: Duration::from_secs(2),
            breaker_after: 5,
            log: None,
        }
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counted since the link was made.
        #[derive(Debug, Default)]
        pub(super) struct Counters { $(pub $name: AtomicU64),* }

        /// A copy of the counters.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct LinkStats { $($(#[$doc])* pub $name: u64),* }

        impl Counters {
            pub fn snapshot(&self) -> LinkStats {
                LinkStats { $($name: self.$name.load(Ordering::Relaxed)),* }
            }
        }
    };
}

counters! {
    /// Requests written, retries included.
    sent,
    /// Requests sent again: the first try was not executed, or the request is idempotent.
    retried,
    /// Requests without a reply in time.
    timeouts,
    /// Requests that ended without anybody knowing whether they ran.
    ambiguous,
    /// Requests refused at once because the server is known to be down or failing.
    failed_fast,
    /// Scripts sent with their body because the server did not know them.
    bodies_sent,
    /// MOVED and ASK.
    redirected,
    /// Connections that came up.
    connected,
    /// Attempts to connect that failed.
    refused,
    /// Connections given up: silent, or to the wrong server.
    replaced,
    /// Times the push connection began to hear.
    subscribed,
    /// Messages pushed to us.
    pushed,
    /// Messages dropped because nobody took them.
    push_dropped,
    /// Cluster maps read.
    maps_read,
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The log, and the counters, shared by all parts of a link.
#[derive(Clone)]
pub(super) struct Reporter {
    pub counters: Arc<Counters>,
    pub log: Option<Log>,
}

impl Reporter {
    pub fn log(&self, level: Level, text: std::fmt::Arguments<'_>) {
        if let Some(log) = &self.log
            && level as i32 <= log.level
        {
            (log.write)(level, &text.to_string());
        }
    }
}
