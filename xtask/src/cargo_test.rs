//! Running `cargo test` and adding up its result lines.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::process;

/// The sum of the result lines of one or more runs.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
}

impl Totals {
    /// One line that says it all.
    pub(crate) fn show(self) {
        println!("total: {} passed, {} failed, {} skipped", self.passed, self.failed, self.ignored);
    }

    fn add(&mut self, line: &str) {
        // test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s
        let Some((_, counts)) = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        for count in counts.split("; ") {
            let mut words = count.split(' ');
            let number = words.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
            match words.next() {
                Some("passed") => self.passed += number,
                Some("failed") => self.failed += number,
                Some("ignored") => self.ignored += number,
                _ => {}
            }
        }
    }
}

/// `cargo test` of the whole workspace with all features: the one selection of all stages, so that each
/// finds what the one before it has built.
pub(crate) fn everything(root: &Path) -> Command {
    let mut cargo = process::cargo(root);
    cargo.args(["test", "--workspace", "--all-features", "--locked", "--no-fail-fast"]);
    cargo
}

/// Runs the command, passing its output on; fails unless it succeeds and ran at least one test.
pub(crate) fn run(command: &mut Command) -> Result<Totals> {
    let line = process::shown(command);
    println!("$ {line}");
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("starting `{line}`"))?;
    let output = child.stdout.take().context("the output is piped")?;
    let mut totals = Totals::default();
    let mut own = std::io::stdout().lock();
    for text in BufReader::new(output).split(b'\n') {
        let text = text.context("reading the output")?;
        own.write_all(&text)?;
        own.write_all(b"\n")?;
        totals.add(&String::from_utf8_lossy(&text));
    }
    drop(own);
    let status = child.wait()?;
    if !status.success() {
        totals.show();
        bail!("`{line}` failed: {status}");
    }
    if totals.passed == 0 {
        bail!("`{line}` ran no test");
    }
    Ok(totals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_add_up() {
        let mut totals = Totals::default();
        for line in [
            "running 6 tests",
            "test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s",
            "test result: FAILED. 2 passed; 3 failed; 0 ignored; 0 measured; 9 filtered out; finished in 0.01s",
        ] {
            totals.add(line);
        }
        assert_eq!(totals, Totals { passed: 7, failed: 3, ignored: 1 });
    }

    #[test]
    fn a_run_without_a_test_fails() {
        let error = run(Command::new("true").stdin(Stdio::null())).expect_err("nothing ran");
        assert_eq!(error.to_string(), "`true` ran no test");
    }
}
