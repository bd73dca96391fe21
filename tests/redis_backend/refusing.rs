//! Redis says no for a while: everything is refused that has not run, what was admitted is what Redis
//! has counted, and it goes on by itself.
use std::time::Instant;

use limiter::decision::{DEGRADED, Status};
use limiter::limiter::Limiter;
use limiter::op::Request;

use crate::kit::*;
use crate::load::*;
use crate::support::server::Server;
use crate::support::{eventually, ms, secs};

fn everything() -> Vec<Shape> {
    [rates(), semaphores(2)].concat()
}

fn decides(probe: &Limiter) -> bool {
    acquire(probe, &Request::TRY).status == Status::Ok
}

/// What callers with little patience are told while Redis refuses for a second.
fn refused(what: &str, server: &Server, begin: impl FnOnce(), end: impl FnOnce()) -> Tally {
    let url = server.url();
    let loaded = load(everything(), &[(&url, &[]), (&url, &[])], || {
        let client = hasty(&url);
        let probe = limiter(&client, "probe", &[tally()]);
        eventually("it works before", secs(10), || decides(&probe));
        std::thread::sleep(ms(500));
        begin();
        let began = Instant::now();
        eventually("it is refused", secs(5), || {
            acquire(&probe, &Request::TRY).status == Status::Backend
        });
        std::thread::sleep(ms(1000).saturating_sub(began.elapsed()));
        end();
        let took = eventually("Redis decides again", secs(5), || decides(&probe));
        println!("figure: {what}: decides again after {took:?}");
        std::thread::sleep(ms(500));
    });
    let all = adds_up(&url, &loaded);
    report(what, &all);
    assert!(all.backend > 0 && all.degraded == 0, "{all:?}");
    all
}

#[test]
fn b_110_a_server_that_became_a_replica_is_used_again_when_it_is_none() {
    let server = Server::start();
    let set = |master: [&str; 2]| server.ask::<()>(&["REPLICAOF", master[0], master[1]]);
    let (begin, end) = (|| set(["127.0.0.1", "1"]), || set(["NO", "ONE"]));
    let all = refused("READONLY", &server, begin, end);
    assert_eq!(all.denied, 0, "b_113: an error is no denial");
}

#[test]
fn b_113_a_full_server_is_an_error_and_no_denial() {
    let server = Server::start();
    let set = |most| server.ask::<()>(&["CONFIG", "SET", "maxmemory", most]);
    let all = refused("OOM", &server, || set("1"), || set("0"));
    assert_eq!(all.denied, 0);
}

#[test]
fn b_113_a_server_that_cannot_save_is_an_error_and_no_denial() {
    let server = Server::start();
    std::fs::create_dir(server.file("dump.rdb")).unwrap(); // so that saving fails
    let begin = || {
        server.ask::<()>(&["CONFIG", "SET", "save", "3600 1000000"]);
        server.ask::<String>(&["BGSAVE"]);
    };
    let end = || server.ask::<()>(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    let all = refused("MISCONF", &server, begin, end);
    assert_eq!(all.denied, 0);
}

#[test]
fn b_113_too_few_replicas_are_an_error_and_no_denial() {
    let server = Server::start();
    let set = |least| server.ask::<()>(&["CONFIG", "SET", "min-replicas-to-write", least]);
    let all = refused("NOREPLICAS", &server, || set("1"), || set("0"));
    assert_eq!(all.denied, 0);
}

#[test]
fn what_the_policies_make_of_a_refusal_says_so() {
    let server = Server::start();
    let policies = [
        ("open", Status::Ok),
        ("closed", Status::Denied),
        ("local", Status::Ok),
    ];
    let limiters = policies.map(|(policy, status)| {
        let client = open_with(&server.url(), &[("on_failure", policy)]);
        (
            limiter(&client, "p", &[bucket(1000, 1, HOUR)]),
            status,
            client,
        )
    });
    for round in 1..=2 {
        for (limiter, _, _) in &limiters {
            eventually("Redis decides", secs(5), || {
                let one = acquire(limiter, &Request::TRY);
                (one.status, one.flags) == (Status::Ok, 0)
            });
        }
        server.ask::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
        for (limiter, status, client) in &limiters {
            let before = client.stats().unwrap();
            let one = acquire(limiter, &Request::TRY);
            assert_eq!((one.status, one.flags & DEGRADED), (*status, DEGRADED));
            let after = client.stats().unwrap();
            assert_eq!(after.degraded, before.degraded + 1, "round {round}");
            assert_eq!(after.denied, before.denied);
        }
        server.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    }
}

#[test]
fn while_the_server_loads_nothing_is_decided_and_then_all_is_there_again() {
    let mut server = Server::with(&["--rdbcompression", "no"]);
    let fill = "for n = 1, 20000 do redis.call('SET', n, n) end";
    server.ask::<()>(&["EVAL", fill, "0"]);
    let url = server.url();
    let client = hasty(&url);
    let probe = limiter(&client, "probe", &[tally()]);
    let loaded = load(everything(), &[(&url, &[]), (&url, &[])], || {
        eventually("it works before", secs(10), || decides(&probe));
        std::thread::sleep(ms(700));
        // Nothing runs between its saving and its end.
        let _ = server.try_ask::<()>(&["SHUTDOWN", "SAVE"]);
        server.kill();
        server.slow_loading();
        server.launch();
        let loading = |e: &redis::RedisError| e.code() == Some("LOADING");
        eventually("it loads", secs(5), || {
            server
                .try_ask::<String>(&["PING"])
                .err()
                .as_ref()
                .is_some_and(loading)
        });
        eventually("it has loaded", secs(20), || {
            server.try_ask::<String>(&["PING"]).is_ok()
        });
        let took = eventually("Redis decides again", secs(5), || decides(&probe));
        println!("figure: LOADING: decides after {took:?}");
        std::thread::sleep(ms(500));
    });
    let all = adds_up(&url, &loaded);
    report("LOADING", &all);
    assert!(all.backend > 0 && all.denied == 0, "{all:?}");
}

#[test]
fn without_room_for_connections_nothing_is_lost_and_those_that_are_there_go_on() {
    let server = Server::with(&["--maxclients", "20"]);
    let url = server.url();
    let mut others: Vec<redis::Connection> = Vec::new();
    let plain = redis::Client::open(url.clone()).unwrap();
    let shapes = vec![rates().remove(0), semaphores(2).remove(1)];
    let loaded = load(shapes, &[(&url, &[]), (&url, &[])], || {
        std::thread::sleep(ms(500));
        while let Ok(another) = plain.get_connection() {
            others.push(another);
        }
        // Who comes now does not get in; who is cut off does not get in again.
        let late = hasty(&url);
        let probe = limiter(&late, "probe", &[tally()]);
        assert_eq!(acquire(&probe, &Request::TRY).status, Status::Backend);
        let mut last = others.pop().unwrap();
        let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut last).unwrap();
        for line in list.lines().filter(|line| line.contains("name=liblimiter")) {
            let id = line.strip_prefix("id=").unwrap().split(' ').next().unwrap();
            let mut kill = redis::cmd("CLIENT");
            let _: Result<i64, _> = kill.arg(&["KILL", "ID", id]).query(&mut last);
            others.extend(plain.get_connection());
        }
        std::thread::sleep(ms(1000));
        others.clear();
        drop(last);
        let took = eventually("there is room again", secs(5), || decides(&probe));
        println!("figure: maxclients: decides after {took:?}");
        std::thread::sleep(ms(500));
    });
    let all = adds_up(&url, &loaded);
    report("maxclients", &all);
    assert_eq!(all.denied, 0);
}

#[test]
fn connections_that_are_killed_all_the_time_cost_no_permit_and_no_count() {
    let server = Server::start();
    let url = server.url();
    let loaded = load(
        everything(),
        &[(&url, &[PATIENT]), (&url, &[PATIENT])],
        || {
            let began = Instant::now();
            let mut killed = 0;
            while began.elapsed() < secs(4) {
                for kind in ["normal", "pubsub"] {
                    killed += server.ask::<u64>(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
                }
                std::thread::sleep(ms(50));
            }
            println!("figure: {killed} connections killed");
            assert!(killed > 40, "{killed}");
        },
    );
    let all = adds_up(&url, &loaded);
    report("CLIENT KILL", &all);
    for Outcome { shape, told } in &loaded.outcomes {
        assert_eq!(told.denied, 0, "{}", shape.name);
        if shape.holds() {
            // It is asked again under the same id.
            assert_eq!((told.backend, told.unknown), (0, 0), "{}", shape.name);
        }
    }
}
