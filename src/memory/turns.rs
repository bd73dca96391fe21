//! Whose turn comes when, of those in the [`line`](super::line) of a key.
use std::collections::BTreeMap;

use super::keys::Key;
use super::leave::{Rest, SOME};
use super::line::Told;
use super::scene::Scene;
use super::spent::Spent;
use super::wait::Stage;
use crate::limit::time::Time;
use crate::limit::weights::Weights;

impl Scene<'_> {
    /// Admits those at the head of the line whose turn has come, whether or not the timer has got to them.
    /// To be called before a key is changed, and after.
    pub fn serve(&mut self, key: &mut Key) {
        if !self.requeue(key) {
            return;
        }
        for n in 0.. {
            if n == SOME {
                self.rest.insert(Rest::Key(key.id));
                break;
            }
            if self.take_told(key) {
                continue;
            }
            let Some((serial, at)) = self.next_turn(key) else {
                return;
            };
            if at > self.now {
                self.arm(serial, Some(at));
                break;
            }
            self.start(key, serial, at);
        }
        if key.live.as_ref().is_some_and(|live| live.is_old()) && !self.is_behind(key) {
            self.redraw(key, false, false);
        }
    }

    /// Who is the head of the line, and when its turn comes: as soon as there is enough, and at the time that
    /// it was promised, because what stands in the way then others have used without asking.
    fn next_turn(&mut self, key: &mut Key) -> Option<(u64, Time)> {
        let live = key.live.as_mut()?;
        let line = live.line.as_ref()?;
        let Some(&head) = live.booked.first() else {
            live.line = None;
            return None;
        };
        if line.is_void() {
            self.rest.insert(Rest::Key(key.id));
            return None;
        }
        if self.is_leaving(head) {
            return None;
        }
        let wait = &self.book.waits[&head];
        let Stage::Booked(booking) = &wait.stage else {
            unreachable!("its key says that it is booked");
        };
        let from = line.seen.max(wait.since);
        let promised = booking.at().max(key.state.base(from));
        let turn = (key.named.limits).turn(&key.state, from, booking);
        Some((head, turn.map_or(promised, |turn| turn.min(promised))))
    }

    /// Takes for good what a paced call at the head of the line has booked, for the time it was told.
    fn take_told(&mut self, key: &mut Key) -> bool {
        let Some(live) = &mut key.live else {
            return false;
        };
        let Some(line) = &mut live.line else {
            return false;
        };
        let head = live.booked.first().copied().unwrap_or(u64::MAX);
        let first = line.told.first_entry();
        let first = first.filter(|first| line.told_first || *first.key() < head);
        let Some((order, told)) = first.map(|first| first.remove_entry()) else {
            return false;
        };
        let limits = &key.named.limits;
        let at = told.at.max(key.state.base(line.seen));
        let mut taken = limits.take_turn(&mut key.state, self.now, at, told.since, &told.booking);
        line.seen = line.seen.max(at.min(self.now));
        if let Some(actual) = told.actual {
            limits.settle(&mut key.state, self.now, &mut taken, actual);
            line.changed(self.now);
        }
        if let Some(sketch) = &mut line.sketch {
            sketch.without(order);
        }
        self.book.paced.rebook(told.serial, taken);
        true
    }

    /// No more paced calls are remembered behind those who wait than may wait themselves.
    pub fn told_most(&self, key: &Key) -> bool {
        let line = key.live.as_ref().and_then(|live| live.line.as_ref());
        line.is_some_and(|line| line.told.len() >= self.memory.options.max_waiting)
    }

    /// Books a paced call behind those who wait. Answers its permit.
    pub fn tell(&mut self, key: &mut Key, at: Time, weights: &Weights) -> u64 {
        let order = self.memory.operations.next();
        let serial = self.next_serial();
        let booking = key.line_up(&mut self.book.epoch, self.now, at, weights);
        let told = Told {
            at,
            since: self.now,
            booking,
            actual: None,
            serial,
        };
        let line = key.line_mut().expect("it has joined it");
        line.told.insert(order, told);
        let spent = Spent::told(key.id, &key.named, at, order);
        self.book.paced.insert(serial, spent, self.now);
        self.paced_number(serial)
    }

    /// Drops so many that are in no line any more.
    pub fn drop_untold(&mut self, most: usize) {
        for _ in 0..most {
            match self.book.untold.last_mut().map(BTreeMap::pop_first) {
                None => return,
                Some(Some(_)) => {}
                Some(None) => drop(self.book.untold.pop()),
            }
        }
    }

    /// Paced calls keep their times: before a penalty those who wait let them pass, some at a time. True:
    /// all have.
    pub fn let_told_pass(&mut self, key: &mut Key) -> bool {
        for _ in 0..SOME {
            match key.line_mut() {
                Some(line) => line.told_first = true,
                None => return true,
            }
            if !self.take_told(key) {
                return true;
            }
        }
        false
    }

    /// When the first in the line starts at the latest.
    pub fn first_promised(&self, key: &Key) -> Option<Time> {
        let first = key.live.as_ref()?.booked.first()?;
        match &self.book.waits[first].stage {
            Stage::Booked(booking) => Some(booking.at()),
            Stage::Queued => unreachable!("its key says that it is booked"),
        }
    }
}
