//! How a producer is made.

use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "compress")]
use kinesis_compress::{Compression, Level};
use kinesis_core::StreamRef;
use kinesis_core::aws::{ClientSource, KinesisDirectory, Purpose};
use kinesis_core::metrics::{MetricsSink, Noop};
use kinesis_kpl::OuterKey;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use crate::ConfigError;
use crate::admission::Admission;
use crate::aggregation::{Aggregation, Misplaced};
use crate::batcher::Batcher;
use crate::config::ProducerConfig;
use crate::driver::{self, Driver};
use crate::encoding;
use crate::intake::Intake;
use crate::meters::Meters;
use crate::producer::{Inner, Producer};

/// Builds a [`Producer`]; from [`Producer::builder`]. Every setting has a default, see [`ProducerConfig`].
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing before `build`"]
pub struct ProducerBuilder {
    clients: ClientSource,
    stream: StreamRef,
    config: ProducerConfig,
    metrics: Arc<dyn MetricsSink>,
    jitter_seed: Option<u64>,
}

impl ProducerBuilder {
    pub(crate) fn new(clients: ClientSource, stream: StreamRef) -> Self {
        Self {
            clients,
            stream,
            config: ProducerConfig::default(),
            metrics: Arc::new(Noop),
            jitter_seed: None,
        }
    }

    /// Replaces all settings, for example with those of a file.
    pub fn config(mut self, config: ProducerConfig) -> Self {
        self.config = config;
        self
    }

    /// Where metrics go; by default nowhere.
    pub fn metrics(mut self, sink: Arc<dyn MetricsSink>) -> Self {
        self.metrics = sink;
        self
    }

    /// Makes the jitter of retry delays repeatable, for tests; random by default.
    pub fn jitter_seed(mut self, seed: u64) -> Self {
        self.jitter_seed = Some(seed);
        self
    }

    /// Sets [`ProducerConfig::max_retries`].
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.config.max_retries = retries;
        self
    }

    /// Sets [`ProducerConfig::batch_records`].
    pub fn batch_records(mut self, records: usize) -> Self {
        self.config.batch_records = records;
        self
    }

    /// Sets [`ProducerConfig::batch_bytes`].
    pub fn batch_bytes(mut self, bytes: usize) -> Self {
        self.config.batch_bytes = bytes;
        self
    }

    /// Sets [`ProducerConfig::buffer_records`].
    pub fn buffer_records(mut self, records: usize) -> Self {
        self.config.buffer_records = records;
        self
    }

    /// Sets [`ProducerConfig::buffer_bytes`].
    pub fn buffer_bytes(mut self, bytes: usize) -> Self {
        self.config.buffer_bytes = bytes;
        self
    }

    /// Sets [`ProducerConfig::linger`].
    pub fn linger(mut self, time: Duration) -> Self {
        self.config.linger = time;
        self
    }

    /// Sets [`ProducerConfig::max_record_bytes`].
    pub fn max_record_bytes(mut self, bytes: usize) -> Self {
        self.config.max_record_bytes = bytes;
        self
    }

    /// Sets [`ProducerConfig::in_flight`].
    pub fn in_flight(mut self, calls: usize) -> Self {
        self.config.in_flight = calls;
        self
    }

    /// Sets [`ProducerConfig::attempt_timeout`].
    pub fn attempt_timeout(mut self, limit: Duration) -> Self {
        self.config.attempt_timeout = limit;
        self
    }

    /// Sets [`ProducerConfig::delivery_timeout`].
    pub fn delivery_timeout(mut self, limit: Duration) -> Self {
        self.config.delivery_timeout = limit;
        self
    }

    /// Sets [`ProducerConfig::retry_initial`].
    pub fn retry_initial(mut self, delay: Duration) -> Self {
        self.config.retry_initial = delay;
        self
    }

    /// Sets [`ProducerConfig::retry_max`].
    pub fn retry_max(mut self, delay: Duration) -> Self {
        self.config.retry_max = delay;
        self
    }

    /// Sets [`ProducerConfig::aggregation`].
    pub fn aggregation(mut self, aggregation: Aggregation) -> Self {
        self.config.aggregation = aggregation;
        self
    }

    /// Sets [`ProducerConfig::aggregate_bytes`].
    pub fn aggregate_bytes(mut self, bytes: usize) -> Self {
        self.config.aggregate_bytes = bytes;
        self
    }

    /// Sets [`ProducerConfig::aggregate_records`].
    pub fn aggregate_records(mut self, records: usize) -> Self {
        self.config.aggregate_records = records;
        self
    }

    /// Sets [`ProducerConfig::outer_key`].
    pub fn outer_key(mut self, key: OuterKey) -> Self {
        self.config.outer_key = key;
        self
    }

    /// Sets [`ProducerConfig::misplaced`].
    pub fn misplaced(mut self, choice: Misplaced) -> Self {
        self.config.misplaced = choice;
        self
    }

    /// Sets [`ProducerConfig::shard_map_interval`].
    pub fn shard_map_interval(mut self, time: Duration) -> Self {
        self.config.shard_map_interval = time;
        self
    }

    /// Sets [`ProducerConfig::shard_map_retry_max`].
    pub fn shard_map_retry_max(mut self, delay: Duration) -> Self {
        self.config.shard_map_retry_max = delay;
        self
    }

    /// Sets [`ProducerConfig::shard_map_timeout`].
    pub fn shard_map_timeout(mut self, limit: Duration) -> Self {
        self.config.shard_map_timeout = limit;
        self
    }

    /// Sets [`ProducerConfig::partition_key_safety`].
    pub fn partition_key_safety(mut self, on: bool) -> Self {
        self.config.partition_key_safety = on;
        self
    }

    /// Sets [`ProducerConfig::compression`].
    #[cfg(feature = "compress")]
    #[cfg_attr(docsrs, doc(cfg(feature = "compress")))]
    pub fn compression(mut self, format: impl Into<Option<Compression>>) -> Self {
        self.config.compression = format.into();
        self
    }

    /// Sets [`ProducerConfig::compression_level`].
    #[cfg(feature = "compress")]
    #[cfg_attr(docsrs, doc(cfg(feature = "compress")))]
    pub fn compression_level(mut self, level: Level) -> Self {
        self.config.compression_level = level;
        self
    }

    /// Sets [`ProducerConfig::compress_each`].
    #[cfg(feature = "compress")]
    #[cfg_attr(docsrs, doc(cfg(feature = "compress")))]
    pub fn compress_each(mut self, on: bool) -> Self {
        self.config.compress_each = on;
        self
    }

    /// Sets [`ProducerConfig::max_input_bytes`].
    #[cfg(feature = "compress")]
    #[cfg_attr(docsrs, doc(cfg(feature = "compress")))]
    pub fn max_input_bytes(mut self, bytes: usize) -> Self {
        self.config.max_input_bytes = bytes;
        self
    }

    /// Checks the settings and starts the producer's task. Nothing is sent before the first record.
    ///
    /// # Errors
    /// [`ConfigError`] naming the setting that is out of range, or `runtime` when this is not called inside a tokio
    /// runtime.
    pub fn build(self) -> Result<Producer, ConfigError> {
        let Self { clients, stream, config, metrics, jitter_seed } = self;
        config.validate()?;
        let runtime = Handle::try_current().map_err(|_| {
            ConfigError::new("runtime", "build it inside a tokio runtime, where its task runs")
        })?;
        let encoding = encoding::encoder(&config)?;
        let admission = Arc::new(Admission::new(&config));
        let (commands, inbox) = mpsc::unbounded_channel();
        let (closed, report) = watch::channel(None);
        let driver = Driver::new(driver::Parts {
            client: clients.client(Purpose::Write),
            stream: stream.clone(),
            attempt_timeout: config.attempt_timeout,
            directory: Arc::new(KinesisDirectory::new(clients)),
            listing_timeout: config.shard_map_timeout,
            batcher: Batcher::new(
                &config,
                encoding.clone(),
                jitter_seed.unwrap_or_else(|| fastrand::u64(..)),
            ),
            admission: Arc::clone(&admission),
            meters: Meters::new(&*metrics, &stream),
            commands: inbox,
            closed,
        });
        // The producer's last handle aborts it.
        let task = runtime.spawn(driver.run()).abort_handle();
        let intake = Intake::new(&config, encoding);
        Ok(Producer::from_inner(Inner { stream, config, intake, admission, commands, closed: report, task }))
    }
}
