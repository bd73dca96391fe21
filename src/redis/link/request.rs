//! What is sent: script calls and plain commands, and the cluster slot they belong to.
use std::sync::Arc;

use redis::Cmd;

use super::slots::slot_of;

/// A script's body and its name on the server.
#[derive(Debug)]
pub struct Script {
    source: String,
    sha: String,
}

impl Script {
    pub fn new(source: impl Into<String>) -> Arc<Script> {
        let source = source.into();
        let sha = redis::Script::new(&source).get_hash().to_owned();
        Arc::new(Script { source, sha })
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    /// SHA-1 of the source, in hexadecimal.
    pub fn sha(&self) -> &str {
        &self.sha
    }
}

/// A list of byte strings in one allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Args {
    data: Vec<u8>,
    ends: Vec<usize>,
}

impl Args {
    pub fn push(&mut self, arg: impl AsRef<[u8]>) -> &mut Args {
        self.data.extend_from_slice(arg.as_ref());
        self.ends.push(self.data.len());
        self
    }

    /// Appends a number in plain decimal.
    pub fn push_number(&mut self, number: u64) -> &mut Args {
        use std::io::Write;
        write!(self.data, "{number}").expect("a Vec takes every write");
        self.ends.push(self.data.len());
        self
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(start, end)| &self.data[start..*end])
    }
}

impl<A: AsRef<[u8]>> FromIterator<A> for Args {
    fn from_iter<I: IntoIterator<Item = A>>(args: I) -> Args {
        let mut list = Args::default();
        for arg in args {
            list.push(arg);
        }
        list
    }
}

/// A script with its keys and arguments. All keys must be in one slot.
#[derive(Clone, Debug)]
pub struct Call {
    pub script: Arc<Script>,
    pub keys: Args,
    pub args: Args,
}

/// May it be sent again after it was sent and no reply came?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Running it twice is running it once.
    Idempotent,
    /// An ambiguous end is the caller's to judge; it is never sent again.
    AtMostOnce,
}

/// One thing to send.
#[derive(Clone, Debug)]
pub struct Request {
    body: Body,
    slot: Option<u16>,
}

#[derive(Clone, Debug)]
enum Body {
    Call(Call),
    Command(Cmd),
}

impl From<Call> for Request {
    fn from(call: Call) -> Request {
        let slot = call.keys.iter().next().map(slot_of);
        debug_assert!(
            call.keys.iter().all(|key| Some(slot_of(key)) == slot),
            "keys of one call in several slots"
        );
        Request {
            body: Body::Call(call),
            slot,
        }
    }
}

impl Request {
    /// A plain command; `key` says which node of a cluster it is for, `None` means any.
    pub fn command(command: Cmd, key: Option<&[u8]>) -> Request {
        Request {
            body: Body::Command(command),
            slot: key.map(slot_of),
        }
    }

    pub(super) fn slot(&self) -> Option<u16> {
        self.slot
    }

    /// The script, if it is a call.
    pub(super) fn script(&self) -> Option<&Arc<Script>> {
        match &self.body {
            Body::Call(call) => Some(&call.script),
            Body::Command(_) => None,
        }
    }

    /// As it goes on the wire; a script by its name, or `whole` with its body.
    pub(super) fn encode(&self, whole: bool) -> Cmd {
        let call = match &self.body {
            Body::Command(command) => return command.clone(),
            Body::Call(call) => call,
        };
        let (verb, script) = match whole {
            true => ("EVAL", call.script.source()),
            false => ("EVALSHA", call.script.sha()),
        };
        let mut command = Cmd::with_capacity(
            3 + call.keys.len() + call.args.len(),
            verb.len() + script.len() + 4 + call.keys.data.len() + call.args.data.len(),
        );
        command.arg(verb).arg(script).arg(call.keys.len());
        for arg in call.keys.iter().chain(call.args.iter()) {
            command.arg(arg);
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_encoded_by_name_or_whole() {
        let script = Script::new("return 1");
        assert_eq!(script.sha(), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
        let mut args = Args::default();
        args.push(b"\0x").push_number(u64::MAX).push("");
        assert_eq!(args.len(), 3);
        let call = Call {
            script,
            keys: Args::from_iter(["{k}:s"]),
            args,
        };
        let request = Request::from(call);
        assert_eq!(request.slot(), Some(slot_of(b"{k}")));
        let packed = request.encode(false).get_packed_command();
        assert_eq!(
            String::from_utf8(packed).unwrap(),
            "*7\r\n$7\r\nEVALSHA\r\n$40\r\ne0e1f9fabfc9d4800c877a703b823ac0578ff8db\r\n$1\r\n1\r\n\
             $5\r\n{k}:s\r\n$2\r\n\0x\r\n$20\r\n18446744073709551615\r\n$0\r\n\r\n"
        );
        let whole = request.encode(true).get_packed_command();
        assert!(whole.starts_with(b"*7\r\n$4\r\nEVAL\r\n$8\r\nreturn 1\r\n"));
    }
}
