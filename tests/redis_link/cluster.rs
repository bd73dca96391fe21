//! A cluster whose slots move and whose masters die.
use std::time::{Duration, Instant};

use limiter::redis::link::{Class, Failure, Lane, slot_of};

use crate::rig::{Answer, Rig, call, figure, increment};
use crate::support::cluster::{NODE_TIMEOUT_MS, TestCluster};
use crate::support::server::Server;
use crate::support::{eventually, ms, secs};

const TWO_KEYS: &str = "redis.call('INCR', KEYS[2]) return redis.call('INCR', KEYS[1])";

fn batch(rig: &Rig, keys: usize, class: Class) -> Vec<Answer> {
    let (tell, told) = std::sync::mpsc::channel();
    let (link, deadline) = (rig.link.clone(), Instant::now() + ms(1000));
    rig.handle.spawn(async move {
        let requests: Vec<_> = (0..keys).map(|n| increment(&format!("{{b{n}}}"))).collect();
        tell.send(link.batch(Lane::Bulk, &requests, deadline, class).await)
            .unwrap();
    });
    told.recv_timeout(secs(3)).unwrap()
}

#[test]
fn a_batch_over_all_nodes_a_migration_and_a_failover() {
    let mut cluster = TestCluster::start();
    let rig = Rig::new(&cluster.url());
    let results = batch(&rig, 60, Class::AtMostOnce);
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert!((0..60).all(|n| cluster.number_but(5, &format!("{{b{n}}}")) == 1));
    assert_eq!(rig.link.stats().redirected, 0, "the map was read first");

    migration(&cluster, &rig);
    for victim in [0, 1] {
        failover(&mut cluster, &rig, victim);
    }
}

fn migration(cluster: &TestCluster, rig: &Rig) {
    let pair = ["{m}:1", "{m}:2"];
    let both = || call(TWO_KEYS, &pair, &[]);
    rig.run(Lane::Bulk, both(), secs(2), Class::AtMostOnce)
        .unwrap();
    let slot = slot_of(b"{m}");
    let owner = cluster.owner(pair[0]);
    let (from, to) = (&cluster.nodes[owner], &cluster.nodes[(owner + 1) % 3]);
    let (mut stuck, before) = (None, rig.link.stats());
    cluster.migrate(slot, from, to, || {
        // One key here, one there: TRYAGAIN, and it runs once the other has moved too.
        let waiting = rig.begin(Lane::Bulk, both(), secs(5), Class::AtMostOnce);
        // A key that does not exist yet is asked for at the new owner.
        let fresh = rig.run(Lane::Bulk, increment("{m}:3"), secs(2), Class::AtMostOnce);
        assert_eq!(fresh, Ok(redis::Value::Int(1)));
        stuck = Some(waiting);
    });
    let (answer, took) = stuck.unwrap().recv_timeout(secs(5)).unwrap();
    assert_eq!(
        answer,
        Ok(redis::Value::Int(2)),
        "executed exactly once more"
    );
    let retried = rig.link.stats().retried - before.retried;
    assert!(
        retried >= 2,
        "one was held up, the other asked elsewhere: {retried}"
    );
    figure("a two-key script held up by a migration", took);
    for n in 3..=10 {
        assert_eq!(
            rig.run(Lane::Bulk, both(), secs(2), Class::AtMostOnce),
            Ok(redis::Value::Int(n))
        );
    }
    assert!(rig.link.stats().redirected > 0);
    let settled = rig.link.stats().redirected;
    eventually("the new map is used", secs(30), || {
        rig.run(Lane::Bulk, increment("{m}:3"), secs(2), Class::AtMostOnce)
            .unwrap();
        rig.link.stats().redirected == settled
    });
}

/// The first victim is killed, the second only frozen.
fn failover(cluster: &mut TestCluster, rig: &Rig, victim: usize) {
    let keys: Vec<String> = (0..60).map(|n| format!("{{b{n}}}")).collect();
    let on_victim: Vec<usize> = (0..60)
        .filter(|n| {
            let owner = &cluster.nodes[victim];
            owner.try_ask::<Option<u64>>(&["GET", &keys[*n]]).is_ok()
        })
        .collect();
    assert!(on_victim.len() > 5);
    // Not asked: a replica at first, then the node that was killed.
    let gone = (victim + 5) % 6;
    let base: Vec<u64> = keys
        .iter()
        .map(|key| cluster.number_but(gone, key))
        .collect();
    cluster.nodes[victim].ask::<u64>(&["WAIT", "1", "2000"]);
    match victim {
        0 => cluster.nodes[victim].kill(),
        _ => cluster.nodes[victim].freeze(),
    }
    let began = Instant::now();
    let (promoted, (took, mut succeeded, unknown)) = std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let replica = &cluster.nodes[victim + 3];
            let promoted = || replica.info("replication", "role") == "master";
            eventually("promotion", secs(30), promoted);
            began.elapsed()
        });
        let outcome = until_all_answer(rig, &on_victim, began);
        (watching.join().unwrap(), outcome)
    });
    let how = ["kill", "freeze"][victim];
    figure(
        &format!("cluster failover after {how} (node-timeout {NODE_TIMEOUT_MS} ms)"),
        took,
    );
    let ours = took.saturating_sub(promoted);
    figure("of that, after the replica was promoted", ours);
    for (n, key) in keys.iter().enumerate() {
        succeeded[n] += base[n];
        let ran = cluster.number_but(victim, key);
        assert!(
            ran >= succeeded[n] && ran <= succeeded[n] + unknown[n],
            "{key}: ran {ran}, {} answered, {} unknown",
            succeeded[n],
            unknown[n]
        );
    }
}

/// Increments 60 keys until all are answered: when, and for each key how many increments were
/// answered and how many nobody knows of.
fn until_all_answer(
    rig: &Rig,
    on_dead: &[usize],
    began: Instant,
) -> (Duration, Vec<u64>, Vec<u64>) {
    let (mut succeeded, mut unknown) = (vec![0u64; 60], vec![0u64; 60]);
    loop {
        let results = batch(rig, 60, Class::AtMostOnce);
        for (n, result) in results.iter().enumerate() {
            match result {
                Ok(_) => succeeded[n] += 1,
                Err(Failure::Ambiguous(_)) => unknown[n] += 1,
                Err(failure) => assert!(failure.not_executed(), "{failure}"),
            }
            assert!(
                result.is_ok() || on_dead.contains(&n),
                "the living serve: {result:?}"
            );
        }
        if results.iter().all(Result::is_ok) {
            return (began.elapsed(), succeeded, unknown);
        }
        assert!(began.elapsed() < secs(60), "no failover: {results:?}");
        std::thread::sleep(ms(5));
    }
}

#[test]
fn a_server_that_is_no_cluster_says_so() {
    let server = Server::start();
    let rig = Rig::new(&server.url().replace("redis://", "redis-cluster://"));
    eventually("the reason is given", secs(30), || {
        match rig.once("k", ms(200)) {
            Err(Failure::NotExecuted { code, .. } | Failure::DeadlineNotSent { code }) => {
                &*code == "ERR"
            }
            other => panic!("{other:?}"),
        }
    });
}
