//! Who shares state with whom, what a new configuration does, and what is forgotten.
use std::collections::BTreeMap;

use limiter::decision::Status::*;
use limiter::limit::interval_bucket::IntervalBucket;
use limiter::limit::rule::Rule;
use limiter::limit::time::Span;
use limiter::limit::token_bucket::TokenBucket;

use crate::kit::*;

#[test]
fn names_kinds_and_keys_keep_limiters_apart_and_parameters_do_not() {
    let world = World::new();
    world.takes(&world.limiter("n", [sem(1)]), 1);
    world.takes(&world.limiter("m", [sem(1)]), 1);
    world.takes(&world.limiter("n", [tb(1, 1, SEC)]), 1);
    world.takes(&world.limiter("n", [sem(1), tb(1, 1, SEC)]), 1);
    world.takes(&world.limiter("n", [tb(1, 1, SEC), sem(1)]), 1);
    let raised = world.limiter("n", [sem(2)]);
    assert_eq!(world.remaining(&raised), 1);
    for key in [&b"a"[..], b"\0", b"a\0", b"%", b"{a}", b"", &[0xff; 65_536]] {
        let decision = world.memory.acquire_blocking(&raised, &on(key, 1, EVER));
        assert_eq!(decision.status, Ok, "{:?}", key.len());
    }
    world.denied(&raised, 1);
    world.denied(&world.limiter("m", [sem(1)]), 1);
}

#[test]
fn a_name_cannot_be_continued_by_a_key() {
    let world = World::new();
    let (short, long) = (world.limiter("a", [sem(1)]), world.limiter("ab", [sem(1)]));
    for (limiter, key) in [
        (&short, &b"bc"[..]),
        (&long, b"c"),
        (&short, b"c"),
        (&long, b"bc"),
    ] {
        assert_eq!(
            world
                .memory
                .acquire_blocking(limiter, &on(key, 1, EVER))
                .status,
            Ok
        );
    }
}

#[test]
fn the_same_parameters_are_the_same_limiter() {
    let world = World::new();
    let a = world.limiter("n", [sem(1)]);
    assert!(std::sync::Arc::ptr_eq(&a, &world.limiter("n", [sem(1)])));
    assert!(!std::sync::Arc::ptr_eq(
        &a,
        &world.versioned("n", 1, [sem(1)])
    ));
}

#[test]
fn an_older_version_is_decided_under_the_newer_one() {
    let world = World::new();
    let old = world.versioned("n", 1, [sem(1)]);
    world.takes(&old, 1);
    let new = world.versioned("n", 2, [sem(5)]);
    for _ in 0..4 {
        world.takes(&new, 1);
    }
    world.denied(&new, 1);
    let denied = world.try_(&old, 1);
    assert_eq!((denied.status, denied.limit), (Denied, 5), "not reverted");
    assert_eq!(
        world.try_(&old, 3).status,
        Denied,
        "not even where the old one says never"
    );
    let same = world.versioned("n", 2, [sem(6)]);
    world.takes(&same, 1);
}

#[test]
fn a_key_not_seen_before_starts_under_the_newest_version() {
    let world = World::new();
    let old = world.versioned("n", 1, [sem(1)]);
    let _new = world.versioned("n", 2, [sem(3)]);
    assert_eq!(world.try_(&old, 2).status, Ok);
}

#[test]
fn raising_the_capacity_admits_those_who_wait_at_the_next_call() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(1)]);
    let queue = world.queue();
    world.takes(&limiter, 1);
    let ops: Vec<u64> = (0..3)
        .map(|_| world.waits(&limiter, &queue, ask(1, EVER)))
        .collect();
    let raised = world.limiter("n", [sem(3)]);
    world.memory.peek(&raised, &ask(0, EVER));
    assert_eq!(answers(&queue), [(ops[0], Ok), (ops[1], Ok)]);
}

#[test]
fn a_million_keys_in_debt_are_kept_and_idle_ones_make_room() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(2, 1, SEC)]);
    const KEYS: u64 = 1_000_000;
    let take = |n: u64| {
        let decision = world
            .memory
            .acquire_blocking(&limiter, &on(&n.to_le_bytes(), 2, Some(Span(0))));
        decision.status
    };
    for n in 0..KEYS {
        assert_eq!(take(n), Ok);
    }
    assert_eq!(world.totals().keys, KEYS);
    world.pass(Span(1_999_999));
    for n in (0..KEYS).step_by(7) {
        assert_eq!(take(n), Denied, "a key in debt was dropped: {n}");
    }
    assert_eq!(world.totals().keys, KEYS, "a denial stores nothing");
    world.pass(Span(1));
    for n in KEYS..2 * KEYS + KEYS / 2 {
        assert_eq!(take(n), Ok);
    }
    let kept = world.totals().keys;
    assert!(kept < 2 * KEYS, "idle keys were not forgotten: {kept}");
    for n in KEYS..2 * KEYS + KEYS / 2 {
        if n % 11 == 0 {
            assert_eq!(take(n), Denied, "a key in debt was dropped: {n}");
        }
    }
}

#[test]
fn keys_with_permits_waiters_or_penalties_are_not_forgotten() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(1)]);
    let queue = world.queue();
    let held = world
        .memory
        .acquire_blocking(&limiter, &on(b"held", 1, EVER))
        .permit;
    let booked = world
        .memory
        .penalize(&limiter, b"penalized", Span::secs(60));
    assert_eq!(booked, Ok);
    let waiting = world.submit(&limiter, &queue, on(b"penalized", 1, EVER)).op;
    for n in 0..200_000u32 {
        let taken = world
            .memory
            .acquire_blocking(&limiter, &on(&n.to_le_bytes(), 1, EVER));
        world.memory.release(taken.permit);
        world.pass(Span(1));
    }
    assert!(world.totals().keys < 100_000);
    let denied = world
        .memory
        .acquire_blocking(&limiter, &on(b"held", 1, Some(Span::ZERO)));
    assert_eq!(denied.status, Denied);
    assert_eq!(world.memory.release(held), Ok);
    world.pass(Span::secs(60));
    assert_eq!(answers(&queue), [(waiting, Ok)]);
}

#[test]
fn a_denied_or_peeked_key_leaves_nothing_behind() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(1)]);
    world.memory.peek(&limiter, &on(b"a", 1, EVER));
    world.memory.acquire_blocking(&limiter, &on(b"b", 2, EVER));
    world.memory.acquire_blocking(&limiter, &on(b"c", 0, EVER));
    assert_eq!(world.totals().keys, 0);
}

#[test]
fn a_key_outlives_the_limiter_it_was_used_through_and_other_limits_of_the_name_see_it() {
    let world = World::new();
    for n in 0..5_000 {
        let limiter = world.limiter(&format!("n{n}"), [tb(2, 1, Span::secs(60))]);
        world.takes(&limiter, 2);
    }
    for n in 0..5_000 {
        let again = world.limiter(&format!("n{n}"), [tb(2, 1, Span::secs(60))]);
        assert_eq!(world.denied(&again, 2), Span::secs(120));
        let faster = world.limiter(&format!("n{n}"), [tb(2, 2, Span::secs(60))]);
        assert_eq!(world.denied(&faster, 2), Span::secs(60));
    }
}

#[test]
fn a_plain_key_goes_through_every_verb_and_back() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(5, 1, SEC)]);
    let queue = world.queue();
    let first = world.takes(&limiter, 2);
    assert_eq!(world.remaining(&limiter), 3);
    assert_eq!(world.memory.settle(first, 1), Ok);
    assert_eq!(world.remaining(&limiter), 4);
    world.takes(&limiter, 4);
    assert_eq!(world.denied(&limiter, 1), SEC);
    let op = world.waits(&limiter, &queue, ask(1, EVER));
    world.pass(SEC);
    assert_eq!(answers(&queue), [(op, Ok)]);
    world.memory.penalize(&limiter, b"", SEC);
    world.pass(SEC);
    // Growing tables write it small again.
    for n in 0..50_000u32 {
        world
            .memory
            .acquire_blocking(&limiter, &on(&n.to_le_bytes(), 5, Some(Span::ZERO)));
    }
    world.takes(&limiter, 1);
    assert_eq!(world.denied(&limiter, 5), Span::secs(5));
    assert_eq!(world.memory.reset(&limiter, b""), Ok);
    assert_eq!(world.remaining(&limiter), 5);
}

#[test]
fn a_lowered_capacity_holds_for_those_who_wait_also_if_nobody_asks_after_it() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(5)]);
    let queue = world.queue();
    let held = [0; 5].map(|_| world.takes(&limiter, 1));
    let ops = [0; 2].map(|_| world.waits(&limiter, &queue, ask(1, EVER)));
    let _lowered = world.limiter("n", [sem(1)]);
    for permit in &held[..4] {
        world.memory.release(*permit);
        assert_eq!(answers(&queue), [], "at most one is held");
    }
    world.memory.release(held[4]);
    assert_eq!(answers(&queue), [(ops[0], Ok)]);
    assert_eq!(world.totals().in_flight, 1);
}

#[test]
fn a_raised_capacity_is_used_by_those_who_wait_also_if_nobody_asks_after_it() {
    let end: [fn(&World, u64, u64); 3] = [
        |world, permit, _| assert_eq!(world.memory.release(permit), Ok),
        |world, _, last| assert_eq!(world.memory.cancel(last, true), Ok),
        |world, _, _| world.pass(SEC),
    ];
    for (i, end) in end.into_iter().enumerate() {
        let world = World::new();
        let limiter = world.limiter("n", [leased(1, SEC)]);
        let queue = world.queue();
        let held = world.takes(&limiter, 1);
        let ops = [0; 4].map(|_| world.waits(&limiter, &queue, ask(1, EVER)));
        let _raised = world.limiter("n", [leased(3, SEC)]);
        end(&world, held, ops[3]);
        let admitted = answers(&queue)
            .into_iter()
            .filter(|(_, status)| *status == Ok);
        assert_eq!(admitted.count(), [3, 2, 4][i], "end {i}");
    }
}

#[test]
fn a_semaphore_that_is_penalized_twice_starts_after_the_second() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(1)]);
    let queue = world.queue();
    world.memory.penalize(&limiter, b"", SEC);
    let op = world.waits(&limiter, &queue, ask(1, EVER));
    world.memory.penalize(&limiter, b"", Span::secs(5));
    world.pass(Span::secs(4));
    assert_eq!(answers(&queue), []);
    world.pass(SEC);
    assert_eq!(answers(&queue), [(op, Ok)]);
}

#[test]
fn those_who_wait_hear_of_other_limits_at_once() {
    for count in [3, 1000] {
        let world = World::new();
        let (queue, old) = (world.queue(), world.limiter("n", [sem(2)]));
        let mut heavy = Vec::new();
        for n in 0..count {
            let (weight, key) = (1 + n % 2, n.to_string());
            let held = world
                .memory
                .acquire_blocking(&old, &on(key.as_bytes(), 2, None));
            assert_eq!(held.status, Ok);
            let wait = on(key.as_bytes(), weight, Some(Span::secs(60)));
            heavy.push((world.waits(&old, &queue, wait), weight));
        }
        // Nobody asks, no time passes.
        let _lower = world.limiter("n", [sem(1)]);
        let told: BTreeMap<u64, _> = answers(&queue).into_iter().collect();
        for (op, weight) in &heavy {
            let status = (*weight == 2).then_some(Never);
            assert_eq!(told.get(op).copied(), status);
        }
        let _higher = world.limiter("n", [sem(3)]);
        let told = answers(&queue);
        assert_eq!(told.len(), heavy.iter().filter(|one| one.1 == 1).count());
        assert!(told.iter().all(|(_, status)| *status == Ok));
        // The same again, or an older version of it, changes nothing.
        let before = world.totals();
        let _same = world.limiter("n", [sem(3)]);
        assert_eq!(world.totals(), before);
    }
}

/// When exactly it is forgotten depends on what is called besides: nobody can tell by its answers.
#[test]
fn a_bucket_that_starts_empty_is_empty_again_a_minute_after_it_was_full() {
    let rules = [true, false].map(|steps| match steps {
        true => Rule::IntervalBucket(IntervalBucket::new(5, 1, SEC, true).unwrap()),
        false => Rule::TokenBucket(TokenBucket::new(5, 1, SEC, true).unwrap()),
    });
    for rule in rules {
        for others in [0, 300] {
            let world = World::new();
            let limiter = world.limiter("n", [rule.clone()]);
            let look = |calls: u32| {
                for n in 0..calls {
                    let key = n.to_le_bytes();
                    let peek = on(&key, 1, Some(Span::ZERO));
                    world.memory.peek(&limiter, &peek);
                    world.memory.acquire_blocking(&limiter, &peek);
                }
                world.memory.peek(&limiter, &ask(1, Some(Span::ZERO)))
            };
            world.denied(&limiter, 1);
            world.pass(Span(65_000_000 - 1));
            assert_eq!((look(others).status, look(others).remaining), (Ok, 5));
            world.takes(&limiter, 5);
            world.pass(Span(65_000_000));
            for _ in 0..3 {
                assert_eq!((look(others).status, look(others).remaining), (Denied, 0));
                world.pass(SEC);
            }
            assert_eq!(world.denied(&limiter, 1), SEC, "a look begins nothing");
            world.pass(SEC);
            world.takes(&limiter, 1);
        }
    }
}
