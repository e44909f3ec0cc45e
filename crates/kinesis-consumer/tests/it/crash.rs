//! Crashes at every step: whatever was cut off, every record is delivered, and nothing unfinished was ever stored.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinesis_consumer::lease::LeaseConfig;
use kinesis_consumer::{Ack, ConsumerBuilder, ConsumerHandle, Record, RecordAck, RecordBatch};
use kinesis_core::SequenceNumber;

use crate::common::{Journal, STREAM, World, text};

const RECORDS: u32 = 16;

/// How records are handled in a run.
#[derive(Debug, Clone, Copy)]
enum Style {
    Records,
    Batches,
    CheckpointsByHand,
    FinishedLater,
}

/// A run of one consumer, which is cut off at some step.
struct Run {
    world: World,
    /// Handed to a handler, by its worker.
    journal: Journal,
    /// The effects of handlers: what was really finished.
    finished: Arc<Mutex<BTreeSet<u32>>>,
}

impl Run {
    fn new() -> Self {
        let world = World::new(2);
        world.put(0, RECORDS / 2, 5);
        // A reshard in the middle: its steps are cut off too.
        world.kinesis.split(STREAM, "shardId-000000000000").unwrap();
        world.put(RECORDS / 2, RECORDS, 5);
        Self { world, journal: Journal::default(), finished: Arc::default() }
    }

    fn builder(&self, worker: &str) -> ConsumerBuilder {
        // Short times make short runs.
        let lease = LeaseConfig::default()
            .heartbeat_interval(Duration::from_millis(500))
            .expiry(Duration::from_secs(2))
            .look_interval(Duration::from_millis(300));
        self.world.consumer(worker).lease(lease).checkpoint_interval(Duration::from_millis(5))
    }

    fn spawn(&self, worker: &'static str, style: Style) -> ConsumerHandle {
        let (journal, finished, leases) =
            (self.journal.clone(), Arc::clone(&self.finished), Arc::clone(&self.world.leases));
        let builder = self.builder(worker).max_batch_records(3);
        let handle = move |record: Record| {
            let (journal, finished, leases) = (journal.clone(), Arc::clone(&finished), Arc::clone(&leases));
            async move {
                journal.add(worker, &record);
                leases.steps.step().await;
                tokio::time::sleep(Duration::from_millis(3)).await;
                finished.lock().unwrap().insert(text(&record).parse().unwrap());
                leases.steps.step().await;
            }
        };
        match style {
            Style::Records => builder
                .for_each(move |record: Record| {
                    let work = handle(record);
                    async move {
                        work.await;
                        Ok::<_, Infallible>(())
                    }
                })
                .build(),
            Style::Batches | Style::CheckpointsByHand => builder
                .for_each_batch(move |batch: RecordBatch| {
                    let handle = handle.clone();
                    async move {
                        for record in batch.records() {
                            handle(record.clone()).await;
                            if matches!(style, Style::CheckpointsByHand) {
                                // A lease that is lost meanwhile is found out by the engine too.
                                drop(batch.checkpointer().checkpoint_to(record.position()).await);
                            }
                        }
                        Ok::<_, Infallible>(if matches!(style, Style::Batches) {
                            Ack::All
                        } else {
                            Ack::Manual
                        })
                    }
                })
                .build(),
            Style::FinishedLater => builder
                .for_each(move |mut record: Record| {
                    let completion = record.completion().unwrap();
                    let work = handle(record);
                    tokio::spawn(async move {
                        work.await;
                        completion.done();
                    });
                    async { Ok::<_, Infallible>(RecordAck::Manual) }
                })
                .build(),
        }
        .unwrap()
        .spawn()
    }

    /// Everything up to the stored positions was finished.
    fn assert_nothing_unfinished_is_stored(&self, style: Style, step: usize) {
        let finished = self.finished.lock().unwrap();
        for row in self.world.leases.rows() {
            let stored = row.checkpoint.position().map(|position| position.sequence().clone());
            for record in self.world.kinesis.records(STREAM).unwrap() {
                if record.shard_id != row.key.shard().as_str() {
                    continue;
                }
                let sequence: SequenceNumber = record.sequence_number.parse().unwrap();
                let number: u32 = std::str::from_utf8(&record.data).unwrap().parse().unwrap();
                let passed = row.checkpoint.is_shard_end() || stored.as_ref().is_some_and(|s| sequence <= *s);
                assert!(
                    !passed || finished.contains(&number),
                    "{style:?}, step {step}: {number} is not finished, but {} is stored",
                    row.checkpoint
                );
            }
        }
    }

    async fn until_all_are_finished(&self) {
        let all = || self.finished.lock().unwrap().len() == RECORDS as usize;
        crate::common::eventually(all).await;
    }
}

/// S-022, S-021, F-10: a consumer is cut off at each step in turn (of handlers, of calls to the lease store before and
/// after they take effect), until there are no more steps: the next one delivers all that is missing.
#[tokio::test(start_paused = true)]
async fn a_crash_at_any_step_loses_nothing() {
    for style in [Style::Records, Style::Batches, Style::CheckpointsByHand, Style::FinishedLater] {
        let mut crashes = 0;
        let mut step = 1;
        loop {
            let run = Run::new();
            run.world.leases.steps.stop_at(step);
            let handle = run.spawn("w1", style);
            let completed = tokio::select! {
                biased;
                () = run.world.leases.steps.stopped.notified() => false,
                () = run.until_all_are_finished() => true,
            };
            drop(handle);
            if completed {
                break;
            }
            crashes += 1;
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            run.assert_nothing_unfinished_is_stored(style, step);
            run.world.leases.steps.stop_at(0);
            let handle = run.spawn("w2", style);
            run.until_all_are_finished().await;
            run.journal.assert_order_by_key();
            assert_eq!(run.journal.distinct(), RECORDS as usize);
            run.assert_nothing_unfinished_is_stored(style, step);
            drop(handle);
            // Every step of the beginning, then some.
            step += if step < 40 { 1 } else { 3 };
        }
        assert!(crashes > 30, "{style:?}: {crashes} crashes");
    }
}

/// S-022, F-10: records 5, 9 and 7 are finished, 6 is in work at the crash: what is stored is 5, and all from 6 on come
/// again.
#[tokio::test(start_paused = true)]
async fn a_crash_with_records_finished_out_of_order_repeats_from_the_gap() {
    let world = World::new(1);
    world.put(0, 10, 1);
    let held = Arc::new(Mutex::new(Vec::new()));
    let taken = Arc::clone(&held);
    let consumer = world.consumer("w1").for_each(move |mut record: Record| {
        taken.lock().unwrap().push(Some(record.completion().unwrap()));
        async { Ok::<_, Infallible>(RecordAck::Manual) }
    });
    let handle = consumer.build().unwrap().spawn();
    crate::common::eventually(|| held.lock().unwrap().len() == 10).await;
    for done in [0, 1, 2, 3, 4, 5, 9, 7] {
        held.lock().unwrap()[done].take().unwrap().done();
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    drop(handle);
    let sixth = world.kinesis.records(STREAM).unwrap()[5].sequence_number.clone();
    assert_eq!(world.stored("shardId-000000000000"), sixth);
    let journal = Journal::default();
    let handle = world.consumer("w2").for_each(journal.handler("w2")).build().unwrap().spawn();
    journal.until_distinct(4).await;
    let again: Vec<u32> = journal.all().iter().map(|seen| seen.number).collect();
    assert_eq!(again, [6, 7, 8, 9]);
    drop(handle);
}
