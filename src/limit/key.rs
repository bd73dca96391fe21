//! What a key remembers: the state of each limit, and what is ahead of it.
use crate::limit::ahead::Ahead;
use crate::limit::rate::Tick;
use crate::limit::rule::State;
use crate::limit::time::Time;

/// What a key remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyState {
    pub(super) states: States,
    /// Bookings ahead and what else few keys have.
    pub(super) ahead: Option<Box<Ahead>>,
}

/// Of few limits they need no memory of their own: of many keys it would be many small pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum States {
    One(State),
    /// So many of them are.
    Few(u8, [State; FEW]),
    Many(Box<[State]>),
}

/// Limits that most limiters have at most.
const FEW: usize = 3;

impl States {
    pub(super) fn new(mut states: impl ExactSizeIterator<Item = State>) -> States {
        let count = states.len();
        let mut next = || states.next().unwrap_or(State::Nothing);
        match count {
            1 => States::One(next()),
            few @ 2..=FEW => States::Few(few as u8, std::array::from_fn(|_| next())),
            _ => States::Many(states.collect()),
        }
    }

    pub(super) fn all(&self) -> &[State] {
        match self {
            States::One(state) => std::slice::from_ref(state),
            States::Few(few, states) => &states[..usize::from(*few)],
            States::Many(states) => states,
        }
    }

    pub(super) fn all_mut(&mut self) -> &mut [State] {
        match self {
            States::One(state) => std::slice::from_mut(state),
            States::Few(few, states) => &mut states[..usize::from(*few)],
            States::Many(states) => states,
        }
    }

    /// Pieces of memory of their own, about.
    fn pieces(&self) -> u32 {
        let each = self.all().iter().map(State::pieces).sum::<u32>();
        each + u32::from(matches!(self, States::Many(_)))
    }
}

impl KeyState {
    /// All there is to it, if it is that of one plain token bucket: a backend with many keys need not
    /// store more.
    pub fn as_tick(&self) -> Option<Tick> {
        match (&self.states, &self.ahead) {
            (States::One(State::TokenBucket(tick)), None) => Some(*tick),
            _ => None,
        }
    }

    /// The state of which that is all.
    pub fn of_tick(tick: Tick) -> KeyState {
        KeyState {
            states: States::One(State::TokenBucket(tick)),
            ahead: None,
        }
    }

    /// Pieces of memory of its own, about.
    pub fn pieces(&self) -> u32 {
        self.states.pieces() + u32::from(self.ahead.is_some())
    }

    /// When the next call can be admitted at the earliest.
    pub fn base(&self, now: Time) -> Time {
        match &self.ahead {
            None => now,
            Some(ahead) => ahead.base(now),
        }
    }

    /// Where the bookings made so far end; zero where there are none.
    pub fn booked_until(&self) -> Time {
        self.ahead.as_ref().map_or(Time(0), |a| a.booked_until)
    }

    /// Until when the key is penalized; zero where it is not.
    pub fn blocked_until(&self) -> Time {
        self.ahead.as_ref().map_or(Time(0), |a| a.blocked_until)
    }

    /// A copy of which no booking is known that was made before.
    pub fn copy(&self, epoch: u32) -> KeyState {
        let mut copy = self.clone();
        copy.ahead_mut().epoch = epoch;
        copy
    }

    pub(super) fn ahead_mut(&mut self) -> &mut Ahead {
        self.ahead.get_or_insert_default()
    }

    pub fn epoch(&self) -> u32 {
        self.ahead.as_ref().map_or(0, |ahead| ahead.epoch)
    }
}
