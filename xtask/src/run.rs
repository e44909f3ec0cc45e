//! Tasks that are one call of cargo: `build`, `emulator`, `example` and `integration`.

use anyhow::{Result, bail};
use serde_json::Value;

use crate::workspace::Workspace;
use crate::{args, process};

/// Each suite and the packages whose tests it is.
const SUITES: &[(&str, &[&str])] = &[
    ("consumer", &["kinesis-consumer", "kinesis-efo", "kinesis-poll"]),
    ("e2e", &["examples"]),
    ("lease", &["kinesis-lease"]),
    ("producer", &["kinesis-producer"]),
];

pub(crate) fn build(workspace: &Workspace, args: &[String]) -> Result<()> {
    args::none(args)?;
    process::run(process::cargo(workspace.root()).args([
        "build",
        "--workspace",
        "--all-features",
        "--all-targets",
        "--locked",
    ]))
}

pub(crate) fn emulator(workspace: &Workspace, args: &[String]) -> Result<()> {
    let pass_on = args::after_dashes(args)?;
    process::run(
        process::cargo(workspace.root())
            .args(["run", "--locked", "-p", "kinesis-testkit", "--bin", "kinesis-test-server", "--"])
            .args(pass_on),
    )
}

pub(crate) fn example(workspace: &Workspace, args: &[String]) -> Result<()> {
    let Some((name, rest)) = args.split_first() else {
        bail!("name an example: the binaries of the package `examples`");
    };
    let pass_on = args::after_dashes(rest)?;
    process::run(
        process::cargo(workspace.root())
            .args(["run", "--release", "--locked", "-p", "examples", "--bin", name])
            .args(feature_args(&workspace.metadata()?, name))
            .arg("--")
            .args(pass_on),
    )
}

/// The features that an example needs.
fn feature_args(metadata: &Value, name: &str) -> Vec<String> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let targets = packages.flat_map(|package| package["targets"].as_array().into_iter().flatten());
    let examples = targets.filter(|target| target["name"] == name);
    let features = examples.flat_map(|target| target["required-features"].as_array().into_iter().flatten());
    features.filter_map(Value::as_str).flat_map(|name| ["--features".to_owned(), name.to_owned()]).collect()
}

pub(crate) fn integration(workspace: &Workspace, args: &[String]) -> Result<()> {
    let packages = match args {
        [suite] => suite_packages(suite)?,
        _ => bail!("name one suite: {}", suite_names()),
    };
    let mut cargo = process::cargo(workspace.root());
    cargo.args(["test", "--locked"]);
    for package in packages {
        cargo.args(["-p", package]);
    }
    process::run(&mut cargo)
}

fn suite_packages(name: &str) -> Result<&'static [&'static str]> {
    match SUITES.iter().find(|(suite, _)| *suite == name) {
        Some((_, packages)) => Ok(packages),
        None => bail!("unknown suite `{name}`; known: {}", suite_names()),
    }
}

fn suite_names() -> String {
    let names: Vec<&str> = SUITES.iter().map(|(name, _)| *name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph;

    #[test]
    fn suites_name_members() {
        let workspace = Workspace::here().unwrap();
        let mut members = workspace.crates().unwrap();
        members.push("examples".to_owned());
        for (suite, packages) in SUITES {
            for package in *packages {
                assert!(members.iter().any(|member| member == package), "{suite}: {package}");
            }
        }
        let error = suite_packages("all").expect_err("no such suite");
        assert_eq!(error.to_string(), "unknown suite `all`; known: consumer, e2e, lease, producer");
    }

    #[test]
    fn an_example_gets_the_features_it_needs() {
        let metadata = Workspace::here().unwrap().metadata().unwrap();
        assert_eq!(feature_args(&metadata, "dynamodb-leases"), ["--features", "dynamodb"]);
        assert_eq!(feature_args(&metadata, "multi-worker"), Vec::<String>::new());
    }

    /// S-236: every example, and the tests of every crate, can be started under a debugger.
    #[test]
    fn debug_configurations_cover_examples_and_crates() {
        let workspace = Workspace::here().unwrap();
        let launch = workspace.read(".vscode/launch.json").unwrap();
        let launch: serde_json::Value = serde_json::from_str(&launch).unwrap();
        let options = |id: &str| -> Vec<String> {
            let inputs = launch["inputs"].as_array().unwrap();
            let input = inputs.iter().find(|input| input["id"] == id).unwrap();
            serde_json::from_value(input["options"].clone()).unwrap()
        };
        assert_eq!(options("crate"), workspace.crates().unwrap());
        let members = graph::members(&workspace.metadata().unwrap()).unwrap();
        let examples = members.iter().find(|member| member.name == "examples").unwrap();
        assert_eq!(options("example"), examples.binaries);
        let names: Vec<&str> = launch["configurations"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["name"].as_str().unwrap())
            .collect();
        assert_eq!(
            names,
            ["Run an example", "Run the unit tests of a crate", "Run an integration test of a crate"]
        );
    }
}
