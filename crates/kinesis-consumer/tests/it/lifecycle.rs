//! The life of a tenure: initialize, records, one ending; and where the next owner goes on.

use std::convert::Infallible;
use std::time::Duration;

use crate::common::{APPLICATION, STREAM, Seen, World, numbers, stop, text};
use kinesis_consumer::core::lease::LeaseStore;
use kinesis_consumer::lease::HeartbeatMode;
use kinesis_consumer::{
    Ack, CheckpointError, Checkpointer, Consumer, Initialize, Record, RecordBatch, RecordProcessor,
};
use kinesis_core::Checkpoint;

/// Writes down every callback.
struct Diary {
    seen: Seen,
    /// Kept beyond the batch, to be tried when the lease is gone.
    checkpointer: Option<Checkpointer>,
}

impl Diary {
    fn new(seen: &Seen) -> Self {
        Self { seen: seen.clone(), checkpointer: None }
    }
}

impl RecordProcessor for Diary {
    type Error = CheckpointError;

    async fn initialize(&mut self, start: &Initialize) -> Result<(), CheckpointError> {
        self.seen.add(format!("initialize {} {}", start.shard.shard(), start.checkpoint));
        Ok(())
    }

    async fn process(&mut self, batch: RecordBatch) -> Result<Ack, CheckpointError> {
        self.checkpointer = Some(batch.checkpointer().clone());
        for record in batch.records() {
            self.seen.add(text(record));
        }
        Ok(Ack::All)
    }

    async fn shard_ended(&mut self, _: &Checkpointer) -> Result<(), CheckpointError> {
        self.seen.add("shard ended");
        Ok(())
    }

    async fn shutdown_requested(&mut self, checkpointer: &Checkpointer) -> Result<(), CheckpointError> {
        checkpointer.checkpoint().await?;
        self.seen.add("shutdown requested");
        Ok(())
    }

    async fn lease_lost(&mut self) {
        let checkpoint = self.checkpointer.as_ref().unwrap().checkpoint().await;
        self.seen.add(format!(
            "lease lost, checkpoint refused: {}",
            matches!(checkpoint, Err(CheckpointError::LeaseLost))
        ));
    }
}

/// S-011: a processor needs one method only.
#[tokio::test(start_paused = true)]
async fn a_processor_needs_one_method() {
    struct Count(Seen);
    impl RecordProcessor for Count {
        type Error = Infallible;
        async fn process(&mut self, batch: RecordBatch) -> Result<Ack, Infallible> {
            self.0.add(batch.len().to_string());
            Ok(Ack::All)
        }
    }
    let world = World::new(1);
    world.put(0, 3, 1);
    let seen = Seen::default();
    let log = seen.clone();
    let handle = world.consumer("w1").processor(move |_| Count(log.clone())).build().unwrap().spawn();
    seen.until(|seen| seen == ["3"]).await;
    assert!(stop(&handle).await.is_clean());
}

/// S-013, S-014, S-017: initialize comes first and once, with what is stored; a stop delivers shutdown-requested, whose
/// checkpoint is where the next owner resumes.
#[tokio::test(start_paused = true)]
async fn a_stop_and_a_restart_leave_no_gap_and_no_repeat() {
    let world = World::new(1);
    world.put(0, 5, 1);
    let seen = Seen::default();
    let log = seen.clone();
    // No automatic checkpoint before the stop: only that of the ending.
    let first =
        world.consumer("w1").checkpoint_interval(crate::common::LONG).processor(move |_| Diary::new(&log));
    let handle = first.build().unwrap().spawn();
    seen.until(|seen| seen.len() == 6).await;
    assert_eq!(world.row("shardId-000000000000").await.checkpoint, Checkpoint::TrimHorizon);
    assert!(stop(&handle).await.is_clean());
    let stored = world.row("shardId-000000000000").await.checkpoint;
    world.put(5, 8, 1);
    let log = seen.clone();
    let handle = world.consumer("w2").processor(move |_| Diary::new(&log)).build().unwrap().spawn();
    seen.until(|seen| seen.len() == 11).await;
    assert!(stop(&handle).await.is_clean());
    let mut expected = vec!["initialize shardId-000000000000 TRIM_HORIZON".to_owned()];
    expected.extend(numbers(0, 5));
    expected.extend(["shutdown requested".to_owned(), format!("initialize shardId-000000000000 {stored}")]);
    expected.extend(numbers(5, 8));
    expected.push("shutdown requested".to_owned());
    assert_eq!(seen.all(), expected);
}

/// S-015: a lost lease delivers lease-lost, where nothing can be stored; the row is the new owner's.
#[tokio::test(start_paused = true)]
async fn a_lost_lease_cannot_be_checkpointed() {
    let world = World::new(1);
    world.put(0, 3, 1);
    let seen = Seen::default();
    let log = seen.clone();
    let consumer =
        world.consumer("w1").checkpoint_interval(crate::common::LONG).processor(move |_| Diary::new(&log));
    let handle = consumer.build().unwrap().spawn();
    seen.until(|seen| seen.len() == 4).await;
    let stolen = world.steal("shardId-000000000000").await;
    seen.until(|seen| seen.len() == 5).await;
    assert_eq!(seen.all()[4], "lease lost, checkpoint refused: true");
    let after = world.row("shardId-000000000000").await;
    assert_eq!((after.checkpoint, after.owner), (stolen.checkpoint.clone(), stolen.owner.clone()));
    drop(handle);
}

/// S-016, S-058, S-060: the end of a closed shard delivers its last record, then shard-ended; the library stores the
/// end mark, starts the children after it, and never opens the shard again.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_shard_is_stored_by_the_library_and_children_follow() {
    let world = World::new(1);
    world.put(0, 3, 3);
    let children = world.kinesis.split(STREAM, "shardId-000000000000").unwrap();
    world.put(3, 6, 3);
    let seen = Seen::default();
    let log = seen.clone();
    let handle = world.consumer("w1").processor(move |_| Diary::new(&log)).build().unwrap().spawn();
    seen.until(|seen| seen.iter().filter(|line| line.parse::<u32>().is_ok()).count() == 6).await;
    let all = seen.all();
    assert_eq!(all[..5], ["initialize shardId-000000000000 TRIM_HORIZON", "0", "1", "2", "shard ended"]);
    let parent = world.row("shardId-000000000000").await;
    assert_eq!(parent.checkpoint, Checkpoint::ShardEnd);
    assert_eq!(parent.owner, None);
    for child in &children {
        let row = world.row(child.as_str()).await;
        assert_eq!(row.parents[0].as_str(), "shardId-000000000000");
    }
    assert!(stop(&handle).await.is_clean());
    let log = seen.clone();
    let before = seen.len();
    let handle = world.consumer("w2").processor(move |_| Diary::new(&log)).build().unwrap().spawn();
    seen.until(|seen| seen.len() == before + 2).await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(seen.all()[before..].iter().all(|line| !line.contains("shardId-000000000000")));
    assert!(stop(&handle).await.is_clean());
}

/// F-20: a callback that fails at the end of a shard is retried; the children wait for it and are not forgotten.
#[tokio::test(start_paused = true)]
async fn a_failing_shard_ended_callback_is_retried() {
    struct Fails(Seen, u32);
    impl RecordProcessor for Fails {
        type Error = std::fmt::Error;
        async fn process(&mut self, batch: RecordBatch) -> Result<Ack, std::fmt::Error> {
            batch.records().iter().for_each(|record| self.0.add(text(record)));
            Ok(Ack::All)
        }
        async fn shard_ended(&mut self, _: &Checkpointer) -> Result<(), std::fmt::Error> {
            self.1 += 1;
            self.0.add(format!("attempt {}", self.1));
            if self.1 < 5 { Err(std::fmt::Error) } else { Ok(()) }
        }
    }
    let world = World::new(1);
    world.put(0, 1, 1);
    world.kinesis.split(STREAM, "shardId-000000000000").unwrap();
    world.put(1, 2, 1);
    let seen = Seen::default();
    let log = seen.clone();
    let handle = world.consumer("w1").processor(move |_| Fails(log.clone(), 0)).build().unwrap().spawn();
    seen.until(|seen| seen.len() == 7).await;
    assert_eq!(seen.all(), ["0", "attempt 1", "attempt 2", "attempt 3", "attempt 4", "attempt 5", "1"]);
    stop(&handle).await;
}

/// S-020, S-013: initialize is retried until it works, and no record comes before.
#[tokio::test(start_paused = true)]
async fn a_failing_initialize_is_retried_before_any_record() {
    struct Starts(Seen, u32);
    impl RecordProcessor for Starts {
        type Error = std::fmt::Error;
        async fn initialize(&mut self, _: &Initialize) -> Result<(), std::fmt::Error> {
            self.1 += 1;
            self.0.add(format!("attempt {}", self.1));
            if self.1 < 3 { Err(std::fmt::Error) } else { Ok(()) }
        }
        async fn process(&mut self, batch: RecordBatch) -> Result<Ack, std::fmt::Error> {
            batch.records().iter().for_each(|record| self.0.add(text(record)));
            Ok(Ack::All)
        }
    }
    let world = World::new(1);
    world.put(0, 2, 1);
    let seen = Seen::default();
    let log = seen.clone();
    let handle = world.consumer("w1").processor(move |_| Starts(log.clone(), 0)).build().unwrap().spawn();
    seen.until(|seen| seen.len() == 5).await;
    assert_eq!(seen.all(), ["attempt 1", "attempt 2", "attempt 3", "0", "1"]);
    stop(&handle).await;
}

/// S-055, S-066: what one consumer stored is where another of the same application resumes, strictly after it.
#[tokio::test(start_paused = true)]
async fn another_worker_resumes_strictly_after_what_is_stored() {
    let world = World::new(1);
    world.put(0, 10, 1);
    let seen = Seen::default();
    let log = seen.clone();
    let consumer = world.consumer("w1").max_batch_records(4).for_each_batch(move |batch: RecordBatch| {
        let stop_at_last = batch.len() < 4;
        batch.records().iter().for_each(|record| log.add(text(record)));
        async move {
            if stop_at_last {
                std::future::pending::<()>().await;
            }
            Ok::<_, Infallible>(())
        }
    });
    let handle = consumer.build().unwrap().spawn();
    seen.until(|seen| seen.len() == 10).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    drop(handle); // As a crash: nothing is released.
    let log = Seen::default();
    let again = log.clone();
    let consumer = world.consumer("w2").for_each(move |record: Record| {
        again.add(text(&record));
        async { Ok::<_, Infallible>(()) }
    });
    let handle = consumer.build().unwrap().spawn();
    log.until(|seen| seen.len() == 2).await;
    assert_eq!(log.all(), ["8", "9"]);
    stop(&handle).await;
}

/// S-016: with the default heartbeat, on a thread and a clock of its own, the whole life works the same.
#[tokio::test]
async fn the_life_is_the_same_with_the_heartbeat_on_its_own_thread() {
    let world = World::new(1);
    world.put(0, 3, 3);
    let seen = Seen::default();
    let log = seen.clone();
    let store: std::sync::Arc<dyn LeaseStore> = world.leases.clone();
    let consumer = Consumer::builder(world.kinesis.client(), APPLICATION, STREAM)
        .lease_store(store)
        .heartbeat(HeartbeatMode::OwnThread)
        .processor(move |_| Diary::new(&log));
    let handle = consumer.build().unwrap().spawn();
    seen.until(|seen| seen.len() == 4).await;
    assert!(stop(&handle).await.is_clean());
    assert_eq!(seen.all()[1..], ["0", "1", "2", "shutdown requested"]);
}
