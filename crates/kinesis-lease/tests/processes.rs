//! Worker processes that share an SQLite file, killed and stopped by signals.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::*;
use kinesis_lease::{
    Coordinator, Lease, LeaseConfig, LeaseEvent, LeaseKey, LeaseStoreExt, LeaseStoreSource, SqliteStore,
};

/// The file and the name of a worker process; in the test's own process they are not set.
const FILE: &str = "LEASE_TEST_FILE";
const NAME: &str = "LEASE_TEST_NAME";
const SHARDS: u32 = 6;
/// For anything that is waited for.
const LIMIT: Duration = Duration::from_secs(60);

fn config() -> LeaseConfig {
    LeaseConfig::default()
        .heartbeat_interval(millis(300))
        .expiry(millis(2_000))
        .look_interval(millis(150))
        .hand_over_timeout(secs(2))
}

/// The body of a worker process: holds its share and stores how far it is until it is killed.
#[tokio::test]
async fn worker_process() {
    let (Ok(file), Ok(name)) = (std::env::var(FILE), std::env::var(NAME)) else { return };
    let source = LeaseStoreSource::factory(move || SqliteStore::open(file.clone()));
    let directory = FakeDirectory::open(SHARDS);
    let builder = Coordinator::builder(source, directory, application(), stream());
    let (_coordinator, mut events) = builder.worker(worker(&name)).config(config()).start().await.unwrap();
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
                        tokio::time::sleep(millis(50)).await;
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
    fn start(file: &Path, name: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "worker_process", "--nocapture"]);
        command.env(FILE, file).env(NAME, name).stdout(Stdio::null()).stderr(Stdio::null());
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
    store: SqliteStore,
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
            tokio::time::sleep(millis(20)).await;
        }
    }
}

/// S-043, S-046, S-022, F-12: a killed worker's leases go to the others; a worker that was stopped for longer than the
/// expiry stores nothing of its former tenures when it goes on, and gets its share again.
#[tokio::test]
async fn killed_and_stopped_processes_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("leases.db");
    let a = Worker::start(&file, "a");
    let store = loop {
        // Its file and table are made by the first worker.
        let store = SqliteStore::open(&file).await.unwrap();
        if store.list(&application(), &stream()).await.is_ok_and(|rows| !rows.is_empty()) {
            break store;
        }
        tokio::time::sleep(millis(50)).await;
    };
    let mut watch = Watch { store, last: BTreeMap::new() };
    watch.until(&[("a", 6)]).await;
    let (b, _c) = (Worker::start(&file, "b"), Worker::start(&file, "c"));
    watch.until(&[("a", 2), ("b", 2), ("c", 2)]).await;

    b.signal("-KILL");
    watch.until(&[("a", 3), ("b", 0), ("c", 3)]).await;

    a.signal("-STOP");
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
