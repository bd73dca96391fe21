//! Clients, limits and requests in few words.
use std::sync::Arc;

use limiter::client::{Client, ClientQueue};
use limiter::config::Config;
use limiter::decision::Decision;
use limiter::limit::time::Span;
use limiter::limiter::{LimitSpec, Limiter};
use limiter::op::{Request, Weights};

pub use crate::support::limits::*;
use crate::support::secs;
use crate::support::server::Server;

pub const HOUR: u64 = 3_600_000_000;

/// With this a busy machine is no failure.
pub const PATIENT: (&str, &str) = ("command_timeout_ms", "5000");

pub fn open(url: &str) -> Arc<Client> {
    open_with(url, &[PATIENT])
}

/// A client that soon gives up.
pub fn hasty(url: &str) -> Arc<Client> {
    open_with(url, &[])
}

pub fn open_with(url: &str, settings: &[(&str, &str)]) -> Arc<Client> {
    let mut config = Config::default();
    for (key, value) in settings {
        config.set(key, value).unwrap();
    }
    Client::open(url, &config).unwrap()
}

pub fn limiter(client: &Arc<Client>, name: &str, limits: &[LimitSpec]) -> Limiter {
    Limiter::new(client, name, limits).unwrap()
}

pub fn weigh(weight: u64) -> Request<'static> {
    Request {
        weights: Weights::Same(weight),
        ..Request::TRY
    }
}

pub fn within(ms: u64) -> Request<'static> {
    Request {
        wait: Some(Span::millis(ms)),
        ..Request::TRY
    }
}

#[track_caller]
pub fn acquire(limiter: &Limiter, request: &Request) -> Decision {
    limiter.acquire(request).unwrap()
}

/// What is left on the empty key.
#[track_caller]
pub fn remaining(limiter: &Limiter) -> u64 {
    let decision = limiter.peek(&weigh(0)).unwrap();
    assert_eq!(decision.status, limiter::decision::Status::Ok);
    decision.remaining
}

/// The next completion of a queue.
#[track_caller]
pub fn next(queue: &ClientQueue) -> Decision {
    let polled = queue.poll(1, Some(secs(20))).unwrap();
    *polled.first().expect("a completion")
}

/// From now on all calls are known to the server afterwards.
pub fn log_calls(server: &Server) {
    server.ask::<()>(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    server.ask::<()>(&["CONFIG", "SET", "slowlog-max-len", "100000"]);
}

/// How many words the longest call had.
pub fn longest_call(server: &Server) -> usize {
    let log: Vec<(u64, u64, u64, Vec<String>, String, String)> =
        server.ask(&["SLOWLOG", "GET", "-1"]);
    // An argument that is left out of a long list says how many.
    let longest = log.iter().map(|entry| {
        let more = entry.3.last().map_or(0, |last| {
            let more = last
                .strip_prefix("... (")
                .and_then(|text| text.split(' ').next());
            more.and_then(|more| more.parse().ok()).unwrap_or(0)
        });
        entry.3.len() + more
    });
    longest.max().unwrap()
}
