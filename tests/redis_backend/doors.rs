//! Ways to one server: a socket, TLS, a user with few rights, another database.
use std::collections::BTreeSet;
use std::time::Instant;

use limiter::client::ClientQueue;
use limiter::decision::{Decision, Status};
use limiter::limit::time::Span;
use limiter::limiter::{Limiter, spec};
use limiter::op::Request;
use limiter::redis::link::slot_of;

use crate::kit::*;
use crate::load::*;
use crate::support::cluster::TestCluster;
use crate::support::sentinel::Watched;
use crate::support::server::Server;
use crate::support::tls::{Certificates, TlsServer};
use crate::support::{eventually, ms, secs};

/// All that the library does to one server or a master behind sentinels: what its scripts call, what it
/// sends itself, its keys and its channels, for the prefix "limiter". In a cluster also `CLUSTER_TOO`.
pub const RIGHTS: &str = "~{limiter:* &limiter:notes:* \
    +evalsha +eval +publish +subscribe +ping +hello +client|setname \
    +time +get +set +del +pexpire +pttl \
    +zadd +zrem +zcard +zscore +zrank +zrange +zrangebyscore +zremrangebyscore \
    +hset +hget +hdel +hlen \
    +rpush +lset +lindex +llen +ltrim +setrange";

/// The rights without which it works as well, but for what is said here.
const SPARE: [&str; 7] = [
    "+hello",            // the older protocol is spoken, after one more round trip
    "+client|setname",   // CLIENT LIST does not say whose connection it is
    "+publish",          // who waits for a semaphore hears of its grant by the heartbeat only
    "+subscribe",        // the same
    "&limiter:notes:*",  // the same
    "+setrange",         // a bucket's hot path takes the longer way
    "+zremrangebyscore", // only on_failure = local counts processes
];

pub const CLUSTER_TOO: &str = "+cluster|slots +asking";

/// What every kind of call on every kind of limit answers, and that the server counts it.
fn everything_works(doors: &[Door], sound: &str) {
    let shapes = [rates(), semaphores(2)].concat();
    let loaded = load(shapes, doors, || std::thread::sleep(ms(1500)));
    let all = adds_up(sound, &loaded);
    report(doors[0].0.split("://").next().unwrap(), &all);
    assert_eq!(
        (all.backend, all.unknown, all.degraded, all.denied),
        (0, 0, 0, 0),
        "{all:?}"
    );
    let (url, settings) = doors[0];
    hand_over_and_renewal(url, settings);
}

/// A wait that is granted by a note, a lease that is renewed, a charge that is settled.
fn hand_over_and_renewal(url: &str, settings: &[(&str, &str)]) {
    let clients = [(); 2].map(|()| open_with(url, settings));
    let limits = [leased(1, 2000), tally()];
    let [here, there] = [0, 1].map(|n| limiter(&clients[n], "handed", &limits));
    let queue = ClientQueue::new(&clients[1]).unwrap();
    let held = acquire(&here, &Request::TRY);
    assert_eq!(held.status, Status::Ok);
    let waiting = queue.submit(&there, &within(60_000)).unwrap();
    std::thread::sleep(ms(3000));
    assert_eq!(queue.poll(1, Some(ms(0))), Ok(vec![]), "it is renewed");
    assert_eq!(here.settle(held.permit, 7), Ok(Status::Ok));
    assert_eq!(here.release(held.permit), Ok(Status::Ok));
    let granted = next(&queue);
    assert_eq!((granted.status, granted.op), (Status::Ok, waiting.op));
    assert_eq!(there.renew(granted.permit, None), Ok(Status::Ok));
    assert_eq!(there.release(granted.permit), Ok(Status::Ok));
    let shape = Shape {
        name: "handed",
        limits: limits.into(),
    };
    assert_eq!(shape.charged(&here), 8);
    for client in clients {
        assert_eq!(client.stats().unwrap().lost, 0);
    }
}

#[test]
fn a_unix_socket_and_a_database_of_its_own() {
    let server = Server::start();
    let url = format!("unix://{}?db=5", server.socket());
    let tcp = format!("{}/5", server.url());
    everything_works(&[(&url, &[PATIENT]), (&tcp, &[PATIENT])], &tcp);
    assert!(server.info("keyspace", "db5").starts_with("keys="));
    assert_eq!(
        server.info("keyspace", "db0"),
        "",
        "nothing in another database"
    );
    // The same names in another database are others.
    let name = [tally()];
    let (five, six) = (
        limiter(&open(&tcp), "apart", &name),
        limiter(&open(&format!("{}/6", server.url())), "apart", &name),
    );
    assert_eq!(acquire(&five, &weigh(3)).remaining, MANY - 3);
    assert_eq!(acquire(&six, &weigh(1)).remaining, MANY - 1);
}

#[test]
fn tls_by_the_authority_of_a_file() {
    let tls = TlsServer::start();
    let ca_file = tls.ca_file();
    let settings = [PATIENT, ("tls_ca_file", ca_file.as_str())];
    everything_works(
        &[(&tls.url(), &settings), (&tls.url(), &settings)],
        &tls.server.url(),
    );
    is_wary(&tls.url());
}

/// A client that does not know who signed gets no answer.
fn is_wary(url: &str) {
    let wary = limiter(&hasty(url), "wary", &[tally()]);
    assert_eq!(acquire(&wary, &Request::TRY).status, Status::Backend);
}

#[test]
fn tls_in_a_cluster_whose_slots_move() {
    let certificates = Certificates::new();
    let cluster = TestCluster::with_tls(&certificates);
    let (url, ca_file) = (cluster.url(), certificates.ca_file());
    assert!(url.starts_with("rediss-cluster://"), "{url}");
    let settings = [PATIENT, ("tls_ca_file", ca_file.as_str())];
    let plain = format!("redis-cluster://127.0.0.1:{}", cluster.nodes[0].port);
    everything_works(&[(&url, &settings), (&url, &settings)], &plain);
    let moved = limiter(&open_with(&url, &settings), "moved", &[tally()]);
    let key = "{limiter:T:moved:}:s";
    for n in 1..=3 {
        assert_eq!(acquire(&moved, &Request::TRY).remaining, MANY - 2 * n + 1);
        let from = cluster.owner(key);
        let (from, to) = (&cluster.nodes[from], &cluster.nodes[(from + 1) % 3]);
        // While it is open the new owner is to be asked by ASKING, after it by MOVED.
        cluster.migrate(slot_of(key.as_bytes()), from, to, || {
            assert_eq!(acquire(&moved, &Request::TRY).remaining, MANY - 2 * n);
        });
    }
    is_wary(&url);
}

#[test]
fn tls_behind_sentinels_whose_master_dies() {
    let certificates = Certificates::new();
    let mut watched = Watched::with_tls(&certificates);
    let (url, ca_file) = (watched.url(), certificates.ca_file());
    assert!(url.starts_with("rediss-sentinel://"), "{url}");
    let settings = [PATIENT, ("tls_ca_file", ca_file.as_str())];
    let master = watched.servers[0].url();
    everything_works(&[(&url, &settings), (&url, &settings)], &master);
    let limiter = limiter(&open_with(&url, &settings), "left", &[tally()]);
    assert_eq!(acquire(&limiter, &Request::TRY).remaining, MANY - 1);
    assert_eq!(watched.servers[0].ask::<u64>(&["WAIT", "2", "20000"]), 2);
    watched.servers[0].kill();
    eventually("the new master decides", secs(60), || {
        acquire(&limiter, &weigh(0)).status == Status::Ok
    });
    assert_eq!(acquire(&limiter, &Request::TRY).remaining, MANY - 2);
    is_wary(&url);
}

pub fn user(server: &Server, rights: &str) {
    let rights: Vec<&str> = rights.split_whitespace().collect();
    let command = ["ACL", "SETUSER", "app", "reset", "on", ">p@ss"];
    server.ask::<()>(&[&command[..], &rights].concat());
}

/// Calls that between them need every right; whether all of them answered as they should.
fn all_answer(server: &Server, url: &str) -> bool {
    let settings = [("on_failure", "local"), ("command_timeout_ms", "2000")];
    let client = open_with(url, &settings);
    let other = open_with(url, &settings);
    let mut fine = true;
    let mut check = |ok: bool| fine &= ok;
    let passes = |one: &Decision| (one.status, one.flags) == (Status::Ok, 0);
    let taken = |limiter: &Limiter| {
        let one = acquire(limiter, &Request::TRY);
        passes(&one).then_some(one.permit)
    };
    let rate = limiter(&client, "rate", &[bucket(MANY, MANY, HOUR)]);
    for _ in 0..9 {
        check(passes(&acquire(&rate, &Request::TRY)));
    }
    // Pages of a log are written, read, and settled in.
    let log = |name, window| limiter(&client, name, &[limit(spec::SLIDING_LOG, MANY, 0, window)]);
    let [short, long] = [log("short", 500_000), log("long", HOUR)];
    let mut permits = Vec::new();
    while permits.len() < 300 && permits.last() != Some(&None) {
        permits.push(taken(&long));
    }
    check(permits.last() != Some(&None));
    for permit in permits.iter().flatten().step_by(50) {
        check(long.settle(*permit, 0) == Ok(Status::Ok));
    }
    // They are dropped when they are old.
    let (mut going, began) = (true, Instant::now());
    while going && began.elapsed() < secs(1) {
        going = taken(&short).is_some();
    }
    check(going);
    // They are found without the rest, which then is not known.
    server.ask::<u64>(&["DEL", "{limiter:L:long:}:s"]);
    let full = acquire(&long, &Request::TRY);
    check((full.status, full.flags) == (Status::Denied, 0));
    check(long.reset(b"") == Ok(Status::Ok));
    let limits = [leased(1, 9000), bucket(1, 20, 1_000_000)];
    let [here, there] = [&client, &other].map(|client| limiter(client, "held", &limits));
    let queue = ClientQueue::new(&other).unwrap();
    let held = acquire(&here, &within(5000));
    check(passes(&held));
    for _ in 0..2 {
        queue.submit(&there, &within(60_000)).unwrap();
    }
    std::thread::sleep(ms(50));
    check(here.release(held.permit) == Ok(Status::Ok));
    let granted = queue.poll(1, Some(secs(20))).unwrap();
    check(
        granted
            .first()
            .is_some_and(|one| (one.status, one.flags) == (Status::Ok, 0)),
    );
    check(other.cancel_waits(0) == Ok(1));
    check(here.penalize(b"", Span::millis(1)) == Ok(Status::Ok));
    check(here.reset(b"") == Ok(Status::Ok));
    drop(queue);
    fine
}

#[test]
fn a_user_with_the_least_rights_can_do_everything_and_none_of_them_is_idle() {
    let server = Server::start();
    user(&server, &format!("{RIGHTS} >p@ss"));
    let url = server.url().replace("//", "//app:p%40ss@");
    everything_works(&[(&url, &[PATIENT]), (&url, &[PATIENT])], &server.url());
    assert!(all_answer(&server, &url));
    let denied = || -> BTreeSet<String> {
        let log: Vec<Vec<redis::Value>> = server.ask(&["ACL", "LOG", "128"]);
        let object = |entry: &Vec<redis::Value>| format!("{:?} {:?}", entry[3], entry[7]);
        log.iter().map(object).collect()
    };
    assert_eq!(denied(), BTreeSet::new(), "the server has refused nothing");
    for right in RIGHTS.split_whitespace() {
        server.ask::<()>(&["FLUSHALL"]);
        server.ask::<()>(&["SCRIPT", "FLUSH"]);
        server.ask::<()>(&["ACL", "LOG", "RESET"]);
        let fewer: Vec<&str> = RIGHTS
            .split_whitespace()
            .filter(|one| *one != right)
            .collect();
        user(&server, &fewer.join(" "));
        server.ask::<u64>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        let fine = all_answer(&server, &url);
        assert_eq!(fine, SPARE.contains(&right), "{right}: {:?}", denied());
        assert!(!denied().is_empty() || right == "+hello", "{right} is idle");
    }
}

#[test]
fn rights_and_passwords_that_come_later_are_used_then() {
    let server = Server::start();
    let url = server.url().replace("//", "//app:p%40ss@");
    let client = hasty(&url);
    let limiter = limiter(&client, "later", &[tally()]);
    let answers = |status| acquire(&limiter, &Request::TRY).status == status;
    eventually("no such user", secs(5), || answers(Status::Backend));
    user(&server, &RIGHTS.replace("+set ", ""));
    eventually("it may do too little", secs(5), || {
        let log: Vec<redis::Value> = server.ask(&["ACL", "LOG"]);
        answers(Status::Backend) && format!("{log:?}").contains("command")
    });
    user(&server, RIGHTS);
    let took = eventually("now it may", secs(5), || answers(Status::Ok));
    println!("figure: a user whose rights come later: decides after {took:?}");
}

#[test]
fn sentinels_have_a_log_in_of_their_own() {
    let watched = Watched::behind(Some("s3ntinel"));
    watched.admit("app", "p@ss");
    let ask = |settings: &[(&str, &str)]| {
        let client = open_with(&watched.url(), settings);
        acquire(&limiter(&client, "x", &[tally()]), &Request::TRY).status
    };
    let (user, password) = ("sentinel_username", "sentinel_password");
    for (settings, status) in [
        (&[][..], Status::Backend),
        (&[(password, "wrong")], Status::Backend),
        (&[(password, "s3ntinel"), PATIENT], Status::Ok),
        (&[(user, "app"), (password, "p@ss"), PATIENT], Status::Ok),
    ] {
        assert_eq!(ask(settings), status, "{settings:?}");
    }
}

#[test]
fn a_client_that_is_freed_leaves_no_connection() {
    let server = Server::start();
    let connections = || server.info("clients", "connected_clients");
    assert_eq!(connections(), "1", "the one that asks");
    for shut_down in [true, false] {
        let client = open(&server.url());
        let limiter = limiter(&client, "s", &[semaphore(1), tally()]);
        let queue = ClientQueue::new(&client).unwrap();
        assert_eq!(acquire(&limiter, &Request::TRY).status, Status::Ok);
        queue.submit(&limiter, &within(60_000)).unwrap();
        eventually("each lane is used, and it listens", secs(20), || {
            connections() == "3"
        });
        if shut_down {
            client.shutdown(Some(secs(20))).unwrap();
        }
        drop((queue, limiter, client));
        eventually("all are closed", secs(20), || connections() == "1");
    }
}
