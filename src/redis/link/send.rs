//! Sending: what goes to one node goes in one write; each reply decides alone what becomes of its
//! request. Nothing is sent past its deadline, and nothing that may have run is sent again unless
//! running it twice is running it once.
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{Pipeline, RedisResult, ServerError, Value};
use tokio::time::timeout_at;

use super::dial::{Kind, Refusal};
use super::endpoint::Addr;
use super::failure::{self, Class as Verdict, Failure, Silence};
use super::node::{Lane, Node};
use super::pause::Backoff;
use super::request::{Class, Request, Script};
use super::routes::Routes;
use super::settings::{Counters, count};
use super::supervisor::{Live, NotReady};

/// Waits before trying again what the server could not take.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(200));
/// Redirections followed at once; more mean that nodes disagree, and waiting helps.
const REDIRECTIONS: u32 = 4;
/// A script the server forgot this often is sent whole every time.
const MISSES: u32 = 2;

/// Takes the result of the request with this index, and whether it was sent again after no reply came.
pub(super) type Done<'a> = dyn Fn(usize, Result<Value, Failure>, bool) + Send + Sync + 'a;

/// What all requests of one batch have in common.
pub(super) struct Sender<'a> {
    pub routes: &'a Routes,
    pub counters: &'a Counters,
    pub lane: Lane,
    pub deadline: Instant,
    pub class: Class,
    pub done: &'a Done<'a>,
}

/// A request on its way.
struct Job<'a> {
    index: usize,
    request: &'a Request,
    /// Times the server did not know the script.
    misses: u32,
    /// Ask there, once.
    ask: Option<Addr>,
    redirections: u32,
    /// Tries that were sent and not answered: whatever follows, it may have run.
    unanswered: u32,
    silence: Silence,
    backoff: Backoff,
    /// Why it is not done yet.
    code: Option<Arc<str>>,
}

/// Jobs for one node.
struct Group<'a> {
    node: Arc<Node>,
    jobs: Vec<Job<'a>>,
}

/// A job that is to be tried again, after this wait.
type Again<'a> = (Job<'a>, Duration);

impl<'a> Sender<'a> {
    /// Sends all; returns when each is done.
    pub async fn send(&self, requests: &'a [Request]) {
        let jobs = requests.iter().enumerate().map(|(index, request)| Job {
            index,
            request,
            misses: 0,
            ask: None,
            redirections: 0,
            unanswered: 0,
            silence: Silence::Timeout,
            backoff: Backoff::new(BACKOFF.0, BACKOFF.1),
            code: None,
        });
        let sent = self.counters.sent.load(Relaxed);
        let mut groups = self.assign(jobs.collect()).await;
        // Each node's part runs on its own, so that a dead node delays nobody else's.
        match groups.len() {
            0 => {}
            1 => self.finish(groups.remove(0)).await,
            _ => {
                let parts = groups.into_iter().map(|group| self.finish(group));
                parts.collect::<FuturesUnordered<_>>().collect::<()>().await;
            }
        }
        if sent == self.counters.sent.load(Relaxed) {
            // All was refused, perhaps without waiting for anything: a caller that tries again at
            // once must not keep the thread from those who repair the link.
            tokio::task::yield_now().await;
        }
    }

    async fn finish(&self, group: Group<'a>) {
        let mut groups = vec![group];
        while !groups.is_empty() {
            let mut again = Vec::new();
            for group in groups {
                again.extend(self.attempt(group).await);
            }
            let wait = again
                .iter()
                .map(|(_, wait)| *wait)
                .max()
                .unwrap_or_default();
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            for _ in &again {
                count(&self.counters.retried);
            }
            groups = self
                .assign(again.into_iter().map(|(job, _)| job).collect())
                .await;
        }
    }

    /// Sorts jobs by the node they are for. Those without one in time are done.
    async fn assign(&self, jobs: Vec<Job<'a>>) -> Vec<Group<'a>> {
        let mut groups: Vec<Group<'a>> = Vec::new();
        for job in jobs {
            let node = match &job.ask {
                Some(addr) => Ok(self.routes.node(addr)),
                None => {
                    let slot = job.request.slot();
                    self.routes
                        .owner(slot, self.deadline, self.lane == Lane::Bulk)
                        .await
                }
            };
            match node {
                Err(why) => self.give_up(job, why),
                Ok(node) => match groups
                    .iter_mut()
                    .find(|group| Arc::ptr_eq(&group.node, &node))
                {
                    Some(group) => group.jobs.push(job),
                    None => groups.push(Group {
                        node,
                        jobs: vec![job],
                    }),
                },
            }
        }
        groups
    }

    /// One try. Returns what is to be tried again.
    async fn attempt(&self, group: Group<'a>) -> Vec<Again<'a>> {
        let Group { node, jobs } = group;
        let supervisor = node.lane(self.lane);
        let impatient = self.lane == Lane::Bulk;
        if impatient && let Err(retry_in) = supervisor.breaker().admit(Instant::now()) {
            return self.refuse(jobs, "BREAKER", retry_in);
        }
        let until = self.routes.patience(self.deadline);
        let live = match supervisor.ready(until, impatient).await {
            Ok(live) => live,
            Err(NotReady::Deadline(code)) if Instant::now() < self.deadline => {
                self.routes.suspect();
                return jobs
                    .into_iter()
                    .map(|job| (job.because(&code), Duration::ZERO))
                    .collect();
            }
            Err(why) => {
                self.routes.suspect();
                jobs.into_iter()
                    .for_each(|job| self.give_up(job, why.clone()));
                return Vec::new();
            }
        };
        let now = Instant::now();
        if now >= self.deadline {
            let late = NotReady::Deadline("LATE".into());
            jobs.into_iter()
                .for_each(|job| self.give_up(job, late.clone()));
            return Vec::new();
        }
        let until = self.reply_by(now, supervisor.attempt_timeout(), &jobs);
        self.counters.sent.fetch_add(jobs.len() as u64, Relaxed);
        match timeout_at(until.into(), self.exchange(&live, &jobs)).await {
            Ok(Ok(replies)) => {
                let mut again = Vec::new();
                for (job, reply) in jobs.into_iter().zip(replies) {
                    again.extend(self.judge(&node, &live, job, reply));
                }
                again
            }
            Ok(Err(_)) => {
                live.broke();
                self.silence(jobs, Silence::Dropped)
            }
            Err(_) => {
                count(&self.counters.timeouts);
                if live.timed_out(now.elapsed()) {
                    supervisor.breaker().failed(Instant::now());
                }
                self.routes.suspect();
                self.silence(jobs, Silence::Timeout)
            }
        }
    }

    /// Writes the jobs and reads one reply for each.
    async fn exchange(&self, live: &Live, jobs: &[Job<'_>]) -> RedisResult<Vec<Value>> {
        let mut connection = live.connection();
        if let [job] = jobs
            && job.ask.is_none()
        {
            let whole = job.misses > 0;
            if whole {
                count(&self.counters.bodies_sent);
            }
            let command = job.request.encode(whole);
            return connection
                .send_packed_command(&command)
                .await
                .map(|reply| vec![reply]);
        }
        let mut pipeline = Pipeline::with_capacity(jobs.len());
        let mut sent: Vec<&Arc<Script>> = Vec::new();
        for job in jobs {
            if job.ask.is_some() {
                pipeline.cmd("ASKING");
            }
            let whole = send_whole(job, &mut sent);
            if whole {
                count(&self.counters.bodies_sent);
            }
            pipeline.add_command(job.request.encode(whole));
        }
        let replies = connection
            .send_packed_commands(&pipeline, 0, pipeline.len())
            .await?;
        assert_eq!(replies.len(), pipeline.len(), "one reply for each command");
        let mut replies = replies.into_iter();
        let own = jobs.iter().map(|job| {
            if job.ask.is_some() {
                replies.next(); // to ASKING
            }
            replies.next().expect("counted above")
        });
        Ok(own.collect())
    }

    /// How long to wait for replies. What can be sent again is, after a while that doubles: a short
    /// one suits a lost reply, a long one a slow network.
    fn reply_by(&self, now: Instant, first: Duration, jobs: &[Job<'a>]) -> Instant {
        let tries = jobs.iter().map(|job| job.unanswered).max().unwrap_or(0);
        match self.class {
            Class::Idempotent => self.deadline.min(now + first * (1 << tries.min(6))),
            Class::AtMostOnce => self.deadline,
        }
    }

    /// Sent, no reply: nobody knows.
    fn silence(&self, jobs: Vec<Job<'a>>, silence: Silence) -> Vec<Again<'a>> {
        let again = self.class == Class::Idempotent && Instant::now() < self.deadline;
        let mut remaining = Vec::new();
        for mut job in jobs {
            job.unanswered += 1;
            job.silence = silence;
            match again {
                true => remaining.push((job, Duration::ZERO)),
                false => self.fail(job, Failure::Ambiguous(silence)),
            }
        }
        remaining
    }

    /// Ends a job without a value. A try that did not run says nothing about one before it that
    /// was not answered.
    fn fail(&self, job: Job<'a>, failure: Failure) {
        let failure = match job.unanswered > 0 && failure.not_executed() {
            true => Failure::Ambiguous(job.silence),
            false => failure,
        };
        if matches!(failure, Failure::Ambiguous(_)) {
            count(&self.counters.ambiguous);
        }
        (self.done)(job.index, Err(failure), job.unanswered > 0);
    }

    fn judge(&self, node: &Node, live: &Live, mut job: Job<'a>, reply: Value) -> Option<Again<'a>> {
        let mut breaker = node.lane(self.lane).breaker();
        let error = match reply {
            Value::ServerError(error) => error,
            value => {
                live.replied(true);
                breaker.succeeded();
                drop(breaker);
                (self.done)(job.index, Ok(value), job.unanswered > 0);
                return None;
            }
        };
        job.ask = None;
        let verdict = failure::classify(&error);
        // While a slot moves, a node answers all others.
        let works = error.code() == "TRYAGAIN"
            || !matches!(
                verdict,
                Verdict::Later | Verdict::Elsewhere | Verdict::Final(Failure::Auth { .. })
            );
        live.replied(works);
        match works {
            true => breaker.succeeded(),
            false => breaker.failed(Instant::now()),
        }
        drop(breaker);
        match verdict {
            Verdict::NoScript => self.missed(job, &error),
            Verdict::Moved(slot, target) => {
                self.routes.moved(slot, &target.addr(&live.addr));
                self.redirected(job, &error)
            }
            Verdict::Ask(target) => {
                job.ask = Some(target.addr(&live.addr));
                self.redirected(job, &error)
            }
            Verdict::Later => self.later(job, &error),
            Verdict::Elsewhere => {
                if error.code() != "CLUSTERDOWN" {
                    let why = "the server is not the master";
                    live.end_because(Refusal::new(error.code(), why, Kind::Prompt));
                }
                self.routes.suspect();
                self.later(job, &error)
            }
            Verdict::Final(failure) => {
                if let Failure::Auth { code, message } = &failure {
                    live.end_because(Refusal::new(code, message, Kind::Auth));
                }
                self.fail(job, failure);
                None
            }
        }
    }

    fn missed(&self, mut job: Job<'a>, error: &ServerError) -> Option<Again<'a>> {
        job.misses += 1;
        match job.misses <= MISSES + 1 {
            true => Some((job.because(error.code()), Duration::ZERO)),
            false => self.later(job, error), // sent whole: the answer is the script's own
        }
    }

    fn redirected(&self, mut job: Job<'a>, error: &ServerError) -> Option<Again<'a>> {
        count(&self.counters.redirected);
        job.redirections += 1;
        match job.redirections <= REDIRECTIONS {
            true => Some((job.because(error.code()), Duration::ZERO)),
            false => self.later(job, error),
        }
    }

    /// Not executed; again after a pause, if that is before the deadline.
    fn later(&self, mut job: Job<'a>, error: &ServerError) -> Option<Again<'a>> {
        let pause = job.backoff.pause(Duration::MAX);
        if Instant::now() + pause < self.deadline {
            return Some((job.because(error.code()), pause));
        }
        let failure = Failure::NotExecuted {
            code: error.code().into(),
            retry_in: pause,
        };
        self.fail(job, failure);
        None
    }

    fn give_up(&self, mut job: Job<'a>, why: NotReady) {
        let failure = match why {
            NotReady::Deadline(code) => {
                let code = job.code.take().unwrap_or(code);
                Failure::DeadlineNotSent { code }
            }
            NotReady::Down(refusal, retry_in) => {
                count(&self.counters.failed_fast);
                match refusal.kind {
                    Kind::Auth => Failure::Auth {
                        code: refusal.code,
                        message: refusal.message,
                    },
                    _ => Failure::NotExecuted {
                        code: refusal.code,
                        retry_in,
                    },
                }
            }
        };
        self.fail(job, failure);
    }

    fn refuse(&self, jobs: Vec<Job<'a>>, code: &str, retry_in: Duration) -> Vec<Again<'a>> {
        for mut job in jobs {
            count(&self.counters.failed_fast);
            let code = job.code.take().unwrap_or_else(|| code.into());
            self.fail(job, Failure::NotExecuted { code, retry_in });
        }
        Vec::new()
    }
}

impl Job<'_> {
    fn because(mut self, code: &str) -> Self {
        self.code = Some(code.into());
        self
    }
}

/// A script that was missing goes whole once for all of a batch that need it; only where the server
/// keeps forgetting, each time.
fn send_whole<'a>(job: &Job<'a>, whole: &mut Vec<&'a Arc<Script>>) -> bool {
    let Some(script) = job.request.script() else {
        return false;
    };
    if job.misses == 0 {
        return false;
    }
    let known = whole.iter().any(|sent| Arc::ptr_eq(sent, script));
    if !known {
        whole.push(script);
    }
    !known || job.misses >= MISSES
}
