//! The pure layer: its invariants as properties, the recorded behaviour of other limiters, and the
//! reported bugs of others as cases. Time is a number here; nothing sleeps.
mod cancel;
mod cases;
mod clock;
mod composite;
mod edges;
mod exact;
mod harness;
mod invariants;
mod quota;
mod reconfigure;
mod saturated;
mod settle;
mod share;
mod turns;
mod vectors;
