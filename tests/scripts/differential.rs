//! Random sequences of calls, parameters and clock steps, asked of the script and of src/limit; through
//! several handles with numbers of their own, of which the last opened decides.
use limiter::limit::decide::{Booking, KeyState, Limits, Outcome};
use limiter::limit::fixed_window::{Align, FixedWindow};
use limiter::limit::interval_bucket::IntervalBucket;
use limiter::limit::pacer::Pacer;
use limiter::limit::rule::{Limit, Rule};
use limiter::limit::sliding_counter::SlidingCounter;
use limiter::limit::sliding_log::SlidingLog;
use limiter::limit::time::{Monotone, Span, Time};
use limiter::limit::token_bucket::TokenBucket;
use limiter::limit::weights::Weights;
use limiter::redis::wire::{self, Answer, Batch, Head, Opened, Reply, Target};

use crate::random::{Random, seeds};
use crate::server::Server;

/// Parameters from every day and from the edges.
fn rule(random: &mut Random, kind: u64) -> Rule {
    const TEN_YEARS: u64 = 315_576_000_000_000;
    let capacity = random.pick(&[1, 2, 3, 5, 10, 100, 1_000, 1 << 20, 1 << 48]);
    let refill = random.pick(&[1, 2, 3, 7, 10, 333, 1_000, 1 << 20, 1_000_000_000, 1 << 48]);
    let period = Span(random.pick(&[
        1, 3, 1_000, 10_000, 333_333, 1_000_000, 60_000_000, TEN_YEARS,
    ]));
    let empty = random.below(4) == 0;
    let made = match kind {
        0 => TokenBucket::new(capacity, refill, period, empty).map(Rule::TokenBucket),
        1 => IntervalBucket::new(capacity, refill, period, empty).map(Rule::IntervalBucket),
        2 => Pacer::new(
            random.pick(&[0, 1, 2, 5, 100]),
            refill,
            period,
            random.pick(&[1, 333, 500, 1000]),
        )
        .map(Rule::Pacer),
        3 => SlidingLog::new(random.pick(&[1, 2, 3, 10, 1 << 48]), period).map(Rule::SlidingLog),
        4 => SlidingCounter::new(capacity, period).map(Rule::SlidingCounter),
        5 => {
            let align = random.pick(&[Align::Clock, Align::FirstUse]);
            FixedWindow::new(capacity, period, align).map(Rule::FixedWindow)
        }
        6 => Ok(Rule::Unlimited),
        _ => Ok(Rule::Never),
    };
    // Out of range together: draw again.
    made.unwrap_or_else(|_| rule(random, kind))
}

fn limits(random: &mut Random, kinds: &[u64], version: u32) -> Limits {
    let limits = kinds
        .iter()
        .map(|&kind| Limit {
            rule: rule(random, kind),
            per_call: random.below(4) == 0,
        })
        .collect();
    Limits::new(limits, version).unwrap()
}

/// What the pure algorithms make of the same calls.
struct Model {
    key: Option<(KeyState, Limits, Rank)>,
    clock: Monotone,
}

/// Version, and when it was opened.
type Rank = (u32, u64);

/// The model's present: the key as it is stored, the limits it is decided under, and the time.
struct Present {
    key: KeyState,
    limits: Limits,
    rank: Rank,
    now: Time,
}

/// A booking as both sides have it, and what it was made under.
pub struct Made {
    pub booking: Booking,
    text: wire::Taken,
    limits: Limits,
}

pub struct Run {
    pub server: Server,
    model: Model,
    pub raw: u64,
    pub limits: Limits,
    opened: u64,
    target: Target,
    /// Limits of the same name, and when they were opened; any of them may be used again.
    handles: Vec<(Limits, u64)>,
    /// The clock as it would be stored, and whether it was shows in the writes.
    ahead: Monotone,
    writes: usize,
    pub made: Vec<Made>,
    seen: Vec<String>,
    /// Answers that scripts/fast.lua gave.
    pub told_at_once: usize,
}

const NAME: &[u8] = b"n";

fn same_rules(a: &Limits, b: &Limits) -> bool {
    let mut pairs = a.limits().iter().zip(b.limits());
    pairs.all(|(a, b)| a.rule == b.rule)
}

impl Run {
    pub fn new(limits: Limits) -> Run {
        let mut run = Run {
            server: Server::new(),
            model: Model {
                key: None,
                clock: Monotone::default(),
            },
            raw: 1_700_000_000_000_000,
            target: Target::new("l", NAME, &limits),
            limits: limits.clone(),
            opened: 0,
            handles: vec![],
            ahead: Monotone::default(),
            writes: 0,
            made: vec![],
            seen: vec![],
            told_at_once: 0,
        };
        run.open(limits, 1);
        run
    }

    pub fn open(&mut self, limits: Limits, opened: u64) {
        self.handles.push((limits, opened));
        self.take(self.handles.len() - 1);
    }

    fn take(&mut self, handle: usize) {
        let (limits, opened) = self.handles[handle].clone();
        self.seen.push(format!("opened {opened}: {limits:?}"));
        self.target = Target::new("l", NAME, &limits).opened(Opened::At(Time(opened)));
        (self.limits, self.opened) = (limits, opened);
    }

    /// The answer, at the expected time.
    fn ask(&mut self, now: Time, op: impl FnOnce(&mut Batch)) -> Answer {
        self.ask_many(now, op).pop().unwrap()
    }

    fn ask_many(&mut self, now: Time, op: impl FnOnce(&mut Batch)) -> Vec<Answer> {
        self.server.data.now.set(self.raw);
        let mut batch = self.target.batch(Head {
            now: Some(Time(self.raw)),
            not_after: None,
        });
        op(&mut batch);
        let count = batch.len();
        let call = batch.on(b"k");
        let text = |arg: &[u8]| String::from_utf8_lossy(arg).into_owned();
        let asked: Vec<String> = call.args.iter().skip(3).map(text).collect();
        self.seen.push(format!("{} {asked:?}", self.raw));
        let reply = self
            .server
            .call(&call)
            .unwrap_or_else(|error| panic!("{error}\n{}", self.story()));
        self.seen.push(format!("    {reply:?}"));
        self.told_at_once += usize::from(matches!(&reply,
            redis::Value::Array(parts) if matches!(&parts[2], redis::Value::BulkString(text)
                if text.starts_with(b"1;"))));
        match Reply::read(&reply, count) {
            Ok(Reply::Done {
                server,
                now: found,
                era: None,
                answers,
            }) => {
                assert_eq!((server.0, found), (self.raw, now), "{}", self.story());
                answers
            }
            other => panic!("{other:?}\n{}", self.story()),
        }
    }

    pub fn opened(&self) -> u64 {
        self.opened
    }

    /// Only the latest of it, where it grows long.
    pub fn forget_story(&mut self) {
        let old = self.seen.len().saturating_sub(20);
        self.seen.drain(..old);
    }

    pub fn story(&self) -> String {
        format!("{:#?}\n{}", self.limits, self.seen.join("\n"))
    }

    fn present(&mut self) -> Present {
        let raw = Time(self.raw);
        self.server.data.now.set(self.raw);
        if self.server.data.is_empty() {
            self.model.key = None;
            self.model.clock = Monotone {
                seen: raw,
                skew: Span::ZERO,
            };
        }
        self.writes = self.server.data.writes.get();
        self.ahead = self.model.clock;
        let now = self.ahead.observe(raw);
        let mine = (self.limits.version(), self.opened);
        let (mut key, limits, rank) = match self.model.key.clone() {
            None => (self.limits.fresh(now), self.limits.clone(), mine),
            // Equal ones stay those of whoever brought them.
            Some((key, stored, rank))
                if mine.0 == rank.0 && self.limits.limits() == stored.limits() =>
            {
                (key, stored, rank)
            }
            Some((mut key, stored, rank)) if mine > rank => {
                self.limits.reconfigure(&stored, &mut key, now);
                (key, self.limits.clone(), mine)
            }
            Some(as_stored) => as_stored,
        };
        if limits.starts_empty() && limits.fresh_at(&key) <= now {
            // As if it had been forgotten.
            key = limits.fresh(now);
        }
        Present {
            key,
            limits,
            rank,
            now,
        }
    }

    /// What the script stored, the model stores.
    fn keep(&mut self, at: Present) {
        if self.server.data.writes.get() != self.writes {
            self.model = Model {
                key: Some((at.key, at.limits, at.rank)),
                clock: self.ahead,
            };
        }
    }

    fn expect(&self, at: &Present, outcome: wire::Outcome, found: &Answer) -> Answer {
        let (index, figures) = at.limits.figures(&at.key, at.now, None);
        Answer {
            outcome,
            index: Some(index),
            figures,
            retry_after: Span::ZERO,
            fence: 0,
            position: 0,
            at: at.now,
            booking: found.booking.clone(),
        }
    }

    fn check(&self, expected: Answer, found: Answer) {
        assert_eq!(expected, found, "model, script; after\n{}", self.story());
    }

    pub fn book(&mut self, weights: Weights, wait: Option<Span>) {
        self.book_often(weights, wait, 1);
    }

    /// So many in one call.
    pub fn book_often(&mut self, weights: Weights, wait: Option<Span>, count: usize) {
        let mut at = self.present();
        let all = self.ask_many(at.now, |batch| {
            (0..count).for_each(|_| batch.book(wait, &weights))
        });
        for found in all {
            self.booked(&mut at, &weights, wait, found);
        }
        self.keep(at);
    }

    fn booked(&mut self, at: &mut Present, weights: &Weights, wait: Option<Span>, found: Answer) {
        let till = wait.map_or(Time::MAX, |wait| at.now + wait);
        let verdict = at.limits.decide(&at.key, at.now, weights);
        let due = match verdict.outcome {
            _ if weights.is_zero() => None,
            Outcome::Admit => Some(at.now),
            Outcome::Later(due) if due <= till => Some(due),
            Outcome::Release => unreachable!("there is no semaphore"),
            outcome => {
                let (outcome, retry) = match outcome {
                    Outcome::Never => (wire::Outcome::Never, Span::MAX),
                    Outcome::Later(due) | Outcome::TooFar(due) => {
                        (wire::Outcome::Denied, due.since(at.now))
                    }
                    Outcome::Admit | Outcome::Release => unreachable!("not refused"),
                };
                let (index, figures) = at.limits.figures(&at.key, at.now, Some(verdict.index));
                let expected = Answer {
                    index: Some(index),
                    figures,
                    retry_after: retry.max(Span(1)),
                    ..self.expect(at, outcome, &found)
                };
                assert!(found.booking.is_empty(), "{}", self.story());
                return self.check(expected, found);
            }
        };
        if let Some(due) = due {
            let booking = at.limits.commit(&mut at.key, at.now, due, weights);
            self.made.push(Made {
                booking,
                text: found.booking.clone(),
                limits: at.limits.clone(),
            });
        }
        let due = due.unwrap_or(at.now);
        let expected = Answer {
            at: due,
            retry_after: due.since(at.now),
            ..self.expect(at, wire::Outcome::Done, &found)
        };
        self.check(expected, found);
    }

    /// Denied, and nothing changes.
    pub fn peek(&mut self, weights: Weights) {
        let at = self.present();
        let found = self.ask(at.now, |batch| batch.peek(&weights));
        let verdict = at.limits.decide(&at.key, at.now, &weights);
        let (outcome, retry) = match verdict.outcome {
            _ if weights.is_zero() => (wire::Outcome::Done, 0),
            Outcome::Admit => (wire::Outcome::Done, 0),
            Outcome::Never => (wire::Outcome::Never, u64::MAX),
            Outcome::Later(due) | Outcome::TooFar(due) => {
                (wire::Outcome::Denied, due.since(at.now).0.max(1))
            }
            Outcome::Release => unreachable!("there is no semaphore"),
        };
        let index = (outcome != wire::Outcome::Done).then_some(verdict.index);
        let (index, figures) = at.limits.figures(&at.key, at.now, index);
        let expected = Answer {
            index: Some(index),
            figures,
            retry_after: Span(retry),
            ..self.expect(&at, outcome, &found)
        };
        self.check(expected, found);
        self.keep(at);
    }

    /// Cancels one that was made, counted from the last; the answer is whether it could be.
    pub fn unbook(&mut self, which: usize) {
        if self.made.is_empty() {
            return;
        }
        let last = self.made.len() - 1;
        let made = self.made.remove(last.saturating_sub(which));
        let mut at = self.present();
        let found = self.ask(at.now, |batch| batch.unbook(&made.text));
        let ended = at.limits.cancel(&mut at.key, at.now, made.booking);
        let outcome = match ended {
            true => wire::Outcome::Done,
            false => wire::Outcome::Stale,
        };
        self.check(self.expect(&at, outcome, &found), found);
        self.keep(at);
    }

    /// The last one never started, which is told too late to give anything back.
    pub fn give_back_late(&mut self) {
        let made = self.made.pop().unwrap();
        let at = self.present();
        let found = self.ask(at.now, |batch| batch.give_back(&made.text));
        self.check(self.expect(&at, wire::Outcome::Done, &found), found);
        self.keep(at);
    }

    pub fn settle(&mut self, which: usize, actual: u64) {
        if self.made.is_empty() {
            return;
        }
        let mut made = self.made.swap_remove(which % self.made.len());
        let mut at = self.present();
        let found = self.ask(at.now, |batch| batch.settle(&made.text, actual));
        // What was taken under other rules, of a key that was forgotten since, corrects nothing.
        if same_rules(&made.limits, &at.limits) {
            made.booking.follow(&at.key);
            at.limits
                .settle(&mut at.key, at.now, &mut made.booking, actual);
        }
        // After a reset it says so, and the model changes nothing either.
        let outcome = match found.outcome {
            wire::Outcome::Stale => wire::Outcome::Stale,
            _ => wire::Outcome::Done,
        };
        self.check(self.expect(&at, outcome, &found), found);
        self.keep(at);
    }

    /// Resets it, or blocks it for so long.
    pub fn whole(&mut self, penalty: Option<Span>) {
        let mut at = self.present();
        let found = self.ask(at.now, |batch| match penalty {
            Some(span) => batch.penalize(span),
            None => batch.reset(),
        });
        match penalty {
            Some(span) => at.limits.penalize(&mut at.key, at.now, at.now + span),
            None => at.limits.reset(&mut at.key, at.now),
        }
        let mut expected = self.expect(&at, wire::Outcome::Done, &found);
        match penalty {
            // Until then nothing starts.
            Some(_) => expected.at = at.now.max(found.at),
            // Which reset it was.
            None => expected.fence = found.fence,
        }
        self.check(expected, found);
        self.keep(at);
    }
}

fn step(run: &mut Run, random: &mut Random, kinds: &[u64]) {
    let spans = [
        0, 0, 1, 2, 999, 1_000, 50_000, 333_333, 1_000_000, 7_000_000, 90_000_000,
    ];
    match random.below(40) {
        0 => run.raw -= random.pick(&[1, 1_000, 30_000_000]),
        1 => run.raw += random.pick(&[3_600_000_000, 400_000_000_000_000]),
        2 => {
            let version = run.limits.version() + random.below(2) as u32;
            // Two may be opened at one time.
            let opened = run.opened + random.below(2);
            run.open(limits(random, kinds, version), opened);
        }
        3..=5 => run.take(random.below(run.handles.len() as u64) as usize),
        _ => run.raw += random.pick(&spans),
    }
    run.raw = run.raw.min(3_000_000_000_000_000);
    let weight = |random: &mut Random| {
        random.pick(&[
            0,
            1,
            1,
            1,
            2,
            3,
            5,
            10,
            100,
            1_000,
            1 << 20,
            1 << 48,
            (1 << 48) + 1,
        ])
    };
    let weights = match random.below(3) {
        0 => Weights::Each(kinds.iter().map(|_| weight(random)).collect()),
        _ => Weights::One(weight(random)),
    };
    let wait = random.pick(&[0, 0, 1_000, 1_000_000, 100_000_000, u64::MAX]);
    let wait = (wait < u64::MAX).then_some(Span(wait));
    match random.below(15) {
        0 => run.unbook(0),
        14 => run.unbook(random.below(6) as usize),
        1 => {
            let (which, actual) = (random.below(8) as usize, weight(random));
            run.settle(which, actual)
        }
        2 if random.below(4) == 0 => {
            let span = Span(random.pick(&[1, 1_000, 5_000_000]));
            run.whole((random.below(3) > 0).then_some(span))
        }
        3 => run.peek(weights),
        4 | 5 => run.book_often(weights, wait, 2 + random.below(6) as usize),
        _ => run.book(weights, wait),
    }
}

/// So that sliding logs have pages after a few calls.
pub const SHORT_PAGES: (&str, &str) = ("LOG_PAGE = 64", "LOG_PAGE = 2");

/// Answers how often scripts/fast.lua answered.
fn sequences(name: u64, kinds_of: impl Fn(&mut Random) -> Vec<u64>) -> usize {
    let mut told_at_once = 0;
    for seed in 0..seeds(60) {
        let mut random = Random::new(seed * 64 + name);
        let kinds = kinds_of(&mut random);
        let mut run = Run::new(limits(&mut random, &kinds, 1));
        let short: &[_] = if seed % 3 > 0 { &[SHORT_PAGES] } else { &[] };
        run.server.altered.set(short);
        for _ in 0..120 {
            step(&mut run, &mut random, &kinds);
        }
        told_at_once += run.told_at_once;
    }
    told_at_once
}

macro_rules! each_kind {
    ($($name:ident = $kind:literal;)*) => {
        $(#[test]
        fn $name() {
            let told_at_once = sequences($kind, |_| vec![$kind]);
            assert_eq!(told_at_once > 100, $kind == 0, "{told_at_once}");
        })*
    };
}

each_kind! {
    token_bucket = 0;
    interval_bucket = 1;
    pacer = 2;
    sliding_log = 3;
    sliding_counter = 4;
    fixed_window = 5;
    unlimited = 6;
    never = 7;
}

#[test]
fn several_together() {
    sequences(8, |random| {
        (0..2 + random.below(3)).map(|_| random.below(7)).collect()
    });
}

/// What nobody uses is there again, whatever the order in which it was given back.
#[test]
fn any_number_that_is_cancelled_is_given_back_whole() {
    let second = Span::secs(1);
    let bucket = |capacity| TokenBucket::new(capacity, 1, second, false).unwrap();
    let steps = IntervalBucket::new(2, 1, second, false).unwrap();
    let pacer = Pacer::new(1, 1, second, 500).unwrap();
    let log = SlidingLog::new(2, second).unwrap();
    let window = |limit| FixedWindow::new(limit, Span::secs(1_000), Align::Clock).unwrap();
    let each: [&[Rule]; 6] = [
        &[Rule::TokenBucket(bucket(1))],
        &[Rule::IntervalBucket(steps)],
        &[Rule::Pacer(pacer)],
        &[Rule::SlidingLog(log)],
        &[Rule::TokenBucket(bucket(3)), Rule::FixedWindow(window(700))],
        &[Rule::FixedWindow(window(1)), Rule::Unlimited],
    ];
    for rules in each {
        let limit = |rule: &Rule| Limit {
            rule: rule.clone(),
            per_call: false,
        };
        let mut run = Run::new(Limits::new(rules.iter().map(limit).collect(), 1).unwrap());
        // In its own second, and as in a window of a thousand.
        run.raw = 1_700_000_000_000_000;
        run.book(Weights::One(1), None);
        let count = match rules[0] {
            Rule::FixedWindow(_) => 100,
            _ => 500,
        };
        run.book_often(Weights::One(1), None, count);
        for n in 0..count {
            // The first first, in pairs of which the second comes before the first.
            run.unbook(count - 1 - n - (n + 1) % 2);
            run.forget_story();
        }
        run.raw += 3_000_000;
        let before = run.made.len();
        let wait = if rules.len() > 1 {
            None
        } else {
            Some(Span::ZERO)
        };
        run.book(Weights::One(1), wait);
        assert_eq!(run.made.len(), before + 1, "{rules:?}");
        let next = run.made[before].booking.at();
        assert!(next.0 < run.raw + 1_000_000_000, "{rules:?}: {next:?}");
    }
}

/// As one, what was cancelled in a row is no larger than a number may be.
#[test]
fn the_largest_that_are_cancelled_in_a_row_leave_a_key_sound() {
    let (most, second) = (1 << 48, Span::secs(1));
    let rules = [
        Rule::TokenBucket(TokenBucket::new(most, 1_000_000_000, second, false).unwrap()),
        Rule::IntervalBucket(IntervalBucket::new(most, 1_000_000_000, second, false).unwrap()),
        Rule::Pacer(Pacer::new(0, 1_000_000_000, second, 500).unwrap()),
    ];
    for rule in rules {
        let limit = Limit {
            rule,
            per_call: false,
        };
        let mut run = Run::new(Limits::new(vec![limit], 1).unwrap());
        for _ in 0..40 {
            run.book(Weights::One(most), None);
        }
        for _ in 0..39 {
            let which = run.made.len() - 1;
            run.unbook(which);
        }
        run.unbook(0);
        run.peek(Weights::One(1));
    }
}

/// What two handles of one version let pass that are used in turns, within so many steps of `step`.
fn by_turns(one: &Limits, other: &Limits, steps: u64, step: u64) -> u64 {
    let mut run = Run::new(one.clone());
    run.open(other.clone(), 2);
    let mut passed = 0;
    for n in 0..steps {
        run.take(n as usize % 2);
        let before = run.made.len();
        run.book(Weights::One(1), Some(Span::ZERO));
        passed += (run.made.len() - before) as u64;
        run.raw += step;
    }
    passed
}

#[test]
fn handles_that_take_turns_admit_no_more_than_the_larger_one_would() {
    let limits = |rule| {
        let limit = Limit {
            rule,
            per_call: false,
        };
        Limits::new(vec![limit], 3).unwrap()
    };
    let second = Span::secs(1);
    let bucket = |capacity, refill| {
        limits(Rule::TokenBucket(
            TokenBucket::new(capacity, refill, second, false).unwrap(),
        ))
    };
    let steps = |capacity, refill| {
        let rule = IntervalBucket::new(capacity, refill, second, false).unwrap();
        limits(Rule::IntervalBucket(rule))
    };
    let pacer = |burst, rate| limits(Rule::Pacer(Pacer::new(burst, rate, second, 500).unwrap()));
    // 400 tries in two seconds: the larger one's burst and rate.
    for (small, large, most) in [
        (bucket(2, 1), bucket(20, 10), 20 + 2 * 10),
        (steps(2, 1), steps(20, 10), 20 + 2 * 10),
        (pacer(0, 10), pacer(10, 10), 11 + 2 * 10),
    ] {
        for (one, other) in [(&small, &large), (&large, &small)] {
            let passed = by_turns(one, other, 400, 5_000);
            assert!(passed <= most, "{passed} {one:?} {other:?}");
        }
    }
}
