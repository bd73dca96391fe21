//! How the outlook of a [`line`](super::line) is drawn anew: some of it at a time, with the shard free in
//! between. Those who come meanwhile join the end, and are drawn with the rest.
use super::keys::Key;
use super::leave::{Rest, SOME};
use super::scene::Scene;
use super::wait::Stage;
use crate::decision::Status;
use crate::limit::key::KeyState;

/// So many are drawn by a call that has something else to do.
const FEW: usize = 64;

/// An outlook that is being drawn.
pub(super) struct Sketch {
    /// `None`: to be begun anew.
    pub state: Option<KeyState>,
    /// From here on they are to be added.
    pub next: u64,
    /// What was promised is void: nobody's turn comes, and nobody is told anything, until it is drawn.
    pub void: bool,
    pub at_once: bool,
    pub stale: usize,
    pub owes: bool,
}

impl Sketch {
    pub fn new(void: bool) -> Sketch {
        Sketch {
            state: None,
            next: 0,
            void,
            at_once: void,
            stale: 0,
            owes: false,
        }
    }

    /// Somebody has left the line into the key. If the sketch was without, it is wrong now.
    pub fn without(&mut self, serial: u64) {
        if serial >= self.next {
            self.state = None;
        }
    }
}

impl Scene<'_> {
    /// All that was promised is void.
    pub fn put_off(&mut self, key: &mut Key) {
        if let Some(line) = key.line_mut() {
            line.seen = self.now;
            line.told_first = false;
            self.redraw(key, true, true);
        }
    }

    /// The key is as new: nothing holds of what was promised.
    pub fn start_over(&mut self, key: &mut Key) {
        if let Some(line) = key.line_mut() {
            self.book.untold.push(std::mem::take(&mut line.told));
            line.late.clear();
            line.told_first = false;
            line.seen = self.now;
            self.redraw(key, true, true);
        }
    }

    /// Begins to draw the outlook anew, or goes on. What was promised holds, unless it is void. `at_once`: the
    /// same call draws all of it, a piece at a time.
    pub fn redraw(&mut self, key: &mut Key, void: bool, at_once: bool) {
        if let Some(line) = key.line_mut() {
            if void || line.sketch.is_none() && line.late.is_empty() {
                line.sketch = Some(Sketch::new(void));
            }
            if let Some(sketch) = &mut line.sketch {
                sketch.at_once |= at_once;
            }
            self.draw(key);
        }
    }

    /// Goes on drawing. Nobody's answer waits for it, unless what was promised before is void.
    pub fn draw(&mut self, key: &mut Key) {
        let Some(live) = &mut key.live else { return };
        let Some(line) = &mut live.line else { return };
        let limits = &key.named.limits;
        if let Some(sketch) = &mut line.sketch {
            if sketch.state.is_none() {
                line.epoch = line.epoch.wrapping_add(1);
                line.late.clear();
                (sketch.next, sketch.stale, sketch.owes) = (0, line.stale, false);
            }
            let state = sketch
                .state
                .get_or_insert_with(|| key.state.copy(line.epoch));
            let mut complete = false;
            let most = if sketch.at_once { SOME } else { FEW };
            for _ in 0..most {
                let mut told = line.told.range_mut(sketch.next..);
                let told = told.next().map(|(order, told)| (*order, told));
                let booked = live.booked.from(sketch.next).next().copied();
                let serial = match (booked, told) {
                    (booked, Some((order, told))) if booked.is_none_or(|serial| order < serial) => {
                        let at = told.at.max(state.base(self.now));
                        told.booking =
                            limits.take_turn(state, self.now, at, told.since, &told.booking);
                        order
                    }
                    (Some(serial), _) => {
                        let wait = self.book.waits.get_mut(&serial);
                        let wait = wait.expect("a wait of this shard");
                        let Stage::Booked(booking) = &wait.stage else {
                            unreachable!("its key says that it is booked");
                        };
                        let turn = limits.turn(state, self.now, booking);
                        let promised = booking.at().max(state.base(self.now));
                        let at = match sketch.void {
                            true => turn,
                            false => turn.min(Some(promised)).or(Some(promised)),
                        };
                        match at {
                            None => line.late.push_back((serial, Status::Never)),
                            Some(at) if sketch.void && wait.deadline.is_some_and(|d| d < at) => {
                                line.late.push_back((serial, Status::Denied));
                            }
                            Some(at) => {
                                let booking =
                                    limits.take_turn(state, self.now, at, wait.since, booking);
                                wait.stage = Stage::Booked(booking);
                            }
                        }
                        serial
                    }
                    (None, _) => {
                        complete = true;
                        break;
                    }
                };
                sketch.next = serial + 1;
            }
            if !complete {
                if sketch.at_once {
                    self.rest.insert(Rest::Key(key.id));
                }
                return;
            }
            let sketch = line.sketch.take().expect("it was a moment ago");
            line.outlook = sketch.state.expect("begun above");
            line.stale -= sketch.stale;
            line.owes = sketch.owes;
        }
        self.end_late(key);
    }

    /// Ends those who would start after their deadline: when all are booked, because only then is it known
    /// when to come back.
    fn end_late(&mut self, key: &mut Key) {
        for n in 0.. {
            let Some(line) = key.line_mut() else { return };
            if n == SOME {
                self.rest.insert(Rest::Key(key.id));
                return;
            }
            let Some((serial, status)) = line.late.pop_front() else {
                return;
            };
            // It may have been cancelled meanwhile.
            if self.book.waits.contains(&serial) {
                self.end(key, serial, status);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    use crate::limit::decide::Limits;
    use crate::limit::rule::{Limit, Rule};
    use crate::limit::time::Span;
    use crate::limit::token_bucket::TokenBucket;
    use crate::memory::{Memory, Named};
    use crate::op::{Request, Sink};

    const MANY: usize = 10 * SOME;

    /// Limits of a unit a second, and very many who wait.
    fn crowd() -> (Arc<Memory>, Arc<Named>) {
        let memory = Memory::virtually(2 * MANY);
        let limit = Limit {
            rule: Rule::TokenBucket(TokenBucket::new(1, 1, Span::secs(1), false).unwrap()),
            per_call: false,
        };
        let named = memory.limiter(b"n", Limits::new(vec![limit], 0).unwrap());
        wait(&memory, &named, MANY);
        (memory, named)
    }

    fn wait(memory: &Arc<Memory>, named: &Arc<Named>, count: usize) {
        let request = Request {
            wait: None,
            ..Request::TRY
        };
        for _ in 0..count {
            memory.acquire(named, &request, Sink::Callback(Box::new(|_| {})));
        }
    }

    fn try_(memory: &Memory, named: &Arc<Named>) -> u64 {
        let denied = memory.acquire_blocking(named, &Request::TRY);
        assert_eq!(denied.status, Status::Denied);
        denied.retry_after_us
    }

    /// The shard is free after each piece, and a piece has no more than SOME. In between others come.
    #[test]
    fn a_penalty_with_very_many_waits_lets_others_in_between() {
        let (memory, named) = crowd();
        let id = named.key(b"");
        let drawn = |expected: usize| {
            let (drawn, _) = memory.once(id.shard(), |keys, _| {
                let key = keys.find(id, &memory.names).unwrap();
                let until = key.state.blocked_until();
                let line = key.live.as_ref().unwrap().line.as_ref().unwrap();
                line.sketch.as_ref().map_or(MANY, |sketch| {
                    let waits = &key.live.as_ref().unwrap().booked;
                    assert!(until > memory.clock_now());
                    waits.iter().filter(|serial| **serial < sketch.next).count()
                })
            });
            assert_eq!(drawn, expected);
        };
        let penalty = Span::secs(30);
        let (_, mut rest) = memory.once(id.shard(), |keys, scene| {
            scene.penalize(keys, &named, id, penalty)
        });
        let mut pieces = 1;
        while rest.contains(&Rest::Key(id)) {
            drawn(pieces * SOME);
            rest = memory.go_on(id.shard(), Rest::Key(id));
            pieces += 1;
        }
        assert!(pieces >= MANY / SOME);
        drawn(MANY);
        // As many wait as before: one started at once.
        let last = 30_000_000 + (MANY as u64 - 1) * 1_000_000;
        assert_eq!(try_(&memory, &named), last);
    }

    #[test]
    fn who_comes_while_it_is_drawn_gets_an_answer_that_counts_all() {
        let (memory, named) = crowd();
        let id = named.key(b"");
        let (_, rest) = memory.once(id.shard(), |keys, scene| {
            scene.penalize(keys, &named, id, Span::secs(30))
        });
        assert!(rest.contains(&Rest::Key(id)));
        wait(&memory, &named, 1);
        let last = 30_000_000 + MANY as u64 * 1_000_000;
        assert_eq!(try_(&memory, &named), last);
    }
}
