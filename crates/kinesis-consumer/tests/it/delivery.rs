//! Records reach handlers: all of them, in order, with lag and checkpointer, from every shard at once.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{Seen, World, numbers, sorted, stop, text};
use kinesis_consumer::{Ack, Checkpointer, Record, RecordAck, RecordBatch};
use kinesis_core::metrics::Recorder;

/// S-008, S-045: discovery, leases, reading and checkpoints are the library's; the handler sees records only.
#[tokio::test(start_paused = true)]
async fn a_handler_gets_every_record_of_every_shard() {
    let world = World::new(4);
    world.put(0, 500, 40);
    let seen = Seen::default();
    let log = seen.clone();
    let consumer = world.consumer("w1").for_each_batch(move |batch: RecordBatch| {
        let log = log.clone();
        async move {
            batch.records().iter().for_each(|record| log.add(text(record)));
            Ok::<_, Infallible>(())
        }
    });
    let handle = consumer.build().unwrap().spawn();
    seen.until(|seen| seen.len() == 500).await;
    world.put(500, 600, 40);
    seen.until(|seen| seen.len() == 600).await;
    let report = stop(&handle).await;
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.shards.len(), 4);
    assert_eq!(sorted(seen.all()), sorted(numbers(0, 600)));
}

/// The record door delivers one record per call, in order within the shard.
#[tokio::test(start_paused = true)]
async fn the_record_door_delivers_records_in_order() {
    let world = World::new(1);
    world.put(0, 50, 5);
    let seen = Seen::default();
    let log = seen.clone();
    let consumer = world.consumer("w1").for_each(move |record: Record| {
        log.add(text(&record));
        async { Ok::<_, Infallible>(RecordAck::Done) }
    });
    let handle = consumer.build().unwrap().spawn();
    seen.until(|seen| seen.len() == 50).await;
    assert!(stop(&handle).await.is_clean());
    assert_eq!(seen.all(), numbers(0, 50));
    let stored = world.row("shardId-000000000000").await.checkpoint;
    let last = world.kinesis.records(crate::common::STREAM).unwrap().last().unwrap().sequence_number.clone();
    assert_eq!(stored.to_string(), last);
}

/// S-005: each shard has its own task: one blocked handler keeps no other shard from going on.
#[tokio::test(start_paused = true)]
async fn a_blocked_shard_does_not_hold_up_the_others() {
    let world = World::new(8);
    world.put(0, 400, 400);
    let blocked = world.kinesis.records(crate::common::STREAM).unwrap()[0].shard_id.clone();
    let on_blocked = world
        .kinesis
        .records(crate::common::STREAM)
        .unwrap()
        .iter()
        .filter(|r| r.shard_id == blocked)
        .count();
    let seen = Seen::default();
    let log = seen.clone();
    let consumer = world.consumer("w1").for_each_batch(move |batch: RecordBatch| {
        let (log, blocked) = (log.clone(), blocked.clone());
        async move {
            if batch.source().shard().as_str() == blocked {
                std::future::pending::<()>().await;
            }
            batch.records().iter().for_each(|record| log.add(text(record)));
            Ok::<_, Infallible>(())
        }
    });
    let handle = consumer.build().unwrap().spawn();
    seen.until(|seen| seen.len() == 400 - on_blocked).await;
    drop(handle);
}

/// S-012, S-181..S-184: batches carry lag and a checkpointer; the shard's metrics are emitted.
#[tokio::test(start_paused = true)]
async fn batches_carry_lag_and_metrics_are_emitted() {
    let world = World::new(1);
    world.put(0, 10, 1);
    tokio::time::sleep(Duration::from_secs(7)).await;
    world.put(10, 12, 1);
    let recorder = Recorder::new();
    let seen = Seen::default();
    let log = seen.clone();
    let consumer =
        world.consumer("w1").metrics(Arc::new(recorder.clone())).max_batch_records(10).for_each_batch(
            move |batch: RecordBatch| {
                assert_eq!(batch.checkpointer().last(), batch.last_position());
                log.add(format!("{} {}", batch.len(), batch.behind_latest().is_some()));
                async { Ok::<_, Infallible>(()) }
            },
        );
    let handle = consumer.build().unwrap().spawn();
    seen.until(|seen| seen.len() == 2).await;
    assert_eq!(seen.all(), ["10 true", "2 true"]);
    assert!(stop(&handle).await.is_clean());
    assert_eq!(recorder.total("records_processed_total"), 12);
    // Payloads only: ten of one digit, two of two.
    assert_eq!(recorder.total("bytes_processed_total"), 14);
    assert_eq!(recorder.total("process_errors_total"), 0);
    let [(labels, behind)] = &recorder.samples_of("millis_behind_latest")[..] else { panic!("one shard") };
    assert_eq!(labels.shard.as_ref().map(|shard| shard.as_str()), Some("shardId-000000000000"));
    assert_eq!(behind.last, Some(0.0));
    let up = recorder.samples_of("up");
    assert_eq!(up[0].1.last, Some(0.0), "down after the stop");
    let uptime = recorder.samples_of("uptime_ms");
    assert_eq!(uptime[0].0.extra, [("result", "success")]);
    assert_eq!(recorder.samples_of("process_duration_ms").len(), 1);
}

/// S-047: a handler that is slow for five expiries keeps its lease, and its records are delivered once.
#[tokio::test(start_paused = true)]
async fn a_slow_handler_keeps_its_lease() {
    let world = World::new(1);
    world.put(0, 3, 1);
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let slow = world.consumer("slow").for_each_batch(move |_batch: RecordBatch| {
        counted.fetch_add(1, Ordering::SeqCst);
        async {
            tokio::time::sleep(Duration::from_secs(50)).await;
            Ok::<_, Infallible>(Ack::All)
        }
    });
    let slow = slow.build().unwrap().spawn();
    crate::common::eventually(|| calls.load(Ordering::SeqCst) == 1).await;
    let idle = world
        .consumer("idle")
        .for_each_batch(|_: RecordBatch| async { panic!("the lease was taken") as Result<(), Infallible> });
    let idle = idle.build().unwrap().spawn();
    tokio::time::sleep(Duration::from_secs(48)).await;
    assert_eq!(world.row("shardId-000000000000").await.owner.unwrap().as_str(), "slow");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    stop(&idle).await;
    assert!(stop(&slow).await.is_clean());
}

/// S-023, S-061: a position stored by hand is stored before the call returns, and never past what was handed out.
#[tokio::test(start_paused = true)]
async fn positions_are_stored_by_hand() {
    let world = World::new(1);
    world.put(0, 5, 1);
    let seen = Seen::default();
    let log = seen.clone();
    let leases = world.clone();
    let consumer = world.consumer("w1").checkpoint_interval(crate::common::LONG).for_each_batch(
        move |batch: RecordBatch| {
            let (log, leases) = (log.clone(), leases.clone());
            async move {
                let third = batch.records()[2].position().clone();
                batch.checkpointer().checkpoint_to(&third).await?;
                let row = leases.row("shardId-000000000000").await;
                log.add((row.checkpoint.position() == Some(&third)).to_string());
                let far = kinesis_core::Position::new(u128::MAX.into(), 0);
                let beyond = far.max(kinesis_core::Position::new("9".repeat(70).parse().unwrap(), 0));
                let refused = batch.checkpointer().checkpoint_to(&beyond).await.unwrap_err();
                log.add(matches!(refused, kinesis_consumer::CheckpointError::OutOfRange { .. }).to_string());
                let other_verb = batch.checkpointer().done(&third).unwrap_err();
                log.add(
                    matches!(other_verb, kinesis_consumer::CheckpointError::WrongVerb { .. }).to_string(),
                );
                // Back is accepted and changes nothing.
                batch.checkpointer().checkpoint_to(batch.records()[0].position()).await?;
                let row = leases.row("shardId-000000000000").await;
                log.add((row.checkpoint.position() == Some(&third)).to_string());
                Ok::<_, kinesis_consumer::CheckpointError>(Ack::UpTo(third))
            }
        },
    );
    let handle = consumer.build().unwrap().spawn();
    seen.until(|seen| seen.len() == 4).await;
    assert_eq!(seen.all(), ["true", "true", "true", "true"]);
    let report = handle.shutdown(Duration::from_secs(1)).await.unwrap();
    assert_eq!(report.shards[0].unfinished, 2, "the two records after the third are not finished");
    let restart = world.consumer("w2");
    let again = Seen::default();
    let log = again.clone();
    let handle = restart
        .for_each(move |record: Record| {
            log.add(text(&record));
            async { Ok::<_, Infallible>(()) }
        })
        .build()
        .unwrap()
        .spawn();
    again.until(|seen| seen.len() == 2).await;
    stop(&handle).await;
    assert_eq!(again.all(), ["3", "4"]);
}

/// S-023: with a limit of one unfinished record the next is handed out only when the one before is finished; with
/// several, records finish in any order and nothing passes the first unfinished one.
#[tokio::test(start_paused = true)]
async fn records_finished_later_hold_the_position_back() {
    let world = World::new(1);
    world.put(0, 4, 1);
    let held: Arc<std::sync::Mutex<Vec<kinesis_consumer::Completion>>> = Arc::default();
    let taken = Arc::clone(&held);
    let consumer = world.consumer("w1").checkpoint_limit(3).for_each(move |mut record: Record| {
        taken.lock().unwrap().push(record.completion().unwrap());
        async { Ok::<_, Infallible>(RecordAck::Manual) }
    });
    let handle = consumer.build().unwrap().spawn();
    let in_hand = |count: usize| {
        let held = Arc::clone(&held);
        async move { crate::common::eventually(|| held.lock().unwrap().len() == count).await }
    };
    in_hand(3).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(held.lock().unwrap().len(), 3, "the fourth waits for room");
    let last = held.lock().unwrap().pop().unwrap();
    last.done();
    in_hand(3).await; // The fourth took the place of the third.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(
        world.row("shardId-000000000000").await.checkpoint.position(),
        None,
        "the first is unfinished"
    );
    let all = std::mem::take(&mut *held.lock().unwrap());
    all.into_iter().for_each(kinesis_consumer::Completion::done);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let last = world.kinesis.records(crate::common::STREAM).unwrap()[3].sequence_number.clone();
    assert_eq!(world.row("shardId-000000000000").await.checkpoint.to_string(), last);
    assert!(stop(&handle).await.is_clean());
}

/// A completion that is dropped unfinished offers its record again.
#[tokio::test(start_paused = true)]
async fn a_dropped_completion_offers_its_record_again() {
    let world = World::new(1);
    world.put(0, 2, 1);
    let seen = Seen::default();
    let log = seen.clone();
    let consumer = world.consumer("w1").for_each(move |mut record: Record| {
        let first_time = log.count(&text(&record)) == 0;
        log.add(text(&record));
        let completion = record.completion().unwrap();
        async move {
            if !first_time {
                completion.done();
            }
            Ok::<_, Infallible>(RecordAck::Manual)
        }
    });
    let handle = consumer.build().unwrap().spawn();
    seen.until(|seen| seen.len() == 4).await;
    assert!(stop(&handle).await.is_clean());
    assert_eq!(sorted(seen.all()), ["0", "0", "1", "1"]);
}

fn _checkpointers_outlive_batches(checkpointer: Checkpointer) -> impl Send + Sync + 'static {
    checkpointer
}
