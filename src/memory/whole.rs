//! What concerns a whole key, a whole queue or the whole backend: penalty, reset, cancel, shutdown.
use std::sync::Arc;

use super::keys::{Key, Keys};
use super::leave::{Rest, SOME};
use super::names::{KeyId, Named};
use super::scene::Scene;
use super::wait::Stage;
use crate::decision::Status;
use crate::limit::time::Span;
use crate::op::Sink;

/// Records of permits that a reset drops itself; more are dropped by the calls that follow.
const ENDED: usize = 256;

impl Scene<'_> {
    /// Nothing starts on a key for so long; what is booked is booked anew. False: not yet, ask again.
    pub fn penalize(
        &mut self,
        keys: &mut Keys,
        named: &Arc<Named>,
        id: KeyId,
        length: Span,
    ) -> bool {
        let until = self.now + length.min(self.memory.options.max_penalty);
        if keys.find(id, &self.memory.names).is_none() {
            let key = Key::fresh(id, named.current(), self.now);
            self.insert(keys, key);
        }
        let key = keys
            .find(id, &self.memory.names)
            .expect("it was made if it was not there");
        self.expire(key);
        self.serve(key);
        key.forget(self.now);
        self.adopt(key, named);
        let longer = until > key.state.blocked_until();
        let begun = key.line_mut().is_some_and(|line| line.told_first);
        let puts_off = begun || longer && self.first_promised(key).is_some_and(|at| at < until);
        if puts_off && !self.let_told_pass(key) {
            return false;
        }
        key.penalize(self.now, until);
        if puts_off {
            self.put_off(key);
        }
        self.end_hopeless(key);
        self.pump(key);
        true
    }

    /// Makes a key as new: permits on it end, and those who wait are decided anew, in their order.
    pub fn reset(&mut self, keys: &mut Keys, named: &Arc<Named>, id: KeyId) {
        let mut key = keys.find(id, &self.memory.names);
        if let Some(key) = &mut key {
            self.serve(key);
        }
        // Also of a key that was as new and has been forgotten.
        self.book.forget_all_spent(Some(id));
        self.book.paced.forget(id, self.book.next_serial);
        self.book.paced.drop_ended(ENDED);
        let Some(key) = key else {
            let named = named.current();
            if named.limits.starts_empty() {
                // It fills from now on, as one that is not forgotten.
                let key = Key::fresh(id, named, self.now);
                self.insert(keys, key);
            }
            return;
        };
        self.adopt(key, named);
        key.named.limits.reset(&mut key.state, self.now);
        let Some(live) = &mut key.live else { return };
        self.stats.in_flight.sub(live.permits.len() as u64);
        self.book.ended.push(std::mem::take(&mut live.permits));
        self.book.epoch += 1;
        live.epoch = self.book.epoch;
        if key.named.limits.holds() {
            // What they hold is theirs no more.
            live.line = None;
            live.void = !live.booked.is_empty();
        } else {
            self.start_over(key);
        }
        self.pump(key);
        self.drop_ended(ENDED);
    }

    /// Those in the line of a key that was reset go back to the queue, some at a time. False: not all have, and
    /// until then nobody's turn comes.
    pub fn requeue(&mut self, key: &mut Key) -> bool {
        let behind = self.is_behind(key);
        let Some(live) = key.live.as_mut().filter(|live| live.void) else {
            return true;
        };
        if behind {
            return false;
        }
        for _ in 0..SOME {
            let Some(serial) = live.booked.pop_first() else {
                live.void = false;
                return true;
            };
            live.queue.insert(serial);
            let wait = self.wait_mut(serial);
            wait.stage = Stage::Queued;
            let deadline = wait.deadline;
            self.arm(serial, deadline);
        }
        self.rest.insert(Rest::Key(key.id));
        false
    }

    /// Ends a wait. False: it is over already. A detached one does not hear of it, except a thread, which
    /// would wait for ever.
    pub fn cancel(&mut self, keys: &mut Keys, serial: u64, detach: bool) -> bool {
        let Some(id) = self.take_out(keys, serial, detach) else {
            return false;
        };
        let key = keys.find(id, &self.memory.names);
        self.pump(key.expect("its wait was there a moment ago"));
        true
    }

    /// [`Scene::cancel`], of which the caller pumps the key it answers.
    pub fn take_out(&mut self, keys: &mut Keys, serial: u64, detach: bool) -> Option<KeyId> {
        self.wait_due(keys, serial);
        let id = self.book.waits.get(&serial)?.key;
        let key = keys.find(id, &self.memory.names);
        let key = key.expect("a key with a wait stays");
        self.serve(key);
        let wait = self.book.waits.get(&serial)?;
        let silent = detach && !matches!(wait.sink, Sink::Thread(_));
        if silent {
            self.abandon(key, serial);
        } else {
            self.end(key, serial, Status::Cancelled);
        }
        self.stats.cancelled.add(1);
        Some(key.id)
    }

    /// Ends everything: waits with CLOSED, permits are released, keys forgotten.
    pub fn close(&mut self, keys: &mut Keys) {
        let serials: Vec<u64> = self.book.waits.iter().map(|(serial, _)| *serial).collect();
        for serial in serials {
            self.wait_due(keys, serial);
            let Some(wait) = self.book.waits.get(&serial) else {
                continue;
            };
            let key = keys
                .find(wait.key, &self.memory.names)
                .expect("a key with a wait stays");
            self.end(key, serial, Status::Closed);
        }
        let (keys, permits) = keys.clear(&self.memory.names);
        self.stats.keys.sub(keys);
        self.stats.in_flight.sub(permits);
        self.stats.released.add(permits);
        self.book.held.clear();
        self.book.ended.clear();
        self.book.more.clear();
        self.book.forget_all_spent(None);
        self.book.paced.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::limit::decide::Limits;
    use crate::limit::rule::{Limit, Rule};
    use crate::limit::semaphore::Semaphore;
    use crate::limit::token_bucket::TokenBucket;
    use crate::memory::Memory;
    use crate::op::Request;

    const MANY: usize = 10 * SOME;

    /// The shard is free after each piece, and nobody passes those who are not in the queue yet.
    #[test]
    fn a_reset_with_very_many_booked_waits_lets_others_in_between() {
        let memory = Memory::virtually(2 * MANY);
        let weighing = |rule| Limit {
            rule,
            per_call: false,
        };
        let semaphore = Semaphore::new(4 * MANY as u64, Span::secs(60), true).unwrap();
        let bucket = TokenBucket::new(1, 1, Span::secs(1), false).unwrap();
        let limits = vec![
            weighing(Rule::Semaphore(semaphore)),
            weighing(Rule::TokenBucket(bucket)),
        ];
        let named = memory.limiter(b"n", Limits::new(limits, 0).unwrap());
        let request = Request {
            wait: None,
            ..Request::TRY
        };
        let wait = || memory.acquire(&named, &request, Sink::Callback(Box::new(|_| {})));
        let first = memory.acquire_blocking(&named, &request);
        let ops: Vec<u64> = (0..MANY).map(|_| wait().op).collect();
        let id = named.key(b"");
        let moved = || {
            let (moved, _) = memory.once(id.shard(), |keys, _| {
                let key = keys.find(id, &memory.names).unwrap();
                let live = key.live.as_ref().unwrap();
                (live.void, live.queue.len())
            });
            moved
        };
        let (_, mut rest) = memory.once(id.shard(), |keys, scene| scene.reset(keys, &named, id));
        assert_eq!(moved(), (true, SOME));
        // One that was moved, and one that was not; each call moves some more.
        for (op, left) in [(ops[0], 2 * SOME - 1), (ops[MANY - 1], 3 * SOME - 1)] {
            let serial = memory.operations.find(memory.numbers.read(op).unwrap().1);
            memory.once(id.shard(), |keys, scene| scene.cancel(keys, serial, false));
            assert_eq!(moved(), (true, left));
        }
        for piece in 4..MANY / SOME {
            assert!(rest.contains(&Rest::Key(id)));
            rest = memory.go_on(id.shard(), Rest::Key(id));
            assert_eq!(moved(), (true, piece * SOME - 1));
        }
        while let Some(next) = rest.pop_first() {
            rest.extend(memory.go_on(id.shard(), next));
        }
        // One has started, and the others are booked again.
        let totals = memory.stats().totals();
        assert_eq!(totals.waiting, MANY as u64 - 3);
        assert_eq!(totals.in_flight, 1);
        assert_eq!(memory.release(first.permit), Status::Stale);
        let last = memory
            .acquire_blocking(&named, &Request::TRY)
            .retry_after_us;
        assert_eq!(last, (MANY as u64 - 2) * 1_000_000);
    }
}
