//! A certificate authority of our own, and a server that shows a certificate of it.
use std::process::{Command, Stdio};

use super::process::{Dir, free_port};
use super::server::Server;

/// An authority, and a certificate of it for this machine.
pub struct Certificates(Dir);

impl Certificates {
    pub fn new() -> Certificates {
        let dir = Dir::new();
        issue(&dir);
        Certificates(dir)
    }

    pub fn ca_file(&self) -> String {
        self.0.file("ca.pem")
    }

    /// How a server is told of them, on the command line, or in a file where nothing is before the names.
    pub fn settings(&self, before: &str) -> Vec<String> {
        let files = [
            ("tls-ca-cert-file", self.ca_file()),
            ("tls-cert-file", self.0.file("server.pem")),
            ("tls-key-file", self.0.file("server.key")),
            ("tls-auth-clients", "no".into()),
        ];
        let words = files.map(|(name, value)| [format!("{before}{name}"), value]);
        words.into_iter().flatten().collect()
    }

    /// The arguments of a server that is asked by TLS on this port.
    pub fn on_port(&self, port: u16) -> Vec<String> {
        let mut all = vec!["--tls-port".into(), port.to_string()];
        all.extend(self.settings("--"));
        all
    }
}

pub struct TlsServer {
    pub server: Server,
    pub port: u16,
    certificates: Certificates,
}

impl TlsServer {
    pub fn start() -> TlsServer {
        let (certificates, port) = (Certificates::new(), free_port());
        let args = certificates.on_port(port);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        TlsServer {
            server: Server::with(&args),
            port,
            certificates,
        }
    }

    pub fn ca_file(&self) -> String {
        self.certificates.ca_file()
    }

    pub fn url(&self) -> String {
        format!("rediss://127.0.0.1:{}", self.port)
    }
}

fn issue(dir: &Dir) {
    std::fs::write(dir.file("names"), "subjectAltName=IP:127.0.0.1\n").unwrap();
    for line in [
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=limiter-test-ca",
        "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout server.key -out server.csr -subj /CN=server",
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.pem",
    ] {
        let status = Command::new("openssl")
            .args(line.split(' '))
            .current_dir(dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert!(status.unwrap().success(), "openssl {line}");
    }
}
