//! Memory and Redis, the same calls, the same answers: random sequences through the interface that both
//! implement, on virtual clocks; waits, bookings, permits and leases included. Every field of every decision
//! and of every completion is compared, and their order.
//!
//! A seed is a story. `make backends SEEDS=1000` runs many, and `make backends SEED=7` tells one again.
//!
//! What differs on purpose, and is left out or put aside here:
//!
//! | what | why |
//! |---|---|
//! | memory answers a submit at once where Redis answers PENDING, and then the same | nobody waits for Redis in a call that never waits |
//! | numbers of permits and operations; fencing numbers, which grow on both | each backend's own |
//! | at one instant: which of two keys comes first, and whether a lease ends before somebody starts | nobody was promised an order there |
//! | by which limit a wait is denied and what remains, not when to come back | Redis tells it after what else happens at that instant, memory before |
//! | the hint of a semaphore after a lease was made shorter | Redis was told of the longer one; the permit's process lets go before |
//! | what is given back while paced calls lie between those who wait | on Redis a time that was told cannot be taken back to be booked again |
//! | a settle to more while others wait for their times | on Redis what those have booked lies in the way, so what has come back since the charge may be taken in place of later time |
//! | a pacer's burst after a wait was moved, or was in a semaphore's queue | it is earned up to when the wait began, on Redis up to when it was booked |
//! | changed limits with permits that are renewed | they take effect with the next call on a key, and on Redis a renewal is one |
//! | when to come back, told to a wait that a penalty, a reset or other limits make too late | Redis tells it in its turn, memory when all are booked anew |
//! | a wait for a semaphore and a rate, cancelled before others in the queue | Redis books the queue before those that were behind the wait can come earlier |
//! | whether a settle is STALE or does nothing after limits were changed and changed back | Redis cannot tell that from a reset |
//! | a lease that other limits have made shorter or longer for who is booked | it is told to Redis with the booking |
mod fixed;
#[path = "../scripts/random.rs"]
mod random;
mod stage;
mod story;
#[path = "../support/mod.rs"]
mod support;

use std::sync::atomic::{AtomicU64, Ordering};

use stage::Stage;
use story::Story;
use support::server::Server;

/// Runs the steps up to the first that is answered differently. Answers how many these are, and the log.
fn tell(url: &str, story: &Story, steps: &[story::Step]) -> Option<(usize, String)> {
    static NAMES: AtomicU64 = AtomicU64::new(0);
    let name = format!("n{}", NAMES.fetch_add(1, Ordering::Relaxed));
    let mut stage = Stage::open(url, story, &name);
    for (n, step) in steps.iter().enumerate() {
        stage.step(step);
        if stage.differs {
            return Some((n + 1, std::mem::take(&mut stage.log)));
        }
    }
    None
}

/// The steps without those that the difference does not need.
fn shortest(url: &str, story: &Story, count: usize) -> String {
    let mut steps = story.steps[..count].to_vec();
    let mut log = String::new();
    let mut n = steps.len();
    while n > 0 {
        n -= 1;
        let mut fewer = steps.clone();
        fewer.remove(n);
        if let Some((count, shown)) = tell(url, story, &fewer) {
            fewer.truncate(count);
            (steps, log) = (fewer, shown);
            n = n.min(steps.len());
        }
    }
    log
}

fn run(url: &str, seed: u64) -> Result<(), String> {
    let story = Story::new(seed);
    let Some((count, log)) = tell(url, &story, &story.steps) else {
        return Ok(());
    };
    let limits = stage::limits_told(&story);
    let fewer = shortest(url, &story, count);
    Err(format!(
        "seed {seed} differs at step {count}:\n{limits}{log}\nthe same with fewer steps:\n{fewer}\n\
         to see it again: make backends SEED={seed}"
    ))
}

#[test]
fn both_backends_give_the_same_answers() {
    let server = Server::start();
    let only = std::env::var("LIMITER_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    let seeds = match only {
        Some(seed) => seed..seed + 1,
        None => 0..random::seeds(100),
    };
    let (mut wrong, count) = (Vec::new(), seeds.clone().count());
    for seed in seeds {
        if let Err(why) = run(&server.url(), seed) {
            println!("{why}\n");
            wrong.push(seed);
            if wrong.len() == 20 {
                break;
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {count} differ: {wrong:?}",
        wrong.len()
    );
}

#[test]
fn what_was_answered_differently_once_is_not_any_more() {
    let server = Server::start();
    let wrong = fixed::stories().into_iter().filter(|(what, story)| {
        let differs = tell(&server.url(), story, &story.steps);
        if let Some((_, log)) = &differs {
            println!("{what}:\n{}{log}", stage::limits_told(story));
        }
        differs.is_some()
    });
    assert_eq!(wrong.count(), 0);
}
