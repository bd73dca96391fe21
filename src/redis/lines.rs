//! Calls on one key: one at a time is under way, and what is asked meanwhile goes together with the
//! next one. All handles of a name share the line, so that what one of them asks comes after what another
//! asked before; but a call is of one handle, whose limits it carries.
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::denied;
use super::flight::Trip;
use super::held::Lease;
use super::link::{Failure, Lane, Silence};
use super::question::Op;
use super::rebook::Again;
use super::sooner::{Moved, Sooner};
use super::wire::{Answer, Era, Id};
use super::{Key, Redis, Rule, Scene};
use crate::limit::time::{Span, Time};
use crate::sync::{Condvar, Mutex, hand_over};

/// Most questions in one call, so that the server is not held up by it.
const MOST: usize = 64;

/// The same, of equal tries in a row where the script decides them all at once.
const MOST_EQUAL: usize = 512;

/// What is known of a key while something is under way on it.
#[derive(Default)]
pub(super) struct Line {
    /// Somebody sees to it that what is queued will be sent.
    flying: bool,
    /// Notes are heeded, under the place of this key.
    placed: Option<Arc<Key>>,
    queue: VecDeque<Item>,
    /// Waits with a booked time, in the order in which they came.
    pub booked: BTreeSet<u64>,
    /// Waits that are in the semaphore's queue, in the same order.
    pub queued: BTreeSet<u64>,
    /// How many of others wait before those, as far as is known: less as they are granted.
    pub ahead: u64,
    /// Permits that hold the semaphore.
    pub held: BTreeSet<u64>,
    /// What its state was called last.
    pub era: Option<Era>,
    /// A penalty lasts so long, by the key's clock; which reset was the last; and when either was heard of.
    pub blocked: Time,
    pub reset: u64,
    pub heard: Time,
    /// What is booked anew after that.
    pub again: Again,
    /// Questions under way after which whoever was denied before may hear otherwise.
    pub altering: usize,
    /// Waits whose bookings are being moved to be sooner, and when that was done last.
    pub moving: BTreeSet<u64>,
    pub moved_at: Time,
    pub sooner: Sooner,
    /// Something was given back while nobody was known to wait.
    pub gave_back: bool,
}

/// A question: some operations, and who wants the answers.
pub(super) struct Item {
    pub key: Arc<Key>,
    pub ops: Vec<Op>,
    pub then: Then,
    pub asked: Time,
    /// Whoever was denied before may hear otherwise after this.
    pub alters: bool,
}

impl Item {
    /// By a handle's key.
    fn is_of(&self, key: &Key) -> bool {
        Arc::ptr_eq(&self.key.named, &key.named)
    }

    /// It takes what is there, or nothing.
    fn is_try(&self) -> bool {
        matches!(
            &self.ops[..],
            [Op::Book {
                wait: Some(Span::ZERO),
                ..
            }]
        )
    }

    pub fn may_repeat(&self) -> bool {
        self.ops.iter().all(Op::may_repeat)
    }
}

/// Who wants an answer.
pub(super) enum Then {
    /// The operation of this serial.
    Acquire(u64),
    /// The same, of which it is known that it is not admitted.
    Why(u64),
    /// The operation of this serial, if it still goes by this id.
    Hold(u64, Id),
    /// The same, for the last time: the second answer says why not.
    Last(u64, Id),
    /// The permit of this serial and id, which asked for such a lease; and whoever waits at the slot.
    Renew(u64, Id, Lease, Option<Arc<Slot>>),
    /// The permit of this serial and id, which may be there no more.
    See(u64, Id),
    /// Nobody. If it fails it is said again, until then.
    End(Time),
    /// Whoever waits at this slot.
    Tell(Arc<Slot>),
    /// The key's stock of units.
    Ahead,
    /// As `Tell`, for a penalty or a reset.
    Change(Arc<Slot>),
    /// What is booked is to be booked anew: before that is sent, it becomes one of the next two.
    Again,
    /// The waits that give back what they had booked, and that.
    Returned(Vec<(u64, Answer)>),
    /// The waits that are booked anew.
    Rebooked(Vec<u64>),
    /// What is booked is to come sooner, if it can: before that is sent, it becomes `Moved`.
    Sooner,
    /// The waits whose bookings were moved: theirs are the last answers. The one before them says until when
    /// nothing is admitted.
    Moved(Vec<Moved>),
    /// Those whose bookings a penalty that lasts so long stands in the way of.
    Look,
    Nobody,
}

pub(super) type Heard = Result<Vec<Answer>, Failure>;

/// Where a thread waits for an answer.
#[derive(Default)]
pub(super) struct Slot {
    heard: Mutex<Option<Heard>>,
    changed: Condvar,
}

impl Slot {
    fn tell(&self, heard: Heard) {
        *self.heard.lock() = Some(heard);
        self.changed.notify_one();
    }

    pub fn wait(&self, longest: Duration) -> Heard {
        while self.heard.lock().is_none() && hand_over() {}
        let heard = self.heard.lock();
        let silent = |heard: &mut Option<Heard>| heard.is_none();
        let mut waited = self.changed.wait_timeout_while(heard, longest, silent);
        let heard = waited.take();
        heard.unwrap_or(Err(Failure::Ambiguous(Silence::Timeout)))
    }
}

impl Scene<'_> {
    fn item(&mut self, key: &Arc<Key>, ops: Vec<Op>, then: Then) -> Item {
        let item = Item {
            key: key.clone(),
            alters: ops.iter().any(denied::alters),
            ops,
            then,
            asked: self.now,
        };
        self.doubt_denial(&item);
        item
    }

    /// Sees to it that a question is sent: now, or with the next call on its key.
    pub fn enqueue(&mut self, key: &Arc<Key>, ops: Vec<Op>, then: Then) {
        self.send_or(key, ops, then, VecDeque::push_back);
    }

    /// The same, before all that is on the line.
    pub fn enqueue_first(&mut self, key: &Arc<Key>, ops: Vec<Op>, then: Then) {
        self.send_or(key, ops, then, VecDeque::push_front);
    }

    fn send_or(
        &mut self,
        key: &Arc<Key>,
        ops: Vec<Op>,
        then: Then,
        queue: fn(&mut VecDeque<Item>, Item),
    ) {
        let item = self.item(key, ops, then);
        let line = self.line(key);
        if line.flying {
            return queue(&mut line.queue, item);
        }
        line.flying = true;
        let item = self.as_sent(item);
        self.due.push(vec![item]);
    }

    /// What moves bookings moves those that there are when it is sent.
    fn as_sent(&mut self, item: Item) -> Item {
        match item.then {
            Then::Sooner => self.with_sooner(item),
            Then::Again => self.with_more(item),
            _ => item,
        }
    }

    /// Has a question sent in the same call as the one before it on this key, or right behind it.
    pub fn enqueue_next(&mut self, key: &Arc<Key>, ops: Vec<Op>, then: Then) {
        let item = self.item(key, ops, then);
        match self.due.last_mut() {
            Some(call) if call[0].key == *key && item.is_of(&call[0].key) && call.len() < MOST => {
                call.push(item);
            }
            _ => {
                let line = self.line(key);
                assert!(line.flying, "something is before it");
                line.queue.push_back(item);
            }
        }
    }

    /// Sees to it that a question is sent now, whatever else is under way on its key.
    pub fn urge(&mut self, key: &Arc<Key>, ops: Vec<Op>, then: Then) {
        let item = self.item(key, ops, then);
        self.urgent.push(item);
    }

    pub fn line(&mut self, key: &Arc<Key>) -> &mut Line {
        self.shard.lines.entry(key.clone()).or_default()
    }

    /// Forgets a line on which nothing is under way.
    pub fn tidy(&mut self, key: &Arc<Key>) {
        if self.shard.lines.get(key).is_some_and(Line::is_idle) {
            let line = self.shard.lines.remove(key);
            if let Some(placed) = line.and_then(|line| line.placed) {
                self.shard.places.remove(placed.place());
            }
        }
    }

    /// Somebody waits there or holds a permit, whom notes may concern.
    pub fn heeds_notes(&mut self, key: &Arc<Key>) {
        let line = self.line(key);
        if line.placed.is_none() {
            line.placed = Some(key.clone());
            self.shard.places.insert(key.place().into(), key.clone());
        }
    }

    /// What a key's state was called, if a permit is believed to be held there.
    pub fn known(&self, key: &Arc<Key>) -> Option<Era> {
        let line = self.shard.lines.get(key)?;
        line.era.filter(|_| !line.held.is_empty())
    }

    /// What is to be sent next on a key. None: and nobody sees to it any more.
    pub fn next(&mut self, key: &Arc<Key>) -> Option<Vec<Item>> {
        let line = self.shard.lines.get_mut(key)?;
        assert!(line.flying, "only who flies asks");
        // A change goes alone: a key that holds garbage is healed by a reset only as a call's first operation.
        // So does what moves bookings, after the answers to all that was asked before it.
        let changes = |item: &Item| {
            matches!(
                item.then,
                Then::Change(_) | Then::Sooner | Then::Again | Then::Ahead
            )
        };
        let Some(first) = line.queue.pop_front() else {
            (line.flying, line.gave_back) = (false, false);
            self.tidy(key);
            return None;
        };
        if changes(&first) {
            return Some(vec![self.as_sent(first)]);
        }
        let mut in_a_row = first.key.named.current().target.runs() && first.is_try();
        let mut decided = 1;
        let with_first = |item: &&Item| {
            in_a_row = in_a_row && item.ops == first.ops;
            decided += usize::from(!in_a_row);
            item.is_of(&first.key) && !changes(item) && decided <= MOST
        };
        let more = line.queue.iter().take(MOST_EQUAL - 1);
        let count = more.take_while(with_first).count();
        let more: Vec<Item> = line.queue.drain(..count).collect();
        let items = [first].into_iter().chain(more);
        Some(items.map(|item| self.leaves_the_line(item)).collect())
    }

    /// An answer's time counts from here for a call that waits longer than for an answer anyway. So a long
    /// line is none of Redis's failures, as long as the wait's own time is not over.
    fn leaves_the_line(&self, mut item: Item) -> Item {
        let (Then::Acquire(serial) | Then::Hold(serial, _)) = item.then else {
            return item;
        };
        let longest = self.redis.options.config.command_timeout;
        let latest = match self.shard.waits.get(&serial).map(|wait| wait.deadline) {
            Some(Some(deadline)) => deadline - longest,
            Some(None) => self.now,
            None => return item,
        };
        let asked = item.asked.max(self.now.min(latest));
        item.asked = asked;
        item
    }

    /// Hands answers on.
    pub fn land(&mut self, key: &Arc<Key>, items: Vec<Item>, trip: &Trip, result: Heard) {
        if trip.era.is_some()
            && let Some(line) = self.shard.lines.get_mut(key)
        {
            line.era = trip.era;
        }
        let mut answers = result.map(Vec::into_iter);
        for item in items {
            if item.alters {
                self.line(key).altering -= 1;
            }
            let Item { mut ops, then, .. } = item;
            let heard: Heard = match &mut answers {
                Ok(answers) => Ok(answers.take(ops.len()).collect()),
                Err(failure) => Err(failure.clone()),
            };
            let took = |answers: &Vec<Answer>| answers.iter().any(|one| !one.booking.is_empty());
            if heard.as_ref().is_ok_and(took) {
                self.forget_denial(key);
            }
            let one = |heard: Heard| heard.map(|mut answers| answers.swap_remove(0));
            match then {
                Then::Acquire(serial) => self.answered(key, serial, trip, one(heard)),
                Then::Why(serial) => self.hears_why(serial, one(heard)),
                Then::Hold(serial, id) => self.hears(serial, id, trip, one(heard)),
                Then::Last(serial, id) => self.hears_last(serial, id, trip, heard),
                Then::Renew(serial, id, lease, slot) => {
                    if self.redis.keeps(Rule::RenewalsToo) {
                        self.ended(id, trip, &heard);
                    }
                    self.renewed(serial, lease, trip, &heard);
                    if let Some(slot) = slot {
                        slot.tell(heard);
                    }
                }
                Then::See(serial, id) => {
                    if self.redis.keeps(Rule::RenewalsToo) {
                        self.ended(id, trip, &heard);
                    }
                    self.seen(serial, &heard);
                }
                Then::End(until) => {
                    if let Err(failure) = heard {
                        self.say_again(key, ops.remove(0), until, &failure);
                    }
                }
                Then::Tell(slot) => slot.tell(heard),
                Then::Ahead => self.ahead(key, &ops[0], trip, one(heard)),
                Then::Change(slot) => {
                    self.void_ahead(key);
                    if let Ok(answers) = &heard {
                        self.changed(key, &ops[0], trip, &answers[0]);
                    }
                    slot.tell(heard);
                }
                Then::Returned(waits) => self.returned(key, waits, &heard),
                Then::Rebooked(serials) => self.rebooked(key, serials, trip, &heard),
                Then::Moved(moved) => {
                    let before = heard.as_ref().ok().and_then(|all| {
                        let looked = all.len().checked_sub(moved.len() + 1)?;
                        Some(all[looked].at)
                    });
                    self.moved(key, moved, trip, &heard);
                    before.into_iter().for_each(|at| self.put_off(key, at));
                }
                Then::Look => {
                    if let Ok(answers) = &heard {
                        self.put_off(key, answers[0].at);
                    }
                }
                Then::Sooner | Then::Again => unreachable!("it became what it moves"),
                Then::Nobody => {}
            }
        }
        // Another call may have taken the line over, and have ended before this one.
        self.tidy(key);
    }
}

impl Line {
    fn is_idle(&self) -> bool {
        !self.is_awaited() && self.held.is_empty() && self.altering == 0
    }

    /// Something may start there that has not started yet.
    pub fn is_awaited(&self) -> bool {
        self.flying || self.waits() > 0 || self.again.is_on()
    }

    /// Waits with a time, also those whose bookings are being moved.
    pub fn booked_or_moving(&self) -> Vec<u64> {
        self.booked.union(&self.moving).copied().collect()
    }

    /// Others came before a wait that is to be booked anew, and are not booked yet.
    pub fn is_behind_others(&self, serial: u64) -> bool {
        self.again.returns()
            || self
                .again
                .waits
                .first()
                .is_some_and(|first| *first < serial)
    }

    /// How many wait there, as far as is known.
    pub fn waits(&self) -> usize {
        let booked = self.booked.len() + self.moving.len();
        booked + self.queued.len() + self.again.waits.len()
    }

    /// Takes out who has asked for a time, and has not been sent.
    pub fn take_waiting(&mut self) -> Vec<u64> {
        let mut waiting = Vec::new();
        self.queue.retain(|item| match (&item.then, &item.ops[..]) {
            (Then::Acquire(serial), [Op::Book { wait, .. }]) if *wait != Some(Span::ZERO) => {
                waiting.push(*serial);
                false
            }
            _ => true,
        });
        waiting
    }
}

impl Redis {
    /// Sends urgent questions, those of one key in one call.
    #[allow(clippy::mutable_key_type)] // keys are told apart by what never changes
    pub(super) fn send_urgent(&self, questions: Vec<Item>) {
        if questions.is_empty() {
            return;
        }
        let mut calls: Vec<Vec<Item>> = Vec::new();
        let mut found: HashMap<Arc<Key>, usize> = HashMap::new();
        for item in questions {
            let takes = |call: &Vec<Item>| call.len() < MOST && item.is_of(&call[0].key);
            match found.get(&item.key).map(|index| &mut calls[*index]) {
                Some(call) if takes(call) => call.push(item),
                _ => {
                    found.insert(item.key.clone(), calls.len());
                    calls.push(vec![item]);
                }
            }
        }
        for items in calls {
            self.send(Lane::Control, items);
        }
    }
}
