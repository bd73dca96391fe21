//! liblimiter: limits what programs do across machines, behind one C ABI.
//!
//! The map, from the bottom up; each layer knows only those above it in this list:
//! - [`limit`]: the algorithms, pure: state + time + weight -> decision.
//! - [`decision`]: the words every layer shares: status, decision.
//! - [`config`]: a client's settings, from strings.
//! - [`runtime`], [`fork`]: the library's threads, and what a fork does to what it holds.
#![deny(unsafe_code)]

pub mod config;
pub mod decision;
pub mod fork;
pub mod limit;
pub mod runtime;
