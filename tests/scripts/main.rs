//! The scripts of the Redis backend, run in an embedded Lua 5.1 on a pretended server: the same
//! questions get the same answers as from src/limit, field by field, whatever the clock does.
mod differential;
mod holders;
mod logs;
mod plain;
mod random;
#[allow(dead_code)] // some of it is tests/sim's
mod server;
mod sim;
