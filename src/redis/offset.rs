//! What is known of the server's clock.
use crate::limit::time::Time;
use crate::sync::Mutex;

/// How far the server's clock is from ours, as narrowly as its replies tell. For `not_after` only:
/// no decision depends on it.
#[derive(Default)]
pub(super) struct Offset {
    /// Server microseconds less ours.
    estimate: Mutex<Option<i64>>,
}

impl Offset {
    /// The server's clock stood at `server` at some moment between the two.
    pub fn learn(&self, server: Time, sent: Time, received: Time) {
        let (least, most) = (less(server, received), less(server, sent));
        let mut estimate = self.estimate.lock();
        *estimate = Some(estimate.map_or(least, |known| known.clamp(least, most)));
    }

    /// The server's time at `at`; `None` while its clock is unknown.
    pub fn server_time(&self, at: Time) -> Option<Time> {
        let offset = (*self.estimate.lock())?;
        at.0.checked_add_signed(offset).map(Time)
    }
}

/// Clocks count microseconds since some year: their differences fit.
fn less(one: Time, other: Time) -> i64 {
    one.0.wrapping_sub(other.0) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_narrows_and_follows_a_clock_that_steps() {
        let offset = Offset::default();
        let at = |ms: u64| Time(9_000_000 + ms * 1000);
        assert_eq!(offset.server_time(at(5)), None);
        offset.learn(Time(1_000_000), at(10), at(20));
        assert_eq!(offset.server_time(at(20)), Some(Time(1_000_000)));
        offset.learn(Time(1_030_000), at(40), at(45));
        assert_eq!(offset.server_time(at(45)), Some(Time(1_030_000)));
        offset.learn(Time(1_040_000), at(50), at(90));
        assert_eq!(
            offset.server_time(at(90)),
            Some(Time(1_075_000)),
            "a slow reply tells nothing"
        );
        offset.learn(Time(500_000), at(100), at(101));
        assert_eq!(
            offset.server_time(at(101)),
            Some(Time(501_000)),
            "it stepped back"
        );
    }
}
