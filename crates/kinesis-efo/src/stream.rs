//! A reader as a stream.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::FusedStream;
use kinesis_core::source::{OpenShard, SourceError, SourceEvent};

use crate::{EfoReader, EfoSource};

/// The events of one shard, for use without a consumer.
///
/// It ends after [`SourceEvent::Ended`] and after an error. It reads ahead from the first time that it is polled, as
/// far as [`OpenShard::buffer_bytes`] lets it; dropping it ends the subscription. Needs a tokio runtime with time
/// enabled.
#[derive(Debug)]
#[must_use = "a stream does nothing unless it is polled"]
pub struct EfoStream {
    reader: EfoReader,
    ended: bool,
}

impl EfoStream {
    /// Streams a shard.
    pub fn new(source: &EfoSource, request: OpenShard) -> Self {
        Self { reader: source.reader(request), ended: false }
    }

    /// Ends the subscription; returns when nothing is open any more, so that another reader can begin.
    pub async fn close(mut self) {
        self.reader.shut().await;
    }
}

impl Stream for EfoStream {
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

impl FusedStream for EfoStream {
    fn is_terminated(&self) -> bool {
        self.ended
    }
}
