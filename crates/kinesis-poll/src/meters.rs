//! The instruments of one reader.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kinesis_core::ShardRef;
use kinesis_core::aws::FailureKind;
use kinesis_core::metrics::{Instrument, Labels, MetricsSink, names};

use crate::machine::Event;

#[derive(Clone)]
pub(crate) struct Meters {
    fetch_duration: Arc<dyn Instrument>,
    empty_polls: Arc<dyn Instrument>,
    iterator_refreshes: Arc<dyn Instrument>,
    fetch_errors: Arc<dyn Instrument>,
}

impl Meters {
    pub(crate) fn new(sink: &dyn MetricsSink, shard: &ShardRef, shard_label: bool) -> Self {
        let mut labels = Labels::stream(shard.stream().clone());
        if shard_label {
            labels = labels.shard(shard.shard().clone());
        }
        let make = |desc| sink.instrument(desc, labels.clone());
        Self {
            fetch_duration: make(&names::FETCH_DURATION),
            empty_polls: make(&names::EMPTY_POLLS),
            iterator_refreshes: make(&names::ITERATOR_REFRESHES),
            fetch_errors: make(&names::FETCH_ERRORS),
        }
    }

    /// How long a GetRecords took, whatever came of it.
    pub(crate) fn fetched(&self, took: Duration) {
        self.fetch_duration.set(took.as_secs_f64() * 1_000.0);
    }

    pub(crate) fn iterator_refreshed(&self) {
        self.iterator_refreshes.add(1);
    }

    /// Counts what came of a GetRecords. An expired iterator is counted when it is replaced.
    pub(crate) fn count(&self, event: &Event) {
        match event {
            Event::Page(Ok(page)) if page.records.is_empty() => self.empty_polls.add(1),
            Event::Page(Err(failure)) if failure.kind() != FailureKind::ExpiredIterator => {
                self.fetch_errors.add(1)
            }
            _ => {}
        }
    }
}

impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Meters")
    }
}
