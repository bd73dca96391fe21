//! The script a limiter runs in Redis: put together from `scripts/`, only what its kinds of limit need;
//! and the text of its limits' parameters.
use crate::limit::decide::Limits;
use crate::limit::fixed_window::Align;
use crate::limit::rule::{Kind, Limit, Rule};

macro_rules! part {
    ($name:literal) => {
        include_str!(concat!("../../scripts/", $name, ".lua"))
    };
}

/// A kind's letter: in the script, in the parameters, and in the names of keys.
pub fn letter(kind: Kind) -> char {
    match kind {
        Kind::Semaphore => 'S',
        Kind::TokenBucket => 'T',
        Kind::IntervalBucket => 'I',
        Kind::Pacer => 'P',
        Kind::SlidingLog => 'L',
        Kind::SlidingCounter => 'C',
        Kind::FixedWindow => 'W',
        Kind::Unlimited => 'U',
        Kind::Never => 'N',
    }
}

/// The part that implements a kind.
fn implementation(kind: Kind) -> &'static str {
    match kind {
        Kind::Semaphore => part!("semaphore"),
        Kind::TokenBucket => part!("token_bucket"),
        Kind::IntervalBucket => part!("interval_bucket"),
        Kind::Pacer => part!("pacer"),
        Kind::SlidingLog => part!("sliding_log"),
        Kind::SlidingCounter => part!("sliding_counter"),
        Kind::FixedWindow => part!("fixed_window"),
        Kind::Unlimited => part!("unlimited"),
        Kind::Never => part!("never"),
    }
}

/// The script for limiters of these kinds.
pub fn source(limits: &Limits) -> String {
    let mut kinds = limits.shape();
    kinds.sort();
    kinds.dedup();
    let mut source = String::from(part!("begin"));
    if limits.shape() == [Kind::TokenBucket] {
        source.push_str(part!("fast"));
    }
    source.push_str(part!("time"));
    source.push_str(part!("decide"));
    if kinds
        .iter()
        .any(|kind| matches!(kind, Kind::SlidingCounter | Kind::FixedWindow))
    {
        source.push_str(part!("windows"));
    }
    for &kind in &kinds {
        // What is local to a kind stays so.
        source.push_str("do\n");
        source.push_str(implementation(kind));
        source.push_str("end\n");
    }
    source.push_str(part!("state"));
    if limits.holds() {
        source.push_str(part!("holders"));
    }
    source.push_str(part!("main"));
    source
}

/// The limits' parameters, as scripts/state.lua reads them.
pub fn parameters(limits: &Limits) -> String {
    let each: Vec<String> = limits.limits().iter().map(parameters_of).collect();
    each.join("/")
}

fn parameters_of(limit: &Limit) -> String {
    let numbers: Vec<u64> = match &limit.rule {
        Rule::Semaphore(rule) => vec![rule.capacity()],
        Rule::TokenBucket(rule) => vec![
            rule.capacity(),
            rule.rate().units(),
            rule.rate().period(),
            rule.starts_empty().into(),
        ],
        Rule::IntervalBucket(rule) => vec![
            rule.capacity(),
            rule.refill(),
            rule.period().0,
            rule.starts_empty().into(),
        ],
        Rule::Pacer(rule) => vec![
            rule.burst(),
            rule.rate().units(),
            rule.rate().period(),
            rule.earn_permille(),
        ],
        Rule::SlidingLog(rule) => vec![rule.limit(), rule.window().0],
        Rule::SlidingCounter(rule) => vec![rule.limit(), rule.window().0],
        Rule::FixedWindow(rule) => {
            vec![
                rule.limit(),
                rule.window().0,
                (rule.align() == Align::Clock).into(),
            ]
        }
        Rule::Unlimited | Rule::Never => vec![],
    };
    let mut text = format!("{}{}", letter(limit.rule.kind()), u8::from(limit.per_call));
    for number in numbers {
        text.push_str(&format!(" {number}"));
    }
    text
}
