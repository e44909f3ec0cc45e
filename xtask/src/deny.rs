//! `deny`: licences, sources, bans and duplicates, by cargo-deny with `deny.toml`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::workspace::Workspace;
use crate::{args, process};

/// The release that this task installs where none is found.
const VERSION: &str = "0.19.0";

pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    args::none(args)?;
    let tools = workspace.target()?.join("tools");
    let program = ensure_installed(workspace, &tools)?;
    // The advisory database is a git repository of its own, so advisories are not part of this.
    process::run(
        Command::new(program)
            .args(["--locked", "--all-features", "check", "bans", "licenses", "sources"])
            .current_dir(workspace.root()),
    )
}

/// The program to call: the one on the PATH when it is of this release, else one below `tools`.
fn ensure_installed(workspace: &Workspace, tools: &Path) -> Result<std::path::PathBuf> {
    let own = tools.join("bin").join("cargo-deny");
    for program in [Path::new("cargo-deny"), &own] {
        let version = process::capture(Command::new(program).arg("--version"));
        if version.is_ok_and(|version| is_current(&version)) {
            return Ok(program.to_path_buf());
        }
    }
    process::run(
        process::cargo(workspace.root())
            .args(["install", "cargo-deny", "--locked", "--version", VERSION, "--root"])
            .arg(tools),
    )
    .context("installing cargo-deny")?;
    Ok(own)
}

/// Whether the answer to `--version` is the release named here.
fn is_current(answer: &str) -> bool {
    answer.split_whitespace().last() == Some(VERSION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_release_is_taken() {
        assert!(is_current(&format!("cargo-deny {VERSION}\n")));
        assert!(!is_current("cargo-deny 0.14.2\n"));
        assert!(!is_current(""));
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
