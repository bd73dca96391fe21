//! Something else under our keys: a typed error or a safe answer, never a crash, and a reset heals.
use std::time::Instant;

use limiter::client::ClientQueue;
use limiter::decision::Status;
use limiter::limiter::Limiter;
use limiter::op::{Request, Weights};

use crate::kit::*;
use crate::load::*;
use crate::support::server::Server;
use crate::support::{eventually, ms, secs};

/// What somebody else might have put there, but for a stream one of each type, and texts that look alike.
const FOREIGN: [&[&str]; 12] = [
    &["SET", "KEY", "x"],
    &["SET", "KEY", ""],
    &["SET", "KEY", "-1"],
    &["SET", "KEY", "9223372036854775808 1e308 nan inf"],
    &["LPUSH", "KEY", "x"],
    &["LPUSH", "KEY", "1 1 1", "1", ""],
    &["SADD", "KEY", "x"],
    &["HSET", "KEY", "x", "y"],
    &["ZADD", "KEY", "1", "x"],
    &["ZADD", "KEY", "inf", "h", "-inf", "w"],
    &["XADD", "KEY", "*", "x", "y"],
    &["PFADD", "KEY", "x"],
];

fn put(server: &Server, key: &str, foreign: &[&str]) {
    // At once: who holds a permit there may say so between the two.
    let script = "redis.call('DEL', KEYS[1]) return redis.call(unpack(ARGV))";
    let foreign = foreign
        .iter()
        .map(|word| if *word == "KEY" { key } else { word });
    let words: Vec<&str> = ["EVAL", script, "1", key]
        .into_iter()
        .chain(foreign)
        .collect();
    server.ask::<redis::Value>(&words);
}

/// The text of a key as it is, with a digit or a sign changed.
fn twisted(text: &str) -> Vec<String> {
    let mut twisted = vec![text[..text.len() / 2].to_owned(), format!("{text}{text}")];
    for (from, to) in [
        (" ", ""),
        ("1", "-1"),
        ("1", "1.5"),
        (";", ","),
        ("0", "x"),
        ("|", ""),
    ] {
        twisted.push(text.replacen(from, to, 1));
    }
    // Its last part: of a semaphore the name of its state.
    let (before, _) = text.rsplit_once(';').expect("it has parts");
    for last in ["", "xyz", "0123456789abcdef0", "-1"] {
        twisted.push(format!("{before};{last}"));
    }
    twisted.retain(|other| other != text);
    twisted
}

/// All of a limiter at once.
fn whole(shape: &Shape) -> Request<'static> {
    let most = shape.limits.iter().map(|limit| limit.capacity.max(1));
    Request {
        weights: Weights::Each(Box::leak(most.collect())),
        ..Request::TRY
    }
}

/// Puts something there while all is held; no caller may get more than there is, whatever it is told.
/// Ends with a reset, after which all is there again.
fn endures(
    server: &Server,
    here: &Limiter,
    there: &Limiter,
    shape: &Shape,
    part: &str,
    foreign: &[&str],
) -> Status {
    let what = format!("{part}: {foreign:?}");
    let held = acquire(here, &whole(shape));
    assert_eq!(held.status, Status::Ok, "{what}");
    put(server, part, foreign);
    let answer = acquire(there, &whole(shape)).status;
    use Status::{Backend, Denied, Invalid, Never, Ok, Stale};
    for status in [
        answer,
        there.peek(&weigh(1)).unwrap().status,
        there.pace(&within(1)).unwrap().status,
        here.settle(held.permit, 1).unwrap(),
        here.release(held.permit).unwrap(),
    ] {
        let known = matches!(status, Backend | Denied | Invalid | Never | Ok | Stale);
        assert!(known, "{what}: {status:?}");
    }
    assert_eq!(there.reset(b""), Result::Ok(Ok), "{what}");
    assert_eq!(
        acquire(there, &whole(shape)).status,
        Ok,
        "{what}: all is there"
    );
    assert_eq!(there.reset(b""), Result::Ok(Ok), "{what}");
    answer
}

#[test]
fn b_028_whatever_is_under_a_key_is_an_error_or_a_denial_and_a_reset_heals() {
    let server = Server::start();
    let (client, other) = (open(&server.url()), open(&server.url()));
    let mut tried = 0;
    for shape in [rates(), semaphores(2)].concat() {
        let [here, there] =
            [&client, &other].map(|client| limiter(client, shape.name, &shape.limits));
        for part in shape.parts() {
            for foreign in FOREIGN {
                let answer = endures(&server, &here, &there, &shape, &part, foreign);
                let safe = matches!(answer, Status::Backend | Status::Denied);
                assert!(safe, "{part}: {foreign:?}: {answer:?}");
                tried += 1;
            }
        }
        // What looks like a state is one, and says what it says.
        assert_eq!(acquire(&here, &whole(&shape)).status, Status::Ok);
        let text = &shape.parts()[0];
        let stored: String = server.ask(&["GET", text]);
        assert_eq!(here.reset(b""), Ok(Status::Ok));
        for twisted in twisted(&stored) {
            endures(
                &server,
                &here,
                &there,
                &shape,
                text,
                &["SET", "KEY", &twisted],
            );
            tried += 1;
        }
    }
    println!("figure: {tried} kinds of garbage");
    assert!(tried > 250, "{tried}");
}

#[test]
fn a_version_that_no_limit_can_have_does_not_decide_for_ever() {
    let server = Server::start();
    let client = open(&server.url());
    let limiter = limiter(&client, "v", &[bucket(10, 10, HOUR)]);
    assert_eq!(acquire(&limiter, &weigh(1)).status, Status::Ok);
    let key = "{limiter:T:v:}:s";
    let stored: String = server.ask(&["GET", key]);
    let (head, state) = stored.split_once(";0;T0 10 ").expect("version and limits");
    let hostile = format!("{head};9007199254740000;T0 1 {state}");
    server.ask::<()>(&["SET", key, &hostile]);
    assert_eq!(acquire(&limiter, &weigh(10)).status, Status::Backend);
    assert_eq!(limiter.reset(b""), Ok(Status::Ok));
    assert_eq!(acquire(&limiter, &weigh(10)).status, Status::Ok);
}

/// B-079: with any part gone, who holds still holds, and nobody else gets in.
#[test]
fn b_079_a_key_that_is_evicted_admits_nobody_and_loses_nothing() {
    let server = Server::start();
    let limits = [leased(2, 1000)];
    let (client, other) = (open(&server.url()), open(&server.url()));
    let [here, there] = [&client, &other].map(|client| limiter(client, "s", &limits));
    let queue = ClientQueue::new(&other).unwrap();
    for part in ["s", "e", "q", "i"] {
        let held = acquire(
            &here,
            &Request {
                wait: None,
                ..weigh(2)
            },
        )
        .permit;
        let waiting = queue.submit(&there, &within(60_000)).unwrap();
        eventually("it waits", secs(10), || {
            server.ask::<usize>(&["ZCARD", "{limiter:S:s:}:q"]) == 1
        });
        assert_eq!(
            server.ask::<usize>(&["DEL", &format!("{{limiter:S:s:}}:{part}")]),
            1
        );
        let began = Instant::now();
        while began.elapsed() < ms(1800) {
            assert_eq!(
                acquire(&there, &Request::TRY).status,
                Status::Denied,
                "{part}"
            );
            std::thread::sleep(ms(20));
        }
        assert_eq!(here.release(held), Ok(Status::Ok), "{part}");
        let granted = next(&queue);
        assert_eq!(
            (granted.status, granted.op),
            (Status::Ok, waiting.op),
            "{part}"
        );
        assert_eq!(there.release(granted.permit), Ok(Status::Ok));
        eventually("all is there", secs(20), || remaining(&there) == 2);
    }
    assert_eq!(
        client.stats().unwrap().lost + other.stats().unwrap().lost,
        0
    );
}

#[test]
fn b_035_keys_that_lost_their_end_get_one_again_and_lock_nobody_out() {
    let server = Server::start();
    let client = open(&server.url());
    for shape in [rates(), semaphores(2)].concat() {
        let limiter = limiter(&client, shape.name, &shape.limits);
        let permit = acquire(&limiter, &Request::TRY).permit;
        let keys: Vec<String> = server.ask(&["KEYS", "*"]);
        for key in &keys {
            assert_eq!(server.ask::<u64>(&["PERSIST", key]), 1, "{key} had an end");
        }
        if shape.holds() {
            limiter.release(permit).unwrap();
        }
        assert_eq!(acquire(&limiter, &Request::TRY).status, Status::Ok);
        for key in server.ask::<Vec<String>>(&["KEYS", "*"]) {
            assert!(server.ask::<i64>(&["PTTL", &key]) > 0, "{key}");
        }
        server.ask::<()>(&["FLUSHALL"]);
    }
    // Drained, without an end, and left alone: it is as full again as time makes it.
    let limiter = limiter(&client, "slow", &[bucket(1, 1, 1_000_000)]);
    assert_eq!(acquire(&limiter, &Request::TRY).status, Status::Ok);
    assert_eq!(server.ask::<u64>(&["PERSIST", "{limiter:T:slow:}:s"]), 1);
    let took = eventually("it is admitted again", secs(10), || {
        acquire(&limiter, &Request::TRY).status == Status::Ok
    });
    assert!(took >= ms(700), "{took:?}");
    assert!(server.ask::<i64>(&["PTTL", "{limiter:T:slow:}:s"]) > 0);
}
