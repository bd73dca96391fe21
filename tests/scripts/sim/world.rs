//! Time, the network, the server, and what goes wrong with them.
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use limiter::limit::decide::Limits;
use limiter::limit::time::{Span, Time};
use limiter::limit::token_bucket::TokenBucket;
use limiter::redis::keys::Names;
use limiter::redis::link::Call;
use limiter::redis::wire::{Era, Head, Holding, Id, Note, Reply, Target};

use super::audit::{Audit, Bounds};
use super::mutants::Mutant;
use super::process::{Asked, Operation, Process, State, Task, Verb};
use super::trouble::limits;
use super::{CLAIM, Counts, LEASE, LIFE, Mode, POLL, TIMEOUT};
use crate::random::Random;
use crate::server::Server;

const BEGIN: u64 = 1_700_000_000_000_000;
/// How long things go wrong.
const TROUBLE: u64 = 15_000_000;
pub const PROCESSES: usize = 4;

fn bounds(mode: Mode, limits: &Limits) -> Bounds {
    // A holder died, its claim went to one that died as well, and so on; what is booked may be ahead.
    let ahead = if limits.limits().len() > 1 {
        8_000_000
    } else {
        0
    };
    Bounds {
        idle: LEASE + 2 * mode.allowance() + 3 * CLAIM + 3 * POLL + 2 * TIMEOUT + ahead,
        drained: 3_000_000 + 2 * LEASE,
        lost: if mode == Mode::Flush { LEASE } else { 0 },
    }
}

pub enum Event {
    Arrive {
        sent: Sent,
        call: Call,
    },
    Answer {
        sent: Sent,
        reply: Reply,
    },
    Hear {
        p: usize,
        life: u64,
        note: Note,
    },
    Alarm {
        p: usize,
        life: u64,
        t: usize,
        alarm: u64,
    },
    Beat {
        p: usize,
        life: u64,
    },
    Crash {
        p: usize,
    },
    Rise {
        p: usize,
    },
    Trouble,
}

#[derive(Clone, Debug)]
pub struct Sent {
    pub p: usize,
    pub life: u64,
    pub asked: Vec<Asked>,
    pub at: u64,
    /// The process holds permits.
    pub holds: bool,
}

pub struct World {
    pub random: Random,
    pub mode: Mode,
    pub mutant: Option<&'static Mutant>,
    pub now: u64,
    events: BTreeMap<(u64, u64), Event>,
    serial: u64,
    pub server: Server,
    /// How far the server's clock is ahead.
    pub offset: i64,
    pub limits: Limits,
    pub target: Target,
    pub processes: Vec<Process>,
    /// Things still go wrong.
    pub faulty: bool,
    pub audit: Audit,
    pub counts: Counts,
    ids: u128,
    story: VecDeque<String>,
}

impl World {
    pub fn new(seed: u64, mode: Mode, mutant: Option<&'static Mutant>) -> World {
        let mut random = Random::new(seed * 8 + 7);
        let capacity = 1 + random.below(4);
        let bucket = TokenBucket::new(
            2 + random.below(6),
            1 + random.below(8),
            Span(1_000_000),
            false,
        );
        let rate = (random.below(2) == 0).then(|| bucket.expect("in range"));
        let limits = limits(capacity, rate, 1);
        let server = Server::new();
        let target = Target::new("sim", b"n", &limits);
        let keys = Names::new("sim", b"n", &limits).keys(b"k").collect();
        let mut world = World {
            random,
            mode,
            mutant,
            now: BEGIN,
            events: BTreeMap::new(),
            serial: 0,
            server,
            offset: 0,
            audit: Audit::new(keys, &limits, bounds(mode, &limits)),
            limits,
            target,
            processes: vec![],
            faulty: true,
            counts: Counts::new(),
            ids: 1,
            story: VecDeque::new(),
        };
        let call = world.call(0, None, None, &[]);
        world.server.load(&call.script, |source| {
            let mut source = source.to_owned();
            for (from, to) in mutant.map_or(&[][..], |mutant| mutant.script) {
                assert!(source.contains(from), "{from}");
                source = source.replace(from, to);
            }
            source
        });
        for p in 0..PROCESSES {
            let tasks = 1 + world.random.below(3);
            let task = |_| Task {
                state: State::Idle,
                alarm: 0,
                open: 0,
            };
            world.processes.push(Process {
                life: 0,
                offset: 0,
                cut_until: 0,
                tasks: (0..tasks).map(task).collect(),
            });
            world.push(BEGIN + p as u64 * 1_000, Event::Rise { p });
        }
        world.push(BEGIN + 500_000, Event::Trouble);
        world
    }

    pub fn push(&mut self, at: u64, event: Event) {
        self.serial += 1;
        self.events.insert((at, self.serial), event);
    }

    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.random.below(to - from)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.faulty && self.random.below(100) < percent
    }

    pub fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub fn new_id(&mut self) -> Id {
        self.ids += 1;
        Id(self.ids)
    }

    pub fn some_weights(&mut self) -> Vec<u64> {
        let most = self.audit.capacity.min(3);
        let weight = 1 + self.random.below(most);
        // The bucket holds two at least.
        let each = [weight, weight.min(2)];
        each[..self.limits.limits().len()].to_vec()
    }

    pub fn tell(&mut self, line: String) {
        if self.story.len() > 400 && std::env::var("LIMITER_SEED").is_err() {
            self.story.pop_front();
        }
        self.story
            .push_back(format!("{:>9} {line}", self.now - BEGIN));
    }

    pub fn story(&self) -> &VecDeque<String> {
        &self.story
    }

    fn server_time(&self) -> u64 {
        (self.now as i64 + self.offset) as u64
    }

    fn delay(&mut self) -> u64 {
        match self.chance(4) {
            true => self.between(100_000, 3_000_000),
            false => self.between(200, 20_000),
        }
    }

    fn call(
        &self,
        p: usize,
        known: Option<Era>,
        not_after: Option<Time>,
        ops: &[Operation],
    ) -> Call {
        let head = Head {
            // The server's own clock, when it gets there.
            now: None,
            not_after,
        };
        let channel = format!("p{p}");
        let mut batch = self.target.holding(
            head,
            Holding {
                known,
                fresh: Era(self.serial),
                channel: &channel,
                lease: Span(LEASE),
                claim: Span(CLAIM),
                allowance: Span(self.mode.allowance()),
                life: Span(LIFE),
                tells_unheard: true,
            },
        );
        for op in ops {
            op.add_to(&mut batch);
        }
        batch.on(b"k")
    }

    /// Sends a call: it may be lost, come late or come twice.
    pub fn dispatch(
        &mut self,
        sent: Sent,
        known: Option<Era>,
        not_after: Option<Time>,
        ops: &[Operation],
    ) {
        let call = self.call(sent.p, known, not_after, ops);
        let copies = if self.chance(8) { 2 } else { 1 };
        for _ in 0..copies {
            if self.chance(8) || self.now < self.processes[sent.p].cut_until {
                continue;
            }
            let at = self.now + self.delay();
            let (sent, call) = (sent.clone(), call.clone());
            self.push(at, Event::Arrive { sent, call });
        }
    }

    /// The server runs a call.
    fn arrive(&mut self, sent: Sent, call: &Call) {
        self.server.data.now.set(self.server_time());
        self.audit.before(&self.server);
        let lost = self.audit.is_lost(&self.server);
        let reply = match self.server.call(call) {
            Ok(reply) => Reply::read(&reply, sent.asked.len()),
            Err(error) => return self.audit.found(error),
        };
        let reply = match reply {
            Ok(reply) => reply,
            Err(malformed) => return self.audit.found(malformed.0),
        };
        self.count("calls");
        let asked: Vec<String> = sent
            .asked
            .iter()
            .map(|a| format!("{:?} {}", a.verb, a.id.0))
            .collect();
        let told = match &reply {
            Reply::Late(_) => "late".to_owned(),
            Reply::Done { answers, .. } => {
                let each = answers.iter().map(|a| format!("{:?}", a.outcome));
                each.collect::<Vec<_>>().join(" ")
            }
        };
        self.tell(format!("p{} {}: {told}", sent.p, asked.join(", ")));
        if lost && sent.holds && matches!(reply, Reply::Done { .. }) {
            self.audit.has_grace();
        }
        let renewed = sent.asked.iter().filter(|a| a.verb == Verb::Renew);
        let renewed: BTreeSet<String> = renewed.map(|a| a.id.to_string()).collect();
        self.audit.after(&self.server, &reply, &renewed);
        for (channel, message) in self.server.data.published.take() {
            let p: usize = channel[1..].parse().expect("a process's channel");
            let note = Note::parse(message.as_bytes()).expect("a note");
            if !self.chance(10) {
                let (at, life) = (self.now + self.delay(), self.processes[p].life);
                self.push(at, Event::Hear { p, life, note });
            }
        }
        // The network fails while the answer is on its way.
        if self.chance(1) {
            self.count("cuts");
            let (answered, back) = (
                self.between(100_000, 900_000),
                self.between(500_000, 2_500_000),
            );
            let p = sent.p;
            self.tell(format!("p{p} is cut off for {back}"));
            self.processes[p].cut_until = self.now + back;
            self.push(self.now + answered, Event::Answer { sent, reply });
        } else if !self.chance(10) && self.now >= self.processes[sent.p].cut_until {
            let at = self.now + self.delay();
            self.push(at, Event::Answer { sent, reply });
        }
    }

    /// Nothing of an id is left at the server.
    pub fn gone(&mut self, id: Id) {
        // Old requests may come back when the clock has stepped back, or what keeps them out is lost.
        if !self.mode.loses() && self.mode != Mode::Back {
            self.audit.gone(id);
        }
    }

    /// A task that held a permit has worked under it.
    pub fn note_start(&mut self, state: &State) {
        if let State::Holds {
            at, start, weights, ..
        } = state
            && self.now >= *start
        {
            self.audit.started.push((*at, weights.clone()));
        }
    }

    fn alive(&self, p: usize, life: u64) -> bool {
        self.processes[p].life == life
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive { sent, call } => self.arrive(sent, &call),
            Event::Answer { sent, reply } if self.alive(sent.p, sent.life) => {
                self.answered(&sent, &reply)
            }
            Event::Hear { p, life, note } if self.alive(p, life) => self.noted(p, note),
            Event::Alarm { p, life, t, alarm }
                if self.alive(p, life) && self.processes[p].tasks[t].alarm == alarm =>
            {
                self.alarmed(p, t)
            }
            Event::Beat { p, life } if self.alive(p, life) => self.beat(p),
            Event::Crash { p } => self.crash(p),
            Event::Rise { p } => self.rise(p),
            Event::Trouble => self.trouble(),
            // To one that died.
            _ => {}
        }
    }

    fn is_quiet(&self) -> bool {
        let mut tasks = self.processes.iter().flat_map(|process| &process.tasks);
        tasks.all(|task| matches!(task.state, State::Idle))
    }

    /// The first violation, if there is one.
    pub fn run(&mut self) -> Result<(), String> {
        let end = BEGIN + TROUBLE;
        while let Some(((at, _), event)) = self.events.pop_first() {
            self.now = at;
            self.faulty = at < end;
            self.happen(event);
            let believed: u64 = self.believed();
            self.audit.judge(self.now, believed);
            if let Some(violation) = self.audit.violation.take() {
                let story: Vec<_> = self.story.iter().cloned().collect();
                return Err(format!("{violation}\n{}", story.join("\n")));
            }
            if !self.faulty && self.is_quiet() {
                break;
            }
            if at > end + 60_000_000 {
                return Err("somebody never ends".into());
            }
        }
        self.drain()
    }

    /// What clients believe that they hold.
    fn believed(&self) -> u64 {
        let tasks = self.processes.iter().flat_map(|process| &process.tasks);
        let holds = |task: &Task| match &task.state {
            State::Holds {
                weights, deadline, ..
            } if self.now < *deadline => weights[0],
            _ => 0,
        };
        tasks.map(holds).sum()
    }

    /// When all is over nothing is left, and what was admitted was within the rate.
    fn drain(&mut self) -> Result<(), String> {
        let mut left = BTreeSet::new();
        for _ in 0..4 {
            self.now += 4 * LEASE + CLAIM + LIFE + 10_000_000;
            self.server.data.now.set(self.server_time());
            let mut batch = self.call(0, None, None, &[]);
            batch.args.push("K").push("0");
            self.audit.before(&self.server);
            self.server
                .call(&batch)
                .map_err(|error| error.to_string())?;
            left = self.audit.people(&self.server);
        }
        if !left.is_empty() {
            return Err(format!("left at the end: {left:?}"));
        }
        self.now += 100_000_000;
        self.server.data.now.set(self.server_time());
        if !self.server.data.is_empty() {
            return Err("a key is left at the end".into());
        }
        if self.mode.loses() {
            return Ok(());
        }
        self.audit.rates(&self.limits)
    }
}
