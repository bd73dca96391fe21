//! One limit of any kind.
use crate::buckets::*;
use crate::exact::*;
use crate::pacer::*;
use crate::windows::*;

#[derive(Clone, Debug)]
pub enum Law {
    Semaphore { capacity: u64, used: u64 },
    Bucket(Bucket),
    Steps(Steps),
    Pacer(Pacer),
    Log(Log),
    Counter(Counter),
    Window(Window),
    Unlimited,
    Never,
}

#[derive(Clone, Debug)]
pub enum Charge {
    Nothing,
    Held,
    Bucket(BucketCharge),
    Steps(StepsCharge),
    Pacer(Box<PacerCharge>),
    /// Where it counts: a time or a window.
    Counted(u64),
}

impl Law {
    pub fn wait(&self, at: u64, weight: u64) -> Wait {
        match self {
            _ if weight == 0 => Wait::Now,
            Law::Semaphore { capacity, .. } if weight > *capacity => Wait::Never,
            Law::Semaphore { capacity, used } if used + weight > *capacity => Wait::Release,
            Law::Semaphore { .. } | Law::Unlimited => Wait::Now,
            Law::Bucket(law) => law.wait(at, weight),
            Law::Steps(law) => law.wait(at, weight),
            Law::Pacer(law) => law.wait(at, weight),
            Law::Log(law) => law.wait(at, weight),
            Law::Counter(law) => law.wait(at, weight),
            Law::Window(law) => law.wait(at, weight),
            Law::Never => Wait::Never,
        }
    }

    pub fn take(&mut self, now: u64, at: u64, weight: u64) -> Charge {
        match self {
            _ if weight == 0 => Charge::Nothing,
            Law::Semaphore { used, .. } => {
                *used += weight;
                Charge::Held
            }
            Law::Bucket(law) => Charge::Bucket(law.take(at, weight)),
            Law::Steps(law) => Charge::Steps(law.take(at, weight)),
            Law::Pacer(law) => Charge::Pacer(Box::new(law.take(now, at, weight))),
            Law::Log(law) => {
                law.take(now, at, weight);
                Charge::Counted(at)
            }
            Law::Counter(law) => Charge::Counted(law.take(at, weight)),
            Law::Window(law) => Charge::Counted(law.take(at, weight)),
            Law::Unlimited | Law::Never => Charge::Nothing,
        }
    }

    pub fn settle(&mut self, now: u64, base: u64, charge: &Charge, weight: u64, actual: u64) {
        let (excess, extra) = (weight.saturating_sub(actual), actual.saturating_sub(weight));
        match (self, charge) {
            (Law::Bucket(law), Charge::Bucket(charge)) if excess > 0 => {
                law.lower(base, charge, excess)
            }
            (Law::Bucket(law), Charge::Bucket(_)) => law.raise(now, base, extra),
            (Law::Steps(law), Charge::Steps(charge)) if excess > 0 => {
                law.lower(base, charge, excess)
            }
            (Law::Steps(law), Charge::Steps(_)) => law.raise(now, extra),
            (Law::Pacer(law), Charge::Pacer(charge)) if excess > 0 => law.lower(charge, actual),
            (Law::Pacer(law), Charge::Pacer(charge)) => law.raise(now, base, charge, extra),
            (Law::Log(law), Charge::Counted(at)) => law.settle(*at, weight, actual),
            (Law::Counter(law), Charge::Counted(window)) => law.settle(*window, weight, actual),
            (Law::Window(law), Charge::Counted(window)) => law.settle(*window, weight, actual),
            (_, Charge::Held | Charge::Nothing) => {}
            (law, charge) => unreachable!("{law:?} {charge:?}"),
        }
    }

    pub fn figures(&self, now: u64, at: u64) -> Figures {
        let fixed = |limit, remaining| Figures {
            limit,
            remaining,
            reset: 0,
        };
        match self {
            Law::Semaphore { capacity, used } => fixed(*capacity, capacity.saturating_sub(*used)),
            Law::Bucket(law) => law.figures(at),
            Law::Steps(law) => law.figures(at),
            Law::Pacer(law) => law.figures(now, at),
            Law::Log(law) => law.figures(at),
            Law::Counter(law) => law.figures(at),
            Law::Window(law) => law.figures(at),
            Law::Unlimited => fixed(u64::MAX, u64::MAX),
            Law::Never => fixed(0, 0),
        }
    }

    pub fn holds(&self) -> bool {
        matches!(self, Law::Semaphore { .. })
    }
}
