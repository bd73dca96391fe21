//! What is called when: random steps, and how many of them.
use limiter::limit::time::{Monotone, Span};

use crate::random::Random;
use crate::run::Run;
use crate::spec::*;

impl Run {
    fn pass_time(&mut self) {
        let one = self.specs[self.random.below(self.specs.len() as u64) as usize];
        let step = match self.random.below(60) {
            0 => {
                // The clock is set back.
                self.raw -= self.random.pick(&[1, 1_000, 30 * SECOND]);
                return;
            }
            1 => HOUR,
            2..=5 if self.holds => self.random.pick(&[LEASE, LEASE - 1, LEASE / 3, 100_000]),
            _ => one.span(&mut self.random),
        };
        self.raw = (self.raw + step).min(1 << 51);
        // Both may have forgotten a bucket that starts empty, or not yet: so they are told to.
        let here = self.by_memory.forgotten_at();
        let there = self.by_script.forgotten_at();
        let over = here.is_some_and(|at| at <= self.memory_now());
        if over || there.is_some_and(|at| at <= self.script_now()) {
            self.whole(None);
        }
    }

    fn step(&mut self) {
        self.pass_time();
        self.server.data.now.set(self.raw);
        let back = self.raw < self.latest || self.clock.skew > Span::ZERO;
        self.latest = self.raw;
        if self.server.data.is_empty() && back {
            // With the key goes what its clock was behind by, and so its fencing numbers.
            self.fences[1] = 0;
            self.by_script.forget();
            self.made.clear();
            self.clock = Monotone::default();
        }
        let mut asked: Vec<u64> = vec![];
        let each = self.random.below(3) == 0;
        let specs = self.specs.clone();
        for spec in &specs[..if each { specs.len() } else { 1 }] {
            asked.push(spec.weight(&mut self.random));
        }
        let one = specs[self.random.below(specs.len() as u64) as usize];
        let wait = match self.random.below(6) {
            _ if self.holds => 0,
            0 => u64::MAX,
            1 => one.span(&mut self.random),
            2 => one.period,
            _ => 0,
        };
        let lease = self.random.pick(&[LEASE, LEASE / 2, 100_000]);
        match self.random.below(24) {
            0..=2 => self.peek(&asked),
            3 | 4 => {
                let actual = one.weight(&mut self.random);
                self.settle(actual.min(1 << 40));
            }
            5 | 6 if self.holds => {
                let renew = (self.random.below(2) == 0).then_some(lease);
                self.leave(renew);
            }
            5 | 6 => self.unbook(),
            7 if self.random.below(3) == 0 => {
                let span = self.random.pick(&[1, 1_000, 5 * SECOND]);
                let penalty = self.random.below(3) > 0;
                self.whole(penalty.then_some(span));
            }
            8 => {
                let often = 2 + self.random.below(4) as usize;
                self.book(&asked, wait, lease, often);
            }
            _ => self.book(&asked, wait, lease, 1),
        }
    }
}

/// Tells which sequence failed.
struct Telling(u64);

impl Drop for Telling {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("again: make differential SEED={} DECISIONS=1", self.0);
        }
    }
}

/// So many decisions; `LIMITER_DECISIONS` asks for another number. The seed begins with `LIMITER_SEED`.
#[test]
fn memory_the_scripts_and_exact_fractions_decide_alike() {
    let number = |name: &str, usual| {
        let asked = std::env::var(name).ok();
        asked.and_then(|n| n.parse().ok()).unwrap_or(usual)
    };
    let (wanted, first) = (
        number("LIMITER_DECISIONS", 20_000),
        number("LIMITER_SEED", 1),
    );
    let (mut decisions, mut admitted, mut seed) = (0, 0, first);
    while decisions < wanted {
        let mut random = Random::new(seed);
        let kinds: Vec<u64> = match seed % 3 {
            // Each kind by itself, and several together.
            0 | 1 => vec![seed / 3 % KINDS],
            _ => (0..2 + random.below(3))
                .map(|_| random.pick(&[0, 1, 2, 3, 4, 5, 6, SEMAPHORE]))
                .collect(),
        };
        let _telling = Telling(seed);
        let mut run = Run::new(random, &kinds);
        for _ in 0..80 {
            run.step();
        }
        decisions += run.decisions;
        admitted += run.made.len();
        seed += 1;
    }
    println!(
        "figure: {decisions} decisions, {} sequences, 0 wrong",
        seed - first
    );
    assert!(
        wanted < 1_000 || admitted as u64 > decisions / 20,
        "{admitted}"
    );
}
