//! The coordinator: discovers shards, takes and renews leases, and tells its consumer.

mod boot;
mod builder;
mod calls;
mod command;
mod events;
mod hints;
mod listing;
mod namesake;
mod regime;
mod task;
mod tenure;
mod worker;

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kinesis_core::WorkerId;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub(crate) use builder::by_name;
pub use builder::{CoordinatorBuilder, DEFAULT_LATEST_MARGIN};
pub use events::LeaseEvents;
pub use tenure::Tenure;

use crate::{DiscoveryError, ReleaseReport};
use command::{Command, Waiting};

/// How much longer than its deadline a shutdown waits for the lease task's report.
const REPORT_GRACE: Duration = Duration::from_secs(1);

/// The time by the runtime's clock, as the machine takes it.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Shares the shards of a stream with the other workers of an application.
///
/// It discovers shards and makes their leases, takes its share, renews what it holds, and tells its consumer through
/// [`LeaseEvents`] what to start and what to stop. Dropping it aborts everything without releasing anything; use
/// [`shutdown`](Self::shutdown) for an orderly end.
#[derive(Debug)]
pub struct Coordinator {
    worker: WorkerId,
    commands: mpsc::Sender<Command>,
    discover: mpsc::Sender<Option<Waiting>>,
    cancelled: CancellationToken,
    /// The listing task, and with an inline heartbeat the lease task. Aborted on drop.
    tasks: JoinSet<()>,
    thread: Option<JoinHandle<()>>,
}

impl Coordinator {
    /// The name under which this worker holds leases.
    #[must_use]
    pub fn worker(&self) -> &WorkerId {
        &self.worker
    }

    /// Lists the shards now and makes the leases of new ones. Returns when they are made.
    ///
    /// # Errors
    /// [`DiscoveryError`]. Cancel-safe: the discovery itself goes on.
    pub async fn discover_now(&self) -> Result<(), DiscoveryError> {
        let (reply, answer) = oneshot::channel();
        self.discover.send(Some(reply)).await.map_err(|_| DiscoveryError::Closed)?;
        answer.await.unwrap_or(Err(DiscoveryError::Closed))
    }

    /// Takes no further leases from now on: the beginning of a shutdown, while work in progress is finished.
    pub async fn stop_taking(&self) {
        // A lease task that is gone takes none either.
        drop(self.commands.send(Command::StopTaking).await);
    }

    /// Releases everything that is still held, so that other workers can take it at once, and ends. The consumer
    /// finishes its work before: a release here is the end of the tenure. When the lease task has ended before, or does
    /// not answer, the report says that nothing is known.
    pub async fn shutdown(mut self, deadline: Duration) -> ReleaseReport {
        let (report, answer) = oneshot::channel();
        let stop = async {
            drop(self.commands.send(Command::Stop { deadline, report }).await);
            answer.await
        };
        let report = tokio::time::timeout(deadline + REPORT_GRACE, stop).await;
        self.cancelled.cancel();
        self.tasks.shutdown().await;
        if let Some(thread) = self.thread.take() {
            // The task has ended or is cancelled; only its runtime is still to be taken down. A panic of it was
            // printed by the panic hook.
            let joined = tokio::task::spawn_blocking(move || thread.join().is_ok());
            drop(tokio::time::timeout(REPORT_GRACE, joined).await);
        }
        report
            .ok()
            .and_then(Result::ok)
            .unwrap_or(ReleaseReport { unknown: true, ..ReleaseReport::default() })
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.cancelled.cancel();
    }
}
