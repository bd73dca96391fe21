//! Semaphores while Redis is slow, silent, forgetful or away.
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use limiter::client::ClientQueue;
use limiter::decision::{DEGRADED, Status};
use limiter::limiter::spec;
use limiter::op::Request;

use crate::kit::*;
use crate::support::proxy::{Mode, Proxy};
use crate::support::server::Server;
use crate::support::{eventually, ms, secs};

#[test]
fn lost_replies_neither_lose_permits_nor_double_them() {
    let server = Server::start();
    let proxy = Proxy::before(server.port);
    let client = open(&proxy.url());
    let (lossy, sound) = (
        limiter(&client, "s", &[leased(3, 60_000)]),
        limiter(&open(&server.url()), "s", &[leased(3, 60_000)]),
    );
    let mut held = Vec::new();
    for n in 0..30 {
        proxy.set(Mode::LoseReply);
        match held.len() < 3 && n % 7 != 6 {
            true => {
                let granted = acquire(&lossy, &within(20_000));
                assert_eq!(granted.status, Status::Ok);
                held.push(granted.permit);
            }
            false => assert_eq!(lossy.release(held.remove(0)), Ok(Status::Ok)),
        }
        eventually("the reply was lost", secs(10), || {
            proxy.mode() == Mode::Forward || lossy.peek(&weigh(1)).is_err()
        });
        let left = 3 - held.len() as u64;
        eventually("each counts once", secs(10), || remaining(&sound) == left);
    }
    for permit in held {
        assert_eq!(lossy.release(permit), Ok(Status::Ok));
    }
    eventually("all is back", secs(10), || remaining(&sound) == 3);
    assert_eq!(client.stats().unwrap().lost, 0);
}

#[test]
fn who_holds_keeps_its_permit_when_redis_forgets_everything() {
    let server = Server::start();
    let (client, other) = (open(&server.url()), open(&server.url()));
    let limits = [leased(2, 900)];
    let (here, there) = (
        limiter(&client, "s", &limits),
        limiter(&other, "s", &limits),
    );
    for _ in 0..3 {
        let held: Vec<u64> = (0..2)
            .map(|_| acquire(&here, &within(20_000)).permit)
            .collect();
        server.ask::<()>(&["FLUSHALL"]);
        // Somebody who holds says so before a stranger asks.
        assert_eq!(here.renew(held[0], None), Ok(Status::Ok));
        let began = Instant::now();
        while began.elapsed() < ms(2000) {
            assert_eq!(acquire(&there, &Request::TRY).status, Status::Denied);
            std::thread::sleep(ms(20));
        }
        for permit in held {
            assert_eq!(here.release(permit), Ok(Status::Ok));
        }
    }
    assert_eq!(acquire(&there, &within(20_000)).status, Status::Ok);
    assert_eq!(client.stats().unwrap().lost, 0);
}

#[test]
fn who_cannot_renew_is_told_before_anybody_else_is_admitted() {
    let server = Server::start();
    let client = hasty(&server.url());
    let limits = [leased(1, 600)];
    let here = limiter(&client, "s", &limits);
    let queue = ClientQueue::new(&client).unwrap();
    let request = Request {
        tell_lost: true,
        ..Request::TRY
    };
    eventually("it is granted", secs(10), || {
        queue.submit(&here, &request).unwrap();
        next(&queue).status == Status::Ok
    });
    server.freeze();
    let began = Instant::now();
    let lost = next(&queue);
    assert_eq!(lost.status, Status::Stale);
    assert!(began.elapsed() < secs(10));
    assert_eq!(here.release(lost.permit), Ok(Status::Stale));
    server.thaw();
    let there = limiter(&open(&server.url()), "s", &limits);
    assert_eq!(acquire(&there, &within(20_000)).status, Status::Ok);
    assert_eq!(client.stats().unwrap().in_flight, 0);
}

#[test]
fn a_permit_and_a_wait_outlive_a_restart_of_redis() {
    let mut server = Server::start();
    let client = hasty(&server.url());
    let limiter = limiter(&client, "s", &[leased(1, 5000)]);
    let queue = ClientQueue::new(&client).unwrap();
    let held = acquire(&limiter, &Request::TRY).permit;
    let waiting = queue.submit(&limiter, &within(60_000)).unwrap();
    eventually("it waits", secs(10), || {
        server.ask::<usize>(&["ZCARD", "{limiter:S:s:}:q"]) == 1
    });
    // Asked after it, so that it has been answered.
    limiter.peek(&weigh(1)).unwrap();
    server.kill();
    assert_eq!(acquire(&limiter, &within(10_000)).status, Status::Backend);
    std::thread::sleep(ms(1000));
    server.boot();
    eventually("its permit is one again", secs(20), || {
        limiter.renew(held, None) == Ok(Status::Ok)
    });
    eventually("its wait is one again", secs(20), || {
        server.ask::<usize>(&["ZCARD", "{limiter:S:s:}:q"]) == 1
    });
    assert_eq!(limiter.release(held), Ok(Status::Ok));
    // The grace of a lease comes first: others may have held.
    let granted = next(&queue);
    assert_eq!((granted.status, granted.op), (Status::Ok, waiting.op));
    assert_eq!(client.stats().unwrap().lost, 0);
}

#[test]
fn without_redis_an_answer_comes_in_time_whatever_is_asked() {
    let mut server = Server::start();
    let client = hasty(&server.url());
    let limiter = limiter(&client, "s", &[leased(1, 1000)]);
    let queue = ClientQueue::new(&client).unwrap();
    let held = acquire(&limiter, &Request::TRY).permit;
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        let limiter = &limiter;
        scope.spawn(move || {
            let began = Instant::now();
            let decision = acquire(limiter, &within(1500));
            tell.send((decision, began.elapsed())).unwrap();
        });
        let began = Instant::now();
        let waiting = queue.submit(limiter, &within(1500)).unwrap();
        eventually("both wait", secs(10), || {
            server.ask::<usize>(&["ZCARD", "{limiter:S:s:}:q"]) == 2
        });
        // Asked after them, so that they have been answered.
        limiter.peek(&weigh(1)).unwrap();
        server.kill();
        let asked = Instant::now();
        let fresh = acquire(limiter, &within(60_000));
        assert_eq!(fresh.status, Status::Backend);
        assert!(asked.elapsed() < secs(5), "{:?}", asked.elapsed());
        // Those who wait do so to their deadline.
        let done = next(&queue);
        assert_eq!((done.status, done.op), (Status::Denied, waiting.op));
        assert_eq!(done.limit, 1);
        assert!((ms(1500)..secs(8)).contains(&began.elapsed()));
        let (decision, took) = told.recv().unwrap();
        assert_eq!(decision.status, Status::Denied);
        assert!((ms(1500)..secs(8)).contains(&took), "{took:?}");
    });
    assert_eq!(limiter.release(held), Ok(Status::Stale));
    server.boot();
    // After the grace of a lease, if Redis was told of the permit that it knows nothing of.
    eventually("it answers again", secs(10), || {
        acquire(&limiter, &within(5_000)).status == Status::Ok
    });
}

#[test]
fn the_policy_answers_for_a_semaphore_too() {
    let server = Server::prepare(&[]);
    for (policy, status) in [("open", Status::Ok), ("closed", Status::Denied)] {
        let client = open_with(&server.url(), &[("on_failure", policy)]);
        let limiter = limiter(&client, "s", &[semaphore(1)]);
        for request in [Request::TRY, within(1000)] {
            let one = acquire(&limiter, &request);
            assert_eq!((one.status, one.flags, one.permit), (status, DEGRADED, 0));
        }
        assert_eq!(client.stats().unwrap().degraded, 2);
    }
}

#[test]
fn what_was_given_up_while_redis_was_silent_is_given_back() {
    let server = Server::start();
    let client = hasty(&server.url());
    let limiter = limiter(&client, "s", &[leased(2, 60_000)]);
    let other = open(&server.url());
    let sound = crate::kit::limiter(&other, "s", &[leased(2, 60_000)]);
    let held = acquire(&limiter, &Request::TRY);
    assert_eq!(held.status, Status::Ok);
    for _ in 0..3 {
        server.freeze();
        assert_eq!(acquire(&limiter, &Request::TRY).status, Status::Backend);
        assert_eq!(acquire(&limiter, &within(20_000)).status, Status::Backend);
        server.thaw();
        eventually("nothing of it is left", secs(10), || remaining(&sound) == 1);
    }
    server.freeze();
    assert_eq!(limiter.release(held.permit), Ok(Status::Ok));
    std::thread::sleep(ms(600));
    server.thaw();
    eventually("the release came through", secs(10), || {
        remaining(&sound) == 2
    });
}

#[test]
fn shutdown_gives_back_what_could_not_be_given_back_before() {
    let server = Server::start();
    let sound = limiter(&open(&server.url()), "s", &[leased(1, 60_000)]);
    for round in 0..5 {
        let client = hasty(&server.url());
        let limiter = limiter(&client, "s", &[leased(1, 60_000)]);
        let held = acquire(&limiter, &within(20_000));
        assert_eq!(held.status, Status::Ok, "round {round}");
        server.freeze();
        assert_eq!(limiter.release(held.permit), Ok(Status::Ok));
        std::thread::sleep(ms(300 + 40 * round));
        server.thaw();
        assert_eq!(client.shutdown(Some(secs(20))), Ok(Status::Ok));
        assert_eq!(remaining(&sound), 1, "round {round}");
    }
    let client = hasty(&server.url());
    let limiter = limiter(&client, "s", &[leased(1, 60_000)]);
    assert_eq!(acquire(&limiter, &within(20_000)).status, Status::Ok);
    server.freeze();
    let began = Instant::now();
    assert_eq!(client.shutdown(Some(ms(400))), Ok(Status::Timeout));
    assert!(began.elapsed() < secs(5), "{:?}", began.elapsed());
}

#[test]
fn garbage_under_a_semaphore_is_an_error_until_it_is_reset() {
    let server = Server::start();
    let client = open(&server.url());
    let limiter = limiter(&client, "s", &[semaphore(2)]);
    let queue = ClientQueue::new(&client).unwrap();
    for part in ["s", "e", "q", "i"] {
        let held = acquire(&limiter, &weigh(2)).permit;
        let waiting = queue.submit(&limiter, &within(60_000)).unwrap();
        let key = format!("{{limiter:S:s:}}:{part}");
        server.ask::<()>(&["SET", &key, "x"]);
        let asked = acquire(&limiter, &weigh(1));
        assert_eq!((part, asked.status), (part, Status::Backend));
        let done = next(&queue);
        assert_eq!((done.status, done.op), (Status::Backend, waiting.op));
        assert_eq!(limiter.reset(b""), Ok(Status::Ok));
        assert_eq!(limiter.release(held), Ok(Status::Stale));
        assert_eq!(acquire(&limiter, &weigh(2)).status, Status::Ok);
        assert_eq!(limiter.reset(b""), Ok(Status::Ok));
    }
}

#[test]
fn a_flood_of_calls_starves_no_permit() {
    let server = Server::start();
    let client = open(&server.url());
    let held = limiter(&client, "held", &[leased(1, 2000)]);
    let flooded = limiter(&client, "flood", &[limit(spec::UNLIMITED, 0, 0, 0)]);
    let permit = acquire(&held, &weigh(1)).permit;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for n in 0..4_u8 {
            let (flooded, done) = (&flooded, &done);
            scope.spawn(move || {
                let keys: Vec<[u8; 2]> = (0..200).map(|k| [n, k]).collect();
                let on = |key| Request {
                    key,
                    ..Request::TRY
                };
                let requests: Vec<Request> = keys.iter().map(|key| on(key)).collect();
                while !done.load(Ordering::Relaxed) {
                    flooded.try_many(&requests).unwrap();
                }
            });
        }
        std::thread::sleep(ms(4500));
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(held.release(permit), Ok(Status::Ok));
    assert_eq!(client.stats().unwrap().lost, 0);
}
