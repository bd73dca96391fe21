//! A forked child makes connections of its own and leaves the parent's alone.
use std::panic::{AssertUnwindSafe, catch_unwind};

use limiter::client::ClientQueue;
use limiter::decision::Status;
use limiter::op::Request;

use crate::kit::*;
use crate::support::server::Server;
use crate::support::{eventually, secs};

/// Runs `body` in a forked child, which ends without tidying up; whether it came to its end.
fn in_child(body: impl FnOnce()) -> bool {
    // SAFETY: the child calls what the library promises to work after a fork, then ends at once.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let failed = catch_unwind(AssertUnwindSafe(body)).is_err();
        unsafe { libc::_exit(failed.into()) };
    }
    let mut status = 0;
    eventually("the child ended", secs(30), || {
        // SAFETY: a child of this process that nobody else waits for.
        unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) == child }
    });
    status == 0
}

#[test]
fn b_136_a_child_decides_on_the_same_limits_and_the_parent_goes_on() {
    let server = Server::start();
    let client = open(&server.url());
    let limiter = limiter(&client, "f", &[bucket(100, 1, HOUR)]);
    let queue = ClientQueue::new(&client).unwrap();
    let permit = acquire(&limiter, &Request::TRY).permit;
    let waiting = queue.submit(&limiter, &within(0)).unwrap();
    let fine = in_child(|| {
        let own = acquire(&limiter, &Request::TRY);
        assert_eq!(own.status, Status::Ok);
        assert_eq!(limiter.settle(permit, 0), Ok(Status::Forked));
        assert_eq!(limiter.settle(own.permit, 0), Ok(Status::Ok));
        let started = queue.submit(&limiter, &Request::TRY).unwrap();
        let done = queue.poll(9, Some(secs(10))).unwrap();
        assert_eq!((done.len(), done[0].op), (1, started.op));
        let grandchild = in_child(|| {
            assert_eq!(acquire(&limiter, &Request::TRY).status, Status::Ok);
        });
        assert!(grandchild);
        assert_eq!(client.shutdown(Some(secs(10))), Ok(Status::Ok));
    });
    assert!(fine, "the child failed");
    let done = queue.poll(9, Some(secs(10))).unwrap();
    assert_eq!((done.len(), done[0].op), (1, waiting.op));
    assert_eq!(limiter.settle(permit, 1), Ok(Status::Ok));
    // Of five that were taken, the child gave one back.
    assert_eq!(remaining(&limiter), 96);
    assert_eq!(client.stats().unwrap().connects, connects_of_one(&server));
}

/// How often one client connects for one call.
fn connects_of_one(server: &Server) -> u64 {
    let client = open(&server.url());
    let limiter = limiter(&client, "g", &[bucket(1, 1, HOUR)]);
    assert_eq!(acquire(&limiter, &Request::TRY).status, Status::Ok);
    client.stats().unwrap().connects
}

#[test]
fn b_136_a_childs_permits_are_its_own_and_the_parents_go_on() {
    let server = Server::start();
    let client = open(&server.url());
    let limiter = limiter(&client, "f", &[leased(3, 600)]);
    let queue = ClientQueue::new(&client).unwrap();
    let held = acquire(&limiter, &weigh(2)).permit;
    let waiting = queue
        .submit(
            &limiter,
            &Request {
                wait: None,
                ..weigh(2)
            },
        )
        .unwrap();
    eventually("it waits", secs(10), || {
        server.ask::<usize>(&["ZCARD", "{limiter:S:f:}:q"]) == 1
    });
    let fine = in_child(|| {
        for act in [
            limiter.release(held),
            limiter.renew(held, None),
            limiter.settle(held, 1),
            client.cancel(waiting.op, false),
        ] {
            assert_eq!(act, Ok(Status::Forked));
        }
        assert_eq!(acquire(&limiter, &Request::TRY).status, Status::Denied);
        let started = queue.submit(&limiter, &within(100)).unwrap();
        let done = queue.poll(9, Some(secs(10))).unwrap();
        assert_eq!((done[0].op, done[0].status), (started.op, Status::Denied));
        assert_eq!(client.shutdown(Some(secs(10))), Ok(Status::Ok));
    });
    assert!(fine, "the child failed");
    std::thread::sleep(std::time::Duration::from_millis(1200));
    assert_eq!(limiter.release(held), Ok(Status::Ok));
    let done = queue.poll(9, Some(secs(10))).unwrap();
    assert_eq!((done[0].op, done[0].status), (waiting.op, Status::Ok));
    assert_eq!(limiter.release(done[0].permit), Ok(Status::Ok));
    assert_eq!((remaining(&limiter), client.stats().unwrap().lost), (3, 0));
}
