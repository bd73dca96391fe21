//! Several clients on one server never admit more than one would.
use std::sync::Barrier;

use limiter::decision::Status;
use limiter::limit::time::Span;
use limiter::op::Request;

use crate::kit::*;
use crate::load::MANY;
use crate::support::server::Server;
use crate::support::{eventually, ms, secs};

#[test]
fn four_clients_with_many_threads_admit_exactly_what_the_bucket_holds() {
    let server = Server::start();
    let url = server.url();
    let clients: Vec<_> = (0..4).map(|_| open(&url)).collect();
    let go = Barrier::new(8);
    let granted: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|n| {
                let (client, go) = (&clients[n % 4], &go);
                scope.spawn(move || {
                    let limiter = limiter(client, "shared", &[bucket(100, 1, HOUR)]);
                    go.wait();
                    let tries = (0..40).map(|_| acquire(&limiter, &Request::TRY).status);
                    tries
                        .inspect(|s| assert!(matches!(s, Status::Ok | Status::Denied), "{s:?}"))
                        .filter(|s| *s == Status::Ok)
                        .count()
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert_eq!(granted, 100);
}

#[test]
fn a_newer_version_wins_over_all_clients() {
    let server = Server::start();
    let (old, new) = (open(&server.url()), open(&server.url()));
    let narrow = limiter(&old, "v", &[bucket(2, 1, HOUR)]);
    let mut wide = bucket(10, 1, HOUR);
    wide.version = 1;
    let wide = limiter(&new, "v", &[wide]);
    assert_eq!(acquire(&narrow, &Request::TRY).limit, 2);
    assert_eq!(acquire(&wide, &Request::TRY).limit, 10);
    // The room that it gains is empty.
    let still = acquire(&narrow, &Request::TRY);
    assert_eq!((still.status, still.limit), (Status::Denied, 10));
}

#[test]
fn of_equal_versions_the_last_opened_decides_over_all_clients() {
    let server = Server::start();
    let clients: Vec<_> = (0..3).map(|_| open(&server.url())).collect();
    let first = limiter(&clients[0], "v", &[bucket(40, 1, HOUR)]);
    // The first call tells a client the server's clock.
    assert_eq!(acquire(&first, &Request::TRY).limit, 40);
    // Who was first is known as well as a call takes.
    let apart = || std::thread::sleep(ms(500));
    apart();
    let second = limiter(&clients[1], "v", &[bucket(50, 1, HOUR)]);
    apart();
    let third = limiter(&clients[0], "v", &[bucket(60, 1, HOUR)]);
    let again = limiter(&clients[2], "v", &[bucket(60, 1, HOUR)]);
    assert_eq!(acquire(&second, &Request::TRY).limit, 50);
    assert_eq!(acquire(&third, &Request::TRY).limit, 60);
    let mut granted = 3;
    for _ in 0..40 {
        for one in [&first, &second, &third, &again] {
            let decision = acquire(one, &Request::TRY);
            assert_eq!(decision.limit, 60);
            granted += usize::from(decision.status == Status::Ok);
        }
    }
    // What the first one held; room that is gained is empty.
    assert_eq!(granted, 40, "nothing is minted by turns");
}

/// Handles of one name in one client, of the same and of other numbers.
#[test]
fn what_one_handle_did_is_seen_by_every_other_of_the_name() {
    let server = Server::start();
    let client = open(&server.url());
    let limits = |rate| [semaphore(1), bucket(MANY, rate, HOUR)];
    let handles = [1, 1, 2].map(|rate| limiter(&client, "s", &limits(rate)));
    for n in 0..300 {
        let [one, other] = [n % 3, (n + 1 + n / 3 % 2) % 3].map(|n| &handles[n]);
        let first = acquire(one, &Request::TRY);
        assert_eq!(first.status, Status::Ok, "{n}");
        assert_eq!(acquire(other, &Request::TRY).status, Status::Denied, "{n}");
        assert_eq!(one.release(first.permit), Ok(Status::Ok));
        let second = acquire(other, &Request::TRY);
        assert_eq!(second.status, Status::Ok, "{n}: after the release");
        match n % 3 {
            0 => assert_eq!(one.release(second.permit), Ok(Status::Ok)),
            1 => assert_eq!(other.release(second.permit), Ok(Status::Ok)),
            _ => {
                assert_eq!(one.reset(b""), Ok(Status::Ok));
                assert_eq!(other.release(second.permit), Ok(Status::Stale), "{n}");
            }
        }
    }
    assert_eq!(client.stats().unwrap().lost, 0);
}

#[test]
fn a_penalty_by_one_handle_moves_what_another_has_booked() {
    let server = Server::start();
    let client = open(&server.url());
    let handles = [(); 2].map(|()| limiter(&client, "s", &[bucket(1, 1, 500_000)]));
    assert_eq!(acquire(&handles[0], &Request::TRY).status, Status::Ok);
    std::thread::scope(|scope| {
        let booked = scope.spawn(|| acquire(&handles[1], &within(60_000)));
        eventually("it is booked", secs(20), || {
            client.stats().unwrap().waiting == 1
        });
        std::thread::sleep(ms(100));
        assert_eq!(handles[0].penalize(b"", Span::secs(2)), Ok(Status::Ok));
        let granted = booked.join().unwrap();
        assert_eq!(granted.status, Status::Ok);
        assert!(granted.waited_us > 2_000_000, "{granted:?}");
    });
}
