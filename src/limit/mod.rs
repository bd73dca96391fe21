//! The algorithms: state + time + weight -> decision. Nothing here knows a clock, a lock or a socket.
//!
//! The map:
//! - [`decide`]: several limits together, which is what the backends call: [`Limits`](decide::Limits)
//!   decide over a [`KeyState`](key::KeyState), commit a [`Booking`](booking::Booking), cancel, settle,
//!   release; [`turn`]: those who wait; [`change`]: penalty, reset and other limits. [`ahead`] is the part
//!   of a key that only bookings and penalties need; [`weights`] are what a request asks for.
//! - [`rule`], `correct`: one limit, of any kind; [`state`]: what it remembers of a key, and what an admission took.
//! - one file for each kind: [`semaphore`], [`token_bucket`], [`interval_bucket`], [`pacer`],
//!   [`sliding_log`], [`sliding_counter`], [`fixed_window`]. [`ledger`] keeps buckets from giving
//!   anything back twice, [`windows`] remembers those that bookings have left behind.
//! - [`share`]: a process's part of the limits, if it is on its own. [`quota`]: units taken ahead of their use.
//! - [`rate`]: exact prices. [`bounds`]: what parameters may be. [`time`]: microseconds, and a clock that
//!   never runs backwards.
//!
//! A backend: `decide`; on `Admit` commit at now, on `Later(at)` deny, or commit at `at` and let the
//! caller start then. Store the key if it was charged (or `starts_empty`); forget it from `fresh_at` on.
pub mod ahead;
pub mod booking;
pub mod bounds;
pub mod change;
mod correct;
pub mod decide;
pub mod fixed_window;
pub mod interval_bucket;
pub mod key;
pub mod ledger;
mod log;
pub mod pacer;
pub mod quota;
pub mod rate;
pub mod rule;
pub mod semaphore;
pub mod share;
pub mod sliding_counter;
pub mod sliding_log;
pub mod state;
pub mod time;
pub mod token_bucket;
pub mod turn;
pub mod weights;
pub mod windows;
