//! Each verb on a real server.
use limiter::client::Client;
use limiter::config::Config;
use limiter::decision::Status;
use limiter::limit::time::Span;
use limiter::limiter::spec;
use limiter::op::{Request, Weights};

use crate::kit::*;
use crate::support::server::Server;

#[test]
fn a_bucket_admits_what_it_holds_and_says_when_to_come_back() {
    let server = Server::start();
    let client = open(&server.url());
    let limiter = limiter(&client, "api", &[bucket(3, 3, HOUR)]);
    for left in [2, 1, 0] {
        let decision = acquire(&limiter, &Request::TRY);
        assert_eq!((decision.status, decision.remaining), (Status::Ok, left));
        assert_eq!((decision.limit, decision.index), (3, 0));
        assert_ne!(decision.permit, 0);
        assert_eq!((decision.op, decision.waited_us), (0, 0));
    }
    let denied = acquire(&limiter, &Request::TRY);
    assert_eq!((denied.status, denied.index), (Status::Denied, 0));
    let third = HOUR / 3;
    assert!((third - 5_000_000..=third).contains(&denied.retry_after_us));
    assert_eq!(acquire(&limiter, &weigh(4)).status, Status::Never);
    assert_eq!(acquire(&limiter, &weigh(4)).retry_after_us, u64::MAX);
    let nothing = acquire(&limiter, &weigh(0));
    assert_eq!((nothing.status, nothing.permit), (Status::Ok, 0));
    let other = Request {
        key: b"other \0{key}",
        user_data: 7,
        ..Request::TRY
    };
    let decision = acquire(&limiter, &other);
    assert_eq!((decision.status, decision.user_data), (Status::Ok, 7));
    let keys: Vec<String> = server.ask(&["KEYS", "*"]);
    assert_eq!(keys.len(), 2);
    assert!(keys.contains(&"{limiter:T:api:other%20%00%7bkey%7d}:s".to_owned()));
    let ttl: i64 = server.ask(&["PTTL", &keys[0]]);
    assert!(ttl > 0 && ttl <= 3_602_000, "{ttl}");
    let stats = client.stats().unwrap();
    assert_eq!((stats.granted, stats.denied, stats.never), (4, 1, 2));
    assert!(stats.backend_calls >= 8 && stats.connects >= 1);
    assert_eq!((stats.waiting, stats.backend_errors), (0, 0));
}

#[test]
fn settle_peek_reset_and_penalize() {
    let server = Server::start();
    let client = open(&server.url());
    let limiter = limiter(&client, "api", &[bucket(10, 10, HOUR)]);
    let first = acquire(&limiter, &weigh(6));
    assert_eq!(limiter.settle(first.permit, 2), Ok(Status::Ok));
    assert_eq!(remaining(&limiter), 8);
    assert_eq!(limiter.settle(first.permit, 1), Ok(Status::Stale));
    let second = acquire(&limiter, &weigh(1));
    assert_eq!(limiter.settle(second.permit, 9), Ok(Status::Ok));
    assert_eq!(remaining(&limiter), 0);
    assert_eq!(limiter.renew(second.permit, None), Ok(Status::Ok));
    assert_eq!(limiter.release(second.permit), Ok(Status::Ok));
    assert_eq!(limiter.release(second.permit), Ok(Status::Stale));
    assert_eq!(limiter.renew(second.permit, None), Ok(Status::Stale));
    assert_eq!(limiter.settle(second.permit, 1), Ok(Status::Stale));
    assert_eq!(limiter.release(0), Ok(Status::Invalid));
    let peek = limiter.peek(&weigh(1)).unwrap();
    assert_eq!((peek.status, peek.permit), (Status::Denied, 0));
    assert_eq!(limiter.reset(b""), Ok(Status::Ok));
    assert_eq!(limiter.settle(first.permit, 1), Ok(Status::Stale));
    assert_eq!(remaining(&limiter), 10);
    assert_eq!(limiter.penalize(b"", Span::secs(60)), Ok(Status::Ok));
    let blocked = acquire(&limiter, &weigh(1));
    assert_eq!(blocked.status, Status::Denied);
    assert!((50_000_000..=60_000_000).contains(&blocked.retry_after_us));
}

#[test]
fn pacing_books_one_after_another_and_a_release_gives_back() {
    let server = Server::start();
    let client = open(&server.url());
    let limiter = limiter(&client, "p", &[limit(spec::PACER, 0, 1, 10_000_000)]);
    let wait = within(3_600_000);
    let slots: Vec<_> = (0..3).map(|_| limiter.pace(&wait).unwrap()).collect();
    let near = |us: u64, s: u64| us <= s * 1_000_000 && us + 3_000_000 > s * 1_000_000;
    for (n, slot) in slots.iter().enumerate() {
        assert_eq!(slot.status, Status::Ok);
        assert!(near(slot.retry_after_us, 10 * n as u64), "{slot:?}");
    }
    let refused = limiter.pace(&within(1)).unwrap();
    assert_eq!(refused.status, Status::Denied);
    assert!(near(refused.retry_after_us, 30));
    assert_eq!(limiter.release(slots[2].permit), Ok(Status::Ok));
    let again = limiter.pace(&wait).unwrap();
    assert!(near(again.retry_after_us, 20), "{again:?}");
}

#[test]
fn several_limits_are_one_decision_and_many_tries_are_one_call_each() {
    let server = Server::start();
    let client = open(&server.url());
    let limits = [
        bucket(100, 100, HOUR),
        limit(spec::SLIDING_LOG, 10, 0, HOUR),
    ];
    let limiter = limiter(&client, "two", &limits);
    let each = Request {
        weights: Weights::Each(&[7, 1]),
        ..Request::TRY
    };
    let requests = [each; 12];
    let decisions = limiter.try_many(&requests).unwrap();
    let granted = decisions.iter().filter(|d| d.status == Status::Ok).count();
    assert_eq!(granted, 10);
    assert!(decisions[..10].iter().all(|d| d.status == Status::Ok));
    assert_eq!(
        (decisions[11].status, decisions[11].index),
        (Status::Denied, 1)
    );
    let lighter = Request {
        weights: Weights::Each(&[31, 0]),
        ..Request::TRY
    };
    let denied = acquire(&limiter, &lighter);
    assert_eq!(
        (denied.status, denied.index, denied.remaining),
        (Status::Denied, 0, 30)
    );
    let wrong = Request {
        weights: Weights::Each(&[1]),
        ..Request::TRY
    };
    assert_eq!(limiter.acquire(&wrong), Err(Status::Invalid));
    let calls = client.stats().unwrap().backend_calls;
    assert!(calls < 13, "calls for one key are merged: {calls}");
}

#[test]
fn a_url_that_cannot_be_used_is_not_repeated() {
    for url in [
        "memory://x",
        "memory",
        "redis://:hunter2@h:99999",
        "http://hunter2@h",
    ] {
        let message = Client::open(url, &Config::default()).err().unwrap();
        assert!(!message.contains("hunter2"), "{message}");
    }
}

#[test]
fn a_password_of_the_settings_is_used() {
    let server = Server::with(&["--requirepass", "hunter2"]);
    let limits = [bucket(1, 1, HOUR)];
    let client = open_with(&server.url(), &[("password", "hunter2")]);
    let granted = acquire(&limiter(&client, "a", &limits), &Request::TRY);
    assert_eq!(granted.status, Status::Ok);
    let stranger = open(&server.url());
    let refused = acquire(&limiter(&stranger, "a", &limits), &Request::TRY);
    assert_eq!(refused.status, Status::Backend);
}
