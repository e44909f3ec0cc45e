//! The reader: hands out what its task has read.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use async_trait::async_trait;
use kinesis_core::ShardRef;
use kinesis_core::aws::{FailureKind, ServiceFailure};
use kinesis_core::source::{ShardReader, SourceError, SourceEvent};
use tokio::task::JoinHandle;

use crate::shelf::Shelf;
use crate::task::Task;

/// Polls one shard; from [`PollSource::reader`](crate::PollSource::reader).
///
/// The first [`next`](ShardReader::next) starts a task that reads, and goes on while the caller works on what it took:
/// one page ahead, or as many as fit into `buffer_bytes` while reading is behind, within the
/// [`total_buffer_bytes`](crate::PollConfig::total_buffer_bytes) of all readers of the source. A caller that takes
/// nothing is the back-pressure: then no request is made any more. With a `buffer_bytes` of 0 nothing is read before it
/// is asked for. Closing or dropping the reader ends the task and a request under way.
pub struct PollReader {
    shard: ShardRef,
    shelf: Arc<Shelf>,
    state: State,
}

enum State {
    New(Box<Task>),
    Running(AbortOnDrop),
    /// Only while it changes, and after a task that panicked.
    Gone,
}

/// A task that does not outlive its owner.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl PollReader {
    pub(crate) fn new(shard: ShardRef, task: Task) -> Self {
        Self { shard, shelf: Arc::default(), state: State::New(Box::new(task)) }
    }

    /// The shard.
    #[must_use]
    pub fn shard(&self) -> &ShardRef {
        &self.shard
    }

    pub(crate) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<SourceEvent, SourceError>> {
        if let State::New(_) = self.state
            && let State::New(task) = std::mem::replace(&mut self.state, State::Gone)
        {
            self.state = State::Running(AbortOnDrop(tokio::spawn(task.run(Arc::clone(&self.shelf)))));
        }
        if let Some(item) = ready!(self.shelf.poll_take(cx)) {
            return Poll::Ready(item);
        }
        if let State::Running(AbortOnDrop(task)) = &mut self.state {
            let ended = ready!(Pin::new(task).poll(cx));
            self.state = State::Gone;
            if let Err(error) = ended
                && let Ok(panic) = error.try_into_panic()
            {
                std::panic::resume_unwind(panic);
            }
        }
        let failure = ServiceFailure::local(FailureKind::Other, "the reader has already ended");
        Poll::Ready(Err(SourceError::refused(self.shard.clone(), "GetRecords", failure)))
    }
}

#[async_trait]
impl ShardReader for PollReader {
    /// Waits for the next event. Needs a tokio runtime with time enabled.
    ///
    /// Cancel-safe: what is being read is kept for the next call.
    async fn next(&mut self) -> Result<SourceEvent, SourceError> {
        std::future::poll_fn(|cx| self.poll_event(cx)).await
    }

    /// Ends the task, with a request under way; returns when it has ended. What was read ahead is dropped.
    async fn close(mut self: Box<Self>) {
        if let State::Running(mut task) = std::mem::replace(&mut self.state, State::Gone) {
            task.0.abort();
            // Cancelled, or ended before; a panic was its caller's to see.
            drop((&mut task.0).await);
        }
    }
}

impl fmt::Debug for PollReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("PollReader");
        text.field("shard", &self.shard).field("held", &self.shelf.held()).finish_non_exhaustive()
    }
}
