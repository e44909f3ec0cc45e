//! The reader: hands out what its task has read.

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

/// Reads one shard by subscription; from [`EfoSource::reader`](crate::EfoSource::reader).
///
/// The first [`next`](ShardReader::next) starts a task that subscribes and reads ahead into a bounded buffer. When the
/// buffer is full it closes the subscription, and subscribes again where it left off once the buffer is below half: a
/// subscription that is open and unread would hold up every other call on its connection. Dropping the reader ends the
/// task.
pub struct EfoReader {
    shard: ShardRef,
    /// Until the first `next`.
    idle: Option<Box<Driver>>,
    /// At most one task; dropping the set ends it.
    task: JoinSet<()>,
    buffer: Arc<Buffer>,
}

impl EfoReader {
    pub(crate) fn new(shard: ShardRef, driver: Driver, buffer: Arc<Buffer>) -> Self {
        Self { shard, idle: Some(Box::new(driver)), task: JoinSet::new(), buffer }
    }

    /// The shard.
    #[must_use]
    pub fn shard(&self) -> &ShardRef {
        &self.shard
    }

    pub(crate) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<SourceEvent, SourceError>> {
        if let Some(driver) = self.idle.take() {
            self.task.spawn(driver.run());
        }
        Poll::Ready(ready!(self.buffer.poll_take(cx)).unwrap_or_else(|| {
            let failure = ServiceFailure::local(FailureKind::Other, "the reader has already ended");
            Err(SourceError::refused(self.shard.clone(), "SubscribeToShard", failure))
        }))
    }

    /// Ends the task; returns when nothing is open any more.
    pub(crate) async fn shut(&mut self) {
        self.idle = None;
        self.task.shutdown().await;
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
        text.field("shard", self.shard()).field("started", &self.idle.is_none()).finish_non_exhaustive()
    }
}
