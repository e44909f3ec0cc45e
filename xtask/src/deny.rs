//! `deny`: licences, sources, bans and duplicates, by cargo-deny with `deny.toml`.

use anyhow::{Context as _, Result};

use crate::workspace::Workspace;
use crate::{args, process};

/// The release that this task installs where none is found, and the oldest that reads `deny.toml`.
const VERSION: &str = "0.19.0";

pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    args::none(args)?;
    ensure_installed(workspace)?;
    // The advisory database is a git repository of its own, so advisories are not part of this.
    process::run(process::cargo(workspace.root()).args([
        "deny",
        "--locked",
        "--all-features",
        "check",
        "bans",
        "licenses",
        "sources",
    ]))
}

/// Installs cargo-deny where cargo keeps its programs, so that every clone on the machine finds it.
fn ensure_installed(workspace: &Workspace) -> Result<()> {
    let answer = process::capture(process::cargo(workspace.root()).args(["deny", "--version"]));
    if answer.is_ok_and(|answer| is_recent(&answer)) {
        return Ok(());
    }
    // A debug build takes a fraction of the time of a release build and checks in a second.
    process::run(
        process::cargo(workspace.root())
            .args(["install", "cargo-deny", "--locked", "--debug", "--force", "--version", VERSION])
            .env("CARGO_PROFILE_DEV_DEBUG", "0"),
    )
    .context("installing cargo-deny")
}

/// Whether the answer to `--version` is the release named here or a later one.
fn is_recent(answer: &str) -> bool {
    let numbers =
        |version: &str| -> Vec<u32> { version.split('.').map_while(|part| part.parse().ok()).collect() };
    answer.split_whitespace().last().is_some_and(|version| numbers(version) >= numbers(VERSION))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_release_is_replaced() {
        assert!(is_recent(&format!("cargo-deny {VERSION}\n")));
        assert!(is_recent("cargo-deny 0.20.2\n"));
        assert!(!is_recent("cargo-deny 0.14.2\n"));
        assert!(!is_recent(""));
    }

    /// D-05, S-241: the licences that dependencies may have are listed, copyleft and unknown sources are not among them.
    #[test]
    fn deny_lists_licences_and_refuses_unknown_sources() {
        let config = Workspace::here().unwrap().read("deny.toml").unwrap();
        for refused in ["GPL", "SSPL", "BUSL"] {
            assert!(!config.contains(refused), "{refused}");
        }
        for line in [
            "multiple-versions = \"deny\"",
            "wildcards = \"deny\"",
            "unknown-registry = \"deny\"",
            "unknown-git = \"deny\"",
        ] {
            assert!(config.lines().any(|found| found == line), "{line}");
        }
    }
}
