//! Several clients on one server never admit more than one would.
use std::sync::Barrier;

use limiter::decision::Status;
use limiter::op::Request;

use crate::kit::*;
use crate::support::server::Server;

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
    let still = acquire(&narrow, &Request::TRY);
    assert_eq!((still.limit, still.remaining), (10, 7));
}

#[test]
fn of_equal_versions_the_last_opened_decides_over_all_clients() {
    let server = Server::start();
    let clients: Vec<_> = (0..3).map(|_| open(&server.url())).collect();
    let first = limiter(&clients[0], "v", &[bucket(40, 1, HOUR)]);
    // The first call tells a client the server's clock.
    assert_eq!(acquire(&first, &Request::TRY).limit, 40);
    let second = limiter(&clients[1], "v", &[bucket(50, 1, HOUR)]);
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
    assert_eq!(granted, 60, "nothing is minted by turns");
}
