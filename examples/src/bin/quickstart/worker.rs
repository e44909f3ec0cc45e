//! A worker process: a consumer whose handler writes down each record that it processed.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kinesis_consumer::lease::{LeaseConfig, SqliteStore};
use kinesis_consumer::poll::PollConfig;
use kinesis_consumer::{Ack, Consumer, HandlerError, Initialize, RecordBatch, RecordProcessor};
use kinesis_core::lease::LeaseStore;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{Break, WorkerArgs};
use crate::audit::AuditedStore;
use crate::log::{Line, Log, monotonic_nanos};

/// How long a silent worker keeps its leases. Short, so that the demo shows a take-over within seconds; the default
/// is 10 s.
pub(crate) const EXPIRY: Duration = Duration::from_millis(1_500);
/// The application that all workers belong to.
pub(crate) const APPLICATION: &str = "quickstart";
/// Records are processed in pieces of this many, each with a pause that stands for work.
const PIECE: usize = 25;

pub(crate) async fn run(args: WorkerArgs) -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let log = Arc::new(Log::create(&args.log).context("the worker's log cannot be written")?);
    let leases = SqliteStore::open(&args.leases).await.context("the lease file cannot be opened")?;
    let store: Arc<dyn LeaseStore> = Arc::new(AuditedStore::new(leases, Arc::clone(&log), args.broken));
    let config =
        crate::aws::config(args.endpoint_url.as_deref(), args.region.as_deref(), args.embedded).await;
    let work = Work::of(args.broken);
    let handler_log = Arc::clone(&log);
    let consumer = Consumer::builder(&config, APPLICATION, &args.stream)
        .worker_id(&args.name)
        .lease_store(store)
        .lease(lease_config(Duration::from_millis(args.expiry_ms)))
        .poll(PollConfig::default().idle_interval(Duration::from_millis(250)))
        .max_batch_records(250)
        .checkpoint_interval(Duration::from_millis(400))
        .processor(move |_| Flights {
            log: Arc::clone(&handler_log),
            work,
            shard: String::new(),
            epoch: 0,
            order: 0,
        })
        .build()?;
    let mut terminate = signal(SignalKind::terminate())?;
    let report = consumer.run(async move { _ = terminate.recv().await }).await?;
    tracing::info!(%report, "stopped");
    anyhow::ensure!(report.is_clean(), "the stop was not clean: {report}");
    Ok(())
}

fn lease_config(expiry: Duration) -> LeaseConfig {
    LeaseConfig::default()
        .expiry(expiry)
        .heartbeat_interval(Duration::from_millis(300))
        .look_interval(Duration::from_millis(200))
        .discovery_interval(Duration::from_millis(500))
}

/// How long the work on a piece takes, and whether positions are stored before it.
#[derive(Debug, Clone, Copy)]
struct Work {
    per_piece: Duration,
    checkpoint_first: bool,
}

impl Work {
    fn of(broken: Option<Break>) -> Self {
        let per_piece = match broken {
            // A backlog, so that a parent still has work when its children appear.
            Some(Break::Parents) => Duration::from_millis(250),
            Some(Break::Watermark) => Duration::from_millis(50),
            Some(Break::Fence) | None => Duration::from_millis(5),
        };
        Self { per_piece, checkpoint_first: broken == Some(Break::Watermark) }
    }
}

struct Flights {
    log: Arc<Log>,
    work: Work,
    shard: String,
    epoch: u64,
    order: u64,
}

impl RecordProcessor for Flights {
    type Error = HandlerError;

    async fn initialize(&mut self, start: &Initialize) -> Result<(), HandlerError> {
        self.shard = start.shard.shard().to_string();
        self.epoch = start.fence.epoch();
        Ok(())
    }

    async fn process(&mut self, batch: RecordBatch) -> Result<Ack, HandlerError> {
        let Some(last) = batch.last_position() else { return Ok(Ack::All) };
        let handed_out = Line::HandedOut {
            shard: self.shard.clone(),
            epoch: self.epoch,
            last: last.sequence().to_string(),
        };
        self.log.write(&[handed_out]).map_err(HandlerError::transient)?;
        if self.work.checkpoint_first {
            batch.checkpointer().checkpoint().await.map_err(HandlerError::transient)?;
        }
        for piece in batch.records().chunks(PIECE) {
            tokio::time::sleep(self.work.per_piece).await;
            let mut lines = Vec::with_capacity(piece.len());
            for record in piece {
                self.order += 1;
                lines.push(Line::Processed {
                    shard: self.shard.clone(),
                    epoch: self.epoch,
                    order: self.order,
                    sequence: record.position().sequence().to_string(),
                    key: record.partition_key().map(ToString::to_string).unwrap_or_default(),
                    at: monotonic_nanos(),
                });
            }
            // What lies before the failed piece is written down and not offered again.
            let first = piece[0].position();
            self.log.write(&lines).map_err(|error| HandlerError::transient(error).at(first))?;
        }
        Ok(Ack::All)
    }
}
