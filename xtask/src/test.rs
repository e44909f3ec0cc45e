//! `test`: everything that Rust alone can check.

use anyhow::{Result, bail};

use crate::workspace::Workspace;
use crate::{
    annotations, args, cargo_test, check_deps, docs, lint, machine, process, requirements, services, sim,
    tidy,
};

pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    args::none(args)?;
    let root = workspace.root();
    // First what fails fast: the machine, then what needs no build.
    machine::components(root)?;
    machine::ensure(&[&machine::C_COMPILER, &machine::POSTGRES])?;
    lint::format(workspace, lint::Mode::Check)?;
    tidy::check(workspace)?;
    requirements::check(workspace)?;
    docs::check(workspace)?;
    check_deps::check(workspace)?;
    lint::clippy(workspace, lint::Mode::Check)?;
    process::run(
        process::cargo(root)
            .args(["doc", "--workspace", "--all-features", "--no-deps", "--locked"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    let totals = cargo_test::run(&mut cargo_test::everything(root))?;
    sim::budget(workspace)?;

    let plan = services::plan(&annotations::tests(workspace)?);
    if !plan.faults.is_empty() {
        bail!("tests that no stage runs:\n  {}", plan.faults.join("\n  "));
    }
    for (target, names) in &plan.peers {
        println!("left to `cargo xtask peers`: {target}: {}", names.join(", "));
    }
    totals.show();
    Ok(())
}
