//! Builds a consumer: what is required are arguments, the rest are setters named after their settings.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use kinesis_core::aws::{ClientSource, KinesisDirectory};
use kinesis_core::directory::ShardDirectory;
use kinesis_core::metrics::{MetricsSink, Noop};
use kinesis_core::payload::PayloadDecoder;
use kinesis_core::processing::CheckpointVerb;
use kinesis_core::source::ShardSource;
use kinesis_core::{
    ApplicationName, BoxError, DeadLetter, IntoAck, IntoRecordAck, Record, RecordBatch, ShardRef,
    StartPosition, StreamRef, WorkerId,
};
#[cfg(feature = "efo")]
use kinesis_efo::EfoConfig;
#[cfg(feature = "kpl")]
use kinesis_kpl::RangeFilter;
use kinesis_lease::{HeartbeatMode, LeaseConfig, LeaseStoreSource};
#[cfg(feature = "poll")]
use kinesis_poll::PollConfig;
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;
use tower_layer::Layer;
use tower_service::Service;

#[cfg(feature = "compress")]
use crate::Decompression;
#[cfg(all(feature = "efo", feature = "poll"))]
use crate::FallbackConfig;
#[cfg(feature = "efo")]
use crate::ReadMode;
#[cfg(feature = "kpl")]
use crate::Undecoded;
use crate::consumer::Parts;
use crate::decoding;
use crate::door::{self, BatchService, Door, HandlerService, RecordService};
use crate::engine::{Context, DeadLetterService};
use crate::source::Reading;
use crate::{
    Checkpoints, ConfigError, Consumer, ConsumerConfig, FailurePolicy, OnExhausted, RecordProcessor,
};

/// No handler was given yet.
#[derive(Debug, Clone, Copy)]
pub struct NoDoor;

/// The handler takes batches, one call at a time per shard.
#[derive(Debug, Clone)]
pub struct BatchDoor(Door);

/// The handler takes records, one call each.
#[derive(Debug, Clone)]
pub struct RecordDoor(Door);

/// Builds a [`Consumer`].
///
/// Layers: `.layer(l)` wraps what is there, so the last call is outermost, as with axum's routers. Inside a
/// `tower::ServiceBuilder` it is the other way round: its first layer is outermost.
#[must_use]
pub struct ConsumerBuilder<D = NoDoor> {
    clients: ClientSource,
    application: String,
    stream: String,
    worker: Option<String>,
    door: D,
    config: ConsumerConfig,
    lease_store: Option<LeaseStoreSource>,
    source: Option<Arc<dyn ShardSource>>,
    directory: Option<Arc<dyn ShardDirectory>>,
    decoders: Vec<Arc<dyn PayloadDecoder>>,
    dead_letter: Option<DeadLetterService>,
    metrics: Arc<dyn MetricsSink>,
    heartbeat: HeartbeatMode,
    seed: u64,
}

impl<D: fmt::Debug> fmt::Debug for ConsumerBuilder<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerBuilder")
            .field("application", &self.application)
            .field("stream", &self.stream)
            .field("door", &self.door)
            .finish_non_exhaustive()
    }
}

impl Consumer {
    /// Starts building a consumer of `stream` (a name or an ARN) for `application`, whose workers share the shards.
    ///
    /// `clients` is an AWS configuration (`&SdkConfig`), a ready Kinesis client, or a [`ClientSource`].
    pub fn builder(
        clients: impl Into<ClientSource>,
        application: impl Into<String>,
        stream: impl Into<String>,
    ) -> ConsumerBuilder<NoDoor> {
        ConsumerBuilder {
            clients: clients.into(),
            application: application.into(),
            stream: stream.into(),
            worker: None,
            door: NoDoor,
            config: ConsumerConfig::default(),
            lease_store: None,
            source: None,
            directory: None,
            decoders: Vec::new(),
            dead_letter: None,
            metrics: Arc::new(Noop),
            heartbeat: HeartbeatMode::default(),
            seed: fastrand::u64(..),
        }
    }
}

impl ConsumerBuilder<NoDoor> {
    /// Without a handler there is nothing to build.
    ///
    /// # Errors
    /// Always, naming the field `processor`.
    pub fn build(self) -> Result<Consumer, ConfigError> {
        Err(ConfigError::new(
            "processor",
            "is missing; set batches, processor, for_each_batch, records or for_each",
        ))
    }

    fn with_door<D>(self, door: D) -> ConsumerBuilder<D> {
        ConsumerBuilder {
            clients: self.clients,
            application: self.application,
            stream: self.stream,
            worker: self.worker,
            door,
            config: self.config,
            lease_store: self.lease_store,
            source: self.source,
            directory: self.directory,
            decoders: self.decoders,
            dead_letter: self.dead_letter,
            metrics: self.metrics,
            heartbeat: self.heartbeat,
            seed: self.seed,
        }
    }

    /// Processes batches with a service: one call at a time per shard.
    pub fn batches<S>(self, service: S) -> ConsumerBuilder<BatchDoor>
    where
        S: Service<RecordBatch> + Clone + Send + Sync + 'static,
        S::Response: IntoAck + 'static,
        S::Error: Into<BoxError> + 'static,
        S::Future: Send + 'static,
    {
        self.with_door(BatchDoor(door::from_batches(BatchService::new(service))))
    }

    /// Processes batches with an object per shard: `factory` makes one for each tenure.
    pub fn processor<F, P>(self, factory: F) -> ConsumerBuilder<BatchDoor>
    where
        F: Fn(&ShardRef) -> P + Send + Sync + 'static,
        P: RecordProcessor,
    {
        self.with_door(BatchDoor(door::from_processor(factory)))
    }

    /// Processes batches with a closure.
    pub fn for_each_batch<F, Fut, A, E>(self, handler: F) -> ConsumerBuilder<BatchDoor>
    where
        F: Fn(RecordBatch) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<A, E>> + Send + 'static,
        A: IntoAck + 'static,
        E: Into<BoxError> + 'static,
    {
        self.with_door(BatchDoor(door::from_batches(door::batch_closure(handler))))
    }

    /// Processes records with a service, one call each.
    pub fn records<S>(self, service: S) -> ConsumerBuilder<RecordDoor>
    where
        S: Service<Record> + Clone + Send + Sync + 'static,
        S::Response: IntoRecordAck + 'static,
        S::Error: Into<BoxError> + 'static,
        S::Future: Send + 'static,
    {
        self.with_door(RecordDoor(door::from_records(RecordService::new(service))))
    }

    /// Processes records with a closure, one call each.
    pub fn for_each<F, Fut, A, E>(self, handler: F) -> ConsumerBuilder<RecordDoor>
    where
        F: Fn(Record) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Result<A, E>> + Send + 'static,
        A: IntoRecordAck + 'static,
        E: Into<BoxError> + 'static,
    {
        self.with_door(RecordDoor(door::from_records(door::record_closure(handler))))
    }
}

impl ConsumerBuilder<BatchDoor> {
    /// Wraps the handler; the last layer added is outermost. Lifecycle callbacks run outside of layers.
    pub fn layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<BatchService> + Send + Sync + 'static,
        L::Service: Service<RecordBatch> + Clone + Send + Sync + 'static,
        <L::Service as Service<RecordBatch>>::Response: IntoAck + 'static,
        <L::Service as Service<RecordBatch>>::Error: Into<BoxError> + 'static,
        <L::Service as Service<RecordBatch>>::Future: Send + 'static,
    {
        self.door = BatchDoor(self.door.0.map(move |service| match service {
            HandlerService::Batches(inner) => HandlerService::Batches(BatchService::new(layer.layer(inner))),
            other => other,
        }));
        self
    }

    /// Checks every setting and makes the consumer.
    ///
    /// # Errors
    /// [`ConfigError`] names the first setting that is missing or cannot be used.
    pub fn build(self) -> Result<Consumer, ConfigError> {
        let door = self.door.0.clone();
        self.into_consumer(door)
    }
}

impl ConsumerBuilder<RecordDoor> {
    /// Wraps the handler; the last layer added is outermost.
    pub fn layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<RecordService> + Send + Sync + 'static,
        L::Service: Service<Record> + Clone + Send + Sync + 'static,
        <L::Service as Service<Record>>::Response: IntoRecordAck + 'static,
        <L::Service as Service<Record>>::Error: Into<BoxError> + 'static,
        <L::Service as Service<Record>>::Future: Send + 'static,
    {
        self.door = RecordDoor(self.door.0.map(move |service| match service {
            HandlerService::Records(inner) => HandlerService::Records(RecordService::new(layer.layer(inner))),
            other => other,
        }));
        self
    }

    /// Checks every setting and makes the consumer.
    ///
    /// # Errors
    /// [`ConfigError`] names the first setting that is missing or cannot be used.
    pub fn build(self) -> Result<Consumer, ConfigError> {
        if self.config.checkpoints == Checkpoints::Transactional {
            let problem = "transactional does not go together with records or for_each, which have no fence; use \
                           batches, processor or for_each_batch";
            return Err(ConfigError::new("checkpoints", problem));
        }
        let door = self.door.0.clone();
        self.into_consumer(door)
    }
}

macro_rules! setters {
    ($($(#[$doc:meta])* $field:ident: $type:ty;)*) => {
        $(
            #[doc = concat!("Sets [`ConsumerConfig::", stringify!($field), "`].")]
            $(#[$doc])*
            pub fn $field(mut self, $field: $type) -> Self {
                self.config.$field = $field;
                self
            }
        )*
    };
}

impl<D> ConsumerBuilder<D> {
    setters! {
        start_position: StartPosition;
        max_batch_records: usize;
        checkpoint_limit: usize;
        checkpoints: Checkpoints;
        checkpoint_verb: CheckpointVerb;
        checkpoint_interval: Duration;
        checkpoint_spacing: Duration;
        failure_policy: FailurePolicy;
        on_exhausted: OnExhausted;
        retry_initial: Duration;
        retry_max: Duration;
        report_after: u32;
        cool_down: Duration;
        shutdown_timeout: Duration;
        lost_lease_grace: Duration;
        close_timeout: Duration;
        stuck_after: Duration;
        reopen_initial: Duration;
        reopen_max: Duration;
        max_decoded_bytes: usize;
        #[cfg(feature = "compress")]
        decompression: Decompression;
        #[cfg(feature = "kpl")]
        deaggregate: bool;
        #[cfg(feature = "kpl")]
        undecoded: Undecoded;
        #[cfg(feature = "kpl")]
        range_filter: RangeFilter;
        buffer_bytes: usize;
        shard_metrics: bool;
        lease: LeaseConfig;
        #[cfg(feature = "efo")]
        read_mode: ReadMode;
        #[cfg(feature = "efo")]
        efo: EfoConfig;
        #[cfg(all(feature = "efo", feature = "poll"))]
        fallback: FallbackConfig;
        #[cfg(feature = "poll")]
        poll: PollConfig;
        #[cfg(feature = "fast-decode")]
        fast_decode: bool;
    }

    /// Reads with enhanced fan-out: records are pushed, with 2 MB/s of each shard for this application alone.
    ///
    /// `consumer` is the name of a registered consumer, which is registered where it is missing, or the ARN of one that
    /// exists. All workers of an application use the same one. Sets [`ConsumerConfig::read_mode`] and
    /// [`EfoConfig::consumer`]; for a fall-back to polling set
    /// [`read_mode`](Self::read_mode) to [`ReadMode::EnhancedFanOutOrPoll`] afterwards.
    #[cfg(feature = "efo")]
    #[cfg_attr(docsrs, doc(cfg(feature = "efo")))]
    pub fn enhanced_fan_out(mut self, consumer: impl Into<String>) -> Self {
        self.config.read_mode = ReadMode::EnhancedFanOut;
        self.config.efo.consumer = consumer.into();
        self
    }

    /// Replaces all settings, for example with those of a file.
    pub fn config(mut self, config: ConsumerConfig) -> Self {
        self.config = config;
        self
    }

    /// The name of this worker. Default: host name, process id and eight random hex digits.
    pub fn worker_id(mut self, worker: impl Into<String>) -> Self {
        self.worker = Some(worker.into());
        self
    }

    /// Where leases are kept: a store, an `Arc<dyn LeaseStore>`, or a factory that makes one for the heartbeat thread.
    pub fn lease_store(mut self, store: impl Into<LeaseStoreSource>) -> Self {
        self.lease_store = Some(store.into());
        self
    }

    /// How shards are read. Default: as [`ConsumerConfig`] says, which is polling unless it says otherwise.
    pub fn source(mut self, source: Arc<dyn ShardSource>) -> Self {
        self.source = Some(source);
        self
    }

    /// How streams are looked at. Default: the Kinesis API.
    pub fn directory(mut self, directory: Arc<dyn ShardDirectory>) -> Self {
        self.directory = Some(directory);
        self
    }

    /// Adds a decoder of payloads (decompress, decrypt, strip a header); they run in the order in which they are added, the
    /// decompression of the configuration after them. Inside an aggregate they run once more on each of its records.
    pub fn decoder(mut self, decoder: Arc<dyn PayloadDecoder>) -> Self {
        self.decoders.push(decoder);
        self
    }

    /// Where records go that are skipped; needed for [`FailurePolicy::SkipAfter`].
    pub fn dead_letter<S>(mut self, service: S) -> Self
    where
        S: Service<DeadLetter> + Clone + Send + Sync + 'static,
        S::Error: Into<BoxError> + 'static,
        S::Response: 'static,
        S::Future: Send + 'static,
    {
        self.dead_letter = Some(BoxCloneSyncService::new(service.map_response(drop).map_err(Into::into)));
        self
    }

    /// Where metrics go. Default: nowhere.
    pub fn metrics(mut self, sink: Arc<dyn MetricsSink>) -> Self {
        self.metrics = sink;
        self
    }

    /// Where the lease task runs. Default: on a thread of its own, so that a handler that blocks costs no lease.
    pub fn heartbeat(mut self, mode: HeartbeatMode) -> Self {
        self.heartbeat = mode;
        self
    }

    /// Seeds the jitter of all delays, for repeatable tests. Default: random.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    fn into_consumer(self, door: Door) -> Result<Consumer, ConfigError> {
        let application = named("application", self.application, ApplicationName::new)?;
        let stream = named("stream", self.stream, StreamRef::new)?;
        let worker = self.worker.map(|worker| named("worker_id", worker, WorkerId::new)).transpose()?;
        self.config.validate()?;
        let Some(lease_store) = self.lease_store else {
            return Err(ConfigError::new(
                "lease_store",
                "is missing; give a store of kinesis-lease or your own",
            ));
        };
        if matches!(self.config.failure_policy, FailurePolicy::SkipAfter { .. }) && self.dead_letter.is_none()
        {
            return Err(ConfigError::new(
                "dead_letter",
                "is missing; failure_policy = skip_after needs a dead-letter service",
            ));
        }
        #[cfg(feature = "kpl")]
        if self.config.undecoded == Undecoded::DeadLetter && self.dead_letter.is_none() {
            return Err(ConfigError::new(
                "dead_letter",
                "is missing; undecoded = dead_letter needs a dead-letter service",
            ));
        }
        let transactional = lease_store.transactional();
        let positions = match self.config.checkpoints {
            Checkpoints::Automatic => None,
            Checkpoints::Transactional if transactional.is_some() => transactional,
            Checkpoints::Transactional => {
                let problem = "transactional needs a PostgresStore as lease_store, given as a value: not another \
                               store, a factory or an Arc<dyn LeaseStore>";
                return Err(ConfigError::new("checkpoints", problem));
            }
        };
        let reading = match self.source {
            Some(source) => Reading::with(source),
            None => Reading::new(&self.clients, &self.config, &self.metrics, self.seed)?,
        };
        let directory = self.directory.unwrap_or_else(|| Arc::new(KinesisDirectory::new(self.clients)));
        let wire = decoding::wire_stage(&self.config, self.decoders)?;
        Ok(Consumer(Parts {
            application,
            stream,
            worker,
            lease_store,
            directory,
            heartbeat: self.heartbeat,
            #[cfg(feature = "efo")]
            register: reading.register,
            cx: Context {
                config: self.config,
                door,
                source: reading.source,
                wire,
                metrics: self.metrics,
                dead_letter: self.dead_letter,
                positions,
                seed: self.seed,
            },
        }))
    }
}

fn named<T>(
    field: &'static str,
    text: String,
    make: impl FnOnce(String) -> Result<T, kinesis_core::InvalidId>,
) -> Result<T, ConfigError> {
    make(text).map_err(|error| ConfigError::new(field, error.to_string()))
}

#[cfg(test)]
mod tests {
    use kinesis_lease::MemoryStore;
    use kinesis_testkit::TestKinesis;

    use super::*;

    /// S-003: with what is required alone, everything else is at its default.
    #[tokio::test]
    async fn what_is_required_is_enough() {
        let consumer = Consumer::builder(TestKinesis::new().client(), "billing", "orders")
            .lease_store(MemoryStore::new())
            .for_each(|_: Record| async { Ok::<_, BoxError>(()) })
            .build()
            .unwrap();
        let Parts { application, stream, worker, heartbeat, cx, .. } = consumer.0;
        assert_eq!((application.as_str(), stream.to_string().as_str()), ("billing", "orders"));
        assert_eq!((worker, heartbeat), (None, HeartbeatMode::OwnThread));
        assert_eq!(cx.config, ConsumerConfig::default());
        assert!(cx.dead_letter.is_none());
    }
}
