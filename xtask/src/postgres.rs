//! A real PostgreSQL for tests and examples: the one of `DATABASE_URL`, or one in a temporary folder.
//!
//! Tests that need it are `#[ignore = "needs postgres"]` and find in the environment:
//!
//! - `DATABASE_URL`: a database where they may make schemas. Each test uses one of its own.
//! - `POSTGRES_BINDIR`: the folder of the server's programs, for tests that stop and switch servers of their own.
//! - `PGBOUNCER`: the program pgbouncer.

use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::machine;
use crate::process::{self, Owned};

/// It starts in a second or two on an idle machine.
const START_LIMIT: Duration = Duration::from_secs(90);

/// The role that `initdb` makes.
const ROLE: &str = "kinesis";

const URL: &str = "DATABASE_URL";

/// A server that tests and examples may use; stopped when it is dropped, however they end.
pub(crate) struct Postgres {
    url: String,
    programs: PathBuf,
    pgbouncer: PathBuf,
    /// None for a server that somebody else has started.
    _server: Option<Server>,
}

impl Postgres {
    /// Starts a server, unless `DATABASE_URL` names one that is there. [`machine::ensure`] comes before.
    pub(crate) fn start() -> Result<Self> {
        let programs =
            machine::postgres_programs().context("PostgreSQL's programs were looked for before")?;
        let pgbouncer = machine::pgbouncer().context("pgbouncer was looked for before")?;
        if let Ok(url) = std::env::var(URL) {
            println!("using the PostgreSQL of {URL}");
            return Ok(Self { url, programs, pgbouncer, _server: None });
        }
        let server = Server::start(&programs)?;
        let url = format!("postgres://{ROLE}@127.0.0.1:{}/postgres", server.port);
        Ok(Self { url, programs, pgbouncer, _server: Some(server) })
    }

    /// Tells a command where the server is.
    pub(crate) fn tell(&self, command: &mut Command) {
        command.env(URL, &self.url).env("POSTGRES_BINDIR", &self.programs).env("PGBOUNCER", &self.pgbouncer);
    }
}

struct Server {
    port: u16,
    programs: PathBuf,
    folder: PathBuf,
    _process: Option<Owned>,
}

impl Server {
    fn start(programs: &Path) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("kinesis-postgres-{}", std::process::id()));
        std::fs::create_dir(&folder).with_context(|| format!("creating {}", folder.display()))?;
        let port = machine::free_port()?;
        // From here on the folder is removed whatever happens.
        let mut server = Self { port, programs: programs.to_owned(), folder, _process: None };
        if is_root() {
            let (user, group) = unprivileged_user()?;
            chown(&server.folder, Some(user), Some(group))
                .context("giving the folder to the server's user")?;
        }
        let initdb = ["--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", "-U", ROLE, "-D"];
        process::capture(server.program("initdb")?.args(initdb).arg(server.data()))?;
        let mut postgres = server.program("postgres")?;
        postgres.arg("-D").arg(server.data()).arg("-k").arg(&server.folder).args(["-p", &port.to_string()]);
        // What a test server writes need not survive the machine.
        for setting in ["listen_addresses=127.0.0.1", "fsync=off", "max_connections=300"] {
            postgres.args(["-c", setting]);
        }
        let log = server.folder.join("log");
        let mut process = Owned::service(&mut postgres, &log)?;
        let mut is_ready = Command::new(programs.join("pg_isready"));
        is_ready.args(["-q", "-h", "127.0.0.1", "-p", &port.to_string()]);
        let ready = process.wait_until(START_LIMIT, || process::works(&mut is_ready));
        ready.with_context(|| {
            format!("starting PostgreSQL\n{}", std::fs::read_to_string(&log).unwrap_or_default())
        })?;
        server._process = Some(process);
        Ok(server)
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// One of the server's programs. They refuse to run as root, and end with this task, however that ends.
    fn program(&self, name: &str) -> Result<Command> {
        let program = self.programs.join(name);
        if !is_root() {
            return Ok(Command::new(program));
        }
        let (user, group) = unprivileged_user()?;
        let mut command = Command::new("setpriv");
        command.arg(format!("--reuid={user}")).arg(format!("--regid={group}"));
        command.args(["--clear-groups", "--pdeathsig=INT", "--"]).arg(program);
        Ok(command)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let stop = self.program("pg_ctl").map(|mut pg_ctl| {
            process::works(pg_ctl.args(["stop", "--mode=fast", "--timeout=20", "-D"]).arg(self.data()))
        });
        if self._process.is_some() && !matches!(stop, Ok(true)) {
            println!("PostgreSQL did not stop by itself and is ended");
        }
        drop(self._process.take());
        // A folder that cannot be removed is the machine's to clean up.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0)
}

/// The numbers of a user without rights and of its group.
fn unprivileged_user() -> Result<(u32, u32)> {
    let users = std::fs::read_to_string("/etc/passwd").context("reading the users of this machine")?;
    let find = |name| numbers_of(&users, name);
    find("postgres").or_else(|| find("nobody")).context("there is neither a user `postgres` nor `nobody`")
}

fn numbers_of(users: &str, name: &str) -> Option<(u32, u32)> {
    let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut numbers = line.split(':').skip(2);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name() {
        let users = "root:x:0:0:root:/root:/bin/sh\npostgres:x:101:104:a,,,:/x:/bin/bash\nbroken:x\n";
        assert_eq!(numbers_of(users, "postgres"), Some((101, 104)));
        assert_eq!(numbers_of(users, "broken"), None);
        assert_eq!(numbers_of(users, "post"), None);
    }

    #[test]
    fn commands_are_told_where_the_server_is() {
        let postgres = Postgres {
            url: "postgres://a@b/c".to_owned(),
            programs: PathBuf::from("/p"),
            pgbouncer: PathBuf::from("/b"),
            _server: None,
        };
        let mut command = Command::new("true");
        postgres.tell(&mut command);
        let told: Vec<_> = command.get_envs().map(|(name, _)| name.to_string_lossy()).collect();
        assert_eq!(told, ["DATABASE_URL", "PGBOUNCER", "POSTGRES_BINDIR"]);
    }
}
