//! Very many permits that are booked ahead, when a penalty or a reset comes: no call does much, whoever comes goes
//! on with it, and the order is kept.
use limiter::limit::rule::Rule;
use limiter::limit::time::Span;
use limiter::limit::token_bucket::TokenBucket;
use limiter::limit::weights::Weights;
use limiter::redis::wire::{Answer, Era, Id, Outcome};

use super::hints::{Crowd, START};
use super::run::LEASE;

/// So many have started, and so many more have booked, one each tenth of a second.
const STARTED: u64 = 50;
const BOOKED: u64 = 300;
const EACH: u64 = 100_000;
/// What one call writes at most.
const WRITES: usize = 500;

/// When the nth starts that was put off: the bucket is full again by then.
fn nth(n: u64) -> u64 {
    (n + 1).saturating_sub(STARTED) * EACH
}

struct Many {
    crowd: Crowd,
    at: u64,
}

impl Many {
    fn new() -> Many {
        let rule = TokenBucket::new(STARTED, 1, Span(EACH), false).unwrap();
        let many = Many {
            crowd: Crowd::and(1 << 20, Some(Rule::TokenBucket(rule))),
            at: 0,
        };
        for id in 0..STARTED + BOOKED {
            let found = many.acquire(id);
            let due = START + (id + 1).saturating_sub(STARTED) * EACH;
            assert_eq!((found.outcome, found.at.0), (Outcome::Done, due));
        }
        many
    }

    fn acquire(&self, id: u64) -> Answer {
        let wait = Span::secs(1_000);
        self.crowd.acquire(self.at, id.into(), wait, LEASE, 1)
    }

    fn renew(&self, id: u64) -> Answer {
        self.crowd.ask(self.at, |batch| {
            batch.renew(Id(id.into()), (LEASE, false), Era(1), &Weights::One(1))
        })
    }

    /// Counts what it writes.
    fn change(&self, penalty: Option<Span>) {
        self.counted(|| {
            self.crowd.ask(self.at, |batch| match penalty {
                Some(span) => batch.penalize(span),
                None => batch.reset(),
            })
        });
    }

    fn counted(&self, ask: impl FnOnce() -> Answer) -> Answer {
        let before = self.crowd.server.data.writes.get();
        let answer = ask();
        let writes = self.crowd.server.data.writes.get() - before;
        assert!(writes < WRITES, "{writes} writes in one call");
        answer
    }

    /// Asks for one until its time is known, while time passes. Answers how many calls that takes.
    fn settles(&mut self, id: u64, ask: impl Fn(&Many) -> Answer) -> (u64, Answer) {
        for calls in 1..1_000 {
            let found = self.counted(|| ask(self));
            if found.outcome != Outcome::Queued {
                return (calls, found);
            }
            self.at += EACH / 10;
        }
        panic!("{id} is never told when it starts");
    }

    /// All have booked times, in their order, from the penalty's end on.
    fn in_order(&self, from: u64) {
        for id in STARTED..STARTED + BOOKED {
            let found = self.renew(id);
            let due = START + from + nth(id - STARTED);
            assert_eq!((found.outcome, found.at.0), (Outcome::Done, due), "{id}");
        }
    }
}

#[test]
fn a_penalty_moves_many_a_few_at_a_time_and_in_order() {
    let mut many = Many::new();
    let penalty = 20_000_000;
    many.change(Some(Span(penalty)));
    // Whoever penalized is gone. Meanwhile nobody comes in between, nor starts.
    assert_eq!(many.acquire(10_000).outcome, Outcome::Queued);
    let (calls, first) = many.settles(STARTED, |many| many.renew(STARTED));
    assert!(calls > 1, "{calls}");
    assert_eq!(first.at.0, START + penalty);
    let last = STARTED + BOOKED - 1;
    many.settles(last, |many| many.renew(last));
    many.in_order(penalty);
    assert_eq!(many.renew(0).outcome, Outcome::Done, "it had started");
    let next = many.acquire(10_000);
    let due = START + penalty + nth(BOOKED);
    assert_eq!((next.outcome, next.at.0), (Outcome::Done, due));
}

#[test]
fn a_longer_penalty_comes_while_many_are_moved_and_some_are_cancelled() {
    let mut many = Many::new();
    for penalty in [10_000_000, 20_000_000, 30_000_000] {
        many.change(Some(Span(penalty)));
        for _ in 0..3 {
            many.counted(|| many.renew(STARTED));
        }
    }
    let penalty = many.at + 30_000_000;
    let gone = [STARTED + 1, STARTED + 150, STARTED + BOOKED - 1];
    for id in gone {
        let cancelled = many.counted(|| many.crowd.ask(many.at, |b| b.cancel(Id(id.into()), None)));
        assert_eq!(cancelled.outcome, Outcome::Returned);
    }
    let last = STARTED + BOOKED - 2;
    let (_, found) = many.settles(last, |many| many.renew(last));
    // The first of them was booked anew by then: its slot passes unused.
    assert_eq!(found.at.0, START + penalty + nth(BOOKED - 3));
    let first = many.renew(STARTED);
    assert_eq!(first.at.0, START + penalty);
    let behind = many.renew(STARTED + 151);
    assert_eq!(behind.at.0, START + penalty + nth(150));
}

#[test]
fn a_reset_ends_many_at_once_and_those_who_had_booked_come_first() {
    for in_a_penalty in [false, true] {
        let mut many = Many::new();
        if in_a_penalty {
            many.change(Some(Span::secs(1)));
            many.counted(|| many.renew(STARTED));
        }
        many.change(None);
        assert_eq!(many.renew(0).outcome, Outcome::Stale);
        let release = |id| many.crowd.ask(many.at, |b| b.release(Id(id), None));
        assert_eq!(release(1).outcome, Outcome::Stale);
        assert_eq!(
            many.acquire(10_000).outcome,
            Outcome::Queued,
            "not before those"
        );
        let (_, first) = many.settles(STARTED, |many| many.acquire(STARTED));
        assert_eq!(first.outcome, Outcome::Done);
        // The bucket is full again.
        let mut last = first;
        for id in STARTED + 1..STARTED + BOOKED {
            let (_, found) = many.settles(id, |many| many.acquire(id));
            assert!(found.fence > last.fence && found.at >= last.at, "{id}");
            last = found;
        }
        assert!(last.at.0 >= START + (BOOKED - STARTED) * EACH);
        let (_, next) = many.settles(10_000, |many| many.acquire(10_000));
        assert!(next.fence > last.fence && next.at > last.at);
    }
}
