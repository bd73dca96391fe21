//! One key: what is known of it, who holds it and who waits for it, and when it can be forgotten.
use std::sync::Arc;

use super::line::Line;
use super::names::{KeyId, Named};
use crate::limit::decide::KeyState;
use crate::limit::time::Time;
use crate::pages::Few;

/// What is known of one key.
pub(super) struct Key {
    pub id: KeyId,
    /// What it was last decided under.
    pub named: Arc<Named>,
    pub state: KeyState,
    /// Who holds and who waits, if the key ever had either.
    pub live: Option<Live>,
}

/// Who holds and who waits. Ordered by arrival, so that leaving from the middle is cheap.
#[derive(Default)]
pub(super) struct Live {
    /// Semaphore permits held: when they end unless they are renewed, and their serials.
    pub permits: Few<(Time, u64)>,
    /// Permits of another epoch were ended by a reset.
    pub epoch: u64,
    /// Fencing number of the latest grant.
    pub fence: u64,
    /// Waits that nothing was taken for yet, by serial of their operation.
    pub queue: Few<u64>,
    /// From which one on those of the queue may have become too heavy for their limits.
    pub doubted: Option<u64>,
    /// Waits that only rates stand in the way of.
    pub booked: Few<u64>,
    /// What those have booked a reset has ended, and they are to go back to the queue.
    pub void: bool,
    /// Where they are, or paced calls between them.
    pub line: Option<Box<Line>>,
}

impl Key {
    pub fn fresh(id: KeyId, named: Arc<Named>, now: Time) -> Key {
        let state = named.limits.fresh(now);
        Key {
            id,
            named,
            state,
            live: None,
        }
    }

    /// Nothing would be different if the key had never been used.
    pub fn is_forgettable(&self, now: Time) -> bool {
        let idle = self.live.as_ref().is_none_or(|live| live.is_idle(now));
        idle && self.named.limits.fresh_at(&self.state) <= now
    }

    /// A key that is as new may have been forgotten, or not: that makes no difference. Of one that was, no
    /// other epoch is known, and what starts empty is empty.
    pub fn forget(&mut self, now: Time) {
        let differs = self.state.epoch() > 0 || self.named.limits.starts_empty();
        // One of older limits is as new under the newest.
        if differs && self.named.is_newest() && self.is_forgettable(now) {
            self.state = self.named.limits.fresh(now);
        }
    }

    /// As if it had been forgotten, what starts empty is empty from now on.
    pub fn begins_anew(&self, now: Time) -> bool {
        let differs = self.named.limits.starts_empty() || !self.named.is_newest();
        differs && self.is_forgettable(now)
    }

    /// Pieces of memory that it lies in besides its place among all keys.
    pub fn pieces(&self) -> u32 {
        let line = |live: &Live| live.line.is_some().into();
        self.state.pieces() + self.live.as_ref().map_or(0u32, line)
    }

    pub fn has_queue(&self) -> bool {
        self.live
            .as_ref()
            .is_some_and(|live| !live.queue.is_empty())
    }

    /// `epoch`: one that was never used in this shard.
    pub fn live(&mut self, epoch: &mut u64) -> &mut Live {
        self.live.get_or_insert_with(|| {
            *epoch += 1;
            Live {
                epoch: *epoch,
                ..Live::default()
            }
        })
    }
}

impl Live {
    /// How many hold or wait.
    pub fn people(&self) -> usize {
        self.permits.len() + self.queue.len() + self.booked.len()
    }

    fn is_idle(&self, now: Time) -> bool {
        let unused = self.people() == 0;
        // A fencing number that ran ahead of the clock must not be handed out again.
        unused && self.fence < now.0
    }

    /// Numbers the next grant. It also grows over the key being forgotten, because the clock does.
    pub fn next_fence(&mut self, now: Time) -> u64 {
        self.fence = now.0.max(self.fence + 1);
        self.fence
    }
}
