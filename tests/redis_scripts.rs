//! The scripts on a real server: the same answers as in the embedded Lua, every key ends, a denial writes
//! nothing, and what is stored by others is told from what is ours.
#[path = "scripts/server.rs"]
#[allow(dead_code)] // this test program uses a part
mod embedded;
#[path = "scripts/random.rs"]
#[allow(dead_code)] // this test program uses a part
mod random;
mod support;

use std::time::{SystemTime, UNIX_EPOCH};

use limiter::limit::decide::Limits;
use limiter::limit::fixed_window::{Align, FixedWindow};
use limiter::limit::interval_bucket::IntervalBucket;
use limiter::limit::pacer::Pacer;
use limiter::limit::rule::{Limit, Rule};
use limiter::limit::semaphore::Semaphore;
use limiter::limit::sliding_counter::SlidingCounter;
use limiter::limit::sliding_log::SlidingLog;
use limiter::limit::time::{Span, Time};
use limiter::limit::token_bucket::TokenBucket;
use limiter::limit::weights::Weights;
use limiter::redis::link::Call;
use limiter::redis::wire::{Batch, Era, GARBAGE, Head, Holding, Id, Outcome, Reply, Target};
use random::Random;
use redis::{RedisResult, Value};
use support::server::Server;

/// So long that nothing ends while a test runs.
const LONG: Span = Span::secs(6_000);

fn limits(rules: Vec<Rule>) -> Limits {
    let limit = |rule| Limit {
        rule,
        per_call: false,
    };
    Limits::new(rules.into_iter().map(limit).collect(), 1).unwrap()
}

fn shapes() -> Vec<Limits> {
    let rates = [
        Rule::TokenBucket(TokenBucket::new(7, 3, LONG, false).unwrap()),
        Rule::IntervalBucket(IntervalBucket::new(7, 3, LONG, false).unwrap()),
        Rule::Pacer(Pacer::new(3, 2, LONG, 500).unwrap()),
        Rule::SlidingLog(SlidingLog::new(9, LONG).unwrap()),
        Rule::SlidingCounter(SlidingCounter::new(9, LONG).unwrap()),
        Rule::FixedWindow(FixedWindow::new(9, LONG, Align::FirstUse).unwrap()),
    ];
    let semaphore = Rule::Semaphore(Semaphore::new(5, LONG, true).unwrap());
    let mut all: Vec<Limits> = rates
        .iter()
        .map(|rule| limits(vec![rule.clone()]))
        .collect();
    all.push(limits(rates.to_vec()));
    // With pages beside the text.
    let log = Rule::SlidingLog(SlidingLog::new(600, LONG).unwrap());
    all.push(limits(vec![log.clone()]));
    all.push(limits(vec![log.clone(), semaphore.clone(), log]));
    all.push(limits(vec![semaphore.clone()]));
    all.push(limits(vec![semaphore, rates[0].clone(), rates[2].clone()]));
    all
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_micros() as u64
}

fn batch(target: &Target, now: Option<u64>) -> Batch<'_> {
    batch_of(target, now, true)
}

fn batch_of(target: &Target, now: Option<u64>, tells_unheard: bool) -> Batch<'_> {
    let head = Head {
        now: now.map(Time),
        not_after: None,
    };
    if !target.holds() {
        return target.batch(head);
    }
    target.holding(
        head,
        Holding {
            known: None,
            fresh: Era(7),
            channel: "c",
            lease: LONG,
            claim: LONG,
            allowance: Span(350_000),
            life: LONG,
            tells_unheard,
        },
    )
}

fn call(server: &Server, call: &Call) -> RedisResult<Value> {
    let text = |arg: &[u8]| String::from_utf8(arg.to_vec()).expect("plain text");
    let keys = call.keys.len().to_string();
    let mut command = vec!["EVAL".to_owned(), call.script.source().to_owned(), keys];
    command.extend(call.keys.iter().chain(call.args.iter()).map(text));
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    server.try_ask(&command)
}

fn names(target: &Target) -> Vec<String> {
    let call = batch(target, None).on(b"k");
    let text = |key: &[u8]| String::from_utf8(key.to_vec()).expect("plain text");
    call.keys.iter().map(text).collect()
}

/// Some operation; `ids` have been asked for.
fn some_op(batch: &mut Batch, holds: bool, random: &mut Random, bookings: &[String]) {
    let weights = Weights::One(random.below(4));
    let wait = random.pick(&[None, Some(Span::ZERO), Some(LONG)]);
    let id = Id(1 + u128::from(random.below(12)));
    let dead = (random.below(4) == 0).then_some(LONG);
    let booking = match bookings {
        [] => None,
        all => Some(&all[random.below(all.len() as u64) as usize]),
    };
    match (random.below(12), booking) {
        (0, _) => batch.peek(&weights),
        (1, Some(booking)) => batch.settle(booking, random.below(6)),
        (2, _) if random.below(4) == 0 => batch.penalize(Span(random.below(1_000))),
        (3, _) if random.below(8) == 0 => batch.reset(),
        (4..6, _) if holds => batch.release(id, dead),
        (6, _) if holds => batch.cancel(id, dead),
        (7, _) if holds => batch.renew(id, (LONG, false), Era(random.below(9)), &weights),
        (6, Some(booking)) => batch.unbook(booking),
        (_, _) if holds => batch.acquire(id, wait, (LONG, false), &weights),
        (_, _) => batch.book(wait, &weights),
    }
}

#[test]
fn a_real_server_answers_as_the_embedded_one() {
    let server = Server::start();
    for (i, limits) in shapes().iter().enumerate() {
        let target = Target::new("l", format!("n{i}").as_bytes(), limits);
        let embedded = embedded::Server::new();
        embedded.data.unheard.set(true);
        let mut random = Random::new(i as u64 + 1);
        let mut bookings = vec![];
        let mut time = now();
        for step in 0..250 {
            time += random.below(3_000);
            embedded.data.now.set(time);
            let mut asked = batch(&target, Some(time));
            for _ in 0..=random.below(3) {
                some_op(&mut asked, target.holds(), &mut random, &bookings);
            }
            let ops = asked.len();
            let asked = asked.on(b"k");
            let expected = embedded.call(&asked).unwrap();
            let found = call(&server, &asked).unwrap();
            assert_eq!(expected, found, "shape {i}, step {step}");
            let Ok(Reply::Done { answers, .. }) = Reply::read(&found, ops) else {
                panic!("{found:?}");
            };
            let made = answers.into_iter().map(|answer| answer.booking.to_string());
            bookings.extend(made.filter(|booking| !booking.is_empty()));
            for key in names(&target) {
                let ttl: i64 = server.ask(&["PTTL", &key]);
                assert!(ttl == -2 || ttl > 0, "{key} has no end");
            }
        }
    }
}

#[test]
fn the_server_s_clock_is_asked_unless_a_time_is_given() {
    let server = Server::start();
    let target = Target::new("l", b"n", &shapes()[0]);
    let mut asked = batch(&target, None);
    asked.book(None, &Weights::One(1));
    let before = now();
    let reply = call(&server, &asked.on(b"k")).unwrap();
    let Ok(Reply::Done { server, .. }) = Reply::read(&reply, 1) else {
        panic!("{reply:?}");
    };
    assert!((before..=now()).contains(&server.0));
}

#[test]
fn what_comes_late_does_nothing() {
    let server = Server::start();
    for limits in shapes() {
        let target = Target::new("l", b"n", &limits);
        let mut asked = batch(&target, None);
        some_op(&mut asked, target.holds(), &mut Random::new(3), &[]);
        let mut late = asked.on(b"k");
        late.args = late
            .args
            .iter()
            .enumerate()
            .map(|(i, arg)| if i == 0 { b"1000" } else { arg })
            .collect();
        let reply = call(&server, &late).unwrap();
        assert!(matches!(Reply::read(&reply, 1), Ok(Reply::Late(_))));
    }
    assert_eq!(server.ask::<u64>(&["DBSIZE"]), 0);
}

#[test]
fn a_grant_that_nobody_hears_of_ends_with_the_wait_unless_it_is_confirmed() {
    let server = Server::start();
    let semaphore = Rule::Semaphore(Semaphore::new(5, LONG, true).unwrap());
    let target = Target::new("l", b"n", &limits(vec![semaphore]));
    let key = names(&target)[1].clone();
    let ends = |letter, id| server.ask::<Option<u64>>(&["ZSCORE", &key, &format!("{letter}{id}")]);
    // Where PUBLISH counts all who hear, and in a cluster.
    for (first, counts) in [(1, true), (3, false)] {
        let [holder, waiter] = [first, first + 1].map(Id);
        let say = |now, op: &dyn Fn(&mut Batch)| {
            let mut asked = batch_of(&target, Some(now), counts);
            op(&mut asked);
            call(&server, &asked.on(b"k")).unwrap();
        };
        let take =
            |id| move |batch: &mut Batch| batch.acquire(id, None, (LONG, false), &Weights::One(5));
        let now = now();
        say(now, &take(holder));
        say(now + 1, &take(waiter));
        let wait = ends('w', waiter).expect("it waits");
        say(now + 1000, &|batch| batch.release(holder, None));
        let claim = ends('h', waiter).expect("it is granted");
        assert_eq!(claim, if counts { wait } else { wait + 999 });
        // Confirmed by its process, in the call that grants it or later.
        say(now + 1000, &take(waiter));
        assert!(ends('h', waiter) > Some(claim));
        say(now + 1001, &take(holder));
        say(now + 1002, &|batch| {
            batch.release(waiter, None);
            take(holder)(batch);
        });
        assert!(ends('h', holder) > Some(now + 1002 + LONG.0));
        say(now + 1003, &|batch| batch.release(holder, None));
    }
}

#[test]
fn a_denial_writes_nothing() {
    let server = Server::start();
    for limits in shapes() {
        let target = Target::new("l", b"n", &limits);
        let ask = |id: u128| {
            let mut asked = batch(&target, None);
            match target.holds() {
                true => asked.acquire(Id(id), Some(Span::ZERO), (LONG, false), &Weights::One(3)),
                false => asked.book(Some(Span::ZERO), &Weights::One(3)),
            }
            let reply = call(&server, &asked.on(b"k")).unwrap();
            let Ok(Reply::Done { answers, .. }) = Reply::read(&reply, 1) else {
                panic!("{reply:?}");
            };
            answers[0].outcome
        };
        let mut id = 1;
        while ask(id) == Outcome::Done {
            id += 1;
        }
        let writes = || server.info("persistence", "rdb_changes_since_last_save");
        let before = writes();
        assert_eq!(ask(100), Outcome::Denied);
        assert_eq!(ask(101), Outcome::Denied);
        assert_eq!(writes(), before, "{limits:?}");
    }
}

/// The error's text, which has to be ours.
fn refused(server: &Server, target: &Target) -> String {
    let mut asked = batch(target, None);
    asked.peek(&Weights::One(1));
    let error = call(server, &asked.on(b"k")).expect_err("what is stored is not ours");
    assert_eq!(error.code(), Some(GARBAGE), "{error}");
    error.to_string()
}

#[test]
fn garbage_is_told_and_a_reset_heals() {
    let server = Server::start();
    for limits in shapes() {
        let target = Target::new("l", b"n", &limits);
        for key in names(&target) {
            for wrong in [
                &["SET", &key, "x"][..],
                &["HSET", &key, "a", "b"],
                &["ZADD", &key, "1", "a"],
                &["RPUSH", &key, "a"],
            ] {
                server.ask::<Value>(&["FLUSHALL"]);
                server.ask::<Value>(wrong);
                let kind: String = server.ask(&["TYPE", &key]);
                let ours = match key.rsplit(':').next() {
                    Some("s") => "",
                    Some("i") => "hash",
                    // Without an end it is none of ours.
                    Some(log) if log.starts_with('l') => "",
                    _ => "zset",
                };
                if kind == ours {
                    // Leftovers of a lost state: all begins anew.
                    continue;
                }
                refused(&server, &target);
                assert_eq!(
                    server.ask::<String>(&["TYPE", &key]),
                    kind,
                    "nothing was touched"
                );
                let mut reset = batch(&target, None);
                reset.reset();
                call(&server, &reset.on(b"k")).unwrap();
                let mut asked = batch(&target, None);
                asked.peek(&Weights::One(1));
                call(&server, &asked.on(b"k")).unwrap();
            }
        }
    }
}

/// A stored text with something changed in it is refused or taken for one of ours; a script never fails
/// in another way, and never runs for ever.
#[test]
fn no_stored_text_breaks_a_script() {
    let server = Server::start();
    let mut random = Random::new(5);
    let (mut refusals, mut taken) = (0, 0);
    for limits in shapes() {
        let target = Target::new("l", b"n", &limits);
        let key = names(&target)[0].clone();
        server.ask::<Value>(&["FLUSHALL"]);
        let mut asked = batch(&target, None);
        for _ in 0..3 {
            some_op(&mut asked, target.holds(), &mut Random::new(99), &[]);
        }
        call(&server, &asked.on(b"k")).unwrap();
        let good: Option<String> = server.ask(&["GET", &key]);
        let good = good.expect("something is stored").into_bytes();
        for _ in 0..150 {
            let mut text = good.clone();
            for _ in 0..=random.below(2) {
                let at = random.below(text.len() as u64) as usize;
                match random.below(4) {
                    0 => drop(text.remove(at)),
                    1 => text[at] = random.pick(b"0 9;|,/-.eTSx"),
                    2 => text.insert(at, random.pick(b"0 9;|,/-.eTSx")),
                    _ => text.truncate(at.max(1)),
                }
            }
            let text = String::from_utf8(text).expect("plain text");
            server.ask::<Value>(&["SET", &key, &text]);
            let mut asked = batch(&target, None);
            for _ in 0..3 {
                some_op(&mut asked, target.holds(), &mut random, &[]);
            }
            match call(&server, &asked.on(b"k")) {
                Ok(_) => taken += 1,
                Err(error) if error.code() == Some(GARBAGE) => refusals += 1,
                Err(error) => panic!("{text}: {error}"),
            }
        }
    }
    assert!(refusals > 100 && taken > 100, "{refusals} {taken}");
}
