//! The thread that talks to Redis: it carries calls over the link, hears notes, and keeps the heartbeat.
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::timeout;

use super::flight::{Carrier, Flight, Outgoing};
use super::link::{Link, Push, Request, Settings};
use super::wire::Note;
use super::{Named, Penalty, Redis, keys, local};
use crate::clock::Clock;
use crate::limit::time::Time;
use crate::runtime;
use crate::sync::{Condvar, Mutex};

/// One thread with a runtime of its own, and the link that runs there. Dropping it, and the flights that
/// are under way, ends the thread.
pub struct Driver(Arc<Thread>);

/// What runs on it needs.
pub(super) struct Thread {
    handle: Handle,
    /// To where flights begin.
    flights: mpsc::UnboundedSender<(Arc<Thread>, Flight)>,
    pub link: Link,
    clock: Arc<Clock>,
    redis: Weak<Redis>,
    /// How long a call is let alone before those behind it stop waiting to be sent with the next one.
    patience: Duration,
    stirred: Arc<Notify>,
    /// Until dropped, the thread goes on.
    end: Mutex<Option<oneshot::Sender<()>>>,
    over: Arc<Over>,
}

/// Whether the thread is over, and all its connections with it.
#[derive(Default)]
struct Over {
    is: Mutex<bool>,
    changed: Condvar,
}

impl Driver {
    pub fn start(
        settings: Settings,
        clock: Arc<Clock>,
        redis: Weak<Redis>,
    ) -> Result<Driver, String> {
        let system = |error: std::io::Error| error.to_string();
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(system)?;
        let handle = runtime.handle().clone();
        let patience = settings.attempt / 8;
        let link = Link::new(handle.clone(), settings)?;
        let (end, ended) = oneshot::channel::<()>();
        let over = Arc::<Over>::default();
        let tells = over.clone();
        runtime::spawn("limiter-redis", move || {
            let _ = runtime.block_on(ended);
            drop(runtime);
            *tells.is.lock() = true;
            tells.changed.notify_all();
        })
        .map_err(system)?;
        let (flights, begun) = mpsc::unbounded_channel();
        handle.spawn(fly_each(begun));
        let stirred = Arc::new(Notify::new());
        // Whoever moves a virtual clock keeps the beat.
        if !clock.is_virtual() {
            handle.spawn(beat(clock.clone(), redis.clone(), stirred.clone()));
        }
        Ok(Driver(Arc::new(Thread {
            handle,
            flights,
            link,
            clock,
            redis,
            patience,
            stirred,
            end: Mutex::new(Some(end)),
            over,
        })))
    }
}

impl Carrier for Driver {
    fn carry(&self, flight: Flight) {
        // One that is too late for it ends here.
        let _ = self.0.flights.send((self.0.clone(), flight));
    }

    fn listen(&self, channel: &str) {
        let channels = [channel.to_owned(), keys::penalties(channel)];
        let heard = self.0.link.listen(channels.map(String::into_bytes).into());
        self.0.handle.spawn(listen(self.0.redis.clone(), heard));
    }

    fn stir(&self) {
        self.0.stirred.notify_one();
    }

    fn count_in(&self, named: Weak<Named>) {
        let (thread, redis) = (Arc::downgrade(&self.0), self.0.redis.clone());
        self.0.handle.spawn(async move {
            while let Some(pause) = local::beat(&thread, &redis, &named).await {
                tokio::time::sleep(pause).await;
            }
        });
    }

    fn close(&self, longest: Duration) {
        drop(self.0.end.lock().take());
        let over = &self.0.over;
        let is = over.is.lock();
        drop(over.changed.wait_timeout_while(is, longest, |is| !*is));
    }

    fn connects(&self) -> u64 {
        self.0.link.stats().connected
    }
}

/// Flights are made into tasks on the thread itself: callers wake it once for many, and what it allocates it
/// frees as well.
async fn fly_each(mut begun: mpsc::UnboundedReceiver<(Arc<Thread>, Flight)>) {
    while let Some((driver, flight)) = begun.recv().await {
        tokio::spawn(fly(driver, flight));
    }
}

async fn fly(driver: Arc<Thread>, mut flight: Flight) {
    while let Some(outgoing) = flight.next() {
        let Outgoing {
            lane,
            call,
            deadline,
            class,
        } = outgoing;
        let deadline = instant(&driver.clock, deadline);
        let call = driver
            .link
            .call_told(lane, Request::from(call), deadline, class);
        tokio::pin!(call);
        let (result, again) = match timeout(driver.patience, &mut call).await {
            Ok(done) => done,
            Err(_) => {
                flight.hand_over();
                call.await
            }
        };
        flight.heard(result, again);
    }
}

/// Does what is due, whenever something is.
async fn beat(clock: Arc<Clock>, redis: Weak<Redis>, stirred: Arc<Notify>) {
    loop {
        let Some(redis) = redis.upgrade() else { return };
        let next = redis.beat();
        drop(redis);
        match next {
            None => stirred.notified().await,
            Some(at) => {
                let sleep = tokio::time::sleep_until(instant(&clock, at).into());
                tokio::select! {
                    () = sleep => {}
                    () = stirred.notified() => {}
                }
            }
        }
    }
}

/// Hands on what is heard.
async fn listen(redis: Weak<Redis>, mut heard: mpsc::Receiver<Push>) {
    while let Some(first) = heard.recv().await {
        let Some(redis) = redis.upgrade() else { return };
        let (mut notes, mut penalties) = (Vec::new(), Vec::new());
        let mut push = Some(first);
        while let Some(one) = push {
            match one {
                Push::Message { payload, .. } => {
                    notes.extend(Note::parse(&payload));
                    penalties.extend(Penalty::parse(&payload));
                }
                Push::Listening => redis.listens(),
                Push::Deaf => {}
            }
            push = heard.try_recv().ok();
        }
        redis.penalized(&penalties);
        redis.noted(&notes);
    }
}

fn instant(clock: &Clock, at: Time) -> Instant {
    Instant::now() + Duration::from_micros(at.since(clock.now()).0)
}

/// Checks what the driver would be started with, without starting it.
pub fn check(settings: &Settings) -> Result<(), String> {
    let runtime = Builder::new_current_thread()
        .build()
        .map_err(|error| error.to_string())?;
    Link::new(runtime.handle().clone(), settings.clone()).map(drop)
}
