//! The workspace on disk: its files and what `cargo metadata` says of it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::process;

/// Where the workspace lies.
#[derive(Debug)]
pub(crate) struct Workspace {
    root: PathBuf,
}

impl Workspace {
    /// The workspace that this program was built from.
    pub(crate) fn here() -> Result<Self> {
        let manifest_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest_dir.parent().context("xtask lies in a workspace")?;
        Ok(Self { root: root.to_path_buf() })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The text of a file, named relative to the root.
    pub(crate) fn read(&self, path: &str) -> Result<String> {
        fs::read_to_string(self.root.join(path)).with_context(|| format!("reading {path}"))
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// All files below `folder` that end in `.extension`, relative to the root, sorted.
    pub(crate) fn files(&self, folder: &str, extension: &str) -> Result<Vec<String>> {
        let mut found = Vec::new();
        collect(&self.root, Path::new(folder), extension, &mut found)?;
        found.sort();
        Ok(found)
    }

    /// All Rust files of the members.
    pub(crate) fn rust_files(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for folder in ["crates", "examples", "xtask"] {
            found.extend(self.files(folder, "rs")?);
        }
        Ok(found)
    }

    /// The folders below `crates`, sorted by name.
    pub(crate) fn crates(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.root.join("crates")).context("reading crates")? {
            let entry = entry?;
            if entry.path().join("Cargo.toml").is_file() {
                names.push(entry.file_name().to_string_lossy().into_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// `cargo metadata` of the members alone.
    pub(crate) fn metadata(&self) -> Result<Value> {
        let mut cargo = process::cargo(&self.root);
        cargo.args(["metadata", "--format-version", "1", "--locked", "--no-deps"]);
        serde_json::from_str(&process::capture(&mut cargo)?).context("parsing the output of `cargo metadata`")
    }

    /// The target folder that cargo uses.
    pub(crate) fn target(&self) -> Result<PathBuf> {
        let metadata = self.metadata()?;
        let folder =
            metadata["target_directory"].as_str().context("`cargo metadata` names the target folder")?;
        Ok(PathBuf::from(folder))
    }
}

fn collect(root: &Path, folder: &Path, extension: &str, found: &mut Vec<String>) -> Result<()> {
    let entries = fs::read_dir(root.join(folder)).with_context(|| format!("reading {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let path = folder.join(&*name);
        if entry.file_type()?.is_dir() {
            // Build output and what package managers install is nobody's source.
            if name != "target" && name != "node_modules" && !name.starts_with('.') {
                collect(root, &path, extension, found)?;
            }
        } else if path.extension().is_some_and(|ending| ending == extension) {
            found.push(path.to_string_lossy().into_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_its_own_source() {
        let workspace = Workspace::here().unwrap();
        let files = workspace.rust_files().unwrap();
        assert!(files.iter().any(|file| file == "xtask/src/workspace.rs"), "{files:?}");
        assert!(files.is_sorted());
        assert!(workspace.crates().unwrap().contains(&"kinesis-core".to_owned()));
    }
}
