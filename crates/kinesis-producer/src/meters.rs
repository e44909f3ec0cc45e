//! The producer's metrics. Each is written in one place of this module.

use std::sync::Arc;
use std::time::Duration;

use kinesis_core::StreamRef;
use kinesis_core::metrics::{Desc, Instrument, Labels, MetricsSink, names};

/// One instrument for each metric, made once.
#[derive(Debug)]
pub(crate) struct Meters {
    records_sent: Arc<dyn Instrument>,
    bytes_sent: Arc<dyn Instrument>,
    user_bytes_sent: Arc<dyn Instrument>,
    kinesis_records_sent: Arc<dyn Instrument>,
    records_misplaced: Arc<dyn Instrument>,
    shard_listings: Arc<dyn Instrument>,
    shard_listing_errors: Arc<dyn Instrument>,
    put_latency: Arc<dyn Instrument>,
    records_retried: Arc<dyn Instrument>,
    records_failed: Arc<dyn Instrument>,
    put_errors: Arc<dyn Instrument>,
    buffer_utilization: Arc<dyn Instrument>,
}

impl Meters {
    pub(crate) fn new(sink: &dyn MetricsSink, stream: &StreamRef) -> Self {
        let make = |desc: &'static Desc| sink.instrument(desc, Labels::stream(stream.clone()));
        Self {
            records_sent: make(&names::RECORDS_SENT),
            bytes_sent: make(&names::BYTES_SENT),
            user_bytes_sent: make(&names::USER_BYTES_SENT),
            kinesis_records_sent: make(&names::KINESIS_RECORDS_SENT),
            records_misplaced: make(&names::RECORDS_MISPLACED),
            shard_listings: make(&names::SHARD_LISTINGS),
            shard_listing_errors: make(&names::SHARD_LISTING_ERRORS),
            put_latency: make(&names::PUT_LATENCY),
            records_retried: make(&names::RECORDS_RETRIED),
            records_failed: make(&names::RECORDS_FAILED),
            put_errors: make(&names::PUT_ERRORS),
            buffer_utilization: make(&names::BUFFER_UTILIZATION),
        }
    }

    /// A record with a payload of `bytes`, as it was put, is stored for good.
    pub(crate) fn sent(&self, bytes: usize) {
        self.records_sent.add(1);
        self.user_bytes_sent.add(bytes as u64);
    }

    /// A Kinesis record with a payload of `bytes` was stored at this attempt.
    pub(crate) fn stored(&self, bytes: usize, attempt: u32) {
        self.kinesis_records_sent.add(1);
        if attempt == 1 {
            self.bytes_sent.add(bytes as u64);
        }
    }

    /// Records that were stored where readers may drop them are to be sent again.
    pub(crate) fn misplaced(&self, records: usize) {
        self.records_misplaced.add(records as u64);
    }

    /// The shards were listed, or could not be.
    pub(crate) fn listed(&self, succeeded: bool) {
        self.shard_listings.add(1);
        if !succeeded {
            self.shard_listing_errors.add(1);
        }
    }

    /// A record was given up.
    pub(crate) fn failed(&self) {
        self.records_failed.add(1);
    }

    /// Records that were refused on their own are to be sent again.
    pub(crate) fn retrying(&self, records: usize) {
        self.records_retried.add(records as u64);
    }

    /// A call ended after so long.
    pub(crate) fn call_took(&self, time: Duration) {
        self.put_latency.set(time.as_secs_f64() * 1_000.0);
    }

    /// A call failed as a whole.
    pub(crate) fn call_failed(&self) {
        self.put_errors.add(1);
    }

    /// How full the buffer is.
    pub(crate) fn utilization(&self, percent: f64) {
        self.buffer_utilization.set(percent);
    }
}
