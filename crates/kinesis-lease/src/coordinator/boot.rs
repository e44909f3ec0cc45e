//! The start of the lease task: the store on its own runtime, the directory on the caller's, one after the other.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use kinesis_core::directory::ShardInfo;
use kinesis_core::metrics::Instrument;
use kinesis_core::{ApplicationName, StartPosition, StreamRef, WorkerId};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::calls::{Calls, Failure};
use super::command::{Command, Waiting};
use super::events::EventSender;
use super::hints;
use super::listing::Directory;
use super::namesake;
use super::regime::{self, RegimeWatch};
use super::task::LeaseTask;
use crate::discovery::Start;
use crate::identity::StreamIdentity;
use crate::machine::Machine;
use crate::source::Open;
use crate::{ConfigError, Coordination, LeaseConfig, LeaseStoreSource, StartError};

/// What the lease task is made of before it has a store.
pub(super) struct Parts {
    pub(super) machine: Machine,
    pub(super) application: ApplicationName,
    /// The stream as its leases are keyed: by name, however it was given.
    pub(super) stream: StreamRef,
    /// The stream as it was given.
    pub(super) stream_ref: StreamRef,
    pub(super) worker: WorkerId,
    pub(super) config: LeaseConfig,
    pub(super) seed: u64,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) sender: mpsc::Sender<Command>,
    pub(super) events: EventSender,
    pub(super) discover: mpsc::Sender<Option<Waiting>>,
    pub(super) lost: Arc<dyn Instrument>,
    pub(super) cancelled: CancellationToken,
}

pub(super) type Stage<T> = Result<T, StartError>;

/// What the directory said of the stream.
pub(super) struct Found {
    shards: Vec<ShardInfo>,
    start: Start,
    identity: StreamIdentity,
}

/// The lease task's side of the start.
pub(super) struct Boot {
    parts: Parts,
    ready: oneshot::Sender<Stage<()>>,
    found: oneshot::Receiver<Found>,
    started: oneshot::Sender<Stage<()>>,
}

/// The caller's side of the start.
pub(super) struct Handshake {
    ready: oneshot::Receiver<Stage<()>>,
    found: oneshot::Sender<Found>,
    started: oneshot::Receiver<Stage<()>>,
}

impl Boot {
    pub(super) fn new(parts: Parts) -> (Self, Handshake) {
        let (ready, is_ready) = oneshot::channel();
        let (listed, found) = oneshot::channel();
        let (started, has_started) = oneshot::channel();
        let boot = Self { parts, ready, found, started };
        (boot, Handshake { ready: is_ready, found: listed, started: has_started })
    }

    /// Starts and then is the lease task. Ends early when the start fails or the caller goes away.
    pub(super) async fn run(self, source: LeaseStoreSource) {
        let Self { mut parts, ready, found, started } = self;
        let opened = match source.open().await {
            Ok(Open { store, probe }) => {
                let calls = Calls {
                    store,
                    application: parts.application.clone(),
                    stream: parts.stream.clone(),
                    timeout: parts.config.call_timeout(),
                    coordination: Coordination::Native,
                };
                calls.setup().await.map(|()| (calls, probe)).map_err(|error| ("setup", error))
            }
            Err(error) => Err(("open", Arc::new(error))),
        };
        let (mut calls, probe) = match opened {
            Ok(opened) => opened,
            Err(failure) => return drop(ready.send(Err(start_error(failure)))),
        };
        parts.machine.look_at_all_rows_each(parts.config.all_rows_interval(calls.store.profile().scan_cost));
        drop(ready.send(Ok(())));
        let Ok(found) = found.await else { return };
        let mut regime = match regime::look_around(&parts, &calls, probe).await {
            Ok((coordination, regime)) => {
                calls.coordination = coordination;
                parts.machine.coordinate(coordination);
                regime
            }
            Err(error) => return drop(started.send(Err(error))),
        };
        if let Err(error) = prepare(&mut parts, &calls, &found).await {
            return drop(started.send(Err(error)));
        }
        drop(started.send(Ok(())));
        regime.as_mut().into_iter().flat_map(RegimeWatch::first_warnings).for_each(|warning| {
            super::task::warn(&parts.events, warning);
        });
        let Parts {
            machine,
            config,
            seed,
            commands,
            sender,
            events,
            discover,
            lost,
            cancelled,
            stream_ref,
            ..
        } = parts;
        let Found { start, identity, .. } = found;
        let hints = hints::of(&calls, config.look_interval, seed);
        let task = LeaseTask {
            machine,
            hints,
            calls,
            start,
            identity,
            stream_ref,
            seed,
            commands,
            sender,
            events,
            discover,
            lost,
            cancelled,
            regime,
        };
        Box::pin(task.run()).await;
    }
}

/// Checks that the rows are those of our stream and that nobody else has our name, and makes missing leases.
async fn prepare(parts: &mut Parts, calls: &Calls, found: &Found) -> Stage<()> {
    let Found { shards, start, identity } = found;
    let look = calls.look_surely(parts.seed).await.map_err(start_error)?;
    if let Some(theirs) = identity.contradicted_by(&look.rows) {
        return Err(StartError::OtherStream {
            application: parts.application.clone(),
            ours: identity.to_string(),
            theirs: theirs.to_string(),
        });
    }
    let left_behind = namesake::watch(calls, &parts.worker, &parts.config, &look).await?;
    for (row, since) in left_behind {
        // Our predecessor has expired for us already.
        parts.machine.remember(row, since);
    }
    let made = calls.make(look, shards, start, identity, parts.seed).await.map_err(start_error)?.made;
    tracing::debug!(shards = shards.len(), made, "leases of the stream are there");
    Ok(())
}

pub(super) fn start_error((action, source): (&'static str, Failure)) -> StartError {
    StartError::Store { action, source }
}

impl Handshake {
    /// Looks at the stream once the store is ready, and returns when the leases are made.
    pub(super) async fn finish(self, directory: &Directory, first: FirstLook) -> Stage<()> {
        stage(self.ready).await?;
        let found = first.look(directory).await?;
        // A lease task that is gone shows in the next line.
        drop(self.found.send(found));
        stage(self.started).await
    }
}

async fn stage(done: oneshot::Receiver<Stage<()>>) -> Stage<()> {
    let gone = |_| StartError::Thread(std::io::Error::other("the lease task ended before it had started"));
    done.await.map_err(gone)?
}

/// What is asked of the directory before the first leases are made.
#[derive(Debug)]
pub(super) struct FirstLook {
    position: StartPosition,
    margin: Duration,
    seed: u64,
}

impl FirstLook {
    pub(super) fn new(position: StartPosition, margin: Duration, seed: u64) -> Result<Self, ConfigError> {
        match position {
            StartPosition::TrimHorizon | StartPosition::Latest | StartPosition::AtTimestamp { .. } => {
                Ok(Self { position, margin, seed })
            }
            other => {
                let problem = format!("`{other}` is a place in one shard, not in a whole stream");
                Err(ConfigError::new("start_position", problem))
            }
        }
    }

    async fn look(self, directory: &Directory) -> Stage<Found> {
        let stream = &directory.stream;
        let calls = &directory.directory;
        let describe = || directory.limited("DescribeStreamSummary", calls.describe_stream(stream));
        let description = Directory::patiently(self.seed, describe).await.map_err(StartError::Directory)?;
        if !description.readable {
            return Err(StartError::NotReadable(stream.clone()));
        }
        // Before the listing, so that no shard is closed between the anchor and the listing without its records
        // being behind the anchor.
        let start = match self.position {
            StartPosition::Latest => {
                // One call less, where the service lets an account make 20 a second.
                let time = match description.described_at {
                    Some(time) => time,
                    None => {
                        let time = || directory.limited("DescribeStreamSummary", calls.server_time(stream));
                        Directory::patiently(self.seed, time).await.map_err(StartError::Directory)?
                    }
                };
                Start::Latest { anchor: time.minus(self.margin) }
            }
            StartPosition::AtTimestamp { timestamp } => Start::AtTimestamp { anchor: timestamp },
            _ => Start::TrimHorizon,
        };
        let list = || directory.list();
        let shards = Directory::patiently(self.seed, list).await.map_err(StartError::Directory)?;
        Ok(Found { shards, start, identity: StreamIdentity::of(stream, &description) })
    }
}

/// Runs the lease task on a thread with a runtime of its own.
pub(super) fn own_thread(
    task: impl Future<Output = Option<()>> + Send + 'static,
) -> Result<JoinHandle<()>, StartError> {
    let run = move || match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            runtime.block_on(task);
            // A store's blocking call must not keep the thread.
            runtime.shutdown_background();
        }
        // The start fails because the task is gone.
        Err(error) => tracing::error!(error = %error, "the runtime of the lease thread cannot be built"),
    };
    std::thread::Builder::new().name("kinesis-lease".into()).spawn(run).map_err(StartError::Thread)
}
