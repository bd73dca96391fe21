//! Buckets as what is missing in them: refilled all the time, and in steps.
use crate::exact::*;

/// What is given back to earlier charges; how often the sum began anew.
type Given = (u32, Q);

#[derive(Clone, Debug)]
pub struct Bucket {
    capacity: u64,
    /// Units a microsecond.
    rate: Q,
    /// Missing at `at`; there may be more missing than the capacity.
    missing: Q,
    at: u64,
    /// In microseconds of the rate.
    given: Given,
}

#[derive(Clone, Debug)]
pub struct BucketCharge {
    /// When all that was taken up to this charge has come back.
    end: Q,
    given: Given,
}

impl Bucket {
    pub fn new(capacity: u64, refill: u64, period: u64, empty: bool, now: u64) -> Bucket {
        Bucket {
            capacity,
            rate: ratio(refill, period),
            missing: q(if empty { capacity } else { 0 }),
            at: now,
            given: (0, q(0)),
        }
    }

    fn missing_at(&self, at: u64) -> Q {
        let come = &self.rate * (q(at) - q(self.at));
        less(&self.missing, &come)
    }

    fn full_at(&self) -> Q {
        q(self.at) + &self.missing / &self.rate
    }

    /// An idle one that starts empty is forgotten then, at the earliest.
    pub fn forgotten_at(&self) -> u64 {
        let fill = ceil(&(q(self.capacity) / &self.rate));
        ceil(&self.full_at()) + (2 * fill).clamp(60_000_000, MOST_AHEAD)
    }

    pub fn wait(&self, at: u64, weight: u64) -> Wait {
        if weight > self.capacity {
            return Wait::Never;
        }
        let beyond = self.missing_at(at) + q(weight) - q(self.capacity);
        Wait::until(ceil(&(beyond / &self.rate)), 0)
    }

    pub fn take(&mut self, at: u64, weight: u64) -> BucketCharge {
        self.missing = self.missing_at(at) + q(weight);
        self.at = at;
        BucketCharge {
            end: self.full_at(),
            given: self.given.clone(),
        }
    }

    pub fn figures(&self, at: u64) -> Figures {
        let missing = self.missing_at(at);
        Figures {
            limit: self.capacity,
            remaining: floor(&less(&q(self.capacity), &missing)),
            reset: ceil(&(missing / &self.rate)),
        }
    }

    /// Of what was taken too much that comes back which time has not brought back yet.
    pub fn lower(&mut self, base: u64, charge: &BucketCharge, excess: u64) {
        let open = if charge.given.0 == self.given.0 {
            let since = &self.given.1 - &charge.given.1;
            less(&less(&charge.end, &since), &q(base))
        } else {
            q(0)
        };
        let back = open.min(q(excess) / &self.rate);
        self.missing -= &back * &self.rate;
        self.given.1 += back;
        if floor(&self.given.1) > MOST_SUM {
            self.given = (self.given.0 + 1, q(0));
        }
    }

    pub fn raise(&mut self, now: u64, base: u64, extra: u64) {
        let full = self.full_at();
        let from = full.clone().max(q(now));
        let most = q(base + MOST_DEBT);
        let raised = (from + q(extra) / &self.rate).min(most).max(full);
        self.missing = (raised - q(self.at)) * &self.rate;
    }
}

#[derive(Clone, Debug)]
pub struct Steps {
    capacity: u64,
    refill: u64,
    period: u64,
    missing: u64,
    /// Whole periods count from here: from the take that found it full.
    from: u64,
    given: u64,
}

#[derive(Clone, Debug)]
pub struct StepsCharge {
    missing: u64,
    from: u64,
    given: u64,
}

impl Steps {
    pub fn new(capacity: u64, refill: u64, period: u64, empty: bool, now: u64) -> Steps {
        Steps {
            capacity,
            refill,
            period,
            missing: if empty { capacity } else { 0 },
            from: now,
            given: 0,
        }
    }

    fn brought(&self, from: u64, at: u64) -> u64 {
        let periods = at.saturating_sub(from) / self.period;
        periods.saturating_mul(self.refill)
    }

    fn time_for(&self, units: u64) -> u64 {
        units.div_ceil(self.refill).saturating_mul(self.period)
    }

    pub fn forgotten_at(&self) -> u64 {
        let twice = 2 * self.time_for(self.capacity);
        self.from + self.time_for(self.missing) + twice.clamp(60_000_000, MOST_AHEAD)
    }

    fn missing_at(&self, at: u64) -> u64 {
        self.missing.saturating_sub(self.brought(self.from, at))
    }

    fn go_to(&mut self, at: u64) {
        let periods = at.saturating_sub(self.from) / self.period;
        self.missing = self.missing_at(at);
        self.from = match self.missing {
            0 => at.max(self.from),
            _ => self.from + periods * self.period,
        };
    }

    pub fn wait(&self, at: u64, weight: u64) -> Wait {
        if weight > self.capacity {
            return Wait::Never;
        }
        let room = self.capacity - weight;
        if self.missing_at(at) <= room {
            return Wait::Now;
        }
        Wait::until(self.from + self.time_for(self.missing - room), at)
    }

    pub fn take(&mut self, at: u64, weight: u64) -> StepsCharge {
        self.go_to(at);
        self.missing += weight;
        StepsCharge {
            missing: self.missing,
            from: self.from,
            given: self.given,
        }
    }

    pub fn figures(&self, at: u64) -> Figures {
        let missing = self.missing_at(at);
        let full = self.from + self.time_for(self.missing);
        Figures {
            limit: self.capacity,
            remaining: self.capacity.saturating_sub(missing),
            reset: if missing > 0 { full - at } else { 0 },
        }
    }

    pub fn lower(&mut self, base: u64, charge: &StepsCharge, excess: u64) {
        let open = charge.missing.saturating_sub(self.given - charge.given);
        let open = open.saturating_sub(self.brought(charge.from, base));
        let back = excess.min(open);
        self.missing = self.missing.saturating_sub(back);
        self.given += back;
    }

    pub fn raise(&mut self, now: u64, extra: u64) {
        self.go_to(now);
        let most = (MOST_DEBT / self.period).saturating_mul(self.refill);
        let raised = (self.missing + extra).min(most.min(MOST_COUNT));
        self.missing = self.missing.max(raised);
    }
}
