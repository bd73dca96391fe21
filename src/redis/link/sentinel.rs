//! Asks the sentinels who the master is. The first that answers is asked first the next time.
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use redis::Value;
use tokio::sync::Mutex;

use super::dial::{Dialer, Kind, Opened, Refusal};
use super::endpoint::Addr;

/// One sentinel's time to connect and answer; a dead one must not use up the others'.
pub(super) const PATIENCE: Duration = Duration::from_millis(300);
/// Lanes that ask at the same moment share an answer.
const SHARED: Duration = Duration::from_millis(20);

pub(super) struct Sentinels {
    master: String,
    dialer: Dialer,
    inner: Mutex<Inner>,
    doubted: AtomicBool,
}

struct Inner {
    /// The order in which they are asked.
    addrs: Vec<Addr>,
    /// To the first of `addrs`.
    connection: Option<Opened>,
    last: Option<(Instant, Addr)>,
}

impl Sentinels {
    pub fn new(addrs: Vec<Addr>, master: String, mut dialer: Dialer) -> Sentinels {
        dialer.db = 0;
        Sentinels {
            master,
            dialer,
            inner: Mutex::new(Inner {
                addrs,
                connection: None,
                last: None,
            }),
            doubted: AtomicBool::new(false),
        }
    }

    /// The last answer led nowhere: ask another sentinel first.
    pub fn doubt(&self) {
        self.doubted.store(true, Relaxed);
    }

    /// The master's address, as the first sentinel that answers knows it.
    pub async fn master(&self) -> Result<Addr, Refusal> {
        let mut inner = self.inner.lock().await;
        if self.doubted.swap(false, Relaxed) {
            inner.give_up_first();
        }
        if let Some((at, addr)) = &inner.last
            && at.elapsed() < SHARED
        {
            return Ok(addr.clone());
        }
        let mut refusal = Refusal::timeout("the sentinels");
        for _ in 0..inner.addrs.len() {
            match self.ask_first(&mut inner).await {
                Ok(addr) => {
                    inner.last = Some((Instant::now(), addr.clone()));
                    return Ok(addr);
                }
                Err(why) => refusal = why,
            }
            inner.give_up_first();
        }
        Err(refusal)
    }

    async fn ask_first(&self, inner: &mut Inner) -> Result<Addr, Refusal> {
        if inner.connection.is_none() {
            inner.connection = Some(
                self.dialer
                    .open(&inner.addrs[0], false, false, PATIENCE)
                    .await?,
            );
        }
        let opened = inner.connection.as_mut().expect("just opened");
        let mut question = redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.master);
        let reply = opened.connection.send_packed_command(&question);
        match tokio::time::timeout(PATIENCE, reply).await {
            Err(_) => Err(Refusal::timeout("a sentinel")),
            Ok(Err(error)) => Err(Refusal::new("SENTINEL", error, Kind::Costly)),
            Ok(Ok(value)) => self.read(value),
        }
    }

    fn read(&self, value: Value) -> Result<Addr, Refusal> {
        match value {
            Value::ServerError(error) => Err(Refusal::new(
                error.code(),
                error.details().unwrap_or(""),
                Kind::Costly,
            )),
            Value::Nil => {
                let message = format!("no sentinel knows a master \"{}\"", self.master);
                Err(Refusal::new("NOMASTER", message, Kind::Prompt))
            }
            value => match redis::from_redis_value::<(String, u16)>(value) {
                Ok((host, port)) => Ok(Addr::Tcp(host.into(), port)),
                Err(error) => Err(Refusal::new("SENTINEL", error, Kind::Costly)),
            },
        }
    }
}

impl Inner {
    fn give_up_first(&mut self) {
        self.connection = None;
        self.last = None;
        self.addrs.rotate_left(1);
    }
}
