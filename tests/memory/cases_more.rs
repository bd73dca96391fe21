//! Public bug reports of other limiters, continued: several limits, refunds, changed limits, the classics.
use std::sync::Arc;

use limiter::decision::Status::*;
use limiter::limit::time::Span;
use limiter::op::{Request, Weights};

use crate::kit::*;

#[test]
fn b_122_b_125_all_or_nothing() {
    let world = World::new();
    let limiter = world.limiter("n", [slide(10, SEC), tb(1, 1, Span::secs(60)), sem(9)]);
    world.takes(&limiter, 1);
    for _ in 0..4 {
        let denied = world.try_(&limiter, 1);
        assert_eq!((denied.status, denied.index), (Denied, 1));
    }
    let weights = |w: &'static [u64]| Request {
        weights: Weights::Each(w),
        ..Request::TRY
    };
    let decision = world
        .memory
        .acquire_blocking(&limiter, &weights(&[9, 0, 8]));
    assert_eq!(decision.status, Ok, "the others were charged once");
    assert_eq!(
        world
            .memory
            .acquire_blocking(&limiter, &weights(&[1, 0, 0]))
            .index,
        0
    );
}

#[test]
fn b_124_the_longest_wait_of_those_that_deny_and_which_it_is() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(1, 1, Span::secs(3)), tb(1, 1, Span::secs(10))]);
    world.takes(&limiter, 1);
    let denied = world.try_(&limiter, 1);
    assert_eq!((denied.index, denied.retry_after_us), (1, 10_000_000));
}

#[test]
fn b_127_never_more_is_given_back_than_was_taken() {
    let world = World::new();
    for (i, rule) in [tb(10, 1, SEC), slide(10, SEC), pacer(1, SEC, 10)]
        .into_iter()
        .enumerate()
    {
        let limiter = world.limiter(&format!("n{i}"), [rule]);
        let permit = world.takes(&limiter, 1);
        assert_eq!(world.memory.settle(permit, 0), Ok);
        assert_eq!(world.memory.settle(permit, 0), Stale);
        let mut taken = 0;
        while world.try_(&limiter, 1).status == Ok {
            taken += 1;
        }
        assert!(taken <= 11, "{taken} of limit {i}");
    }
}

#[test]
fn b_128_an_estimate_is_settled_once_and_more_becomes_debt() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(200, 1, SEC)]);
    let permit = world.takes(&limiter, 100);
    let other = world.takes(&limiter, 100);
    assert_eq!(world.memory.settle(permit, 130), Ok);
    assert_eq!(world.memory.settle(permit, 130), Stale);
    assert_eq!(world.denied(&limiter, 1), Span::secs(31));
    assert_eq!(
        world.memory.settle(other, 60),
        Ok,
        "the other's estimate is its own"
    );
    world.takes(&limiter, 10);
    assert_eq!(world.denied(&limiter, 1), SEC);
}

#[test]
fn b_128_a_permit_of_other_limits_corrects_nothing() {
    // Thirds of a microsecond mean nothing at one unit a second.
    let (thirds, whole) = (tb(5, 3, SEC), tb(5, 1, SEC));
    for forgotten in [false, true] {
        let world = World::new();
        let before = world.limiter("n", [thirds.clone()]);
        let permits = [world.takes(&before, 1), world.takes(&before, 2)];
        world.pass(Span::secs(60));
        if forgotten {
            // Tables forget what is as new when they grow.
            let others = world.limiter("others", [tb(1, 1, SEC)]);
            for i in 0..50_000u32 {
                let key = i.to_be_bytes();
                let request = Request {
                    key: &key,
                    ..Request::TRY
                };
                world.memory.acquire_blocking(&others, &request);
            }
        }
        let after = world.limiter("n", [whole.clone()]);
        world.takes(&after, 2);
        for (permit, actual) in permits.into_iter().zip([0, 9]) {
            world.memory.settle(permit, actual);
            assert_eq!(world.remaining(&after), 3, "forgotten: {forgotten}");
        }
    }
}

#[test]
fn b_128_a_permit_can_be_settled_whenever_limits_changed_before_it() {
    let world = World::new();
    world.takes(&world.limiter("n", [tb(10, 1, SEC)]), 5);
    let changed = world.limiter("n", [tb(20, 1, SEC)]);
    world.takes(&changed, 1);
    world.pass(Span::secs(30));
    for _ in 0..3 {
        // Taken before and after the change could be forgotten.
        let permit = world.takes(&changed, 2);
        world.pass(SEC);
        world.takes(&changed, 1);
        let left = world.remaining(&changed);
        assert_eq!(world.memory.settle(permit, 12), Ok);
        assert!(
            world.remaining(&changed) <= left - 9,
            "the excess was not charged"
        );
        world.pass(Span::secs(30));
    }
}

#[test]
fn b_130_a_lowered_limit_takes_effect_at_once() {
    let world = World::new();
    world.takes(&world.limiter("n", [tb(1_000, 1, SEC)]), 1);
    let lowered = world.limiter("n", [tb(10, 1, SEC)]);
    assert!(world.remaining(&lowered) <= 10);
    world.takes(&lowered, 9);
    world.denied(&lowered, 2);
}

#[test]
fn b_131_a_raised_rate_counts_for_what_is_owed() {
    let world = World::new();
    world.takes(&world.limiter("n", [tb(1, 1, Span::secs(3_600))]), 1);
    let raised = world.limiter("n", [tb(1, 100, Span::secs(3_600))]);
    assert_eq!(world.denied(&raised, 1), Span::secs(36));
}

#[test]
fn b_133_a_semaphore_is_resized_and_an_old_version_does_not_revert_it() {
    let world = World::new();
    let old = world.versioned("n", 1, [sem(1)]);
    world.takes(&old, 1);
    let new = world.versioned("n", 2, [sem(5)]);
    let permits = [0; 4].map(|_| world.takes(&new, 1));
    assert_eq!(world.try_(&old, 1).limit, 5);
    world.memory.release(permits[0]);
    world.takes(&old, 1);
}

#[test]
fn b_134_lowered_below_what_is_held_admits_when_it_fits() {
    let world = World::new();
    let five = world.limiter("n", [sem(5)]);
    let permits = [0; 5].map(|_| world.takes(&five, 1));
    let two = world.limiter("n", [sem(2)]);
    for (i, permit) in permits.into_iter().enumerate() {
        let decision = world.try_(&two, 1);
        assert_eq!(decision.status == Ok, 5 - i < 2, "{} are held", 5 - i);
        if decision.status == Ok {
            world.memory.release(decision.permit);
        }
        world.memory.release(permit);
    }
    assert_eq!(world.remaining(&two), 2);
}

#[test]
fn b_142_however_many_threads_exactly_the_limit_passes() {
    let world = Arc::new(World::real());
    let limiter = world.limiter("n", [tb(100, 1, Span::secs(3_600))]);
    let threads: Vec<_> = (0..64)
        .map(|_| {
            let (world, limiter) = (world.clone(), limiter.clone());
            std::thread::spawn(move || {
                (0..160)
                    .filter(|_| world.try_(&limiter, 1).status == Ok)
                    .count()
            })
        })
        .collect();
    let passed: usize = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .sum();
    assert_eq!(passed, 100);
    assert_eq!(
        (world.totals().granted, world.totals().denied),
        (100, 64 * 160 - 100)
    );
}

#[test]
fn b_143_what_has_left_the_window_does_not_count() {
    let world = World::new();
    let limiter = world.limiter("n", [slide(2, SEC)]);
    world.takes(&limiter, 2);
    world.pass(Span::millis(1_001));
    world.takes(&limiter, 1);
}

#[test]
fn b_146_a_bucket_lets_its_burst_and_its_refill_through_and_a_log_exactly_its_limit() {
    let minute = Span::secs(60);
    for (rule, least, most) in [(tb(10, 10, minute), 19, 20), (slide(10, minute), 10, 10)] {
        let world = World::new();
        let limiter = world.limiter("n", [rule]);
        let mut passed = 0;
        for _ in 0..60_000 {
            passed += u32::from(world.try_(&limiter, 1).status == Ok);
            world.pass(Span::millis(1));
        }
        assert!((least..=most).contains(&passed), "{passed}");
    }
}

#[test]
fn b_148_the_wait_does_not_start_again() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(5, 1, Span::secs(60))]);
    world.takes(&limiter, 5);
    world.pass(Span::secs(59));
    assert_eq!(world.denied(&limiter, 1), SEC);
    assert_eq!(world.denied(&limiter, 1), SEC);
}

#[test]
fn b_149_the_burst_is_what_was_asked_for() {
    let world = World::new();
    for (name, burst, period) in [("a", 1_000, Span::secs(10)), ("b", 100, SEC)] {
        let limiter = world.limiter(name, [tb(burst, burst, period)]);
        world.takes(&limiter, burst);
        world.denied(&limiter, 1);
    }
}

#[test]
fn b_130_two_open_handles_of_one_version_mint_nothing() {
    let world = World::new();
    let hour = Span::secs(3_600);
    let large = world.limiter("n", [tb(1_000, 1, hour)]);
    let small = world.limiter("n", [tb(10, 1, hour)]);
    let mut admitted = 0;
    for _ in 0..5 {
        for handle in [&large, &small] {
            world.remaining(handle);
            while world.try_(handle, 1).status == Ok {
                admitted += 1;
            }
        }
    }
    assert_eq!(admitted, 10, "the handle that was opened last decides");
    world.limiter("n", [tb(1_000, 1, hour)]);
    while world.try_(&small, 1).status == Ok {
        admitted += 1;
    }
    assert_eq!(
        admitted, 10,
        "opened again, the other one does: with room that is empty"
    );
    world.pass(hour);
    assert_eq!(world.remaining(&large), 1);
}

#[test]
fn b_131_refunds_before_and_after_a_change_of_the_rate() {
    let world = World::new();
    let odd = world.limiter("n", [tb(50, 999_983, Span::secs(1_000_000))]);
    for _ in 0..4 {
        let permit = world.takes(&odd, 10);
        assert_eq!(world.memory.settle(permit, 7), Ok);
    }
    let even = world.limiter("n", [tb(50, 1, SEC)]);
    for _ in 0..3 {
        let permit = world.takes(&even, 5);
        world.pass(Span(1_234_567));
        assert_eq!(world.memory.settle(permit, 1), Ok);
    }
    assert!(
        (20..=26).contains(&world.remaining(&even)),
        "{}",
        world.remaining(&even)
    );
    let wait = world.denied(&even, 50);
    world.pass(Span(wait.0 - 1));
    assert_eq!(world.denied(&even, 50), Span(1));
    world.pass(Span(1));
    world.takes(&even, 50);
}
