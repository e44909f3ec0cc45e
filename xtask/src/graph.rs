//! The crate graph: which member may depend on which, as drawn in ARCHITECTURE.md.

use anyhow::{Context as _, Result};
use serde_json::Value;

/// Every library crate of the design and the members that it may depend on.
///
/// A member that is not listed is an error: a new crate gets its place here first.
const EDGES: &[(&str, &[&str])] = &[
    ("kinesis-compress", &["kinesis-core"]),
    (
        "kinesis-consumer",
        &[
            "kinesis-compress",
            "kinesis-core",
            "kinesis-efo",
            "kinesis-kpl",
            "kinesis-lease",
            "kinesis-metrics",
            "kinesis-middleware",
            "kinesis-poll",
        ],
    ),
    ("kinesis-core", &[]),
    ("kinesis-efo", &["kinesis-core"]),
    ("kinesis-kpl", &["kinesis-core"]),
    ("kinesis-lease", &["kinesis-core"]),
    ("kinesis-metrics", &["kinesis-core"]),
    ("kinesis-middleware", &["kinesis-core"]),
    ("kinesis-poll", &["kinesis-core"]),
    ("kinesis-producer", &["kinesis-compress", "kinesis-core", "kinesis-kpl"]),
    (TESTKIT, &["kinesis-core"]),
];

/// Members that are programs: they may depend on any library.
const PROGRAMS: &[&str] = &["examples", "kinesis-cli", "xtask"];

/// Only tests and programs may depend on it, by path alone: with a version, publishing would be circular.
pub(crate) const TESTKIT: &str = "kinesis-testkit";

/// A member and its direct dependencies.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) features: Vec<String>,
    pub(crate) dependencies: Vec<Dependency>,
    /// Names of its binaries.
    pub(crate) binaries: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `normal`, `dev` or `build`.
    pub(crate) kind: String,
    pub(crate) requirement: String,
    pub(crate) in_workspace: bool,
}

impl Member {
    pub(crate) fn is_library(&self) -> bool {
        !PROGRAMS.contains(&self.name.as_str())
    }
}

/// The members, from `cargo metadata --no-deps`.
pub(crate) fn members(metadata: &Value) -> Result<Vec<Member>> {
    let packages = metadata["packages"].as_array().context("`packages` is a list")?;
    packages.iter().map(member).collect()
}

fn member(package: &Value) -> Result<Member> {
    let name = package["name"].as_str().context("a package has a name")?.to_owned();
    let features = package["features"].as_object().context("a package has features")?;
    let mut dependencies = Vec::new();
    for dependency in package["dependencies"].as_array().into_iter().flatten() {
        dependencies.push(Dependency {
            name: dependency["name"].as_str().context("a dependency has a name")?.to_owned(),
            kind: dependency["kind"].as_str().unwrap_or("normal").to_owned(),
            requirement: dependency["req"].as_str().unwrap_or("*").to_owned(),
            in_workspace: dependency["path"].is_string(),
        });
    }
    let mut binaries = Vec::new();
    for target in package["targets"].as_array().into_iter().flatten() {
        let kinds = target["kind"].as_array();
        if kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind == "bin")) {
            binaries.push(target["name"].as_str().context("a target has a name")?.to_owned());
        }
    }
    Ok(Member { name, features: features.keys().cloned().collect(), dependencies, binaries })
}

/// Edges between members that the design does not have.
pub(crate) fn edge_faults(members: &[Member]) -> Vec<String> {
    let mut faults = Vec::new();
    for member in members.iter().filter(|member| member.is_library()) {
        let Some((_, allowed)) = EDGES.iter().find(|(name, _)| *name == member.name) else {
            faults.push(format!(
                "{}: not in the crate graph; add it to xtask/src/graph.rs and ARCHITECTURE.md",
                member.name
            ));
            continue;
        };
        for dependency in member.dependencies.iter().filter(|dependency| dependency.in_workspace) {
            let for_tests = dependency.kind == "dev" && dependency.name == TESTKIT;
            if !for_tests && !allowed.contains(&dependency.name.as_str()) {
                faults.push(format!(
                    "{} must not depend on {} ({})",
                    member.name, dependency.name, dependency.kind
                ));
            }
        }
    }
    for member in members {
        for dependency in &member.dependencies {
            if dependency.name == TESTKIT && dependency.requirement != "*" {
                faults.push(format!(
                    "{} depends on {TESTKIT} with a version; a path alone is allowed",
                    member.name
                ));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Workspace;

    fn member(name: &str, dependencies: &[(&str, &str, &str)]) -> Member {
        Member {
            name: name.to_owned(),
            features: Vec::new(),
            binaries: Vec::new(),
            dependencies: dependencies
                .iter()
                .map(|(name, kind, requirement)| Dependency {
                    name: (*name).to_owned(),
                    kind: (*kind).to_owned(),
                    requirement: (*requirement).to_owned(),
                    in_workspace: name.starts_with("kinesis"),
                })
                .collect(),
        }
    }

    /// D-01: the members depend on each other as drawn, one way only.
    #[test]
    fn the_workspace_follows_the_crate_graph() {
        let metadata = Workspace::here().unwrap().metadata().unwrap();
        let members = members(&metadata).unwrap();
        assert!(members.iter().any(|member| member.name == "kinesis-core"));
        assert_eq!(edge_faults(&members), Vec::<String>::new());
    }

    #[test]
    fn an_edge_that_is_not_drawn_is_a_fault() {
        let members = [
            member("kinesis-lease", &[("kinesis-core", "normal", "^0.1.0"), ("tokio", "normal", "^1")]),
            member("kinesis-poll", &[("kinesis-lease", "dev", "^0.1.0")]),
        ];
        assert_eq!(edge_faults(&members), ["kinesis-poll must not depend on kinesis-lease (dev)"]);
    }

    #[test]
    fn the_testkit_is_for_tests_and_by_path_alone() {
        let members = [
            member("kinesis-poll", &[(TESTKIT, "dev", "*")]),
            member("kinesis-producer", &[(TESTKIT, "dev", "^0.1.0")]),
            member("kinesis-efo", &[(TESTKIT, "normal", "*")]),
            member("examples", &[(TESTKIT, "normal", "*")]),
        ];
        assert_eq!(
            edge_faults(&members),
            [
                "kinesis-efo must not depend on kinesis-testkit (normal)",
                "kinesis-producer depends on kinesis-testkit with a version; a path alone is allowed",
            ]
        );
    }

    #[test]
    fn a_crate_without_a_place_is_a_fault() {
        assert_eq!(
            edge_faults(&[member("kinesis-new", &[])]),
            ["kinesis-new: not in the crate graph; add it to xtask/src/graph.rs and ARCHITECTURE.md"]
        );
    }

    #[test]
    fn the_arrows_of_the_design_point_one_way() {
        // Kahn's algorithm: every crate can be built after what it depends on.
        let mut built: Vec<&str> = Vec::new();
        while let Some((name, _)) = EDGES
            .iter()
            .find(|(name, needs)| !built.contains(name) && needs.iter().all(|need| built.contains(need)))
        {
            built.push(name);
        }
        assert_eq!(built.len(), EDGES.len());
    }
}
