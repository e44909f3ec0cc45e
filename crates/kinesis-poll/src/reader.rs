//! The reader: does what the machine says.

use std::fmt;
use std::task::{Context, Poll, ready};

use async_trait::async_trait;
use kinesis_core::ShardRef;
use kinesis_core::aws::{FailureKind, ServiceFailure};
use kinesis_core::source::{ShardReader, SourceError, SourceEvent};
use tokio::time::Instant;

use crate::calls::{Calls, Pending};
use crate::machine::{Action, Event, PollMachine};
use crate::meters::Meters;

/// Polls one shard; from [`PollSource::reader`](crate::PollSource::reader).
///
/// Nothing runs by itself: without a call of [`next`](ShardReader::next) no request is made, so a caller that does not
/// ask is the back-pressure. Dropping the reader ends a request under way.
///
/// A dropped `next` leaves its request open and unread until the next call: drop it to do something else for a moment,
/// and put the brake on between events. Over HTTP/2 an answer that nobody reads slows down other calls of the client.
pub struct PollReader {
    machine: PollMachine,
    calls: Calls,
    meters: Meters,
    /// Outlives a dropped `next`, which therefore loses nothing.
    pending: Option<Pending>,
}

impl PollReader {
    pub(crate) fn new(machine: PollMachine, calls: Calls, meters: Meters) -> Self {
        Self { machine, calls, meters, pending: None }
    }

    /// The shard.
    #[must_use]
    pub fn shard(&self) -> &ShardRef {
        self.calls.shard()
    }

    pub(crate) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<SourceEvent, SourceError>> {
        loop {
            let event = match &mut self.pending {
                Some(pending) => ready!(pending.as_mut().poll(cx)),
                None => Event::Resume,
            };
            self.pending = None;
            self.meters.count(&event);
            match self.machine.step(Instant::now().into_std(), event) {
                Action::GetIterator { start, replaces_expired } => {
                    if replaces_expired {
                        self.meters.iterator_refreshed();
                    }
                    self.pending = Some(self.calls.get_iterator(&start));
                }
                Action::GetRecords { iterator } => {
                    self.pending = Some(self.calls.get_records(iterator, &self.meters));
                }
                Action::WaitUntil(due) => {
                    self.pending = Some(Box::pin(async move {
                        tokio::time::sleep_until(due.into()).await;
                        Event::Resume
                    }));
                }
                Action::Emit(event) => return Poll::Ready(Ok(event)),
                Action::Fail(error) => return Poll::Ready(Err(error)),
                Action::Done => {
                    let failure = ServiceFailure::local(FailureKind::Other, "the reader has already ended");
                    return Poll::Ready(Err(SourceError::refused(
                        self.shard().clone(),
                        "GetRecords",
                        failure,
                    )));
                }
            }
        }
    }
}

#[async_trait]
impl ShardReader for PollReader {
    /// Waits for the next event. Needs a tokio runtime with time enabled.
    ///
    /// Cancel-safe: a request under way is kept and taken up again by the next call.
    async fn next(&mut self) -> Result<SourceEvent, SourceError> {
        std::future::poll_fn(|cx| self.poll_event(cx)).await
    }

    /// Drops a request under way; returns at once.
    async fn close(self: Box<Self>) {}
}

impl fmt::Debug for PollReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("PollReader");
        text.field("shard", self.shard()).field("pending", &self.pending.is_some()).finish_non_exhaustive()
    }
}
