//! The service's limits as named constants.
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

/// Most changes of a stream's shard count in 24 hours.
/// <https://docs.aws.amazon.com/kinesis/latest/APIReference/API_UpdateShardCount.html>
pub const SHARD_COUNT_CHANGES_PER_DAY: usize = 10;

/// Most consumers that may be in `CREATING` at a time.
/// <https://docs.aws.amazon.com/kinesis/latest/APIReference/API_RegisterStreamConsumer.html>
pub const CONSUMERS_IN_CREATION: usize = 5;

/// Most registered consumers of a stream, unless the builder says otherwise.
/// <https://docs.aws.amazon.com/kinesis/latest/APIReference/API_RegisterStreamConsumer.html>
pub const DEFAULT_CONSUMER_QUOTA: usize = 20;

/// Most registered consumers of a stream in an account with the on-demand advantage.
/// <https://docs.aws.amazon.com/streams/latest/dev/service-sizes-and-limits.html>
pub const HIGHEST_CONSUMER_QUOTA: usize = 50;

/// SubscribeToShard calls per second, consumer and shard.
/// <https://docs.aws.amazon.com/kinesis/latest/APIReference/API_SubscribeToShard.html>
pub const SUBSCRIBE_CALLS_PER_SECOND: u64 = 1;

/// How long after a successful SubscribeToShard call another one for the same consumer and shard is refused.
/// <https://docs.aws.amazon.com/kinesis/latest/APIReference/API_SubscribeToShard.html>
pub const SUBSCRIBE_IN_USE: Duration = Duration::from_secs(5);

/// How long a subscription lives.
/// <https://docs.aws.amazon.com/kinesis/latest/APIReference/API_SubscribeToShard.html>
pub const SUBSCRIPTION_LIFE: Duration = Duration::from_secs(300);

/// Bytes per second, consumer and shard that are pushed.
/// <https://docs.aws.amazon.com/streams/latest/dev/enhanced-consumers.html>
pub const PUSH_BYTES_PER_SECOND: u64 = 2 * MIB;

/// Most bytes of data and partition keys in one event, unless a single record is larger. The service states none.
pub const EVENT_BYTES: u64 = MIB;

/// Most records in one event. The service states none.
pub const EVENT_RECORDS: usize = 1_000;
