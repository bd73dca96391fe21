//! What is given back serves those who wait: after a settle, a cancel, a release, limits that are raised.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use limiter::decision::Decision;
use limiter::decision::Status::*;
use limiter::limit::fixed_window::{Align, FixedWindow};
use limiter::limit::interval_bucket::IntervalBucket;
use limiter::limit::rule::Rule;
use limiter::limit::sliding_counter::SlidingCounter;
use limiter::limit::time::Span;
use limiter::memory::Named;
use limiter::op::{Relay, Sink};
use proptest::prelude::*;

use crate::kit::*;
use crate::properties::cases;

fn interval(capacity: u64, refill: u64, period: Span) -> Rule {
    Rule::IntervalBucket(IntervalBucket::new(capacity, refill, period, false).unwrap())
}

fn fixed(limit: u64, window: Span) -> Rule {
    Rule::FixedWindow(FixedWindow::new(limit, window, Align::Clock).unwrap())
}

fn counter(limit: u64, window: Span) -> Rule {
    Rule::SlidingCounter(SlidingCounter::new(limit, window).unwrap())
}

/// Calls of a pool in which so many always wait or ask, that settle to `actual` as soon as they may start.
fn tasks(rule: Rule, pool: usize, estimate: u64, actual: u64, seconds: u64) -> u64 {
    let world = World::new();
    let queue = world.queue();
    let limiter = world.limiter("n", [rule]);
    let until = world.now() + Span::secs(seconds);
    let (mut started, mut waiting) = (0, 0);
    let mut settle = |decision: &Decision| {
        assert_eq!(decision.status, Ok);
        assert_eq!(world.memory.settle(decision.permit, actual), Ok);
        started += 1;
    };
    while world.now() < until {
        while waiting < pool {
            let answer = world.submit(&limiter, &queue, ask(estimate, EVER));
            match answer.status {
                Pending => waiting += 1,
                _ => settle(&answer),
            }
        }
        world.pass(Span::millis(1));
        for answer in done(&queue) {
            settle(&answer);
            waiting -= 1;
        }
    }
    started
}

/// Whoever waits and settles down gets as much as who asks again and again: what settled use allows.
#[test]
fn a_pool_that_settles_down_reaches_what_settled_use_allows() {
    for pool in [1, 4, 64, 300] {
        for rule in [
            tb(100, 100, SEC),
            slide(100, SEC),
            counter(100, SEC),
            fixed(100, SEC),
            interval(100, 100, SEC),
        ] {
            let name = format!("{rule:?}, {pool}");
            let started = tasks(rule, pool, 50, 5, 30);
            // Of 100 units those between 50 and 55 from the end are not to be had for an estimate of 50.
            let allowed = 100 / 5 * 30;
            assert!(
                (allowed * 50 / 100..=allowed + 20).contains(&started),
                "{name}: {started} of {allowed}"
            );
        }
    }
}

#[test]
fn a_settle_brings_forward_all_who_wait_in_their_order() {
    let world = World::new();
    let queue = world.queue();
    let limiter = world.limiter("n", [tb(10, 1, SEC)]);
    let first = world.takes(&limiter, 10);
    let ops: Vec<u64> = [5, 1, 1, 5]
        .map(|weight| world.waits(&limiter, &queue, ask(weight, EVER)))
        .into();
    world.pass(SEC);
    assert_eq!(done(&queue), []);
    assert_eq!(world.memory.settle(first, 4), Ok);
    assert_eq!(
        answers(&queue),
        [(ops[0], Ok), (ops[1], Ok), (ops[2], Ok)],
        "at once"
    );
    assert_eq!(world.denied(&limiter, 1), Span::secs(6));
    world.pass(Span(4_999_999));
    assert_eq!(done(&queue), []);
    world.pass(Span(1));
    assert_eq!(answers(&queue), [(ops[3], Ok)]);
}

#[test]
fn limits_that_are_raised_serve_those_who_wait_at_once() {
    let world = World::new();
    let queue = world.queue();
    let limiter = world.limiter("n", [slide(2, Span::secs(60))]);
    world.takes(&limiter, 2);
    let ops: Vec<u64> = (0..6)
        .map(|_| world.waits(&limiter, &queue, ask(1, EVER)))
        .collect();
    let raised = world.limiter("n", [slide(5, Span::secs(60))]);
    assert_eq!(answers(&queue), [(ops[0], Ok), (ops[1], Ok), (ops[2], Ok)]);
    assert_eq!(world.denied(&raised, 1), Span::secs(60));
    world.pass(Span::secs(60));
    assert_eq!(answers(&queue).len(), 3);
}

#[test]
fn a_cancelled_wait_and_a_slot_that_is_given_back_bring_forward_those_behind() {
    let world = World::new();
    let queue = world.queue();
    let limiter = world.limiter("n", [tb(1, 1, SEC)]);
    world.takes(&limiter, 1);
    let paced = world.memory.pace(&limiter, &ask(1, EVER));
    let wait = || world.waits(&limiter, &queue, ask(1, EVER));
    let (a, b, c) = (wait(), wait(), wait());
    assert_eq!(world.memory.cancel(b, true), Ok);
    assert_eq!(world.denied(&limiter, 1), Span::secs(4));
    assert_eq!(world.memory.release(paced.permit), Ok);
    assert_eq!(world.denied(&limiter, 1), Span::secs(3));
    for op in [a, c] {
        world.pass(SEC);
        assert_eq!(answers(&queue), [(op, Ok)]);
    }
}

/// Its caller sleeps by itself, so nobody who came later passes it.
#[test]
fn a_paced_call_between_those_who_wait_keeps_its_time() {
    let world = World::new();
    let queue = world.queue();
    let limiter = world.limiter("n", [tb(4, 1, SEC)]);
    let first = world.takes(&limiter, 4);
    let before = world.waits(&limiter, &queue, ask(2, EVER));
    let paced = world.memory.pace(&limiter, &ask(1, EVER));
    assert_eq!(paced.retry_after_us, 3_000_000);
    let behind = world.waits(&limiter, &queue, ask(1, EVER));
    assert_eq!(world.memory.settle(first, 0), Ok);
    assert_eq!(answers(&queue), [(before, Ok)]);
    world.pass(Span(2_999_999));
    assert_eq!(done(&queue), []);
    world.pass(Span(1));
    assert_eq!(answers(&queue), [(behind, Ok)]);
    assert_eq!(world.remaining(&limiter), 2);
    assert_eq!(world.memory.settle(paced.permit, 0), Ok);
    assert_eq!(world.remaining(&limiter), 3);
}

#[test]
fn a_paced_call_between_those_who_wait_is_settled_and_given_back_before_its_time() {
    for settled in [None, Some(0), Some(3)] {
        let world = World::new();
        let queue = world.queue();
        let limiter = world.limiter("n", [tb(1, 1, SEC)]);
        world.takes(&limiter, 1);
        let a = world.waits(&limiter, &queue, ask(1, EVER));
        let paced = world.memory.pace(&limiter, &ask(1, EVER));
        let b = world.waits(&limiter, &queue, ask(1, EVER));
        match settled {
            None => assert_eq!(world.memory.release(paced.permit), Ok),
            Some(actual) => assert_eq!(world.memory.settle(paced.permit, actual), Ok),
        }
        let next = match settled {
            None => 3,
            // Nothing of it is booked any more, but it keeps its place.
            Some(0) => 3,
            Some(_) => 6,
        };
        world.pass(SEC);
        assert_eq!(answers(&queue), [(a, Ok)]);
        assert_eq!(
            world.denied(&limiter, 1),
            Span::secs(next - 1),
            "{settled:?}"
        );
        world.pass(Span::secs(2));
        assert_eq!(answers(&queue), [(b, Ok)]);
    }
}

/// What was used beyond the estimate is paid for by those who come later, as before.
#[test]
fn a_settle_to_more_leaves_those_who_wait_their_times() {
    let world = World::new();
    let queue = world.queue();
    let limiter = world.limiter("n", [tb(1, 1, SEC)]);
    let first = world.takes(&limiter, 1);
    let wait = |seconds| world.waits(&limiter, &queue, ask(1, Some(Span::secs(seconds))));
    let ops = [wait(1), wait(2)];
    assert_eq!(world.memory.settle(first, 8), Ok);
    assert_eq!(world.denied(&limiter, 1), Span::secs(10));
    for op in ops {
        world.pass(SEC);
        assert_eq!(answers(&queue), [(op, Ok)]);
    }
    assert_eq!(world.denied(&limiter, 1), Span::secs(8));
    world.pass(Span::secs(8));
    world.takes(&limiter, 1);
}

#[derive(Clone, Debug)]
enum Step {
    /// Weight, and seconds of patience.
    Wait(u64, Option<u64>),
    Pace(u64),
    Cancel(usize),
    Release(usize),
    Settle(usize, u64),
    /// To the limits of this number.
    Reopen(usize),
    Penalize(u64),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (1..=4u64, prop::option::of(0..=20u64)).prop_map(|(n, w)| Step::Wait(n, w)),
        1 => (1..=4u64).prop_map(Step::Pace),
        2 => any::<usize>().prop_map(Step::Cancel),
        1 => any::<usize>().prop_map(Step::Release),
        6 => (any::<usize>(), 0..=4u64).prop_map(|(i, n)| Step::Settle(i, n)),
        1 => (0..2usize).prop_map(Step::Reopen),
        1 => (1..=9u64).prop_map(Step::Penalize),
        4 => (1..=3u64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..80)
}

/// Four seconds.
const FOUR: u64 = 4_000_000;

/// One kind of limit, of 4 units in 4 seconds, and raised to 6.
#[derive(Clone, Copy, Debug)]
enum Of {
    Bucket,
    Interval,
    Log,
    Counter,
    Fixed,
}

impl Of {
    fn rule(self, size: usize) -> Rule {
        let units = [4, 6][size];
        let span = Span::secs(4);
        match self {
            Of::Bucket => tb(units, units, span),
            Of::Interval => interval(units, units, span),
            Of::Log => slide(units, span),
            Of::Counter => counter(units, span),
            Of::Fixed => fixed(units, span),
        }
    }

    /// Whether the limits of this size allow so much at these times, one of which is now.
    fn allows(self, size: usize, starts: &[(u64, u64)], now: u64) -> bool {
        let units = [4, 6][size];
        let since = |from: u64| {
            let counted = starts.iter().filter(|(at, _)| (from..=now).contains(at));
            counted.map(|(_, weight)| weight).sum::<u64>()
        };
        match self {
            Of::Bucket => starts.iter().all(|(from, _)| {
                since(*from) * FOUR <= units * FOUR + units * now.saturating_sub(*from)
            }),
            // Whole periods, wherever they begin.
            Of::Interval => starts
                .iter()
                .all(|(from, _)| since(*from) <= units * (2 + now.saturating_sub(*from) / FOUR)),
            Of::Log => since((now + 1).saturating_sub(FOUR)) <= units,
            Of::Counter | Of::Fixed => since(now - now % FOUR) <= units,
        }
    }
}

#[derive(Clone, Debug)]
struct Waiting {
    op: u64,
    weight: u64,
    since: u64,
    patience: Option<u64>,
}

struct Pool {
    world: World,
    queue: Arc<limiter::queue::Queue>,
    limiter: Arc<Named>,
    zero: limiter::limit::time::Time,
    of: Of,
    size: usize,
    /// By permit: when it started and what is charged for it.
    started: BTreeMap<u64, (u64, u64)>,
    waiting: Vec<Waiting>,
    /// Nothing was told to anybody that is void.
    kept: bool,
    permits: Vec<u64>,
    paced: Vec<u64>,
}

impl Pool {
    fn new(of: Of) -> Pool {
        let world = World::new();
        world.pass(Span(2_520_000_000 - world.now().0 % 2_520_000_000));
        Pool {
            queue: world.queue(),
            limiter: world.limiter("n", [of.rule(0)]),
            zero: world.now(),
            world,
            of,
            size: 0,
            started: BTreeMap::new(),
            waiting: Vec::new(),
            kept: true,
            permits: Vec::new(),
            paced: Vec::new(),
        }
    }

    fn now(&self) -> u64 {
        self.world.now().since(self.zero).0
    }

    fn start(&mut self, permit: u64, at: u64, weight: u64) {
        self.started.insert(permit, (at, weight));
        self.permits.push(permit);
        if at <= self.now() {
            self.check(at);
        }
    }

    fn check(&self, at: u64) {
        let starts: Vec<(u64, u64)> = self.started.values().copied().collect();
        let allowed = self.of.allows(self.size, &starts, at);
        assert!(allowed, "{:?}: {starts:?} at {at}", self.of);
    }

    fn hear(&mut self) {
        for told in done(&self.queue) {
            if told.status == Cancelled {
                continue;
            }
            let first = self.waiting.iter().position(|one| one.op == told.op);
            let one = self.waiting.remove(first.expect("it waits"));
            match told.status {
                Ok => {
                    assert_eq!(first, Some(0), "who came first is admitted first");
                    assert!(one.patience.is_none_or(|most| told.waited_us <= most));
                    self.start(told.permit, one.since + told.waited_us, one.weight);
                }
                status => {
                    assert_eq!(status, Denied);
                    assert!(!self.kept, "a deadline that was met stays met");
                }
            }
        }
    }

    fn step(&mut self, step: &Step) {
        let now = self.now();
        match *step {
            Step::Wait(weight, patience) => {
                let wait = patience.map(Span::secs);
                let answer = self
                    .world
                    .submit(&self.limiter, &self.queue, ask(weight, wait));
                match answer.status {
                    Ok => {
                        assert!(self.waiting.is_empty(), "nobody passes those who wait");
                        self.start(answer.permit, now, weight);
                    }
                    Pending => {
                        self.waiting.push(Waiting {
                            op: answer.op,
                            weight,
                            since: now,
                            patience: wait.map(|wait| wait.0),
                        });
                    }
                    status => assert_eq!(status, Denied),
                }
            }
            Step::Pace(weight) => {
                let answer = self.world.memory.pace(&self.limiter, &ask(weight, EVER));
                assert_eq!(answer.status, Ok);
                self.start(answer.permit, now + answer.retry_after_us, weight);
                self.paced.push(answer.permit);
            }
            Step::Cancel(i) if !self.waiting.is_empty() => {
                let one = self.waiting.remove(i % self.waiting.len());
                assert_eq!(self.world.memory.cancel(one.op, false), Ok);
            }
            Step::Release(i) if !self.paced.is_empty() => {
                let permit = self.paced.remove(i % self.paced.len());
                self.permits.retain(|other| *other != permit);
                assert_eq!(self.world.memory.release(permit), Ok);
                if self.started[&permit].0 > now {
                    self.started.remove(&permit);
                }
            }
            Step::Settle(i, actual) if !self.permits.is_empty() => {
                let permit = self.permits.swap_remove(i % self.permits.len());
                self.paced.retain(|other| *other != permit);
                assert_eq!(self.world.memory.settle(permit, actual), Ok);
                let charged = &mut self.started.get_mut(&permit).unwrap().1;
                // What was used beyond the estimate nobody was asked for.
                *charged = (*charged).min(actual);
            }
            // Only raised: what lowered limits do to those who have their times is told elsewhere.
            Step::Reopen(size) if size > self.size => {
                self.size = size;
                self.limiter = self.world.limiter("n", [self.of.rule(size)]);
                self.permits.clear();
                self.paced.clear();
            }
            Step::Penalize(length) => {
                self.kept = false;
                let length = Span::secs(length);
                self.world.memory.penalize(&self.limiter, b"", length);
            }
            Step::Pass(seconds) => {
                self.world.pass(Span::secs(seconds));
            }
            _ => {}
        }
        self.hear();
    }
}

proptest! {
    #![proptest_config(cases(300))]

    /// Whatever is given back, and however those who wait move up for it.
    #[test]
    fn those_who_move_up_keep_their_order_their_deadlines_and_the_limit(
        of in prop::sample::select(vec![Of::Bucket, Of::Interval, Of::Log, Of::Counter, Of::Fixed]),
        steps in steps(),
    ) {
        let mut pool = Pool::new(of);
        for step in &steps {
            pool.step(step);
        }
        pool.step(&Step::Pass(600));
        prop_assert!(pool.waiting.is_empty(), "all had their turn");
        prop_assert_eq!(pool.world.totals().waiting, 0);
        for (at, _) in pool.started.values() {
            pool.check(*at);
        }
    }
}

/// How many still waited when the first of very many was told.
fn waited_when_the_first_was_told(change: impl FnOnce(&World, &Arc<Named>)) -> u64 {
    const MANY: u64 = 10_000;
    let world = World::new();
    let limiter = world.limiter("n", [slide(1, Span::secs(3_000))]);
    world.takes(&limiter, 1);
    let (told, waiting) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    for _ in 0..MANY {
        let (stats, told, waiting) = (world.stats.clone(), told.clone(), waiting.clone());
        let relay = Relay {
            then: Box::new(move |_| {
                if told.fetch_add(1, Ordering::Relaxed) == 0 {
                    waiting.store(stats.totals().waiting, Ordering::Relaxed);
                }
            }),
            op: 1,
            queue: None,
        };
        let request = ask(1, Some(Span::secs(40_000_000)));
        let pending = world.memory.acquire(&limiter, &request, Sink::Relay(relay));
        assert_eq!(pending.status, Pending);
    }
    change(&world, &limiter);
    assert_eq!(told.load(Ordering::Relaxed), MANY);
    MANY - waiting.load(Ordering::Relaxed)
}

/// Nobody is told with the shard locked: so it was free while most still waited.
#[test]
fn very_many_who_move_up_let_others_in_between() {
    let raised = |world: &World, _: &Arc<Named>| {
        world.limiter("n", [slide(20_000, Span::secs(3_000))]);
    };
    let reset = |world: &World, limiter: &Arc<Named>| {
        world.limiter("n", [slide(9_999, Span::secs(3_000))]);
        assert_eq!(world.memory.reset(limiter, b""), Ok);
    };
    for ended in [
        waited_when_the_first_was_told(raised),
        waited_when_the_first_was_told(reset),
    ] {
        assert!(ended <= 256, "{ended}");
    }
}
