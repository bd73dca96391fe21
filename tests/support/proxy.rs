//! A TCP proxy before a server that loses replies, swallows everything, delays or cuts.
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mode {
    Forward,
    /// Nothing passes in either direction; connections stay open.
    BlackHole,
    /// The next reply is dropped and its connection cut; then `Forward` again.
    LoseReply,
    /// Each reply comes this much later.
    Delay(Duration),
}

pub struct Proxy {
    pub port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    server: u16,
    mode: Mutex<Mode>,
    accepted: AtomicUsize,
    open: Mutex<Vec<(TcpStream, TcpStream)>>,
}

impl Proxy {
    pub fn before(server: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            server,
            mode: Mutex::new(Mode::Forward),
            accepted: AtomicUsize::new(0),
            open: Mutex::default(),
        });
        let accepting = shared.clone();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                accepting.clone().accept(client.unwrap());
            }
        });
        Proxy { port, shared }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub fn set(&self, mode: Mode) {
        *self.shared.mode.lock().unwrap() = mode;
    }

    pub fn mode(&self) -> Mode {
        self.shared.mode()
    }

    /// Connections accepted so far.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Cuts every connection.
    pub fn cut(&self) {
        for (client, server) in self.shared.open.lock().unwrap().drain(..) {
            let _ = client.shutdown(Shutdown::Both);
            let _ = server.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
    }
}

impl Shared {
    fn mode(&self) -> Mode {
        *self.mode.lock().unwrap()
    }

    fn accept(self: Arc<Shared>, client: TcpStream) {
        self.accepted.fetch_add(1, Ordering::SeqCst);
        let Ok(server) = TcpStream::connect(("127.0.0.1", self.server)) else {
            return;
        };
        for socket in [&client, &server] {
            socket.set_nodelay(true).unwrap();
        }
        let pair = (client.try_clone().unwrap(), server.try_clone().unwrap());
        self.open.lock().unwrap().push(pair);
        let (client_too, server_too) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        let requests = self.clone();
        std::thread::spawn(move || requests.pump(client, server, false));
        std::thread::spawn(move || self.pump(server_too, client_too, true));
    }

    fn pump(&self, mut from: TcpStream, mut to: TcpStream, replies: bool) {
        let mut buffer = [0; 65_536];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            match self.mode() {
                Mode::BlackHole => continue,
                Mode::LoseReply if replies => {
                    *self.mode.lock().unwrap() = Mode::Forward;
                    break;
                }
                Mode::Delay(delay) if replies => std::thread::sleep(delay),
                _ => {}
            }
            if to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
}
