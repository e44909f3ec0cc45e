//! `sim`: the deterministic simulation of lease coordination, in release mode.
//!
//! The simulation is an example of `kinesis-lease` behind its feature `sim`; it reads the arguments and prints the
//! verdict. docs/simulation.md says what it checks.

use std::process::Command;

use anyhow::Result;

use crate::process;
use crate::workspace::Workspace;

/// How long the continuous integration simulates, in seconds.
const BUDGET: u64 = 60;

pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    process::run(simulation(workspace).args(args))
}

/// As many seeds as a minute allows; how many is printed.
pub(crate) fn budget(workspace: &Workspace) -> Result<()> {
    process::run(simulation(workspace).args(["--seconds", &BUDGET.to_string()]))
}

fn simulation(workspace: &Workspace) -> Command {
    let mut cargo = process::cargo(workspace.root());
    cargo.args(["run", "--quiet", "--release", "--locked", "-p", "kinesis-lease"]);
    cargo.args(["--features", "sim", "--example", "sim", "--"]);
    cargo
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The simulation is where this task looks for it.
    #[test]
    fn the_simulation_is_an_example_of_the_lease_crate() {
        let workspace = Workspace::here().unwrap();
        assert!(workspace.exists("crates/kinesis-lease/examples/sim.rs"));
        let line = process::shown(&simulation(&workspace));
        assert!(line.ends_with("-p kinesis-lease --features sim --example sim --"), "{line}");
    }
}
