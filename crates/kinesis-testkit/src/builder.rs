//! Settings of a [`TestKinesis`].

use std::collections::BTreeSet;
use std::time::Duration;

use crate::TestKinesis;
use crate::clock::TestClock;
use crate::limits::{DEFAULT_SHARD_QUOTA, Rule};
use crate::state::Settings;

/// How long a stream stays `CREATING`, `DELETING` or `UPDATING` by default.
pub const DEFAULT_DELAY: Duration = Duration::from_millis(500);

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
                shard_quota: DEFAULT_SHARD_QUOTA,
            },
            clock: None,
        }
    }

    /// The seed of everything random: the gaps between sequence numbers and the request ids. Default 0.
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

    /// How long a split, a merge or a change of the shard count takes. Default [`DEFAULT_DELAY`].
    pub fn reshard_delay(mut self, delay: Duration) -> Self {
        self.settings.reshard_delay = delay;
        self
    }

    /// How many open shards the account may have. Default [`DEFAULT_SHARD_QUOTA`].
    pub fn shard_quota(mut self, shards: usize) -> Self {
        self.settings.shard_quota = shards;
        self
    }

    /// The service. With the default clock, call it inside the runtime whose time it is to follow.
    pub fn build(self) -> TestKinesis {
        TestKinesis::from_parts(self.settings, self.clock.unwrap_or_default())
    }
}
