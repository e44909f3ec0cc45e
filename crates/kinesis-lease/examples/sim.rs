//! Runs the deterministic simulation of lease coordination; `cargo xtask sim` is the way to start it.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "speaks to the person or the CI that started it"
)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use kinesis_lease::sim::{self, Coverage, Mutant};

/// Seeds within which each mutant must be found.
const MUTANT_SEEDS: u64 = 1_000;
/// Violations after which a run has told enough.
const ENOUGH: u64 = 20;

#[derive(Debug, Default)]
struct Args {
    seeds: Option<u64>,
    first_seed: u64,
    seconds: Option<u64>,
    seed: Option<u64>,
    mutants: bool,
    mutant: Option<Mutant>,
    trace: bool,
}

fn parse(args: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut parsed = Args::default();
    let mut args = args;
    while let Some(arg) = args.next() {
        let mut number = || {
            let text = args.next().unwrap_or_default();
            text.parse::<u64>().map_err(|_| format!("{arg} wants a number, not `{text}`"))
        };
        match arg.as_str() {
            "--seeds" => parsed.seeds = Some(number()?),
            "--first-seed" => parsed.first_seed = number()?,
            "--seconds" => parsed.seconds = Some(number()?),
            "--seed" => parsed.seed = Some(number()?),
            "--trace" => parsed.trace = true,
            "--mutants" => parsed.mutants = true,
            "--mutant" => {
                let name = args.next().unwrap_or_default();
                let found = Mutant::ALL.iter().find(|mutant| mutant.name() == name);
                parsed.mutant = Some(*found.ok_or_else(|| format!("there is no mutant `{name}`"))?);
            }
            other => return Err(format!("unexpected argument `{other}`")),
        }
    }
    Ok(parsed)
}

fn main() -> ExitCode {
    let args = match parse(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::FAILURE;
        }
    };
    // What a machine panics with is a violation, and told as one.
    std::panic::set_hook(Box::new(|_| {}));
    let good = match args.seed {
        Some(seed) => one(&args, seed),
        None if args.mutants => mutants(&args),
        None => many(&args),
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One seed, line by line if wanted.
fn one(args: &Args, seed: u64) -> bool {
    let run = match (args.mutant, args.trace) {
        (Some(mutant), true) => sim::trace_mutant(mutant, seed),
        (Some(mutant), false) => sim::run_mutant(mutant, seed),
        (None, true) => sim::trace(seed),
        (None, false) => sim::run(seed),
    };
    for line in &run.trace {
        println!("{line}");
    }
    print!("{}", run.coverage);
    if let Some(violation) = &run.violation {
        println!("seed {seed}: {violation}");
    }
    println!("1 seeds, {} violations", u32::from(run.violation.is_some()));
    run.violation.is_none()
}

/// Many seeds, or as many as a time allows.
fn many(args: &Args) -> bool {
    let started = Instant::now();
    let limit = args.seconds.map(Duration::from_secs);
    let seeds = args.seeds.unwrap_or(if limit.is_some() { u64::MAX } else { 1_000 });
    let (mut coverage, mut done, mut violations) = (Coverage::default(), 0, 0);
    for seed in (args.first_seed..).take(usize::try_from(seeds).unwrap_or(usize::MAX)) {
        if limit.is_some_and(|limit| started.elapsed() >= limit) || violations >= ENOUGH {
            break;
        }
        let run = sim::run(seed);
        done += 1;
        coverage.add(&run.coverage);
        if let Some(violation) = run.violation {
            violations += 1;
            println!("seed {seed}: {violation}");
        }
    }
    print!("{coverage}");
    println!("{:.1} s", started.elapsed().as_secs_f64());
    let missing = coverage.missing();
    for row in &missing {
        println!("never happened: {row}");
    }
    println!("{done} seeds, {violations} violations");
    violations == 0 && missing.is_empty()
}

/// Each mutant until it is found.
fn mutants(args: &Args) -> bool {
    let seeds = args.seeds.unwrap_or(MUTANT_SEEDS);
    let mut found = 0;
    for mutant in Mutant::ALL {
        let violation = (args.first_seed..args.first_seed + seeds)
            .find_map(|seed| sim::run_mutant(*mutant, seed).violation.map(|what| (seed, what)));
        match violation {
            Some((seed, what)) => {
                found += 1;
                println!("{:<22} after {:>4} seeds: {what}", mutant.name(), seed - args.first_seed + 1);
            }
            None => println!("{:<22} NOT FOUND:{}", mutant.name(), mutant.about()),
        }
    }
    println!("{found} of {} mutants found", Mutant::ALL.len());
    found == Mutant::ALL.len()
}
