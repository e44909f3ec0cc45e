//! `peers`: the tests against servers and clients that were not written here.
//!
//! Everything is installed below `target/peers` from pinned lists in `xtask/peers`, command-line tools from
//! the system's packages. The tests are those that are ignored because they need peers. They find these on
//! the PATH and in the environment:
//!
//! - `KINESIS_LOCAL_ENDPOINT`: the plain HTTP endpoint of npm's `kinesis-local`. When it is set before the
//!   task starts, that server is used and none is started.
//! - `PEERS_PYTHON`: a Python interpreter that has boto3, aws-kinesis-agg and aiokpl (its codec only).
//! - `PEERS_NODE_MODULES`: the folder of the npm packages.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::machine::{self, direct_loopback};
use crate::process::{self, Owned};
use crate::workspace::Workspace;
use crate::{annotations, args, cargo_test, services};

/// The variable that names a server which runs already.
const ENDPOINT: &str = "KINESIS_LOCAL_ENDPOINT";

/// It starts in one to two seconds on an idle machine.
const START_LIMIT: Duration = Duration::from_secs(90);

/// How long one look at the starting server may take.
const PROBE_LIMIT: Duration = Duration::from_secs(2);

/// More shards than any test makes.
const SHARD_LIMIT: &str = "500";

pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    args::none(args)?;
    let plan = services::plan(&annotations::tests(workspace)?);
    if plan.peers.is_empty() {
        bail!("no test needs peers");
    }
    machine::ensure(&[&machine::C_COMPILER, &machine::COMPRESSORS])?;
    let folder = install(workspace)?;

    // The server is stopped when this goes out of scope, however the tests end.
    let (endpoint, _server) = match std::env::var(ENDPOINT) {
        Ok(running) if !running.is_empty() => (running, None),
        _ => {
            let (endpoint, server) = start_kinesis_local(&folder)?;
            (endpoint, Some(server))
        }
    };
    let mut cargo = cargo_test::everything(workspace.root());
    for target in plan.peers.keys() {
        cargo.args(["--test", target]);
    }
    cargo.args(["--", "--ignored"]);
    cargo.env(ENDPOINT, endpoint);
    cargo.env("PEERS_PYTHON", folder.join("venv/bin/python"));
    cargo.env("PEERS_NODE_MODULES", folder.join("node_modules"));
    let totals = cargo_test::run(direct_loopback(&mut cargo))?;
    totals.show();
    let planned: usize = plan.peers.values().map(Vec::len).sum();
    if totals.passed != planned as u64 {
        bail!("{planned} tests need peers but {} ran", totals.passed);
    }
    Ok(())
}

/// Installs the packages of both lists and gives the folder that has `node_modules` and `venv`.
pub(crate) fn install(workspace: &Workspace) -> Result<PathBuf> {
    machine::ensure(&[&machine::NODE, &machine::PYTHON])?;
    let folder = workspace.target()?.join("peers");
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    install_node_packages(workspace, &folder)?;
    install_python_packages(workspace, &folder)?;
    Ok(folder)
}

fn install_node_packages(workspace: &Workspace, folder: &Path) -> Result<()> {
    let lock = workspace.read("xtask/peers/package-lock.json")?;
    if is_installed(folder, "package-lock.json", &lock) && folder.join("node_modules").is_dir() {
        return Ok(());
    }
    fs::write(folder.join("package.json"), workspace.read("xtask/peers/package.json")?)?;
    fs::write(folder.join("package-lock.json"), &lock)?;
    process::run(Command::new("npm").args(["ci", "--no-audit", "--no-fund"]).current_dir(folder))?;
    mark_installed(folder, "package-lock.json", &lock)
}

fn install_python_packages(workspace: &Workspace, folder: &Path) -> Result<()> {
    let list = workspace.read("xtask/peers/requirements.txt")?;
    if is_installed(folder, "requirements.txt", &list) {
        return Ok(());
    }
    let venv = folder.join("venv");
    process::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
    process::run(
        Command::new(venv.join("bin/python"))
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .args(["--no-deps", "--require-hashes", "--requirement"])
            .arg(workspace.root().join("xtask/peers/requirements.txt")),
    )?;
    mark_installed(folder, "requirements.txt", &list)
}

/// Whether a complete installation was made from exactly this list.
fn is_installed(folder: &Path, list: &str, content: &str) -> bool {
    fs::read_to_string(folder.join(format!("{list}.installed"))).is_ok_and(|found| found == content)
}

fn mark_installed(folder: &Path, list: &str, content: &str) -> Result<()> {
    fs::write(folder.join(format!("{list}.installed")), content)
        .with_context(|| format!("noting that {list} is installed"))
}

/// Starts the server; its output goes to `kinesis-local.log` in `folder`.
fn start_kinesis_local(folder: &Path) -> Result<(String, Owned)> {
    let package = folder.join("node_modules/kinesis-local");
    let plain = machine::free_port()?;
    let mut node = Command::new("node");
    node.arg(package.join("main.js"))
        // Without its certificate it does not start, even for plain HTTP.
        .env("KINESIS_MOCK_CERT_PATH", package.join("server.json"))
        .env("KINESIS_MOCK_PLAIN_PORT", plain.to_string())
        .env("KINESIS_MOCK_TLS_PORT", machine::free_port()?.to_string())
        .env("SHARD_LIMIT", SHARD_LIMIT)
        .env("LOG_LEVEL", "WARN");
    let log = folder.join("kinesis-local.log");
    let mut server = Owned::service(&mut node, &log)?;
    server
        .wait_until(START_LIMIT, || speaks_http(plain))
        .with_context(|| format!("starting kinesis-local; its log is {}", log.display()))?;
    Ok((format!("http://127.0.0.1:{plain}"), server))
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

    #[test]
    fn an_installation_belongs_to_one_list() {
        let folder = std::env::temp_dir().join(format!("xtask-peers-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        assert!(!is_installed(&folder, "list", "a==1"));
        mark_installed(&folder, "list", "a==1").unwrap();
        assert!(is_installed(&folder, "list", "a==1"));
        assert!(!is_installed(&folder, "list", "a==2"));
        fs::remove_dir_all(folder).unwrap();
    }
}
