//! The circuit breaker: when calls keep failing, most are refused at once and one at a time is let
//! through to see whether the server has recovered.
use std::time::{Duration, Instant};

use super::pause::Backoff;

#[derive(Debug)]
pub(super) struct Breaker {
    threshold: u32,
    failures: u32,
    /// While open: when the next probe may go.
    probe_at: Instant,
    pause: Backoff,
    /// How long a probe may take to report before another may go.
    patience: Duration,
}

impl Breaker {
    pub fn new(threshold: u32, patience: Duration) -> Breaker {
        Breaker {
            threshold,
            failures: 0,
            probe_at: Instant::now(),
            pause: Backoff::new(Duration::from_millis(50), Duration::from_secs(1)),
            patience,
        }
    }

    pub fn failures(&self) -> u32 {
        self.failures
    }

    pub fn is_open(&self) -> bool {
        self.failures >= self.threshold
    }

    /// May a call go now? If not, when.
    pub fn admit(&mut self, now: Instant) -> Result<(), Duration> {
        if !self.is_open() {
            return Ok(());
        }
        if now < self.probe_at {
            return Err(self.probe_at - now);
        }
        self.probe_at = now + self.patience;
        Ok(())
    }

    pub fn succeeded(&mut self) {
        self.failures = 0;
        self.pause.reset();
    }

    pub fn failed(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        if self.is_open() {
            self.probe_at = now + self.pause.pause(Duration::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_after_the_threshold_lets_one_probe_through_and_closes_on_success() {
        let ms = Duration::from_millis;
        let mut breaker = Breaker::new(3, ms(200));
        let start = Instant::now();
        for _ in 0..2 {
            breaker.failed(start);
            assert_eq!(breaker.admit(start), Ok(()));
        }
        breaker.failed(start);
        assert!(breaker.is_open());
        let wait = breaker.admit(start).unwrap_err();
        assert!(wait >= ms(25) && wait <= ms(50), "{wait:?}");
        assert_eq!(breaker.admit(start + wait), Ok(()), "the probe");
        assert_eq!(breaker.admit(start + wait), Err(ms(200)), "no second probe");
        breaker.failed(start + wait);
        assert!(breaker.admit(start + wait).unwrap_err() >= ms(50));
        breaker.succeeded();
        assert_eq!(breaker.admit(start), Ok(()));
        assert_eq!(breaker.failures(), 0);
    }
}
