//! One story on both backends, step by step, and what they answer differently.
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use limiter::client::{Client, ClientQueue};
use limiter::config::Config;
use limiter::decision::{Decision, NO_LIMIT, Status};
use limiter::limit::time::Span;
use limiter::limiter::{Limiter, spec};
use limiter::op::{Request, Weights};

use crate::story::{Ask, KEYS, Nth, Step, Story};

/// One backend.
struct Side {
    client: Arc<Client>,
    queue: ClientQueue,
    handles: Vec<Limiter>,
    name: String,
    permits: Vec<u64>,
    ops: Vec<u64>,
    /// The operation that was begun for what was asked, by its number.
    begun: HashMap<u64, u64>,
    /// The latest fencing number of each key.
    fences: [u64; 2],
}

pub struct Stage<'a> {
    story: &'a Story,
    /// Memory, Redis.
    sides: [Side; 2],
    /// Key of what was asked, by its number here, which comes back as user_data.
    asked: Vec<usize>,
    /// A lease may end sooner than Redis was told last: then its process releases the permit.
    short: bool,
    /// The present step changes a key as a whole.
    changes: bool,
    pub log: String,
    pub differs: bool,
}

impl Side {
    fn open(url: &str, story: &Story, name: &str) -> Side {
        let mut config = Config::default();
        for (key, value) in &story.settings {
            config.set(key, value).unwrap();
        }
        let client = Client::open(url, &config).unwrap();
        let mut side = Side {
            queue: ClientQueue::new(&client).unwrap(),
            client,
            handles: Vec::new(),
            name: name.into(),
            permits: Vec::new(),
            ops: Vec::new(),
            begun: HashMap::new(),
            fences: [0; 2],
        };
        side.again(story, 0);
        side
    }

    fn again(&mut self, story: &Story, limits: usize) {
        let handle = Limiter::new(&self.client, &self.name, &story.limits[limits]).unwrap();
        self.handles.push(handle);
    }

    fn pass(&self, us: u64) {
        assert_eq!(self.client.clock_advance(Span(us)), Ok(Status::Ok));
    }

    /// What has completed. Of those on different keys, and of leases that end, nothing says which comes first.
    fn poll(&self, asked: &[usize]) -> Vec<Decision> {
        let mut all = self.queue.poll(1000, Some(Duration::ZERO)).unwrap();
        let place = |one: &Decision| {
            (
                asked[(one.user_data >> 8) as usize],
                one.status == Status::Stale,
            )
        };
        all.sort_by_key(place);
        all
    }

    fn decide(
        &self,
        ask: &Ask,
        user_data: u64,
        call: impl Fn(&Limiter, &Request) -> Decision,
    ) -> Decision {
        let handle = &self.handles[ask.handle % self.handles.len()];
        call(handle, &request(ask, user_data))
    }
}

fn request(ask: &Ask, user_data: u64) -> Request<'_> {
    Request {
        key: KEYS[ask.key],
        weights: match &ask.weights[..] {
            [one] => Weights::Same(*one),
            each => Weights::Each(each),
        },
        wait: ask.wait.map(Span::millis),
        lease: ask.lease_ms.map(Span::millis),
        renew: ask.renew,
        tell_lost: ask.tell_lost,
        user_data,
    }
}

fn from_last<T: Copy>(all: &[T], nth: Nth) -> Option<T> {
    let last = all.len().checked_sub(1)?;
    Some(all[last - nth % all.len()])
}

impl<'a> Stage<'a> {
    pub fn open(url: &str, story: &'a Story, name: &str) -> Stage<'a> {
        Stage {
            story,
            sides: ["memory://", url].map(|url| Side::open(url, story, name)),
            asked: Vec::new(),
            short: false,
            changes: false,
            log: String::new(),
            differs: false,
        }
    }

    /// A number for what is asked, with its tag in the lowest bits. What [`Step::CancelWaits`] goes by is
    /// the whole of it, so a tag is of one call only.
    fn user_data(&mut self, ask: &Ask) -> u64 {
        self.asked.push(ask.key);
        (self.asked.len() as u64 - 1) << 8 | ask.tag
    }

    pub fn step(&mut self, step: &Step) {
        let _ = writeln!(self.log, "{step:?}");
        self.changes = matches!(step, Step::Penalize(..) | Step::Reset(..) | Step::Open(_));
        match step {
            Step::Try(ask) => self.ask(ask, |limiter, request| {
                let request = Request {
                    wait: Some(Span::ZERO),
                    tell_lost: false,
                    ..*request
                };
                limiter.acquire(&request).unwrap()
            }),
            Step::Peek(ask) => self.ask(ask, |limiter, request| {
                let request = Request {
                    tell_lost: false,
                    ..*request
                };
                limiter.peek(&request).unwrap()
            }),
            Step::Pace(ask) => self.ask(ask, |limiter, request| {
                let request = Request {
                    tell_lost: false,
                    ..*request
                };
                limiter.pace(&request).unwrap()
            }),
            Step::TryMany(asks) => {
                let data: Vec<u64> = asks.iter().map(|ask| self.user_data(ask)).collect();
                let [memory, redis] = self.sides.each_ref().map(|side| {
                    let all = asks.iter().zip(&data);
                    let all = all.map(|(ask, data)| Request {
                        tell_lost: false,
                        ..request(ask, *data)
                    });
                    let handle = &side.handles[asks[0].handle % side.handles.len()];
                    handle.try_many(&all.collect::<Vec<_>>()).unwrap()
                });
                for (i, ask) in asks.iter().enumerate() {
                    self.compare(&format!("  [{i}]"), ask.key, memory[i], redis[i]);
                }
            }
            Step::Submit(ask) => self.submit(ask),
            Step::Release(nth) => {
                self.on_permit(*nth, |side, permit| side.handles[0].release(permit))
            }
            Step::ReleaseGuessed(nth, more) => {
                let guessed = |side: &Side, permit: u64| {
                    let guess = permit.wrapping_add(*more);
                    match side.permits.contains(&guess) {
                        true => Ok(Status::Stale),
                        false => side.handles[0].release(guess),
                    }
                };
                self.on_permit(*nth, guessed);
            }
            Step::Settle(nth, actual) => {
                let back = self.sides[0].handles.len() > 2;
                self.on_permit(*nth, |side, permit| {
                    match side.handles[0].settle(permit, *actual) {
                        Ok(Status::Stale) if back => Ok(Status::Ok),
                        ended => ended,
                    }
                });
            }
            Step::Renew(nth, ms) => {
                self.short |= ms.is_some();
                let lease = ms.map(Span::millis);
                self.on_permit(*nth, |side, permit| side.handles[0].renew(permit, lease));
            }
            Step::Cancel(nth, detach) => {
                let op = |side: &Side| from_last(&side.ops, *nth);
                if op(&self.sides[0]).is_some() {
                    self.each(|side| side.client.cancel(op(side).unwrap(), *detach));
                }
            }
            Step::CancelWaits(tag) => {
                // All of a tag, the latest first.
                let waits = (0..self.asked.len() as u64).map(|n| n << 8 | tag);
                for wait in waits.rev() {
                    self.each(|side| side.client.cancel_waits(wait));
                }
            }
            Step::Penalize(handle, key, us) => self.each(|side| {
                let handle = &side.handles[handle % side.handles.len()];
                handle.penalize(KEYS[*key], Span(*us))
            }),
            Step::Reset(handle, key) => self.each(|side| {
                let handle = &side.handles[handle % side.handles.len()];
                handle.reset(KEYS[*key])
            }),
            Step::Open(limits) => {
                let story = self.story;
                self.sides
                    .iter_mut()
                    .for_each(|side| side.again(story, *limits));
            }
            Step::Pass(us) => {
                self.each(|side| side.pass(*us));
            }
        }
        self.settle_down();
    }

    fn ask(&mut self, ask: &Ask, call: impl Fn(&Limiter, &Request) -> Decision) {
        let data = self.user_data(ask);
        let [memory, redis] = self
            .sides
            .each_ref()
            .map(|side| side.decide(ask, data, &call));
        self.compare("  ", ask.key, memory, redis);
    }

    /// Memory may answer at once what Redis answers by a completion.
    fn submit(&mut self, ask: &Ask) {
        // Longer than any claim.
        self.short |= ask.lease_ms.is_some_and(|ms| ms < 2_000);
        let data = self.user_data(ask);
        let [memory, redis] = self.sides.each_ref().map(|side| {
            side.decide(ask, data, |limiter, request| {
                side.queue.submit(limiter, request).unwrap()
            })
        });
        self.sides.iter().for_each(|side| side.pass(0));
        for (side, one) in self.sides.iter_mut().zip([memory, redis]) {
            side.begun.insert(data, one.op);
        }
        let redis = match (memory.status, redis.status) {
            (Status::Pending, Status::Pending) => {
                self.sides[0].ops.push(memory.op);
                self.sides[1].ops.push(redis.op);
                redis
            }
            (_, Status::Pending) => {
                match self.sides[1].queue.poll(1, Some(Duration::ZERO)).unwrap()[..] {
                    [completed] => Decision { op: 0, ..completed },
                    _ => redis,
                }
            }
            _ => redis,
        };
        self.compare("  ", ask.key, memory, redis);
    }

    fn on_permit(&mut self, nth: Nth, call: impl Fn(&Side, u64) -> Result<Status, Status>) {
        if from_last(&self.sides[0].permits, nth).is_some() {
            self.each(|side| call(side, from_last(&side.permits, nth).unwrap()));
        }
    }

    fn each<T: PartialEq + std::fmt::Debug>(&mut self, call: impl Fn(&Side) -> T) {
        let [memory, redis] = self.sides.each_ref().map(call);
        let _ = match memory == redis {
            true => writeln!(self.log, "  {memory:?}"),
            false => {
                self.differs = true;
                writeln!(self.log, "! memory {memory:?}\n! Redis  {redis:?}")
            }
        };
    }

    /// Lets everything happen that would by now, and compares what has completed.
    fn settle_down(&mut self) {
        self.sides.iter().for_each(|side| side.pass(0));
        let [memory, redis] = self.sides.each_ref().map(|side| side.poll(&self.asked));
        let order = |all: &[Decision]| all.iter().map(|one| one.user_data).collect::<Vec<_>>();
        if order(&memory) != order(&redis) {
            self.differs = true;
            for (name, all) in [("memory", &memory), ("Redis ", &redis)] {
                for one in all {
                    let _ = writeln!(self.log, "! {name} completes {}", told(one));
                }
            }
            return;
        }
        for (mut memory, mut redis) in memory.into_iter().zip(redis) {
            let key = self.asked[(memory.user_data >> 8) as usize];
            for (side, one) in self.sides.iter().zip([&mut memory, &mut redis]) {
                // That is 0 where it was answered at once, which Redis never does.
                one.op = u64::from(side.begun.get(&one.user_data) == Some(&one.op));
            }
            if redis.status == Status::Denied {
                (redis.limit, redis.index) = (memory.limit, memory.index);
                (redis.remaining, redis.reset_after_us) = (memory.remaining, memory.reset_after_us);
                if self.changes {
                    redis.retry_after_us = memory.retry_after_us;
                }
            }
            self.compare("  completes", key, memory, redis);
        }
    }

    /// A semaphore says when to come back.
    fn is_hint(&self, one: &Decision) -> bool {
        let limit = self.story.limits[0].get(one.index as usize);
        one.status == Status::Denied && limit.is_some_and(|limit| limit.kind == spec::SEMAPHORE)
    }

    /// Every field, but that numbers of permits and operations are each backend's own.
    fn compare(&mut self, what: &str, key: usize, memory: Decision, redis: Decision) {
        let both = [memory, redis];
        for (side, one) in self.sides.iter_mut().zip(both) {
            if one.status == Status::Ok && one.permit != 0 {
                side.permits.push(one.permit);
            }
            if one.fence != 0 {
                if one.fence <= side.fences[key] {
                    self.differs = true;
                    let _ = writeln!(
                        self.log,
                        "! a fence of {} after {}",
                        one.fence, side.fences[key]
                    );
                }
                side.fences[key] = one.fence;
            }
        }
        let plain = |one: Decision| Decision {
            permit: u64::from(one.permit != 0),
            op: u64::from(one.op != 0),
            fence: u64::from(one.fence != 0),
            ..one
        };
        let [memory, mut redis] = both.map(plain);
        if self.short && self.is_hint(&memory) && self.is_hint(&redis) {
            redis.retry_after_us = memory.retry_after_us;
        }
        let _ = match memory == redis {
            true => writeln!(self.log, "{what} {}", told(&memory)),
            false => {
                self.differs = true;
                writeln!(
                    self.log,
                    "! {what} memory {}\n! {what} Redis  {}",
                    told(&memory),
                    told(&redis)
                )
            }
        };
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        for side in &self.sides {
            let _ = side.client.shutdown(Some(Duration::ZERO));
        }
    }
}

fn told(one: &Decision) -> String {
    let Decision {
        status,
        limit,
        remaining,
        retry_after_us,
        reset_after_us,
        waited_us,
        queue_position,
        user_data,
        ..
    } = one;
    let index = match one.index {
        NO_LIMIT => "-".into(),
        index => index.to_string(),
    };
    let user_data = user_data >> 8;
    format!(
        "#{user_data} {status:?}: {remaining} of {limit} at {index}, retry {retry_after_us}, reset {reset_after_us}, \
         waited {waited_us}, behind {queue_position}, permit {}, op {}, fence {}",
        one.permit, one.op, one.fence
    )
}

pub fn limits_told(story: &Story) -> String {
    let mut text = String::new();
    for limits in &story.limits {
        for one in limits {
            let _ = write!(
                text,
                "[kind {} flags {} capacity {} refill {} period {} lease {} earn {} v{}] ",
                one.kind,
                one.flags,
                one.capacity,
                one.refill,
                one.period_us,
                one.lease_ms,
                one.burst_earn_permille,
                one.version
            );
        }
        text.push('\n');
    }
    let _ = writeln!(text, "{:?}", story.settings);
    text
}
