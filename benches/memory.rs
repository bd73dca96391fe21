//! The embedded backend beside governor: one token bucket on one thread, through the C interface.
//!
//! `cargo bench --bench memory`. Rounds of each take turns; what counts is the ratio of medians.
use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::{CStr, c_char, c_void};
use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use governor::{DefaultDirectRateLimiter, DefaultKeyedRateLimiter, Quota};
use limiter::ffi::types::*;

unsafe extern "C" {
    fn limiter_client_open(
        url: *const c_char,
        config: *const c_void,
        out: *mut *mut c_void,
        errbuf: *mut c_char,
        errcap: usize,
    ) -> limiter_status;
    fn limiter_client_free(client: *mut c_void) -> limiter_status;
    fn limiter_new(
        client: *mut c_void,
        name: *const c_char,
        limits: *const limiter_limit,
        count: usize,
        out: *mut *mut c_void,
        errbuf: *mut c_char,
        errcap: usize,
    ) -> limiter_status;
    fn limiter_free(limiter: *mut c_void);
    fn limiter_acquire(
        limiter: *mut c_void,
        request: *const limiter_request,
        out: *mut limiter_decision,
    ) -> limiter_status;
}

const ROUNDS: usize = 11;
const KEYS: u64 = 1_000_000;
const BURST: u32 = 1_000_000_000;
const SECOND: u64 = 1_000_000;
const HOUR: u64 = 3_600 * SECOND;

/// The system's allocator, and how much it has given out.
struct Counted;

static LIVE: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static COUNTED: Counted = Counted;

/// One bucket of ours.
struct Ours {
    client: *mut c_void,
    limiter: *mut c_void,
}

impl Ours {
    fn new(name: &CStr, capacity: u64, refill: u64, period_us: u64) -> Ours {
        let nowhere = std::ptr::null_mut();
        let (mut client, mut limiter) = (std::ptr::null_mut(), std::ptr::null_mut());
        unsafe {
            let limit = limiter_limit {
                struct_size: size_of::<limiter_limit>(),
                kind: LIMITER_TOKEN_BUCKET,
                capacity,
                refill,
                period_us,
                burst_earn_permille: 500,
                ..std::mem::zeroed()
            };
            let (url, config) = (c"memory://".as_ptr(), std::ptr::null());
            let opened = limiter_client_open(url, config, &mut client, nowhere, 0);
            assert_eq!(opened, LIMITER_OK);
            let made = limiter_new(client, name.as_ptr(), &limit, 1, &mut limiter, nowhere, 0);
            assert_eq!(made, LIMITER_OK);
        }
        Ours { client, limiter }
    }

    fn check(&self, key: &[u8]) -> bool {
        let mut decision = std::mem::MaybeUninit::<limiter_decision>::uninit();
        unsafe {
            let request = limiter_request {
                struct_size: size_of::<limiter_request>(),
                key: key.as_ptr().cast(),
                key_len: key.len(),
                weight: 1,
                ..std::mem::zeroed()
            };
            limiter_acquire(self.limiter, &request, decision.as_mut_ptr()) == LIMITER_OK
        }
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        unsafe {
            limiter_free(self.limiter);
            assert_eq!(limiter_client_free(self.client), LIMITER_OK);
        }
    }
}

/// Nanoseconds of each of `calls` calls, on average.
fn time(calls: usize, mut call: impl FnMut(usize)) -> f64 {
    let start = Instant::now();
    for n in 0..calls {
        call(n);
    }
    start.elapsed().as_nanos() as f64 / calls as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A row: the medians of rounds that take turns.
fn compare(what: &str, mut ours: impl FnMut() -> f64, mut theirs: impl FnMut() -> f64) {
    let rounds: Vec<(f64, f64)> = (0..ROUNDS).map(|_| (ours(), theirs())).collect();
    let (ours, theirs): (Vec<f64>, Vec<f64>) = rounds.into_iter().unzip();
    row(what, "ns", median(ours), median(theirs));
}

fn row(what: &str, unit: &str, ours: f64, theirs: f64) {
    let ratio = ours / theirs;
    println!("| {what} | {ours:.1} {unit} | {theirs:.1} {unit} | {ratio:.2} |");
}

fn number(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).expect("not zero")
}

fn one_key() {
    const CALLS: usize = 1_000_000;
    let ours = Ours::new(c"open", BURST.into(), BURST.into(), SECOND);
    let theirs = DefaultDirectRateLimiter::direct(Quota::per_second(number(BURST)));
    let admit = |key: &[u8]| {
        let key = black_box(key);
        time(CALLS, |_| assert!(ours.check(key)))
    };
    let direct = || time(CALLS, |_| assert!(theirs.check().is_ok()));
    compare("one bucket, admitted", || admit(b""), direct);
    compare(
        "the same under a key of 8 bytes",
        || admit(b"tenant-1"),
        direct,
    );

    let ours = Ours::new(c"empty", 1, 1, HOUR);
    let theirs = DefaultDirectRateLimiter::direct(Quota::per_hour(number(1)));
    ours.check(b"");
    let _ = theirs.check();
    compare(
        "one bucket, denied",
        || {
            time(CALLS, |_| {
                black_box(ours.check(b""));
            })
        },
        || {
            time(CALLS, |_| {
                let _ = black_box(theirs.check());
            })
        },
    );
}

/// Numbers below `KEYS`, of which the n-th is n times rarer than the first.
fn zipf(count: usize) -> Vec<u64> {
    let mut sums: Vec<f64> = (1..=KEYS)
        .scan(0.0, |sum, n| {
            *sum += 1.0 / n as f64;
            Some(*sum)
        })
        .collect();
    let all = sums.pop().expect("there are keys");
    let mut state = 1u64;
    let mut draw = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
        let point = (state >> 11) as f64 / (1u64 << 53) as f64 * all;
        sums.partition_point(|sum| *sum < point) as u64
    };
    (0..count).map(|_| draw()).collect()
}

/// A key as programs have them; its neighbours in rank are far apart.
fn key(rank: u64) -> String {
    format!("user:{:012}", rank * 7_368_787 % KEYS)
}

fn many_keys() {
    const CALLS: usize = 500_000;
    let before = LIVE.load(Relaxed);
    // Enough for the most frequent key, and long in debt: none is as new again, and forgotten.
    let (burst, period) = (4_000_000, Duration::from_secs(600));
    let ours = Ours::new(c"keys", burst.into(), 1, period.as_micros() as u64);
    for n in 0..KEYS {
        assert!(ours.check(key(n).as_bytes()));
    }
    let our_bytes = (LIVE.load(Relaxed) - before) as f64 / KEYS as f64;

    let before = LIVE.load(Relaxed);
    let quota = Quota::with_period(period).expect("not zero");
    let quota = quota.allow_burst(number(burst));
    let theirs = DefaultKeyedRateLimiter::<String>::keyed(quota);
    for n in 0..KEYS {
        assert!(theirs.check_key(&key(n)).is_ok());
    }
    let their_bytes = (LIVE.load(Relaxed) - before) as f64 / KEYS as f64;

    let keys: Vec<String> = zipf(CALLS * ROUNDS).into_iter().map(key).collect();
    let rounds: Vec<&[String]> = keys.chunks(CALLS).collect();
    let (mut a, mut b) = (rounds.iter(), rounds.iter());
    compare(
        "1 000 000 keys, Zipf 1.0",
        || {
            let keys = a.next().expect("as many as rounds");
            time(CALLS, |n| assert!(ours.check(keys[n].as_bytes())))
        },
        || {
            let keys = b.next().expect("as many as rounds");
            time(CALLS, |n| assert!(theirs.check_key(&keys[n]).is_ok()))
        },
    );
    row("memory of each key", "bytes", our_bytes, their_bytes);
}

fn main() {
    println!("| | liblimiter | governor | ratio |\n|---|---|---|---|");
    one_key();
    many_keys();
}
