//! The Redis backend on real servers: the verbs, waiting, and what happens when Redis fails.
#[path = "../support/mod.rs"]
mod support;

mod ahead;
mod crowd;
mod denying;
mod doors;
mod dying;
mod failing;
mod failovers;
mod fleet;
mod flushing;
mod forking;
mod garbage;
mod ghosts;
mod holding;
mod intervals;
mod kit;
mod lining;
mod load;
mod local;
mod named;
mod parity;
mod penalized;
mod queueing;
mod refusing;
mod sharing;
mod skew;
mod sooner;
mod storm;
mod toggling;
mod trouble;
mod verbs;
mod virtual_time;
mod waiting;
