//! How a coordinator is made and started.

use std::sync::Arc;
use std::time::Duration;

use kinesis_core::directory::ShardDirectory;
use kinesis_core::metrics::{Labels, MetricsSink, Noop, names};
use kinesis_core::{ApplicationName, StartPosition, StreamRef, WorkerId};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::boot::{self, Boot, FirstLook, Parts};
use super::events::EventSender;
use super::listing::{self, Directory};
use super::{Coordinator, LeaseEvents, worker};
use crate::machine::Machine;
use crate::{HeartbeatMode, LeaseConfig, LeaseStoreSource, StartError};

/// Requests that wait for the lease task.
const COMMANDS: usize = 256;
/// Requests for a listing that wait.
const LISTINGS: usize = 16;

/// How far before the service's time a start at the tip is anchored by default: the service's time is known to the
/// second, and it refuses times in its future. Records of these seconds are delivered.
pub const DEFAULT_LATEST_MARGIN: Duration = Duration::from_secs(2);

/// Settings of a [`Coordinator`] before it starts.
#[derive(Debug)]
pub struct CoordinatorBuilder {
    store: LeaseStoreSource,
    directory: Arc<dyn ShardDirectory>,
    application: ApplicationName,
    stream: StreamRef,
    worker: Option<WorkerId>,
    start_position: StartPosition,
    config: LeaseConfig,
    heartbeat: HeartbeatMode,
    metrics: Arc<dyn MetricsSink>,
    seed: Option<u64>,
    latest_margin: Duration,
}

impl Coordinator {
    /// A coordinator for `stream`, whose shards it shares with the other workers of `application`.
    pub fn builder(
        store: impl Into<LeaseStoreSource>,
        directory: Arc<dyn ShardDirectory>,
        application: ApplicationName,
        stream: StreamRef,
    ) -> CoordinatorBuilder {
        CoordinatorBuilder {
            store: store.into(),
            directory,
            application,
            stream,
            worker: None,
            start_position: StartPosition::default(),
            config: LeaseConfig::default(),
            heartbeat: HeartbeatMode::default(),
            metrics: Arc::new(Noop),
            seed: None,
            latest_margin: DEFAULT_LATEST_MARGIN,
        }
    }
}

impl CoordinatorBuilder {
    /// The name of this worker. Default: `host-pid-xxxxxxxx` with eight random hexadecimal digits.
    #[must_use]
    pub fn worker(mut self, worker: WorkerId) -> Self {
        self.worker = Some(worker);
        self
    }

    /// Where shards start that nothing is stored for: the trim horizon (default), the tip, or a time. Shards that
    /// follow a known one always start at their first record.
    #[must_use]
    pub fn start_position(mut self, position: StartPosition) -> Self {
        self.start_position = position;
        self
    }

    /// The times and limits.
    #[must_use]
    pub fn config(mut self, config: LeaseConfig) -> Self {
        self.config = config;
        self
    }

    /// Where the lease task runs. Default: on a thread of its own.
    #[must_use]
    pub fn heartbeat(mut self, mode: HeartbeatMode) -> Self {
        self.heartbeat = mode;
        self
    }

    /// Where `lease_lost_total` goes. Default: nowhere.
    #[must_use]
    pub fn metrics(mut self, metrics: Arc<dyn MetricsSink>) -> Self {
        self.metrics = metrics;
        self
    }

    /// Makes tokens, jitter and the choice of leases repeatable. Default: random.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// How far before the service's time a start at the tip is anchored. Default: [`DEFAULT_LATEST_MARGIN`].
    #[must_use]
    pub fn latest_margin(mut self, margin: Duration) -> Self {
        self.latest_margin = margin;
        self
    }

    /// Makes the store ready, looks at the stream, makes the leases of its shards, and begins to take leases.
    ///
    /// # Errors
    /// [`StartError`], naming the field or call. Nothing is left running. Cancel-safe.
    pub async fn start(self) -> Result<(Coordinator, LeaseEvents), StartError> {
        self.config.validate()?;
        let mut random = self.seed.map_or_else(fastrand::Rng::new, fastrand::Rng::with_seed);
        let worker = self.worker.unwrap_or_else(|| worker::default_name(&mut random));
        // Workers that are given the same seed must not draw the same tokens.
        let salt = worker.as_str().bytes().fold(0_u64, |sum, byte| sum.rotate_left(7) ^ u64::from(byte));
        random.seed(random.get_seed() ^ salt);

        let directory = Directory { directory: self.directory, stream: self.stream.clone() };
        let first = FirstLook::new(self.start_position, self.latest_margin, random.get_seed())?;
        let (commands, command_receiver) = mpsc::channel(COMMANDS);
        let (discover, asked) = mpsc::channel(LISTINGS);
        let (events, event_receiver) = EventSender::channel();
        let cancelled = CancellationToken::new();
        let (boot, handshake) = Boot::new(Parts {
            machine: Machine::new(worker.clone(), self.config.clone(), random.fork()),
            application: self.application,
            stream: by_name(&self.stream),
            stream_ref: self.stream.clone(),
            worker: worker.clone(),
            config: self.config.clone(),
            seed: random.u64(..),
            commands: command_receiver,
            sender: commands.clone(),
            events,
            discover: discover.clone(),
            lost: self.metrics.instrument(&names::LEASES_LOST, Labels::stream(self.stream)),
            cancelled: cancelled.clone(),
        });
        // From here on dropping the coordinator ends everything.
        let mut coordinator = Coordinator {
            worker,
            commands: commands.clone(),
            discover,
            cancelled: cancelled.clone(),
            tasks: JoinSet::new(),
            thread: None,
        };
        let task = Box::pin(cancelled.run_until_cancelled_owned(boot.run(self.store)));
        match self.heartbeat {
            HeartbeatMode::Inline => {
                coordinator.tasks.spawn(async {
                    task.await;
                });
            }
            HeartbeatMode::OwnThread => coordinator.thread = Some(boot::own_thread(task)?),
        }
        handshake.finish(&directory, first).await?;
        let interval = self.config.discovery_interval;
        coordinator.tasks.spawn(listing::run(directory, interval, random.u64(..), asked, commands));
        Ok((coordinator, event_receiver))
    }
}

/// One set of leases for a stream, whether it is given by name or by ARN.
pub(crate) fn by_name(stream: &StreamRef) -> StreamRef {
    StreamRef::new(stream.name()).expect("the name of a stream is a stream")
}
