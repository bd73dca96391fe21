//! When Redis is down, silent, forgetful or holds garbage.
use std::time::Instant;

use limiter::decision::{DEGRADED, Decision, MAYBE_CHARGED, Status};
use limiter::limiter::{LimitSpec, Limiter};
use limiter::op::Request;

use crate::kit::*;
use crate::support::proxy::{Mode, Proxy};
use crate::support::server::Server;
use crate::support::{eventually, ms, secs};

#[test]
fn b_116_a_client_opens_while_redis_is_down_and_recovers_by_itself() {
    let mut server = Server::prepare(&[]);
    let client = hasty(&server.url());
    let limiter = limiter(&client, "api", &[bucket(1000, 1, HOUR)]);
    for _ in 0..10 {
        let began = Instant::now();
        assert_eq!(acquire(&limiter, &Request::TRY).status, Status::Backend);
        assert!(began.elapsed() < ms(500), "{:?}", began.elapsed());
    }
    assert!(client.stats().unwrap().backend_errors >= 10);
    for _ in 0..2 {
        server.boot();
        let recovery = eventually("it answers again", secs(2), || {
            acquire(&limiter, &Request::TRY).status == Status::Ok
        });
        println!("figure: recovery: {} ms", recovery.as_millis());
        server.kill();
        eventually("it is down again", secs(2), || {
            acquire(&limiter, &Request::TRY).status == Status::Backend
        });
    }
}

#[test]
fn the_policy_answers_for_redis_and_says_so() {
    let server = Server::prepare(&[]);
    for (policy, status) in [("open", Status::Ok), ("closed", Status::Denied)] {
        let client = open_with(&server.url(), &[("on_failure", policy)]);
        let limiter = limiter(&client, "api", &[bucket(1, 1, HOUR)]);
        let one = acquire(&limiter, &within(1000));
        assert_eq!((one.status, one.flags, one.permit), (status, DEGRADED, 0));
        assert_eq!(one.retry_after_us > 0, policy == "closed");
        let paced = limiter.pace(&Request::TRY).unwrap();
        assert_eq!((paced.status, paced.flags), (status, DEGRADED));
        assert_eq!(limiter.reset(b""), Ok(Status::Backend));
        let stats = client.stats().unwrap();
        assert_eq!((stats.degraded, stats.granted, stats.denied), (2, 0, 0));
    }
}

#[test]
fn a_lost_reply_is_an_unknown_outcome_and_is_charged_once() {
    let server = Server::start();
    let proxy = Proxy::before(server.port);
    let client = hasty(&format!("redis://127.0.0.1:{}", proxy.port));
    let limiter = limiter(&client, "api", &[bucket(10, 1, HOUR)]);
    assert_eq!(acquire(&limiter, &Request::TRY).remaining, 9);
    proxy.set(Mode::LoseReply);
    let lost = acquire(&limiter, &Request::TRY);
    assert_eq!((lost.status, lost.permit), (Status::UnknownOutcome, 0));
    eventually("it answers again", secs(2), || {
        limiter.peek(&weigh(0)).unwrap().status == Status::Ok
    });
    assert_eq!(remaining(&limiter), 8);
    // Only looking may be done twice.
    proxy.set(Mode::LoseReply);
    assert_eq!(remaining(&limiter), 8);
}

#[test]
fn b_115_the_policys_answer_says_whether_the_call_may_have_been_charged() {
    let server = Server::start();
    let proxy = Proxy::before(server.port);
    let (rates, held) = ([bucket(10, 1, HOUR)], [semaphore(10)]);
    for policy in ["open", "closed", "local"] {
        let client = open_with(&proxy.url(), &[("on_failure", policy)]);
        let flags = |name: &str, limits: &[LimitSpec], tries, ask: fn(&Limiter) -> Decision| {
            let limiter = limiter(&client, &format!("{policy} {name}"), limits);
            eventually("Redis decides", secs(5), || ask(&limiter).flags == 0);
            // What is lost may be the answer to something else.
            let lose = |_| {
                proxy.set(Mode::LoseReply);
                ask(&limiter).flags
            };
            (0..tries).map(lose).find(|flags| *flags != 0).unwrap_or(0)
        };
        let lost = DEGRADED | MAYBE_CHARGED;
        let (tried, paced) = (
            |limiter: &Limiter| acquire(limiter, &Request::TRY),
            |limiter: &Limiter| limiter.pace(&Request::TRY).unwrap(),
        );
        assert_eq!(flags("a", &rates, 9, tried), lost, "{policy}");
        assert_eq!(flags("b", &rates, 9, paced), lost, "{policy}");
        // Where there is a semaphore the call has an id, and is asked again under it.
        assert_eq!(flags("c", &held, 1, tried), 0, "{policy}");
        assert_eq!(flags("d", &[rates[0], held[0]], 1, tried), 0, "{policy}");
    }
}

#[test]
fn a_frozen_server_does_not_run_later_what_was_given_up() {
    let server = Server::start();
    let client = hasty(&server.url());
    let limiter = limiter(&client, "api", &[bucket(10, 1, HOUR)]);
    assert_eq!(acquire(&limiter, &Request::TRY).remaining, 9);
    server.freeze();
    let began = Instant::now();
    assert_eq!(
        acquire(&limiter, &Request::TRY).status,
        Status::UnknownOutcome
    );
    assert!(began.elapsed() < ms(600), "{:?}", began.elapsed());
    std::thread::sleep(ms(300));
    server.thaw();
    eventually("it answers again", secs(2), || {
        limiter.peek(&weigh(0)).unwrap().status == Status::Ok
    });
    assert_eq!(remaining(&limiter), 9);
}

#[test]
fn flushed_scripts_are_not_noticed() {
    let server = Server::start();
    let client = open(&server.url());
    let limiter = limiter(&client, "api", &[bucket(1000, 1, HOUR)]);
    for n in 0..60 {
        if n % 5 == 0 {
            server.ask::<()>(&["SCRIPT", "FLUSH"]);
        }
        let decision = acquire(&limiter, &Request::TRY);
        assert_eq!((decision.status, decision.remaining), (Status::Ok, 999 - n));
    }
}

#[test]
fn garbage_under_a_key_is_an_error_until_it_is_reset() {
    let server = Server::start();
    let client = open(&server.url());
    let limiter = limiter(&client, "api", &[bucket(10, 1, HOUR)]);
    let key = "{limiter:T:api:}:s";
    for garbage in [["SET", key, "x"], ["LPUSH", key, "x"]] {
        server.ask::<()>(&["DEL", key]);
        server.ask::<()>(&garbage);
        assert_eq!(acquire(&limiter, &Request::TRY).status, Status::Backend);
        let kind: String = server.ask(&["TYPE", key]);
        assert_eq!(kind == "list", garbage[0] == "LPUSH", "nothing was written");
        assert_eq!(limiter.reset(b""), Ok(Status::Ok));
        assert_eq!(acquire(&limiter, &Request::TRY).remaining, 9);
    }
}
