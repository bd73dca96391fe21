//! The Redis backend: shares limits between processes.
//!
//! What is decided is decided by one script call in Redis; this side carries questions there, merges
//! those for one key, and waits where a time was booked. It answers the same verbs as the embedded
//! backend, in the same way.
//!
//! - [`verbs`]: what can be asked. [`ops`]: operations under way. [`lines`]: one key's calls, one after
//!   another. [`rebook`]: bookings that are moved. [`spent`]: permits.
//! - [`policy`]: no answer. [`local`]: answers of this process instead. [`census`]: among how many.
//! - [`question`]: what goes into a call. [`keys`]: how keys are named there. [`wire`]: what is said to a
//!   script, and what it says.
//! - [`script`]: what runs in Redis, put together for a limiter.
//! - [`driver`]: the thread. [`link`]: connections: what is sent, at most how often, and what a failure
//!   means.
//!
//! Lock order: one shard (never two), then one of: timer, a queue, callbacks, a parker, a slot. What is
//! woken or sent is so after the shard's lock is released.
mod census;
mod driver;
pub mod keys;
mod lines;
pub mod link;
mod local;
mod ops;
mod policy;
mod question;
mod rebook;
pub mod script;
mod settings;
mod spent;
mod verbs;
pub mod wire;

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};

use crate::callback::{self, Callbacks};
use crate::clock::Clock;
use crate::config::{Config, Level, Own};
use crate::decision::Status;
use crate::fork::Lent;
use crate::limit::decide::Limits;
use crate::limit::time::{Span, Time};
use crate::op::Wakes;
use crate::permit::{Numbers, Recent};
use crate::queue::{Queue, Queues};
use crate::stats::{Stats, Stripe, Totals};
use crate::timer::{Due, Fire, Timer};

use driver::Driver;
use lines::{Item, Line};
use local::{Local, StandIn};
use ops::Wait;
use spent::Spent;
use wire::{Id, Openings, Target};

pub use settings::settings;

/// What a Redis backend is made with.
#[derive(Clone)]
pub struct Options {
    pub config: Config,
    pub link: link::Settings,
    /// How many forks lie between the process that loaded the library and this one.
    pub fork_generation: u64,
}

/// Limits under a name.
pub struct Named {
    pub limits: Limits,
    number: u64,
    target: Target,
    own: Arc<Own>,
    stand_in: StandIn,
}

/// One key of a limiter.
struct Key {
    named: Arc<Named>,
    bytes: Box<[u8]>,
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.named.number == other.named.number && self.bytes == other.bytes
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.named.number.hash(hasher);
        self.bytes.hash(hasher);
    }
}

/// The backend of one client in one process.
pub struct Redis {
    me: Weak<Redis>,
    options: Options,
    command_timeout: Duration,
    clock: Arc<Clock>,
    timer: Arc<Timer>,
    callbacks: Arc<Callbacks>,
    stats: Arc<Stats>,
    numbers: Numbers,
    queues: Queues,
    hasher: RandomState,
    shards: Box<[Mutex<Shard>]>,
    next_op: AtomicU64,
    next_named: AtomicU64,
    openings: Arc<Openings>,
    waiting: AtomicUsize,
    closed: AtomicBool,
    driver: Mutex<Option<Arc<Driver>>>,
    local: Local,
    /// Calls that were begun and are not over.
    flights: Mutex<usize>,
    landed: Condvar,
}

/// A part of the keys, with everything about them that this process knows.
struct Shard {
    lines: HashMap<Arc<Key>, Line>,
    waits: HashMap<u64, Wait>,
    recent: Recent<Spent>,
}

/// A locked shard at one instant.
struct Scene<'a> {
    redis: &'a Redis,
    index: usize,
    shard: &'a mut Shard,
    now: Time,
    wakes: Wakes,
    stats: &'a Stripe,
    /// Calls to be sent once the lock is released.
    due: Vec<(Arc<Key>, Vec<Item>)>,
}

impl Redis {
    /// Connects at the first use.
    pub fn new(options: Options, stats: Arc<Stats>, callbacks: Arc<Callbacks>) -> Arc<Redis> {
        let hasher = RandomState::new();
        let seeds = hasher.clone();
        let seed = |n: usize| Numbers::start(seeds.hash_one(n));
        let clock = Arc::new(Clock::monotonic());
        let shard = |n| Shard {
            lines: HashMap::new(),
            waits: HashMap::new(),
            recent: Recent::new(seed(n)),
        };
        let redis = Arc::new_cyclic(|me| Redis {
            me: me.clone(),
            command_timeout: Duration::from_micros(options.config.command_timeout.0),
            timer: Timer::new(clock.clone()),
            clock,
            callbacks,
            stats,
            numbers: Numbers::new(options.fork_generation),
            queues: Queues::default(),
            shards: (0..Numbers::SHARDS).map(|n| Mutex::new(shard(n))).collect(),
            next_op: AtomicU64::new(seed(Numbers::SHARDS)),
            next_named: AtomicU64::new(0),
            openings: Arc::default(),
            waiting: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            driver: Mutex::new(None),
            local: Local::new(Id::random()),
            flights: Mutex::new(0),
            landed: Condvar::new(),
            hasher,
            options,
        });
        let owner: Weak<dyn Fire> = Arc::downgrade(&(redis.clone() as Arc<dyn Fire>));
        redis.timer.serve(owner);
        redis
    }

    /// Whether this backend can do what these limits ask for.
    pub fn supports(limits: &Limits) -> Result<(), (Status, String)> {
        if limits.holds() {
            let message = "semaphores on Redis are not supported by this version; use memory://";
            return Err((Status::Unsupported, message.into()));
        }
        Ok(())
    }

    /// Limits under a name. Those of one name and the same kinds share their state, in all processes.
    pub fn limiter(&self, name: &[u8], limits: Limits, own: Arc<Own>) -> Arc<Named> {
        assert!(!limits.holds(), "refused before");
        Arc::new(Named {
            number: self.next_named.fetch_add(1, Ordering::Relaxed),
            target: Target::new(&self.options.config.prefix, name, &limits)
                .opened(self.openings.open()),
            stand_in: self.local.stand_in(&self.options.config, name, &limits),
            limits,
            own,
        })
    }

    /// A completion queue of this backend; see [`Queue::open_descriptor`].
    pub fn queue(&self, descriptor: Lent) -> Arc<Queue> {
        self.queues.open(descriptor, || self.is_closed())
    }

    fn key(&self, named: &Arc<Named>, key: &[u8]) -> (usize, Arc<Key>) {
        let key = Key {
            bytes: key.into(),
            named: named.clone(),
        };
        (self.shard_of(&key), Arc::new(key))
    }

    fn shard_of(&self, key: &Key) -> usize {
        self.hasher.hash_one(key) as usize % Numbers::SHARDS
    }

    /// Acts on a shard at the present time, then wakes and sends what that brought about.
    fn at<R>(&self, index: usize, act: impl FnOnce(&mut Scene<'_>) -> R) -> R {
        let mut guard = self.shards[index].lock().unwrap();
        let mut scene = Scene {
            redis: self,
            index,
            shard: &mut guard,
            now: self.clock.now(),
            wakes: Wakes::default(),
            stats: self.stats.stripe(index),
            due: Vec::new(),
        };
        let result = act(&mut scene);
        let (wakes, due) = (scene.wakes, scene.due);
        drop(guard);
        wakes.wake(&self.callbacks);
        for (key, batch) in due {
            self.send(key, batch);
        }
        result
    }

    /// The thread that talks to Redis; it starts with the first call.
    fn driver(&self) -> Result<Arc<Driver>, String> {
        let mut driver = self.driver.lock().unwrap();
        if let Some(driver) = &*driver {
            return Ok(driver.clone());
        }
        if self.is_closed() {
            return Err("closed".into());
        }
        let started = Arc::new(Driver::start(self.options.link.clone())?);
        *driver = Some(started.clone());
        Ok(started)
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Ends everything: waits complete with CLOSED, what they had booked is given back, due callbacks
    /// are waited for up to `timeout` (`None`: without limit), and later calls answer CLOSED. TIMEOUT if
    /// that took longer.
    pub fn shutdown(&self, timeout: Option<Duration>) -> Status {
        if callback::inside() {
            return Status::WouldDeadlock;
        }
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        let left = || deadline.map(|d| d.saturating_duration_since(Instant::now()));
        self.close();
        if let Some(local) = self.local.memory() {
            local.shutdown(left());
        }
        // No call lasts longer than its own deadline.
        let longest = self.command_timeout * 2;
        let flown = self.flown(left().map_or(longest, |left| left.min(longest)));
        self.driver.lock().unwrap().take();
        if self.callbacks.drain(left()) && flown {
            Status::Ok
        } else {
            Status::Timeout
        }
    }

    /// Waits until no call is under way.
    fn flown(&self, longest: Duration) -> bool {
        let flights = self.flights.lock().unwrap();
        let under_way = |flights: &mut usize| *flights > 0;
        let waited = self
            .landed
            .wait_timeout_while(flights, longest, under_way)
            .unwrap();
        !waited.1.timed_out()
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        for index in 0..Numbers::SHARDS {
            self.at(index, |scene| scene.close());
        }
        self.timer.close();
        self.callbacks.close();
        for queue in self.queues.all() {
            queue.close();
        }
    }

    pub fn totals(&self) -> Totals {
        let mut totals = self.stats.totals();
        totals.add(&self.local.totals());
        if let Some(driver) = &*self.driver.lock().unwrap() {
            totals.connects = driver.link.stats().connected;
        }
        totals
    }

    fn log(&self, level: Level, message: &str) {
        self.options.config.log(level, message);
    }

    /// The wall clock of this process, for those who ask; no decision depends on it.
    pub fn clock_now(&self) -> Time {
        self.clock.now()
    }

    fn max_penalty(&self, span: Span) -> Span {
        span.min(self.options.config.max_penalty)
    }
}

impl Scene<'_> {
    /// Nothing is begun once the backend was shut down.
    fn open(&self) -> Result<(), Status> {
        if self.redis.is_closed() {
            Err(Status::Closed)
        } else {
            Ok(())
        }
    }
}

impl Fire for Redis {
    fn fire(&self, due: Due) {
        match due {
            Due::Wait(op) => {
                self.attend(op);
            }
            Due::Lease(_) => unreachable!("no permit of this backend has a lease"),
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.close();
    }
}
