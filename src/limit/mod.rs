//! The algorithms: state + time + weight -> decision. Nothing here knows a clock, a lock or a socket.
pub mod time;
