//! `fuzz`: the decoders under libFuzzer and the address sanitizer.
//!
//! Targets are the files in `crates/*/fuzz/fuzz_targets`. They are built by the toolchain at hand:
//! `RUSTC_BOOTSTRAP=1` lets a stable compiler take the one flag that is not stable, so neither a nightly
//! toolchain nor cargo-fuzz is needed. A corpus grows below `target/fuzz/corpus`; it starts with the crate's
//! test vectors and with the files in `fuzz/seeds/TARGET`; `fuzz/TARGET.dict` is the target's dictionary. A finding ends the task, and its input lies below `target/fuzz/findings`.

mod seeds;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::workspace::Workspace;
use crate::{machine, process};

const SECONDS: &str = "--seconds";
const DEFAULT_SECONDS: u64 = 60;

/// One input may take this long, in seconds, and is this long at most, in bytes.
const TIME_LIMIT: u64 = 10;
const MAX_INPUT: usize = 64 * 1024;
/// No single allocation and no process is larger, in MiB: decoders must not believe declared sizes.
const MALLOC_LIMIT: u64 = 64;
const MEMORY_LIMIT: u64 = 2048;

/// What cargo-fuzz passes as well: coverage by edge and by comparison, checks on, one code unit.
const FLAGS: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Zsanitizer=address",
    "-Cdebug-assertions",
    "-Ccodegen-units=1",
    "--cfg=fuzzing",
];

/// One decoder to fuzz.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Target {
    /// The crate that has it.
    package: String,
    name: String,
}

pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    let (wanted, seconds) = arguments(args)?;
    let targets = selected(targets(workspace)?, wanted)?;
    machine::ensure(&[&machine::C_COMPILER])?;
    let folder = workspace.target()?.join("fuzz");
    let host = host()?;
    for target in &targets {
        println!("{} / {} for {seconds} s", target.package, target.name);
        build(workspace, target, &folder, &host)?;
        fuzz(workspace, target, &folder, &host, seconds)?;
    }
    println!("{} targets, {seconds} s each, nothing found", targets.len());
    Ok(())
}

fn arguments(args: &[String]) -> Result<(Option<&str>, u64)> {
    let mut wanted = None;
    let mut seconds = DEFAULT_SECONDS;
    let mut args = args.iter().map(String::as_str);
    while let Some(arg) = args.next() {
        if arg == SECONDS {
            let number = args.next().with_context(|| format!("{SECONDS} needs a number"))?;
            seconds = number
                .parse()
                .ok()
                .filter(|seconds| *seconds > 0)
                .with_context(|| format!("`{number}` is no positive number of seconds"))?;
        } else if arg.starts_with('-') || wanted.is_some() {
            bail!("unexpected argument `{arg}`; `cargo xtask fuzz [TARGET] [{SECONDS} N]`");
        } else {
            wanted = Some(arg);
        }
    }
    Ok((wanted, seconds))
}

/// Every target of every crate: a file in `fuzz_targets` that its manifest names as a program.
fn targets(workspace: &Workspace) -> Result<Vec<Target>> {
    let mut targets = Vec::new();
    for package in workspace.crates()? {
        let folder = format!("crates/{package}/fuzz");
        if !workspace.exists(&format!("{folder}/Cargo.toml")) {
            continue;
        }
        let manifest = workspace.read(&format!("{folder}/Cargo.toml"))?;
        for file in workspace.files(&format!("{folder}/fuzz_targets"), "rs")? {
            let name = Path::new(&file).file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if manifest.contains(&format!("fuzz_targets/{name}.rs\"")) {
                targets.push(Target { package: package.clone(), name });
            }
        }
    }
    Ok(targets)
}

fn selected(targets: Vec<Target>, wanted: Option<&str>) -> Result<Vec<Target>> {
    let names: Vec<String> = targets.iter().map(|target| target.name.clone()).collect();
    let chosen: Vec<Target> =
        targets.into_iter().filter(|target| wanted.is_none_or(|wanted| wanted == target.name)).collect();
    match wanted {
        Some(wanted) if chosen.is_empty() => bail!("no target `{wanted}`; there are {}", names.join(", ")),
        _ if chosen.is_empty() => bail!("there are no fuzz targets"),
        _ => Ok(chosen),
    }
}

fn build(workspace: &Workspace, target: &Target, folder: &Path, host: &str) -> Result<()> {
    let mut cargo = process::cargo(workspace.root());
    cargo
        .args(["build", "--release", "--locked", "--bin", &target.name, "--target", host])
        .arg("--manifest-path")
        .arg(workspace.root().join(format!("crates/{}/fuzz/Cargo.toml", target.package)))
        .arg("--target-dir")
        .arg(folder)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\u{1f}"));
    process::run(&mut cargo)
}

fn fuzz(workspace: &Workspace, target: &Target, folder: &Path, host: &str, seconds: u64) -> Result<()> {
    let place = |kind: &str| -> Result<PathBuf> {
        let path = folder.join(kind).join(&target.package).join(&target.name);
        fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(path)
    };
    let (corpus, findings) = (place("corpus")?, place("findings")?);
    seeds::write(workspace, &target.package, &corpus, MAX_INPUT)?;
    seeds::copy(workspace, &target.package, &target.name, &corpus)?;
    let dictionary = format!("crates/{}/fuzz/{}.dict", target.package, target.name);
    let mut program = Command::new(folder.join(host).join("release").join(&target.name));
    program
        .arg(&corpus)
        .arg(format!("-artifact_prefix={}/", findings.display()))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-timeout={TIME_LIMIT}"))
        .arg(format!("-max_len={MAX_INPUT}"))
        .arg(format!("-malloc_limit_mb={MALLOC_LIMIT}"))
        .arg(format!("-rss_limit_mb={MEMORY_LIMIT}"))
        .args(["-print_final_stats=1", "-verbosity=1"])
        .args(workspace.exists(&dictionary).then(|| format!("-dict={dictionary}")))
        .current_dir(workspace.root());
    process::run(&mut program).with_context(|| {
        format!("target {} found something; its input is in {}", target.name, findings.display())
    })
}

/// The triple that the compiler builds for by itself: naming it keeps the flags from build scripts.
fn host() -> Result<String> {
    let version = process::capture(Command::new("rustc").arg("-vV"))?;
    version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
        .context("rustc names its host")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(args: &[&str]) -> Vec<String> {
        args.iter().map(|arg| (*arg).to_owned()).collect()
    }

    #[test]
    fn a_target_and_a_time_may_be_given() {
        assert_eq!(arguments(&[]).unwrap(), (None, DEFAULT_SECONDS));
        assert_eq!(arguments(&owned(&["gzip", SECONDS, "600"])).unwrap(), (Some("gzip"), 600));
        for args in [&[SECONDS][..], &[SECONDS, "0"], &[SECONDS, "x"], &["a", "b"], &["--other"]] {
            assert!(arguments(&owned(args)).is_err(), "{args:?}");
        }
    }

    #[test]
    fn an_unknown_target_is_refused_with_the_known_ones() {
        let all = vec![Target { package: "a".to_owned(), name: "gzip".to_owned() }];
        assert_eq!(selected(all.clone(), None).unwrap(), all);
        assert_eq!(selected(all.clone(), Some("gzip")).unwrap(), all);
        let error = selected(all, Some("zip")).unwrap_err();
        assert_eq!(error.to_string(), "no target `zip`; there are gzip");
    }

    #[test]
    fn the_targets_of_the_test_service_are_found() {
        let workspace = Workspace::here().unwrap();
        let found = targets(&workspace).unwrap();
        for name in ["body", "connection", "frames"] {
            let target = Target { package: "kinesis-testkit".to_owned(), name: name.to_owned() };
            assert!(found.contains(&target), "{name} is not in {found:?}");
        }
        assert!(workspace.exists("crates/kinesis-testkit/fuzz/body.dict"));
    }

    #[test]
    fn the_targets_of_the_codecs_are_found() {
        let found = targets(&Workspace::here().unwrap()).unwrap();
        for name in ["detect", "gzip", "lz4", "zstd"] {
            let target = Target { package: "kinesis-compress".to_owned(), name: name.to_owned() };
            assert!(found.contains(&target), "{name} is not in {found:?}");
        }
        assert!(found.iter().all(|target| target.name != "common"));
    }
}
