//! A key that is as new may have been forgotten, or not: random calls on two backends, of which one forgets all
//! that it can after each, are answered alike. Limits that change, and permits of others, are among them.
use std::sync::Arc;

use super::*;
use crate::limit::fixed_window::{Align, FixedWindow};
use crate::limit::interval_bucket::IntervalBucket;
use crate::limit::pacer::Pacer;
use crate::limit::rule::{Limit, Rule};
use crate::limit::semaphore::Semaphore;
use crate::limit::sliding_counter::SlidingCounter;
use crate::limit::sliding_log::SlidingLog;
use crate::limit::token_bucket::TokenBucket;
use crate::op::{Request, Weights};

const CALLS: usize = 60;

struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % n
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

#[derive(Clone, Copy, Debug)]
enum Of {
    Full,
    Empty,
    FullOrEmpty,
    Steps,
    Pacer,
    Log,
    Counter,
    Window,
    Semaphore,
}

fn rule(of: Of, dice: &mut Dice) -> Rule {
    let (n, units) = (1 + dice.below(6), 1 + dice.below(4));
    let period = Span(dice.pick(&[1_000_000, 3_000_000, 700_001]));
    let coin = dice.below(2) == 0;
    let bucket = |empty| Rule::TokenBucket(TokenBucket::new(n, units, period, empty).unwrap());
    match of {
        Of::Full => bucket(false),
        Of::Empty => bucket(true),
        Of::FullOrEmpty => bucket(coin),
        Of::Steps => Rule::IntervalBucket(IntervalBucket::new(n, units, period, coin).unwrap()),
        Of::Pacer => Rule::Pacer(Pacer::new(n - 1, units, period, 500).unwrap()),
        Of::Log => Rule::SlidingLog(SlidingLog::new(n, period).unwrap()),
        Of::Counter => Rule::SlidingCounter(SlidingCounter::new(n, period).unwrap()),
        Of::Window => {
            let align = if coin { Align::Clock } else { Align::FirstUse };
            Rule::FixedWindow(FixedWindow::new(n, period, align).unwrap())
        }
        Of::Semaphore => Rule::Semaphore(Semaphore::new(n, Span::secs(2), false).unwrap()),
    }
}

fn limits(kinds: &[Of], dice: &mut Dice) -> Limits {
    let limit = |of: &Of| Limit {
        rule: rule(*of, dice),
        per_call: false,
    };
    Limits::new(kinds.iter().map(limit).collect(), 0).unwrap()
}

/// One call, the same on both.
#[derive(Clone, Debug)]
enum Call {
    Try(u64),
    Pace(u64),
    Peek(u64),
    Release(usize),
    Settle(usize, u64),
    Reset,
    Penalize(Span),
    Open(Limits),
    Pass(Span),
}

struct Side {
    memory: Arc<Memory>,
    named: Arc<Named>,
    first: Arc<Named>,
    permits: Vec<u64>,
}

impl Side {
    fn new(limits: &Limits) -> Side {
        let memory = Memory::virtually(100);
        let named = memory.limiter(b"n", limits.clone());
        Side {
            first: named.clone(),
            memory,
            named,
            permits: vec![],
        }
    }

    fn take(&mut self, decision: Decision) -> String {
        if decision.permit != 0 {
            self.permits.push(decision.permit);
        }
        Side::shown(decision)
    }

    fn shown(decision: Decision) -> String {
        let shown = Decision {
            permit: (decision.permit != 0).into(),
            ..decision
        };
        format!("{shown:?}")
    }

    fn call(&mut self, call: &Call) -> String {
        let request = |weight| Request {
            weights: Weights::Same(weight),
            ..Request::TRY
        };
        let (memory, named) = (&self.memory, &self.named);
        match call {
            Call::Try(weight) => {
                let decision = memory.acquire_blocking(named, &request(*weight));
                self.take(decision)
            }
            Call::Pace(weight) => {
                let wait = Some(Span::secs(20));
                let decision = memory.pace(
                    named,
                    &Request {
                        wait,
                        ..request(*weight)
                    },
                );
                self.take(decision)
            }
            Call::Peek(weight) => Side::shown(memory.peek(named, &request(*weight))),
            Call::Release(which) => format!("{:?}", memory.release(self.permits[*which])),
            Call::Settle(which, actual) => {
                format!("{:?}", memory.settle(self.permits[*which], *actual))
            }
            Call::Reset => format!("{:?}", memory.reset(&self.first, b"")),
            Call::Penalize(span) => format!("{:?}", memory.penalize(&self.first, b"", *span)),
            Call::Open(limits) => {
                self.named = memory.limiter(b"n", limits.clone());
                String::new()
            }
            Call::Pass(span) => {
                memory.clock_advance(*span);
                String::new()
            }
        }
    }
}

fn story(seed: u64, kinds: &[Of], changes: bool) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let both = [limits(kinds, &mut dice), limits(kinds, &mut dice)];
    let holds = both[0].holds();
    let mut sides = [Side::new(&both[0]), Side::new(&both[0])];
    let mut told = vec![format!("{kinds:?}, seed {seed}: {:?}", both[0])];
    for _ in 0..CALLS {
        let weight = dice.below(4);
        let permits = sides[0].permits.len() as u64;
        let which = permits.saturating_sub(1 + dice.below(4)) as usize;
        let call = match dice.below(12) {
            0..=3 => Call::Try(weight),
            4 if !holds => Call::Pace(weight),
            5 => Call::Peek(weight),
            6 if permits > 0 => Call::Release(which),
            7 if permits > 0 => Call::Settle(which, weight),
            8 if dice.below(4) == 0 => Call::Reset,
            9 if changes => Call::Open(both[dice.below(2) as usize].clone()),
            10 if dice.below(3) == 0 => Call::Penalize(Span(1_500_000)),
            _ => Call::Pass(Span(dice.pick(&[
                0,
                1,
                1_000,
                333_333,
                1_000_000,
                5_000_000,
                30_000_000,
                60_000_000,
                61_000_000,
                200_000_000,
            ]))),
        };
        let [kept, swept] = sides.each_mut().map(|side| side.call(&call));
        for _ in 0..400 {
            sides[1].memory.sweep_next();
        }
        told.push(format!("{call:?}: {kept}"));
        assert_eq!(kept, swept, "kept, forgotten; after\n{}", told.join("\n"));
    }
}

#[test]
fn answers_do_not_depend_on_whether_a_key_was_forgotten() {
    let times = std::env::var("LIMITER_TIMES").map_or(1, |times| times.parse().unwrap());
    let sets: &[&[Of]] = &[
        &[Of::Full],
        &[Of::Empty],
        &[Of::FullOrEmpty],
        &[Of::Steps],
        &[Of::Pacer],
        &[Of::Log],
        &[Of::Counter],
        &[Of::Window],
        &[Of::Full, Of::Log],
        &[Of::Empty, Of::Window],
        &[Of::FullOrEmpty, Of::Counter],
        &[Of::Pacer, Of::FullOrEmpty],
        &[Of::Steps, Of::FullOrEmpty],
        &[Of::Semaphore, Of::Full],
        &[Of::Semaphore, Of::Empty],
        &[Of::Semaphore, Of::FullOrEmpty, Of::Window],
    ];
    for kinds in sets {
        for seed in 1..=60 * times {
            story(seed, kinds, seed % 2 == 0);
        }
    }
}
