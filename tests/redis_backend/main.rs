//! The Redis backend on real servers: the verbs, waiting, and what happens when Redis fails.
#[path = "../support/mod.rs"]
mod support;

mod failing;
mod forking;
mod kit;
mod parity;
mod sharing;
mod verbs;
mod waiting;
