//! What the engine does, and does not do, when handlers move the checkpoint.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinesis_consumer::core::lease::LeaseStore;
use kinesis_consumer::core::{BoxError, Checkpoint, Record};
use kinesis_consumer::lease::{LeaseStoreSource, MemoryStore};
use kinesis_consumer::{
    CheckpointError, Checkpoints, DeadLetter, FailurePolicy, HandlerError, RecordBatch, ShardOutcome,
};

use crate::world::{World, until};

fn text(record: &Record) -> String {
    String::from_utf8(record.data().to_vec()).unwrap()
}

/// After a rollback memory and row agree: nothing is finished, the records are offered again, and a stop reports what the
/// row says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs postgres"]
async fn after_a_rollback_memory_and_row_agree() {
    let world = World::new(1).await;
    world.put(0, 5);
    let calls = Arc::new(Mutex::new(Vec::new()));
    let (seen, worker) = (Arc::clone(&calls), world.clone());
    let consumer = world.consumer("w1").for_each_batch(move |batch: RecordBatch| {
        let (seen, world) = (Arc::clone(&seen), worker.clone());
        async move {
            seen.lock().unwrap().push(batch.records().iter().map(text).collect::<Vec<_>>());
            let mut transaction = world.write("w1", &batch).await?;
            let last = batch.last_position().unwrap();
            world.store.checkpoint_in(&mut transaction, batch.fence(), last).await?;
            transaction.rollback().await?;
            Ok::<_, BoxError>(())
        }
    });
    let handle = consumer.build().unwrap().spawn();
    until("the records are offered three times", async || calls.lock().unwrap().len() >= 3).await;
    let report = handle.shutdown(Duration::from_secs(10)).await.unwrap();
    assert_eq!((report.shards[0].stored.clone(), report.shards[0].unfinished), (None, 5));
    assert_eq!(world.rows().await[0].checkpoint, Checkpoint::TrimHorizon);
    assert_eq!(world.results().await, (0, 0));
    let first = ["0", "1", "2", "3", "4"].map(str::to_owned);
    assert!(calls.lock().unwrap().iter().all(|call| *call == first));

    // A rollback of the second half leaves the first half finished, in memory as in the row.
    let worker = world.clone();
    let halves = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&halves);
    let consumer = world.consumer("w2").for_each_batch(move |batch: RecordBatch| {
        let (count, world) = (Arc::clone(&count), worker.clone());
        async move {
            if count.fetch_add(1, Ordering::SeqCst) > 0 {
                return Err(BoxError::from("the second half fails"));
            }
            let half = batch.clone().with_records(batch.records()[..2].to_vec());
            let mut transaction = world.write("w2", &half).await?;
            let position = half.records()[1].position().clone();
            world.store.checkpoint_in(&mut transaction, batch.fence(), &position).await?;
            transaction.commit().await?;
            Ok(())
        }
    });
    let handle = consumer.build().unwrap().spawn();
    until("the second half failed", async || halves.load(Ordering::SeqCst) >= 3).await;
    let report = handle.shutdown(Duration::from_secs(10)).await.unwrap();
    let row = world.rows().await.remove(0);
    assert_eq!(report.shards[0].stored.as_ref(), row.checkpoint.position());
    assert!(row.checkpoint.position().is_some());
    assert_eq!((report.shards[0].unfinished, world.results().await), (3, (2, 2)));
}

/// The engine itself writes no checkpoint: a handler that moves none has failed, and its verbs are refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs postgres"]
async fn the_engine_moves_no_position_itself() {
    let world = World::new(1).await;
    world.put(0, 3);
    let refused = Arc::new(Mutex::new(Vec::new()));
    let errors = Arc::clone(&refused);
    let consumer = world.consumer("w1").failure_policy(FailurePolicy::StopShard { attempts: 3 });
    let consumer =
        consumer.checkpoint_interval(Duration::from_millis(10)).for_each_batch(move |batch: RecordBatch| {
            let errors = Arc::clone(&errors);
            async move {
                let error = batch.checkpointer().checkpoint().await.unwrap_err();
                errors.lock().unwrap().push(matches!(error, CheckpointError::Transactional));
                Ok::<_, BoxError>(())
            }
        });
    let handle = consumer.build().unwrap().spawn();
    until("the attempts are used up", async || refused.lock().unwrap().len() == 3).await;
    let report = handle.shutdown(Duration::from_secs(10)).await.unwrap();
    let ShardOutcome::Failed { error } = &report.shards[0].outcome else { panic!("{report:?}") };
    assert!(error.contains("without having moved the checkpoint"), "{error}");
    assert_eq!(*refused.lock().unwrap(), [true, true, true]);
    assert_eq!(world.rows().await[0].checkpoint, Checkpoint::TrimHorizon);
}

/// A record that no transaction can write is found by offering records one by one, and passed; the others are written
/// exactly once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs postgres"]
async fn a_record_that_cannot_be_written_is_passed() {
    let world = World::new(1).await;
    world.put(0, 6);
    let buried = Arc::new(Mutex::new(Vec::new()));
    let (letters, worker) = (Arc::clone(&buried), world.clone());
    let consumer = world
        .consumer("w1")
        .failure_policy(FailurePolicy::SkipAfter { attempts: 2 })
        .dead_letter(tower::service_fn(move |letter: DeadLetter| {
            letters.lock().unwrap().push(text(&letter.record));
            std::future::ready(Ok::<_, BoxError>(()))
        }))
        .for_each_batch(move |batch: RecordBatch| {
            let world = worker.clone();
            async move {
                if batch.records().iter().any(|record| text(record) == "3") {
                    return Err(HandlerError::transient("three").into());
                }
                world.process("w1", &batch).await
            }
        });
    let handle = consumer.build().unwrap().spawn();
    until("all others are written", async || world.results().await.1 == 5).await;
    assert!(handle.shutdown(Duration::from_secs(10)).await.unwrap().is_clean());
    assert_eq!(*buried.lock().unwrap(), ["3"]);
    assert_eq!(world.results().await, (5, 5));
    let last = world.kinesis.records(crate::world::STREAM).unwrap()[5].sequence_number.clone();
    assert_eq!(world.rows().await[0].checkpoint.to_string(), last);
}

/// S-053: another store is another argument, and nothing else of a consumer changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs postgres"]
async fn stores_are_exchanged_by_one_argument() {
    let world = World::new(2).await;
    world.put(0, 50);
    let memory = MemoryStore::new();
    let stores: [(LeaseStoreSource, Arc<dyn LeaseStore>); 2] = [
        (memory.clone().into(), Arc::new(memory)),
        (world.store.clone().into(), Arc::new(world.store.clone())),
    ];
    for (source, store) in stores {
        let seen = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&seen);
        let consumer = world.consumer("w1").checkpoints(Checkpoints::Automatic).lease_store(source).for_each(
            move |_: Record| {
                count.fetch_add(1, Ordering::SeqCst);
                std::future::ready(Ok::<_, BoxError>(()))
            },
        );
        let handle = consumer.build().unwrap().spawn();
        until("all records are seen", async || seen.load(Ordering::SeqCst) == 50).await;
        assert!(handle.shutdown(Duration::from_secs(10)).await.unwrap().is_clean());
        let keys: Vec<_> = world.rows().await.into_iter().map(|row| row.key).collect();
        let rows = store.get(&keys).await.unwrap();
        assert!(rows.iter().flatten().all(|row| row.owner.is_none() && row.checkpoint.position().is_some()));
    }
}
