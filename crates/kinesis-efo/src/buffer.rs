//! What was read and not yet taken.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use kinesis_core::source::{SourceError, SourceEvent};
use tokio::sync::Notify;

use crate::machine::size;

/// What the reader hands out.
pub(crate) type Item = Result<SourceEvent, SourceError>;

/// A queue of events. It has no bound of its own: the machine closes the subscription when too much is held, and of
/// what is no record only the latest is kept.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Item>,
    /// Bytes that were taken and not yet told to the task.
    freed: usize,
    /// Nothing more will come.
    closed: bool,
}

impl Buffer {
    pub(crate) fn push(&self, item: Item) {
        add(&mut self.state().queue, item);
    }

    /// Nothing more will come.
    pub(crate) fn close(&self) {
        self.state().closed = true;
    }

    /// Whether whoever takes gets an answer.
    pub(crate) fn has_news(&self) -> bool {
        let state = self.state();
        state.closed || !state.queue.is_empty()
    }

    /// Takes the oldest event; none when everything was taken and nothing more will come.
    pub(crate) fn take(&self) -> Poll<Option<Item>> {
        let mut state = self.state();
        let Some(item) = state.queue.pop_front() else {
            return if state.closed { Poll::Ready(None) } else { Poll::Pending };
        };
        if let Ok(SourceEvent::Records(batch)) = &item {
            state.freed += size(&batch.records);
            self.freed.notify_one();
        }
        Poll::Ready(Some(item))
    }

    /// Waits until records were taken; how many bytes since the last time. Cancel-safe.
    pub(crate) async fn freed(&self) -> usize {
        loop {
            let freed = std::mem::take(&mut self.state().freed);
            if freed > 0 {
                return freed;
            }
            self.freed.notified().await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds an event and removes what is out of date by it: however long nobody takes anything, these do not pile up.
fn add(queue: &mut VecDeque<Item>, item: Item) {
    let degrades = matches!(item, Ok(SourceEvent::Degraded { .. }));
    let is_news = degrades || matches!(item, Ok(SourceEvent::Progress { .. }));
    if is_news && matches!(queue.back(), Some(Ok(SourceEvent::Progress { .. }))) {
        queue.pop_back();
    }
    // Nobody heard of the recovery yet: the trouble that was said before goes on.
    if degrades && matches!(queue.back(), Some(Ok(SourceEvent::Recovered))) {
        queue.pop_back();
        return;
    }
    queue.push_back(item);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use kinesis_core::source::{SourceBatch, SourceRecord};

    use super::*;

    fn records(number: u128) -> Item {
        let record = SourceRecord::new(number.into(), None, Bytes::from_static(b"abc"));
        Ok(SourceEvent::Records(SourceBatch::new(vec![record], None)))
    }

    fn progress(seconds: u64) -> Item {
        Ok(SourceEvent::Progress { behind: Some(Duration::from_secs(seconds)), continuation: None })
    }

    fn degraded() -> Item {
        Ok(SourceEvent::Degraded { reason: "by test".to_owned() })
    }

    /// What is in the buffer, by name.
    fn story(buffer: &Buffer) -> String {
        buffer.close();
        let mut story = Vec::new();
        while let Poll::Ready(Some(item)) = buffer.take() {
            story.push(match item.unwrap() {
                SourceEvent::Records(_) => "records".to_owned(),
                SourceEvent::Progress { behind, .. } => behind.unwrap().as_secs().to_string(),
                SourceEvent::Degraded { .. } => "degraded".to_owned(),
                SourceEvent::Recovered => "recovered".to_owned(),
                other => panic!("{other:?}"),
            });
        }
        story.join(" ")
    }

    /// S-107: events without records do not pile up while nobody takes them.
    #[test]
    fn of_events_without_records_only_the_last_is_kept() {
        let buffer = Buffer::default();
        for item in [progress(1), progress(2), records(1), progress(3), progress(4)] {
            buffer.push(item);
        }
        assert_eq!(story(&buffer), "2 records 4");
    }

    /// S-107: nor does what is said of trouble that comes and goes; what is left says how it stands.
    #[test]
    fn trouble_that_comes_and_goes_does_not_pile_up() {
        let buffer = Buffer::default();
        for _ in 0..100 {
            for item in [degraded(), Ok(SourceEvent::Recovered), progress(1)] {
                buffer.push(item);
            }
        }
        assert_eq!(story(&buffer), "degraded recovered 1");

        // The caller knows of the first trouble only.
        let buffer = Buffer::default();
        buffer.push(degraded());
        assert!(buffer.take().is_ready());
        for item in [Ok(SourceEvent::Recovered), progress(1), degraded()] {
            buffer.push(item);
        }
        assert_eq!(story(&buffer), "");

        // Records in between stay where they are.
        let buffer = Buffer::default();
        for item in [degraded(), Ok(SourceEvent::Recovered), records(1), degraded()] {
            buffer.push(item);
        }
        assert_eq!(story(&buffer), "degraded recovered records degraded");
    }

    #[tokio::test]
    async fn what_was_taken_is_told_once() {
        let buffer = Buffer::default();
        buffer.push(records(1));
        buffer.push(records(2));
        for _ in 0..2 {
            assert!(buffer.take().is_ready());
        }
        let one = match records(1) {
            Ok(SourceEvent::Records(batch)) => size(&batch.records),
            _ => 0,
        };
        assert_eq!(buffer.freed().await, 2 * one);
        assert!(tokio::time::timeout(Duration::from_millis(1), buffer.freed()).await.is_err());
    }
}
