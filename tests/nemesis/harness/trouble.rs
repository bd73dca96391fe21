//! Where the processes have their limits, and what happens there.
use std::collections::BTreeMap;
use std::time::Duration;

use redis::{Connection, FromRedisValue};

use crate::member::Crowd;
use crate::support::cluster::TestCluster;
use crate::support::proxy::{Mode, Proxy};
use crate::support::sentinel::Watched;
use crate::support::server::Server;
use crate::support::{eventually, ms, secs};

/// Numbers that look random.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn millis(&mut self, least: u64, most: u64) -> Duration {
        ms(least + self.below(most - least))
    }
}

enum Servers {
    /// With a proxy before it for each process. What it acknowledged it has on disk.
    Alone(Box<Server>, Vec<Proxy>),
    Sentinel(Box<Watched>),
    Cluster(TestCluster),
}

pub struct Place {
    servers: Servers,
    pub failovers: u32,
    done: BTreeMap<&'static str, u32>,
}

impl Place {
    pub fn start(topology: &str) -> Place {
        let servers = match topology {
            "alone" => {
                let server = Server::with(&["--appendonly", "yes", "--appendfsync", "always"]);
                let proxies = (0..4).map(|_| Proxy::before(server.port)).collect();
                Servers::Alone(Box::new(server), proxies)
            }
            "sentinel" => Servers::Sentinel(Box::new(Watched::start())),
            "cluster" => Servers::Cluster(TestCluster::start()),
            other => panic!("no such topology: {other}"),
        };
        Place {
            servers,
            failovers: 0,
            done: BTreeMap::new(),
        }
    }

    /// What the processes connect to, one each.
    pub fn ways(&self) -> Vec<String> {
        match &self.servers {
            Servers::Alone(_, proxies) => proxies.iter().map(Proxy::url).collect(),
            _ => vec![self.url(); 4],
        }
    }

    pub fn url(&self) -> String {
        match &self.servers {
            Servers::Alone(server, _) => server.url(),
            Servers::Sentinel(watched) => watched.url(),
            Servers::Cluster(cluster) => cluster.url(),
        }
    }

    pub fn calm(&mut self) {
        if let Servers::Alone(_, proxies) = &self.servers {
            proxies.iter().for_each(|proxy| proxy.set(Mode::Forward));
        }
    }

    pub fn faults(&self) -> u32 {
        self.done.values().sum()
    }

    pub fn told(&self) -> String {
        let each = self
            .done
            .iter()
            .map(|(what, count)| format!("{count} {what}"));
        each.collect::<Vec<_>>().join(", ")
    }
}

/// Something goes wrong, and is put right again.
pub fn some(place: &mut Place, crowd: &mut Crowd, dice: &mut Dice) {
    std::thread::sleep(dice.millis(50, 300));
    let what = match dice.below(5) {
        0 => {
            crowd.kill_one(dice);
            "clients killed"
        }
        1 => {
            let span = dice.millis(50, 3500);
            crowd.stop_one(dice, span);
            "clients stopped"
        }
        _ => match &mut place.servers {
            Servers::Alone(server, proxies) => alone(server, proxies, dice),
            Servers::Sentinel(watched) => {
                place.failovers += 1;
                master_dies(watched)
            }
            Servers::Cluster(cluster) => cluster_moves(cluster, &mut place.failovers, dice),
        },
    };
    *place.done.entry(what).or_default() += 1;
}

fn alone(server: &mut Server, proxies: &[Proxy], dice: &mut Dice) -> &'static str {
    let proxy = &proxies[dice.below(proxies.len() as u64) as usize];
    let span = dice.millis(50, 500);
    match dice.below(15) {
        0 => {
            server.freeze();
            std::thread::sleep(3 * span);
            server.thaw();
            "servers stopped"
        }
        1 => {
            server.kill();
            std::thread::sleep(span);
            server.boot();
            "restarts"
        }
        2 => {
            server.ask::<()>(&["CLIENT", "KILL", "TYPE", "normal"]);
            "connections killed"
        }
        3 => {
            server.ask::<()>(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            "subscriptions killed"
        }
        4 => {
            server.ask::<()>(&["CLIENT", "PAUSE", &span.as_millis().to_string(), "ALL"]);
            std::thread::sleep(span);
            "pauses"
        }
        5 => {
            server.ask::<()>(&["SCRIPT", "FLUSH"]);
            "scripts flushed"
        }
        6 => {
            with(
                server,
                &["CONFIG", "SET", "maxmemory", "1"],
                &["CONFIG", "SET", "maxmemory", "0"],
                span,
            );
            "times out of memory"
        }
        7 => {
            with(
                server,
                &["CONFIG", "SET", "maxclients", "1"],
                &["CONFIG", "SET", "maxclients", "10000"],
                span,
            );
            "times out of connections"
        }
        8 => {
            with(
                server,
                &["CONFIG", "SET", "requirepass", "rotated"],
                &["CONFIG", "SET", "requirepass", ""],
                span,
            );
            "passwords rotated"
        }
        9 => {
            with(
                server,
                &["ACL", "SETUSER", "default", "resetchannels"],
                &["ACL", "SETUSER", "default", "allchannels"],
                span,
            );
            "times without channels"
        }
        10 => {
            proxy.cut();
            "cuts"
        }
        11 | 12 => {
            proxy.set(Mode::BlackHole);
            std::thread::sleep(dice.millis(100, 3500));
            proxy.cut();
            proxy.set(Mode::Forward);
            "black holes"
        }
        13 => {
            proxy.set(Mode::Delay(dice.millis(1, 100)));
            std::thread::sleep(2 * span);
            proxy.set(Mode::Forward);
            "delays"
        }
        _ => {
            for _ in 0..5 {
                proxy.set(Mode::LoseReply);
                std::thread::sleep(ms(30));
            }
            proxy.set(Mode::Forward);
            "replies lost"
        }
    }
}

/// Something is set on a server, those who are connected have to come again, and it is set back: by a
/// connection that was there before.
fn with(server: &Server, set: &[&str], back: &[&str], span: Duration) {
    let client = redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_connection().unwrap();
    order::<()>(&mut connection, set);
    order::<()>(&mut connection, &["CLIENT", "KILL", "TYPE", "normal"]);
    std::thread::sleep(span);
    order::<()>(&mut connection, back);
}

fn order<T: FromRedisValue>(connection: &mut Connection, command: &[&str]) -> T {
    let answer = redis::cmd(command[0]).arg(&command[1..]).query(connection);
    answer.unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn master_dies(watched: &mut Watched) -> &'static str {
    let is_master = |server: &Server| {
        let role = server.try_ask::<Vec<redis::Value>>(&["ROLE"]);
        role.is_ok_and(|role| role[0] == redis::Value::BulkString(b"master".to_vec()))
    };
    let mut old = 0;
    eventually("a master", secs(60), || {
        let agreed = watched.agreed().filter(|server| is_master(server));
        old = agreed.map_or(0, |server| server.port);
        old > 0
    });
    let own = watched.servers.iter().position(|server| server.port == old);
    let own = own.expect("one of them");
    watched.servers[own].kill();
    eventually("another master", secs(60), || {
        // A sentinel that has not heard of it yet names the one before.
        watched.master_but(old).is_some_and(is_master)
    });
    watched.servers[own].boot();
    // The old one comes back as a replica, or is made the master again by sentinels that were late.
    eventually("it follows", secs(60), || {
        let (server, Some(named)) = (&watched.servers[own], watched.agreed()) else {
            return false;
        };
        let to = named.port.to_string();
        let follows = server.info("replication", "master_port") == to
            && server.info("replication", "master_link_status") == "up";
        if named.port == old {
            // Nobody is, if it was told to follow one that is to follow it.
            server.ask::<()>(&["REPLICAOF", "NO", "ONE"]);
        } else if !follows {
            server.ask::<()>(&["REPLICAOF", "127.0.0.1", &to]);
        }
        is_master(named) && (named.port == old || follows)
    });
    "failovers"
}

fn cluster_moves(cluster: &mut TestCluster, failovers: &mut u32, dice: &mut Dice) -> &'static str {
    let key = ["{limiter:S:held:}:s", "{limiter:T:rate:}:t"][dice.below(2) as usize];
    let owner = cluster.owner(key);
    if dice.below(2) == 0 {
        let slot: u16 = cluster.nodes[owner].ask(&["CLUSTER", "KEYSLOT", key]);
        let masters = (0..6)
            .filter(|n| *n != owner && cluster.nodes[*n].info("replication", "role") == "master");
        let masters: Vec<usize> = masters.collect();
        let to = masters[dice.below(masters.len() as u64) as usize];
        let open = dice.millis(5, 200);
        cluster.migrate(slot, &cluster.nodes[owner], &cluster.nodes[to], || {
            std::thread::sleep(open)
        });
        return "slots moved";
    }
    *failovers += 1;
    cluster.nodes[owner].kill();
    eventually("another node has its slots", secs(60), || {
        let others = cluster
            .nodes
            .iter()
            .enumerate()
            .filter(|(n, _)| *n != owner);
        let mut masters = others.filter(|(_, node)| node.info("replication", "role") == "master");
        masters.any(|(_, node)| node.try_ask::<String>(&["TYPE", key]).is_ok())
    });
    cluster.nodes[owner].boot();
    cluster.settled();
    "failovers"
}
