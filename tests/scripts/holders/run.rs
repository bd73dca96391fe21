//! Both sides, and an ideal client: it hears every note at once, and confirms every claim.
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use limiter::callback::Callbacks;
use limiter::clock::Clock;
use limiter::decision::{Decision, NO_LIMIT, Status};
use limiter::limit::decide::Limits;
use limiter::limit::rule::{Figures, Rule};
use limiter::limit::time::{Span, Time};
use limiter::limit::weights::Weights;
use limiter::memory::{Memory, Named, Options};
use limiter::op::{self, Request, Sink};
use limiter::permit::Numbers;
use limiter::queue::Queue;
use limiter::redis::keys::Names;
use limiter::redis::wire::{
    Answer, Batch, Era, Head, Holding, Id, Note, Opened, Outcome, Reply, Taken, Target,
};
use limiter::stats::Stats;

use crate::server::Server;

pub const LEASE: Span = Span::secs(10);
const NAME: &[u8] = b"n";
const KEY: &[u8] = b"k";

/// A wait, as both sides have it.
#[derive(Clone, Debug)]
pub struct Wait {
    id: Id,
    op: u64,
    deadline: Option<Time>,
    weights: Vec<u64>,
    /// Granted by the script from then on, with what it took.
    granted: Option<(Time, Taken)>,
}

#[derive(Clone, Debug)]
pub struct Permit {
    id: Id,
    number: u64,
    ends: Time,
    booking: Taken,
    weights: Vec<u64>,
    settled: bool,
}

pub struct Run {
    pub server: Server,
    pub memory: Arc<Memory>,
    queue: Arc<Queue>,
    pub limits: Limits,
    /// Its state's name in Redis.
    key: String,
    /// The same limiters on both sides, as they were opened, and the one in use.
    handles: Vec<Arc<Named>>,
    targets: Vec<Target>,
    used: usize,
    pub waits: Vec<Wait>,
    permits: Vec<Permit>,
    /// What the script's side saw end since it was last compared: (op, how).
    ended: Vec<(u64, Status)>,
    pub next_id: u128,
    fence: u64,
    pub seen: Vec<String>,
}

impl Run {
    pub fn new(limits: Limits) -> Run {
        let options = Options {
            max_waiting: 1_000,
            max_penalty: Span::secs(3_600),
            lease: LEASE,
            numbers: Numbers::new(0),
        };
        let stats = Arc::new(Stats::default());
        let clock = Arc::new(Clock::virtual_clock());
        let memory = Memory::new(clock, options, stats, Callbacks::new(None));
        let named = memory.limiter(NAME, limits.clone());
        Run {
            server: Server::new(),
            queue: memory.queue(Queue::open_descriptor().unwrap()),
            handles: vec![named],
            memory,
            key: Names::new("l", NAME, &limits).keys(KEY).next().unwrap(),
            targets: vec![target(&limits, 1)],
            used: 0,
            limits,
            waits: vec![],
            permits: vec![],
            ended: vec![],
            next_id: 1,
            fence: 0,
            seen: vec![],
        }
    }

    pub fn now(&self) -> Time {
        self.memory.clock_now()
    }

    pub fn story(&self) -> String {
        format!("{:#?}\n{}", self.limits, self.seen.join("\n"))
    }

    /// Somebody waits for a time that is booked. What is given back then serves those who wait in memory, and
    /// those who come later on Redis.
    fn is_booked(&self) -> bool {
        self.waits.iter().any(|wait| wait.granted.is_some())
    }

    pub fn change(&mut self, limits: Limits) {
        if self.is_booked() {
            return;
        }
        self.handles.push(self.memory.limiter(NAME, limits.clone()));
        self.used = self.targets.len();
        self.targets.push(target(&limits, self.used as u64 + 1));
        self.seen.push(format!("now {:?}", limits.limits()));
        self.limits = limits;
        // A key in Redis hears of the change by its next call.
        self.ask(|batch| batch.peek(&Weights::One(0)));
        // The embedded backend refuses the hopeless at the next call; the script when they ask again.
        self.memory.peek(self.named(), &request(&[0], None));
        for wait in self.waits.clone() {
            if wait.granted.is_none() {
                self.claim(wait.id);
            }
        }
    }

    /// From now on through the handle that was opened then.
    pub fn take(&mut self, which: usize) {
        self.used = which % self.handles.len();
        self.seen.push(format!("handle {}", self.used));
    }

    fn named(&self) -> &Arc<Named> {
        &self.handles[self.used]
    }

    pub fn ask(&mut self, op: impl FnOnce(&mut Batch)) -> Answer {
        let now = self.now();
        self.server.data.now.set(now.0);
        let head = Head {
            now: Some(now),
            not_after: None,
        };
        // A key that is not stored is made with the numbers of whoever comes first.
        let newest = self.targets.len() - 1;
        let stored = self.server.data.stored(&self.key);
        let target = &self.targets[if stored.is_some() { self.used } else { newest }];
        let mut batch = target.holding(
            head,
            Holding {
                known: None,
                fresh: Era(now.0),
                channel: "c",
                lease: LEASE,
                claim: Span::secs(2),
                allowance: Span::ZERO,
                life: Span::secs(1_000_000),
                tells_unheard: true,
            },
        );
        op(&mut batch);
        let call = batch.on(KEY);
        let text = |arg: &[u8]| String::from_utf8_lossy(arg).into_owned();
        let asked: Vec<String> = call.args.iter().skip(11).map(text).collect();
        self.seen.push(format!("{} {asked:?}", now.0));
        let reply = self
            .server
            .call(&call)
            .unwrap_or_else(|error| panic!("{error}\n{}", self.story()));
        let told = Reply::read(&reply, 1);
        if let Ok(Reply::Done { answers, .. }) = &told {
            self.seen.push(format!("    {:?}", answers[0]));
        }
        match told {
            Ok(Reply::Done {
                now: found,
                era: Some(_),
                mut answers,
                ..
            }) if found == now => answers.pop().unwrap(),
            other => panic!("{other:?}\n{}", self.story()),
        }
    }

    /// Hears what was published, and confirms what was granted.
    fn listen(&mut self) {
        loop {
            let notes = self.server.data.published.take();
            if notes.is_empty() {
                return;
            }
            for (channel, text) in notes {
                if channel.ends_with(":penalties") {
                    continue;
                }
                assert_eq!(channel, "c");
                match Note::parse(text.as_bytes()).expect("a note") {
                    Note::Granted(id) => self.claim(id),
                    Note::Denied(id) => self.end(id, Status::Denied),
                    Note::Never(id) => self.end(id, Status::Never),
                }
            }
        }
    }

    fn end(&mut self, id: Id, status: Status) {
        // A note may come after the answer that said the same.
        if let Some(i) = self.waits.iter().position(|wait| wait.id == id) {
            let wait = self.waits.remove(i);
            self.ended.push((wait.op, status));
        }
    }

    fn claim(&mut self, id: Id) {
        let wait = self.waits.iter().find(|wait| wait.id == id).unwrap();
        let weights = Weights::Each(wait.weights.clone().into());
        let now = self.now();
        let left = wait.deadline.map(|at| at.since(now));
        let answer = self.ask(|batch| batch.acquire(id, left, (LEASE, false), &weights));
        match answer.outcome {
            Outcome::Done => self.granted(id, &answer),
            Outcome::Queued => {}
            Outcome::Denied => self.end(id, Status::Denied),
            Outcome::Never => self.end(id, Status::Never),
            other => panic!("{other:?}\n{}", self.story()),
        }
    }

    fn granted(&mut self, id: Id, answer: &Answer) {
        assert!(answer.fence > 0);
        let wait = self.waits.iter_mut().find(|wait| wait.id == id).unwrap();
        wait.granted = Some((answer.at, answer.booking.clone()));
    }

    /// What has come by now on both sides is the same.
    pub fn compare(&mut self) {
        self.ask(|batch| batch.peek(&Weights::One(0)));
        self.listen();
        let now = self.now();
        let started = |wait: &Wait| matches!(wait.granted, Some((at, _)) if at <= now);
        let begun: Vec<Wait> = self.waits.iter().filter(|w| started(w)).cloned().collect();
        self.waits.retain(|wait| !started(wait));
        self.ended
            .extend(begun.iter().map(|wait| (wait.op, Status::Ok)));
        let mut found = std::mem::take(&mut self.ended);
        let done = self.queue.poll(usize::MAX, Some(Duration::ZERO)).unwrap();
        let mut expected: Vec<(u64, Status)> = done.iter().map(|d| (d.op, d.status)).collect();
        found.sort_by_key(|(op, _)| *op);
        expected.sort_by_key(|(op, _)| *op);
        assert_eq!(
            expected,
            found,
            "memory, script; at {}\n{}",
            now.0,
            self.story()
        );
        for wait in begun {
            let decision = done.iter().find(|d| d.op == wait.op).unwrap();
            let (at, booking) = wait.granted.unwrap();
            self.permits.push(Permit {
                id: wait.id,
                number: decision.permit,
                ends: at + LEASE,
                booking,
                weights: wait.weights,
                settled: false,
            });
        }
        let figures = self.memory.peek(self.named(), &request(&[0], None));
        let answer = self.ask(|batch| batch.peek(&Weights::One(0)));
        assert_eq!(figures_of(&figures), answer.figures, "{}", self.story());
        assert_eq!(self.server.data.without_end(), Vec::<String>::new());
    }

    /// Lets time pass, stopping wherever something falls due.
    pub fn pass(&mut self, span: Span) {
        let till = self.now() + span;
        loop {
            let mut times = BTreeSet::from([till]);
            for wait in &self.waits {
                match &wait.granted {
                    Some((at, _)) => times.insert(*at),
                    None => wait.deadline.is_some_and(|at| times.insert(at)),
                };
            }
            times.extend(self.permits.iter().map(|permit| permit.ends));
            let next = *times.iter().find(|at| **at > self.now()).unwrap_or(&till);
            assert_eq!(self.memory.clock_set(next), Status::Ok);
            self.permits.retain(|permit| permit.ends > next);
            self.ask(|batch| batch.peek(&Weights::One(0)));
            self.listen();
            for wait in self.waits.clone() {
                if wait.deadline == Some(next) {
                    self.give_up(wait.id, Status::Denied);
                }
            }
            self.compare();
            if next >= till {
                return;
            }
        }
    }

    /// Its deadline has come: it leaves the queue, unless it was granted.
    fn give_up(&mut self, id: Id, status: Status) {
        let waits = |wait: &&Wait| wait.id == id && wait.granted.is_none();
        if self.waits.iter().find(waits).is_none() {
            return;
        }
        let answer = self.ask(|batch| batch.cancel(id, None));
        assert_eq!(answer.outcome, Outcome::Done, "{}", self.story());
        self.end(id, status);
        self.listen();
    }

    pub fn acquire(&mut self, weights: Vec<u64>, wait: Option<Span>) {
        let id = Id(self.next_id);
        self.next_id += 1;
        let sink = Sink::Queue(self.queue.clone());
        let expected = self
            .memory
            .acquire(self.named(), &request(&weights, wait), sink);
        let each = Weights::Each(weights.clone().into());
        let found = self.ask(|batch| batch.acquire(id, wait, (LEASE, false), &each));
        let deadline = wait.map(|wait| self.now() + wait);
        let op = expected.op;
        let wait = |granted| Wait {
            id,
            op,
            deadline,
            weights: weights.clone(),
            granted,
        };
        let outcome = match (expected.status, found.outcome) {
            (Status::Pending, Outcome::Queued) => {
                self.waits.push(wait(None));
                self.listen();
                return;
            }
            (Status::Pending, Outcome::Done) if found.at > self.now() => {
                self.waits
                    .push(wait(Some((found.at, found.booking.clone()))));
                self.listen();
                return;
            }
            (Status::Ok, Outcome::Done) => {
                if expected.permit != 0 {
                    // The embedded backend's is the permit's, which starts with a booking's time.
                    assert!(found.fence > self.fence, "{}", self.story());
                    self.fence = found.fence;
                    let holds = weights_held(&self.limits, &weights);
                    assert_eq!(expected.fence > 0, holds, "{}", self.story());
                    self.permits.push(Permit {
                        id,
                        number: expected.permit,
                        ends: self.now() + LEASE,
                        booking: found.booking.clone(),
                        weights,
                        settled: false,
                    });
                }
                Outcome::Done
            }
            (Status::Denied, Outcome::Denied) => Outcome::Denied,
            (Status::Never, Outcome::Never) => Outcome::Never,
            other => panic!("{other:?}: {expected:?}\n{}", self.story()),
        };
        self.check(&expected, &found, outcome);
        self.listen();
    }

    pub fn peek(&mut self, weights: Vec<u64>) {
        let expected = self.memory.peek(self.named(), &request(&weights, None));
        let each = Weights::Each(weights.into());
        let found = self.ask(|batch| batch.peek(&each));
        let outcome = match expected.status {
            Status::Ok => Outcome::Done,
            Status::Denied => Outcome::Denied,
            _ => Outcome::Never,
        };
        self.check(&expected, &found, outcome);
    }

    fn check(&self, expected: &Decision, found: &Answer, outcome: Outcome) {
        let story = || format!("{expected:?}\n{found:?}\n{}", self.story());
        assert_eq!(found.outcome, outcome, "{}", story());
        assert_eq!(figures_of(expected), found.figures, "{}", story());
        let index = (expected.index != NO_LIMIT).then_some(expected.index as usize);
        assert_eq!(index, found.index, "{}", story());
        // Of bookings that are not due yet the embedded backend does not know when they will end.
        if self.waits.iter().all(|wait| wait.granted.is_none()) {
            let retry = Span(expected.retry_after_us);
            assert_eq!(retry, found.retry_after, "{}", story());
        }
    }

    pub fn cancel(&mut self, which: usize) {
        if self.waits.is_empty() {
            return;
        }
        let mut which = which % self.waits.len();
        if self.waits[which].granted.is_some() {
            // The newest of them.
            let newest = self.waits.iter().rposition(|wait| wait.granted.is_some());
            which = newest.expect("this one, or another");
        }
        let wait = self.waits.remove(which);
        assert_eq!(self.memory.cancel(wait.op, false), Status::Ok);
        let found = self.ask(|batch| batch.cancel(wait.id, None));
        let expected = match wait.granted {
            Some(_) => Outcome::Returned,
            None => Outcome::Done,
        };
        assert_eq!(found.outcome, expected, "{}", self.story());
        self.ended.push((wait.op, Status::Cancelled));
        self.listen();
    }

    pub fn release(&mut self, which: usize) {
        if self.permits.is_empty() {
            return;
        }
        let permit = self.permits.swap_remove(which % self.permits.len());
        for again in [false, true] {
            let expected = self.memory.release(permit.number);
            let found = self.ask(|batch| batch.release(permit.id, None));
            let outcome = match expected {
                Status::Ok => Outcome::Done,
                _ => Outcome::Stale,
            };
            assert_eq!(found.outcome, outcome, "{}", self.story());
            assert_eq!(expected == Status::Ok, !again);
            self.listen();
        }
    }

    pub fn renew(&mut self, which: usize, lease: Span) {
        if self.permits.is_empty() {
            return;
        }
        let i = which % self.permits.len();
        let permit = self.permits[i].clone();
        if !weights_held(&self.limits, &permit.weights) {
            return;
        }
        // In Redis its end comes no earlier than it was; whoever holds it lets go by himself.
        let lease = lease.max(permit.ends.since(self.now()));
        assert_eq!(self.memory.renew(permit.number, Some(lease)), Status::Ok);
        let weights = Weights::Each(permit.weights.into());
        let found = self.ask(|batch| batch.renew(permit.id, (lease, false), Era(0), &weights));
        assert_eq!(found.outcome, Outcome::Done, "{}", self.story());
        self.permits[i].ends = self.now() + lease;
    }

    pub fn settle(&mut self, which: usize, actual: u64) {
        if self.permits.is_empty() {
            return;
        }
        let i = which % self.permits.len();
        let permit = self.permits[i].clone();
        // A key that nothing is held of may be forgotten, and take what is settled later anew.
        if permit.settled || self.is_booked() || !weights_held(&self.limits, &permit.weights) {
            return;
        }
        self.permits[i].settled = true;
        let status = self.memory.settle(permit.number, actual);
        assert_eq!(status, Status::Ok, "{}", self.story());
        let found = self.ask(|batch| batch.settle(&permit.booking, actual));
        assert_eq!(found.outcome, Outcome::Done, "{}", self.story());
    }

    pub fn penalize(&mut self, span: Span) {
        if self.is_booked() {
            return;
        }
        self.memory.penalize(self.named(), KEY, span);
        self.ask(|batch| batch.penalize(span));
        self.listen();
    }

    pub fn reset(&mut self) {
        if self.is_booked() {
            return;
        }
        self.memory.reset(self.named(), KEY);
        self.ask(|batch| batch.reset());
        for permit in std::mem::take(&mut self.permits) {
            assert_eq!(self.memory.release(permit.number), Status::Stale);
            let found = self.ask(|batch| batch.release(permit.id, None));
            assert_eq!(found.outcome, Outcome::Stale, "{}", self.story());
        }
        self.listen();
    }
}

fn target(limits: &Limits, opened: u64) -> Target {
    Target::new("l", NAME, limits).opened(Opened::At(Time(opened)))
}

/// Whether a semaphore is among what it takes.
fn weights_held(limits: &Limits, weights: &[u64]) -> bool {
    let mut pairs = limits.limits().iter().zip(weights);
    pairs.any(|(limit, weight)| matches!(limit.rule, Rule::Semaphore(_)) && *weight > 0)
}

fn figures_of(decision: &Decision) -> Figures {
    Figures {
        limit: decision.limit,
        remaining: decision.remaining,
        reset_after: Span(decision.reset_after_us),
    }
}

fn request(weights: &[u64], wait: Option<Span>) -> Request<'_> {
    Request {
        key: KEY,
        weights: match weights {
            [weight] => op::Weights::Same(*weight),
            each => op::Weights::Each(each),
        },
        wait,
        ..Request::TRY
    }
}
