//! The Redis backend on real servers: the verbs, waiting, and what happens when Redis fails.
#[path = "../support/mod.rs"]
mod support;

mod dying;
mod failing;
mod forking;
mod holding;
mod kit;
mod local;
mod parity;
mod queueing;
mod sharing;
mod storm;
mod trouble;
mod verbs;
mod virtual_time;
mod waiting;
