//! `test`: everything that Rust alone can check.

use std::path::Path;

use anyhow::{Result, bail};

use crate::postgres::Postgres;
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
    machine::ensure(&[&machine::C_COMPILER, &machine::POSTGRES, &machine::PGBOUNCER])?;
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
    let mut totals = cargo_test::run(&mut cargo_test::everything(root))?;
    sim::budget(workspace)?;

    let plan = services::plan(&annotations::tests(workspace)?);
    if !plan.faults.is_empty() {
        bail!("tests that no stage runs:\n  {}", plan.faults.join("\n  "));
    }
    for (target, names) in &plan.peers {
        println!("left to `cargo xtask peers`: {target}: {}", names.join(", "));
    }
    // Some are left out of the first run, and run in the second.
    let ran = with_postgres(root, &plan)?;
    totals.passed += ran.passed;
    totals.ignored = totals.ignored.saturating_sub(ran.passed);
    totals.show();
    Ok(())
}

/// Runs the tests that need PostgreSQL.
fn with_postgres(root: &Path, plan: &services::Plan) -> Result<cargo_test::Totals> {
    if plan.postgres.is_empty() {
        return Ok(cargo_test::Totals::default());
    }
    // It is stopped when it goes out of scope, however the tests end.
    let postgres = Postgres::start()?;
    let mut cargo = cargo_test::everything(root);
    for target in plan.postgres.keys() {
        cargo.args(["--test", target]);
    }
    cargo.args(["--", "--ignored"]);
    postgres.tell(&mut cargo);
    let totals = cargo_test::run(&mut cargo)?;
    // Those that a macro makes are not counted in the plan.
    let planned: usize = plan.postgres.values().map(Vec::len).sum();
    if totals.passed < planned as u64 {
        bail!("{planned} tests need postgres but {} ran", totals.passed);
    }
    Ok(totals)
}
