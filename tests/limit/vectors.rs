//! Call sequences and the answers that the reference systems gave.
use serde_json::Value;

use crate::harness::*;

fn vectors(group: &str) -> Vec<Value> {
    let text = include_str!("../conformance/vectors.json");
    let all: Value = serde_json::from_str(text).unwrap();
    let group = all[group].as_array().unwrap().clone();
    assert!(!group.is_empty());
    group
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

/// Halves exist in the vectors; in units of a half all are whole.
fn halves(value: &Value) -> u64 {
    whole(number(value) * 2.0)
}

fn whole(x: f64) -> u64 {
    assert_eq!(x.fract(), 0.0, "{x} is whole");
    x as u64
}

fn microseconds(seconds: &Value) -> u64 {
    (number(seconds) * 1e6).round() as u64
}

fn go_to(key: &mut Key, us: u64) {
    key.now = START + limiter::limit::time::Span(us);
}

#[test]
fn pacer_as_recorded() {
    for vector in vectors("pacer") {
        let name = vector["name"].as_str().unwrap();
        let permille = whole(number(&vector["burst_earn_factor"]) * 1000.0);
        let burst = halves(&vector["burst"]);
        let at_rate = |rate: &Value| {
            // Rates have one decimal at most: so many halves in ten seconds.
            pacer(burst, whole(number(rate) * 20.0), 10 * SEC, permille)
        };
        let tolerance = number(&vector["tolerance_ms"]) * 1e3;
        let mut key = Key::of(at_rate(&vector["rate_per_s"]));
        for (i, step) in vector["steps"].as_array().unwrap().iter().enumerate() {
            go_to(&mut key, whole(number(&step["t_ms"]) * 1e3));
            if !step["rate_per_s"].is_null() {
                key.reopen(vec![weighing(at_rate(&step["rate_per_s"]))]);
            }
            let weight = halves(&step["weight"]);
            let delay = match step["op"].as_str().unwrap() {
                "pace" => key.delay(weight),
                "try" => match key.take(weight) {
                    Answer::Ok(_) => 0,
                    denied => denied.retry_after(),
                },
                other => panic!("{other}"),
            };
            let expected = number(&step["delay_ms"]) * 1e3;
            assert!(
                (delay as f64 - expected).abs() <= tolerance,
                "{name}, step {i}: {delay} us, recorded {expected} us"
            );
        }
    }
}

#[test]
fn token_bucket_as_recorded() {
    for vector in vectors("token_bucket") {
        let rule = bucket(
            halves(&vector["capacity"]),
            halves(&vector["rate_per_s"]),
            SEC,
        );
        allowed_as_recorded(&vector, Key::of(rule));
    }
}

#[test]
fn sliding_log_as_recorded() {
    for vector in vectors("sliding_log") {
        let rule = log(halves(&vector["limit"]), microseconds(&vector["window_s"]));
        allowed_as_recorded(&vector, Key::of(rule));
    }
}

fn allowed_as_recorded(vector: &Value, mut key: Key) {
    for (i, step) in vector["steps"].as_array().unwrap().iter().enumerate() {
        go_to(&mut key, microseconds(&step["t_s"]));
        let weight = halves(&step["weight"]);
        let allowed = match weight {
            0 => {
                key.decide(&limiter::limit::weights::Weights::One(0))
                    .outcome
                    == limiter::limit::decide::Outcome::Admit
            }
            weight => key.take(weight).is_ok(),
        };
        assert_eq!(
            allowed,
            step["allowed"].as_bool().unwrap(),
            "{}, step {i}",
            vector["name"]
        );
    }
}

#[test]
fn empty_interval_bucket_as_recorded() {
    for vector in vectors("token_bucket_empty_start") {
        let rule = interval(
            vector["capacity"].as_u64().unwrap(),
            vector["refill"].as_u64().unwrap(),
            microseconds(&vector["period_s"]),
            true,
        );
        let mut key = Key::of(rule);
        for (i, step) in vector["steps"].as_array().unwrap().iter().enumerate() {
            go_to(&mut key, whole(number(&step["t_ms"]) * 1e3));
            let wake = key.pace(1).ok().at().since(START).0;
            assert_eq!(
                wake,
                whole(number(&step["wake_ms"]) * 1e3),
                "{}, step {i}",
                vector["name"]
            );
        }
    }
}

/// Lower bounds on the total time of n callers at once, from the same source.
#[test]
fn totals_of_buckets_as_recorded() {
    for (n, period, total) in [(10, 100, 1000), (10, 10, 100), (2, 1000, 2000)] {
        let mut key = Key::of(interval(1, 1, period * MS, true));
        let last = (0..n).map(|_| key.delay(1)).max().unwrap();
        assert_eq!(last, total * MS);
    }
    for (n, period, total) in [(5, 500, 2500), (4, 750, 3000)] {
        let mut key = Key::of(bucket(1, 1, period * MS));
        let last = (0..n + 1).map(|_| key.delay(1)).max().unwrap();
        assert_eq!(last, total * MS);
    }
}
