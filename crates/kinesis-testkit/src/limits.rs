//! The service's limits as named constants, and the rules that can be switched off.
//!
//! Sources: [quotas and limits](https://docs.aws.amazon.com/streams/latest/dev/service-sizes-and-limits.html) and
//! the [API reference](https://docs.aws.amazon.com/kinesis/latest/APIReference/Welcome.html).

use std::time::Duration;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// GetRecords calls per second and shard.
/// <https://docs.aws.amazon.com/kinesis/latest/APIReference/API_GetRecords.html>
pub const READ_CALLS_PER_SECOND: u64 = 5;

/// Bytes per second and shard that GetRecords may return, all callers together.
/// <https://docs.aws.amazon.com/streams/latest/dev/service-sizes-and-limits.html>
pub const READ_BYTES_PER_SECOND: u64 = 2 * MIB;

/// Most bytes of one GetRecords reply; one that returns them all blocks the shard's reads for up to 5 seconds.
/// <https://docs.aws.amazon.com/kinesis/latest/APIReference/API_GetRecords.html>
pub const READ_BYTES_PER_CALL: u64 = 10 * MIB;

/// Most records of one GetRecords reply, and the highest `Limit`.
/// <https://docs.aws.amazon.com/kinesis/latest/APIReference/API_GetRecords.html>
pub const READ_RECORDS_PER_CALL: usize = 10_000;

/// GetShardIterator calls per second and shard.
/// <https://docs.aws.amazon.com/kinesis/latest/APIReference/API_GetShardIterator.html>
pub const ITERATOR_CALLS_PER_SECOND: u64 = 5;

/// How long a shard iterator may be used after it was handed out.
/// <https://docs.aws.amazon.com/kinesis/latest/APIReference/API_GetShardIterator.html>
pub const ITERATOR_LIFE: Duration = Duration::from_secs(300);

/// Bytes per second that may be written to a shard, data and partition keys.
/// <https://docs.aws.amazon.com/kinesis/latest/APIReference/API_PutRecords.html>
pub const WRITE_BYTES_PER_SECOND: u64 = MIB;

/// Records per second that may be written to a shard.
/// <https://docs.aws.amazon.com/kinesis/latest/APIReference/API_PutRecords.html>
pub const WRITE_RECORDS_PER_SECOND: u64 = 1_000;

/// Most entries of one PutRecords call.
/// <https://docs.aws.amazon.com/kinesis/latest/APIReference/API_PutRecords.html>
pub const WRITE_RECORDS_PER_CALL: usize = 500;

/// Most bytes of one PutRecords call, data and partition keys of all entries.
/// <https://docs.aws.amazon.com/kinesis/latest/APIReference/API_PutRecords.html>
pub const WRITE_BYTES_PER_CALL: u64 = 10 * MIB;

/// The record limit in KiB of a stream that sets none; it counts the data and the partition key.
/// <https://docs.aws.amazon.com/kinesis/latest/APIReference/API_UpdateMaxRecordSize.html>
pub const DEFAULT_MAX_RECORD_KIB: u64 = 1_024;

/// The highest record limit in KiB that a stream may set.
/// <https://docs.aws.amazon.com/kinesis/latest/APIReference/API_UpdateMaxRecordSize.html>
pub const HIGHEST_MAX_RECORD_KIB: u64 = 10_240;

/// Most Unicode characters of a partition key.
/// <https://docs.aws.amazon.com/kinesis/latest/APIReference/API_PutRecord.html>
pub const PARTITION_KEY_CHARS: usize = 256;

/// How long a ListShards `NextToken` may be used.
/// <https://docs.aws.amazon.com/kinesis/latest/APIReference/API_ListShards.html>
pub const NEXT_TOKEN_LIFE: Duration = Duration::from_secs(300);

/// Most shards of one ListShards reply, whatever `MaxResults` says.
/// <https://docs.aws.amazon.com/kinesis/latest/APIReference/API_ListShards.html>
pub const LIST_SHARDS_PER_CALL: usize = 1_000;

/// The shortest retention period in hours, which is also the default.
/// <https://docs.aws.amazon.com/kinesis/latest/APIReference/API_IncreaseStreamRetentionPeriod.html>
pub const MIN_RETENTION_HOURS: u32 = 24;

/// The longest retention period in hours (365 days).
/// <https://docs.aws.amazon.com/kinesis/latest/APIReference/API_IncreaseStreamRetentionPeriod.html>
pub const MAX_RETENTION_HOURS: u32 = 8_760;

/// Most streams of an account that may be in `CREATING` at a time.
/// <https://docs.aws.amazon.com/kinesis/latest/APIReference/API_CreateStream.html>
pub const STREAMS_IN_CREATION: usize = 5;

/// Shards of an on-demand stream that was just created.
/// <https://docs.aws.amazon.com/streams/latest/dev/how-do-i-size-a-stream.html>
pub const ON_DEMAND_SHARDS: usize = 4;

/// Open shards that an account may have unless the builder says otherwise.
/// <https://docs.aws.amazon.com/streams/latest/dev/service-sizes-and-limits.html>
pub const DEFAULT_SHARD_QUOTA: usize = 20_000;

/// A rule of the service that a test may switch off, to show that it bites or to get it out of the way.
///
/// [`Builder::without`](crate::Builder::without) switches one off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// [`READ_CALLS_PER_SECOND`] GetRecords calls per second and shard.
    ReadCallRate,
    /// [`READ_BYTES_PER_SECOND`] read per second and shard.
    ReadByteRate,
    /// [`ITERATOR_CALLS_PER_SECOND`] GetShardIterator calls per second and shard.
    IteratorCallRate,
    /// [`WRITE_BYTES_PER_SECOND`] written per second and shard.
    WriteByteRate,
    /// [`WRITE_RECORDS_PER_SECOND`] written per second and shard.
    WriteRecordRate,
    /// [`ITERATOR_LIFE`] of a shard iterator.
    IteratorLife,
    /// A timestamp in the future is refused by GetShardIterator.
    FutureTimestamp,
    /// Records older than the retention period are gone, and so are closed shards that held nothing younger.
    Retention,
}

impl Rule {
    /// Every rule, in the order of their declaration.
    pub const ALL: [Self; 8] = [
        Self::ReadCallRate,
        Self::ReadByteRate,
        Self::IteratorCallRate,
        Self::WriteByteRate,
        Self::WriteRecordRate,
        Self::IteratorLife,
        Self::FutureTimestamp,
        Self::Retention,
    ];

    /// The throughput rules: what a test of something else, or a demo that loads data fast, may want to be without.
    pub const THROUGHPUT: [Self; 5] = [
        Self::ReadCallRate,
        Self::ReadByteRate,
        Self::IteratorCallRate,
        Self::WriteByteRate,
        Self::WriteRecordRate,
    ];

    /// The rule's name as the command line knows it, for example `read-call-rate`.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadCallRate => "read-call-rate",
            Self::ReadByteRate => "read-byte-rate",
            Self::IteratorCallRate => "iterator-call-rate",
            Self::WriteByteRate => "write-byte-rate",
            Self::WriteRecordRate => "write-record-rate",
            Self::IteratorLife => "iterator-life",
            Self::FutureTimestamp => "future-timestamp",
            Self::Retention => "retention",
        }
    }
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no rule's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no rule has the name `{0}`")]
pub struct UnknownRule(String);

impl std::str::FromStr for Rule {
    type Err = UnknownRule;

    fn from_str(name: &str) -> Result<Self, UnknownRule> {
        Self::ALL.into_iter().find(|rule| rule.name() == name).ok_or_else(|| UnknownRule(name.to_owned()))
    }
}
