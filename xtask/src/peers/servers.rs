//! The servers among the peers.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::machine;
use crate::process::Owned;

/// They start in one to two seconds on an idle machine.
const START_LIMIT: Duration = Duration::from_secs(90);

/// How long one look at the starting server may take.
const PROBE_LIMIT: Duration = Duration::from_secs(2);

/// More shards than any test makes.
const SHARD_LIMIT: &str = "500";

/// A server that runs.
pub(super) struct Server {
    /// The variable that names its endpoint; set before, it names a server that runs already.
    pub(super) variable: &'static str,
    pub(super) endpoint: String,
    /// None for one that somebody else has started.
    _process: Option<Owned>,
}

impl Server {
    pub(super) fn kinesis_local(folder: &Path) -> Result<Self> {
        let package = folder.join("node_modules/kinesis-local");
        let mut node = Command::new("node");
        node.arg(package.join("main.js"))
            // Without its certificate it does not start, even for plain HTTP.
            .env("KINESIS_MOCK_CERT_PATH", package.join("server.json"))
            .env("KINESIS_MOCK_TLS_PORT", machine::free_port()?.to_string())
            .env("SHARD_LIMIT", SHARD_LIMIT)
            .env("LOG_LEVEL", "WARN");
        Self::start(
            "KINESIS_LOCAL_ENDPOINT",
            node,
            "KINESIS_MOCK_PLAIN_PORT",
            &folder.join("kinesis-local.log"),
        )
    }

    pub(super) fn ministack(program: &Path, folder: &Path) -> Result<Self> {
        Self::start(
            "MINISTACK_ENDPOINT",
            Command::new(program),
            "GATEWAY_PORT",
            &folder.join("ministack.log"),
        )
    }

    /// Starts a server on a free port, which `port_variable` tells it; its output goes to `log`.
    fn start(variable: &'static str, mut command: Command, port_variable: &str, log: &Path) -> Result<Self> {
        if let Some(endpoint) = std::env::var(variable).ok().filter(|endpoint| !endpoint.is_empty()) {
            return Ok(Self { variable, endpoint, _process: None });
        }
        let port = machine::free_port()?;
        let mut process = Owned::service(command.env(port_variable, port.to_string()), log)?;
        process
            .wait_until(START_LIMIT, || speaks_http(port))
            .with_context(|| format!("starting a peer; its log is {}", log.display()))?;
        Ok(Self { variable, endpoint: format!("http://127.0.0.1:{port}"), _process: Some(process) })
    }
}

/// Whether something at the port answers an HTTP request, in whatever way.
fn speaks_http(port: u16) -> bool {
    let ask = || -> std::io::Result<bool> {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
        let mut stream = TcpStream::connect_timeout(&address, PROBE_LIMIT)?;
        stream.set_read_timeout(Some(PROBE_LIMIT))?;
        stream.set_write_timeout(Some(PROBE_LIMIT))?;
        stream.write_all(
            b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        )?;
        let mut start = [0_u8; 5];
        stream.read_exact(&mut start)?;
        Ok(&start == b"HTTP/")
    };
    ask().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_server_is_ready_when_it_answers_http() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            for answer in ["HTTP/1.1 400 Bad Request\r\n\r\n", "SSH-2.0-x\r\n"] {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        assert!(speaks_http(port));
        assert!(!speaks_http(port));
        server.join().unwrap();
        assert!(!speaks_http(port), "nothing listens any more");
    }
}
