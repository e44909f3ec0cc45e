//! `examples`: runs each example and checks what it says. The quickstart runs as the README says, in release mode; the
//! others as the tests have built them, so that nothing is compiled a second time.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::postgres::Postgres;
use crate::process::Owned;
use crate::workspace::Workspace;
use crate::{args, cargo_test, graph, machine, process};

/// One run of an example.
struct Example {
    binary: &'static str,
    env: &'static [(&'static str, &'static str)],
    args: &'static [&'static str],
    limit: Duration,
    check: fn(&str) -> Result<()>,
}

impl Example {
    /// One that says at its end how many orders it has worked on.
    const fn served(binary: &'static str, args: &'static [&'static str]) -> Self {
        Self { binary, env: &[], args, limit: MINUTE, check: every_order }
    }

    const fn with(mut self, env: &'static [(&'static str, &'static str)]) -> Self {
        self.env = env;
        self
    }
}

/// Examples that bring their own Kinesis, in release mode.
const ALONE: &[Example] = &[
    Example {
        binary: "quickstart",
        env: &[],
        args: &[],
        limit: Duration::from_secs(120),
        check: nothing_lost,
    },
    Example {
        binary: "quickstart",
        env: &[],
        args: &["--kill-every", "2s"],
        limit: Duration::from_secs(180),
        check: nothing_lost,
    },
];

/// Examples that bring their own Kinesis and want a PostgreSQL.
const WITH_POSTGRES: &[Example] = &[Example {
    binary: "postgres-exactly-once",
    env: &[],
    args: &[],
    limit: Duration::from_secs(180),
    check: exactly_once,
}];

/// Examples that want an endpoint, in the order in which they run against one test server: the first makes the
/// stream and fills it, the others read it.
const SERVED: &[Example] = &[
    Example::served("producer", &[]),
    Example::served("basic-consumer", &["--until", "100"]),
    Example::served("efo-consumer", &["--until", "100"]),
    Example::served("multi-worker", &["--until", "100"]).with(&[("WORKER_ID", "worker-1")]),
    Example::served("dynamodb-leases", &["--until", "100"]).with(&[("WORKER_ID", "worker-1")]),
    Example::served("dynamodb-leases", &["--until", "100", "--application", "kcl-leases", "--kcl"])
        .with(&[("WORKER_ID", "worker-1")]),
    Example::served("custom-lease-store", &["--until", "100"]),
    // It has a stream of its own.
    Example::served("compressed-aggregated", &[]),
];

const MINUTE: Duration = Duration::from_secs(60);

/// How many orders the producer sends.
const ORDERS: u32 = 100;

/// The servers that they talk to: a program, and the variable that names its endpoint.
const SERVERS: &[(&str, &str)] =
    &[("kinesis-test-server", "AWS_ENDPOINT_URL"), ("local-dynamodb", "AWS_ENDPOINT_URL_DYNAMODB")];

pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    args::none(args)?;
    machine::ensure(&[&machine::C_COMPILER, &machine::POSTGRES, &machine::PGBOUNCER])?;
    let members = graph::members(&workspace.metadata()?)?;
    let package =
        members.iter().find(|member| member.name == "examples").context("the package `examples` exists")?;
    for binary in &package.binaries {
        ensure!(
            ALONE.iter().chain(WITH_POSTGRES).chain(SERVED).any(|example| example.binary == binary)
                || SERVERS.iter().any(|(server, _)| server == binary),
            "the example `{binary}` is not run by this task; add it to xtask/src/examples.rs"
        );
    }
    let mut quickstart = process::cargo(workspace.root());
    quickstart.args(["build", "--release", "--locked", "-p", "examples", "--bin", "quickstart"]);
    process::run(&mut quickstart)?;
    process::run(cargo_test::everything(workspace.root()).arg("--no-run"))?;
    // Lease files of a run before would be about a stream that is gone.
    let scratch = workspace.target()?.join("examples");
    if scratch.exists() {
        std::fs::remove_dir_all(&scratch).with_context(|| format!("emptying {}", scratch.display()))?;
    }
    std::fs::create_dir_all(&scratch).with_context(|| format!("creating {}", scratch.display()))?;
    let released = Place { programs: workspace.target()?.join("release"), scratch: scratch.clone() };
    for example in ALONE {
        released.run(example, |_| ())?;
    }
    let place = Place { programs: workspace.target()?.join("debug"), scratch };
    {
        // It is stopped at the end of this block, or when an example fails.
        let postgres = Postgres::start()?;
        for example in WITH_POSTGRES {
            place.run(example, |command| postgres.tell(command))?;
        }
    }
    let servers = SERVERS.iter().map(|(server, _)| place.serve(server)).collect::<Result<Vec<_>>>()?;
    let endpoints: Vec<(&str, &str)> = SERVERS
        .iter()
        .zip(&servers)
        .map(|((_, variable), (endpoint, _))| (*variable, endpoint.as_str()))
        .collect();
    for example in SERVED {
        place.run(example, |command| {
            command.envs(endpoints.iter().copied());
        })?;
    }
    Ok(())
}

/// Where the programs are, and where they may leave files.
struct Place {
    programs: PathBuf,
    scratch: PathBuf,
}

impl Place {
    /// Runs an example and checks what it says; `tell` tells it where its servers are.
    fn run(&self, example: &Example, tell: impl FnOnce(&mut Command)) -> Result<()> {
        let started = Instant::now();
        let mut command = Command::new(self.programs.join(example.binary));
        command.args(example.args).envs(example.env.iter().copied()).current_dir(&self.scratch);
        tell(&mut command);
        let output = process::capture_within(&mut command, example.limit, &self.scratch.join("output"))?;
        println!("{}", last_line(&output).unwrap_or_default());
        (example.check)(&output).with_context(|| format!("checking `{}`", process::shown(&command)))?;
        println!("{}: right in {:.1} s", example.binary, started.elapsed().as_secs_f64());
        Ok(())
    }

    /// Starts a server and gives its endpoint; it ends with its owner.
    fn serve(&self, name: &str) -> Result<(String, Owned)> {
        let log = self.scratch.join(format!("{name}.log"));
        let mut server = Owned::service(Command::new(self.programs.join(name)).args(["--port", "0"]), &log)?;
        let mut endpoint = None;
        server
            .wait_until(MINUTE, || {
                endpoint = listening(&log);
                endpoint.is_some()
            })
            .with_context(|| format!("starting {name}; its log is {}", log.display()))?;
        Ok((endpoint.context("it was waited for")?, server))
    }
}

/// The URL that the server names once it is ready.
fn listening(log: &Path) -> Option<String> {
    let text = std::fs::read_to_string(log).ok()?;
    let (line, _) = text.split_once('\n')?;
    line.strip_prefix("listening on ").map(str::to_owned)
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

/// The last line is JSON that reports records, each processed once and once only, through crashes.
fn exactly_once(output: &str) -> Result<()> {
    let line = last_line(output).context("the example printed nothing")?;
    let report: Value = serde_json::from_str(line).context("the last line is not JSON")?;
    let count = |name: &str| report[name].as_i64().with_context(|| format!("no count `{name}`"));
    let (produced, processed) = (count("produced")?, count("processed")?);
    ensure!(produced > 0, "nothing was produced");
    ensure!(produced == processed, "{produced} produced but {processed} processed");
    ensure!(count("killed")? > 0, "no worker was killed");
    for name in ["duplicates", "lost", "off_by"] {
        let number = count(name)?;
        ensure!(number == 0, "{name} = {number}");
    }
    Ok(())
}

/// The text names every order, from the first to the last.
fn every_order(output: &str) -> Result<()> {
    let found: BTreeSet<u32> = output.lines().filter_map(order).collect();
    let missing: Vec<u32> = (1..=ORDERS).filter(|number| !found.contains(number)).collect();
    ensure!(missing.is_empty(), "orders without a line: {missing:?}");
    Ok(())
}

/// The number in `... order 7: ...`.
fn order(line: &str) -> Option<u32> {
    let (_, rest) = line.split_once("order ")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
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

    #[test]
    fn effects_are_exactly_once_only_without_a_duplicate() {
        let said = |duplicates: i64, off_by: i64, killed: u32| {
            let report = format!(
                r#"{{"produced":5,"processed":5,"lost":0,"duplicates":{duplicates},"off_by":{off_by},"killed":{killed}}}"#
            );
            exactly_once(&report).map_or_else(|error| error.to_string(), |()| "right".to_owned())
        };
        assert_eq!(said(0, 0, 2), "right");
        assert_eq!(said(1, 0, 2), "duplicates = 1");
        assert_eq!(said(0, -7, 2), "off_by = -7");
        assert_eq!(said(0, 0, 0), "no worker was killed");
    }

    /// S-228: a consumer's example is right only when it had every record.
    #[test]
    fn every_order_needs_a_line() {
        let lines = |orders: std::ops::RangeInclusive<u32>| -> String {
            orders.map(|number| format!("worker-1 has order {number}: 4959\n")).collect()
        };
        every_order(&lines(1..=100)).unwrap();
        every_order(&format!("{}{}", lines(1..=50), lines(40..=100))).unwrap();
        let error = every_order(&lines(2..=99)).expect_err("two are missing");
        assert_eq!(error.to_string(), "orders without a line: [1, 100]");
    }

    #[test]
    fn the_server_says_where_it_listens() {
        let log = std::env::temp_dir().join(format!("xtask-examples-{}", std::process::id()));
        std::fs::write(&log, "listening on http://127.0.0.1:1").unwrap();
        assert_eq!(listening(&log), None, "the line is not complete");
        std::fs::write(&log, "listening on http://127.0.0.1:12345\n").unwrap();
        assert_eq!(listening(&log).as_deref(), Some("http://127.0.0.1:12345"));
        std::fs::remove_file(log).unwrap();
    }
}
