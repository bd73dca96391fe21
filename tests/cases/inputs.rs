//! Parameters of nothing and of everything, settings of nothing, large numbers.
use limiter::decision::Status;
use limiter::limiter::{Limiter, spec};

use crate::place::*;

on_both![
    b_001_b_002_b_004_a_limit_of_nothing_is_refused_and_stores_nothing,
    b_004_unlimited_admits_whatever_the_weight,
    b_016_b_022_the_widest_limits_are_exact_or_refused,
    b_026_nothing_that_can_be_set_turns_a_limit_off,
    b_050_numbers_are_plain_whatever_the_locale_and_their_size,
];

fn b_001_b_002_b_004_a_limit_of_nothing_is_refused_and_stores_nothing(place: &Place) {
    let client = place.client();
    let minute = 60 * SECOND;
    for nothing in [
        bucket(0, 0, minute),
        bucket(0, 1, minute),
        bucket(1, 0, minute),
        bucket(1, 1, 0),
        semaphore(0),
        limit(spec::PACER, 0, 0, minute),
        limit(spec::PACER, 0, 1, 0),
        limit(spec::SLIDING_LOG, 0, 0, minute),
        limit(spec::SLIDING_LOG, 1, 0, 0),
        limit(spec::SLIDING_COUNTER, 0, 0, minute),
        limit(spec::FIXED_WINDOW, 0, 0, minute),
    ] {
        let refused = Limiter::new(&client, "case", &[nothing]);
        let (status, message) = refused.err().expect("there is nothing to limit");
        assert_eq!(status, Status::Config);
        assert!(message.contains(" to "), "what is allowed: {message}");
    }
    let desk = Desk::new(client, &[limit(spec::NEVER_ADMIT, 0, 0, 0)]);
    for wait in [Some(0), Some(60_000), None] {
        let wait = wait.map(limiter::limit::time::Span::millis);
        let never = desk.limiter.acquire(&weigh(1, wait)).unwrap();
        assert_eq!(never.status, Status::Never);
        assert_eq!(never.retry_after_us, u64::MAX);
    }
    assert_eq!(place.keys(), 0);
}

fn b_004_unlimited_admits_whatever_the_weight(place: &Place) {
    let desk = Desk::new(place.client(), &[limit(spec::UNLIMITED, 0, 0, 0)]);
    for weight in [0, 1, 1 << 48, u64::MAX] {
        assert_eq!(desk.try_(weight).status, Status::Ok, "{weight}");
    }
}

fn b_016_b_022_the_widest_limits_are_exact_or_refused(place: &Place) {
    const TEN_YEARS: u64 = 315_576_000_000_000;
    let most = 1 << 48;
    let mut made = 0;
    for (n, wide) in [
        bucket(u64::MAX / 2, 1, 1_000),
        bucket(most, u64::MAX / 2, 1_000),
        bucket(1, 1_000_000, 1),
        bucket(1, 1_000_000_000_000, SECOND),
        bucket(most, 1_000_000_000, SECOND),
        bucket(1, 1_000, 1),
        bucket(1, 1, TEN_YEARS),
        bucket(1, 1, TEN_YEARS + 1),
        bucket(1, 1, u64::MAX),
        limit(spec::SLIDING_LOG, most, 0, TEN_YEARS),
        limit(spec::SLIDING_LOG, most + 1, 0, TEN_YEARS),
        limit(spec::SLIDING_COUNTER, most, 0, 1),
        limit(spec::FIXED_WINDOW, most, 0, TEN_YEARS),
        limit(spec::FIXED_WINDOW, 1, 0, u64::MAX),
        semaphore(most),
        semaphore(u64::MAX),
    ]
    .into_iter()
    .enumerate()
    {
        let client = place.client();
        let limiter = match Limiter::new(&client, &format!("case {n}"), &[wide]) {
            Ok(limiter) => limiter,
            Err((status, message)) => {
                assert_eq!(status, Status::Config);
                let told = message.contains(" to ") || message.contains("at most");
                assert!(told, "what is allowed: {message}");
                continue;
            }
        };
        made += 1;
        let ask = |weight| {
            let wait = Some(limiter::limit::time::Span::ZERO);
            limiter.acquire(&weigh(weight, wait)).unwrap()
        };
        assert_eq!(ask(wide.capacity + 1).status, Status::Never);
        let all = ask(wide.capacity);
        assert_eq!((all.status, all.remaining), (Status::Ok, 0), "{wide:?}");
        let denied = ask(1);
        assert_eq!(denied.status, Status::Denied, "{wide:?}");
        assert!(denied.retry_after_us > 0, "{wide:?}");
        if wide.kind == spec::SEMAPHORE {
            assert_eq!(limiter.release(all.permit), Ok(Status::Ok));
        } else {
            let wait = limiter::limit::time::Span(denied.retry_after_us);
            assert_eq!(client.clock_advance(wait), Ok(Status::Ok));
        }
        assert_eq!(ask(1).status, Status::Ok, "{wide:?}");
    }
    assert!(made >= 7, "{made} of them were made");
}

fn b_026_nothing_that_can_be_set_turns_a_limit_off(place: &Place) {
    for key in [
        "lease_ms",
        "max_waiting",
        "max_penalty_ms",
        "command_timeout_ms",
        "processes",
    ] {
        let mut config = place.config(&[("clock", "virtual")]);
        config.set(key, "0").unwrap_err();
        let least = if key == "lease_ms" { "100" } else { "1" };
        // Any answer within a millisecond is too much to ask of a busy machine.
        if key != "command_timeout_ms" {
            config.set(key, least).unwrap();
        }
        config.set("prefix", "").unwrap();
        config.set("on_failure", "open").unwrap();
        let desk = Desk::new(place.with(&config), &[bucket(3, 1, HOUR), semaphore(9)]);
        desk.limiter.reset(b"").unwrap();
        let passed = (0..20).filter(|_| desk.try_(1).status == Status::Ok);
        assert_eq!(passed.count(), 3, "{key}");
    }
}

/// Sets a locale that writes 1.5 as 1,5, if there is one.
fn write_commas() {
    for name in [c"de_DE.UTF-8", c"de_DE.utf8", c"de_DE", c"fr_FR.UTF-8"] {
        // SAFETY: the name is a C string; other threads of this program read no locale.
        if !unsafe { libc::setlocale(libc::LC_ALL, name.as_ptr()) }.is_null() {
            return;
        }
    }
}

fn b_050_numbers_are_plain_whatever_the_locale_and_their_size(place: &Place) {
    write_commas();
    for (n, capacity) in [1_000_000, 100_000_000_000_000, 1 << 48]
        .into_iter()
        .enumerate()
    {
        let client = place.client();
        let name = format!("case {n}");
        for limits in [
            &[bucket(capacity, 1_000_000, SECOND)][..],
            &[semaphore(capacity)],
            &[limit(spec::SLIDING_LOG, capacity, 0, HOUR)],
            &[limit(spec::FIXED_WINDOW, capacity, 0, HOUR)],
        ] {
            let limiter = Limiter::new(&client, &name, limits).unwrap();
            limiter.reset(b"").unwrap();
            let ask = |weight| {
                let wait = Some(limiter::limit::time::Span::ZERO);
                let one = limiter.acquire(&weigh(weight, wait)).unwrap();
                (one.status, one.remaining)
            };
            assert_eq!(ask(capacity - 1), (Status::Ok, 1), "{limits:?}");
            assert_eq!(ask(2), (Status::Denied, 1), "{limits:?}");
            assert_eq!(ask(1), (Status::Ok, 0), "{limits:?}");
        }
    }
}
