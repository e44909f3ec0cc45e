//! `lint`: formatting and clippy.

use anyhow::Result;

use crate::workspace::Workspace;
use crate::{args, process};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Check,
    Fix,
}

pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<()> {
    let mode = match args::flag(args, &["--fix"])? {
        None => Mode::Check,
        Some(_) => Mode::Fix,
    };
    // Clippy's repairs may need formatting.
    match mode {
        Mode::Check => {
            format(workspace, mode)?;
            clippy(workspace, mode)
        }
        Mode::Fix => {
            clippy(workspace, mode)?;
            format(workspace, mode)
        }
    }
}

pub(crate) fn format(workspace: &Workspace, mode: Mode) -> Result<()> {
    let mut cargo = process::cargo(workspace.root());
    cargo.args(["fmt", "--all"]);
    if mode == Mode::Check {
        cargo.arg("--check");
    }
    process::run(&mut cargo)
}

pub(crate) fn clippy(workspace: &Workspace, mode: Mode) -> Result<()> {
    process::run(process::cargo(workspace.root()).args(clippy_args(mode)))
}

fn clippy_args(mode: Mode) -> Vec<&'static str> {
    let mut args = vec!["clippy", "--workspace", "--all-features", "--all-targets", "--locked"];
    if mode == Mode::Fix {
        args.extend(["--fix", "--allow-dirty", "--allow-staged"]);
    }
    args.extend(["--", "-D", "warnings"]);
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S-235: no warning of clippy passes, in any target with any feature.
    #[test]
    fn clippy_looks_at_everything_and_denies_warnings() {
        let line = clippy_args(Mode::Check).join(" ");
        assert_eq!(line, "clippy --workspace --all-features --all-targets --locked -- -D warnings");
        let line = clippy_args(Mode::Fix).join(" ");
        assert!(line.ends_with("--fix --allow-dirty --allow-staged -- -D warnings"), "{line}");
    }

    /// D-06, S-235: one oldest Rust release, held by clippy's `incompatible_msrv`, and one named toolchain.
    #[test]
    fn the_oldest_rust_release_is_stated_once() {
        let workspace = Workspace::here().unwrap();
        let value = |file: &str, key: &str| {
            let text = workspace.read(file).unwrap();
            let line = text.lines().find(|line| line.starts_with(&format!("{key} = "))).unwrap();
            line.split('"').nth(1).unwrap().to_owned()
        };
        assert_eq!(value("Cargo.toml", "rust-version"), "1.94.1");
        assert_eq!(value("clippy.toml", "msrv"), "1.94.1");
        assert_eq!(value("Cargo.toml", "incompatible_msrv"), "warn");
        assert_eq!(value("rust-toolchain.toml", "channel"), "stable");
    }
}
