//! What a caller hears when Redis has no answer: the client's failure policy.
use crate::config::FailurePolicy;
use crate::decision::{DEGRADED, Decision, MAYBE_CHARGED, Status};

use super::link::Failure;

/// An error, or the policy's answer in its place. `charges`: if the call was run, it may have taken
/// something that nobody gives back.
pub fn answer(policy: FailurePolicy, failure: &Failure, charges: bool) -> Decision {
    match policy {
        FailurePolicy::Open => Decision {
            flags: flags(failure, charges),
            ..Decision::of(Status::Ok)
        },
        FailurePolicy::Closed => Decision {
            flags: flags(failure, charges),
            retry_after_us: retry_after(failure),
            ..Decision::of(Status::Denied)
        },
        // Where this process can answer in its place, it was asked before.
        FailurePolicy::Error | FailurePolicy::Local => Decision::of(match charges {
            true => status(failure),
            false => Status::Backend,
        }),
    }
}

/// Those of an answer in the place of Redis's.
pub fn flags(failure: &Failure, charges: bool) -> u32 {
    match status(failure) {
        Status::UnknownOutcome if charges => DEGRADED | MAYBE_CHARGED,
        _ => DEGRADED,
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
        let of = |policy, failure| answer(policy, failure, true);
        assert_eq!(of(FailurePolicy::Error, &down).status, Status::Backend);
        let unknown = of(FailurePolicy::Error, &lost);
        assert_eq!((unknown.status, unknown.flags), (Status::UnknownOutcome, 0));
        let open = of(FailurePolicy::Open, &lost);
        assert_eq!(
            (open.status, open.flags, open.permit),
            (Status::Ok, DEGRADED | MAYBE_CHARGED, 0)
        );
        let closed = of(FailurePolicy::Closed, &down);
        assert_eq!((closed.status, closed.flags), (Status::Denied, DEGRADED));
        assert_eq!(closed.retry_after_us, 40_000);
        assert!(of(FailurePolicy::Closed, &lost).retry_after_us > 0);
    }

    #[test]
    fn a_lost_answer_matters_only_to_what_charges() {
        let lost = Failure::Ambiguous(Silence::Timeout);
        for policy in [FailurePolicy::Open, FailurePolicy::Closed] {
            assert_eq!(answer(policy, &lost, false).flags, DEGRADED);
            assert_eq!(answer(policy, &lost, true).flags, DEGRADED | MAYBE_CHARGED);
        }
        let looked = answer(FailurePolicy::Error, &lost, false);
        assert_eq!((looked.status, looked.flags), (Status::Backend, 0));
    }
}
