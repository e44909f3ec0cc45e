//! The settings of an enhanced fan-out source.

use std::collections::BTreeMap;
use std::time::Duration;

use kinesis_core::ConfigError;
use kinesis_core::aws::DEFAULT_CONTROL_ATTEMPT_TIMEOUT;
use kinesis_core::backoff::BackoffConfig;

use crate::limits::{
    CONSUMERS_IN_CREATION, MAX_CONSUMER_NAME, MAX_TAGS, MIN_RETENTION, SUBSCRIBE_INTERVAL, SUBSCRIPTION_LIFE,
};
use crate::registration::ConsumerArn;

/// The settings of an [`EfoSource`](crate::EfoSource).
///
/// ```
/// use std::time::Duration;
///
/// use kinesis_efo::EfoConfig;
///
/// let config = EfoConfig::new("billing").silence_timeout(Duration::from_secs(60));
/// assert!(config.validate().is_ok());
///
/// let error = EfoConfig::default().validate().unwrap_err();
/// assert_eq!(error.field(), "consumer");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
#[non_exhaustive]
pub struct EfoConfig {
    /// Whose throughput is read with; required. A name, which is looked for on each stream and registered where it is
    /// missing, or the ARN of a consumer that exists, also of another account. All workers of an application use the
    /// same one; two applications with the same one take each other's subscriptions away.
    pub consumer: String,
    /// Tags for a consumer that has to be registered; default none, at most 50. One that exists keeps its own.
    pub tags: BTreeMap<String, String>,
    /// How long a consumer may take to be found active or to become so, refused calls included; default 60 s.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub activation_timeout: Duration,
    /// On how many streams a consumer is looked for or registered at a time, from 1 to 5; default 5: the service
    /// lets no more be in creation.
    pub parallel_registrations: u32,
    /// The longest that one call about a consumer may take; default 10 s. It is tried again until
    /// `activation_timeout`.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub control_timeout: Duration,
    /// The longest first delay after a call about a consumer that failed; default 500 ms, longer than 0. Delays double
    /// up to `control_backoff_max` and are drawn from their upper half: many workers start together, and all register.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub control_backoff_initial: Duration,
    /// The longest delay after a call about a consumer that failed; default 5 s. Not below `control_backoff_initial`.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub control_backoff_max: Duration,
    /// The longest from a SubscribeToShard call to the first frame of its answer; default 10 s.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub subscribe_timeout: Duration,
    /// The longest that an open subscription may bring nothing, not even an event without records, before it is
    /// replaced; default 35 s, several times the distance of the service's own. Only time in which it was read counts.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub silence_timeout: Duration,
    /// How late a timer may be before the reader takes it that this process did not run, and starts the limits above
    /// over; default 1 s.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub stall_tolerance: Duration,
    /// The longest delay before a shard is subscribed to again; default 30 s, at least 1 s. Delays begin at 1 s,
    /// double with every subscription that brought nothing, and start over with the next event. Up to a quarter is
    /// added by chance.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub max_resubscribe_interval: Duration,
    /// After how many failures in a row reading gives up with
    /// [`Exhausted`](kinesis_core::source::SourceError::Exhausted); default none: it goes on for ever. Throttled calls
    /// and shards in use do not count. For runs that end.
    pub max_attempts: Option<u32>,
    /// How many calls in a row may be denied once reading worked, before it ends with
    /// [`AccessDenied`](kinesis_core::source::SourceError::AccessDenied); default 5, at least 1. It bridges
    /// credentials that are being renewed. A reader that has not read anything yet ends with the first denial.
    pub denied_attempts: u32,
    /// How long subscribing fails before a reader says [`Degraded`](kinesis_core::source::SourceEvent::Degraded);
    /// default 10 s. While another reader of the consumer has the shard, it says so after `max_resubscribe_interval`, and
    /// when others take the shard over again and again, once the delays between have grown to that.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub degraded_after: Duration,
    /// How far before the start a reader that started at the tip begins again, when it lost its subscription before
    /// the first event; default 1 s. It covers differences between the service's own clocks: a record written within
    /// this time before the start may be read too, but none is skipped.
    #[cfg_attr(feature = "serde", serde(with = "humantime_serde"))]
    pub latest_margin: Duration,
    /// How many shards share one HTTP client, and over TLS with it one connection; default 50, at least 1. A server
    /// limits the streams of a connection, and calls beyond that hang.
    pub shards_per_client: u32,
}

impl Default for EfoConfig {
    fn default() -> Self {
        Self {
            consumer: String::new(),
            tags: BTreeMap::new(),
            activation_timeout: Duration::from_secs(60),
            parallel_registrations: CONSUMERS_IN_CREATION,
            control_timeout: DEFAULT_CONTROL_ATTEMPT_TIMEOUT,
            control_backoff_initial: Duration::from_millis(500),
            control_backoff_max: Duration::from_secs(5),
            subscribe_timeout: Duration::from_secs(10),
            silence_timeout: Duration::from_secs(35),
            stall_tolerance: Duration::from_secs(1),
            max_resubscribe_interval: Duration::from_secs(30),
            max_attempts: None,
            denied_attempts: 5,
            degraded_after: Duration::from_secs(10),
            latest_margin: Duration::from_secs(1),
            shards_per_client: 50,
        }
    }
}

macro_rules! setters {
    ($($name:ident: $type:ty),* $(,)?) => {
        $(
            #[doc = concat!("Sets [`", stringify!($name), "`](Self#structfield.", stringify!($name), ").")]
            #[must_use]
            pub fn $name(mut self, $name: $type) -> Self {
                self.$name = $name;
                self
            }
        )*
    };
}

impl EfoConfig {
    /// The default settings for the consumer of this name or ARN.
    #[must_use]
    pub fn new(consumer: impl Into<String>) -> Self {
        Self { consumer: consumer.into(), ..Self::default() }
    }

    setters! {
        consumer: String,
        tags: BTreeMap<String, String>,
        activation_timeout: Duration,
        parallel_registrations: u32,
        control_timeout: Duration,
        control_backoff_initial: Duration,
        control_backoff_max: Duration,
        subscribe_timeout: Duration,
        silence_timeout: Duration,
        stall_tolerance: Duration,
        max_resubscribe_interval: Duration,
        max_attempts: Option<u32>,
        denied_attempts: u32,
        degraded_after: Duration,
        latest_margin: Duration,
        shards_per_client: u32,
    }

    /// Checks all values.
    ///
    /// # Errors
    /// [`ConfigError`] that names the first field out of its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let refuse = |field, problem: &str| Err(ConfigError::new(field, problem));
        self.validate_consumer()?;
        if self.tags.len() > MAX_TAGS {
            return refuse("tags", "must not be more than 50");
        }
        let positive = [
            ("activation_timeout", self.activation_timeout),
            ("control_timeout", self.control_timeout),
            ("control_backoff_initial", self.control_backoff_initial),
            ("control_backoff_max", self.control_backoff_max),
            ("subscribe_timeout", self.subscribe_timeout),
            ("silence_timeout", self.silence_timeout),
            ("stall_tolerance", self.stall_tolerance),
        ];
        if let Some((field, _)) = positive.iter().find(|(_, value)| value.is_zero()) {
            return refuse(field, "must be longer than 0");
        }
        let any = [("degraded_after", self.degraded_after), ("latest_margin", self.latest_margin)];
        if let Some((field, _)) = positive.iter().chain(&any).find(|(_, value)| *value > MIN_RETENTION) {
            return refuse(field, "must not be longer than 24 hours, after which records may be gone");
        }
        for (field, value) in
            [("subscribe_timeout", self.subscribe_timeout), ("silence_timeout", self.silence_timeout)]
        {
            if value > SUBSCRIPTION_LIFE {
                return refuse(field, "must not be longer than 5 minutes, the life of a subscription");
            }
        }
        if self.control_backoff_max < self.control_backoff_initial {
            return refuse("control_backoff_max", "must not be below control_backoff_initial");
        }
        if self.max_resubscribe_interval < SUBSCRIBE_INTERVAL {
            return refuse(
                "max_resubscribe_interval",
                "must be at least 1 s: the service takes one call a second",
            );
        }
        if self.max_resubscribe_interval > MIN_RETENTION {
            return refuse("max_resubscribe_interval", "must not be longer than 24 hours");
        }
        if !(1..=CONSUMERS_IN_CREATION).contains(&self.parallel_registrations) {
            return refuse("parallel_registrations", "must be from 1 to 5");
        }
        if self.max_attempts == Some(0) {
            return refuse("max_attempts", "must be at least 1");
        }
        if self.denied_attempts == 0 {
            return refuse("denied_attempts", "must be at least 1");
        }
        if self.shards_per_client == 0 {
            return refuse("shards_per_client", "must be at least 1");
        }
        Ok(())
    }

    pub(crate) fn control_backoff(&self) -> BackoffConfig {
        BackoffConfig::new(self.control_backoff_initial, self.control_backoff_max)
    }

    fn validate_consumer(&self) -> Result<(), ConfigError> {
        const FIELD: &str = "consumer";
        if self.consumer.is_empty() {
            return Err(ConfigError::new(FIELD, "is missing; give the consumer's name or ARN"));
        }
        if self.consumer.starts_with("arn:") {
            let problem = "is not a consumer's ARN: arn:PARTITION:kinesis:REGION:ACCOUNT:stream/STREAM/consumer/NAME:TIME";
            return ConsumerArn::parse(&self.consumer)
                .map(drop)
                .ok_or_else(|| ConfigError::new(FIELD, problem));
        }
        let plain = self.consumer.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
        if !plain || self.consumer.len() > MAX_CONSUMER_NAME {
            let problem = "a name has 1 to 128 letters, digits, `_`, `.` and `-`";
            return Err(ConfigError::new(FIELD, problem));
        }
        Ok(())
    }
}
