//! What is kept comes and goes with use: after any program that ends what it began, nothing is left.
use std::sync::Arc;

use limiter::clock::Clock;
use limiter::decision::Status;
use limiter::limit::time::Span;
use limiter::memory::{Census, Named};
use limiter::op::Request;
use limiter::queue::Queue;

use crate::kit::*;

/// A source of numbers that repeats.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1);
        (self.0 >> 33) % n
    }
}

struct Program {
    world: World,
    dice: Dice,
    limiters: Vec<Arc<Named>>,
    queues: Vec<Arc<Queue>>,
    permits: Vec<u64>,
    ops: Vec<u64>,
}

impl Program {
    fn new(seed: u64) -> Program {
        let hook = Arc::new(|_| {});
        let world = World::with(Clock::virtual_clock(), OPTIONS, Some(hook));
        Program {
            queues: vec![world.queue(), world.queue()],
            world,
            dice: Dice(seed),
            limiters: Vec::new(),
            permits: Vec::new(),
            ops: Vec::new(),
        }
    }

    /// Opens limiters of every kind, with other numbers each time.
    fn reopen(&mut self) {
        let n = 1 + self.dice.below(5);
        let rules = [
            vec![sem(n)],
            vec![leased(n, SEC)],
            vec![tb(n, 2, SEC)],
            vec![pacer(n, SEC, 2)],
            vec![slide(n, SEC)],
            vec![sem(n), tb(n + 1, 3, SEC)],
            vec![leased(n, SEC), slide(9, SEC), tb(n, 7, SEC)],
        ];
        let open = |(i, rules)| self.world.limiter(&format!("n{i}"), rules);
        self.limiters = rules.into_iter().enumerate().map(open).collect();
    }

    fn step(&mut self) {
        if self.limiters.is_empty() || self.dice.below(200) == 0 {
            self.reopen();
        }
        let limiter = self.dice.below(self.limiters.len() as u64) as usize;
        let limiter = self.limiters[limiter].clone();
        let key = self.dice.below(40).to_le_bytes();
        let wait = match self.dice.below(3) {
            0 => EVER,
            n => Some(Span((n - 1) * 1_500_000)),
        };
        let request = Request {
            renew: self.dice.below(3) > 0,
            lease: (self.dice.below(4) == 0).then_some(Span::millis(700)),
            tell_lost: self.dice.below(2) > 0,
            user_data: self.dice.below(50),
            ..on(&key, 1 + self.dice.below(3), wait)
        };
        let memory = self.world.memory.clone();
        match self.dice.below(40) {
            0..=15 => {
                let queue = self.queues[self.dice.below(2) as usize].clone();
                let decision = self.world.submit(&limiter, &queue, request);
                self.permits.push(decision.permit);
                self.ops.push(decision.op);
            }
            16..=20 => {
                let decision = memory.pace(&limiter, &request);
                self.permits.push(decision.permit);
            }
            21..=25 if !self.permits.is_empty() => {
                let i = self.dice.below(self.permits.len() as u64) as usize;
                memory.release(self.permits.swap_remove(i));
            }
            26 if !self.permits.is_empty() => {
                let i = self.dice.below(self.permits.len() as u64) as usize;
                memory.settle(self.permits[i], self.dice.below(9));
                memory.renew(self.permits[i], None);
            }
            27..=29 if !self.ops.is_empty() => {
                let i = self.dice.below(self.ops.len() as u64) as usize;
                memory.cancel(self.ops[i], self.dice.below(2) > 0);
            }
            30 => drop(memory.cancel_waits(request.user_data)),
            31 => drop(memory.penalize(&limiter, &key, Span(self.dice.below(3_000_000)))),
            32 => drop(memory.reset(&limiter, &key)),
            33 if self.dice.below(20) == 0 => {
                memory.free_queue(&self.queues[0]);
                self.queues[0] = self.world.queue();
            }
            34..=36 => self.world.pass(Span(self.dice.below(400_000))),
            _ => self.poll(),
        }
    }

    fn poll(&mut self) {
        for queue in &self.queues {
            let polled = done(queue);
            let granted = polled.iter().filter(|d| d.status == Status::Ok);
            self.permits.extend(granted.map(|d| d.permit));
        }
    }

    /// Ends all that was begun.
    fn end(mut self) -> (World, Census) {
        for op in std::mem::take(&mut self.ops) {
            self.world.memory.cancel(op, true);
        }
        self.poll();
        for permit in std::mem::take(&mut self.permits) {
            self.world.memory.release(permit);
        }
        // Longer than any penalty, lease, debt and window.
        self.world.pass(Span::secs(1_000));
        self.poll();
        while self.world.memory.census().callbacks > 0 {
            std::thread::yield_now();
        }
        let census = self.world.memory.census();
        (self.world, census)
    }
}

#[test]
fn nothing_is_left_of_any_program_that_ends_what_it_began() {
    for seed in 0..30 {
        let mut program = Program::new(seed);
        let mut busy = false;
        for n in 0..3_000 {
            program.step();
            if n % 100 == 99 {
                let now = program.world.memory.census();
                busy |= now.people > 0 && now.held > 0 && now.waits > 0;
            }
        }
        assert!(busy, "seed {seed}: there was something to leave");
        let (world, left) = program.end();
        let kept = Census {
            recent: left.recent,
            paced: left.paced,
            largest_table: left.largest_table,
            room: left.room,
            ..Census::default()
        };
        assert_eq!(left, kept, "seed {seed}");
        let totals = world.totals();
        assert_eq!((totals.waiting, totals.in_flight), (0, 0), "seed {seed}");
        assert!(totals.lost > 0 && totals.granted > 500, "{totals:?}");
    }
}

#[test]
fn bookings_far_ahead_keep_no_others_and_are_forgotten_when_their_time_has_come() {
    let world = World::new();
    let slow = world.limiter("slow", [tb(1, 1, Span::secs(1_000_000))]);
    let fast = world.limiter("fast", [tb(1 << 30, 1, SEC)]);
    let keys = |n: u64| n.to_le_bytes();
    // One far ahead on each of many keys, so in every shard, and then much that need not be kept.
    for n in 0..1_000 {
        for _ in 0..2 {
            world.memory.pace(&slow, &on(&keys(n), 1, EVER));
        }
    }
    for n in 0..300_000 {
        world
            .memory
            .acquire_blocking(&fast, &on(&keys(n % 999), 1, EVER));
    }
    let census = world.memory.census();
    assert_eq!(census.paced, 1_000);
    assert!(census.recent >= 64 * 1_024, "{}", census.recent);
    assert!(census.recent <= 2 * 64 * 1_024, "{}", census.recent);
    // A rush on one key is gone after as much quiet traffic.
    let rushed = world.limiter("rushed", [tb(1, 1, Span(1))]);
    for _ in 0..30_000 {
        world.memory.pace(&rushed, &ask(1, EVER));
    }
    assert!(world.memory.census().paced >= 30_000);
    world.pass(SEC);
    for _ in 0..30_000 {
        world.takes(&rushed, 1);
        world.pass(Span(1));
    }
    assert!(world.memory.census().paced < 1_000 + 1_024 + 1);
}

#[test]
fn a_booking_ahead_can_be_given_back_however_much_came_after_it() {
    let world = World::new();
    let slow = world.limiter("slow", [tb(1, 1, Span::secs(60))]);
    let fast = world.limiter("fast", [tb(1 << 30, 1, SEC)]);
    world.takes(&slow, 1);
    let booked = world.memory.pace(&slow, &ask(1, EVER)).permit;
    for n in 0..300_000u64 {
        world
            .memory
            .acquire_blocking(&fast, &on(&n.to_le_bytes(), 1, EVER));
    }
    assert_eq!(world.denied(&slow, 1), Span::secs(120));
    assert_eq!(world.memory.release(booked), Status::Ok);
    assert_eq!(world.denied(&slow, 1), Span::secs(60));
    assert_eq!(world.memory.release(booked), Status::Stale);
}

#[test]
fn a_reset_ends_the_records_of_all_its_permits() {
    let world = World::new();
    let limiter = world.limiter("n", [leased(100, SEC)]);
    let bucket = world.limiter("b", [tb(1, 1, SEC)]);
    let permits: Vec<u64> = (0..100).map(|_| world.takes(&limiter, 1)).collect();
    let paced: Vec<u64> = (0..100)
        .map(|_| world.memory.pace(&bucket, &ask(1, EVER)).permit)
        .collect();
    for limiter in [&limiter, &bucket] {
        assert_eq!(world.memory.reset(limiter, b""), Status::Ok);
    }
    let census = world.memory.census();
    assert_eq!((census.held, census.paced, census.events), (0, 0, 0));
    for permit in permits.into_iter().chain(paced) {
        assert_eq!(world.memory.settle(permit, 2), Status::Stale);
        assert_eq!(world.memory.renew(permit, None), Status::Stale);
        assert_eq!(world.memory.release(permit), Status::Stale);
    }
}

#[test]
fn words_of_lost_leases_that_nobody_takes_are_bounded_and_counted() {
    let world = World::new();
    let limiter = world.limiter("n", [leased(1 << 20, Span::millis(1))]);
    let queue = world.queue();
    let request = Request {
        tell_lost: true,
        ..ask(1, EVER)
    };
    for _ in 0..70 {
        for _ in 0..1_000 {
            assert_eq!(world.submit(&limiter, &queue, request).status, Status::Ok);
        }
        world.pass(Span::millis(1));
    }
    assert_eq!(world.totals().lost, 70_000);
    assert_eq!(queue.len(), Queue::MOST_LOST);
    assert_eq!(world.totals().overloaded, 70_000 - Queue::MOST_LOST as u64);
}

#[test]
fn of_too_many_bookings_ahead_those_that_are_due_first_can_be_given_back() {
    let world = World::new();
    let limiter = world.limiter("n", [tb(1, 1, SEC)]);
    let permits: Vec<u64> = (0..70_000)
        .map(|_| world.memory.pace(&limiter, &ask(1, EVER)).permit)
        .collect();
    assert_eq!(world.memory.census().paced, 65_536);
    // The first was for now.
    assert_eq!(world.memory.settle(permits[1], 1), Status::Ok);
    assert_eq!(world.memory.release(permits[65_536]), Status::Ok);
    assert_eq!(world.memory.release(permits[65_537]), Status::Stale);
}
