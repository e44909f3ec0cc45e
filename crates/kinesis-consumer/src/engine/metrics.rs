//! The instruments of one shard: made once per tenure, used per batch.

use std::sync::Arc;
use std::time::Duration;

use kinesis_core::ShardRef;
use kinesis_core::metrics::{Instrument, Labels, MetricsSink, names};

#[derive(Debug)]
pub(crate) struct ShardMetrics {
    behind: Arc<dyn Instrument>,
    records: Arc<dyn Instrument>,
    bytes: Arc<dyn Instrument>,
    duration: Arc<dyn Instrument>,
    seconds: Arc<dyn Instrument>,
    errors: Arc<dyn Instrument>,
}

impl ShardMetrics {
    pub(crate) fn new(sink: &dyn MetricsSink, shard: &ShardRef, per_shard: bool) -> Self {
        let mut labels = Labels::stream(shard.stream().clone());
        if per_shard {
            labels = labels.shard(shard.shard().clone());
        }
        let make = |desc| sink.instrument(desc, labels.clone());
        Self {
            behind: make(&names::MILLIS_BEHIND_LATEST),
            records: make(&names::RECORDS_PROCESSED),
            bytes: make(&names::BYTES_PROCESSED),
            duration: make(&names::PROCESS_DURATION),
            seconds: make(&names::PROCESS_SECONDS),
            errors: make(&names::PROCESS_ERRORS),
        }
    }

    pub(crate) fn behind(&self, behind: Option<Duration>) {
        if let Some(behind) = behind {
            self.behind.set(behind.as_secs_f64() * 1_000.0);
        }
    }

    pub(crate) fn processed(&self, records: u64, bytes: u64, took: Duration) {
        self.records.add(records);
        self.bytes.add(bytes);
        self.duration.set(took.as_secs_f64() * 1_000.0);
        self.seconds.record(took.as_secs_f64());
    }

    pub(crate) fn failed(&self) {
        self.errors.add(1);
    }
}
