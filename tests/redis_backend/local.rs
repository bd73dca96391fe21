//! The `local` policy: while Redis is away each process limits by itself, to its part.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use limiter::client::{Client, ClientQueue};
use limiter::decision::{DEGRADED, Decision, Status};
use limiter::limit::time::Span;
use limiter::limiter::{Limiter, spec};
use limiter::op::Request;

use crate::kit::*;
use crate::support::server::Server;
use crate::support::{eventually, ms, secs};

const LOCAL: (&str, &str) = ("on_failure", "local");

fn open_local(server: &Server, more: &[(&str, &str)]) -> Arc<Client> {
    let mut settings = vec![LOCAL];
    settings.extend_from_slice(more);
    open_with(&server.url(), &settings)
}

/// How many of a hundred pass, all by the policy.
fn degraded(limiter: &Limiter) -> usize {
    let decisions = limiter.try_many(&[Request::TRY; 100]).unwrap();
    for one in &decisions {
        assert!(matches!(one.status, Status::Ok | Status::Denied), "{one:?}");
        assert_eq!(one.flags, DEGRADED);
    }
    let passed = |one: &&Decision| one.status == Status::Ok;
    decisions.iter().filter(passed).count()
}

#[test]
fn b_112_three_processes_take_a_third_each_once_they_have_counted_themselves() {
    let mut server = Server::start();
    let clients: Vec<_> = (0..3).map(|_| open_local(&server, &[])).collect();
    let limiters: Vec<_> = clients
        .iter()
        .map(|client| limiter(client, "api", &[bucket(30, 1, HOUR)]))
        .collect();
    for limiter in &limiters {
        assert_eq!(acquire(limiter, &Request::TRY).flags, 0);
    }
    eventually("all are counted", secs(10), || {
        server.ask::<i64>(&["ZCARD", "{limiter:T:api}:n"]) == 3
    });
    // And each has heard of the others: one beat after the last came.
    let beats = || -> u64 {
        let stats = server.info("commandstats", "cmdstat_zremrangebyscore");
        let calls = stats.strip_prefix("calls=").unwrap();
        calls.split(',').next().unwrap().parse().unwrap()
    };
    let so_far = beats();
    eventually("each has asked again", secs(10), || beats() >= so_far + 6);
    server.kill();
    eventually("the server is missed", secs(5), || {
        limiters
            .iter()
            .all(|limiter| acquire(limiter, &weigh(0)).flags == DEGRADED)
    });
    for limiter in &limiters {
        assert_eq!(degraded(limiter), 10);
        let denied = acquire(limiter, &Request::TRY);
        assert_eq!((denied.limit, denied.remaining), (10, 0));
        assert!(denied.retry_after_us > 0);
    }
    for client in &clients {
        let stats = client.stats().unwrap();
        assert!(stats.degraded >= 101, "{stats:?}");
        assert_eq!(stats.granted, 11);
    }
    server.boot();
    for limiter in &limiters {
        eventually("Redis decides again", secs(2), || {
            acquire(limiter, &weigh(0)).flags == 0
        });
    }
}

#[test]
fn as_long_as_nobody_was_counted_the_setting_counts() {
    let server = Server::prepare(&[]);
    let client = open_local(&server, &[("processes", "5")]);
    let limiter = limiter(&client, "api", &[bucket(30, 1, HOUR)]);
    assert_eq!(degraded(&limiter), 6);
    // What a part can never give, the whole may when Redis is back.
    let heavy = acquire(&limiter, &weigh(7));
    assert_eq!((heavy.status, heavy.flags), (Status::Denied, DEGRADED));
    assert!(heavy.retry_after_us > 0);
    let never = acquire(&limiter, &weigh(31));
    assert_eq!((never.status, never.flags), (Status::Never, DEGRADED));
}

#[test]
fn a_limiter_may_have_its_own_policy() {
    let server = Server::prepare(&[]);
    let client = open_local(&server, &[]);
    let [a, b] = ["a", "b"].map(|name| limiter(&client, name, &[bucket(3, 1, HOUR)]));
    b.set("on_failure", "closed").unwrap();
    assert_eq!(degraded(&a), 3);
    assert_eq!(degraded(&b), 0);
    b.set("on_failure", "error").unwrap();
    assert_eq!(acquire(&b, &Request::TRY).status, Status::Backend);
    b.set("on_failure", "local").unwrap();
    assert_eq!(degraded(&b), 3);
}

#[test]
fn a_semaphore_is_waited_for_and_handed_on_in_this_process() {
    let server = Server::prepare(&[]);
    let client = open_local(&server, &[("processes", "2")]);
    let limiter = limiter(&client, "api", &[limit(spec::SEMAPHORE, 4, 0, 0)]);
    let held = acquire(&limiter, &within(10_000));
    let second = acquire(&limiter, &within(10_000));
    assert_eq!((held.status, held.flags), (Status::Ok, DEGRADED));
    assert_eq!(second.status, Status::Ok);
    let queue = ClientQueue::new(&client).unwrap();
    let mut request = within(60_000);
    request.user_data = 9;
    let pending = queue.submit(&limiter, &request).unwrap();
    assert_eq!(pending.status, Status::Pending);
    let errors = || client.stats().unwrap().backend_errors;
    eventually("Redis is missed", secs(10), || errors() >= 3);
    assert_eq!(limiter.release(held.permit), Ok(Status::Ok));
    assert_eq!(limiter.release(held.permit), Ok(Status::Stale));
    let granted = next(&queue);
    assert_eq!((granted.status, granted.flags), (Status::Ok, DEGRADED));
    assert_eq!((granted.op, granted.user_data), (pending.op, 9));
    assert_ne!(granted.permit, 0);
    // Cancelled, detached and denied ones leave nothing behind.
    let waits = [
        queue.submit(&limiter, &request).unwrap(),
        queue.submit(&limiter, &request).unwrap(),
    ];
    eventually("Redis is missed again", secs(10), || errors() >= 5);
    assert_eq!(client.cancel(waits[0].op, false), Ok(Status::Ok));
    assert_eq!(client.cancel(waits[1].op, true), Ok(Status::Ok));
    assert_eq!(acquire(&limiter, &within(50)).status, Status::Denied);
    let done = queue.poll(8, Some(secs(0))).unwrap();
    assert_eq!(done.len(), 1);
    assert_eq!(
        (done[0].status, done[0].op),
        (Status::Cancelled, waits[0].op)
    );
    for permit in [granted.permit, second.permit] {
        assert_eq!(limiter.renew(permit, Some(Span::secs(60))), Ok(Status::Ok));
        assert_eq!(limiter.release(permit), Ok(Status::Ok));
    }
    let stats = client.stats().unwrap();
    assert_eq!((stats.waiting, stats.in_flight), (0, 0), "{stats:?}");
    assert_eq!((stats.granted, stats.released), (3, 3), "{stats:?}");
}

#[test]
fn who_waits_in_redis_when_it_goes_is_served_in_this_process() {
    let mut server = Server::start();
    let client = open_local(&server, &[]);
    let limiter = Arc::new(limiter(&client, "api", &[limit(spec::SEMAPHORE, 1, 0, 0)]));
    let held = acquire(&limiter, &Request::TRY);
    assert_eq!((held.status, held.flags), (Status::Ok, 0));
    let got = Arc::new(AtomicU64::new(0));
    let waiter = std::thread::spawn({
        let (limiter, got) = (limiter.clone(), got.clone());
        move || {
            let decision = acquire(&limiter, &within(60_000));
            got.store(decision.permit, Ordering::SeqCst);
            decision
        }
    });
    eventually("it waits", secs(10), || {
        server.ask::<i64>(&["ZCARD", "{limiter:S:api:}:q"]) == 1
    });
    server.kill();
    eventually("it is served", secs(10), || got.load(Ordering::SeqCst) != 0);
    let decision = waiter.join().unwrap();
    assert_eq!((decision.status, decision.flags), (Status::Ok, DEGRADED));
    // Redis's permit is Redis's, and this process's is its own.
    assert_eq!(limiter.release(decision.permit), Ok(Status::Ok));
    assert_eq!(limiter.release(held.permit), Ok(Status::Ok));
    // Which could not be told.
    assert_eq!(client.shutdown(Some(ms(500))), Ok(Status::Timeout));
}

#[test]
fn a_penalty_and_a_reset_that_redis_did_not_take_hold_here() {
    let server = Server::prepare(&[]);
    let client = open_local(&server, &[]);
    let limiter = limiter(&client, "api", &[bucket(3, 1, HOUR)]);
    assert_eq!(degraded(&limiter), 3);
    assert_eq!(limiter.reset(b""), Ok(Status::Backend));
    assert_eq!(degraded(&limiter), 3);
    assert_eq!(limiter.reset(b""), Ok(Status::Backend));
    assert_eq!(limiter.penalize(b"", Span::secs(60)), Ok(Status::Backend));
    assert_eq!(degraded(&limiter), 0);
}
