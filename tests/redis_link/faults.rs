//! The server goes away, falls silent or loses replies.
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use limiter::redis::link::{Class, Failure, Lane, Silence};
use redis::Value;

use crate::rig::{Rig, call, code, figure, increment};
use crate::support::proxy::{Mode, Proxy};
use crate::support::server::Server;
use crate::support::{eventually, ms, secs};

const SLOW_INCREMENT: &str =
    "local t, n = redis.call('TIME'), 0 local stop = t[1] * 1000000 + t[2] + ARGV[1]
    -- To a script the server's time may stand still.
    repeat t, n = redis.call('TIME'), n + 1 until t[1] * 1000000 + t[2] > stop or n > ARGV[1] + 0
    return redis.call('INCR', KEYS[1])";

#[test]
fn opening_with_redis_down_works_and_it_is_found_when_it_comes() {
    let mut server = Server::prepare(&[]);
    let rig = Rig::new(&server.url());
    assert_eq!(code(rig.once("k", ms(100))), "REFUSED");
    eventually("callers no longer wait", secs(30), || {
        let began = Instant::now();
        assert_eq!(code(rig.once("k", secs(1))), "REFUSED");
        began.elapsed() < ms(5)
    });
    assert!(!rig.link.is_healthy());
    assert!(rig.link.stats().failed_fast > 0);
    // The lane of heartbeats waits instead, to its deadline.
    let began = Instant::now();
    let answer = rig.run(Lane::Control, increment("k"), ms(400), Class::Idempotent);
    assert_eq!(code(answer), "REFUSED");
    assert!(began.elapsed() >= ms(395));
    let waiting = rig.begin(Lane::Control, increment("k"), secs(5), Class::Idempotent);
    server.boot();
    let took = rig.recovers(secs(30));
    figure("first success after the server's start", took);
    assert_eq!(waiting.recv_timeout(secs(3)).unwrap().0, Ok(Value::Int(1)));
    assert!(rig.link.is_healthy());
}

#[test]
fn killed_and_restarted_ten_times() {
    let mut server = Server::start();
    let rig = Rig::new(&server.url());
    let mut worst = ms(0);
    for _ in 0..10 {
        rig.recovers(secs(30));
        let flying = rig.begin(
            Lane::Bulk,
            call(SLOW_INCREMENT, &["flying"], &["2000000"]),
            secs(4),
            Class::AtMostOnce,
        );
        std::thread::sleep(ms(20));
        server.kill();
        let (answer, took) = flying.recv_timeout(secs(30)).unwrap();
        assert_eq!(answer, Err(Failure::Ambiguous(Silence::Dropped)));
        assert!(
            took < secs(2),
            "a cut connection is noticed at once, not after {took:?}"
        );
        let down = Instant::now();
        while down.elapsed() < ms(150) {
            assert!(rig.once("k", ms(250)).unwrap_err().not_executed());
        }
        server.boot();
        worst = worst.max(rig.recovers(secs(30)));
    }
    figure("worst first success after 10 restarts", worst);
}

#[test]
fn an_idle_connection_that_was_closed_costs_no_call() {
    let server = Server::start();
    let rig = Rig::new(&server.url());
    for n in 1..=20 {
        assert_eq!(
            rig.once("k", secs(2)),
            Ok(Value::Int(n)),
            "after CLIENT KILL"
        );
        let before = rig.link.stats().connected;
        let killed: u64 = server.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        assert!(killed >= 1);
        eventually("the link has noticed", secs(30), || {
            rig.link.stats().connected > before
        });
    }
    assert_eq!(server.number("k"), 20);
}

#[test]
fn a_lost_reply_runs_once_or_until_it_is_answered() {
    let server = Server::start();
    let proxy = Proxy::before(server.port);
    let rig = Rig::new(&proxy.url());
    rig.once("warm", secs(2)).unwrap();
    for n in 1..=20u64 {
        proxy.set(Mode::LoseReply);
        let answer = rig.once("once", secs(1));
        assert_eq!(answer, Err(Failure::Ambiguous(Silence::Dropped)));
        eventually("it ran", secs(1), || server.number("once") == n);
        assert_eq!(proxy.mode(), Mode::Forward);
        assert_eq!(
            rig.once("other", secs(1)),
            Ok(Value::Int(n as i64)),
            "the link is back"
        );
    }
    assert_eq!(
        server.number("once"),
        20,
        "at most once, and this proxy loses replies only"
    );
    for n in 1..=20 {
        proxy.set(Mode::LoseReply);
        // The first try ran, its reply was lost, the second is answered.
        assert_eq!(rig.surely("surely", secs(1)), Ok(Value::Int(2 * n)));
    }
    assert_eq!(rig.link.stats().ambiguous, 20);
}

#[test]
fn what_may_have_run_is_not_called_unexecuted_because_its_retry_was() {
    let mut server = Server::start();
    let proxy = Proxy::before(server.port);
    let rig = Rig::new(&proxy.url());
    for lane in [Lane::Bulk, Lane::Control] {
        let ping = crate::rig::command(&["PING"]);
        rig.run(lane, ping, secs(2), Class::Idempotent).unwrap();
        proxy.set(Mode::BlackHole);
        let told = rig.begin(lane, increment("k"), ms(900), Class::Idempotent);
        std::thread::sleep(ms(100));
        server.kill(); // the retries find nobody
        proxy.set(Mode::Forward);
        let (answer, _) = told.recv_timeout(secs(2)).unwrap();
        assert!(
            matches!(answer, Err(Failure::Ambiguous(_))),
            "{lane:?}: {answer:?}"
        );
        server.boot();
        rig.recovers(secs(30));
    }
}

#[test]
fn a_frozen_server_is_given_up_and_few_calls_run_later() {
    let server = Server::start();
    let rig = Rig::new(&server.url());
    rig.once("k", secs(2)).unwrap();
    server.freeze();
    let frozen = Instant::now();
    let (mut ambiguous, mut refused) = (0, 0);
    while frozen.elapsed() < secs(3) {
        match rig.once("k", ms(250)) {
            Err(Failure::Ambiguous(Silence::Timeout)) => ambiguous += 1,
            Err(failure) if failure.not_executed() => refused += 1,
            other => panic!("{other:?}"),
        }
        std::thread::sleep(ms(2));
    }
    assert_eq!(
        ambiguous, 2,
        "after two timeouts the connection is replaced"
    );
    assert!(refused > 3, "{refused}");
    server.thaw();
    let took = rig.recovers(secs(30));
    figure("first success after SIGCONT", took);
    assert!(
        server.number("k") <= 1 + ambiguous,
        "only what was sent can run"
    );
}

#[test]
fn a_silent_network_is_replaced_by_a_new_connection() {
    let server = Server::start();
    let proxy = Proxy::before(server.port);
    let rig = Rig::new(&proxy.url());
    rig.once("k", secs(2)).unwrap();
    proxy.set(Mode::BlackHole);
    let began = Instant::now();
    for _ in 0..2 {
        assert_eq!(
            rig.once("lost", ms(250)),
            Err(Failure::Ambiguous(Silence::Timeout))
        );
    }
    eventually("a new connection is tried", secs(30), || {
        proxy.accepted() > 1
    });
    figure(
        "silence to a new connection (2 timeouts of 250 ms)",
        began.elapsed(),
    );
    proxy.set(Mode::Forward);
    figure("first success after silence", rig.recovers(secs(30)));
    assert_eq!(server.number("lost"), 0);
}

#[test]
fn a_single_short_timeout_asks_before_it_gives_up_a_connection() {
    let server = Server::start();
    let rig = Rig::new(&server.url());
    rig.once("k", secs(2)).unwrap();
    let warm = rig.begin(Lane::Control, increment("c"), secs(2), Class::Idempotent);
    assert!(warm.recv().unwrap().0.is_ok());
    // For less time than a connection has to answer.
    server.ask::<()>(&["CLIENT", "PAUSE", "700", "ALL"]);
    for _ in 0..5 {
        assert!(rig.once("k", ms(20)).is_err(), "too slow for this caller");
    }
    eventually("calls work", secs(30), || rig.once("k", secs(1)).is_ok());
    assert_eq!(
        rig.link.stats().replaced,
        0,
        "short deadlines say nothing about the connection"
    );
    assert_eq!(rig.link.stats().connected, 2, "one for each lane");
}

#[test]
fn a_quiet_connection_into_nowhere_is_found_without_calls() {
    let server = Server::start();
    let proxy = Proxy::before(server.port);
    let rig = Rig::with(&proxy.url(), |settings| {
        settings.idle_check = ms(200);
        settings.connect = ms(300);
    });
    rig.once("k", secs(2)).unwrap();
    proxy.set(Mode::BlackHole);
    eventually("a PING goes unanswered", secs(30), || {
        rig.link.stats().replaced == 1
    });
    proxy.set(Mode::Forward);
    rig.recovers(secs(30));
}

#[test]
fn nothing_is_sent_after_its_deadline() {
    let server = Server::start();
    let rig = Rig::new(&server.url());
    rig.once("warm", secs(2)).unwrap();
    let before = rig.link.stats().sent;
    for _ in 0..50 {
        assert!(rig.once("late", ms(0)).unwrap_err().not_executed());
    }
    assert_eq!((rig.link.stats().sent, server.number("late")), (before, 0));
}

#[test]
fn a_slow_network_is_not_a_fault() {
    let server = Server::start();
    let proxy = Proxy::before(server.port);
    proxy.set(Mode::Delay(ms(60)));
    let rig = Rig::new(&proxy.url());
    for n in 1..=10 {
        assert_eq!(rig.once("k", secs(1)), Ok(Value::Int(n)));
    }
    assert_eq!(
        (rig.link.stats().connected, rig.link.stats().timeouts),
        (1, 0)
    );
}

#[test]
fn under_load_and_cuts_every_count_adds_up() {
    let server = Server::start();
    let proxy = Proxy::before(server.port);
    let rig = Rig::new(&proxy.url());
    let (over, answers) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let (tell, told) = std::sync::mpsc::channel();
    for worker in 0..64 {
        let (link, tell) = (rig.link.clone(), tell.clone());
        let (over, answers) = (over.clone(), answers.clone());
        rig.handle.spawn(async move {
            let (key, mut ran, mut unknown, mut not) = (format!("k{worker}"), 0u64, 0u64, 0u64);
            while !over.load(Ordering::Relaxed) {
                let deadline = Instant::now() + ms(250);
                let request = increment(&key);
                match link
                    .call(Lane::Bulk, request, deadline, Class::AtMostOnce)
                    .await
                {
                    Ok(_) => {
                        ran += 1;
                        answers.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(Failure::Ambiguous(_)) => unknown += 1,
                    Err(failure) if failure.not_executed() => not += 1,
                    Err(failure) => panic!("{failure}"),
                }
            }
            tell.send((key, ran, unknown, not)).unwrap();
        });
    }
    drop(tell);
    let began = Instant::now();
    let mut cuts = 0;
    while began.elapsed() < secs(2) || answers.load(Ordering::Relaxed) <= 1000 {
        match cuts % 2 {
            0 => proxy.set(Mode::LoseReply),
            _ => proxy.cut(),
        }
        std::thread::sleep(ms(5));
        proxy.set(Mode::Forward); // what is in the way of calls is meant, not of connecting
        let before = answers.load(Ordering::Relaxed);
        eventually("calls work again", secs(60), || {
            answers.load(Ordering::Relaxed) > before
        });
        std::thread::sleep(ms(20));
        cuts += 1;
    }
    over.store(true, Ordering::Relaxed);
    proxy.set(Mode::Forward);
    let (mut ran, mut unknown) = (0, 0);
    for (key, own, own_unknown, _) in told.iter() {
        let counted = server.number(&key);
        let possible = own..=own + own_unknown;
        assert!(
            possible.contains(&counted),
            "{key}: {counted} not in {possible:?}"
        );
        ran += own;
        unknown += own_unknown;
    }
    println!("figure: {cuts} cuts: {ran} answered, {unknown} unknown");
    assert!(ran > 1000 && unknown > 0, "{ran} {unknown}");
    assert_eq!(rig.link.stats().ambiguous, unknown);
}

#[test]
fn callers_that_try_again_at_once_do_not_hinder_the_repair() {
    let mut server = Server::prepare(&[]);
    let rig = Rig::new(&server.url());
    let (tell, told) = std::sync::mpsc::channel();
    for _ in 0..8 {
        let (link, tell) = (rig.link.clone(), tell.clone());
        rig.handle.spawn(async move {
            let give_up = Instant::now() + secs(20);
            while Instant::now() < give_up {
                let deadline = Instant::now() + ms(250);
                let request = increment("k");
                if link
                    .call(Lane::Bulk, request, deadline, Class::AtMostOnce)
                    .await
                    .is_ok()
                {
                    return tell.send(true).unwrap();
                }
            }
            tell.send(false).unwrap();
        });
    }
    eventually("they are refused at once", secs(30), || {
        rig.link.stats().failed_fast > 1000
    });
    server.boot();
    assert!((0..8).all(|_| told.recv_timeout(secs(3)) == Ok(true)));
    assert_eq!(server.number("k"), 8);
}
