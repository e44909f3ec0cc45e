//! The life of one tenure: initialize, read and hand out, end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kinesis_core::backoff::Backoff;
use kinesis_core::directory::ShardInfo;
use kinesis_core::lease::CoolDown;
use kinesis_core::processing::{CheckpointError, CheckpointSink, Checkpointer};
use kinesis_core::source::{OpenShard, ShardReader, SourceError, SourceEvent};
use kinesis_core::{BoxError, Checkpoint, Position, ShardRef, StartPosition};
use kinesis_lease::{LeaseError, Tenure};
use tokio::time::timeout;

use super::Context;
use super::control::{Control, Interrupt};
use super::metrics::ShardMetrics;
use super::policy::Attempts;
use super::progress::Progress;
use super::wire::WireRecord;
use crate::door::ShardHandler;
use crate::{Initialize, OnExhausted, ShardOutcome, ShardReport};

/// Works on one shard for one tenure.
pub(crate) struct ShardTask {
    pub(super) cx: Arc<Context>,
    pub(super) shard: ShardRef,
    pub(super) tenure: Tenure,
    pub(super) control: Control,
    pub(super) progress: Arc<Progress>,
    pub(super) handler: ShardHandler,
    pub(super) metrics: ShardMetrics,
    pub(super) behind: Option<Duration>,
    /// Records that a handler finishes by hand, for the case that it drops one.
    pub(super) manual: BTreeMap<u64, WireRecord>,
    /// Behind a lock for `Sync` alone; nobody else looks.
    reader: Mutex<Option<Box<dyn ShardReader>>>,
    seed: u64,
}

/// How the work on a tenure came to its end.
#[derive(Debug)]
pub(crate) enum Ending {
    /// It was interrupted between calls of the handler.
    Interrupted(Interrupt),
    /// It was interrupted and a call of the handler had to be dropped.
    GaveUp(Interrupt),
    /// The shard is closed and everything in it is finished.
    ShardEnded(Vec<ShardInfo>),
    /// The handler failed for good.
    Exhausted(BoxError),
    /// The shard cannot be read.
    Unreadable(SourceError),
}

/// What the supervisor learns when a task ends.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) report: ShardReport,
    /// Set when the whole consumer is to stop.
    pub(crate) stop: Option<BoxError>,
    /// The shard ended and nobody said which shards follow it.
    pub(crate) discover: bool,
}

impl ShardTask {
    pub(crate) fn new(cx: Arc<Context>, tenure: Tenure, control: Control, seed: u64) -> Self {
        let shard = tenure.lease().key.shard_ref();
        Self {
            progress: Progress::new(tenure.clone(), cx.config.checkpoint_verb),
            handler: cx.door.open(&shard),
            metrics: ShardMetrics::new(&*cx.metrics, &shard, cx.config.shard_metrics),
            behind: None,
            manual: BTreeMap::new(),
            reader: Mutex::default(),
            cx,
            shard,
            tenure,
            control,
            seed,
        }
    }

    pub(crate) async fn run(mut self) -> Finished {
        let progress = Arc::clone(&self.progress);
        let interval = self.cx.config.checkpoint_interval;
        let ending = tokio::select! {
            biased;
            ending = self.work() => ending,
            () = progress.store_every(interval) => unreachable!("it goes on for as long as it is polled"),
        };
        self.end(ending).await
    }

    pub(super) fn attempts(&mut self) -> Attempts {
        self.seed = self.seed.wrapping_add(1);
        Attempts::new(&self.cx.config, self.seed)
    }

    fn backoff(&mut self) -> Backoff {
        self.seed = self.seed.wrapping_add(1);
        Backoff::new(self.cx.config.retry_backoff(), self.seed)
    }

    async fn work(&mut self) -> Ending {
        if let Err(ending) = self.initialize().await {
            return ending;
        }
        let mut reopen = Backoff::new(self.cx.config.reopen_backoff(), self.seed);
        let mut reader = self.cx.source.open(self.open_request());
        loop {
            if let Err(ending) = self.make_room().await {
                self.keep(reader);
                return ending;
            }
            let event = tokio::select! {
                biased;
                interrupt = self.control.interrupt() => {
                    self.keep(reader);
                    return Ending::Interrupted(interrupt);
                }
                event = reader.next() => event,
            };
            let ending = match event {
                Ok(SourceEvent::Records(batch)) => {
                    reopen.reset();
                    self.deliver(batch).await.err()
                }
                Ok(SourceEvent::Ended { children }) => Some(match self.all_finished().await {
                    Ok(()) => Ending::ShardEnded(children),
                    Err(ending) => ending,
                }),
                Ok(event) => {
                    self.note(&event);
                    None
                }
                Err(error) if error.is_retryable() => {
                    tracing::error!(shard = %self.shard, error = &error as &dyn std::error::Error, "the shard cannot be read, trying again");
                    reader.close().await;
                    let ending = self.pause(reopen.next_delay()).await.err();
                    reader = self.cx.source.open(self.open_request());
                    ending
                }
                Err(error) => Some(Ending::Unreadable(error)),
            };
            if let Some(ending) = ending {
                self.keep(reader);
                return ending;
            }
        }
    }

    fn keep(&mut self, reader: Box<dyn ShardReader>) {
        *self.reader.get_mut().unwrap_or_else(PoisonError::into_inner) = Some(reader);
    }

    fn note(&mut self, event: &SourceEvent) {
        match event {
            SourceEvent::Progress { behind, .. } => {
                self.behind = *behind;
                self.metrics.behind(*behind);
            }
            SourceEvent::Gap(gap) => {
                let resumed_at = gap.resumed_at.as_ref().map(ToString::to_string);
                tracing::warn!(shard = %self.shard, after = %gap.after, resumed_at, "records were lost to the retention before they were read");
            }
            SourceEvent::Degraded { reason } => {
                tracing::warn!(shard = %self.shard, reason, "reading does not get on, trying again");
            }
            SourceEvent::Recovered => tracing::info!(shard = %self.shard, "reading gets on again"),
            _ => {}
        }
    }

    /// Where to read from: after what was handed out in this tenure, else where the lease says.
    fn open_request(&self) -> OpenShard {
        let lease = self.tenure.lease();
        let start = match (self.progress.last_delivered(), &lease.checkpoint, lease.anchor) {
            // The record itself, not the one after it: it may be an aggregate that is finished in part.
            (Some(last), _, _) => StartPosition::AtSequenceNumber { sequence: last.sequence().clone() },
            (None, Checkpoint::Latest | Checkpoint::AtTimestamp, Some(timestamp)) => {
                StartPosition::AtTimestamp { timestamp }
            }
            (None, Checkpoint::Latest, None) => StartPosition::Latest,
            (None, _, _) => StartPosition::TrimHorizon,
        };
        OpenShard::new(self.shard.clone(), start).buffer_bytes(self.cx.config.buffer_bytes)
    }

    async fn initialize(&mut self) -> Result<(), Ending> {
        let Some(lifecycle) = self.handler.lifecycle.clone() else { return Ok(()) };
        let lease = self.tenure.lease();
        let start = Initialize {
            shard: self.shard.clone(),
            checkpoint: lease.checkpoint.clone(),
            fence: self.tenure.fence(),
        };
        let mut attempts = self.attempts();
        loop {
            match self.guarded(lifecycle.initialize(&start)).await? {
                Ok(()) => return Ok(()),
                Err(error) => self.after_callback_failure("initialize", &mut attempts, error).await?,
            }
        }
    }

    /// Waits for records that are finished by hand, so that the shard's end is not stored while one is in work.
    async fn all_finished(&mut self) -> Result<(), Ending> {
        while self.progress.unfinished() > 0 {
            self.redeliver_dropped().await?;
            tokio::select! {
                biased;
                interrupt = self.control.interrupt() => return Err(Ending::Interrupted(interrupt)),
                () = self.progress.below(1) => {}
            }
        }
        Ok(())
    }

    /// Waits for room, or an interrupt.
    pub(super) async fn make_room(&mut self) -> Result<(), Ending> {
        loop {
            self.redeliver_dropped().await?;
            if let Some(interrupt) = self.control.interrupted() {
                return Err(Ending::Interrupted(interrupt));
            }
            let limit = self.cx.config.checkpoint_limit;
            if self.progress.unfinished() < limit {
                return Ok(());
            }
            tokio::select! {
                biased;
                interrupt = self.control.interrupt() => return Err(Ending::Interrupted(interrupt)),
                () = self.progress.below(limit) => {}
            }
        }
    }

    /// Sleeps, unless interrupted.
    pub(super) async fn pause(&self, duration: Duration) -> Result<(), Ending> {
        tokio::select! {
            biased;
            interrupt = self.control.interrupt() => Err(Ending::Interrupted(interrupt)),
            () = tokio::time::sleep(duration) => Ok(()),
        }
    }

    async fn end(mut self, ending: Ending) -> Finished {
        let mut stop = None;
        let mut discover = false;
        let outcome = match ending {
            Ending::Interrupted(Interrupt::Lost) | Ending::GaveUp(Interrupt::Lost) => self.end_lost().await,
            Ending::Interrupted(Interrupt::Drain) => self.give_back(None, true).await,
            Ending::GaveUp(Interrupt::Drain) => self.give_back(None, false).await,
            Ending::ShardEnded(children) => {
                discover = children.is_empty();
                self.end_shard(&children).await
            }
            Ending::Exhausted(error) => {
                let text = kinesis_core::error_chain(&*error);
                tracing::error!(shard = %self.shard, error = text, on_exhausted = self.cx.config.on_exhausted.name(), "the handler failed for good");
                match self.cx.config.on_exhausted {
                    OnExhausted::HoldIdle => self.hold_idle().await,
                    OnExhausted::ReleaseLease => self.give_back(Some(self.cool_down()), false).await,
                    OnExhausted::StopWorker => {
                        stop = Some(error);
                        self.give_back(None, false).await
                    }
                }
                .or_failed(text)
            }
            Ending::Unreadable(error) => {
                let text = kinesis_core::error_chain(&error);
                tracing::error!(shard = %self.shard, error = text, "the shard cannot be read, giving it back");
                self.give_back(Some(self.cool_down()), false).await.or_failed(text)
            }
        };
        let report = ShardReport {
            shard: self.shard.clone(),
            outcome,
            stored: self.progress.stored(),
            unfinished: self.progress.unfinished(),
        };
        tracing::debug!(shard = %self.shard, outcome = report.outcome.name(), unfinished = report.unfinished, "tenure ended");
        Finished { report, stop, discover }
    }

    fn cool_down(&self) -> CoolDown {
        let lease = self.tenure.lease();
        // Progress in this tenure breaks the row of failures.
        let moved = self.progress.stored().as_ref() != lease.checkpoint.position();
        let before = lease.cool_down.filter(|_| !moved).map_or(0, |cool_down| cool_down.failures);
        CoolDown::new(self.cx.config.cool_down, before.saturating_add(1))
    }

    async fn close_reader(&mut self) {
        if let Some(reader) = self.reader.get_mut().unwrap_or_else(PoisonError::into_inner).take()
            && timeout(self.cx.config.close_timeout, reader.close()).await.is_err()
        {
            tracing::warn!(shard = %self.shard, "the reader did not close in time, dropping it");
        }
    }

    async fn end_lost(&mut self) -> ShardOutcome {
        self.progress.close();
        self.close_reader().await;
        if let Some(lifecycle) = self.handler.lifecycle.clone()
            && timeout(self.cx.config.close_timeout, self.caught(lifecycle.lease_lost())).await.is_err()
        {
            tracing::warn!(shard = %self.shard, "the callback lease_lost did not return in time");
        }
        ShardOutcome::LeaseLost
    }

    /// The graceful ending: wait for what is in work (if that can still end), callback, close the source, store, release.
    /// In this order: the next owner must not read while this one does.
    async fn give_back(&mut self, cool_down: Option<CoolDown>, wait: bool) -> ShardOutcome {
        let mut outcome = ShardOutcome::Clean;
        if wait {
            tokio::select! {
                biased;
                () = self.progress.below(1) => {}
                _ = self.control.give_up() => {}
            }
        }
        if self.progress.unfinished() > 0 || !wait {
            outcome = ShardOutcome::GaveUp;
        }
        if let Some(lifecycle) = self.handler.lifecycle.clone() {
            let checkpointer = self.checkpointer();
            let call = self.caught(lifecycle.shutdown_requested(&checkpointer));
            match timeout(self.cx.config.close_timeout, call).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(shard = %self.shard, error = kinesis_core::error_chain(&*error), "the callback shutdown_requested failed");
                }
                Err(_) => {
                    tracing::warn!(shard = %self.shard, "the callback shutdown_requested did not return in time");
                    outcome = ShardOutcome::GaveUp;
                }
            }
        }
        self.close_reader().await;
        let stored = self.store_finally().await;
        self.progress.close();
        if let Err(error) = stored {
            outcome = match error {
                CheckpointError::LeaseLost => ShardOutcome::LeaseLost,
                other => ShardOutcome::NotStored { error: kinesis_core::error_chain(&other) },
            };
        }
        match timeout(self.cx.config.close_timeout, self.tenure.release(cool_down)).await {
            Ok(Ok(()) | Err(LeaseError::Closed)) => outcome,
            Ok(Err(LeaseError::Lost)) => ShardOutcome::LeaseLost,
            Ok(Err(error)) => ShardOutcome::NotStored { error: kinesis_core::error_chain(&error) },
            Err(_) => ShardOutcome::NotStored { error: "the release did not return in time".to_owned() },
        }
    }

    /// Tries to store the position until it works, the lease is lost, or `close_timeout` is over.
    async fn store_finally(&mut self) -> Result<(), CheckpointError> {
        let deadline = tokio::time::Instant::now() + self.cx.config.close_timeout;
        let mut backoff = self.backoff();
        loop {
            let error = match tokio::time::timeout_at(deadline, self.progress.store()).await {
                Ok(Err(error)) if error.is_retryable() => error,
                Ok(result) => return result,
                Err(_) => CheckpointError::Store("the lease store did not answer in time".into()),
            };
            let delay = backoff.next_delay();
            if tokio::time::Instant::now() + delay >= deadline {
                return Err(error);
            }
            tokio::time::sleep(delay).await;
        }
    }

    async fn end_shard(&mut self, children: &[ShardInfo]) -> ShardOutcome {
        if let Some(lifecycle) = self.handler.lifecycle.clone() {
            let checkpointer = self.checkpointer();
            let mut attempts = self.attempts();
            loop {
                let failed = match self.guarded(lifecycle.shard_ended(&checkpointer)).await {
                    Ok(Ok(())) => break,
                    Ok(Err(error)) => self.after_callback_failure("shard_ended", &mut attempts, error).await,
                    Err(ending) => Err(ending),
                };
                match failed {
                    Ok(()) => {}
                    Err(Ending::Exhausted(error)) => {
                        // The records are finished; only the callback is not. The end is kept back, and with it the
                        // children, until somebody looks.
                        let text = kinesis_core::error_chain(&*error);
                        tracing::error!(shard = %self.shard, error = text, "the callback shard_ended failed for good");
                        return self.hold_idle().await.or_failed(text);
                    }
                    Err(Ending::Interrupted(Interrupt::Lost) | Ending::GaveUp(Interrupt::Lost)) => {
                        return self.end_lost().await;
                    }
                    Err(_) => return self.give_back(None, false).await,
                }
            }
        }
        self.progress.close();
        self.close_reader().await;
        let mut backoff = self.backoff();
        loop {
            let error = match self.tenure.end_shard(children).await {
                Ok(()) => return ShardOutcome::ShardEnded,
                Err(LeaseError::Lost) => return ShardOutcome::LeaseLost,
                Err(error) => error,
            };
            let text = kinesis_core::error_chain(&error);
            tracing::warn!(shard = %self.shard, error = text, "the end of the shard could not be stored, trying again");
            if self.pause(backoff.next_delay()).await.is_err() {
                // Without the mark the next owner reads the end of the shard once more and stores it.
                let _ = timeout(self.cx.config.close_timeout, self.tenure.release(None)).await;
                return ShardOutcome::NotStored { error: text };
            }
        }
    }

    /// Keeps the lease and processes nothing, until the shard is to be given back.
    async fn hold_idle(&mut self) -> ShardOutcome {
        self.close_reader().await;
        let progress = Arc::clone(&self.progress);
        let interrupt = tokio::select! {
            biased;
            interrupt = self.control.interrupt() => interrupt,
            () = progress.store_every(self.cx.config.checkpoint_interval) => unreachable!("it goes on for as long as it is polled"),
        };
        match interrupt {
            Interrupt::Lost => self.end_lost().await,
            Interrupt::Drain => self.give_back(None, false).await,
        }
    }

    pub(super) fn checkpointer(&self) -> Checkpointer {
        let sink: Arc<dyn CheckpointSink> = Arc::clone(&self.progress) as _;
        Checkpointer::new(sink, self.progress.last_delivered())
    }

    pub(super) fn skip_stored(&self, position: &Position) -> bool {
        self.progress.last_delivered().as_ref().is_some_and(|last| position <= last)
    }
}

impl ShardOutcome {
    /// A failure of the handler goes before a clean ending.
    fn or_failed(self, error: String) -> Self {
        match self {
            Self::Clean | Self::GaveUp => Self::Failed { error },
            other => other,
        }
    }
}
