//! What is held: release, renew, settle, leases that end, and numbers that are none.
use std::sync::{Arc, mpsc};
use std::time::Duration;

use limiter::clock::Clock;
use limiter::decision::Status::*;
use limiter::limit::time::Span;
use limiter::memory::Options;
use limiter::op::Request;
use limiter::permit::Numbers;

use crate::kit::*;

#[test]
fn a_permit_is_released_once_and_copies_of_it_are_stale() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(3)]);
    let (a, b) = (world.takes(&limiter, 1), world.takes(&limiter, 2));
    assert_ne!(a, b);
    assert_eq!(world.memory.release(a), Ok);
    assert_eq!(world.memory.release(a), Stale);
    assert_eq!(world.remaining(&limiter), 1);
    assert_eq!(world.memory.release(b), Ok);
    for n in 0..10_000 {
        let again = world.takes(&limiter, 3);
        assert_eq!(world.memory.release(a), Stale, "round {n}");
        assert_eq!(world.memory.release(again), Ok);
    }
    assert_eq!(world.remaining(&limiter), 3);
    assert_eq!(world.totals().in_flight, 0);
}

#[test]
fn garbage_and_the_parents_permits_are_told_apart_and_have_no_effect() {
    let parent = World::new();
    let permit = parent.takes(&parent.limiter("n", [sem(1)]), 1);
    let child = World::with(
        Clock::virtual_clock(),
        Options {
            numbers: Numbers::new(2),
            ..OPTIONS
        },
        None,
    );
    let limiter = child.limiter("n", [sem(1)]);
    let own = child.takes(&limiter, 1);
    for act in [
        |w: &World, p| w.memory.release(p),
        |w: &World, p| w.memory.renew(p, None),
        |w: &World, p| w.memory.settle(p, 1),
        |w: &World, p| w.memory.cancel(p, false),
    ] {
        assert_eq!(act(&child, permit), Forked);
        assert_eq!(act(&child, 0), Invalid);
        assert_eq!(act(&child, u64::MAX), Stale);
        assert_eq!(act(&child, own ^ 0x4000), Stale);
        assert_eq!(act(&parent, own), Stale);
    }
    assert_eq!(child.remaining(&limiter), 0);
    assert_eq!(child.memory.release(own), Ok);
}

#[test]
fn permits_of_another_client_are_not_mistaken_for_ones_own() {
    let (ours, theirs) = (World::new(), World::new());
    let (limiter, other) = (ours.limiter("n", [sem(1)]), theirs.limiter("n", [sem(1)]));
    let foreign = theirs.takes(&other, 1);
    ours.takes(&limiter, 1);
    assert_eq!(ours.memory.release(foreign), Stale);
    assert_eq!(ours.remaining(&limiter), 0);
}

#[test]
fn a_permit_is_renewed_by_default_and_lives_as_long_as_it_is_held() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(1)]);
    let permit = world.takes(&limiter, 1);
    world.pass(Span::secs(1_000_000));
    world.denied(&limiter, 1);
    assert_eq!(world.memory.renew(permit, None), Ok);
    assert_eq!(world.memory.release(permit), Ok);
    assert_eq!(world.memory.renew(permit, None), Stale);
    assert_eq!(world.totals().lost, 0);
}

#[test]
fn without_renewal_a_permit_ends_with_its_lease_whoever_switched_it_off() {
    let world = World::new();
    let queue = world.queue();
    let by_limit = world.limiter("limit", [leased(1, Span::secs(2))]);
    let by_request = world.limiter("request", [sem(1)]);
    let request = Request {
        renew: false,
        lease: Some(Span::secs(2)),
        ..ask(1, EVER)
    };
    for (limiter, request) in [(by_limit, ask(1, EVER)), (by_request, request)] {
        let permit = world.submit(&limiter, &queue, request).permit;
        let next = world.waits(&limiter, &queue, ask(1, EVER));
        world.pass(Span(1_999_999));
        assert_eq!(done(&queue), []);
        world.pass(Span(1));
        assert_eq!(answers(&queue), [(next, Ok)]);
        assert_eq!(world.memory.release(permit), Stale);
        assert_eq!(world.memory.renew(permit, None), Stale);
        assert_eq!(world.memory.settle(permit, 1), Stale);
        world.denied(&limiter, 1);
    }
    assert_eq!((world.totals().lost, world.totals().released), (3, 0));
}

#[test]
fn a_lease_is_of_the_permit_and_renewing_counts_from_now() {
    let world = World::new();
    let limiter = world.limiter("n", [leased(2, Span::secs(5))]);
    let queue = world.queue();
    let long = Request {
        lease: Some(Span::secs(60)),
        ..ask(1, EVER)
    };
    let long = world.submit(&limiter, &queue, long).permit;
    let short = world.takes(&limiter, 1);
    world.pass(Span::secs(4));
    assert_eq!(world.memory.renew(short, None), Ok);
    world.pass(Span::secs(4));
    assert_eq!(world.denied(&limiter, 1), SEC);
    assert_eq!(world.memory.renew(short, Some(Span::secs(2))), Ok);
    world.pass(Span::secs(2));
    assert_eq!(world.memory.release(short), Stale);
    world.takes(&limiter, 1);
    assert_eq!(world.memory.release(long), Ok);
}

#[test]
fn a_request_without_a_lease_gets_the_limits_or_else_the_clients() {
    let options = Options {
        lease: Span::secs(9),
        ..OPTIONS
    };
    let world = World::with(Clock::virtual_clock(), options, None);
    let none = world.limiter("n", [sem(1)]);
    world.memory.acquire_blocking(
        &none,
        &Request {
            renew: false,
            ..Request::TRY
        },
    );
    assert_eq!(world.denied(&none, 1), Span::secs(9));
    let own = world.limiter("m", [leased(1, Span::secs(3))]);
    world.takes(&own, 1);
    assert_eq!(world.denied(&own, 1), Span::secs(3));
}

#[test]
fn a_denial_tells_when_leases_end_and_beyond_64_of_them_when_to_ask_again() {
    let world = World::new();
    let limiter = world.limiter("n", [leased(100, SEC)]);
    for n in 1..=100 {
        let request = Request {
            lease: Some(Span::millis(n)),
            ..ask(1, Some(Span::ZERO))
        };
        assert_eq!(world.memory.acquire_blocking(&limiter, &request).status, Ok);
    }
    for weight in 1..=64 {
        assert_eq!(world.denied(&limiter, weight), Span::millis(weight));
    }
    assert_eq!(world.denied(&limiter, 65), Span::millis(64), "not too late");
    let mut passed = 0;
    while passed < 100 {
        let Span(us) = world.denied(&limiter, 100);
        world.pass(Span(us - 1));
        world.denied(&limiter, 100);
        world.pass(Span(1));
        passed += us / 1_000;
    }
    assert_eq!(passed, 100);
    world.takes(&limiter, 100);
}

#[test]
fn a_lease_that_a_change_of_limits_made_ends_by_itself_though_only_threads_wait() {
    // On a real clock: nothing was to fall due when they began to wait, so no thread sees to it yet.
    let world = Arc::new(World::real());
    let renewed = world.limiter("n", [sem(1)]);
    let held = world.takes(&renewed, 1);
    let (tell, told) = mpsc::channel();
    for waiting in 1..=2 {
        let (world, renewed, tell) = (world.clone(), renewed.clone(), tell.clone());
        let started = world.clone();
        std::thread::spawn(move || {
            let decision = world.memory.acquire_blocking(&renewed, &ask(1, EVER));
            tell.send(decision.status).unwrap();
        });
        while started.totals().waiting < waiting {
            std::thread::yield_now();
        }
    }
    let leased = world.limiter("n", [leased(1, Span::millis(5))]);
    world.memory.peek(&leased, &ask(0, EVER));
    assert_eq!(world.memory.release(held), Ok);
    for _ in 0..2 {
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Result::Ok(Ok));
    }
}

#[test]
fn the_holder_of_a_lost_lease_is_told_by_hook_and_by_queue_once() {
    let (tell, told) = mpsc::channel();
    let hook = Arc::new(move |permit| tell.send(permit).unwrap());
    let world = World::with(Clock::virtual_clock(), OPTIONS, Some(hook));
    let limiter = world.limiter("n", [leased(1, SEC)]);
    let queue = world.queue();
    let request = Request {
        tell_lost: true,
        user_data: 5,
        ..ask(1, EVER)
    };
    let first = world.submit(&limiter, &queue, request).permit;
    let op = world.waits(&limiter, &queue, request);
    world.pass(SEC);
    let second = world.submit(&limiter, &queue, ask(1, Some(Span::ZERO)));
    assert_eq!(second.status, Denied);
    let told_now = done(&queue);
    assert_eq!(
        (told_now[0].status, told_now[0].permit, told_now[0].op),
        (Stale, first, 0)
    );
    assert_eq!((told_now[1].status, told_now[1].op), (Ok, op));
    world.pass(SEC);
    let lost = done(&queue);
    assert_eq!(
        (lost[0].status, lost[0].op, lost[0].user_data),
        (Stale, op, 5)
    );
    assert_eq!(lost[0].permit, told_now[1].permit);
    let heard = || told.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!([heard(), heard()], [first, lost[0].permit]);
    world.pass(Span::secs(9));
    assert_eq!(done(&queue), []);
}

#[test]
fn a_lease_that_ended_is_over_even_if_the_timer_is_late() {
    // On a real clock, where the timer's thread and this one race.
    let world = World::real();
    let limiter = world.limiter("n", [leased(1, Span::millis(2))]);
    for _ in 0..50 {
        let permit = world.takes(&limiter, 1);
        let due = world.now() + Span::millis(2);
        while world.now() < due {
            std::hint::spin_loop();
        }
        assert_eq!(world.memory.release(permit), Stale);
    }
    assert_eq!((world.totals().lost, world.totals().in_flight), (50, 0));
}

#[test]
fn fencing_numbers_grow_with_every_grant_also_over_forgotten_keys() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(2)]);
    let mut latest = 0;
    for round in 0..2_000u64 {
        let decision = world.try_(&limiter, 1);
        assert!(decision.fence > latest, "round {round}");
        latest = decision.fence;
        world.memory.release(decision.permit);
        if round % 100 == 0 {
            // Enough other keys for the idle one to be forgotten on the way.
            for other in 0..3_000u64 {
                let key = (round << 32 | other).to_le_bytes();
                let taken = world.memory.acquire_blocking(&limiter, &on(&key, 1, EVER));
                world.memory.release(taken.permit);
            }
            world.pass(Span(7));
        }
    }
    let rate = world.limiter("r", [tb(1, 1, SEC)]);
    assert_eq!(world.try_(&rate, 1).fence, 0);
}

#[test]
fn settling_corrects_once() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(200, 1, SEC)]);
    let permit = world.takes(&limiter, 100);
    assert_eq!(world.memory.settle(permit, 40), Ok);
    assert_eq!(world.remaining(&limiter), 160);
    assert_eq!(world.memory.settle(permit, 0), Stale);
    assert_eq!(world.remaining(&limiter), 160);
    assert_eq!(world.memory.release(permit), Ok);
    assert_eq!(world.memory.settle(permit, 0), Stale);
    assert_eq!(world.totals().settled, 1);
}

#[test]
fn settling_up_is_a_debt_that_later_calls_wait_for() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(100, 1, SEC)]);
    let permit = world.takes(&limiter, 100);
    assert_eq!(world.memory.settle(permit, 130), Ok);
    assert_eq!(world.denied(&limiter, 1), Span::secs(31));
}

#[test]
fn settling_a_composite_leaves_what_is_held_alone() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(10), tb(10, 1, SEC)]);
    let permit = world.takes(&limiter, 5);
    assert_eq!(world.memory.settle(permit, 1), Ok);
    assert_eq!(
        world.remaining(&limiter),
        5,
        "the semaphore is the tightest"
    );
    assert_eq!(world.memory.settle(permit, 1), Stale);
    assert_eq!(world.memory.release(permit), Ok);
    assert_eq!(world.remaining(&limiter), 9, "and now the bucket");
}

#[test]
fn permits_of_rates_are_remembered_for_some_thousand_calls_and_then_stale() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(1 << 20, 1, SEC)]);
    world.takes(&limiter, 1);
    let old = world.takes(&limiter, 1);
    let recent: Vec<u64> = (0..1_000).map(|_| world.takes(&limiter, 1)).collect();
    for permit in &recent[500..] {
        assert_eq!(world.memory.settle(*permit, 2), Ok);
        assert_eq!(world.memory.renew(*permit, None), Ok);
        assert_eq!(world.memory.release(*permit), Ok);
        assert_eq!(world.memory.release(*permit), Stale);
    }
    for _ in 0..5_000 {
        world.takes(&limiter, 1);
    }
    assert_eq!(world.memory.settle(old, 0), Stale);
    assert_eq!(world.memory.release(old), Stale);
    assert_eq!(world.memory.renew(old, None), Stale);
}

#[test]
fn a_booking_far_ahead_can_be_cancelled_after_many_later_ones() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(1, 1, SEC)]);
    let bookings: Vec<u64> = (0..5_000)
        .map(|_| world.memory.pace(&limiter, &ask(1, EVER)).permit)
        .collect();
    for permit in bookings[1..].iter().rev() {
        assert_eq!(world.memory.release(*permit), Ok);
    }
    assert_eq!(world.denied(&limiter, 1), SEC);
}

#[test]
fn settling_after_the_key_was_forgotten_still_charges_what_was_used_beyond() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(10, 10, SEC)]);
    let permit = world.takes(&limiter, 10);
    world.pass(Span::secs(5));
    // Enough to make every table grow, few enough for the permit to be remembered.
    for n in 0..50_000u32 {
        world
            .memory
            .acquire_blocking(&limiter, &on(&n.to_le_bytes(), 1, EVER));
    }
    let kept = world.totals().keys;
    assert_eq!(world.memory.settle(permit, 30), Ok);
    assert_eq!(world.totals().keys, kept + 1, "it had been forgotten");
    assert_eq!(world.denied(&limiter, 1), Span::millis(1_100));
}

/// Behind very many that are booked further ahead on other keys.
#[test]
fn a_paced_permit_is_remembered_when_its_time_has_come_while_many_others_wait() {
    let world = World::new();
    let pace = |limiter, key: &[u8]| world.memory.pace(limiter, &on(key, 1, EVER));
    let far = world.limiter("far", [tb(1, 1, SEC)]);
    let part = (0..2_000).map(|_| pace(&far, b"").permit & 63).max();
    let near = world.limiter("near", [tb(1, 1_000, SEC)]);
    let ahead = (0..10_000u32).map(|n| {
        let key = n.to_be_bytes();
        pace(&near, &key);
        pace(&near, &key)
    });
    let permit = ahead
        .map(|paced| paced.permit)
        .find(|permit| Some(permit & 63) == part);
    world.pass(Span::millis(2));
    pace(&far, b"");
    assert_eq!(world.memory.settle(permit.unwrap(), 0), Ok);
}
