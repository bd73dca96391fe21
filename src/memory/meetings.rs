//! What goes wrong only where calls meet between two pieces of work, or a key is met in a rare state.
use std::sync::Arc;

use super::*;
use crate::limit::pacer::Pacer;
use crate::limit::rule::{Limit, Rule};
use crate::limit::semaphore::Semaphore;
use crate::limit::token_bucket::TokenBucket;
use crate::op::{Request, Sink, Weights};

const SEC: Span = Span::secs(1);
const EVER: Request<'static> = Request {
    wait: None,
    ..Request::TRY
};

fn lim(rules: Vec<Rule>) -> Limits {
    let limits = rules.into_iter().map(|rule| Limit {
        rule,
        per_call: false,
    });
    Limits::new(limits.collect(), 0).unwrap()
}
fn tb(cap: u64, n: u64, empty: bool) -> Rule {
    Rule::TokenBucket(TokenBucket::new(cap, n, SEC, empty).unwrap())
}
fn sem(cap: u64) -> Rule {
    Rule::Semaphore(Semaphore::new(cap, Span::secs(60), true).unwrap())
}
fn w(n: u64) -> Request<'static> {
    Request {
        weights: Weights::Same(n),
        ..Request::TRY
    }
}
fn q(memory: &Memory) -> Arc<Queue> {
    memory.queue(Queue::open_descriptor().unwrap())
}
fn polled(queue: &Queue) -> Vec<Decision> {
    queue.poll(10_000, Some(Duration::ZERO)).unwrap()
}

#[test]
fn a_pacer_that_is_settled_up_and_down_locks_nobody_out() {
    let m = Memory::virtually(10);
    let n = m.limiter(
        b"n",
        lim(vec![Rule::Pacer(Pacer::new(5, 1, SEC, 500).unwrap())]),
    );
    m.acquire_blocking(&n, &w(1));
    for _ in 0..1800 {
        assert_eq!(m.acquire_blocking(&n, &w(1)).status, Status::Ok);
        m.clock_advance(Span::secs(2));
    }
    let a = m.acquire_blocking(&n, &w(1)).permit;
    let b = m.acquire_blocking(&n, &w(1)).permit;
    m.settle(a, 2);
    m.settle(b, 0);
    assert_eq!(m.acquire_blocking(&n, &w(1)).retry_after_us, 1_000_000);
}

#[test]
fn who_is_behind_a_wait_of_a_freed_queue_moves_up() {
    let m = Memory::virtually(10_000);
    let n = m.limiter(b"n", lim(vec![sem(1), tb(1, 1, false)]));
    let (dead, live) = (q(&m), q(&m));
    let p = m.acquire_blocking(&n, &w(1));
    m.release(p.permit);
    // Booked, holding the semaphore; and one queued behind it.
    for queue in [&dead, &live] {
        let asked = m.acquire(&n, &EVER, Sink::Queue(queue.clone()));
        assert_eq!(asked.status, Status::Pending);
    }
    dead.free();
    // Its time comes, and a call finds that before the timer does.
    m.clock.show(m.clock_now() + SEC);
    m.acquire_blocking(&n, &w(1));
    m.free_queue(&dead);
    m.clock_advance(Span::secs(100));
    assert_eq!(polled(&live).len(), 1);
}

#[test]
fn nobody_passes_who_waits_while_others_are_cancelled() {
    let m = Memory::virtually(10_000);
    let n = m.limiter(b"n", lim(vec![tb(1, 1000, false)]));
    let queue = q(&m);
    m.acquire_blocking(&n, &w(1));
    for tag in (0..600).map(|_| 7).chain([8]) {
        let request = Request {
            user_data: tag,
            ..EVER
        };
        m.acquire(&n, &request, Sink::Queue(queue.clone()));
    }
    // Between two pieces of cancel_waits(7).
    let id = n.key(b"");
    let before = m.operations.next();
    m.once(id.shard(), |_, scene| {
        scene.book.leaving.insert(before, leave::Group::Tagged(7))
    });
    m.clock.show(m.clock_now() + Span(602_500));
    let passes = m.acquire_blocking(&n, &w(1));
    m.once(id.shard(), |_, scene| scene.book.leaving.clear());
    m.cancel_waits(7);
    let stays = polled(&queue)
        .iter()
        .any(|d| d.user_data == 8 && d.status == Status::Ok);
    assert!(stays);
    assert_eq!(passes.status, Status::Denied, "one waits before it");
}

#[test]
fn a_key_is_as_new_under_the_limits_that_are_the_newest() {
    let answer = |swept| {
        let m = Memory::virtually(10);
        let a = m.limiter(b"n", lim(vec![tb(5, 1, true)]));
        m.acquire_blocking(&a, &w(1));
        m.clock.show(m.clock_now() + Span::secs(1000));
        if swept {
            (0..10_000).for_each(|_| m.sweep_next());
        }
        let b = m.limiter(b"n", lim(vec![tb(5, 2, false)]));
        m.acquire_blocking(&b, &w(5)).status
    };
    assert_eq!(answer(true), answer(false));
}

#[test]
fn a_penalty_in_pieces_whose_reason_goes_keeps_deadlines() {
    let m = Memory::virtually(10_000);
    let n = m.limiter(b"n", lim(vec![tb(1, 1, false)]));
    let queue = q(&m);
    m.acquire_blocking(&n, &w(1));
    let id = n.key(b"");
    let wait = |secs: u64| {
        let request = Request {
            wait: Some(Span::secs(secs)),
            ..Request::TRY
        };
        m.acquire(&n, &request, Sink::Queue(queue.clone()))
    };
    let told = |k: u64| {
        for _ in 0..k {
            m.pace(&n, &EVER);
        }
    };
    let first = wait(1);
    told(4);
    wait(10);
    told(300);
    let length = Span::secs(2);
    let (done, _) = m.once(id.shard(), |keys, scene| {
        scene.penalize(keys, &n, id, length)
    });
    assert!(!done);
    m.cancel(first.op, false);
    m.penalize(&n, b"", length);
    m.clock_advance(Span::secs(1000));
    for one in polled(&queue) {
        assert!(one.waited_us <= 10_000_000, "{one:?}");
    }
}

#[test]
fn a_look_after_the_limits_were_changed_begins_nothing() {
    let m = Memory::virtually(10);
    let a = m.limiter(b"n", lim(vec![tb(5, 1, false)]));
    m.acquire_blocking(&a, &w(1));
    m.clock_advance(Span::secs(1000));
    let b = m.limiter(b"n", lim(vec![tb(5, 1, true)]));
    assert_eq!(m.peek(&b, &w(1)).status, Status::Denied);
    m.clock_advance(Span::secs(5));
    assert_eq!(m.acquire_blocking(&b, &w(1)).status, Status::Denied);
    // A reset through the old handle does, of a key that is not there.
    m.reset(&a, b"other");
    m.clock_advance(Span::secs(1));
    let other = Request {
        key: b"other",
        ..w(1)
    };
    assert_eq!(m.acquire_blocking(&b, &other).status, Status::Ok);
}

#[test]
fn who_is_moved_to_the_queue_at_its_deadline_hears_of_it() {
    let m = Memory::virtually(10_000);
    let n = m.limiter(b"n", lim(vec![sem(1000), tb(1, 1, false)]));
    let queue = q(&m);
    m.acquire_blocking(&n, &w(1));
    for _ in 1..599 {
        m.acquire(&n, &EVER, Sink::Queue(queue.clone()));
    }
    let patience = Request {
        wait: Some(Span::secs(599)),
        ..Request::TRY
    };
    let last = m.acquire(&n, &patience, Sink::Queue(queue.clone())).op;
    m.limiter(b"n", lim(vec![sem(1), tb(1, 1, false)]));
    m.clock.show(m.clock_now() + Span::secs(599));
    let id = n.key(b"");
    // Between two pieces of a reset the time comes for which it is booked, and no longer.
    m.once(id.shard(), |keys, scene| scene.reset(keys, &n, id));
    let serial = m.operations.find(m.numbers.read(last).unwrap().1);
    let (_, mut rest) = m.once(id.shard(), |keys, scene| scene.wait_due(keys, serial));
    while let Some(next) = rest.pop_first() {
        rest.extend(m.go_on(id.shard(), next));
    }
    m.clock_advance(Span::secs(1000));
    assert!(polled(&queue).iter().any(|answer| answer.op == last));
}

#[test]
fn what_a_penalty_left_of_a_promise_holds_while_others_are_told() {
    let m = Memory::virtually(10_000);
    let n = m.limiter(b"n", lim(vec![tb(1, 100, false)]));
    let queue = q(&m);
    m.acquire_blocking(&n, &w(1));
    let wait = |secs| {
        let request = Request {
            wait: Some(Span::secs(secs)),
            ..Request::TRY
        };
        let asked = m.acquire(&n, &request, Sink::Queue(queue.clone()));
        assert_eq!(asked.status, Status::Pending);
        asked.op
    };
    for _ in 0..2000 {
        wait(50);
    }
    wait(70);
    let last = wait(70);
    let id = n.key(b"");
    let (_, mut rest) = m.once(id.shard(), |keys, scene| {
        scene.penalize(keys, &n, id, Span::secs(60))
    });
    // Until it is drawn anew with all, and some of those who are too late have heard.
    loop {
        let (told, _) = m.once(id.shard(), |keys, _| {
            let live = keys.find(id, &m.names).unwrap().live.as_ref().unwrap();
            let line = live.line.as_ref().unwrap();
            line.sketch.is_none() && !line.late.is_empty()
        });
        if told {
            break;
        }
        assert!(rest.contains(&leave::Rest::Key(id)));
        rest = m.go_on(id.shard(), leave::Rest::Key(id));
    }
    let slow = TokenBucket::new(1, 1, Span::secs(100), false).unwrap();
    let n = m.limiter(b"n", lim(vec![Rule::TokenBucket(slow)]));
    m.peek(&n, &w(1));
    m.clock_advance(Span::secs(3000));
    let answers = polled(&queue);
    assert_eq!(answers.len(), 2002);
    let kept = answers.iter().find(|answer| answer.op == last).unwrap();
    assert_eq!(kept.status, Status::Ok);
}
