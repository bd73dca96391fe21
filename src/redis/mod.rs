//! The Redis backend: shares limits between processes.
//!
//! - [`keys`]: how keys are named there. [`wire`]: what is said to a script, and what it says.
//! - [`script`]: what runs in Redis, put together for a limiter.
//! - [`link`]: connections: what is sent, at most how often, and what a failure means.
pub mod keys;
pub mod link;
pub mod script;
pub mod wire;
