//! The service as one pure, synchronous state machine: no I/O, no clock, no randomness of its own.
//!
//! A call is a request and the moment at which it happens. The same calls at the same moments with the same seed
//! give the same replies, down to the sequence numbers.

mod admin;
mod bucket;
mod consumer;
mod control;
mod encryption;
mod hash;
mod iterator;
mod listing;
mod mode;
mod position;
mod rates;
mod read;
mod records;
mod reshard;
mod sequence;
mod shard;
mod shards;
mod stream;
mod subscription;
#[cfg(test)]
mod tests;
mod upkeep;
mod validate;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub(crate) use consumer::name_in as consumer_name_in;
pub use encryption::KeyState;
pub(crate) use iterator::decode as decode_iterator;
pub(crate) use listing::stream_of_token;
use stream::{Change, Status, Stream};
pub(crate) use subscription::Step;
pub(crate) use validate::{Addressed, StreamArn};

use crate::clock::Moment;
use crate::error::ServiceError;
use crate::faults::RecordFaults;
use crate::model::{Request, Response};
use crate::rule::Rule;

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
    pub(crate) consumer_delay: Duration,
    pub(crate) shard_quota: usize,
    pub(crate) consumer_quota: usize,
    /// How long a subscription is silent before it gets an event without records.
    pub(crate) heartbeat: Duration,
    /// Most records of one event.
    pub(crate) event_records: usize,
    /// How long a new shard is missing in lists of shards.
    pub(crate) shard_list_lag: Duration,
    /// Whether sequence numbers are short at first and gain digits.
    pub(crate) growing_numbers: bool,
    /// The most bytes that all records may hold.
    pub(crate) memory_limit: u64,
    /// How long an iterator may be used.
    pub(crate) iterator_life: Duration,
    /// How long a subscription lives.
    pub(crate) subscription_life: Duration,
}

/// The service.
pub(crate) struct Kinesis {
    settings: Settings,
    streams: BTreeMap<String, Stream>,
    /// Streams made so far.
    incarnations: u32,
    call_rates: rates::CallRates,
    /// By the order in which they were made.
    subscriptions: BTreeMap<u64, subscription::Subscription>,
    subscriptions_made: u64,
    /// Subscriptions with news.
    woken: Vec<u64>,
    /// Decides what the service leaves open.
    random: fastrand::Rng,
    /// The bytes of all records.
    usage: records::Usage,
    /// Records that made room for others before their time.
    evicted: u64,
    /// When everything is next looked through for what has aged out.
    next_upkeep: Moment,
}

impl Kinesis {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            streams: BTreeMap::new(),
            incarnations: 0,
            call_rates: rates::CallRates::default(),
            subscriptions: BTreeMap::new(),
            subscriptions_made: 0,
            woken: Vec::new(),
            random: fastrand::Rng::with_seed(settings.seed),
            usage: records::Usage::default(),
            evicted: 0,
            next_upkeep: Moment::EPOCH,
            settings,
        }
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
            Request::DeregisterStreamConsumer(input) => self.deregister_consumer(now, &input),
            Request::DescribeLimits(_) => Ok(self.describe_limits()),
            Request::DescribeStream(input) => self.describe_stream(now, &input),
            Request::DescribeStreamConsumer(input) => self.describe_consumer(&input),
            Request::DescribeStreamSummary(input) => self.describe_stream_summary(&input),
            Request::GetRecords(input) => self.get_records(now, &input, faults),
            Request::GetShardIterator(input) => self.get_shard_iterator(now, &input),
            Request::IncreaseStreamRetentionPeriod(input) => self.increase_retention(&input),
            Request::ListShards(input) => self.list_shards(now, &input),
            Request::ListStreamConsumers(input) => self.list_consumers(now, &input),
            Request::ListStreams(input) => self.list_streams(&input),
            Request::MergeShards(input) => self.merge_shards(now, &input),
            Request::PutRecord(input) => self.put_record(now, input),
            Request::PutRecords(input) => self.put_records(now, input, faults),
            Request::RegisterStreamConsumer(input) => self.register_consumer(now, &input),
            Request::SplitShard(input) => self.split_shard(now, &input),
            Request::StartStreamEncryption(input) => self.start_encryption(now, &input),
            Request::StopStreamEncryption(input) => self.stop_encryption(now, &input),
            Request::SubscribeToShard(input) => self.subscribe(now, &input),
            Request::UpdateMaxRecordSize(input) => self.update_max_record_size(&input),
            Request::UpdateShardCount(input) => self.update_shard_count(now, &input),
            Request::UpdateStreamMode(input) => self.update_stream_mode(now, &input),
            Request::UpdateStreamRecordDistributionStrategy(input) => self.update_distribution(&input),
        }
    }

    /// Carries out what was due by `now`.
    fn settle(&mut self, now: Moment) {
        let mut deleted = Vec::new();
        self.streams.retain(|name, stream| {
            stream.consumers.retain(|_, consumer| consumer.settle(now));
            let Some((due, _)) = &stream.pending else { return true };
            if *due > now {
                return true;
            }
            let Some((due, change)) = stream.pending.take() else { return true };
            match change {
                Change::Activate => {}
                // It happened when it was due, not when somebody looked; nothing was written in between.
                Change::Reshard(reshard) => stream.apply(&reshard, due),
                Change::Delete => {
                    deleted.push(name.clone());
                    return false;
                }
            }
            stream.status = Status::Active;
            true
        });
        for name in deleted {
            self.forget_stream(&name);
        }
        self.keep_up(now);
    }

    /// Forgets what is kept of a stream apart from it.
    fn forget_stream(&mut self, name: &str) {
        self.call_rates.forget(name);
        // They find out by themselves that the stream is gone.
        self.wake_stream(name);
    }

    pub(crate) fn account(&self) -> &str {
        &self.settings.account
    }

    pub(crate) fn enforces(&self, rule: Rule) -> bool {
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
