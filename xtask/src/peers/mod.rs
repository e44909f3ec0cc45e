//! `peers`: the tests against servers and clients that were not written here.
//!
//! Everything is installed below `target/peers` from pinned lists in `xtask/peers`, command-line tools from
//! the system's packages. The tests are those that are ignored because they need peers. They find these on
//! the PATH and in the environment:
//!
//! - `KINESIS_LOCAL_ENDPOINT`: the plain HTTP endpoint of npm's `kinesis-local`. When it is set before the
//!   task starts, that server is used and none is started.
//! - `MINISTACK_ENDPOINT`: the same of PyPI's `ministack`.
//! - `PEERS_PYTHON`: a Python interpreter that has boto3, aws-kinesis-agg and aiokpl (its codec only).
//! - `PEERS_NODE_MODULES`: the folder of the npm packages.
//! - `PEERS_JAVA_LIBRARIES`: the folder of the Java packages.
//! - `PEERS_KCL_LIBRARIES`, `PEERS_KCL_3_LIBRARIES`: the folders of the Kinesis Client Library 2 and 3 and what each
//!   needs.
//! - `PEERS_GO`: the `go` command. Go's packages are pinned beside the programs that use them.

mod install;
mod servers;

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use install::folder;
pub(crate) use install::install;
use servers::Server;

use crate::machine::{self, direct_loopback};
use crate::workspace::Workspace;
use crate::{annotations, args, cargo_test, services};

/// The versions of the Kinesis Client Library: variable, list and folder of each.
const KCL: [(&str, &str, &str); 2] =
    [("PEERS_KCL_LIBRARIES", "kcl-2.xml", "kcl-2"), ("PEERS_KCL_3_LIBRARIES", "kcl-3.xml", "kcl-3")];

/// The test target of `interop-kcl`.
const INTEROP: &str = "peers_kcl";

/// `interop-kcl`: workers of the Kinesis Client Library in Java and of this library over one table; a part of `peers`.
pub(crate) fn interop_kcl(workspace: &Workspace, args: &[String]) -> Result<()> {
    args::none(args)?;
    let folder = folder(workspace)?;
    let mut cargo = cargo_test::everything(workspace.root());
    cargo.args(["--test", INTEROP, "--", "--ignored"]);
    install_kcl(workspace, &folder, &mut cargo)?;
    cargo_test::run(direct_loopback(&mut cargo))?.show();
    Ok(())
}

/// Installs each version of the Kinesis Client Library and tells the tests where.
fn install_kcl(workspace: &Workspace, folder: &Path, cargo: &mut Command) -> Result<()> {
    for (variable, list, name) in KCL {
        cargo.env(variable, install::install_java_packages(workspace, folder, list, name)?);
    }
    Ok(())
}

pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    args::none(args)?;
    let plan = services::plan(&annotations::tests(workspace)?);
    if plan.peers.is_empty() {
        bail!("no test needs peers");
    }
    machine::ensure(&[&machine::C_COMPILER, &machine::COMPRESSORS, &machine::GO])?;
    let folder = install(workspace)?;
    let java = install::install_java_packages(workspace, &folder, "pom.xml", "java")?;
    let ministack = install::install_ministack(workspace, &folder)?;

    // The servers are stopped when these go out of scope, however the tests end.
    let kinesis_local = Server::kinesis_local(&folder)?;
    let ministack = Server::ministack(&ministack, &folder)?;
    let mut cargo = cargo_test::everything(workspace.root());
    for target in plan.peers.keys() {
        cargo.args(["--test", target]);
    }
    cargo.args(["--", "--ignored"]);
    for server in [&kinesis_local, &ministack] {
        cargo.env(server.variable, &server.endpoint);
    }
    cargo.env("PEERS_PYTHON", folder.join("venv/bin/python"));
    cargo.env("PEERS_NODE_MODULES", folder.join("node_modules"));
    cargo.env("PEERS_JAVA_LIBRARIES", java);
    install_kcl(workspace, &folder, &mut cargo)?;
    cargo.env("PEERS_GO", "go");
    let totals = cargo_test::run(direct_loopback(&mut cargo))?;
    totals.show();
    let planned: usize = plan.peers.values().map(Vec::len).sum();
    if totals.passed != planned as u64 {
        bail!("{planned} tests need peers but {} ran", totals.passed);
    }
    Ok(())
}
