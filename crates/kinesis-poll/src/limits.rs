//! Limits of the service, as its documentation states them.

use std::time::Duration;

/// How many GetRecords a shard answers per second, all of its readers together
/// (<https://docs.aws.amazon.com/kinesis/latest/APIReference/API_GetRecords.html>).
pub const READS_PER_SECOND: u32 = 5;

/// The closest spacing of GetRecords that keeps within [`READS_PER_SECOND`].
pub const MIN_READ_INTERVAL: Duration = Duration::from_millis(1_000 / READS_PER_SECOND as u64);

/// The most records of one GetRecords, and the largest `Limit`
/// (<https://docs.aws.amazon.com/kinesis/latest/APIReference/API_GetRecords.html>).
pub const MAX_RECORDS_PER_READ: u32 = 10_000;

/// The most bytes of one GetRecords
/// (<https://docs.aws.amazon.com/kinesis/latest/APIReference/API_GetRecords.html>).
pub const MAX_BYTES_PER_READ: u64 = 10 * 1024 * 1024;

/// How long a shard iterator may be used after it was handed out
/// (<https://docs.aws.amazon.com/kinesis/latest/APIReference/API_GetShardIterator.html>).
pub const ITERATOR_LIFE: Duration = Duration::from_secs(5 * 60);

/// The shortest time that a stream keeps its records
/// (<https://docs.aws.amazon.com/kinesis/latest/APIReference/API_IncreaseStreamRetentionPeriod.html>).
pub const MIN_RETENTION: Duration = Duration::from_secs(24 * 60 * 60);
