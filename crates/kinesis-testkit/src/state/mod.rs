//! The service as one pure, synchronous state machine: no I/O, no clock, no randomness of its own.
//!
//! A call is a request and the moment at which it happens. The same calls at the same moments with the same seed
//! give the same replies, down to the sequence numbers.

mod admin;
mod bucket;
mod control;
mod hash;
mod iterator;
mod listing;
mod read;
mod reshard;
mod sequence;
mod shard;
mod stream;
mod validate;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub(crate) use iterator::decode as decode_iterator;
pub(crate) use listing::stream_of_token;
use stream::{Change, Status, Stream};
pub(crate) use validate::Addressed;

use crate::clock::Moment;
use crate::error::ServiceError;
use crate::faults::RecordFaults;
use crate::limits::Rule;
use crate::model::{Request, Response};

/// What the service is set up with.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) region: String,
    pub(crate) account: String,
    pub(crate) seed: u64,
    pub(crate) without: BTreeSet<Rule>,
    pub(crate) create_delay: Duration,
    pub(crate) delete_delay: Duration,
    pub(crate) reshard_delay: Duration,
    pub(crate) shard_quota: usize,
}

/// The service.
pub(crate) struct Kinesis {
    settings: Settings,
    streams: BTreeMap<String, Stream>,
    /// Streams made so far.
    incarnations: u32,
}

impl Kinesis {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { settings, streams: BTreeMap::new(), incarnations: 0 }
    }

    /// Answers one request.
    pub(crate) fn call(
        &mut self,
        now: Moment,
        request: Request,
        faults: &RecordFaults,
    ) -> Result<Response, ServiceError> {
        self.settle(now);
        match request {
            Request::AddTagsToStream(input) => self.add_tags(input),
            Request::CreateStream(input) => self.create_stream(now, input),
            Request::DecreaseStreamRetentionPeriod(input) => self.decrease_retention(&input),
            Request::DeleteStream(input) => self.delete_stream(now, &input),
            Request::DescribeStream(input) => self.describe_stream(now, &input),
            Request::DescribeStreamSummary(input) => self.describe_stream_summary(&input),
            Request::GetRecords(input) => self.get_records(now, &input),
            Request::GetShardIterator(input) => self.get_shard_iterator(now, &input),
            Request::IncreaseStreamRetentionPeriod(input) => self.increase_retention(&input),
            Request::ListShards(input) => self.list_shards(now, &input),
            Request::ListStreams(input) => self.list_streams(&input),
            Request::MergeShards(input) => self.merge_shards(now, &input),
            Request::PutRecord(input) => self.put_record(now, input),
            Request::PutRecords(input) => self.put_records(now, input, faults),
            Request::SplitShard(input) => self.split_shard(now, &input),
            Request::UpdateMaxRecordSize(input) => self.update_max_record_size(&input),
            Request::UpdateShardCount(input) => self.update_shard_count(now, &input),
        }
    }

    /// Carries out what was due by `now`.
    fn settle(&mut self, now: Moment) {
        self.streams.retain(|_, stream| {
            let Some((due, _)) = &stream.pending else { return true };
            if *due > now {
                return true;
            }
            let Some((due, change)) = stream.pending.take() else { return true };
            match change {
                Change::Activate => {}
                // It happened when it was due, not when somebody looked; nothing was written in between.
                Change::Reshard(reshard) => stream.apply(&reshard, due),
                Change::Delete => return false,
            }
            stream.status = Status::Active;
            true
        });
    }

    fn enforces(&self, rule: Rule) -> bool {
        !self.settings.without.contains(&rule)
    }

    /// The moment that everything kept is younger than.
    fn horizon(&self, stream: &Stream, now: Moment) -> Option<Moment> {
        if self.enforces(Rule::Retention) { stream.horizon(now) } else { None }
    }

    fn not_found(&self, name: &str) -> ServiceError {
        ServiceError::resource_not_found(format!(
            "Stream {name} under account {} not found.",
            self.settings.account
        ))
    }

    fn open_shards(&self) -> usize {
        self.streams.values().map(|stream| stream.open.len()).sum()
    }
}
