//! `bench`: measurements that are published.
//!
//! - `bench formats`: the speed of the format crates, each against a plain call of what it builds on and against the
//!   other implementations, in one run.
//! - `bench read`: what reading costs, against a plain loop over the SDK.
//! - `bench testkit`: the speed and the memory of the test service.
//!
//! Each prints one JSON line for each row and writes its page below `docs/benchmarks`.

mod formats;
mod machine;
mod plot;
mod read;
mod report;
mod testkit;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::workspace::Workspace;
use crate::{peers, process};

const QUICK: &str = "--quick";
const FORMATS_REPORT: &str = "docs/benchmarks/formats.md";
const TESTKIT_REPORT: &str = "docs/benchmarks/testkit.md";

/// One measurement. Unknown fields of the line are kept for printing.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    name: String,
    mb_per_s: f64,
    records_per_s: f64,
    /// The speed compared with that of `against`.
    ratio: Option<f64>,
    against: Option<String>,
    /// How many times smaller a codec makes the payload.
    shrink: Option<f64>,
    /// The most memory that the process held, in MB.
    peak_mb: Option<f64>,
}

impl Row {
    fn parse(line: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(line).with_context(|| format!("not a row: {line}"))?;
        let number = |field: &str| value[field].as_f64().with_context(|| format!("no {field} in {line}"));
        Ok(Self {
            name: value["name"].as_str().with_context(|| format!("no name in {line}"))?.to_owned(),
            mb_per_s: number("mb_per_s")?,
            records_per_s: number("records_per_s")?,
            ratio: value["ratio"].as_f64(),
            against: value["against"].as_str().map(str::to_owned),
            shrink: value["shrink"].as_f64(),
            peak_mb: value["peak_mb"].as_f64(),
        })
    }

    fn to_json(&self) -> Value {
        let rounded = |number: f64, digits: i32| (number * 10_f64.powi(digits)).round() / 10_f64.powi(digits);
        let mut value = serde_json::json!({
            "name": self.name,
            "mb_per_s": rounded(self.mb_per_s, 1),
            "records_per_s": self.records_per_s.round(),
            "ratio": self.ratio.map(|ratio| rounded(ratio, 3)),
            "against": self.against,
        });
        if let Some(shrink) = self.shrink {
            value["shrink"] = rounded(shrink, 2).into();
        }
        if let Some(peak) = self.peak_mb {
            value["peak_mb"] = peak.round().into();
        }
        value
    }
}

pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    match arguments(args)? {
        (Subject::Formats, quick) => formats(workspace, quick),
        (Subject::Read, quick) => read::run(workspace, quick),
        (Subject::Testkit, quick) => {
            let all = rows(&mut bench(workspace, "kinesis-testkit", &[], quick))?;
            publish(workspace, &all, TESTKIT_REPORT, &testkit::text(&all, &machine::describe(), quick))
        }
    }
}

fn formats(workspace: &Workspace, quick: bool) -> Result<()> {
    let folder = peers::install(workspace)?;
    let mut node = Command::new("node");
    node.arg(workspace.root().join("xtask/peers/bench_formats.js"))
        .env("NODE_PATH", folder.join("node_modules"));
    let mut python = Command::new(folder.join("venv/bin/python"));
    python.arg(workspace.root().join("xtask/peers/bench_formats.py"));
    for command in [&mut node, &mut python] {
        command.args(quick.then_some(QUICK));
    }

    // The peers run before and after our own turns, and their best counts: a busy moment is not to our favour.
    let mut foreign = vec![(formats::NODE, rows(&mut node)?), (formats::PYTHON, rows(&mut python)?)];
    let mut own = rows(&mut bench(workspace, "kinesis-kpl", &[], quick))?;
    // Only what the feature changes; its ratios are of its own run.
    let with_vectors = rows(&mut bench(workspace, "kinesis-kpl", &["--features", "simd"], quick))?;
    own.extend(with_vectors.into_iter().filter(|row| row.name.ends_with("_simd")));
    for (peer, command) in foreign.iter_mut().zip([&mut node, &mut python]) {
        formats::keep_best(&mut peer.1, rows(command)?);
    }
    own.extend(rows(&mut bench(workspace, "kinesis-compress", &[], quick))?);
    let all = formats::with_peers(own, &foreign);
    publish(workspace, &all, FORMATS_REPORT, &report::text(&all, &machine::describe(), quick))
}

/// Prints the rows and writes their page.
fn publish(workspace: &Workspace, all: &[Row], page: &str, text: &str) -> Result<()> {
    check_names(all)?;
    for row in all {
        println!("{}", row.to_json());
    }
    let path = workspace.root().join(page);
    fs::create_dir_all(path.parent().context("the page lies in a folder")?)?;
    fs::write(&path, text).with_context(|| format!("writing {page}"))
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject {
    Formats,
    Read,
    Testkit,
}

/// What is to be measured, and whether quickly.
fn arguments(args: &[String]) -> Result<(Subject, bool)> {
    let quick = args.iter().any(|arg| arg == QUICK);
    let subjects: Vec<&str> = args.iter().map(String::as_str).filter(|arg| *arg != QUICK).collect();
    match subjects.as_slice() {
        ["formats"] => Ok((Subject::Formats, quick)),
        ["read"] => Ok((Subject::Read, quick)),
        ["testkit"] => Ok((Subject::Testkit, quick)),
        _ => bail!("say `cargo xtask bench formats|read|testkit [{QUICK}]`"),
    }
}

/// The crate's benchmark, told to print rows; with the features of that crate alone.
fn bench(workspace: &Workspace, package: &str, features: &[&str], quick: bool) -> Command {
    let mut cargo = process::cargo(workspace.root());
    cargo.args(["bench", "--quiet", "--locked", "--package", package]).args(features);
    cargo.args(["--benches", "--", "--rows"]);
    cargo.args(quick.then_some(QUICK));
    cargo
}

/// The rows that a command prints.
fn rows(command: &mut Command) -> Result<Vec<Row>> {
    eprintln!("$ {}", process::shown(command));
    let text = process::capture(command)?;
    text.lines().filter(|line| line.starts_with('{')).map(Row::parse).collect()
}

fn check_names(rows: &[Row]) -> Result<()> {
    let mut seen = BTreeSet::new();
    match rows.iter().find(|row| !seen.insert(&row.name)) {
        None => Ok(()),
        Some(row) => bail!("two rows are called {}", row.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_read_and_written() {
        let line = r#"{"against":"md5","mb_per_s":700.04,"name":"x","ratio":0.9514,"records_per_s":10.4}"#;
        let row = Row::parse(line).unwrap();
        assert_eq!(row.against.as_deref(), Some("md5"));
        let json = row.to_json();
        assert_eq!(json["mb_per_s"], 700.0);
        assert_eq!(json["ratio"], 0.951);
        assert_eq!(json["records_per_s"], 10.0);
        assert!(json.get("shrink").is_none());
        assert!(json.get("peak_mb").is_none());
        let line = r#"{"mb_per_s":1,"name":"x","peak_mb":61,"records_per_s":1}"#;
        assert_eq!(Row::parse(line).unwrap().to_json()["peak_mb"], 61.0);
        assert!(Row::parse(r#"{"name":"x"}"#).is_err());
    }

    #[test]
    fn formats_and_the_testkit_can_be_measured() {
        let owned = |args: &[&str]| args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>();
        assert_eq!(arguments(&owned(&["formats"])).unwrap(), (Subject::Formats, false));
        assert_eq!(arguments(&owned(&[QUICK, "formats"])).unwrap(), (Subject::Formats, true));
        assert_eq!(arguments(&owned(&["read"])).unwrap(), (Subject::Read, false));
        assert_eq!(arguments(&owned(&["testkit", QUICK])).unwrap(), (Subject::Testkit, true));
        assert!(arguments(&owned(&["testkit", "formats"])).is_err());
        assert!(arguments(&owned(&[])).is_err());
        assert!(arguments(&owned(&["other"])).is_err());
    }
}
