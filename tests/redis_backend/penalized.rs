//! Penalties and resets while many wait: nobody starts too early, nobody loses his place, and nothing is left
//! unused.
use std::sync::Arc;
use std::time::{Duration, Instant};

use limiter::client::{Client, ClientQueue};
use limiter::decision::{Decision, Status};
use limiter::limit::time::Span;
use limiter::limiter::{LimitSpec, Limiter};
use limiter::op::Request;

use crate::kit::*;
use crate::support::proxy::{Mode, Proxy};
use crate::support::server::Server;
use crate::support::{eventually, ms, secs};

/// A process.
struct Worker {
    client: Arc<Client>,
    limiter: Limiter,
    queue: ClientQueue,
}

impl Worker {
    fn new(url: &str, limits: &[LimitSpec], settings: &[(&str, &str)]) -> Worker {
        let client = open_with(url, settings);
        Worker {
            limiter: limiter(&client, "p", limits),
            queue: ClientQueue::new(&client).unwrap(),
            client,
        }
    }

    fn submit(&self, wait: Option<Span>, user_data: u64) -> Decision {
        let request = Request {
            wait,
            user_data,
            ..Request::TRY
        };
        self.queue.submit(&self.limiter, &request).unwrap()
    }

    fn poll(&self) -> Vec<Decision> {
        self.queue.poll(9_999, Some(Duration::ZERO)).unwrap()
    }

    /// When the next one could start, in seconds.
    fn next_in(&self) -> f64 {
        self.limiter.peek(&weigh(1)).unwrap().retry_after_us as f64 / 1e6
    }
}

/// Waits that are told apart by their numbers start in this order, on a clock that is moved.
fn who_starts_first(worker: &Worker, count: usize) -> Vec<u64> {
    let mut started = Vec::new();
    for _ in 0..200 {
        for done in worker.poll() {
            assert_eq!(done.status, Status::Ok);
            started.push(done.user_data);
            // A reset has ended what was held.
            let ended = worker.limiter.release(done.permit).unwrap();
            assert!(matches!(ended, Status::Ok | Status::Stale), "{ended:?}");
        }
        if started.len() == count {
            break;
        }
        assert_eq!(
            worker.client.clock_advance(Span::millis(100)),
            Ok(Status::Ok)
        );
    }
    started
}

#[test]
fn whoever_was_booked_stays_before_those_behind_him_in_the_queue() {
    let server = Server::start();
    let limits = [semaphore(3), bucket(1, 1, 500_000)];
    for (name, penalty) in [("penalty", true), ("reset", false)] {
        let settings = [("clock", "virtual"), ("prefix", name)];
        let worker = Worker::new(&server.url(), &limits, &settings);
        for number in 1..=8 {
            worker.submit(Some(Span::secs(60)), number);
            assert_eq!(worker.client.clock_advance(Span::ZERO), Ok(Status::Ok));
        }
        // Twice: whoever is put off again and again starts first all the same.
        for _ in 0..2 {
            let changed = match penalty {
                true => worker.limiter.penalize(b"", Span::secs(3)),
                false => worker.limiter.reset(b""),
            };
            assert_eq!(changed, Ok(Status::Ok));
            assert_eq!(worker.client.clock_advance(Span::millis(1)), Ok(Status::Ok));
        }
        let started = who_starts_first(&worker, 8);
        assert_eq!(started, [1, 2, 3, 4, 5, 6, 7, 8], "after a {name}");
    }
}

#[test]
fn a_wait_that_a_penalty_makes_too_late_is_denied_and_holds_nothing() {
    let server = Server::start();
    let limits = [semaphore(2), bucket(1, 1, 500_000)];
    let worker = Worker::new(&server.url(), &limits, &[("clock", "virtual")]);
    worker.submit(Some(Span::secs(60)), 1);
    worker.submit(Some(Span::secs(1)), 2);
    worker.submit(Some(Span::secs(60)), 3);
    assert_eq!(worker.client.clock_advance(Span::ZERO), Ok(Status::Ok));
    let [first] = worker.poll()[..] else { panic!() };
    assert_eq!(first.status, Status::Ok);
    assert_eq!(worker.limiter.penalize(b"", Span::secs(5)), Ok(Status::Ok));
    assert_eq!(worker.client.clock_advance(Span::ZERO), Ok(Status::Ok));
    let [denied] = worker.poll()[..] else {
        panic!()
    };
    assert_eq!((denied.user_data, denied.status), (2, Status::Denied));
    assert_eq!(worker.client.clock_advance(Span::secs(5)), Ok(Status::Ok));
    let [last] = worker.poll()[..] else { panic!() };
    assert_eq!((last.user_data, last.status), (3, Status::Ok));
}

#[test]
fn a_penalty_that_is_over_moves_nobody() {
    let server = Server::start();
    let worker = Worker::new(
        &server.url(),
        &[bucket(2, 1, 1_000_000)],
        &[("clock", "virtual")],
    );
    assert_eq!(worker.limiter.penalize(b"", Span::secs(1)), Ok(Status::Ok));
    assert_eq!(worker.client.clock_advance(Span::secs(2)), Ok(Status::Ok));
    let taken = acquire(&worker.limiter, &weigh(2));
    worker.submit(Some(Span::millis(1_500)), 1);
    assert_eq!(worker.client.clock_advance(Span::ZERO), Ok(Status::Ok));
    // Settled at more, which comes after what is booked; moved, the wait would come too late.
    assert_eq!(worker.limiter.settle(taken.permit, 4), Ok(Status::Ok));
    assert_eq!(worker.client.clock_advance(Span::secs(1)), Ok(Status::Ok));
    let [done] = worker.poll()[..] else { panic!() };
    assert_eq!((done.status, done.waited_us), (Status::Ok, 1_000_000));
}

/// Nobody starts in a penalty of three seconds, whatever happens just before and after it is told of. Answers
/// how many completed in the end.
fn nobody_starts_in_it(url: &str, waits: u64, before: impl Fn(), after: impl Fn()) -> u64 {
    let worker = Worker::new(url, &[bucket(1, 500, 1_000_000)], &[PATIENT]);
    for number in 0..waits {
        worker.submit(None, number);
    }
    eventually("all are booked", secs(20), || {
        worker.next_in() > waits as f64 / 500.0 - 1.0
    });
    before();
    let began = Instant::now();
    assert_eq!(worker.limiter.penalize(b"", Span::secs(3)), Ok(Status::Ok));
    let before = worker.poll().len() as u64;
    after();
    let (mut started, length) = (0, secs(3) - ms(20));
    while began.elapsed() < length {
        let done = worker.poll().len();
        assert!(
            done == 0 || began.elapsed() >= length,
            "{done} start in a penalty"
        );
        std::thread::sleep(ms(10));
    }
    let deadline = Instant::now() + secs(20);
    while before + started < waits && Instant::now() < deadline {
        for done in worker.queue.poll(999, Some(ms(100))).unwrap() {
            assert_eq!(done.status, Status::Ok);
            started += 1;
        }
    }
    println!(
        "figure: {waits} waits at 500/s are over {:?} after a penalty of 3 s",
        began.elapsed()
    );
    before + started
}

/// For a moment after a penalty nobody books anything; whoever does not wait so long is told before.
#[test]
fn a_deadline_in_the_moment_after_a_penalty_is_kept() {
    let server = Server::start();
    let worker = Worker::new(&server.url(), &[bucket(1, 200, 1_000_000)], &[PATIENT]);
    for number in 0..140 {
        worker.submit(None, number);
    }
    let op = worker.submit(Some(Span::millis(800)), 140).op;
    eventually("all are booked", secs(20), || worker.next_in() > 0.2);
    assert_eq!(worker.limiter.penalize(b"", Span::secs(30)), Ok(Status::Ok));
    let done = loop {
        let done = next(&worker.queue);
        if done.op == op {
            break done;
        }
    };
    assert!(done.waited_us < 1_000_000, "{done:?}");
}

#[test]
fn a_thousand_booked_waits_are_moved_a_few_at_a_time() {
    let server = Server::start();
    let waits = 1_500;
    log_calls(&server);
    let nothing = || {};
    let done = nobody_starts_in_it(&server.url(), waits, nothing, nothing);
    assert_eq!(done, waits);
    let longest = longest_call(&server);
    assert!(longest <= 64 * 5 + 10, "a call of {longest} arguments");
}

#[test]
fn a_move_whose_answer_is_lost_lets_nobody_start() {
    let server = Server::start();
    let proxy = Proxy::before(server.port);
    let lose = || proxy.set(Mode::LoseReply);
    let lose_more = || {
        for _ in 0..3 {
            lose();
            std::thread::sleep(ms(100));
        }
        proxy.set(Mode::Forward);
    };
    let done = nobody_starts_in_it(&proxy.url(), 600, lose, lose_more);
    assert_eq!(done, 600);
}

#[test]
fn a_reset_by_another_process_lets_those_who_wait_start() {
    let server = Server::start();
    for limits in [
        &[bucket(1, 1, HOUR)][..],
        &[semaphore(9), bucket(1, 1, HOUR)],
    ] {
        server.ask::<()>(&["FLUSHALL"]);
        let workers = [(); 2].map(|()| Worker::new(&server.url(), limits, &[PATIENT]));
        acquire(&workers[1].limiter, &Request::TRY);
        workers[0].submit(None, 1);
        workers[0].submit(None, 2);
        eventually("both are booked", secs(20), || {
            workers[1].next_in() > 9_000.0
        });
        eventually("notes are listened for", secs(20), || {
            let heard: Vec<String> = server.ask(&["PUBSUB", "CHANNELS", "*:penalties"]);
            !heard.is_empty()
        });
        let wait = Span::secs(1_000);
        assert_eq!(workers[1].limiter.penalize(b"", wait), Ok(Status::Ok));
        assert_eq!(workers[1].limiter.reset(b""), Ok(Status::Ok));
        let done = next(&workers[0].queue);
        assert_eq!((done.status, done.user_data), (Status::Ok, 1));
        // The other one is booked behind, once.
        eventually("an hour is left for each of both", secs(20), || {
            (3_600.0..7_300.0).contains(&workers[1].next_in())
        });
    }
}

#[test]
fn three_processes_leave_no_slot_unused_after_a_penalty() {
    let server = Server::start();
    let limits = [bucket(1, 5, 1_000_000)];
    let workers = [(); 3].map(|()| Worker::new(&server.url(), &limits, &[PATIENT]));
    let listen = |count: &str| {
        let heard: Vec<String> = server.ask(&["PUBSUB", "NUMSUB", "limiter:notes:penalties"]);
        heard[1] == count
    };
    let began = Instant::now();
    for number in 0..900 {
        workers[number as usize % 3].submit(None, number);
    }
    eventually("all are booked", secs(20), || workers[0].next_in() > 165.0);
    eventually("all listen", secs(20), || listen("3"));
    for n in 0..3 {
        assert_eq!(
            workers[n].limiter.penalize(b"", Span::secs(2)),
            Ok(Status::Ok)
        );
        eventually("all are booked again", secs(20), || {
            workers[0].next_in() > 165.0
        });
    }
    // 180 seconds are booked, less what has started.
    let passed = began.elapsed().as_secs_f64();
    let most = 180.0 + passed.min(10.0);
    eventually("no more than that is booked", secs(20), || {
        let next = workers[0].next_in();
        next > 165.0 && next < most
    });
}

/// Also of those who are booked, and cannot be told their new times.
#[test]
fn a_deadline_is_kept_while_redis_takes_no_writes_after_a_penalty() {
    let server = Server::start();
    for limits in [
        &[bucket(10, 1, 2_000_000)][..],
        &[bucket(10, 1, 2_000_000), semaphore(100)],
    ] {
        server.ask::<()>(&["FLUSHALL"]);
        let worker = Worker::new(&server.url(), limits, &[]);
        eventually("all is taken", secs(20), || {
            acquire(&worker.limiter, &Request::TRY).status == Status::Denied
        });
        for number in 0..2 {
            worker.submit(Some(Span::millis(6_000)), number);
        }
        eventually("both are booked", secs(20), || worker.next_in() > 3.0);
        eventually("it listens", secs(20), || {
            let count: (String, u64) = server.ask(&["PUBSUB", "NUMSUB", "limiter:notes:penalties"]);
            count.1 == 1
        });
        let names: Vec<String> = server.ask(&["KEYS", "*:s"]);
        let place = redis::Script::new(&names[0]).get_hash().to_owned();
        server.ask::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
        let note = format!("P 9000000000000000 {place}");
        server.ask::<u64>(&["PUBLISH", "limiter:notes:penalties", &note]);
        for _ in 0..2 {
            let polled = worker.queue.poll(1, Some(secs(12))).unwrap();
            let done = polled.first().expect("it ends at its deadline");
            assert_ne!(done.status, Status::Ok);
        }
        server.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    }
}
