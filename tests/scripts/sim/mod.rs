//! Semaphores in a world that does its worst, in virtual time: several processes over a network that
//! loses, repeats, delays and reorders what they send, on a server whose clock steps and whose keys get
//! lost; processes die, limits change. After every step the [`audit`] looks for what may never be.
//!
//! A seed is a story: `LIMITER_SEED=7 LIMITER_MODE=base cargo test --test scripts sim::replay -- --nocapture`
//! tells it. [`mutants`] takes the rules of the protocol away one at a time; the simulation has to notice.
mod audit;
mod mutants;
mod process;
mod trouble;
mod world;

use std::collections::BTreeMap;

use crate::random::seeds;
use mutants::Mutant;
use world::World;

/// Lengths of time, in microseconds.
pub const LEASE: u64 = 1_000_000;
pub const CLAIM: u64 = 300_000;
pub const LIFE: u64 = 600_000;
pub const POLL: u64 = 150_000;
/// How long an answer is waited for, and how much later a request may still be run.
pub const TIMEOUT: u64 = 200_000;
pub const GRACE: u64 = 50_000;
/// An id is kept out for longer than any request for it may be under way.
pub const DEAD: u64 = 1_000_000;

/// What goes wrong besides the network and the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Base,
    /// The server's clock steps, forward no more than leases allow for.
    Steps,
    /// It steps back by seconds.
    Back,
    /// Single keys get lost.
    Evict,
    /// All keys get lost.
    Flush,
    /// The capacity changes.
    Change,
}

impl Mode {
    pub const ALL: [(&'static str, Mode); 6] = [
        ("base", Mode::Base),
        ("steps", Mode::Steps),
        ("back", Mode::Back),
        ("evict", Mode::Evict),
        ("flush", Mode::Flush),
        ("change", Mode::Change),
    ];

    fn name(self) -> &'static str {
        let found = Mode::ALL.iter().find(|(_, mode)| *mode == self);
        found.expect("all are listed").0
    }

    /// Keys get lost.
    pub fn loses(self) -> bool {
        matches!(self, Mode::Evict | Mode::Flush)
    }

    /// What leases are given on top.
    pub fn allowance(self) -> u64 {
        match self {
            Mode::Steps => 350_000,
            _ => 0,
        }
    }
}

/// Counts of what happened, over all runs.
pub type Counts = BTreeMap<&'static str, u64>;

fn run(seed: u64, mode: Mode, mutant: Option<&'static Mutant>) -> (Result<(), String>, Counts) {
    let mut world = World::new(seed, mode, mutant);
    let result = world.run();
    if std::env::var("LIMITER_SEED").is_ok() {
        println!(
            "{}",
            world.story().iter().cloned().collect::<Vec<_>>().join("\n")
        );
    }
    (result, world.counts)
}

/// Runs a mode; answers what happened.
fn holds(mode: Mode) -> Counts {
    let mut total = Counts::new();
    for seed in 0..seeds(8) {
        let (result, counts) = run(seed, mode, None);
        if let Err(violation) = result {
            panic!(
                "{violation}\nLIMITER_SEED={seed} LIMITER_MODE={} cargo test --test scripts sim::replay -- --nocapture",
                mode.name()
            );
        }
        for (what, count) in counts {
            *total.entry(what).or_default() += count;
        }
    }
    println!("{}: {total:?}", mode.name());
    assert!(total["granted"] > 100 && total["timeouts"] > 100 && total["crashes"] > 10);
    total
}

#[test]
fn messages_and_processes_fail() {
    holds(Mode::Base);
}

#[test]
fn the_clock_steps() {
    assert!(holds(Mode::Steps)["steps"] > 10);
}

#[test]
fn the_clock_steps_back_far() {
    assert!(holds(Mode::Back)["steps"] > 10);
}

#[test]
fn single_keys_get_lost() {
    assert!(holds(Mode::Evict)["losses"] > 10);
}

#[test]
fn all_keys_get_lost() {
    assert!(holds(Mode::Flush)["losses"] > 10);
}

#[test]
fn the_capacity_changes() {
    assert!(holds(Mode::Change)["changes"] > 10);
}

#[test]
fn what_a_rule_prevents_happens_without_it() {
    let mut unnoticed = vec![];
    for mutant in mutants::ALL {
        let noticed = (0..seeds(40)).find_map(|seed| run(seed, mutant.mode, Some(mutant)).0.err());
        match noticed {
            Some(how) => println!("{}: {}", mutant.name, how.lines().next().unwrap_or("")),
            None => unnoticed.push(mutant.name),
        }
    }
    assert_eq!(unnoticed, Vec::<&str>::new());
}

/// One story, told: of `LIMITER_SEED`, in `LIMITER_MODE`, without the rule `LIMITER_MUTANT`.
#[test]
fn replay() {
    let asked = |name| std::env::var(name).ok();
    let Some(seed) = asked("LIMITER_SEED").and_then(|seed| seed.parse().ok()) else {
        return;
    };
    let mode = asked("LIMITER_MODE").unwrap_or("base".into());
    let mode = Mode::ALL.iter().find(|(name, _)| *name == mode);
    let mutant = asked("LIMITER_MUTANT");
    let mutant = mutants::ALL
        .iter()
        .find(|m| Some(m.name) == mutant.as_deref());
    let (result, counts) = run(seed, mode.expect("a mode").1, mutant);
    println!("{counts:?}");
    result.unwrap();
}
