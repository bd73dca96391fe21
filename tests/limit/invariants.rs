//! I1, I2, I3, I7, I9: random calls on random limiters, then the history is checked against what each
//! kind promises. Settled weights count as what was really used, cancelled bookings not at all.
use limiter::limit::decide::Booking;
use limiter::limit::fixed_window::Align;
use limiter::limit::rule::{Limit, Rule};
use limiter::limit::time::{Span, Time};
use limiter::limit::weights::Weights;
use proptest::prelude::*;

use crate::harness::*;

#[derive(Clone, Debug)]
enum Call {
    Take(Vec<u64>),
    Pace(Vec<u64>, u64),
    Advance(u64),
    Cancel(usize),
    Settle(usize, u64),
    Release(usize),
    Penalize(u64),
    Forget,
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let terms = (1u64..12, 1u64..12, 1u64..60, 0u64..=1000);
    (0..11usize, terms).prop_map(|(kind, (n, m, period, permille))| match kind {
        0 => semaphore(n),
        1 | 2 => bucket(n, m, period),
        3 => empty_bucket(n, m, period),
        4 => interval(n, m, period, false),
        5 => interval(n, m, period, true),
        6 => pacer(n - 1, m, period, permille),
        7 => log(n, period),
        8 => counter(n, period),
        9 => fixed(n, period),
        _ => fixed_from_first_use(n, period),
    })
}

fn any_limits() -> impl Strategy<Value = Vec<Limit>> {
    let limit = (any_rule(), prop::bool::weighted(0.3));
    prop::collection::vec(
        limit.prop_map(|(rule, per_call)| Limit { rule, per_call }),
        1..4,
    )
}

fn any_call() -> impl Strategy<Value = Call> {
    let weights = || prop::collection::vec(0u64..8, 4);
    prop_oneof![
        6 => weights().prop_map(Call::Take),
        4 => (weights(), 0u64..200).prop_map(|(w, most)| Call::Pace(w, most)),
        4 => (0u64..40).prop_map(Call::Advance),
        2 => any::<usize>().prop_map(Call::Cancel),
        2 => (any::<usize>(), 0u64..8).prop_map(|(i, w)| Call::Settle(i, w)),
        2 => any::<usize>().prop_map(Call::Release),
        1 => (0u64..60).prop_map(Call::Penalize),
        1 => Just(Call::Forget),
    ]
}

/// One admission: when, and what of each limit.
#[derive(Clone, Debug)]
struct Admission {
    at: Time,
    weights: Vec<u64>,
    held: bool,
}

struct World {
    key: Key,
    admissions: Vec<Admission>,
    /// Bookings not settled yet, with their admission.
    open: Vec<(usize, Booking)>,
    cancelled: Vec<usize>,
    count: usize,
}

impl World {
    fn new(limits: Vec<Limit>) -> World {
        World {
            count: limits.len(),
            key: Key::new(limits),
            admissions: Vec::new(),
            open: Vec::new(),
            cancelled: Vec::new(),
        }
    }

    fn call(&mut self, call: Call) {
        match call {
            Call::Take(weights) => self.ask(weights, 0),
            Call::Pace(weights, most) => self.ask(weights, most),
            Call::Advance(us) => {
                self.key.advance(us);
            }
            Call::Cancel(pick) if !self.open.is_empty() => {
                let (id, booking) = self.open.swap_remove(pick % self.open.len());
                let due = booking.at() <= self.key.now;
                let held = self.admissions[id].held;
                if !held && !due {
                    return; // released before it was due: over
                }
                assert_eq!(self.key.cancel(booking), !due);
                if due {
                    return;
                }
                self.cancelled.push(id);
                self.admissions[id].held = false;
            }
            Call::Settle(pick, actual) if !self.open.is_empty() => {
                let at = pick % self.open.len();
                let (id, booking) = &mut self.open[at];
                if booking.at() > self.key.now {
                    return;
                }
                let admission = &mut self.admissions[*id];
                let largest = admission.weights.iter().copied().max().unwrap();
                let actual = actual.min(largest);
                // Only downward here: upward is debt, which breaks the bounds on purpose.
                let before = admission.weights.clone();
                let limits = self.key.limits.limits();
                for (i, limit) in limits.iter().enumerate() {
                    let held = matches!(limit.rule, Rule::Semaphore(_));
                    if before[i] > 0 && before[i] < actual {
                        return;
                    }
                    if !limit.per_call && !held {
                        admission.weights[i] = before[i].min(actual);
                    }
                }
                self.key.settle(booking, actual);
            }
            Call::Release(pick) if !self.open.is_empty() => {
                let (id, booking) = &self.open[pick % self.open.len()];
                if std::mem::take(&mut self.admissions[*id].held) {
                    self.key.release(booking);
                }
            }
            Call::Penalize(span) => self.key.penalize(span),
            Call::Forget => {
                self.key.forget_if_fresh();
            }
            Call::Cancel(_) | Call::Settle(..) | Call::Release(_) => {}
        }
    }

    fn ask(&mut self, mut each: Vec<u64>, most: u64) {
        each.truncate(self.count);
        let weights = Weights::Each(each.into());
        if weights.is_zero() {
            return;
        }
        let before = self.key.state.clone();
        match self.key.pace_within(&weights, Span(most)) {
            Answer::Ok(booking) => {
                let taken = self.key.limits.limits().iter().enumerate();
                self.admissions.push(Admission {
                    at: booking.at(),
                    weights: taken.map(|(i, limit)| weights.of(limit, i)).collect(),
                    held: true,
                });
                self.open.push((self.admissions.len() - 1, booking));
            }
            _ => assert_eq!(self.key.state, before, "I5: a denial changes nothing"),
        }
        for (i, limit) in self.key.limits.limits().iter().enumerate() {
            if let Rule::Semaphore(rule) = &limit.rule {
                let held = self.admissions.iter().filter(|a| a.held);
                let used: u64 = held.map(|a| a.weights[i]).sum();
                assert!(used <= rule.capacity(), "I3");
                // Under a penalty nothing remains; what is held shows when it is over.
                let mut free = self.key.clone();
                free.now = free.now.max(free.state.blocked_until());
                assert_eq!(free.figures_of(i).remaining, rule.capacity() - used, "I4");
            }
        }
    }

    fn history(&self, limit: usize) -> Vec<(u64, u64)> {
        let live = self.admissions.iter().enumerate();
        live.filter(|(id, _)| !self.cancelled.contains(id))
            .map(|(_, a)| (a.at.0, a.weights[limit]))
            .filter(|(_, weight)| *weight > 0)
            .collect()
    }

    fn check(&self) {
        let live: Vec<Time> = (0..self.admissions.len())
            .filter(|id| !self.cancelled.contains(id))
            .map(|id| self.admissions[id].at)
            .collect();
        assert!(live.is_sorted(), "I9: first come, first served");
        for (i, limit) in self.key.limits.limits().iter().enumerate() {
            check_history(&limit.rule, &self.history(i));
        }
    }
}

/// Every interval from one admission to another.
fn intervals(history: &[(u64, u64)]) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
    (0..history.len()).flat_map(move |first| {
        let mut sum = 0;
        history[first..].iter().map(move |(at, weight)| {
            sum += weight;
            (at - history[first].0, sum, *weight)
        })
    })
}

/// What each kind promises of `history`: times and weights in order.
pub fn check_history(rule: &Rule, history: &[(u64, u64)]) {
    match rule {
        Rule::TokenBucket(rule) => {
            let (units, period) = (rule.rate().units() as u128, rule.rate().period() as u128);
            for (length, sum, _) in intervals(history) {
                let most = rule.capacity() as u128 * period + length as u128 * units;
                assert!(
                    sum as u128 * period <= most,
                    "I1: {sum} in {length}: {history:?}"
                );
            }
        }
        Rule::IntervalBucket(rule) => {
            for (length, sum, _) in intervals(history) {
                let refills = length / rule.period().0 + 1;
                assert!(
                    sum <= rule.capacity() + refills * rule.refill(),
                    "{history:?}"
                );
            }
        }
        Rule::Pacer(rule) => {
            let (units, period) = (rule.rate().units(), rule.rate().period());
            for (length, sum, last) in intervals(history) {
                let most = (rule.burst() + last) * period + (length + 1) * units;
                assert!(sum * period <= most, "{sum} in {length}: {history:?}");
            }
        }
        Rule::SlidingLog(rule) => {
            for (length, sum, _) in intervals(history) {
                assert!(
                    length >= rule.window().0 || sum <= rule.limit(),
                    "I2: {history:?}"
                );
            }
        }
        Rule::FixedWindow(rule) if rule.align() == Align::Clock => {
            let window = |at: u64| at / rule.window().0;
            for (first, _) in history {
                let same = history
                    .iter()
                    .filter(|(at, _)| window(*at) == window(*first));
                let sum: u64 = same.map(|(_, weight)| weight).sum();
                assert!(sum <= rule.limit(), "I2: {history:?}");
            }
        }
        // Where the windows lay depends on calls that were cancelled later; but never are there more
        // than two in one length of a window.
        Rule::FixedWindow(rule) => {
            for (length, sum, _) in intervals(history) {
                assert!(
                    length >= rule.window().0 || sum <= 2 * rule.limit(),
                    "I2: {history:?}"
                );
            }
        }
        Rule::SlidingCounter(rule) => {
            let window = rule.window().0;
            for (i, (at, _)) in history.iter().enumerate() {
                let within = |w: u64| -> u64 {
                    let taken = history[..=i].iter().filter(|(t, _)| t / window == w);
                    taken.map(|(_, weight)| weight).sum()
                };
                let left = window - at % window;
                let sum = within(at / window) * window + within(at / window - 1) * left;
                assert!(sum <= rule.limit() * window, "{history:?}");
            }
        }
        Rule::Semaphore(_) | Rule::Unlimited => {}
        Rule::Never => assert!(history.is_empty()),
    }
}

proptest! {
    #![proptest_config(cases(6_000))]

    #[test]
    fn whatever_is_called_no_limit_admits_too_much(
        limits in any_limits(),
        calls in prop::collection::vec(any_call(), 1..80),
    ) {
        let mut world = World::new(limits);
        for call in calls {
            world.call(call);
        }
        world.check();
    }

    /// A weight that fits is never refused for ever, one that cannot fit at once and always.
    #[test]
    fn never_is_said_exactly_of_what_can_never_be(
        rule in any_rule(),
        weight in 1u64..20,
        calls in prop::collection::vec((0u64..8, 0u64..40), 0..20),
    ) {
        let limit = match &rule {
            Rule::Pacer(_) => u64::MAX,
            _ => Key::of(rule.clone()).figures().limit,
        };
        let mut key = Key::of(rule);
        for (other, gap) in calls {
            if other > 0 {
                key.pace(other);
            }
            key.advance(gap);
        }
        match key.take(weight) {
            Answer::Never { .. } => prop_assert!(weight > limit),
            Answer::Ok(_) | Answer::Denied { .. } | Answer::Release { .. } => {
                prop_assert!(weight <= limit)
            }
        }
    }

    /// What is said to remain is what passes, to the unit.
    #[test]
    fn exactly_what_remains_can_be_taken(
        rule in any_rule(),
        calls in prop::collection::vec((0u64..8, 0u64..40), 0..20),
    ) {
        let mut key = Key::of(rule);
        for (weight, gap) in calls {
            if weight > 0 {
                key.take(weight);
            }
            key.advance(gap);
            let remaining = key.remaining();
            prop_assert_eq!(key.clone().drain(), remaining);
        }
    }
}
