//! Many clients at once, cancelled, cut off and timed out at random instants: never more is held than
//! there is, and nothing is lost for good.
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use limiter::backend::Backend;
use limiter::client::{Client, ClientQueue};
use limiter::config::Config;
use limiter::decision::{Decision, Status};
use limiter::limit::time::Time;
use limiter::limiter::{LimitSpec, Limiter};
use limiter::op::Request;

use crate::kit::*;
use crate::support::proxy::{Mode, Proxy};
use crate::support::server::Server;
use crate::support::{eventually, ms, secs};

const CAPACITY: u64 = 3;

/// Numbers that look random.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % n
    }
}

/// What is held, by those who hold it.
#[derive(Default)]
struct Inside {
    weight: AtomicU64,
    grants: AtomicUsize,
}

impl Inside {
    fn use_up(&self, limiter: &Limiter, granted: &Decision, weight: u64, random: &mut Random) {
        let before = self.weight.fetch_add(weight, Ordering::SeqCst);
        assert!(before + weight <= CAPACITY, "{before} and {weight}");
        self.grants.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(ms(random.below(3)));
        self.weight.fetch_sub(weight, Ordering::SeqCst);
        assert_eq!(limiter.release(granted.permit), Ok(Status::Ok));
    }
}

fn request(random: &mut Random) -> (u64, Request<'static>) {
    let weight = 1 + random.below(CAPACITY);
    let wait = within(random.below(60)).wait;
    (
        weight,
        Request {
            wait,
            ..weigh(weight)
        },
    )
}

/// A thread that waits for what it asks.
fn patient(limiter: &Limiter, inside: &Inside, random: &mut Random) {
    let (weight, request) = request(random);
    let decision = acquire(limiter, &request);
    if decision.permit != 0 {
        inside.use_up(limiter, &decision, weight, random);
    }
}

/// A thread that asks by a queue, and changes its mind.
fn fickle(
    client: &Arc<Client>,
    limiter: &Limiter,
    queue: &ClientQueue,
    inside: &Inside,
    random: &mut Random,
) {
    let (weight, request) = request(random);
    let op = queue.submit(limiter, &request).unwrap().op;
    std::thread::sleep(ms(random.below(6)));
    let detach = random.below(2) == 1;
    let cancelled = client.cancel(op, detach).unwrap();
    assert!(matches!(cancelled, Status::Ok | Status::Stale));
    if detach && cancelled == Status::Ok {
        return;
    }
    let done = next(queue);
    assert_eq!(done.op, op);
    if done.permit != 0 {
        inside.use_up(limiter, &done, weight, random);
    }
}

fn storm(limits: &[LimitSpec], trouble: impl Fn(&Proxy, &mut Random) + Sync) {
    let server = Server::start();
    let proxy = Proxy::before(server.port);
    let (inside, began) = (Inside::default(), Instant::now());
    std::thread::scope(|scope| {
        for n in 0..8_u64 {
            let (proxy, server, inside) = (&proxy, &server, &inside);
            scope.spawn(move || {
                let url = if n < 6 { proxy.url() } else { server.url() };
                let client = open(&url);
                let limiter = limiter(&client, "s", limits);
                let queue = ClientQueue::new(&client).unwrap();
                let mut random = Random(n);
                while began.elapsed() < secs(4) {
                    match n % 2 {
                        0 => patient(&limiter, inside, &mut random),
                        _ => fickle(&client, &limiter, &queue, inside, &mut random),
                    }
                }
                assert_eq!(client.stats().unwrap().lost, 0);
                assert_eq!(client.shutdown(Some(secs(20))), Ok(Status::Ok));
            });
        }
        let mut random = Random(99);
        while began.elapsed() < secs(4) {
            trouble(&proxy, &mut random);
        }
        proxy.set(Mode::Forward);
    });
    let grants = inside.grants.into_inner();
    println!("figure: {grants} grants in a storm");
    assert!(grants > 20, "{grants}");
    let limiter = limiter(&open(&server.url()), "s", limits);
    eventually("all comes back", secs(20), || {
        remaining(&limiter) == CAPACITY
    });
    eventually("nobody is left", secs(20), || {
        server.ask::<usize>(&["ZCARD", "{limiter:S:s:}:q"]) == 0
    });
}

#[test]
fn who_changes_its_mind_loses_nothing() {
    storm(&[leased(CAPACITY, 60_000)], |_, _| {
        std::thread::sleep(ms(50))
    });
}

#[test]
fn who_is_cut_off_loses_nothing() {
    storm(&[leased(CAPACITY, 60_000)], |proxy, random| {
        match random.below(3) {
            0 => proxy.cut(),
            1 => proxy.set(Mode::LoseReply),
            _ => proxy.set(Mode::Delay(ms(random.below(20)))),
        }
        std::thread::sleep(ms(10 + random.below(60)));
        proxy.set(Mode::Forward);
    });
}

/// From when to when permits were believed in, by a clock that is the same for all clients here. How soon anybody
/// hears of a loss makes no difference.
#[derive(Default)]
struct Believed {
    spans: Vec<(Time, Time)>,
    lost: usize,
}

impl Believed {
    /// Who is there at once at most. Whoever ends makes room first.
    fn most(&self) -> u64 {
        let begins = self.spans.iter().map(|(from, _)| (*from, 1));
        let ends = self.spans.iter().map(|(_, till)| (*till, -1));
        let mut changes: Vec<(Time, i64)> = begins.chain(ends).collect();
        changes.sort_unstable();
        let mut inside = 0;
        let sums = changes.into_iter().map(|(_, change)| {
            inside += change;
            inside
        });
        sums.max().unwrap_or(0) as u64
    }
}

/// Works for so long as the permit lasts, at most until a time. Answers when that was over.
fn work(client: &Client, permit: u64, until: Instant) -> Time {
    let Backend::Redis(redis) = &client.core().unwrap().backend else {
        unreachable!("it is on Redis");
    };
    let mut lasts = client.clock_now().unwrap();
    loop {
        match redis.held_until(permit) {
            None => return lasts,
            Some(till) => lasts = till,
        }
        let (now, over) = (client.clock_now().unwrap(), Instant::now() >= until);
        if over || now >= lasts {
            return now.min(lasts);
        }
        std::thread::sleep(ms(2));
    }
}

#[test]
fn leases_that_are_lost_never_overlap_with_those_of_others() {
    let server = Server::start();
    let proxies: Vec<Proxy> = (0..3).map(|_| Proxy::before(server.port)).collect();
    let (believed, told) = (
        Mutex::new(Believed::default()),
        Arc::<AtomicUsize>::default(),
    );
    let (grants, began) = (AtomicUsize::new(0), Instant::now());
    std::thread::scope(|scope| {
        for n in 0..6_u64 {
            let (proxy, grants, believed) = (&proxies[n as usize % 3], &grants, &believed);
            let told = told.clone();
            scope.spawn(move || {
                let config = Config {
                    lost: Some(Arc::new(move |_| {
                        told.fetch_add(1, Ordering::Relaxed);
                    })),
                    ..Config::default()
                };
                let client = Client::open(&proxy.url(), &config).unwrap();
                let limiter = limiter(&client, "s", &[leased(CAPACITY, 300)]);
                let mut random = Random(n);
                while began.elapsed() < secs(10) {
                    let permit = acquire(&limiter, &within(200)).permit;
                    if permit == 0 {
                        continue;
                    }
                    let from = client.clock_now().unwrap();
                    grants.fetch_add(1, Ordering::Relaxed);
                    let until = Instant::now() + ms(100 + random.below(1500));
                    let till = work(&client, permit, until);
                    let lost = limiter.release(permit) == Ok(Status::Stale);
                    let mut believed = believed.lock().unwrap();
                    believed.lost += usize::from(lost);
                    if from < till {
                        believed.spans.push((from, till));
                    }
                }
            });
        }
        let mut random = Random(99);
        while began.elapsed() < secs(10) {
            // The third one's clients take what the others have to let go.
            for proxy in &proxies[..2] {
                proxy.set(Mode::BlackHole);
            }
            std::thread::sleep(ms(800 + random.below(800)));
            for proxy in &proxies[..2] {
                proxy.cut();
                proxy.set(Mode::Forward);
            }
            std::thread::sleep(ms(300 + random.below(300)));
        }
    });
    let believed = believed.into_inner().unwrap();
    let (lost, grants, most) = (believed.lost, grants.into_inner(), believed.most());
    println!("figure: {grants} grants, {lost} of them lost");
    assert!(most <= CAPACITY, "{most}");
    eventually("all who lost one are told", secs(20), || {
        told.load(Ordering::Relaxed) >= lost
    });
    assert!(grants > 10 && lost > 0, "{grants} {lost}");
    let limiter = limiter(&open(&server.url()), "s", &[leased(CAPACITY, 300)]);
    eventually("all comes back", secs(20), || {
        remaining(&limiter) == CAPACITY
    });
}
