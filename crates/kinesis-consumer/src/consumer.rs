//! Running a consumer.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use kinesis_core::directory::ShardDirectory;
use kinesis_core::{ApplicationName, StreamRef, WorkerId};
use kinesis_lease::{Coordinator, HeartbeatMode, LeaseStoreSource};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::engine::{Context, StopRequest, Supervisor, asked, later};
use crate::{ConsumerError, Report};

/// Consumes a stream together with the other workers of its application.
///
/// Made by [`Consumer::builder`]. Delivery is at least once: whatever happens, every record is handed to a handler
/// of some worker until one has finished it.
pub struct Consumer(pub(crate) Parts);

pub(crate) struct Parts {
    pub(crate) application: ApplicationName,
    pub(crate) stream: StreamRef,
    pub(crate) worker: Option<WorkerId>,
    pub(crate) lease_store: LeaseStoreSource,
    pub(crate) directory: Arc<dyn ShardDirectory>,
    pub(crate) heartbeat: HeartbeatMode,
    /// What has to be registered before anything is read.
    #[cfg(feature = "efo")]
    pub(crate) register: Option<kinesis_efo::EfoSource>,
    pub(crate) cx: Context,
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("application", &self.0.application)
            .field("stream", &self.0.stream)
            .finish_non_exhaustive()
    }
}

impl Consumer {
    /// Runs until `signal` completes, then stops gracefully: handlers finish what they have (within
    /// [`shutdown_timeout`](crate::ConsumerConfig::shutdown_timeout)), positions are stored, leases given back.
    ///
    /// Dropping the future stops everything at once, as a crash would: nothing is lost, leases expire.
    ///
    /// # Errors
    /// [`ConsumerError`] when the stream or the lease store cannot be used at the start, when there is no consumer for
    /// enhanced fan-out, when a handler failed for
    /// good and [`OnExhausted::StopWorker`](crate::OnExhausted::StopWorker) was chosen, or when workers of the KCL 3.x
    /// have begun to assign the leases of the table. In the last two cases the consumer has stopped gracefully.
    pub async fn run(self, signal: impl Future<Output = ()> + Send) -> Result<Report, ConsumerError> {
        let (stop, asked) = watch::channel(None);
        let timeout = self.0.cx.config.shutdown_timeout;
        let mut running = pin!(self.run_until(asked));
        tokio::select! {
            biased;
            result = &mut running => return result,
            () = signal => {}
        }
        stop.send_replace(Some(later(timeout)));
        running.await
    }

    /// Runs on a task of its own.
    ///
    /// # Panics
    /// When called outside of a tokio runtime.
    #[must_use = "dropping the handle stops the consumer"]
    pub fn spawn(self) -> ConsumerHandle {
        let (stop, asked) = watch::channel(None);
        let (done, result) = watch::channel(None);
        let task = tokio::spawn(async move {
            let result = self.run_until(asked).await.map_err(Arc::new);
            done.send_replace(Some(result));
        });
        ConsumerHandle { stop, result, task }
    }

    async fn run_until(self, stop: watch::Receiver<StopRequest>) -> Result<Report, ConsumerError> {
        #[cfg(feature = "efo")]
        if let Some(efo) = &self.0.register {
            let mut early = stop.clone();
            tokio::select! {
                biased;
                () = asked(&mut early) => return Ok(Report::never_started()),
                found = efo.register(std::slice::from_ref(&self.0.stream)) => {
                    drop(found.map_err(ConsumerError::Registration)?);
                }
            }
        }
        let Parts { application, stream, worker, lease_store, directory, heartbeat, cx, .. } = self.0;
        let mut coordinator = Coordinator::builder(lease_store, directory, application, stream.clone())
            .start_position(cx.config.start_position.clone())
            .config(cx.config.lease.clone())
            .heartbeat(heartbeat)
            .metrics(Arc::clone(&cx.metrics))
            .seed(cx.seed);
        if let Some(worker) = worker {
            coordinator = coordinator.worker(worker);
        }
        let mut start = pin!(coordinator.start());
        let mut early = stop.clone();
        let started = tokio::select! {
            biased;
            started = &mut start => started.map_err(ConsumerError::Start)?,
            () = asked(&mut early) => {
                // A start that is about to end may take leases already: those are given back. One that hangs has none.
                match tokio::time::timeout(cx.config.close_timeout, start).await {
                    Ok(Ok(started)) => started,
                    Ok(Err(_)) | Err(_) => return Ok(Report::never_started()),
                }
            }
        };
        let (coordinator, events) = started;
        Box::pin(Supervisor::new(Arc::new(cx), stream, coordinator, events).run(stop)).await
    }
}

/// A consumer that runs on a task of its own. Dropping the handle stops it at once, as a crash would.
#[derive(Debug)]
pub struct ConsumerHandle {
    stop: watch::Sender<StopRequest>,
    result: watch::Receiver<Option<Result<Report, Arc<ConsumerError>>>>,
    task: JoinHandle<()>,
}

impl ConsumerHandle {
    /// Stops gracefully and waits for the end. Handlers have until `deadline` to finish; what remains to be done then
    /// (callback, reader, position, lease) may take [`close_timeout`](crate::ConsumerConfig::close_timeout) a step.
    ///
    /// Every call gets the same report; a later call may bring the deadline forward. Cancel-safe: the stop goes on.
    ///
    /// # Errors
    /// As [`Consumer::run`].
    pub async fn shutdown(&self, deadline: Duration) -> Result<Report, Arc<ConsumerError>> {
        let deadline = later(deadline);
        self.stop.send_if_modified(|asked| {
            let earlier = asked.is_none_or(|asked| deadline < asked);
            if earlier {
                *asked = Some(deadline);
            }
            earlier
        });
        self.finished().await
    }

    /// Waits for the end without asking for it. Cancel-safe.
    ///
    /// # Errors
    /// As [`Consumer::run`].
    pub async fn finished(&self) -> Result<Report, Arc<ConsumerError>> {
        let mut result = self.result.clone();
        match result.wait_for(Option::is_some).await {
            Ok(result) => result.clone().expect("it was waited for"),
            Err(_) => Err(Arc::new(ConsumerError::coordinator_ended("the consumer's task is gone"))),
        }
    }

    /// Whether the consumer has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }
}

impl Drop for ConsumerHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}
