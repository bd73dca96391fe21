//! Waiting between attempts: growing, bounded, and never in step with other processes.
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

/// Doubles from `least` to `most`; each wait is drawn from its upper half.
#[derive(Clone, Debug)]
pub(super) struct Backoff {
    least: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    pub fn new(least: Duration, most: Duration) -> Backoff {
        Backoff {
            least,
            most,
            next: least,
        }
    }

    pub fn reset(&mut self) {
        self.next = self.least;
    }

    /// The next wait, at most `cap`.
    pub fn pause(&mut self, cap: Duration) -> Duration {
        let whole = self.next.min(cap);
        self.next = (self.next * 2).min(self.most);
        whole / 2 + (whole / 2).mul_f64(fraction())
    }
}

/// A random number in [0, 1). Std's hasher keys are random for each process and differ for each call.
pub(super) fn fraction() -> f64 {
    let bits = RandomState::new().build_hasher().finish() >> 11;
    bits as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_within_its_bounds_and_starts_over() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::new(ms(50), ms(1000));
        for step in [50, 100, 200, 400, 800, 1000, 1000] {
            let pause = backoff.pause(ms(5000));
            assert!(
                pause >= ms(step) / 2 && pause <= ms(step),
                "{step}: {pause:?}"
            );
        }
        assert!(backoff.pause(ms(250)) <= ms(250));
        backoff.reset();
        assert!(backoff.pause(ms(5000)) <= ms(50));
    }
}
