//! The source: what all readers of one consumer share.

use std::sync::Arc;

use futures_util::future::join_all;
use kinesis_core::aws::ClientSource;
use kinesis_core::metrics::{MetricsSink, Noop};
use kinesis_core::source::{OpenShard, ShardReader, ShardSource};
use kinesis_core::{StreamRef, stable_hash};
use tokio::time::Instant;

use crate::buffer::Buffer;
use crate::driver::{Driver, Shared};
use crate::groups::Groups;
use crate::history::History;
use crate::machine::EfoMachine;
use crate::meters::Meters;
use crate::registration::Registry;
use crate::{ConfigError, ConsumerRegistration, EfoConfig, EfoReader, RegistrationError};

/// Reads shards with SubscribeToShard, as a registered consumer that has a throughput of its own.
///
/// Needs `kinesis:SubscribeToShard` on the consumer and, where the consumer is given by its name,
/// `kinesis:DescribeStreamConsumer`, `kinesis:DescribeStreamSummary` (unless the stream is given by its ARN) and, to
/// register one that is missing, `kinesis:RegisterStreamConsumer`. It never deregisters a consumer.
///
/// Cheap to clone; clones and their readers share what is known of consumers and of the service's limits.
#[derive(Debug, Clone)]
pub struct EfoSource {
    shared: Arc<Shared>,
    metrics: Arc<dyn MetricsSink>,
    shard_label: bool,
    seed: Option<u64>,
}

impl EfoSource {
    /// A source over clients of the purposes [`Subscribe`](kinesis_core::aws::Purpose::Subscribe), one for so many
    /// shards, and [`Control`](kinesis_core::aws::Purpose::Control).
    ///
    /// # Errors
    /// [`ConfigError`] when [`EfoConfig::validate`] refuses the settings.
    pub fn new(clients: impl Into<ClientSource>, config: EfoConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            shared: Arc::new(Shared::new(clients.into(), config)),
            metrics: Arc::new(Noop),
            shard_label: true,
            seed: None,
        })
    }

    /// Sets where metrics go; default nowhere. Readers opened from now on write `efo_reconnects_total` and
    /// `efo_stream_errors_total`.
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
    pub fn config(&self) -> &EfoConfig {
        &self.shared.config
    }

    /// Finds the consumer of each stream, registers it where it is missing, and waits until all are active; on several
    /// streams at once. Optional: a reader does it too. Call it to learn at the start that a permission is missing.
    ///
    /// A consumer that exists needs no permission to register; one that is given by its ARN needs no call at all.
    /// Cancel-safe: what was registered stays.
    ///
    /// # Errors
    /// [`RegistrationError`] of the first stream, in the order given, that has no active consumer within
    /// [`EfoConfig::activation_timeout`]. Nothing is undone; a later call goes on where this one ended.
    pub async fn register(
        &self,
        streams: &[StreamRef],
    ) -> Result<Vec<ConsumerRegistration>, RegistrationError> {
        let one = |stream: StreamRef| async move {
            let arn = self.shared.registry.consumer(&stream, None).await?;
            Ok(ConsumerRegistration { stream, consumer_arn: arn.to_string() })
        };
        join_all(streams.iter().cloned().map(one)).await.into_iter().collect()
    }

    /// Opens a reader, as [`ShardSource::open`] does, with its own type. It holds up to `buffer_bytes` that were not
    /// taken, each record counted with its key and 64 bytes more, and one event beyond that.
    #[must_use]
    pub fn reader(&self, request: OpenShard) -> EfoReader {
        let OpenShard { shard, start, buffer_bytes, .. } = request;
        let seed =
            self.seed.map_or_else(|| fastrand::u64(..), |seed| seed ^ stable_hash(shard.shard().as_str()));
        let now = Instant::now().into_std();
        let last = self.shared.history.of(&shard);
        let machine =
            EfoMachine::new(shard.clone(), start, buffer_bytes, &self.shared.config, last, now, seed);
        let meters = Meters::new(&*self.metrics, &shard, self.shard_label);
        let buffer = Arc::new(Buffer::default());
        let driver =
            Driver::new(Arc::clone(&self.shared), shard.clone(), machine, meters, Arc::clone(&buffer));
        EfoReader::new(shard, driver, buffer)
    }
}

impl Shared {
    fn new(clients: ClientSource, config: EfoConfig) -> Self {
        Self {
            registry: Registry::new(clients.clone(), config.clone()),
            groups: Groups::new(config.shards_per_client),
            history: History::default(),
            clients,
            config,
        }
    }
}

impl ShardSource for EfoSource {
    fn open(&self, request: OpenShard) -> Box<dyn ShardReader> {
        Box::new(self.reader(request))
    }
}
