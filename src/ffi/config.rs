//! limiter_config_t: settings before a client is opened.
use std::ffi::{c_char, c_void};
use std::sync::Arc;

use crate::config::{Config, Level, Log};
use crate::ffi::args::text;
use crate::ffi::guard::{Refusal, guard, set_up};
use crate::ffi::types::*;

/// == Settings ==
///
/// A client that needs none passes NULL. Keys and values are strings:
///
///     clock               monotonic | virtual     virtual, for tests, stands still until
///                                                 limiter_clock_advance_us()
///     lease_ms            100 to 86400000         default 30000: a permit's life unless renewed
///     max_waiting         1 to 10000000           default 100000: waits under way, and paced calls
///                                                 behind a wait; more answer LIMITER_OVERLOADED
///     max_penalty_ms      1 to 86400000           default 3600000: longest limiter_penalize()
///
/// and those that only a client on Redis reads (any other checks them too):
///
///     prefix              up to 256 bytes         default "limiter": what Redis keys begin with
///     command_timeout_ms  1 to 60000              default 250: longest wait for one Redis answer
///     deny_cache_ms       0 to 1000               default 1000: for so long at most a denial by
///                                                 rates is repeated without asking Redis, as long
///                                                 as it stands and this client leaves the key alone
///     take_ahead_ms       0 to 1000               default 0, off: for so long at most units of a
///                                                 busy token bucket are kept that were taken
///                                                 ahead, to admit calls without asking Redis
///     on_failure          error | open |          default error: when Redis cannot answer, the call
///                         closed | local          fails (LIMITER_BACKEND); or passes; or is
///                                                 denied; or is decided in this process, by the
///                                                 limits divided by the number of processes
///     processes           1 to 1000000            default 1: that number, until Redis has told it
///     username, password  1 to 1024 bytes         default: those of the URL
///     sentinel_username,  1 to 1024 bytes         default: none; the sentinels' own
///     sentinel_password
///     tls_ca_file         a PEM file              default: the system's authorities
///     tls_insecure        no | yes                default no: yes skips verifying the server
/// ==
/// New settings, all at their defaults. Never NULL. Free them with
/// limiter_config_free().
#[unsafe(no_mangle)]
pub extern "C" fn limiter_config_new() -> *mut limiter_config_t {
    guard(std::ptr::null_mut(), || {
        Box::into_raw(Box::new(limiter_config_t(Config::default())))
    })
}

/// Sets `key` to `value`; both are NUL-terminated UTF-8 and copied. LIMITER_CONFIG for an unknown key
/// or a value out of range: errbuf names the key, and of a value what is allowed, and the setting stays as it was.
/// LIMITER_INVALID for NULL or text that is not UTF-8.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_config_set(
    config: *mut limiter_config_t,
    key: *const c_char,
    value: *const c_char,
    errbuf: *mut c_char,
    errcap: usize,
) -> limiter_status {
    unsafe {
        set_up(errbuf, errcap, || {
            let config = config
                .as_mut()
                .ok_or_else(|| Refusal::invalid("config is NULL"))?;
            let (key, value) = setting(key, value)?;
            config.0.set(key, value).map_err(Refusal::config)
        })
    }
}

/// Sends log records up to `level` (1 error to 4 debug; 0 none) to `log`, or nowhere for NULL, which is
/// the default. `user_data` is handed to each call and must live as long as the client: until
/// limiter_client_free() answered LIMITER_OK, see there.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_config_set_log(
    config: *mut limiter_config_t,
    level: i32,
    log: limiter_log_fn,
    user_data: *mut c_void,
) {
    guard((), || {
        let Some(config) = (unsafe { config.as_mut() }) else {
            return;
        };
        let user_data = UserData(user_data);
        config.0.log = log.map(|log| Log {
            level,
            write: Arc::new(move |level: Level, message: &str| {
                let message: Vec<u8> = message.bytes().filter(|&b| b != 0).chain([0]).collect();
                log(user_data.get(), level as i32, message.as_ptr().cast());
            }),
        });
    })
}

/// Calls `lost` for each permit whose lease ended while it was held, or nothing for NULL, which is the
/// default. `user_data` is handed to each call and must live as long as the client: until
/// limiter_client_free() answered LIMITER_OK, see there.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_config_set_lost(
    config: *mut limiter_config_t,
    lost: limiter_lost_fn,
    user_data: *mut c_void,
) {
    guard((), || {
        let Some(config) = (unsafe { config.as_mut() }) else {
            return;
        };
        let user_data = UserData(user_data);
        config.0.lost =
            lost.map(|lost| Arc::new(move |permit| lost(user_data.get(), permit)) as Arc<_>);
    })
}

/// Frees settings; a client that was opened with them keeps its copy. NULL is ignored.
///
/// # Safety
/// See the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn limiter_config_free(config: *mut limiter_config_t) {
    guard((), || {
        if !config.is_null() {
            drop(unsafe { Box::from_raw(config) });
        }
    })
}

/// The key and the value of a setting.
///
/// # Safety
/// Both are null or NUL-terminated.
pub unsafe fn setting<'a>(
    key: *const c_char,
    value: *const c_char,
) -> Result<(&'a str, &'a str), Refusal> {
    let key = unsafe { text(key) }.map_err(|_| Refusal::invalid("key is NULL or not UTF-8"))?;
    let value =
        unsafe { text(value) }.map_err(|_| Refusal::invalid("value is NULL or not UTF-8"))?;
    Ok((key, value))
}

/// A pointer of the caller's that is handed back and never looked at.
#[derive(Clone, Copy)]
pub struct UserData(*mut c_void);

// SAFETY: it is only ever handed back; the header tells the caller that calls come from any thread.
unsafe impl Send for UserData {}
unsafe impl Sync for UserData {}

impl UserData {
    pub fn new(pointer: *mut c_void) -> UserData {
        UserData(pointer)
    }

    pub fn get(self) -> *mut c_void {
        self.0
    }
}
