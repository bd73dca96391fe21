//! A bucket that was booked ahead, or blocked, is told at once again when that is over.
use limiter::limit::decide::Limits;
use limiter::limit::rule::{Limit, Rule};
use limiter::limit::time::Span;
use limiter::limit::token_bucket::TokenBucket;
use limiter::limit::weights::Weights;

use crate::differential::Run;

/// Never full, so that nothing is forgotten in between: one each millisecond, of a thousand.
const EACH: u64 = 1_000;

fn limits(capacity: u64) -> Limits {
    let rule = TokenBucket::new(capacity, 1, Span(EACH), false).unwrap();
    let limit = Limit {
        rule: Rule::TokenBucket(rule),
        per_call: false,
    };
    Limits::new(vec![limit], 1).unwrap()
}

/// Nothing is left of the bucket.
fn drained() -> Run {
    let mut run = Run::new(limits(1_000));
    run.book(Weights::One(1_000), Some(Span::ZERO));
    run.book(Weights::One(1), Some(Span::ZERO));
    run
}

fn is_told_at_once(run: &mut Run) -> bool {
    let before = run.told_at_once;
    run.book_often(Weights::One(1), Some(Span::ZERO), 2);
    run.told_at_once > before
}

fn assert_it_is_again(mut run: Run, what: &str) {
    assert!(!is_told_at_once(&mut run), "{what}: it is not over");
    for _ in 0..3 {
        run.raw += 20 * EACH;
        is_told_at_once(&mut run);
    }
    assert!(is_told_at_once(&mut run), "{what}: {}", run.story());
}

#[test]
fn a_bucket_is_told_at_once_when_what_was_booked_is_over() {
    let mut run = drained();
    run.book_often(Weights::One(1), None, 5);
    assert_it_is_again(run, "booked");

    let mut run = drained();
    run.book_often(Weights::One(1), None, 5);
    run.unbook(3);
    run.unbook(1);
    assert_it_is_again(run, "booked, and some cancelled");

    let mut run = drained();
    run.book_often(Weights::One(1), None, 5);
    (0..5).for_each(|_| run.unbook(0));
    run.book(Weights::One(1), None);
    assert_it_is_again(run, "booked, all cancelled, and booked");
}

#[test]
fn a_bucket_is_told_at_once_when_a_penalty_or_a_reset_is_over() {
    let mut run = drained();
    run.whole(Some(Span(10 * EACH)));
    assert_it_is_again(run, "blocked");

    let mut run = drained();
    run.book_often(Weights::One(1), None, 5);
    run.whole(Some(Span(10 * EACH)));
    assert_it_is_again(run, "booked and blocked");

    let mut run = Run::new(limits(100));
    run.book(Weights::One(10), Some(Span::ZERO));
    run.whole(None);
    run.book(Weights::One(100), Some(Span::ZERO));
    assert_it_is_again(run, "reset");
}

#[test]
fn what_was_booked_before_others_passed_is_not_taken_back_in_place_of_later_ones() {
    let mut run = drained();
    run.book_often(Weights::One(1), None, 3);
    let late = run.made.split_off(run.made.len() - 3);
    run.raw += 20 * EACH;
    run.book(Weights::One(17), Some(Span::ZERO));
    run.book_often(Weights::One(1), None, 3);
    for made in late {
        run.made.push(made);
        run.give_back_late();
        run.peek(Weights::One(1));
    }
    (0..3).for_each(|_| run.unbook(0));
    run.peek(Weights::One(1));
}
