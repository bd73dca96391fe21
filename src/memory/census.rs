//! How much is kept, for tests: what grows with use has to go again with it.
use super::Memory;
use super::keys::Slot;
use super::scene::Shard;
use super::table::Table;

/// Numbers of things kept at one time.
#[doc(hidden)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Keys that would make a difference if they were forgotten.
    pub needed_keys: usize,
    /// Keys of the largest table, all of which are moved when it grows.
    pub largest_table: usize,
    /// Places for keys in all tables, taken or free.
    pub room: usize,
    /// Records of semaphore permits.
    pub held: usize,
    /// Of paced bookings.
    pub paced: usize,
    /// Of the latest permits; bounded.
    pub recent: usize,
    /// Operations under way.
    pub waits: usize,
    /// Who holds, waits and is booked, as their keys know them.
    pub people: usize,
    /// Events of the timer.
    pub events: usize,
    /// Callbacks that have not begun.
    pub callbacks: usize,
}

impl Memory {
    #[doc(hidden)]
    pub fn census(&self) -> Census {
        let mut census = Census {
            events: self.timer.len(),
            callbacks: self.callbacks.len(),
            ..Census::default()
        };
        for shard in &self.shards {
            self.count(&shard.lock(), &mut census);
        }
        census
    }

    fn count(&self, Shard { keys, book }: &Shard, census: &mut Census) {
        census.held += book.held.len();
        census.paced += book.paced.len();
        census.recent += book.recent.len() + book.buckets.len();
        census.waits += book.waits.len();
        let now = self.clock.now();
        for table in keys.tables() {
            census.room += table.room();
            census.largest_table = census.largest_table.max(table.len());
            for entry in Table::iter(table) {
                if let Slot::Plain(plain) = &entry.value {
                    let named = self.names.of_plain(plain.named());
                    let needed = named.limits.fresh_at(&plain.state()) > now;
                    census.needed_keys += usize::from(needed);
                }
            }
        }
        for key in keys.whole().iter() {
            census.people += key.live.as_ref().map_or(0, |live| live.people());
            census.needed_keys += usize::from(!key.is_forgettable(now));
        }
    }
}
