//! A simulated process: the backend as a program has it, on a clock of its own, its calls put down where
//! the network takes them from.
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use limiter::callback::Callbacks;
use limiter::clock::Clock;
use limiter::config::{Config, Own};
use limiter::decision::Decision;
use limiter::limit::decide::Limits;
use limiter::limit::time::{Span, Time};
use limiter::queue::Queue;
use limiter::redis::{self, Carrier, Dice, Flight, Named, Options, Redis, Rule};
use limiter::stats::Stats;

use crate::alone::Alone;
use crate::fiber::Fiber;
use crate::task::{Done, Task};
use crate::world::{LOCAL, PROCESSES};

/// How long a command may take.
pub const TIMEOUT: u64 = 250_000;

/// Where the client puts what it wants of the network.
#[derive(Default)]
pub struct Outbox {
    flights: Mutex<Vec<Flight>>,
    channel: Mutex<Option<String>>,
    counted: Mutex<Vec<Weak<Named>>>,
    stirred: AtomicBool,
    dead: AtomicBool,
}

impl Outbox {
    pub fn flights(&self) -> Vec<Flight> {
        std::mem::take(&mut self.flights.lock().unwrap())
    }

    /// The channel it wants to listen to from now on.
    pub fn channel(&self) -> Option<String> {
        self.channel.lock().unwrap().take()
    }

    /// Those whose processes are to be counted from now on.
    pub fn counted(&self) -> Vec<Weak<Named>> {
        std::mem::take(&mut self.counted.lock().unwrap())
    }

    pub fn stirred(&self) -> bool {
        self.stirred.swap(false, Ordering::Relaxed)
    }

    /// From now on nothing leaves the process.
    pub fn die(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }
}

impl Carrier for Outbox {
    fn carry(&self, flight: Flight) {
        if !self.dead.load(Ordering::Relaxed) {
            self.flights.lock().unwrap().push(flight);
        }
    }

    fn listen(&self, channel: &str) {
        *self.channel.lock().unwrap() = Some(channel.to_owned());
    }

    fn stir(&self) {
        self.stirred.store(true, Ordering::Relaxed);
    }

    fn count_in(&self, named: Weak<Named>) {
        self.counted.lock().unwrap().push(named);
    }

    fn connects(&self) -> u64 {
        0
    }
}

/// What a process begins with.
#[derive(Clone, Copy)]
pub struct Ancestry {
    /// Of what is random in it.
    pub seed: u64,
    /// How many forks lie behind it.
    pub forks: u64,
}

/// A limiter's settings: some answer by themselves while Redis does not.
fn own(limiter: usize) -> Arc<Own> {
    let own = Own::default();
    if limiter >= LOCAL {
        own.set("on_failure", "local").expect("a policy");
    }
    Arc::new(own)
}

pub struct Process {
    /// Counts its lives.
    pub life: u64,
    pub ancestry: Ancestry,
    pub redis: Arc<Redis>,
    pub outbox: Arc<Outbox>,
    pub queue: Arc<Queue>,
    pub named: Vec<Arc<Named>>,
    clock: Arc<Clock>,
    born: u64,
    /// By how many thousandths its clock is fast.
    drift: i64,
    pub up: bool,
    /// It shuts down.
    pub closing: bool,
    pub paused_until: u64,
    /// When it last stood still.
    pub paused_at: u64,
    /// Nothing it sends arrives, and it hears nothing.
    pub cut_until: u64,
    pub cut_from: u64,
    /// What it sends arrives, and it hears nothing.
    pub deaf_until: u64,
    /// When a message of its was last lost or late, or something else stood in its way.
    pub hurt_at: u64,
    /// Nobody takes its calls.
    pub down_until: u64,
    /// Notes reach it.
    pub hears: bool,
    /// Which of its beats counts, and which of its timers.
    pub beat: u64,
    pub timer: Option<Time>,
    pub tasks: Vec<Task>,
    /// Operations under way, by number: whose.
    pub open: BTreeMap<u64, usize>,
    pub fibers: Vec<(usize, Fiber<Done>)>,
    /// What it answered by itself.
    pub alone: Alone,
}

impl Process {
    pub fn new(
        life: u64,
        born: u64,
        ancestry: Ancestry,
        drift: i64,
        limits: &[(Vec<u8>, Limits)],
        without: Option<Rule>,
    ) -> Process {
        let clock = Arc::new(Clock::virtual_clock());
        let outbox = Arc::<Outbox>::default();
        let mut config = Config::default();
        config.set("prefix", "sim").expect("a prefix");
        config.command_timeout = Span(TIMEOUT);
        config.processes = PROCESSES as u64;
        let world = redis::World {
            clock: clock.clone(),
            dice: Dice::seeded(ancestry.seed),
            carrier: Some(outbox.clone()),
            without,
        };
        let options = Options {
            link: redis::settings("redis://nowhere", &config).expect("a URL"),
            config,
            fork_generation: ancestry.forks,
        };
        let redis = Redis::on(
            world,
            options,
            Arc::<Stats>::default(),
            Callbacks::new(None),
        );
        let queue = redis.queue(Queue::open_descriptor().expect("a descriptor"));
        let named = limits.iter().enumerate();
        let named = named.map(|(n, (name, limits))| redis.limiter(name, limits.clone(), own(n)));
        Process {
            life,
            ancestry,
            named: named.collect(),
            redis,
            outbox,
            queue,
            clock,
            born,
            drift,
            up: true,
            closing: false,
            paused_until: 0,
            paused_at: 0,
            cut_until: 0,
            cut_from: 0,
            deaf_until: 0,
            hurt_at: born,
            down_until: 0,
            hears: false,
            beat: 0,
            timer: None,
            tasks: vec![],
            open: BTreeMap::new(),
            fibers: vec![],
            alone: Alone::default(),
        }
    }

    pub fn adopt(&mut self, limiter: usize, name: &[u8], limits: Limits) {
        self.named[limiter] = self.redis.limiter(name, limits, own(limiter));
    }

    /// What its clock shows at a time of the world.
    pub fn time(&self, now: u64) -> Time {
        let passed = (now - self.born) as i64;
        Time(Clock::VIRTUAL_START.0 + (passed + passed * self.drift / 1000) as u64)
    }

    /// When its clock shows so.
    pub fn when(&self, time: Time) -> u64 {
        let shown = time.since(Clock::VIRTUAL_START).0 as i64;
        self.born + (shown * 1000 / (1000 + self.drift)) as u64 + 1
    }

    pub fn is_cut(&self, now: u64) -> bool {
        (self.cut_from..self.cut_until).contains(&now)
    }

    /// Something is said to it in vain.
    pub fn hears_nothing(&self, now: u64) -> bool {
        self.is_cut(now) || now < self.deaf_until
    }

    pub fn show(&self, now: u64) {
        self.clock.show(self.time(now));
    }

    pub fn completions(&self) -> Vec<Decision> {
        self.queue
            .poll(64, Some(Duration::ZERO))
            .unwrap_or_default()
    }
}
