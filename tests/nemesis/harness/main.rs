//! Processes in C, Go and Ruby share limits on real servers while everything fails in turn. What they believed
//! to hold, and what they started, is judged by what they told.
//!   nemesis FOLDER-OF-CLIENTS SECONDS SEED TOPOLOGY...
#[path = "../../redis_backend/intervals.rs"]
mod intervals;
mod member;
#[path = "../../support/mod.rs"]
mod support;
mod trouble;

use std::path::PathBuf;
use std::time::Instant;

use limiter::client::Client;
use limiter::config::Config;
use limiter::limiter::Limiter;
use limiter::op::{Request, Weights};

use intervals::used;
use member::Crowd;
use support::limits::leased;
use support::{eventually, ms, secs};
use trouble::{Dice, Place};

/// As the clients have them.
const CAPACITY: u64 = 3;
const LEASE: std::time::Duration = secs(2);
const BURST: u64 = 20;
const PER_SECOND: u64 = 200;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [clients, seconds, seed, topologies @ ..] = &args[..] else {
        panic!("nemesis FOLDER SECONDS SEED TOPOLOGY...");
    };
    let (seconds, seed) = (
        seconds.parse().expect("seconds"),
        seed.parse().expect("a seed"),
    );
    for topology in topologies {
        let again =
            format!("again: make nemesis SECONDS={seconds} SEED={seed} TOPOLOGY={topology}");
        let clients = PathBuf::from(clients);
        let one = std::thread::spawn({
            let topology = topology.clone();
            move || story(&clients, seconds, seed, &topology)
        });
        if one.join().is_err() {
            println!("{again}");
            println!("nemesis: 0 passed, 1 failed");
            std::process::exit(1);
        }
    }
    println!("nemesis: {} passed, 0 failed", topologies.len());
}

fn story(clients: &std::path::Path, seconds: u64, seed: u64, topology: &str) {
    let mut dice = Dice(seed);
    let mut place = Place::start(topology);
    let opened = intervals::now();
    let mut crowd = Crowd::start(clients, &place);
    crowd.all_work("at the start");
    let began = Instant::now();
    while began.elapsed() < secs(seconds) {
        trouble::some(&mut place, &mut crowd, &mut dice);
    }
    place.calm();
    crowd.all_work("after all that");
    crowd.all_end();

    let told = crowd.told();
    assert!(told.wrong.is_empty(), "{:#?}", told.wrong);
    // What was not replicated yet is lost with its master: for a lease others may get it too. Nothing else
    // ever lets too many in.
    let (failovers, used) = (place.failovers, used(&told.held, CAPACITY));
    let excess = LEASE * failovers;
    assert!(
        used.over <= excess,
        "more than {CAPACITY} for {:?}, {failovers} failovers",
        used.over
    );
    assert!(
        failovers > 0 || used.most <= CAPACITY,
        "{} at once",
        used.most
    );
    // Told a little later than it was: so from before anybody could start.
    let span = told.starts.iter().max().unwrap_or(&opened) - opened;
    let allowed = (BURST + 1) * (1 + u64::from(failovers)) + span * PER_SECOND / 1_000_000;
    let starts = told.starts.len() as u64;
    assert!(starts <= allowed, "{starts} starts where {allowed} may be");

    let client = Client::open(&place.url(), &Config::default()).unwrap();
    let limiter = Limiter::new(
        &client,
        "held",
        &[leased(CAPACITY, LEASE.as_millis() as u32)],
    )
    .unwrap();
    let nothing = Request {
        weights: Weights::Same(0),
        ..Request::TRY
    };
    let back = eventually("all capacity is there again", secs(20), || {
        limiter.peek(&nothing).unwrap().remaining == CAPACITY
    });
    println!(
        "figure: {topology}: {} faults in {:.0?} ({}); {} permits held in C, Go and Ruby, {} lost, most at once \
         {} of {CAPACITY}; {starts} starts of at most {allowed}; all was back {:.0?} after the end",
        place.faults(),
        began.elapsed(),
        place.told(),
        told.held.len(),
        told.lost,
        used.most,
        back.max(ms(1)),
    );
}
