//! Bugs that others had, one by one.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use limiter::client::{Client, ClientQueue};
use limiter::config::Config;
use limiter::decision::{DEGRADED, Status};
use limiter::op::Request;
use nix::sys::signal::Signal;

use crate::fleet::{Fleet, Member};
use crate::kit::*;
use crate::load::{rates, semaphores};
use crate::support::proxy::{Mode, Proxy};
use crate::support::server::Server;
use crate::support::{eventually, secs};

#[test]
fn b_049_every_script_runs_on_this_server() {
    let server = Server::start();
    let client = open(&server.url());
    for shape in [rates(), semaphores(2)].concat() {
        let limiter = limiter(&client, shape.name, &shape.limits);
        let one = acquire(&limiter, &within(1000));
        assert_eq!((one.status, one.flags), (Status::Ok, 0), "{}", shape.name);
        if one.permit != 0 {
            limiter.settle(one.permit, 1).unwrap();
            limiter.renew(one.permit, None).unwrap();
            assert_eq!(limiter.release(one.permit), Ok(Status::Ok));
        }
        assert_eq!(limiter.peek(&weigh(1)).unwrap().flags, 0);
        let short = limiter::limit::time::Span::millis(1);
        assert_eq!(limiter.penalize(b"", short), Ok(Status::Ok));
        assert_eq!(limiter.reset(b""), Ok(Status::Ok));
    }
    let version = |field: &str| server.info("server", field);
    println!(
        "figure: every script runs on Redis {} {}",
        version("redis_version"),
        version("valkey_version")
    );
}

/// Holds, is stopped meanwhile, and says what it was told of its permit.
pub fn sleeper(mut me: Member) {
    let lost = Arc::new(AtomicU64::new(0));
    let hook = lost.clone();
    let config = Config {
        lost: Some(Arc::new(move |permit| hook.store(permit, Ordering::SeqCst))),
        ..Config::default()
    };
    let client = Client::open(&me.url, &config).unwrap();
    let limiter = limiter(&client, "s", &[leased(1, 1000)]);
    let held = acquire(&limiter, &Request::TRY);
    assert_eq!(held.status, Status::Ok);
    me.say("holds", held.fence);
    me.await_word("release");
    let released = limiter.release(held.permit).unwrap();
    eventually("it is told", secs(20), || {
        lost.load(Ordering::SeqCst) == held.permit
    });
    me.say("told", format!("{released:?}"));
}

#[test]
fn b_067_who_was_stopped_for_longer_than_its_lease_is_told_that_it_holds_nothing() {
    let server = Server::start();
    let fleet = Fleet::start(&server, "sleeper", 1);
    let first: u64 = fleet.hear("holds", 1)[0].parse().unwrap();
    fleet.processes[0].signal(Signal::SIGSTOP);
    let stopped = Instant::now();
    let client = open(&server.url());
    let limiter = limiter(&client, "s", &[leased(1, 1000)]);
    let second = acquire(&limiter, &within(60_000));
    assert_eq!(second.status, Status::Ok);
    assert!(second.fence > first);
    std::thread::sleep(secs(3).saturating_sub(stopped.elapsed()));
    fleet.processes[0].signal(Signal::SIGCONT);
    fleet.tell("release");
    assert_eq!(fleet.hear("told", 1), ["Stale"]);
    // That release was of nobody's permit.
    assert_eq!(acquire(&limiter, &Request::TRY).status, Status::Denied);
    assert_eq!(limiter.release(second.permit), Ok(Status::Ok));
    assert_eq!(remaining(&limiter), 1);
}

#[test]
fn b_088_a_wait_whose_note_is_lost_is_granted_by_the_heartbeat() {
    let server = Server::start();
    let (here, there) = (open(&server.url()), open(&server.url()));
    let [holder, waiter] = [&here, &there].map(|client| limiter(client, "s", &[semaphore(1)]));
    let queue = ClientQueue::new(&there).unwrap();
    for _ in 0..5 {
        let held = acquire(&holder, &within(60_000));
        assert_eq!(held.status, Status::Ok);
        let waiting = queue.submit(&waiter, &within(60_000)).unwrap();
        eventually("it waits, and listens", secs(60), || {
            let listeners: (String, usize) =
                server.ask(&["PUBSUB", "NUMSUB", "limiter:notes:penalties"]);
            server.ask::<usize>(&["ZCARD", "{limiter:S:s:}:q"]) == 1 && listeners.1 == 2
        });
        // It hears nothing for as long as it tries to listen.
        server.ask::<()>(&["ACL", "SETUSER", "default", "-subscribe"]);
        server.ask::<u64>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        let released = Instant::now();
        assert_eq!(holder.release(held.permit), Ok(Status::Ok));
        let granted = next(&queue);
        assert_eq!((granted.status, granted.op), (Status::Ok, waiting.op));
        println!(
            "figure: a wait that hears nothing: after {:?}",
            released.elapsed()
        );
        server.ask::<()>(&["ACL", "SETUSER", "default", "+subscribe"]);
        assert_eq!(waiter.release(granted.permit), Ok(Status::Ok));
    }
    assert_eq!(there.stats().unwrap().lost, 0);
}

#[test]
fn b_112_of_a_dead_redis_open_passes_all_and_closed_none_and_each_answer_says_so() {
    for (policy, passes) in [("open", 100), ("closed", 0)] {
        let mut server = Server::start();
        let clients = [(); 3].map(|()| open_with(&server.url(), &[("on_failure", policy)]));
        let limiters = clients
            .each_ref()
            .map(|client| limiter(client, "api", &[bucket(3, 1, HOUR)]));
        for limiter in &limiters {
            eventually("Redis decides", secs(20), || {
                limiter.peek(&weigh(0)).unwrap().flags == 0
            });
        }
        let own: usize = limiters
            .iter()
            .map(|limiter| acquire(limiter, &Request::TRY))
            .filter(|one| (one.status, one.flags) == (Status::Ok, 0))
            .count();
        assert_eq!(own, 3);
        server.kill();
        for (limiter, client) in limiters.iter().zip(&clients) {
            let before = client.stats().unwrap().degraded;
            let answers = [(); 100].map(|()| acquire(limiter, &Request::TRY));
            assert!(answers.iter().all(|one| one.flags & DEGRADED != 0));
            let passed = answers.iter().filter(|one| one.status == Status::Ok);
            assert_eq!(passed.count(), passes, "{policy}");
            assert_eq!(client.stats().unwrap().degraded, before + 100);
        }
    }
}

/// Pages this process has in memory, in MiB.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages / 256
}

const CALLS: usize = 10_000;
const WAITING: usize = 500;

/// Asks for much at once of a Redis that is slow; says what it took.
pub fn flood(mut me: Member) {
    let port = me.url.rsplit_once(':').unwrap().1.parse().unwrap();
    let proxy = Proxy::before(port);
    let waiting = WAITING.to_string();
    let settings = [("command_timeout_ms", "60000"), ("max_waiting", &waiting)];
    let client = open_with(&proxy.url(), &settings);
    let limiter = limiter(&client, "api", &[bucket(1, 1, HOUR)]);
    assert_eq!(limiter.peek(&weigh(0)).unwrap().status, Status::Ok);
    proxy.set(Mode::Delay(secs(2)));
    let queue = ClientQueue::new(&client).unwrap();
    for round in 0..3_u32 {
        let mut pending = 0;
        for n in 0..CALLS as u32 {
            let key = &[round.to_be_bytes(), n.to_be_bytes()].concat()[..];
            let request = Request {
                key,
                ..within(120_000)
            };
            let begun = queue.submit(&limiter, &request).unwrap();
            match begun.status {
                Status::Pending => pending += 1,
                status => assert_eq!(status, Status::Overloaded),
            }
        }
        assert_eq!(pending, WAITING, "the rest is refused at once");
        while pending > 0 {
            let answers = queue.poll(CALLS, Some(secs(120))).unwrap();
            assert!(answers.iter().all(|one| one.status == Status::Ok));
            pending -= answers.len();
        }
        me.say("resident", resident());
    }
    let overloaded = client.stats().unwrap().overloaded;
    assert_eq!(overloaded, 3 * (CALLS - WAITING) as u64);
    me.say("connections", proxy.accepted());
}

#[test]
fn b_119_a_redis_that_takes_2_s_for_an_answer_costs_few_connections_and_no_memory() {
    let server = Server::start();
    let fleet = Fleet::start(&server, "flood", 1);
    let number = |text: &String| text.parse::<usize>().unwrap();
    let made = number(&fleet.hear("connections", 1)[0]);
    let sizes: Vec<usize> = fleet.hear("resident", 3).iter().map(number).collect();
    println!("figure: {CALLS} at once, thrice: {made} connections; MiB after each: {sizes:?}");
    // One for each lane.
    assert!(made <= 2, "{made}");
    assert!(sizes[2] <= sizes[0] + 8, "{sizes:?}");
}
