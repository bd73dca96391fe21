//! The same calls on both backends get the same answers.
use limiter::decision::{Decision, Status};
use limiter::limit::time::Span;
use limiter::limiter::{LimitSpec, Limiter, spec};
use limiter::op::Request;

use crate::kit::*;
use crate::support::server::Server;

/// Far longer than a test takes, and no period here comes near it.
const SLACK: u64 = 20_000_000;

#[track_caller]
fn same(what: &str, memory: &Decision, redis: &Decision) {
    let exact = |d: &Decision| {
        (
            d.status,
            d.flags,
            d.user_data,
            d.limit,
            d.remaining,
            d.index,
            d.permit != 0,
        )
    };
    assert_eq!(exact(memory), exact(redis), "{what}");
    for (m, r) in [
        (memory.retry_after_us, redis.retry_after_us),
        (memory.reset_after_us, redis.reset_after_us),
    ] {
        assert!(m.abs_diff(r) < SLACK, "{what}: {memory:?} {redis:?}");
    }
}

/// A fixed mix of all verbs.
fn run(limiter: &Limiter) -> Vec<(String, Decision)> {
    let mut seen = Vec::new();
    let mut keep = |what: String, decision: Decision| seen.push((what, decision));
    let mut permits = Vec::new();
    for weight in [1, 3, 0, 2, 1_000_000] {
        let decision = limiter.acquire(&weigh(weight)).unwrap();
        permits.push(decision.permit);
        keep(format!("try {weight}"), decision);
        keep(
            format!("peek {weight}"),
            limiter.peek(&weigh(weight)).unwrap(),
        );
    }
    for (index, actual) in [(0, 2), (1, 1), (1, 1)] {
        let status = limiter.settle(permits[index], actual).unwrap();
        keep(format!("settle {index}"), Decision::of(status));
    }
    keep("after settling".into(), limiter.peek(&weigh(1)).unwrap());
    let far = Request {
        wait: None,
        ..weigh(4)
    };
    for n in 0..4 {
        let decision = limiter.pace(&far).unwrap();
        permits.push(decision.permit);
        keep(format!("pace {n}"), decision);
    }
    for permit in permits.into_iter().rev() {
        let status = limiter.release(permit).unwrap();
        keep("release".into(), Decision::of(status));
    }
    keep("after release".into(), limiter.peek(&weigh(1)).unwrap());
    for decision in limiter.try_many(&[weigh(1), weigh(2), weigh(9)]).unwrap() {
        keep("many".into(), decision);
    }
    let penalized = limiter.penalize(b"", Span::secs(1000)).unwrap();
    keep("penalize".into(), Decision::of(penalized));
    keep("penalized".into(), limiter.acquire(&weigh(1)).unwrap());
    keep("reset".into(), Decision::of(limiter.reset(b"").unwrap()));
    keep("new".into(), limiter.acquire(&weigh(1)).unwrap());
    seen
}

fn flagged(limit: LimitSpec, flags: u32) -> LimitSpec {
    LimitSpec { flags, ..limit }
}

#[test]
fn every_kind_of_limit_answers_as_in_memory() {
    let server = Server::start();
    let (memory, redis) = (open("memory://"), open(&server.url()));
    let day = 24 * HOUR;
    let kinds: Vec<(&str, Vec<LimitSpec>)> = vec![
        ("bucket", vec![bucket(10, 7, day)]),
        (
            "interval",
            vec![flagged(bucket(10, 10, day), spec::INTERVAL)],
        ),
        (
            "empty",
            vec![flagged(bucket(10, 10, day), spec::START_EMPTY)],
        ),
        ("pacer", vec![limit(spec::PACER, 5, 3, day)]),
        ("log", vec![limit(spec::SLIDING_LOG, 10, 0, day)]),
        (
            "counter",
            vec![limit(spec::SLIDING_COUNTER, 10, 0, 365 * day)],
        ),
        (
            "window",
            vec![flagged(
                limit(spec::FIXED_WINDOW, 10, 0, day),
                spec::ALIGN_FIRST_USE,
            )],
        ),
        ("unlimited", vec![limit(spec::UNLIMITED, 0, 0, 0)]),
        ("never", vec![limit(spec::NEVER_ADMIT, 0, 0, 0)]),
        (
            "several",
            vec![
                bucket(12, 12, day),
                flagged(limit(spec::SLIDING_LOG, 5, 0, day), spec::PER_CALL),
            ],
        ),
        ("semaphore", vec![semaphore(9)]),
        ("lent", vec![flagged(leased(9, 60_000), spec::NO_RENEW)]),
        ("held", vec![semaphore(8), bucket(12, 12, day)]),
        (
            "counted",
            vec![
                limit(spec::SLIDING_LOG, 10, 0, day),
                flagged(semaphore(4), spec::PER_CALL),
                limit(spec::PACER, 9, 3, day),
                semaphore(7),
            ],
        ),
    ];
    for (name, limits) in kinds {
        let (here, there) = (
            limiter(&memory, name, &limits),
            limiter(&redis, name, &limits),
        );
        let (expected, got) = (run(&here), run(&there));
        assert_eq!(expected.len(), got.len());
        for ((what, memory), (_, redis)) in expected.iter().zip(&got) {
            same(&format!("{name}: {what}"), memory, redis);
        }
        let admitted = expected.iter().filter(|(_, d)| d.permit != 0).count();
        assert!(
            admitted > 3 || name == "never" || name == "empty",
            "{name}: {admitted}"
        );
    }
    assert_eq!(redis.shutdown(None), Ok(Status::Ok));
}
