//! `examples`: runs each example in release mode and checks what it says.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::workspace::Workspace;
use crate::{args, graph, machine, process};

/// One run of an example.
struct Example {
    binary: &'static str,
    args: &'static [&'static str],
    limit: Duration,
    check: fn(&str) -> Result<()>,
}

const EXAMPLES: &[Example] = &[
    Example { binary: "quickstart", args: &[], limit: Duration::from_secs(120), check: nothing_lost },
    Example {
        binary: "quickstart",
        args: &["--kill-every", "2s"],
        limit: Duration::from_secs(180),
        check: nothing_lost,
    },
];

pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    args::none(args)?;
    machine::ensure(&[&machine::C_COMPILER])?;
    let members = graph::members(&workspace.metadata()?)?;
    let package =
        members.iter().find(|member| member.name == "examples").context("the package `examples` exists")?;
    for binary in &package.binaries {
        ensure!(
            EXAMPLES.iter().any(|example| example.binary == binary),
            "the example `{binary}` is not run by this task; add it to xtask/src/examples.rs"
        );
    }
    process::run(process::cargo(workspace.root()).args([
        "build",
        "--release",
        "--locked",
        "-p",
        "examples",
    ]))?;
    let target = workspace.target()?;
    for example in EXAMPLES {
        let started = Instant::now();
        let mut command = std::process::Command::new(target.join("release").join(example.binary));
        command.args(example.args).current_dir(workspace.root());
        let output = process::capture_within(&mut command, example.limit, &target.join("example.out"))?;
        let shown = last_line(&output).unwrap_or_default();
        println!("{shown}");
        (example.check)(&output).with_context(|| format!("checking `{}`", process::shown(&command)))?;
        println!("{}: right in {:.1} s", example.binary, started.elapsed().as_secs_f64());
    }
    Ok(())
}

fn last_line(output: &str) -> Option<&str> {
    output.lines().rev().find(|line| !line.trim().is_empty())
}

/// The last line is JSON that reports records, all of them processed and in order.
fn nothing_lost(output: &str) -> Result<()> {
    let line = last_line(output).context("the example printed nothing")?;
    let report: Value = serde_json::from_str(line).context("the last line is not JSON")?;
    let count = |name: &str| report[name].as_u64().with_context(|| format!("no count `{name}`"));
    let (produced, processed) = (count("produced")?, count("processed")?);
    ensure!(produced > 0, "nothing was produced");
    ensure!(produced == processed, "{produced} produced but {processed} processed");
    for name in ["lost", "key_order_violations"] {
        let number = count(name)?;
        if number != 0 {
            bail!("{name} = {number}");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(report: &str) -> String {
        match nothing_lost(&format!("a table\n{report}\n\n")) {
            Ok(()) => "right".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_report_is_right_only_when_every_record_arrived_in_order() {
        let report = |produced, processed, lost, order| {
            format!(
                r#"{{"produced":{produced},"processed":{processed},"lost":{lost},"key_order_violations":{order}}}"#
            )
        };
        assert_eq!(said(&report(5, 5, 0, 0)), "right");
        assert_eq!(said(&report(0, 0, 0, 0)), "nothing was produced");
        assert_eq!(said(&report(5, 4, 0, 0)), "5 produced but 4 processed");
        assert_eq!(said(&report(5, 5, 1, 0)), "lost = 1");
        assert_eq!(said(&report(5, 5, 0, 2)), "key_order_violations = 2");
        assert_eq!(said(r#"{"produced":5,"processed":5}"#), "no count `lost`");
        assert_eq!(said("done"), "the last line is not JSON");
        assert_eq!(nothing_lost("").unwrap_err().to_string(), "the example printed nothing");
    }
}
