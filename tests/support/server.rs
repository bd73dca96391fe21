//! One redis-server.
use std::time::Duration;

use nix::sys::signal::Signal;
use redis::{Connection, FromRedisValue, RedisResult};

use super::process::{Dir, Process, free_port};
use super::{eventually, secs};

/// What is run as a server: the variable LIMITER_TEST_SERVER, else Redis.
pub fn program() -> String {
    std::env::var("LIMITER_TEST_SERVER").unwrap_or("redis-server".into())
}

pub struct Server {
    process: Option<Process>,
    pub port: u16,
    dir: Dir,
    args: Vec<String>,
    /// Tried in turn when asking as administrator.
    pub passwords: Vec<String>,
}

impl Server {
    pub fn start() -> Server {
        Server::with(&[])
    }

    /// Starts with more arguments, as on redis-server's command line.
    pub fn with(args: &[&str]) -> Server {
        let mut server = Server::prepare(args);
        server.boot();
        server
    }

    /// Everything but the process.
    pub fn prepare(args: &[&str]) -> Server {
        let dir = Dir::new();
        let port = free_port();
        let mut all = vec!["--port".to_string(), port.to_string()];
        let fixed = [
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            "--loglevel",
            "warning",
        ];
        let quick = ["--repl-diskless-sync-delay", "0", "--unixsocket"];
        all.extend(fixed.iter().chain(&quick).map(|arg| arg.to_string()));
        all.extend([dir.file("redis.sock"), "--dir".into(), dir.file("")]);
        all.extend(args.iter().map(|arg| arg.to_string()));
        let password = args
            .iter()
            .skip_while(|arg| **arg != "--requirepass")
            .nth(1);
        Server {
            process: None,
            port,
            dir,
            args: all,
            passwords: password
                .iter()
                .map(|password| password.to_string())
                .collect(),
        }
    }

    pub fn boot(&mut self) {
        self.launch();
        eventually("the server answers", secs(60), || {
            let up = self.try_ask::<String>(&["PING"]).is_ok();
            assert!(
                self.process.as_mut().unwrap().is_running(),
                "the server ended: {:?}",
                self.args
            );
            up
        });
    }

    /// Starts the process without waiting for it.
    pub fn launch(&mut self) {
        self.process = Some(Process::start(&program(), &self.args));
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn socket(&self) -> String {
        self.dir.file("redis.sock")
    }

    pub fn file(&self, name: &str) -> String {
        self.dir.file(name)
    }

    /// From the next start on each loaded key takes a while.
    pub fn slow_loading(&mut self) {
        self.args.extend([
            "--key-load-delay".into(),
            "50".into(),
            "--loading-process-events-interval-bytes".into(),
            "1024".into(),
        ]);
    }

    /// kill -9.
    pub fn kill(&mut self) {
        self.process = None;
    }

    pub fn freeze(&self) {
        self.process.as_ref().unwrap().signal(Signal::SIGSTOP);
    }

    pub fn thaw(&self) {
        self.process.as_ref().unwrap().signal(Signal::SIGCONT);
    }

    fn connect(&self) -> RedisResult<Connection> {
        let mut urls = vec![self.url()];
        if !self.passwords.is_empty() {
            let with = |p: &String| format!("redis://:{p}@127.0.0.1:{}", self.port);
            urls = self.passwords.iter().map(with).collect();
        }
        let mut last = None;
        for url in urls {
            let client = redis::Client::open(url)?;
            match client.get_connection_with_timeout(Duration::from_secs(2)) {
                Ok(connection) => return Ok(connection),
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("one URL at least"))
    }

    /// Asks on a connection of its own.
    pub fn try_ask<T: FromRedisValue>(&self, command: &[&str]) -> RedisResult<T> {
        let mut connection = self.connect()?;
        redis::cmd(command[0])
            .arg(&command[1..])
            .query(&mut connection)
    }

    #[track_caller]
    pub fn ask<T: FromRedisValue>(&self, command: &[&str]) -> T {
        self.try_ask(command)
            .unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    /// The number under a key, 0 if there is none.
    #[track_caller]
    pub fn number(&self, key: &str) -> u64 {
        self.ask::<Option<u64>>(&["GET", key]).unwrap_or(0)
    }

    /// How many scripts it ran.
    pub fn calls(&self) -> u64 {
        let line = self.info("commandstats", "cmdstat_evalsha");
        let calls = line.split(',').next();
        let calls = calls.and_then(|calls| calls.strip_prefix("calls="));
        calls.map_or(0, |calls| calls.parse().unwrap())
    }

    /// A field of INFO.
    #[track_caller]
    pub fn info(&self, section: &str, field: &str) -> String {
        let text: String = self.ask(&["INFO", section]);
        let found = text
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        found.unwrap_or_default().trim().to_owned()
    }
}
