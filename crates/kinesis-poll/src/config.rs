//! The settings of a polling source.

use std::time::Duration;

use kinesis_core::ConfigError;
use kinesis_core::aws::DEFAULT_ATTEMPT_TIMEOUT;
use kinesis_core::backoff::BackoffConfig;

use crate::limits::{MAX_RECORDS_PER_READ, MIN_READ_INTERVAL, MIN_RETENTION};

/// The settings of a [`PollSource`](crate::PollSource).
///
/// ```
/// use std::time::Duration;
///
/// use kinesis_poll::PollConfig;
///
/// let config = PollConfig::default().idle_interval(Duration::from_millis(400)).max_records(1_000);
/// assert!(config.validate().is_ok());
///
/// let error = config.max_records(0).validate().unwrap_err();
/// assert_eq!(error.field(), "max_records");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
#[non_exhaustive]
pub struct PollConfig {
    /// The least time from one GetRecords of a shard to the next, also while reading is behind; default 200 ms. The
    /// service answers 5 reads a second and shard, shared by **all** consumers of the stream. Readers adapt to that by
    /// themselves; with `n` of them, `n` times 200 ms keeps any call from being refused. 0 means 200 ms; anything else
    /// below it is refused.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub min_interval: Duration,
    /// The time from one GetRecords to the next while the shard is read to its tip; default 1 s. While reading is
    /// behind it does not apply, whether a page has records or not.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub idle_interval: Duration,
    /// Never more than one GetRecords of a shard per this time, behind or not; default 0, no such limit. Records are
    /// handed out, and so a stored position moves, no faster than that. At most 24 hours.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub poll_period: Duration,
    /// The most records of one GetRecords, from 1 to 10,000; default 10,000.
    pub max_records: u32,
    /// How many bytes all readers of a source together may hold ahead of their callers; default 128 MiB, at least 1. It
    /// counts payloads and 256 bytes a record, also of reads under way; the text of an answer is there besides until it
    /// is decoded, a third more than its payloads.
    ///
    /// A read counts as much as its reader's last page, 64 KiB at the least, until its answer tells; one of a reader that
    /// had no records yet counts as the largest page that there is, 12.5 MiB. So with the default ten shards at a time
    /// begin; a process that reads thousands of shards begins faster with more. What does not fit waits its turn; what is
    /// larger than the total is read when nothing else is held.
    ///
    /// Apart from that, the total is exceeded in two cases. A reader that holds nothing while its caller waits is never
    /// kept waiting by callers of others: one such page at a time comes on top. And where pages turn out larger than the
    /// last ones of their readers, as in a burst at the tip, each read under way may bring one page (12.5 MiB) instead of
    /// what it counted; the next reads wait until that is taken.
    ///
    /// How much one reader may hold is the `buffer_bytes` of [`OpenShard`](kinesis_core::source::OpenShard).
    pub total_buffer_bytes: u64,
    /// The longest that one call may take, its answer's body included; default 30 s.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub attempt_timeout: Duration,
    /// The longest first delay after a failed call; default 300 ms. Delays double up to `backoff_max`, are drawn from
    /// the upper half of that, and start again with the next page.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub backoff_initial: Duration,
    /// The longest delay after a failed call; default 5 s. Not below `backoff_initial`.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub backoff_max: Duration,
    /// After how many failed calls in a row reading gives up with
    /// [`Exhausted`](kinesis_core::source::SourceError::Exhausted); default none: it goes on for ever. Throttled
    /// calls and expired iterators do not count. For runs that end; 8 is a good number there.
    pub max_attempts: Option<u32>,
    /// How many calls in a row may be denied once reading worked, before it ends with
    /// [`AccessDenied`](kinesis_core::source::SourceError::AccessDenied); default 5, at least 1. It bridges
    /// credentials that are being renewed. A reader that has not read anything yet ends with the first denial.
    pub denied_attempts: u32,
    /// How long calls fail before a reader says [`Degraded`](kinesis_core::source::SourceEvent::Degraded); default
    /// 10 s.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub degraded_after: Duration,
    /// How far before the start a reader that started at the tip begins again, when it lost its iterator before it
    /// read a record; default 1 s. It covers differences between the service's own clocks: a record written within
    /// this time before the start may be read too, but none is skipped.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub latest_margin: Duration,
}

impl Default for PollConfig {
    fn default() -> Self {
        Self {
            min_interval: MIN_READ_INTERVAL,
            idle_interval: Duration::from_secs(1),
            poll_period: Duration::ZERO,
            max_records: MAX_RECORDS_PER_READ,
            total_buffer_bytes: 128 * 1024 * 1024,
            attempt_timeout: DEFAULT_ATTEMPT_TIMEOUT,
            backoff_initial: Duration::from_millis(300),
            backoff_max: Duration::from_secs(5),
            max_attempts: None,
            denied_attempts: 5,
            degraded_after: Duration::from_secs(10),
            latest_margin: Duration::from_secs(1),
        }
    }
}

macro_rules! setters {
    ($($name:ident: $type:ty),* $(,)?) => {
        $(
            #[doc = concat!("Sets [`", stringify!($name), "`](Self#structfield.", stringify!($name), ").")]
            #[must_use]
            pub const fn $name(mut self, $name: $type) -> Self {
                self.$name = $name;
                self
            }
        )*
    };
}

impl PollConfig {
    setters! {
        min_interval: Duration,
        idle_interval: Duration,
        poll_period: Duration,
        max_records: u32,
        total_buffer_bytes: u64,
        attempt_timeout: Duration,
        backoff_initial: Duration,
        backoff_max: Duration,
        max_attempts: Option<u32>,
        denied_attempts: u32,
        degraded_after: Duration,
        latest_margin: Duration,
    }

    /// Checks all values.
    ///
    /// # Errors
    /// [`ConfigError`] that names the first field out of its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let refuse = |field, problem: &str| Err(ConfigError::new(field, problem));
        let durations = [
            ("min_interval", self.min_interval),
            ("idle_interval", self.idle_interval),
            ("poll_period", self.poll_period),
            ("attempt_timeout", self.attempt_timeout),
            ("backoff_initial", self.backoff_initial),
            ("backoff_max", self.backoff_max),
            ("degraded_after", self.degraded_after),
            ("latest_margin", self.latest_margin),
        ];
        for (field, value) in durations {
            if value > MIN_RETENTION {
                return refuse(field, "must not be longer than 24 hours, after which records may be gone");
            }
        }
        if !self.min_interval.is_zero() && self.min_interval < MIN_READ_INTERVAL {
            return refuse("min_interval", "must be 0 or at least 200 ms: a shard answers 5 reads a second");
        }
        if !(1..=MAX_RECORDS_PER_READ).contains(&self.max_records) {
            return refuse("max_records", "must be from 1 to 10000");
        }
        if self.total_buffer_bytes == 0 {
            return refuse("total_buffer_bytes", "must be at least 1");
        }
        if self.attempt_timeout.is_zero() {
            return refuse("attempt_timeout", "must be longer than 0");
        }
        if self.backoff_initial.is_zero() {
            return refuse("backoff_initial", "must be longer than 0: no call is repeated without a delay");
        }
        if self.backoff_max < self.backoff_initial {
            return refuse("backoff_max", "must not be below backoff_initial");
        }
        if self.max_attempts == Some(0) {
            return refuse("max_attempts", "must be at least 1");
        }
        if self.denied_attempts == 0 {
            return refuse("denied_attempts", "must be at least 1");
        }
        Ok(())
    }

    /// The least spacing of GetRecords: `min_interval`, raised to the service's floor.
    pub(crate) fn floor(&self) -> Duration {
        self.min_interval.max(MIN_READ_INTERVAL)
    }

    pub(crate) fn backoff(&self) -> BackoffConfig {
        BackoffConfig::new(self.backoff_initial, self.backoff_max)
    }
}
