//! A certificate authority of our own, and a server that shows a certificate of it.
use std::process::{Command, Stdio};

use super::process::{Dir, free_port};
use super::server::Server;

pub struct TlsServer {
    pub server: Server,
    pub port: u16,
    certificates: Dir,
}

impl TlsServer {
    pub fn start() -> TlsServer {
        let dir = Dir::new();
        issue(&dir);
        let port = free_port();
        let tls_port = port.to_string();
        let [ca, cert, key] = ["ca.pem", "server.pem", "server.key"].map(|name| dir.file(name));
        #[rustfmt::skip]
        let server = Server::with(&[
            "--tls-port", &tls_port, "--tls-ca-cert-file", &ca, "--tls-cert-file", &cert,
            "--tls-key-file", &key, "--tls-auth-clients", "no",
        ]);
        TlsServer {
            server,
            port,
            certificates: dir,
        }
    }

    pub fn ca_file(&self) -> String {
        self.certificates.file("ca.pem")
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
