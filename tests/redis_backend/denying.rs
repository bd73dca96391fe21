//! A denial that still stands is repeated without asking Redis. What is done to the key meanwhile counts: at
//! once if this client does it, soon if others do.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use limiter::client::Client;
use limiter::decision::{Decision, Status};
use limiter::limit::time::Span;
use limiter::limiter::{LimitSpec, Limiter};
use limiter::op::{Request, Weights};

use crate::kit::*;
use crate::support::server::Server;
use crate::support::{eventually, ms, secs};

/// For as long as a test lasts no denial is asked again for having stood for long.
fn client(server: &Server) -> Arc<Client> {
    open_with(&server.url(), &[PATIENT, ("deny_cache_ms", "1000")])
}

/// Nothing is refilled as long as a test lasts.
fn full(count: u64) -> LimitSpec {
    bucket(count, count, HOUR)
}

fn try_(limiter: &Limiter, weight: u64) -> Decision {
    acquire(limiter, &weigh(weight))
}

#[test]
fn it_is_repeated_without_a_call_and_the_time_left_becomes_less() {
    let server = Server::start();
    let client = client(&server);
    let limiter = limiter(&client, "denied", &[full(1)]);
    assert_eq!(try_(&limiter, 1).status, Status::Ok);
    let first = try_(&limiter, 1);
    assert_eq!(first.status, Status::Denied);
    let (asked, denied) = (server.calls(), client.stats().unwrap().denied);
    let mut last = first;
    let mut within_its_time = 0;
    for n in 1..=1000 {
        let again = Decision {
            user_data: n,
            ..acquire(
                &limiter,
                &Request {
                    user_data: n,
                    ..Request::TRY
                },
            )
        };
        assert!(again.retry_after_us <= last.retry_after_us);
        assert!(again.reset_after_us <= last.reset_after_us);
        let told = |d: Decision| {
            (
                d.status,
                d.index,
                d.limit,
                d.remaining,
                d.permit,
                d.op,
                d.flags,
            )
        };
        assert_eq!(told(again), told(first));
        within_its_time += 1;
        last = again;
    }
    assert!(last.retry_after_us < first.retry_after_us);
    // A thousand of them may take longer than one stands, on a busy machine.
    let asked = server.calls() - asked;
    assert!(
        asked < within_its_time / 10,
        "{asked} of {within_its_time} calls"
    );
    assert_eq!(client.stats().unwrap().denied - denied, 1000);
}

#[test]
fn it_is_over_when_its_time_is() {
    let server = Server::start();
    let client = client(&server);
    let limiter = limiter(&client, "denied", &[bucket(1, 1, 200_000)]);
    for _ in 0..5 {
        eventually("it passes again", secs(20), || {
            try_(&limiter, 1).status == Status::Ok
        });
        let denied = try_(&limiter, 1);
        if denied.status == Status::Ok {
            continue; // the machine slept for so long
        }
        std::thread::sleep(std::time::Duration::from_micros(denied.retry_after_us));
        assert_eq!(
            try_(&limiter, 1).status,
            Status::Ok,
            "the time it told was enough"
        );
    }
}

#[test]
fn other_weights_longer_waits_and_other_keys_are_asked_for() {
    let server = Server::start();
    let client = client(&server);
    let limiter = limiter(&client, "denied", &[bucket(10, 10, 10_000_000)]);
    assert_eq!(try_(&limiter, 8).status, Status::Ok);
    assert_eq!(try_(&limiter, 6).status, Status::Denied);
    assert_eq!(try_(&limiter, 11).status, Status::Never);
    assert_eq!(try_(&limiter, 1).status, Status::Ok, "a lighter one passes");
    let other = Request {
        key: b"other",
        ..weigh(6)
    };
    assert_eq!(acquire(&limiter, &other).status, Status::Ok);
    let patient = Request {
        wait: Some(Span::secs(20)),
        ..weigh(6)
    };
    assert_eq!(
        acquire(&limiter, &patient).status,
        Status::Ok,
        "it waits for as long as it takes"
    );
}

#[test]
fn a_wait_that_is_too_short_is_not_asked_for_either() {
    let server = Server::start();
    let client = client(&server);
    let limiter = limiter(&client, "denied", &[full(1)]);
    assert_eq!(try_(&limiter, 1).status, Status::Ok);
    assert_eq!(try_(&limiter, 1).status, Status::Denied);
    let asked = server.calls();
    let again = acquire(&limiter, &within(1000));
    assert_eq!((again.status, again.waited_us), (Status::Denied, 0));
    assert!(again.retry_after_us > 1_000_000);
    assert_eq!(server.calls(), asked);
}

#[test]
fn what_this_client_does_to_the_key_counts_at_once() {
    let server = Server::start();
    let client = client(&server);
    type Act = fn(&Arc<Client>, &Limiter, u64);
    let acts: [(&str, Act, Status); 5] = [
        (
            "settle",
            |_, limiter, permit| {
                assert_eq!(limiter.settle(permit, 0).unwrap(), Status::Ok);
            },
            Status::Ok,
        ),
        (
            "reset",
            |_, limiter, _| {
                assert_eq!(limiter.reset(b"").unwrap(), Status::Ok);
            },
            Status::Ok,
        ),
        (
            "other limits",
            |client, _, _| {
                let other = self::limiter(client, "other limits", &[bucket(2, 2, 1000)]);
                assert_eq!(try_(&other, 0).limit, 2);
                std::thread::sleep(ms(5));
            },
            Status::Ok,
        ),
        (
            "penalize",
            |_, limiter, _| {
                assert_eq!(limiter.penalize(b"", Span::secs(3600)).unwrap(), Status::Ok);
            },
            Status::Denied,
        ),
        (
            "shutdown",
            |client, _, _| {
                client.shutdown(Some(secs(5))).unwrap();
            },
            Status::Closed,
        ),
    ];
    for (name, act, then) in acts {
        // It refills before the penalty is over, and long after the test.
        let limiter = limiter(&client, name, &[bucket(2, 2, HOUR / 10)]);
        let held = try_(&limiter, 2);
        assert_eq!(held.status, Status::Ok, "{name}");
        let before = try_(&limiter, 2);
        assert_eq!(before.status, Status::Denied, "{name}");
        act(&client, &limiter, held.permit);
        let after = limiter.acquire(&weigh(2)).unwrap_or_else(Decision::of);
        assert_eq!(after.status, then, "{name}");
        if then == Status::Denied {
            assert!(after.retry_after_us > before.retry_after_us, "{name}");
        }
    }
}

#[test]
fn a_slot_that_is_given_back_counts_at_once() {
    let server = Server::start();
    let client = client(&server);
    let limiter = limiter(&client, "slots", &[full(1)]);
    assert_eq!(try_(&limiter, 1).status, Status::Ok);
    for _ in 0..20 {
        let long = Request {
            wait: Some(Span::secs(100_000)),
            ..weigh(1)
        };
        let slot = limiter.pace(&long).unwrap();
        assert_eq!(slot.status, Status::Ok);
        let behind = try_(&limiter, 1);
        assert_eq!(behind.status, Status::Denied);
        assert_eq!(limiter.release(slot.permit).unwrap(), Status::Ok);
        let now = try_(&limiter, 1);
        assert!(
            now.retry_after_us + HOUR / 2 < behind.retry_after_us,
            "{now:?} after {behind:?}"
        );
    }
}

/// Others are denied on the key all the time, by calls that were begun before and after the settle.
#[test]
fn a_settle_counts_at_once_among_denials_under_way() {
    let server = Server::start();
    let client = client(&server);
    let limiter = limiter(&client, "busy", &[full(10)]);
    let (over, admitted) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    if try_(&limiter, 5).status == Status::Ok {
                        admitted.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
        for _ in 0..300 {
            assert_eq!(limiter.reset(b"").unwrap(), Status::Ok);
            let held = try_(&limiter, 8);
            if held.status != Status::Ok {
                continue;
            }
            let before = admitted.load(Ordering::SeqCst);
            assert_eq!(limiter.settle(held.permit, 0).unwrap(), Status::Ok);
            let mine = try_(&limiter, 5).status == Status::Ok;
            // Whoever was first: somebody has heard that there is room.
            if !mine {
                eventually("somebody passes", secs(5), || {
                    admitted.load(Ordering::SeqCst) > before
                });
            }
        }
        over.store(true, Ordering::SeqCst);
    });
}

#[test]
fn what_others_do_is_heard_of_within_the_time_that_is_set() {
    let server = Server::start();
    let other = open(&server.url());
    for (name, set, most) in [("soon", "1000", 1_000), ("at once", "0", 0)] {
        let here = open_with(&server.url(), &[PATIENT, ("deny_cache_ms", set)]);
        let mine = limiter(&here, name, &[full(1)]);
        let theirs = limiter(&other, name, &[full(1)]);
        assert_eq!(try_(&mine, 1).status, Status::Ok);
        assert_eq!(try_(&mine, 1).status, Status::Denied);
        assert_eq!(theirs.reset(b"").unwrap(), Status::Ok);
        let before = std::time::Instant::now();
        let within = ms(most) + secs(10); // a call may take that long
        eventually("it passes", within, || try_(&mine, 1).status == Status::Ok);
        if most > 0 {
            // At least it stood for a while: else nothing was repeated here.
            assert!(before.elapsed() < within);
        }
    }
}

#[test]
fn each_of_many_weights_is_compared() {
    let server = Server::start();
    let client = client(&server);
    let limits = [full(1), bucket(100, 100, HOUR)];
    let limiter = limiter(&client, "each", &limits);
    let each = |weights: &'static [u64]| Request {
        weights: Weights::Each(weights),
        ..Request::TRY
    };
    assert_eq!(acquire(&limiter, &each(&[1, 50])).status, Status::Ok);
    assert_eq!(acquire(&limiter, &each(&[1, 1])).status, Status::Denied);
    let asked = server.calls();
    assert_eq!(acquire(&limiter, &each(&[1, 1])).status, Status::Denied);
    assert_eq!(server.calls(), asked);
    assert_eq!(acquire(&limiter, &each(&[0, 50])).status, Status::Ok);
}
