//! The source: what all readers of one consumer share.

use std::sync::Arc;

use kinesis_core::aws::{ClientSource, Purpose};
use kinesis_core::metrics::{MetricsSink, Noop};
use kinesis_core::source::{OpenShard, ShardReader, ShardSource};

use crate::calls::Calls;
use crate::machine::PollMachine;
use crate::meters::Meters;
use crate::{ConfigError, PollConfig, PollReader};

/// Reads shards with GetRecords.
///
/// Needs `kinesis:GetShardIterator` and `kinesis:GetRecords`. Cheap to clone; readers are independent of it.
#[derive(Debug, Clone)]
pub struct PollSource {
    clients: ClientSource,
    config: PollConfig,
    metrics: Arc<dyn MetricsSink>,
    shard_label: bool,
    seed: Option<u64>,
}

impl PollSource {
    /// A source over clients of purpose [`Read`](Purpose::Read).
    ///
    /// # Errors
    /// [`ConfigError`] when [`PollConfig::validate`] refuses the settings.
    pub fn new(clients: impl Into<ClientSource>, config: PollConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self { clients: clients.into(), config, metrics: Arc::new(Noop), shard_label: true, seed: None })
    }

    /// Sets where metrics go; default nowhere. Readers opened from now on write `fetch_duration_ms`,
    /// `empty_polls_total`, `iterator_refreshes_total` and `fetch_errors_total`.
    #[must_use]
    pub fn metrics(mut self, sink: Arc<dyn MetricsSink>) -> Self {
        self.metrics = sink;
        self
    }

    /// Labels metrics with the stream only: for streams of so many shards that a series for each is too much.
    #[must_use]
    pub fn without_shard_label(mut self) -> Self {
        self.shard_label = false;
        self
    }

    /// Makes the jitter of delays repeatable, for tests; shards differ all the same. Default: random.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &PollConfig {
        &self.config
    }

    /// Opens a reader, as [`ShardSource::open`] does, with its own type. `buffer_bytes` has no effect: a reader holds
    /// one page at most, and only when a caller dropped [`next`](ShardReader::next) while the page was under way.
    #[must_use]
    pub fn reader(&self, request: OpenShard) -> PollReader {
        let OpenShard { shard, start, .. } = request;
        let seed = self.seed.map_or_else(|| fastrand::u64(..), |seed| seed ^ hash(shard.shard().as_str()));
        let calls = Calls::new(self.clients.client(Purpose::Read), shard.clone(), &self.config);
        let meters = Meters::new(&*self.metrics, &shard, self.shard_label);
        PollReader::new(PollMachine::new(shard, start, &self.config, seed), calls, meters)
    }
}

impl ShardSource for PollSource {
    fn open(&self, request: OpenShard) -> Box<dyn ShardReader> {
        Box::new(self.reader(request))
    }
}

/// FNV-1a: the same on every host and in every version.
fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
