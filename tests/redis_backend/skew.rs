//! Processes whose wall clocks are off, and jump: nothing depends on them.
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use limiter::decision::Status;
use limiter::limiter::{LimitSpec, Limiter, spec};
use limiter::op::Request;

use crate::fleet::{Member, WallClock, heard};
use crate::intervals::{Held, now, used};
use crate::kit::*;
use crate::support::process::Process;
use crate::support::server::Server;
use crate::support::{ms, secs};

const MINUTE: i64 = 60_000_000;
const PERIOD: u64 = 200_000;

fn wall() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap().as_micros() as i64
}

/// Processes of which each has its wall clock, and does have it.
fn start(server: &Server, job: &str, offsets: &[i64]) -> Vec<(WallClock, Process)> {
    let start = |(n, us): (usize, &i64)| {
        let clock = WallClock::off_by(*us);
        let process = clock.start(server, job, n);
        (clock, process)
    };
    let started = offsets.iter().enumerate().map(start).collect();
    for line in heard(server, "ready", offsets.len()) {
        let (number, told) = line.split_once(' ').unwrap();
        let off = told.parse::<i64>().unwrap() - wall() - offsets[number.parse::<usize>().unwrap()];
        assert!(
            off.abs() < MINUTE / 2,
            "{off}: its clock is as it should be"
        );
    }
    server.ask::<()>(&["SET", "go", "1"]);
    started
}

fn begin(me: &mut Member) {
    me.say("ready", format!("{} {}", me.number, wall()));
    me.await_word("go");
}

/// Of every kind one in a period.
fn kinds() -> Vec<LimitSpec> {
    let with = |flags, limit| LimitSpec { flags, ..limit };
    let window = |kind| limit(kind, 1, 0, PERIOD);
    vec![
        bucket(1, 1, PERIOD),
        with(spec::INTERVAL, bucket(1, 1, PERIOD)),
        limit(spec::PACER, 0, 1, PERIOD),
        window(spec::SLIDING_LOG),
        window(spec::SLIDING_COUNTER),
        window(spec::FIXED_WINDOW),
        with(spec::ALIGN_FIRST_USE, window(spec::FIXED_WINDOW)),
    ]
}

/// Tries each kind for a while; says how often it passed, and the longest that it was to wait.
pub fn rates(mut me: Member) {
    let client = open(&me.url);
    let limiter = |(n, kind)| limiter(&client, &format!("kind{n}"), &[kind]);
    let limiters: Vec<Limiter> = kinds().into_iter().enumerate().map(limiter).collect();
    begin(&mut me);
    let mut told = vec![(0_u64, 0_u64); limiters.len()];
    let began = Instant::now();
    while began.elapsed() < secs(3) {
        for (limiter, (passed, longest)) in limiters.iter().zip(&mut told) {
            let one = acquire(limiter, &Request::TRY);
            assert!(one.remaining <= one.limit, "{one:?}");
            *passed += u64::from(one.status == Status::Ok);
            *longest = one.retry_after_us.max(one.reset_after_us).max(*longest);
        }
        std::thread::sleep(ms(5));
    }
    for (n, (passed, longest)) in told.into_iter().enumerate() {
        me.say(&format!("told{n}"), format!("{passed} {longest}"));
    }
}

fn time_of(server: &Server) -> u64 {
    let (seconds, micros): (u64, u64) = server.ask(&["TIME"]);
    seconds * 1_000_000 + micros
}

#[test]
fn b_061_a_process_whose_clock_is_a_minute_ahead_or_behind_makes_nobody_wait() {
    let server = Server::start();
    let began = time_of(&server);
    let offsets = [MINUTE, 0, -MINUTE];
    let _processes = start(&server, "rates", &offsets);
    for (n, kind) in kinds().iter().enumerate() {
        let lines = heard(&server, &format!("told{n}"), offsets.len());
        let number = |text: &str| text.parse::<u64>().unwrap();
        let told: Vec<(u64, u64)> = lines
            .iter()
            .map(|line| line.split_once(' ').unwrap())
            .map(|(passed, longest)| (number(passed), number(longest)))
            .collect();
        let passed: u64 = told.iter().map(|(passed, _)| passed).sum();
        let periods = (time_of(&server) - began) / PERIOD;
        assert!(
            (3..=periods + 2).contains(&passed),
            "{kind:?}: {told:?} in {periods}"
        );
        for (_, longest) in &told {
            assert!(*longest <= 2 * PERIOD, "{kind:?}: {told:?}");
        }
    }
}

const THREADS: usize = 8;
const TAKES: u64 = 25_000;
/// One of so many takes is a permit.
const PERMITS: u64 = 50;
const IN_WINDOW: usize = 3;
const WINDOW_US: u64 = 100_000;

/// Takes one permit and three in a window, with others; says when it did.
pub fn takes(mut me: Member) {
    let client = open(&me.url);
    let permit = limiter(&client, "permit", &[semaphore(1)]);
    let log = limiter(
        &client,
        "log",
        &[limit(spec::SLIDING_LOG, IN_WINDOW as u64, 0, WINDOW_US)],
    );
    begin(&mut me);
    let (held, passed) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let count = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let n = count.fetch_add(1, Ordering::Relaxed);
                    if n >= TAKES {
                        return;
                    }
                    if n.is_multiple_of(PERMITS) {
                        let one = acquire(&permit, &within(60_000));
                        assert_eq!(one.status, Status::Ok);
                        let from = now();
                        std::thread::sleep(Duration::from_micros(50));
                        held.lock().unwrap().push((from, now()));
                        assert_eq!(permit.release(one.permit), Ok(Status::Ok));
                    } else {
                        let from = now();
                        if acquire(&log, &Request::TRY).status == Status::Ok {
                            passed.lock().unwrap().push((from, now()));
                        }
                    }
                }
            });
        }
    });
    let text = |all: Mutex<Vec<Held>>| {
        let all = all.into_inner().unwrap();
        let texts: Vec<String> = all.iter().map(|(a, b)| format!("{a} {b}")).collect();
        texts.join(",")
    };
    me.say("held", text(held));
    me.say("passed", text(passed));
    assert_eq!(client.stats().unwrap().lost, 0);
}

fn intervals(server: &Server, list: &str, count: usize) -> Vec<Held> {
    let texts = heard(server, list, count);
    let each = texts.iter().flat_map(|text| text.split(','));
    let pairs = each.filter_map(|text| text.split_once(' '));
    pairs
        .map(|(a, b)| (a.parse().unwrap(), b.parse().unwrap()))
        .collect()
}

#[test]
fn b_062_neither_a_permit_nor_a_window_is_shared_by_processes_whose_clocks_differ() {
    let server = Server::start();
    let offsets = [-50_000, 50_000, MINUTE, -MINUTE];
    let _processes = start(&server, "takes", &offsets);
    let held = intervals(&server, "held", offsets.len());
    let passed = intervals(&server, "passed", offsets.len());
    println!(
        "figure: {} takes by clocks that differ: a permit {} times, a window's units {}",
        TAKES * offsets.len() as u64,
        held.len(),
        passed.len()
    );
    assert_eq!(
        held.len(),
        offsets.len() * (TAKES as usize).div_ceil(PERMITS as usize)
    );
    assert_eq!(used(&held, 1).most, 1);
    assert!(passed.len() > IN_WINDOW, "{}", passed.len());
    // Each was admitted at some time between the two: so many surely within one window are too many.
    for (from, _) in &passed {
        let surely = |one: &&Held| one.0 >= *from && one.1 < from + WINDOW_US;
        let count = passed.iter().filter(surely).count();
        assert!(count <= IN_WINDOW, "{count} after {from}");
    }
}

const SLOW: u64 = 2_000_000;
const PATIENCE_MS: u64 = 3000;

/// Waits for a time, for a permit it does not get, and holds one, while its wall clock jumps. Where the
/// busy one is: `url`.
pub fn waits(mut me: Member, url: &str) {
    let client = open(url);
    let rate = limiter(&client, "rate", &[bucket(1, 1, SLOW)]);
    let [busy, own] = ["busy", "own"].map(|name| limiter(&client, name, &[leased(1, 2000)]));
    begin(&mut me);
    // In Redis somebody else has it already.
    acquire(&busy, &Request::TRY);
    let held = acquire(&own, &Request::TRY);
    assert_eq!(held.status, Status::Ok);
    let mut says = |what: &str, took: Duration| me.say(what, took.as_micros());
    let began = Instant::now();
    assert_eq!(acquire(&rate, &within(60_000)).status, Status::Ok);
    assert_eq!(acquire(&rate, &within(60_000)).status, Status::Ok);
    says("booked", began.elapsed());
    let began = Instant::now();
    assert_eq!(acquire(&busy, &within(PATIENCE_MS)).status, Status::Denied);
    says("denied", began.elapsed());
    assert_eq!(own.release(held.permit), Ok(Status::Ok), "it was renewed");
    assert_eq!(client.stats().unwrap().lost, 0);
    says("over", Duration::ZERO);
}

fn jumps(server: &Server, job: &str) {
    let processes = start(server, job, &[0]);
    let began = Instant::now();
    for n in 0.. {
        let offset = [60, -60, 0][n % 3] * MINUTE;
        processes[0].0.set(offset);
        std::thread::sleep(ms(150));
        if server.ask::<usize>(&["LLEN", "over"]) > 0 {
            break;
        }
        assert!(began.elapsed() < secs(120), "it is not over");
    }
    let took = |what| heard(server, what, 1)[0].parse::<u64>().unwrap();
    let (booked, denied) = (took("booked"), took("denied"));
    println!("figure: waits while the wall clock jumps: {booked} us of {SLOW}, {denied} us");
    // Not early; an hour is far from what a busy machine takes.
    assert!((SLOW - 100_000..60_000_000).contains(&booked), "{booked}");
    assert!(
        (PATIENCE_MS * 1000..60_000_000).contains(&denied),
        "{denied}"
    );
}

#[test]
fn b_068_a_wall_clock_that_jumps_by_an_hour_changes_no_wait_and_no_lease() {
    let server = Server::start();
    let busy = limiter(&open(&server.url()), "busy", &[leased(1, 2000)]);
    assert_eq!(acquire(&busy, &Request::TRY).status, Status::Ok);
    jumps(&server, "waits");
}

#[test]
fn b_068_nor_does_it_in_memory() {
    // The server is where the process tells how it went.
    jumps(&Server::start(), "waits_in_memory");
}
