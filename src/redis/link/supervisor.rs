//! Keeps one connection to one server (or to whichever is the master now): connects on first use,
//! again for ever when it is lost, replaces it when it falls silent or leads to the wrong server.
//!
//! States: `Idle` until somebody calls; `Connecting` during an attempt; `Up`; `Waiting` between
//! attempts. Callers wait for `Up` to their own deadlines and never drive the connecting themselves,
//! so a caller that goes away leaves nothing half done.
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout_at;

use crate::config::Level;
use crate::sync::Mutex;

use super::breaker::Breaker;
use super::dial::{Dialer, Driver, Kind, Pushes, Refusal};
use super::endpoint::Addr;
use super::pause::Backoff;
use super::sentinel::Sentinels;
use super::settings::{Reporter, Settings, count};

/// Failed attempts in a row after which callers no longer wait.
const FAIL_FAST_AFTER: u32 = 3;
/// The most timeouts in a row, without any reply between, that a connection survives.
const TIMEOUTS: u32 = 2;
/// A shorter wait for a reply says nothing about the connection.
const TELLING: Duration = Duration::from_millis(100);
/// The longest pause after a server that said no promptly: asking again costs little, and a restart
/// should be noticed soon.
const PROMPT_CAP: Duration = Duration::from_millis(250);
/// A connection that lived this long was a good one, used or not.
const PROVEN_AFTER: Duration = Duration::from_secs(5);
/// The same thing is logged once in this time.
const SAID_FOR: Duration = Duration::from_secs(60);
/// How often a sentinel is asked whether the master is still the master.
const MASTER_CHECK: Duration = Duration::from_secs(2);

/// Where a supervisor connects to.
#[derive(Clone)]
pub(super) enum Goal {
    Fixed(Addr),
    Master(Arc<Sentinels>),
}

impl Goal {
    async fn resolve(&self, patience: Duration) -> Result<Addr, Refusal> {
        match self {
            Goal::Fixed(addr) => Ok(addr.clone()),
            Goal::Master(sentinels) => {
                match tokio::time::timeout(patience, sentinels.master()).await {
                    Ok(found) => found,
                    Err(_) => Err(Refusal::timeout("the sentinels")),
                }
            }
        }
    }
}

#[derive(Clone)]
enum State {
    Idle,
    Connecting(Option<Failed>),
    Up(Arc<Live>),
    Waiting(Failed),
}

#[derive(Clone)]
struct Failed {
    refusal: Refusal,
    attempts: u32,
    next: Instant,
}

/// Why a caller gets no connection.
#[derive(Clone, Debug)]
pub(super) enum NotReady {
    /// Not before the caller's deadline; what was in the way.
    Deadline(Arc<str>),
    /// The server is down and was a moment ago; it is asked again in this time.
    Down(Refusal, Duration),
}

/// What may be seen of a supervisor.
#[derive(Clone, Debug)]
pub struct Health {
    pub state: &'static str,
    /// Attempts to connect that failed in a row.
    pub refused: u32,
    /// Calls that failed in a row.
    pub failed: u32,
    pub last_error: Option<Refusal>,
}

impl Health {
    pub fn is_up(&self) -> bool {
        self.state == "up"
    }
}

pub(super) struct Supervisor {
    core: Arc<Core>,
    task: OnceLock<AbortHandle>,
}

struct Core {
    name: String,
    goal: Goal,
    /// Its connections may subscribe.
    hears: bool,
    dialer: Dialer,
    settings: Arc<Settings>,
    reporter: Reporter,
    state: watch::Sender<State>,
    breaker: Mutex<Breaker>,
    /// Told when a connection is lost or refused.
    trouble: Arc<Notify>,
}

impl Supervisor {
    pub fn new(
        name: String,
        goal: Goal,
        hears: bool,
        dialer: Dialer,
        settings: Arc<Settings>,
        reporter: Reporter,
        trouble: Arc<Notify>,
    ) -> Supervisor {
        let breaker = Breaker::new(settings.breaker_after, settings.attempt);
        let core = Core {
            name,
            goal,
            hears,
            dialer,
            settings,
            reporter,
            state: watch::Sender::new(State::Idle),
            breaker: Mutex::new(breaker),
            trouble,
        };
        Supervisor {
            core: Arc::new(core),
            task: OnceLock::new(),
        }
    }

    /// Begins to connect, if nobody has asked for that before.
    pub fn start(&self) {
        self.task.get_or_init(|| {
            let core = self.core.clone();
            self.core.dialer.handle.spawn(core.run()).abort_handle()
        });
    }

    /// The connection, as soon as there is one. `impatient` callers do not wait for a server that
    /// is known to be down.
    pub async fn ready(&self, until: Instant, impatient: bool) -> Result<Arc<Live>, NotReady> {
        if let State::Up(live) = &*self.core.state.borrow()
            && !live.is_over()
        {
            return Ok(live.clone());
        }
        self.start();
        let mut states = self.core.state.subscribe();
        loop {
            let obstacle = match &*states.borrow_and_update() {
                State::Up(live) if !live.is_over() => return Ok(live.clone()),
                State::Up(_) | State::Idle | State::Connecting(None) => None,
                State::Connecting(Some(failed)) | State::Waiting(failed) => Some(failed.clone()),
            };
            if let Some(failed) = &obstacle {
                let known = impatient && failed.attempts >= FAIL_FAST_AFTER;
                if known || failed.refusal.kind == Kind::Auth {
                    let wait = failed.next.saturating_duration_since(Instant::now());
                    return Err(NotReady::Down(failed.refusal.clone(), wait));
                }
            }
            match timeout_at(until.into(), states.changed()).await {
                Ok(changed) => changed.expect("the sender lives in self"),
                Err(_) => {
                    let code = obstacle.map(|failed| failed.refusal.code);
                    return Err(NotReady::Deadline(code.unwrap_or("CONNECTING".into())));
                }
            }
        }
    }

    pub fn breaker(&self) -> crate::sync::MutexGuard<'_, Breaker> {
        self.core.breaker.lock()
    }

    /// How long an idempotent call waits for one reply.
    pub fn attempt_timeout(&self) -> Duration {
        self.core.settings.attempt
    }

    pub fn is_down(&self) -> bool {
        matches!(
            &*self.core.state.borrow(),
            State::Waiting(_) | State::Connecting(Some(_))
        )
    }

    pub fn is_up(&self) -> bool {
        matches!(&*self.core.state.borrow(), State::Up(_))
    }

    pub fn health(&self) -> Health {
        let (state, failed) = match &*self.core.state.borrow() {
            State::Idle => ("idle", None),
            State::Connecting(failed) => ("connecting", failed.clone()),
            State::Up(_) => ("up", None),
            State::Waiting(failed) => ("waiting", Some(failed.clone())),
        };
        Health {
            state,
            refused: failed.as_ref().map_or(0, |failed| failed.attempts),
            failed: self.breaker().failures(),
            last_error: failed.map(|failed| failed.refusal),
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

impl Core {
    async fn run(self: Arc<Core>) {
        let (least, most) = self.settings.backoff;
        let mut backoff = Backoff::new(least, most);
        let mut said = Said::default();
        let mut failed: Option<Failed> = None;
        loop {
            self.state.send_replace(State::Connecting(failed.clone()));
            let began = Instant::now();
            let tries = failed.as_ref().map_or(0, |failed| failed.attempts);
            let refusal = match self.attempt(tries).await {
                Ok((live, driver)) => {
                    count(&self.reporter.counters.connected);
                    if said.worth_saying("up") {
                        let text = format_args!("{}: connected to {}", self.name, live.addr);
                        self.reporter.log(Level::Info, text);
                    }
                    self.state.send_replace(State::Up(live.clone()));
                    let why = self.serve(&live, driver).await;
                    self.trouble.notify_one();
                    failed = None;
                    if live.was_good() {
                        backoff.reset();
                        self.complain(&mut said, &why);
                        continue;
                    }
                    why
                }
                Err(refusal) => {
                    count(&self.reporter.counters.refused);
                    refusal
                }
            };
            self.complain(&mut said, &refusal);
            let cap = match refusal.kind {
                Kind::Prompt => PROMPT_CAP,
                Kind::Costly | Kind::Auth => Duration::MAX,
            };
            // An attempt that took its time was a pause already.
            let pause = backoff
                .pause(cap)
                .saturating_sub(began.elapsed())
                .max(least / 2);
            let now = failed.insert(Failed {
                refusal,
                attempts: tries.saturating_add(1),
                next: Instant::now() + pause,
            });
            self.state.send_replace(State::Waiting(now.clone()));
            self.trouble.notify_one();
            tokio::time::sleep(pause).await;
        }
    }

    /// The first attempts are short: what they may have waited for in vain is often back already.
    async fn attempt(&self, tries: u32) -> Result<(Arc<Live>, Driver), Refusal> {
        let patience = self.settings.connect * (tries + 1).min(3) / 3;
        let addr = self.goal.resolve(self.settings.connect).await?;
        let master = matches!(self.goal, Goal::Master(_));
        let opened = match self.dialer.open(&addr, master, self.hears, patience).await {
            Ok(opened) => opened,
            Err(refusal) => {
                if let Goal::Master(sentinels) = &self.goal {
                    sentinels.doubt(); // perhaps another sentinel knows better
                }
                return Err(refusal);
            }
        };
        let (connection, driver) = (opened.connection, opened.driver);
        let live = Live::new(addr, connection, driver.0.abort_handle(), opened.pushes);
        Ok((Arc::new(live), driver))
    }

    /// Watches over a connection until it ends, and says why it did.
    async fn serve(&self, live: &Live, mut driver: Driver) -> Refusal {
        tokio::select! {
            biased;
            _ = &mut driver.0 => dropped(),
            _ = live.end.notified() => self.replaced(live),
            _ = self.examine(live) => self.replaced(live),
        }
    }

    /// Returns once the connection proves useless: silent, or to a server that is not the master.
    async fn examine(&self, live: &Live) {
        let follows_master = matches!(self.goal, Goal::Master(_));
        let mut idle_check = Instant::now() + self.settings.idle_check;
        let mut replies_then = live.replies.load(Relaxed);
        loop {
            let mut wake = idle_check;
            if follows_master {
                wake = wake.min(Instant::now() + MASTER_CHECK);
            }
            let suspected = timeout_at(wake.into(), live.suspect.notified())
                .await
                .is_ok();
            if follows_master && !suspected && self.leads_elsewhere(live).await {
                return live.end_because(Refusal::new(
                    "NOTMASTER",
                    "another server is",
                    Kind::Prompt,
                ));
            }
            let due = Instant::now() >= idle_check;
            let idle = due && replies_then == live.replies.load(Relaxed);
            if due {
                idle_check = Instant::now() + self.settings.idle_check;
                replies_then = live.replies.load(Relaxed);
            }
            if (suspected || idle) && !self.answers(live).await {
                return live.end_because(silent("no answer to PING"));
            }
        }
    }

    async fn leads_elsewhere(&self, live: &Live) -> bool {
        let found = self.goal.resolve(self.settings.connect).await;
        found.is_ok_and(|addr| addr != live.addr)
    }

    fn replaced(&self, live: &Live) -> Refusal {
        count(&self.reporter.counters.replaced);
        let why = live.why.lock();
        why.clone().expect("whoever ends it says why")
    }

    async fn answers(&self, live: &Live) -> bool {
        let ping = redis::cmd("PING");
        let mut connection = live.connection.clone();
        let reply = connection.send_packed_command(&ping);
        match tokio::time::timeout(self.settings.connect, reply).await {
            Ok(Ok(_)) => {
                live.replied(false);
                true
            }
            Ok(Err(_)) | Err(_) => false,
        }
    }

    fn complain(&self, said: &mut Said, refusal: &Refusal) {
        if said.worth_saying(&refusal.code) {
            let text = format_args!("{}: {refusal}; trying on", self.name);
            self.reporter.log(Level::Warning, text);
        }
    }
}

fn dropped() -> Refusal {
    Refusal::new("DROPPED", "the connection ended", Kind::Prompt)
}

fn silent(what: &str) -> Refusal {
    Refusal::new("SILENT", what, Kind::Prompt)
}

/// What was logged when, so that trouble that lasts or flaps does not fill the log.
#[derive(Default)]
struct Said(HashMap<Arc<str>, Instant>);

impl Said {
    fn worth_saying(&mut self, code: &str) -> bool {
        let now = Instant::now();
        self.0.retain(|_, at| now - *at < SAID_FOR);
        !self.0.contains_key(code) && self.0.insert(code.into(), now).is_none()
    }
}

/// A connection in service, as callers see it.
pub(super) struct Live {
    pub addr: Addr,
    connection: MultiplexedConnection,
    driver: AbortHandle,
    /// If it hears; taken by whoever listens.
    pushes: Option<Mutex<Option<Pushes>>>,
    since: Instant,
    /// Timeouts since the last reply.
    silent: AtomicU32,
    replies: AtomicU32,
    /// A command worked: more than a server that merely accepts connections.
    proven: AtomicBool,
    end: Notify,
    suspect: Notify,
    why: Mutex<Option<Refusal>>,
}

impl Live {
    fn new(
        addr: Addr,
        connection: MultiplexedConnection,
        driver: AbortHandle,
        pushes: Option<Pushes>,
    ) -> Live {
        Live {
            pushes: pushes.map(|pushes| Mutex::new(Some(pushes))),
            addr,
            connection,
            driver,
            since: Instant::now(),
            silent: AtomicU32::new(0),
            replies: AtomicU32::new(0),
            proven: AtomicBool::new(false),
            end: Notify::new(),
            suspect: Notify::new(),
            why: Mutex::new(None),
        }
    }

    /// What is pushed on it, unless somebody has that already. `None`: it does not hear.
    pub fn pushes(&self) -> Option<crate::sync::MutexGuard<'_, Option<Pushes>>> {
        let pushes = self.pushes.as_ref()?;
        Some(pushes.lock())
    }

    pub fn connection(&self) -> MultiplexedConnection {
        self.connection.clone()
    }

    /// A reply came; `good` if the server did what it was asked.
    pub fn replied(&self, good: bool) {
        self.silent.store(0, Relaxed);
        self.replies.fetch_add(1, Relaxed);
        if good {
            self.proven.store(true, Relaxed);
        }
    }

    /// No reply came within `waited`. True if that was long enough to mean something.
    pub fn timed_out(&self, waited: Duration) -> bool {
        if waited < TELLING {
            self.suspect.notify_one();
            return false;
        }
        match self.silent.fetch_add(1, Relaxed) + 1 >= TIMEOUTS {
            true => self.end_because(silent("no replies")),
            false => self.suspect.notify_one(),
        }
        true
    }

    /// Sending failed.
    pub fn broke(&self) {
        self.end_because(dropped());
    }

    /// Nothing can be sent any more. What this answers `false` for is taken by the driver.
    pub fn is_over(&self) -> bool {
        self.driver.is_finished() || self.why.lock().is_some()
    }

    /// Takes the connection out of service.
    pub fn end_because(&self, why: Refusal) {
        self.why.lock().get_or_insert(why);
        self.end.notify_one();
    }

    fn was_good(&self) -> bool {
        self.proven.load(Relaxed) || self.since.elapsed() >= PROVEN_AFTER
    }
}
