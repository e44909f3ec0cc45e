//! `lint`: formatting and clippy.

use anyhow::Result;

use crate::workspace::Workspace;
use crate::{args, process};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Check,
    Fix,
}

pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    let mode = match args::flag(args, &["--fix"])? {
        None => Mode::Check,
        Some(_) => Mode::Fix,
    };
    // Clippy's repairs may need formatting.
    match mode {
        Mode::Check => {
            format(workspace, mode)?;
            clippy(workspace, mode)
        }
        Mode::Fix => {
            clippy(workspace, mode)?;
            format(workspace, mode)
        }
    }
}

pub(crate) fn format(workspace: &Workspace, mode: Mode) -> Result<()> {
    let mut cargo = process::cargo(workspace.root());
    cargo.args(["fmt", "--all"]);
    if mode == Mode::Check {
        cargo.arg("--check");
    }
    process::run(&mut cargo)
}

pub(crate) fn clippy(workspace: &Workspace, mode: Mode) -> Result<()> {
    let mut cargo = process::cargo(workspace.root());
    cargo.args(["clippy", "--workspace", "--all-features", "--all-targets", "--locked"]);
    if mode == Mode::Fix {
        cargo.args(["--fix", "--allow-dirty", "--allow-staged"]);
    }
    process::run(cargo.args(["--", "-D", "warnings"]))
}
