//! The settings of a consumer.

use std::time::Duration;

use kinesis_core::StartPosition;
use kinesis_core::backoff::BackoffConfig;
use kinesis_core::processing::CheckpointVerb;
use kinesis_core::source::OpenShard;
#[cfg(feature = "efo")]
use kinesis_efo::EfoConfig;
#[cfg(feature = "kpl")]
use kinesis_kpl::RangeFilter;
use kinesis_lease::LeaseConfig;
#[cfg(feature = "poll")]
use kinesis_poll::PollConfig;

use crate::ConfigError;
#[cfg(feature = "compress")]
use crate::Decompression;
#[cfg(all(feature = "efo", feature = "poll"))]
use crate::FallbackConfig;
#[cfg(feature = "efo")]
use crate::ReadMode;
#[cfg(feature = "kpl")]
use crate::Undecoded;

/// What to do when a handler fails. The engine's policy is the only retry: a retry layer inside would multiply it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum FailurePolicy {
    /// Offer the records again for ever, with growing delays. A permanent failure counts as exhausted.
    #[default]
    RetryForever,
    /// Give up after this many attempts; see [`OnExhausted`].
    StopShard {
        /// How often a batch or record is tried before the shard stops. At least 1.
        attempts: u32,
    },
    /// Give the record to the dead-letter service after this many attempts and go on. Needs
    /// [`dead_letter`](crate::ConsumerBuilder::dead_letter); the checkpoint moves only when that has accepted it.
    SkipAfter {
        /// How often a record is tried before it is skipped. At least 1.
        attempts: u32,
    },
}

/// What becomes of a shard whose handler failed for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum OnExhausted {
    /// Keep the lease, process nothing more, report it. Nothing is skipped and no other worker meets the record.
    #[default]
    HoldIdle,
    /// Give the lease back with a rest ([`ConsumerConfig::cool_down`]), after which any worker may try again.
    ReleaseLease,
    /// Stop the whole consumer with an error.
    StopWorker,
}

impl OnExhausted {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::HoldIdle => "hold_idle",
            Self::ReleaseLease => "release_lease",
            Self::StopWorker => "stop_worker",
        }
    }
}

/// What moves the stored positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Checkpoints {
    /// The library: what handlers have finished is stored a little later. Records may come again after a crash.
    #[default]
    Automatic,
    /// The handler, inside of the transaction that writes its results (`PostgresStore::checkpoint_in`), so that effects
    /// are exactly once. After each call the position is read from the row: records up to there are finished, the others
    /// are offered again, whatever the call returned; a call that moves nothing has failed.
    ///
    /// Needs a `PostgresStore` (as a value) and a batch handler, and works in lock-step: one batch of a shard at a time.
    /// A record that was given to the dead-letter service is passed by the next transaction; until then it comes again
    /// after a restart.
    Transactional,
}

/// Every setting of a consumer, with its default.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields, rename_all = "snake_case")
)]
#[non_exhaustive]
pub struct ConsumerConfig {
    /// Where shards start that have nothing stored. Default: the oldest record, so that nothing is missed.
    pub start_position: StartPosition,
    /// The most records in one batch for a handler. Default 10,000 (a full page of the service); at least 1.
    pub max_batch_records: usize,
    /// How many records of a shard may be handed out and unfinished before delivery pauses. Default 1,024; 1 is
    /// lock-step: one batch (or one record on the record door) at a time.
    pub checkpoint_limit: usize,
    /// What moves the stored positions. Default: the library.
    pub checkpoints: Checkpoints,
    /// Which verb batch handlers use to checkpoint by hand. Default: everything up to a position.
    pub checkpoint_verb: CheckpointVerb,
    /// How often the position of finished records is stored. Default 1 s. It is also stored when a shard ends, is
    /// handed over or the consumer stops.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub checkpoint_interval: Duration,
    /// How far apart the writes of such positions are at the least: until then a later position takes the place of an
    /// earlier one, so that the lease store has half the writes. Default 2 s. Where it is more than twice
    /// `checkpoint_interval`, positions are wanted sooner, and it does not count; zero: it never does. Renewals of the
    /// lease take positions along, so it is never more than the lease's `heartbeat_interval`.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub checkpoint_spacing: Duration,
    /// What to do when a handler fails.
    pub failure_policy: FailurePolicy,
    /// What becomes of a shard whose handler failed for good.
    pub on_exhausted: OnExhausted,
    /// The first delay before records are offered again. Default 100 ms.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub retry_initial: Duration,
    /// The longest delay before records are offered again. Default 30 s.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub retry_max: Duration,
    /// After how many failed attempts in a row a failure is counted and logged, once per that many. Default 3.
    pub report_after: u32,
    /// How long a shard rests that was given back because its records could not be processed. Default 60 s.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub cool_down: Duration,
    /// How long a stop waits for handlers before it gives them up. Default 30 s.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub shutdown_timeout: Duration,
    /// How long a running handler may go on after its lease was lost, before it is dropped. Default 1 s: another
    /// worker already repeats the work.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub lost_lease_grace: Duration,
    /// How long each closing step may take: closing the reader, a last callback, storing the position, releasing the
    /// lease. Default 5 s.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub close_timeout: Duration,
    /// How long a handler or a callback may run before a warning says so; it is repeated after each such time. Default
    /// 60 s.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub stuck_after: Duration,
    /// The first delay before a shard is opened again that could not be read (access denied). Default 1 s.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub reopen_initial: Duration,
    /// The longest delay before a shard is opened again that could not be read. Default 60 s.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub reopen_max: Duration,
    /// The most bytes that one Kinesis record may have after decoding; the records of one aggregate share it where they
    /// are decoded once more by themselves. Default 10 MiB. Beyond it the record is a permanent failure.
    pub max_decoded_bytes: usize,
    /// Which compressed payloads are decompressed. Default: none.
    #[cfg(feature = "compress")]
    #[cfg_attr(docsrs, doc(cfg(feature = "compress")))]
    pub decompression: Decompression,
    /// Whether aggregates of the KPL are split into their user records. Default on: what is no aggregate is passed on
    /// as it is.
    #[cfg(feature = "kpl")]
    #[cfg_attr(docsrs, doc(cfg(feature = "kpl")))]
    pub deaggregate: bool,
    /// What becomes of a record that looks like an aggregate and cannot be split. Default: it is passed on and counted.
    #[cfg(feature = "kpl")]
    #[cfg_attr(docsrs, doc(cfg(feature = "kpl")))]
    pub undecoded: Undecoded,
    /// Whether user records of an aggregate are left out whose hash key belongs to another shard. Default: none is, which
    /// loses nothing with any producer. Each one left out is counted and logged.
    #[cfg(feature = "kpl")]
    #[cfg_attr(docsrs, doc(cfg(feature = "kpl")))]
    pub range_filter: RangeFilter,
    /// How many payload bytes a reader may hold ahead of the handler, per shard. Default 10 MiB.
    pub buffer_bytes: usize,
    /// Whether metrics carry the shard. Default on; turn it off above some hundred shards.
    pub shard_metrics: bool,
    /// Settings of the leases.
    pub lease: LeaseConfig,
    /// How shards are read. Default: by polling. A source of your own
    /// ([`ConsumerBuilder::source`](crate::ConsumerBuilder::source)) comes before it.
    #[cfg(feature = "efo")]
    #[cfg_attr(docsrs, doc(cfg(feature = "efo")))]
    pub read_mode: ReadMode,
    /// Settings of enhanced fan-out; without effect while `read_mode` is polling.
    #[cfg(feature = "efo")]
    #[cfg_attr(docsrs, doc(cfg(feature = "efo")))]
    pub efo: EfoConfig,
    /// Settings of the fall-back to polling; without effect in other read modes.
    #[cfg(all(feature = "efo", feature = "poll"))]
    #[cfg_attr(docsrs, doc(cfg(all(feature = "efo", feature = "poll"))))]
    pub fallback: FallbackConfig,
    /// Settings of polling; without effect while shards are read with enhanced fan-out. Where shards are polled, a
    /// `poll_period` longer than the [`expiry`](LeaseConfig::expiry) of a lease is refused. One that is longer than
    /// `checkpoint_interval` is a valid choice: stored positions move once per poll then.
    #[cfg(feature = "poll")]
    #[cfg_attr(docsrs, doc(cfg(feature = "poll")))]
    pub poll: PollConfig,
    /// Whether polled pages are decoded without the SDK's JSON scanner, which takes most of the time of a read; what comes
    /// out is the same. Default off: the records of a page share one buffer then, so who keeps one of them keeps its whole
    /// page. Without effect where nothing is polled.
    #[cfg(feature = "fast-decode")]
    #[cfg_attr(docsrs, doc(cfg(feature = "fast-decode")))]
    pub fast_decode: bool,
}

/// Longer times are mistakes, and sums of them would overflow.
pub(crate) const MAX_DURATION: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl Default for ConsumerConfig {
    fn default() -> Self {
        Self {
            start_position: StartPosition::TrimHorizon,
            max_batch_records: 10_000,
            checkpoint_limit: 1_024,
            checkpoints: Checkpoints::Automatic,
            checkpoint_verb: CheckpointVerb::UpTo,
            checkpoint_interval: Duration::from_secs(1),
            checkpoint_spacing: Duration::from_secs(2),
            failure_policy: FailurePolicy::RetryForever,
            on_exhausted: OnExhausted::HoldIdle,
            retry_initial: Duration::from_millis(100),
            retry_max: Duration::from_secs(30),
            report_after: 3,
            cool_down: Duration::from_secs(60),
            shutdown_timeout: Duration::from_secs(30),
            lost_lease_grace: Duration::from_secs(1),
            close_timeout: Duration::from_secs(5),
            stuck_after: Duration::from_secs(60),
            reopen_initial: Duration::from_secs(1),
            reopen_max: Duration::from_secs(60),
            max_decoded_bytes: 10 * 1024 * 1024,
            #[cfg(feature = "compress")]
            decompression: Decompression::Off,
            #[cfg(feature = "kpl")]
            deaggregate: true,
            #[cfg(feature = "kpl")]
            undecoded: Undecoded::PassOn,
            #[cfg(feature = "kpl")]
            range_filter: RangeFilter::Off,
            buffer_bytes: OpenShard::DEFAULT_BUFFER_BYTES,
            shard_metrics: true,
            lease: LeaseConfig::default(),
            #[cfg(feature = "efo")]
            read_mode: ReadMode::default(),
            #[cfg(feature = "efo")]
            efo: EfoConfig::default(),
            #[cfg(all(feature = "efo", feature = "poll"))]
            fallback: FallbackConfig::default(),
            #[cfg(feature = "poll")]
            poll: PollConfig::default(),
            #[cfg(feature = "fast-decode")]
            fast_decode: false,
        }
    }
}

impl ConsumerConfig {
    /// Checks every setting and their combinations.
    ///
    /// # Errors
    /// [`ConfigError`] names the first setting that cannot be used.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let counts = [
            ("max_batch_records", self.max_batch_records),
            ("checkpoint_limit", self.checkpoint_limit),
            ("report_after", self.report_after as usize),
            ("max_decoded_bytes", self.max_decoded_bytes),
            ("buffer_bytes", self.buffer_bytes),
        ];
        if let Some((field, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return Err(ConfigError::new(field, "must be at least 1"));
        }
        let durations = [
            ("checkpoint_interval", self.checkpoint_interval),
            ("retry_initial", self.retry_initial),
            ("shutdown_timeout", self.shutdown_timeout),
            ("close_timeout", self.close_timeout),
            ("stuck_after", self.stuck_after),
            ("reopen_initial", self.reopen_initial),
        ];
        if let Some((field, _)) = durations.into_iter().find(|(_, duration)| duration.is_zero()) {
            return Err(ConfigError::new(field, "must be longer than zero"));
        }
        let others = [
            ("checkpoint_spacing", self.checkpoint_spacing),
            ("retry_max", self.retry_max),
            ("reopen_max", self.reopen_max),
            ("cool_down", self.cool_down),
            ("lost_lease_grace", self.lost_lease_grace),
        ];
        let too_long = |(_, duration): &(_, Duration)| *duration > MAX_DURATION;
        if let Some((field, _)) = durations.into_iter().chain(others).find(too_long) {
            return Err(ConfigError::new(field, "must not be longer than a year"));
        }
        if self.retry_max < self.retry_initial {
            return Err(ConfigError::new("retry_max", "must not be shorter than retry_initial"));
        }
        if self.reopen_max < self.reopen_initial {
            return Err(ConfigError::new("reopen_max", "must not be shorter than reopen_initial"));
        }
        if let FailurePolicy::StopShard { attempts: 0 } | FailurePolicy::SkipAfter { attempts: 0 } =
            self.failure_policy
        {
            return Err(ConfigError::new("failure_policy", "attempts must be at least 1"));
        }
        let by_sequence = matches!(
            self.start_position,
            StartPosition::AtSequenceNumber { .. } | StartPosition::AfterSequenceNumber { .. }
        );
        if by_sequence {
            return Err(ConfigError::new(
                "start_position",
                "a sequence number belongs to one shard; use trim_horizon, latest or at_timestamp",
            ));
        }
        if self.checkpoints == Checkpoints::Transactional && self.checkpoint_verb == CheckpointVerb::Done {
            let problem = "transactional does not go together with checkpoint_verb = done: the transaction that stores \
                           a position finishes everything up to there";
            return Err(ConfigError::new("checkpoints", problem));
        }
        self.lease.validate()?;
        #[cfg(feature = "efo")]
        if self.read_mode != ReadMode::Poll {
            self.efo.validate()?;
        }
        #[cfg(all(feature = "efo", feature = "poll"))]
        self.fallback.validate()?;
        #[cfg(feature = "poll")]
        self.validate_poll()?;
        Ok(())
    }

    #[cfg(feature = "poll")]
    fn validate_poll(&self) -> Result<(), ConfigError> {
        self.poll.validate()?;
        #[allow(unused_mut, reason = "without the feature shards are polled")]
        let mut polls = true;
        #[cfg(feature = "efo")]
        {
            polls &= self.read_mode != ReadMode::EnhancedFanOut;
        }
        if polls && self.poll.poll_period > self.lease.expiry {
            let problem = "must not be longer than the expiry of a lease: a shard that changed hands would not be read \
                           for longer than it takes to lose it";
            return Err(ConfigError::new("poll_period", problem));
        }
        Ok(())
    }

    pub(crate) fn reopen_backoff(&self) -> BackoffConfig {
        BackoffConfig::new(self.reopen_initial, self.reopen_max)
    }

    /// How far apart the writes of positions are that nobody asked for.
    pub(crate) fn position_spacing(&self) -> Duration {
        if self.checkpoint_interval * 2 < self.checkpoint_spacing {
            Duration::ZERO
        } else {
            self.checkpoint_spacing
        }
    }

    pub(crate) fn retry_backoff(&self) -> BackoffConfig {
        BackoffConfig::new(self.retry_initial, self.retry_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S-003, S-116: every setting has its documented default; the list is complete, or this does not compile.
    #[test]
    fn defaults_are_as_documented() {
        let secs = Duration::from_secs;
        let ConsumerConfig {
            start_position,
            max_batch_records,
            checkpoint_limit,
            checkpoints,
            checkpoint_verb,
            checkpoint_interval,
            checkpoint_spacing,
            failure_policy,
            on_exhausted,
            retry_initial,
            retry_max,
            report_after,
            cool_down,
            shutdown_timeout,
            lost_lease_grace,
            close_timeout,
            stuck_after,
            reopen_initial,
            reopen_max,
            max_decoded_bytes,
            #[cfg(feature = "compress")]
            decompression,
            #[cfg(feature = "kpl")]
            deaggregate,
            #[cfg(feature = "kpl")]
            undecoded,
            #[cfg(feature = "kpl")]
            range_filter,
            buffer_bytes,
            shard_metrics,
            lease,
            #[cfg(feature = "efo")]
            read_mode,
            #[cfg(feature = "efo")]
            efo,
            #[cfg(all(feature = "efo", feature = "poll"))]
            fallback,
            #[cfg(feature = "poll")]
            poll,
            #[cfg(feature = "fast-decode")]
            fast_decode,
        } = ConsumerConfig::default();
        #[cfg(feature = "fast-decode")]
        assert!(!fast_decode);
        assert_eq!(start_position, StartPosition::TrimHorizon);
        assert_eq!((max_batch_records, checkpoint_limit), (10_000, 1_024));
        assert_eq!(checkpoints, Checkpoints::Automatic);
        assert_eq!(checkpoint_verb, CheckpointVerb::UpTo);
        assert_eq!((checkpoint_interval, checkpoint_spacing), (secs(1), secs(2)));
        assert_eq!((failure_policy, on_exhausted), (FailurePolicy::RetryForever, OnExhausted::HoldIdle));
        assert_eq!((retry_initial, retry_max, report_after), (Duration::from_millis(100), secs(30), 3));
        assert_eq!((cool_down, shutdown_timeout, lost_lease_grace), (secs(60), secs(30), secs(1)));
        assert_eq!((close_timeout, stuck_after), (secs(5), secs(60)));
        assert_eq!((reopen_initial, reopen_max), (secs(1), secs(60)));
        assert_eq!((max_decoded_bytes, buffer_bytes), (10 << 20, 10 << 20));
        #[cfg(feature = "compress")]
        assert_eq!(decompression, Decompression::Off);
        #[cfg(feature = "kpl")]
        assert_eq!((deaggregate, undecoded, range_filter), (true, Undecoded::PassOn, RangeFilter::Off));
        assert!(shard_metrics);
        assert_eq!(lease, LeaseConfig::default());
        #[cfg(feature = "efo")]
        assert_eq!((read_mode, efo), (ReadMode::Poll, EfoConfig::default()));
        #[cfg(all(feature = "efo", feature = "poll"))]
        assert_eq!(fallback, FallbackConfig::default());
        #[cfg(feature = "poll")]
        assert_eq!(poll, PollConfig::default());
    }

    /// S-117: a setting that cannot be used is refused by its name.
    #[test]
    fn unusable_settings_are_refused_by_name() {
        type Change = fn(&mut ConsumerConfig);
        let cases: [(&str, Change); 10] = [
            ("max_batch_records", |c| c.max_batch_records = 0),
            ("checkpoint_limit", |c| c.checkpoint_limit = 0),
            ("report_after", |c| c.report_after = 0),
            ("checkpoint_interval", |c| c.checkpoint_interval = Duration::ZERO),
            ("shutdown_timeout", |c| c.shutdown_timeout = Duration::ZERO),
            ("retry_max", |c| c.retry_max = Duration::from_millis(1)),
            ("failure_policy", |c| c.failure_policy = FailurePolicy::SkipAfter { attempts: 0 }),
            ("start_position", |c| {
                c.start_position = StartPosition::AfterSequenceNumber { sequence: 7_u128.into() };
            }),
            ("checkpoints", |c| {
                c.checkpoints = Checkpoints::Transactional;
                c.checkpoint_verb = CheckpointVerb::Done;
            }),
            ("heartbeat_interval", |c| c.lease.heartbeat_interval = c.lease.expiry),
        ];
        for (field, change) in cases {
            let mut config = ConsumerConfig::default();
            change(&mut config);
            assert_eq!(config.validate().unwrap_err().field(), field);
        }
        ConsumerConfig::default().validate().unwrap();
    }

    /// Who sets a short interval wants positions stored soon.
    #[test]
    fn positions_are_spaced_only_where_they_are_not_wanted_sooner() {
        let millis = Duration::from_millis;
        for (interval, spacing, counts) in
            [(1_000, 2_000, 2_000), (60_000, 2_000, 2_000), (999, 2_000, 0), (100, 150, 150), (1_000, 0, 0)]
        {
            let config = ConsumerConfig {
                checkpoint_interval: millis(interval),
                checkpoint_spacing: millis(spacing),
                ..ConsumerConfig::default()
            };
            assert_eq!(config.position_spacing(), millis(counts), "{interval} {spacing}");
        }
    }

    /// D-02, S-117: settings come from a file, where those that are missing keep their defaults and mistakes are named.
    #[cfg(feature = "serde")]
    #[test]
    fn settings_come_from_a_file() {
        let text = r#"{
            "start_position": { "type": "latest" },
            "checkpoint_interval": "250ms",
            "failure_policy": { "stop_shard": { "attempts": 5 } },
            "on_exhausted": "release_lease",
            "lease": { "expiry": "20s" }
        }"#;
        let config: ConsumerConfig = serde_json::from_str(text).unwrap();
        let expected = ConsumerConfig {
            start_position: StartPosition::Latest,
            checkpoint_interval: Duration::from_millis(250),
            failure_policy: FailurePolicy::StopShard { attempts: 5 },
            on_exhausted: OnExhausted::ReleaseLease,
            lease: LeaseConfig::default().expiry(Duration::from_secs(20)),
            ..ConsumerConfig::default()
        };
        assert_eq!(config, expected);
        let again = serde_json::from_str::<ConsumerConfig>(&serde_json::to_string(&config).unwrap());
        assert_eq!(again.unwrap(), config);
        for (text, named) in [
            (r#"{ "checkpoint_intervall": "1s" }"#, "checkpoint_intervall"),
            (r#"{ "checkpoint_interval": "-1s" }"#, "expected a duration"),
            (r#"{ "lease": { "expiri": "1s" } }"#, "expiri"),
            (r#"{ "on_exhausted": "panic" }"#, "panic"),
        ] {
            let error = serde_json::from_str::<ConsumerConfig>(text).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
