//! The Redis backend: shares limits between processes.
//!
//! What is decided is decided by one script call in Redis; this side carries questions there, merges
//! those for one key, and waits where a time was booked. It answers the same verbs as the embedded
//! backend, in the same way.
//!
//! - [`named`]: limits and their keys. [`verbs`]: what can be asked. [`ops`]: operations under way, and
//!   [`ending`] before their time. [`lines`]: one key's calls, one after another. [`rebook`]: bookings that
//!   are moved, [`sooner`]: to be earlier. [`penalty`]: also those of other processes. [`spent`]: permits.
//! - What need not be asked: [`denied`] again, or admitted out of a [`quota`].
//! - For semaphores: [`queued`]: waits. [`held`]: permits, [`renewing`] of them. [`heartbeat`]: both kept alive. [`open`]: ids
//!   that may still be under way. [`agenda`]: which key is next.
//! - [`policy`]: no answer. [`local`]: answers of this process instead. [`census`]: among how many.
//! - [`question`]: what goes into a call. [`keys`]: how keys are named there. [`wire`]: what is said to a
//!   script, and what it says.
//! - [`script`]: what runs in Redis, put together for a limiter.
//! - [`rules`]: what the protocol rests on. [`flight`]: calls under way. [`driver`]: the thread that carries
//!   them. [`link`]: connections: what is sent, at most how often, and what a failure means.
//!
//! What depends on time goes by the client's clock, what is random comes from its [`dice`], and calls go
//! out through a [`Carrier`]: nothing else keeps it from being run in virtual time, without a network.
//!
//! Lock order: one shard (never two), then one of: timer, a queue, callbacks, a parker, a slot. What is
//! woken or sent is so after the shard's lock is released.
mod agenda;
mod census;
mod denied;
mod dice;
mod driver;
mod ending;
mod flight;
#[cfg(any(test, fuzzing))]
mod fuzzed;
mod heartbeat;
mod held;
pub mod keys;
mod lines;
pub mod link;
mod local;
mod named;
mod offset;
mod open;
mod ops;
mod penalty;
mod policy;
mod question;
mod queued;
mod quota;
mod rebook;
mod renewing;
mod rules;
pub mod script;
mod settings;
mod sooner;
mod spent;
mod travel;
mod verbs;
pub mod wire;

use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasher;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use crate::callback::Callbacks;
use crate::clock::Clock;
use crate::config::{ClockKind, Config, Level, Own};
use crate::decision::Status;
use crate::fork::Lent;
use crate::limit::decide::Limits;
use crate::limit::time::Time;
use crate::op::Wakes;
use crate::permit::{Numbers, Operations, Recent};
use crate::queue::{Queue, Queues};
use crate::stats::{Stats, Stripe, Totals};
use crate::sync::{Condvar, Mutex};
use crate::timer::{Due, Fire, Timer};

use agenda::Agenda;
use denied::Denials;
use driver::Driver;
use heartbeat::Unsaid;
use held::{Held, Terms};
use lines::{Item, Line};
use link::Lane;
use local::Local;
use named::{Families, Key};
use offset::Offset;
use open::Open;
use ops::Wait;
use queued::Life;
use quota::Stocks;
use spent::Spent;
use wire::{Id, Openings, Target};

pub use dice::Dice;
use dice::Seeds;
pub use flight::{Carrier, Flight, Outgoing};
#[cfg(fuzzing)]
pub use fuzzed::read_anything;
pub use named::Named;
pub use penalty::Penalty;
pub use rules::Rule;
pub use settings::settings;

/// What a Redis backend is made with.
#[derive(Clone)]
pub struct Options {
    pub config: Config,
    pub link: link::Settings,
    /// How many forks lie between the process that loaded the library and this one.
    pub fork_generation: u64,
}

/// What the backend takes from outside.
pub struct World {
    pub clock: Arc<Clock>,
    pub dice: Dice,
    /// `None`: one is made with the first call.
    pub carrier: Option<Arc<dyn Carrier>>,
    /// A rule that is not kept, where debug assertions are on.
    pub without: Option<Rule>,
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
    hasher: Seeds,
    shards: Box<[Mutex<Shard>]>,
    operations: Operations,
    openings: Arc<Openings>,
    waiting: AtomicUsize,
    closed: AtomicBool,
    local: Local,
    dice: Dice,
    without: Option<Rule>,
    offset: Offset,
    /// How many limiters were made.
    opened: AtomicU64,
    families: Families,
    /// Where notes of this client's waits are published.
    channel: String,
    listening: AtomicBool,
    /// When the last complaint was, in microseconds; 0: never.
    complained: AtomicU64,
    /// When the heartbeat does something next, in microseconds.
    next_beat: AtomicU64,
    carrier: Mutex<Option<Arc<dyn Carrier>>>,
    /// Calls that were begun and are not over.
    flights: Mutex<usize>,
    landed: Condvar,
}

/// A part of the keys, with everything about them that this process knows.
struct Shard {
    lines: HashMap<Arc<Key>, Line, Seeds>,
    /// Those on which somebody waits, by what a note calls them.
    places: HashMap<Box<str>, Arc<Key>, Seeds>,
    waits: HashMap<u64, Wait>,
    recent: Recent<Spent>,
    denials: Denials,
    stocks: Stocks,
    /// Semaphore permits, by serial.
    held: HashMap<u64, Held>,
    next_held: u64,
    /// Those that are renewed, by when.
    renewals: BTreeSet<(Time, u64)>,
    /// Which wait goes by an id.
    ids: HashMap<Id, u64>,
    open: Open,
    /// Keys with waits in a semaphore's queue, and when they are looked at.
    queues: Agenda,
    unsaid: Vec<Unsaid>,
    /// Keys with booked waits, and when those are looked at.
    looks: Agenda,
    /// Waits that were granted while their bookings were moved: their permits.
    started: HashMap<u64, u64>,
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
    due: Vec<Vec<Item>>,
    /// Questions that do not wait for other calls on their keys.
    urgent: Vec<Item>,
    /// Waits that are to be decided in this process, with what goes with them; and its operations that are
    /// to end.
    here: Vec<(u64, Option<Terms>, u32)>,
    ended_here: Vec<u64>,
    /// Somebody waits for a note.
    listen: bool,
    /// The heartbeat has something to do by then.
    beat_by: Time,
}

impl Redis {
    /// Connects at the first use.
    pub fn new(options: Options, stats: Arc<Stats>, callbacks: Arc<Callbacks>) -> Arc<Redis> {
        let clock = match options.config.clock {
            // A lease in Redis ends while this machine is suspended, too.
            ClockKind::Monotonic => Clock::boottime(),
            ClockKind::Virtual => Clock::virtual_clock(),
        };
        let world = World {
            clock: Arc::new(clock),
            dice: Dice::system(),
            carrier: None,
            without: None,
        };
        Redis::on(world, options, stats, callbacks)
    }

    /// A backend in a world of the caller's.
    pub fn on(
        world: World,
        options: Options,
        stats: Arc<Stats>,
        callbacks: Arc<Callbacks>,
    ) -> Arc<Redis> {
        let World {
            clock,
            dice,
            carrier,
            without,
        } = world;
        let hasher = dice.seeds();
        let seed = |n: usize| Numbers::start(hasher.hash_one(n));
        let shard = |n| Shard {
            lines: HashMap::with_hasher(hasher),
            places: HashMap::with_hasher(hasher),
            waits: HashMap::new(),
            recent: Recent::new(seed(n)),
            denials: Denials::default(),
            stocks: Stocks::default(),
            held: HashMap::new(),
            next_held: seed(n),
            renewals: BTreeSet::new(),
            ids: HashMap::new(),
            open: Open::default(),
            queues: Agenda::new(hasher),
            unsaid: Vec::new(),
            looks: Agenda::new(hasher),
            started: HashMap::new(),
        };
        let redis = Arc::new_cyclic(|me| Redis {
            me: me.clone(),
            command_timeout: Duration::from_micros(options.config.command_timeout.0),
            timer: Timer::new(clock.clone()),
            openings: Arc::new(Openings::new(clock.clone())),
            clock,
            callbacks,
            stats,
            numbers: Numbers::new(options.fork_generation),
            queues: Queues::default(),
            shards: (0..Numbers::SHARDS).map(|n| Mutex::new(shard(n))).collect(),
            operations: Operations::new(seed(Numbers::SHARDS)),
            waiting: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            local: Local::new(dice.id(0)),
            offset: Offset::default(),
            opened: AtomicU64::new(0),
            families: Families::default(),
            channel: keys::channel(&options.config.prefix, dice.id(0)),
            dice,
            without,
            listening: AtomicBool::new(false),
            complained: AtomicU64::new(0),
            next_beat: AtomicU64::new(u64::MAX),
            carrier: Mutex::new(carrier),
            flights: Mutex::new(0),
            landed: Condvar::new(),
            hasher,
            options,
        });
        let owner: Weak<dyn Fire> = Arc::downgrade(&(redis.clone() as Arc<dyn Fire>));
        redis.timer.serve(owner);
        redis
    }

    /// Limits under a name. Those of one name and the same kinds share their state, in all processes.
    pub fn limiter(&self, name: &[u8], limits: Limits, own: Arc<Own>) -> Arc<Named> {
        let lease = limits.lease().unwrap_or(self.options.config.lease);
        let target = Target::new(&self.options.config.prefix, name, &limits);
        self.opened.fetch_add(1, Ordering::Relaxed);
        let life = limits.holds().then(|| match self.tells_time() {
            true => Life::of_one_clock(lease),
            false => Life::new(lease),
        });
        let number = self.number_of(&target);
        let target = || target.opened(self.openings.open());
        let (family, rules) = self.families.open(number, &limits, life, target);
        let named = Arc::new(Named {
            number,
            rules,
            family,
            stand_in: self.local.stand_in(&self.options.config, name, &limits),
            limits,
            own,
        });
        self.adopts(&named);
        named
    }

    /// What tells names, with their kinds, apart: of so many bits that no two are ever the same.
    fn number_of(&self, target: &Target) -> u128 {
        let half = |n: u8| u128::from(self.hasher.hash_one((n, target.names())));
        half(0) << 64 | half(1)
    }

    /// A completion queue of this backend; see [`Queue::open_descriptor`].
    pub fn queue(&self, descriptor: Lent) -> Arc<Queue> {
        self.queues.open(descriptor, || self.is_closed())
    }

    fn key(&self, named: &Arc<Named>, key: &[u8]) -> (usize, Arc<Key>) {
        let key = Key {
            bytes: key.into(),
            named: named.clone(),
            place: OnceLock::new(),
        };
        (self.shard_of(&key), Arc::new(key))
    }

    fn shard_of(&self, key: &Key) -> usize {
        Redis::shard_at(self.hash_of(&key.named, &key.bytes))
    }

    fn hash_of(&self, named: &Named, key: &[u8]) -> u64 {
        self.hasher.hash_one((named.number, key))
    }

    fn shard_at(hash: u64) -> usize {
        hash as usize % Numbers::SHARDS
    }

    /// How many limiters there have been.
    fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Acts on a shard at the present time, then wakes and sends what that brought about.
    fn at<R>(&self, index: usize, act: impl FnOnce(&mut Scene<'_>) -> R) -> R {
        let mut guard = self.shards[index].lock();
        let mut scene = Scene {
            redis: self,
            index,
            shard: &mut guard,
            now: self.clock.now(),
            wakes: Wakes::default(),
            stats: self.stats.stripe(index),
            due: Vec::new(),
            urgent: Vec::new(),
            here: Vec::new(),
            ended_here: Vec::new(),
            listen: false,
            beat_by: Time::MAX,
        };
        let result = act(&mut scene);
        let (wakes, due, urgent) = (scene.wakes, scene.due, scene.urgent);
        let (here, ended_here) = (scene.here, scene.ended_here);
        let (listen, beat_by) = (scene.listen, scene.beat_by);
        drop(guard);
        wakes.wake(&self.callbacks);
        for batch in due {
            self.send(Lane::Bulk, batch);
        }
        self.send_urgent(urgent);
        for (serial, terms, flags) in here {
            self.take_over(index, serial, terms, flags);
        }
        for op in ended_here {
            self.stand_in().cancel(op, true);
        }
        if listen {
            self.listen();
        }
        if beat_by.0 < self.next_beat.load(Ordering::SeqCst) {
            self.stir();
        }
        result
    }

    /// [`Redis::at`] where many shards have their turn: a bug that unwinds in one costs the others nothing.
    fn shielded<R>(&self, index: usize, act: impl FnOnce(&mut Scene<'_>) -> R) -> Option<R> {
        let turn = catch_unwind(AssertUnwindSafe(|| self.at(index, act)));
        if turn.is_err() {
            self.log(
                Level::Error,
                "Redis: a bug in this library; see the message of the panic",
            );
        }
        turn.ok()
    }

    /// What carries calls to Redis; made for the first one.
    fn carrier(&self) -> Result<Arc<dyn Carrier>, String> {
        let mut carrier = self.carrier.lock();
        if let Some(carrier) = &*carrier {
            return Ok(carrier.clone());
        }
        if self.is_closed() {
            return Err("closed".into());
        }
        let link = self.options.link.clone();
        let started = Driver::start(link, self.clock.clone(), self.me.clone())?;
        Ok(carrier.insert(Arc::new(started)).clone())
    }

    /// Opens the connection for notes, unless it is there. Whoever moves a virtual clock asks without.
    fn listen(&self) {
        if !self.tells_time()
            && !self.listening.swap(true, Ordering::Relaxed)
            && let Ok(carrier) = self.carrier()
        {
            carrier.listen(&self.channel);
        }
    }

    /// Redis is told the time, because nobody else's matters: the clock is a user's virtual one.
    fn tells_time(&self) -> bool {
        self.options.config.clock == ClockKind::Virtual
    }

    fn stir(&self) {
        if let Some(carrier) = &*self.carrier.lock() {
            carrier.stir();
        }
    }

    fn next_beat(&self, at: Time) {
        self.next_beat.store(at.0, Ordering::SeqCst);
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub fn totals(&self) -> Totals {
        let mut totals = self.stats.totals();
        totals.add(&self.local.totals());
        if let Some(carrier) = &*self.carrier.lock() {
            totals.connects = carrier.connects();
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
            Due::Lease(permit) => self.lease_due(permit),
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.close();
    }
}
