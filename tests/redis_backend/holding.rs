//! Semaphore permits: held, released, renewed, ended, together with rates.
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use limiter::client::{Client, ClientQueue};
use limiter::config::Config;
use limiter::decision::Status;
use limiter::limit::time::Span;
use limiter::limiter::{LimitSpec, spec};
use limiter::op::{Request, Weights};

use crate::kit::*;
use crate::support::server::Server;
use crate::support::{eventually, ms, secs};

#[test]
fn a_permit_is_held_until_it_is_released_once() {
    let server = Server::start();
    let (client, other) = (open(&server.url()), open(&server.url()));
    let here = limiter(&client, "s", &[semaphore(3)]);
    let there = limiter(&other, "s", &[semaphore(3)]);
    let two = acquire(&here, &weigh(2));
    assert_eq!((two.status, two.limit, two.remaining), (Status::Ok, 3, 1));
    assert!(two.permit != 0 && two.fence != 0 && two.op == 0);
    let denied = acquire(&there, &weigh(2));
    assert_eq!(
        (denied.status, denied.index, denied.remaining),
        (Status::Denied, 0, 1)
    );
    assert!(denied.retry_after_us > 0 && denied.retry_after_us <= 31_500_000);
    let one = acquire(&there, &weigh(1));
    assert_eq!((one.status, one.remaining), (Status::Ok, 0));
    assert!(one.fence > two.fence);
    assert_eq!(there.release(two.permit), Ok(Status::Stale));
    assert_eq!(here.release(two.permit), Ok(Status::Ok));
    for _ in 0..3 {
        assert_eq!(here.release(two.permit), Ok(Status::Stale));
        assert_eq!(here.renew(two.permit, None), Ok(Status::Stale));
        assert_eq!(here.settle(two.permit, 1), Ok(Status::Stale));
    }
    assert_eq!(remaining(&here), 2);
    assert_eq!(there.renew(one.permit, None), Ok(Status::Ok));
    assert_eq!(there.settle(one.permit, 1), Ok(Status::Ok));
    assert_eq!(there.settle(one.permit, 1), Ok(Status::Stale));
    assert_eq!(acquire(&here, &weigh(4)).status, Status::Never);
    let nothing = acquire(&here, &weigh(0));
    assert_eq!((nothing.status, nothing.permit), (Status::Ok, 0));
    assert_eq!(here.pace(&weigh(1)).unwrap().status, Status::Invalid);
    let (ours, theirs) = (client.stats().unwrap(), other.stats().unwrap());
    assert_eq!((ours.granted, ours.released, ours.in_flight), (1, 1, 0));
    assert_eq!((theirs.granted, theirs.in_flight, theirs.denied), (1, 1, 1));
}

#[test]
fn many_tries_are_decided_in_order_and_a_large_capacity_is_exact() {
    let server = Server::start();
    let client = open(&server.url());
    let small = limiter(&client, "small", &[semaphore(5)]);
    let decisions = small
        .try_many(&[weigh(3), weigh(3), weigh(2), weigh(0), weigh(1), weigh(6)])
        .unwrap();
    let statuses: Vec<Status> = decisions.iter().map(|d| d.status).collect();
    use Status::{Denied, Never, Ok as Granted};
    assert_eq!(statuses, [Granted, Denied, Granted, Granted, Denied, Never]);
    let large = limiter(&client, "large", &[semaphore(1 << 31)]);
    let most = acquire(&large, &weigh((1 << 31) - 1));
    assert_eq!((most.status, most.remaining), (Granted, 1));
    assert_eq!(acquire(&large, &weigh(2)).status, Denied);
    assert_eq!(acquire(&large, &weigh(1)).remaining, 0);
    assert_eq!(large.release(most.permit), Ok(Granted));
    assert_eq!(remaining(&large), (1 << 31) - 1);
}

#[test]
fn a_permit_lives_beyond_its_lease_as_long_as_it_is_held() {
    let server = Server::start();
    let client = open(&server.url());
    let limiter = limiter(&client, "s", &[leased(1, 300)]);
    let permit = acquire(&limiter, &Request::TRY).permit;
    let began = Instant::now();
    // Lease and allowance, more than twice.
    while began.elapsed() < ms(1500) {
        assert_eq!(acquire(&limiter, &Request::TRY).status, Status::Denied);
        std::thread::sleep(ms(50));
    }
    assert_eq!(limiter.release(permit), Ok(Status::Ok));
    assert_eq!(acquire(&limiter, &Request::TRY).status, Status::Ok);
    assert_eq!(client.stats().unwrap().lost, 0);
}

fn unrenewed(limit: LimitSpec) -> LimitSpec {
    LimitSpec {
        flags: spec::NO_RENEW,
        ..limit
    }
}

/// A client, and the permits that its hook is told of.
fn told(url: &str) -> (Arc<Client>, mpsc::Receiver<u64>) {
    let (tell, told) = mpsc::channel();
    let config = Config {
        command_timeout: Span::secs(5),
        lost: Some(Arc::new(move |permit| tell.send(permit).unwrap())),
        ..Config::default()
    };
    (Client::open(url, &config).unwrap(), told)
}

#[test]
fn without_renewal_a_lease_ends_and_whoever_held_it_is_told() {
    let server = Server::start();
    let (client, told) = told(&server.url());
    let limiter = limiter(&client, "s", &[unrenewed(leased(1, 400))]);
    let queue = ClientQueue::new(&client).unwrap();
    let request = Request {
        tell_lost: true,
        user_data: 7,
        ..Request::TRY
    };
    let began = Instant::now();
    let started = queue.submit(&limiter, &request).unwrap();
    let granted = next(&queue);
    assert_eq!((granted.status, granted.op), (Status::Ok, started.op));
    let lost = next(&queue);
    assert!(began.elapsed() >= ms(380), "{:?}", began.elapsed());
    assert_eq!((lost.status, lost.permit), (Status::Stale, granted.permit));
    assert_eq!((lost.op, lost.user_data), (started.op, 7));
    assert_eq!(told.recv_timeout(secs(20)), Ok(granted.permit));
    assert_eq!(limiter.release(granted.permit), Ok(Status::Stale));
    assert_eq!(limiter.renew(granted.permit, None), Ok(Status::Stale));
    // It is given back then, not only when Redis would end it.
    assert_eq!(acquire(&limiter, &Request::TRY).status, Status::Ok);
    let stats = client.stats().unwrap();
    assert_eq!((stats.lost, stats.released, stats.in_flight), (1, 0, 1));
    assert_eq!(queue.poll(9, Some(Duration::ZERO)), Ok(vec![]));
}

#[test]
fn renewing_says_how_long_a_permit_lives_from_then_on() {
    let server = Server::start();
    let (client, told) = told(&server.url());
    let limiter = limiter(&client, "s", &[unrenewed(leased(2, 60_000))]);
    let short = acquire(&limiter, &Request::TRY).permit;
    let long = Request {
        lease: Some(Span::millis(500)),
        ..Request::TRY
    };
    let long = acquire(&limiter, &long).permit;
    assert_eq!(limiter.renew(long, Some(Span::secs(50))), Ok(Status::Ok));
    let began = Instant::now();
    assert_eq!(
        limiter.renew(short, Some(Span::millis(300))),
        Ok(Status::Ok)
    );
    assert_eq!(told.recv_timeout(secs(20)), Ok(short));
    assert!(began.elapsed() >= ms(290) && began.elapsed() < secs(15));
    std::thread::sleep(ms(300));
    assert_eq!(limiter.renew(long, None), Ok(Status::Ok));
    let began = Instant::now();
    assert_eq!(told.recv_timeout(secs(20)), Ok(long), "0.5 s as granted");
    assert!(began.elapsed() >= ms(480));
}

#[test]
fn a_reset_ends_all_permits_here_and_elsewhere() {
    let server = Server::start();
    let (client, told) = told(&server.url());
    let other = open(&server.url());
    let limits = [leased(1, 900)];
    let (here, there) = (
        limiter(&client, "s", &limits),
        limiter(&other, "s", &limits),
    );
    let queue = ClientQueue::new(&other).unwrap();
    let own = acquire(&there, &Request::TRY).permit;
    let waiting = queue.submit(&there, &within(60_000)).unwrap();
    assert_eq!(there.reset(b""), Ok(Status::Ok));
    assert_eq!(there.release(own), Ok(Status::Stale));
    let granted = next(&queue);
    assert_eq!((granted.status, granted.op), (Status::Ok, waiting.op));
    assert_eq!(there.release(granted.permit), Ok(Status::Ok));
    let lost = acquire(&here, &within(20_000)).permit;
    assert_eq!(there.reset(b""), Ok(Status::Ok));
    assert_eq!(acquire(&there, &Request::TRY).status, Status::Ok);
    assert_eq!(told.recv_timeout(secs(20)), Ok(lost), "by a renewal");
    assert_eq!(here.release(lost), Ok(Status::Stale));
}

#[test]
fn a_capacity_is_lowered_and_raised_for_all() {
    let server = Server::start();
    let (client, other) = (open(&server.url()), open(&server.url()));
    let version = |capacity, version| LimitSpec {
        version,
        ..semaphore(capacity)
    };
    let first = limiter(&client, "s", &[version(3, 1)]);
    let held: Vec<u64> = (0..3).map(|_| acquire(&first, &weigh(1)).permit).collect();
    let queue = ClientQueue::new(&client).unwrap();
    let heavy = Request {
        wait: None,
        ..weigh(3)
    };
    let heavy = queue.submit(&first, &heavy).unwrap();
    let light = queue.submit(&first, &within(60_000)).unwrap();
    eventually("both wait", secs(10), || {
        client.stats().unwrap().waiting == 2
    });
    let lower = limiter(&other, "s", &[version(2, 2)]);
    assert_eq!(acquire(&lower, &weigh(1)).status, Status::Denied);
    let never = next(&queue);
    assert_eq!((never.status, never.op), (Status::Never, heavy.op));
    assert_eq!(first.release(held[0]), Ok(Status::Ok));
    assert_eq!(acquire(&lower, &weigh(1)).status, Status::Denied);
    assert_eq!(queue.poll(1, Some(ms(50))), Ok(vec![]));
    let higher = limiter(&other, "s", &[version(4, 3)]);
    assert_eq!(acquire(&higher, &weigh(1)).status, Status::Ok);
    let granted = next(&queue);
    assert_eq!((granted.status, granted.op), (Status::Ok, light.op));
    assert_eq!(higher.peek(&weigh(0)).unwrap().limit, 4);
    assert_eq!(remaining(&higher), 0);
}

#[test]
fn a_semaphore_and_rates_are_taken_together_or_not_at_all() {
    let server = Server::start();
    let client = open(&server.url());
    let limits = [semaphore(2), bucket(100, 100, HOUR)];
    let limiter = limiter(&client, "s", &limits);
    let each = |weights: &'static [u64]| Request {
        weights: Weights::Each(weights),
        ..Request::TRY
    };
    let left = |index: usize| {
        let probe = if index == 0 { &[3, 0] } else { &[0, 101] };
        let never = limiter.peek(&each(probe)).unwrap();
        assert_eq!(never.status, Status::Never);
        never.remaining
    };
    let first = acquire(&limiter, &each(&[1, 60]));
    assert_eq!(first.status, Status::Ok);
    let denied = acquire(&limiter, &each(&[1, 60]));
    assert_eq!((denied.status, denied.index), (Status::Denied, 1));
    assert_eq!((left(0), left(1)), (1, 40));
    assert_eq!(limiter.settle(first.permit, 10), Ok(Status::Ok));
    assert_eq!(limiter.settle(first.permit, 10), Ok(Status::Stale));
    assert_eq!((left(0), left(1)), (1, 90));
    // What takes nothing of the semaphore need not come back.
    let rates = acquire(&limiter, &each(&[0, 30]));
    assert_eq!((left(0), left(1)), (1, 60));
    assert_eq!(limiter.settle(rates.permit, 20), Ok(Status::Ok));
    assert_eq!((left(0), left(1)), (1, 70));
    assert_eq!(limiter.release(first.permit), Ok(Status::Ok));
    assert_eq!((left(0), left(1)), (2, 70));
    assert_eq!(client.stats().unwrap().in_flight, 0);
}

#[test]
fn when_all_is_released_nothing_stays_for_long() {
    let server = Server::start();
    let client = open(&server.url());
    let limits = [leased(2, 1000), bucket(5, 1000, 1_000_000)];
    let limiter = limiter(&client, "s", &limits);
    let queue = ClientQueue::new(&client).unwrap();
    let held: Vec<u64> = (0..2)
        .map(|_| acquire(&limiter, &weigh(1)).permit)
        .collect();
    queue.submit(&limiter, &within(60_000)).unwrap();
    eventually("all parts are there", secs(10), || {
        let keys: Vec<String> = server.ask(&["KEYS", "*"]);
        keys.len() == 4
    });
    for key in server.ask::<Vec<String>>(&["KEYS", "*"]) {
        let ttl: i64 = server.ask(&["PTTL", &key]);
        // Fencing numbers are remembered for longer, in case that the clock steps back.
        let most = if key.ends_with(":s") { 40_000 } else { 10_000 };
        assert!(ttl > 0 && ttl < most, "{key}: {ttl}");
    }
    for permit in held {
        assert_eq!(limiter.release(permit), Ok(Status::Ok));
    }
    assert_eq!(limiter.release(next(&queue).permit), Ok(Status::Ok));
    eventually("only the numbers are left", secs(20), || {
        let keys: Vec<String> = server.ask(&["KEYS", "*"]);
        keys.iter().all(|key| key.ends_with(":s"))
    });
    for key in server.ask::<Vec<String>>(&["KEYS", "*"]) {
        let ttl: i64 = server.ask(&["PTTL", &key]);
        assert!(ttl > 20_000 && ttl < 35_000, "{key}: {ttl}");
    }
}

#[test]
fn shutdown_gives_back_what_is_held_and_ends_what_waits() {
    let server = Server::start();
    let (client, other) = (open(&server.url()), open(&server.url()));
    let limits = [semaphore(200)];
    let (here, there) = (
        limiter(&client, "s", &limits),
        limiter(&other, "s", &limits),
    );
    let requests = [weigh(2); 100];
    let held = here.try_many(&requests).unwrap();
    assert!(held.iter().all(|decision| decision.status == Status::Ok));
    let queue = ClientQueue::new(&client).unwrap();
    for _ in 0..10 {
        queue.submit(&here, &within(60_000)).unwrap();
    }
    assert_eq!(client.shutdown(Some(secs(10))), Ok(Status::Ok));
    for _ in 0..10 {
        assert_eq!(next(&queue).status, Status::Closed);
    }
    assert_eq!(acquire(&there, &weigh(200)).status, Status::Ok);
    assert_eq!(here.release(held[0].permit), Err(Status::Closed));
    let stats = client.stats().unwrap();
    assert_eq!(
        (stats.released, stats.in_flight, stats.waiting),
        (100, 0, 0)
    );
}

/// B-076: also of permits that are booked, whose numbers nobody was told yet.
#[test]
fn b_076_numbers_that_nobody_was_given_are_stale_whatever_they_are_of() {
    let server = Server::start();
    let client = open(&server.url());
    let limits = [semaphore(1000), bucket(1, 1, 2_000_000)];
    let limiter = limiter(&client, "guess", &limits);
    let held = acquire(&limiter, &Request::TRY).permit;
    assert_ne!(held, 0);
    let queue = ClientQueue::new(&client).unwrap();
    let patient = Request {
        wait: None,
        ..Request::TRY
    };
    assert_eq!(
        queue.submit(&limiter, &patient).unwrap().status,
        Status::Pending
    );
    eventually("it is booked", secs(10), || {
        limiter.peek(&weigh(0)).unwrap().remaining == 0
            && server.ask::<u64>(&["HLEN", "{limiter:ST:guess:}:i"]) == 2
    });
    for n in 1..=4096 {
        let guessed = held + n;
        assert_eq!(limiter.release(guessed), Ok(Status::Stale), "{n}");
        assert_eq!(limiter.settle(guessed, 0), Ok(Status::Stale), "{n}");
        assert_eq!(limiter.renew(guessed, None), Ok(Status::Stale), "{n}");
    }
    let granted = next(&queue);
    assert_eq!(granted.status, Status::Ok);
    for permit in [held, granted.permit] {
        assert_eq!(limiter.release(permit), Ok(Status::Ok));
    }
    assert_eq!(client.shutdown(Some(secs(20))), Ok(Status::Ok));
}

/// Not a third of a lease later, nor only those that are renewed.
#[test]
fn a_reset_by_another_process_is_told_to_those_who_hold() {
    let server = Server::start();
    let (mine, theirs) = (open(&server.url()), open(&server.url()));
    let limits = [leased(2, 300_000)];
    let (here, there) = (limiter(&mine, "r", &limits), limiter(&theirs, "r", &limits));
    let kept = Request {
        renew: false,
        ..Request::TRY
    };
    let permits = [&Request::TRY, &kept].map(|request| acquire(&here, request).permit);
    eventually("it listens", secs(20), || {
        let count: (String, u64) = server.ask(&["PUBSUB", "NUMSUB", "limiter:notes:penalties"]);
        count.1 == 1
    });
    assert_eq!(there.reset(b""), Ok(Status::Ok));
    eventually("both are lost", secs(20), || {
        mine.stats().unwrap().lost == 2
    });
    for permit in permits {
        assert_eq!(here.release(permit), Ok(Status::Stale));
    }
    // What is granted after it stays.
    let next = acquire(&there, &kept);
    assert_eq!(here.reset(b"elsewhere"), Ok(Status::Ok));
    assert_eq!(there.release(next.permit), Ok(Status::Ok));
}
