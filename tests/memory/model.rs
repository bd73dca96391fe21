//! Random sequences of calls, against models so simple that one sees that they are right.
use std::collections::BTreeMap;

use limiter::decision::Status;
use limiter::limit::time::Span;
use limiter::op::Request;
use proptest::prelude::*;

use crate::kit::*;
use crate::properties::cases;

/// What can happen to a semaphore. Indices are taken modulo what there is.
#[derive(Clone, Debug)]
enum Step {
    Try(u64),
    /// Weight, wait, lease.
    Wait(u64, Option<u64>, Option<u64>),
    Release(usize),
    Renew(usize, u64),
    Cancel(usize, bool),
    Pass(u64),
    Poll,
    Resize(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let weight = 1..=6u64;
    let some = prop::option::of(1..=20u64);
    let step = prop_oneof![
        3 => weight.clone().prop_map(Step::Try),
        6 => (weight, some.clone(), some).prop_map(|(w, wait, lease)| Step::Wait(w, wait, lease)),
        6 => any::<usize>().prop_map(Step::Release),
        1 => (any::<usize>(), 1..=20u64).prop_map(|(i, lease)| Step::Renew(i, lease)),
        3 => (any::<usize>(), any::<bool>()).prop_map(|(i, detach)| Step::Cancel(i, detach)),
        4 => (0..=8u64).prop_map(Step::Pass),
        3 => Just(Step::Poll),
        1 => (1..=6u64).prop_map(Step::Resize),
    ];
    prop::collection::vec(step, 1..80)
}

#[derive(Clone, Debug)]
struct Waiter {
    weight: u64,
    deadline: Option<u64>,
    lease: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Holder {
    weight: u64,
    ends: Option<u64>,
    lease: Option<u64>,
}

/// A semaphore by the book: holders and waiters in lists, time in whole ticks. Both are known by the
/// number of the request.
#[derive(Default)]
struct Model {
    now: u64,
    capacity: u64,
    holders: BTreeMap<usize, Holder>,
    waiters: BTreeMap<usize, Waiter>,
    /// Completions that were not polled yet.
    done: Vec<(usize, Status)>,
}

impl Model {
    fn used(&self) -> u64 {
        self.holders.values().map(|h| h.weight).sum()
    }

    fn ask(&mut self, n: usize, waiter: Waiter, patient: bool) -> Status {
        if waiter.weight > self.capacity {
            return Status::Never;
        }
        if self.waiters.is_empty() && self.used() + waiter.weight <= self.capacity {
            self.hold(n, &waiter);
            return Status::Ok;
        }
        if !patient {
            return Status::Denied;
        }
        self.waiters.insert(n, waiter);
        Status::Pending
    }

    fn hold(&mut self, n: usize, waiter: &Waiter) {
        let ends = waiter.lease.map(|lease| self.now + lease);
        self.holders.insert(
            n,
            Holder {
                weight: waiter.weight,
                ends,
                lease: waiter.lease,
            },
        );
    }

    fn pump(&mut self) {
        while let Some((&n, waiter)) = self.waiters.iter().next() {
            let waiter = waiter.clone();
            if waiter.weight <= self.capacity && self.used() + waiter.weight > self.capacity {
                return;
            }
            self.waiters.remove(&n);
            if waiter.weight > self.capacity {
                self.done.push((n, Status::Never));
            } else {
                self.hold(n, &waiter);
                self.done.push((n, Status::Ok));
            }
        }
    }

    fn pass(&mut self, ticks: u64) {
        for _ in 0..ticks {
            self.now += 1;
            let now = self.now;
            self.holders.retain(|_, h| h.ends != Some(now));
            self.pump();
            while let Some(n) = self
                .waiters
                .iter()
                .find(|(_, w)| w.deadline == Some(now))
                .map(|(n, _)| *n)
            {
                self.waiters.remove(&n);
                self.done.push((n, Status::Denied));
                self.pump();
            }
        }
    }

    fn resize(&mut self, capacity: u64) {
        self.capacity = capacity;
        let heavy = self.waiters.iter().filter(|(_, w)| w.weight > capacity);
        let heavy: Vec<usize> = heavy.map(|(n, _)| *n).collect();
        for n in heavy {
            self.waiters.remove(&n);
            self.done.push((n, Status::Never));
        }
        self.pump();
    }
}

const TICK: u64 = 1_000;

/// Model and backend side by side.
struct Pair {
    world: World,
    queue: std::sync::Arc<limiter::queue::Queue>,
    limiter: std::sync::Arc<limiter::memory::Named>,
    model: Model,
    /// Permits and ops by the number of their request.
    permits: BTreeMap<usize, u64>,
    ops: Vec<(usize, u64)>,
    requests: usize,
}

impl Pair {
    fn new() -> Pair {
        let world = World::new();
        let model = Model {
            capacity: 4,
            ..Model::default()
        };
        Pair {
            queue: world.queue(),
            limiter: world.limiter("n", [sem(model.capacity)]),
            world,
            model,
            permits: BTreeMap::new(),
            ops: Vec::new(),
            requests: 0,
        }
    }

    fn ask(&mut self, weight: u64, wait: Option<Option<u64>>, lease: Option<u64>) {
        let n = self.requests;
        self.requests += 1;
        let patience = match wait {
            None => Some(Span::ZERO),
            Some(ticks) => ticks.map(|t| Span(t * TICK)),
        };
        let request = Request {
            lease: lease.map(|t| Span(t * TICK)),
            renew: lease.is_none(),
            user_data: n as u64,
            ..ask(weight, patience)
        };
        let decision = self.world.submit(&self.limiter, &self.queue, request);
        let deadline = wait.flatten().map(|t| self.model.now + t);
        let expected = self.model.ask(
            n,
            Waiter {
                weight,
                deadline,
                lease,
            },
            wait.is_some(),
        );
        assert_eq!(decision.status, expected, "request {n}");
        if decision.status == Status::Ok {
            self.permits.insert(n, decision.permit);
        }
        if decision.status == Status::Pending {
            self.ops.push((n, decision.op));
        }
    }

    fn poll(&mut self) {
        let mut polled = Vec::new();
        for decision in done(&self.queue) {
            let n = decision.user_data as usize;
            polled.push((n, decision.status));
            if decision.status == Status::Ok {
                self.permits.insert(n, decision.permit);
            }
        }
        assert_eq!(polled, std::mem::take(&mut self.model.done));
    }

    fn cancel(&mut self, (n, op): (usize, u64), detach: bool) {
        let status = self.world.memory.cancel(op, detach);
        let waited = self.model.waiters.remove(&n).is_some();
        let unpolled = self.model.done.iter().position(|(other, _)| *other == n);
        assert_eq!(
            status == Status::Ok,
            waited || unpolled.is_some(),
            "cancel of {n}: {status:?}"
        );
        if waited && !detach {
            self.model.done.push((n, Status::Cancelled));
        }
        if let (Some(place), true) = (unpolled, detach)
            && self.model.done.remove(place).1 == Status::Ok
        {
            self.model.holders.remove(&n);
        }
        self.model.pump();
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Try(weight) => self.ask(weight, None, None),
            Step::Wait(weight, wait, lease) => self.ask(weight, Some(wait), lease),
            Step::Release(i) if !self.permits.is_empty() => {
                let (&n, &permit) = self.permits.iter().nth(i % self.permits.len()).unwrap();
                let expected = match self.model.holders.remove(&n) {
                    Some(_) => Status::Ok,
                    None => Status::Stale,
                };
                assert_eq!(
                    self.world.memory.release(permit),
                    expected,
                    "release of {n}"
                );
                self.model.pump();
            }
            Step::Renew(i, lease) if !self.permits.is_empty() => {
                let (&n, &permit) = self.permits.iter().nth(i % self.permits.len()).unwrap();
                let now = self.model.now;
                let holder = self.model.holders.get_mut(&n);
                let expected = if holder.is_some() {
                    Status::Ok
                } else {
                    Status::Stale
                };
                assert_eq!(
                    self.world.memory.renew(permit, Some(Span(lease * TICK))),
                    expected
                );
                if let Some(holder) = holder.filter(|h| h.lease.is_some()) {
                    holder.ends = Some(now + lease);
                }
            }
            Step::Cancel(i, detach) if !self.ops.is_empty() => {
                let op = self.ops[i % self.ops.len()];
                self.cancel(op, detach);
            }
            Step::Pass(ticks) => {
                self.model.pass(ticks);
                self.world.pass(Span(ticks * TICK));
            }
            Step::Poll => self.poll(),
            Step::Resize(capacity) => {
                self.limiter = self.world.limiter("n", [sem(capacity)]);
                // It takes effect with the next call.
                self.world.remaining(&self.limiter);
                self.model.resize(capacity);
            }
            Step::Release(_) | Step::Renew(..) | Step::Cancel(..) => {}
        }
        let remaining = self.model.capacity.saturating_sub(self.model.used());
        assert_eq!(self.world.remaining(&self.limiter), remaining);
        let totals = self.world.totals();
        assert_eq!(totals.waiting, self.model.waiters.len() as u64);
        assert_eq!(totals.in_flight, self.model.holders.len() as u64);
    }

    /// All that is held comes back, and with it all of the capacity.
    fn finish(mut self) {
        for (n, op) in std::mem::take(&mut self.ops) {
            self.cancel((n, op), true);
        }
        self.poll();
        for (n, permit) in std::mem::take(&mut self.permits) {
            let held = self.model.holders.remove(&n).is_some();
            assert_eq!(self.world.memory.release(permit) == Status::Ok, held);
        }
        assert_eq!(self.model.used(), 0);
        assert_eq!(self.world.remaining(&self.limiter), self.model.capacity);
    }
}

/// What can happen to one slot per tick.
#[derive(Clone, Debug)]
enum Slot {
    Try,
    /// Books for at most so many ticks ahead.
    Wait(Option<u64>),
    Pace(Option<u64>),
    /// Cancels or releases early.
    GiveUp(usize),
    Pass(u64),
}

fn slots() -> impl Strategy<Value = Vec<Slot>> {
    let patience = prop::option::of(0..=6u64);
    let slot = prop_oneof![
        2 => Just(Slot::Try),
        4 => patience.clone().prop_map(Slot::Wait),
        4 => patience.prop_map(Slot::Pace),
        5 => any::<usize>().prop_map(Slot::GiveUp),
        3 => (0..=3u64).prop_map(Slot::Pass),
    ];
    prop::collection::vec(slot, 1..80)
}

/// Slots by the book: each is one tick after the one before. Who waits moves up into one that is given up
/// before its time; a paced call keeps the time it was told, and the slot of one passes unused unless all
/// paced calls right after it were given up, too.
#[derive(Default)]
struct Slots {
    now: u64,
    booked: Vec<Booked>,
}

#[derive(Clone, Copy, Debug)]
struct Booked {
    at: u64,
    waits: bool,
    /// Its permit, or its operation.
    number: u64,
    used: Use,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Taken,
    GivenUp,
    /// Given up, and its time passed, and that of those given up right after it.
    Unused,
}

impl Slots {
    /// When the next slot is, if that is not too late.
    fn next(&self, patience: Option<u64>) -> Result<u64, u64> {
        let last = self.booked.last();
        let at = last.map_or(self.now, |last| self.now.max(last.at + 1));
        let delay = at - self.now;
        if patience.is_some_and(|p| delay > p) {
            return Err(delay);
        }
        Ok(delay)
    }

    fn book(&mut self, delay: u64, waits: bool, number: u64) {
        self.booked.push(Booked {
            at: self.now + delay,
            waits,
            number,
            used: Use::Taken,
        });
    }

    /// Before these nobody waits.
    fn fixed(&self) -> usize {
        let waits = |slot: &Booked| slot.waits && slot.at > self.now;
        self.booked
            .iter()
            .position(waits)
            .unwrap_or(self.booked.len())
    }

    fn give_up(&mut self, index: usize) {
        if self.booked[index].at <= self.now {
            return;
        }
        let fixed = self.fixed();
        if index >= fixed {
            self.booked.remove(index);
        } else {
            let mut last = fixed;
            if index + 1 == fixed {
                self.booked[index].used = Use::GivenUp;
                while last > 0 && self.booked[last - 1].used == Use::GivenUp {
                    last -= 1;
                    self.booked.remove(last);
                }
            } else {
                self.pass_runs(fixed);
                self.booked[index].used = Use::GivenUp;
            }
        }
        let mut next = self.now;
        for slot in &mut self.booked {
            if slot.waits && slot.at > self.now {
                slot.at = slot.at.min(next);
            }
            next = self.now.max(slot.at + 1);
        }
    }

    /// Those in a row that were given up pass unused together, with the last of them.
    fn pass_runs(&mut self, fixed: usize) {
        let mut passed = true;
        for slot in self.booked[..fixed].iter_mut().rev() {
            match slot.used {
                Use::GivenUp => {
                    passed &= slot.at <= self.now;
                    if passed {
                        slot.used = Use::Unused;
                    }
                }
                Use::Taken | Use::Unused => passed = true,
            }
        }
    }

    /// Who waited and need not any more; they are told once.
    fn told(&mut self) -> Vec<u64> {
        let now = self.now;
        let due = self.booked.iter_mut();
        let due = due.filter(|slot| slot.waits && slot.at <= now);
        due.map(|slot| {
            slot.waits = false;
            slot.number
        })
        .collect()
    }
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn a_semaphore_is_what_its_model_is(steps in steps()) {
        let mut pair = Pair::new();
        for step in steps {
            pair.step(step);
        }
        pair.finish();
    }

    #[test]
    fn booked_slots_are_what_their_model_is(steps in slots()) {
        let world = World::new();
        let limiter = world.limiter("n", [tb(1, 1, Span(TICK))]);
        let queue = world.queue();
        let mut slots = Slots::default();
        for step in steps {
            match step {
                Slot::Try => match slots.next(Some(0)) {
                    Ok(_) => slots.book(0, false, world.takes(&limiter, 1)),
                    Err(delay) => assert_eq!(world.denied(&limiter, 1), Span(delay * TICK)),
                },
                Slot::Pace(patience) => {
                    let wait = patience.map(|p| Span(p * TICK));
                    let decision = world.memory.pace(&limiter, &ask(1, wait));
                    let next = slots.next(patience);
                    assert_eq!(decision.status == Status::Ok, next.is_ok());
                    let delay = next.unwrap_or_else(|delay| delay);
                    assert_eq!(decision.retry_after_us, delay * TICK);
                    if next.is_ok() {
                        slots.book(delay, false, decision.permit);
                    }
                }
                Slot::Wait(patience) => {
                    let wait = patience.map(|p| Span(p * TICK));
                    let decision = world.submit(&limiter, &queue, ask(1, wait));
                    match slots.next(patience) {
                        Ok(0) => {
                            assert_eq!(decision.status, Status::Ok);
                            slots.book(0, false, decision.permit);
                        }
                        Ok(delay) => {
                            assert_eq!(decision.status, Status::Pending);
                            slots.book(delay, true, decision.op);
                        }
                        Err(_) => assert_eq!(decision.status, Status::Denied),
                    }
                }
                Slot::GiveUp(i) if !slots.booked.is_empty() => {
                    let index = i % slots.booked.len();
                    let Booked { at, waits, number, used } = slots.booked[index];
                    if used != Use::Taken || at <= slots.now {
                        continue;
                    }
                    let given_up = match waits {
                        true => world.memory.cancel(number, true),
                        false => world.memory.release(number),
                    };
                    assert_eq!(given_up, Status::Ok);
                    slots.give_up(index);
                }
                Slot::GiveUp(_) => {}
                Slot::Pass(ticks) => {
                    slots.now += ticks;
                    world.pass(Span(ticks * TICK));
                }
            }
            let granted: Vec<u64> = done(&queue).iter().map(|d| d.op).collect();
            assert_eq!(granted, slots.told());
        }
    }
}
