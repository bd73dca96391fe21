//! A master behind sentinels that dies, is replaced, or is frozen.
use std::time::Instant;

use limiter::redis::link::{Class, Failure, Lane};

use crate::rig::{Rig, code, figure, increment};
use crate::support::sentinel::{DOWN_AFTER_MS, Watched};
use crate::support::{eventually, ms, secs};

#[test]
fn the_new_master_is_found_after_a_kill_a_freeze_and_a_dead_sentinel() {
    let mut watched = Watched::start();
    let rig = Rig::new(&watched.url());
    rig.once("k", secs(2)).unwrap();
    assert_eq!(watched.servers[0].number("k"), 1);
    let acknowledged: u64 = watched.servers[0].ask(&["WAIT", "2", "2000"]);
    assert_eq!(acknowledged, 2);

    let waiting = rig.begin(Lane::Control, increment("k"), secs(30), Class::Idempotent);
    waiting.recv_timeout(secs(2)).unwrap().0.unwrap();
    watched.servers[0].ask::<u64>(&["WAIT", "2", "2000"]);
    watched.servers[0].kill();
    let killed = Instant::now();
    let dead = watched.servers[0].port;
    let (announced, took) = std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            eventually("a new master", secs(30), || {
                watched.master_but(dead).is_some()
            });
            killed.elapsed()
        });
        rig.recovers(secs(30));
        let took = killed.elapsed();
        (watching.join().unwrap(), took)
    });
    let whole = format!("sentinel failover after kill (down-after {DOWN_AFTER_MS} ms)");
    figure(&whole, took);
    let ours = took.saturating_sub(announced);
    figure("of that, after a sentinel named the new master", ours);
    assert!(ours < ms(700), "{ours:?}");
    let master = watched.master_but(dead).expect("a master");
    assert_eq!(master.number("k"), 2);

    watched.kill_first_sentinel();
    let rig = Rig::new(&watched.url());
    // Another sentinel answers; it may still have to hear of the new master.
    rig.recovers(secs(30));
}

#[test]
fn a_master_that_is_none_is_not_believed() {
    let watched = Watched::start();
    let rig = Rig::new(&watched.url());
    rig.once("k", secs(2)).unwrap();
    // The master is demoted behind the sentinels' back: writes are refused until they promote again.
    let port = watched.servers[1].port.to_string();
    watched.servers[0].ask::<()>(&["REPLICAOF", "127.0.0.1", &port]);
    watched.servers[0].ask::<u64>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    eventually("the role is noticed", secs(30), || {
        let answer = rig.once("k", ms(500));
        let known = matches!(&answer, Err(failure) if failure.not_executed());
        known && ["NOTMASTER", "READONLY"].contains(&code(answer).as_str())
    });
    watched.servers[0].ask::<()>(&["REPLICAOF", "NO", "ONE"]);
    rig.recovers(secs(30));
}

#[test]
fn an_unknown_master_and_unreachable_sentinels_say_so() {
    let watched = Watched::start();
    let rig = Rig::new(&watched.url().replace("mymaster", "nomaster"));
    eventually("named", secs(30), || match rig.once("k", ms(100)) {
        Err(Failure::NotExecuted { code, .. } | Failure::DeadlineNotSent { code }) => {
            &*code == "NOMASTER"
        }
        other => panic!("{other:?}"),
    });
    let began = Instant::now();
    assert!(rig.once("k", ms(300)).unwrap_err().not_executed());
    assert!(began.elapsed() < secs(2));
}
