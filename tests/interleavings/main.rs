//! The memory backend under a scheduler that picks which thread goes on at every lock: a wait, a permit and a
//! queue have to come out right in any order. Needs the feature "shuttle"; `make shuttle` runs it. A failure
//! prints the order of the threads; SHUTTLE_AGAIN=<file with it> tells it again.
mod atomics;

use std::sync::Arc;

use limiter::callback::Callbacks;
use limiter::clock::Clock;
use limiter::decision::{Decision, Status};
use limiter::limit::decide::Limits;
use limiter::limit::rule::{Limit, Rule};
use limiter::limit::semaphore::Semaphore;
use limiter::limit::time::Span;
use limiter::limit::token_bucket::TokenBucket;
use limiter::memory::{Memory, Named, Options};
use limiter::op::{Request, Sink, Weights};
use limiter::permit::Numbers;
use limiter::queue::Queue;
use limiter::stats::Stats;
use shuttle::sync::Mutex;
use shuttle::thread;

/// Of what atomics.rs takes from the library.
mod sync {
    pub use loom::sync::atomic;
}

const SECOND: Span = Span::secs(1);
const LEASE: Span = Span::secs(10);

/// What the threads of a schedule share.
struct World {
    memory: Arc<Memory>,
    limiter: Arc<Named>,
    capacity: u64,
    /// What its holders believe to hold; and permits whose completion nobody has taken yet.
    held: Mutex<u64>,
}

impl World {
    fn new(rules: Vec<Rule>) -> Arc<World> {
        let clock = Arc::new(Clock::virtual_clock());
        let options = Options {
            max_waiting: 100,
            max_penalty: Span::secs(3_600),
            lease: LEASE,
            numbers: Numbers::new(0),
        };
        let memory = Memory::new(
            clock,
            options,
            Arc::new(Stats::default()),
            Callbacks::new(None),
        );
        let capacity = rules.iter().find_map(|rule| match rule {
            Rule::Semaphore(rule) => Some(rule.capacity()),
            _ => None,
        });
        Arc::new(World {
            limiter: memory.limiter(b"n", limits(rules)),
            memory,
            capacity: capacity.unwrap_or(0),
            held: Mutex::new(0),
        })
    }

    /// Believes to hold so much, for as long as it takes to look, and gives it back.
    fn hold(&self, granted: &Decision, weight: u64) {
        assert_eq!(granted.status, Status::Ok);
        self.begin(weight);
        thread::yield_now();
        self.end(weight);
        assert_eq!(self.memory.release(granted.permit), Status::Ok);
    }

    fn give(&self, granted: &Decision) {
        let status = self.memory.release(granted.permit);
        assert!(matches!(
            status,
            Status::Ok | Status::Stale | Status::Closed
        ));
    }

    fn begin(&self, weight: u64) {
        let mut held = self.held.lock().unwrap();
        *held += weight;
        assert!(*held <= self.capacity, "{held} are held");
    }

    fn end(&self, weight: u64) {
        *self.held.lock().unwrap() -= weight;
    }

    fn wait(&self, weight: u64, wait: Option<Span>) -> Decision {
        self.memory
            .acquire_blocking(&self.limiter, &ask(weight, wait))
    }

    fn try_(&self, weight: u64) -> Decision {
        self.wait(weight, Some(Span::ZERO))
    }

    fn queue(&self) -> Arc<Queue> {
        self.memory.queue(Queue::open_descriptor().unwrap())
    }

    fn submit(&self, queue: &Arc<Queue>, weight: u64, user_data: u64) -> Decision {
        let request = Request {
            user_data,
            ..ask(weight, None)
        };
        self.memory
            .acquire(&self.limiter, &request, Sink::Queue(queue.clone()))
    }

    fn pass(&self, span: Span) {
        assert_eq!(self.memory.clock_advance(span), Status::Ok);
    }

    /// Nobody holds, nobody waits: all of it is there.
    fn is_whole(&self) {
        let look = self.memory.peek(&self.limiter, &ask(0, None));
        assert_eq!(look.remaining, self.capacity, "{look:?}");
        let totals = self.memory.stats().totals();
        assert_eq!((totals.waiting, totals.in_flight), (0, 0));
        assert_eq!(self.try_(self.capacity).status, Status::Ok);
    }
}

fn ask(weight: u64, wait: Option<Span>) -> Request<'static> {
    Request {
        weights: Weights::Same(weight),
        wait,
        ..Request::TRY
    }
}

fn limits(rules: Vec<Rule>) -> Limits {
    let limit = |rule| Limit {
        rule,
        per_call: false,
    };
    Limits::new(rules.into_iter().map(limit).collect(), 0).unwrap()
}

fn semaphore(capacity: u64) -> Rule {
    Rule::Semaphore(Semaphore::new(capacity, LEASE, true).unwrap())
}

fn ending(capacity: u64) -> Rule {
    Rule::Semaphore(Semaphore::new(capacity, LEASE, false).unwrap())
}

fn bucket(capacity: u64) -> Rule {
    Rule::TokenBucket(TokenBucket::new(capacity, 1, SECOND, false).unwrap())
}

/// Runs a story in so many orders, half of them with few, far changes between threads; LIMITER_SCHEDULES asks
/// for another number.
fn explore(story: fn()) {
    if let Ok(file) = std::env::var("SHUTTLE_AGAIN") {
        return shuttle::replay_from_file(story, file);
    }
    let asked = std::env::var("LIMITER_SCHEDULES").ok();
    let schedules = asked.and_then(|n| n.parse().ok()).unwrap_or(300);
    shuttle::check_random(story, schedules / 2);
    shuttle::check_pct(story, schedules - schedules / 2, 3);
}

fn run(threads: Vec<Box<dyn FnOnce() + Send>>) {
    let started: Vec<_> = threads.into_iter().map(thread::spawn).collect();
    for one in started {
        one.join().unwrap();
    }
}

macro_rules! threads {
    ($world:ident: $($body:expr),* $(,)?) => {
        run(vec![$({
            let $world = $world.clone();
            Box::new(move || $body)
        }),*])
    };
}

#[test]
fn all_who_wait_for_a_permit_get_one_and_never_too_many() {
    explore(|| {
        let world = World::new(vec![semaphore(2)]);
        threads!(world:
            world.hold(&world.wait(1, None), 1),
            world.hold(&world.wait(2, None), 2),
            world.hold(&world.wait(1, None), 1),
            {
                let tried = world.try_(1);
                if tried.status == Status::Ok {
                    world.hold(&tried, 1);
                }
            },
        );
        world.is_whole();
    });
}

#[test]
fn a_wait_ends_by_a_grant_a_cancel_or_its_deadline_and_by_one_of_them() {
    explore(|| {
        let world = World::new(vec![semaphore(1)]);
        let held = world.try_(1);
        threads!(world:
            world.hold(&held, 0),
            {
                let request = Request { user_data: 5, ..ask(1, None) };
                let ended = world.memory.acquire_blocking(&world.limiter, &request);
                match ended.status {
                    Status::Ok => world.hold(&ended, 1),
                    status => assert_eq!((status, ended.permit), (Status::Cancelled, 0)),
                }
            },
            {
                let ended = world.wait(1, Some(SECOND));
                match ended.status {
                    Status::Ok => world.hold(&ended, 1),
                    status => assert_eq!((status, ended.permit), (Status::Denied, 0)),
                }
            },
            {
                world.memory.cancel_waits(5);
                // It may not have begun by then.
                thread::yield_now();
                world.pass(SECOND);
                world.memory.cancel_waits(5);
                world.pass(SECOND);
            },
        );
        world.is_whole();
    });
}

#[test]
fn what_is_submitted_completes_once_whoever_polls_and_cancels() {
    explore(|| {
        let world = World::new(vec![semaphore(1)]);
        let queue = world.queue();
        let held = world.try_(1);
        let ops = [1, 1, 1].map(|weight| world.submit(&queue, weight, 0).op);
        let seen = Arc::new(Mutex::new(vec![]));
        let poll = || {
            let (world, queue, seen) = (world.clone(), queue.clone(), seen.clone());
            move || {
                while seen.lock().unwrap().len() < 2 {
                    let Ok(polled) = queue.poll(1, Some(std::time::Duration::ZERO)) else {
                        break;
                    };
                    for one in polled {
                        seen.lock().unwrap().push((one.op, one.status));
                        if one.status == Status::Ok {
                            world.hold(&one, 1);
                        }
                    }
                    thread::yield_now();
                }
            }
        };
        let (first, second, releaser, canceller) = (poll(), poll(), world.clone(), world.clone());
        run(vec![
            Box::new(first),
            Box::new(second),
            Box::new(move || releaser.hold(&held, 0)),
            // The second is told that it is cancelled, or was granted before; of the third nothing is heard.
            Box::new(move || {
                canceller.memory.cancel(ops[1], false);
                if canceller.memory.cancel(ops[2], true) == Status::Stale {
                    // Polled: then it was heard of after all.
                    thread::yield_now();
                }
            }),
        ]);
        for left in queue.free() {
            seen.lock().unwrap().push((left.op, left.status));
            if left.status == Status::Ok {
                world.hold(&left, 1);
            }
        }
        let seen = seen.lock().unwrap();
        for op in ops {
            let times = seen.iter().filter(|(of, _)| *of == op).count();
            assert!(times <= 1, "{op} completed {times} times: {seen:?}");
        }
        assert!(
            seen.iter().any(|one| *one == (ops[0], Status::Ok)),
            "{seen:?}"
        );
        assert!(seen.iter().any(|one| one.0 == ops[1]), "{seen:?}");
        drop(seen);
        world.is_whole();
    });
}

#[test]
fn a_lease_that_ends_is_released_renewed_or_lost_and_never_held_by_two() {
    explore(|| {
        let world = World::new(vec![ending(1)]);
        let first = world.try_(1);
        threads!(world:
            {
                // Renewed in time it is held on; else it is over, and stays so.
                match world.memory.renew(first.permit, None) {
                    Status::Ok => {}
                    status => assert_eq!(status, Status::Stale),
                }
                match world.memory.release(first.permit) {
                    Status::Ok => {}
                    status => assert_eq!(status, Status::Stale),
                }
                assert_eq!(world.memory.release(first.permit), Status::Stale);
                assert_eq!(world.memory.renew(first.permit, None), Status::Stale);
            },
            {
                let second = world.wait(1, None);
                assert_eq!(second.status, Status::Ok);
                assert!(second.fence > first.fence);
                world.memory.release(second.permit);
            },
            {
                world.pass(Span(LEASE.0 - 1));
                world.pass(Span(1));
                world.pass(LEASE);
            },
        );
        world.is_whole();
    });
}

#[test]
fn who_waits_for_a_rate_and_a_permit_starts_in_its_time() {
    explore(|| {
        let world = World::new(vec![semaphore(1), bucket(1)]);
        let moved = world.clone();
        let clock = thread::spawn(move || {
            for _ in 0..12 {
                moved.pass(SECOND);
                thread::yield_now();
            }
        });
        threads!(world:
            world.hold(&world.wait(1, None), 1),
            world.hold(&world.wait(1, None), 1),
            {
                let penalty = world.memory.penalize(&world.limiter, b"", SECOND);
                assert_eq!(penalty, Status::Ok);
            },
            {
                // Nobody is left behind when the clock stands still.
                for _ in 0..12 {
                    world.pass(SECOND);
                    thread::yield_now();
                }
            },
        );
        clock.join().unwrap();
        world.pass(Span::secs(60));
        let look = world.memory.peek(&world.limiter, &ask(1, None));
        assert_eq!((look.status, look.remaining), (Status::Ok, 1));
    });
}

#[test]
fn limits_that_change_and_a_reset_leave_nobody_waiting() {
    explore(|| {
        let world = World::new(vec![semaphore(2)]);
        let held = world.try_(2);
        threads!(world:
            {
                let ended = world.wait(2, None);
                // Too heavy, if the lower one came first.
                match ended.status {
                    Status::Ok => world.give(&ended),
                    status => assert_eq!(status, Status::Never),
                }
            },
            {
                let ended = world.wait(1, None);
                assert_eq!(ended.status, Status::Ok);
                world.memory.release(ended.permit);
            },
            {
                world.memory.limiter(b"n", limits(vec![semaphore(1)]));
            },
            {
                assert_eq!(world.memory.reset(&world.limiter, b""), Status::Ok);
                assert_eq!(world.memory.release(held.permit), Status::Stale);
            },
        );
        let look = world.memory.peek(&world.limiter, &ask(0, None));
        assert_eq!((look.limit, look.remaining), (1, 1));
        assert_eq!(world.memory.stats().totals().waiting, 0);
    });
}

#[test]
fn each_completion_wakes_one_of_those_who_poll() {
    explore(|| {
        let world = World::new(vec![semaphore(1)]);
        let queue = world.queue();
        let held = world.try_(1);
        for _ in 0..2 {
            assert_eq!(world.submit(&queue, 1, 0).status, Status::Pending);
        }
        let poll = || {
            let (world, queue) = (world.clone(), queue.clone());
            // Without a timeout: nobody else wakes it.
            move || world.hold(&queue.poll(1, None).unwrap()[0], 1)
        };
        let (first, second, releaser) = (poll(), poll(), world.clone());
        run(vec![
            Box::new(first),
            Box::new(second),
            Box::new(move || releaser.hold(&held, 0)),
        ]);
        world.is_whole();
    });
}

#[test]
fn a_shutdown_and_a_freed_queue_end_every_wait_once() {
    explore(|| {
        let world = World::new(vec![semaphore(1)]);
        let queue = world.queue();
        let held = world.try_(1);
        let begun = world.submit(&queue, 1, 0);
        assert_eq!(begun.status, Status::Pending);
        let (polled, idle) = (queue.clone(), queue.clone());
        let completions = Arc::new(Mutex::new(0));
        let counts = [completions.clone(), completions.clone()];
        let [count, others] = counts;
        threads!(world:
            {
                let ended = world.wait(1, None);
                match ended.status {
                    Status::Ok => world.give(&ended),
                    status => assert_eq!(status, Status::Closed),
                }
            },
            {
                // Without a timeout: a shutdown must end this, too.
                while let Ok(done) = polled.poll(9, None) {
                    *count.lock().unwrap() += done.len();
                    for one in done {
                        world.memory.release(one.permit);
                    }
                }
            },
            while let Ok(done) = idle.poll(9, None) {
                *others.lock().unwrap() += done.len();
                for one in done {
                    world.memory.release(one.permit);
                }
            },
            world.give(&held),
            assert_eq!(world.memory.shutdown(None), Status::Ok),
        );
        assert_eq!(*completions.lock().unwrap(), 1);
        assert_eq!(world.try_(1).status, Status::Closed);
        assert_eq!(world.memory.stats().totals().waiting, 0);
    });
}
