//! `coverage`: lines that the tests execute.

use anyhow::{Result, bail};

use crate::workspace::Workspace;
use crate::{args, process};

/// The share of lines, in percent, below which the task fails.
const FLOOR: &str = "80";

pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    let html = args::flag(args, &["--html"])?.is_some();
    let root = workspace.root();
    if !process::works(process::cargo(root).args(["llvm-cov", "--version"])) {
        bail!(
            "cargo-llvm-cov is missing; install it with\n  \
             cargo install cargo-llvm-cov --locked && rustup component add llvm-tools"
        );
    }
    let mut cargo = process::cargo(root);
    cargo.args(["llvm-cov", "--workspace", "--locked", "--fail-under-lines", FLOOR]);
    if html {
        cargo.arg("--html");
    }
    process::run(&mut cargo)
}
