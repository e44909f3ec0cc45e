//! The development tasks of this workspace. `cargo xtask --help` lists them.
//!
//! Each task is one module; [`TASKS`] is the only place that names them all.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a task speaks to the person or the CI that started it"
)]

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

mod annotations;
mod args;
mod bench;
mod cargo_test;
mod check_deps;
mod ci;
mod coverage;
mod deny;
mod docs;
mod examples;
mod features;
mod fuzz;
mod graph;
mod lint;
mod machine;
mod manifest;
mod peers;
mod postgres;
mod process;
mod public_api;
mod requirements;
mod run;
mod services;
mod sim;
mod soak;
mod source;
mod test;
mod tidy;
mod vectors;
mod workspace;

use workspace::Workspace;

/// One subcommand.
struct Task {
    name: &'static str,
    /// What may follow the name, as shown in the help.
    usage: &'static str,
    about: &'static str,
    run: fn(&Workspace, &[String]) -> Result<()>,
}

const TASKS: &[Task] = &[
    Task {
        name: "bench",
        usage: "formats|read|testkit [--quick]",
        about: "Measure the format crates, reading, or the test service, and write its page",
        run: bench::run,
    },
    Task { name: "build", usage: "", about: "Compile every crate, test and example", run: run::build },
    Task {
        name: "check-deps",
        usage: "",
        about: "Check the crate graph, forbidden crates, features and public dependencies",
        run: check_deps::run,
    },
    Task {
        name: "ci",
        usage: "",
        about: "test, deny, peers and examples, with the wall time of each",
        run: ci::run,
    },
    Task {
        name: "coverage",
        usage: "[--html]",
        about: "Line coverage of the tests; fails below 80 %",
        run: coverage::run,
    },
    Task {
        name: "deny",
        usage: "",
        about: "Licences, sources, bans and duplicate versions of all dependencies",
        run: deny::run,
    },
    Task {
        name: "docs",
        usage: "[--check]",
        about: "Write docs/options.md from the configuration types, or check it",
        run: docs::run,
    },
    Task {
        name: "emulator",
        usage: "[-- ARGS]",
        about: "Serve the embedded Kinesis on loopback until interrupted",
        run: run::emulator,
    },
    Task {
        name: "example",
        usage: "NAME [-- ARGS]",
        about: "Run one example in release mode",
        run: run::example,
    },
    Task { name: "examples", usage: "", about: "Run every example and check its result", run: examples::run },
    Task {
        name: "features",
        usage: "[--all]",
        about: "Check each feature alone: of SDK-free crates, or (--all) of every crate",
        run: features::run,
    },
    Task {
        name: "fuzz",
        usage: "[TARGET] [--seconds N]",
        about: "Fuzz one decoder, or each in turn, with libFuzzer",
        run: fuzz::run,
    },
    Task {
        name: "integration",
        usage: "consumer|e2e|lease|producer",
        about: "Run the tests of one suite",
        run: run::integration,
    },
    Task {
        name: "interop-kcl",
        usage: "",
        about: "Run workers of the KCL in Java and of this library over one table",
        run: peers::interop_kcl,
    },
    Task {
        name: "lint",
        usage: "[--fix]",
        about: "Formatting and clippy; --fix repairs what they can",
        run: lint::run,
    },
    Task {
        name: "peers",
        usage: "",
        about: "Run the tests against servers and clients not written here",
        run: peers::run,
    },
    Task {
        name: "requirements",
        usage: "[--suggest|--write]",
        about: "Check docs/requirements.md, or map its numbers to the tests that name them",
        run: requirements::run,
    },
    Task {
        name: "sim",
        usage: "[--seeds N|--seed S --trace|--mutants]",
        about: "Simulate fleets of lease workers, or see whether known faults are found",
        run: sim::run,
    },
    Task {
        name: "soak",
        usage: "[--hours N] [--source poll|efo]",
        about: "A day of virtual life under faults, over both ways to read: no loss, no growth",
        run: soak::run,
    },
    Task {
        name: "test",
        usage: "",
        about: "Formatting, clippy, guards, docs and every Rust test",
        run: test::run,
    },
    Task {
        name: "tidy",
        usage: "",
        about: "House rules: module length, printing, debug output, manifests",
        run: tidy::run,
    },
    Task {
        name: "vectors",
        usage: "DIR [--strict]",
        about: "Check every vector below a folder against the format crates",
        run: vectors::run,
    },
];

/// The tasks whose own last line is their verdict.
const SELF_SPOKEN: &[&str] = &["sim", "soak"];

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let name = args.next();
    let rest: Vec<String> = args.collect();
    match name.as_deref() {
        None | Some("--help" | "-h" | "help") => {
            print!("{}", help());
            ExitCode::SUCCESS
        }
        Some(name) => {
            let started = Instant::now();
            let outcome = run_task(name, &rest);
            if let Err(error) = &outcome {
                eprintln!("error: {error:#}");
            }
            if SELF_SPOKEN.contains(&name) {
                return if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
            }
            let verdict = if outcome.is_ok() { "done" } else { "failed" };
            println!("xtask {name}: {verdict} in {:.1} s", started.elapsed().as_secs_f64());
            if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
}

fn run_task(name: &str, args: &[String]) -> Result<()> {
    let Some(task) = TASKS.iter().find(|task| task.name == name) else {
        bail!("unknown task `{name}`; `cargo xtask --help` lists them");
    };
    let workspace = Workspace::here().context("reading the workspace")?;
    (task.run)(&workspace, args)
}

fn help() -> String {
    let heads: Vec<String> =
        TASKS.iter().map(|task| format!("{} {}", task.name, task.usage).trim_end().to_owned()).collect();
    let width = heads.iter().map(String::len).max().unwrap_or(0);
    let mut text =
        String::from("Development tasks of this workspace.\n\nUsage: cargo xtask TASK [ARGS]\n\nTasks:\n");
    for (head, task) in heads.iter().zip(TASKS) {
        text.push_str(&format!("  {head:width$}  {}\n", task.about));
    }
    text.push_str("\nEach task ends with its wall time. CONTRIBUTING.md says what the stages cost.\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S-230: the list of tasks is what `tests/help.txt` shows.
    #[test]
    fn help_matches_its_snapshot() {
        assert_eq!(help(), include_str!("../tests/help.txt"));
    }

    #[test]
    fn tasks_are_sorted_and_unique() {
        let names: Vec<&str> = TASKS.iter().map(|task| task.name).collect();
        assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
    }

    #[test]
    fn an_unknown_task_is_named_in_the_error() {
        let error = run_task("frobnicate", &[]).expect_err("no such task");
        assert_eq!(error.to_string(), "unknown task `frobnicate`; `cargo xtask --help` lists them");
    }
}
