//! One server as callers see it: a connection for each lane, each with its own supervisor.
use std::sync::Arc;

use tokio::sync::Notify;

use super::dial::Dialer;
use super::settings::{Reporter, Settings};
use super::supervisor::{Goal, Health, Supervisor};

/// Which connection a request takes, so that many decisions cannot delay the few calls that keep
/// permits alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Decisions. Refused at once while the server is known to be down.
    Bulk,
    /// Heartbeats and releases. They wait for the server up to their own deadlines. What is pushed comes
    /// here as well.
    Control,
}

pub(super) struct Node {
    pub name: String,
    bulk: Supervisor,
    control: Supervisor,
}

impl Node {
    pub fn lane(&self, lane: Lane) -> &Supervisor {
        match lane {
            Lane::Bulk => &self.bulk,
            Lane::Control => &self.control,
        }
    }

    pub fn is_down(&self) -> bool {
        self.bulk.is_down() || self.control.is_down()
    }

    pub fn is_up(&self) -> bool {
        self.bulk.is_up() || self.control.is_up()
    }

    pub fn start(&self) {
        self.bulk.start();
        self.control.start();
    }

    /// Calls fail so often that most are refused.
    pub fn is_failing(&self) -> bool {
        self.bulk.breaker().is_open()
    }

    pub fn health(&self) -> NodeHealth {
        NodeHealth {
            name: self.name.clone(),
            bulk: self.bulk.health(),
            control: self.control.health(),
        }
    }
}

/// A node and how its connections are.
#[derive(Clone, Debug)]
pub struct NodeHealth {
    pub name: String,
    pub bulk: Health,
    pub control: Health,
}

/// Makes nodes that share what all nodes of a link share.
pub(super) struct Maker {
    pub dialer: Dialer,
    pub settings: Arc<Settings>,
    pub reporter: Reporter,
    /// Told when any node loses its server.
    pub trouble: Arc<Notify>,
}

impl Maker {
    pub fn node(&self, name: String, goal: Goal) -> Arc<Node> {
        let supervisor = |lane: &str, hears| {
            Supervisor::new(
                format!("redis {name} ({lane})"),
                goal.clone(),
                hears,
                self.dialer.clone(),
                self.settings.clone(),
                self.reporter.clone(),
                self.trouble.clone(),
            )
        };
        let (bulk, control) = (supervisor("bulk", false), supervisor("control", true));
        Arc::new(Node {
            name,
            bulk,
            control,
        })
    }
}
