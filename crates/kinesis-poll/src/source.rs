//! The source: what all readers of one consumer share.

use std::sync::Arc;

use kinesis_core::aws::{ClientSource, Purpose};
use kinesis_core::metrics::{MetricsSink, Noop};
use kinesis_core::source::{OpenShard, ShardReader, ShardSource};
use kinesis_core::stable_hash;

use crate::ahead::ReadAhead;
use crate::budget::Budget;
use crate::calls::Calls;
use crate::machine::PollMachine;
use crate::meters::Meters;
use crate::task::Task;
use crate::{ConfigError, PollConfig, PollReader};

/// Reads shards with GetRecords.
///
/// Needs `kinesis:GetShardIterator` and `kinesis:GetRecords`. Cheap to clone. Readers live on without it; those of one
/// source and its clones share its [`total_buffer_bytes`](PollConfig::total_buffer_bytes).
#[derive(Debug, Clone)]
pub struct PollSource {
    clients: ClientSource,
    config: PollConfig,
    metrics: Arc<dyn MetricsSink>,
    shard_label: bool,
    seed: Option<u64>,
    budget: Budget,
    #[cfg(feature = "fast-decode")]
    fast_decode: bool,
}

impl PollSource {
    /// A source over clients of purpose [`Read`](Purpose::Read).
    ///
    /// # Errors
    /// [`ConfigError`] when [`PollConfig::validate`] refuses the settings.
    pub fn new(clients: impl Into<ClientSource>, config: PollConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let budget = Budget::new(config.total_buffer_bytes);
        let metrics = Arc::new(Noop);
        Ok(Self {
            clients: clients.into(),
            config,
            metrics,
            shard_label: true,
            seed: None,
            budget,
            #[cfg(feature = "fast-decode")]
            fast_decode: false,
        })
    }

    /// Decodes the answers of GetRecords without the SDK's JSON scanner, which takes most of the time of a read; what
    /// comes out is the same. The records of a page share one buffer: who keeps one of them keeps its whole page.
    #[cfg(feature = "fast-decode")]
    #[cfg_attr(docsrs, doc(cfg(feature = "fast-decode")))]
    #[must_use]
    pub fn fast_decode(mut self) -> Self {
        self.fast_decode = true;
        self
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

    /// Opens a reader, as [`ShardSource::open`] does, with its own type.
    #[must_use]
    pub fn reader(&self, request: OpenShard) -> PollReader {
        let OpenShard { shard, start, buffer_bytes, .. } = request;
        let seed =
            self.seed.map_or_else(|| fastrand::u64(..), |seed| seed ^ stable_hash(shard.shard().as_str()));
        let calls = Calls::new(self.clients.client(Purpose::Read), shard.clone(), &self.config);
        #[cfg(feature = "fast-decode")]
        let calls = calls.fast(self.fast_decode);
        let task = Task {
            machine: PollMachine::new(shard.clone(), start, &self.config, seed),
            calls,
            meters: Meters::new(&*self.metrics, &shard, self.shard_label),
            ahead: ReadAhead::new(buffer_bytes as u64),
            budget: self.budget.clone(),
        };
        PollReader::new(shard, task)
    }
}

impl ShardSource for PollSource {
    fn open(&self, request: OpenShard) -> Box<dyn ShardReader> {
        Box::new(self.reader(request))
    }
}
