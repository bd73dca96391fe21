//! Limiters in memory.
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use governor::{Quota, RateLimiter};

use crate::{Args, Keys, Tally};

const TURNS: usize = 1024;

/// The kernel's monotonic clock: the same in all processes, so that what they saw can be put together.
pub fn monotonic_us() -> f64 {
    // Instant is that clock; its zero is found by what it prints.
    let text = format!("{:?}", Instant::now());
    let number = |name: &str| -> f64 {
        let from = text.find(name).expect("Instant tells its time") + name.len();
        let digits: String = text[from..]
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        digits.parse().expect("a number")
    };
    number("tv_sec: ") * 1e6 + number("tv_nsec: ") / 1e3
}

fn resident_bytes() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: f64 = text
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse().ok())
        .expect("statm");
    pages * 4096.0
}

/// The most that was resident since the program began.
pub fn peak_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = text.lines().find(|line| line.starts_with("VmHWM:"));
    let word = line.and_then(|line| line.split_whitespace().nth(1));
    word.and_then(|word| word.parse().ok()).expect("VmHWM")
}

/// Calls as fast as it can from each of the callers.
fn repeat(args: &Args, call: impl Fn(usize) -> bool + Sync) -> Tally {
    let begin = Instant::now();
    let caller = || {
        let (mut tally, mut turn) = (Tally::default(), 0);
        while begin.elapsed() < args.time {
            let began = Instant::now();
            for _ in 0..TURNS {
                tally.admitted += u64::from(call(turn));
                turn += 1;
            }
            tally.decisions += TURNS as u64;
            tally
                .latencies
                .push(began.elapsed().as_nanos() as f32 / 1e3 / TURNS as f32);
        }
        tally
    };
    Tally::of_threads(args.callers, begin, caller)
}

pub fn governor(args: &Args) -> Tally {
    if args.work.contains("zipf") {
        return governor_keyed(args);
    }
    let rate = NonZeroU32::new(args.rate).expect("a rate");
    let limiter = RateLimiter::direct(Quota::per_second(rate));
    repeat(args, |_| limiter.check().is_ok())
}

/// Each of the keys is there before, as the limit of the others is: 10 million saved up, 1 a minute.
fn governor_keyed(args: &Args) -> Tally {
    let keys = Keys::of(args);
    let before = resident_bytes();
    let quota =
        Quota::per_minute(NonZeroU32::MIN).allow_burst(NonZeroU32::new(10_000_000).unwrap());
    let limiter = RateLimiter::<String, _, _>::keyed(quota);
    for key in &keys.names {
        limiter.check_key(key).expect("room");
    }
    let bytes_per_key = (resident_bytes() - before) / args.size as f64;
    let tally = repeat(args, |turn| limiter.check_key(keys.draw(turn)).is_ok());
    Tally {
        bytes_per_key,
        ..tally
    }
}

pub fn leaky_bucket(args: &Args) -> Tally {
    let limiter = leaky_bucket::RateLimiter::builder()
        .max(args.rate as usize)
        .initial(args.rate as usize)
        .refill(args.rate as usize / 100)
        .interval(Duration::from_millis(10))
        .build();
    repeat(args, |_| limiter.try_acquire(1))
}
