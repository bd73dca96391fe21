//! Booked waits: granted here when their time has come, cancelled, moved, closed.
use std::sync::mpsc;
use std::time::{Duration, Instant};

use limiter::client::ClientQueue;
use limiter::decision::{Decision, Status};
use limiter::limit::time::Span;
use limiter::limiter::LimitSpec;
use limiter::op::Request;

use crate::kit::*;
use crate::support::server::Server;
use crate::support::{eventually, ms, secs};

#[test]
fn a_thread_a_queue_and_a_callback_wait_for_their_times_in_order() {
    let server = Server::start();
    let client = open(&server.url());
    let limiter = limiter(&client, "w", &[bucket(1, 10, 1_000_000)]);
    let began = Instant::now();
    assert_eq!(acquire(&limiter, &Request::TRY).waited_us, 0);
    let granted = acquire(&limiter, &within(60_000));
    assert_eq!(granted.status, Status::Ok);
    assert!(
        granted.waited_us >= 50_000 && granted.op != 0,
        "{granted:?}"
    );
    assert!(began.elapsed() >= ms(100));
    let queue = ClientQueue::new(&client).unwrap();
    let request = Request {
        user_data: 5,
        ..within(60_000)
    };
    let started: Vec<_> = (0..3)
        .map(|_| queue.submit(&limiter, &request).unwrap())
        .collect();
    let (tell, told) = mpsc::channel();
    let callback = Box::new(move |decision: Decision| tell.send(decision).unwrap());
    let op = limiter.acquire_cb(&request, callback).unwrap();
    for started in started {
        assert_eq!(started.status, Status::Pending);
        let done = next(&queue);
        assert_eq!(
            (done.status, done.op, done.user_data),
            (Status::Ok, started.op, 5)
        );
        assert_ne!(done.permit, 0);
    }
    let done = told.recv_timeout(secs(20)).unwrap();
    assert_eq!((done.status, done.op), (Status::Ok, op));
    assert!(began.elapsed() >= ms(500), "{:?}", began.elapsed());
    eventually("no wait is left", secs(5), || {
        client.stats().unwrap().waiting == 0
    });
}

#[test]
fn a_deadline_that_cannot_be_met_is_denied_at_once_and_books_nothing() {
    let server = Server::start();
    let client = open(&server.url());
    let limiter = limiter(&client, "w", &[bucket(1, 1, HOUR)]);
    acquire(&limiter, &Request::TRY);
    let began = Instant::now();
    let denied = acquire(&limiter, &within(60_000));
    assert_eq!(denied.status, Status::Denied);
    assert!(began.elapsed() < secs(5));
    let slot = limiter.pace(&within(7_200_000)).unwrap();
    assert!(slot.retry_after_us <= HOUR, "{slot:?}");
}

#[test]
fn a_cancelled_wait_gives_its_time_back() {
    let server = Server::start();
    let client = open(&server.url());
    let limiter = limiter(&client, "w", &[bucket(1, 1, HOUR)]);
    acquire(&limiter, &Request::TRY);
    let queue = ClientQueue::new(&client).unwrap();
    let request = within(86_400_000);
    let booked_by = |hours: u64| {
        eventually("it is booked", secs(10), || {
            limiter.peek(&weigh(1)).unwrap().retry_after_us > (hours - 1) * HOUR + HOUR / 2
        });
    };
    let started = queue.submit(&limiter, &request).unwrap();
    booked_by(2);
    assert_eq!(client.cancel(started.op, false), Ok(Status::Ok));
    let done = next(&queue);
    assert_eq!(
        (done.status, done.op, done.permit),
        (Status::Cancelled, started.op, 0)
    );
    assert_eq!(client.cancel(started.op, false), Ok(Status::Stale));
    let free = |what: &str| {
        eventually(what, secs(10), || {
            limiter.peek(&weigh(1)).unwrap().retry_after_us <= HOUR
        });
    };
    free("the time is free again");
    // While it is still being asked: whatever the answer will be, it is given back.
    let started = queue.submit(&limiter, &request).unwrap();
    assert_eq!(client.cancel(started.op, true), Ok(Status::Ok));
    free("the detached one took nothing");
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let request = Request {
                user_data: 9,
                ..request
            };
            acquire(&limiter, &request)
        });
        booked_by(2);
        assert_eq!(client.cancel_waits(9), Ok(1));
        assert_eq!(waiter.join().unwrap().status, Status::Cancelled);
    });
    free("the thread's time is free again");
    assert_eq!(queue.poll(9, Some(Duration::ZERO)), Ok(vec![]));
}

#[test]
fn a_penalty_moves_what_is_booked_and_a_reset_lets_it_go() {
    let server = Server::start();
    let client = open(&server.url());
    let queue = ClientQueue::new(&client).unwrap();
    let quick = limiter(&client, "quick", &[bucket(1, 5, 1_000_000)]);
    acquire(&quick, &Request::TRY);
    let began = Instant::now();
    let patient = queue.submit(&quick, &within(60_000)).unwrap();
    let hasty = queue.submit(&quick, &within(500)).unwrap();
    assert_eq!(quick.penalize(b"", Span::millis(700)), Ok(Status::Ok));
    let (first, second) = (next(&queue), next(&queue));
    assert_eq!((first.status, first.op), (Status::Denied, hasty.op));
    assert_eq!((second.status, second.op), (Status::Ok, patient.op));
    assert!(began.elapsed() >= ms(700));
    let slow = limiter(&client, "slow", &[bucket(1, 1, HOUR)]);
    acquire(&slow, &Request::TRY);
    let waiting = queue.submit(&slow, &within(86_400_000)).unwrap();
    eventually("it is booked", secs(10), || {
        slow.peek(&weigh(1)).unwrap().retry_after_us > HOUR + HOUR / 2
    });
    assert_eq!(slow.reset(b""), Ok(Status::Ok));
    let done = next(&queue);
    assert_eq!((done.status, done.op), (Status::Ok, waiting.op));
}

/// Each wait is asked for once; it was not booked before a penalty that is over.
#[test]
fn a_reset_ends_a_penalty_for_those_who_come_after_it_too() {
    let server = Server::start();
    let client = open(&server.url());
    let queue = ClientQueue::new(&client).unwrap();
    let limiter = limiter(&client, "s", &[bucket(1, 1, 2_000_000)]);
    acquire(&limiter, &Request::TRY);
    let first = queue.submit(&limiter, &within(10_000_000)).unwrap();
    for _ in 0..10 {
        queue.submit(&limiter, &within(10_000_000)).unwrap();
    }
    eventually("it listens", secs(10), || {
        server.ask::<Vec<String>>(&["PUBSUB", "CHANNELS"]).len() == 2
    });
    assert_eq!(limiter.penalize(b"", Span::secs(3600)), Ok(Status::Ok));
    // Its note comes while they wait.
    std::thread::sleep(ms(100));
    assert_eq!(limiter.reset(b""), Ok(Status::Ok));
    assert_eq!(next(&queue).op, first.op);
    let before = server.calls();
    for _ in 0..20 {
        queue.submit(&limiter, &within(10_000_000)).unwrap();
        // Let it be answered, so that the next one is a call of its own.
        std::thread::sleep(ms(20));
    }
    let calls = server.calls() - before;
    assert!(calls <= 30, "{calls}");
}

#[test]
fn shutdown_closes_waits_and_gives_their_times_back() {
    let server = Server::start();
    let (client, other) = (open(&server.url()), open(&server.url()));
    let limits = [bucket(1, 1, HOUR)];
    let here = limiter(&client, "w", &limits);
    let there = limiter(&other, "w", &limits);
    acquire(&here, &Request::TRY);
    let queue = ClientQueue::new(&client).unwrap();
    queue.submit(&here, &within(86_400_000)).unwrap();
    eventually("it is booked", secs(10), || {
        there.peek(&weigh(1)).unwrap().retry_after_us > HOUR + HOUR / 2
    });
    assert_eq!(client.shutdown(Some(secs(10))), Ok(Status::Ok));
    assert_eq!(next(&queue).status, Status::Closed);
    assert_eq!(here.acquire(&Request::TRY), Err(Status::Closed));
    assert!(there.peek(&weigh(1)).unwrap().retry_after_us <= HOUR);
    assert_eq!(client.shutdown(None), Ok(Status::Ok));
}

const SLOT_US: u64 = 3_000_000;

/// Two clients wait for their times; a third one, which waits for nothing, penalizes.
fn a_penalty_reaches_all(limits: &[LimitSpec], publishes: bool) {
    let server = Server::start();
    if !publishes {
        server.ask::<()>(&["ACL", "SETUSER", "default", "-publish"]);
    }
    let clients = [(); 3].map(|()| open(&server.url()));
    let limiters = clients
        .each_ref()
        .map(|client| limiter(client, "s", limits));
    assert_eq!(acquire(&limiters[2], &Request::TRY).status, Status::Ok);
    let queues = [0, 1].map(|n| ClientQueue::new(&clients[n]).unwrap());
    let (began, mut asked) = (Instant::now(), Vec::new());
    for n in [0, 1] {
        asked.push(Instant::now());
        let booked = queues[n].submit(&limiters[n], &within(60_000)).unwrap();
        assert_eq!(booked.status, Status::Pending);
        eventually("it is booked", secs(20), || {
            let next = limiters[2].peek(&weigh(1)).unwrap().retry_after_us;
            next > (n as u64 + 1) * SLOT_US
        });
    }
    if publishes {
        eventually("they listen", secs(20), || {
            let heard: Vec<String> = server.ask(&["PUBSUB", "NUMSUB", "limiter:notes:penalties"]);
            // Also who holds a permit of the semaphore.
            heard[1] == if limits.len() == 1 { "2" } else { "3" }
        });
    }
    assert!(
        began.elapsed() < ms(2900),
        "a slow machine: they start already"
    );
    let (began, length) = (Instant::now(), Span::secs(4));
    assert_eq!(limiters[2].penalize(b"", length), Ok(Status::Ok));
    for (asked, queue) in asked.into_iter().zip(&queues) {
        let granted = next(queue);
        assert_eq!(granted.status, Status::Ok);
        let started = asked + Duration::from_micros(granted.waited_us);
        let after = started.duration_since(began);
        println!("figure: a wait that was booked starts {after:?} after a penalty of 4 s");
        if publishes {
            assert!(after >= ms(3990), "{after:?}");
        }
    }
}

#[test]
fn a_penalty_moves_what_other_processes_have_booked() {
    a_penalty_reaches_all(&[bucket(1, 1, SLOT_US)], true);
}

#[test]
fn a_penalty_moves_what_other_processes_have_booked_with_a_semaphore() {
    a_penalty_reaches_all(&[semaphore(10), bucket(1, 1, SLOT_US)], true);
}

#[test]
fn a_penalty_that_nobody_may_tell_of_holds_for_all_that_is_not_booked() {
    a_penalty_reaches_all(&[bucket(1, 1, SLOT_US)], false);
}
