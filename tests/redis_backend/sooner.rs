//! What is given back serves those who wait: a booked time comes earlier, here and in other processes, and
//! not before a penalty whose note was lost.
use limiter::client::ClientQueue;
use limiter::decision::{Decision, Status};
use limiter::limiter::{LimitSpec, Limiter};
use limiter::op::{Request, Weights};

use crate::kit::*;
use crate::support::server::Server;
use crate::support::{eventually, secs};

/// Ten, and one more in a hundred seconds.
fn slow() -> LimitSpec {
    bucket(10, 10, 1_000_000_000)
}

fn waits(weight: u64) -> Request<'static> {
    Request {
        wait: within(3_600_000).wait,
        ..weigh(weight)
    }
}

/// Until somebody has booked a time there.
fn is_booked(limiter: &Limiter, times: u64) {
    eventually("a time is booked", secs(20), || {
        limiter
            .peek(&weigh(1))
            .is_ok_and(|told| told.retry_after_us > times * 50_000_000)
    });
}

fn granted(queue: &ClientQueue, op: u64) -> Decision {
    let done = next(queue);
    assert_eq!((done.status, done.op), (Status::Ok, op));
    done
}

#[test]
fn what_is_settled_or_cancelled_serves_those_who_wait() {
    let server = Server::start();
    let client = open(&server.url());
    let limiter = limiter(&client, "s", &[slow()]);
    let queue = ClientQueue::new(&client).unwrap();
    let first = acquire(&limiter, &weigh(10)).permit;
    let ops: Vec<u64> = (0..3)
        .map(|_| queue.submit(&limiter, &waits(4)).unwrap().op)
        .collect();
    assert_eq!(limiter.settle(first, 1), Ok(Status::Ok));
    granted(&queue, ops[0]);
    let second = granted(&queue, ops[1]);
    is_booked(&limiter, 1);
    // The last one lacks three. One behind it lacks less, but not while that is before it.
    let behind = queue.submit(&limiter, &waits(1)).unwrap().op;
    is_booked(&limiter, 5);
    assert_eq!(client.cancel(ops[2], false), Ok(Status::Ok));
    let cancelled = next(&queue);
    assert_eq!(
        (cancelled.status, cancelled.op),
        (Status::Cancelled, ops[2])
    );
    granted(&queue, behind);
    // A permit that is used up is settled once; what it gives back is there for the next.
    assert_eq!(limiter.settle(second.permit, 0), Ok(Status::Ok));
    assert_eq!(acquire(&limiter, &weigh(4)).status, Status::Ok);
    assert_eq!(acquire(&limiter, &weigh(1)).status, Status::Denied);
}

#[test]
fn what_others_settle_serves_those_who_wait_here() {
    let server = Server::start();
    let (here, there) = (open(&server.url()), open(&server.url()));
    let (waiting, working) = (
        limiter(&here, "s", &[slow()]),
        limiter(&there, "s", &[slow()]),
    );
    let queue = ClientQueue::new(&here).unwrap();
    let first = acquire(&working, &weigh(10)).permit;
    let op = queue.submit(&waiting, &waits(8)).unwrap().op;
    is_booked(&working, 10);
    eventually("notes are listened for", secs(20), || {
        let heard: Vec<String> = server.ask(&["PUBSUB", "CHANNELS", "*:penalties"]);
        heard.len() == 1
    });
    assert_eq!(working.settle(first, 1), Ok(Status::Ok));
    granted(&queue, op);
}

#[test]
fn raised_limits_serve_those_who_wait() {
    let server = Server::start();
    let client = open(&server.url());
    let low = limiter(&client, "s", &[slow()]);
    let queue = ClientQueue::new(&client).unwrap();
    acquire(&low, &weigh(10));
    let ops: Vec<u64> = (0..3)
        .map(|_| queue.submit(&low, &waits(5)).unwrap().op)
        .collect();
    is_booked(&low, 20);
    // All at once, were it not for the one before.
    let _high = limiter(&client, "s", &[bucket(10, 10, 1_000_000)]);
    for op in ops {
        granted(&queue, op);
    }
}

#[test]
fn what_is_settled_moves_bookings_behind_a_semaphore_too() {
    let server = Server::start();
    let client = open(&server.url());
    let limiter = limiter(&client, "s", &[semaphore(5), slow()]);
    let queue = ClientQueue::new(&client).unwrap();
    let each = |weights: &'static [u64]| Request {
        weights: Weights::Each(weights),
        ..waits(0)
    };
    let first = acquire(&limiter, &each(&[1, 10])).permit;
    let ops: Vec<u64> = (0..2)
        .map(|_| queue.submit(&limiter, &each(&[2, 5])).unwrap().op)
        .collect();
    assert_eq!(limiter.settle(first, 0), Ok(Status::Ok));
    let permits: Vec<u64> = ops
        .into_iter()
        .map(|op| granted(&queue, op).permit)
        .collect();
    for permit in permits.into_iter().chain([first]) {
        assert_eq!(limiter.release(permit), Ok(Status::Ok));
    }
    let left = limiter.peek(&each(&[5, 0])).unwrap();
    assert_eq!(left.status, Status::Ok);
    let denied = limiter.peek(&each(&[5, 1])).unwrap();
    assert_eq!((denied.status, denied.index), (Status::Denied, 1));
}

#[test]
fn nobody_who_waits_for_long_starts_in_a_penalty_whose_note_was_lost() {
    let server = Server::start();
    let (here, there) = (open(&server.url()), open(&server.url()));
    let limits = [bucket(1, 1, 4_000_000)];
    let (waiting, other) = (limiter(&here, "s", &limits), limiter(&there, "s", &limits));
    let queue = ClientQueue::new(&here).unwrap();
    acquire(&waiting, &weigh(1));
    let op = queue.submit(&waiting, &waits(1)).unwrap().op;
    eventually("a time is booked", secs(20), || {
        other
            .peek(&weigh(1))
            .is_ok_and(|told| told.retry_after_us > 4_000_000)
    });
    server.ask::<()>(&["ACL", "SETUSER", "default", "-publish"]);
    assert_eq!(
        other.penalize(b"", limiter::limit::time::Span::secs(7)),
        Ok(Status::Ok)
    );
    let done = granted(&queue, op);
    assert!(done.waited_us >= 7_000_000, "{done:?}");
}

/// Between processes as well, and in each of them those start first who came first.
#[test]
fn a_slot_that_was_cancelled_in_the_middle_serves_who_comes_later() {
    let server = Server::start();
    // All that comes before the first slot is done well before it, however busy the machine is.
    let limits = [bucket(1, 1, 12_000_000)];
    let open = |_| {
        let client = open(&server.url());
        let limiter = limiter(&client, "m", &limits);
        (ClientQueue::new(&client).unwrap(), limiter, client)
    };
    let workers = [0, 1].map(open);
    let (queue, here, client) = &workers[0];
    acquire(here, &weigh(1));
    let mut ops = Vec::new();
    for (n, (queue, limiter, _)) in workers.iter().chain(&workers).enumerate() {
        ops.push(queue.submit(limiter, &waits(1)).unwrap().op);
        eventually("it is booked", secs(20), || {
            next_in(here) > 11 * n as u64 + 11
        });
    }
    assert_eq!(client.cancel(ops[0], false), Ok(Status::Ok));
    assert_eq!(next(queue).status, Status::Cancelled);
    let before = next_in(here);
    let last = queue.submit(here, &waits(1)).unwrap().op;
    assert!(next_in(here) <= before, "no new slot was booked");
    assert!(
        granted(queue, ops[2]).waited_us < 24_000_000,
        "in the first slot"
    );
    assert!(queue.poll(1, Some(secs(1))).unwrap().is_empty());
    assert_eq!(client.cancel(last, true), Ok(Status::Ok));
}

/// So many that one call would hold the server up.
#[test]
fn hundreds_that_are_booked_go_by_new_limits_a_few_at_a_time() {
    let server = Server::start();
    let client = open(&server.url());
    let slow = limiter(&client, "h", &[bucket(1, 1, 1_000_000)]);
    let queue = ClientQueue::new(&client).unwrap();
    acquire(&slow, &weigh(1));
    let first = queue.submit(&slow, &waits(1)).unwrap().op;
    for _ in 1..400 {
        queue.submit(&slow, &waits(1)).unwrap();
    }
    eventually("all are booked", secs(20), || next_in(&slow) > 390);
    log_calls(&server);
    let fast = limiter(&client, "h", &[bucket(1, 20, 1_000_000)]);
    eventually("all come sooner", secs(20), || next_in(&fast) <= 25);
    assert!(granted(&queue, first).waited_us < 20_000_000);
    let longest = longest_call(&server);
    assert!(longest <= 64 * 5 + 10, "a call of {longest} arguments");
}

/// When the next one could start, in seconds.
fn next_in(limiter: &Limiter) -> u64 {
    limiter
        .peek(&weigh(1))
        .unwrap()
        .retry_after_us
        .div_ceil(1_000_000)
}
