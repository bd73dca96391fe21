//! Waits for a semaphore: in order over all clients, handed over by a note, found by the heartbeat.
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use limiter::client::{Client, ClientQueue};
use limiter::decision::Status;
use limiter::limiter::Limiter;
use limiter::op::Request;

use crate::kit::*;
use crate::support::server::Server;
use crate::support::{eventually, ms, secs};

const QUEUE: &str = "{limiter:S:s:}:q";

/// Waits until so many are in the semaphore's queue.
#[track_caller]
fn queued(server: &Server, count: usize) {
    eventually("they are in the queue", secs(20), || {
        server.ask::<usize>(&["ZCARD", QUEUE]) == count
    });
}

#[test]
fn a_thread_a_queue_and_a_callback_get_what_is_released_in_their_order() {
    let server = Server::start();
    let client = open(&server.url());
    let limiter = limiter(&client, "s", &[semaphore(1)]);
    let held = acquire(&limiter, &within(60_000));
    assert_eq!((held.status, held.waited_us, held.op), (Status::Ok, 0, 0));
    let queue = ClientQueue::new(&client).unwrap();
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| acquire(&limiter, &within(60_000)));
        queued(&server, 1);
        let request = Request {
            user_data: 5,
            ..within(60_000)
        };
        let started = queue.submit(&limiter, &request).unwrap();
        assert_eq!(started.status, Status::Pending);
        queued(&server, 2);
        let op = limiter
            .acquire_cb(&request, Box::new(move |d| tell.send(d).unwrap()))
            .unwrap();
        queued(&server, 3);
        std::thread::sleep(ms(20));
        assert_eq!(limiter.release(held.permit), Ok(Status::Ok));
        let first = thread.join().unwrap();
        assert_eq!(first.status, Status::Ok);
        assert!(first.waited_us >= 20_000 && first.op != 0 && first.fence > held.fence);
        assert_eq!(queue.poll(1, Some(ms(20))), Ok(vec![]));
        assert_eq!(limiter.release(first.permit), Ok(Status::Ok));
        let second = next(&queue);
        assert_eq!((second.op, second.user_data), (started.op, 5));
        assert!(told.try_recv().is_err());
        assert_eq!(limiter.release(second.permit), Ok(Status::Ok));
        let third = told.recv_timeout(secs(20)).unwrap();
        assert_eq!((third.status, third.op), (Status::Ok, op));
        assert!(third.fence > second.fence && second.fence > first.fence);
    });
    assert_eq!(client.stats().unwrap().waiting, 0);
}

/// A client that waits by a queue.
struct Waiter {
    client: Arc<Client>,
    limiter: Limiter,
    queue: ClientQueue,
}

impl Waiter {
    fn on(url: &str, capacity: u64) -> Waiter {
        let client = open(url);
        Waiter {
            limiter: limiter(&client, "s", &[semaphore(capacity)]),
            queue: ClientQueue::new(&client).unwrap(),
            client,
        }
    }

    fn waits(&self, request: &Request) -> u64 {
        let started = self.queue.submit(&self.limiter, request).unwrap();
        assert_eq!(started.status, Status::Pending);
        started.op
    }
}

#[test]
fn two_clients_are_served_first_in_first_out() {
    let server = Server::start();
    let waiters = [(); 2].map(|()| Waiter::on(&server.url(), 1));
    let mut holder = (0, acquire(&waiters[0].limiter, &weigh(1)).permit);
    let mut order = Vec::new();
    for n in 0..12 {
        let who = [0, 1, 1, 0][n % 4];
        order.push((who, waiters[who].waits(&within(60_000))));
        queued(&server, n + 1);
        // Nobody overtakes who waits.
        let hasty = acquire(&waiters[1 - who].limiter, &Request::TRY);
        assert_eq!(hasty.status, Status::Denied);
    }
    for (who, op) in order {
        assert_eq!(waiters[holder.0].limiter.release(holder.1), Ok(Status::Ok));
        let granted = next(&waiters[who].queue);
        assert_eq!((granted.status, granted.op), (Status::Ok, op));
        holder = (who, granted.permit);
    }
}

/// The medium time from a release to the grant elsewhere.
fn hand_overs(one: &Waiter, other: &Waiter, server: &Server) -> Duration {
    let mut times = Vec::new();
    let mut permit = acquire(&one.limiter, &within(20_000)).permit;
    let mut pair = [one, other];
    for _ in 0..9 {
        pair[1].waits(&within(60_000));
        queued(server, 1);
        let began = Instant::now();
        assert_eq!(pair[0].limiter.release(permit), Ok(Status::Ok));
        let granted = next(&pair[1].queue);
        times.push(began.elapsed());
        assert_eq!(granted.status, Status::Ok);
        permit = granted.permit;
        pair.swap(0, 1);
    }
    assert_eq!(pair[0].limiter.release(permit), Ok(Status::Ok));
    times.sort();
    times[times.len() / 2]
}

#[test]
fn a_release_is_heard_of_at_once_and_a_lost_note_is_made_good_by_the_heartbeat() {
    let server = Server::start();
    let (one, other) = (Waiter::on(&server.url(), 1), Waiter::on(&server.url(), 1));
    // The first one opens the connection for notes.
    hand_overs(&one, &other, &server);
    let noted = hand_overs(&one, &other, &server);
    // A beat comes after 400 to 600 ms.
    assert!(noted < ms(150), "{noted:?}");
    let done = AtomicBool::new(false);
    let deaf = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                server.ask::<usize>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
                std::thread::sleep(ms(2));
            }
        });
        let deaf = hand_overs(&one, &other, &server);
        done.store(true, Ordering::Relaxed);
        deaf
    });
    assert!(deaf < ms(1500), "{deaf:?}");
    println!("figure: hand-over: {noted:?} by a note, {deaf:?} without");
}

/// Nobody can tell when to come back, and it is not "at once".
#[test]
fn a_deadline_in_the_queue_of_a_silent_server_is_denied_with_a_lease_as_a_hint() {
    let server = Server::start();
    let client = open(&server.url());
    let limiter = limiter(&client, "s", &[leased(1, 7_000)]);
    let held = acquire(&limiter, &weigh(1));
    let denied = std::thread::scope(|scope| {
        let waits = scope.spawn(|| acquire(&limiter, &within(1_500)));
        queued(&server, 1);
        server.freeze();
        waits.join().unwrap()
    });
    server.thaw();
    assert_eq!(denied.status, Status::Denied);
    assert!(
        (1..=7_350_000).contains(&denied.retry_after_us),
        "{denied:?}"
    );
    assert_eq!(limiter.release(held.permit), Ok(Status::Ok));
}

#[test]
fn a_deadline_in_the_queue_is_denied_with_the_figures_and_leaves_nothing() {
    let server = Server::start();
    let client = open(&server.url());
    let limiter = limiter(&client, "s", &[semaphore(2)]);
    let held = acquire(&limiter, &weigh(1));
    let heavy = Request {
        wait: within(150).wait,
        ..weigh(2)
    };
    let began = Instant::now();
    let denied = acquire(&limiter, &heavy);
    assert!((ms(150)..secs(5)).contains(&began.elapsed()));
    assert_eq!((denied.status, denied.index), (Status::Denied, 0));
    assert_eq!((denied.limit, denied.remaining), (2, 1));
    assert!(denied.retry_after_us > 0 && denied.waited_us >= 150_000);
    let queue = ClientQueue::new(&client).unwrap();
    let started = queue.submit(&limiter, &heavy).unwrap();
    let denied = next(&queue);
    assert_eq!((denied.status, denied.op), (Status::Denied, started.op));
    assert_eq!((denied.index, denied.remaining), (0, 1));
    queued(&server, 0);
    assert_eq!(acquire(&limiter, &weigh(1)).status, Status::Ok);
    assert_eq!(limiter.release(held.permit), Ok(Status::Ok));
    let stats = client.stats().unwrap();
    assert_eq!((stats.denied, stats.waiting), (2, 0));
}

#[test]
fn who_is_cancelled_leaves_the_queue_and_a_grant_that_came_first_is_given_back() {
    let server = Server::start();
    let waiter = Waiter::on(&server.url(), 1);
    let (client, queue) = (&waiter.client, &waiter.queue);
    let cancelled = |op| {
        let done = next(queue);
        assert_eq!(
            (done.status, done.op, done.permit),
            (Status::Cancelled, op, 0)
        );
    };
    for _ in 0..20 {
        let held = acquire(&waiter.limiter, &within(20_000)).permit;
        // Queued; still being asked; detached; and one that stays.
        let first = waiter.waits(&within(60_000));
        queued(&server, 1);
        let second = waiter.waits(&within(60_000));
        assert_eq!(client.cancel(second, false), Ok(Status::Ok));
        assert_eq!(client.cancel(first, false), Ok(Status::Ok));
        cancelled(second);
        cancelled(first);
        let third = waiter.waits(&within(60_000));
        assert_eq!(client.cancel(third, true), Ok(Status::Ok));
        assert_eq!(client.cancel(third, true), Ok(Status::Stale));
        queued(&server, 0);
        // Cancelled while it may be granted any moment.
        let racing = waiter.waits(&within(60_000));
        queued(&server, 1);
        assert_eq!(waiter.limiter.release(held), Ok(Status::Ok));
        assert_eq!(client.cancel(racing, false), Ok(Status::Ok));
        let done = next(queue);
        assert_eq!(done.op, racing);
        match done.status {
            Status::Cancelled => {}
            _ => assert_eq!(waiter.limiter.release(done.permit), Ok(Status::Ok)),
        }
    }
    std::thread::scope(|scope| {
        let held = acquire(&waiter.limiter, &within(20_000)).permit;
        let request = Request {
            user_data: 9,
            ..within(60_000)
        };
        let limiter = &waiter.limiter;
        let thread = scope.spawn(move || acquire(limiter, &request));
        queued(&server, 1);
        let other = waiter.waits(&within(60_000));
        queued(&server, 2);
        assert_eq!(client.cancel_waits(9), Ok(1));
        assert_eq!(thread.join().unwrap().status, Status::Cancelled);
        assert_eq!(waiter.limiter.release(held), Ok(Status::Ok));
        let done = next(queue);
        assert_eq!((done.status, done.op), (Status::Ok, other));
        assert_eq!(waiter.limiter.release(done.permit), Ok(Status::Ok));
    });
    assert_eq!(remaining(&waiter.limiter), 1);
}

#[test]
fn a_freed_queue_gives_back_its_grants_and_its_places() {
    let server = Server::start();
    let Waiter {
        client,
        limiter,
        queue,
    } = Waiter::on(&server.url(), 2);
    for _ in 0..4 {
        queue.submit(&limiter, &within(60_000)).unwrap();
    }
    queued(&server, 2);
    eventually("two are granted", secs(20), || {
        client.stats().unwrap().in_flight == 2
    });
    drop(queue);
    queued(&server, 0);
    assert_eq!(
        acquire(
            &limiter,
            &Request {
                wait: within(5_000).wait,
                ..weigh(2)
            }
        )
        .status,
        Status::Ok
    );
    assert_eq!(client.stats().unwrap().in_flight, 1);
}

#[test]
fn a_rate_behind_the_semaphore_is_waited_for_too() {
    let server = Server::start();
    let client = open(&server.url());
    let limits = [leased(2, 1000), bucket(1, 5, 1_000_000)];
    let limiter = limiter(&client, "s", &limits);
    let queue = ClientQueue::new(&client).unwrap();
    let began = Instant::now();
    let first = acquire(&limiter, &weigh(1));
    // Booked for a time, in the semaphore already.
    let second = queue.submit(&limiter, &within(60_000)).unwrap();
    eventually("it is booked", secs(10), || remaining(&limiter) == 0);
    let third = queue.submit(&limiter, &within(60_000)).unwrap();
    let granted = next(&queue);
    assert_eq!((granted.status, granted.op), (Status::Ok, second.op));
    assert!(began.elapsed() >= ms(200) && granted.waited_us > 0);
    assert_eq!(limiter.release(first.permit), Ok(Status::Ok));
    let granted = next(&queue);
    assert_eq!((granted.status, granted.op), (Status::Ok, third.op));
    assert!(began.elapsed() >= ms(400), "{:?}", began.elapsed());
    // A penalty puts off what is booked.
    let fourth = queue.submit(&limiter, &within(60_000)).unwrap();
    assert_eq!(limiter.release(granted.permit), Ok(Status::Ok));
    let began = Instant::now();
    assert_eq!(
        limiter.penalize(b"", limiter::limit::time::Span::millis(800)),
        Ok(Status::Ok)
    );
    let granted = next(&queue);
    assert_eq!((granted.status, granted.op), (Status::Ok, fourth.op));
    assert!(began.elapsed() >= ms(790), "{:?}", began.elapsed());
    // One that is cancelled before its time gives it back.
    let far = queue.submit(&limiter, &within(60_000)).unwrap();
    assert_eq!(client.cancel(far.op, false), Ok(Status::Ok));
    assert_eq!(next(&queue).status, Status::Cancelled);
    assert_eq!(client.stats().unwrap().in_flight, 2);
}

#[test]
fn a_thousand_wait_on_few_connections() {
    let server = Server::start();
    let client = open(&server.url());
    let limiter = limiter(&client, "s", &[semaphore(5)]);
    let queue = ClientQueue::new(&client).unwrap();
    let held = acquire(&limiter, &weigh(5)).permit;
    for _ in 0..1000 {
        let started = queue.submit(&limiter, &within(600_000)).unwrap();
        assert_eq!(started.status, Status::Pending);
    }
    queued(&server, 1000);
    let clients: String = server.ask(&["CLIENT", "LIST"]);
    let ours = clients
        .lines()
        .filter(|line| !line.contains("cmd=client"))
        .count();
    let hearing = clients
        .lines()
        .filter(|line| line.contains(" sub=2 "))
        .count();
    assert_eq!((ours, hearing), (2, 1), "{clients}");
    // They outlive the life of a wait several times.
    std::thread::sleep(secs(5));
    assert_eq!(server.ask::<usize>(&["ZCARD", QUEUE]), 1000);
    let began = Instant::now();
    assert_eq!(limiter.release(held), Ok(Status::Ok));
    let mut last = 0;
    for _ in 0..1000 {
        let granted = next(&queue);
        assert_eq!(granted.status, Status::Ok);
        assert!(granted.fence > last);
        last = granted.fence;
        assert_eq!(limiter.release(granted.permit), Ok(Status::Ok));
    }
    println!(
        "figure: 1000 hand-overs, 5 at once: {} ms",
        began.elapsed().as_millis()
    );
    assert_eq!(client.stats().unwrap().waiting, 0);
    assert_eq!(remaining(&limiter), 5);
}

#[test]
fn too_many_waits_and_completions_that_nobody_takes_are_refused() {
    let server = Server::start();
    for url in ["memory://".to_owned(), server.url()] {
        let settings = [("max_waiting", "2"), ("command_timeout_ms", "5000")];
        let client = open_with(&url, &settings);
        let limiter = limiter(&client, "s", &[semaphore(1)]);
        let queue = ClientQueue::new(&client).unwrap();
        let held = acquire(&limiter, &Request::TRY).permit;
        for _ in 0..2 {
            let started = queue.submit(&limiter, &within(60_000)).unwrap();
            assert_eq!(started.status, Status::Pending);
        }
        let refused = queue.submit(&limiter, &within(60_000)).unwrap();
        assert_eq!(refused.status, Status::Overloaded, "{url}");
        assert_eq!(client.cancel_waits(0), Ok(2));
        let refused = queue.submit(&limiter, &within(60_000)).unwrap();
        assert_eq!(refused.status, Status::Overloaded, "{url}");
        assert_eq!(queue.poll(9, Some(secs(20))).unwrap().len(), 2);
        assert_eq!(limiter.release(held), Ok(Status::Ok));
        assert_eq!(client.stats().unwrap().overloaded, 2);
    }
}

#[test]
fn a_note_that_may_not_be_published_tears_nothing() {
    let server = Server::start();
    server.ask::<()>(&["ACL", "SETUSER", "default", "-publish"]);
    // By turns, so that no release's answer tells of the grant.
    let both = [1, 2].map(|_| Waiter::on(&server.url(), 1));
    let mut held = acquire(&both[0].limiter, &within(0)).permit;
    for round in 0..3 {
        let (here, there) = (&both[round % 2], &both[(round + 1) % 2]);
        let waiting = there.queue.submit(&there.limiter, &within(60_000)).unwrap();
        queued(&server, 1);
        assert_eq!(here.limiter.release(held), Ok(Status::Ok));
        // Nobody tells; the heartbeat finds it out.
        let granted = next(&there.queue);
        assert_eq!(
            (granted.op, granted.status),
            (waiting.op, Status::Ok),
            "{round}"
        );
        held = granted.permit;
    }
    assert_eq!(both[1].limiter.release(held), Ok(Status::Ok));
    eventually("it is given back", secs(20), || {
        both[0]
            .limiter
            .peek(&weigh(1))
            .is_ok_and(|it| it.status == Status::Ok)
    });
}

#[test]
fn a_process_hands_a_permit_to_its_own_next_wait_in_one_call() {
    const WAITS: u64 = 40;
    let server = Server::start();
    let Waiter {
        client,
        limiter,
        queue,
    } = Waiter::on(&server.url(), 1);
    let mut held = acquire(&limiter, &within(0)).permit;
    for _ in 0..WAITS {
        queue.submit(&limiter, &within(60_000)).unwrap();
    }
    queued(&server, WAITS as usize);
    let before = client.stats().unwrap().backend_calls;
    for _ in 0..WAITS {
        assert_eq!(limiter.release(held), Ok(Status::Ok));
        held = next(&queue).permit;
    }
    // Two for each would be 80; the heartbeat has a few of its own.
    let calls = client.stats().unwrap().backend_calls - before;
    assert!((WAITS..WAITS * 3 / 2).contains(&calls), "{calls}");
    // What the answer says needs no note.
    let stats: String = server.ask(&["INFO", "commandstats"]);
    let of_notes = stats.lines().find_map(|line| {
        let numbers = line.strip_prefix("cmdstat_publish:calls=")?;
        numbers.split(',').next()?.parse::<u64>().ok()
    });
    assert!(of_notes.unwrap_or(0) <= WAITS / 4, "{of_notes:?}");
}

/// What is told to Redis of a wait is of the newest handle, and so is how soon it is said again.
#[test]
fn who_waits_through_an_older_handle_keeps_his_place_when_a_newer_one_has_a_shorter_lease() {
    let server = Server::start();
    let client = open(&server.url());
    let older = limiter(&client, "s", &[leased(1, 30_000)]);
    let held = acquire(&older, &weigh(1)).permit;
    let queue = ClientQueue::new(&client).unwrap();
    for _ in 0..40 {
        queue.submit(&older, &within(60_000)).unwrap();
    }
    queued(&server, 40);
    let order = || server.ask::<Vec<String>>(&["ZRANGE", QUEUE, "0", "-1"]);
    let first = order();
    let newer = limiter(&client, "s", &[leased(1, 1_600)]);
    // Three times as long as Redis keeps a wait of which nothing is heard.
    let until = Instant::now() + ms(2_400);
    while Instant::now() < until {
        assert!(order() == first, "they come in another order");
        std::thread::sleep(ms(50));
    }
    assert_eq!(newer.release(held), Ok(Status::Ok));
    assert_eq!(next(&queue).status, Status::Ok);
}
