//! No call stands still to move all there is: however many keys, permits and waits there are, what one
//! call allocates and frees stays small. A hash table that doubles, or a vector, would show here as one
//! call with megabytes; counted, so that a busy machine changes nothing.
mod counted;
#[path = "../memory/kit.rs"]
#[allow(dead_code)]
mod kit;
mod steady;

use std::sync::Arc;

use limiter::decision::Status::*;
use limiter::limit::rule::{Limit, Rule};
use limiter::limit::time::Span;
use limiter::memory::{Memory, Named, Options};
use limiter::op::Request;

use counted::call;
use kit::*;

const MANY: u64 = 200_000;
const WAITS: u64 = 100_000;

fn take(memory: &Memory, named: &Arc<Named>, key: u64) -> u64 {
    let key = key.to_le_bytes();
    let decision = call(|| memory.acquire_blocking(named, &on(&key, 1, Some(Span::ZERO))));
    assert_eq!(decision.status, Ok);
    decision.permit
}

#[test]
fn very_many_keys() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(2, 1, SEC)]);
    for key in 0..MANY {
        take(&world.memory, &limiter, key);
    }
    let largest = world.memory.census().largest_table;
    assert!(largest < 800, "{largest}");
    world.pass(SEC);
    // All of them are forgotten on the way.
    for key in MANY..2 * MANY {
        take(&world.memory, &limiter, key);
    }
}

/// Forgotten in the course of calls on a few old keys, a few at a time, and the room they took with them.
#[test]
fn keys_that_are_as_new_go_also_if_no_others_come() {
    let world = World::new();
    let small = world.memory.census().room;
    for rule in [tb(2, 1, SEC), leased(2, SEC), slide(2, SEC)] {
        let limiter = world.limiter("n", [rule]);
        for key in 0..MANY / 4 {
            take(&world.memory, &limiter, key);
        }
        assert!(world.memory.census().room > MANY as usize / 4);
        // The leases end, one after another.
        world.pass(SEC);
        let before = world.totals().keys;
        call(|| world.pass(Span::secs(9)));
        assert!(world.totals().keys < before, "some when time passes");
        for n in 0..MANY / 2 {
            take(&world.memory, &limiter, n % 50);
            if n % 50 == 49 {
                world.pass(SEC);
            }
            if world.totals().keys <= 50 {
                break;
            }
        }
        assert!(world.totals().keys <= 50, "{}", world.totals().keys);
        for _ in 0..2_000 {
            call(|| world.pass(SEC));
        }
        let room = world.memory.census().room;
        assert!(room <= small + 64 * 64, "{room}");
    }
}

#[test]
fn very_many_permits_on_as_many_keys() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(1)]);
    let permits: Vec<u64> = (0..MANY)
        .map(|key| take(&world.memory, &limiter, key))
        .collect();
    for permit in permits {
        assert_eq!(call(|| world.memory.release(permit)), Ok);
    }
    for key in MANY..MANY + MANY / 2 {
        let permit = take(&world.memory, &limiter, key);
        assert_eq!(call(|| world.memory.release(permit)), Ok);
    }
}

/// Of which each lies in many pieces. They are freed one after another, and no call finds them all to be merged.
#[test]
fn very_many_permits_and_keys_of_several_limits() {
    let world = World::new();
    let limiter = world.limiter("n", [leased(1, SEC), tb(2, 1, SEC), slide(2, SEC)]);
    for round in 0..2 {
        let keys = round * MANY..round * MANY + MANY / 4;
        let permits = keys.map(|key| take(&world.memory, &limiter, key));
        let permits: Vec<u64> = permits.collect();
        for permit in permits {
            assert_eq!(call(|| world.memory.release(permit)), Ok);
        }
        world.pass(SEC);
    }
    for _ in 0..MANY / 2 {
        take(&world.memory, &limiter, 0);
        world.pass(SEC);
        if world.totals().keys == 1 {
            return;
        }
    }
    panic!("{} keys are left", world.totals().keys);
}

/// What lies in small pieces costs whoever frees them, and in the end some call that finds very many to be merged
/// and sorted. So keys and permits lie in pages; only of each log there is a piece.
#[test]
fn very_many_keys_and_permits_lie_in_few_pieces() {
    for (rules, logs) in [
        (vec![tb(2, 1, SEC)], 0),
        (vec![sem(1)], 0),
        (vec![leased(1, SEC)], 0),
        (vec![sem(1), tb(2, 1, SEC)], 0),
        (vec![leased(1, SEC), tb(2, 1, SEC), tb(3, 1, SEC)], 0),
        (vec![slide(2, SEC)], 1),
        (vec![sem(1), tb(2, 1, SEC), slide(2, SEC)], 1),
    ] {
        let world = World::new();
        let limiter = world.limiter("n", rules);
        let keys = MANY as usize / 4;
        let before = counted::small();
        for key in 0..keys {
            take(&world.memory, &limiter, key as u64);
        }
        let pieces = counted::small() - before;
        let most = keys * logs + keys / 50;
        assert!(pieces <= most, "{pieces} for {:?}", limiter.limits);
        drop(limiter);
    }
}

/// The timer's thread does not free what others have allocated: who calls next would find it.
#[test]
fn leases_that_end_while_nobody_calls() {
    let world = World::real();
    let lease = Span::secs(2);
    let limiter = world.limiter("n", [leased(1, lease), tb(2, 1, SEC), slide(2, SEC)]);
    for key in 0..MANY / 8 {
        take(&world.memory, &limiter, key);
    }
    let before = counted::unmerged();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while world.totals().in_flight > 0 {
        assert!(std::time::Instant::now() < deadline, "they end");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let freed = counted::unmerged().saturating_sub(before);
    assert!(freed < 2_000, "{freed} pieces");
    for key in 0..MANY / 8 {
        take(&world.memory, &limiter, MANY + key);
    }
}

#[test]
fn very_many_permits_on_one_key_and_their_leases() {
    let world = World::new();
    for rule in [sem(MANY), leased(MANY, Span::secs(60))] {
        let limiter = world.limiter("n", [rule]);
        let permits: Vec<u64> = (0..MANY)
            .map(|_| take(&world.memory, &limiter, 0))
            .collect();
        for permit in &permits[..permits.len() / 2] {
            assert_eq!(call(|| world.memory.renew(*permit, None)), Ok);
            assert_eq!(call(|| world.memory.release(*permit)), Ok);
        }
        // A reset ends half of the permits, and others are made and ended on their records.
        let key = 0u64.to_le_bytes();
        assert_eq!(call(|| world.memory.reset(&limiter, &key)), Ok);
        assert_eq!(world.totals().in_flight, 0);
        for permit in &permits[permits.len() / 2..] {
            assert_eq!(call(|| world.memory.release(*permit)), Stale);
        }
        assert_eq!(world.memory.census().held, 0);
        assert_eq!(world.memory.census().events, 0);
    }
}

#[test]
fn a_reset_leaves_its_records_to_the_calls_that_follow() {
    let world = World::new();
    let limiter = world.limiter("n", [leased(MANY, Span::secs(60))]);
    for _ in 0..100_000 {
        take(&world.memory, &limiter, 0);
    }
    let key = 0u64.to_le_bytes();
    assert_eq!(call(|| world.memory.reset(&limiter, &key)), Ok);
    for _ in 0..100_000 / 16 {
        call(|| world.memory.peek(&limiter, &on(&key, 1, EVER)));
    }
    let census = world.memory.census();
    assert_eq!((census.held, census.people, census.events), (0, 0, 0));
}

#[test]
fn a_hundred_thousand_waits_on_one_key_and_their_completions() {
    let world = World::new();
    let queue = world.queue();
    for (name, rules) in [
        ("queued", vec![sem(1)]),
        ("booked", vec![tb(1, 1, SEC)]),
        ("paced", vec![pacer(1, SEC, 0)]),
    ] {
        let limiter = world.limiter(name, rules);
        let held = take(&world.memory, &limiter, 0);
        let key = 0u64.to_le_bytes();
        let wait = |n| Request {
            user_data: n,
            ..on(&key, 1, Some(Span::secs(WAITS + n)))
        };
        let ops: Vec<u64> = (0..WAITS)
            .map(|n| call(|| world.submit(&limiter, &queue, wait(n))))
            .map(|pending| pending.op)
            .collect();
        assert_eq!(world.totals().waiting, WAITS);
        // What is booked begins in a second: that is as good as penalized until then.
        for penalty in [SEC, SEC, Span::ZERO] {
            assert_eq!(call(|| world.memory.penalize(&limiter, &key, penalty)), Ok);
        }
        call(|| world.memory.release(held));
        for (n, op) in ops.into_iter().enumerate() {
            let status = match n % 2 {
                0 => call(|| world.memory.cancel(op, false)),
                _ => call(|| match world.memory.cancel_waits(n as u64) {
                    1 => Ok,
                    _ => Stale,
                }),
            };
            assert!(status == Ok || name == "queued");
        }
        assert_eq!(world.totals().waiting, 0);
        let mut polled = 0;
        while polled < WAITS {
            let some = call(|| queue.poll(1, Some(std::time::Duration::ZERO))).unwrap();
            polled += some.len() as u64;
        }
        assert_eq!(world.memory.census().waits, 0);
    }
}

#[test]
fn a_change_of_limits_that_leaves_a_hundred_thousand_waits_without_hope() {
    let world = World::new();
    let queue = world.queue();
    let limiter = world.limiter("n", [sem(5)]);
    world.takes(&limiter, 5);
    for n in 0..WAITS {
        world.waits(&limiter, &queue, ask(1 + 2 * (n % 2), EVER));
    }
    let lowered = world.limiter("n", [sem(2)]);
    for _ in 0..WAITS / 200 {
        call(|| world.memory.peek(&lowered, &ask(0, EVER)));
    }
    let ended = done(&queue);
    assert_eq!(ended.len() as u64, WAITS / 2);
    assert!(ended.iter().all(|decision| decision.status == Never));
}

#[test]
fn a_hundred_thousand_waits_on_as_many_keys() {
    let world = World::new();
    let queue = world.queue();
    let limiter = world.limiter("n", [tb(1, 1, SEC)]);
    for n in 0..WAITS {
        let key = n.to_le_bytes();
        take(&world.memory, &limiter, n);
        let pending = call(|| world.submit(&limiter, &queue, on(&key, 1, EVER)));
        assert_eq!(pending.status, Pending);
    }
    world.pass(SEC);
    assert_eq!(done(&queue).len(), WAITS as usize);
    assert_eq!(world.memory.census().waits, 0);
}

#[test]
fn bookings_that_their_callers_sleep_to() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(1, 1, SEC)]);
    let key = 0u64.to_le_bytes();
    let mut permits = Vec::new();
    for _ in 0..WAITS {
        permits.push(call(|| world.memory.pace(&limiter, &on(&key, 1, EVER))).permit);
    }
    for permit in permits.into_iter().take(50_000).rev() {
        assert_eq!(call(|| world.memory.release(permit)), Ok);
    }
}

#[test]
fn a_log_of_very_many_admissions() {
    let options = Options {
        max_waiting: 10,
        ..OPTIONS
    };
    let world = World::with(limiter::clock::Clock::virtual_clock(), options, None);
    let limiter = world.limiter("n", [slide(2 * MANY, Span::secs(60))]);
    for _ in 0..MANY {
        take(&world.memory, &limiter, 0);
        world.pass(Span(1));
    }
    let permit = take(&world.memory, &limiter, 0);
    assert_eq!(call(|| world.memory.settle(permit, 5)), Ok);
    let key = 0u64.to_le_bytes();
    let remaining = |world: &World| {
        let peek = call(|| world.memory.peek(&limiter, &on(&key, 0, EVER)));
        peek.remaining
    };
    assert_eq!(remaining(&world), MANY - 5);
    world.pass(Span::secs(60));
    assert_eq!(remaining(&world), 2 * MANY);
    take(&world.memory, &limiter, 0);
}

#[test]
fn many_names() {
    let world = World::new();
    let limit = Limit {
        rule: Rule::Unlimited,
        per_call: false,
    };
    let limits = limiter::limit::decide::Limits::new(vec![limit], 0).unwrap();
    let mut kept = Vec::new();
    for n in 0..100_000u64 {
        let named = call(|| world.memory.limiter(&n.to_le_bytes(), limits.clone()));
        if n % 2 == 0 {
            kept.push(named);
        }
    }
}

/// Beside a semaphore whose leases end: when to come back is told without a copy of all there is.
#[test]
fn a_denial_copies_no_log() {
    let world = World::new();
    let lease = Span::secs(60);
    let limiter = world.limiter("n", [leased(70, lease), slide(2 * MANY, Span::secs(3_600))]);
    let weights = [0, 1];
    let key = 0u64.to_le_bytes();
    let logged = Request {
        weights: limiter::op::Weights::Each(&weights),
        ..on(&key, 1, Some(Span::ZERO))
    };
    for _ in 0..MANY {
        assert_eq!(world.memory.acquire_blocking(&limiter, &logged).status, Ok);
        world.pass(Span(1));
    }
    for _ in 0..70 {
        take(&world.memory, &limiter, 0);
    }
    let asked = on(&key, 1, Some(Span::ZERO));
    let denied = call(|| world.memory.acquire_blocking(&limiter, &asked));
    assert_eq!((denied.status, denied.retry_after_us), (Denied, lease.0));
    let peeked = call(|| world.memory.peek(&limiter, &asked));
    assert_eq!((peeked.status, peeked.retry_after_us), (Denied, lease.0));
}

/// However often it is asked, with housekeeping in between: a key of one bucket stays small.
#[test]
fn a_try_of_one_bucket_allocates_nothing() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(1 << 30, 1, SEC)]);
    // Until as many permits are remembered as ever are.
    for _ in 0..1_100 {
        take(&world.memory, &limiter, 0);
    }
    let key = 0u64.to_le_bytes();
    for _ in 0..5_000 {
        let asked = on(&key, 1, Some(Span::ZERO));
        let decision = counted::call_without(|| world.memory.acquire_blocking(&limiter, &asked));
        assert_eq!(decision.status, Ok);
    }
}
