//! What leases cost: calls and rows counted at the store boundary, in virtual time. Prints the table of docs/leases.md, or
//! with `SQL`, `"SQL, worker heartbeat"`, `DynamoDB`, `"DynamoDB, worker heartbeat"` or `shared` that part of it, and with
//! numbers after that the rows of so many leases at most, and at least.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "prints a table; a failure has nobody to go to")]
#![allow(dead_code, reason = "a test includes this file for its measurement")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use kinesis_core::directory::{DirectoryError, ShardDirectory, ShardInfo, ShardPage, StreamDescription};
use kinesis_core::{ApplicationName, Checkpoint, Position, ShardId, StreamRef, Timestamp, WorkerId};
use kinesis_lease::{
    Coordinator, HeartbeatMode, HintRequest, Lease, LeaseConfig, LeaseEvent, LeaseHints, LeaseKey,
    LeaseStore, LeaseWrite, MemoryStore, Outcome, ScanCost, ScanPage, ScanRequest, StoreError, StoreProfile,
    TenureToken,
};

/// What a store is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Kind {
    /// Reading all rows is one cheap statement.
    #[default]
    Sql,
    /// Each row read is paid for, and a small item tells of leases that have become free.
    DynamoDb,
    /// The same without the item, as in tables that the KCL shares.
    Shared,
}

/// What was counted, for each second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Cost {
    pub(crate) scans: f64,
    /// By scans and by key.
    pub(crate) rows_read: f64,
    /// Of these by key.
    pub(crate) by_key: f64,
    pub(crate) hints_read: f64,
    pub(crate) calls: f64,
    pub(crate) writes: f64,
}

/// Writes and rows read of KCL 2.x for each second at its defaults: a renewal of each lease each 3,308 ms whatever
/// else is written, a checkpoint when the application stores one, a scan of the table by each worker each 20,050 ms.
pub(crate) fn kcl(workers: u32, leases: u32, checkpoints: bool) -> Cost {
    let (workers, leases) = (f64::from(workers), f64::from(leases));
    let writes = leases / 3.308 + if checkpoints { leases } else { 0.0 };
    let scans = workers / 20.05;
    Cost { scans, rows_read: scans * leases, by_key: 0.0, hints_read: 0.0, calls: writes, writes }
}

#[derive(Debug, Default)]
struct Counts {
    scans: AtomicU64,
    rows: AtomicU64,
    by_key: AtomicU64,
    hints: AtomicU64,
    calls: AtomicU64,
    writes: AtomicU64,
}

impl Counts {
    fn read(&self) -> [u64; 6] {
        let counts = [&self.scans, &self.rows, &self.by_key, &self.hints, &self.calls, &self.writes];
        counts.map(|count| count.load(Ordering::Relaxed))
    }
}

/// A store that counts what goes through it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counting {
    pub(crate) memory: MemoryStore,
    kind: Kind,
    counts: Arc<Counts>,
    /// Moves when leases become free.
    hint: Arc<AtomicU64>,
}

impl Counting {
    pub(crate) fn new(kind: Kind) -> Self {
        Self { kind, ..Self::default() }
    }

    pub(crate) fn hint(&self) {
        self.hint.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn scans(&self) -> u64 {
        self.counts.scans.load(Ordering::Relaxed)
    }

    /// How often it was said that leases have become free.
    pub(crate) fn hints_given(&self) -> u64 {
        self.hint.load(Ordering::Relaxed)
    }
}

/// Reads the item with the hints now and then.
#[derive(Debug)]
struct Polled {
    store: Counting,
    interval: Duration,
    last: u64,
}

#[async_trait]
impl LeaseHints for Polled {
    async fn next(&mut self) -> Result<(), StoreError> {
        loop {
            tokio::time::sleep(self.interval).await;
            self.store.counts.hints.fetch_add(1, Ordering::Relaxed);
            let found = self.store.hints_given();
            if std::mem::replace(&mut self.last, found) != found {
                return Ok(());
            }
        }
    }
}

#[async_trait]
impl LeaseStore for Counting {
    async fn setup(&self) -> Result<(), StoreError> {
        self.memory.setup().await
    }

    async fn get(&self, keys: &[LeaseKey]) -> Result<Vec<Option<Lease>>, StoreError> {
        self.counts.rows.fetch_add(keys.len() as u64, Ordering::Relaxed);
        self.counts.by_key.fetch_add(keys.len() as u64, Ordering::Relaxed);
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
        let results = self.memory.apply(writes).await;
        let mut done = writes.iter().zip(&results);
        let frees = done.any(|(write, result)| write.frees() && matches!(result, Ok(Outcome::Applied(_))));
        self.hint.fetch_add(u64::from(frees), Ordering::Relaxed);
        results
    }

    fn profile(&self) -> StoreProfile {
        let cost = if self.kind == Kind::Sql { ScanCost::PerScan } else { ScanCost::PerRow };
        StoreProfile::default().scan_cost(cost)
    }

    fn hints(&self, request: &HintRequest) -> Option<Box<dyn LeaseHints>> {
        let polled = || Polled { store: self.clone(), interval: request.interval, last: self.hints_given() };
        (self.kind == Kind::DynamoDb).then(|| Box::new(polled()) as _)
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
    kind: Kind,
    config: &LeaseConfig,
    workers: u32,
    leases: u32,
    checkpoints: bool,
    time: Duration,
) -> Cost {
    let (application, stream) = (ApplicationName::new("cost").unwrap(), StreamRef::new("stream").unwrap());
    let store = Counting::new(kind);
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
                    let mut next = tokio::time::Instant::now();
                    for sequence in 1_u128.. {
                        next += Duration::from_secs(1);
                        tokio::time::sleep_until(next).await;
                        let at = Checkpoint::At(Position::new(sequence.into(), 0));
                        // As the consumer does it: a position that still waits makes room for a later one.
                        let stored = tenure.checkpoint_spaced(at, Duration::from_secs(2));
                        let end = next + Duration::from_secs(1);
                        if let Ok(Err(_)) = tokio::time::timeout_at(end, stored).await {
                            break;
                        }
                    }
                });
            }
        });
    }
    // Who is left without a lease takes what it sees standing still first, and then it is asked for, in vain.
    let settling = if workers > leases { 240 } else { 40 };
    tokio::time::sleep(Duration::from_secs(settling)).await;
    let before = store.counts.read();
    tokio::time::sleep(time).await;
    let after = store.counts.read();
    running.shutdown().await;
    let rate = |index: usize| (after[index] - before[index]) as f64 / time.as_secs_f64();
    Cost {
        scans: rate(0),
        rows_read: rate(1),
        by_key: rate(2),
        hints_read: rate(3),
        calls: rate(4),
        writes: rate(5),
    }
}

const SIZES: &[(u32, u32)] = &[
    (10, 1),
    (10, 10),
    (10, 100),
    (1_000, 1),
    (1_000, 10),
    (1_000, 100),
    (10_000, 1),
    (10_000, 10),
    (10_000, 100),
];

fn main() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    println!(
        "| store | leases | workers | checkpoints | rows read /s | by key | hints read /s | KCL | ratio | calls /s | \
         rows written /s | KCL | ratio |"
    );
    println!("| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    let wanted = std::env::args().nth(1);
    let number = |place| std::env::args().nth(place).map(|number| number.parse::<u32>().unwrap());
    let leases_wanted = number(3).unwrap_or(0)..=number(2).unwrap_or(u32::MAX);
    let whole = LeaseConfig::default().worker_heartbeat(true);
    for (kind, name, config) in [
        (Kind::Sql, "SQL", LeaseConfig::default()),
        (Kind::Sql, "SQL, worker heartbeat", whole.clone()),
        (Kind::DynamoDb, "DynamoDB", LeaseConfig::default()),
        (Kind::DynamoDb, "DynamoDB, worker heartbeat", whole),
        (Kind::Shared, "shared", LeaseConfig::default()),
    ] {
        if wanted.as_ref().is_some_and(|wanted| wanted != name) {
            continue;
        }
        for (leases, workers) in SIZES.iter().filter(|(leases, _)| leases_wanted.contains(leases)) {
            for checkpoints in [false, true] {
                // Whole heartbeats, and where looks are rare, whole minutes of them.
                let seconds = match (kind, leases * workers > 100_000) {
                    (Kind::Sql, true) => 12,
                    (Kind::Sql, false) => 60,
                    (Kind::DynamoDb | Kind::Shared, true) => 121,
                    (Kind::DynamoDb | Kind::Shared, false) => 303,
                };
                let time = Duration::from_secs(seconds);
                let ours = runtime.block_on(measure(kind, &config, *workers, *leases, checkpoints, time));
                let kcl = kcl(*workers, *leases, checkpoints);
                let (read, written) = (ours.rows_read / kcl.rows_read, ours.writes / kcl.writes);
                let each = if checkpoints { "one a second" } else { "none" };
                println!(
                    "| {name} | {leases} | {workers} | {each} | {:.1} | {:.1} | {:.1} | {:.1} | {read:.2} | {:.1} | {:.1} | {:.1} | {written:.2} |",
                    ours.rows_read,
                    ours.by_key,
                    ours.hints_read,
                    kcl.rows_read,
                    ours.calls,
                    ours.writes,
                    kcl.writes
                );
            }
        }
    }
}
