//! Processes of their own, that do what they are told on one Redis: how they are started and heard.
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use redis::{Commands, Connection};

use crate::support::process::{Dir, Process};
use crate::support::server::Server;
use crate::support::{eventually, secs};

/// What a process has of the Redis it was started on: the limits are there, and so is what it is told and
/// says.
pub struct Member {
    pub url: String,
    /// Which one it is.
    pub number: usize,
    connection: Connection,
}

impl Member {
    fn new(url: &str, number: usize) -> Member {
        let client = redis::Client::open(url).unwrap();
        Member {
            url: url.into(),
            number,
            connection: client.get_connection().unwrap(),
        }
    }

    pub fn say(&mut self, list: &str, what: impl ToString) {
        self.connection
            .rpush::<_, _, ()>(list, what.to_string())
            .unwrap();
    }

    /// What it was told beforehand.
    pub fn told(&mut self, name: &str) -> String {
        self.connection.get(name).unwrap()
    }

    /// Waits until it may go on.
    pub fn await_word(&mut self, word: &str) {
        eventually("the word to go on", secs(120), || {
            self.connection.exists(word).unwrap()
        });
    }
}

/// What a process of a fleet does; nothing in the test program itself.
#[test]
fn child() {
    let Ok(plan) = std::env::var("LIMITER_FLEET") else {
        return;
    };
    let plan: Vec<&str> = plan.split(' ').collect();
    let member = Member::new(plan[1], plan[2].parse().unwrap());
    match plan[0] {
        "ahead" => crate::ahead::member(member),
        "crowd" => crate::crowd::member(member),
        "fire" => crate::crowd::fires(member),
        "rates" => crate::skew::rates(member),
        "takes" => crate::skew::takes(member),
        "flood" => crate::named::flood(member),
        "sleeper" => crate::named::sleeper(member),
        "waits" => {
            let url = member.url.clone();
            crate::skew::waits(member, &url)
        }
        "waits_in_memory" => crate::skew::waits(member, "memory://"),
        other => panic!("{other}"),
    }
}

/// Processes that do a job.
pub struct Fleet<'a> {
    server: &'a Server,
    pub processes: Vec<Process>,
}

impl Fleet<'_> {
    pub fn start<'a>(server: &'a Server, job: &str, count: usize) -> Fleet<'a> {
        let start = |number| start(server, job, number, &[]);
        Fleet {
            server,
            processes: (0..count).map(start).collect(),
        }
    }

    pub fn tell(&self, word: &str) {
        self.server.ask::<()>(&["SET", word, "1"]);
    }

    /// What they have said, once it is so much.
    pub fn hear(&self, list: &str, count: usize) -> Vec<String> {
        heard(self.server, list, count)
    }
}

pub fn heard(server: &Server, list: &str, count: usize) -> Vec<String> {
    eventually(&format!("{count} have said {list}"), secs(120), || {
        server.ask::<usize>(&["LLEN", list]) >= count
    });
    server.ask(&["LRANGE", list, "0", "-1"])
}

fn start(server: &Server, job: &str, number: usize, more: &[String]) -> Process {
    let program = std::env::current_exe().unwrap();
    let plan = format!("LIMITER_FLEET={job} {} {number}", server.url());
    let mut args = vec![plan];
    args.extend_from_slice(more);
    args.extend([program.to_str().unwrap(), "--exact", "fleet::child"].map(str::to_owned));
    Process::start("env", &args)
}

/// The wall clock of a process that is off.
pub struct WallClock {
    dir: Dir,
}

impl WallClock {
    pub fn off_by(us: i64) -> WallClock {
        let clock = WallClock { dir: Dir::new() };
        std::fs::write(clock.file(), us.to_ne_bytes()).unwrap();
        clock
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("offset")
    }

    /// It jumps, in the process that has it.
    pub fn set(&self, us: i64) {
        let mut file = std::fs::OpenOptions::new().write(true).open(self.file());
        file.as_mut().unwrap().write_all(&us.to_ne_bytes()).unwrap();
    }

    /// A process that has this clock.
    pub fn start(&self, server: &Server, job: &str, number: usize) -> Process {
        let more = [
            format!("LD_PRELOAD={}", preloaded()),
            format!("WALL_CLOCK={}", self.file().display()),
        ];
        start(server, job, number, &more)
    }
}

/// What shifts a wall clock, compiled once.
fn preloaded() -> &'static str {
    static BUILT: OnceLock<(Dir, String)> = OnceLock::new();
    let (_, path) = BUILT.get_or_init(|| {
        let dir = Dir::new();
        let path = dir.file("wall_clock.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/wall_clock.c");
        let built = Command::new("cc")
            .args([
                "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", &path, source,
            ])
            .status();
        assert!(built.unwrap().success());
        (dir, path)
    });
    path
}
