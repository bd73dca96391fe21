//! A batch of operations on one key, as a script call.
use std::fmt::{Display, Write};
use std::sync::Arc;

use super::opened::{Opened, Told};
use super::{Era, Id};
use crate::limit::decide::Limits;
use crate::limit::rule::Rule;
use crate::limit::time::{Span, Time};
use crate::limit::weights::Weights;
use crate::redis::keys::Names;
use crate::redis::link::{Args, Call, Class, Script};
use crate::redis::script;

/// A script's numbers are exact below.
const EXACT: u64 = 1 << 53;

/// A limiter as its script knows it; made once.
#[derive(Clone, Debug)]
pub struct Target {
    names: Names,
    script: Arc<Script>,
    /// Version and parameters of the limits.
    limits: String,
    opened: Opened,
    /// If that is one token bucket which starts full.
    bucket: Option<Bucket>,
    holds: bool,
}

/// A token bucket as scripts/fast.lua is told of it: its full time and that of a unit, in parts.
#[derive(Clone, Debug)]
struct Bucket {
    full: u64,
    unit: u64,
    /// Parts to the microsecond.
    parts: u64,
    per_call: bool,
}

/// When a call is meant.
#[derive(Clone, Copy, Debug, Default)]
pub struct Head {
    /// The present; `None`: by the server's clock. Set in tests only.
    pub now: Option<Time>,
    /// In the server's time: later it does nothing. Where the present is given, nothing is late.
    pub not_after: Option<Time>,
}

/// What a call on a semaphore carries besides.
#[derive(Clone, Copy, Debug)]
pub struct Holding<'a> {
    /// Of this key, if the caller believes that it holds permits on it.
    pub known: Option<Era>,
    /// A random one, should the state have to begin anew.
    pub fresh: Era,
    /// Where notes go; empty: nowhere.
    pub channel: &'a str,
    /// The longest lease the caller uses on the key.
    pub lease: Span,
    /// How long a grant out of the queue lasts unless it is asked for again.
    pub claim: Span,
    /// What a lease is given on top, for a server's clock that steps forward.
    pub allowance: Span,
    /// How long a wait lasts unless it is asked for again.
    pub life: Span,
    /// Publishing a note tells whether anybody hears it. In a cluster it does not.
    pub tells_unheard: bool,
}

/// Operations on one key, in their order.
#[derive(Clone, Debug)]
pub struct Batch<'a> {
    target: &'a Target,
    told: Told,
    args: Args,
    ops: usize,
    class: Class,
    run: Option<Run>,
    text: String,
}

/// Equal questions in a row that do not wait: they are told as one.
#[derive(Clone, Debug)]
struct Run {
    weights: Weights,
    count: u64,
}

/// How many arguments come before the operations, without and with a semaphore.
pub const HEAD_ARGS: [usize; 2] = [3, 11];

impl Target {
    pub fn new(prefix: &str, name: &[u8], limits: &Limits) -> Target {
        Target {
            names: Names::new(prefix, name, limits),
            script: Script::new(script::source(limits)),
            limits: format!("{};{}", limits.version(), script::parameters(limits)),
            opened: Opened::default(),
            bucket: Bucket::of(limits),
            holds: limits.holds(),
        }
    }

    /// The same, as of then.
    pub fn opened(self, opened: Opened) -> Target {
        Target { opened, ..self }
    }

    /// A call with a batch that told so was run when the server's clock stood at `server`.
    pub fn learn(&self, told: Told, server: Time) {
        self.opened.learn(told, server);
    }

    /// Equal tries in a row cost the server hardly more than one.
    pub fn runs(&self) -> bool {
        self.bucket.is_some()
    }

    pub fn names(&self) -> &Names {
        &self.names
    }

    pub fn holds(&self) -> bool {
        self.holds
    }

    /// A batch for limits without a semaphore.
    pub fn batch(&self, head: Head) -> Batch<'_> {
        assert!(!self.holds, "a semaphore needs more");
        self.begin(head)
    }

    /// A batch for limits with a semaphore.
    pub fn holding(&self, head: Head, holding: Holding) -> Batch<'_> {
        assert!(self.holds, "without a semaphore nothing is held");
        let mut batch = self.begin(head);
        let known = holding.known.map(|era| era.to_string()).unwrap_or_default();
        batch
            .args
            .push_number(holding.lease.0)
            .push_number(holding.claim.0)
            .push_number(holding.allowance.0)
            .push_number(holding.life.0)
            .push(holding.channel)
            .push(known)
            .push(holding.fresh.to_string())
            .push_number(holding.tells_unheard.into());
        debug_assert_eq!(batch.args.len(), HEAD_ARGS[1]);
        batch
    }

    fn begin(&self, head: Head) -> Batch<'_> {
        let mut args = Args::default();
        match head.now {
            Some(now) => args.push(format!("-{}", now.0)),
            None => args.push_number(head.not_after.map_or(0, |at| at.0)),
        };
        args.push(&self.limits);
        let told = self.opened.told();
        match told {
            Told::At(time) => args.push_number(time.0),
            Told::Ago(span) => args.push(format!("-{}", span.0)),
        };
        Batch {
            target: self,
            told,
            args,
            ops: 0,
            class: Class::Idempotent,
            run: None,
            text: String::new(),
        }
    }
}

impl Bucket {
    fn of(limits: &Limits) -> Option<Bucket> {
        let [limit] = limits.limits() else {
            return None;
        };
        let Rule::TokenBucket(rule) = &limit.rule else {
            return None;
        };
        let unit = rule.rate().period();
        let full = rule.capacity().checked_mul(unit)?;
        (full < EXACT && !rule.starts_empty()).then_some(Bucket {
            full,
            unit,
            parts: rule.rate().units(),
            per_call: limit.per_call,
        })
    }

    /// What it takes, if that is something and fits.
    fn cost(&self, weights: &Weights) -> Option<u64> {
        let weight = match weights {
            Weights::One(weight) => *weight,
            Weights::Each(each) => *each.first()?,
        };
        let weight = if self.per_call { weight.min(1) } else { weight };
        let cost = self.unit.checked_mul(weight)?;
        (1..=self.full).contains(&cost).then_some(cost)
    }
}

impl Batch<'_> {
    fn op(&mut self, letter: &str) -> &mut Args {
        self.end_run();
        self.ops += 1;
        self.args.push(letter)
    }

    /// Tells what was put off.
    fn end_run(&mut self) {
        let Some(run) = self.run.take() else { return };
        let fast = self.fast(&run.weights).is_some();
        self.args.push(if fast { "B" } else { "T" });
        self.push_run(&run);
    }

    /// What scripts/fast.lua needs to know for these weights, if it can decide them.
    fn fast(&self, weights: &Weights) -> Option<[u64; 3]> {
        let bucket = self.target.bucket.as_ref()?;
        Some([bucket.cost(weights)?, bucket.full, bucket.parts])
    }

    fn push_run(&mut self, run: &Run) {
        self.push_weights(&run.weights);
        self.args.push_number(run.count);
        for number in self.fast(&run.weights).into_iter().flatten() {
            self.args.push_number(number);
        }
    }

    fn push_text(&mut self, text: impl Display) {
        self.text.clear();
        write!(self.text, "{text}").expect("a String takes every write");
        self.args.push(&self.text);
    }

    fn push_weights(&mut self, weights: &Weights) {
        self.text.clear();
        match weights {
            Weights::One(weight) => {
                self.args.push_number(*weight);
                return;
            }
            Weights::Each(each) => {
                for (i, weight) in each.iter().enumerate() {
                    let comma = if i > 0 { "," } else { "" };
                    write!(self.text, "{comma}{weight}").expect("a String takes every write");
                }
            }
        }
        self.args.push(&self.text);
    }

    fn push_wait(&mut self, wait: Option<Span>) {
        match wait {
            Some(wait) => self.args.push_number(wait.0),
            None => self.args.push("-1"),
        };
    }

    fn push_lease(&mut self, (lease, renewed): (Span, bool)) {
        match renewed {
            true => self.args.push_number(lease.0),
            false => self.args.push(format!("-{}", lease.0)),
        };
    }

    fn push_dead(&mut self, dead: Option<Span>) {
        self.args.push_number(dead.map_or(0, |span| span.0));
    }

    /// Acquires a semaphore, or asks again for what was asked for under the same id: that keeps a wait
    /// alive, and turns a claim into a permit. `None`: waits without limit. `lease`: and whether its process
    /// renews it as long as it is held.
    pub fn acquire(&mut self, id: Id, wait: Option<Span>, lease: (Span, bool), weights: &Weights) {
        assert!(self.target.holds, "rates are booked");
        self.op("A");
        self.push_text(id);
        self.push_wait(wait);
        self.push_lease(lease);
        self.push_weights(weights);
    }

    /// Books a time that is at most so far ahead.
    pub fn book(&mut self, wait: Option<Span>, weights: &Weights) {
        assert!(!self.target.holds, "a semaphore cannot be booked");
        self.class = Class::AtMostOnce;
        if wait != Some(Span::ZERO) {
            self.op("P");
            self.push_wait(wait);
            self.push_weights(weights);
            return;
        }
        match &mut self.run {
            Some(run) if run.weights == *weights => run.count += 1,
            _ => {
                self.end_run();
                self.run = Some(Run {
                    weights: weights.clone(),
                    count: 1,
                });
            }
        }
        self.ops += 1;
    }

    /// The same for who waits: while bookings are moved, the answer is when to ask again.
    pub fn await_time(&mut self, wait: Option<Span>, weights: &Weights) {
        if wait == Some(Span::ZERO) {
            return self.book(wait, weights);
        }
        assert!(!self.target.holds, "a semaphore cannot be booked");
        self.class = Class::AtMostOnce;
        self.op("M");
        self.push_wait(wait);
        self.push_weights(weights);
    }

    /// Takes so often, as many as pass, if nothing is booked or has come in the way: of limits that
    /// [run](Target::runs), and alone in its call. The answer is to the first of them; STALE: not so.
    pub fn take_ahead(&mut self, weights: &Weights, count: u64) {
        self.class = Class::AtMostOnce;
        self.op("Q");
        self.push_run(&Run {
            weights: weights.clone(),
            count,
        });
    }

    /// Would it pass?
    pub fn peek(&mut self, weights: &Weights) {
        self.op("K");
        self.push_weights(weights);
    }

    /// Releases a permit. `dead`: an earlier request of this id may still be under way; for so long it
    /// must not be granted.
    pub fn release(&mut self, id: Id, dead: Option<Span>) {
        assert!(self.target.holds, "rates are not released");
        self.op("R");
        self.push_text(id);
        self.push_dead(dead);
    }

    /// Ends a wait for a semaphore; a grant that came before is given back.
    pub fn cancel(&mut self, id: Id, dead: Option<Span>) {
        assert!(self.target.holds, "rates are unbooked");
        self.op("C");
        self.push_text(id);
        self.push_dead(dead);
    }

    /// Gives back a booking that is not due yet.
    pub fn unbook(&mut self, booking: impl Display) {
        assert!(!self.target.holds, "a semaphore's wait is cancelled");
        self.class = Class::AtMostOnce;
        self.op("U");
        self.push_text(booking);
    }

    /// Gives back a booking, due or not, which has not started and will not.
    pub fn give_back(&mut self, booking: impl Display) {
        assert!(!self.target.holds, "a semaphore's wait is cancelled");
        self.class = Class::AtMostOnce;
        self.op("D");
        self.push_text(booking);
    }

    /// Takes a booking back, if none was made after it, to be [booked again](Batch::rebook). The last one
    /// first, and before all other operations.
    pub fn lift(&mut self, booking: impl Display) {
        assert!(!self.target.holds, "a permit's booking is lifted");
        self.class = Class::AtMostOnce;
        self.op("V");
        self.push_text(booking);
    }

    /// The same of what the permit of this id has booked of rates.
    pub fn lift_held(&mut self, id: Id) {
        assert!(self.target.holds, "rates have no ids");
        self.op("V");
        self.push_text(id);
    }

    /// Books again what the nth lift of this call, from 1, took back: to be no later than it was, unless
    /// there is a penalty since. STALE: it was not taken back.
    pub fn rebook(&mut self, nth: u64, wait: Option<Span>, weights: &Weights) {
        self.op("W").push_number(nth);
        self.push_wait(wait);
        self.push_weights(weights);
    }

    /// Until when, by the key's time, nothing is admitted: `at` in the answer; 0 without a penalty.
    pub fn look(&mut self) {
        self.op("L");
    }

    /// Prolongs a permit to `lease` from now. `era` is the one it was granted or last renewed in.
    pub fn renew(&mut self, id: Id, lease: (Span, bool), era: Era, weights: &Weights) {
        assert!(self.target.holds, "rates have no lease");
        self.op("N");
        self.push_text(id);
        self.push_lease(lease);
        self.args.push(era.to_string());
        self.push_weights(weights);
    }

    /// Corrects what a booking took to what was used. Once for each booking.
    pub fn settle(&mut self, booking: impl Display, actual: u64) {
        self.class = Class::AtMostOnce;
        self.op("S");
        self.push_text(booking);
        self.args.push_number(actual);
    }

    /// Makes the key as new, also one that holds garbage.
    pub fn reset(&mut self) {
        self.op("X");
    }

    /// Admits nothing for so long.
    pub fn penalize(&mut self, span: Span) {
        self.op("Z").push_number(span.0);
    }

    /// What it tells of when the limiter was opened, for [`Target::learn`].
    pub fn told(&self) -> Told {
        self.told
    }

    pub fn len(&self) -> usize {
        self.ops
    }

    pub fn is_empty(&self) -> bool {
        self.ops == 0
    }

    /// Whether running it twice is running it once. With a semaphore that is so as long as nothing is
    /// settled: ids see to it.
    pub fn class(&self) -> Class {
        self.class
    }

    /// The call, on this key.
    pub fn on(mut self, key: &[u8]) -> Call {
        self.end_run();
        Call {
            script: Arc::clone(&self.target.script),
            keys: self.target.names.keys(key).collect(),
            args: self.args,
        }
    }
}
