//! How many processes use a limiter. Each says in every beat that it lives, and hears how many do; that
//! is what the limits are divided by while Redis does not answer.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::Value;

use super::keys::Names;
use super::link::{Args, Call, Script};
use super::wire::Id;
use crate::limit::time::Span;

/// How often a process says that it lives.
pub const BEAT: Duration = Duration::from_secs(1);

/// For how long that holds: two beats may get lost.
const LIFE: Span = Span(3_500_000);

/// The processes of one limiter, as one of them knows them.
pub struct Census {
    key: String,
    me: Id,
    script: Arc<Script>,
    /// The last two counts. The greater of them counts: who is late for one beat is not gone.
    last: AtomicU64,
    before: AtomicU64,
}

impl Census {
    /// `assumed`: how many there are as long as nothing was heard.
    pub fn new(names: &Names, me: Id, assumed: u64) -> Census {
        Census {
            key: names.census(),
            me,
            script: Script::new(include_str!("../../scripts/census.lua")),
            last: AtomicU64::new(assumed),
            before: AtomicU64::new(0),
        }
    }

    /// At least 1: this process.
    pub fn living(&self) -> u64 {
        let (last, before) = (&self.last, &self.before);
        let living = last
            .load(Ordering::Relaxed)
            .max(before.load(Ordering::Relaxed));
        living.max(1)
    }

    /// Says that this process lives, and asks who does.
    pub fn call(&self) -> Call {
        let mut args = Args::default();
        args.push(self.me.to_string()).push_number(LIFE.0);
        Call {
            script: self.script.clone(),
            keys: [&self.key].into_iter().collect(),
            args,
        }
    }

    /// The answer to that.
    pub fn heard(&self, answer: &Value) {
        if let Value::Int(count) = answer {
            let count = u64::try_from(*count).unwrap_or(0);
            let last = self.last.swap(count, Ordering::Relaxed);
            self.before.store(last, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::decide::Limits;
    use crate::limit::rule::{Limit, Rule};

    #[test]
    fn the_greater_of_two_counts_holds_and_before_that_what_was_assumed() {
        let limit = Limit {
            rule: Rule::Unlimited,
            per_call: false,
        };
        let names = Names::new("p", b"n", &Limits::new(vec![limit], 0).unwrap());
        let census = Census::new(&names, Id(7), 4);
        assert_eq!(census.living(), 4);
        for (count, living) in [(3, 4), (2, 3), (2, 2), (5, 5), (1, 5), (0, 1), (0, 1)] {
            census.heard(&Value::Int(count));
            assert_eq!(census.living(), living, "after {count}");
        }
        census.heard(&Value::Okay);
        census.heard(&Value::Int(9));
        assert_eq!(census.living(), 9);
    }
}
