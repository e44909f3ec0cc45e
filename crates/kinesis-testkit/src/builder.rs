//! Settings of a [`TestKinesis`].

use std::collections::BTreeSet;
use std::time::Duration;

use crate::TestKinesis;
use crate::clock::TestClock;
use crate::limits::{
    DEFAULT_CONSUMER_QUOTA, DEFAULT_SHARD_QUOTA, EVENT_RECORDS, ITERATOR_LIFE, SUBSCRIPTION_LIFE,
};
use crate::rule::Rule;
use crate::state::Settings;

/// How long a stream stays `CREATING`, `DELETING` or `UPDATING` by default.
pub const DEFAULT_DELAY: Duration = Duration::from_millis(500);

/// How long a subscription is silent by default before it gets an event without records. The service states no number.
pub const DEFAULT_HEARTBEAT: Duration = Duration::from_secs(5);

/// The most bytes that the records of a service hold by default: 2 GiB.
pub const DEFAULT_MEMORY_LIMIT: u64 = 2 << 30;

/// Builds a [`TestKinesis`]; from [`TestKinesis::builder`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing before `build`"]
pub struct Builder {
    settings: Settings,
    clock: Option<TestClock>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            settings: Settings {
                region: "us-east-1".to_owned(),
                account: "123456789012".to_owned(),
                seed: 0,
                without: BTreeSet::new(),
                create_delay: DEFAULT_DELAY,
                delete_delay: DEFAULT_DELAY,
                reshard_delay: DEFAULT_DELAY,
                consumer_delay: DEFAULT_DELAY,
                shard_quota: DEFAULT_SHARD_QUOTA,
                consumer_quota: DEFAULT_CONSUMER_QUOTA,
                heartbeat: DEFAULT_HEARTBEAT,
                event_records: EVENT_RECORDS,
                shard_list_lag: Duration::ZERO,
                growing_numbers: false,
                memory_limit: DEFAULT_MEMORY_LIMIT,
                iterator_life: ITERATOR_LIFE,
                subscription_life: SUBSCRIPTION_LIFE,
            },
            clock: None,
        }
    }

    /// The seed of everything random: the gaps between sequence numbers, the order of the records of one call, the
    /// calls that faults with a probability hit, and the request ids. Default 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.seed = seed;
        self
    }

    /// The service's clock. Default [`TestClock::tokio`].
    pub fn clock(mut self, clock: TestClock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// The region in the ARNs and in the SDK configuration. Default `us-east-1`.
    pub fn region(mut self, region: impl Into<String>) -> Self {
        self.settings.region = region.into();
        self
    }

    /// The account in the ARNs. Default `123456789012`.
    pub fn account_id(mut self, account: impl Into<String>) -> Self {
        self.settings.account = account.into();
        self
    }

    /// Switches a rule of the service off.
    pub fn without(mut self, rule: Rule) -> Self {
        self.settings.without.insert(rule);
        self
    }

    /// Switches a rule back on.
    pub fn with(mut self, rule: Rule) -> Self {
        self.settings.without.remove(&rule);
        self
    }

    /// Switches the throughput rules off: [`Rule::THROUGHPUT`].
    pub fn without_throughput_limits(mut self) -> Self {
        self.settings.without.extend(Rule::THROUGHPUT);
        self
    }

    /// How long a stream stays `CREATING`. Default [`DEFAULT_DELAY`].
    pub fn create_stream_delay(mut self, delay: Duration) -> Self {
        self.settings.create_delay = delay;
        self
    }

    /// How long a stream stays `DELETING`. Default [`DEFAULT_DELAY`].
    pub fn delete_stream_delay(mut self, delay: Duration) -> Self {
        self.settings.delete_delay = delay;
        self
    }

    /// How long a split, a merge or a change of the shard count, the mode or the encryption takes. Default [`DEFAULT_DELAY`].
    pub fn reshard_delay(mut self, delay: Duration) -> Self {
        self.settings.reshard_delay = delay;
        self
    }

    /// How long a consumer stays `CREATING`. Default [`DEFAULT_DELAY`].
    pub fn register_consumer_delay(mut self, delay: Duration) -> Self {
        self.settings.consumer_delay = delay;
        self
    }

    /// How long a subscription is silent before it gets an event without records. Default [`DEFAULT_HEARTBEAT`].
    pub fn heartbeat_interval(mut self, interval: Duration) -> Self {
        self.settings.heartbeat = interval;
        self
    }

    /// Most records of one event of a subscription, at least one. Default
    /// [`EVENT_RECORDS`](crate::limits::EVENT_RECORDS).
    pub fn records_per_event(mut self, records: usize) -> Self {
        self.settings.event_records = records.max(1);
        self
    }

    /// How long ListShards and DescribeStream do not show a shard that came from a reshard, although its parent is
    /// closed and it takes records. Default zero; the service gives no guarantee.
    pub fn shard_list_lag(mut self, lag: Duration) -> Self {
        self.settings.shard_list_lag = lag;
        self
    }

    /// Makes sequence numbers short at first, so that they gain a digit after every few records: their order is that
    /// of the numbers and not of the text. Usually all have 56 digits. Numbers of a removed stream are then not told
    /// from those of its namesake.
    pub fn growing_sequence_numbers(mut self) -> Self {
        self.settings.growing_numbers = true;
        self
    }

    /// The most bytes that all records together may hold, counting data, keys and some 130 bytes for each. Where a
    /// write exceeds it, records age out before their time, the oldest of the shard that holds most; that is logged as
    /// a warning and counted by [`TestKinesis::evicted_records`]. Default [`DEFAULT_MEMORY_LIMIT`].
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.settings.memory_limit = bytes;
        self
    }

    /// How long a shard iterator may be used. Default [`ITERATOR_LIFE`], the service's; shorten it for tests in real
    /// time.
    pub fn iterator_life(mut self, life: Duration) -> Self {
        self.settings.iterator_life = life;
        self
    }

    /// How long a subscription lives. Default [`SUBSCRIPTION_LIFE`], the service's; shorten it for tests in real time.
    pub fn subscription_life(mut self, life: Duration) -> Self {
        self.settings.subscription_life = life;
        self
    }

    /// How many consumers a stream may have. Default
    /// [`DEFAULT_CONSUMER_QUOTA`](crate::limits::DEFAULT_CONSUMER_QUOTA); accounts with the on-demand advantage have
    /// [`HIGHEST_CONSUMER_QUOTA`](crate::limits::HIGHEST_CONSUMER_QUOTA).
    pub fn consumer_quota(mut self, consumers: usize) -> Self {
        self.settings.consumer_quota = consumers;
        self
    }

    /// How many open shards the account may have. Default [`DEFAULT_SHARD_QUOTA`].
    pub fn shard_quota(mut self, shards: usize) -> Self {
        self.settings.shard_quota = shards;
        self
    }

    #[cfg(test)]
    pub(crate) fn into_settings(self) -> Settings {
        self.settings
    }

    /// The service. With the default clock, call it inside the runtime whose time it is to follow.
    pub fn build(self) -> TestKinesis {
        TestKinesis::from_parts(self.settings, self.clock.unwrap_or_default())
    }
}
