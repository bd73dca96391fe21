//! Messages the servers push: one connection for the whole process, subscribed to its channels. It is that
//! of the control lane where the server speaks the protocol in which one connection can do both, else one of
//! its own.
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
use redis::{PushInfo, PushKind, Value};
use tokio::sync::mpsc;
use tokio::time::{timeout, timeout_at};

use crate::config::Level;
use crate::sync::Mutex;

use super::Inner;
use super::dial::{Kind, Pushes, Refusal};
use super::node::Lane;
use super::pause::{Backoff, fraction};
use super::request::{Class, Request};
use super::settings::count;
use super::supervisor::{Live, NotReady};

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

/// The code of a connection that proved to hear nothing.
const DEAF: &str = "DEAF";

pub(super) struct Listener {
    pub inner: Arc<Inner>,
    /// Proofs go to the first.
    pub channels: Vec<Vec<u8>>,
    pub out: mpsc::Sender<Push>,
    /// The control lane's connection that was subscribed last.
    pub shared: Mutex<Option<Arc<Live>>>,
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
                _ = self.out.closed() => return self.leave(),
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
        let until = Instant::now() + patience;
        let node = self.inner.routes.some_node();
        let live = match node.lane(Lane::Control).ready(until, false).await {
            Ok(live) => live,
            Err(NotReady::Down(refusal, _)) => return refusal,
            Err(NotReady::Deadline(code)) => {
                return Refusal::new(&code, "no connection to listen on", Kind::Prompt);
            }
        };
        let pushes = live.pushes().and_then(|mut pushes| pushes.take());
        let Some(pushes) = pushes else {
            return match timeout(patience, self.subscribe()).await {
                Err(_) => Refusal::timeout("SUBSCRIBE"),
                Ok(Err(refusal)) => refusal,
                Ok(Ok(messages)) => {
                    let refusal = self.hear(&mut Messages::Own(messages)).await;
                    if &*refusal.code == DEAF {
                        count(&self.inner.reporter.counters.replaced);
                    }
                    refusal
                }
            };
        };
        let mut messages = Messages::Shared(pushes);
        *self.shared.lock() = Some(live.clone());
        let refusal = match timeout(patience, self.subscribe_on(&live)).await {
            Err(_) => Refusal::timeout("SUBSCRIBE"),
            Ok(Err(refusal)) => refusal,
            Ok(Ok(())) => self.hear(&mut messages).await,
        };
        if &*refusal.code == DEAF {
            live.end_because(refusal.clone());
        } else if let (Some(mut place), Messages::Shared(pushes)) = (live.pushes(), messages) {
            // It goes on with its other work, and is asked again.
            *place = Some(pushes);
        }
        refusal
    }

    /// What nobody hears is not to be sent. There is no right to unsubscribe.
    fn leave(&self) {
        if let Some(live) = self.shared.lock().take() {
            live.end_because(Refusal::new(
                "DONE",
                "nobody listens any more",
                Kind::Prompt,
            ));
        }
    }

    /// Proves that messages arrive, and passes them on until something fails.
    async fn hear(&self, messages: &mut Messages) -> Refusal {
        if let Err(refusal) = self.prove(messages).await {
            return refusal;
        }
        count(&self.inner.reporter.counters.subscribed);
        self.tell(Push::Listening);
        let refusal = self.pass_on(messages).await;
        self.tell(Push::Deaf);
        refusal
    }

    async fn subscribe_on(&self, live: &Live) -> Result<(), Refusal> {
        let mut connection = live.connection();
        for channel in &self.channels {
            let mut subscribe = redis::cmd("SUBSCRIBE");
            subscribe.arg(channel);
            let refused = |error: redis::RedisError| {
                let code = error.code().unwrap_or("SUBSCRIBE").to_owned();
                Refusal::new(&code, error, Kind::Costly)
            };
            let reply = connection.send_packed_command(&subscribe).await;
            if let Value::ServerError(error) = reply.map_err(refused)? {
                return Err(refused(error.into()));
            }
        }
        Ok(())
    }

    async fn subscribe(&self) -> Result<PubSubStream, Refusal> {
        let dialer = &self.inner.dialer;
        let addr = self.inner.routes.some_addr().await?;
        let stream = dialer.connect(&addr).await?;
        let info = dialer.credentials.info();
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

    async fn pass_on(&self, messages: &mut Messages) -> Refusal {
        let every = self.inner.settings.push_check;
        loop {
            // Not in step with other processes.
            let check = Instant::now() + every.mul_f64(0.75 + 0.5 * fraction());
            // Messages of others prove as much as one of ours, on a single server; in a cluster each
            // node's path wants its own proof, so the check comes whether or not others arrive.
            loop {
                match timeout_at(check.into(), messages.next()).await {
                    Ok(None) => return ended(),
                    Ok(Some((channel, payload))) => self.pass(channel, payload),
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
    async fn prove(&self, messages: &mut Messages) -> Result<(), Refusal> {
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
                    Some((_, payload)) if payload == proof => return Ok(()),
                    Some((channel, payload)) => self.pass(channel, payload),
                },
                (result, _) = &mut publishing, if published.is_none() => match result {
                    Ok(Value::Int(_)) => published = Some(Instant::now()),
                    Ok(_) => return Err(Refusal::new("PUBLISH", "made no sense", Kind::Costly)),
                    Err(failure) => return Err(Refusal::new("PUBLISH", failure, Kind::Prompt)),
                },
                _ = tokio::time::sleep_until(give_up.into()) => {
                    return Err(Refusal::new(DEAF, "our own message did not arrive", Kind::Prompt));
                }
            }
        }
    }

    fn pass(&self, channel: Vec<u8>, payload: Vec<u8>) {
        if payload.starts_with(PROOF) {
            return; // of an earlier check, or of another process that shares the channel
        }
        count(&self.inner.reporter.counters.pushed);
        self.tell(Push::Message { channel, payload });
    }

    /// Never waits: whoever is behind loses messages, which the heartbeat makes good.
    fn tell(&self, push: Push) {
        if self.out.try_send(push).is_err() {
            count(&self.inner.reporter.counters.push_dropped);
        }
    }
}

/// Where messages come from.
enum Messages {
    /// A connection of its own.
    Own(PubSubStream),
    /// One that others use as well.
    Shared(Pushes),
}

impl Messages {
    /// The next one's channel and payload; `None`: the connection has ended.
    async fn next(&mut self) -> Option<(Vec<u8>, Vec<u8>)> {
        match self {
            Messages::Own(messages) => {
                let message = messages.next().await?;
                let channel = message.get_channel_name().as_bytes().to_vec();
                Some((channel, message.get_payload_bytes().to_vec()))
            }
            Messages::Shared(pushes) => loop {
                let PushInfo { kind, data } = pushes.recv().await?;
                match (kind, <[Value; 2]>::try_from(data)) {
                    (PushKind::Disconnection, _) => return None,
                    (
                        PushKind::Message,
                        Ok([Value::BulkString(channel), Value::BulkString(payload)]),
                    ) => return Some((channel, payload)),
                    _ => {}
                }
            },
        }
    }
}

fn ended() -> Refusal {
    Refusal::new("DROPPED", "the push connection ended", Kind::Prompt)
}
