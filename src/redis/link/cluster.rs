//! The nodes of a cluster and who owns what. The map is read again when a node redirects us or is
//! in trouble, by one task, never by callers.
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use redis::Value;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout_at;

use crate::config::Level;
use crate::sync::{Mutex, MutexGuard};

use super::dial::{Kind, Refusal};
use super::endpoint::Addr;
use super::node::{Lane, Maker, Node, NodeHealth};
use super::settings::count;
use super::slots::{self, Range, SLOTS};
use super::supervisor::{Goal, NotReady};

/// One node's time to connect and tell its map.
const PATIENCE: Duration = Duration::from_millis(400);
/// The map is read at most this often, however many redirections arrive,
const AT_MOST_EVERY: Duration = Duration::from_millis(100);
/// and this often while a node is in trouble: a failover happens without anybody telling us.
const IN_TROUBLE_EVERY: Duration = Duration::from_millis(250);
/// Failed readings in a row after which callers no longer wait for a map.
const FAIL_FAST_AFTER: u32 = 3;

pub(super) struct Cluster {
    shared: Arc<Shared>,
    task: OnceLock<AbortHandle>,
}

struct Shared {
    maker: Maker,
    seeds: Vec<Addr>,
    map: Mutex<Map>,
    /// Counts changes of the map and failures to read it.
    changes: watch::Sender<u64>,
    /// Spreads questions that any node can answer.
    turn: AtomicUsize,
}

#[derive(Default)]
struct Map {
    ranges: Vec<(u16, u16, Arc<Node>)>,
    /// Slots that moved since the map was read.
    moved: HashMap<u16, Arc<Node>>,
    nodes: HashMap<Addr, Arc<Node>>,
    replicas: Vec<Addr>,
    failures: u32,
    refusal: Option<Refusal>,
}

impl Cluster {
    pub fn new(maker: Maker, seeds: Vec<Addr>) -> Cluster {
        let shared = Shared {
            maker,
            seeds,
            map: Mutex::default(),
            changes: watch::Sender::new(0),
            turn: AtomicUsize::new(0),
        };
        Cluster {
            shared: Arc::new(shared),
            task: OnceLock::new(),
        }
    }

    /// The owner of `slot`, or any node for `None`.
    pub async fn owner(
        &self,
        slot: Option<u16>,
        until: Instant,
        impatient: bool,
    ) -> Result<Arc<Node>, NotReady> {
        if let Some(node) = self.shared.lookup(slot) {
            return Ok(node);
        }
        self.start();
        let mut changes = self.shared.changes.subscribe();
        loop {
            changes.borrow_and_update();
            if let Some(node) = self.shared.lookup(slot) {
                return Ok(node);
            }
            self.suspect();
            let (failures, refusal) = self.shared.map().trouble();
            let known = impatient && failures >= FAIL_FAST_AFTER;
            if known || refusal.kind == Kind::Auth {
                return Err(NotReady::Down(refusal, IN_TROUBLE_EVERY));
            }
            match timeout_at(until.into(), changes.changed()).await {
                Ok(changed) => changed.expect("the sender lives in self"),
                Err(_) => return Err(NotReady::Deadline(refusal.code)),
            }
        }
    }

    pub fn start(&self) {
        self.task.get_or_init(|| {
            let shared = self.shared.clone();
            shared.maker.trouble.notify_one();
            let handle = self.shared.maker.dialer.handle.clone();
            handle.spawn(shared.keep_map()).abort_handle()
        });
    }

    /// The map may be wrong: read it again soon.
    pub fn suspect(&self) {
        self.shared.maker.trouble.notify_one();
    }

    /// A node said that `slot` lives at `addr` now.
    pub fn moved(&self, slot: u16, addr: &Addr) {
        let node = self.shared.node(addr);
        self.shared.map().moved.insert(slot, node);
        self.suspect();
    }

    pub fn node(&self, addr: &Addr) -> Arc<Node> {
        self.shared.node(addr)
    }

    /// An address for a connection of its own, another one each time.
    pub fn some_addr(&self) -> Addr {
        let turn = self.shared.turn.fetch_add(1, Relaxed);
        let map = self.shared.map();
        let mut known: Vec<&Addr> = map
            .nodes
            .iter()
            .filter(|(_, n)| n.is_up())
            .map(|(a, _)| a)
            .collect();
        known.sort_by_key(|addr| addr.to_string());
        match known.get(turn % known.len().max(1)) {
            Some(addr) => (*addr).clone(),
            None => self.shared.seeds[turn % self.shared.seeds.len()].clone(),
        }
    }

    pub fn health(&self) -> Vec<NodeHealth> {
        let mut all: Vec<_> = self
            .shared
            .map()
            .nodes
            .values()
            .map(|n| n.health())
            .collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// True if every slot has an owner that works, or nobody has asked yet.
    pub fn is_healthy(&self) -> bool {
        let map = self.shared.map();
        let unused = map.ranges.is_empty() && map.failures == 0;
        let works = |node: &Node| !node.is_down() && !node.is_failing();
        unused || map.is_whole() && map.ranges.iter().all(|(_, _, node)| works(node))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

impl Shared {
    fn map(&self) -> MutexGuard<'_, Map> {
        self.map.lock()
    }

    fn lookup(&self, slot: Option<u16>) -> Option<Arc<Node>> {
        match slot {
            Some(slot) => self.map().owner(slot).cloned(),
            None => self.any(),
        }
    }

    /// Masters take turns; those that are down are left out while there are others.
    fn any(&self) -> Option<Arc<Node>> {
        let turn = self.turn.fetch_add(1, Relaxed);
        let map = self.map();
        let all = || map.ranges.iter().map(|(_, _, node)| node);
        let fine: Vec<_> = all().filter(|node| !node.is_down()).collect();
        match fine.is_empty() {
            true => all().nth(turn % map.ranges.len().max(1)).cloned(),
            false => Some(fine[turn % fine.len()].clone()),
        }
    }

    fn node(&self, addr: &Addr) -> Arc<Node> {
        let mut map = self.map();
        let made = map
            .nodes
            .entry(addr.clone())
            .or_insert_with(|| self.maker.node(addr.to_string(), Goal::Fixed(addr.clone())));
        made.clone()
    }

    async fn keep_map(self: Arc<Shared>) {
        let trouble = self.maker.trouble.clone();
        let mut all_well = true;
        loop {
            if all_well {
                trouble.notified().await;
            } else {
                let _ = tokio::time::timeout(IN_TROUBLE_EVERY, trouble.notified()).await;
            }
            match self.read_from_somebody().await {
                Ok(ranges) => self.adopt(ranges),
                Err(refusal) => self.map().failed(refusal),
            }
            self.changes.send_modify(|version| *version += 1);
            all_well = self.map().is_well();
            tokio::time::sleep(AT_MOST_EVERY).await;
        }
    }

    /// Asks nodes in turn, those that are up first: a node that came back with an old map must not
    /// be the only one believed.
    async fn read_from_somebody(&self) -> Result<Vec<Range>, Refusal> {
        let mut refusal = Refusal::new("NOMAP", "no node has told the cluster's map", Kind::Costly);
        for addr in self.whom_to_ask() {
            match self.read_from(&addr).await {
                Ok(ranges) => return Ok(ranges),
                Err(why) => {
                    self.maker
                        .reporter
                        .log(Level::Debug, format_args!("no map from {addr}: {why}"));
                    refusal = why;
                }
            }
        }
        Err(refusal)
    }

    fn whom_to_ask(&self) -> Vec<Addr> {
        let turn = self.turn.fetch_add(1, Relaxed);
        let map = self.map();
        let (mut up, mut rest): (Vec<Addr>, Vec<Addr>) = (Vec::new(), Vec::new());
        for (addr, node) in &map.nodes {
            if node.is_up() { &mut up } else { &mut rest }.push(addr.clone());
        }
        up.sort_by_key(Addr::to_string);
        let shift = turn % up.len().max(1);
        up.rotate_left(shift);
        for addr in rest.iter().chain(&map.replicas).chain(&self.seeds) {
            if !up.contains(addr) {
                up.push(addr.clone());
            }
        }
        up
    }

    async fn read_from(&self, addr: &Addr) -> Result<Vec<Range>, Refusal> {
        let until = Instant::now() + PATIENCE;
        let node = self.node(addr);
        let live = match node.lane(Lane::Control).ready(until, true).await {
            Ok(live) => live,
            Err(NotReady::Down(refusal, _)) => return Err(refusal),
            Err(NotReady::Deadline(code)) => {
                return Err(Refusal::new(&code, "no connection in time", Kind::Costly));
            }
        };
        let mut question = redis::cmd("CLUSTER");
        question.arg("SLOTS");
        let mut connection = live.connection();
        let asked = Instant::now();
        let reply = connection.send_packed_command(&question);
        match timeout_at((asked + PATIENCE).into(), reply).await {
            Err(_) => {
                live.timed_out(asked.elapsed());
                Err(Refusal::timeout("CLUSTER SLOTS"))
            }
            Ok(Err(error)) => {
                live.broke();
                Err(Refusal::new("DROPPED", error, Kind::Prompt))
            }
            Ok(Ok(Value::ServerError(error))) => Err(Refusal::new(
                error.code(),
                error.details().unwrap_or(""),
                Kind::Costly,
            )),
            Ok(Ok(value)) => {
                live.replied(true);
                slots::read_map(value, addr).ok_or_else(|| {
                    Refusal::new("NOMAP", "CLUSTER SLOTS made no sense", Kind::Costly)
                })
            }
        }
    }

    fn adopt(&self, ranges: Vec<Range>) {
        count(&self.maker.reporter.counters.maps_read);
        let owned: Vec<_> = ranges
            .iter()
            .map(|range| (range.first, range.last, self.node(&range.master)))
            .collect();
        let mut map = self.map();
        map.ranges = owned;
        map.moved.clear();
        map.replicas = ranges
            .iter()
            .flat_map(|range| range.replicas.iter().cloned())
            .collect();
        map.failures = 0;
        map.refusal = None;
        // Nodes that own nothing any more close their connections.
        if map.is_whole() {
            map.nodes
                .retain(|addr, _| ranges.iter().any(|range| range.master == *addr));
        }
    }
}

impl Map {
    fn owner(&self, slot: u16) -> Option<&Arc<Node>> {
        if let Some(node) = self.moved.get(&slot) {
            return Some(node);
        }
        let at = self.ranges.partition_point(|(_, last, _)| *last < slot);
        let (first, _, node) = self.ranges.get(at)?;
        (*first <= slot).then_some(node)
    }

    fn is_whole(&self) -> bool {
        let owned = |(first, last, _): &(u16, u16, Arc<Node>)| u32::from(last - first) + 1;
        self.ranges.iter().map(owned).sum::<u32>() == u32::from(SLOTS)
    }

    /// Nothing suggests that the map will change soon.
    fn is_well(&self) -> bool {
        let down = self.ranges.iter().any(|(_, _, node)| node.is_down());
        self.failures == 0 && self.is_whole() && !down
    }

    fn failed(&mut self, refusal: Refusal) {
        self.failures = self.failures.saturating_add(1);
        self.refusal = Some(refusal);
    }

    fn trouble(&self) -> (u32, Refusal) {
        let unknown = || Refusal::new("CLUSTERDOWN", "the slot has no owner", Kind::Costly);
        (self.failures, self.refusal.clone().unwrap_or_else(unknown))
    }
}
