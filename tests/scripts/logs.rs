//! Sliding logs that are longer than a page, and ones that lose some of what is stored.
use limiter::limit::decide::Limits;
use limiter::limit::rule::{Limit, Rule};
use limiter::limit::sliding_log::SlidingLog;
use limiter::limit::time::{Span, Time};
use limiter::limit::weights::Weights;
use limiter::redis::keys::Names;
use limiter::redis::wire::{Batch, Head, Outcome, Reply, Target};

use crate::differential::{Run, SHORT_PAGES};
use crate::random::{Random, seeds};
use crate::server::{Server, Stored};

const WINDOW: u64 = 1_000_000;

fn limits(limit: u64, window: u64) -> Limits {
    let limit = Limit {
        rule: Rule::SlidingLog(SlidingLog::new(limit, Span(window)).unwrap()),
        per_call: false,
    };
    Limits::new(vec![limit], 1).unwrap()
}

fn step(run: &mut Run, random: &mut Random, gap: u64) {
    match random.below(200) {
        0 => run.raw += WINDOW / 2,
        1 => run.raw += 2 * WINDOW,
        2 => run.raw -= 5_000,
        3 => {
            let limits = limits(
                random.pick(&[50, 300, 1_000]),
                random.pick(&[WINDOW / 2, WINDOW]),
            );
            let opened = run.opened() + 1;
            run.open(limits, opened);
        }
        _ => run.raw += random.below(gap),
    }
    let weight = random.pick(&[1, 1, 1, 1, 2, 3, 50]);
    match random.below(20) {
        0 => run.peek(Weights::One(random.pick(&[1, 7, 100, 300]))),
        1 => run.unbook(0),
        // Of the newest and of the oldest, to more and to nothing.
        2..=4 => {
            let back = random.pick(&[1, 2, 20, 200, 1_000]);
            let which = run.made.len().saturating_sub(back);
            run.settle(which, random.pick(&[0, 0, 1, 2, 90]));
        }
        5 => run.book(Weights::One(weight), Some(Span(random.below(WINDOW)))),
        _ => run.book(Weights::One(weight), Some(Span::ZERO)),
    }
}

#[test]
fn long_logs_are_as_exact_as_short_ones() {
    for seed in 0..seeds(6) {
        let mut random = Random::new(seed);
        let mut run = Run::new(limits(1_000, WINDOW));
        let short: &[_] = if seed % 2 > 0 { &[SHORT_PAGES] } else { &[] };
        run.server.altered.set(short);
        for _ in 0..1_500 {
            step(&mut run, &mut random, 2_000);
            run.forget_story();
        }
    }
}

/// Booked ahead they are more than any window counts.
#[test]
fn the_largest_weights_far_ahead_are_settled_exactly() {
    let most = 1 << 48;
    let mut run = Run::new(limits(most, WINDOW));
    for _ in 0..7 {
        run.book(Weights::One(most), Some(Span(10 * WINDOW)));
    }
    for which in [6, 3] {
        run.settle(which, most - 1);
        run.peek(Weights::One(1));
        run.peek(Weights::One(2));
    }
}

/// Behind more bookings than it can count nothing is booked.
#[test]
fn no_more_is_booked_than_is_counted_exactly() {
    let most = 1 << 48;
    let mut run = Run::new(limits(most, WINDOW));
    for n in 0..60 {
        run.book(Weights::One(most - n % 3), None);
        run.raw += WINDOW / 4;
    }
    for which in 0..run.made.len() {
        run.settle(which, 1);
        run.book(Weights::One(most), None);
    }
}

#[test]
fn what_is_booked_to_the_brim_is_given_back_whole() {
    let most = 1 << 48;
    let mut run = Run::new(limits(most, WINDOW));
    for _ in 0..40 {
        run.book(Weights::One(most), None);
        run.book(Weights::One(1), Some(Span::ZERO));
    }
    assert_eq!(run.made.len(), 16);
    run.raw += WINDOW;
    run.book(Weights::One(most - 1), None);
    run.book(Weights::One(2), None);
    run.book(Weights::One(1), None);
    assert_eq!(run.made.len(), 18);
    // All of them are given back, from the first on.
    for _ in 0..18 {
        let which = run.made.len() - 1;
        run.unbook(which);
    }
    // But for the one whose time had come.
    run.book(Weights::One(1), Some(Span::ZERO));
    run.raw += WINDOW;
    run.book(Weights::One(most), Some(Span::ZERO));
    assert_eq!(run.made.len(), 1);
}

/// A log as a client sees it, and all that it ever let pass.
struct Seen {
    server: Server,
    target: Target,
    parts: Vec<String>,
    now: u64,
    passed: Vec<u64>,
}

impl Seen {
    fn new(limits: &Limits) -> Seen {
        Seen {
            server: Server::new(),
            target: Target::new("l", b"n", limits),
            parts: Names::new("l", b"n", limits).keys(b"k").collect(),
            now: 1_700_000_000_000_000,
            passed: vec![],
        }
    }

    fn try_one(&mut self) -> (Outcome, Span) {
        self.server.data.now.set(self.now);
        let mut batch = self.target.batch(Head {
            now: Some(Time(self.now)),
            not_after: None,
        });
        batch.book(Some(Span::ZERO), &Weights::One(1));
        let reply = self.server.call(&batch.on(b"k")).unwrap();
        let Ok(Reply::Done { answers, .. }) = Reply::read(&reply, 1) else {
            panic!("{reply:?}");
        };
        if answers[0].outcome == Outcome::Done {
            self.passed.push(self.now);
        }
        (answers[0].outcome, answers[0].retry_after)
    }

    /// How many passed within the window that ends now.
    fn in_window(&self) -> usize {
        let passed = self.passed.iter().rev();
        passed.take_while(|at| **at + WINDOW > self.now).count()
    }
}

/// Whatever part is lost: nothing is let pass that should not have been, as long as the log has pages; and
/// what is denied for safety's sake is told honestly and over within a window.
#[test]
fn a_log_that_lost_a_part_admits_no_more_and_recovers() {
    const LIMIT: u64 = 300;
    for seed in 0..seeds(8) {
        let mut random = Random::new(seed);
        let mut seen = Seen::new(&limits(LIMIT, WINDOW));
        for round in 0..6 {
            for _ in 0..400 {
                seen.now += random.below(6_000);
                seen.try_one();
                assert!(seen.in_window() <= LIMIT as usize, "seed {seed}");
            }
            if seen.server.data.stored(&seen.parts[1]).is_none() {
                // All of it is in the one text.
                continue;
            }
            let part = &seen.parts[(seed as usize + round) % 2];
            assert!(seen.server.data.lose(part), "{part}: seed {seed}");
            let lost_at = seen.now;
            loop {
                match seen.try_one() {
                    (Outcome::Done, _) => break,
                    (_, retry) => seen.now += retry.0.min(random.below(50_000)),
                }
                assert!(seen.in_window() <= LIMIT as usize, "seed {seed}");
            }
            assert!(seen.now - lost_at <= 2 * WINDOW, "seed {seed}");
        }
        assert_eq!(seen.server.data.without_end(), Vec::<String>::new());
    }
}

/// How much is stored of a log, and that it is told by what is in its text.
#[test]
fn pages_come_and_go_with_their_entries() {
    let limits = limits(1 << 20, WINDOW);
    let mut seen = Seen::new(&limits);
    let pages = |seen: &Seen| match seen.server.data.stored(&seen.parts[1]) {
        None => 0,
        Some((Stored::List(pages), _)) => pages.len(),
        Some(other) => panic!("{other:?}"),
    };
    let text = |seen: &Seen| match seen.server.data.stored(&seen.parts[0]) {
        Some((Stored::Text(text), _)) => text.len(),
        other => panic!("{other:?}"),
    };
    let mut longest = 0;
    for n in 0..10_000 {
        assert_eq!(pages(&seen), n / 64 - usize::from(n > 0 && n % 64 == 0));
        seen.now += 50;
        assert_eq!(seen.try_one().0, Outcome::Done);
        longest = longest.max(text(&seen));
    }
    assert!(longest < 2_500, "{longest}");
    // As time passes the oldest go, a page at a time; when all are too old, nothing is left of them.
    seen.now += WINDOW * 3 / 4;
    seen.try_one();
    assert!((75..=80).contains(&pages(&seen)), "{}", pages(&seen));
    seen.now += WINDOW + 10;
    seen.try_one();
    assert_eq!(pages(&seen), 0);
    assert!(text(&seen) < 200);
}

/// Whoever comes next has the slot, unless the clock has stepped back since: who was told how long to wait starts
/// earlier than the key's time says.
#[test]
fn a_slot_given_back_in_the_middle_is_had_by_who_comes_next_but_not_after_a_step_back() {
    for (step, expected) in [(0, 2), (1, 2), (-5 * WINDOW as i64, 4)] {
        let limits = limits(1, WINDOW);
        let (server, target) = (Server::new(), Target::new("l", b"n", &limits));
        let now = 1_700_000_000_000_000u64;
        server.data.now.set(now);
        let ask = |add: &dyn Fn(&mut Batch)| {
            let mut batch = target.batch(Head::default());
            add(&mut batch);
            let reply = server.call(&batch.on(b"k")).unwrap();
            match Reply::read(&reply, 1) {
                Ok(Reply::Done { mut answers, .. }) => answers.remove(0),
                _ => panic!("{reply:?}"),
            }
        };
        let waits = || ask(&|batch| batch.await_time(None, &Weights::One(1)));
        let slots: Vec<_> = (0..4).map(|_| waits()).collect();
        assert_eq!(slots[3].retry_after, Span(3 * WINDOW));
        ask(&|batch| batch.give_back(&slots[2].booking));
        server.data.now.set(now.checked_add_signed(step).unwrap());
        let next = waits();
        assert_eq!(next.retry_after.0.div_ceil(WINDOW), expected, "{step}");
    }
}
