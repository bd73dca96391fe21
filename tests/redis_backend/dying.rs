//! Processes that are killed: what they held or waited for comes to the others in time.
use std::sync::Arc;
use std::time::{Duration, Instant};

use limiter::client::{Client, ClientQueue};
use limiter::decision::Status;
use limiter::limiter::Limiter;
use nix::sys::signal::Signal;

use crate::kit::*;
use crate::support::process::Process;
use crate::support::server::Server;
use crate::support::{eventually, ms, secs};

const CAPACITY: u64 = 2;
const LEASE_MS: u32 = 1000;
/// What Redis gives on top, and what a busy machine takes.
const SLACK: Duration = ms(350 + 1500);

fn place(url: &str) -> (Arc<Client>, Limiter) {
    let client = open(url);
    let limiter = limiter(&client, "s", &[leased(CAPACITY, LEASE_MS)]);
    (client, limiter)
}

/// What a killed process does; nothing in the test program itself.
#[test]
fn child() {
    let Ok(plan) = std::env::var("LIMITER_CHILD") else {
        return;
    };
    let (url, weight) = plan.split_once(' ').unwrap();
    let (_client, limiter) = place(url);
    let request = limiter::op::Request {
        wait: None,
        ..weigh(weight.parse().unwrap())
    };
    let granted = acquire(&limiter, &request);
    assert_eq!(granted.status, Status::Ok);
    std::thread::sleep(secs(600));
}

/// A process that acquires so much, with a wait.
fn process(server: &Server, weight: u64) -> Process {
    let program = std::env::current_exe().unwrap();
    let plan = format!("LIMITER_CHILD={} {weight}", server.url());
    let args = [&plan, program.to_str().unwrap(), "--exact", "dying::child"];
    Process::start("env", &args.map(str::to_owned))
}

#[track_caller]
fn count(server: &Server, part: &str, expected: usize) {
    let key = format!("{{limiter:S:s:}}:{part}");
    eventually("so many are there", secs(20), || {
        server.ask::<usize>(&["ZCARD", &key]) == expected
    });
}

#[test]
fn what_a_killed_holder_held_is_back_within_its_lease() {
    let server = Server::start();
    let (_client, limiter) = place(&server.url());
    let mut longest = Duration::ZERO;
    for _ in 0..5 {
        let mut holder = process(&server, CAPACITY);
        count(&server, "e", 1);
        // It has been renewed before.
        std::thread::sleep(ms(400));
        assert_eq!(acquire(&limiter, &weigh(1)).status, Status::Denied);
        holder.kill();
        let killed = Instant::now();
        let granted = acquire(
            &limiter,
            &limiter::op::Request {
                wait: None,
                ..weigh(CAPACITY)
            },
        );
        longest = longest.max(killed.elapsed());
        assert_eq!(granted.status, Status::Ok);
        assert_eq!(limiter.release(granted.permit), Ok(Status::Ok));
        count(&server, "e", 0);
    }
    println!("figure: a killed holder's capacity is back after at most {longest:?}");
    assert!(longest < ms(LEASE_MS.into()) + SLACK, "{longest:?}");
}

/// The time from a release until the wait behind a process's is granted, in which that process is killed.
fn killed_at_the_head(stop: bool) -> Duration {
    let server = Server::start();
    let (client, limiter) = place(&server.url());
    let queue = ClientQueue::new(&client).unwrap();
    let mut longest = Duration::ZERO;
    for _ in 0..3 {
        let held = acquire(
            &limiter,
            &limiter::op::Request {
                wait: None,
                ..weigh(CAPACITY)
            },
        );
        let mut head = process(&server, 1);
        count(&server, "q", 1);
        let behind = limiter::op::Request {
            wait: None,
            ..weigh(CAPACITY)
        };
        let behind = queue.submit(&limiter, &behind).unwrap();
        count(&server, "q", 2);
        if stop {
            // The grant is its own, and it does not know.
            head.signal(Signal::SIGSTOP);
        } else {
            head.kill();
        }
        let released = Instant::now();
        assert_eq!(limiter.release(held.permit), Ok(Status::Ok));
        if stop {
            count(&server, "q", 1);
            head.kill();
        }
        let granted = next(&queue);
        longest = longest.max(released.elapsed());
        assert_eq!((granted.status, granted.op), (Status::Ok, behind.op));
        assert_eq!(limiter.release(granted.permit), Ok(Status::Ok));
        count(&server, "e", 0);
    }
    longest
}

#[test]
fn a_killed_waiter_at_the_head_holds_nobody_up_for_longer_than_a_lease() {
    let longest = killed_at_the_head(false);
    println!("figure: behind a killed waiter the next one is granted after at most {longest:?}");
    assert!(longest < ms(LEASE_MS.into()) + SLACK, "{longest:?}");
}

#[test]
fn one_killed_between_its_grant_and_its_waking_costs_a_claim() {
    let longest = killed_at_the_head(true);
    println!("figure: behind one killed after its grant: at most {longest:?}");
    assert!(longest < ms(LEASE_MS.into()) + SLACK, "{longest:?}");
}
