//! One attempt to connect: socket and its options, TLS, log-in, and a first question that shows
//! whether the server is ready to work. All commands of the handshake go out in one write.
use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, Pipeline, ProtocolVersion, PushInfo,
    RedisConnectionInfo, RedisError, Value,
};
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use super::endpoint::{Addr, Credentials};

/// A dead peer is noticed by the kernel after about this long even if nobody sends.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// Sent data that stays unacknowledged this long ends the connection.
const UNACKNOWLEDGED: Duration = Duration::from_secs(5);
/// Requests on their way to the socket before senders wait. Bounds memory when the peer stops reading.
const QUEUED_WRITES: usize = 4096;
/// Messages kept for a listener that is behind.
pub(super) const PUSH_BACKLOG: usize = 65_536;

/// What a server pushes on a connection.
pub(super) type Pushes = mpsc::Receiver<PushInfo>;

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub code: Arc<str>,
    pub message: Arc<str>,
    pub kind: Kind,
}

/// How soon it makes sense to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A cheap and prompt no; the server is probably restarting.
    Prompt,
    /// Silence, or a no that cost something.
    Costly,
    /// Our credentials are refused.
    Auth,
}

impl Refusal {
    pub fn new(code: &str, message: impl std::fmt::Display, kind: Kind) -> Refusal {
        Refusal {
            code: code.into(),
            message: message.to_string().into(),
            kind,
        }
    }

    pub fn timeout(what: &str) -> Refusal {
        Refusal::new("TIMEOUT", format_args!("no answer to {what}"), Kind::Costly)
    }

    fn io(error: io::Error) -> Refusal {
        match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
                Refusal::new("REFUSED", error, Kind::Prompt)
            }
            io::ErrorKind::TimedOut => Refusal::timeout("connect"),
            _ => Refusal::new("CONNECT", error, Kind::Costly),
        }
    }

    /// The connection broke during the handshake; a server out of clients does that too.
    fn broken(error: RedisError) -> Refusal {
        Refusal::new("DROPPED", error, Kind::Costly)
    }

    fn reply(code: &str, message: &str) -> Refusal {
        let kind = match code {
            "NOAUTH" | "WRONGPASS" => Kind::Auth,
            "LOADING" | "MASTERDOWN" | "BUSY" => Kind::Prompt,
            _ => Kind::Costly,
        };
        Refusal::new(code, message, kind)
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.code, self.message)
    }
}

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for S {}

/// What every connection to the same servers has in common.
#[derive(Clone)]
pub(super) struct Dialer {
    pub credentials: Credentials,
    pub db: u32,
    pub tls: Option<TlsConnector>,
    pub handle: Handle,
}

/// A connection that answered. Its socket closes when this is dropped.
pub(super) struct Opened {
    pub connection: MultiplexedConnection,
    /// Ends when the connection does.
    pub driver: Driver,
    /// If it was to hear, and the server speaks the protocol for that.
    pub pushes: Option<Pushes>,
}

/// The task that moves a connection's bytes; it ends with its owner.
pub(super) struct Driver(pub JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Dialer {
    pub async fn connect(&self, addr: &Addr) -> Result<Box<dyn Stream>, Refusal> {
        let (host, port) = match addr {
            Addr::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(Refusal::io)?;
                return Ok(Box::new(stream));
            }
            Addr::Tcp(host, port) => (host, *port),
        };
        // Names are looked up each time: they are how many services move a master.
        let stream = TcpStream::connect((host.as_ref(), port))
            .await
            .map_err(Refusal::io)?;
        tune(&stream).map_err(Refusal::io)?;
        let Some(tls) = &self.tls else {
            return Ok(Box::new(stream));
        };
        let refused = |error: &dyn std::fmt::Display| Refusal::new("TLS", error, Kind::Costly);
        let name = ServerName::try_from(host.to_string()).map_err(|e| refused(&e))?;
        let stream = tls.connect(name, stream).await.map_err(|e| refused(&e))?;
        Ok(Box::new(stream))
    }

    /// Connects and logs in. With `master` a replica is refused; `hears`: so that it may subscribe.
    pub async fn open(
        &self,
        addr: &Addr,
        master: bool,
        hears: bool,
        patience: Duration,
    ) -> Result<Opened, Refusal> {
        let attempt = self.open_patiently(addr, master, hears);
        match tokio::time::timeout(patience, attempt).await {
            Ok(result) => result,
            Err(_) => Err(Refusal::timeout("connecting")),
        }
    }

    async fn open_patiently(
        &self,
        addr: &Addr,
        master: bool,
        hears: bool,
    ) -> Result<Opened, Refusal> {
        if hears && let Some(opened) = self.open_hearing(addr, master).await? {
            return Ok(opened);
        }
        let stream = self.connect(addr).await?;
        // Without log-in and library name the crate's own handshake is empty; ours shows each error.
        let bare = RedisConnectionInfo::default().set_skip_set_lib_name();
        let made = MultiplexedConnection::new_with_config(&bare, stream, patient()).await;
        let (connection, driver) = made.map_err(Refusal::broken)?;
        let mut opened = Opened {
            connection,
            driver: Driver(self.handle.spawn(driver)),
            pushes: None,
        };
        self.log_in(&mut opened.connection, master).await?;
        Ok(opened)
    }

    /// The crate hands on what is pushed only where it has said HELLO itself. Nothing: the server does not
    /// speak that protocol, or not to us.
    async fn open_hearing(&self, addr: &Addr, master: bool) -> Result<Option<Opened>, Refusal> {
        let stream = self.connect(addr).await?;
        let (out, pushes) = mpsc::channel(PUSH_BACKLOG);
        let config = patient().set_push_sender(move |push| out.try_send(push));
        let info = self.credentials.info().set_protocol(ProtocolVersion::RESP3);
        let made = MultiplexedConnection::new_with_config(&info, stream, config).await;
        let (connection, driver) = match made {
            Ok(made) => made,
            Err(error) => {
                return match error.code() {
                    Some("NOPROTO" | "NOPERM" | "ERR") => Ok(None),
                    _ if error.kind() == ErrorKind::RESP3NotSupported => Ok(None),
                    Some(code) => Err(Refusal::reply(code, error.detail().unwrap_or(""))),
                    None => Err(Refusal::broken(error)),
                };
            }
        };
        let mut opened = Opened {
            connection,
            driver: Driver(self.handle.spawn(driver)),
            pushes: Some(pushes),
        };
        let replies = self.introduce(&mut opened.connection, None, master).await?;
        judge(&replies, master).map(|()| Some(opened))
    }

    async fn log_in(
        &self,
        connection: &mut MultiplexedConnection,
        master: bool,
    ) -> Result<(), Refusal> {
        let mut hello = redis::cmd("HELLO");
        hello.arg(3);
        if let Some(password) = &self.credentials.password {
            let user = self.credentials.username.as_deref().unwrap_or("default");
            hello.arg("AUTH").arg(user).arg(&password.0);
        }
        let mut replies = self.introduce(connection, Some(hello), master).await?;
        // Proxies and old servers do not know HELLO, and a role may not be allowed it.
        let old = match &replies[0] {
            Value::ServerError(e) => matches!(e.code(), "NOPROTO" | "NOPERM" | "ERR"),
            _ => false,
        };
        if old {
            let auth = self.credentials.password.as_ref().map(|password| {
                let mut auth = redis::cmd("AUTH");
                auth.arg(self.credentials.username.as_deref())
                    .arg(&password.0);
                auth
            });
            replies = self.introduce(connection, auth, master).await?;
        }
        judge(&replies, master)
    }

    /// Sends log-in, database, our name and the first question; the last reply answers the question.
    async fn introduce(
        &self,
        connection: &mut MultiplexedConnection,
        log_in: Option<Cmd>,
        master: bool,
    ) -> Result<Vec<Value>, Refusal> {
        let mut pipeline = Pipeline::new();
        if let Some(command) = log_in {
            pipeline.add_command(command);
        }
        if self.db != 0 {
            pipeline.cmd("SELECT").arg(self.db);
        }
        pipeline.cmd("CLIENT").arg("SETNAME").arg("liblimiter");
        pipeline.cmd(if master { "ROLE" } else { "PING" });
        let count = pipeline.len();
        let replies = connection
            .send_packed_commands(&pipeline, 0, count)
            .await
            .map_err(Refusal::broken)?;
        assert_eq!(replies.len(), count, "one reply for each command");
        Ok(replies)
    }
}

/// Callers wait to their own deadlines; the crate's timeout would only fire at the wrong one.
fn patient() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_connection_timeout(None)
        .set_pipeline_buffer_size(QUEUED_WRITES)
}

/// The first error decides, except about our name (servers may not allow it) and about the role
/// (a user may not be allowed to ask; READONLY will tell).
fn judge(replies: &[Value], master: bool) -> Result<(), Refusal> {
    let (question, introduction) = replies.split_last().expect("the question was asked");
    let (_name, log_in) = introduction.split_last().expect("our name was given");
    for reply in log_in {
        if let Value::ServerError(error) = reply {
            return Err(Refusal::reply(error.code(), error.details().unwrap_or("")));
        }
    }
    match question {
        Value::ServerError(error) if master && error.code() == "NOPERM" => Ok(()),
        Value::ServerError(error) => {
            Err(Refusal::reply(error.code(), error.details().unwrap_or("")))
        }
        Value::Array(role) if master => match role.first() {
            Some(Value::BulkString(role)) if role == b"master" => Ok(()),
            _ => Err(Refusal::new(
                "NOTMASTER",
                "the server is a replica",
                Kind::Prompt,
            )),
        },
        _ => Ok(()),
    }
}

fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(
        &TcpKeepalive::new()
            .with_time(KEEPALIVE)
            .with_interval(KEEPALIVE / 4)
            .with_retries(2),
    )?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    Ok(())
}
