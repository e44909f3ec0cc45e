//! The life of one tenure: initialize, then read and hand out. How it ends is in `ending`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kinesis_core::backoff::Backoff;
use kinesis_core::directory::ShardInfo;
use kinesis_core::processing::{CheckpointSink, Checkpointer};
use kinesis_core::source::{OpenShard, ShardReader, SourceError, SourceEvent};
use kinesis_core::{BoxError, Checkpoint, Position, ShardRef, StartPosition};
use kinesis_lease::Tenure;
use tokio::time::timeout;

use super::Context;
use super::control::{Control, Interrupt};
use super::metrics::ShardMetrics;
use super::policy::Attempts;
use super::progress::Progress;
use super::wire::WireRecord;
use crate::door::ShardHandler;
use crate::{Initialize, ShardReport};

/// Works on one shard for one tenure.
pub(crate) struct ShardTask {
    pub(super) cx: Arc<Context>,
    pub(super) shard: ShardRef,
    pub(super) tenure: Tenure,
    pub(super) control: Control,
    pub(super) progress: Arc<Progress>,
    pub(super) handler: ShardHandler,
    pub(super) metrics: Arc<ShardMetrics>,
    pub(super) behind: Option<Duration>,
    /// Records that a handler finishes by hand, for the case that it drops one.
    pub(super) manual: BTreeMap<u64, WireRecord>,
    /// The first record that is being offered: it and those behind it are the engine's, not a handler's, to finish.
    pub(super) in_hand: Option<Position>,
    /// The callback that ends the tenure was called: there is exactly one.
    pub(super) ending_called: bool,
    /// Whether every reader so far closed in time.
    pub(super) reader_closed: bool,
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
}

impl ShardTask {
    pub(crate) fn new(cx: Arc<Context>, tenure: Tenure, control: Control, seed: u64) -> Self {
        let shard = tenure.shard_ref().clone();
        Self {
            progress: Progress::new(tenure.clone(), cx.config.checkpoint_verb, cx.positions.clone()),
            handler: cx.door.open(&shard),
            metrics: Arc::new(ShardMetrics::new(&*cx.metrics, &shard, cx.config.shard_metrics)),
            behind: None,
            manual: BTreeMap::new(),
            in_hand: None,
            ending_called: false,
            reader_closed: true,
            reader: Mutex::default(),
            cx,
            shard,
            tenure,
            control,
            seed,
        }
    }

    pub(crate) async fn run(mut self) -> Finished {
        let (progress, metrics) = (Arc::clone(&self.progress), Arc::clone(&self.metrics));
        let (interval, spacing) = (self.cx.config.checkpoint_interval, self.cx.config.position_spacing());
        self.begin_weighing();
        let finished = {
            let life = async {
                let ending = self.work().await;
                self.end(ending).await
            };
            tokio::select! {
                biased;
                finished = life => finished,
                () = progress.store_every(interval, spacing) => unreachable!("it goes on for as long as it is polled"),
                () = metrics.age_every(interval, &progress) => unreachable!("it goes on for as long as it is polled"),
            }
        };
        metrics.progress_age(Duration::ZERO);
        finished
    }

    pub(super) fn attempts(&mut self) -> Attempts {
        self.seed = self.seed.wrapping_add(1);
        Attempts::new(&self.cx.config, self.seed)
    }

    pub(super) fn backoff(&mut self) -> Backoff {
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
                    // Not with every event: a reader may say that it does not get on before it fails.
                    if matches!(event, SourceEvent::Progress { .. }) {
                        reopen.reset();
                    }
                    self.note(&event);
                    None
                }
                Err(error) if error.is_retryable() => {
                    let text = kinesis_core::error_chain(&error);
                    tracing::error!(shard = %self.shard, error = text, "the shard cannot be read, trying again");
                    self.close(reader).await;
                    if let Err(ending) = self.pause(reopen.next_delay()).await {
                        return ending;
                    }
                    reader = self.cx.source.open(self.open_request());
                    None
                }
                Err(error) => Some(Ending::Unreadable(error)),
            };
            if let Some(ending) = ending {
                self.keep(reader);
                return ending;
            }
        }
    }

    /// Closes a reader; returns when nothing is open any more, or it takes too long.
    async fn close(&mut self, reader: Box<dyn ShardReader>) {
        if timeout(self.cx.config.close_timeout, reader.close()).await.is_err() {
            self.reader_closed = false;
            tracing::warn!(shard = %self.shard, "the reader did not close in time, dropping it");
        }
    }

    /// Closes the reader of the work that has ended.
    pub(super) async fn close_reader(&mut self) {
        if let Some(reader) = self.reader.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            self.close(reader).await;
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
            match self.guarded("initialize", lifecycle.initialize(&start)).await? {
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

    /// A checkpointer whose `checkpoint()` means everything up to `last`.
    pub(super) fn checkpointer(&self, last: Option<Position>) -> Checkpointer {
        let sink: Arc<dyn CheckpointSink> = Arc::clone(&self.progress) as _;
        Checkpointer::new(sink, last)
    }

    pub(super) fn skip_stored(&self, position: &Position) -> bool {
        let passed = [self.progress.last_delivered(), self.progress.stored()];
        passed.iter().flatten().any(|passed| position <= passed)
    }
}
