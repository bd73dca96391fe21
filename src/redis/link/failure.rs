//! What a failure means: whether the command ran, and what may be done about it.
//!
//! A server's error is sorted by its code alone. Redis checks for each of the "not executed" codes
//! before a script's first write and never after it, so such an answer means that nothing changed,
//! also when it was met inside a script.
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::ServerError;

use super::endpoint::Addr;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It did not run and will not. `retry_in` is when the obstacle is next looked at.
    NotExecuted { code: Arc<str>, retry_in: Duration },
    /// Its deadline passed before it could be sent.
    DeadlineNotSent { code: Arc<str> },
    /// It was sent and there is no reply: it may have run, or run later.
    Ambiguous(Silence),
    /// The server refuses our credentials. It did not run; connecting goes on, credentials change.
    Auth { code: Arc<str>, message: Arc<str> },
    /// A key of ours holds something else.
    WrongType { message: Arc<str> },
    /// The server says no, and will say it again.
    Permanent { code: Arc<str>, message: Arc<str> },
}

/// How a reply failed to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// None came in time.
    Timeout,
    /// The connection ended first.
    Dropped,
}

impl Failure {
    /// True if the command certainly did not run. An error that a script met on its way
    /// (`WrongType`, `Permanent`) may have come after its first writes.
    pub fn not_executed(&self) -> bool {
        use Failure::{Auth, DeadlineNotSent, NotExecuted};
        matches!(
            self,
            NotExecuted { .. } | DeadlineNotSent { .. } | Auth { .. }
        )
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::NotExecuted { code, .. } => write!(f, "not executed: {code}"),
            Failure::DeadlineNotSent { code } => write!(f, "deadline passed unsent: {code}"),
            Failure::Ambiguous(Silence::Timeout) => write!(f, "sent, no reply in time"),
            Failure::Ambiguous(Silence::Dropped) => write!(f, "sent, connection lost"),
            Failure::Auth { code, message } => write!(f, "{code} {message}"),
            Failure::WrongType { message } => write!(f, "WRONGTYPE {message}"),
            Failure::Permanent { code, message } => write!(f, "{code} {message}"),
        }
    }
}

impl std::error::Error for Failure {}

/// What to do about a server's error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Send the script's body.
    NoScript,
    /// The slot lives there now.
    Moved(u16, Target),
    /// This once, ask there.
    Ask(Target),
    /// Not executed; the same server may take it a little later.
    Later,
    /// Not executed; this server is the wrong one now.
    Elsewhere,
    Final(Failure),
}

/// A redirection's address; no host means the one that answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub host: Option<String>,
    pub port: u16,
}

impl Target {
    pub fn addr(&self, answered: &Addr) -> Addr {
        match (&self.host, answered) {
            (Some(host), _) => Addr::Tcp(host.as_str().into(), self.port),
            (None, Addr::Tcp(host, _)) => Addr::Tcp(host.clone(), self.port),
            (None, Addr::Unix(_)) => answered.clone(),
        }
    }
}

pub(super) fn classify(error: &ServerError) -> Class {
    let code = error.code();
    let message = error.details().unwrap_or("");
    match code {
        "NOSCRIPT" => Class::NoScript,
        "MOVED" | "ASK" => match redirection(message) {
            Some((slot, target)) if code == "MOVED" => Class::Moved(slot, target),
            Some((_, target)) => Class::Ask(target),
            None => Class::Later,
        },
        "LOADING" | "BUSY" | "TRYAGAIN" | "NOREPLICAS" | "MISCONF" | "OOM" => Class::Later,
        "READONLY" | "MASTERDOWN" | "CLUSTERDOWN" => Class::Elsewhere,
        _ => Class::Final(finally(code, message)),
    }
}

fn finally(code: &str, message: &str) -> Failure {
    match code {
        "NOAUTH" | "WRONGPASS" => Failure::Auth {
            code: code.into(),
            message: message.into(),
        },
        "WRONGTYPE" => Failure::WrongType {
            message: message.into(),
        },
        _ => Failure::Permanent {
            code: code.into(),
            message: message.into(),
        },
    }
}

/// `3999 127.0.0.1:6381`, `3999 :6381`, `3999 ?:6381`, `3999 ::1:6381`.
fn redirection(details: &str) -> Option<(u16, Target)> {
    let mut words = details.split(' ');
    let slot = words
        .next()?
        .parse()
        .ok()
        .filter(|slot| *slot < super::slots::SLOTS)?;
    let (host, port) = words.next()?.rsplit_once(':')?;
    let target = Target {
        host: (!host.is_empty() && host != "?").then(|| host.to_owned()),
        port: port.parse().ok()?,
    };
    Some((slot, target))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Class {
        let wire = format!("-{line}\r\n");
        match redis::parse_redis_value(wire.as_bytes()).unwrap() {
            redis::Value::ServerError(error) => classify(&error),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_code_has_its_class() {
        assert_eq!(of("NOSCRIPT No matching script."), Class::NoScript);
        for line in [
            "LOADING Redis is loading the dataset in memory",
            "BUSY Redis is busy running a script.",
            "TRYAGAIN Multiple keys request during rehashing of slot",
            "NOREPLICAS Not enough good replicas to write.",
            "MISCONF Redis is configured to save RDB snapshots",
            "OOM command not allowed when used memory > 'maxmemory'. script: 3f, on @user_script:1.",
        ] {
            assert_eq!(of(line), Class::Later, "{line}");
        }
        for line in [
            "READONLY You can't write against a read only replica. script: 1",
            "MASTERDOWN Link with MASTER is down",
            "CLUSTERDOWN The cluster is down",
        ] {
            assert_eq!(of(line), Class::Elsewhere, "{line}");
        }
        assert!(matches!(of("NOAUTH x"), Class::Final(Failure::Auth { .. })));
        assert!(matches!(
            of("WRONGPASS x"),
            Class::Final(Failure::Auth { .. })
        ));
        assert!(matches!(
            of("WRONGTYPE x"),
            Class::Final(Failure::WrongType { .. })
        ));
        for line in [
            "NOPERM x",
            "CROSSSLOT x",
            "ERR x",
            "LIMITERGARBAGE x",
            "BUSYKEY x",
        ] {
            assert!(
                matches!(of(line), Class::Final(Failure::Permanent { .. })),
                "{line}"
            );
        }
    }

    #[test]
    fn redirections_parse() {
        let target = |host: Option<&str>, port| Target {
            host: host.map(str::to_owned),
            port,
        };
        assert_eq!(
            of("MOVED 3999 h:6381"),
            Class::Moved(3999, target(Some("h"), 6381))
        );
        assert_eq!(of("MOVED 1 :6381"), Class::Moved(1, target(None, 6381)));
        assert_eq!(of("ASK 1 ?:6381"), Class::Ask(target(None, 6381)));
        assert_eq!(of("ASK 1 ::1:6381"), Class::Ask(target(Some("::1"), 6381)));
        for nonsense in [
            "MOVED",
            "MOVED 1",
            "MOVED 16384 h:1",
            "MOVED 1 h:99999",
            "MOVED x h:1",
        ] {
            assert_eq!(of(nonsense), Class::Later, "{nonsense}");
        }
        let asked = Addr::Tcp("here".into(), 1);
        assert_eq!(target(None, 7).addr(&asked), Addr::Tcp("here".into(), 7));
    }
}
