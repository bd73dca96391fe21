//! Units taken ahead of their use: calls are admitted without Redis, and yet all processes together get no more
//! than the bucket admits, also when some of them are killed; and what ends them is heeded.
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use limiter::client::Client;
use limiter::decision::Status;
use limiter::limit::time::Span;
use limiter::limiter::{LimitSpec, Limiter};
use limiter::op::{Request, Weights};

use crate::fleet::{Fleet, Member};
use crate::kit::*;
use crate::support::server::Server;
use crate::support::{eventually, ms, secs};

const SECOND: u64 = 1_000_000;
const CAPACITY: u64 = 2_000;
const RATE: u64 = 30_000;
const PROCESSES: usize = 4;

fn client(url: &str, longest: &str) -> Arc<Client> {
    open_with(url, &[PATIENT, ("take_ahead_ms", longest)])
}

fn hot() -> LimitSpec {
    bucket(CAPACITY, RATE, SECOND)
}

/// By the clock that Redis goes by.
fn wall() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap().as_micros() as u64
}

/// Starts what it may in bursts, and writes down between which times each start was.
pub fn member(mut me: Member) {
    let client = client(&me.url, "100");
    let limiter = limiter(&client, "hot", &[hot()]);
    let mut started = File::create(me.told(&format!("record{}", me.number))).unwrap();
    me.say("ready", me.number);
    me.await_word("go");
    let (mut burst, mut admitted, begun) = (me.number as u64, 0u64, wall());
    while wall() < begun + 3 * SECOND {
        burst = (burst * 6_364_136_223 + 1_442_695_041) % 1_000_003;
        for _ in 0..burst % 100 {
            let before = wall();
            if acquire(&limiter, &Request::TRY).status == Status::Ok {
                admitted += 1;
                let times = [before.to_ne_bytes(), wall().to_ne_bytes()].concat();
                started.write_all(&times).unwrap();
            }
        }
        std::thread::sleep(Duration::from_micros(burst % 7_000));
    }
    let calls = client.stats().unwrap().backend_calls;
    me.say("ended", format!("{admitted} {calls}"));
    me.await_word("end");
}

/// Where a process writes down what it starts.
fn record(server: &Server, number: usize) -> String {
    server.file(&format!("started{number}"))
}

/// Between which times each start of a process was, whatever became of that.
fn started(server: &Server, number: usize) -> Vec<(u64, u64)> {
    let bytes = std::fs::read(record(server, number)).unwrap();
    let time = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap());
    let times = bytes.chunks_exact(16);
    times
        .map(|both| (time(&both[..8]), time(&both[8..])))
        .collect()
}

/// I1: what was for sure within any window is no more than a full bucket and what the window brings.
fn stays_within(mut all: Vec<(u64, u64)>) {
    const STEP: u64 = 5_000;
    all.sort_by_key(|(_, after)| *after);
    let (first, last) = (all[0].0, all[all.len() - 1].1);
    for from in (first..last).step_by(STEP as usize) {
        let inside = all.iter().filter(|(before, _)| *before >= from);
        for (n, (_, after)) in inside.enumerate() {
            let most = CAPACITY + (after - from) * RATE / SECOND + 1;
            let sum = n as u64 + 1;
            assert!(sum <= most, "{sum} of {most} in {} us", after - from);
        }
    }
}

#[test]
fn all_processes_stay_within_the_bucket_also_when_some_are_killed() {
    let server = Server::start();
    for number in 0..PROCESSES {
        let record = record(&server, number);
        server.ask::<()>(&["SET", &format!("record{number}"), &record]);
    }
    let mut fleet = Fleet::start(&server, "ahead", PROCESSES);
    fleet.hear("ready", PROCESSES);
    fleet.tell("go");
    for (n, process) in fleet.processes.iter_mut().take(2).enumerate() {
        let enough = 500 * (n + 1);
        eventually("it is in full swing", secs(60), || {
            started(&server, n).len() > enough || !process.is_running()
        });
        process.kill();
    }
    let told = fleet.hear("ended", PROCESSES - 2);
    for one in told {
        let numbers: Vec<u64> = one.split(' ').map(|word| word.parse().unwrap()).collect();
        // Else all this shows nothing.
        assert!(numbers[0] > 2 * numbers[1], "{one}");
    }
    let all = (0..PROCESSES).flat_map(|number| started(&server, number));
    stays_within(all.collect());
    fleet.tell("end");
    // What the dead had is there again as soon as a bucket takes to fill.
    let other = open(&server.url());
    let hot = limiter(&other, "hot", &[hot()]);
    eventually("it is full", secs(20), || remaining(&hot) == CAPACITY);
}

/// Asks until calls are admitted without Redis.
fn warm(server: &Server, limiter: &Limiter, request: &Request) {
    eventually("some are here", secs(60), || {
        let asked = server.calls();
        let all_pass = (0..50).all(|_| acquire(limiter, request).status == Status::Ok);
        all_pass && server.calls() - asked < 10
    });
}

#[test]
fn it_is_off_unless_it_is_asked_for() {
    let server = Server::start();
    let client = open(&server.url());
    let limiter = limiter(&client, "off", &[bucket(1 << 40, 1 << 20, SECOND)]);
    let asked = server.calls();
    for _ in 0..200 {
        assert_eq!(acquire(&limiter, &Request::TRY).status, Status::Ok);
    }
    assert!(server.calls() - asked >= 200);
}

#[test]
fn numbers_tell_what_is_left_and_a_permit_can_be_settled() {
    let server = Server::start();
    let client = client(&server.url(), "1000");
    // It brings one unit in a hundred seconds, and enough for those that are kept.
    let large = limiter(&client, "large", &[bucket(1_000_000, 1_000, SECOND)]);
    warm(&server, &large, &Request::TRY);
    let (mut last, asked) = (u64::MAX, server.calls());
    let decisions: Vec<_> = (0..20).map(|_| acquire(&large, &Request::TRY)).collect();
    assert!(server.calls() - asked < 20);
    for decision in &decisions {
        assert_eq!((decision.index, decision.limit), (0, 1_000_000));
        assert!(decision.remaining < 1_000_000 && decision.reset_after_us > 0);
        last = last.min(decision.remaining);
    }
    assert!(last < 1_000_000 - 20);
    let before = remaining(&large);
    let permit = decisions[7].permit;
    assert_eq!(large.settle(permit, 500_000), Ok(Status::Ok));
    let taken = before - remaining(&large);
    assert!((400_000..=500_000).contains(&taken), "{taken}");
    assert_eq!(large.settle(permit, 1), Ok(Status::Stale));
    assert_eq!(large.release(permit), Ok(Status::Ok));
}

#[test]
fn other_weights_and_what_waits_are_asked_of_redis() {
    let server = Server::start();
    let client = client(&server.url(), "1000");
    let limiter = limiter(&client, "weights", &[bucket(1_000_000, 1_000_000, SECOND)]);
    warm(&server, &limiter, &Request::TRY);
    let asked = server.calls();
    assert_eq!(acquire(&limiter, &weigh(7)).status, Status::Ok);
    assert_eq!(acquire(&limiter, &weigh(0)).status, Status::Ok);
    let each = Request {
        weights: Weights::Each(&[2]),
        ..Request::TRY
    };
    assert_eq!(acquire(&limiter, &each).status, Status::Ok);
    assert!(server.calls() - asked >= 3);
}

#[test]
fn a_penalty_or_a_reset_of_this_client_ends_it_at_once() {
    let server = Server::start();
    let client = client(&server.url(), "1000");
    let limiter = limiter(&client, "own", &[bucket(1_000_000, 100_000, SECOND)]);
    warm(&server, &limiter, &Request::TRY);
    limiter.penalize(b"", Span::secs(3_600)).unwrap();
    for _ in 0..100 {
        assert_eq!(acquire(&limiter, &Request::TRY).status, Status::Denied);
    }
    limiter.reset(b"").unwrap();
    assert_eq!(acquire(&limiter, &Request::TRY).status, Status::Ok);
}

/// Until nothing is admitted here any more; how long that took.
fn ends(limiter: &Limiter) -> Duration {
    eventually("none are admitted", secs(60), || {
        acquire(limiter, &Request::TRY).status != Status::Ok
    })
}

#[test]
fn a_penalty_of_another_client_ends_it_when_it_is_heard_of_or_over() {
    let server = Server::start();
    // Long enough that only the note can be it.
    let (here, there) = (client(&server.url(), "1000"), open(&server.url()));
    let limits = [bucket(1_000_000, 200_000, SECOND)];
    let (mine, theirs) = (
        limiter(&here, "others", &limits),
        limiter(&there, "others", &limits),
    );
    warm(&server, &mine, &Request::TRY);
    theirs.penalize(b"", Span::secs(3_600)).unwrap();
    ends(&mine);
    for _ in 0..100 {
        assert_eq!(acquire(&mine, &Request::TRY).status, Status::Denied);
        std::thread::sleep(ms(1));
    }
}

#[test]
fn other_limits_of_another_client_are_heard_of_when_it_is_over() {
    let server = Server::start();
    let (here, there) = (client(&server.url(), "100"), open(&server.url()));
    let large = limiter(&here, "changed", &[bucket(1_000_000, 200_000, SECOND)]);
    warm(&server, &large, &Request::TRY);
    let small = limiter(&there, "changed", &[bucket(1, 1, HOUR)]);
    while acquire(&small, &Request::TRY).status == Status::Ok {}
    ends(&large);
    assert_eq!(acquire(&large, &Request::TRY).status, Status::Denied);
}

#[test]
fn other_limits_of_this_client_end_it_at_once() {
    let server = Server::start();
    let client = client(&server.url(), "1000");
    let large = limiter(&client, "mine", &[bucket(1_000_000, 200_000, SECOND)]);
    warm(&server, &large, &Request::TRY);
    let _small = limiter(&client, "mine", &[bucket(1, 1, HOUR)]);
    let admitted = (0..100).filter(|_| acquire(&large, &Request::TRY).status == Status::Ok);
    assert!(admitted.count() <= 1);
}
