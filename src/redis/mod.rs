//! The Redis backend: shares limits between processes.
//!
//! - [`link`]: connections: what is sent, at most how often, and what a failure means.
pub mod link;
