//! Redis goes and comes back, again and again: never more is admitted than the limits allow.
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use limiter::decision::{DEGRADED, Status};
use limiter::limiter::Limiter;
use limiter::op::Request;

use crate::kit::*;
use crate::load::*;
use crate::support::server::Server;
use crate::support::{eventually, ms, secs};

const BURST: u64 = 20;
const PER_SECOND: u64 = 100;

/// What a client's callers were admitted, by Redis and by the policy.
#[derive(Default)]
struct Admitted {
    by_redis: AtomicU64,
    by_policy: AtomicU64,
}

fn hammer(limiter: &Limiter, admitted: &Admitted, over: &AtomicBool) {
    while !over.load(Ordering::SeqCst) {
        let decision = acquire(limiter, &Request::TRY);
        match (decision.status, decision.flags) {
            (Status::Ok, 0) => admitted.by_redis.fetch_add(1, Ordering::Relaxed),
            (Status::Ok, flags) if flags & DEGRADED != 0 => {
                admitted.by_policy.fetch_add(1, Ordering::Relaxed)
            }
            (Status::Denied, _) => 0,
            other => panic!("{other:?}"),
        };
        std::thread::sleep(ms(2));
    }
}

#[test]
fn b_118_redis_toggled_20_times_admits_no_more_than_the_limits() {
    let mut server = Server::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let shape = |name| Shape {
        name,
        limits: vec![bucket(BURST, PER_SECOND, 1_000_000), tally()],
    };
    let shapes = [shape("closed"), shape("local")];
    let settings = ["closed", "closed", "local", "local"];
    let clients = settings.map(|policy| open_with(&server.url(), &[("on_failure", policy)]));
    let limiters: Vec<Limiter> = (0..4)
        .map(|n| limiter(&clients[n], shapes[n / 2].name, &shapes[n / 2].limits))
        .collect();
    let admitted = [(); 4].map(|()| Admitted::default());
    let over = AtomicBool::new(false);
    let (mut worst, mut away, began) = (Duration::ZERO, Duration::ZERO, Instant::now());
    for limiter in &limiters {
        eventually("it works", secs(10), || {
            acquire(limiter, &weigh(0)).flags == 0
        });
    }
    eventually("both have counted both", secs(10), || {
        server.ask::<u64>(&["ZCARD", "{limiter:TT:local}:n"]) == 2
    });
    std::thread::sleep(ms(2500));
    let probe = limiter(&hasty(&server.url()), "probe", &[tally()]);
    std::thread::scope(|scope| {
        for (limiter, admitted) in limiters.iter().zip(&admitted) {
            let over = &over;
            scope.spawn(move || hammer(limiter, admitted, over));
        }
        let _stop = Stop(&over);
        for n in 0..20 {
            std::thread::sleep(ms(300 + 97 * n % 400));
            let gone = Instant::now();
            server.kill();
            std::thread::sleep(ms(300 + 61 * n % 400));
            server.boot();
            let took = eventually("Redis decides again", secs(5), || {
                acquire(&probe, &Request::TRY).status == Status::Ok
            });
            worst = worst.max(took);
            // A breaker may not have noticed yet.
            away += gone.elapsed() + ms(300);
        }
        std::thread::sleep(ms(300));
    });
    let in_time = |length: Duration| PER_SECOND * length.as_millis() as u64 / 1000;
    let allowed = BURST + in_time(began.elapsed());
    // Half of what the limit allows in the times when Redis was away, and of the burst each time.
    let half = (20 * BURST + in_time(away)) / 2;
    let of = |n: usize| {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (load(&admitted[n].by_redis), load(&admitted[n].by_policy))
    };
    for (n, shape) in shapes.iter().enumerate() {
        let charged = shape.charged(&shape.on(&server.url()));
        let told = of(2 * n).0 + of(2 * n + 1).0;
        println!(
            "figure: {}: {told} admitted, {charged} charged, {} allowed",
            shape.name, allowed
        );
        assert!(told <= charged && charged <= allowed);
        assert!(told > 200, "{told}");
    }
    for n in 0..2 {
        assert_eq!(of(n).1, 0, "closed admits nothing");
        let local = of(2 + n).1;
        println!(
            "figure: local: {local} admitted in place of Redis, {} allowed to each of two",
            half
        );
        assert!(local > 50 && local <= half, "{local}");
    }
    println!("figure: toggled 20 times: worst recovery {worst:?}");
    assert!(worst < secs(2) + ms(500), "{worst:?}");
}
