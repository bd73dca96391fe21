//! The thread that talks to Redis, and what is known of the server's clock.
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use super::link::{Link, Settings};
use crate::limit::time::Time;
use crate::runtime;

/// One thread with a runtime of its own, and the link that runs there. Dropping it ends the thread.
pub struct Driver {
    pub handle: Handle,
    pub link: Link,
    pub offset: Offset,
    /// Until dropped, the thread goes on.
    _end: oneshot::Sender<()>,
}

impl Driver {
    pub fn start(settings: Settings) -> Result<Driver, String> {
        let system = |error: std::io::Error| error.to_string();
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(system)?;
        let handle = runtime.handle().clone();
        let link = Link::new(handle.clone(), settings)?;
        let (end, ended) = oneshot::channel::<()>();
        runtime::spawn("limiter-redis", move || {
            let _ = runtime.block_on(ended);
        })
        .map_err(system)?;
        Ok(Driver {
            handle,
            link,
            offset: Offset::new(),
            _end: end,
        })
    }
}

/// How far the server's clock is from ours, as narrowly as its replies tell. For `not_after` only:
/// no decision depends on it.
pub struct Offset {
    start: Instant,
    /// Server microseconds less ours.
    estimate: Mutex<Option<i64>>,
}

impl Offset {
    fn new() -> Offset {
        Offset {
            start: Instant::now(),
            estimate: Mutex::new(None),
        }
    }

    fn ours(&self, at: Instant) -> i64 {
        let micros = at.saturating_duration_since(self.start).as_micros();
        i64::try_from(micros).unwrap_or(i64::MAX / 2)
    }

    /// The server's clock stood at `server` at some moment between the two.
    pub fn learn(&self, server: Time, sent: Instant, received: Instant) {
        let server = i64::try_from(server.0).unwrap_or(i64::MAX / 2);
        let (least, most) = (server - self.ours(received), server - self.ours(sent));
        let mut estimate = self.estimate.lock().unwrap();
        *estimate = Some(estimate.map_or(least, |known| known.clamp(least, most)));
    }

    /// The server's time at `at`; `None` while its clock is unknown.
    pub fn server_time(&self, at: Instant) -> Option<Time> {
        let estimate = *self.estimate.lock().unwrap();
        estimate.and_then(|offset| u64::try_from(self.ours(at) + offset).ok().map(Time))
    }
}

/// How long a call is let alone before those behind it stop waiting to be sent with the next one.
pub fn patience(command_timeout: Duration) -> Duration {
    command_timeout / 8
}

/// Checks what the driver would be started with, without starting it.
pub fn check(settings: &Settings) -> Result<(), String> {
    let runtime = Builder::new_current_thread()
        .build()
        .map_err(|error| error.to_string())?;
    Link::new(runtime.handle().clone(), settings.clone()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_narrows_and_follows_a_clock_that_steps() {
        let offset = Offset::new();
        let at = |ms| offset.start + Duration::from_millis(ms);
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
