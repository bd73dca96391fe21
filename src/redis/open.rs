//! Requests that could make an id's wait or permit, or make it anew, and may still be run: whoever gives
//! the id up has to keep it out for so long.
use std::collections::HashMap;

use super::flight::Trip;
use super::link::Failure;
use super::wire::Id;
use crate::limit::time::{Span, Time};

/// For each id its requests that are under way, or may be though they have ended.
#[derive(Default)]
pub(super) struct Open {
    ids: HashMap<Id, Requests>,
    /// Some ended in doubt since this was last looked through.
    doubts: bool,
    /// How many were left then.
    left: usize,
}

/// So many doubts are not worth a look at all of them.
const FEW: usize = 64;

#[derive(Default)]
struct Requests {
    under_way: u32,
    /// Until then a copy of one that has ended may be run.
    doubt: Time,
}

impl Open {
    pub fn begin(&mut self, id: Id) {
        self.ids.entry(id).or_default().under_way += 1;
    }

    /// One has ended. `slack`: by how much Redis may run it later than at its deadline.
    pub fn end<T>(
        &mut self,
        id: Id,
        trip: &Trip,
        result: &Result<T, Failure>,
        slack: Span,
        now: Time,
    ) {
        let requests = self.ids.get_mut(&id).expect("it was begun");
        requests.under_way -= 1;
        if trip.again || matches!(result, Err(Failure::Ambiguous(_))) {
            requests.doubt = requests.doubt.max(trip.deadline + slack);
            self.doubts = true;
            // Where nobody calls [`tidy`](Open::tidy), or not for long.
            if self.ids.len() > 2 * self.left + FEW {
                self.tidy(now);
            }
        } else if requests.under_way == 0 && requests.doubt == Time(0) {
            self.ids.remove(&id);
        }
    }

    pub fn has(&self, id: Id, now: Time) -> bool {
        let may_be = |requests: &Requests| requests.under_way > 0 || requests.doubt > now;
        self.ids.get(&id).is_some_and(may_be)
    }

    pub fn under_way(&self, id: Id) -> bool {
        self.ids.get(&id).is_some_and(|it| it.under_way > 0)
    }

    /// Forgets doubts that are over. Whether there are others.
    pub fn tidy(&mut self, now: Time) -> bool {
        if self.doubts {
            self.ids.retain(|_, it| it.under_way > 0 || it.doubt > now);
            self.doubts = self.ids.values().any(|it| it.doubt > Time(0));
            self.left = self.ids.len();
        }
        self.doubts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::link::Silence;

    #[test]
    fn an_id_is_open_while_a_request_is_or_may_be() {
        let mut open = Open::default();
        let (id, trip) = (
            Id(1),
            Trip {
                deadline: Time(100),
                ..Trip::default()
            },
        );
        let done: Result<(), Failure> = Ok(());
        open.begin(id);
        open.begin(id);
        open.end(id, &trip, &done, Span(10), Time(0));
        assert!(open.has(id, Time(500)) && open.under_way(id));
        open.end(id, &trip, &done, Span(10), Time(0));
        assert!(!open.has(id, Time(0)) && open.ids.is_empty());
        let lost: Result<(), Failure> = Err(Failure::Ambiguous(Silence::Timeout));
        for (trip, result) in [
            (trip, lost),
            (
                Trip {
                    again: true,
                    ..trip
                },
                done,
            ),
        ] {
            open.begin(id);
            open.end(id, &trip, &result, Span(10), Time(0));
            assert!(open.has(id, Time(109)) && !open.has(id, Time(110)));
            assert!(!open.under_way(id) && open.tidy(Time(109)));
            assert!(!open.tidy(Time(110)) && open.ids.is_empty());
        }
    }
    #[test]
    fn doubts_that_are_over_do_not_pile_up_where_nobody_tidies() {
        let mut open = Open::default();
        for n in 0..10_000 {
            let now = Time(n * 1_000);
            let trip = Trip {
                deadline: now,
                ..Trip::default()
            };
            let lost: Result<(), Failure> = Err(Failure::Ambiguous(Silence::Timeout));
            open.begin(Id(n.into()));
            open.end(Id(n.into()), &trip, &lost, Span(10_000), now);
            assert!(open.ids.len() < 200, "{}", open.ids.len());
        }
    }
}
