//! A client's settings: string keys, their ranges and defaults, in one place.
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::limit::time::Span;

/// What happens to a call that the backend cannot answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    Error,
    Open,
    Closed,
    Local,
}

impl FailurePolicy {
    const NAMES: [(&str, FailurePolicy); 4] = [
        ("error", FailurePolicy::Error),
        ("open", FailurePolicy::Open),
        ("closed", FailurePolicy::Closed),
        ("local", FailurePolicy::Local),
    ];
}

/// A limiter's own settings: what it has none of is the client's. May be changed while it is used.
#[derive(Debug, Default)]
pub struct Own {
    /// Index in [`FailurePolicy::NAMES`] plus 1, or 0.
    on_failure: AtomicU8,
}

impl Own {
    /// Sets `key` of a limiter.
    pub fn set(&self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "on_failure" => {
                let chosen = choice(key, value, &FailurePolicy::NAMES)?;
                let index = FailurePolicy::NAMES.iter().position(|one| one.1 == chosen);
                let number = index.map_or(0, |index| index as u8 + 1);
                self.on_failure.store(number, Ordering::Relaxed);
                Ok(())
            }
            _ => Err(format!(
                "a limiter has no setting \"{}\", only on_failure",
                short(key)
            )),
        }
    }

    pub fn on_failure(&self, config: &Config) -> FailurePolicy {
        let number = usize::from(self.on_failure.load(Ordering::Relaxed));
        let own = number
            .checked_sub(1)
            .and_then(|i| FailurePolicy::NAMES.get(i));
        own.map_or(config.on_failure, |own| own.1)
    }
}

/// Which clock a memory client runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockKind {
    Monotonic,
    Virtual,
}

/// Every setting, with its default.
#[derive(Clone)]
pub struct Config {
    pub clock: ClockKind,
    pub lease: Span,
    pub max_waiting: usize,
    pub max_penalty: Span,
    pub prefix: String,
    pub command_timeout: Span,
    /// For how long a denial is repeated without asking Redis.
    pub deny_cache: Span,
    /// For how long units of a bucket may be kept that were taken ahead of their use.
    pub take_ahead: Span,
    pub on_failure: FailurePolicy,
    /// How many share a limiter, as long as Redis has not said.
    pub processes: u64,
    pub username: Option<String>,
    pub password: Option<Secret>,
    /// Sentinels have log-ins of their own.
    pub sentinel_username: Option<String>,
    pub sentinel_password: Option<Secret>,
    pub tls_ca_file: Option<String>,
    pub tls_insecure: bool,
    pub log: Option<Log>,
    pub lost: Option<LostHook>,
}

/// Told of a permit whose lease ended while it was held.
pub type LostHook = Arc<dyn Fn(u64) + Send + Sync>;

/// Severity of a log record; the number is the ABI's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Error = 1,
    Warning = 2,
    Info = 3,
    Debug = 4,
}

/// Receives log records.
pub type LogHook = Arc<dyn Fn(Level, &str) + Send + Sync>;

/// Where log records go, and up to which level.
#[derive(Clone)]
pub struct Log {
    pub level: i32,
    pub write: LogHook,
}

impl Log {
    /// Whether records of `level` are wanted.
    pub fn hears(&self, level: Level) -> bool {
        level as i32 <= self.level
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Log(level {})", self.level)
    }
}

/// A value that must not be printed.
#[derive(Clone)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(***)")
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            clock: ClockKind::Monotonic,
            lease: Span::secs(30),
            max_waiting: 100_000,
            max_penalty: Span::secs(3_600),
            prefix: "limiter".into(),
            command_timeout: Span::millis(250),
            deny_cache: Span::secs(1),
            take_ahead: Span::ZERO,
            on_failure: FailurePolicy::Error,
            processes: 1,
            username: None,
            password: None,
            sentinel_username: None,
            sentinel_password: None,
            tls_ca_file: None,
            tls_insecure: false,
            log: None,
            lost: None,
        }
    }
}

/// Leases shorter than this would be lost to an ordinary pause; longer ones would outlive their use.
pub const LEASE_MS: RangeInclusive<u64> = 100..=86_400_000;

impl Config {
    /// Writes a log record, if the caller wants such. Never to be called under a lock.
    pub fn log(&self, level: Level, message: &str) {
        if let Some(log) = self.log.as_ref().filter(|log| log.hears(level)) {
            (log.write)(level, message);
        }
    }

    /// Sets `key`. The message names the key, never the value of a secret.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "clock" => {
                self.clock = choice(
                    key,
                    value,
                    &[
                        ("monotonic", ClockKind::Monotonic),
                        ("virtual", ClockKind::Virtual),
                    ],
                )?
            }
            "lease_ms" => self.lease = Span::millis(number(key, value, LEASE_MS)?),
            "max_waiting" => self.max_waiting = number(key, value, 1..=10_000_000)? as usize,
            "max_penalty_ms" => {
                self.max_penalty = Span::millis(number(key, value, 1..=86_400_000)?)
            }
            "prefix" => self.prefix = text(key, value, 0..=256)?,
            "command_timeout_ms" => {
                self.command_timeout = Span::millis(number(key, value, 1..=60_000)?)
            }
            "deny_cache_ms" => self.deny_cache = Span::millis(number(key, value, 0..=1_000)?),
            "take_ahead_ms" => self.take_ahead = Span::millis(number(key, value, 0..=1_000)?),
            "on_failure" => self.on_failure = choice(key, value, &FailurePolicy::NAMES)?,
            "processes" => self.processes = number(key, value, 1..=1_000_000)?,
            "username" => self.username = Some(text(key, value, 1..=1024)?),
            "password" => self.password = Some(Secret(text(key, value, 1..=1024)?)),
            "sentinel_username" => self.sentinel_username = Some(text(key, value, 1..=1024)?),
            "sentinel_password" => {
                self.sentinel_password = Some(Secret(text(key, value, 1..=1024)?))
            }
            "tls_ca_file" => self.tls_ca_file = Some(text(key, value, 1..=4096)?),
            "tls_insecure" => {
                self.tls_insecure = choice(key, value, &[("no", false), ("yes", true)])?
            }
            _ => return Err(format!("unknown setting \"{}\"", short(key))),
        }
        Ok(())
    }
}

/// A plain decimal number in `range`: no sign, no exponent, no spaces.
fn number(key: &str, value: &str, range: RangeInclusive<u64>) -> Result<u64, String> {
    let plain = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
    plain
        .then(|| value.parse().ok())
        .flatten()
        .filter(|n| range.contains(n))
        .ok_or_else(|| {
            format!(
                "{key} must be a whole number from {} to {}, not \"{}\"",
                range.start(),
                range.end(),
                short(value)
            )
        })
}

fn choice<T: Copy>(key: &str, value: &str, choices: &[(&str, T)]) -> Result<T, String> {
    choices
        .iter()
        .find(|(name, _)| *name == value)
        .map(|(_, chosen)| *chosen)
        .ok_or_else(|| {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            format!(
                "{key} must be {}, not \"{}\"",
                names.join(" or "),
                short(value)
            )
        })
}

fn text(key: &str, value: &str, length: RangeInclusive<usize>) -> Result<String, String> {
    if length.contains(&value.len()) {
        return Ok(value.into());
    }
    Err(format!(
        "{key} must be {} to {} bytes long",
        length.start(),
        length.end()
    ))
}

/// Enough of a caller's text to recognise it in a message.
fn short(text: &str) -> String {
    let mut shown: String = text.chars().take(40).flat_map(char::escape_debug).collect();
    if text.chars().nth(40).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_takes_its_edges_and_names_its_range_beyond_them() {
        for (key, least, most) in [
            ("lease_ms", 100u64, 86_400_000u64),
            ("max_waiting", 1, 10_000_000),
            ("max_penalty_ms", 1, 86_400_000),
            ("command_timeout_ms", 1, 60_000),
            ("processes", 1, 1_000_000),
            ("deny_cache_ms", 0, 1_000),
            ("take_ahead_ms", 0, 1_000),
        ] {
            let mut config = Config::default();
            config.set(key, &least.to_string()).unwrap();
            config.set(key, &most.to_string()).unwrap();
            let below = least.checked_sub(1).unwrap_or(most + 1);
            for bad in [below.to_string(), (most + 1).to_string()] {
                let message = config.set(key, &bad).unwrap_err();
                assert!(
                    message.contains(key) && message.contains(&most.to_string()),
                    "{message}"
                );
            }
            for bad in [
                "",
                "NaN",
                "inf",
                "-1",
                "+1",
                "1e3",
                " 1",
                "1.0",
                "0x10",
                "9223372036854775808",
            ] {
                config.set(key, bad).unwrap_err();
            }
        }
    }

    #[test]
    fn unknown_keys_and_choices_are_refused_by_name() {
        let mut config = Config::default();
        assert!(config.set("lease", "1").unwrap_err().contains("\"lease\""));
        assert!(
            config
                .set("clock", "wall")
                .unwrap_err()
                .contains("monotonic or virtual")
        );
        let long = "x".repeat(65_536);
        assert!(config.set(&long, "").unwrap_err().len() < 100);
    }

    #[test]
    fn a_limiter_has_its_own_policy_or_the_clients() {
        let (own, mut config) = (Own::default(), Config::default());
        config.set("on_failure", "closed").unwrap();
        assert_eq!(own.on_failure(&config), FailurePolicy::Closed);
        for (name, policy) in FailurePolicy::NAMES {
            own.set("on_failure", name).unwrap();
            assert_eq!(own.on_failure(&config), policy);
        }
        let message = own.set("on_failure", "shut").unwrap_err();
        assert!(
            message.contains("error or open or closed or local"),
            "{message}"
        );
        assert!(own.set("lease_ms", "1").unwrap_err().contains("lease_ms"));
        assert_eq!(own.on_failure(&config), FailurePolicy::Local);
    }

    #[test]
    fn a_password_never_shows() {
        for key in ["password", "sentinel_password"] {
            let mut config = Config::default();
            config.set(key, "hunter2").unwrap();
            let shown = format!("{:?}{:?}", config.password, config.sentinel_password);
            assert!(!shown.contains("hunter2"));
            let message = config.set(key, &"hunter2".repeat(1000)).unwrap_err();
            assert!(!message.contains("hunter2"));
        }
    }
}
