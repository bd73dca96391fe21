//! More calls on one key than Redis answers within the time of one answer: what waits in line counts as
//! Redis's failure only for those who do not wait. On a carrier that keeps what it is to send, and a clock
//! that is moved by hand.
use std::sync::{Arc, Mutex, Weak};

use limiter::callback::Callbacks;
use limiter::clock::Clock;
use limiter::config::{Config, Own};
use limiter::decision::{Decision, Status};
use limiter::limit::decide::Limits;
use limiter::limit::rule::{Limit, Rule};
use limiter::limit::semaphore::Semaphore;
use limiter::limit::time::Span;
use limiter::limit::token_bucket::TokenBucket;
use limiter::op::{Relay, Request, Sink};
use limiter::redis::link::{Failure, Silence};
use limiter::redis::{self, Carrier, Dice, Flight, Named, Options, Redis, World};

/// Keeps flights until the test sends them.
#[derive(Default)]
struct Kept(Mutex<Vec<Flight>>);

impl Carrier for Kept {
    fn carry(&self, flight: Flight) {
        self.0.lock().unwrap().push(flight);
    }
    fn listen(&self, _: &str) {}
    fn stir(&self) {}
    fn count_in(&self, _: Weak<Named>) {}
    fn connects(&self) -> u64 {
        0
    }
}

/// How long the first call stays under way: longer than an answer may take.
const SLOW: Span = Span::millis(400);
const TIMEOUT: Span = Span::millis(250);

/// What becomes of a call with this wait that stood in line behind a slow one: the time left to its answer
/// when it is sent, or what its caller was told instead.
fn behind_a_slow_call(rule: Rule, wait: Option<Span>) -> Result<Span, Status> {
    let (clock, kept) = (Arc::new(Clock::virtual_clock()), Arc::<Kept>::default());
    let world = World {
        clock: clock.clone(),
        dice: Dice::seeded(1),
        carrier: Some(kept.clone()),
        without: None,
    };
    let config = Config::default();
    let options = Options {
        link: redis::settings("redis://nowhere", &config).unwrap(),
        config,
        fork_generation: 0,
    };
    let redis = Redis::on(world, options, Arc::default(), Callbacks::new(None));
    let limit = Limit {
        rule,
        per_call: false,
    };
    let limits = Limits::new(vec![limit], 0).unwrap();
    let named = redis.limiter(b"line", limits, Arc::<Own>::default());
    let told = Arc::<Mutex<Vec<Decision>>>::default();
    let ask = |wait| {
        let told = told.clone();
        let then = Box::new(move |decision| told.lock().unwrap().push(decision));
        let sink = Sink::Relay(Relay {
            then,
            op: 1,
            queue: None,
        });
        let request = Request {
            wait,
            ..Request::TRY
        };
        assert_eq!(
            redis.acquire(&named, &request, sink).status,
            Status::Pending
        );
    };
    ask(None);
    let mut flight = kept.0.lock().unwrap().pop().expect("the first call");
    flight.next().expect("it is sent");
    ask(wait);
    assert!(
        kept.0.lock().unwrap().is_empty(),
        "the second stands in line"
    );
    clock.show(clock.now() + SLOW);
    flight.heard(Err(Failure::Ambiguous(Silence::Timeout)), false);
    told.lock().unwrap().clear();
    let sent = flight.next();
    match told.lock().unwrap().first() {
        Some(decision) => Err(decision.status),
        None => Ok(sent.expect("it is sent").deadline.since(clock.now())),
    }
}

#[test]
fn time_in_line_is_held_against_those_who_do_not_wait_only() {
    let rules = || {
        [
            Rule::TokenBucket(TokenBucket::new(1, 1, Span::secs(1), false).unwrap()),
            Rule::Semaphore(Semaphore::new(1, Span::secs(30), true).unwrap()),
        ]
    };
    for rule in rules() {
        let behind = |wait| behind_a_slow_call(rule.clone(), wait);
        assert_eq!(behind(None), Ok(TIMEOUT));
        assert_eq!(behind(Some(Span::secs(60))), Ok(TIMEOUT));
        // Not beyond the wait's own end, but for the time of an answer.
        assert_eq!(behind(Some(Span::millis(500))), Ok(Span::millis(100)));
        for short in [0, 100, 250, 400] {
            assert_eq!(
                behind(Some(Span::millis(short))),
                Err(Status::Backend),
                "{short}"
            );
        }
    }
}
