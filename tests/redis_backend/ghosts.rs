//! Each call takes once or not at all: when replies are lost, and when a frozen server comes back to what
//! was given up long ago.
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use limiter::decision::{Decision, Status};
use limiter::limiter::{LimitSpec, Limiter};
use limiter::op::{Request, Weights};

use crate::kit::*;
use crate::load::*;
use crate::support::proxy::{Mode, Proxy};
use crate::support::server::Server;
use crate::support::{eventually, ms, secs};

/// A call on a key of its own.
struct Call {
    key: String,
    status: Status,
    began: Instant,
    ended: Instant,
}

/// Calls, each on another key, until told to stop.
fn calls(
    limiter: &Limiter,
    who: usize,
    pause: Duration,
    over: &AtomicBool,
    told: &Mutex<Vec<Call>>,
) {
    let mut mine = Vec::new();
    for n in 0.. {
        if over.load(Ordering::SeqCst) {
            break;
        }
        let key = format!("{who}-{n}");
        let began = Instant::now();
        let decision: Decision = acquire(
            limiter,
            &Request {
                key: key.as_bytes(),
                ..Request::TRY
            },
        );
        let (status, ended) = (decision.status, Instant::now());
        mine.push(Call {
            key,
            status,
            began,
            ended,
        });
        if decision.permit != 0 {
            limiter.release(decision.permit).unwrap();
        }
        std::thread::sleep(pause);
    }
    told.lock().unwrap().extend(mine);
}

/// What was taken on a key: the last limit counts.
#[track_caller]
fn taken(limiter: &Limiter, limits: usize, key: &str) -> u64 {
    let mut weights = vec![0; limits];
    weights[limits - 1] = MANY + 1;
    let request = Request {
        key: key.as_bytes(),
        weights: Weights::Each(&weights),
        ..Request::TRY
    };
    let never = limiter.peek(&request).unwrap();
    assert_eq!(never.status, Status::Never);
    MANY - never.remaining
}

/// Calls through clients of their own, while something happens.
fn told(
    url: &str,
    limits: &[LimitSpec],
    (clients, pause): (usize, Duration),
    trouble: impl FnOnce(),
) -> Vec<Call> {
    let (over, told) = (AtomicBool::new(false), Mutex::default());
    let limiters: Vec<Limiter> = (0..clients)
        .map(|_| limiter(&hasty(url), "g", limits))
        .collect();
    std::thread::scope(|scope| {
        for (n, limiter) in limiters.iter().enumerate() {
            let (over, told) = (&over, &told);
            scope.spawn(move || calls(limiter, n, pause, over, told));
        }
        trouble();
        over.store(true, Ordering::SeqCst);
    });
    for limiter in &limiters {
        // What is to be given back has been, when this is over.
        limiter.client().shutdown(Some(secs(10))).unwrap();
    }
    told.into_inner().unwrap()
}

/// A server that is stopped for 5 s. None of what was given up meanwhile has taken anything after it.
fn frozen(what: &str, limits: &[LimitSpec]) {
    let server = Server::start();
    let (mut frozen, mut thawed) = (Instant::now(), Instant::now());
    let calls = told(&server.url(), limits, (30, ms(50)), || {
        std::thread::sleep(ms(800));
        server.freeze();
        // Most callers pause just now, and ask soon after.
        frozen = Instant::now() + ms(10);
        std::thread::sleep(secs(5));
        thawed = Instant::now();
        server.thaw();
        let probe = limiter(&hasty(&server.url()), "probe", &[tally()]);
        let took = eventually("Redis decides again", secs(5), || {
            acquire(&probe, &Request::TRY).status == Status::Ok
        });
        println!("figure: {what}: decides again {took:?} after 5 s of SIGSTOP");
        std::thread::sleep(ms(500));
    });
    let there: HashSet<String> = server
        .ask::<Vec<String>>(&["KEYS", "*:s"])
        .into_iter()
        .collect();
    let limiter = limiter(&open(&server.url()), "g", limits);
    let (mut given_up, mut admitted, mut longest) = (0, 0, Duration::ZERO);
    for call in &calls {
        longest = longest.max(call.ended - call.began);
        let exists = there
            .iter()
            .any(|key| key.ends_with(&format!(":g:{}}}:s", call.key)));
        let taken = if exists {
            taken(&limiter, limits.len(), &call.key)
        } else {
            0
        };
        match call.status {
            Status::Ok => assert_eq!(taken, 1, "{}", call.key),
            _ if call.began > frozen && call.ended < thawed => {
                assert_eq!(taken, 0, "{what}: {} ran later", call.key);
                given_up += usize::from(call.status == Status::UnknownOutcome);
            }
            Status::UnknownOutcome => assert!(taken <= 1, "{}", call.key),
            Status::Backend => assert_eq!(taken, 0, "{}", call.key),
            other => panic!("{other:?}"),
        }
        admitted += usize::from(call.status == Status::Ok);
    }
    println!(
        "figure: {what}: {admitted} admitted, {} not; of {given_up} sent while it was stopped none ran later; \
         longest call {longest:?}",
        calls.len() - admitted
    );
    assert!(admitted > 100 && given_up >= 8, "{admitted} {given_up}");
}

#[test]
fn what_was_given_up_while_a_server_was_stopped_does_not_run_later() {
    frozen("rates", &[tally()]);
}

#[test]
fn what_was_given_up_of_a_semaphore_while_a_server_was_stopped_does_not_run_later() {
    frozen("semaphore", &[semaphore(1), tally()]);
}

/// Loses replies for so long, but not all that a connection begins with. Answers how many.
fn lossy(proxy: &Proxy, length: Duration) -> usize {
    let (mut lost, began) = (0, Instant::now());
    while began.elapsed() < length {
        proxy.set(Mode::LoseReply);
        std::thread::sleep(ms(8));
        lost += usize::from(proxy.mode() == Mode::Forward);
        proxy.set(Mode::Forward);
        std::thread::sleep(ms(25));
    }
    lost
}

#[test]
fn b_107_a_reply_that_is_lost_after_the_command_ran_never_charges_twice() {
    let server = Server::start();
    let proxy = Proxy::before(server.port);
    let calls = told(&proxy.url(), &[tally()], (4, ms(1)), || {
        lossy(&proxy, secs(3));
    });
    let limiter = limiter(&open(&server.url()), "g", &[tally()]);
    let (mut admitted, mut unknown, mut ran) = (0, 0, 0);
    for call in &calls {
        let taken = taken(&limiter, 1, &call.key);
        match call.status {
            Status::Ok => assert_eq!(taken, 1, "{}", call.key),
            Status::Backend => assert_eq!(taken, 0, "{}", call.key),
            _ => {
                assert!(
                    call.status == Status::UnknownOutcome && taken <= 1,
                    "{}: {taken}",
                    call.key
                );
                (unknown, ran) = (unknown + 1, ran + taken);
            }
        }
        admitted += usize::from(call.status == Status::Ok);
    }
    println!(
        "figure: lost replies: {admitted} admitted once; {unknown} unknown, of which {ran} had run"
    );
    assert!(
        admitted > 50 && unknown > 20 && ran > 0,
        "{admitted} {unknown} {ran}"
    );
}

#[test]
fn b_094_a_semaphore_whose_replies_are_lost_takes_exactly_once_for_each_grant() {
    let server = Server::start();
    let proxy = Proxy::before(server.port);
    let url = proxy.url();
    let mut lost = 0;
    let doors: [Door; 2] = [(&url, &[PATIENT]), (&url, &[PATIENT])];
    let loaded = load(semaphores(2), &doors, || {
        lost = lossy(&proxy, secs(4));
    });
    let all = adds_up(&server.url(), &loaded);
    report(&format!("{lost} lost replies"), &all);
    // Connecting may fail too, and then nothing was asked.
    assert_eq!((all.unknown, all.denied), (0, 0), "{all:?}");
    assert!(lost > 50 && all.granted > 100, "{lost} {all:?}");
}
