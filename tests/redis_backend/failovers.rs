//! Clusters and sentinels under load: slots that move, masters that die.
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use limiter::client::Client;
use limiter::config::Config;
use limiter::decision::Status;
use limiter::limiter::Limiter;
use limiter::op::Request;
use limiter::redis::link::slot_of;

use crate::doors::{CLUSTER_TOO, RIGHTS, user};
use crate::intervals::{self, Held, used};
use crate::kit::*;
use crate::load::*;
use crate::support::cluster::{NODE_TIMEOUT_MS, TestCluster};
use crate::support::sentinel::{DOWN_AFTER_MS, Watched};
use crate::support::{eventually, ms, secs};

fn everything() -> Vec<Shape> {
    [rates(), semaphores(2)].concat()
}

#[test]
fn b_109_slots_that_move_under_load_cost_no_caller_anything() {
    let cluster = TestCluster::start();
    for node in &cluster.nodes {
        user(node, &format!("{RIGHTS} {CLUSTER_TOO}"));
    }
    let url = cluster.url().replace("//", "//app:p%40ss@");
    let spread = limiter(&open(&url), "spread", &[tally()]);
    for n in 0..1000_u32 {
        let key = &n.to_be_bytes()[..];
        assert_eq!(
            acquire(
                &spread,
                &Request {
                    key,
                    ..Request::TRY
                }
            )
            .status,
            Status::Ok
        );
    }
    let sizes = [0, 1, 2].map(|n| cluster.nodes[n].ask::<u64>(&["DBSIZE"]));
    println!("figure: 1000 keys over three masters: {sizes:?}");
    assert_eq!(sizes.iter().sum::<u64>(), 1000);
    assert!(sizes.iter().all(|size| *size > 250), "{sizes:?}");
    let slots: Vec<String> = everything()
        .iter()
        .map(|shape| shape.parts().remove(0))
        .collect();
    let (mut moves, mut longest) = (0, Duration::ZERO);
    let loaded = load(
        everything(),
        &[(&url, &[PATIENT]), (&url, &[PATIENT])],
        || {
            std::thread::sleep(ms(500));
            let began = Instant::now();
            while began.elapsed() < secs(6) || moves < 22 {
                for key in &slots {
                    let (from, began) = (cluster.owner(key), Instant::now());
                    let (from, to) = (&cluster.nodes[from], &cluster.nodes[(from + 1) % 3]);
                    cluster.migrate(slot_of(key.as_bytes()), from, to, || {
                        std::thread::sleep(ms(30))
                    });
                    (moves, longest) = (moves + 1, longest.max(began.elapsed()));
                }
                cluster.nodes[moves % 3].ask::<()>(&["SCRIPT", "FLUSH"]);
            }
        },
    );
    let all = adds_up(&url, &loaded);
    report(
        &format!("{moves} slots moved, the slowest in {longest:?}"),
        &all,
    );
    assert_eq!((all.backend, all.unknown, all.denied), (0, 0, 0), "{all:?}");
}

/// Semaphores whose permits a failover may forget are there again soon.
fn short() -> Vec<Shape> {
    let mut shapes = semaphores(2);
    let limits = shapes.iter_mut().flat_map(|shape| &mut shape.limits);
    for limit in limits.filter(|limit| limit.kind == limiter::limiter::spec::SEMAPHORE) {
        limit.lease_ms = 3000;
    }
    shapes
}

/// What a failover may have taken back: the new master has not heard of it. Never more than was told.
fn charged_at_most(url: &str, loaded: &Loaded) -> (u64, u64) {
    let (mut granted, mut forgotten) = (0, 0);
    for Outcome { shape, told } in &loaded.outcomes {
        if shape.name != "semaphore" {
            let charged = shape.charged(&shape.on(url));
            assert!(
                charged <= told.granted + told.unknown,
                "{}: {charged}: {told:?}",
                shape.name
            );
            forgotten += told.granted.saturating_sub(charged);
        }
        granted += told.granted;
        assert!(told.granted > 0, "{}: {told:?}", shape.name);
    }
    (granted, forgotten)
}

#[test]
fn b_110_masters_of_a_cluster_that_die_under_load_are_replaced() {
    let mut cluster = TestCluster::start();
    // Two of those that are named here are gone at the end.
    let url = format!("{},127.0.0.1:{}", cluster.url(), cluster.nodes[2].port);
    let shapes = [rates(), short()].concat();
    let mut took = Vec::new();
    let loaded = load(shapes, &[(&url, &[]), (&url, &[])], || {
        let client = hasty(&url);
        let names: Vec<String> = (0..60).map(|n| format!("probe{n}")).collect();
        let probes: Vec<Limiter> = names
            .iter()
            .map(|name| limiter(&client, name, &[tally()]))
            .collect();
        let answers = |probe: &Limiter| acquire(probe, &Request::TRY).status == Status::Ok;
        eventually("all nodes serve", secs(60), || probes.iter().all(answers));
        std::thread::sleep(ms(500));
        for victim in [0, 1] {
            match victim {
                0 => cluster.nodes[victim].kill(),
                _ => cluster.nodes[victim].freeze(),
            }
            let began = Instant::now();
            eventually("all slots are served again", secs(60), || {
                probes.iter().all(answers)
            });
            took.push(began.elapsed());
            std::thread::sleep(ms(1000));
        }
    });
    println!(
        "figure: masters killed and frozen (node-timeout {NODE_TIMEOUT_MS} ms): decided again after {took:?}"
    );
    let (granted, forgotten) = charged_at_most(&url, &loaded);
    println!("figure: of {granted} admissions the new masters had not heard of {forgotten}");
    whole_again(&url, &loaded);
}

/// All of every semaphore can be had again.
fn whole_again(url: &str, loaded: &Loaded) {
    for Outcome { shape, .. } in loaded.outcomes.iter().filter(|one| one.shape.holds()) {
        let limiter = shape.on(url);
        eventually("all is given back, or its lease is over", secs(60), || {
            limiter.peek(&weigh(2)).unwrap().status == Status::Ok
        });
    }
}

/// B-121: a permit that the new master has not heard of.
#[test]
fn b_121_a_permit_that_a_failover_forgets_is_told_and_its_fence_is_the_lower() {
    let mut cluster = TestCluster::start();
    let lost = Arc::new(Mutex::new(None));
    let hook = lost.clone();
    let config = Config {
        lost: Some(Arc::new(move |permit| {
            *hook.lock().unwrap() = Some((permit, Instant::now()))
        })),
        ..Config::default()
    };
    let client = Client::open(&cluster.url(), &config).unwrap();
    // It renews after a third of that: the other one comes first also where a failover is slow.
    const LEASE_MS: u32 = 30_000;
    let limits = [leased(1, LEASE_MS)];
    let here = limiter(&client, "s", &limits);
    let there = limiter(&hasty(&cluster.url()), "s", &limits);
    for limiter in [&here, &there] {
        eventually("it answers", secs(60), || {
            limiter.peek(&weigh(1)).unwrap().status == Status::Ok
        });
    }
    let owner = cluster.owner("{limiter:S:s:}:s");
    cluster.settled();
    // From now on the replica hears nothing, and what it has not heard dies with the master.
    cluster.nodes[owner + 3].freeze();
    cluster.nodes[owner].ask::<u64>(&["CLIENT", "KILL", "TYPE", "replica"]);
    let first = acquire(&here, &Request::TRY);
    assert_eq!(first.status, Status::Ok);
    cluster.nodes[owner].kill();
    cluster.nodes[owner + 3].thaw();
    let mut second = first;
    let took = eventually("another is admitted", secs(60), || {
        second = acquire(&there, &Request::TRY);
        second.status == Status::Ok
    });
    let admitted = Instant::now();
    assert!(
        second.fence > first.fence,
        "whoever checks fences refuses the first one from now on"
    );
    eventually("the first is told", secs(60), || {
        lost.lock().unwrap().is_some()
    });
    let (permit, at) = lost.lock().unwrap().unwrap();
    assert_eq!(permit, first.permit);
    let both = at.saturating_duration_since(admitted);
    println!("figure: a permit lost in a failover: another after {took:?}, told {both:?} later");
    assert!(
        both < ms(u64::from(LEASE_MS)),
        "no later than its lease: {both:?}"
    );
    assert_eq!(here.release(first.permit), Ok(Status::Stale));
    assert_eq!(there.release(second.permit), Ok(Status::Ok));
}

const CAPACITY: u64 = 3;
const LEASE_MS: u32 = 1500;

/// Holders of a semaphore that note when they believed to hold.
fn holders(url: &str, over: &AtomicBool, trouble: impl FnOnce()) -> Vec<Held> {
    let held: Mutex<Vec<Held>> = Mutex::default();
    std::thread::scope(|scope| {
        for n in 0..6_u64 {
            let held = &held;
            scope.spawn(move || {
                let lost: Arc<Mutex<Vec<(u64, u64)>>> = Arc::default();
                let hook = lost.clone();
                let config = Config {
                    lost: Some(Arc::new(move |permit| {
                        hook.lock().unwrap().push((permit, intervals::now()))
                    })),
                    ..Config::default()
                };
                let client = Client::open(url, &config).unwrap();
                let limiter = limiter(&client, "s", &[leased(CAPACITY, LEASE_MS)]);
                while !over.load(Ordering::SeqCst) {
                    let granted = acquire(&limiter, &within(300));
                    if granted.permit == 0 {
                        std::thread::sleep(ms(5));
                        continue;
                    }
                    let from = intervals::now();
                    std::thread::sleep(ms(20 + 30 * n));
                    let to = intervals::now();
                    limiter.release(granted.permit).unwrap();
                    let lost = lost.lock().unwrap();
                    let told = lost.iter().find(|(permit, _)| *permit == granted.permit);
                    held.lock()
                        .unwrap()
                        .push((from, told.map_or(to, |(_, at)| to.min(*at))));
                }
            });
        }
        let _stop = Stop(over);
        trouble();
    });
    held.into_inner().unwrap()
}

#[test]
fn b_110_a_master_behind_sentinels_that_dies_under_load_is_replaced() {
    let mut watched = Watched::start();
    let url = watched.url();
    let mut took = Duration::ZERO;
    let over = AtomicBool::new(false);
    let held: Mutex<Vec<Held>> = Mutex::default();
    let shapes = [rates(), short()].concat();
    let loaded = load(shapes, &[(&url, &[]), (&url, &[])], || {
        let seen = holders(&url, &over, || {
            let probe = limiter(&hasty(&url), "probe", &[tally()]);
            let answers = || acquire(&probe, &Request::TRY).status == Status::Ok;
            eventually("it works before", secs(60), answers);
            std::thread::sleep(ms(1500));
            watched.servers[0].kill();
            took = eventually("Redis decides again", secs(60), answers);
            std::thread::sleep(ms(1500));
        });
        *held.lock().unwrap() = seen;
    });
    println!(
        "figure: a master killed (down-after {DOWN_AFTER_MS} ms): sentinel's successor decides after {took:?}"
    );
    let (granted, forgotten) = charged_at_most(&url, &loaded);
    println!("figure: of {granted} admissions the new master had not heard of {forgotten}");
    let held = held.into_inner().unwrap();
    let used = used(&held, CAPACITY);
    println!(
        "figure: {} permits of {CAPACITY} through the failover: {used:?}",
        held.len()
    );
    assert!(held.len() > 20, "{}", held.len());
    // No longer than a permit is believed in, whatever is heard of it.
    assert!(used.over < ms(u64::from(LEASE_MS)) + secs(1), "{used:?}");
    whole_again(&url, &loaded);
}
