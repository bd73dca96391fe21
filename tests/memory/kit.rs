//! What the tests are written in: a world with a clock that they move.
use std::sync::Arc;
use std::time::Duration;

use limiter::callback::Callbacks;
use limiter::clock::Clock;
use limiter::decision::{Decision, Status};
use limiter::limit::decide::Limits;
use limiter::limit::pacer::Pacer;
use limiter::limit::rule::{Limit, Rule};
use limiter::limit::semaphore::Semaphore;
use limiter::limit::sliding_log::SlidingLog;
use limiter::limit::time::{Span, Time};
use limiter::limit::token_bucket::TokenBucket;
use limiter::memory::{Memory, Named, Options};
use limiter::op::{Request, Sink, Weights};
use limiter::permit::Numbers;
use limiter::queue::Queue;
use limiter::stats::{Stats, Totals};

pub const SEC: Span = Span::secs(1);
pub const EVER: Option<Span> = None;

pub struct World {
    pub memory: Arc<Memory>,
    pub stats: Arc<Stats>,
}

pub const OPTIONS: Options = Options {
    max_waiting: 100_000,
    max_penalty: Span::secs(3_600),
    lease: Span::secs(30),
    numbers: Numbers::new(0),
};

impl World {
    pub fn new() -> World {
        World::with(Clock::virtual_clock(), OPTIONS, None)
    }

    pub fn real() -> World {
        World::with(Clock::monotonic(), OPTIONS, None)
    }

    pub fn with(clock: Clock, options: Options, lost: Option<limiter::config::LostHook>) -> World {
        let stats = Arc::new(Stats::default());
        let callbacks = Callbacks::new(lost);
        let memory = Memory::new(Arc::new(clock), options, stats.clone(), callbacks);
        World { memory, stats }
    }

    pub fn limiter(&self, name: &str, rules: impl IntoIterator<Item = Rule>) -> Arc<Named> {
        self.versioned(name, 0, rules)
    }

    pub fn versioned(
        &self,
        name: &str,
        version: u32,
        rules: impl IntoIterator<Item = Rule>,
    ) -> Arc<Named> {
        let limits = rules
            .into_iter()
            .map(|rule| Limit {
                rule,
                per_call: false,
            })
            .collect();
        self.memory
            .limiter(name.as_bytes(), Limits::new(limits, version).unwrap())
    }

    pub fn queue(&self) -> Arc<Queue> {
        self.memory.queue(Queue::open_descriptor().unwrap())
    }

    pub fn submit(&self, named: &Arc<Named>, queue: &Arc<Queue>, request: Request) -> Decision {
        self.memory
            .acquire(named, &request, Sink::Queue(queue.clone()))
    }

    /// Submits what has to wait; answers its op.
    pub fn waits(&self, named: &Arc<Named>, queue: &Arc<Queue>, request: Request) -> u64 {
        let decision = self.submit(named, queue, request);
        assert_eq!(decision.status, Status::Pending, "{decision:?}");
        assert_ne!(decision.op, 0);
        decision.op
    }

    pub fn try_(&self, named: &Arc<Named>, weight: u64) -> Decision {
        self.memory
            .acquire_blocking(named, &ask(weight, Some(Span::ZERO)))
    }

    /// Takes what is there; answers the permit.
    pub fn takes(&self, named: &Arc<Named>, weight: u64) -> u64 {
        let decision = self.try_(named, weight);
        assert_eq!(decision.status, Status::Ok, "{decision:?}");
        assert_ne!(decision.permit, 0);
        decision.permit
    }

    /// Is denied; answers after how long to come back.
    pub fn denied(&self, named: &Arc<Named>, weight: u64) -> Span {
        let decision = self.try_(named, weight);
        assert_eq!(decision.status, Status::Denied, "{decision:?}");
        assert!(decision.retry_after_us >= 1);
        Span(decision.retry_after_us)
    }

    /// Units that could be taken now.
    pub fn remaining(&self, named: &Arc<Named>) -> u64 {
        self.memory.peek(named, &ask(0, None)).remaining
    }

    pub fn pass(&self, span: Span) {
        assert_eq!(self.memory.clock_advance(span), Status::Ok);
    }

    pub fn now(&self) -> Time {
        self.memory.clock_now()
    }

    pub fn totals(&self) -> Totals {
        self.stats.totals()
    }
}

pub fn ask(weight: u64, wait: Option<Span>) -> Request<'static> {
    Request {
        weights: Weights::Same(weight),
        wait,
        ..Request::TRY
    }
}

pub fn on(key: &[u8], weight: u64, wait: Option<Span>) -> Request<'_> {
    Request {
        key,
        weights: Weights::Same(weight),
        wait,
        ..Request::TRY
    }
}

/// Completions that are there, without waiting for more.
pub fn done(queue: &Queue) -> Vec<Decision> {
    queue.poll(usize::MAX, Some(Duration::ZERO)).unwrap()
}

/// What is there, as (op, status).
pub fn answers(queue: &Queue) -> Vec<(u64, Status)> {
    done(queue).iter().map(|d| (d.op, d.status)).collect()
}

pub fn sem(capacity: u64) -> Rule {
    Rule::Semaphore(Semaphore::new(capacity, Span::ZERO, true).unwrap())
}

/// A semaphore whose permits end after `lease` unless they are renewed.
pub fn leased(capacity: u64, lease: Span) -> Rule {
    Rule::Semaphore(Semaphore::new(capacity, lease, false).unwrap())
}

pub fn tb(capacity: u64, refill: u64, period: Span) -> Rule {
    Rule::TokenBucket(TokenBucket::new(capacity, refill, period, false).unwrap())
}

pub fn pacer(rate: u64, period: Span, burst: u64) -> Rule {
    Rule::Pacer(Pacer::new(burst, rate, period, 500).unwrap())
}

pub fn slide(limit: u64, window: Span) -> Rule {
    Rule::SlidingLog(SlidingLog::new(limit, window).unwrap())
}
