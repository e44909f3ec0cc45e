//! The instruments of one shard: made once per tenure, used per batch.

use std::sync::Arc;
use std::time::Duration;

use kinesis_core::ShardRef;
use kinesis_core::metrics::{Instrument, Labels, MetricsSink, names};

use super::progress::Progress;
use super::wire::Notes;

#[derive(Debug)]
pub(crate) struct ShardMetrics {
    behind: Arc<dyn Instrument>,
    records: Arc<dyn Instrument>,
    bytes: Arc<dyn Instrument>,
    duration: Arc<dyn Instrument>,
    seconds: Arc<dyn Instrument>,
    errors: Arc<dyn Instrument>,
    undecoded: Arc<dyn Instrument>,
    filtered: Arc<dyn Instrument>,
    age: Arc<dyn Instrument>,
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
            undecoded: make(&names::RECORDS_UNDECODED),
            filtered: make(&names::RECORDS_FILTERED),
            age: make(&names::PROGRESS_AGE),
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

    pub(crate) fn noted(&self, notes: Notes) {
        if notes.undecoded > 0 {
            self.undecoded.add(notes.undecoded);
        }
        if notes.filtered > 0 {
            self.filtered.add(notes.filtered);
        }
    }

    /// Says every `interval` for how long records have been waiting, for as long as it is polled.
    pub(crate) async fn age_every(&self, interval: Duration, progress: &Progress) {
        loop {
            self.progress_age(progress.age());
            tokio::time::sleep(interval).await;
        }
    }

    pub(crate) fn progress_age(&self, age: Duration) {
        self.age.set(age.as_secs_f64());
    }

    pub(crate) fn failed(&self) {
        self.errors.add(1);
    }
}
