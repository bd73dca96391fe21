//! A master with two replicas, watched by three sentinels.
use super::process::{Dir, Process, free_port};
use super::server::{Server, program};
use super::tls::Certificates;
use super::{eventually, secs};

pub struct Watched {
    /// The first is the master at the start.
    pub servers: Vec<Server>,
    /// By which the servers are named.
    ports: Vec<u16>,
    sentinels: Vec<(u16, Process)>,
    url: String,
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
        Watched::of(password, None)
    }

    /// All of them are asked by TLS, and ask each other so.
    pub fn with_tls(certificates: &Certificates) -> Watched {
        Watched::of(None, Some(certificates))
    }

    fn of(password: Option<&'static str>, tls: Option<&Certificates>) -> Watched {
        let serve = |more: &[&str]| {
            let port = free_port();
            let mut args = tls.map_or(Vec::new(), |tls| tls.on_port(port));
            if tls.is_some() {
                args.extend(["--tls-replication".into(), "yes".into()]);
            }
            args.extend(more.iter().map(|word| word.to_string()));
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let server = Server::with(&args);
            let port = if tls.is_some() { port } else { server.port };
            (server, port)
        };
        let (master, port) = serve(&[]);
        let of_master = port.to_string();
        let of_master = [
            "--replicaof",
            "127.0.0.1",
            &of_master,
            "--repl-ping-replica-period",
            "1",
        ];
        let (mut servers, mut ports) = (vec![master], vec![port]);
        for _ in 0..2 {
            let (server, port) = serve(&of_master);
            servers.push(server);
            ports.push(port);
        }
        eventually("replicas follow", secs(60), || {
            servers[0].info("replication", "connected_slaves") == "2"
                && servers[1..]
                    .iter()
                    .all(|s| s.info("replication", "master_link_status") == "up")
        });
        let (mut sentinels, mut dirs) = (Vec::new(), Vec::new());
        let mut asked = Vec::new();
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
            let mut text = text + &password.map(lock).unwrap_or_default();
            asked.push(own);
            if let Some(tls) = tls {
                let port = free_port();
                *asked.last_mut().unwrap() = port;
                text += &format!("tls-port {port}\ntls-replication yes\n");
                for words in tls.settings("").chunks(2) {
                    text += &format!("{} {}\n", words[0], words[1]);
                }
            }
            std::fs::write(&config, text).unwrap();
            sentinels.push((
                own,
                Process::start(&program(), &[config, "--sentinel".into()]),
            ));
            dirs.push(dir);
        }
        let watched = Watched {
            servers,
            ports,
            sentinels,
            url: url(tls.is_some(), &asked),
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
        self.url.clone()
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
            let number = self.ports.iter().position(|one| *one == port)?;
            Some(&self.servers[number])
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

/// Where a client asks for the master.
fn url(tls: bool, sentinels: &[u16]) -> String {
    let hosts: Vec<String> = sentinels
        .iter()
        .map(|port| format!("127.0.0.1:{port}"))
        .collect();
    let scheme = if tls {
        "rediss-sentinel"
    } else {
        "redis-sentinel"
    };
    format!("{scheme}://{}/mymaster", hosts.join(","))
}
