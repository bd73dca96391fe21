//! The weights of one request: one for all limits, or one for each.
use crate::limit::rule::Limit;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Weights {
    One(u64),
    /// As many as there are limits.
    Each(Box<[u64]>),
}

impl Weights {
    /// What the request takes from `limit`, the one at `index`.
    pub fn of(&self, limit: &Limit, index: usize) -> u64 {
        let weight = match self {
            Weights::One(weight) => *weight,
            Weights::Each(weights) => weights[index],
        };
        if limit.per_call {
            weight.min(1)
        } else {
            weight
        }
    }

    /// Nothing is asked for: a peek.
    pub fn is_zero(&self) -> bool {
        match self {
            Weights::One(weight) => *weight == 0,
            Weights::Each(weights) => weights.iter().all(|w| *w == 0),
        }
    }
}
