//! What leases cost: calls and rows counted at the store boundary, in virtual time. Prints the table of docs/leases.md.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "prints a table; a failure has nobody to go to")]
#![allow(dead_code, reason = "a test includes this file for its measurement")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use kinesis_core::directory::{DirectoryError, ShardDirectory, ShardInfo, ShardPage, StreamDescription};
use kinesis_core::{ApplicationName, Checkpoint, Position, ShardId, StreamRef, Timestamp, WorkerId};
use kinesis_lease::{
    Coordinator, HeartbeatMode, Lease, LeaseConfig, LeaseEvent, LeaseKey, LeaseStore, LeaseWrite,
    MemoryStore, Outcome, ScanPage, ScanRequest, StoreError, TenureToken,
};

/// What was counted, for each second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Cost {
    pub(crate) scans: f64,
    pub(crate) rows_read: f64,
    pub(crate) calls: f64,
    pub(crate) writes: f64,
}

/// Writes and rows read of KCL 2.x for each second at its defaults: a renewal of each lease each 3,308 ms whatever
/// else is written, a checkpoint when the application stores one, a scan of the table by each worker each 20,050 ms.
pub(crate) fn kcl(workers: u32, leases: u32, checkpoints: bool) -> Cost {
    let (workers, leases) = (f64::from(workers), f64::from(leases));
    let writes = leases / 3.308 + if checkpoints { leases } else { 0.0 };
    let scans = workers / 20.05;
    Cost { scans, rows_read: scans * leases, calls: writes, writes }
}

#[derive(Debug, Default)]
struct Counts {
    scans: AtomicU64,
    rows: AtomicU64,
    calls: AtomicU64,
    writes: AtomicU64,
}

impl Counts {
    fn read(&self) -> [u64; 4] {
        [&self.scans, &self.rows, &self.calls, &self.writes].map(|count| count.load(Ordering::Relaxed))
    }
}

/// A store that counts what goes through it.
#[derive(Debug, Clone, Default)]
struct Counting {
    memory: MemoryStore,
    counts: Arc<Counts>,
}

#[async_trait]
impl LeaseStore for Counting {
    async fn setup(&self) -> Result<(), StoreError> {
        self.memory.setup().await
    }

    async fn get(&self, keys: &[LeaseKey]) -> Result<Vec<Option<Lease>>, StoreError> {
        self.counts.rows.fetch_add(keys.len() as u64, Ordering::Relaxed);
        self.memory.get(keys).await
    }

    async fn scan(&self, request: &ScanRequest) -> Result<ScanPage, StoreError> {
        let page = self.memory.scan(request).await?;
        self.counts.scans.fetch_add(u64::from(request.cursor.is_none()), Ordering::Relaxed);
        self.counts.rows.fetch_add(page.leases.len() as u64, Ordering::Relaxed);
        Ok(page)
    }

    async fn apply(&self, writes: &[LeaseWrite]) -> Vec<Result<Outcome, StoreError>> {
        self.counts.calls.fetch_add(1, Ordering::Relaxed);
        self.counts.writes.fetch_add(writes.len() as u64, Ordering::Relaxed);
        self.memory.apply(writes).await
    }
}

#[derive(Debug)]
struct Stream(u32);

#[async_trait]
impl ShardDirectory for Stream {
    async fn list_shards(&self, _: &StreamRef, _: Option<&str>) -> Result<ShardPage, DirectoryError> {
        Ok(ShardPage::new((0..self.0).map(|number| ShardInfo::new(shard(number))).collect(), None))
    }

    async fn describe_stream(&self, _: &StreamRef) -> Result<StreamDescription, DirectoryError> {
        Ok(StreamDescription::new(self.0))
    }

    async fn server_time(&self, _: &StreamRef) -> Result<Timestamp, DirectoryError> {
        Ok(Timestamp::from_millis(0))
    }
}

fn shard(number: u32) -> ShardId {
    ShardId::new(format!("shardId-{number:012}")).unwrap()
}

/// Counts for a while what a settled fleet does.
pub(crate) async fn measure(
    config: &LeaseConfig,
    workers: u32,
    leases: u32,
    checkpoints: bool,
    time: Duration,
) -> Cost {
    let (application, stream) = (ApplicationName::new("cost").unwrap(), StreamRef::new("stream").unwrap());
    let store = Counting::default();
    let name = |number: u32| WorkerId::new(format!("w{number}")).unwrap();
    let rows = (0..leases).map(|number| {
        let mut lease = Lease::new(
            LeaseKey::new(application.clone(), stream.clone(), shard(number)),
            Checkpoint::TrimHorizon,
        );
        // Each worker finds its part as its predecessor has left it, so that the fleet is settled at once.
        lease.owner = Some(name(number % workers));
        lease.token = Some(TenureToken::from_random(1));
        LeaseWrite::create(lease)
    });
    store.memory.apply(&rows.collect::<Vec<_>>()).await;
    let mut running = tokio::task::JoinSet::new();
    for number in 0..workers {
        let builder = Coordinator::builder(
            store.clone(),
            Arc::new(Stream(leases)),
            application.clone(),
            stream.clone(),
        );
        let builder = builder.worker(name(number)).config(config.clone()).heartbeat(HeartbeatMode::Inline);
        running.spawn(async move {
            let (_coordinator, mut events) = builder.seed(u64::from(number)).start().await.unwrap();
            let mut handlers = tokio::task::JoinSet::new();
            while let Some(event) = events.next().await {
                let LeaseEvent::Acquired(tenure) = event else { continue };
                if !checkpoints {
                    continue;
                }
                handlers.spawn(async move {
                    for sequence in 1_u128.. {
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        let at = Checkpoint::At(Position::new(sequence.into(), 0));
                        if tenure.checkpoint(at).await.is_err() {
                            break;
                        }
                    }
                });
            }
        });
    }
    tokio::time::sleep(Duration::from_secs(25)).await;
    let before = store.counts.read();
    tokio::time::sleep(time).await;
    let after = store.counts.read();
    running.shutdown().await;
    let rate = |index: usize| (after[index] - before[index]) as f64 / time.as_secs_f64();
    Cost { scans: rate(0), rows_read: rate(1), calls: rate(2), writes: rate(3) }
}

const SIZES: &[(u32, u32)] =
    &[(10, 1), (10, 10), (1_000, 1), (1_000, 10), (1_000, 100), (10_000, 1), (10_000, 10), (10_000, 100)];

fn main() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    println!(
        "| look | leases | workers | checkpoints | rows read /s | KCL | ratio | calls /s | rows written /s | KCL | ratio |"
    );
    println!("| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for look in [1, 25] {
        let config = LeaseConfig::default().look_interval(Duration::from_secs(look));
        for (leases, workers) in SIZES {
            for checkpoints in [false, true] {
                let time = Duration::from_secs(if leases * workers > 100_000 { 20 } else { 60 });
                let ours = runtime.block_on(measure(&config, *workers, *leases, checkpoints, time));
                let kcl = kcl(*workers, *leases, checkpoints);
                let (read, written) = (ours.rows_read / kcl.rows_read, ours.writes / kcl.writes);
                let each = if checkpoints { "one a second" } else { "none" };
                println!(
                    "| {look} s | {leases} | {workers} | {each} | {:.1} | {:.1} | {read:.2} | {:.1} | {:.1} | {:.1} | {written:.2} |",
                    ours.rows_read, kcl.rows_read, ours.calls, ours.writes, kcl.writes
                );
            }
        }
    }
}
