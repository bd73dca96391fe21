//! Child processes that cannot outlive the test, directories that vanish, and free ports.
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, mpsc};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A child that is killed when this is dropped, and by the kernel if this process dies.
pub struct Process(Child);

type Order = (Command, mpsc::Sender<std::io::Result<Child>>);

impl Process {
    /// Starts `program` under `setpriv --pdeathsig KILL`. That signal comes when the *thread* that
    /// started the child ends, so one thread that lives as long as the program starts them all.
    pub fn start(program: &str, args: &[String]) -> Process {
        static STARTER: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
        let starter = STARTER.get_or_init(|| {
            let (orders, taken) = mpsc::channel::<Order>();
            std::thread::spawn(move || {
                for (mut command, answer) in taken {
                    let _ = answer.send(command.spawn());
                }
            });
            orders
        });
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", program]).args(args);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let (answer, started) = mpsc::channel();
        starter.send((command, answer)).unwrap();
        Process(
            started
                .recv()
                .unwrap()
                .unwrap_or_else(|e| panic!("{program}: {e}")),
        )
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id() as i32), signal).unwrap();
    }

    pub fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// What it ended with, once it has: nothing else than an exit is a code.
    pub fn exit_code(&mut self) -> Option<i32> {
        let status = self.0.try_wait().unwrap()?;
        Some(status.code().unwrap_or(-1))
    }

    /// Kills without a chance to tidy up, and waits for the end.
    pub fn kill(&mut self) {
        let _ = self.0.kill();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// An empty directory that is removed with its handle.
pub struct Dir(PathBuf);

impl Dir {
    pub fn new() -> Dir {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("limiter-test-{}-{n}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Dir(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A port for a server of this program's alone, for as long as it runs: other test programs that look
/// for one leave it, also before somebody listens there. Below the range the kernel gives to outgoing
/// connections, so that it stays free while a server restarts (and no connection to a dead server
/// reaches itself).
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    static TAKEN: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    let start = std::process::id().wrapping_mul(97);
    loop {
        let n = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 10_000 + (n % 22_000) as u16;
        let name = SocketAddr::from_abstract_name(format!("limiter-test-port-{port}")).unwrap();
        let Ok(taken) = UnixListener::bind_addr(&name) else {
            continue;
        };
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            TAKEN.lock().unwrap().push(taken);
            return port;
        }
    }
}
