//! Callers of every kind of limit at once, while something is done to Redis: what they were told, and
//! what Redis itself has counted.
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use limiter::decision::{DEGRADED, Decision, Status};
use limiter::limiter::{LimitSpec, Limiter, spec};
use limiter::op::{Request, Weights};

use crate::kit::*;

/// More than any test admits: a limit of so many only counts, and lets all pass.
pub const MANY: u64 = 500_000;
const YEAR: u64 = 365 * 24 * HOUR;

/// Limits under a name.
#[derive(Clone)]
pub struct Shape {
    pub name: &'static str,
    pub limits: Vec<LimitSpec>,
}

impl Shape {
    pub fn holds(&self) -> bool {
        self.limits
            .iter()
            .any(|limit| limit.kind == spec::SEMAPHORE)
    }

    /// The keys in Redis that its empty key may have.
    pub fn parts(&self) -> Vec<String> {
        let letter = |limit: &LimitSpec| match limit.kind {
            spec::SEMAPHORE => 'S',
            spec::TOKEN_BUCKET if limit.flags & spec::INTERVAL != 0 => 'I',
            spec::TOKEN_BUCKET => 'T',
            spec::PACER => 'P',
            spec::SLIDING_LOG => 'L',
            spec::SLIDING_COUNTER => 'C',
            spec::FIXED_WINDOW => 'W',
            _ => 'U',
        };
        let letters: String = self.limits.iter().map(letter).collect();
        let mut parts = vec!["s".to_owned()];
        if self.holds() {
            parts.extend(["e", "q", "i"].map(str::to_owned));
        }
        let logs = letters.char_indices().filter(|(_, letter)| *letter == 'L');
        parts.extend(logs.map(|(n, _)| format!("l{n}")));
        let name = |part| format!("{{limiter:{letters}:{}:}}:{part}", self.name);
        parts.into_iter().map(name).collect()
    }

    /// Takes part in counting: the last limit says how many were admitted.
    fn counts(&self) -> bool {
        self.limits
            .last()
            .is_some_and(|limit| limit.capacity == MANY)
    }

    pub fn on(&self, url: &str) -> Limiter {
        limiter(&open(url), self.name, &self.limits)
    }

    /// How many were admitted, as Redis has it.
    #[track_caller]
    pub fn charged(&self, limiter: &Limiter) -> u64 {
        assert!(self.counts());
        let mut weights = vec![0; self.limits.len()];
        *weights.last_mut().unwrap() = MANY + 1;
        let weights = Weights::Each(&weights);
        let never = limiter
            .peek(&Request {
                weights,
                ..Request::TRY
            })
            .unwrap();
        assert_eq!(
            (never.status, never.limit),
            (Status::Never, MANY),
            "{never:?}"
        );
        MANY - never.remaining
    }
}

fn shape(name: &'static str, limits: &[LimitSpec]) -> Shape {
    Shape {
        name,
        limits: limits.into(),
    }
}

/// A limit that counts.
pub fn tally() -> LimitSpec {
    bucket(MANY, 1, HOUR)
}

/// Every kind by itself, and kinds together: each is another script.
pub fn rates() -> Vec<Shape> {
    let many = |kind| limit(kind, MANY, 0, YEAR);
    let log = limit(spec::SLIDING_LOG, MANY, 0, HOUR);
    let first_use = LimitSpec {
        flags: spec::ALIGN_FIRST_USE,
        ..many(spec::FIXED_WINDOW)
    };
    let interval = LimitSpec {
        flags: spec::INTERVAL,
        ..bucket(MANY, MANY, YEAR)
    };
    let free = limit(spec::UNLIMITED, 0, 0, 0);
    let pacer = limit(spec::PACER, 1000, 1_000_000, 1_000_000);
    vec![
        shape("bucket", &[tally()]),
        shape("interval", &[interval]),
        shape("log", &[log]),
        shape("counter", &[many(spec::SLIDING_COUNTER)]),
        shape("window", &[first_use]),
        shape("pacer", &[pacer, tally()]),
        shape("free", &[free, tally()]),
        shape("several", &[log, first_use, pacer, tally()]),
    ]
}

/// The same for those with a semaphore of so many.
pub fn semaphores(capacity: u64) -> Vec<Shape> {
    let log = limit(spec::SLIDING_LOG, MANY, 0, HOUR);
    vec![
        shape("semaphore", &[semaphore(capacity)]),
        shape("held", &[semaphore(capacity), tally()]),
        shape(
            "both",
            &[log, semaphore(capacity), semaphore(capacity + 1), tally()],
        ),
    ]
}

/// What callers were told.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub granted: u64,
    /// Nobody knows whether these were.
    pub unknown: u64,
    /// These were not.
    pub backend: u64,
    /// By the failure policy.
    pub degraded: u64,
    pub denied: u64,
    pub longest: Duration,
}

impl Tally {
    pub fn note(&mut self, decision: &Decision, took: Duration) {
        self.longest = self.longest.max(took);
        if decision.flags & DEGRADED != 0 {
            self.degraded += 1;
            return;
        }
        match decision.status {
            Status::Ok => self.granted += 1,
            Status::UnknownOutcome => self.unknown += 1,
            Status::Backend => self.backend += 1,
            Status::Denied => self.denied += 1,
            _ => panic!("{decision:?}"),
        }
    }

    pub fn add(&mut self, other: &Tally) {
        self.granted += other.granted;
        self.unknown += other.unknown;
        self.backend += other.backend;
        self.degraded += other.degraded;
        self.denied += other.denied;
        self.longest = self.longest.max(other.longest);
    }
}

/// What became of the calls on a shape.
pub struct Outcome {
    pub shape: Shape,
    pub told: Tally,
}

/// What became of all calls.
pub struct Loaded {
    pub outcomes: Vec<Outcome>,
    /// Permits whose lease was lost.
    pub lost: u64,
}

/// Where callers go, and with which settings.
pub type Door<'a> = (&'a str, &'a [(&'a str, &'a str)]);

/// Callers on each shape through each door, until `trouble` is over.
pub fn load(shapes: Vec<Shape>, doors: &[Door], trouble: impl FnOnce()) -> Loaded {
    let clients: Vec<_> = doors.iter().map(|(url, set)| open_with(url, set)).collect();
    let over = AtomicBool::new(false);
    let outcomes = std::thread::scope(|scope| {
        let callers: Vec<_> = shapes
            .into_iter()
            .map(|shape| {
                let started = clients.iter().map(|client| {
                    let limiter = limiter(client, shape.name, &shape.limits);
                    let (over, shape) = (&over, shape.clone());
                    scope.spawn(move || call_until(&limiter, &shape, over))
                });
                (shape.clone(), started.collect::<Vec<_>>())
            })
            .collect();
        // Also when it panics: else nobody would ever end.
        let stop = Stop(&over);
        trouble();
        drop(stop);
        let end = |(shape, callers): (Shape, Vec<std::thread::ScopedJoinHandle<Tally>>)| {
            let mut told = Tally::default();
            callers
                .into_iter()
                .for_each(|caller| told.add(&caller.join().unwrap()));
            Outcome { shape, told }
        };
        callers.into_iter().map(end).collect::<Vec<_>>()
    });
    let mut lost = 0;
    for client in clients {
        lost += client.stats().unwrap().lost;
        client.shutdown(None).unwrap();
    }
    Loaded { outcomes, lost }
}

pub struct Stop<'a>(pub &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn call_until(limiter: &Limiter, shape: &Shape, over: &AtomicBool) -> Tally {
    let mut tally = Tally::default();
    let request = match shape.holds() {
        true => within(60_000),
        false => Request::TRY,
    };
    for n in 0_u64.. {
        if over.load(Ordering::SeqCst) {
            break;
        }
        let began = Instant::now();
        let decision = acquire(limiter, &request);
        tally.note(&decision, began.elapsed());
        if decision.permit != 0 {
            if n % 5 == 4 {
                limiter.settle(decision.permit, 1).unwrap();
            }
            assert_eq!(limiter.release(decision.permit), Ok(Status::Ok));
        } else if decision.status != Status::Ok {
            // A caller that is refused at once does not try again at once.
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    tally
}

/// Redis has charged what callers were told of, and at most what nobody knows of besides.
#[track_caller]
pub fn adds_up(url: &str, loaded: &Loaded) -> Tally {
    assert_eq!(loaded.lost, 0, "no lease is so short");
    let mut all = Tally::default();
    for Outcome { shape, told } in &loaded.outcomes {
        all.add(told);
        let limiter = shape.on(url);
        if shape.counts() {
            let charged = shape.charged(&limiter);
            let possible = told.granted..=told.granted + told.unknown;
            assert!(
                possible.contains(&charged),
                "{}: {charged}: {told:?}",
                shape.name
            );
        }
        if shape.holds() {
            let capacity = shape
                .limits
                .iter()
                .find(|limit| limit.kind == spec::SEMAPHORE);
            let capacity = capacity.unwrap().capacity;
            crate::support::eventually("all is given back", crate::support::secs(20), || {
                let whole = limiter.peek(&Request {
                    weights: Weights::Same(capacity),
                    ..Request::TRY
                });
                whole.is_ok_and(|decision| decision.status == Status::Ok)
            });
        }
        assert!(told.granted > 0, "{}: {told:?}", shape.name);
    }
    all
}

/// Prints what came of it.
pub fn report(what: &str, all: &Tally) {
    println!(
        "figure: {what}: {} admitted, {} not, {} unknown, {} degraded; longest call {:?}",
        all.granted, all.backend, all.unknown, all.degraded, all.longest
    );
}
