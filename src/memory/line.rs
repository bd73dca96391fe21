//! The line of a key: those who wait for rates, in the order in which they came.
//!
//! Each was given a time by which its turn comes, so that nobody waits in vain for a deadline. That time is
//! read off an *outlook*: the key as it will be when all in the line have taken what they want. The key
//! itself knows only of those whose turn has come; what is given back to it brings the turn of the first
//! closer at once. The outlook then promises less than it could. It is drawn anew when that has happened
//! often enough to pay for it, or when an answer depends on it: some at a time, while the old one serves.
use std::collections::{BTreeMap, VecDeque};

use super::keys::{Key, Live};
use super::leave::SOME;
use super::outlook::Sketch;
use crate::decision::Status;
use crate::limit::decide::{Booking, Limits};
use crate::limit::key::KeyState;
use crate::limit::time::Time;
use crate::limit::weights::Weights;

/// What a key with a line remembers besides who is in it.
pub(super) struct Line {
    /// What newcomers are decided by.
    pub outlook: KeyState,
    /// Of bookings in the outlook: those in another mean nothing there.
    pub epoch: u32,
    /// How often the outlook became worse than it need be since it was drawn.
    pub stale: usize,
    /// Something was added to the outlook that is no booking's: none of them can be taken out of it.
    pub owes: bool,
    /// Paced calls between those who wait, by what they would be as an operation. Their callers come at
    /// the time that they were told.
    pub told: BTreeMap<u64, Told>,
    /// They are about to be let pass.
    pub told_first: bool,
    /// The key is what it is since then: no turn comes earlier.
    pub seen: Time,
    pub sketch: Option<Sketch>,
    /// To be ended: a penalty leaves them too little time.
    pub late: VecDeque<(u64, Status)>,
}

/// A paced call in the line.
pub(super) struct Told {
    pub at: Time,
    pub since: Time,
    pub booking: Booking,
    /// What it used, if it was settled already.
    pub actual: Option<u64>,
    /// Of its permit.
    pub serial: u64,
}

impl Line {
    fn new(state: &KeyState, now: Time) -> Line {
        Line {
            outlook: state.clone(),
            epoch: state.epoch(),
            stale: 0,
            owes: false,
            told: BTreeMap::new(),
            told_first: false,
            seen: now,
            sketch: None,
            late: VecDeque::new(),
        }
    }

    pub fn is_void(&self) -> bool {
        self.sketch.as_ref().is_some_and(|sketch| sketch.void) || !self.late.is_empty()
    }

    /// The outlook, and the one that is being drawn.
    fn outlooks(&mut self) -> impl Iterator<Item = &mut KeyState> {
        let sketch = self
            .sketch
            .as_mut()
            .and_then(|sketch| sketch.state.as_mut());
        std::iter::once(&mut self.outlook).chain(sketch)
    }

    /// The key was changed, and not to the worse.
    pub fn changed(&mut self, now: Time) {
        self.seen = now;
        self.stale += 1;
    }
}

impl Live {
    /// So much has happened since the outlook was drawn that it pays to draw it anew: a piece at each call.
    pub fn is_old(&self) -> bool {
        let old =
            |line: &Line| line.sketch.is_some() || line.stale >= SOME.max(self.booked.len() / 8);
        self.line.as_deref().is_some_and(old)
    }
}

impl Key {
    pub fn line_mut(&mut self) -> Option<&mut Line> {
        self.live.as_mut()?.line.as_deref_mut()
    }

    pub fn has_line(&self) -> bool {
        self.live.as_ref().is_some_and(|live| live.line.is_some())
    }

    /// The state that newcomers are decided by.
    pub fn outlook(&self) -> &KeyState {
        let line = self.live.as_ref().and_then(|live| live.line.as_ref());
        line.map_or(&self.state, |line| &line.outlook)
    }

    /// An answer that depends on the outlook may depend on its being too dark, and it is soon drawn. Where
    /// more wait than that, the answer is told as it is: when to come back may be later than need be.
    pub fn is_dated(&self) -> bool {
        let dated = |live: &Live| {
            let line = live.line.as_ref()?;
            let waiting = live.booked.len();
            Some(line.stale > 0 && line.stale * 64 >= waiting && waiting <= 16 * SOME)
        };
        self.live.as_ref().and_then(dated).unwrap_or(false)
    }

    /// Takes from the outlook, behind all others, for one who joins the line. `epoch`: see [`Key::live`].
    pub fn line_up(&mut self, epoch: &mut u64, now: Time, at: Time, weights: &Weights) -> Booking {
        self.live(epoch);
        let live = self.live.as_mut().expect("made just now");
        let state = &mut self.state;
        let line = live
            .line
            .get_or_insert_with(|| Box::new(Line::new(state, now)));
        let limits = &self.named.limits;
        let booking = limits.commit(&mut line.outlook, now, at, weights);
        limits.hold(state, &booking);
        if let Some(sketch) = line.sketch.as_mut().and_then(|s| s.state.as_mut()) {
            limits.hold(sketch, &booking);
        }
        booking
    }

    /// Takes for good what was booked for one whose turn has come at `at`.
    pub fn take_turn(&mut self, serial: u64, at: Time, since: Time, booking: &Booking) -> Booking {
        let taken = (self.named.limits).take_turn(&mut self.state, at, at, since, booking);
        let line = self.line_mut().expect("it was in it");
        line.seen = at;
        line.stale += usize::from(at < booking.at());
        if let Some(sketch) = &mut line.sketch {
            sketch.without(serial);
        }
        taken
    }

    /// Gives back what was booked for one who leaves the line. Served before, and after.
    pub fn leave(&mut self, now: Time, booking: Booking) {
        self.release(&booking);
        let limits = &self.named.limits;
        let line = self.live.as_mut().and_then(|live| live.line.as_mut());
        let line = line.expect("it was in it");
        // Those behind were not in turn before.
        line.seen = now;
        let fixed = line.sketch.is_some() || line.owes;
        if fixed || !limits.give_up(&mut line.outlook, now, booking) {
            line.stale += 1;
        }
    }

    /// Gives back what a booking holds, once for each.
    pub fn release(&mut self, booking: &Booking) {
        let limits = &self.named.limits;
        limits.release(&mut self.state, booking);
        let line = self.live.as_mut().and_then(|live| live.line.as_mut());
        for outlook in line.into_iter().flat_map(|line| line.outlooks()) {
            limits.release(outlook, booking);
        }
    }

    /// Corrects a booking to what was used. The caller serves.
    pub fn settle(&mut self, now: Time, booking: &mut Booking, actual: u64) {
        self.owe(now, booking, actual);
        let limits = &self.named.limits;
        limits.settle(&mut self.state, now, booking, actual);
        if let Some(line) = self.line_mut() {
            line.changed(now);
        }
    }

    /// Newcomers come behind what was used beyond the estimate.
    fn owe(&mut self, now: Time, booking: &Booking, actual: u64) {
        let limits = &self.named.limits;
        let line = self.live.as_mut().and_then(|live| live.line.as_mut());
        if let Some(line) = line.filter(|_| limits.is_more(booking, actual)) {
            for outlook in line.outlooks() {
                limits.owe(outlook, now, booking, actual);
            }
            line.owes = true;
            if let Some(sketch) = &mut line.sketch {
                sketch.owes = true;
            }
        }
    }

    /// Nothing starts before then. What is promised for earlier is put off by the caller.
    pub fn penalize(&mut self, now: Time, until: Time) {
        let limits = &self.named.limits;
        limits.penalize(&mut self.state, now, until);
        if let Some(line) = self.live.as_mut().and_then(|live| live.line.as_mut()) {
            line.outlooks()
                .for_each(|outlook| limits.penalize(outlook, now, until));
        }
    }

    /// Takes back a paced booking that the key itself knows of. The caller serves.
    pub fn unpace(&mut self, now: Time, booking: Booking) {
        self.named.limits.cancel(&mut self.state, now, booking);
        if let Some(line) = self.line_mut() {
            line.changed(now);
        }
    }

    /// [`Key::unpace`] for one in the line.
    pub fn untell(&mut self, now: Time, order: u64) {
        let told = self.line_mut().and_then(|line| line.told.remove(&order));
        if let Some(told) = told {
            self.leave(now, told.booking);
        }
    }

    /// [`Key::settle`] for one in the line.
    pub fn settle_told(&mut self, now: Time, order: u64, actual: u64) {
        let told = self.line_mut().and_then(|line| line.told.get_mut(&order));
        if let Some(told) = told {
            told.actual = Some(actual);
            let booking = told.booking.clone();
            self.owe(now, &booking, actual);
        }
    }

    /// Those in the line keep their times, and get earlier ones where these limits allow that: the caller
    /// draws.
    pub fn reconfigure(&mut self, limits: &Limits, now: Time) {
        if self.is_forgettable(now) {
            self.state = limits.fresh(now);
            return;
        }
        let from = &self.named.limits;
        limits.reconfigure(from, &mut self.state, now);
        let line = self.live.as_mut().and_then(|live| live.line.as_mut());
        if let Some(line) = line.filter(|_| !limits.same_rules(from)) {
            limits.reconfigure(from, &mut line.outlook, now);
            line.epoch = line.epoch.wrapping_add(1);
            line.changed(now);
            let mut sketch = Sketch::new(line.is_void());
            sketch.at_once = true;
            line.sketch = Some(sketch);
        }
    }
}
