//! Processes that are killed, with others at work: what they held or waited for comes to these within a
//! lease, by the server's own data and its clock.
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use limiter::decision::Status;
use limiter::limit::time::Span;
use limiter::op::Request;
use nix::sys::signal::Signal;

use crate::kit::*;
use crate::load::Stop;
use crate::support::cluster::TestCluster;
use crate::support::process::Process;
use crate::support::proxy::{Mode, Proxy};
use crate::support::server::Server;
use crate::support::{eventually, ms, secs};

const CAPACITY: u64 = 3;
const LEASE_MS: u32 = 2000;
/// What is asked for by whoever is killed, and by nobody else.
const WEIGHT: u64 = 2;

/// What a process does that will be killed; nothing in the test program itself.
#[test]
fn child() {
    let Ok(plan) = std::env::var("LIMITER_CHILD") else {
        return;
    };
    let plan: Vec<&str> = plan.split(' ').collect();
    let client = open(plan[0]);
    let limiter = limiter(&client, plan[1], &[leased(CAPACITY, LEASE_MS)]);
    std::thread::scope(|scope| {
        for _ in 0..plan[2].parse().unwrap() {
            scope.spawn(|| {
                assert_eq!(acquire(&limiter, &patient(WEIGHT)).status, Status::Ok);
                std::thread::sleep(secs(600));
            });
        }
    });
}

/// However long it takes.
fn patient(weight: u64) -> Request<'static> {
    Request {
        wait: None,
        ..weigh(weight)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// The very first that ever held anything on the key.
    FirstHolder,
    Holder,
    /// It has the first two waits in the queue.
    HeadOfQueue,
    /// What it waited for was granted, and it does not know.
    Granted,
}

const KINDS: [Kind; 4] = [
    Kind::FirstHolder,
    Kind::Holder,
    Kind::HeadOfQueue,
    Kind::Granted,
];

/// A semaphore of its own for each trial.
struct Trial<'a> {
    url: &'a str,
    /// The server that has its keys.
    server: &'a Server,
    name: String,
}

/// What a trial came to.
#[derive(Debug, Default)]
struct Figures {
    /// From the kill until nothing of it was left.
    gone: Duration,
    /// The longest that any of the others waited.
    waited: Duration,
}

impl Trial<'_> {
    fn key(&self, part: &str) -> String {
        format!("{{limiter:S:{}:}}:{part}", self.name)
    }

    /// The server's time, and when all ends that the process holds or waits for: 0 if there is nothing.
    fn ends(&self, letter: &str) -> (u64, u64) {
        let script = "local time, last = redis.call('TIME'), 0 \
            local ends = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES') \
            for n = 1, #ends, 2 do \
              local who = redis.call('HGET', KEYS[2], string.sub(ends[n], 2)) or '' \
              if string.sub(who, 1, 2) == '2;' and string.match(ends[n], ARGV[1]) then \
                last = math.max(last, tonumber(ends[n + 1])) \
              end \
            end \
            return {time[1] * 1000000 + time[2], last}";
        let (ends, who) = (self.key("e"), self.key("i"));
        self.server.ask(&["EVAL", script, "2", &ends, &who, letter])
    }

    fn waiting(&self, count: usize) {
        eventually("so many wait", secs(60), || {
            self.server.ask::<usize>(&["ZCARD", &self.key("q")]) >= count
        });
    }

    fn process(&self, threads: usize) -> Process {
        let program = std::env::current_exe().unwrap();
        let plan = format!("LIMITER_CHILD={} {} {threads}", self.url, self.name);
        let args = [&plan, program.to_str().unwrap(), "--exact", "dying::child"];
        Process::start("env", &args.map(str::to_owned))
    }

    /// One that keeps the semaphore busy. Answers how long it waited at most.
    fn work(&self, over: &AtomicBool) -> Duration {
        let client = open(self.url);
        let limiter = limiter(&client, &self.name, &[leased(CAPACITY, LEASE_MS)]);
        let mut longest = Duration::ZERO;
        while !over.load(Ordering::SeqCst) {
            let began = Instant::now();
            let granted = acquire(&limiter, &patient(1));
            longest = longest.max(began.elapsed());
            assert_eq!(granted.status, Status::Ok);
            std::thread::sleep(ms(5));
            assert_eq!(limiter.release(granted.permit), Ok(Status::Ok));
        }
        longest
    }

    fn run(&self, kind: Kind) -> Figures {
        let client = open(self.url);
        let here = limiter(&client, &self.name, &[leased(CAPACITY, LEASE_MS)]);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let start = || [(); 4].map(|()| scope.spawn(|| self.work(&over)));
            let stop = Stop(&over);
            let (killed, workers) = match kind {
                Kind::FirstHolder | Kind::Holder => {
                    let first = (kind == Kind::Holder).then(start);
                    let mut process = self.process(1);
                    eventually("it holds", secs(60), || self.ends("^h").1 > 0);
                    let workers = first.unwrap_or_else(start);
                    self.waiting(1);
                    process.kill();
                    (Instant::now(), workers)
                }
                Kind::HeadOfQueue | Kind::Granted => {
                    let held = acquire(&here, &patient(CAPACITY));
                    assert_eq!(held.status, Status::Ok);
                    let mut process = self.process(2);
                    self.waiting(2);
                    let workers = start();
                    self.waiting(6);
                    match kind {
                        Kind::Granted => process.signal(Signal::SIGSTOP),
                        _ => process.kill(),
                    }
                    let killed = Instant::now();
                    assert_eq!(here.release(held.permit), Ok(Status::Ok));
                    if kind == Kind::Granted {
                        eventually("it is granted", secs(60), || self.ends("^h").1 > 0);
                        process.kill();
                    }
                    (killed, workers)
                }
            };
            let (dead, _) = self.ends("");
            eventually("nothing of it is left", secs(60), || {
                let (_, ends) = self.ends("");
                let lease = u64::from(LEASE_MS) * 1000;
                assert!(ends <= dead + lease, "{kind:?}: {} us more", ends - dead);
                ends == 0
            });
            let gone = killed.elapsed();
            drop(stop);
            let waited = workers.map(|worker| worker.join().unwrap());
            eventually("all can be had", secs(60), || remaining(&here) == CAPACITY);
            Figures {
                gone,
                waited: waited.into_iter().max().unwrap(),
            }
        })
    }
}

/// `LIMITER_TIMES` asks for so many times as many trials.
fn times() -> usize {
    let asked = std::env::var("LIMITER_TIMES").ok();
    asked.map_or(1, |times| times.parse().expect("a number"))
}

/// Trials of each kind, all kinds at once. They print how long it took at most.
fn trials<'a>(what: &str, count: usize, of: impl Fn(String) -> Trial<'a>) {
    let mut most: [Figures; 4] = Default::default();
    for n in 0..count {
        let trials = KINDS.map(|kind| (kind, of(format!("{kind:?}{n}"))));
        let figures = std::thread::scope(|scope| {
            let started = trials.map(|(kind, trial)| scope.spawn(move || trial.run(kind)));
            started.map(|trial| trial.join().unwrap())
        });
        for (most, one) in most.iter_mut().zip(figures) {
            most.gone = most.gone.max(one.gone);
            most.waited = most.waited.max(one.waited);
        }
    }
    for (kind, most) in KINDS.iter().zip(most) {
        println!("figure: {what}, {count} x {kind:?} killed: at most {most:?}");
        assert!(most.waited < secs(20), "{kind:?}: {most:?}");
    }
}

#[test]
fn b_071_of_whoever_is_killed_nothing_is_left_after_a_lease() {
    let server = Server::start();
    let (url, server) = (&server.url(), &server);
    trials("one server", 5 * times(), |name| Trial {
        url,
        server,
        name,
    });
}

#[test]
fn b_071_nor_in_a_cluster() {
    let cluster = TestCluster::start();
    let url = &cluster.url();
    trials("a cluster", 2 * times(), |name| {
        let owner = cluster.owner(&format!("{{limiter:S:{name}:}}:s"));
        let server = &cluster.nodes[owner];
        Trial { url, server, name }
    });
}

/// What many permits held is there within a lease too: nobody has to come back again and again until all of them
/// are counted out.
#[test]
fn thousands_of_permits_that_end_are_given_to_others_by_a_few_calls() {
    let server = Server::start();
    let proxy = Proxy::before(server.port);
    let (many, one) = (open(&proxy.url()), open(&server.url()));
    let count = 3000;
    let limits = [leased(count, 4000)];
    let (here, there) = (
        limiter(&many, "many", &limits),
        limiter(&one, "many", &limits),
    );
    let unrenewed = Request {
        renew: false,
        ..Request::TRY
    };
    let requests = vec![unrenewed; count as usize];
    let granted = here.try_many(&requests).unwrap();
    assert!(granted.iter().all(|one| one.status == Status::Ok));
    // Nothing more is heard of their holder.
    proxy.set(Mode::BlackHole);
    let deadline = Instant::now() + secs(30);
    while server.ask::<i64>(&[
        "ZCOUNT",
        "{limiter:S:many:}:e",
        "-inf",
        &server_now(&server),
    ]) < count as i64
    {
        assert!(Instant::now() < deadline, "they end");
        std::thread::sleep(ms(20));
    }
    let before = server.calls();
    let all = Request {
        wait: Some(Span::secs(60)),
        ..weigh(count)
    };
    let granted = acquire(&there, &all);
    assert_eq!(granted.status, Status::Ok);
    let calls = server.calls() - before;
    println!(
        "figure: {count} permits ended by {calls} calls, after {} us",
        granted.waited_us
    );
    assert!(calls < 20, "{calls}");
}

/// The server's time, in microseconds.
fn server_now(server: &Server) -> String {
    let time: (u64, u64) = server.ask(&["TIME"]);
    (time.0 * 1_000_000 + time.1).to_string()
}
