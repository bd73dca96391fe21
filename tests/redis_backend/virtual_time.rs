//! A client that tells Redis the time: whoever moves its clock finds everything done.
use limiter::client::ClientQueue;
use limiter::decision::Status;
use limiter::limit::time::Span;
use limiter::limiter::spec;
use limiter::op::Request;

use crate::kit::*;
use crate::support::secs;
use crate::support::server::Server;

#[test]
fn waits_leases_and_renewals_go_by_the_clients_clock() {
    let server = Server::start();
    let client = open_with(&server.url(), &[("clock", "virtual"), ("lease_ms", "1000")]);
    let limiter = limiter(&client, "api", &[limit(spec::SEMAPHORE, 1, 0, 0)]);
    let queue = ClientQueue::new(&client).unwrap();
    let poll = || queue.poll(9, Some(secs(0))).unwrap();
    let held = acquire(&limiter, &Request::TRY);
    let first = queue.submit(&limiter, &within(3_600_000)).unwrap();
    let second = queue.submit(&limiter, &within(500)).unwrap();
    assert_eq!(client.clock_advance(Span::millis(500)), Ok(Status::Ok));
    let [late] = poll()[..] else { panic!() };
    assert_eq!((late.op, late.status), (second.op, Status::Denied));
    assert_eq!(late.waited_us, 500_000);
    // Renewed all the while.
    assert_eq!(client.clock_advance(Span::secs(60)), Ok(Status::Ok));
    assert_eq!(poll(), []);
    assert_eq!(limiter.release(held.permit), Ok(Status::Ok));
    assert_eq!(client.clock_advance(Span::ZERO), Ok(Status::Ok));
    let [granted] = poll()[..] else { panic!() };
    assert_eq!((granted.op, granted.status), (first.op, Status::Ok));
    assert_eq!(granted.waited_us, 60_500_000);
    let unrenewed = Request {
        renew: false,
        ..Request::TRY
    };
    assert_eq!(limiter.release(granted.permit), Ok(Status::Ok));
    let short = acquire(&limiter, &unrenewed);
    assert_eq!(client.clock_advance(Span::millis(999)), Ok(Status::Ok));
    assert_eq!(acquire(&limiter, &Request::TRY).status, Status::Denied);
    assert_eq!(client.clock_advance(Span::millis(1)), Ok(Status::Ok));
    assert_eq!(limiter.release(short.permit), Ok(Status::Stale));
    assert_eq!(acquire(&limiter, &Request::TRY).status, Status::Ok);
}

#[test]
fn a_long_lease_that_is_over_makes_no_grace_longer() {
    let server = Server::start();
    let client = open_with(&server.url(), &[("clock", "virtual"), ("lease_ms", "1000")]);
    let limiter = limiter(&client, "long", &[limit(spec::SEMAPHORE, 1, 0, 0)]);
    let for_a_day = Request {
        lease: Some(Span::secs(86_400)),
        ..Request::TRY
    };
    let held = acquire(&limiter, &for_a_day).permit;
    assert_eq!(limiter.release(held), Ok(Status::Ok));
    assert_eq!(client.clock_advance(Span::secs(1)), Ok(Status::Ok));
    acquire(&limiter, &Request::TRY);
    assert_eq!(server.ask::<u64>(&["DEL", "{limiter:S:long:}:e"]), 1);
    // Who holds has a lease to say so.
    let denied = acquire(&limiter, &Request::TRY);
    assert_eq!(denied.status, Status::Denied);
    assert!(denied.retry_after_us <= 1_000_000, "{denied:?}");
}

#[test]
fn a_clock_of_the_system_is_not_moved() {
    let server = Server::prepare(&[]);
    let client = open(&server.url());
    assert_eq!(client.clock_advance(Span::ZERO), Ok(Status::Unsupported));
}
