//! Who held when, and how much at once: told by the holders themselves, by a clock that all processes of
//! one machine share.
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Microseconds since the machine started.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
    time.tv_sec() as u64 * 1_000_000 + time.tv_nsec() as u64 / 1000
}

/// One unit was held from then till then.
pub type Held = (u64, u64);

#[derive(Debug, Default)]
pub struct Use {
    /// Most units at once.
    pub most: u64,
    /// For how long there were more than there are.
    pub over: Duration,
    /// For how much of the time all were held, in percent.
    pub full: u64,
}

pub fn used(held: &[Held], capacity: u64) -> Use {
    // Who leaves at an instant has left when another comes at it.
    let mut changes: Vec<(u64, i64)> = held
        .iter()
        .filter(|(a, b)| b > a)
        .flat_map(|&(a, b)| [(a, 1), (b, -1)])
        .collect();
    changes.sort_unstable();
    let Some(&(first, _)) = changes.first() else {
        return Use::default();
    };
    let (mut now, mut before, mut over, mut full, mut used) = (0_i64, first, 0, 0, Use::default());
    for (at, change) in changes {
        if now as u64 > capacity {
            over += at - before;
        }
        if now as u64 >= capacity {
            full += at - before;
        }
        (now, before) = (now + change, at);
        used.most = used.most.max(now as u64);
    }
    used.over = Duration::from_micros(over);
    used.full = 100 * full / (before - first).max(1);
    used
}

#[test]
fn what_is_held_at_once_is_counted() {
    assert_eq!(used(&[], 1).most, 0);
    let one = used(&[(0, 10), (10, 10), (10, 20), (20, 100)], 1);
    assert_eq!((one.most, one.over, one.full), (1, Duration::ZERO, 100));
    let two = used(&[(0, 10), (5, 25), (25, 40)], 1);
    assert_eq!(
        (two.most, two.over, two.full),
        (2, Duration::from_micros(5), 100)
    );
    let idle = used(&[(0, 25), (75, 100)], 1);
    assert_eq!((idle.most, idle.full), (1, 50));
}
