//! liblimiter: limits what programs do across machines, behind one C ABI.
//!
//! The map, from the bottom up; each layer knows only those above it in this list:
//! - [`limit`]: the algorithms, pure: state + time + weight -> decision.
//! - [`decision`]: the words every layer shares: status, decision.
//! - [`config`]: a client's settings, from strings.
//! - [`stats`]: what is counted. [`sync`]: locks that a bug does not poison. `pages`, `dense`: very many of a kind.
//! - [`runtime`], [`fork`]: the library's threads, and what a fork does to what it holds.
//! - [`clock`], [`timer`]: time, and what falls due.
//! - [`op`], [`queue`], [`callback`], over [`mailbox`]: what is asked, and the ways its one answer takes.
//! - [`permit`]: the numbers of what is held.
//! - [`memory`]: the embedded backend.
//! - [`redis`]: the backend that shares limits between processes.
//! - [`backend`]: either of them.
//! - [`client`], [`limiter`]: what the handles are.
//! - [`ffi`]: the C ABI, from which include/limiter.h is generated.
#![deny(unsafe_code)]

pub mod backend;
pub mod callback;
pub mod client;
pub mod clock;
pub mod config;
pub mod decision;
mod dense;
pub mod ffi;
pub mod fork;
pub mod limit;
pub mod limiter;
pub mod mailbox;
pub mod memory;
pub mod op;
mod pages;
pub mod permit;
pub mod queue;
pub mod redis;
pub mod runtime;
pub mod stats;
pub mod sync;
pub mod timer;
