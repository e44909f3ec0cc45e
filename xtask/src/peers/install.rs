//! Installing the peers from their pinned lists.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::workspace::Workspace;
use crate::{machine, process};

/// Installs the packages of both lists and gives the folder that has `node_modules` and `venv`.
pub(crate) fn install(workspace: &Workspace) -> Result<PathBuf> {
    machine::ensure(&[&machine::NODE, &machine::PYTHON])?;
    let folder = folder(workspace)?;
    install_node_packages(workspace, &folder)?;
    install_python_packages(workspace, &folder)?;
    Ok(folder)
}

/// The folder of all that is installed.
pub(super) fn folder(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.target()?.join("peers");
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    Ok(folder)
}

fn install_node_packages(workspace: &Workspace, folder: &Path) -> Result<()> {
    let lock = workspace.read("xtask/peers/package-lock.json")?;
    if is_installed(folder, "package-lock.json", &lock) && folder.join("node_modules").is_dir() {
        return Ok(());
    }
    fs::write(folder.join("package.json"), workspace.read("xtask/peers/package.json")?)?;
    fs::write(folder.join("package-lock.json"), &lock)?;
    process::run(Command::new("npm").args(["ci", "--no-audit", "--no-fund"]).current_dir(folder))?;
    mark_installed(folder, "package-lock.json", &lock)
}

fn install_python_packages(workspace: &Workspace, folder: &Path) -> Result<()> {
    install_into(workspace, folder, "requirements.txt", &folder.join("venv"))
}

/// Installs the server `ministack` and gives its command.
pub(super) fn install_ministack(workspace: &Workspace, folder: &Path) -> Result<PathBuf> {
    let venv = folder.join("ministack");
    install_into(workspace, folder, "ministack.txt", &venv)?;
    Ok(venv.join("bin/ministack"))
}

/// Makes a virtual environment from a list of packages.
fn install_into(workspace: &Workspace, folder: &Path, list: &str, venv: &Path) -> Result<()> {
    let file = format!("xtask/peers/{list}");
    let content = workspace.read(&file)?;
    if is_installed(folder, list, &content) {
        return Ok(());
    }
    process::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(venv))?;
    process::run(
        Command::new(venv.join("bin/python"))
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .args(["--no-deps", "--require-hashes", "--requirement"])
            .arg(workspace.root().join(&file)),
    )?;
    mark_installed(folder, list, &content)
}

/// Installs the Java packages of a list into the folder `name` and gives that.
pub(super) fn install_java_packages(
    workspace: &Workspace,
    folder: &Path,
    list: &str,
    name: &str,
) -> Result<PathBuf> {
    machine::ensure(&[&machine::JAVA])?;
    let content = workspace.read(&format!("xtask/peers/{list}"))?;
    let libraries = folder.join(name);
    if is_installed(folder, list, &content) && libraries.is_dir() {
        return Ok(libraries);
    }
    fs::write(folder.join(list), &content)?;
    process::run(
        Command::new("mvn")
            .args(["--quiet", "--batch-mode", "--file", list, "dependency:copy-dependencies"])
            .arg(format!("-DoutputDirectory={}", libraries.display()))
            .current_dir(folder),
    )?;
    mark_installed(folder, list, &content)?;
    Ok(libraries)
}

/// Whether a complete installation was made from exactly this list.
fn is_installed(folder: &Path, list: &str, content: &str) -> bool {
    fs::read_to_string(folder.join(format!("{list}.installed"))).is_ok_and(|found| found == content)
}

fn mark_installed(folder: &Path, list: &str, content: &str) -> Result<()> {
    fs::write(folder.join(format!("{list}.installed")), content)
        .with_context(|| format!("noting that {list} is installed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installation_belongs_to_one_list() {
        let folder = std::env::temp_dir().join(format!("xtask-peers-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        assert!(!is_installed(&folder, "list", "a==1"));
        mark_installed(&folder, "list", "a==1").unwrap();
        assert!(is_installed(&folder, "list", "a==1"));
        assert!(!is_installed(&folder, "list", "a==2"));
        fs::remove_dir_all(folder).unwrap();
    }
}
