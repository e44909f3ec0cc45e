//! The first inputs of a corpus: the crate's test vectors, and seeds of the target's own.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::workspace::Workspace;

/// The fields that hold an input of a decoder.
const FIELDS: &[&str] = &["aggregated_base64", "frame_base64", "payload_base64"];

/// Writes every vector of at most `max` bytes into the folder, under names of its own.
pub(super) fn write(workspace: &Workspace, package: &str, folder: &Path, max: usize) -> Result<()> {
    let vectors = format!("crates/{package}/tests/vectors");
    if !workspace.exists(&vectors) {
        return Ok(());
    }
    for file in workspace.files(&vectors, "jsonl")? {
        let stem = Path::new(&file).file_stem().unwrap_or_default().to_string_lossy();
        for (number, line) in (1..).zip(workspace.read(&file)?.lines()) {
            let Some(input) = input(line).filter(|input| input.len() <= max) else { continue };
            let path = folder.join(format!("vector-{stem}-{number}"));
            fs::write(&path, input).with_context(|| format!("writing {}", path.display()))?;
        }
    }
    Ok(())
}

/// Copies the seeds that were written for the target.
pub(super) fn copy(workspace: &Workspace, package: &str, target: &str, folder: &Path) -> Result<()> {
    let seeds = format!("crates/{package}/fuzz/seeds/{target}");
    if !workspace.exists(&seeds) {
        return Ok(());
    }
    for entry in fs::read_dir(workspace.root().join(&seeds)).with_context(|| format!("reading {seeds}"))? {
        let entry = entry?;
        fs::copy(entry.path(), folder.join(format!("seed-{}", entry.file_name().to_string_lossy())))?;
    }
    Ok(())
}

fn input(line: &str) -> Option<Vec<u8>> {
    let line: Value = serde_json::from_str(line).ok()?;
    FIELDS.iter().find_map(|field| STANDARD.decode(line[*field].as_str()?).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_found_in_either_format() {
        assert_eq!(input(r#"{"name":"a","frame_base64":"aGVsbG8="}"#).unwrap(), b"hello");
        assert_eq!(input(r#"{"aggregated_base64":"aGVsbG8="}"#).unwrap(), b"hello");
        assert_eq!(input(r#"{"partition_key":"a"}"#), None);
        assert_eq!(input("no json"), None);
    }
}
