//! The settings of a producer, their defaults, and the service's limits.

use std::time::Duration;

#[cfg(feature = "compress")]
use kinesis_compress::{Compression, Level};
use kinesis_core::ConfigError;
use kinesis_core::aws::DEFAULT_ATTEMPT_TIMEOUT;
use kinesis_kpl::{MIN_BYTES_LIMIT, OuterKey};

use crate::aggregation::{Aggregation, Misplaced};

const MIB: usize = 1024 * 1024;

/// The most records of one PutRecords call
/// (<https://docs.aws.amazon.com/kinesis/latest/APIReference/API_PutRecords.html>).
pub const MAX_BATCH_RECORDS: usize = 500;

/// The most bytes of one PutRecords call, payloads and partition keys together: 10 MiB
/// (<https://docs.aws.amazon.com/kinesis/latest/APIReference/API_PutRecords.html>).
pub const MAX_BATCH_BYTES: usize = 10 * MIB;

/// The largest record, payload and partition key together, that any stream takes: 10 MiB
/// (<https://docs.aws.amazon.com/kinesis/latest/APIReference/API_UpdateMaxRecordSize.html>).
pub const MAX_RECORD_BYTES: usize = 10 * MIB;

/// The most concurrent calls that can be set.
pub const MAX_IN_FLIGHT: usize = 256;

/// The longest duration that can be set: a day.
pub const MAX_DURATION: Duration = Duration::from_secs(24 * 60 * 60);

/// What each record costs of [`buffer_bytes`](ProducerConfig::buffer_bytes) besides its payload and key: about what
/// keeping it takes, so that many tiny records cannot take more memory than the budget says.
pub const RECORD_OVERHEAD: usize = 256;

/// The default number of retries of a record.
pub const DEFAULT_MAX_RETRIES: u32 = 3;
/// The default of records per call: as many as the service takes.
pub const DEFAULT_BATCH_RECORDS: usize = 500;
/// The default of bytes per call: 5 MiB, which every region and emulator takes.
pub const DEFAULT_BATCH_BYTES: usize = 5 * 1024 * 1024;
/// The default number of records that may wait.
pub const DEFAULT_BUFFER_RECORDS: usize = 500;
/// The default byte budget: 64 MiB.
pub const DEFAULT_BUFFER_BYTES: usize = 64 * 1024 * 1024;
/// The default time that a record waits for others.
pub const DEFAULT_LINGER: Duration = Duration::from_millis(100);
/// The default limit of a record: 1 MiB, what a stream takes unless it was set otherwise.
pub const DEFAULT_MAX_RECORD_BYTES: usize = 1024 * 1024;
/// The default number of concurrent calls.
pub const DEFAULT_IN_FLIGHT: usize = 4;
/// The default time that a record may take in all before it is given up.
pub const DEFAULT_DELIVERY_TIMEOUT: Duration = Duration::from_secs(120);
/// The default of the first delay between attempts.
pub const DEFAULT_RETRY_INITIAL: Duration = Duration::from_millis(200);
/// The default of the longest delay between attempts.
pub const DEFAULT_RETRY_MAX: Duration = Duration::from_secs(10);

/// The default size limit of an aggregate: 51,200 bytes, the KPL's.
pub const DEFAULT_AGGREGATE_BYTES: usize = kinesis_kpl::DEFAULT_MAX_BYTES;
/// The default limit of the records of an aggregate: the KPL's, in effect none.
pub const DEFAULT_AGGREGATE_RECORDS: usize = kinesis_kpl::DEFAULT_MAX_RECORDS;
/// The default of the least time between two listings of the shards.
pub const DEFAULT_SHARD_MAP_INTERVAL: Duration = Duration::from_secs(1);
/// The default of the longest delay before the shards are listed again after a failure.
pub const DEFAULT_SHARD_MAP_RETRY_MAX: Duration = Duration::from_secs(30);
/// The default of how long listing the shards may take.
pub const DEFAULT_SHARD_MAP_TIMEOUT: Duration = Duration::from_secs(5);
/// The default limit of a record before compression: 10 MiB, what consumers unpack unless they are told otherwise.
#[cfg(feature = "compress")]
pub const DEFAULT_MAX_INPUT_BYTES: usize = 10 * 1024 * 1024;
/// The highest limit of a record before compression that can be set: 1 GiB.
#[cfg(feature = "compress")]
pub const MAX_INPUT_BYTES: usize = 1024 * 1024 * 1024;

/// The settings of a [`Producer`](crate::Producer); its builder has a setter of the same name for each.
///
/// With feature `serde` it is read from configuration files; durations are text such as `100ms` or `2min`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
#[non_exhaustive]
pub struct ProducerConfig {
    /// How often a record is sent again after a failure, so that it has one attempt more than this. Zero turns
    /// retries off.
    pub max_retries: u32,
    /// The most records of one call: 1 to 500 ([`MAX_BATCH_RECORDS`]). A call starts as soon as this many wait.
    pub batch_records: usize,
    /// The most bytes of one call, payloads and partition keys together as they go out, after aggregation and
    /// compression: from `max_record_bytes` to 10 MiB ([`MAX_BATCH_BYTES`]). A call starts as soon as this many wait.
    pub batch_bytes: usize,
    /// How many records may wait for a call, first ones and repeated ones together, before `put` waits: at least 1. A
    /// full aggregate counts as one record; what is in an aggregate that still grows counts with its bytes only.
    pub buffer_records: usize,
    /// How many bytes may be in the producer, waiting, in flight and waiting to be repeated together, before `put`
    /// waits. A record counts with its payload, its key and [`RECORD_OVERHEAD`]; aggregates and compressed payloads
    /// count besides the records in them, which are kept to be given back. At least room for one record of
    /// `max_record_bytes`.
    pub buffer_bytes: usize,
    /// How long a record may wait for others to share its call and its aggregate. Zero sends it at once, so that there
    /// are aggregates only while calls are held up.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub linger: Duration,
    /// The largest record in bytes, payload and partition key together as they go out: 1 to 10 MiB
    /// ([`MAX_RECORD_BYTES`]). A larger one is refused by `put`. Raise it together with the limit of the stream.
    pub max_record_bytes: usize,
    /// How many calls may be under way at a time: 1 to 256. Records of one key are never in two calls at a time; with
    /// aggregation by shard, records of one shard are not.
    pub in_flight: usize,
    /// How long one PutRecords call may take. A call that takes longer counts as failed, though the service may have
    /// stored its records: choose it well above the usual latency, as the repetition then makes duplicates.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub attempt_timeout: Duration,
    /// How long a record may take in all, from admission on. After this no further attempt starts and the record
    /// fails; an attempt that is under way may still end, so the answer comes at most `attempt_timeout` later.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub delivery_timeout: Duration,
    /// The first delay before an attempt is repeated; each later one is twice as long, and all are jittered.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub retry_initial: Duration,
    /// The longest delay between two attempts.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub retry_max: Duration,
    /// Whether records are packed into aggregates of the KPL's format, and which records share one. Default: none are.
    pub aggregation: Aggregation,
    /// The most bytes of an aggregate with its partition key, before compression: 64 to `max_record_bytes`; without
    /// effect while `aggregation` is off. A record that does not fit into an aggregate is sent alone. The service
    /// meters in units of 25 KB and readers unpack an aggregate as a whole, so that larger ones gain little.
    pub aggregate_bytes: usize,
    /// The most records of an aggregate, at least 1.
    pub aggregate_records: usize,
    /// Which partition key an aggregate gets: that of its first record (default), or the KPL's `a` with an explicit hash
    /// key. Where it is stored is the same.
    pub outer_key: OuterKey,
    /// What becomes of the records of an aggregate that a reshard led into a shard where not all of them belong.
    pub misplaced: Misplaced,
    /// The least time from one listing of the shards to the next, and the first delay after a listing that failed or was
    /// out of date; each later one is twice as long, and they are jittered.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub shard_map_interval: Duration,
    /// The longest delay before the shards are listed again after a listing that failed or was out of date.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub shard_map_retry_max: Duration,
    /// How long listing the shards may take, all pages together. The first records wait for the first listing.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub shard_map_timeout: Duration,
    /// Whether `put_batch` refuses a batch whose records have different partition keys, before anything is sent. Then no
    /// aggregate mixes keys either. Off by default.
    pub partition_key_safety: bool,
    /// The format into which payloads are compressed; `None`, the default, leaves them as they are. With aggregation the
    /// whole aggregate is compressed, see `compress_each`.
    #[cfg(feature = "compress")]
    #[cfg_attr(docsrs, doc(cfg(feature = "compress")))]
    pub compression: Option<Compression>,
    /// How hard to compress.
    #[cfg(feature = "compress")]
    #[cfg_attr(docsrs, doc(cfg(feature = "compress")))]
    pub compression_level: Level,
    /// Whether each record of an aggregate is compressed, instead of the aggregate as a whole (default). Whole
    /// aggregates come out smaller; only readers that decompress before they split them can read them, as
    /// `kinesis-consumer` does. With this on, the aggregates are plain ones for the Java KCL and for Lambda.
    #[cfg(feature = "compress")]
    #[cfg_attr(docsrs, doc(cfg(feature = "compress")))]
    pub compress_each: bool,
    /// The largest record in bytes before compression, payload and partition key together: from `max_record_bytes` to
    /// 1 GiB ([`MAX_INPUT_BYTES`]); without effect while `compression` is off. Consumers limit what they unpack: raise
    /// it together with theirs.
    #[cfg(feature = "compress")]
    #[cfg_attr(docsrs, doc(cfg(feature = "compress")))]
    pub max_input_bytes: usize,
}

impl Default for ProducerConfig {
    fn default() -> Self {
        Self {
            max_retries: DEFAULT_MAX_RETRIES,
            batch_records: DEFAULT_BATCH_RECORDS,
            batch_bytes: DEFAULT_BATCH_BYTES,
            buffer_records: DEFAULT_BUFFER_RECORDS,
            buffer_bytes: DEFAULT_BUFFER_BYTES,
            linger: DEFAULT_LINGER,
            max_record_bytes: DEFAULT_MAX_RECORD_BYTES,
            in_flight: DEFAULT_IN_FLIGHT,
            attempt_timeout: DEFAULT_ATTEMPT_TIMEOUT,
            delivery_timeout: DEFAULT_DELIVERY_TIMEOUT,
            retry_initial: DEFAULT_RETRY_INITIAL,
            retry_max: DEFAULT_RETRY_MAX,
            aggregation: Aggregation::Off,
            aggregate_bytes: DEFAULT_AGGREGATE_BYTES,
            aggregate_records: DEFAULT_AGGREGATE_RECORDS,
            outer_key: OuterKey::First,
            misplaced: Misplaced::SendAgain,
            shard_map_interval: DEFAULT_SHARD_MAP_INTERVAL,
            shard_map_retry_max: DEFAULT_SHARD_MAP_RETRY_MAX,
            shard_map_timeout: DEFAULT_SHARD_MAP_TIMEOUT,
            partition_key_safety: false,
            #[cfg(feature = "compress")]
            compression: None,
            #[cfg(feature = "compress")]
            compression_level: Level::Default,
            #[cfg(feature = "compress")]
            compress_each: false,
            #[cfg(feature = "compress")]
            max_input_bytes: DEFAULT_MAX_INPUT_BYTES,
        }
    }
}

impl ProducerConfig {
    /// Checks every setting and their combinations.
    ///
    /// # Errors
    /// [`ConfigError`] naming the first setting that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        within("batch_records", self.batch_records, 1, MAX_BATCH_RECORDS)?;
        within("max_record_bytes", self.max_record_bytes, 1, MAX_RECORD_BYTES)?;
        within("batch_bytes", self.batch_bytes, self.max_record_bytes, MAX_BATCH_BYTES)?;
        let most = tokio::sync::Semaphore::MAX_PERMITS;
        within("buffer_records", self.buffer_records, 1, most)?;
        within("buffer_bytes", self.buffer_bytes, self.max_record_bytes + RECORD_OVERHEAD, most)?;
        within("in_flight", self.in_flight, 1, MAX_IN_FLIGHT)?;
        if self.linger > MAX_DURATION {
            return Err(ConfigError::new("linger", "must be at most one day"));
        }
        positive("attempt_timeout", self.attempt_timeout)?;
        positive("delivery_timeout", self.delivery_timeout)?;
        positive("retry_initial", self.retry_initial)?;
        positive("retry_max", self.retry_max)?;
        if self.retry_max < self.retry_initial {
            return Err(ConfigError::new("retry_max", "must not be shorter than retry_initial"));
        }
        if self.aggregation != Aggregation::Off {
            within("aggregate_bytes", self.aggregate_bytes, MIN_BYTES_LIMIT, self.max_record_bytes)?;
        }
        within("aggregate_records", self.aggregate_records, 1, usize::MAX)?;
        positive("shard_map_interval", self.shard_map_interval)?;
        positive("shard_map_retry_max", self.shard_map_retry_max)?;
        positive("shard_map_timeout", self.shard_map_timeout)?;
        if self.shard_map_retry_max < self.shard_map_interval {
            return Err(ConfigError::new(
                "shard_map_retry_max",
                "must not be shorter than shard_map_interval",
            ));
        }
        #[cfg(feature = "compress")]
        if self.compression.is_some() {
            within("max_input_bytes", self.max_input_bytes, self.max_record_bytes, MAX_INPUT_BYTES)?;
        }
        // The encoder knows which formats and levels there are.
        crate::encoding::encoder(self)?;
        Ok(())
    }

    /// Whether payloads are compressed one by one, where they are.
    pub(crate) fn encodes_each(&self) -> bool {
        #[cfg(feature = "compress")]
        if self.compress_each {
            return true;
        }
        self.aggregation == Aggregation::Off
    }

    /// The largest record that may come in.
    pub(crate) fn input_limit(&self) -> usize {
        #[cfg(feature = "compress")]
        if self.compression.is_some() {
            return self.max_input_bytes;
        }
        self.max_record_bytes
    }
}

fn within(field: &'static str, value: usize, least: usize, most: usize) -> Result<(), ConfigError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(ConfigError::new(field, format!("must be from {least} to {most}, is {value}")))
}

fn positive(field: &'static str, value: Duration) -> Result<(), ConfigError> {
    let problem = if value.is_zero() {
        "must be longer than zero"
    } else if value > MAX_DURATION {
        "must be at most one day"
    } else {
        return Ok(());
    };
    Err(ConfigError::new(field, problem))
}

#[cfg(test)]
mod tests;
