//! Windows that bookings ahead have left behind while they still count. What is corrected in one of them is
//! right, too, when the bookings are cancelled.
use crate::limit::time::Time;

/// Windows that are remembered at most. A booking that leaves one more behind, far ahead then, gives back the
/// window as it found it.
const MOST: usize = 8;

/// The latest window that anything was charged in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Windows<W> {
    pub latest: W,
    /// The earliest first.
    behind: Vec<W>,
}

pub trait Window: Copy {
    fn start(&self) -> Time;
}

impl<W: Window> Windows<W> {
    pub fn new(latest: W) -> Windows<W> {
        Windows {
            latest,
            behind: Vec::new(),
        }
    }

    /// Moves on, if to a later window. `needed`: a charge that may be undone leaves this one behind while it
    /// counts.
    pub fn move_on(&mut self, latest: W, needed: bool) {
        let leaves = latest.start() != self.latest.start();
        if needed && leaves && self.behind.len() < MOST {
            self.behind.push(self.latest);
        }
        self.latest = latest;
    }

    /// Moves back to a window that a charge found, with what was corrected in it since.
    pub fn move_back(&mut self, found: W) {
        let same = |last: &mut W| last.start() == found.start();
        self.latest = self.behind.pop_if(same).unwrap_or(found);
    }

    /// Forgets those behind that no longer count.
    pub fn forget(&mut self, over: impl Fn(&W) -> bool) {
        self.behind.retain(|window| !over(window));
    }

    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut W> {
        std::iter::once(&mut self.latest).chain(&mut self.behind)
    }
}
