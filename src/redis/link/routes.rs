//! From a slot to the node that serves it, whatever the topology.
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cluster::Cluster;
use super::endpoint::Addr;
use super::node::{Node, NodeHealth};
use super::sentinel::Sentinels;
use super::supervisor::{Goal, NotReady};

/// In a cluster the owner of a slot may change while a caller waits for it; it looks again after this.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

pub(super) enum Routes {
    /// One server, or whichever is the master.
    One(Arc<Node>, Goal),
    Cluster(Cluster),
}

impl Routes {
    pub async fn owner(
        &self,
        slot: Option<u16>,
        until: Instant,
        impatient: bool,
    ) -> Result<Arc<Node>, NotReady> {
        match self {
            Routes::One(node, _) => Ok(node.clone()),
            Routes::Cluster(cluster) => cluster.owner(slot, until, impatient).await,
        }
    }

    /// The node a redirection named.
    pub fn node(&self, addr: &Addr) -> Arc<Node> {
        match self {
            Routes::One(node, _) => node.clone(),
            Routes::Cluster(cluster) => cluster.node(addr),
        }
    }

    /// How long to wait for a node before asking again which node it is.
    pub fn patience(&self, deadline: Instant) -> Instant {
        match self {
            Routes::One(..) => deadline,
            Routes::Cluster(_) => deadline.min(Instant::now() + LOOK_AGAIN),
        }
    }

    pub fn moved(&self, slot: u16, addr: &Addr) {
        if let Routes::Cluster(cluster) = self {
            cluster.moved(slot, addr);
        }
    }

    pub fn suspect(&self) {
        if let Routes::Cluster(cluster) = self {
            cluster.suspect();
        }
    }

    pub fn start(&self) {
        match self {
            Routes::One(node, _) => node.start(),
            Routes::Cluster(cluster) => cluster.start(),
        }
    }

    /// A node that may be listened to.
    pub fn some_node(&self) -> Arc<Node> {
        match self {
            Routes::One(node, _) => node.clone(),
            Routes::Cluster(cluster) => cluster.node(&cluster.some_addr()),
        }
    }

    /// Where a further connection may go.
    pub async fn some_addr(&self) -> Result<Addr, super::dial::Refusal> {
        match self {
            Routes::One(_, Goal::Fixed(addr)) => Ok(addr.clone()),
            Routes::One(_, Goal::Master(sentinels)) => Sentinels::master(sentinels).await,
            Routes::Cluster(cluster) => Ok(cluster.some_addr()),
        }
    }

    pub fn health(&self) -> Vec<NodeHealth> {
        match self {
            Routes::One(node, _) => vec![node.health()],
            Routes::Cluster(cluster) => cluster.health(),
        }
    }

    pub fn is_healthy(&self) -> bool {
        match self {
            Routes::One(node, _) => !node.is_down() && !node.is_failing(),
            Routes::Cluster(cluster) => cluster.is_healthy(),
        }
    }
}
