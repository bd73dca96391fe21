//! What tasks do: every verb, some of them in threads of their own because they block.
use limiter::decision::Status;
use limiter::limit::rule::Rule;
use limiter::limit::time::Span;
use limiter::op::{Request, Sink, Weights};

use crate::fiber::Fiber;
use crate::task::{Ask, Done, State};
use crate::world::{Event, LEASE, LOCAL, World};

pub const KEYS: [&[u8]; 2] = [b"a", b"b"];

impl Ask {
    fn request(&self, token: u64) -> Request<'_> {
        Request {
            key: self.key,
            weights: Weights::Each(&self.weights),
            wait: self.wait.map(Span),
            lease: self.lease.map(Span),
            renew: self.renew,
            tell_lost: true,
            user_data: token,
        }
    }
}

impl World {
    pub fn alarm(&mut self, p: usize, t: usize, pause: u64) {
        let life = self.processes[p].life;
        let task = &mut self.processes[p].tasks[t];
        task.alarm += 1;
        let alarm = task.alarm;
        self.push(self.now + pause, Event::Alarm { p, life, t, alarm });
    }

    pub fn begin_fiber(&mut self, p: usize, t: usize, act: impl FnOnce() -> Done + Send + 'static) {
        self.count("blocked");
        self.processes[p].fibers.push((t, Fiber::new(act)));
    }

    /// A limiter with a semaphore, and one of its keys.
    pub fn somewhere(&mut self) -> (usize, &'static [u8]) {
        let limiter = [0, 0, 0, 1, 1, LOCAL][self.random.below(6) as usize];
        let key = if self.random.below(4) == 0 { 1 } else { 0 };
        (limiter, KEYS[key])
    }

    /// Most that ever fits, of each limit.
    fn most(&self, limiter: usize) -> Vec<u64> {
        let limits = self.limits[limiter].1.limits().iter();
        let most = limits.map(|limit| match &limit.rule {
            Rule::Semaphore(it) => it.capacity(),
            Rule::TokenBucket(it) => it.capacity(),
            Rule::SlidingLog(it) => it.limit(),
            Rule::SlidingCounter(it) => it.limit(),
            Rule::FixedWindow(it) => it.limit(),
            Rule::Pacer(_) => 1,
            other => unreachable!("{other:?}"),
        });
        most.collect()
    }

    fn ask(&mut self, limiter: usize, key: &'static [u8]) -> Ask {
        let most = self.most(limiter);
        let weights = most
            .iter()
            .map(|most| 1 + self.random.below((*most).min(3)));
        let weights = weights.collect();
        let wait = match self.random.below(10) {
            0 => None,
            1 | 2 => Some(0),
            3 => Some(self.between(1_000, 300_000)),
            _ => Some(self.between(100_000, 8_000_000)),
        };
        let lease = (self.random.below(8) == 0).then(|| self.between(300_000, LEASE));
        Ask {
            limiter,
            key,
            weights,
            wait,
            lease,
            renew: self.random.below(5) != 0,
            alone: false,
        }
    }

    /// A task does something.
    fn begin(&mut self, p: usize, t: usize) {
        let what = self.random.below(100);
        let (limiter, key) = match what {
            0..65 | 90..100 => self.somewhere(),
            _ => (2 + self.random.below(2) as usize, KEYS[0]),
        };
        let ask = self.ask(limiter, key);
        if self.random.below(12) == 0 {
            return self.try_bucket(p, t);
        }
        match what {
            0..80 => self.acquire(p, t, ask),
            80..86 => self.call(
                p,
                t,
                move |redis, named| {
                    let wait = ask.wait.or(Some(1_000_000));
                    Done::Paced(redis.pace(named, &Ask { wait, ..ask }.request(0)))
                },
                limiter,
            ),
            86..93 => {
                let ask = Ask {
                    wait: ask.wait.or(Some(500_000)),
                    ..ask
                };
                self.call(
                    p,
                    t,
                    move |redis, named| {
                        let decision = redis.acquire_blocking(named, &ask.request(0));
                        Done::Acquired(ask, decision)
                    },
                    limiter,
                )
            }
            93..95 => self.call(
                p,
                t,
                move |redis, named| {
                    let requests = [
                        ask.request(0),
                        Request {
                            key: KEYS[1],
                            ..ask.request(0)
                        },
                    ];
                    let decisions = redis.try_many(named, &requests);
                    for decision in &decisions {
                        if decision.permit != 0 {
                            redis.release(decision.permit);
                        }
                    }
                    Done::Many(ask, decisions)
                },
                limiter,
            ),
            95..99 => self.call(
                p,
                t,
                move |redis, named| Done::Looked(redis.peek(named, &ask.request(0))),
                limiter,
            ),
            _ => {
                let span = self.between(1_000, 700_000);
                self.excuse(span);
                self.call(
                    p,
                    t,
                    move |redis, named| Done::Changed(redis.penalize(named, key, Span(span))),
                    limiter,
                )
            }
        }
    }

    fn call(
        &mut self,
        p: usize,
        t: usize,
        act: impl FnOnce(&limiter::redis::Redis, &std::sync::Arc<limiter::redis::Named>) -> Done
        + Send
        + 'static,
        limiter: usize,
    ) {
        let process = &mut self.processes[p];
        process.tasks[t].state = State::Calls;
        let (redis, named) = (process.redis.clone(), process.named[limiter].clone());
        self.begin_fiber(p, t, move || act(&redis, &named));
    }

    /// Without a wait, so that an answer is of the time at which it comes.
    fn try_bucket(&mut self, p: usize, t: usize) {
        let ask = Ask {
            wait: Some(0),
            ..self.ask(LOCAL + 1, KEYS[0])
        };
        self.acquire(p, t, ask)
    }

    fn acquire(&mut self, p: usize, t: usize, ask: Ask) {
        let process = &self.processes[p];
        let sink = Sink::Queue(process.queue.clone());
        self.token += 1;
        let request = ask.request(self.token);
        let decision = process
            .redis
            .acquire(&process.named[ask.limiter], &request, sink);
        let patience = ask.wait.unwrap_or(u64::MAX);
        if decision.status == Status::Denied
            && !self.holds(ask.limiter)
            && decision.retry_after_us > patience
        {
            // It was denied before, and that still stands.
            self.count("denied again");
            return self.rest(p, t);
        }
        if decision.status != Status::Pending {
            return self.found(format!("begun: {:?}", decision.status));
        }
        self.tell(format!("p{p}.{t} asks {ask:?}"));
        let op = decision.op;
        if self.processes[p].open.insert(op, t).is_some() {
            self.found("a number is used twice".into());
        }
        let give_up = match ask.wait {
            None => Some(self.between(50_000, 8_000_000)),
            Some(wait) => (self.random.below(4) == 0).then(|| self.random.below(wait + 1)),
        };
        let since = self.now;
        self.processes[p].tasks[t].state = State::Waits { op, ask, since };
        if let Some(pause) = give_up {
            self.alarm(p, t, pause);
        }
    }

    pub fn alarmed(&mut self, p: usize, t: usize) {
        if self.processes[p].closing {
            return;
        }
        match self.processes[p].tasks[t].state.clone() {
            State::Idle if self.works() => self.begin(p, t),
            State::Idle | State::Calls => {}
            State::Waits { op, .. } => self.give_up(p, t, op),
            State::Holds { permit, ask, until } => self.work(p, t, permit, &ask, until),
        }
    }

    fn give_up(&mut self, p: usize, t: usize, op: u64) {
        self.count("cancels");
        let detach = self.random.below(3) == 0;
        let status = self.processes[p].redis.cancel(op, detach);
        self.tell(format!("p{p}.{t} gives up, {detach}: {status:?}"));
        if status != Status::Ok {
            return self.found(format!("a cancel of what goes on: {status:?}"));
        }
        if detach {
            self.processes[p].open.remove(&op);
            self.rest(p, t);
        }
    }

    /// Uses what is held.
    fn work(&mut self, p: usize, t: usize, permit: u64, ask: &Ask, until: u64) {
        let redis = self.processes[p].redis.clone();
        if self.now < until && self.holds(ask.limiter) {
            let most = if ask.renew { 900_000 } else { 300_000 };
            let next = self
                .between(5_000, most)
                .min(until.max(self.now + 1) - self.now);
            match self.random.below(4) {
                // Who renews by hand does so often, for long and for short.
                n if n == 0 || !ask.renew => {
                    let lease = self.random.below(2) == 0;
                    let lease = lease.then(|| Span(self.between(100_000, LEASE / 3)));
                    self.tell(format!("p{p}.{t} renews by {lease:?}"));
                    self.begin_fiber(p, t, move || Done::Kept(redis.renew(permit, lease)));
                }
                1 => {
                    let actual = self.random.below(4);
                    self.begin_fiber(p, t, move || Done::Kept(redis.settle(permit, actual)));
                }
                _ => {}
            }
            return self.alarm(p, t, next);
        }
        if !self.holds(ask.limiter) && !ask.alone && self.random.below(2) == 0 {
            let actual = self.random.below(4);
            self.begin_fiber(p, t, move || Done::Kept(redis.settle(permit, actual)));
            return self.rest(p, t);
        }
        let status = redis.release(permit);
        self.tell(format!("p{p}.{t} releases: {status:?}"));
        if status == Status::Stale
            && !self.troubled()
            && self.mode != crate::trouble::Mode::Reset
            && ask.renew
        {
            self.found("a permit is lost, and nothing went wrong".into());
        }
        self.rest(p, t);
    }
}
