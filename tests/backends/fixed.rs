//! What was answered differently once, in few steps.
use limiter::limiter::{LimitSpec, spec};

use crate::story::{Ask, SECOND, Step, Story};
use crate::support::limits::*;

fn ask(weights: &[u64], wait: Option<u64>) -> Ask {
    Ask {
        handle: 0,
        key: 0,
        weights: weights.into(),
        wait,
        lease_ms: None,
        renew: true,
        tell_lost: false,
        tag: 0,
    }
}

fn try_(weights: &[u64]) -> Step {
    Step::Try(ask(weights, None))
}

fn submit(weights: &[u64]) -> Step {
    Step::Submit(ask(weights, None))
}

fn not_renewed(ask: Ask) -> Ask {
    Ask {
        renew: false,
        ..ask
    }
}

/// Takes what is not renewed.
fn lent(weights: &[u64], lease_ms: u64) -> Step {
    Step::Try(Ask {
        lease_ms: Some(lease_ms),
        ..not_renewed(ask(weights, None))
    })
}

fn pacer(burst: u64, refill: u64, burst_earn_permille: u32) -> LimitSpec {
    LimitSpec {
        burst_earn_permille,
        ..limit(spec::PACER, burst, refill, SECOND)
    }
}

fn window(capacity: u64, seconds: u64) -> LimitSpec {
    limit(spec::FIXED_WINDOW, capacity, 0, seconds * SECOND)
}

fn log(capacity: u64, seconds: u64) -> LimitSpec {
    limit(spec::SLIDING_LOG, capacity, 0, seconds * SECOND)
}

fn version(limit: LimitSpec, version: u32) -> Vec<LimitSpec> {
    vec![LimitSpec { version, ..limit }]
}

fn flagged(limit: LimitSpec, flags: u32) -> LimitSpec {
    LimitSpec { flags, ..limit }
}

fn story(limits: &[&[LimitSpec]], steps: Vec<Step>) -> Story {
    Story {
        limits: limits.iter().map(|limits| limits.to_vec()).collect(),
        settings: vec![
            ("clock", "virtual"),
            ("command_timeout_ms", "20000"),
            ("lease_ms", "4000"),
        ],
        steps,
    }
}

/// By what it was that differed.
pub fn stories() -> Vec<(&'static str, Story)> {
    let interval = |capacity, refill, seconds| {
        flagged(bucket(capacity, refill, seconds * SECOND), spec::INTERVAL)
    };
    vec![
        (
            "the numbers of what is cancelled, and of a grant after a wait",
            story(
                &[&[window(1, 2)]],
                vec![
                    submit(&[1]),
                    submit(&[1]),
                    submit(&[1]),
                    Step::Cancel(0, false),
                    Step::Pass(2 * SECOND),
                ],
            ),
        ),
        (
            "an older handle after the limits were changed by a newer one",
            story(
                &[&[window(4, 3)], &[window(5, 2)]],
                vec![try_(&[1]), Step::Open(1), Step::Settle(0, 4), submit(&[1])],
            ),
        ),
        (
            "a newer handle of a lower version",
            story(
                &[&version(semaphore(2), 1), &version(semaphore(1), 0)],
                vec![
                    Step::Open(1),
                    Step::Submit(Ask {
                        handle: 1,
                        ..ask(&[2], None)
                    }),
                ],
            ),
        ),
        (
            "a fence where nothing of a semaphore is asked for",
            story(
                &[&[semaphore(6), bucket(2, 3, SECOND)]],
                vec![submit(&[0, 1]), submit(&[0, 2]), Step::Pass(SECOND)],
            ),
        ),
        (
            "a permit settled after the limits were changed",
            story(
                &[
                    &[semaphore(2), interval(1, 1, 3)],
                    &[semaphore(4), interval(4, 2, 2)],
                ],
                vec![try_(&[1]), Step::Open(1), Step::Settle(0, 3), try_(&[2])],
            ),
        ),
        (
            "a reset after the limits were changed",
            story(
                &[&[bucket(1, 5, SECOND)], &[bucket(3, 3, 2 * SECOND)]],
                vec![submit(&[1]), Step::Open(1), Step::Reset(1, 0), try_(&[4])],
            ),
        ),
        (
            "a reset of a bucket that starts empty and was not used",
            story(
                &[&[flagged(bucket(6, 1, 2 * SECOND), spec::START_EMPTY)]],
                vec![
                    Step::Reset(0, 0),
                    Step::Pass(2_926_783),
                    try_(&[1]),
                    try_(&[1]),
                ],
            ),
        ),
        (
            "a bucket that starts empty and has been full for a minute",
            story(
                &[&[flagged(bucket(6, 1, 2 * SECOND), spec::START_EMPTY)]],
                vec![
                    try_(&[1]),
                    Step::Pass(71 * SECOND),
                    try_(&[1]),
                    Step::Pass(62 * SECOND),
                    Step::Peek(ask(&[1], None)),
                    Step::Pass(10 * SECOND),
                    Step::Peek(ask(&[1], None)),
                    try_(&[1]),
                    Step::Pass(2 * SECOND),
                    try_(&[1]),
                ],
            ),
        ),
        (
            "a pacer's settle to less while others wait",
            story(
                &[&[pacer(3, 1, 1000)]],
                vec![try_(&[7]), submit(&[2]), Step::Settle(0, 4), try_(&[4])],
            ),
        ),
        (
            "a pacer's burst after a wait was moved",
            story(
                &[&[pacer(2, 1, 0)]],
                vec![
                    submit(&[3]),
                    submit(&[3]),
                    Step::Pass(1000),
                    submit(&[3]),
                    Step::Cancel(0, true),
                    try_(&[1]),
                ],
            ),
        ),
        (
            "a pacer that was quiet up to the very slot",
            story(
                &[&[pacer(0, 3, 1000)]],
                vec![
                    Step::Pass(333_333),
                    submit(&[2]),
                    Step::Pass(666_667),
                    submit(&[1]),
                    try_(&[2]),
                ],
            ),
        ),
        (
            "the numbers of what never fits, after a cancel",
            story(
                &[&[interval(6, 4, 2), window(2, 2)]],
                vec![
                    try_(&[1]),
                    submit(&[1]),
                    submit(&[2]),
                    submit(&[1]),
                    Step::Cancel(1, true),
                    try_(&[7]),
                ],
            ),
        ),
        (
            "something given back just before a wait is over",
            story(
                &[&[limit(spec::SLIDING_COUNTER, 4, 0, 3 * SECOND)]],
                vec![
                    try_(&[1]),
                    try_(&[3]),
                    submit(&[1]),
                    Step::Pass(4_999_000),
                    Step::Settle(1, 0),
                ],
            ),
        ),
        (
            "a paced call that started, given back after the limits were changed",
            story(
                &[&[interval(1, 3, 2)], &[interval(5, 1, 1)]],
                vec![
                    Step::Pace(ask(&[1], Some(4388))),
                    Step::Pass(333_334),
                    Step::Open(1),
                    Step::Pass(100_000),
                    Step::Release(0),
                    Step::Pass(SECOND),
                    Step::Peek(ask(&[2], None)),
                ],
            ),
        ),
        (
            "a settle after a reset that was forgotten since",
            story(
                &[&[limit(spec::UNLIMITED, 0, 0, 0)]],
                vec![
                    Step::Penalize(0, 0, 3_136_035),
                    Step::Reset(0, 0),
                    Step::Pass(31 * SECOND),
                    submit(&[1]),
                    Step::Settle(0, 0),
                ],
            ),
        ),
        (
            "when to come back to permits that are renewed, some of them not",
            story(
                &[&[semaphore(3)]],
                vec![
                    try_(&[1]),
                    Step::Pass(SECOND),
                    try_(&[3]),
                    lent(&[1], 2500),
                    Step::Pass(SECOND),
                    lent(&[1], 2500),
                    try_(&[1]),
                    try_(&[2]),
                    try_(&[3]),
                ],
            ),
        ),
        (
            "when to come back to a permit that is booked",
            story(
                &[&[
                    semaphore(1),
                    flagged(bucket(6, 1, 2 * SECOND), spec::START_EMPTY),
                ]],
                vec![Step::Submit(not_renewed(ask(&[1], None))), try_(&[1])],
            ),
        ),
        (
            "a penalty that is over before the first who waits may start",
            story(
                &[&[bucket(1, 1, 2 * SECOND), semaphore(5)]],
                vec![
                    try_(&[1]),
                    submit(&[1]),
                    Step::Penalize(0, 0, SECOND),
                    try_(&[1, 5]),
                ],
            ),
        ),
        (
            "a permit of other limits that is settled while others wait",
            story(
                &[&[bucket(4, 2, 2 * SECOND)], &[bucket(3, 5, SECOND)]],
                vec![
                    try_(&[2]),
                    submit(&[2]),
                    Step::Pass(1_700_000),
                    Step::Open(1),
                    submit(&[2]),
                    Step::Settle(0, 1),
                    Step::Pass(1_000),
                ],
            ),
        ),
        (
            "limits raised for those who are booked on a semaphore and a rate",
            story(
                &[
                    &[semaphore(5), pacer(0, 5, 1000)],
                    &[semaphore(2), pacer(2, 5, 1000)],
                ],
                vec![
                    lent(&[1], 150),
                    submit(&[1]),
                    submit(&[1]),
                    Step::Open(1),
                    Step::Pass(333_333),
                ],
            ),
        ),
        (
            "a lease that became shorter while a wait for it went on",
            story(
                &[
                    &[flagged(leased(4, 3000), spec::NO_RENEW)],
                    &[flagged(leased(6, 1000), spec::NO_RENEW)],
                ],
                vec![
                    lent(&[2], 2500),
                    submit(&[3]),
                    Step::Open(1),
                    Step::Pass(SECOND),
                ],
            ),
        ),
        (
            "a wait for a semaphore and a rate that is cancelled before another",
            story(
                &[&[semaphore(3), log(1, 2)]],
                vec![
                    submit(&[1]),
                    Step::Pass(1_700_000),
                    submit(&[1]),
                    submit(&[1]),
                    Step::Cancel(1, false),
                    try_(&[1]),
                ],
            ),
        ),
    ]
}
