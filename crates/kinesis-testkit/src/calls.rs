//! The log of calls: what clients asked for, when, and what came of it.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime};

use crate::model::{Operation, PutEntry, Request, Response};
use crate::state::{Addressed, StreamArn, consumer_name_in, decode_iterator};

/// Calls that the log keeps; older ones are forgotten, but still counted.
pub const CALL_LOG_LENGTH: usize = 100_000;

/// One call as the service saw it. Fields that its operation does not have are `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// The service's wall time when the call came in.
    pub at: SystemTime,
    /// The time since the service's clock was made: differences of it are the spacing of calls.
    pub elapsed: Duration,
    /// The operation.
    pub operation: Operation,
    /// The name of the stream, whether the call named it, its ARN, an iterator or a token of it.
    pub stream: Option<String>,
    /// Whether the call carried the stream's ARN.
    pub by_arn: bool,
    /// The shard.
    pub shard: Option<String>,
    /// The name of the consumer.
    pub consumer: Option<String>,
    /// GetShardIterator and SubscribeToShard: the type of the start, for example `LATEST`.
    pub iterator_type: Option<String>,
    /// GetShardIterator and SubscribeToShard: the starting sequence number.
    pub sequence_number: Option<String>,
    /// GetShardIterator and SubscribeToShard: the timestamp.
    pub timestamp: Option<SystemTime>,
    /// GetRecords and the lists: the most results that the caller wants.
    pub limit: Option<i64>,
    /// ListShards: the type of the filter.
    pub shard_filter: Option<String>,
    /// ListShards, ListStreams and ListStreamConsumers: whether the call asks for a following page.
    pub follows_page: bool,
    /// PutRecord and PutRecords: the number of entries.
    pub entries: usize,
    /// PutRecord and PutRecords: the bytes of data and partition keys.
    pub bytes: u64,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// It has not been carried out yet, or never was because the caller gave up.
    Pending,
    /// It was carried out.
    Done {
        /// Records that were returned or stored.
        records: usize,
    },
    /// It was refused with this error code.
    Refused {
        /// The error's code, for example `ExpiredIteratorException`.
        code: String,
    },
    /// The connection closed before it was carried out.
    Disconnected,
}

impl Call {
    pub(crate) fn new(at: SystemTime, elapsed: Duration, request: &Request) -> Self {
        let mut call = Self {
            at,
            elapsed,
            operation: request.operation(),
            stream: None,
            by_arn: false,
            shard: None,
            consumer: None,
            iterator_type: None,
            sequence_number: None,
            timestamp: None,
            limit: None,
            shard_filter: None,
            follows_page: false,
            entries: 0,
            bytes: 0,
            outcome: Outcome::Pending,
        };
        call.describe(request);
        call
    }

    fn describe(&mut self, request: &Request) {
        match request {
            Request::AddTagsToStream(input) => self.address(input),
            Request::CreateStream(input) => self.stream.clone_from(&input.stream_name),
            Request::DecreaseStreamRetentionPeriod(input) | Request::IncreaseStreamRetentionPeriod(input) => {
                self.address(input);
            }
            Request::DeleteStream(input) | Request::DescribeStreamSummary(input) => self.address(input),
            Request::DescribeLimits(_) => {}
            Request::DescribeStream(input) => self.address(input),
            Request::DeregisterStreamConsumer(input)
            | Request::DescribeStreamConsumer(input)
            | Request::RegisterStreamConsumer(input) => {
                let arn = input.consumer_arn.as_deref();
                self.address_by_arn(arn.or(input.stream_arn.as_deref()));
                self.consumer = input.consumer_name.clone().or_else(|| arn.and_then(name_in_arn));
            }
            Request::ListStreamConsumers(input) => {
                self.address_by_arn(input.stream_arn.as_deref());
                self.limit = input.max_results;
                self.follows_page = input.next_token.is_some();
            }
            Request::GetRecords(input) => {
                if let Some(iterator) = input.shard_iterator.as_deref().and_then(decode_iterator) {
                    self.shard = Some(iterator.shard_id());
                    self.stream = Some(iterator.stream);
                }
                self.by_arn = input.stream_arn.is_some();
                self.limit = input.limit;
            }
            Request::GetShardIterator(input) => {
                self.address(input);
                self.shard.clone_from(&input.shard_id);
                self.iterator_type.clone_from(&input.shard_iterator_type);
                self.sequence_number.clone_from(&input.starting_sequence_number);
                self.timestamp = input.timestamp.map(|timestamp| timestamp.0.into());
            }
            Request::ListShards(input) => {
                self.address(input);
                self.limit = input.max_results;
                self.shard_filter = input.shard_filter.as_ref().and_then(|filter| filter.kind.clone());
                self.follows_page = input.next_token.is_some();
                if let Some(token) = input.next_token.as_deref() {
                    self.stream = crate::state::stream_of_token(token);
                }
            }
            Request::ListStreams(input) => {
                self.limit = input.limit;
                self.follows_page = input.next_token.is_some();
            }
            Request::MergeShards(input) => {
                self.address(input);
                self.shard.clone_from(&input.shard_to_merge);
            }
            Request::PutRecord(input) => {
                self.address(input);
                self.entries = 1;
                self.bytes =
                    size(input.data.as_ref().map(|data| data.0.len()), input.partition_key.as_deref());
            }
            Request::PutRecords(input) => {
                self.address(input);
                let entries = input.records.as_deref().unwrap_or_default();
                self.entries = entries.len();
                self.bytes = entries.iter().map(entry_size).sum();
            }
            Request::SplitShard(input) => {
                self.address(input);
                self.shard.clone_from(&input.shard_to_split);
            }
            Request::StartStreamEncryption(input) | Request::StopStreamEncryption(input) => {
                self.address(input);
            }
            Request::SubscribeToShard(input) => {
                let arn = input.consumer_arn.as_deref();
                self.address_by_arn(arn);
                self.consumer = arn.and_then(name_in_arn);
                self.shard.clone_from(&input.shard_id);
                if let Some(start) = &input.starting_position {
                    self.iterator_type.clone_from(&start.kind);
                    self.sequence_number.clone_from(&start.sequence_number);
                    self.timestamp = start.timestamp.map(|timestamp| timestamp.0.into());
                }
            }
            Request::UpdateMaxRecordSize(input) => self.address(input),
            Request::UpdateShardCount(input) => self.address(input),
            Request::UpdateStreamMode(input) => self.address_by_arn(input.stream_arn.as_deref()),
            Request::UpdateStreamRecordDistributionStrategy(input) => {
                self.address_by_arn(input.stream_arn.as_deref());
            }
        }
    }

    fn address_by_arn(&mut self, arn: Option<&str>) {
        if let Some(arn) = arn {
            self.address(&StreamArn(arn));
        }
    }

    fn address(&mut self, input: &impl Addressed) {
        let address = input.address();
        self.stream = address.stream_name().map(str::to_owned);
        self.by_arn = address.arn.is_some();
    }
}

/// The consumer in a consumer's ARN.
fn name_in_arn(arn: &str) -> Option<String> {
    consumer_name_in(arn).map(str::to_owned)
}

fn entry_size(entry: &PutEntry) -> u64 {
    size(entry.data.as_ref().map(|data| data.0.len()), entry.partition_key.as_deref())
}

fn size(data: Option<usize>, key: Option<&str>) -> u64 {
    (data.unwrap_or_default() + key.map_or(0, str::len)) as u64
}

impl Outcome {
    /// What came of a call that was answered with `response`.
    pub(crate) fn of(response: &Response) -> Self {
        let records = match response {
            Response::GetRecords(output) => output.records.len(),
            Response::PutRecord(_) => 1,
            Response::PutRecords(output) => {
                output.records.iter().filter(|result| result.sequence_number.is_some()).count()
            }
            _ => 0,
        };
        Self::Done { records }
    }
}

/// The log: counts without a bound, calls up to [`CALL_LOG_LENGTH`].
#[derive(Debug, Default)]
pub(crate) struct CallLog {
    counts: BTreeMap<Operation, u64>,
    calls: VecDeque<Call>,
    /// Calls that were forgotten.
    forgotten: u64,
}

impl CallLog {
    /// Adds a call and returns its number, by which its outcome is told later.
    pub(crate) fn begin(&mut self, call: Call) -> u64 {
        *self.counts.entry(call.operation).or_default() += 1;
        if self.calls.len() == CALL_LOG_LENGTH {
            self.calls.pop_front();
            self.forgotten += 1;
        }
        self.calls.push_back(call);
        self.forgotten + self.calls.len() as u64 - 1
    }

    pub(crate) fn finish(&mut self, number: u64, outcome: Outcome) {
        let place = number.checked_sub(self.forgotten).and_then(|place| usize::try_from(place).ok());
        if let Some(call) = place.and_then(|place| self.calls.get_mut(place)) {
            call.outcome = outcome;
        }
    }

    pub(crate) fn count(&self, operation: Operation) -> u64 {
        self.counts.get(&operation).copied().unwrap_or_default()
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.iter().cloned().collect()
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::DescribeLimitsInput;

    #[test]
    fn the_log_keeps_the_latest_calls_and_counts_all() {
        let mut log = CallLog::default();
        let request = Request::DescribeLimits(DescribeLimitsInput::default());
        let call = |at: u64| Call::new(SystemTime::UNIX_EPOCH, Duration::from_secs(at), &request);
        let more = 10;
        for at in 0..(CALL_LOG_LENGTH + more) as u64 {
            let number = log.begin(call(at));
            log.finish(number, Outcome::Done { records: 0 });
        }
        // One that was forgotten can still end.
        log.finish(0, Outcome::Disconnected);
        let calls = log.calls();
        assert_eq!(calls.len(), CALL_LOG_LENGTH);
        assert_eq!(calls[0].elapsed, Duration::from_secs(more as u64));
        assert!(calls.iter().all(|call| call.outcome == Outcome::Done { records: 0 }));
        assert_eq!(log.count(Operation::DescribeLimits), (CALL_LOG_LENGTH + more) as u64);
    }
}
