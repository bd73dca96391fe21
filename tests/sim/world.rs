//! Time, the server, and what happens in which order.
use std::collections::{BTreeMap, VecDeque};
use std::sync::Weak;

use limiter::limit::decide::Limits;
use limiter::limit::fixed_window::{Align, FixedWindow};
use limiter::limit::pacer::Pacer;
use limiter::limit::rule::{Limit, Rule};
use limiter::limit::semaphore::Semaphore;
use limiter::limit::sliding_counter::SlidingCounter;
use limiter::limit::sliding_log::SlidingLog;
use limiter::limit::time::Span;
use limiter::limit::token_bucket::TokenBucket;
use limiter::redis::keys::Names;
use limiter::redis::link::{Call, Silence};
use limiter::redis::{Named, Rule as Kept};
use redis::Value;

use crate::Counts;
use crate::audit::{Audit, Bounds};
use crate::network::Flying;
use crate::process::{Process, TIMEOUT};
use crate::random::Random;
use crate::rates::Rates;
use crate::server::Server;
use crate::task::State;
use crate::trouble::Mode;

const BEGIN: u64 = 1_700_000_000_000_000;
/// How long things go wrong.
const TROUBLE: u64 = 10_000_000;
/// How long after that a call may still suffer.
const AFTERMATH: u64 = 4_000_000;
/// How long tasks begin anything.
const WORK: u64 = 15_000_000;
/// What is over is heard of by then, if nothing stands in its way.
const SOON: u64 = 600_000;
pub const PROCESSES: usize = 4;
/// Limiters from here on answer by themselves while Redis does not: a semaphore, and a bucket.
pub const LOCAL: usize = 4;
/// Those with a semaphore.
const HOLD: [usize; 3] = [0, 1, LOCAL];
pub const LEASE: u64 = 1_000_000;
const ALLOWANCE: u64 = 350_000;

pub enum Event {
    Arrive {
        id: u64,
        p: usize,
        attempt: u32,
        holds: bool,
        call: Call,
    },
    Answer {
        id: u64,
        attempt: u32,
        value: Value,
    },
    Silence {
        id: u64,
        attempt: u32,
    },
    Refused {
        id: u64,
        attempt: u32,
    },
    Patience {
        id: u64,
    },
    Hear {
        p: usize,
        life: u64,
        message: String,
    },
    Listening {
        p: usize,
        life: u64,
    },
    Beat {
        p: usize,
        life: u64,
        beat: u64,
    },
    Timer {
        p: usize,
        life: u64,
    },
    Alarm {
        p: usize,
        life: u64,
        t: usize,
        alarm: u64,
    },
    Adopt {
        p: usize,
        life: u64,
    },
    Rise {
        p: usize,
    },
    /// A process says that it uses a limiter.
    Count {
        p: usize,
        life: u64,
        named: Weak<Named>,
    },
    Trouble,
}

/// A rule of the protocol that is not kept.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fault {
    /// What is replaced in the scripts.
    pub script: &'static [(&'static str, &'static str)],
    pub client: Option<Kept>,
    /// A forked child's random numbers are its parent's.
    pub twins: bool,
}

pub struct World {
    pub random: Random,
    pub mode: Mode,
    /// A rule that clients do not keep.
    pub without: Option<Kept>,
    pub twins: bool,
    /// Microseconds since the beginning.
    pub now: u64,
    events: BTreeMap<(u64, u64), Event>,
    pub serial: u64,
    pub server: Server,
    /// How far the server's clock is ahead.
    pub offset: i64,
    pub frozen_until: u64,
    /// Messages overtake each other.
    pub slow_until: u64,
    /// No note reaches anybody.
    pub deaf: bool,
    pub limits: Vec<(Vec<u8>, Limits)>,
    pub processes: Vec<Process>,
    pub channels: BTreeMap<usize, String>,
    /// Channels of processes that died, and when.
    pub dead: Vec<(String, u64)>,
    pub flying: BTreeMap<u64, Flying>,
    /// Things still go wrong.
    pub faulty: bool,
    /// By the state's key.
    pub audits: BTreeMap<String, Audit>,
    pub rates: BTreeMap<String, Rates>,
    pub token: u64,
    /// Since when the server keeps more for a process on a key than it knows of.
    strange: BTreeMap<(usize, String), u64>,
    /// Who held permits when keys were lost, and by when they would end, in the server's time.
    pub kept: BTreeMap<String, u64>,
    pub counts: Counts,
    violation: Option<String>,
    told: bool,
    story: VecDeque<String>,
}

fn limit(rule: Rule) -> Limit {
    let per_call = false;
    Limit { rule, per_call }
}

fn semaphore(capacity: u64) -> Limit {
    let semaphore = Semaphore::new(capacity, Span(LEASE), true);
    limit(Rule::Semaphore(semaphore.expect("in range")))
}

/// One semaphore alone, one with a bucket, a bucket, and several rates; and two that go on alone.
fn some_limits(random: &mut Random) -> Vec<(Vec<u8>, Limits)> {
    let second = Span(1_000_000);
    let mut bucket = || {
        let bucket = TokenBucket::new(2 + random.below(6), 1 + random.below(8), second, false);
        limit(Rule::TokenBucket(bucket.expect("in range")))
    };
    let (first, other, third, fourth) = (bucket(), bucket(), bucket(), bucket());
    let most = 3 + random.below(8);
    let more = [
        Rule::SlidingLog(SlidingLog::new(most, second).expect("in range")),
        Rule::SlidingCounter(SlidingCounter::new(most, second).expect("in range")),
        Rule::FixedWindow(FixedWindow::new(most, second, Align::Clock).expect("in range")),
        Rule::Pacer(Pacer::new(2, most, second, 500).expect("in range")),
    ];
    let one = more[random.below(4) as usize].clone();
    let capacities = [(); 3].map(|()| 1 + random.below(4));
    let sets = [
        (b"s", vec![semaphore(capacities[0])]),
        (b"m", vec![semaphore(capacities[1]), first]),
        (b"t", vec![other]),
        (b"r", vec![third, limit(one)]),
        (b"l", vec![semaphore(capacities[2])]),
        (b"d", vec![fourth]),
    ];
    let sets = sets.into_iter();
    sets.map(|(name, limits)| (name.to_vec(), Limits::new(limits, 1).expect("in range")))
        .collect()
}

pub fn with_capacity(limits: &[(Vec<u8>, Limits)], capacity: u64) -> Vec<(Vec<u8>, Limits)> {
    let changed = limits.iter().map(|(name, limits)| {
        let each = limits.limits().iter().map(|one| match &one.rule {
            Rule::Semaphore(_) => semaphore(capacity),
            _ => one.clone(),
        });
        let limits = Limits::new(each.collect(), limits.version() + 1);
        (name.clone(), limits.expect("in range"))
    });
    changed.collect()
}

/// How far ahead a permit may be booked: as long as tasks wait.
fn ahead(limits: &Limits) -> u64 {
    match limits.limits().len() {
        1 => 0,
        _ => 8_000_000,
    }
}

fn bounds(mode: Mode, limits: &Limits) -> Bounds {
    const CLAIM: u64 = 1_000_000;
    const POLL: u64 = 400_000;
    let ahead = ahead(limits);
    Bounds {
        // A holder died, its claim went to one that died as well, and so on; what is booked may be ahead.
        idle: LEASE + 2 * ALLOWANCE + 3 * CLAIM + 3 * POLL + 2 * TIMEOUT + ahead,
        // What was booked before starts later.
        drained: 3_000_000 + 2 * LEASE + ahead,
        // Who holds what is lost believes in it until its lease is over.
        lost: if matches!(mode, Mode::Flush | Mode::Reset) {
            LEASE
        } else {
            0
        },
    }
}

impl World {
    pub fn new(seed: u64, mode: Mode, told: bool, fault: Fault) -> World {
        let mut random = Random::new(seed * 8 + 7);
        let limits = some_limits(&mut random);
        let (mut audits, mut rates) = (BTreeMap::new(), BTreeMap::new());
        for (name, limits) in &limits {
            let names = Names::new("sim", name, limits);
            for key in [b"a", b"b"] {
                let keys: Vec<String> = names.keys(key).collect();
                rates.insert(keys[0].clone(), Rates::new(limits));
                if limits.holds() {
                    audits.insert(
                        keys[0].clone(),
                        Audit::new(keys, limits, bounds(mode, limits)),
                    );
                }
            }
        }
        let mut world = World {
            random,
            mode,
            without: fault.client,
            twins: fault.twins,
            now: 0,
            events: BTreeMap::new(),
            serial: 0,
            server: Server::new(),
            offset: 0,
            frozen_until: 0,
            slow_until: 0,
            deaf: false,
            limits,
            processes: vec![],
            channels: BTreeMap::new(),
            dead: vec![],
            flying: BTreeMap::new(),
            faulty: true,
            audits,
            rates,
            token: 0,
            strange: BTreeMap::new(),
            kept: BTreeMap::new(),
            counts: Counts::new(),
            violation: None,
            told,
            story: VecDeque::new(),
        };
        world.server.altered.set(fault.script);
        for p in 0..PROCESSES {
            let process = world.born(0, None);
            world.processes.push(process);
            world.push(p as u64 * 1_000, Event::Rise { p });
        }
        world.push(500_000, Event::Trouble);
        world
    }

    pub fn push(&mut self, at: u64, event: Event) {
        self.serial += 1;
        self.events.insert((at, self.serial), event);
    }

    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.random.below(to - from)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.faulty && self.random.below(100) < percent
    }

    pub fn delay(&mut self) -> u64 {
        if self.now < self.slow_until {
            return self.between(200, 400_000);
        }
        match self.chance(2) {
            true => self.between(100_000, 3_000_000),
            false => self.between(200, 20_000),
        }
    }

    pub fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub fn found(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    pub fn tell(&mut self, line: String) {
        if self.told {
            println!("{:>9} {line}", self.now);
        } else if self.story.len() > 80 {
            self.story.pop_front();
        }
        self.story.push_back(format!("{:>9} {line}", self.now));
    }

    pub fn story(&self) -> Vec<String> {
        self.story.iter().cloned().collect()
    }

    pub fn set_server_time(&self) {
        let now = (BEGIN + self.now) as i64 + self.offset;
        self.server.data.now.set(now as u64);
    }

    /// There is a reason for which capacity may be idle for longer.
    pub fn excuse(&mut self, length: u64) {
        let now = self.now;
        self.audits
            .values_mut()
            .for_each(|audit| audit.excuse(now, length));
    }

    /// Something stands, or stood, in a process's way.
    pub fn hurt(&mut self, p: usize, until: u64) {
        let process = &mut self.processes[p];
        process.hurt_at = process.hurt_at.max(until);
    }

    pub fn hurt_all(&mut self, until: u64) {
        (0..PROCESSES).for_each(|p| self.hurt(p, until));
    }

    /// Tasks begin what they do.
    pub fn works(&self) -> bool {
        self.now < WORK
    }

    /// Calls may fail.
    pub fn troubled(&self) -> bool {
        self.now < TROUBLE + AFTERMATH
    }

    pub fn holds(&self, limiter: usize) -> bool {
        self.limits[limiter].1.holds()
    }

    /// Which process an event is for, unless it died meanwhile.
    fn whose(&self, event: &Event) -> Result<Option<usize>, ()> {
        let alive = |p: usize, life: u64| match self.processes[p].life == life {
            true => Ok(Some(p)),
            false => Err(()),
        };
        match *event {
            Event::Arrive { .. } | Event::Rise { .. } | Event::Trouble => Ok(None),
            Event::Answer { id, .. }
            | Event::Silence { id, .. }
            | Event::Refused { id, .. }
            | Event::Patience { id } => self.flying.get(&id).map(|f| Some(f.p)).ok_or(()),
            Event::Hear { p, life, .. }
            | Event::Listening { p, life }
            | Event::Beat { p, life, .. }
            | Event::Timer { p, life }
            | Event::Alarm { p, life, .. }
            | Event::Count { p, life, .. }
            | Event::Adopt { p, life } => alive(p, life),
        }
    }

    fn happen(&mut self, event: Event) {
        let Ok(p) = self.whose(&event) else { return };
        if let Some(p) = p {
            let until = self.processes[p].paused_until;
            if self.now < until {
                let at = until + self.between(0, 50);
                return self.push(at, event);
            }
            self.processes[p].show(self.now);
        }
        match event {
            Event::Arrive {
                id,
                p,
                attempt,
                holds,
                call,
            } => self.arrive(id, p, attempt, holds, call),
            Event::Answer { id, attempt, value } => self.answer(id, attempt, value),
            Event::Silence { id, attempt } => self.silence(id, attempt, Silence::Timeout),
            Event::Refused { id, attempt } => self.refused(id, attempt),
            Event::Patience { id } => self.patience(id),
            Event::Hear { p, message, .. } => self.hear(p, &message),
            Event::Listening { p, .. } => {
                self.processes[p].hears = true;
                self.processes[p].redis.listens();
            }
            Event::Beat { p, beat, .. } if self.processes[p].beat == beat => self.beat(p),
            Event::Timer { p, .. } => {
                self.processes[p].timer = None;
                self.processes[p].redis.fire_due();
            }
            Event::Alarm { p, t, alarm, .. } if self.processes[p].tasks[t].alarm == alarm => {
                self.alarmed(p, t);
            }
            Event::Adopt { p, .. } => self.adopt(p),
            Event::Rise { p } => self.rise(p),
            Event::Count { p, named, .. } => self.take_census(p, &named),
            Event::Trouble => self.trouble(),
            Event::Beat { .. } | Event::Alarm { .. } => {}
        }
        match p {
            Some(p) => self.settle(p),
            None => (0..PROCESSES).for_each(|p| self.settle(p)),
        }
    }

    fn beat(&mut self, p: usize) {
        let next = self.processes[p].redis.beat();
        if let Some(next) = next {
            let at = self.processes[p].when(next);
            self.beat_at(p, at);
        }
    }

    fn beat_at(&mut self, p: usize, at: u64) {
        let process = &mut self.processes[p];
        process.beat += 1;
        let (life, beat) = (process.life, process.beat);
        self.push(at.max(self.now + 1), Event::Beat { p, life, beat });
    }

    /// Lets a process go on until it waits for something.
    fn settle(&mut self, p: usize) {
        while self.processes[p].up && self.now >= self.processes[p].paused_until {
            let life = self.processes[p].life;
            let mut busy = false;
            for (t, fiber) in std::mem::take(&mut self.processes[p].fibers) {
                self.processes[p].show(self.now);
                match fiber.resume() {
                    None => self.processes[p].fibers.push((t, fiber)),
                    Some(done) => {
                        busy = true;
                        self.returned(p, t, done);
                    }
                }
                if self.processes[p].life != life {
                    return;
                }
            }
            for flight in self.processes[p].outbox.flights() {
                busy = true;
                self.launch(p, flight);
            }
            for decision in self.processes[p].completions() {
                busy = true;
                self.completed(p, decision);
            }
            if let Some(channel) = self.processes[p].outbox.channel() {
                self.channels.insert(p, channel);
                let at = self.now + self.delay();
                self.push(at, Event::Listening { p, life });
            }
            for named in self.processes[p].outbox.counted() {
                let at = self.now + self.delay();
                self.push(at, Event::Count { p, life, named });
            }
            if self.processes[p].outbox.stirred() {
                let at = self.now + self.between(1, 300);
                self.beat_at(p, at);
            }
            if !busy {
                break;
            }
        }
        let process = &mut self.processes[p];
        let next = process.redis.next_due().filter(|_| process.up);
        if process.timer != next {
            process.timer = next;
            if let Some(next) = next {
                let (at, life) = (process.when(next), process.life);
                self.push(at.max(self.now + 1), Event::Timer { p, life });
            }
        }
    }

    fn is_quiet(&self) -> bool {
        let idle = |process: &Process| {
            let tasks = process
                .tasks
                .iter()
                .all(|task| matches!(task.state, State::Idle));
            process.up
                && !process.closing
                && tasks
                && process.fibers.is_empty()
                && process.open.is_empty()
        };
        self.flying.is_empty() && self.processes.iter().all(idle)
    }

    /// A process believes that it holds permits on what this state's key is of.
    pub fn holds_on(&self, p: usize, name: &str) -> bool {
        let process = &self.processes[p];
        let now = process.time(self.now);
        process.tasks.iter().any(|task| match &task.state {
            State::Holds { permit, ask, .. } => {
                let (of, limits) = &self.limits[ask.limiter];
                let names = Names::new("sim", of, limits);
                let here = names.keys(ask.key).next().is_some_and(|key| key == name);
                here && process
                    .redis
                    .held_until(*permit)
                    .is_some_and(|until| now < until)
            }
            _ => false,
        })
    }

    /// What clients believe that they hold, of a limiter's key, and whether a live one waits there.
    fn believed(&self, limiter: usize, key: &[u8]) -> (u64, bool, Option<String>) {
        let (mut weight, mut waits, mut found) = (0, false, None);
        for process in self.processes.iter().filter(|process| process.up) {
            let now = process.time(self.now);
            for task in &process.tasks {
                match &task.state {
                    State::Holds { permit, ask, .. }
                        if (ask.limiter, ask.key) == (limiter, key) && !ask.alone =>
                    {
                        let until = process.redis.held_until(*permit);
                        if until.is_some_and(|until| now < until) {
                            weight += ask.weights[0];
                        }
                        let runs = self.now > process.paused_until + 1_000 && !process.closing;
                        // It may have been over when it was heard of: then its timer is due.
                        let runs = runs && process.timer.is_none_or(|next| next > now);
                        if runs && until.is_some_and(|until| until.0 + 1_000 < now.0) {
                            let late = now.since(until.expect("it ends")).0;
                            found = Some(format!("a lease is over for {late}, and nobody is told"));
                        }
                    }
                    State::Waits { ask, .. } if (ask.limiter, ask.key) == (limiter, key) => {
                        waits |=
                            self.now >= process.paused_until && !process.hears_nothing(self.now);
                    }
                    _ => {}
                }
            }
        }
        (weight, waits, found)
    }

    fn judge(&mut self) {
        for (n, key) in HOLD.into_iter().flat_map(|n| [(n, b"a"), (n, b"b")]) {
            let (believed, waits, found) = self.believed(n, key);
            if let Some(found) = found {
                self.found(found);
            }
            let names = Names::new("sim", &self.limits[n].0, &self.limits[n].1);
            let name = names.keys(key).next().expect("a key");
            let audit = self.audits.get_mut(&name).expect("it is audited");
            if !waits {
                audit.nobody_waits();
            }
            audit.judge(self.now, believed);
            if let Some(violation) = audit.violation.take() {
                self.violation.get_or_insert(format!("{name}: {violation}"));
            }
            self.compare(n, key, &name);
        }
        self.judge_alone();
    }

    /// What the server keeps for a process is of a task that waits or holds, or soon over; what a process
    /// believes in is there; and the dead keep nothing for long.
    fn compare(&mut self, limiter: usize, key: &[u8], name: &str) {
        self.set_server_time();
        let owned = self.audits[name].owned(&self.server);
        let exact = !self.mode.loses() && self.mode != Mode::Reset;
        for (p, channel) in self.channels.clone() {
            let process = &self.processes[p];
            let (holds, waits) = owned.get(&channel).copied().unwrap_or_default();
            let (mut known, mut believed) = (0, 0);
            for task in &process.tasks {
                match &task.state {
                    State::Holds { permit, ask, .. }
                        if (ask.limiter, ask.key) == (limiter, key) && !ask.alone =>
                    {
                        let until = process.redis.held_until(*permit);
                        let now = process.time(self.now);
                        known += 1;
                        believed += u64::from(until.is_some_and(|until| now < until));
                    }
                    State::Waits { ask, .. } if (ask.limiter, ask.key) == (limiter, key) => {
                        known += 1
                    }
                    State::Calls => known += 2,
                    _ => {}
                }
            }
            if exact && process.up && believed > holds {
                let found = format!("{name}: p{p} believes in {believed} permits, and has {holds}");
                return self.found(found);
            }
            let place = (p, name.to_owned());
            // Old requests come back when the clock steps back.
            let excused = self.mode == Mode::Back || !process.up || process.closing;
            if holds + waits <= known || excused {
                self.strange.remove(&place);
                continue;
            }
            let since = *self.strange.entry(place).or_insert(self.now);
            if self.now > since.max(process.hurt_at) + SOON {
                let found = format!(
                    "{name}: p{p} has {} there, and knows of {known}",
                    holds + waits
                );
                return self.found(found);
            }
        }
        for (channel, died) in &self.dead {
            let steady = self.mode != Mode::Steps && self.mode != Mode::Back;
            // A lease counts from the booked time.
            let lease = LEASE + ALLOWANCE + ahead(&self.limits[limiter].1);
            let over = self.now > died.max(&self.frozen_until) + lease + TIMEOUT + 100_000;
            if steady && over && owned.contains_key(channel) {
                return self.found(format!("{name}: {channel} died, and has something there"));
            }
        }
    }

    /// The first violation, if there is one.
    pub fn run(&mut self) -> Result<(), String> {
        while let Some(((at, _), event)) = self.events.pop_first() {
            self.now = at;
            self.faulty = at < TROUBLE;
            if !self.faulty {
                self.deaf = false;
            }
            self.happen(event);
            self.judge();
            if let Some(violation) = self.violation.take() {
                let story = match self.told {
                    true => String::new(),
                    false => self.story.make_contiguous().join("\n"),
                };
                return Err(format!("{story}\n{violation}"));
            }
            if !self.works() && self.is_quiet() {
                break;
            }
            if at > WORK + 60_000_000 {
                return Err("somebody never ends".into());
            }
        }
        self.drain()
    }

    /// When all is over nothing is left, and what was admitted was within the rates.
    fn drain(&mut self) -> Result<(), String> {
        (0..PROCESSES).for_each(|p| self.end_alone(p));
        if let Some(violation) = self.violation.take() {
            return Err(violation);
        }
        for (p, process) in self.processes.iter().enumerate() {
            let totals = process.redis.totals();
            if totals.waiting + totals.in_flight > 0 {
                return Err(format!(
                    "p{p} counts {} waits, {} permits",
                    totals.waiting, totals.in_flight
                ));
            }
        }
        // Until what the dead held is over.
        let end = self.now + 10_000_000;
        while let Some(entry) = self
            .events
            .first_entry()
            .filter(|first| first.key().0 < end)
        {
            let ((at, _), event) = entry.remove_entry();
            self.now = at;
            self.happen(event);
        }
        self.now = end;
        self.set_server_time();
        for audit in self.audits.values() {
            let left = audit.people(&self.server);
            if !left.is_empty() && !self.server.data.is_over(&audit.keys[1]) {
                return Err(format!("left at the end: {left:?}"));
            }
        }
        self.now += 100_000_000;
        self.set_server_time();
        if !self.server.data.is_empty() {
            return Err("a key is left at the end".into());
        }
        if self.mode.loses() {
            return Ok(());
        }
        let steps_back = self.mode == Mode::Back;
        let judged = self
            .rates
            .iter_mut()
            .filter(|(_, rates)| !steps_back || !rates.aligned());
        for (key, rates) in judged {
            rates
                .judge()
                .map_err(|violation| format!("{key}: {violation}"))?;
        }
        Ok(())
    }
}
