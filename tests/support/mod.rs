//! Real Redis servers on loopback for tests, and a proxy that misbehaves. Every process started here
//! dies with its handle, and with the test program however that ends.
#![allow(dead_code)] // each test program uses a part
pub mod cluster;
pub mod limits;
pub mod process;
pub mod proxy;
pub mod sentinel;
pub mod server;
pub mod tls;

use std::time::{Duration, Instant};

/// Waits until `holds`; panics, naming what was awaited, when that takes too long.
#[track_caller]
pub fn eventually(what: &str, within: Duration, mut holds: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < within, "not within {within:?}: {what}");
        std::thread::sleep(Duration::from_millis(3));
    }
    began.elapsed()
}

pub const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}
