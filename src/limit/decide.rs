//! Several limits together: all of them are taken from, or none.
//!
//! Every limit is evaluated at the key's *base*: now, or where the bookings and penalties of the key
//! end if that is later. So a later call never passes an earlier one, whatever the kinds, and no state
//! ever sees time run backwards.
use crate::limit::ahead::Parked;
pub use crate::limit::booking::Booking;
use crate::limit::booking::Charges;
use crate::limit::bounds::MAX_AHEAD;
pub use crate::limit::key::KeyState;
use crate::limit::key::States;
use crate::limit::rule::{Charge, Figures, Kind, Limit, Rule, State, Wait};
use crate::limit::time::{Span, Time};
use crate::limit::weights::Weights;

/// Most limits of one limiter.
pub const MAX_LIMITS: usize = 16;

/// The limits of one limiter, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    limits: Box<[Limit]>,
    version: u32,
    holds: bool,
    starts_empty: bool,
}

/// Whether a request passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Now.
    Admit,
    /// From then on, which is after now; not before, if nothing else changes. It can be booked.
    Later(Time),
    /// From then on, but that is too far ahead to be booked, or too much is booked before.
    TooFar(Time),
    /// Only after something that is held has come back.
    Release,
    /// Never.
    Never,
}

/// A decision: nothing has been charged yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub outcome: Outcome,
    /// The limit that stands in the way most; of no meaning where none does.
    pub index: usize,
}

/// Units in use of each semaphore: enough to tell what releases to come will bring, where a copy of the
/// whole key may be megabytes of a log.
pub struct InUse([u64; MAX_LIMITS]);

impl InUse {
    pub fn release(&mut self, booking: &Booking) {
        for (used, weight) in self.0.iter_mut().zip(booking.held()) {
            *used = used.saturating_sub(weight);
        }
    }
}

impl Limits {
    pub fn new(limits: Vec<Limit>, version: u32) -> Result<Limits, String> {
        if !(1..=MAX_LIMITS).contains(&limits.len()) {
            return Err(format!(
                "a limiter has 1 to {MAX_LIMITS} limits, not {}",
                limits.len()
            ));
        }
        Ok(Limits {
            holds: limits
                .iter()
                .any(|limit| limit.rule.kind() == Kind::Semaphore),
            starts_empty: limits.iter().any(|limit| limit.rule.starts_empty()),
            limits: limits.into(),
            version,
        })
    }

    pub fn limits(&self) -> &[Limit] {
        &self.limits
    }

    pub fn version(&self) -> u32 {
        self.version
    }

    /// Keys are shared among limiters of the same name and the same kinds.
    pub fn shape(&self) -> Vec<Kind> {
        self.limits.iter().map(|limit| limit.rule.kind()).collect()
    }

    /// There is a semaphore among them.
    pub fn holds(&self) -> bool {
        self.holds
    }

    /// The shortest lease of the semaphores that have one of their own.
    pub fn lease(&self) -> Option<Span> {
        let lease = |limit: &Limit| match &limit.rule {
            Rule::Semaphore(rule) if rule.lease > Span::ZERO => Some(rule.lease),
            _ => None,
        };
        self.limits.iter().filter_map(lease).min()
    }

    /// Permits are renewed while they are held.
    pub fn renews(&self) -> bool {
        let renews = |limit: &Limit| !matches!(&limit.rule, Rule::Semaphore(rule) if !rule.renew);
        self.limits.iter().all(renews)
    }

    /// A key never seen has to be kept from its first call on, even if that is denied: its buckets fill
    /// from then.
    pub fn starts_empty(&self) -> bool {
        self.starts_empty
    }

    /// The state of a key never seen before.
    pub fn fresh(&self, now: Time) -> KeyState {
        let fresh = self.limits.iter().map(|limit| limit.rule.fresh(now));
        KeyState {
            states: States::new(fresh),
            ahead: None,
        }
    }

    /// From then on the key may be forgotten: it is as good as new. `Time::MAX` while something is held.
    pub fn fresh_at(&self, key: &KeyState) -> Time {
        let fresh = |(limit, state): (&Limit, &State)| limit.rule.fresh_at(state);
        let states = self.limits.iter().zip(key.states.all()).map(fresh).max();
        let ahead = key.ahead.as_ref().map_or(Time(0), |a| a.needed_until());
        states.expect("at least one limit").max(ahead)
    }

    /// Would it pass? Changes nothing.
    pub fn decide(&self, key: &KeyState, now: Time, weights: &Weights) -> Verdict {
        let base = key.base(now);
        let mut most = Span::ZERO;
        let mut first = None;
        let mut index = 0;
        let mut release = None;
        for (i, (limit, state)) in self.limits.iter().zip(key.states.all()).enumerate() {
            let weight = weights.of(limit, i);
            match limit.rule.wait(state, base, weight) {
                Wait::Now if weight > 0 && limit.rule.kind() != Kind::Semaphore => {
                    first = first.or(Some(i));
                }
                Wait::Now => {}
                Wait::After(wait) => {
                    debug_assert!(wait > Span::ZERO);
                    if wait > most {
                        (most, index) = (wait, i);
                    }
                }
                Wait::Release => release = release.or(Some(i)),
                Wait::Never => {
                    return Verdict {
                        outcome: Outcome::Never,
                        index: i,
                    };
                }
            }
        }
        if let Some(index) = release {
            return Verdict {
                outcome: Outcome::Release,
                index,
            };
        }
        let at = base + most;
        if at == now || weights.is_zero() {
            return Verdict {
                outcome: Outcome::Admit,
                index: 0,
            };
        }
        if most == Span::ZERO {
            // Only what was booked before, or a penalty, stands in the way.
            index = first.unwrap_or(0);
        }
        self.assert_passes(key, at, weights);
        Verdict {
            outcome: match at.since(now) <= MAX_AHEAD && self.have_room(key, now, weights) {
                true => Outcome::Later(at),
                false => Outcome::TooFar(at),
            },
            index,
        }
    }

    fn have_room(&self, key: &KeyState, now: Time, weights: &Weights) -> bool {
        let mut all = self.limits.iter().zip(key.states.all()).enumerate();
        all.all(|(i, (limit, state))| limit.rule.has_room(state, now, weights.of(limit, i)))
    }

    /// One pass over the limits suffices because each rule is monotone.
    fn assert_passes(&self, key: &KeyState, at: Time, weights: &Weights) {
        if cfg!(debug_assertions) {
            for (i, (limit, state)) in self.limits.iter().zip(key.states.all()).enumerate() {
                assert_eq!(
                    limit.rule.wait(state, at, weights.of(limit, i)),
                    Wait::Now,
                    "limit {i} of {self:?} in {key:?} at {at:?}"
                );
            }
        }
    }

    /// Takes what [`decide`](Limits::decide) found to pass: `at` is now for [`Outcome::Admit`], and the
    /// time of [`Outcome::Later`]. Not for weights that are all zero.
    pub fn commit(&self, key: &mut KeyState, now: Time, at: Time, weights: &Weights) -> Booking {
        debug_assert!(!weights.is_zero(), "a peek takes nothing");
        self.take(key, now, at, weights, now)
    }

    /// `since`: when it was first asked for.
    pub(super) fn take(
        &self,
        key: &mut KeyState,
        now: Time,
        at: Time,
        weights: &Weights,
        since: Time,
    ) -> Booking {
        debug_assert!(at >= key.base(now), "nothing is passed by");
        let states = key.states.all_mut();
        let charge = |i: usize, state: &mut State| {
            let limit = &self.limits[i];
            limit.rule.charge(state, since, at, weights.of(limit, i))
        };
        let charges = match states {
            [state] => Charges::One(charge(0, state)),
            states => Charges::Many(
                states
                    .iter_mut()
                    .enumerate()
                    .map(|(i, state)| charge(i, state))
                    .collect(),
            ),
        };
        let mut booking = Booking {
            at,
            seq: 0,
            epoch: 0,
            previous: Time(0),
            charges,
        };
        if let Some(ahead) = &mut key.ahead {
            ahead.taken(now, at);
        }
        if at > now {
            let ahead = key.ahead_mut();
            booking.previous = ahead.book(at);
            booking.seq = ahead.seq;
            booking.epoch = ahead.epoch;
        } else if let Some(ahead) = &mut key.ahead {
            ahead.pass();
            booking.epoch = ahead.epoch;
            if ahead.is_over(now) {
                key.ahead = None;
            }
        }
        booking
    }

    /// Ends a booking that is not due yet, and gives back all that it took. A due one is admitted: it
    /// stays, and the answer is false. Of rates that others have booked after, the slot passes unused.
    pub fn cancel(&self, key: &mut KeyState, now: Time, booking: Booking) -> bool {
        if booking.seq == 0 || booking.at <= now {
            return false;
        }
        self.release(key, &booking);
        self.cancel_rates(key, now, booking);
        true
    }

    /// False: the slot passes unused.
    pub(super) fn cancel_rates(&self, key: &mut KeyState, now: Time, booking: Booking) -> bool {
        let Some(ahead) = &mut key.ahead else {
            return false;
        };
        if booking.epoch != ahead.epoch {
            return false;
        }
        if booking.seq != ahead.seq {
            ahead.park(now, booking, |earlier, later| self.join(earlier, later));
            return false;
        }
        let mut newest = Parked::from(booking);
        loop {
            let charges = newest.booking.charges.all();
            for ((limit, state), charge) in
                self.limits.iter().zip(key.states.all_mut()).zip(charges)
            {
                if !matches!(charge, Charge::Semaphore(_)) {
                    limit.rule.undo(state, charge);
                }
            }
            let Some(next) = ahead.unbook(&newest) else {
                break;
            };
            newest = next;
        }
        if ahead.is_over(now) {
            key.ahead = None;
        }
        true
    }

    /// What undoes two charges in a row of each limit, if that can be said as one.
    fn join(&self, earlier: &Charges, later: &Charges) -> Option<Charges> {
        let pairs = earlier.all().iter().zip(later.all());
        let join = |(limit, (a, b)): (&Limit, (&Charge, &Charge))| limit.rule.join(a, b);
        let mut joined = self.limits.iter().zip(pairs).map(join);
        match earlier {
            Charges::One(_) => joined.next()?.map(Charges::One),
            Charges::Many(_) => joined.collect::<Option<_>>().map(Charges::Many),
        }
    }

    /// Gives back what a booking holds of semaphores. Once for each booking.
    pub fn release(&self, key: &mut KeyState, booking: &Booking) {
        for (state, charge) in key.states.all_mut().iter_mut().zip(booking.charges.all()) {
            if let (State::Semaphore(used), Charge::Semaphore(weight)) = (state, charge) {
                debug_assert!(*used >= *weight, "released twice");
                *used = used.saturating_sub(*weight);
            }
        }
    }

    /// What is held of each semaphore.
    pub fn in_use(&self, key: &KeyState) -> InUse {
        let mut in_use = InUse([0; MAX_LIMITS]);
        for (units, state) in in_use.0.iter_mut().zip(key.states.all()) {
            if let State::Semaphore(used) = state {
                *units = *used;
            }
        }
        in_use
    }

    /// Whether the semaphores have room for it with so much in use.
    pub fn fits(&self, in_use: &InUse, weights: &Weights) -> bool {
        let mut limits = self.limits.iter().zip(&in_use.0).enumerate();
        limits.all(|(i, (limit, used))| match &limit.rule {
            Rule::Semaphore(rule) => rule.wait(*used, weights.of(limit, i)) == Wait::Now,
            _ => true,
        })
    }

    /// These weights without those of semaphores.
    pub fn of_rates(&self, weights: &Weights) -> Weights {
        let weigh = |(i, limit): (usize, &Limit)| match limit.rule.kind() {
            Kind::Semaphore => 0,
            _ => weights.of(limit, i),
        };
        match &*self.limits {
            [limit] => Weights::One(weigh((0, limit))),
            limits => Weights::Each(limits.iter().enumerate().map(weigh).collect()),
        }
    }

    /// Corrects a booking to the weight that was really used, in those limits that count weight. Never
    /// gives back more than it took, nor what time or others have had since.
    pub fn settle(&self, key: &mut KeyState, now: Time, booking: &mut Booking, actual: u64) {
        let base = key.base(now);
        let current = key.epoch() == booking.epoch;
        let charges = booking.charges.all_mut();
        for ((limit, state), charge) in self.limits.iter().zip(key.states.all_mut()).zip(charges) {
            let weight = charge.weight();
            if limit.per_call || weight == 0 {
                continue;
            }
            if actual < weight && current {
                limit.rule.lower(state, base, charge, actual);
            } else if actual > weight && current {
                limit.rule.raise(state, now, base, charge, actual);
            }
        }
        if let Some(ahead) = &mut key.ahead {
            ahead.taken(now, now);
        }
    }

    /// Which limit it is and its numbers: the one at `index`, or the tightest, at the time the next call can
    /// be admitted at the earliest. While that is ahead, nothing remains of what is counted by time; under a
    /// penalty, nothing at all.
    pub fn figures(&self, key: &KeyState, now: Time, index: Option<usize>) -> (usize, Figures) {
        let base = key.base(now);
        let blocked = key.blocked_until() > now;
        let one = |(i, (limit, state)): (usize, (&Limit, &State))| {
            let mut figures = limit.rule.figures(state, now, base);
            if base > now && (blocked || limit.rule.kind() != Kind::Semaphore) {
                figures.remaining = 0;
                figures.reset_after = figures.reset_after + base.since(now);
            }
            (i, figures)
        };
        let mut all = self.limits.iter().zip(key.states.all()).enumerate();
        match index {
            Some(index) => one(all.nth(index).expect("an index of these limits")),
            None => all
                .map(one)
                .min_by_key(|(_, figures)| figures.remaining)
                .expect("at least one limit"),
        }
    }
}
