//! Threads of simulated processes that call what blocks. One runs at a time: whoever resumes it waits
//! until it would sleep, or is done.
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use limiter::sync::simulate;

pub struct Fiber<R> {
    run: SyncSender<()>,
    /// `None`: it would sleep.
    told: Receiver<Option<R>>,
}

impl<R: Send + 'static> Fiber<R> {
    /// Begins when it is first resumed.
    pub fn new(act: impl FnOnce() -> R + Send + 'static) -> Fiber<R> {
        let (run, may_run) = sync_channel::<()>(1);
        let (tell, told) = sync_channel(1);
        let thread = std::thread::Builder::new().stack_size(1 << 20);
        let begun = thread.spawn(move || {
            let go = move || {
                if may_run.recv().is_err() {
                    // Its world has ended.
                    loop {
                        std::thread::park();
                    }
                }
            };
            go();
            let asleep = tell.clone();
            simulate(move || {
                let _ = asleep.send(None);
                go();
            });
            let _ = tell.send(Some(act()));
        });
        begun.expect("a thread");
        Fiber { run, told }
    }

    /// Lets it run. `None`: it sleeps again.
    pub fn resume(&self) -> Option<R> {
        self.run.send(()).expect("it waits to be resumed");
        self.told.recv().expect("it does not panic")
    }
}
