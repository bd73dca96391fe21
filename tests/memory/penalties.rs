//! Penalties, paced calls, waits and limits that change, all on one key: what starts, and when.
use std::collections::BTreeMap;

use limiter::decision::Status::*;
use limiter::limit::fixed_window::{Align, FixedWindow};
use limiter::limit::rule::Rule;
use limiter::limit::time::Span;
use proptest::prelude::*;

use crate::kit::*;
use crate::properties::cases;

fn fixed(limit: u64, window: Span) -> Rule {
    Rule::FixedWindow(FixedWindow::new(limit, window, Align::Clock).unwrap())
}

#[test]
fn a_wait_is_not_put_off_onto_a_time_that_a_paced_call_was_told() {
    for changed in [false, true] {
        let world = World::new();
        let queue = world.queue();
        let limiter = world.limiter("n", [slide(1, SEC)]);
        world.takes(&limiter, 1);
        let first = world.waits(&limiter, &queue, ask(1, EVER));
        let paced = world.memory.pace(&limiter, &ask(1, EVER));
        assert_eq!(paced.retry_after_us, 2_000_000);
        let second = world.waits(&limiter, &queue, ask(1, EVER));
        if changed {
            world.denied(&world.limiter("n", [slide(1, Span::millis(999))]), 1);
        }
        let limiter = world.limiter("n", [slide(1, SEC)]);
        world.memory.penalize(&limiter, b"", Span::secs(2));
        world.pass(Span(2_998_999));
        assert_eq!(done(&queue), []);
        let mut started = Vec::new();
        while started.len() < 2 {
            world.pass(Span(1_001));
            started.extend(answers(&queue));
        }
        assert_eq!(started, [(first, Ok), (second, Ok)]);
    }
}

#[test]
fn what_is_put_off_stays_within_aligned_windows() {
    let world = World::new();
    let queue = world.queue();
    let limits = |units| [fixed(5, Span::secs(10)), pacer(units, SEC, 0)];
    world.pass(Span(10_000_000 - world.now().0 % 10_000_000));
    let limiter = world.limiter("n", limits(1));
    world.memory.penalize(&limiter, b"", Span::secs(15));
    for _ in 0..10 {
        world.waits(&limiter, &queue, ask(1, EVER));
    }
    let faster = world.limiter("n", limits(2));
    world.denied(&faster, 1);
    world.memory.penalize(&faster, b"", Span::secs(20));
    let in_windows = [0, 1, 2, 3, 4, 5].map(|_| {
        world.pass(Span(9_999_999));
        let started = done(&queue).len();
        world.pass(Span(1));
        assert!(started <= 5, "{started} in a window");
        started + done(&queue).len()
    });
    assert_eq!(in_windows.iter().sum::<usize>(), 10, "{in_windows:?}");
}

#[derive(Clone, Debug)]
enum Step {
    Try,
    /// With a deadline, or without.
    Wait(Option<u64>),
    Pace,
    /// The paced call that was made so many before is given back.
    Unpace(usize),
    Cancel(usize),
    Penalize(u64),
    /// Limits of this number from now on.
    Reopen(usize),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => Just(Step::Try),
        6 => prop::option::of(1..=20u64).prop_map(Step::Wait),
        3 => Just(Step::Pace),
        1 => (0..4usize).prop_map(Step::Unpace),
        1 => any::<usize>().prop_map(Step::Cancel),
        3 => (1..=9u64).prop_map(Step::Penalize),
        3 => (0..3usize).prop_map(Step::Reopen),
        4 => (1..=5u64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..60)
}

/// Limits in one shape, in three sizes; their numbers are of units and seconds.
#[derive(Clone, Copy, Debug)]
enum Terms {
    Log([(u64, u64); 3]),
    Fixed([u64; 3], u64),
    /// Capacity; seconds for a unit.
    Bucket([(u64, u64); 3]),
    Pacer([u64; 3]),
}

impl Terms {
    fn rule(&self, size: usize) -> Rule {
        match self {
            Terms::Log(sizes) => slide(sizes[size].0, Span::secs(sizes[size].1)),
            Terms::Fixed(sizes, window) => fixed(sizes[size], Span::secs(*window)),
            Terms::Bucket(sizes) => tb(sizes[size].0, 1, Span::secs(sizes[size].1)),
            Terms::Pacer(sizes) => pacer(1, Span::secs(sizes[size]), 0),
        }
    }

    /// Whether the loosest of these sizes allows calls at these seconds, which are in order.
    fn allow(&self, starts: &[u64]) -> bool {
        let within = |most: u64, window: u64| {
            let mut runs = starts.windows(most as usize + 1);
            runs.all(|run| run[run.len() - 1] - run[0] >= window)
        };
        match self {
            Terms::Log(sizes) => within(
                sizes.iter().map(|s| s.0).max().unwrap(),
                sizes.iter().map(|s| s.1).min().unwrap(),
            ),
            Terms::Pacer(sizes) => within(1, *sizes.iter().min().unwrap()),
            Terms::Fixed(sizes, window) => {
                let mut counts = BTreeMap::new();
                for start in starts {
                    *counts.entry(start / window).or_insert(0) += 1;
                }
                counts
                    .values()
                    .all(|count| count <= sizes.iter().max().unwrap())
            }
            Terms::Bucket(sizes) => {
                let capacity = sizes.iter().map(|s| s.0).max().unwrap() as usize;
                let unit = sizes.iter().map(|s| s.1).min().unwrap();
                (1..=starts.len()).all(|units| {
                    let brought = units.saturating_sub(capacity) as u64 * unit;
                    let mut runs = starts.windows(units);
                    runs.all(|run| run[units - 1] - run[0] >= brought)
                })
            }
        }
    }
}

fn terms() -> impl Strategy<Value = Terms> {
    let (few, span) = (1..=4u64, 1..=6u64);
    let pair = (few.clone(), span.clone());
    prop_oneof![
        [pair.clone(), pair.clone(), pair.clone()].prop_map(Terms::Log),
        ([few.clone(), few.clone(), few], 1..=10u64).prop_map(|(n, w)| Terms::Fixed(n, w)),
        [pair.clone(), pair.clone(), pair].prop_map(Terms::Bucket),
        [span.clone(), span.clone(), span].prop_map(Terms::Pacer),
    ]
}

proptest! {
    #![proptest_config(cases(600))]

    /// Whatever comes together on one key, no more starts than the limits that were in force allow.
    #[test]
    fn nothing_starts_closer_than_the_loosest_limits_allow(
        terms in prop::collection::vec(terms(), 1..=2),
        steps in steps(),
    ) {
        let world = World::new();
        world.pass(Span(2_520_000_000 - world.now().0 % 2_520_000_000));
        let zero = world.now();
        let queue = world.queue();
        let seconds = |world: &World| world.now().since(zero).0 / 1_000_000;
        let started = |world: &World| {
            let granted = done(&queue).iter().filter(|done| done.status == Ok).count();
            std::iter::repeat_n(seconds(world), granted)
        };
        let open = |size| world.limiter("n", terms.iter().map(|terms| terms.rule(size)));
        let mut limiter = open(0);
        let mut starts: Vec<u64> = Vec::new();
        let mut paced: Vec<(u64, u64)> = Vec::new();
        let mut ops: Vec<u64> = Vec::new();
        let last = [Step::Pass(400)];
        for step in steps.iter().chain(&last) {
            let now = seconds(&world);
            match step {
                Step::Try => {
                    starts.extend((world.try_(&limiter, 1).status == Ok).then_some(now));
                }
                Step::Wait(wait) => {
                    let wait = wait.map(Span::secs);
                    let answer = world.submit(&limiter, &queue, ask(1, wait));
                    starts.extend((answer.status == Ok).then_some(now));
                    ops.extend((answer.status == Pending).then_some(answer.op));
                }
                Step::Pace => {
                    let answer = world.memory.pace(&limiter, &ask(1, EVER));
                    if answer.status == Ok {
                        prop_assert_eq!(answer.retry_after_us % 1_000_000, 0);
                        paced.push((now + answer.retry_after_us / 1_000_000, answer.permit));
                    }
                }
                Step::Unpace(before) => {
                    if let Some(index) = paced.len().checked_sub(before + 1)
                        && paced[index].0 > now
                    {
                        world.memory.release(paced.remove(index).1);
                    }
                }
                Step::Cancel(index) if !ops.is_empty() => {
                    world.memory.cancel(ops[index % ops.len()], false);
                }
                Step::Cancel(_) => {}
                Step::Penalize(length) => {
                    world.memory.penalize(&limiter, b"", Span::secs(*length));
                }
                Step::Reopen(size) => limiter = open(*size),
                Step::Pass(length) => {
                    for _ in 0..*length {
                        world.pass(SEC);
                        starts.extend(started(&world));
                    }
                }
            }
            // Who waits may move up at once.
            starts.extend(started(&world));
        }
        starts.extend(paced.iter().map(|(at, _)| *at));
        starts.sort_unstable();
        for terms in &terms {
            prop_assert!(terms.allow(&starts), "{terms:?} started at {starts:?}");
        }
    }
}

/// What a refusal says of when to come back goes by all that is in the way: here a release and a penalty.
#[test]
fn a_permit_that_comes_back_before_a_penalty_ends_is_no_reason_to_ask_then() {
    let world = World::new();
    let queue = world.queue();
    let limiter = world.limiter("n", [leased(1, SEC)]);
    world.takes(&limiter, 1);
    world.memory.penalize(&limiter, b"", Span::secs(10));
    assert_eq!(world.denied(&limiter, 1), Span::secs(10));
    let hopeless = world.submit(&limiter, &queue, ask(1, Some(Span::secs(5))));
    assert_eq!(
        (hopeless.status, hopeless.retry_after_us),
        (Denied, 10_000_000)
    );
    world.waits(&limiter, &queue, ask(1, Some(Span::secs(10))));
    world.pass(Span::secs(10));
    assert_eq!(done(&queue).len(), 1);
}

#[test]
fn a_permit_that_may_come_back_any_time_does_not_hide_a_slow_bucket() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(1), tb(1, 1, Span::secs(100))]);
    world.takes(&limiter, 1);
    assert_eq!(world.denied(&limiter, 1), Span::secs(100));
    world.pass(Span::secs(90));
    assert_eq!(world.denied(&limiter, 1), Span::secs(30), "its lease");
}

#[test]
fn nothing_remains_under_a_penalty_whatever_the_kind() {
    let world = World::new();
    for (n, rule) in [sem(5), tb(5, 1, SEC)].into_iter().enumerate() {
        let limiter = world.limiter(&n.to_string(), [rule]);
        world.memory.penalize(&limiter, b"", Span::secs(10));
        assert_eq!(world.try_(&limiter, 1).remaining, 0);
        let peeked = world.memory.peek(&limiter, &ask(1, None));
        assert_eq!((peeked.remaining, peeked.reset_after_us), (0, 10_000_000));
        world.pass(Span::secs(10));
        assert_eq!(world.remaining(&limiter), 5);
    }
}

/// What a reset ends is over at once, however much there is of it; what comes after is not.
#[test]
fn paced_calls_from_before_a_reset_are_over() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(1, 1, SEC)]);
    let pace = || world.memory.pace(&limiter, &ask(1, EVER));
    world.takes(&limiter, 1);
    let old: Vec<u64> = (0..3_000).map(|_| pace().permit).collect();
    assert_eq!(world.memory.reset(&limiter, b""), Ok);
    world.takes(&limiter, 1);
    let new: Vec<u64> = (0..10).map(|_| pace().permit).collect();
    for permit in old.iter().rev() {
        assert_eq!(world.memory.release(*permit), Stale);
        assert_eq!(world.memory.settle(*permit, 2), Stale);
    }
    for permit in new.iter().rev() {
        assert_eq!(world.memory.release(*permit), Ok);
    }
    assert_eq!(world.denied(&limiter, 1), SEC);
}
