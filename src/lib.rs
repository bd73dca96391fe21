//! liblimiter: limits what programs do across machines, behind one C ABI.
//!
//! The map, from the bottom up; each layer knows only those above it in this list:
//! - [`limit`]: the algorithms, pure: state + time + weight -> decision.
//! - [`decision`]: the words every layer shares: status, decision.
#![deny(unsafe_code)]

pub mod decision;
pub mod limit;
