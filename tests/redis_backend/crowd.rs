//! Many real processes on one key.
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use limiter::decision::Status;
use limiter::limiter::{LimitSpec, spec};
use limiter::op::Request;

use crate::fleet::{Fleet, Member};
use crate::kit::*;
use crate::support::server::Server;
use crate::support::{eventually, secs};

const CROWD: usize = 20;
const CAPACITY: u64 = 10;

/// Every kind that admits so many and then none for an hour.
fn kinds() -> Vec<LimitSpec> {
    let interval = LimitSpec {
        flags: spec::INTERVAL,
        ..bucket(CAPACITY, 1, HOUR)
    };
    let first_use = LimitSpec {
        flags: spec::ALIGN_FIRST_USE,
        ..limit(spec::FIXED_WINDOW, CAPACITY, 0, HOUR)
    };
    vec![
        semaphore(CAPACITY),
        bucket(CAPACITY, 1, HOUR),
        interval,
        limit(spec::PACER, CAPACITY, 1, HOUR),
        limit(spec::SLIDING_LOG, CAPACITY, 0, HOUR),
        first_use,
    ]
}

/// One of the crowd: tries each kind when all do, and then waits in line.
pub fn member(mut me: Member) {
    let client = open(&me.url);
    for (n, kind) in kinds().into_iter().enumerate() {
        let limiter = limiter(&client, &format!("kind{n}"), &[kind]);
        assert!(remaining(&limiter) >= CAPACITY);
        me.say(&format!("ready{n}"), me.number);
        me.await_word(&format!("go{n}"));
        let told = acquire(&limiter, &Request::TRY);
        me.say(&format!("told{n}"), format!("{:?}", told.status));
        me.await_word(&format!("done{n}"));
    }
    let line = limiter(&client, "line", &[semaphore(1)]);
    me.await_word(&format!("queue{}", me.number));
    let granted = acquire(
        &line,
        &Request {
            wait: None,
            ..Request::TRY
        },
    );
    assert_eq!(granted.status, Status::Ok);
    me.say("order", me.number);
    assert_eq!(line.release(granted.permit), Ok(Status::Ok));
    client.shutdown(None).unwrap();
}

#[test]
fn of_twenty_processes_ten_pass_a_capacity_of_ten_and_those_who_wait_do_so_in_line() {
    let server = Server::start();
    let crowd = Fleet::start(&server, "crowd", CROWD);
    for (n, kind) in kinds().iter().enumerate() {
        crowd.hear(&format!("ready{n}"), CROWD);
        crowd.tell(&format!("go{n}"));
        let told = crowd.hear(&format!("told{n}"), CROWD);
        let count = |status: &str| told.iter().filter(|told| *told == status).count();
        // A pacer has a burst, and lets one more start.
        let passes = 10 + usize::from(kind.kind == spec::PACER);
        assert_eq!(
            (count("Ok"), count("Denied")),
            (passes, CROWD - passes),
            "{kind:?}"
        );
        crowd.tell(&format!("done{n}"));
    }
    let line = limiter(&open(&server.url()), "line", &[semaphore(1)]);
    let held = acquire(&line, &Request::TRY);
    assert_eq!(held.status, Status::Ok);
    for n in 0..CROWD {
        crowd.tell(&format!("queue{n}"));
        eventually("it is in line", secs(60), || {
            server.ask::<usize>(&["ZCARD", "{limiter:S:line:}:q"]) == n + 1
        });
    }
    assert_eq!(line.release(held.permit), Ok(Status::Ok));
    let expected: Vec<String> = (0..CROWD).map(|n| n.to_string()).collect();
    assert_eq!(crowd.hear("order", CROWD), expected);
}

const THREADS: u64 = 64;
const PROCESSES: usize = 4;
const SHOTS: u64 = 10_000;

/// One of the processes that fire.
pub fn fires(mut me: Member) {
    let client = open(&me.url);
    let limiter = limiter(&client, "shared", &[bucket(100, 1, HOUR)]);
    assert_eq!(remaining(&limiter), 100);
    me.say("ready", me.number);
    me.await_word("go");
    let left = AtomicU64::new(SHOTS / PROCESSES as u64);
    let (passed, denied) = (AtomicU64::new(0), AtomicU64::new(0));
    let one_less = |left: u64| left.checked_sub(1);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
                    .is_ok()
                {
                    let told = acquire(&limiter, &Request::TRY);
                    match told.status {
                        Status::Ok => passed.fetch_add(1, Ordering::Relaxed),
                        Status::Denied => denied.fetch_add(1, Ordering::Relaxed),
                        _ => panic!("{told:?}"),
                    };
                }
            });
        }
    });
    me.say("passed", passed.into_inner());
    me.say("denied", denied.into_inner());
}

#[test]
fn b_142_sixty_four_threads_in_four_processes_fire_ten_thousand_at_a_bucket_of_a_hundred() {
    let server = Server::start();
    let fleet = Fleet::start(&server, "fire", PROCESSES);
    fleet.hear("ready", PROCESSES);
    fleet.tell("go");
    let began = std::time::Instant::now();
    let sum = |list| -> u64 {
        let counts = fleet.hear(list, PROCESSES);
        counts
            .iter()
            .map(|count| count.parse::<u64>().unwrap())
            .sum()
    };
    assert_eq!((sum("passed"), sum("denied")), (100, SHOTS - 100));
    let took: Duration = began.elapsed();
    println!("figure: {SHOTS} tries by 4 x 64 threads: 100 pass, in {took:?}");
    let limiter = limiter(&open(&server.url()), "shared", &[bucket(100, 1, HOUR)]);
    assert_eq!(remaining(&limiter), 0);
}
