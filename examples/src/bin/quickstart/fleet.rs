//! The worker processes: started, watched, stalled, killed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};

use crate::args::{Break, Job};
use crate::log::LogReader;
use crate::worker::EXPIRY;

/// An expiry that outlives the run: what a worker goes by whose clock stands still.
const BROKEN_EXPIRY: Duration = Duration::from_secs(60);
/// How long a worker may take for its graceful stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) name: String,
    pub(crate) alive: bool,
    pub(crate) log: LogReader,
    child: Child,
}

impl Worker {
    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.context("the worker has no process id")?, signal)
            .context("the worker cannot be signalled")
    }

    pub(crate) fn stall(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    pub(crate) fn wake(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        self.alive = false;
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // No process outlives the conductor, whatever ended it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What every worker is told.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) job: Job,
    pub(crate) endpoint_url: Option<String>,
    pub(crate) embedded: bool,
    pub(crate) folder: PathBuf,
}

impl Setup {
    pub(crate) fn leases(&self) -> PathBuf {
        self.folder.join("leases.db")
    }
}

#[derive(Debug)]
pub(crate) struct Fleet {
    setup: Setup,
    pub(crate) workers: Vec<Worker>,
}

impl Fleet {
    pub(crate) fn new(setup: Setup) -> Self {
        Self { setup, workers: Vec::new() }
    }

    /// Starts one more worker process and returns its number.
    pub(crate) fn start(&mut self) -> anyhow::Result<usize> {
        let number = self.workers.len();
        let name = format!("worker-{}", number + 1);
        let log = self.setup.folder.join(format!("{name}.ndjson"));
        // The worker that is stalled does not notice by its own clock when the fence is broken.
        let expiry =
            if self.setup.job.broken == Some(Break::Fence) && number == 0 { BROKEN_EXPIRY } else { EXPIRY };
        let mut command = Command::new(std::env::current_exe().context("the program cannot find itself")?);
        command.arg("worker").args(["--name", &name, "--stream", &self.setup.job.stream]);
        command.args(["--expiry-ms", &expiry.as_millis().to_string()]);
        path_arg(command.arg("--leases"), &self.setup.leases());
        path_arg(command.arg("--log"), &log);
        if let Some(url) = &self.setup.endpoint_url {
            command.args(["--endpoint-url", url]);
        }
        if let Some(region) = &self.setup.job.region {
            command.args(["--region", region]);
        }
        if self.setup.embedded {
            command.arg("--embedded");
        }
        if let Some(broken) = self.setup.job.broken {
            command.args(["--break", broken.as_str()]);
        }
        let errors = std::fs::File::create(self.setup.folder.join(format!("{name}.stderr")))?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).spawn();
        let child = child.context("a worker process cannot be started")?;
        self.workers.push(Worker { name, alive: true, log: LogReader::new(log), child });
        Ok(number)
    }

    /// Fails when a worker ended that nobody killed.
    pub(crate) fn check(&mut self) -> anyhow::Result<()> {
        for worker in self.workers.iter_mut().filter(|worker| worker.alive) {
            if let Some(status) = worker.child.try_wait()? {
                worker.alive = false;
                let errors = self.setup.folder.join(format!("{}.stderr", worker.name));
                let errors = std::fs::read_to_string(errors).unwrap_or_default();
                anyhow::bail!("{} ended by itself ({status}): {}", worker.name, errors.trim());
            }
        }
        Ok(())
    }

    /// Asks every worker to stop and waits; returns how many stopped cleanly and how many did not.
    pub(crate) async fn stop(&mut self) -> anyhow::Result<(usize, usize)> {
        for worker in self.workers.iter().filter(|worker| worker.alive) {
            worker.signal(Signal::TERM)?;
        }
        let deadline = Instant::now() + STOP_TIMEOUT;
        let (mut clean, mut unclean) = (0, 0);
        for worker in self.workers.iter_mut().filter(|worker| worker.alive) {
            let status = loop {
                match worker.child.try_wait()? {
                    Some(status) => break Some(status),
                    None if Instant::now() >= deadline => break None,
                    None => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            };
            worker.alive = false;
            if status.is_some_and(|status| status.success()) {
                clean += 1;
            } else {
                unclean += 1;
            }
        }
        Ok((clean, unclean))
    }
}

fn path_arg(command: &mut Command, path: &Path) {
    command.arg(path);
}
