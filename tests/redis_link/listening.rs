//! Pushed messages: heard, and heard again after whatever happens.
use std::sync::mpsc;

use limiter::redis::link::{Class, Lane, Push};

use crate::rig::{Rig, call, figure};
use crate::support::cluster::TestCluster;
use crate::support::proxy::{Mode, Proxy};
use crate::support::server::Server;
use crate::support::{eventually, ms, secs};

/// What a link hears on channel "mine" and "all", as a plain channel.
fn listen(rig: &Rig) -> mpsc::Receiver<Push> {
    let (tell, told) = mpsc::channel();
    let link = rig.link.clone();
    rig.handle.spawn(async move {
        let mut heard = link.listen(vec![b"mine".to_vec(), b"all".to_vec()]);
        while let Some(push) = heard.recv().await {
            if tell.send(push).is_err() {
                return;
            }
        }
    });
    told
}

#[track_caller]
fn next(heard: &mpsc::Receiver<Push>, expected: Push) {
    assert_eq!(heard.recv_timeout(secs(8)), Ok(expected));
}

fn message(channel: &str, payload: &str) -> Push {
    Push::Message {
        channel: channel.into(),
        payload: payload.into(),
    }
}

#[track_caller]
fn skip_to_listening(heard: &mpsc::Receiver<Push>) {
    while heard.recv_timeout(secs(8)).expect("listening again") != Push::Listening {}
}

#[test]
fn messages_arrive_from_scripts_and_commands() {
    let server = Server::start();
    let rig = Rig::new(&server.url());
    let heard = listen(&rig);
    next(&heard, Push::Listening);
    let publish = call(
        "return redis.call('PUBLISH', ARGV[1], ARGV[2])",
        &["k"],
        &["mine", "a\0b"],
    );
    rig.run(Lane::Bulk, publish, secs(2), Class::AtMostOnce)
        .unwrap();
    next(&heard, message("mine", "a\0b"));
    server.ask::<u64>(&["PUBLISH", "all", ""]);
    next(&heard, message("all", ""));
    drop(heard);
    server.ask::<u64>(&["PUBLISH", "all", "x"]);
    eventually("the subscription ends with its listener", secs(30), || {
        server.ask::<u64>(&["PUBLISH", "all", "x"]) == 0
    });
}

#[test]
fn heard_again_after_a_restart_and_after_a_kill() {
    let mut server = Server::start();
    let rig = Rig::new(&server.url());
    let heard = listen(&rig);
    next(&heard, Push::Listening);
    server.kill();
    next(&heard, Push::Deaf);
    server.boot();
    let began = std::time::Instant::now();
    next(&heard, Push::Listening);
    figure("listening again after a restart", began.elapsed());
    server.ask::<u64>(&["PUBLISH", "mine", "1"]);
    next(&heard, message("mine", "1"));
    server.ask::<u64>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    next(&heard, Push::Deaf);
    next(&heard, Push::Listening);
    server.ask::<u64>(&["PUBLISH", "mine", "2"]);
    next(&heard, message("mine", "2"));
}

#[test]
fn a_refused_subscription_is_tried_until_it_is_allowed() {
    let server = Server::start();
    server.ask::<()>(&[
        "ACL",
        "SETUSER",
        "app",
        "on",
        ">pw",
        "~*",
        "resetchannels",
        "+@all",
    ]);
    let rig = Rig::new(&format!("redis://app:pw@127.0.0.1:{}", server.port));
    let heard = listen(&rig);
    eventually("the refusal is logged", secs(30), || {
        rig.logged("NOPERM") == 1
    });
    assert!(heard.try_recv().is_err());
    server.ask::<()>(&["ACL", "SETUSER", "app", "allchannels"]);
    let began = std::time::Instant::now();
    next(&heard, Push::Listening);
    figure("listening after the ACL was repaired", began.elapsed());
}

#[test]
fn a_connection_that_looks_well_but_is_deaf_is_replaced() {
    let server = Server::start();
    let proxy = Proxy::before(server.port);
    let rig = Rig::with(&proxy.url(), |settings| {
        settings.push_check = ms(200);
        settings.connect = ms(300);
    });
    let heard = listen(&rig);
    next(&heard, Push::Listening);
    // Subscribed to nothing any more, and not told so.
    let list: String = server.ask(&["CLIENT", "LIST", "TYPE", "pubsub"]);
    assert!(list.contains("sub=2"), "{list}");
    proxy.set(Mode::BlackHole);
    next(&heard, Push::Deaf);
    proxy.set(Mode::Forward);
    skip_to_listening(&heard);
    server.ask::<u64>(&["PUBLISH", "mine", "x"]);
    next(&heard, message("mine", "x"));
}

#[test]
fn in_a_cluster_every_node_is_heard_and_the_listening_node_may_die() {
    let mut cluster = TestCluster::start();
    let rig = Rig::with(&cluster.url(), |settings| settings.push_check = ms(300));
    let heard = listen(&rig);
    skip_to_listening(&heard);
    for (n, node) in cluster.nodes.iter().enumerate() {
        node.ask::<u64>(&["PUBLISH", "mine", &n.to_string()]);
        next(&heard, message("mine", &n.to_string()));
    }
    let listening = cluster.nodes.iter().position(|node| {
        let list: String = node.ask(&["CLIENT", "LIST", "TYPE", "pubsub"]);
        list.contains("sub=2")
    });
    cluster.nodes[listening.expect("somewhere")].kill();
    let began = std::time::Instant::now();
    next(&heard, Push::Deaf);
    skip_to_listening(&heard);
    figure(
        "listening again after its cluster node died",
        began.elapsed(),
    );
}
