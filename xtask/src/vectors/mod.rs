//! `vectors`: bytes of other implementations, and what the format crates make of them.
//!
//! Every line of every `*.jsonl` file below a folder is one vector. The formats are described next to the
//! copies in `crates/kinesis-kpl/tests/vectors` and `crates/kinesis-compress/tests/vectors`.

mod compress;
mod kpl;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::exit;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::workspace::Workspace;

const STRICT: &str = "--strict";

/// Which crate a vector is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Compress,
    Kpl,
}

/// Ends the process: the sum has to be the last line, and any mismatch is exit code 1.
pub(crate) fn run(_workspace: &Workspace, args: &[String]) -> Result<()> {
    let (folder, strict) = arguments(args)?;
    let (vectors, mismatches) = check_folder(&folder, strict)?;
    println!("{vectors} vectors, {mismatches} mismatches");
    exit(i32::from(mismatches > 0));
}

fn arguments(args: &[String]) -> Result<(PathBuf, bool)> {
    let strict = args.iter().any(|arg| arg == STRICT);
    let mut folders = args.iter().filter(|arg| *arg != STRICT);
    let Some(folder) = folders.next().filter(|arg| !arg.starts_with('-')) else {
        bail!("say which folder: `cargo xtask vectors DIR [{STRICT}]`");
    };
    if let Some(extra) = folders.next() {
        bail!("unexpected argument `{extra}`");
    }
    Ok((PathBuf::from(folder), strict))
}

/// Checks all files, prints the mismatches and returns the number of vectors and of mismatches.
fn check_folder(folder: &Path, strict: bool) -> Result<(usize, usize)> {
    let mut files = Vec::new();
    collect(folder, &mut files)?;
    files.sort();
    if files.is_empty() {
        bail!("there is no .jsonl file below {}", folder.display());
    }
    let (mut vectors, mut mismatches) = (0, 0);
    for file in &files {
        let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
            vectors += 1;
            if let Err((name, reason)) = check_line(file, line, strict) {
                mismatches += 1;
                println!("mismatch: {name} ({}:{number}): {reason}", file.display());
            }
        }
    }
    Ok((vectors, mismatches))
}

/// Checks one line; on a mismatch its name and the reason.
fn check_line(file: &Path, line: &str, strict: bool) -> Result<(), (String, String)> {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let value: Value = serde_json::from_str(line).map_err(|error| ("?".to_owned(), error.to_string()))?;
    let result = match kind(file, &value) {
        Some(Kind::Compress) => compress::check(&value, strict),
        Some(Kind::Kpl) => kpl::check(&stem, &value, strict),
        None => Err("neither the folder nor the fields say which crate this is for".to_owned()),
    };
    result.map_err(|reason| (name(&value), reason))
}

/// Some lines have no name but a key that is as good.
fn name(value: &Value) -> String {
    let named = ["name", "partition_key"].iter().find_map(|field| value[*field].as_str());
    named.unwrap_or("?").to_owned()
}

/// By the nearest folder that is called like a crate, else by the fields.
fn kind(file: &Path, value: &Value) -> Option<Kind> {
    let folders = file.ancestors().skip(1).filter_map(Path::file_name);
    let by_folder = folders.filter_map(|folder| match folder.to_str()? {
        "compress" | "kinesis-compress" => Some(Kind::Compress),
        "kpl" | "kinesis-kpl" => Some(Kind::Kpl),
        _ => None,
    });
    let has = |fields: &[&str]| fields.iter().any(|field| value.get(field).is_some());
    by_folder.into_iter().next().or_else(|| {
        if has(&["codec", "frame_base64", "frame_gzip_base64", "payload_base64"]) {
            Some(Kind::Compress)
        } else if has(&["aggregated_base64", "aggregated_gzip_base64", "hash_key", "even_shards"]) {
            Some(Kind::Kpl)
        } else {
            None
        }
    })
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, found)?;
        } else if path.extension().is_some_and(|ending| ending == "jsonl") {
            found.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn owned(args: &[&str]) -> Vec<String> {
        args.iter().map(|arg| (*arg).to_owned()).collect()
    }

    #[test]
    fn a_folder_is_needed_and_may_be_strict() {
        assert_eq!(arguments(&owned(&["a"])).unwrap(), (PathBuf::from("a"), false));
        assert_eq!(arguments(&owned(&[STRICT, "a"])).unwrap(), (PathBuf::from("a"), true));
        for args in [&[][..], &[STRICT], &["a", "b"], &["--other"]] {
            assert!(arguments(&owned(args)).is_err(), "{args:?}");
        }
    }

    #[test]
    fn the_crate_is_known_by_folder_or_fields() {
        let none = json!({});
        assert_eq!(kind(Path::new("v/compress/x.jsonl"), &none), Some(Kind::Compress));
        assert_eq!(kind(Path::new("v/kpl/deep/x.jsonl"), &none), Some(Kind::Kpl));
        assert_eq!(kind(Path::new("crates/kinesis-kpl/tests/vectors/x.jsonl"), &none), Some(Kind::Kpl));
        assert_eq!(kind(Path::new("x.jsonl"), &json!({"codec": "gzip"})), Some(Kind::Compress));
        assert_eq!(kind(Path::new("x.jsonl"), &json!({"payload_base64": ""})), Some(Kind::Compress));
        assert_eq!(kind(Path::new("x.jsonl"), &json!({"aggregated_base64": ""})), Some(Kind::Kpl));
        assert_eq!(kind(Path::new("x.jsonl"), &json!({"even_shards": 4})), Some(Kind::Kpl));
        assert_eq!(kind(Path::new("x.jsonl"), &none), None);
    }

    #[test]
    fn the_copies_in_the_repository_agree() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/kinesis-compress/tests/vectors");
        for strict in [false, true] {
            assert_eq!(check_folder(&root, strict).unwrap(), (233, 0));
        }
    }

    #[test]
    fn mismatches_are_counted_line_by_line() {
        let folder = std::env::temp_dir().join(format!("xtask-vectors-{}", std::process::id()));
        fs::create_dir_all(folder.join("compress")).unwrap();
        let good = r#"{"name":"plain","payload_base64":"aGVsbG8=","starts_like":null}"#;
        let wrong = r#"{"name":"no","codec":"gzip","frame_base64":"aGVsbG8=","expect":"ok"}"#;
        fs::write(folder.join("compress/x.jsonl"), format!("{good}\n\n{wrong}\nno json\n")).unwrap();
        let counts = check_folder(&folder, false).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(counts, (3, 2));
    }
}
