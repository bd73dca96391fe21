//! A link on a runtime thread of its own, as in the library, driven from the test's thread.
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use limiter::config::Log;
use limiter::redis::link::{
    Args, Call, Class, Endpoint, Failure, Lane, Link, Request, Script, Settings,
};
use redis::Value;

use crate::support::{ms, secs};

pub type Answer = Result<Value, Failure>;

pub struct Rig {
    pub link: Arc<Link>,
    pub handle: tokio::runtime::Handle,
    pub log: Arc<Mutex<Vec<String>>>,
    _end: tokio::sync::oneshot::Sender<()>,
}

impl Rig {
    pub fn new(url: &str) -> Rig {
        Rig::with(url, |_| ())
    }

    pub fn with(url: &str, change: impl FnOnce(&mut Settings)) -> Rig {
        let log: Arc<Mutex<Vec<String>>> = Arc::default();
        let mut settings = Settings::new(Endpoint::parse(url).unwrap());
        let lines = log.clone();
        let write = move |_, line: &str| lines.lock().unwrap().push(line.to_owned());
        settings.log = Some(Log {
            level: 3,
            write: Arc::new(write),
        });
        change(&mut settings);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let handle = runtime.handle().clone();
        let (end, ended) = tokio::sync::oneshot::channel();
        std::thread::spawn(move || {
            let _ = runtime.block_on(ended);
        });
        let link = Link::new(handle.clone(), settings).unwrap();
        Rig {
            link: Arc::new(link),
            handle,
            log,
            _end: end,
        }
    }

    /// Starts a request; the receiver gets its answer and how long that took.
    pub fn begin(
        &self,
        lane: Lane,
        request: Request,
        within: Duration,
        class: Class,
    ) -> mpsc::Receiver<(Answer, Duration)> {
        let (tell, told) = mpsc::channel();
        let link = self.link.clone();
        let began = Instant::now();
        self.handle.spawn(async move {
            let answer = link.call(lane, request, began + within, class).await;
            let _ = tell.send((answer, began.elapsed()));
        });
        told
    }

    /// Runs a request to its end, which must not be later than its deadline and a little.
    #[track_caller]
    pub fn run(&self, lane: Lane, request: Request, within: Duration, class: Class) -> Answer {
        let told = self.begin(lane, request, within, class);
        let (answer, took) = told.recv_timeout(within + secs(2)).expect("the call ended");
        assert!(
            took < within + secs(1),
            "deadline {within:?}, took {took:?}: {answer:?}"
        );
        answer
    }

    /// Increments `key` at most once.
    #[track_caller]
    pub fn once(&self, key: &str, within: Duration) -> Answer {
        self.run(Lane::Bulk, increment(key), within, Class::AtMostOnce)
    }

    /// Increments `key` as often as it takes.
    #[track_caller]
    pub fn surely(&self, key: &str, within: Duration) -> Answer {
        self.run(Lane::Bulk, increment(key), within, Class::Idempotent)
    }

    /// Calls until one succeeds; how long that took.
    #[track_caller]
    pub fn recovers(&self, within: Duration) -> Duration {
        let began = Instant::now();
        loop {
            let last = self.once("recovery", ms(250));
            if last.is_ok() {
                return began.elapsed();
            }
            assert!(
                began.elapsed() < within,
                "no recovery within {within:?}: {last:?}"
            );
            std::thread::sleep(ms(5));
        }
    }

    #[track_caller]
    pub fn logged(&self, text: &str) -> usize {
        self.log
            .lock()
            .unwrap()
            .iter()
            .filter(|line| line.contains(text))
            .count()
    }
}

/// Adds one to its key and returns the count; declares nothing about why it might fail.
pub const INCREMENT: &str = "return redis.call('INCRBY', KEYS[1], ARGV[1])";

pub fn increment(key: &str) -> Request {
    call(INCREMENT, &[key], &["1"])
}

pub fn call(source: &str, keys: &[&str], args: &[&str]) -> Request {
    Request::from(Call {
        script: Script::new(source),
        keys: Args::from_iter(keys),
        args: Args::from_iter(args),
    })
}

pub fn command(words: &[&str]) -> Request {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    Request::command(command, None)
}

/// The code of a failure that certainly did not run.
#[track_caller]
pub fn code(answer: Answer) -> String {
    match answer {
        Err(Failure::NotExecuted { code, .. } | Failure::DeadlineNotSent { code }) => {
            code.to_string()
        }
        other => panic!("expected a failure that did not run, not {other:?}"),
    }
}

/// Prints a measured figure; `cargo test -- --nocapture` shows it.
pub fn figure(name: &str, took: Duration) {
    println!("figure: {name}: {} ms", took.as_millis());
}
