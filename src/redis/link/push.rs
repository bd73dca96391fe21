//! Messages the servers push: one connection for the whole process, subscribed to its channels.
//!
//! A connection can look well and hear nothing: a subscription refused, a path in the cluster cut, a
//! peer gone without a word. So it proves itself: a message published on the other lane must arrive
//! here. One that does not hear is replaced.
//!
//! In a cluster these are plain PUBLISH and SUBSCRIBE: every node passes messages to every other, so
//! one subscription on any node hears scripts on all, and a slot that moves changes nothing. (Sharded
//! channels would need a subscription for each node, moved with the slots.) The proof is published
//! through another node each time, so a path that fails between two nodes is found too.
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use redis::aio::{PubSub, PubSubStream};
use redis::{RedisConnectionInfo, Value};
use tokio::sync::mpsc;
use tokio::time::{timeout, timeout_at};

use crate::config::Level;

use super::Inner;
use super::dial::{Kind, Refusal};
use super::node::Lane;
use super::pause::{Backoff, fraction};
use super::request::{Class, Request};
use super::settings::count;

/// What is told to whoever listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Push {
    /// From now on messages arrive. Whatever was published before may be lost.
    Listening,
    Message {
        channel: Vec<u8>,
        payload: Vec<u8>,
    },
    /// Messages may be lost until the next `Listening`.
    Deaf,
}

/// Messages that are ours begin with this, which no other message may.
const PROOF: &[u8] = b"\0proof ";

pub(super) struct Listener {
    pub inner: Arc<Inner>,
    /// Proofs go to the first.
    pub channels: Vec<Vec<u8>>,
    pub out: mpsc::Sender<Push>,
}

impl Listener {
    /// Listens until nobody takes the messages.
    pub async fn run(self) {
        let settings = &self.inner.settings;
        let mut backoff = Backoff::new(settings.backoff.0, settings.backoff.1);
        let mut complained: Option<Instant> = None;
        loop {
            let began = Instant::now();
            let refusal = tokio::select! {
                refusal = self.listen() => refusal,
                _ = self.out.closed() => return,
            };
            if began.elapsed() > settings.push_check * 2 {
                backoff.reset();
            }
            if complained.is_none_or(|at| at.elapsed() > Duration::from_secs(60)) {
                complained = Some(Instant::now());
                let text = format_args!("redis push: {refusal}; trying on");
                self.inner.reporter.log(Level::Warning, text);
            }
            let cap = match refusal.kind {
                Kind::Prompt => Duration::from_millis(250),
                Kind::Costly | Kind::Auth => Duration::MAX,
            };
            tokio::time::sleep(backoff.pause(cap)).await;
        }
    }

    /// Connects, subscribes, proves it, and passes messages on until something fails.
    async fn listen(&self) -> Refusal {
        let patience = self.inner.settings.connect;
        let mut messages = match timeout(patience, self.subscribe()).await {
            Err(_) => return Refusal::timeout("SUBSCRIBE"),
            Ok(Err(refusal)) => return refusal,
            Ok(Ok(messages)) => messages,
        };
        if let Err(refusal) = self.prove(&mut messages).await {
            return refusal;
        }
        count(&self.inner.reporter.counters.subscribed);
        self.tell(Push::Listening);
        let refusal = self.pass_on(&mut messages).await;
        self.tell(Push::Deaf);
        refusal
    }

    async fn subscribe(&self) -> Result<PubSubStream, Refusal> {
        let dialer = &self.inner.dialer;
        let addr = self.inner.routes.some_addr().await?;
        let stream = dialer.connect(&addr).await?;
        let mut info = RedisConnectionInfo::default().set_skip_set_lib_name();
        if let Some(username) = &dialer.credentials.username {
            info = info.set_username(username);
        }
        if let Some(password) = &dialer.credentials.password {
            info = info.set_password(&password.0);
        }
        let refused = |error: redis::RedisError| {
            let code = error.code().unwrap_or("SUBSCRIBE").to_owned();
            Refusal::new(&code, error, Kind::Costly)
        };
        let mut subscriptions = PubSub::new(&info, stream).await.map_err(refused)?;
        subscriptions
            .subscribe(&self.channels)
            .await
            .map_err(refused)?;
        Ok(subscriptions.split().1)
    }

    async fn pass_on(&self, messages: &mut PubSubStream) -> Refusal {
        let every = self.inner.settings.push_check;
        loop {
            // Not in step with other processes.
            let check = Instant::now() + every.mul_f64(0.75 + 0.5 * fraction());
            // Messages of others prove as much as one of ours, on a single server; in a cluster each
            // node's path wants its own proof, so the check comes whether or not others arrive.
            loop {
                match timeout_at(check.into(), messages.next()).await {
                    Ok(None) => return ended(),
                    Ok(Some(message)) => self.pass(message),
                    Err(_) => break,
                }
            }
            if let Err(refusal) = self.prove(messages).await {
                return refusal;
            }
        }
    }

    /// Publishes to ourselves and waits for it to arrive. If publishing fails nothing is proved
    /// either way: that lane has its own supervisor.
    async fn prove(&self, messages: &mut PubSubStream) -> Result<(), Refusal> {
        let patience = self.inner.settings.connect;
        let mut proof = PROOF.to_vec();
        proof.extend_from_slice(format!("{:016x}", fraction().to_bits()).as_bytes());
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(&self.channels[0]).arg(&proof);
        let request = [Request::command(publish, None)];
        let deadline = Instant::now() + patience;
        let mut publishing =
            std::pin::pin!(
                self.inner
                    .one(&request, Lane::Control, deadline, Class::Idempotent)
            );
        let mut published: Option<Instant> = None;
        loop {
            let give_up = published.map_or(deadline + patience, |at| at + patience);
            tokio::select! {
                message = messages.next() => match message {
                    None => return Err(ended()),
                    Some(message) if message.get_payload_bytes() == proof => return Ok(()),
                    Some(message) => self.pass(message),
                },
                (result, _) = &mut publishing, if published.is_none() => match result {
                    Ok(Value::Int(_)) => published = Some(Instant::now()),
                    Ok(_) => return Err(Refusal::new("PUBLISH", "made no sense", Kind::Costly)),
                    Err(failure) => return Err(Refusal::new("PUBLISH", failure, Kind::Prompt)),
                },
                _ = tokio::time::sleep_until(give_up.into()) => {
                    count(&self.inner.reporter.counters.replaced);
                    return Err(Refusal::new("DEAF", "our own message did not arrive", Kind::Prompt));
                }
            }
        }
    }

    fn pass(&self, message: redis::Msg) {
        let payload = message.get_payload_bytes();
        if payload.starts_with(PROOF) {
            return; // of an earlier check, or of another process that shares the channel
        }
        count(&self.inner.reporter.counters.pushed);
        self.tell(Push::Message {
            channel: message.get_channel_name().as_bytes().to_vec(),
            payload: payload.to_vec(),
        });
    }

    /// Never waits: whoever is behind loses messages, which the heartbeat makes good.
    fn tell(&self, push: Push) {
        if self.out.try_send(push).is_err() {
            count(&self.inner.reporter.counters.push_dropped);
        }
    }
}

fn ended() -> Refusal {
    Refusal::new("DROPPED", "the push connection ended", Kind::Prompt)
}
