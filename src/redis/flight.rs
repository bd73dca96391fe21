//! The seam to the network. Calls go out as flights, which a [`Carrier`] takes: the driver's thread, or a
//! simulation in its place. It is told the time by the client's clock, and decides nothing.
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::Value;

use super::lines::{Item, Then};
use super::link::{Call, Class, Failure, Lane, Silence};
use super::named::Rules;
use super::wire::{Answer, Era, Head, Holding, Malformed, Reply, Told};
use super::{Key, Named, Redis, Rule};
use crate::config::Level;
use crate::limit::time::Time;

/// Carries calls to Redis, and brings back what is heard there.
pub trait Carrier: Send + Sync {
    /// Sends what [`Flight::next`] says and tells [`Flight::heard`] what became of it, again and again
    /// until there is nothing more.
    fn carry(&self, flight: Flight);
    /// From now on [`Redis::noted`] and [`Redis::listens`] are told what is heard on a channel, and
    /// [`Redis::penalized`] what is on [`keys::penalties`](super::keys::penalties) beside it.
    fn listen(&self, channel: &str);
    /// [`Redis::beat`] is to be called now, whenever it was due.
    fn stir(&self);
    /// Says to Redis, as long as that matters, that this process uses a limiter.
    fn count_in(&self, named: Weak<Named>);
    /// Ends all connections, and waits for that, but no longer than this.
    fn close(&self, _longest: Duration) {}
    /// Times a connection was made.
    fn connects(&self) -> u64;
}

/// A call that is to be sent.
pub struct Outgoing {
    pub lane: Lane,
    pub call: Call,
    pub deadline: Time,
    pub class: Class,
}

/// Calls on a key, one after another. If one ends in any other way than by an answer, those who asked
/// hear of that.
pub struct Flight {
    redis: Arc<Redis>,
    key: Arc<Key>,
    lane: Lane,
    items: Vec<Item>,
    /// What is queued on the key is sent by whoever leads.
    leads: bool,
    trip: Trip,
    /// What the call is decided under, and when that was opened, as it says.
    told: Option<(Arc<Rules>, Told)>,
    /// Times the call came too late.
    late: u32,
}

/// A call's way to Redis and back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trip {
    /// When it was sent first; zero before.
    pub sent: Time,
    /// No copy of it is run much later.
    pub deadline: Time,
    /// It was sent more than once.
    pub again: bool,
    /// What the key's state is called.
    pub era: Option<Era>,
}

/// How often a call is sent because the server's clock is not where it was thought to be. At first it is
/// not known at all: then the first one only asks.
const LATE: u32 = 3;

impl Redis {
    /// Begins a call.
    pub(super) fn send(&self, lane: Lane, items: Vec<Item>) {
        let Some(redis) = self.me.upgrade() else {
            return;
        };
        *self.flights.lock() += 1;
        let mut flight = Flight {
            redis,
            key: items[0].key.clone(),
            lane,
            items,
            leads: lane == Lane::Bulk,
            trip: Trip::default(),
            told: None,
            late: 0,
        };
        match self.carrier() {
            Ok(carrier) => {
                self.count_in(&flight.key.named, &*carrier);
                carrier.carry(flight);
            }
            Err(message) => {
                if !self.is_closed() {
                    self.log(Level::Error, &format!("Redis: {message}"));
                }
                flight.land(Err(not_executed("DRIVER")));
            }
        }
    }

    /// Logs an error that each call may end with: not more often than every ten seconds.
    pub(super) fn complain(&self, message: &str) {
        const PAUSE: u64 = 10_000_000;
        let now = self.clock.now().0.max(1);
        let last = self.complained.load(Ordering::Relaxed);
        let swap = |last, now| {
            let order = Ordering::Relaxed;
            self.complained.compare_exchange(last, now, order, order)
        };
        if (last == 0 || now >= last + PAUSE) && swap(last, now).is_ok() {
            self.log(Level::Error, message);
        }
    }

    fn next(&self, key: &Arc<Key>) -> Option<Vec<Item>> {
        self.at(self.shard_of(key), |scene| scene.next(key))
    }
}

impl Flight {
    /// What is to be sent next, if there is more.
    #[allow(clippy::should_implement_trait)] // nobody iterates over calls
    pub fn next(&mut self) -> Option<Outgoing> {
        loop {
            self.give_up_late();
            if !self.items.is_empty() {
                return Some(self.outgoing());
            }
            if !self.leads {
                return None;
            }
            (self.trip, self.late) = (Trip::default(), 0);
            match self.redis.next(&self.key) {
                Some(items) => self.take(items),
                None => self.leads = false,
            }
        }
    }

    /// What comes next on the line may be of another handle.
    fn take(&mut self, items: Vec<Item>) {
        self.key = items[0].key.clone();
        self.items = items;
    }

    /// The server's answer to the call that was sent, or why there is none. `again`: it was sent more
    /// than once.
    pub fn heard(&mut self, result: Result<Value, Failure>, again: bool) {
        let received = self.redis.clock.now();
        let count = self.items.iter().map(|item| item.ops.len()).sum();
        let learn = |server| self.redis.offset.learn(server, self.trip.sent, received);
        self.trip.again |= again;
        match result.map(|value| self.read(&value, count)) {
            Err(failure) => self.failed(failure),
            Ok(Ok(Reply::Late(server))) => {
                learn(server);
                self.late += 1;
                if self.late == LATE {
                    self.land(Err(match self.trip.again {
                        true => Failure::Ambiguous(Silence::Timeout),
                        false => not_executed("LATE"),
                    }));
                }
            }
            Ok(Ok(Reply::Done {
                server,
                era,
                answers,
                ..
            })) => {
                learn(server);
                if let Some((rules, told)) = &self.told {
                    rules.target.learn(*told, server);
                }
                self.trip.era = era;
                self.land(Ok(answers));
            }
            Ok(Err(Malformed(reply))) => {
                let message = format!("Redis: not an answer of the script: {reply}");
                self.redis.complain(&message);
                self.land(Err(Failure::Permanent {
                    code: "MALFORMED".into(),
                    message: message.into(),
                }));
            }
        }
    }

    /// The answer to a call. A semaphore's has an era.
    fn read(&self, value: &Value, count: usize) -> Result<Reply, Malformed> {
        match Reply::read(value, count)? {
            Reply::Done { era: None, .. } if self.key.named.limits.holds() => {
                Err(Malformed("no era".into()))
            }
            reply => Ok(reply),
        }
    }

    /// A call that may have run is not sent again if it holds what must not run twice: but the rest of it
    /// is, without that.
    fn failed(&mut self, failure: Failure) {
        let once = |item: &Item| !item.may_repeat();
        if !matches!(failure, Failure::Ambiguous(_)) || !self.items.iter().any(once) {
            return self.land(Err(failure));
        }
        let items = std::mem::take(&mut self.items);
        let (once, again) = items.into_iter().partition(once);
        self.items = once;
        self.land(Err(failure));
        (self.items, self.trip.again) = (again, true);
    }

    /// Lets another call take what is queued: this one is slow.
    pub fn hand_over(&mut self) {
        if std::mem::take(&mut self.leads)
            && let Some(items) = self.redis.next(&self.key)
        {
            self.redis.send(Lane::Bulk, items);
        }
    }

    fn outgoing(&mut self) -> Outgoing {
        let redis = &*self.redis;
        let now = redis.clock.now();
        let asked = self.items.iter().map(|item| item.asked).min();
        let deadline = asked.expect("something is asked") + redis.options.config.command_timeout;
        // The answer to a call that comes too late is the time.
        let not_after = redis.offset.server_time(deadline).unwrap_or(Time(1));
        let head = match redis.tells_time() {
            false => Head {
                not_after: redis.keeps(Rule::NotAfter).then_some(not_after),
                ..Head::default()
            },
            true => Head {
                now: Some(now),
                not_after: None,
            },
        };
        let rules = match self.items[0].then {
            // What was booked under former limits is given back before others count: then it can be.
            Then::Returned(_) => self.key.named.rules.clone(),
            _ => self.key.named.current(),
        };
        let mut batch = match &rules.life {
            None => rules.target.batch(head),
            Some(life) => {
                let known = redis.at(redis.shard_of(&self.key), |scene| scene.known(&self.key));
                let known = known.filter(|_| redis.keeps(Rule::TellsEra));
                let holding = Holding {
                    known,
                    fresh: redis.dice.era(),
                    channel: &redis.channel,
                    lease: life.lease,
                    claim: life.claim,
                    allowance: life.allowance,
                    life: life.wait,
                    tells_unheard: !redis.options.link.endpoint.is_cluster(),
                };
                rules.target.holding(head, holding)
            }
        };
        let ops = self.items.iter().flat_map(|item| &item.ops);
        ops.for_each(|op| op.add_to(&mut batch, now));
        redis.stats.stripe(0).backend_calls.add(1);
        // What came too late did nothing, unless a copy of it was in time.
        if !self.trip.again {
            self.trip.sent = now;
        }
        self.trip.deadline = deadline;
        let class = batch.class();
        let told = batch.told();
        let call = batch.on(&self.key.bytes);
        self.told = Some((rules, told));
        Outgoing {
            lane: self.lane,
            call,
            deadline,
            class,
        }
    }

    fn land(&mut self, result: Result<Vec<Answer>, Failure>) {
        let items = std::mem::take(&mut self.items);
        if !items.is_empty() {
            let shard = self.redis.shard_of(&self.key);
            let trip = self.trip;
            self.redis
                .at(shard, |scene| scene.land(&self.key, items, &trip, result));
        }
    }

    /// Gives up questions whose time is over before they were sent.
    fn give_up_late(&mut self) {
        let now = self.redis.clock.now();
        let longest = self.redis.options.config.command_timeout;
        let late = |item: &Item| now >= item.asked + longest;
        if self.items.iter().any(late) {
            let items = std::mem::take(&mut self.items);
            let (late, good) = items.into_iter().partition(late);
            self.items = late;
            self.land(Err(match self.trip.again {
                true => Failure::Ambiguous(Silence::Timeout),
                false => not_executed("LATE"),
            }));
            self.items = good;
        }
    }

    /// Tells those who still wait that they will not be answered.
    fn give_up(&mut self) {
        self.land(Err(match self.trip.sent > Time(0) {
            true => Failure::Ambiguous(Silence::Dropped),
            false => not_executed("CLOSED"),
        }));
        while self.leads {
            match self.redis.next(&self.key) {
                None => break,
                Some(items) => {
                    self.take(items);
                    self.land(Err(not_executed("CLOSED")));
                }
            }
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        // After a bug under the key's lock this may fail as well, and must not end the program.
        let _ = catch_unwind(AssertUnwindSafe(|| self.give_up()));
        *self.redis.flights.lock() -= 1;
        self.redis.landed.notify_all();
    }
}

pub(super) fn not_executed(code: &str) -> Failure {
    Failure::NotExecuted {
        code: code.into(),
        retry_in: Duration::ZERO,
    }
}
