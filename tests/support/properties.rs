//! How often properties are tried.
use proptest::prelude::ProptestConfig;

/// So many random cases, or `LIMITER_TIMES` as many. A failure prints its input; nothing is written beside the
/// sources.
pub fn cases(cases: u32) -> ProptestConfig {
    let times = std::env::var("LIMITER_TIMES").map_or(1, |times| times.parse().unwrap());
    ProptestConfig {
        cases: cases * times,
        max_global_rejects: 1_024 * times,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}
