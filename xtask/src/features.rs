//! `features`: each feature of each library alone.
//!
//! Without `--all` only selections that do not bring the AWS SDK are compiled: a second feature set of the
//! SDK costs minutes. What the other selections bring is checked by `check-deps` from the resolved tree.

use anyhow::Result;

use crate::graph::{self, Member};
use crate::workspace::Workspace;
use crate::{args, process};

/// What the names of the crates start with whose presence makes a selection expensive.
const SDK: &str = "aws-sdk-";

pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    let all = args::flag(args, &["--all"])?.is_some();
    let members = graph::members(&workspace.metadata()?)?;
    let mut left_out = Vec::new();
    for member in members.iter().filter(|member| member.is_library()) {
        for selection in selections(member) {
            if all || !brings_sdk(workspace, &selection)? {
                process::run(process::cargo(workspace.root()).args(["check", "--locked"]).args(&selection))?;
            } else {
                left_out.push(selection.join(" "));
            }
        }
    }
    if !left_out.is_empty() {
        println!("left to `cargo xtask features --all`:\n  {}", left_out.join("\n  "));
    }
    Ok(())
}

/// No feature, the default ones, each one alone, and all together.
fn selections(member: &Member) -> Vec<Vec<String>> {
    let package = || vec!["-p".to_owned(), member.name.clone()];
    let with = |more: &[&str]| {
        let mut selection = package();
        selection.extend(more.iter().map(|arg| (*arg).to_owned()));
        selection
    };
    let mut all = vec![with(&["--no-default-features"]), package()];
    for feature in member.features.iter().filter(|feature| *feature != "default") {
        all.push(with(&["--no-default-features", "--features", feature]));
    }
    all.push(with(&["--all-features"]));
    all
}

fn brings_sdk(workspace: &Workspace, selection: &[String]) -> Result<bool> {
    let mut cargo = process::cargo(workspace.root());
    cargo.args(["tree", "--locked", "--edges", "normal,build", "--prefix", "none", "--format", "{p}"]);
    let tree = process::capture(cargo.args(selection))?;
    Ok(tree.lines().any(|line| line.starts_with(SDK)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D-02: a crate is compiled with none, with the default and with each of its features.
    #[test]
    fn every_feature_gets_its_own_selection() {
        let member = Member {
            name: "a".to_owned(),
            features: ["default", "x", "y"].map(str::to_owned).into(),
            dependencies: Vec::new(),
            binaries: Vec::new(),
        };
        let lines: Vec<String> = selections(&member).iter().map(|selection| selection.join(" ")).collect();
        assert_eq!(
            lines,
            [
                "-p a --no-default-features",
                "-p a",
                "-p a --no-default-features --features x",
                "-p a --no-default-features --features y",
                "-p a --all-features",
            ]
        );
    }
}
