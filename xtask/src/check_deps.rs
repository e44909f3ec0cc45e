//! `check-deps`: what depends on what, and what users of the crates get to see of it.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use crate::graph::{self, Member, TESTKIT};
use crate::workspace::Workspace;
use crate::{args, process, public_api};

/// Crates that must not be in the tree at all, below this version where one is given.
///
/// The SDK's default features bring a second HTTP and TLS stack of old versions; OpenSSL would need a
/// system library; the Java bridges would make this no native library.
const FORBIDDEN: &[(&str, Option<&str>)] = &[
    ("h2", Some("0.4")),
    ("hyper", Some("1")),
    ("hyper-rustls", Some("0.27")),
    ("j4rs", None),
    ("jni", None),
    ("native-tls", None),
    ("openssl-sys", None),
    ("rustls", Some("0.22")),
];

/// What a library must not bring without its default features: the HTTP and TLS stack is the user's choice.
const HTTP_AND_TLS: &[&str] = &[
    "aws-lc-rs",
    "aws-lc-sys",
    "h2",
    "hyper",
    "hyper-rustls",
    "native-tls",
    "openssl",
    "openssl-sys",
    "ring",
    "rustls",
    "s2n-tls",
];

/// Features whose purpose is to bring an HTTPS client.
const HTTPS_FEATURES: &[&str] = &["aws-config", "default", "default-https-client"];

/// What a crate must not depend on with its default features.
const NEVER: &[(&str, &[&str])] = &[
    ("kinesis-compress", &["tokio"]),
    ("kinesis-core", &["aws-sdk-kinesis", "aws-types", "tokio"]),
    ("kinesis-kpl", &["tokio"]),
];

pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    args::none(args)?;
    check(workspace)
}

/// Fails with every fault of the dependencies.
pub(crate) fn check(workspace: &Workspace) -> Result<()> {
    let members = graph::members(&workspace.metadata()?)?;
    let mut faults = graph::edge_faults(&members);
    let features = ["--workspace", "--edges", "normal,build,dev"];
    faults.extend(sdk_features(
        &tree(workspace, "{p} [{f}]", &features)?,
        &tree(workspace, "{p} [{f}]", &[&features[..], &["--all-features"]].concat())?,
    ));
    let everything = ["--workspace", "--all-features", "--target", "all"];
    faults.extend(forbidden(&brought(workspace, &everything)?));
    for member in members.iter().filter(|member| member.is_library()) {
        faults.extend(tree_faults(workspace, member)?);
    }
    faults.extend(public_api::faults(workspace, &members)?);
    if !faults.is_empty() {
        bail!("{} faults\n  {}", faults.len(), faults.join("\n  "));
    }
    println!("check-deps: {} members are as drawn", members.len());
    Ok(())
}

/// SDK crates whose features differ between a plain build of the workspace and one with all features.
///
/// The stages build with all features, people mostly without. A second feature set of the SDK costs minutes. A crate
/// that the plain build does not have is built once anyway.
fn sdk_features(plain: &str, all: &str) -> Vec<String> {
    let sdk = |tree: &str| -> BTreeSet<String> {
        let lines = tree.lines().filter(|line| line.starts_with("aws-"));
        lines.map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
    };
    let plain = sdk(plain);
    let package = |line: &str| line.split(" [").next().unwrap_or_default().to_owned();
    let built: BTreeSet<String> = plain.iter().map(|line| package(line)).collect();
    sdk(all)
        .difference(&plain)
        .filter(|line| built.contains(&package(line)))
        .map(|line| format!("another feature set with all features: {line}"))
        .collect()
}

/// The lines of a `cargo tree` in the format.
fn tree(workspace: &Workspace, format: &str, selection: &[&str]) -> Result<String> {
    let mut cargo = process::cargo(workspace.root());
    cargo.args(["tree", "--locked", "--prefix", "none", "--format", format]);
    process::capture(cargo.args(selection))
}

/// The packages of a `cargo tree` without what only tests need, each as its name and version.
fn brought(workspace: &Workspace, selection: &[&str]) -> Result<BTreeSet<(String, String)>> {
    let edges = ["--edges", "normal,build"];
    Ok(packages(&tree(workspace, "{p}", &[&edges, selection].concat())?))
}

/// Reads lines like `hyper v1.12.0 (*)`.
fn packages(tree: &str) -> BTreeSet<(String, String)> {
    let package = |line: &str| {
        let mut words = line.split_whitespace();
        let name = words.next()?;
        let version = words.next()?.strip_prefix('v')?;
        Some((name.to_owned(), version.to_owned()))
    };
    tree.lines().filter_map(package).collect()
}

fn forbidden(packages: &BTreeSet<(String, String)>) -> Vec<String> {
    let is_forbidden = |name: &str, version: &str| {
        FORBIDDEN.iter().any(|(forbidden, below)| {
            *forbidden == name && below.is_none_or(|below| numbers(version) < numbers(below))
        })
    };
    packages
        .iter()
        .filter(|(name, version)| is_forbidden(name, version))
        .map(|(name, version)| {
            format!("{name} {version} is in the tree; `cargo tree -i {name}@{version}` says why")
        })
        .collect()
}

/// The leading numbers of a version, for comparison.
fn numbers(version: &str) -> Vec<u64> {
    version.split('.').map_while(|part| part.parse().ok()).collect()
}

/// What one library brings: by default, with no feature, and with each feature alone.
fn tree_faults(workspace: &Workspace, member: &Member) -> Result<Vec<String>> {
    let name = member.name.as_str();
    let mut faults = Vec::new();
    let by_default = brought(workspace, &["-p", name])?;
    for (_, never) in NEVER.iter().filter(|(crate_name, _)| *crate_name == name) {
        for bad in present(&by_default, never) {
            faults.push(format!("{name} depends on {bad} by default"));
        }
    }
    // The testkit is a server.
    if name == TESTKIT {
        return Ok(faults);
    }
    for bad in present(&brought(workspace, &["-p", name, "--no-default-features"])?, HTTP_AND_TLS) {
        faults.push(format!("{name} brings {bad} without default features"));
    }
    for feature in member.features.iter().filter(|feature| !HTTPS_FEATURES.contains(&feature.as_str())) {
        let selection = ["-p", name, "--no-default-features", "--features", feature];
        for bad in present(&brought(workspace, &selection)?, HTTP_AND_TLS) {
            faults.push(format!("{name} brings {bad} with the feature `{feature}` alone"));
        }
    }
    Ok(faults)
}

fn present<'a>(packages: &BTreeSet<(String, String)>, names: &[&'a str]) -> Vec<&'a str> {
    names.iter().filter(|name| packages.iter().any(|(package, _)| package == *name)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "kinesis-core v0.1.0 (/somewhere)\nhyper v0.14.32\nhyper v1.12.0\nrustls v0.23.9 (*)\n\n\
                        rustls v0.21.12\nopenssl-sys v0.9.1\nh2 v0.4.12\n";

    #[test]
    fn old_stacks_are_told_from_current_ones() {
        assert_eq!(
            forbidden(&packages(TREE)),
            [
                "hyper 0.14.32 is in the tree; `cargo tree -i hyper@0.14.32` says why",
                "openssl-sys 0.9.1 is in the tree; `cargo tree -i openssl-sys@0.9.1` says why",
                "rustls 0.21.12 is in the tree; `cargo tree -i rustls@0.21.12` says why",
            ]
        );
    }

    #[test]
    fn packages_are_found_by_name() {
        assert_eq!(present(&packages(TREE), HTTP_AND_TLS), ["h2", "hyper", "openssl-sys", "rustls"]);
        assert_eq!(present(&packages("bytes v1.0.0\n"), HTTP_AND_TLS), Vec::<&str>::new());
    }

    #[test]
    fn a_second_feature_set_of_the_sdk_is_a_fault() {
        let plain = "aws-sdk-kinesis v1.0.0 [rt-tokio]\naws-types v1.0.0 []\nkinesis-core v0.1.0 []\n";
        let all = "aws-sdk-kinesis v1.0.0 [rt-tokio] (*)\naws-types v1.0.0 [x]\naws-sdk-dynamodb v1.0.0 []\n\
                   kinesis-core v0.1.0 [aws]\n";
        assert_eq!(sdk_features(plain, all), ["another feature set with all features: aws-types v1.0.0 [x]"]);
        assert_eq!(sdk_features(all, all), Vec::<String>::new());
    }

    /// S-001: no Java bridge, and no second HTTP or TLS stack, is in the tree with any feature.
    #[test]
    fn the_workspace_has_one_native_stack() {
        let workspace = Workspace::here().unwrap();
        let everything = ["--workspace", "--all-features", "--target", "all"];
        let packages = brought(&workspace, &everything).unwrap();
        assert!(present(&packages, &["hyper"]).contains(&"hyper"), "the tree was read");
        assert_eq!(forbidden(&packages), Vec::<String>::new());
    }
}
