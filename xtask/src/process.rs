//! Starting other programs.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// How often a waiting loop looks again.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// `cargo`, the one that runs this task, without what `cargo run` sets for the package `xtask`.
pub(crate) fn cargo(root: &Path) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
        {
            command.env_remove(name);
        }
    }
    command.current_dir(root);
    command
}

/// The command as a person would type it (without its environment).
pub(crate) fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let mut line = program.to_string_lossy().into_owned();
    for arg in command.get_args() {
        line.push(' ');
        line.push_str(&arg.to_string_lossy());
    }
    line
}

/// Shows the command, runs it and fails unless it succeeds.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = shown(command);
    println!("$ {line}");
    let status = command.status().with_context(|| format!("starting `{line}`"))?;
    if !status.success() {
        bail!("`{line}` failed: {status}");
    }
    Ok(())
}

/// Runs the command and gives its standard output.
pub(crate) fn capture(command: &mut Command) -> Result<String> {
    let line = shown(command);
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("starting `{line}`"))?;
    if !output.status.success() {
        bail!("`{line}` failed: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim_end());
    }
    String::from_utf8(output.stdout).with_context(|| format!("reading the output of `{line}`"))
}

/// Whether the command can be started and succeeds; its output is not shown.
pub(crate) fn works(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Runs the command with its standard output collected; fails when it takes longer than `limit`.
pub(crate) fn capture_within(command: &mut Command, limit: Duration, scratch: &Path) -> Result<String> {
    let line = shown(command);
    println!("$ {line}");
    let started = Instant::now();
    let out = File::create(scratch).with_context(|| format!("creating {}", scratch.display()))?;
    let child =
        command.stdin(Stdio::null()).stdout(out).spawn().with_context(|| format!("starting `{line}`"))?;
    let mut child = Owned { child };
    let status = loop {
        if let Some(status) = child.child.try_wait()? {
            break status;
        }
        if started.elapsed() > limit {
            bail!("`{line}` did not end within {} s", limit.as_secs());
        }
        std::thread::sleep(LOOK_EVERY);
    };
    let text = std::fs::read_to_string(scratch)?;
    if !status.success() {
        bail!("`{line}` failed: {status}\n{}", text.trim_end());
    }
    Ok(text)
}

/// A process that ends with its owner.
#[derive(Debug)]
pub(crate) struct Owned {
    child: Child,
}

impl Owned {
    /// Starts a service whose output goes to the file `log`.
    pub(crate) fn service(command: &mut Command, log: &Path) -> Result<Self> {
        let line = shown(command);
        println!("$ {line} &");
        let out = File::create(log).with_context(|| format!("creating {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .with_context(|| format!("starting `{line}`"))?;
        Ok(Self { child })
    }

    /// Waits until `ready` says so; fails when the process ends first or `limit` passes.
    pub(crate) fn wait_until(&mut self, limit: Duration, mut ready: impl FnMut() -> bool) -> Result<()> {
        let started = Instant::now();
        while !ready() {
            if let Some(status) = self.child.try_wait()? {
                bail!("the process ended before it was ready: {status}");
            }
            if started.elapsed() > limit {
                bail!("the process was not ready within {} s", limit.as_secs());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // Either may fail when the process has ended by itself, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("xtask-process-{}-{name}", std::process::id()))
    }

    #[test]
    fn a_command_that_outlives_its_limit_is_ended() {
        let file = scratch("sleep");
        let started = Instant::now();
        let error = capture_within(Command::new("sleep").arg("60"), Duration::from_millis(200), &file)
            .expect_err("too slow");
        std::fs::remove_file(file).unwrap();
        assert_eq!(error.to_string(), "`sleep 60` did not end within 0 s");
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn output_and_failure_of_a_command_are_reported() {
        let file = scratch("sh");
        let minute = Duration::from_secs(60);
        let text = capture_within(Command::new("sh").args(["-c", "echo 1; echo 2"]), minute, &file).unwrap();
        assert_eq!(text, "1\n2\n");
        let error = capture_within(Command::new("sh").args(["-c", "echo why; exit 3"]), minute, &file)
            .expect_err("exit code 3");
        std::fs::remove_file(file).unwrap();
        assert!(error.to_string().ends_with("exit status: 3\nwhy"), "{error}");
    }

    #[test]
    fn a_service_that_ends_early_is_an_error() {
        let file = scratch("true");
        let mut service = Owned::service(&mut Command::new("true"), &file).unwrap();
        let error = service.wait_until(Duration::from_secs(60), || false).expect_err("it ended");
        std::fs::remove_file(file).unwrap();
        assert_eq!(error.to_string(), "the process ended before it was ready: exit status: 0");
    }
}
