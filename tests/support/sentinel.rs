//! A master with two replicas, watched by three sentinels.
use super::process::{Dir, Process, free_port};
use super::server::{Server, program};
use super::{eventually, secs};

pub struct Watched {
    /// The first is the master at the start.
    pub servers: Vec<Server>,
    sentinels: Vec<(u16, Process)>,
    password: Option<&'static str>,
    _dirs: Vec<Dir>,
}

pub const DOWN_AFTER_MS: u64 = 500;

impl Watched {
    pub fn start() -> Watched {
        Watched::behind(None)
    }

    /// With a password that the sentinels want.
    pub fn behind(password: Option<&'static str>) -> Watched {
        let master = Server::start();
        let port = master.port.to_string();
        let of_master = [
            "--replicaof",
            "127.0.0.1",
            &port,
            "--repl-ping-replica-period",
            "1",
        ];
        let mut servers = vec![master];
        servers.extend((0..2).map(|_| Server::with(&of_master)));
        eventually("replicas follow", secs(60), || {
            servers[0].info("replication", "connected_slaves") == "2"
                && servers[1..]
                    .iter()
                    .all(|s| s.info("replication", "master_link_status") == "up")
        });
        let (mut sentinels, mut dirs) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let (dir, own) = (Dir::new(), free_port());
            let config = dir.file("sentinel.conf");
            let text = format!(
                "port {own}\nbind 127.0.0.1\ndir {}\nsentinel monitor mymaster 127.0.0.1 {port} 2\n\
                 sentinel down-after-milliseconds mymaster {DOWN_AFTER_MS}\n\
                 sentinel failover-timeout mymaster 3000\n",
                dir.file("")
            );
            let lock = |it| format!("requirepass {it}\nsentinel sentinel-pass {it}\n");
            let text = text + &password.map(lock).unwrap_or_default();
            std::fs::write(&config, text).unwrap();
            sentinels.push((
                own,
                Process::start(&program(), &[config, "--sentinel".into()]),
            ));
            dirs.push(dir);
        }
        let watched = Watched {
            servers,
            sentinels,
            password,
            _dirs: dirs,
        };
        watched.settled();
        watched
    }

    /// Waits until the sentinels know each other and both replicas.
    fn settled(&self) {
        eventually("sentinels agree", secs(60), || {
            self.sentinels.iter().all(|(port, _)| {
                let facts = self.ask(*port, &["SENTINEL", "MASTER", "mymaster"]);
                let is = |key: &str, value: &str| {
                    facts
                        .chunks(2)
                        .any(|pair| pair[0] == key && pair[1] == value)
                };
                is("num-slaves", "2") && is("num-other-sentinels", "2")
            })
        });
    }

    pub fn url(&self) -> String {
        let hosts: Vec<String> = self
            .sentinels
            .iter()
            .map(|(port, _)| format!("127.0.0.1:{port}"))
            .collect();
        format!("redis-sentinel://{}/mymaster", hosts.join(","))
    }

    /// Ends the sentinel that a client asks first.
    pub fn kill_first_sentinel(&mut self) {
        self.sentinels[0].1.kill();
    }

    /// The master that a sentinel names, if it is not on this port.
    pub fn master_but(&self, not: u16) -> Option<&Server> {
        self.named().flatten().find(|server| server.port != not)
    }

    /// The master that most sentinels name: one may keep to what it once heard.
    pub fn agreed(&self) -> Option<&Server> {
        let named: Vec<&Server> = self.named().flatten().collect();
        let votes = |port| named.iter().filter(|one| one.port == port).count();
        let most = named.iter().find(|one| votes(one.port) > 1);
        most.copied()
    }

    /// The master that each sentinel names.
    fn named(&self) -> impl Iterator<Item = Option<&Server>> {
        self.sentinels.iter().map(|(sentinel, _)| {
            let addr = self.ask(
                *sentinel,
                &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mymaster"],
            );
            let port: u16 = addr.get(1)?.parse().ok()?;
            self.servers.iter().find(|server| server.port == port)
        })
    }

    /// A user for those who ask.
    pub fn admit(&self, user: &str, password: &str) {
        let password = format!(">{password}");
        for (port, _) in &self.sentinels {
            self.ask(*port, &["ACL", "SETUSER", user, "on", &password, "+@all"]);
        }
    }

    fn ask(&self, port: u16, command: &[&str]) -> Vec<String> {
        let login = self
            .password
            .map(|it| format!(":{it}@"))
            .unwrap_or_default();
        let client = redis::Client::open(format!("redis://{login}127.0.0.1:{port}")).unwrap();
        let reply = client
            .get_connection()
            .and_then(|mut c| redis::cmd(command[0]).arg(&command[1..]).query(&mut c));
        reply.unwrap_or_default()
    }
}
