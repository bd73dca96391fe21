//! The virtual clock of a memory client, for tests that must not sleep.
use crate::ffi::args::handle;
use crate::ffi::guard::{guard, status};
use crate::ffi::types::*;
use crate::limit::time::{Span, Time};

/// == Virtual clock ==
///
/// A client opened with clock = virtual stands still until it is told to go on, so a program's own tests
/// need not sleep. It starts at 1 000 000 000 000 000 microseconds. Waits run on it too: a call that
/// blocks returns only when another thread moves the clock, so a test with one thread waits for nothing,
/// or submits. LIMITER_UNSUPPORTED on every other client.
///
/// On Redis such a client tells the server its own time, so nobody else may use the same keys: give it a
/// prefix of its own. What has been asked is answered, and who waits is looked at, when the clock is moved,
/// also by 0: that blocks for some round trips (LIMITER_TIMEOUT: an answer took too long).
/// ==
/// Lets `us` microseconds pass. Everything that falls due on the way (booked starts, deadlines, leases)
/// happens in order and at its own time before this returns; callbacks are started, not awaited.
/// LIMITER_INVALID, and no time passes, if that would lead beyond the largest time, 2^52.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_clock_advance_us(
    client: *mut limiter_client_t,
    us: u64,
) -> limiter_status {
    status(|| unsafe { handle(client) }?.0.clock_advance(Span(us)))
}

/// Sets the clock to `us` microseconds since 1970. Forwards is limiter_clock_advance_us(); backwards is
/// what a clock that steps back does to a limiter: no time has passed, limiter_clock_now_us() stays where it
/// was, and the next step forward counts from `us`. LIMITER_INVALID beyond the largest time, 2^52.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_clock_set_us(
    client: *mut limiter_client_t,
    us: u64,
) -> limiter_status {
    status(|| unsafe { handle(client) }?.0.clock_set(Time(us)))
}

/// What the clock shows, in microseconds since 1970; real time for a clock that is not virtual. 0 for a
/// NULL client.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_clock_now_us(client: *const limiter_client_t) -> u64 {
    guard(0, || {
        unsafe { handle(client) }
            .and_then(|c| c.0.clock_now())
            .map_or(0, |t| t.0)
    })
}
