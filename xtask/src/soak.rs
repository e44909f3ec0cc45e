//! `soak`: a day of virtual life of a few workers under faults, over both ways to read, in release mode.
//!
//! The soak is an example of `kinesis-consumer`; it reads the arguments and prints the verdict. docs/soak.md says what it
//! checks. A small run of it is one of the example's own tests, so `cargo xtask test` runs that.

use std::process::Command;

use anyhow::Result;

use crate::process;
use crate::workspace::Workspace;

pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    process::run(soak(workspace).args(args))
}

fn soak(workspace: &Workspace) -> Command {
    let mut cargo = process::cargo(workspace.root());
    cargo.args(["run", "--quiet", "--release", "--locked", "-p", "kinesis-consumer"]);
    cargo.args(["--example", "soak", "--"]);
    cargo
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The soak is where this task looks for it.
    #[test]
    fn the_soak_is_an_example_of_the_consumer_crate() {
        let workspace = Workspace::here().unwrap();
        assert!(workspace.exists("crates/kinesis-consumer/examples/soak/main.rs"));
        let line = process::shown(&soak(&workspace));
        assert!(line.ends_with("-p kinesis-consumer --example soak --"), "{line}");
    }
}
