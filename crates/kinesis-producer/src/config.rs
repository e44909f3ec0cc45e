//! The settings of a producer, their defaults, and the service's limits.

use std::time::Duration;

use kinesis_core::ConfigError;
use kinesis_core::aws::DEFAULT_ATTEMPT_TIMEOUT;

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
    /// The most bytes of one call, payloads and partition keys together: from `max_record_bytes` to 10 MiB
    /// ([`MAX_BATCH_BYTES`]). A call starts as soon as this many wait.
    pub batch_bytes: usize,
    /// How many records may wait for a call, first ones and repeated ones together, before `put` waits: at least 1.
    pub buffer_records: usize,
    /// How many bytes may be in the producer, waiting, in flight and waiting to be repeated together, before `put`
    /// waits. A record counts with its payload, its key and [`RECORD_OVERHEAD`]. At least room for one record of
    /// `max_record_bytes`.
    pub buffer_bytes: usize,
    /// How long a record may wait for others to share its call. Zero sends it at once.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub linger: Duration,
    /// The largest record in bytes, payload and partition key together: 1 to 10 MiB ([`MAX_RECORD_BYTES`]). A larger
    /// one is refused by `put`. Raise it together with the limit of the stream.
    pub max_record_bytes: usize,
    /// How many calls may be under way at a time: 1 to 256. Records of one key are never in two calls at a time.
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
        Ok(())
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
mod tests {
    use super::*;

    fn field_of(change: impl FnOnce(&mut ProducerConfig)) -> Option<&'static str> {
        let mut config = ProducerConfig::default();
        change(&mut config);
        config.validate().err().map(|error| error.field())
    }

    /// S-153, S-154, S-155, S-156, S-157, C-11, C-17: the documented defaults, all of them settings.
    #[test]
    fn defaults_are_the_documented_ones_and_valid() {
        let config = ProducerConfig::default();
        assert_eq!(config.max_retries, 3);
        assert_eq!(config.batch_records, 500);
        assert_eq!(config.batch_bytes, 5_242_880);
        assert_eq!(config.buffer_records, 500);
        assert_eq!(config.buffer_bytes, 67_108_864);
        assert_eq!(config.linger, Duration::from_millis(100));
        assert_eq!(config.max_record_bytes, 1_048_576);
        assert_eq!(config.in_flight, 4);
        assert_eq!(config.attempt_timeout, Duration::from_secs(30));
        assert_eq!(config.delivery_timeout, Duration::from_secs(120));
        assert_eq!(config.retry_initial, Duration::from_millis(200));
        assert_eq!(config.retry_max, Duration::from_secs(10));
        assert_eq!(config.validate(), Ok(()));
    }

    /// S-154, S-155, C-11: both ends of every range, and one step beyond, with the setting's name.
    #[test]
    fn settings_out_of_range_are_named() {
        for good in [1, 500] {
            assert_eq!(field_of(|c| c.batch_records = good), None);
        }
        for bad in [0, 501] {
            assert_eq!(field_of(|c| c.batch_records = bad), Some("batch_records"));
        }
        for good in [MIB, 10 * MIB] {
            assert_eq!(field_of(|c| c.batch_bytes = good), None);
        }
        for bad in [0, MIB - 1, 10 * MIB + 1] {
            assert_eq!(field_of(|c| c.batch_bytes = bad), Some("batch_bytes"));
        }
        for bad in [0, 10 * MIB + 1] {
            assert_eq!(field_of(|c| c.max_record_bytes = bad), Some("max_record_bytes"));
        }
        assert_eq!(field_of(|c| (c.max_record_bytes, c.batch_bytes) = (10 * MIB, 10 * MIB)), None);
        assert_eq!(field_of(|c| c.max_record_bytes = 6 * MIB), Some("batch_bytes"));
        assert_eq!(field_of(|c| c.buffer_records = 0), Some("buffer_records"));
        assert_eq!(field_of(|c| c.buffer_bytes = MIB + RECORD_OVERHEAD - 1), Some("buffer_bytes"));
        assert_eq!(field_of(|c| c.buffer_bytes = MIB + RECORD_OVERHEAD), None);
        for bad in [0, 257] {
            assert_eq!(field_of(|c| c.in_flight = bad), Some("in_flight"));
        }
    }

    #[test]
    fn durations_out_of_range_are_named() {
        let long = MAX_DURATION + Duration::from_nanos(1);
        assert_eq!(field_of(|c| c.linger = Duration::ZERO), None);
        assert_eq!(field_of(|c| c.linger = long), Some("linger"));
        for bad in [Duration::ZERO, long] {
            assert_eq!(field_of(|c| c.attempt_timeout = bad), Some("attempt_timeout"));
            assert_eq!(field_of(|c| c.delivery_timeout = bad), Some("delivery_timeout"));
            assert_eq!(field_of(|c| c.retry_initial = bad), Some("retry_initial"));
            assert_eq!(field_of(|c| c.retry_max = bad), Some("retry_max"));
        }
        assert_eq!(field_of(|c| c.retry_initial = Duration::from_secs(11)), Some("retry_max"));
    }

    #[test]
    fn an_error_says_which_setting_and_what_is_allowed() {
        let config = ProducerConfig { batch_records: 501, ..ProducerConfig::default() };
        let text = config.validate().unwrap_err().to_string();
        assert_eq!(text, "invalid setting `batch_records`: must be from 1 to 500, is 501");
    }
}
