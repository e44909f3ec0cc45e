//! What a task needs from the machine besides Rust.
//!
//! As root on a Debian-like system what is missing is installed; elsewhere the task stops with the line
//! that installs it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::process;

/// One thing that a task needs.
pub(crate) struct Need {
    what: &'static str,
    found: fn() -> bool,
    /// The Debian packages that bring it.
    packages: &'static [&'static str],
}

/// The SDK's TLS library and SQLite are C.
pub(crate) const C_COMPILER: Need =
    Need { what: "a C compiler (cc)", found: || answers("cc", "--version"), packages: &["build-essential"] };

/// The formats' own command-line tools.
pub(crate) const COMPRESSORS: Need = Need {
    what: "the tools gzip, lz4 and zstd",
    found: || ["gzip", "lz4", "zstd"].iter().all(|tool| answers(tool, "--version")),
    packages: &["gzip", "lz4", "zstd"],
};

/// The clients' modules want this version or a newer one.
pub(crate) const GO: Need = Need {
    what: "Go 1.24",
    found: || {
        process::capture(Command::new("go").args(["env", "GOVERSION"]))
            .ok()
            .and_then(|version| version.trim().strip_prefix("go1.")?.split('.').next()?.parse::<u32>().ok())
            .is_some_and(|minor| minor >= 24)
    },
    packages: &["golang-go"],
};

/// A program of one file is compiled and run by `java` itself.
pub(crate) const JAVA: Need = Need {
    what: "a Java 17 development kit with Maven",
    found: || answers("java", "-version") && answers("javac", "-version") && answers("mvn", "--version"),
    packages: &["default-jdk-headless", "maven"],
};

pub(crate) const NODE: Need = Need {
    what: "Node.js with npm",
    found: || answers("node", "--version") && answers("npm", "--version"),
    packages: &["nodejs", "npm"],
};

/// The server's own programs, which Debian keeps off the PATH.
pub(crate) const POSTGRES: Need = Need {
    what: "PostgreSQL's server programs (initdb, postgres)",
    found: || postgres_programs().is_some(),
    packages: &["postgresql"],
};

/// Debian keeps it off the PATH of users too.
pub(crate) const PGBOUNCER: Need =
    Need { what: "the pooler pgbouncer", found: || pgbouncer().is_some(), packages: &["pgbouncer"] };

pub(crate) const PYTHON: Need = Need {
    what: "Python 3 with venv and pip",
    found: || process::works(Command::new("python3").args(["-c", "import ensurepip, venv"])),
    packages: &["python3", "python3-venv"],
};

/// Components of the Rust toolchain; rustup's minimal profile leaves them out.
const COMPONENTS: &[(&str, &str)] = &[("fmt", "rustfmt"), ("clippy", "clippy")];

/// Makes sure that formatting and clippy are there.
pub(crate) fn components(root: &Path) -> Result<()> {
    let missing: Vec<&str> = COMPONENTS
        .iter()
        .filter(|(command, _)| !process::works(process::cargo(root).args([command, "--version"])))
        .map(|(_, component)| *component)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    bail!(
        "the Rust toolchain lacks components; install them with\n  rustup component add {}",
        missing.join(" ")
    )
}

/// Makes sure that everything in `needs` is there.
pub(crate) fn ensure(needs: &[&Need]) -> Result<()> {
    let missing: Vec<&&Need> = needs.iter().filter(|need| !(need.found)()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !(is_root() && is_debian_like()) {
        bail!("{}", instructions(&missing));
    }
    let packages: Vec<&str> = packages(&missing);
    println!("installing what this machine lacks: {}", packages.join(" "));
    let apt = || {
        let mut command = Command::new("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").arg("--quiet");
        command
    };
    process::run(apt().arg("update"))?;
    process::run(apt().args(["install", "--yes", "--no-install-recommends"]).args(&packages))?;
    match missing.iter().find(|need| !(need.found)()) {
        None => Ok(()),
        Some(need) => bail!("{} is still missing after `apt-get install {}`", need.what, packages.join(" ")),
    }
}

/// The folder that holds `initdb` and `postgres`.
pub(crate) fn postgres_programs() -> Option<PathBuf> {
    let configured = process::capture(Command::new("pg_config").arg("--bindir"))
        .map(|folder| PathBuf::from(folder.trim()))
        .ok();
    let debian = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|version| version.path().join("bin"));
    configured
        .into_iter()
        .chain(debian)
        .find(|folder| folder.join("initdb").is_file() && folder.join("postgres").is_file())
}

/// The program pgbouncer.
pub(crate) fn pgbouncer() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders.map(|folder| folder.join("pgbouncer")).find(|program| program.is_file())
}

fn packages(missing: &[&&Need]) -> Vec<&'static str> {
    missing.iter().flat_map(|need| need.packages).copied().collect()
}

fn instructions(missing: &[&&Need]) -> String {
    let names: Vec<&str> = missing.iter().map(|need| need.what).collect();
    format!(
        "this machine lacks:\n  {}\non Debian or Ubuntu, install with\n  sudo apt-get install {}",
        names.join("\n  "),
        packages(missing).join(" ")
    )
}

fn answers(program: &str, argument: &str) -> bool {
    process::works(Command::new(program).arg(argument))
}

fn is_root() -> bool {
    process::capture(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

fn is_debian_like() -> bool {
    Path::new("/etc/debian_version").exists() && answers("apt-get", "--version")
}

/// Keeps connections to this machine away from a proxy that the environment may name.
pub(crate) fn direct_loopback(command: &mut Command) -> &mut Command {
    for name in ["NO_PROXY", "no_proxy"] {
        command.env(name, with_loopback(&std::env::var(name).unwrap_or_default()));
    }
    command
}

/// The list of hosts that are reached directly, with this machine added.
fn with_loopback(direct: &str) -> String {
    let loopback = "127.0.0.1,localhost";
    if direct.is_empty() { loopback.to_owned() } else { format!("{direct},{loopback}") }
}

/// A loopback port that nothing listens on.
pub(crate) fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).context("looking for a free port")?;
    Ok(listener.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOWHERE: Need = Need { what: "a thing", found: || false, packages: &["thing", "thing-dev"] };

    #[test]
    fn the_install_line_names_every_package() {
        assert_eq!(
            instructions(&[&&NOWHERE, &&POSTGRES]),
            "this machine lacks:\n  a thing\n  PostgreSQL's server programs (initdb, postgres)\n\
             on Debian or Ubuntu, install with\n  sudo apt-get install thing thing-dev postgresql"
        );
    }

    #[test]
    fn nothing_is_installed_when_nothing_is_missing() {
        const HERE: Need = Need { what: "a thing", found: || true, packages: &["thing"] };
        ensure(&[&HERE]).unwrap();
    }

    #[test]
    fn loopback_is_never_proxied() {
        assert_eq!(with_loopback(""), "127.0.0.1,localhost");
        assert_eq!(with_loopback("a.example"), "a.example,127.0.0.1,localhost");
        let mut command = Command::new("true");
        direct_loopback(&mut command);
        let set: Vec<_> = command.get_envs().collect();
        assert_eq!(set.len(), 2);
        for (name, value) in set {
            let value = value.expect("set").to_string_lossy();
            assert!(value.ends_with("127.0.0.1,localhost"), "{name:?}={value}");
        }
    }
}
