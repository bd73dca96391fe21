//! The C ABI: one file per handle, in the order a user meets them. The only unsafe code besides
//! `src/fork.rs`, and no algorithm: arguments are checked and turned into Rust values, a handle does
//! the work, its answer is written out. Nothing unwinds past [`guard`].
#![allow(unsafe_code, non_camel_case_types)]

mod args;
mod callback;
mod client;
mod clock;
mod config;
#[cfg(fuzzing)]
mod fuzzed;
mod guard;
mod limiter;
mod observe;
mod permit;
mod queue;
pub mod types;
mod verbs;
