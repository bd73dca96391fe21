//! Random sequences of acquires, waits, releases, renewals and cancels of semaphores, alone and with
//! rates, asked of the script and of the embedded backend at the same times.
mod hints;
mod moving;
mod run;

use limiter::limit::decide::Limits;
use limiter::limit::fixed_window::{Align, FixedWindow};
use limiter::limit::pacer::Pacer;
use limiter::limit::rule::{Limit, Rule};
use limiter::limit::semaphore::Semaphore;
use limiter::limit::sliding_log::SlidingLog;
use limiter::limit::time::Span;
use limiter::limit::token_bucket::TokenBucket;
use limiter::limit::weights::Weights;

use crate::random::{Random, seeds};
use run::{LEASE, Run};

fn limits(random: &mut Random, kinds: &[u64], version: u32) -> Limits {
    let rule = |random: &mut Random, kind| match kind {
        0 => Rule::Semaphore(Semaphore::new(1 + random.below(4), LEASE, false).unwrap()),
        1 => Rule::TokenBucket(
            TokenBucket::new(
                1 + random.below(6),
                1 + random.below(3),
                Span::secs(2),
                false,
            )
            .unwrap(),
        ),
        2 => Rule::Pacer(
            Pacer::new(random.below(3), 1 + random.below(4), Span::secs(1), 500).unwrap(),
        ),
        3 => Rule::SlidingLog(SlidingLog::new(1 + random.below(6), Span::secs(3)).unwrap()),
        _ => Rule::FixedWindow(
            FixedWindow::new(1 + random.below(6), Span::secs(3), Align::Clock).unwrap(),
        ),
    };
    let limits = kinds
        .iter()
        .map(|&kind| Limit {
            rule: rule(random, kind),
            per_call: random.below(5) == 0,
        })
        .collect();
    Limits::new(limits, version).unwrap()
}

fn step(run: &mut Run, random: &mut Random, kinds: &[u64]) {
    let which = random.below(16) as usize;
    let weights: Vec<u64> = match random.below(3) {
        0 => kinds.iter().map(|_| random.below(4)).collect(),
        _ => vec![random.pick(&[0, 1, 1, 1, 2, 3, 5]); kinds.len()],
    };
    match random.below(25) {
        0..=5 => {
            // No two deadlines at one time: their order would be the timer's alone.
            let wait = random.pick(&[0, 0, 1_500_000, 5_000_000, 60_000_000]);
            let wait = if wait > 0 {
                wait + run.next_id as u64
            } else {
                0
            };
            run.acquire(weights, (random.below(6) > 0).then_some(Span(wait)));
        }
        6 => run.peek(weights),
        7..=9 => run.release(which),
        10 => run.cancel(which),
        11 => run.renew(
            which,
            Span(random.pick(&[1_000_000, 10_000_000, 40_000_000])),
        ),
        12 => run.settle(which, random.below(6)),
        13 if random.below(4) == 0 => run.penalize(Span(random.pick(&[1, 700_000]))),
        14 if random.below(6) == 0 => run.reset(),
        15 if random.below(3) == 0 => {
            let version = run.limits.version() + random.below(2) as u32;
            run.change(limits(random, kinds, version));
        }
        16 => run.take(random.below(8) as usize),
        _ => run.pass(Span(
            random.pick(&[0, 1, 1_000, 250_000, 1_000_000, 3_000_000, 20_000_000]),
        )),
    }
    run.compare();
}

fn sequences(name: u64, kinds_of: impl Fn(&mut Random) -> Vec<u64>) {
    for seed in 0..seeds(20) {
        let mut random = Random::new(seed * 64 + name);
        let kinds = kinds_of(&mut random);
        let mut run = Run::new(limits(&mut random, &kinds, 1));
        run.seen.push(format!("seed {seed}"));
        for _ in 0..120 {
            step(&mut run, &mut random, &kinds);
        }
        // All ends by itself; then nothing is left.
        while !run.waits.is_empty() {
            run.cancel(0);
            run.compare();
        }
        run.pass(Span::secs(1_000));
        run.ask(|batch| batch.peek(&Weights::One(0)));
        run.server.data.now.set(run.now().0 + 3_600_000_000);
        assert!(run.server.data.is_empty(), "{}", run.story());
    }
}

#[test]
fn a_semaphore() {
    sequences(20, |_| vec![0]);
}

#[test]
fn a_semaphore_and_rates() {
    sequences(21, |random| {
        let mut kinds: Vec<u64> = (0..1 + random.below(3)).map(|_| random.below(5)).collect();
        let at = random.below(kinds.len() as u64 + 1) as usize;
        kinds.insert(at, 0);
        kinds
    });
}
