//! limiter_client_t: open, shut down, free.
use std::ffi::c_char;

use crate::client::Client;
use crate::config::Config;
use crate::decision::Status;
use crate::ffi::args::{handle, text};
use crate::ffi::guard::{Refusal, set_up, status};
use crate::ffi::types::*;
use crate::ffi::verbs::wait_of;

/// == Client ==
///
/// One client for each backend is enough for a program: it is made for many threads.
/// ==
/// Opens a client. `url` says where the state lives; NULL means "memory://", which is this process's
/// own memory. redis://[user:password@]host[:port][/database], rediss:// (TLS), unix:///path,
/// redis-cluster://host:port,host:port and redis-sentinel://host:port,host:port/master share it over all
/// processes that use the name; rediss-cluster:// and rediss-sentinel:// with TLS. `config` is copied; NULL
/// means the defaults. Never connects and never waits: a backend that is down shows at the first call. On success `*client` is set, to be freed with
/// limiter_client_free(); on failure it is NULL. LIMITER_CONFIG for a URL that cannot be used; the
/// message never repeats a password.
///
/// # Safety
/// See the header.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_client_open(
    url: *const c_char,
    config: *const limiter_config_t,
    client: *mut *mut limiter_client_t,
    errbuf: *mut c_char,
    errcap: usize,
) -> limiter_status {
    unsafe {
        set_up(errbuf, errcap, || {
            let slot = client
                .as_mut()
                .ok_or_else(|| Refusal::invalid("client is NULL"))?;
            *slot = std::ptr::null_mut();
            let url = match url.is_null() {
                true => "memory://",
                false => text(url).map_err(|_| Refusal::invalid("url is not UTF-8"))?,
            };
            let defaults = Config::default();
            let config = config.as_ref().map_or(&defaults, |c| &c.0);
            let opened = Client::open(url, config).map_err(Refusal::config)?;
            *slot = Box::into_raw(Box::new(limiter_client_t(opened)));
            Ok(())
        })
    }
}

/// Ends a client's work: no new call is accepted, every wait completes with LIMITER_CLOSED, callbacks
/// that are due run, and permits still held are released, for up to `timeout_ms` (negative: without
/// limit). LIMITER_TIMEOUT if that did not suffice; the client is closed all the same. May be repeated,
/// and called from any thread; handles stay valid and answer LIMITER_CLOSED. Blocks. Not from a callback.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_client_shutdown(
    client: *mut limiter_client_t,
    timeout_ms: i32,
) -> limiter_status {
    status(|| unsafe { handle(client) }?.0.shutdown(wait_of(timeout_ms)))
}

/// Shuts a client down, if that was not done, for up to a second, and frees it. Its limiters and
/// queues stay valid, answer LIMITER_CLOSED, and may be freed before or after. NULL is ignored. Blocks.
/// Not from a callback: there it answers LIMITER_WOULD_DEADLOCK and frees nothing.
///
/// LIMITER_TIMEOUT: freed, but a callback took longer than that second, and those behind it are still to
/// run, the log and lost-lease hooks included: what they use must live on, and nothing tells when they are
/// done. Who cannot have that calls limiter_client_shutdown() first, with as much time as it takes.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_client_free(client: *mut limiter_client_t) -> limiter_status {
    status(|| {
        let Some(opened) = (unsafe { client.as_ref() }) else {
            return Ok(Status::Ok);
        };
        // However the shutdown went, the handle goes; only a callback must not wait for itself.
        let ended = opened.0.shutdown(wait_of(1_000));
        if let Err(Status::WouldDeadlock) = ended {
            return Err(Status::WouldDeadlock);
        }
        drop(unsafe { Box::from_raw(client) });
        ended
    })
}
