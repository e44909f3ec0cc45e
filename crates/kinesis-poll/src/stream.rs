//! A reader as a stream.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::FusedStream;
use kinesis_core::source::{OpenShard, SourceError, SourceEvent};

use crate::{PollReader, PollSource};

/// The events of one shard, for use without a consumer.
///
/// It ends after [`SourceEvent::Ended`] and after an error. It reads ahead like the reader, and
/// dropping it ends a request under way. Needs a tokio runtime with time enabled.
#[derive(Debug)]
#[must_use = "a stream does nothing unless it is polled"]
pub struct PollStream {
    reader: PollReader,
    ended: bool,
}

impl PollStream {
    /// Streams a shard.
    pub fn new(source: &PollSource, request: OpenShard) -> Self {
        Self { reader: source.reader(request), ended: false }
    }
}

impl Stream for PollStream {
    type Item = Result<SourceEvent, SourceError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let item = ready!(self.reader.poll_event(cx));
        self.ended = matches!(item, Err(_) | Ok(SourceEvent::Ended { .. }));
        Poll::Ready(Some(item))
    }
}

impl FusedStream for PollStream {
    fn is_terminated(&self) -> bool {
        self.ended
    }
}
