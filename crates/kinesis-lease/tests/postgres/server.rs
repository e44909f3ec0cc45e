//! PostgreSQL servers of a test's own, to be restarted, switched and stopped; and a pooler before one.

use std::fs::File;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Connection as _};
use tempfile::TempDir;

/// How long a server may take to start or stop.
const LIMIT: Duration = Duration::from_secs(60);

/// The role that `initdb` makes.
const ROLE: &str = "tester";

/// A server in a temporary folder; stopped when it is dropped, however the test ends.
#[derive(Debug)]
pub(crate) struct Server {
    folder: TempDir,
    port: u16,
    running: Option<Child>,
}

impl Server {
    /// A fresh server, running.
    pub(crate) async fn start() -> Self {
        let mut server = Self::new();
        let data = server.data();
        run(program("initdb")
            .args(["--auth=trust", "--encoding=UTF8", "--no-locale", "-U", ROLE, "-D"])
            .arg(data));
        server.boot().await;
        server
    }

    /// A stand-by that follows `primary`, running.
    pub(crate) async fn standby_of(primary: &Self) -> Self {
        let mut server = Self::new();
        let from = format!("host=127.0.0.1 port={} user={ROLE}", primary.port);
        let basebackup =
            ["--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "-d", &from, "-D"];
        run(program("pg_basebackup").args(basebackup).arg(server.data()));
        server.boot().await;
        server
    }

    /// From its next start, or reading of its settings, on.
    pub(crate) fn ask_for_the_password_of(&self, role: &str) {
        let file = self.data().join("pg_hba.conf");
        let rest = std::fs::read_to_string(&file).unwrap();
        // The first line that fits counts.
        std::fs::write(&file, format!("host all {role} 127.0.0.1/32 scram-sha-256\n{rest}")).unwrap();
    }

    fn new() -> Self {
        Self { folder: own_folder(), port: free_port(), running: None }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Starts the server that was stopped, at the same port.
    pub(crate) async fn boot(&mut self) {
        let log = File::options().create(true).append(true).open(self.log()).unwrap();
        let mut postgres = program("postgres");
        postgres.arg("-D").arg(self.data()).arg("-p").arg(self.port.to_string());
        postgres.arg("-k").arg(self.folder.path());
        for setting in ["listen_addresses=127.0.0.1", "fsync=off", "log_statement=all", "max_connections=200"]
        {
            postgres.args(["-c", setting]);
        }
        postgres.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.running = Some(postgres.spawn().unwrap());
        let started = Instant::now();
        while PgConnection::connect(&self.url()).await.is_err() {
            assert!(started.elapsed() < LIMIT, "{}", std::fs::read_to_string(self.log()).unwrap());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Stops at once, as a crash would; connections break.
    pub(crate) fn crash(&mut self) {
        if let Some(mut running) = self.running.take() {
            run(program("pg_ctl").args(["stop", "--silent", "--mode=immediate", "-D"]).arg(self.data()));
            running.wait().unwrap();
        }
    }

    /// Makes a stand-by the primary.
    pub(crate) fn promote(&self) {
        run(program("pg_ctl").args(["promote", "--silent", "--wait", "-D"]).arg(self.data()));
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        url(self.port)
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// How often the server refused to write.
    pub(crate) fn refusals(&self) -> usize {
        std::fs::read_to_string(self.log()).unwrap().matches("in a read-only transaction").count()
    }

    /// How many statements with this word were prepared under a name.
    pub(crate) fn named(&self, word: &str) -> usize {
        let log = std::fs::read_to_string(self.log()).unwrap();
        let executed = log.split("LOG:  execute ").skip(1).filter(|entry| !entry.starts_with("<unnamed>"));
        executed
            .filter(|entry| entry.split("LOG:  ").next().is_some_and(|entry| entry.contains(word)))
            .count()
    }

    /// The statements that the server was sent.
    pub(crate) fn statements(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.log()).unwrap();
        let starts: Vec<usize> = log.match_indices("LOG:  ").map(|(at, _)| at + "LOG:  ".len()).collect();
        let ends = starts.iter().skip(1).copied().chain([log.len()]);
        let entries = starts.iter().zip(ends).map(|(start, end)| &log[*start..end]);
        let statement = |entry: &str| {
            let (kind, text) = entry.split_once(": ")?;
            let sent = kind == "statement" || kind.starts_with("execute ");
            sent.then(|| text.split_whitespace().collect::<Vec<_>>().join(" "))
        };
        entries.filter_map(statement).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut running) = self.running.take() {
            let stop = program("pg_ctl")
                .args(["stop", "--silent", "--mode=immediate", "-D"])
                .arg(self.data())
                .status();
            if !stop.is_ok_and(|status| status.success()) {
                let _ = running.kill();
            }
            let _ = running.wait();
        }
    }
}

/// pgbouncer in transaction mode with two server connections; stopped when it is dropped.
#[derive(Debug)]
pub(crate) struct Bouncer {
    folder: TempDir,
    port: u16,
    running: Child,
}

impl Bouncer {
    pub(crate) async fn start(server: &PgConnectOptions) -> Self {
        let (folder, port) = (own_folder(), free_port());
        let (host, to) = (server.get_host(), server.get_port());
        let (role, database) = (server.get_username(), server.get_database().unwrap_or("postgres"));
        let settings = format!(
            "[databases]\nleases = host={host} port={to} dbname={database} user={role}\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = transaction\ndefault_pool_size = 2\nserver_login_retry = 1\nmax_client_conn = 500\nmax_prepared_statements = 0\n\
             logfile = {folder}/log\npidfile = {folder}/pid\n",
            folder = folder.path().display()
        );
        // Older versions do not know the setting.
        let settings = settings.replace("max_prepared_statements = 0\n", "");
        let file = folder.path().join("pgbouncer.ini");
        std::fs::write(&file, settings).unwrap();
        let mut pgbouncer = unprivileged(Path::new(&pgbouncer_program()));
        pgbouncer.arg("--quiet").arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let bouncer = Self { folder, port, running: pgbouncer.spawn().unwrap() };
        let started = Instant::now();
        while bouncer.options().connect().await.is_err() {
            let log = std::fs::read_to_string(bouncer.folder.path().join("log")).unwrap_or_default();
            assert!(started.elapsed() < LIMIT, "{log}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bouncer
    }

    /// Options without the parameters that it refuses.
    pub(crate) fn options(&self) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass()
            .host("127.0.0.1")
            .port(self.port)
            .username(ROLE)
            .database("leases")
            .extra_float_digits(None)
    }
}

impl Drop for Bouncer {
    fn drop(&mut self) {
        let _ = self.running.kill();
        let _ = self.running.wait();
    }
}

pub(crate) fn url(port: u16) -> String {
    format!("postgres://{ROLE}@127.0.0.1:{port}/postgres")
}

/// One of the server's programs, as a user that it accepts. `cargo xtask test` says where they are.
fn program(name: &str) -> Command {
    let folder = std::env::var_os("POSTGRES_BINDIR").map_or_else(
        || {
            let output = Command::new("pg_config").arg("--bindir").output().expect("pg_config is there");
            PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
        },
        PathBuf::from,
    );
    unprivileged(&folder.join(name))
}

fn pgbouncer_program() -> String {
    std::env::var("PGBOUNCER").unwrap_or_else(|_| "/usr/sbin/pgbouncer".to_owned())
}

/// The servers refuse to run as root. They end with the thread that started them.
fn unprivileged(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let user = unprivileged_user().0;
    let mut command = Command::new("setpriv");
    command
        .arg(format!("--reuid={user}"))
        .arg(format!("--regid={user}"))
        .args(["--clear-groups", "--pdeathsig=INT"]);
    command.arg("--").arg(program);
    command
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0)
}

/// A user's and its group's number.
fn unprivileged_user() -> (u32, u32) {
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let numbers = |name: &str| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    numbers("postgres").or_else(|| numbers("nobody")).expect("there is a user without rights")
}

/// A folder that the servers' user may write to.
fn own_folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    if is_root() {
        let (user, group) = unprivileged_user();
        chown(folder.path(), Some(user), Some(group)).unwrap();
    }
    folder
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}
