//! Calls on one key: one at a time is under way, and what is asked meanwhile goes together with the
//! next one.
use std::collections::{BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use tokio::time::timeout;

use super::driver::Driver;
use super::link::{Failure, Lane, Request, Silence};
use super::question::Op;
use super::rebook::Moved;
use super::wire::{Answer, Head, Malformed, Reply};
use super::{Key, Redis, Scene};
use crate::config::Level;

/// Most questions in one call, so that the server is not held up by it.
const MOST: usize = 64;

/// What is known of a key while something is under way on it.
#[derive(Default)]
pub(super) struct Line {
    /// Somebody sees to it that what is queued will be sent.
    flying: bool,
    queue: VecDeque<Item>,
    /// Waits with a booked time, in the order in which they came.
    pub booked: BTreeSet<u64>,
}

/// A question: some operations, and who wants the answers.
pub(super) struct Item {
    pub ops: Vec<Op>,
    pub then: Then,
    pub asked: Instant,
}

/// Who wants an answer.
pub(super) enum Then {
    /// The operation of this serial.
    Acquire(u64),
    /// Whoever waits at this slot.
    Tell(Arc<Slot>),
    /// As `Tell`, for a penalty or a reset: before it is sent, it becomes `Moved`.
    Change(Arc<Slot>),
    /// The slot, and the waits whose bookings were moved: theirs are the last answers.
    Moved(Arc<Slot>, Vec<Moved>),
    Nobody,
}

pub(super) type Heard = Result<Vec<Answer>, Failure>;

/// Where a thread waits for an answer.
#[derive(Default)]
pub(super) struct Slot {
    heard: Mutex<Option<Heard>>,
    changed: Condvar,
}

impl Slot {
    fn tell(&self, heard: Heard) {
        *self.heard.lock().unwrap() = Some(heard);
        self.changed.notify_one();
    }

    pub fn wait(&self, longest: Duration) -> Heard {
        let heard = self.heard.lock().unwrap();
        let silent = |heard: &mut Option<Heard>| heard.is_none();
        let waited = self.changed.wait_timeout_while(heard, longest, silent);
        let heard = waited.unwrap().0.take();
        heard.unwrap_or(Err(Failure::Ambiguous(Silence::Timeout)))
    }
}

impl Item {
    pub fn new(ops: Vec<Op>, then: Then) -> Item {
        let asked = Instant::now();
        Item { ops, then, asked }
    }
}

impl Scene<'_> {
    /// Sees to it that a question is sent: now, or with the next call on its key.
    pub fn enqueue(&mut self, key: &Arc<Key>, item: Item) {
        let line = self.line(key);
        if line.flying {
            line.queue.push_back(item);
        } else {
            line.flying = true;
            let item = self.with_moves(key, item);
            self.due.push((key.clone(), vec![item]));
        }
    }

    pub fn line(&mut self, key: &Arc<Key>) -> &mut Line {
        self.shard.lines.entry(key.clone()).or_default()
    }

    /// Forgets a line on which nothing is under way.
    pub fn tidy(&mut self, key: &Arc<Key>) {
        let idle = |line: &Line| !line.flying && line.booked.is_empty();
        if self.shard.lines.get(key).is_some_and(idle) {
            self.shard.lines.remove(key);
        }
    }

    /// What is to be sent next on a key. None: and nobody sees to it any more.
    fn next(&mut self, key: &Arc<Key>) -> Option<Vec<Item>> {
        let line = self.shard.lines.get_mut(key)?;
        assert!(line.flying, "only who flies asks");
        // A change goes alone, after the answers to all that was asked before it: it moves what that
        // booked. And a key that holds garbage is healed by a reset only as a call's first operation.
        let changes = |item: &Item| matches!(item.then, Then::Change(_));
        let first = line.queue.iter().position(changes);
        let count = match first {
            Some(0) => 1,
            _ => first.unwrap_or(MOST).min(line.queue.len()).min(MOST),
        };
        if count == 0 {
            line.flying = false;
            self.tidy(key);
            return None;
        }
        let items: Vec<Item> = line.queue.drain(..count).collect();
        let moved = items.into_iter().map(|item| self.with_moves(key, item));
        Some(moved.collect())
    }

    /// Hands answers on.
    fn land(&mut self, key: &Arc<Key>, items: Vec<Item>, result: Heard) {
        let mut answers = result.map(Vec::into_iter);
        for item in items {
            let count = item.ops.len();
            let heard: Heard = match &mut answers {
                Ok(answers) => Ok(answers.take(count).collect()),
                Err(failure) => Err(failure.clone()),
            };
            match item.then {
                Then::Acquire(serial) => {
                    let answer = heard.map(|mut answers| answers.remove(0));
                    self.answered(key, serial, answer);
                }
                Then::Tell(slot) | Then::Change(slot) => slot.tell(heard),
                Then::Moved(slot, moved) => {
                    self.moved(key, moved, &heard);
                    slot.tell(heard);
                }
                Then::Nobody => {}
            }
        }
    }
}

impl Redis {
    /// Begins a call.
    pub(super) fn send(&self, key: Arc<Key>, items: Vec<Item>) {
        *self.flights.lock().unwrap() += 1;
        let Some(redis) = self.me.upgrade() else {
            *self.flights.lock().unwrap() -= 1;
            return;
        };
        let flight = Flight {
            redis,
            key,
            items,
            leads: AtomicBool::new(true),
            sent: AtomicBool::new(false),
        };
        match self.driver() {
            Ok(driver) => {
                self.count_in(&flight.key.named, &driver);
                drop(driver.handle.spawn(fly(driver.clone(), flight)))
            }
            Err(message) => {
                if !self.is_closed() {
                    self.log(Level::Error, &format!("Redis: {message}"));
                }
                let failure = not_executed("DRIVER");
                let mut flight = flight;
                flight.land(Err(failure));
            }
        }
    }

    fn next(&self, key: &Arc<Key>) -> Option<Vec<Item>> {
        self.at(self.shard_of(key), |scene| scene.next(key))
    }
}

/// A call under way. If it ends in any other way than by an answer, those who asked hear of that.
struct Flight {
    redis: Arc<Redis>,
    key: Arc<Key>,
    items: Vec<Item>,
    /// What is queued on the key is sent by whoever leads.
    leads: AtomicBool,
    /// It may have reached the server.
    sent: AtomicBool,
}

impl Flight {
    fn land(&mut self, result: Heard) {
        let items = std::mem::take(&mut self.items);
        if !items.is_empty() {
            let shard = self.redis.shard_of(&self.key);
            self.redis
                .at(shard, |scene| scene.land(&self.key, items, result));
        }
    }

    /// Gives up questions whose time is over before they were sent.
    fn give_up_late(&mut self) {
        let (now, longest) = (Instant::now(), self.redis.command_timeout);
        let late = |item: &Item| now >= item.asked + longest;
        if self.items.iter().any(late) {
            let items = std::mem::take(&mut self.items);
            let (late, good) = items.into_iter().partition(late);
            self.items = late;
            self.land(Err(not_executed("LATE")));
            self.items = good;
        }
    }

    /// Lets another call take what is queued.
    fn hand_over(&self) {
        self.leads.store(false, Ordering::Relaxed);
        if let Some(items) = self.redis.next(&self.key) {
            self.redis.send(self.key.clone(), items);
        }
    }
}

impl Flight {
    /// Tells those who still wait that they will not be answered.
    fn give_up(&mut self) {
        let sent = self.sent.load(Ordering::Relaxed);
        self.land(Err(match sent {
            true => Failure::Ambiguous(Silence::Dropped),
            false => not_executed("CLOSED"),
        }));
        while self.leads.load(Ordering::Relaxed) {
            match self.redis.next(&self.key) {
                None => break,
                Some(items) => {
                    self.items = items;
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
        *self.redis.flights.lock().unwrap() -= 1;
        self.redis.landed.notify_all();
    }
}

fn not_executed(code: &str) -> Failure {
    Failure::NotExecuted {
        code: code.into(),
        retry_in: Duration::ZERO,
    }
}

async fn fly(driver: Arc<Driver>, mut flight: Flight) {
    loop {
        flight.give_up_late();
        let patience = super::driver::patience(flight.redis.command_timeout);
        let result = if flight.items.is_empty() {
            Ok(Vec::new())
        } else {
            flight.sent.store(true, Ordering::Relaxed);
            let call = ask(&driver, &flight);
            tokio::pin!(call);
            match timeout(patience, &mut call).await {
                Ok(result) => result,
                Err(_) => {
                    flight.hand_over();
                    call.await
                }
            }
        };
        flight.land(result);
        if !flight.leads.load(Ordering::Relaxed) {
            return;
        }
        match flight.redis.next(&flight.key) {
            Some(items) => flight.items = items,
            None => {
                flight.leads.store(false, Ordering::Relaxed);
                return;
            }
        }
    }
}

/// One call, sent once more if the server's clock was not where it was thought to be.
async fn ask(driver: &Driver, flight: &Flight) -> Heard {
    let redis = &flight.redis;
    let asked = flight.items.iter().map(|item| item.asked).min();
    let deadline = asked.expect("something is asked") + redis.command_timeout;
    let ops = || flight.items.iter().flat_map(|item| &item.ops);
    let key = &flight.key;
    for _ in 0..2 {
        let head = Head {
            now: None,
            not_after: driver.offset.server_time(deadline),
        };
        let mut batch = key.named.target.batch(head);
        ops().for_each(|op| op.add_to(&mut batch));
        let (count, class, told) = (batch.len(), batch.class(), batch.told());
        let request = Request::from(batch.on(&key.bytes));
        redis.stats.stripe(0).backend_calls.add(1);
        let sent = Instant::now();
        let value = driver
            .link
            .call(Lane::Bulk, request, deadline, class)
            .await?;
        let received = Instant::now();
        match Reply::read(&value, count) {
            Ok(Reply::Late(server)) => driver.offset.learn(server, sent, received),
            Ok(Reply::Done {
                server, answers, ..
            }) => {
                driver.offset.learn(server, sent, received);
                key.named.target.learn(told, server);
                return Ok(answers);
            }
            Err(Malformed(reply)) => {
                let message = format!("Redis: not an answer of the script: {reply}");
                redis.log(Level::Error, &message);
                return Err(Failure::Permanent {
                    code: "MALFORMED".into(),
                    message: message.into(),
                });
            }
        }
    }
    Err(not_executed("LATE"))
}
