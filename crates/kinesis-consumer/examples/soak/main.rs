//! The soak: days of virtual life of a few workers over many shards, with faults of every kind; `cargo xtask soak`.
//!
//! Everything is real but the service, the clock and the lease store, which live in this process. docs/soak.md says what
//! happens in a run and what has to hold.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is a program for people")]

mod fleet;
mod handler;
mod ledger;
mod run;
mod service;
mod storm;

use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

/// How shards are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Poll,
    Efo,
}

impl Source {
    fn name(self) -> &'static str {
        match self {
            Self::Poll => "poll",
            Self::Efo => "efo",
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Options {
    hours: u32,
    shards: usize,
    seed: u64,
    sources: Vec<Source>,
    /// How long things go wrong in an hour, and how long nothing does.
    storm: Duration,
    calm: Duration,
}

impl Default for Options {
    fn default() -> Self {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        let sources = vec![Source::Poll, Source::Efo];
        Self { hours: 24, shards: 64, seed: 1, sources, storm: minutes(52), calm: minutes(8) }
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::default();
    while let Some(arg) = args.next() {
        let value = args.next().ok_or_else(|| format!("`{arg}` needs a value"))?;
        let number = || value.parse::<u32>().map_err(|_| format!("`{arg}` needs a number"));
        match arg.as_str() {
            "--hours" => options.hours = number()?,
            "--shards" => options.shards = number()? as usize,
            "--seed" => options.seed = number()?.into(),
            "--source" => {
                let known = [Source::Poll, Source::Efo].into_iter().find(|source| source.name() == value);
                options.sources = vec![known.ok_or("`--source` is poll or efo")?];
            }
            other => return Err(format!("unexpected argument `{other}`")),
        }
    }
    if options.hours == 0 || options.shards < 4 {
        return Err("at least one hour and four shards".to_owned());
    }
    Ok(options)
}

/// Runs one source after the other; the results, and how many violations there were.
fn soak(options: &Options, mut line: impl FnMut(&str)) -> (Vec<Value>, u64) {
    quiet_about_scripted_panics();
    let mut violations = 0;
    let mut runs = Vec::new();
    for source in &options.sources {
        let result = run::run(options, *source, |text| line(&format!("{} {text}", source.name())));
        violations += result["violations"].as_u64().unwrap_or_default();
        runs.push(result);
    }
    (runs, violations)
}

fn quiet_about_scripted_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref::<&str>() != Some(&handler::SCRIPTED) {
            before(info);
        }
    }));
}

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::FAILURE;
        }
    };
    let (runs, violations) = soak(&options, |line| println!("{line}"));
    println!("{}", json!({ "violations": violations, "runs": runs }));
    if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F-01, F-04, F-10, F-13, F-14: a short hour with few shards over both sources: nothing is lost or left behind, and
    /// what comes again had a reason.
    #[test]
    fn a_short_hour_of_faults_loses_nothing_and_leaves_nothing_behind() {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        let options =
            Options { hours: 1, shards: 4, storm: minutes(6), calm: minutes(4), ..Options::default() };
        let (runs, violations) = soak(&options, |_| ());
        assert_eq!(violations, 0, "{runs:#?}");
        for run in runs {
            assert_eq!(run["lost"], 0);
            assert!(run["delivered"].as_u64().unwrap() > 500, "{run:#?}");
            for what in ["faults", "reshards", "crashes", "cut_offs", "stops"] {
                assert_ne!(run[what], 0, "{what} never happened");
            }
        }
    }

    #[test]
    fn arguments_are_checked() {
        let parse = |line: &str| parse(line.split_whitespace().map(str::to_owned));
        assert_eq!(parse("").unwrap(), Options::default());
        let options = parse("--hours 2 --shards 8 --seed 3 --source efo").unwrap();
        let sources = vec![Source::Efo];
        assert_eq!(options, Options { hours: 2, shards: 8, seed: 3, sources, ..Options::default() });
        for bad in ["--hours", "--hours x", "--hours 0", "--shards 3", "--source tape", "--fast 1"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
