//! A key of one token bucket is decided by a path of its own while nobody waits for it. It is asked the same
//! as one that is not: a weight for each limit takes the path of all kinds.
use std::sync::Arc;

use limiter::decision::Decision;
use limiter::decision::Status;
use limiter::limit::decide::Limits;
use limiter::limit::rule::Limit;
use limiter::limit::time::Span;
use limiter::memory::Named;
use limiter::op::{Request, Weights};
use proptest::prelude::*;

use crate::kit::*;
use crate::properties::cases;

#[derive(Clone, Debug)]
enum Step {
    Try(u64),
    Peek(u64),
    Pace(u64, u64),
    Wait(u64, u64),
    Settle(usize, u64),
    Release(usize),
    Reset,
    Penalize(u64),
    Reopen(usize),
    Pass(u64),
    /// Other keys, so that the table is written anew and what is idle is small again.
    Crowd,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let weight = 0..=7u64;
    let step = prop_oneof![
        8 => weight.clone().prop_map(Step::Try),
        2 => weight.clone().prop_map(Step::Peek),
        2 => (weight.clone(), 0..=3u64).prop_map(|(w, p)| Step::Pace(w, p)),
        1 => (weight, 0..=3u64).prop_map(|(w, p)| Step::Wait(w, p)),
        3 => (any::<usize>(), 0..=9u64).prop_map(|(i, w)| Step::Settle(i, w)),
        1 => any::<usize>().prop_map(Step::Release),
        1 => Just(Step::Reset),
        1 => (0..=3u64).prop_map(Step::Penalize),
        1 => (0..4usize).prop_map(Step::Reopen),
        4 => (0..=900_000u64).prop_map(Step::Pass),
        1 => Just(Step::Crowd),
    ];
    prop::collection::vec(step, 1..60)
}

/// One of the two, and what it has granted.
struct Side {
    world: World,
    limiter: Arc<Named>,
    queue: Arc<limiter::queue::Queue>,
    /// Gives a weight for each limit: there is one.
    each: bool,
    per_call: bool,
    permits: Vec<u64>,
}

impl Side {
    fn new(each: bool, per_call: bool) -> Side {
        let world = World::new();
        let queue = world.queue();
        let limiter = world.limiter("n", [tb(5, 7, SEC)]);
        let mut side = Side {
            world,
            limiter,
            queue,
            each,
            per_call,
            permits: Vec::new(),
        };
        side.reopen(0);
        side
    }

    fn reopen(&mut self, which: usize) {
        let rule = [
            tb(5, 7, SEC),
            tb(3, 7, SEC),
            tb(6, 1, SEC),
            tb(1 << 48, 1_000, Span(1)),
        ];
        let limit = Limit {
            rule: rule[which].clone(),
            per_call: self.per_call,
        };
        let limits = Limits::new(vec![limit], 0).unwrap();
        self.limiter = self.world.memory.limiter(b"n", limits);
    }

    /// The answer, without the numbers that count on.
    fn ask(&mut self, weight: u64, wait: u64, how: fn(&Side, &Request) -> Decision) -> Decision {
        let each = [weight];
        let request = Request {
            weights: match self.each {
                true => Weights::Each(&each),
                false => Weights::Same(weight),
            },
            wait: Some(Span(wait * 100_000)),
            user_data: weight,
            ..Request::TRY
        };
        self.heard(how(self, &request))
    }

    fn heard(&mut self, decision: Decision) -> Decision {
        if decision.permit != 0 {
            self.permits.push(decision.permit);
        }
        Decision {
            permit: decision.permit.min(1),
            op: decision.op.min(1),
            ..decision
        }
    }

    fn step(&mut self, step: &Step) -> (Vec<Decision>, Option<Status>) {
        let memory = self.world.memory.clone();
        let permit = |i: &usize| match self.permits.len() {
            0 => 0,
            len => self.permits[i % len],
        };
        let mut decisions = Vec::new();
        let status = match step {
            Step::Try(weight) => {
                let how =
                    |side: &Side, r: &Request| side.world.memory.acquire_blocking(&side.limiter, r);
                decisions.push(self.ask(*weight, 0, how));
                None
            }
            Step::Peek(weight) => {
                let how = |side: &Side, r: &Request| side.world.memory.peek(&side.limiter, r);
                decisions.push(self.ask(*weight, 0, how));
                None
            }
            Step::Pace(weight, wait) => {
                let how = |side: &Side, r: &Request| side.world.memory.pace(&side.limiter, r);
                decisions.push(self.ask(*weight, *wait, how));
                None
            }
            Step::Wait(weight, wait) => {
                let how =
                    |side: &Side, r: &Request| side.world.submit(&side.limiter, &side.queue, *r);
                decisions.push(self.ask(*weight, *wait, how));
                None
            }
            Step::Settle(i, actual) => Some(memory.settle(permit(i), *actual)),
            Step::Release(i) => Some(memory.release(permit(i))),
            Step::Reset => Some(memory.reset(&self.limiter, b"")),
            Step::Penalize(n) => Some(memory.penalize(&self.limiter, b"", Span(n * 100_000))),
            Step::Reopen(which) => {
                self.reopen(*which);
                None
            }
            Step::Pass(us) => {
                self.world.pass(Span(*us));
                None
            }
            Step::Crowd => {
                let crowd = self.world.limiter("crowd", [tb(1, 1, SEC)]);
                for n in 0..2_000u64 {
                    memory.acquire_blocking(&crowd, &on(&n.to_le_bytes(), 1, Some(Span::ZERO)));
                }
                self.world.pass(SEC);
                None
            }
        };
        for decision in done(&self.queue) {
            decisions.push(self.heard(decision));
        }
        (decisions, status)
    }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn the_short_path_answers_as_the_long_one(steps in steps(), per_call in any::<bool>()) {
        let (mut short, mut long) = (Side::new(false, per_call), Side::new(true, per_call));
        for step in &steps {
            prop_assert_eq!(short.step(step), long.step(step), "{:?}", step);
            prop_assert_eq!(short.world.totals().granted, long.world.totals().granted);
            prop_assert_eq!(short.world.totals().denied, long.world.totals().denied);
        }
    }
}
