//! Threads of the library: named, and deaf to signals, which belong to the host program.
use std::cell::Cell;
use std::io;
use std::thread::{Builder, JoinHandle};

use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};

thread_local! {
    /// The calling thread is one of the library's.
    static OURS: Cell<bool> = const { Cell::new(false) };
}

/// Starts a thread that receives no signal. The mask is set before it exists, so there is no moment at
/// which it could: a write to a reset peer would otherwise raise SIGPIPE in it and end the host.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let mut host = SigSet::empty();
    pthread_sigmask(
        SigmaskHow::SIG_SETMASK,
        Some(&SigSet::all()),
        Some(&mut host),
    )?;
    let spawned = Builder::new().name(name.into()).spawn(|| {
        OURS.set(true);
        body();
    });
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&host), None)?;
    spawned
}

/// Waits for one of the library's threads to end. It was told to, so this is short. Not on such a thread
/// itself, which can come to be the last owner of what it serves.
pub fn join(thread: Option<JoinHandle<()>>) {
    if let Some(thread) = thread
        && !OURS.get()
    {
        // A panic in it was caught and answered inside; there is nothing left to do about one.
        let _ = thread.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_thread_blocks_every_signal_and_the_host_thread_is_as_before() {
        let before = SigSet::thread_get_mask().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        spawn("limiter-test", move || {
            let name = std::thread::current().name().map(str::to_owned);
            tell.send((SigSet::thread_get_mask().unwrap(), name))
                .unwrap();
        })
        .unwrap();
        let (mask, name) = told.recv().unwrap();
        for signal in nix::sys::signal::Signal::iterator() {
            use nix::sys::signal::Signal::{SIGKILL, SIGSTOP};
            assert!(
                mask.contains(signal) || matches!(signal, SIGKILL | SIGSTOP),
                "{signal}"
            );
        }
        assert_eq!(name.as_deref(), Some("limiter-test"));
        assert_eq!(SigSet::thread_get_mask().unwrap(), before);
    }
}
