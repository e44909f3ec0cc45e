//! What a shard costs its worker, told to the lease, where leases are shared by that.

use std::time::Duration;

use kinesis_core::source::SourceBatch;
use kinesis_lease::{Balance, Tenure};
use tokio::time::Instant;

use super::shard::ShardTask;

/// A call of a handler or callback; the time that it has taken is reported at the latest when this is dropped.
pub(super) struct Busy<'a> {
    tenure: Option<&'a Tenure>,
    since: Instant,
    interval: Duration,
}

impl Busy<'_> {
    /// When to report, if the call has not ended by then: a long one is not to look like none.
    pub(super) fn report_at(&self) -> Option<Instant> {
        self.tenure.is_some().then(|| self.since + self.interval)
    }

    pub(super) fn report(&mut self) {
        let Some(tenure) = self.tenure else { return };
        let now = Instant::now();
        tenure.report_load(now - self.since, 0, 0);
        self.since = now;
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.report();
    }
}

impl ShardTask {
    fn weighed(&self) -> Option<&Tenure> {
        (self.cx.config.lease.balance == Balance::Load).then_some(&self.tenure)
    }

    /// Says that loads are reported, so that silence means none.
    pub(super) fn begin_weighing(&self) {
        if let Some(tenure) = self.weighed() {
            tenure.report_load(Duration::ZERO, 0, 0);
        }
    }

    /// Records were read.
    pub(super) fn weigh(&self, batch: &SourceBatch) {
        if let Some(tenure) = self.weighed() {
            let bytes = batch.records.iter().map(|record| record.data.len() as u64).sum();
            tenure.report_load(Duration::ZERO, bytes, batch.records.len() as u64);
        }
    }

    /// A call that began at that time.
    pub(super) fn busy(&self, since: Instant) -> Busy<'_> {
        Busy { tenure: self.weighed(), since, interval: self.cx.config.lease.heartbeat_interval }
    }
}
