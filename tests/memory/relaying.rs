//! An operation that is a part of another one: its completion is handed on.
use std::sync::mpsc::{Receiver, channel};

use limiter::decision::{Decision, Status::*};
use limiter::limit::time::Span;
use limiter::memory::Options;
use limiter::op::{Relay, Request, Sink};
use limiter::permit::Numbers;

use crate::kit::*;

fn relay(
    op: u64,
    queue: Option<&std::sync::Arc<limiter::queue::Queue>>,
) -> (Sink, Receiver<Decision>) {
    let (sender, heard) = channel();
    let then = Box::new(move |decision| sender.send(decision).unwrap());
    let queue = queue.cloned();
    (Sink::Relay(Relay { then, op, queue }), heard)
}

#[test]
fn a_completion_is_handed_on_once_and_without_a_lock() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(1)]);
    let held = world.takes(&limiter, 1);
    let (sender, heard) = channel();
    let memory = world.memory.clone();
    let then = Box::new(move |decision: Decision| {
        // Under the lock this would never return.
        assert_eq!(memory.release(decision.permit), Ok);
        sender.send(decision).unwrap();
    });
    let relay = Relay {
        then,
        op: 77,
        queue: None,
    };
    let pending = world
        .memory
        .acquire(&limiter, &ask(1, EVER), Sink::Relay(relay));
    assert_eq!(pending.status, Pending);
    assert!(heard.try_recv().is_err());
    assert_eq!(world.memory.release(held), Ok);
    let decision = heard.try_recv().unwrap();
    assert_eq!((decision.status, decision.op), (Ok, pending.op));
    assert_eq!(world.remaining(&limiter), 1);
}

#[test]
fn what_is_decided_at_once_is_answered_and_not_handed_on() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(1)]);
    let (sink, heard) = relay(1, None);
    let granted = world.memory.acquire(&limiter, &ask(1, EVER), sink);
    assert_eq!(granted.status, Ok);
    assert!(heard.recv().is_err(), "and nobody is left to hand it on");
}

#[test]
fn a_detached_one_is_not_handed_on_and_shutdown_is() {
    let world = World::new();
    let limiter = world.limiter("n", [sem(1)]);
    world.takes(&limiter, 1);
    let (sink, detached) = relay(1, None);
    let first = world.memory.acquire(&limiter, &ask(1, EVER), sink);
    let (sink, ended) = relay(2, None);
    world.memory.acquire(&limiter, &ask(1, EVER), sink);
    assert_eq!(world.memory.cancel(first.op, true), Ok);
    assert!(detached.recv().is_err());
    world.memory.shutdown(None);
    assert_eq!(ended.try_recv().unwrap().status, Closed);
}

#[test]
fn a_lost_lease_is_told_to_the_queue_of_the_whole() {
    let world = World::new();
    let limiter = world.limiter("n", [leased(1, SEC)]);
    let queue = world.queue();
    let request = Request {
        tell_lost: true,
        user_data: 5,
        ..ask(1, EVER)
    };
    let (sink, _) = relay(77, Some(&queue));
    let first = world.memory.acquire(&limiter, &request, sink);
    let (sink, heard) = relay(78, Some(&queue));
    world.memory.acquire(&limiter, &request, sink);
    world.pass(SEC);
    let second = heard.try_recv().unwrap();
    world.pass(SEC);
    let told: Vec<_> = done(&queue)
        .into_iter()
        .map(|lost| (lost.status, lost.permit, lost.op, lost.user_data))
        .collect();
    assert_eq!(
        told,
        [(Stale, first.permit, 77, 5), (Stale, second.permit, 78, 5)]
    );
}

#[test]
fn numbers_of_a_stand_in_are_told_apart() {
    let world = World::with(
        limiter::clock::Clock::virtual_clock(),
        Options {
            numbers: Numbers::local(3),
            ..OPTIONS
        },
        None,
    );
    let permit = world.takes(&world.limiter("n", [sem(1)]), 1);
    assert!(Numbers::is_local(permit));
    assert_eq!(world.memory.release(permit), Ok);
    assert_eq!(world.memory.release(Numbers::local(2).make(0, 1)), Forked);
    assert!(!Numbers::is_local(Numbers::new(3).make(63, 1)));
    assert_eq!(world.memory.clock_advance(Span::ZERO), Ok);
}
