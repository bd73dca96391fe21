//! The embedded backend. On a virtual clock, so that no test sleeps, but for those with real threads.
mod cancelling;
mod cases;
mod cases_more;
mod keys;
mod kit;
mod model;
mod penalties;
mod permits;
mod plain;
#[path = "../support/properties.rs"]
mod properties;
mod relaying;
mod settling;
mod threads;
mod waiting;
mod whole;
