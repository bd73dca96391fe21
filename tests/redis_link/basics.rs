//! What works while nothing is wrong.
use std::time::Instant;

use limiter::redis::link::{Class, Failure, Lane};
use redis::Value;

use crate::rig::{Rig, call, command, increment};
use crate::support::server::Server;
use crate::support::tls::TlsServer;
use crate::support::{eventually, ms, secs};

#[test]
fn a_script_is_sent_whole_once_and_then_by_name() {
    let server = Server::start();
    let rig = Rig::new(&server.url());
    for n in 1..=5 {
        assert_eq!(rig.once("k", secs(2)), Ok(Value::Int(n)));
    }
    assert_eq!(server.number("k"), 5);
    let stats = rig.link.stats();
    assert_eq!((stats.bodies_sent, stats.sent, stats.connected), (1, 6, 1));
    assert!(rig.link.is_healthy());
}

#[test]
fn keys_and_arguments_may_be_any_bytes() {
    let server = Server::start();
    let rig = Rig::new(&server.url());
    let bytes = "\0\r\n{}%é";
    let echo = call(
        "return {KEYS[1], ARGV[1], ARGV[2], #ARGV[2]}",
        &[bytes],
        &[bytes, ""],
    );
    let reply = rig
        .run(Lane::Bulk, echo, secs(2), Class::AtMostOnce)
        .unwrap();
    let text = || Value::BulkString(bytes.into());
    let empty = Value::BulkString(Vec::new());
    assert_eq!(
        reply,
        Value::Array(vec![text(), text(), empty, Value::Int(0)])
    );
}

#[test]
fn a_batch_is_one_write_and_its_results_are_in_order() {
    let server = Server::start();
    let rig = Rig::new(&server.url());
    let mut requests: Vec<_> = (0..300)
        .map(|n| increment(&format!("k{}", n % 100)))
        .collect();
    requests.push(command(&["PING"]));
    requests.push(call(
        "return redis.call('LPUSH', KEYS[1], 'x')",
        &["k0"],
        &[],
    ));
    let (link, deadline) = (rig.link.clone(), Instant::now() + secs(5));
    let (tell, told) = std::sync::mpsc::channel();
    rig.handle.spawn(async move {
        let results = link
            .batch(Lane::Bulk, &requests, deadline, Class::AtMostOnce)
            .await;
        tell.send(results).unwrap();
    });
    let mut results = told.recv_timeout(secs(5)).unwrap();
    assert!(matches!(
        results.pop(),
        Some(Err(Failure::WrongType { .. }))
    ));
    assert_eq!(results.pop(), Some(Ok(Value::SimpleString("PONG".into()))));
    let sum: i64 = results
        .into_iter()
        .map(|r| redis::from_redis_value::<i64>(r.unwrap()).unwrap())
        .sum();
    assert_eq!(sum, 100 * (1 + 2 + 3));
    assert!((0..100).all(|n| server.number(&format!("k{n}")) == 3));
}

#[test]
fn a_connection_is_made_by_the_first_call_and_lanes_have_their_own() {
    let server = Server::start();
    let rig = Rig::new(&server.url());
    let ours = || -> usize {
        let list: String = server.ask(&["CLIENT", "LIST"]);
        list.lines()
            .filter(|line| line.contains("name=liblimiter"))
            .count()
    };
    assert_eq!(ours(), 0);
    rig.run(Lane::Bulk, command(&["PING"]), secs(2), Class::Idempotent)
        .unwrap();
    assert_eq!(ours(), 1);
    rig.run(
        Lane::Control,
        command(&["PING"]),
        secs(2),
        Class::Idempotent,
    )
    .unwrap();
    assert_eq!(ours(), 2);
    let list: String = server.ask(&["CLIENT", "LIST"]);
    assert_eq!(
        list.lines()
            .filter(|l| l.contains("liblimiter") && l.contains("resp=3"))
            .count(),
        2
    );
    let Rig { link, .. } = rig;
    drop(link);
    eventually("connections close with the link", secs(30), || ours() == 0);
}

#[test]
fn a_cancelled_call_leaves_the_connection_in_order() {
    let server = Server::start();
    let rig = Rig::new(&server.url());
    rig.once("k", secs(2)).unwrap();
    for n in 0..200u64 {
        let link = rig.link.clone();
        let task = rig.handle.spawn(async move {
            let deadline = Instant::now() + secs(5);
            link.call(Lane::Bulk, increment("other"), deadline, Class::AtMostOnce)
                .await
        });
        if n % 3 != 0 {
            std::thread::yield_now();
        }
        task.abort();
        // Each caller gets its own answer, not one that was meant for the cancelled call.
        assert_eq!(rig.once("k", secs(2)), Ok(Value::Int(n as i64 + 2)));
    }
    assert_eq!(rig.link.stats().connected, 1);
}

#[test]
fn a_unix_socket_with_a_database() {
    let server = Server::start();
    let rig = Rig::new(&format!("unix://{}?db=5", server.socket()));
    rig.once("k", secs(2)).unwrap();
    let keys = server.info("keyspace", "db5");
    assert!(keys.starts_with("keys=1"), "{keys}");
}

#[test]
fn tls_trusts_its_authority_only_unless_told_otherwise() {
    let tls = TlsServer::start();
    let with_ca = Rig::with(&tls.url(), |s| s.trust.ca_file = Some(tls.ca_file()));
    with_ca.once("k", secs(3)).unwrap();
    let insecure = Rig::with(&tls.url(), |s| s.trust.insecure = true);
    insecure.once("k", secs(3)).unwrap();
    assert_eq!(tls.server.number("k"), 2);
    // Another authority: refused as quickly as the server answers, not after retries.
    let other = TlsServer::start();
    let wary = Rig::with(&tls.url(), |s| s.trust.ca_file = Some(other.ca_file()));
    eventually("the reason is known", secs(30), || {
        let _ = wary.once("k", ms(100));
        let error = wary.link.health()[0].bulk.last_error.clone();
        error.is_some_and(|e| &*e.code == "TLS" && e.message.contains("certificate"))
    });
    assert_eq!(tls.server.number("k"), 2);
    // Plain text to a TLS port, and TLS to a plain one, end as refusals too.
    let plain = Rig::new(&format!("redis://127.0.0.1:{}", tls.port));
    assert!(plain.once("k", ms(300)).unwrap_err().not_executed());
    let wrong = Rig::with(&format!("rediss://127.0.0.1:{}", tls.server.port), |s| {
        s.trust.insecure = true
    });
    assert!(wrong.once("k", ms(300)).unwrap_err().not_executed());
}

#[test]
fn scripts_flushed_all_the_time_are_never_missed() {
    let server = Server::start();
    let rig = Rig::new(&server.url());
    let stop = std::sync::atomic::AtomicBool::new(false);
    let mut expected = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                server.ask::<()>(&["SCRIPT", "FLUSH"]);
                std::thread::sleep(ms(5));
            }
        });
        let until = Instant::now() + secs(2);
        while Instant::now() < until {
            let (link, deadline) = (rig.link.clone(), Instant::now() + secs(5));
            let (tell, told) = std::sync::mpsc::channel();
            rig.handle.spawn(async move {
                let requests: Vec<_> = (0..20).map(|n| increment(&format!("k{n}"))).collect();
                let results = link
                    .batch(Lane::Bulk, &requests, deadline, Class::AtMostOnce)
                    .await;
                tell.send(results).unwrap();
            });
            let results = told.recv_timeout(secs(6)).unwrap();
            assert!(results.iter().all(Result::is_ok), "{results:?}");
            expected += 20;
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let ran: u64 = (0..20).map(|n| server.number(&format!("k{n}"))).sum();
    assert_eq!(ran, expected);
    assert!(rig.link.stats().bodies_sent > 5, "{:?}", rig.link.stats());
}
