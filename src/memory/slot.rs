//! What is stored of a key in the tables: all of it where that is little.
use super::key::Key;
use super::table::Entry;
use crate::limit::decide::KeyState;
use crate::limit::rate::Tick;

/// What is stored of a key.
pub(super) enum Slot {
    Plain(Plain),
    /// Where the whole key is.
    Full(u32),
}

/// A key of one token bucket that nobody waits for: most keys of a program that has many. So it is
/// written as small as it can be, in bytes that need no alignment.
pub(super) struct Plain {
    /// More than any time needs.
    us: [u8; 7],
    rem: [u8; 4],
    /// Number of its limits.
    named: [u8; 4],
}

const _: () = assert!(size_of::<Option<Entry<Slot>>>() == 32);

impl Plain {
    /// `None`: it does not fit, or would have to be looked at for whether it is to be empty again.
    pub fn of(key: &Key) -> Option<Plain> {
        if key.named.limits.starts_empty() {
            return None;
        }
        let tick = key.state.as_tick().filter(|_| key.live.is_none())?;
        let named = key.named.number();
        let [us @ .., top] = tick.us.to_le_bytes();
        let rem = u32::try_from(tick.rem).ok()?.to_le_bytes();
        let named = u32::try_from(named).ok()?.to_le_bytes();
        (top == 0).then_some(Plain { us, rem, named })
    }

    pub fn named(&self) -> u64 {
        u32::from_le_bytes(self.named).into()
    }

    pub fn tick(&self) -> Tick {
        let [a, b, c, d, e, f, g] = self.us;
        Tick {
            us: u64::from_le_bytes([a, b, c, d, e, f, g, 0]),
            rem: u32::from_le_bytes(self.rem).into(),
        }
    }

    pub fn state(&self) -> KeyState {
        KeyState::of_tick(self.tick())
    }

    /// Takes on a new state. False, and unchanged, if that needs more room.
    pub fn set(&mut self, tick: Tick) -> bool {
        let [us @ .., top] = tick.us.to_le_bytes();
        let Ok(rem) = u32::try_from(tick.rem) else {
            return false;
        };
        if top == 0 {
            (self.us, self.rem) = (us, rem.to_le_bytes());
        }
        top == 0
    }
}
