//! Exactly once, whatever happens to workers and transactions.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinesis_consumer::core::lease::{LeaseStore as _, TenureToken};
use kinesis_consumer::core::{BoxError, WorkerId};
use kinesis_consumer::lease::ops;
use kinesis_consumer::{ConsumerHandle, RecordBatch};

use crate::world::{World, until};

const RECORDS: u32 = 500;

/// How often each thing went wrong, to be sure that the test tests something.
#[derive(Default)]
struct Mishaps([AtomicU32; 8]);

impl Mishaps {
    fn note(&self, kind: usize) {
        self.0[kind].fetch_add(1, Ordering::Relaxed);
    }
}

/// A handler that fails, stalls and rolls back at every place.
async fn handle(
    world: &World,
    worker: &'static str,
    random: &Mutex<fastrand::Rng>,
    mishaps: &Mishaps,
    batch: &RecordBatch,
) -> Result<(), BoxError> {
    let kind = random.lock().unwrap().usize(0..14);
    // Longer than a lease lives without a renewal; the lease is renewed nevertheless, unless it is robbed meanwhile.
    let stall = Duration::from_millis(2_000);
    let last = batch.last_position().unwrap();
    if kind < 8 {
        mishaps.note(kind);
    }
    let mut transaction = world.write(worker, batch).await?;
    match kind {
        0 => return Err("fails before the checkpoint".into()),
        1 => tokio::time::sleep(stall).await,
        2 => {
            // A part only; what is behind it was not written by a transaction that is kept.
            let (part, position) = (&batch.records()[..1], batch.records()[0].position());
            transaction.rollback().await?;
            let part = batch.clone().with_records(part.to_vec());
            let mut transaction = world.write(worker, &part).await?;
            world.store.checkpoint_in(&mut transaction, batch.fence(), position).await?;
            transaction.commit().await?;
            return Ok(());
        }
        _ => {}
    }
    world.store.checkpoint_in(&mut transaction, batch.fence(), last).await?;
    match kind {
        3 => return Err("fails after the checkpoint".into()),
        4 => {
            transaction.rollback().await?;
            return Ok(());
        }
        5 => tokio::time::sleep(stall).await,
        _ => {}
    }
    transaction.commit().await?;
    match kind {
        6 => Err("fails after the commit".into()),
        7 => {
            tokio::time::sleep(stall).await;
            Ok(())
        }
        _ => Ok(()),
    }
}

struct Fleet {
    world: World,
    random: Arc<Mutex<fastrand::Rng>>,
    mishaps: Arc<Mishaps>,
}

impl Fleet {
    fn start(&self, worker: &'static str) -> ConsumerHandle {
        let (world, random, mishaps) =
            (self.world.clone(), Arc::clone(&self.random), Arc::clone(&self.mishaps));
        let handler = move |batch: RecordBatch| {
            let (world, random, mishaps) = (world.clone(), Arc::clone(&random), Arc::clone(&mishaps));
            async move { handle(&world, worker, &random, &mishaps, &batch).await }
        };
        let consumer = self.world.consumer(worker).max_batch_records(6).for_each_batch(handler);
        consumer.build().unwrap().spawn()
    }

    /// Somebody takes a lease by force and does nothing with it.
    async fn rob(&self) {
        let rows = self.world.rows().await;
        let held: Vec<_> = rows.iter().filter(|row| row.owner.is_some()).collect();
        if held.is_empty() {
            return;
        }
        let row = held[fastrand::usize(..held.len())];
        let thief = WorkerId::new("thief").unwrap();
        let take = ops::take(row, &thief, TenureToken::from_random(fastrand::u128(..)));
        // A transaction that is open, or a heartbeat, may keep it from it.
        drop(self.world.store.apply(&[take]).await);
    }
}

/// S-021, S-022, F-22: with handlers that fail, stall and roll back, workers that are cut off in the middle and leases that
/// are robbed, the results have each record exactly once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs postgres"]
async fn results_are_exactly_once_whatever_happens() {
    let world = World::new(3).await;
    world.put(0, RECORDS);
    let fleet = Fleet {
        world: world.clone(),
        random: Arc::new(Mutex::new(fastrand::Rng::with_seed(11))),
        mishaps: Arc::default(),
    };
    let names = ["w1", "w2", "w3"];
    let mut workers: Vec<ConsumerHandle> = names.iter().map(|name| fleet.start(name)).collect();
    // The next mishap comes when something was done since the last one, so that a slow machine comes to an end too.
    let mut written = 0;
    while written < i64::from(RECORDS) {
        let next = (written + fastrand::i64(1..20)).min(RECORDS.into());
        until("records are written", async || world.results().await.1 >= next).await;
        written = world.results().await.1;
        if fastrand::bool() {
            let which = fastrand::usize(..names.len());
            // Its handlers are dropped wherever they are, as by a crash.
            workers[which] = fleet.start(names[which]);
        } else {
            fleet.rob().await;
        }
    }
    for worker in &workers {
        // Some may have been robbed a moment ago.
        worker.shutdown(Duration::from_secs(10)).await.unwrap();
    }
    assert_eq!(world.results().await, (i64::from(RECORDS), i64::from(RECORDS)));
    let mishaps: Vec<u32> = fleet.mishaps.0.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    assert!(mishaps.iter().all(|count| *count > 0), "{mishaps:?}");
    let epochs: u64 = world.rows().await.iter().map(|row| row.epoch).sum();
    assert!(epochs > 6, "leases changed hands {epochs} times");
}

/// S-056, S-057: a reshard in the middle is followed, still exactly once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs postgres"]
async fn a_reshard_is_followed_exactly_once() {
    let world = World::new(1).await;
    world.put(0, 40);
    world.kinesis.split(crate::world::STREAM, "shardId-000000000000").unwrap();
    world.put(40, 80);
    let worker = world.clone();
    let handler = move |batch: RecordBatch| {
        let world = worker.clone();
        async move { world.process("w1", &batch).await }
    };
    let consumer = world.consumer("w1").max_batch_records(7).for_each_batch(handler);
    let handle = consumer.build().unwrap().spawn();
    until("all records are written", async || world.results().await.1 == 80).await;
    until("the end of the parent is stored", async || {
        world.rows().await.iter().any(|row| row.checkpoint.is_shard_end())
    })
    .await;
    assert!(handle.shutdown(Duration::from_secs(10)).await.unwrap().is_clean());
    assert_eq!(world.results().await, (80, 80));
    // Nothing is left to another worker.
    let worker = world.clone();
    let again = world.consumer("w2").for_each_batch(move |batch: RecordBatch| {
        let world = worker.clone();
        async move { world.process("w2", &batch).await }
    });
    let handle = again.build().unwrap().spawn();
    world.put(80, 81);
    until("the new record is written", async || world.results().await.1 == 81).await;
    handle.shutdown(Duration::from_secs(10)).await.unwrap();
    assert_eq!(world.value("SELECT count(*) FROM {s}.results WHERE worker = 'w2'").await, 1);
}
