//! What is called when: random limits, calls and steps of the clock, the seed's alone.
use limiter::limiter::{LimitSpec, spec};

use crate::random::Random;
use crate::support::limits::*;

pub const SECOND: u64 = 1_000_000;
/// Keys that are called.
pub const KEYS: [&[u8]; 2] = [b"", b"k"];

/// One call, of a handle: all of one name.
#[derive(Clone, Debug)]
pub struct Ask {
    pub handle: usize,
    pub key: usize,
    /// One for all limits, or one for each.
    pub weights: Vec<u64>,
    /// Of those that wait, milliseconds; none is without limit.
    pub wait: Option<u64>,
    pub lease_ms: Option<u64>,
    pub renew: bool,
    pub tell_lost: bool,
    /// What [`Step::CancelWaits`] goes by.
    pub tag: u64,
}

/// Of what was granted or begun so far, counted from the latest, round and round.
pub type Nth = usize;

#[derive(Clone, Debug)]
pub enum Step {
    Try(Ask),
    TryMany(Vec<Ask>),
    Peek(Ask),
    Submit(Ask),
    Pace(Ask),
    Release(Nth),
    /// A number that is near one that was given.
    ReleaseGuessed(Nth, u64),
    Settle(Nth, u64),
    Renew(Nth, Option<u64>),
    Cancel(Nth, bool),
    CancelWaits(u64),
    Penalize(usize, usize, u64),
    Reset(usize, usize),
    /// The name is opened with these limits, as one more handle.
    Open(usize),
    Pass(u64),
}

pub struct Story {
    /// The limits a name is opened with, of the same kinds.
    pub limits: Vec<Vec<LimitSpec>>,
    pub settings: Vec<(&'static str, &'static str)>,
    pub steps: Vec<Step>,
}

impl Story {
    pub fn new(seed: u64) -> Story {
        let mut random = Random::new(seed);
        let r = &mut random;
        for _ in 0..4 {
            r.next();
        }
        let count = r.pick(&[1, 1, 2, 2, 3, 4]);
        let kinds: Vec<u64> = (0..count).map(|_| kind(r)).collect();
        let leases: Vec<u32> = kinds.iter().map(|_| r.pick(&[0, 0, 500, 3000])).collect();
        let flags: Vec<u32> = kinds.iter().map(|kind| flags(r, *kind)).collect();
        let versioned = r.below(4) == 0;
        let mut limits: Vec<Vec<LimitSpec>> = Vec::new();
        for _ in 0..3 {
            let version = if versioned { r.below(3) as u32 } else { 0 };
            let one = |i: usize| LimitSpec {
                version,
                lease_ms: if kinds[i] < 5 { leases[i] } else { 0 },
                ..limit_of(r, kinds[i], flags[i])
            };
            limits.push((0..count).map(one).collect());
        }
        let mut settings = vec![("clock", "virtual"), ("command_timeout_ms", "20000")];
        settings.push(("lease_ms", r.pick(&["1000", "4000", "30000"])));
        settings.push(("max_penalty_ms", r.pick(&["1500", "3600000"])));
        settings.push(("deny_cache_ms", r.pick(&["0", "1000"])));
        let has = |kind: u32| limits[0].iter().any(|limit| limit.kind == kind);
        let (holds, paced) = (has(spec::SEMAPHORE), has(spec::PACER));
        let mut plot = Plot {
            holds,
            count,
            handles: 1,
            changes: r.below(3) == 0,
            shocks: r.below(2) == 0,
            crowded: r.below(3) == 0,
            mixes: holds && limits[0].iter().any(|limit| limit.kind != spec::SEMAPHORE),
            paced,
            who: match paced && holds {
                true => Who::Paces,
                false => r.pick(&[Who::Waits, Who::Waits, Who::Paces, Who::Both]),
            },
        };
        let steps = (0..60).map(|_| plot.step(r)).collect();
        Story {
            limits,
            settings,
            steps,
        }
    }
}

/// What a story is about.
struct Plot {
    holds: bool,
    count: usize,
    handles: usize,
    /// Limits change.
    changes: bool,
    /// There are penalties and resets.
    shocks: bool,
    /// Many wait.
    crowded: bool,
    who: Who,
    /// There is a pacer.
    paced: bool,
    /// There are semaphores and rates.
    mixes: bool,
}

/// Who has times ahead.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Waits,
    Paces,
    Both,
}

impl Plot {
    fn step(&mut self, r: &mut Random) -> Step {
        loop {
            let step = self.any_step(r);
            let fits = match step {
                Step::Pace(_) => self.who != Who::Waits,
                Step::Submit(_) => self.who != Who::Paces,
                Step::Cancel(nth, _) => self.gives_back() && (nth == 0 || !self.mixes),
                Step::CancelWaits(_) => self.gives_back() && !self.mixes,
                Step::Settle(..) | Step::Penalize(..) | Step::Reset(..) | Step::Open(_) => {
                    self.gives_back()
                }
                Step::Release(_) | Step::ReleaseGuessed(..) => self.gives_back() || self.holds,
                Step::Renew(..) => !(self.changes && self.holds),
                _ => true,
            };
            if fits {
                return step;
            }
        }
    }

    /// What is booked is moved. Not with paced calls or pacers among those who wait: see the table in main.rs.
    fn gives_back(&self) -> bool {
        match self.who {
            Who::Waits => !self.paced,
            Who::Paces => true,
            Who::Both => false,
        }
    }

    fn any_step(&mut self, r: &mut Random) -> Step {
        let submits = if self.crowded { 14 } else { 8 };
        let nth = |r: &mut Random| r.pick(&[0, 0, 1, 2, 3, 5, 8, 13, 21]);
        match r.below(40 + submits) {
            0..=6 => Step::Try(self.ask(r)),
            7 => Step::TryMany((0..2 + r.below(3)).map(|_| self.ask(r)).collect()),
            8 | 9 => Step::Peek(self.ask(r)),
            10..=12 => Step::Pace(self.ask(r)),
            13..=15 => Step::Release(nth(r)),
            16 => Step::ReleaseGuessed(nth(r), r.pick(&[64, 128, 192, 256])),
            17..=19 => {
                let most = if self.who == Who::Waits { 2 } else { 6 };
                Step::Settle(nth(r), r.below(most))
            }
            20 => Step::Renew(nth(r), r.pick(&[None, Some(200), Some(1000), Some(5000)])),
            21 | 22 => Step::Cancel(nth(r), r.below(2) == 0),
            23 => Step::Cancel(r.pick(&[0, 1, 2]), r.below(2) == 0),
            24 if r.below(2) == 0 => Step::CancelWaits(r.below(3)),
            25 if self.shocks => {
                let span = match r.below(5) {
                    0 => 0,
                    1 => r.below(20 * SECOND),
                    _ => r.below(3 * SECOND),
                };
                Step::Penalize(self.handle(r), self.key(r), span)
            }
            26 if self.shocks => Step::Reset(self.handle(r), self.key(r)),
            27 if self.changes => {
                self.handles += 1;
                Step::Open(r.below(3) as usize)
            }
            28..=39 => Step::Pass(self.span(r)),
            _ => Step::Submit(self.ask(r)),
        }
    }

    fn handle(&self, r: &mut Random) -> usize {
        r.below(self.handles as u64) as usize
    }

    fn key(&self, r: &mut Random) -> usize {
        usize::from(r.below(6) == 0)
    }

    fn span(&self, r: &mut Random) -> u64 {
        match r.below(12) {
            0 => 0,
            1 => r.below(3 * SECOND),
            // The longer ones let a bucket that starts empty be forgotten.
            2 => r.pick(&[5, 12, 31, 61, 130]) * SECOND,
            _ => r.pick(&[
                1, 1_000, 100_000, 333_333, 333_334, 500_000, SECOND, 1_700_000,
            ]),
        }
    }

    fn ask(&self, r: &mut Random) -> Ask {
        let count = if r.below(4) == 0 { self.count } else { 1 };
        let weigh = |_| r.pick(&[0, 1, 1, 1, 1, 2, 2, 3, 4, 7]);
        let weights = (0..count).map(weigh).collect();
        Ask {
            handle: self.handle(r),
            key: self.key(r),
            weights,
            wait: match r.below(4) {
                0 => None,
                1 => Some(r.below(30_000)),
                _ => Some(r.below(5_000)),
            },
            lease_ms: self
                .holds
                .then(|| r.pick(&[None, None, Some(150), Some(900), Some(2_000)]))
                .flatten(),
            renew: r.below(3) > 0 && !(self.changes && self.holds),
            tell_lost: r.below(4) == 0,
            tag: r.below(3),
        }
    }
}

fn kind(r: &mut Random) -> u64 {
    if r.below(60) == 0 { 23 } else { r.below(23) }
}

fn flags(r: &mut Random, kind: u64) -> u32 {
    let own = match kind {
        0..=4 => r.pick(&[0, 0, spec::NO_RENEW]),
        5..=8 => r.pick(&[0, 0, 0, spec::START_EMPTY]),
        9..=11 => spec::INTERVAL | r.pick(&[0, 0, 0, spec::START_EMPTY]),
        18..=20 => r.pick(&[0, spec::ALIGN_FIRST_USE]),
        _ => 0,
    };
    own | if r.below(6) == 0 { spec::PER_CALL } else { 0 }
}

fn limit_of(r: &mut Random, kind: u64, flags: u32) -> LimitSpec {
    let capacity = 1 + r.below(6);
    let refill = 1 + r.below(5);
    let period = (1 + r.below(3)) * SECOND;
    let made = match kind {
        0..=4 => semaphore(capacity),
        5..=11 if flags & spec::START_EMPTY != 0 => {
            bucket(4 + r.below(3), 1, (2 + r.below(2)) * SECOND)
        }
        5..=11 => bucket(capacity, refill, period),
        12..=14 => LimitSpec {
            burst_earn_permille: r.pick(&[0, 500, 1000]),
            ..limit(spec::PACER, r.below(4), refill, SECOND)
        },
        15 | 16 => limit(spec::SLIDING_LOG, capacity, 0, period),
        17 => limit(spec::SLIDING_COUNTER, capacity, 0, period),
        18..=21 => limit(spec::FIXED_WINDOW, capacity, 0, period),
        22 => limit(spec::UNLIMITED, 0, 0, 0),
        _ => limit(spec::NEVER_ADMIT, 0, 0, 0),
    };
    LimitSpec { flags, ..made }
}
