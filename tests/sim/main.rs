//! The Redis backend's own client on the real scripts, in virtual time, in a world that does its worst:
//! several processes over a network that loses, repeats, delays and reorders, on a server whose clock
//! steps and whose keys get lost; processes die and stand still, limits change. After every step the
//! [`audit`], the [`rates`] and the [`ops`](task) are looked at for what may never be.
//!
//! A seed is a story, and `make sim SEED=7 MODE=base` tells it again. `make sim SEEDS=1000` runs many.
#[allow(dead_code)]
#[path = "../scripts/sim/audit.rs"]
mod audit;
mod fiber;
mod network;
mod process;
#[allow(dead_code)]
#[path = "../scripts/random.rs"]
mod random;
mod rates;
mod seen;
#[allow(dead_code)]
#[path = "../scripts/server.rs"]
mod server;
mod task;
mod trouble;
mod verbs;
mod world;

use std::collections::BTreeMap;

use random::seeds;
use trouble::Mode;
use world::World;

/// Counts of what happened.
pub type Counts = BTreeMap<&'static str, u64>;

fn run(seed: u64, mode: Mode, told: bool) -> (Result<(), String>, Counts) {
    let mut world = World::new(seed, mode, told);
    let result = world.run();
    (result, world.counts)
}

/// Runs a mode over its share of seeds; answers what happened.
fn holds(mode: Mode) -> Counts {
    let mut total = Counts::new();
    for seed in 0..seeds(12) {
        let (result, counts) = run(seed, mode, false);
        if let Err(violation) = result {
            panic!(
                "{violation}\nagain: make sim SEED={seed} MODE={}",
                mode.name()
            );
        }
        for (what, count) in counts {
            *total.entry(what).or_default() += count;
        }
    }
    println!("{}: {total:?}", mode.name());
    total
}

#[test]
fn messages_and_processes_fail() {
    let counts = holds(Mode::Base);
    for what in [
        "granted",
        "crashes",
        "pauses",
        "cuts",
        "lost copies",
        "late",
        "cancels",
        "blocked",
    ] {
        assert!(
            counts.get(what).is_some_and(|n| *n > 3),
            "{what}: {counts:?}"
        );
    }
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
fn keys_are_reset() {
    assert!(holds(Mode::Reset)["resets"] > 5);
}

#[test]
fn a_seed_replays_exactly() {
    for mode in [Mode::Base, Mode::Flush] {
        let story = |seed| {
            let mut world = World::new(seed, mode, true);
            let result = world.run();
            (result, world.story())
        };
        let (first, again) = (story(3), story(3));
        let lines = first.1.iter().zip(&again.1);
        for (n, (one, other)) in lines.enumerate() {
            assert_eq!(one, other, "line {n}");
        }
        assert_eq!(first, again);
        assert!(first.1.len() > 1000 && first.1 != story(4).1);
    }
}

/// One story, told: of `LIMITER_SEED`, in `LIMITER_MODE`.
#[test]
fn replay() {
    let asked = |name| std::env::var(name).ok();
    let Some(seed) = asked("LIMITER_SEED").and_then(|seed| seed.parse().ok()) else {
        return;
    };
    let name = asked("LIMITER_MODE").unwrap_or("base".into());
    let mode = Mode::ALL.into_iter().find(|mode| mode.name() == name);
    let (result, counts) = run(seed, mode.expect("a mode"), true);
    println!("{counts:?}");
    result.unwrap();
}
