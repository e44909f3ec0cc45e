//! The reader: hands out what was read.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use async_trait::async_trait;
use kinesis_core::ShardRef;
use kinesis_core::aws::{FailureKind, ServiceFailure};
use kinesis_core::source::{ShardReader, SourceError, SourceEvent};
use tokio::task::JoinSet;

use crate::buffer::Buffer;
use crate::driver::Driver;
use crate::turns::Turns;

/// Reads one shard by subscription; from [`EfoSource::reader`](crate::EfoSource::reader).
///
/// Who waits in [`next`](ShardReader::next) reads the subscription himself. While nobody does, a task that the first
/// `next` starts reads ahead into a bounded buffer; when that is full the subscription is closed, and opened again where
/// it was left off once the buffer is below half: one that is open and unread would hold up every other call on its
/// connection. Dropping the reader ends all that.
pub struct EfoReader {
    shard: ShardRef,
    turns: Arc<Turns>,
    /// One task from the first `next` on; dropping the set ends it.
    task: JoinSet<()>,
}

impl EfoReader {
    pub(crate) fn new(shard: ShardRef, driver: Driver, buffer: Arc<Buffer>) -> Self {
        let turns = Turns::new(buffer, |bell| Box::pin(driver.run(bell)));
        Self { shard, turns: Arc::new(turns), task: JoinSet::new() }
    }

    /// The shard.
    #[must_use]
    pub fn shard(&self) -> &ShardRef {
        &self.shard
    }

    pub(crate) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<SourceEvent, SourceError>> {
        if self.task.is_empty() {
            self.task.spawn(Arc::clone(&self.turns).drain());
        }
        Poll::Ready(ready!(self.turns.poll_event(cx)).unwrap_or_else(|| {
            let failure = ServiceFailure::local(FailureKind::Other, "the reader has already ended");
            Err(SourceError::refused(self.shard.clone(), "SubscribeToShard", failure))
        }))
    }

    /// Ends the task; returns when nothing is open any more.
    pub(crate) async fn shut(&mut self) {
        self.task.shutdown().await;
        self.turns.stop();
    }
}

#[async_trait]
impl ShardReader for EfoReader {
    /// Waits for the next event. Needs a tokio runtime with time enabled.
    ///
    /// Cancel-safe.
    async fn next(&mut self) -> Result<SourceEvent, SourceError> {
        std::future::poll_fn(|cx| self.poll_event(cx)).await
    }

    /// Ends the subscription and the task; returns when both are gone. What was read and not taken is dropped.
    async fn close(mut self: Box<Self>) {
        self.shut().await;
    }
}

impl fmt::Debug for EfoReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("EfoReader");
        text.field("shard", self.shard()).field("started", &!self.task.is_empty()).finish_non_exhaustive()
    }
}
