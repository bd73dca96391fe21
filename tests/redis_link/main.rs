//! The link against real servers that are killed, frozen, cut off, demoted, resharded and locked.
//! Executions are counted by the server itself: every script increments a key.
mod basics;
mod cluster;
mod faults;
mod listening;
mod refusals;
mod rig;
mod sentinel;
#[path = "../support/mod.rs"]
mod support;
