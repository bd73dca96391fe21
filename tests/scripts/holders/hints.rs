//! What a denial says of permits that have to end first, where there are many of them.
use limiter::limit::decide::Limits;
use limiter::limit::rule::{Limit, Rule};
use limiter::limit::semaphore::Semaphore;
use limiter::limit::time::{Span, Time};
use limiter::limit::weights::Weights;
use limiter::redis::wire::{Answer, Batch, Era, Head, Holding, Id, Outcome, Reply, Target};

use super::run::LEASE;
use crate::server::Server;

pub const START: u64 = 1_700_000_000_000_000;

pub struct Crowd {
    pub server: Server,
    target: Target,
}

impl Crowd {
    fn new(capacity: u64) -> Crowd {
        Crowd::and(capacity, None)
    }

    /// With another limit.
    pub fn and(capacity: u64, other: Option<Rule>) -> Crowd {
        let semaphore = Rule::Semaphore(Semaphore::new(capacity, LEASE, false).unwrap());
        let rules = [Some(semaphore), other].into_iter().flatten();
        let limit = |rule| Limit {
            rule,
            per_call: false,
        };
        let limits = Limits::new(rules.map(limit).collect(), 1).unwrap();
        Crowd {
            server: Server::new(),
            target: Target::new("l", b"n", &limits),
        }
    }

    pub fn ask(&self, at: u64, op: impl FnOnce(&mut Batch)) -> Answer {
        self.server.data.now.set(START + at);
        let head = Head {
            now: Some(Time(START + at)),
            not_after: None,
        };
        let mut batch = self.target.holding(
            head,
            Holding {
                known: None,
                fresh: Era(1),
                channel: "c",
                lease: LEASE,
                claim: LEASE,
                allowance: Span::ZERO,
                life: Span::secs(1),
                tells_unheard: true,
            },
        );
        op(&mut batch);
        let reply = self.server.call(&batch.on(b"k")).unwrap();
        match Reply::read(&reply, 1) {
            Ok(Reply::Done { mut answers, .. }) => answers.pop().unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Takes one for so long, or waits for it.
    pub fn acquire(&self, at: u64, id: u128, wait: Span, lease: Span, weight: u64) -> Answer {
        self.ask(at, |batch| {
            batch.acquire(Id(id), Some(wait), (lease, false), &Weights::One(weight))
        })
    }
}

#[test]
fn a_hint_counts_the_permits_that_end_first_and_is_never_too_late() {
    let crowd = Crowd::new(100);
    // The n-th ends n milliseconds later.
    for n in (0..100).rev() {
        let lease = Span(LEASE.0 + n * 1_000);
        let held = crowd.acquire(0, n.into(), Span::ZERO, lease, 1);
        assert_eq!(held.outcome, Outcome::Done);
    }
    let hint = |weight| {
        let denied = crowd.ask(5, |batch| batch.peek(&Weights::One(weight)));
        assert_eq!(denied.outcome, Outcome::Denied);
        denied.retry_after.0
    };
    let ends = |n: u64| LEASE.0 + (n - 1) * 1_000 - 5;
    for weight in [1, 2, 63, 64] {
        assert_eq!(hint(weight), ends(weight), "{weight}");
    }
    for weight in [65, 100] {
        assert_eq!(hint(weight), ends(64), "not before, and then again");
    }
    // A hundred wait, and their lives end before any permit.
    for n in 1_000..1_100 {
        let queued = crowd.acquire(5, n, LEASE, LEASE, 1);
        assert_eq!(queued.outcome, Outcome::Queued);
    }
    for weight in [1, 30, 64] {
        assert_eq!(hint(weight), ends(weight), "{weight}");
    }
}
