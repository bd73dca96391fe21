//! What may never be on a key with a semaphore, looked for after every step.
use std::collections::{BTreeMap, BTreeSet};

use limiter::limit::decide::{Limits, Outcome};
use limiter::limit::rule::Rule;
use limiter::limit::time::Time;
use limiter::limit::weights::Weights;
use limiter::redis::wire::{Id, Reply};

use crate::server::{Server, Stored};

/// How long things may last, in microseconds.
#[derive(Clone, Copy)]
pub struct Bounds {
    /// Somebody at the head of the queue would fit.
    pub idle: u64,
    /// More is held than a capacity that was lowered.
    pub drained: u64,
    /// More is held than the capacity after all was lost; 0: it never is.
    pub lost: u64,
}

pub struct Audit {
    pub keys: Vec<String>,
    pub capacity: u64,
    /// As the server knows it.
    stored_capacity: u64,
    /// The most there may be held: what was there may stay when the capacity is lowered.
    allowed: Vec<(u64, u64)>,
    pub violation: Option<String>,
    /// What tasks worked under: from when on, and the weights.
    pub started: Vec<(Time, Vec<u64>)>,
    seen: Seen,
    now: u64,
    writes: usize,
    bounds: Bounds,
    fence: u64,
    /// Since when the head of the queue would fit into what is believed to be held.
    idle_since: Option<u64>,
    /// Of that, what is excused.
    excused: u64,
    lost_at: Option<u64>,
    /// Permits that were given up must not be there.
    gone: Vec<String>,
}

/// The server's keys at one time.
#[derive(Clone, Default)]
struct Seen {
    /// Tickets and ids.
    queue: Vec<(u64, String)>,
    /// By id: weights and fencing number.
    holders: BTreeMap<String, (Vec<u64>, u64)>,
    waiters: BTreeMap<String, Vec<u64>>,
}

/// The numbers of who holds and waits, see scripts/holders.lua.
fn people(text: &str) -> Vec<u64> {
    let people = text.rsplit(';').nth(1).unwrap();
    // What is less than nothing is no count: without a rule that can be.
    let number = |n: &str| n.parse().unwrap_or(u64::MAX);
    people.split(' ').map(number).collect()
}

impl Audit {
    /// `keys`: the four of a semaphore.
    pub fn new(keys: Vec<String>, limits: &Limits, bounds: Bounds) -> Audit {
        let Rule::Semaphore(semaphore) = &limits.limits()[0].rule else {
            unreachable!("the first is the semaphore")
        };
        Audit {
            keys,
            capacity: semaphore.capacity(),
            stored_capacity: semaphore.capacity(),
            allowed: vec![],
            violation: None,
            started: vec![],
            seen: Seen::default(),
            now: 0,
            writes: 0,
            bounds,
            fence: 0,
            idle_since: None,
            excused: 0,
            lost_at: None,
            gone: vec![],
        }
    }

    pub fn found(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    fn see(&self, server: &Server) -> Seen {
        let mut seen = Seen::default();
        let data = &server.data;
        if let Some((Stored::Sorted(queue), _)) = data.stored(&self.keys[2]) {
            seen.queue = queue.into_iter().map(|(n, id)| (n as u64, id)).collect();
        }
        let Some((Stored::Hash(who), _)) = data.stored(&self.keys[3]) else {
            return seen;
        };
        let Some((Stored::Sorted(ends), _)) = data.stored(&self.keys[1]) else {
            return seen;
        };
        let void = match data.stored(&self.keys[0]) {
            // Up to there a reset has ended them.
            Some((Stored::Text(text), _)) => people(&text)[10],
            _ => 0,
        };
        for (_, member) in ends {
            let (letter, id) = member.split_at(1);
            let Some(text) = who.get(id) else { continue };
            let mut parts = text.split(';');
            let numbers = |text: &str| text.split(' ').map(|n| n.parse().unwrap()).collect();
            let weights: Vec<u64> = numbers(parts.next().unwrap());
            let fence = parts.next().unwrap().parse().unwrap();
            match letter {
                "h" if fence <= void => {}
                "h" => drop(seen.holders.insert(id.into(), (weights, fence))),
                _ => drop(seen.waiters.insert(id.into(), weights)),
            }
        }
        // Before those who wait are permits whose time had not come.
        let waits =
            |(_, id): &(u64, String)| !who.contains_key(id) || seen.waiters.contains_key(id);
        let first = seen.queue.iter().position(waits);
        seen.queue.drain(..first.unwrap_or(seen.queue.len()));
        seen
    }

    /// Who holds and who waits.
    pub fn people(&self, server: &Server) -> BTreeSet<String> {
        let seen = self.see(server);
        let waits = seen.queue.into_iter().map(|(_, id)| id);
        seen.holders.into_keys().chain(waits).collect()
    }

    #[allow(dead_code)] // of tests/sim
    /// How many permits, and waits, each channel's process has that are not over.
    pub fn owned(&self, server: &Server) -> BTreeMap<String, (u64, u64)> {
        let mut owned = BTreeMap::<String, (u64, u64)>::new();
        let (data, now) = (&server.data, server.data.now.get() as f64);
        if let Some((Stored::Sorted(ends), _)) = data.stored(&self.keys[1])
            && let Some((Stored::Hash(who), _)) = data.stored(&self.keys[3])
        {
            let lives = ends.iter().filter(|(end, _)| *end > now);
            for (_, member) in lives {
                let (letter, id) = member.split_at(1);
                let Some(text) = who.get(id) else { continue };
                let channel = text.split(';').nth(2).unwrap_or("");
                let (holds, waits) = owned.entry(channel.to_owned()).or_default();
                *(if letter == "h" { holds } else { waits }) += 1;
            }
        }
        owned
    }

    #[allow(dead_code)] // of tests/sim
    /// Permits, from when on they are, and what they took; nothing while some of them are being moved.
    pub fn booked(&self, server: &Server) -> Option<BTreeMap<String, (Time, String)>> {
        if let Some((Stored::Text(text), _)) = server.data.stored(&self.keys[0])
            && people(&text)[11] > 0
        {
            return None;
        }
        let Some((Stored::Hash(who), _)) = server.data.stored(&self.keys[3]) else {
            return Some(BTreeMap::new());
        };
        let booking = |(id, text): (String, String)| {
            let booking = text.rsplit(';').next().filter(|text| !text.is_empty())?;
            let at = booking.split(' ').next()?.parse().ok()?;
            Some((id, (Time(at), booking.to_owned())))
        };
        Some(who.into_iter().filter_map(booking).collect())
    }

    #[allow(dead_code)] // of tests/sim
    /// Permits, and by when they end.
    pub fn ends(&self, server: &Server) -> BTreeMap<String, u64> {
        let mut found = BTreeMap::new();
        if let Some((Stored::Sorted(ends), _)) = server.data.stored(&self.keys[1]) {
            let holders = ends.iter().filter(|(_, member)| member.starts_with('h'));
            found.extend(holders.map(|(end, member)| (member[1..].to_owned(), *end as u64)));
        }
        found
    }

    pub fn before(&mut self, server: &Server) {
        self.writes = server.data.writes.get();
        self.seen = self.see(server);
    }

    /// After a call; `renewed` are those that may have become holders again.
    pub fn after(&mut self, server: &Server, reply: &Reply, renewed: &BTreeSet<String>) {
        let before = std::mem::take(&mut self.seen);
        self.seen = self.see(server);
        let Reply::Done { now, .. } = reply else {
            return;
        };
        if now.0 < self.now {
            self.found("the key's time runs back".into());
        }
        // What only looked leaves no trace.
        if server.data.writes.get() != self.writes {
            self.now = now.0;
        }
        self.fifo(&before, renewed);
        self.kept(server);
        self.grants(&before, renewed);
        self.swept(server);
        let head = self.seen.queue.first();
        if let Some(weight) = head
            .and_then(|(_, id)| self.seen.waiters.get(id))
            .map(|w| w[0])
            && weight > self.stored_capacity
        {
            self.found(format!("{weight} will never fit and is at the head"));
        }
        let there = |id: &&String| self.is_there(id);
        if let Some(id) = self.gone.iter().find(there) {
            self.found(format!("{id} comes back after its end"));
        }
    }

    fn is_there(&self, id: &String) -> bool {
        self.seen.holders.contains_key(id) || self.seen.waiters.contains_key(id)
    }

    /// What was over has been taken away.
    fn swept(&mut self, server: &Server) {
        if let Some((Stored::Sorted(ends), _)) = server.data.stored(&self.keys[1])
            && let Some((end, member)) = ends.first()
            && server.data.writes.get() != self.writes
            && (*end as u64) < self.now
        {
            self.found(format!(
                "{member} was over at {end}, and it is {}",
                self.now
            ));
        }
    }

    /// Whoever is granted was at the head, or nobody waits.
    fn fifo(&mut self, before: &Seen, renewed: &BTreeSet<String>) {
        let waits: BTreeSet<&(u64, String)> = self.seen.queue.iter().collect();
        for id in self.seen.holders.keys() {
            if before.holders.contains_key(id) || renewed.contains(id) {
                continue;
            }
            let mut ahead = before.queue.iter().take_while(|other| other.1 != *id);
            if let Some(passed) = ahead.find(|other| waits.contains(other)) {
                let text = format!("{id} overtakes {}", passed.1);
                return self.found(text);
            }
        }
    }

    fn grants(&mut self, before: &Seen, renewed: &BTreeSet<String>) {
        let new: Vec<(u64, u64)> = self
            .seen
            .holders
            .iter()
            .filter(|(id, _)| !before.holders.contains_key(*id))
            .map(|(_, (weights, fence))| (*fence, weights[0]))
            .collect();
        let mut fences: Vec<u64> = new.iter().map(|(fence, _)| *fence).collect();
        fences.sort_unstable();
        for fence in fences {
            if fence <= self.fence {
                return self.found(format!("fencing number {fence} after {}", self.fence));
            }
            self.fence = fence;
        }
        let used: u64 = self
            .seen
            .holders
            .values()
            .map(|(weights, _)| weights[0])
            .sum();
        // Who is one again after a loss may be too many.
        let ids = self.seen.holders.keys();
        let mut granted = ids.filter(|id| !before.holders.contains_key(*id));
        let capacity = self.stored_capacity;
        if granted.any(|id| !renewed.contains(id)) && used > capacity {
            self.found(format!("{used} of {capacity} are held at the server"));
        }
    }

    /// The text agrees with the rest, and all have an end that covers what is in them.
    fn kept(&mut self, server: &Server) {
        let data = &server.data;
        if let [key, ..] = &data.without_end()[..] {
            return self.found(format!("{key} does not end"));
        }
        let text = match data.stored(&self.keys[0]) {
            Some((Stored::Text(text), until)) => Some((text, until)),
            _ => None,
        };
        let ends = match data.stored(&self.keys[1]) {
            Some((Stored::Sorted(ends), until)) => Some((ends, until)),
            _ => None,
        };
        let Some((text, until)) = text else {
            if ends.is_some() {
                self.found("the rest outlives the text".into());
            }
            return;
        };
        let parts: Vec<&str> = text.split(';').collect();
        let number = |text: &str| text.parse::<u64>().unwrap();
        let limits: Vec<&str> = parts[3].split('/').collect();
        let skew = number(parts[5 + limits.len()].split(' ').next().unwrap());
        self.stored_capacity = number(limits[0].split(' ').nth(1).unwrap());
        let used = number(parts[5]);
        let sum: u64 = self
            .seen
            .holders
            .values()
            .map(|(weights, _)| weights[0])
            .sum();
        if used != sum {
            return self.found(format!("{used} are counted, {sum} held"));
        }
        if self.seen.waiters.len() != self.seen.queue.len() {
            return self.found("the queue and those who wait differ".into());
        }
        if let Some((ends, ends_until)) = ends {
            let last = ends.last().expect("not empty").0 as u64 - skew;
            if ends_until * 1_000 < last || until < ends_until {
                self.found(format!(
                    "{last} is kept until {ends_until} ms, the text until {until} ms"
                ));
            }
        }
    }

    /// A task is done with an id: nothing of it is there, nor comes back.
    pub fn gone(&mut self, id: Id) {
        self.ended(&id.to_string());
    }

    pub fn ended(&mut self, id: &str) {
        let text = id.to_owned();
        if self.is_there(&text) {
            self.found(format!("{text} is still there after its end"));
        }
        self.gone.push(text);
    }

    /// Something that explains why capacity is idle for longer.
    pub fn excuse(&mut self, now: u64, length: u64) {
        self.excused += length;
        self.idle_since = self.idle_since.map(|_| now);
    }

    pub fn lost(&mut self, now: u64) {
        self.lost_at = Some(now);
    }

    pub fn is_lost(&self, server: &Server) -> bool {
        server.data.stored(&self.keys[0]).is_none()
    }

    /// The first who came after a loss holds permits: there is a grace, and nothing to excuse.
    pub fn has_grace(&mut self) {
        self.lost_at = None;
    }

    pub fn change(&mut self, now: u64, capacity: u64) {
        // What is held stays held for as long as it is renewed.
        self.allowed.push((now, self.capacity));
        self.capacity = capacity;
        self.idle_since = None;
    }

    #[allow(dead_code)] // of tests/sim
    /// The capacity is what the server was told last.
    pub fn follow(&mut self, now: u64) {
        if self.stored_capacity != self.capacity {
            self.change(now, self.stored_capacity);
        }
    }

    #[allow(dead_code)] // of tests/sim
    /// Nobody alive waits, so nothing is idle in vain.
    pub fn nobody_waits(&mut self) {
        self.idle_since = None;
    }

    /// Judges what clients believe.
    pub fn judge(&mut self, now: u64, believed: u64) {
        let Bounds {
            idle,
            drained,
            lost,
        } = self.bounds;
        self.allowed.retain(|(at, _)| at + drained > now);
        let most = self.allowed.iter().map(|(_, most)| *most).max();
        let most = most.unwrap_or(0).max(self.capacity);
        let recently = |at: u64| now < at + lost;
        if believed > most && !self.lost_at.is_some_and(recently) {
            self.found(format!("clients hold {believed} of {most}"));
        }
        let head = self.seen.queue.first();
        let weight = head
            .and_then(|(_, id)| self.seen.waiters.get(id))
            .map(|w| w[0]);
        let fits = weight.is_some_and(|weight| believed + weight <= self.capacity);
        if !fits {
            self.idle_since = None;
            self.excused = 0;
            return;
        }
        let since = *self.idle_since.get_or_insert(now);
        if now - since > idle + self.excused {
            self.found(format!(
                "idle for {} us with {weight:?} at the head",
                now - since
            ));
        }
    }

    /// All that tasks worked under was within the rate.
    pub fn rates(&mut self, limits: &Limits) -> Result<(), String> {
        if limits.limits().len() == 1 {
            return Ok(());
        }
        self.started.sort();
        let first = self.started.first().map_or(Time(0), |(at, _)| *at);
        let mut key = limits.fresh(first);
        for (at, weights) in &self.started {
            let weights = Weights::Each([0, weights[1]].into());
            match limits.decide(&key, *at, &weights).outcome {
                Outcome::Admit => drop(limits.commit(&mut key, *at, *at, &weights)),
                other => return Err(format!("more than the rate at {}: {other:?}", at.0)),
            }
        }
        Ok(())
    }
}
