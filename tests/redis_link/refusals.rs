//! The server answers, but with a no.
use std::time::Instant;

use limiter::redis::link::{Class, Failure, Lane};
use redis::Value;

use crate::rig::{Rig, call, code, command, figure, increment};
use crate::support::server::Server;
use crate::support::{eventually, ms, secs};

fn with_password(server: &Server, password: &str) -> String {
    format!("redis://:{password}@127.0.0.1:{}", server.port)
}

#[test]
fn a_rotated_password_is_an_auth_failure_until_it_is_restored() {
    let mut server = Server::with(&["--requirepass", "first"]);
    server.passwords.push("second".into());
    let rig = Rig::new(&with_password(&server, "first"));
    rig.once("k", secs(2)).unwrap();
    let mut worst = ms(0);
    for _ in 0..3 {
        server.ask::<()>(&["CONFIG", "SET", "requirepass", "second"]);
        server.ask::<u64>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        eventually(
            "refused",
            secs(30),
            || matches!(rig.once("k", ms(250)), Err(Failure::Auth { code, .. }) if &*code == "WRONGPASS"),
        );
        let began = Instant::now();
        assert!(matches!(rig.once("k", secs(1)), Err(Failure::Auth { .. })));
        assert!(
            began.elapsed() < ms(900),
            "nobody waits for a log-in that is refused"
        );
        server.ask::<()>(&["CONFIG", "SET", "requirepass", "first"]);
        worst = worst.max(rig.recovers(secs(30)));
    }
    figure("worst first success after a password was restored", worst);
    assert_eq!(
        rig.logged("WRONGPASS"),
        1,
        "once a minute: {:?}",
        rig.log.lock().unwrap()
    );
    assert_eq!(rig.logged("second") + rig.logged("first"), 0);
}

#[test]
fn wrong_and_missing_passwords_are_told_apart_from_being_down() {
    let server = Server::with(&["--requirepass", "right"]);
    for (url, expected) in [
        (server.url(), "NOAUTH"),
        (with_password(&server, "wrong"), "WRONGPASS"),
    ] {
        match Rig::new(&url).once("k", secs(1)) {
            Err(Failure::Auth { code, .. }) => assert_eq!(&*code, expected),
            other => panic!("{other:?}"),
        }
    }
    server.ask::<()>(&[
        "ACL", "SETUSER", "al%ice", "on", ">p@ss:/", "~*", "&*", "+@all",
    ]);
    let rig = Rig::new(&format!(
        "redis://al%25ice:p%40ss%3A%2F@127.0.0.1:{}/2",
        server.port
    ));
    assert_eq!(rig.once("k", secs(2)), Ok(Value::Int(1)));
}

#[test]
fn a_user_without_hello_or_rights_still_gets_typed_answers() {
    let server = Server::start();
    server.ask::<()>(&[
        "ACL", "SETUSER", "old", "on", ">pw", "~*", "+@all", "-hello",
    ]);
    let rig = Rig::new(&format!("redis://old:pw@127.0.0.1:{}", server.port));
    assert_eq!(
        rig.once("k", secs(2)),
        Ok(Value::Int(1)),
        "the older protocol"
    );
    server.ask::<()>(&[
        "ACL", "SETUSER", "poor", "on", ">pw", "~*", "+@all", "-evalsha", "-eval",
    ]);
    let rig = Rig::new(&format!("redis://poor:pw@127.0.0.1:{}", server.port));
    match rig.once("k", secs(2)) {
        Err(Failure::Permanent { code, .. }) => assert_eq!(&*code, "NOPERM"),
        other => panic!("{other:?}"),
    }
    assert_eq!(rig.link.stats().connected, 1, "no reason to reconnect");
}

#[test]
fn no_room_for_more_clients_heals() {
    let server = Server::with(&["--maxclients", "10"]);
    let client = redis::Client::open(server.url()).unwrap();
    let mut others: Vec<_> = (0..9).map(|_| client.get_connection().unwrap()).collect();
    while let Ok(another) = client.get_connection() {
        others.push(another);
        assert!(others.len() <= 10);
    }
    let rig = Rig::new(&server.url());
    for _ in 0..3 {
        assert!(rig.once("k", ms(200)).unwrap_err().not_executed());
    }
    drop(others);
    let took = rig.recovers(secs(30));
    figure("first success after clients made room", took);
}

#[test]
fn a_demoted_server_is_left_and_found_again() {
    let server = Server::start();
    let rig = Rig::new(&server.url());
    rig.once("k", secs(2)).unwrap();
    server.ask::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
    assert_eq!(code(rig.once("k", ms(300))), "READONLY");
    assert!(
        rig.link.stats().replaced >= 1,
        "perhaps the name leads to another server now"
    );
    server.ask::<()>(&["REPLICAOF", "NO", "ONE"]);
    figure("first success after promotion", rig.recovers(secs(30)));
    assert_eq!(server.number("k"), 1);
}

#[test]
fn a_full_server_is_waited_for_within_the_deadline() {
    let server = Server::start();
    let rig = Rig::new(&server.url());
    rig.once("k", secs(2)).unwrap();
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(code(rig.once("k", ms(150))), "OOM");
    let waiting = rig.begin(Lane::Control, increment("k"), secs(5), Class::AtMostOnce);
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(waiting.recv_timeout(secs(5)).unwrap().0, Ok(Value::Int(2)));
    assert_eq!(
        rig.link.stats().connected,
        2,
        "one for each lane: nobody reconnected"
    );
}

#[test]
fn other_passing_refusals_have_their_codes() {
    let server = Server::start();
    let rig = Rig::new(&server.url());
    rig.once("k", secs(2)).unwrap();
    server.ask::<()>(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    assert_eq!(code(rig.once("k", ms(100))), "NOREPLICAS");
    server.ask::<()>(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    rig.recovers(secs(30));

    server.ask::<()>(&["CONFIG", "SET", "busy-reply-threshold", "1"]);
    let endless = rig.begin(
        Lane::Control,
        call("while true do end", &["busy"], &[]),
        secs(10),
        Class::AtMostOnce,
    );
    eventually(
        "busy",
        secs(30),
        || matches!(rig.once("k", ms(100)), Err(Failure::NotExecuted { code, .. }) if &*code == "BUSY"),
    );
    server.ask::<()>(&["SCRIPT", "KILL"]);
    assert!(matches!(
        endless.recv_timeout(secs(5)).unwrap().0,
        Err(Failure::Permanent { .. })
    ));
    rig.recovers(secs(30));

    std::fs::create_dir(server.file("dump.rdb")).unwrap(); // so that saving fails
    server.ask::<()>(&["CONFIG", "SET", "save", "3600 1"]);
    server.ask::<String>(&["BGSAVE"]);
    eventually(
        "misconf",
        secs(30),
        || matches!(rig.once("k", ms(100)), Err(Failure::NotExecuted { code, .. }) if &*code == "MISCONF"),
    );
    server.ask::<()>(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    rig.recovers(secs(30));
}

#[test]
fn a_loading_server_is_not_up_yet() {
    let mut server = Server::with(&["--rdbcompression", "no"]);
    let fill = "for n = 1, 20000 do redis.call('SET', n, n) end";
    server.ask::<()>(&["EVAL", fill, "0"]);
    server.ask::<()>(&["SAVE"]);
    server.ask::<()>(&["CONFIG", "SET", "save", ""]);
    let rig = Rig::new(&server.url());
    rig.once("k", secs(2)).unwrap();
    server.kill();
    server.slow_loading();
    server.launch();
    eventually("loading is the reason given", secs(30), || {
        let answer = rig.run(Lane::Bulk, increment("k"), ms(100), Class::AtMostOnce);
        answer.is_err() && code(answer) == "LOADING"
    });
    figure("loaded after", rig.recovers(secs(10)));
}

#[test]
fn errors_of_scripts_are_permanent_and_typed() {
    let server = Server::start();
    let rig = Rig::new(&server.url());
    let of = |source: &str| {
        rig.run(
            Lane::Bulk,
            call(source, &["k"], &[]),
            secs(2),
            Class::Idempotent,
        )
        .unwrap_err()
    };
    server.ask::<u64>(&["LPUSH", "k", "x"]);
    assert!(matches!(
        of("return redis.call('INCR', KEYS[1])"),
        Failure::WrongType { .. }
    ));
    for (source, expected) in [
        (
            "return redis.error_reply('LIMITERGARBAGE in state')",
            "LIMITERGARBAGE",
        ),
        ("error('oops')", "ERR"),
        ("this is not Lua", "ERR"),
    ] {
        match of(source) {
            Failure::Permanent { code, .. } => assert_eq!(&*code, expected, "{source}"),
            other => panic!("{other:?}"),
        }
    }
    // A server that says no works: errors of scripts do not open the breaker.
    for _ in 0..20 {
        of("error('oops')");
    }
    assert!(
        rig.run(Lane::Bulk, command(&["PING"]), secs(1), Class::Idempotent)
            .is_ok()
    );
    assert!(rig.link.is_healthy());
}

#[test]
fn a_failing_server_is_cheap_one_probe_at_a_time() {
    let server = Server::start();
    let rig = Rig::new(&server.url());
    rig.once("k", secs(2)).unwrap();
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    eventually("the breaker opens", secs(30), || {
        let began = Instant::now();
        let answer = rig.once("k", ms(100));
        let open = matches!(answer, Err(Failure::NotExecuted { code, .. }) if &*code == "BREAKER");
        open && began.elapsed() < ms(5)
    });
    assert!(!rig.link.is_healthy());
    let (before, began) = (rig.link.stats().sent, Instant::now());
    let mut refused = 0;
    while began.elapsed() < ms(500) {
        let answer = rig.once("k", ms(20));
        let code = match &answer {
            Err(Failure::NotExecuted { code, .. }) => code.as_ref(),
            _ => "a probe's answer",
        };
        refused += u32::from(code == "BREAKER");
        assert!(answer.is_err());
    }
    let sent = rig.link.stats().sent - before;
    assert!(sent < 20 && refused > 100, "{sent} sent, {refused} refused");
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    figure(
        "first success after an open breaker",
        rig.recovers(secs(30)),
    );
    assert!(rig.link.is_healthy());
}
