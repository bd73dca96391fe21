//! Where Redis is: the URL, parsed. What is refused is refused here, with what is allowed.
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use redis::RedisConnectionInfo;

use crate::config::Secret;

const SCHEMES: &str = "redis://, rediss:// (TLS), unix://, redis-cluster://, rediss-cluster://, \
                       redis-sentinel:// or rediss-sentinel://";
const DEFAULT_PORT: u16 = 6379;
const DEFAULT_SENTINEL_PORT: u16 = 26379;
/// More than anybody lists by hand.
const MOST_HOSTS: usize = 64;

/// One server's address.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Addr {
    Tcp(Arc<str>, u16),
    Unix(PathBuf),
}

/// Which servers there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    Single(Addr),
    /// Nodes to ask for the map; the map then names the nodes.
    Cluster(Vec<Addr>),
    /// Sentinels to ask for the master of this name.
    Sentinel {
        sentinels: Vec<Addr>,
        master: String,
    },
}

/// Who to log in as.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    pub username: Option<String>,
    pub password: Option<Secret>,
}

impl Credentials {
    /// As the crate wants them, for a handshake that is nothing but a log-in.
    pub fn info(&self) -> RedisConnectionInfo {
        let mut info = RedisConnectionInfo::default().set_skip_set_lib_name();
        if let Some(username) = &self.username {
            info = info.set_username(username);
        }
        if let Some(password) = &self.password {
            info = info.set_password(&password.0);
        }
        info
    }
}

/// A parsed URL.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub topology: Topology,
    pub credentials: Credentials,
    pub db: u32,
    pub tls: bool,
}

impl Endpoint {
    pub fn is_cluster(&self) -> bool {
        matches!(self.topology, Topology::Cluster(_))
    }

    /// `redis://[user][:password@]host[:port][/db]`, `rediss://` for TLS,
    /// `unix:///path[?db=n]` (also `redis+unix://`), `redis-cluster://host:port,host:port`,
    /// `redis-sentinel://host:port,host:port/master[/db]`. User, password, path and master name are
    /// percent-decoded. A message never repeats the URL: it may hold a password.
    pub fn parse(url: &str) -> Result<Endpoint, String> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| {
            format!("the URL must be memory:// or, for Redis, begin with {SCHEMES}")
        })?;
        if rest.contains('#') {
            return Err(
                "a Redis URL takes no #fragment; write # in a password as %23, and turn off \
                        certificate checks with the setting tls_insecure"
                    .into(),
            );
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match rest.find('/') {
            Some(slash) => (&rest[..slash], &rest[slash..]),
            None => (rest, ""),
        };
        let (login, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        let mut endpoint = Endpoint {
            topology: Topology::Cluster(Vec::new()),
            credentials: credentials(login)?,
            db: 0,
            tls: scheme.starts_with("rediss") || scheme.starts_with("valkeys"),
        };
        match scheme {
            "redis" | "rediss" | "valkey" | "valkeys" => endpoint.single(hosts, path)?,
            "unix" | "redis+unix" | "valkey+unix" => endpoint.unix(hosts, path)?,
            "redis-cluster" | "rediss-cluster" => endpoint.cluster(hosts, path)?,
            "redis-sentinel" | "rediss-sentinel" => endpoint.sentinel(hosts, path)?,
            _ => {
                return Err(format!(
                    "the URL must be memory:// or, for Redis, begin with {SCHEMES}"
                ));
            }
        }
        endpoint.query(query)?;
        if endpoint.db != 0 && matches!(endpoint.topology, Topology::Cluster(_)) {
            return Err("a Redis cluster has only database 0".into());
        }
        Ok(endpoint)
    }

    fn single(&mut self, hosts: &str, path: &str) -> Result<(), String> {
        let mut hosts = addresses(hosts, DEFAULT_PORT)?;
        if hosts.len() != 1 {
            return Err("several hosts need redis-cluster:// or redis-sentinel://".into());
        }
        self.topology = Topology::Single(hosts.remove(0));
        self.db = database(path.trim_start_matches('/'))?;
        Ok(())
    }

    fn unix(&mut self, hosts: &str, path: &str) -> Result<(), String> {
        if !hosts.is_empty() || path.len() < 2 {
            return Err("a Unix socket is given as unix:///absolute/path".into());
        }
        self.topology = Topology::Single(Addr::Unix(decode("path", path)?.into()));
        Ok(())
    }

    fn cluster(&mut self, hosts: &str, path: &str) -> Result<(), String> {
        self.topology = Topology::Cluster(addresses(hosts, DEFAULT_PORT)?);
        self.db = database(path.trim_start_matches('/'))?;
        Ok(())
    }

    fn sentinel(&mut self, hosts: &str, path: &str) -> Result<(), String> {
        let path = path.trim_start_matches('/');
        let (master, db) = path.split_once('/').unwrap_or((path, ""));
        if master.is_empty() {
            return Err(
                "a sentinel URL names the master: redis-sentinel://host:port/master".into(),
            );
        }
        self.topology = Topology::Sentinel {
            sentinels: addresses(hosts, DEFAULT_SENTINEL_PORT)?,
            master: decode("master name", master)?,
        };
        self.db = database(db)?;
        Ok(())
    }

    fn query(&mut self, query: &str) -> Result<(), String> {
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            match key {
                "db" => self.db = database(value)?,
                "user" => self.credentials.username = Some(decode("user", value)?),
                "pass" => self.credentials.password = Some(Secret(decode("password", value)?)),
                _ => return Err("after ? a Redis URL takes db=, user= and pass=".into()),
            }
        }
        Ok(())
    }
}

fn credentials(login: &str) -> Result<Credentials, String> {
    let (user, password) = match login.split_once(':') {
        Some((user, password)) => (user, Some(password)),
        None => (login, None),
    };
    Ok(Credentials {
        username: match user {
            "" => None,
            user => Some(decode("user", user)?),
        },
        password: match password {
            None | Some("") => None,
            Some(password) => Some(Secret(decode("password", password)?)),
        },
    })
}

fn database(text: &str) -> Result<u32, String> {
    let text = text.trim_end_matches('/');
    if text.is_empty() {
        return Ok(0);
    }
    let plain = text.bytes().all(|b| b.is_ascii_digit());
    plain
        .then(|| text.parse().ok())
        .flatten()
        .filter(|db| *db <= 65_535)
        .ok_or_else(|| "the database is a number from 0 to 65535".into())
}

fn addresses(hosts: &str, default_port: u16) -> Result<Vec<Addr>, String> {
    let found: Vec<Addr> = hosts
        .split(',')
        .map(|host| Addr::parse(host, default_port))
        .collect::<Result<_, _>>()?;
    if found.len() > MOST_HOSTS {
        return Err(format!("at most {MOST_HOSTS} hosts"));
    }
    Ok(found)
}

/// Undoes percent-encoding. A stray `%` is refused: guessing what was meant would end in a login
/// that fails for no visible reason.
fn decode(what: &str, text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|b| char::from(b).to_digit(16));
        match (digit(), digit()) {
            (Some(high), Some(low)) => bytes.push((high * 16 + low) as u8),
            _ => return Err(format!("in the {what}, % must be written as %25")),
        }
    }
    String::from_utf8(bytes).map_err(|_| format!("the {what} is not UTF-8"))
}

impl Addr {
    /// `host`, `host:port` or `[v6]:port`.
    fn parse(text: &str, default_port: u16) -> Result<Addr, String> {
        let form = || "a host is given as name, name:port or [IPv6]:port".to_string();
        let (host, port) = match text.strip_prefix('[') {
            Some(v6) => {
                let (host, rest) = v6.split_once(']').ok_or_else(form)?;
                (
                    host,
                    rest.strip_prefix(':')
                        .or((rest.is_empty()).then_some(""))
                        .ok_or_else(form)?,
                )
            }
            None => text.split_once(':').unwrap_or((text, "")),
        };
        let bad = |b: u8| b.is_ascii_whitespace() || b.is_ascii_control() || b"@/\\[]".contains(&b);
        if host.is_empty() || host.len() > 255 || host.bytes().any(bad) {
            return Err(form());
        }
        let port = match port {
            "" => default_port,
            port => port
                .parse()
                .ok()
                .filter(|p| *p != 0 && !port.starts_with('+'))
                .ok_or("a port is a number from 1 to 65535")?,
        };
        Ok(Addr::Tcp(host.into(), port))
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Addr::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Addr::Tcp(host, port) => write!(f, "{host}:{port}"),
            Addr::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl fmt::Debug for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |addrs: &[Addr]| {
            let shown: Vec<String> = addrs.iter().map(Addr::to_string).collect();
            shown.join(",")
        };
        let s = if self.tls { "s" } else { "" };
        match &self.topology {
            Topology::Single(Addr::Unix(path)) => write!(f, "unix://{}", path.display())?,
            Topology::Single(addr) => write!(f, "redis{s}://{addr}")?,
            Topology::Cluster(nodes) => write!(f, "redis{s}-cluster://{}", list(nodes))?,
            Topology::Sentinel { sentinels, master } => {
                write!(f, "redis{s}-sentinel://{}/{master}", list(sentinels))?
            }
        }
        if self.db != 0 {
            write!(f, " db {}", self.db)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(url: &str) -> String {
        Endpoint::parse(url).unwrap().to_string()
    }

    #[test]
    fn every_form_parses() {
        assert_eq!(shown("redis://localhost"), "redis://localhost:6379");
        assert_eq!(shown("redis://h:1/3"), "redis://h:1 db 3");
        assert_eq!(shown("rediss://[::1]:7"), "rediss://[::1]:7");
        assert_eq!(shown("rediss://[::1]"), "rediss://[::1]:6379");
        assert_eq!(shown("unix:///a%20b.sock?db=2"), "unix:///a b.sock db 2");
        assert_eq!(shown("redis+unix:///s"), "unix:///s");
        assert_eq!(
            shown("redis-cluster://a:1,b,[::2]:3/"),
            "redis-cluster://a:1,b:6379,[::2]:3"
        );
        assert_eq!(
            shown("rediss-sentinel://a,b:2/my%2Fmaster/4"),
            "rediss-sentinel://a:26379,b:2/my/master db 4"
        );
    }

    #[test]
    fn credentials_are_decoded_and_never_shown() {
        let url = "redis://us%40er:p%3Aa%2Fs%23s@w%C3%A9b:1/2";
        let endpoint = Endpoint::parse(url).unwrap();
        assert_eq!(endpoint.credentials.username.as_deref(), Some("us@er"));
        assert_eq!(endpoint.credentials.password.as_ref().unwrap().0, "p:a/s#s");
        let unix = Endpoint::parse("unix:///s?user=u&pass=p%26ass").unwrap();
        assert_eq!(unix.credentials.password.as_ref().unwrap().0, "p&ass");
        for text in [
            format!("{endpoint}"),
            format!("{endpoint:?}"),
            format!("{unix:?}"),
        ] {
            assert!(!text.contains("a/s#s") && !text.contains("p&ass"), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_what_is_allowed_and_without_the_password() {
        for (url, expected) in [
            ("", "redis://"),
            ("localhost:6379", "redis://"),
            ("http://:hunter2@h", "redis://"),
            ("redis://:hunter2@", "name:port"),
            ("redis://:hunter2@a,b", "redis-cluster://"),
            ("redis://:hunter2@h:0", "1 to 65535"),
            ("redis://:hunter2@h:65536", "1 to 65535"),
            ("redis://:hunter2@h:+1", "1 to 65535"),
            ("redis://:hunter2@h/x", "0 to 65535"),
            ("redis://:hunter2@h/-1", "0 to 65535"),
            ("redis://:hunter2@h#insecure", "tls_insecure"),
            ("redis://:hunter2@h?protocol=3", "db="),
            ("redis://:hunter2%zz@h", "%25"),
            ("redis://:hunter2%ff@h", "UTF-8"),
            ("redis://:hunter2@[::1", "[IPv6]"),
            ("redis://:hunter2@[::1]x", "[IPv6]"),
            ("redis://:hunter2@a b", "name:port"),
            ("unix://host/p", "unix:///absolute"),
            ("unix://", "unix:///absolute"),
            ("redis-cluster://:hunter2@a:1/1", "database 0"),
            ("redis-sentinel://:hunter2@a:1", "/master"),
        ] {
            let message = Endpoint::parse(url).unwrap_err();
            assert!(message.contains(expected), "{url}: {message}");
            assert!(!message.contains("hunter2"), "{message}");
        }
    }
}
