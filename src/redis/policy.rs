//! What a caller hears when Redis has no answer: the client's failure policy.
use crate::config::FailurePolicy;
use crate::decision::{DEGRADED, Decision, Status};

use super::link::Failure;

/// An error, or the policy's answer in its place.
pub fn answer(policy: FailurePolicy, failure: &Failure) -> Decision {
    match policy {
        FailurePolicy::Open => Decision {
            flags: DEGRADED,
            ..Decision::of(Status::Ok)
        },
        FailurePolicy::Closed => Decision {
            flags: DEGRADED,
            retry_after_us: retry_after(failure),
            ..Decision::of(Status::Denied)
        },
        // Where this process can answer in its place, it was asked before.
        FailurePolicy::Error | FailurePolicy::Local => Decision::of(status(failure)),
    }
}

/// What a failure means to whoever has to know.
pub fn status(failure: &Failure) -> Status {
    match failure {
        Failure::Ambiguous(_) => Status::UnknownOutcome,
        _ => Status::Backend,
    }
}

/// When to come back if nothing better is known, in microseconds.
pub const USUAL: u64 = 100_000;

/// When the server is next looked at, in microseconds.
fn retry_after(failure: &Failure) -> u64 {
    match failure {
        Failure::NotExecuted { retry_in, .. } if !retry_in.is_zero() => {
            u64::try_from(retry_in.as_micros()).unwrap_or(USUAL)
        }
        _ => USUAL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::link::Silence;
    use std::time::Duration;

    #[test]
    fn each_policy_answers_in_its_way() {
        let down = Failure::NotExecuted {
            code: "DOWN".into(),
            retry_in: Duration::from_millis(40),
        };
        let lost = Failure::Ambiguous(Silence::Dropped);
        let of = |policy, failure| answer(policy, failure);
        assert_eq!(of(FailurePolicy::Error, &down).status, Status::Backend);
        let unknown = of(FailurePolicy::Error, &lost);
        assert_eq!((unknown.status, unknown.flags), (Status::UnknownOutcome, 0));
        let open = of(FailurePolicy::Open, &lost);
        assert_eq!(
            (open.status, open.flags, open.permit),
            (Status::Ok, DEGRADED, 0)
        );
        let closed = of(FailurePolicy::Closed, &down);
        assert_eq!((closed.status, closed.flags), (Status::Denied, DEGRADED));
        assert_eq!(closed.retry_after_us, 40_000);
        assert!(of(FailurePolicy::Closed, &lost).retry_after_us > 0);
    }
}
