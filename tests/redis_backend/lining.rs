//! More calls on one key than Redis answers within the time of one answer: what waits in line counts as
//! Redis's failure only for those who do not wait. On a carrier that keeps what it is to send, and a clock
//! that is moved by hand.
use std::sync::{Arc, Mutex, Weak};

use limiter::callback::Callbacks;
use limiter::clock::Clock;
use limiter::config::{Config, Own};
use limiter::decision::{Decision, Status};
use limiter::limit::decide::Limits;
use limiter::limit::interval_bucket::IntervalBucket;
use limiter::limit::rule::{Limit, Rule};
use limiter::limit::semaphore::Semaphore;
use limiter::limit::time::Span;
use limiter::limit::token_bucket::TokenBucket;
use limiter::op::{Relay, Request, Sink, Weights};
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

/// One limiter on such a carrier, and what its callers were told.
struct Lined {
    clock: Arc<Clock>,
    kept: Arc<Kept>,
    redis: Arc<Redis>,
    named: Arc<Named>,
    told: Arc<Mutex<Vec<Decision>>>,
}

impl Lined {
    fn new(rule: Rule) -> Lined {
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
        Lined {
            named: redis.limiter(b"line", limits, Arc::<Own>::default()),
            clock,
            kept,
            redis,
            told: Arc::default(),
        }
    }

    fn ask(&self, weight: u64, wait: Option<Span>) {
        let told = self.told.clone();
        let then = Box::new(move |decision| told.lock().unwrap().push(decision));
        let sink = Sink::Relay(Relay {
            then,
            op: 1,
            queue: None,
        });
        let request = Request {
            weights: Weights::Same(weight),
            wait,
            ..Request::TRY
        };
        let begun = self.redis.acquire(&self.named, &request, sink);
        assert_eq!(begun.status, Status::Pending);
    }

    /// The call that was made, under way.
    fn sent(&self) -> Flight {
        let mut flight = self.kept.0.lock().unwrap().pop().expect("a call");
        flight.next().expect("it is sent");
        flight
    }

    fn is_idle(&self) -> bool {
        self.kept.0.lock().unwrap().is_empty()
    }
}

/// It has no answer.
fn unheard(flight: &mut Flight) {
    flight.heard(Err(Failure::Ambiguous(Silence::Timeout)), false);
}

/// What becomes of a call with this wait that stood in line behind a slow one: the time left to its answer
/// when it is sent, or what its caller was told instead.
fn behind_a_slow_call(rule: Rule, wait: Option<Span>) -> Result<Span, Status> {
    let lined = Lined::new(rule);
    lined.ask(1, None);
    let mut flight = lined.sent();
    lined.ask(1, wait);
    assert!(lined.is_idle(), "the second stands in line");
    lined.clock.show(lined.clock.now() + SLOW);
    unheard(&mut flight);
    lined.told.lock().unwrap().clear();
    let sent = flight.next();
    match lined.told.lock().unwrap().first() {
        Some(decision) => Err(decision.status),
        None => Ok(sent.expect("it is sent").deadline.since(lined.clock.now())),
    }
}

/// How many of those who stand in line go with the next call.
fn go_together(rule: Rule, weights: impl Iterator<Item = u64>) -> usize {
    let lined = Lined::new(rule);
    lined.ask(1, Some(Span::ZERO));
    let mut flight = lined.sent();
    weights.for_each(|weight| lined.ask(weight, Some(Span::ZERO)));
    unheard(&mut flight);
    flight.next().expect("the next call");
    lined.told.lock().unwrap().clear();
    unheard(&mut flight);
    lined.told.lock().unwrap().len()
}

/// A script that decides one after another would hold the server up.
#[test]
fn as_many_go_together_as_the_script_decides_at_once() {
    let bucket = || Rule::TokenBucket(TokenBucket::new(9, 1, Span::secs(1), false).unwrap());
    let interval = IntervalBucket::new(9, 1, Span::secs(1), false).unwrap();
    assert_eq!(go_together(bucket(), (0..999).map(|_| 2)), 512);
    assert_eq!(go_together(bucket(), (0..300).map(|_| 2)), 300);
    assert_eq!(go_together(bucket(), (0..999).map(|n| 1 + n % 2)), 64);
    assert_eq!(
        go_together(bucket(), (0..999).map(|n| 1 + n / 300)),
        300 + 63
    );
    let rule = Rule::IntervalBucket(interval);
    assert_eq!(go_together(rule, (0..999).map(|_| 2)), 64);
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

/// Nothing is booked behind a deadline, however long the line was.
#[test]
fn a_wait_asks_for_what_is_left_of_its_time() {
    let bucket = TokenBucket::new(1, 1, Span::secs(1), false).unwrap();
    let lined = Lined::new(Rule::TokenBucket(bucket));
    lined.ask(1, None);
    let mut flight = lined.sent();
    lined.ask(1, Some(Span::millis(200)));
    lined.clock.show(lined.clock.now() + Span::millis(150));
    unheard(&mut flight);
    let call = flight.next().expect("the second is sent").call;
    let args: Vec<&[u8]> = call.args.iter().collect();
    assert_eq!(args[args.len() - 3..], [&b"M"[..], b"50000", b"1"]);
}
