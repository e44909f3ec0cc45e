//! Worker processes that share a store, killed and stopped by signals.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;
#[path = "dynamodb/support.rs"]
mod support;

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::*;
use kinesis_core::Checkpoint;
use kinesis_lease::{
    Coordinator, Lease, LeaseConfig, LeaseEvent, LeaseKey, LeaseStore, LeaseStoreExt, LeaseStoreSource,
    LeaseWrite, PostgresStore, SqliteStore, StoreError,
};
use tokio::sync::Mutex;

/// The store and the name of a worker process; in the test's own process they are not set.
const STORE: &str = "LEASE_TEST_STORE";
const NAME: &str = "LEASE_TEST_NAME";
const SHARDS: u32 = 6;
/// For anything that is waited for.
const LIMIT: Duration = Duration::from_secs(60);

/// Where the leases are, as text: processes tell it each other.
#[derive(Debug, Clone)]
struct Place(String);

impl Place {
    async fn open(self) -> Result<Arc<dyn LeaseStore>, StoreError> {
        let (kind, place) = self.0.split_once(':').unwrap();
        if kind == "sqlite" {
            return Ok(Arc::new(SqliteStore::open(place).await?));
        }
        let (server, table) = place.split_once('|').unwrap();
        match kind {
            "postgres" => Ok(Arc::new(PostgresStore::builder().schema(table).connect(server)?)),
            "dynamodb" => Ok(Arc::new(support::Table::at(server).named(table).builder().build()?)),
            other => panic!("{other}"),
        }
    }

    fn config(&self) -> LeaseConfig {
        let config =
            LeaseConfig::default().look_interval(millis(150)).hand_over_timeout(secs(2)).expiry(secs(2));
        if self.0.starts_with("dynamodb:") {
            // Its calls take longer here, and its rows are read more seldom.
            let config = config.expiry(secs(4)).heartbeat_interval(secs(1));
            config.look_interval(millis(500)).full_look_interval(secs(1))
        } else {
            config.heartbeat_interval(millis(300))
        }
    }
}

/// The body of a worker process: holds its share and stores how far it is until it is killed.
#[tokio::test]
async fn worker_process() {
    let (Ok(place), Ok(name)) = (std::env::var(STORE), std::env::var(NAME)) else { return };
    let place = Place(place);
    let config = place.config();
    let source = LeaseStoreSource::factory(move || place.clone().open());
    let directory = FakeDirectory::open(SHARDS);
    let builder = Coordinator::builder(source, directory, application(), stream());
    let (_coordinator, mut events) = builder.worker(worker(&name)).config(config).start().await.unwrap();
    while let Some(event) = events.next().await {
        match event {
            LeaseEvent::Acquired(tenure) => {
                // Whatever an earlier tenure stored is less: a position that goes back shows a write of a former one.
                let first = u128::from(tenure.fence().epoch()) * 1_000_000;
                tokio::spawn(async move {
                    for step in 1.. {
                        if tenure.checkpoint(at(first + step)).await.is_err() {
                            return;
                        }
                        tokio::time::sleep(millis(100)).await;
                    }
                });
            }
            LeaseEvent::HandOver { .. } | LeaseEvent::Lost { .. } | LeaseEvent::Warning(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// A worker process, killed when it is dropped.
struct Worker(Child);

impl Worker {
    fn start(place: &Place, name: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "worker_process", "--nocapture"]);
        command.env(STORE, &place.0).env(NAME, name).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.0.id().to_string()]).status().unwrap();
        assert!(status.success(), "kill {signal}");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Either may fail when it has ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Watches the rows: nothing in them ever goes back.
struct Watch {
    store: Arc<dyn LeaseStore>,
    last: BTreeMap<LeaseKey, Lease>,
}

impl Watch {
    async fn look(&mut self) -> Vec<Lease> {
        let rows = self.store.list(&application(), &stream()).await.unwrap();
        for row in &rows {
            if let Some(before) = self.last.insert(row.key.clone(), row.clone()) {
                assert!(before.checkpoint <= row.checkpoint, "the checkpoint of {} went back", row.key);
                assert!(before.epoch <= row.epoch && before.counter <= row.counter, "{} went back", row.key);
            }
        }
        rows
    }

    /// Stops a worker between two of its writes: in the middle of one it would keep an SQLite file locked, and nobody could
    /// write to it.
    async fn stop(&self, worker: &Worker) {
        let began = Instant::now();
        loop {
            worker.signal("-STOP");
            // The row is there, so that nothing is changed.
            let write = LeaseWrite::create(Lease::new(key(0), Checkpoint::TrimHorizon));
            let writing = async { self.store.apply(&[write]).await.remove(0).is_ok() };
            if tokio::time::timeout(secs(1), writing).await.is_ok_and(|written| written) {
                return;
            }
            worker.signal("-CONT");
            assert!(began.elapsed() < LIMIT, "it is always in the middle of a write");
            tokio::time::sleep(millis(fastrand::u64(1..100))).await;
        }
    }

    /// Waits until each of these workers holds that many leases.
    async fn until(&mut self, shares: &[(&str, usize)]) {
        let began = Instant::now();
        loop {
            let rows = self.look().await;
            let held = |name: &str| {
                let is_held = |row: &&Lease| row.holder() == Some(&worker(name)) && row.token.is_some();
                rows.iter().filter(is_held).count()
            };
            if shares.iter().all(|(name, share)| held(name) == *share) {
                return;
            }
            let found: Vec<_> = shares.iter().map(|(name, _)| (*name, held(name))).collect();
            assert!(began.elapsed() < LIMIT, "wanted {shares:?}, found {found:?}");
            tokio::time::sleep(millis(50)).await;
        }
    }
}

/// A killed worker's leases go to the others; a worker that was stopped for longer than the expiry stores nothing
/// of its former tenures when it goes on, and gets its share again.
async fn kill_and_stop(place: Place) {
    static ALONE: Mutex<()> = Mutex::const_new(());
    // Each has three processes.
    let _alone = ALONE.lock().await;
    let a = Worker::start(&place, "a");
    let store = loop {
        // The table is made by the first worker.
        let store = place.clone().open().await.unwrap();
        if store.list(&application(), &stream()).await.is_ok_and(|rows| !rows.is_empty()) {
            break store;
        }
        tokio::time::sleep(millis(50)).await;
    };
    let mut watch = Watch { store, last: BTreeMap::new() };
    watch.until(&[("a", 6)]).await;
    let (b, _c) = (Worker::start(&place, "b"), Worker::start(&place, "c"));
    watch.until(&[("a", 2), ("b", 2), ("c", 2)]).await;

    b.signal("-KILL");
    watch.until(&[("a", 3), ("b", 0), ("c", 3)]).await;

    watch.stop(&a).await;
    watch.until(&[("a", 0), ("c", 6)]).await;
    let taken = watch.look().await;
    a.signal("-CONT");
    watch.until(&[("a", 3), ("c", 3)]).await;
    for row in watch.look().await {
        assert!(row.checkpoint.position().is_some(), "{} was never stored", row.key);
        let before = taken.iter().find(|before| before.key == row.key).unwrap();
        let moved = row.owner == Some(worker("a"));
        assert_eq!(row.epoch > before.epoch, moved, "{}: what did not move has no new epoch", row.key);
    }
}

/// S-043, S-046, S-022, F-12: on a file that the processes share.
#[tokio::test]
async fn killed_and_stopped_processes_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    kill_and_stop(Place(format!("sqlite:{}", folder.path().join("leases.db").display()))).await;
}

/// S-043, S-046, S-022, F-12: on a PostgreSQL server.
#[tokio::test]
#[ignore = "needs postgres"]
async fn killed_and_stopped_processes_lose_nothing_on_postgres() {
    let url = std::env::var("DATABASE_URL").expect("cargo xtask test starts a server and sets it");
    kill_and_stop(Place(format!("postgres:{url}|test_{:016x}", fastrand::u64(..)))).await;
}

/// S-043, S-046, S-022, F-12: on a DynamoDB in the test's own process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_stopped_processes_lose_nothing_on_dynamodb() {
    let endpoint = support::local_dynamodb().await;
    kill_and_stop(Place(format!("dynamodb:{endpoint}|leases"))).await;
}
