//! Public bug reports of other limiters, by their numbers: what broke them, and what is right; each in
//! memory and on Redis. TABLE.md, which check.sh writes, tells the tests of each row, here and elsewhere.
#[path = "../support/mod.rs"]
mod support;

mod clocks;
mod inputs;
mod place;
mod waits;
