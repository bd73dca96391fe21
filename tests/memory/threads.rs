//! Real threads and a real clock: everything at once, and what must hold all the same.
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use limiter::decision::{Decision, Status};
use limiter::limit::time::Span;
use limiter::memory::Named;
use limiter::op::{Request, Sink};
use limiter::queue::Queue;

use crate::kit::*;

/// A small generator with a state of its own for each thread.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

const CAPACITY: u64 = 5;

/// What the threads of a storm share.
struct Storm {
    world: World,
    limiter: Arc<Named>,
    /// Weight held, as its holders see it: never more than the capacity.
    held: AtomicI64,
    /// Completions by op; each may come once.
    seen: Mutex<HashMap<u64, Status>>,
    granted: AtomicU64,
    over: AtomicBool,
}

impl Storm {
    fn hold(&self, decision: &Decision, weight: u64, dice: &mut Dice) {
        assert_ne!(decision.permit, 0);
        let weight = weight as i64;
        let now_held = self.held.fetch_add(weight, Ordering::SeqCst) + weight;
        assert!(now_held <= CAPACITY as i64, "{now_held} held");
        self.granted.fetch_add(1, Ordering::Relaxed);
        if dice.roll(4) == 0 {
            std::thread::yield_now();
        }
        self.held.fetch_sub(weight, Ordering::SeqCst);
        assert_eq!(self.world.memory.release(decision.permit), Status::Ok);
        if dice.roll(8) == 0 {
            assert_eq!(self.world.memory.release(decision.permit), Status::Stale);
        }
    }

    fn complete(&self, decision: &Decision, dice: &mut Dice) {
        let before = self
            .seen
            .lock()
            .unwrap()
            .insert(decision.op, decision.status);
        assert_eq!(before, None, "completed twice: {decision:?}");
        if decision.status == Status::Ok {
            self.hold(decision, decision.user_data, dice);
        } else {
            assert_eq!(decision.permit, 0);
        }
    }

    fn request(dice: &mut Dice) -> Request<'static> {
        let weight = 1 + dice.roll(CAPACITY);
        let wait = match dice.roll(4) {
            0 => Some(Span::ZERO),
            1 => Some(Span(dice.roll(300))),
            2 => Some(Span::secs(30)),
            _ => None,
        };
        Request {
            user_data: weight,
            ..ask(weight, wait)
        }
    }

    /// One thread that blocks, tries, submits, cancels and detaches at random.
    fn worker(
        self: &Arc<Storm>,
        queue: &Arc<Queue>,
        seed: u64,
        rounds: u64,
        most: Span,
    ) -> (u64, u64) {
        let dice = &mut Dice(seed);
        let (mut pending, mut silent) = (0, 0);
        for _ in 0..rounds {
            let request = Storm::request(dice);
            match dice.roll(3) {
                0 => {
                    let wait = request.wait.map_or(most, |wait| wait.min(most));
                    let request = Request {
                        wait: Some(wait),
                        ..request
                    };
                    let decision = self.world.memory.acquire_blocking(&self.limiter, &request);
                    match decision.status {
                        Status::Ok => self.hold(&decision, request.user_data, dice),
                        other => assert!(matches!(other, Status::Denied), "{other:?}"),
                    }
                    continue;
                }
                1 => {
                    let storm = self.clone();
                    let mut own = Dice(dice.roll(u64::MAX) | 1);
                    let heard = move |d: Decision| storm.complete(&d, &mut own);
                    let sink = Sink::Callback(Box::new(heard));
                    let started = self.world.memory.acquire(&self.limiter, &request, sink);
                    assert_eq!(started.status, Status::Pending);
                    pending += 1;
                    silent += self.cancel_perhaps(started.op, dice);
                }
                _ => {
                    let started = self.world.submit(&self.limiter, queue, request);
                    match started.status {
                        Status::Ok => self.hold(&started, request.user_data, dice),
                        Status::Pending => {
                            pending += 1;
                            silent += self.cancel_perhaps(started.op, dice);
                        }
                        other => assert_eq!(other, Status::Denied),
                    }
                }
            }
        }
        (pending, silent)
    }

    /// Answers 1 if no completion will come.
    fn cancel_perhaps(&self, op: u64, dice: &mut Dice) -> u64 {
        for _ in 0..dice.roll(3) {
            std::thread::yield_now();
        }
        match dice.roll(4) {
            0 => {
                let status = self.world.memory.cancel(op, false);
                assert!(matches!(status, Status::Ok | Status::Stale));
                0
            }
            1 => {
                let status = self.world.memory.cancel(op, true);
                assert!(matches!(status, Status::Ok | Status::Stale));
                u64::from(status == Status::Ok)
            }
            _ => 0,
        }
    }

    fn poller(self: &Arc<Storm>, queue: &Queue, seed: u64) {
        let dice = &mut Dice(seed);
        while !self.over.load(Ordering::Acquire) {
            let cap = 1 + dice.roll(4) as usize;
            for decision in queue.poll(cap, Some(Duration::from_millis(1))).unwrap() {
                self.complete(&decision, dice);
            }
        }
    }
}

#[test]
fn in_a_storm_each_wait_completes_once_and_nothing_is_lost_or_exceeded() {
    let world = World::real();
    let limiter = world.limiter("n", [sem(CAPACITY)]);
    let queue = world.queue();
    let storm = Arc::new(Storm {
        world,
        limiter,
        held: AtomicI64::new(0),
        seen: Mutex::default(),
        granted: AtomicU64::new(0),
        over: AtomicBool::new(false),
    });
    let (workers, pollers): (Vec<_>, Vec<_>) = (
        (0..6u64)
            .map(|i| {
                spawn(&storm, &queue, move |s, q| {
                    s.worker(q, 0x9e37 + i, 2_000, SEC)
                })
            })
            .collect(),
        (0..2u64)
            .map(|i| spawn(&storm, &queue, move |s, q| s.poller(q, 0x51ed + i)))
            .collect(),
    );
    let (mut pending, mut silent) = (0, 0);
    for worker in workers {
        let (p, s) = worker.join().unwrap();
        (pending, silent) = (pending + p, silent + s);
    }
    let patience = Instant::now() + Duration::from_secs(60);
    while storm.seen.lock().unwrap().len() as u64 + silent < pending {
        assert!(
            Instant::now() < patience,
            "completions are missing: {:?}",
            storm.world.totals()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    storm.over.store(true, Ordering::Release);
    for poller in pollers {
        poller.join().unwrap();
    }
    assert_eq!(
        storm.world.memory.shutdown(Some(Duration::from_secs(60))),
        Status::Ok
    );
    assert_eq!(storm.seen.lock().unwrap().len() as u64 + silent, pending);
    assert_eq!(storm.held.load(Ordering::SeqCst), 0);
    let totals = storm.world.totals();
    assert_eq!((totals.in_flight, totals.waiting), (0, 0));
}

fn spawn<R: Send + 'static>(
    storm: &Arc<Storm>,
    queue: &Arc<Queue>,
    body: impl FnOnce(&Arc<Storm>, &Arc<Queue>) -> R + Send + 'static,
) -> std::thread::JoinHandle<R> {
    let (storm, queue) = (storm.clone(), queue.clone());
    std::thread::spawn(move || body(&storm, &queue))
}

#[test]
fn after_a_storm_all_of_the_capacity_is_there_again() {
    let world = World::real();
    let limiter = world.limiter("n", [sem(CAPACITY)]);
    let queue = world.queue();
    let storm = Arc::new(Storm {
        world,
        limiter,
        held: AtomicI64::new(0),
        seen: Mutex::default(),
        granted: AtomicU64::new(0),
        over: AtomicBool::new(false),
    });
    let workers: Vec<_> = (0..4u64)
        .map(|i| {
            spawn(&storm, &queue, move |s, q| {
                s.worker(q, 77 + i, 500, Span::millis(1))
            })
        })
        .collect();
    // Nobody polls: workers that block go on only because they have a deadline.
    for worker in workers {
        worker.join().unwrap();
    }
    storm.world.memory.free_queue(&queue);
    let patience = Instant::now() + Duration::from_secs(60);
    while storm.world.totals().waiting > 0 || storm.world.totals().in_flight > 0 {
        assert!(Instant::now() < patience, "{:?}", storm.world.totals());
        std::thread::yield_now();
    }
    assert_eq!(storm.world.remaining(&storm.limiter), CAPACITY);
}

#[test]
fn b_095_saturated_threads_are_served_in_turn() {
    let world = Arc::new(World::real());
    let limiter = world.limiter("n", [sem(2)]);
    let over = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..16)
        .map(|_| {
            let (world, limiter, over) = (world.clone(), limiter.clone(), over.clone());
            std::thread::spawn(move || {
                let mut served = 0u64;
                while !over.load(Ordering::Relaxed) {
                    let decision = world.memory.acquire_blocking(&limiter, &ask(1, EVER));
                    served += 1;
                    std::thread::sleep(Duration::from_micros(100));
                    world.memory.release(decision.permit);
                }
                served
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(300));
    over.store(true, Ordering::Relaxed);
    let mut served: Vec<u64> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    served.sort();
    assert!(served[0] * 2 + 4 >= served[15], "{served:?}");
}

#[test]
fn b_064_booking_and_cancelling_from_many_threads_never_exceeds_the_rate() {
    let world = Arc::new(World::real());
    let limiter = world.limiter("n", [tb(10, 1_000, SEC)]);
    let start = world.now();
    let admitted: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8u64)
            .map(|i| {
                let (world, limiter) = (&world, &limiter);
                scope.spawn(move || {
                    let dice = &mut Dice(i + 1);
                    let mut kept = 0;
                    while world.now().since(start) < Span::millis(300) {
                        let booked = world.memory.pace(limiter, &ask(1, Some(Span::millis(20))));
                        if booked.status != Status::Ok {
                            std::thread::yield_now();
                            continue;
                        }
                        let due = world.now() + Span(booked.retry_after_us);
                        let cancel = dice.roll(2) == 0 && booked.retry_after_us > 5_000;
                        if cancel && world.memory.release(booked.permit) == Status::Ok {
                            // Told before its time by a margin: the slot was given back.
                            assert!(world.now() < due);
                        } else {
                            kept += 1;
                        }
                    }
                    kept
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    let elapsed = world.now().since(start).0 + 20_000;
    assert!(
        admitted <= 10 + elapsed / 1_000,
        "{admitted} in {elapsed} us"
    );
}

#[test]
fn a_thread_that_waits_for_a_rate_wakes_in_time_and_not_before() {
    let world = World::real();
    let limiter = world.limiter("n", [tb(1, 1, Span::millis(5))]);
    world.takes(&limiter, 1);
    let mut late = Vec::new();
    for _ in 0..20 {
        let before = world.now();
        let decision = world.memory.acquire_blocking(&limiter, &ask(1, EVER));
        assert_eq!(decision.status, Status::Ok);
        assert!(decision.waited_us <= world.now().since(before).0);
        late.push(world.now().since(before).0);
    }
    let total: u64 = late.iter().sum();
    assert!(total >= 19 * 5_000, "{late:?}");
    // Others may keep the machine busy, but not at each of twenty times.
    let best = *late[1..].iter().min().expect("twenty");
    assert!(
        best < 5_900,
        "none of the sleeps of 5 ms took less than {best} us"
    );
}

#[test]
fn a_queue_completes_in_time_by_the_timers_thread() {
    let world = World::real();
    let limiter = world.limiter("n", [tb(1, 1, Span::millis(50)), sem(100)]);
    let queue = world.queue();
    let start = world.now();
    world.takes(&limiter, 1);
    let submit = |_| (world.waits(&limiter, &queue, ask(1, EVER)), world.now());
    let submitted: Vec<_> = (0..20).map(submit).collect();
    let mut seen = Vec::new();
    while seen.len() < submitted.len() {
        seen.extend(queue.poll(1, None).unwrap());
    }
    for (i, (decision, (op, latest))) in seen.iter().zip(submitted).enumerate() {
        assert_eq!(decision.op, op);
        let due = start + Span(50_000 * (i as u64 + 1));
        assert!(
            latest + Span(decision.waited_us) >= due,
            "{i} started early"
        );
    }
}
