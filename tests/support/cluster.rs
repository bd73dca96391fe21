//! A cluster: three masters with a replica each.
use super::process::free_port;
use super::server::Server;
use super::tls::Certificates;
use super::{eventually, secs};

pub struct TestCluster {
    /// The first three are masters at the start; node n+3 is the replica of node n.
    pub nodes: Vec<Server>,
    /// By which the nodes name each other, and are asked.
    ports: Vec<u16>,
    scheme: &'static str,
}

/// How long a node may be silent before the others vote it out.
pub const NODE_TIMEOUT_MS: u64 = 1000;

impl TestCluster {
    pub fn start() -> TestCluster {
        let nodes = boot_all(|_| Vec::new());
        let ports = nodes.iter().map(|node| node.port).collect();
        TestCluster::of(nodes, ports, "redis-cluster")
    }

    /// Of nodes that are asked by TLS, and ask each other so.
    pub fn with_tls(certificates: &Certificates) -> TestCluster {
        let ports: Vec<u16> = (0..6).map(|_| free_port()).collect();
        let nodes = boot_all(|n| {
            let mut args = certificates.on_port(ports[n]);
            for setting in ["--tls-cluster", "--tls-replication"] {
                args.extend([setting.into(), "yes".into()]);
            }
            args
        });
        TestCluster::of(nodes, ports, "rediss-cluster")
    }

    fn of(nodes: Vec<Server>, ports: Vec<u16>, scheme: &'static str) -> TestCluster {
        let cluster = TestCluster {
            nodes,
            ports,
            scheme,
        };
        cluster.form();
        cluster
    }

    fn form(&self) {
        // All of them before any has met another: afterwards it is refused.
        for (i, node) in self.nodes.iter().enumerate() {
            node.ask::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &(i + 1).to_string()]);
        }
        for (i, node) in self.nodes.iter().enumerate() {
            let other = (i + 1) % 6;
            let port = self.ports[other].to_string();
            let bus = self.nodes[other].ask_bus_port();
            node.ask::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        }
        for (node, (first, last)) in
            self.nodes
                .iter()
                .zip([(0, 5460), (5461, 10922), (10923, 16383)])
        {
            let (first, last) = (first.to_string(), last.to_string());
            node.ask::<()>(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
        }
        eventually("all nodes know each other", secs(60), || {
            self.nodes
                .iter()
                .all(|node| node.info_cluster("cluster_known_nodes") == "6")
        });
        for i in 0..3 {
            let id: String = self.nodes[i].ask(&["CLUSTER", "MYID"]);
            self.nodes[i + 3].ask::<()>(&["CLUSTER", "REPLICATE", &id]);
        }
        self.settled();
    }

    /// Waits until every running node serves and every replica follows.
    pub fn settled(&self) {
        eventually("the cluster serves", secs(60), || {
            self.nodes.iter().all(|node| {
                let role = node.info("replication", "role");
                node.info_cluster("cluster_state") == "ok"
                    && (role == "master" || node.info("replication", "master_link_status") == "up")
            })
        });
        eventually("masters have replicas", secs(60), || {
            let replicas = |n: &Server| {
                n.info("replication", "connected_slaves")
                    .parse()
                    .unwrap_or(0)
            };
            self.nodes.iter().map(replicas).sum::<u32>() == 3
        });
    }

    pub fn url(&self) -> String {
        format!(
            "{}://127.0.0.1:{},127.0.0.1:{}",
            self.scheme, self.ports[0], self.ports[1]
        )
    }

    /// Moves one slot, with what it holds, from one master to another, as redis-cli does.
    pub fn migrate(&self, slot: u16, from: &Server, to: &Server, while_open: impl FnOnce()) {
        let number = self.nodes.iter().position(|node| node.port == to.port);
        let port = self.ports[number.expect("one of its nodes")].to_string();
        let slot = slot.to_string();
        let from_id: String = from.ask(&["CLUSTER", "MYID"]);
        let to_id: String = to.ask(&["CLUSTER", "MYID"]);
        to.ask::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]);
        from.ask::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]);
        let keys: Vec<String> = from.ask(&["CLUSTER", "GETKEYSINSLOT", &slot, "1000"]);
        let (first, rest) = keys.split_at(keys.len().min(1));
        for key in first {
            from.ask::<String>(&["MIGRATE", "127.0.0.1", &port, key, "0", "1000"]);
        }
        while_open();
        for key in rest {
            from.ask::<String>(&["MIGRATE", "127.0.0.1", &port, key, "0", "1000"]);
        }
        for node in [to, from] {
            node.ask::<()>(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]);
        }
        for node in &self.nodes {
            let _ = node.try_ask::<()>(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]);
        }
    }

    /// Which node a key's slot belongs to.
    #[track_caller]
    pub fn owner(&self, key: &str) -> usize {
        let asked = self.nodes.iter().position(|node| {
            let role: String = node.info("replication", "role");
            role == "master" && node.try_ask::<String>(&["TYPE", key]).is_ok()
        });
        asked.expect("some master has it")
    }

    /// The number under a key, as its owner knows it; one node is not asked.
    pub fn number_but(&self, skipped: usize, key: &str) -> u64 {
        let others = self.nodes.iter().enumerate().filter(|(n, _)| *n != skipped);
        let masters = others.filter(|(_, node)| {
            node.try_ask::<Vec<redis::Value>>(&["ROLE"])
                .is_ok_and(|role| role[0] == redis::Value::BulkString(b"master".to_vec()))
        });
        let mut values = masters.filter_map(|(_, n)| n.try_ask::<Option<u64>>(&["GET", key]).ok());
        values.next().flatten().unwrap_or(0)
    }
}

impl Server {
    pub fn info_cluster(&self, field: &str) -> String {
        let text: String = self.ask(&["CLUSTER", "INFO"]);
        let found = text
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        found.unwrap_or_default().trim().to_owned()
    }

    fn ask_bus_port(&self) -> String {
        let config: Vec<String> = self.ask(&["CONFIG", "GET", "cluster-port"]);
        config[1].clone()
    }
}

fn boot_all(more: impl Fn(usize) -> Vec<String> + Sync) -> Vec<Server> {
    let more = &more;
    std::thread::scope(|scope| {
        let boots: Vec<_> = (0..6)
            .map(|n| scope.spawn(move || boot(&more(n))))
            .collect();
        boots.into_iter().map(|boot| boot.join().unwrap()).collect()
    })
}

fn boot(more: &[String]) -> Server {
    let (bus, timeout) = (free_port().to_string(), NODE_TIMEOUT_MS.to_string());
    #[rustfmt::skip]
    let mut args = vec![
        "--cluster-enabled", "yes", "--cluster-port", &bus, "--cluster-node-timeout", &timeout,
        "--cluster-replica-validity-factor", "0", "--repl-ping-replica-period", "1",
        "--cluster-require-full-coverage", "no",
    ];
    args.extend(more.iter().map(String::as_str));
    Server::with(&args)
}
