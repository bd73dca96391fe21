//! A completion queue as a handle: one descriptor number, and a queue of its own in each process.
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use crate::callback;
use crate::client::Client;
use crate::decision::{Decision, Status};
use crate::fork::{self, ForkLocal};
use crate::limiter::Limiter;
use crate::op::{Request, Sink};
use crate::queue::Queue;

pub struct ClientQueue {
    client: Arc<Client>,
    /// The number of the descriptor, in every process. Negative until there is one.
    number: AtomicI32,
    local: ForkLocal<Arc<Queue>>,
}

impl ClientQueue {
    pub fn new(client: &Arc<Client>) -> Result<ClientQueue, Status> {
        let queue = ClientQueue {
            client: client.clone(),
            number: AtomicI32::new(-1),
            local: ForkLocal::empty(),
        };
        queue.local()?;
        Ok(queue)
    }

    /// The queue of this process. After a fork it is a new one, on the same number (unless the host has
    /// something else there by now): whatever it registered with its event loop stays valid.
    fn local(&self) -> Result<&Arc<Queue>, Status> {
        self.local.get_or_build(|| {
            let core = self.client.core()?;
            let mut descriptor = Queue::open_descriptor()?;
            let number = self.number.load(Ordering::Relaxed);
            if number >= 0 {
                descriptor = descriptor.at(number).map_err(|_| Status::Resource)?;
            }
            let number = descriptor.as_fd().as_raw_fd();
            self.number.store(number, Ordering::Relaxed);
            Ok(core.backend.queue(descriptor))
        })
    }

    pub fn descriptor(&self) -> Result<RawFd, Status> {
        self.local().map(|queue| queue.descriptor().as_raw_fd())
    }

    /// Starts an acquire that completes here.
    pub fn submit(&self, limiter: &Limiter, request: &Request) -> Result<Decision, Status> {
        if !Arc::ptr_eq(&self.client, limiter.client()) {
            return Err(Status::Invalid);
        }
        let sink = Sink::Queue(self.local()?.clone());
        limiter.submit(request, sink)
    }

    pub fn poll(&self, cap: usize, timeout: Option<Duration>) -> Result<Vec<Decision>, Status> {
        if callback::inside() && timeout != Some(Duration::ZERO) {
            return Err(Status::WouldDeadlock);
        }
        self.local()?.poll(cap, timeout)
    }
}

impl Drop for ClientQueue {
    fn drop(&mut self) {
        match self.local.get() {
            Some(queue) => {
                if let Some(core) = self.client.core_if_built() {
                    core.backend.free_queue(queue);
                }
            }
            // Inherited and never used here: only this process's copy of the descriptor goes.
            None => fork::close_inherited(*self.number.get_mut()),
        }
    }
}
