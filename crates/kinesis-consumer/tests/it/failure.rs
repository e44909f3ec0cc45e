//! Handlers that fail: nothing is skipped unless the user chose so.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::common::{Seen, World, stop, text};
use kinesis_consumer::{
    Ack, BoxError, DeadLetter, DeadLetterReason, FailurePolicy, HandlerError, OnExhausted, Record,
    RecordBatch, ShardOutcome,
};
use kinesis_core::Checkpoint;
use kinesis_core::metrics::Recorder;
use kinesis_core::payload::{DecodeError, Decoded, PayloadDecoder};
use tower::ServiceBuilder;
use tower::timeout::TimeoutLayer;

const SHARD: &str = "shardId-000000000000";

/// S-020, S-021, F-11: a failing batch is offered again, exactly one attempt per retry; the position waits; short
/// trouble is no processing error.
#[tokio::test(start_paused = true)]
async fn a_failing_batch_is_offered_again_and_the_position_waits() {
    let world = World::new(1);
    world.put(0, 4, 1);
    let recorder = Recorder::new();
    let attempts = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&attempts);
    let rows = world.clone();
    let consumer =
        world.consumer("w1").metrics(Arc::new(recorder.clone())).for_each_batch(move |batch: RecordBatch| {
            let attempt = counted.fetch_add(1, Ordering::SeqCst) + 1;
            let rows = rows.clone();
            async move {
                assert_eq!(batch.len(), 4);
                assert_eq!(rows.row(SHARD).await.checkpoint, Checkpoint::TrimHorizon);
                if attempt < 3 { Err(std::io::Error::other("destination away")) } else { Ok(()) }
            }
        });
    let handle = consumer.build().unwrap().spawn();
    crate::common::eventually(|| recorder.total("records_processed_total") == 4).await;
    assert_eq!(attempts.load(Ordering::SeqCst), 3);
    assert_eq!(recorder.total("process_errors_total"), 0);
    assert!(stop(&handle).await.is_clean());
}

/// F-11, S-189: a handler that fails for half a minute loses nothing; each third failure is counted.
#[tokio::test(start_paused = true)]
async fn retrying_goes_on_for_as_long_as_it_takes() {
    let world = World::new(1);
    world.put(0, 2, 1);
    let recorder = Recorder::new();
    let seen = Seen::default();
    let log = seen.clone();
    let works_at = tokio::time::Instant::now() + Duration::from_secs(120);
    let consumer =
        world.consumer("w1").metrics(Arc::new(recorder.clone())).for_each(move |record: Record| {
            let works = tokio::time::Instant::now() >= works_at;
            log.add(if works { text(&record) } else { "failed".into() });
            async move { if works { Ok(()) } else { Err(std::io::Error::other("away")) } }
        });
    let handle = consumer.build().unwrap().spawn();
    seen.until(|seen| seen.last().is_some_and(|last| last == "1")).await;
    let failures = seen.count("failed") as u64;
    assert!((8..30).contains(&failures), "delays grow to a maximum: {failures} attempts in 120 s");
    assert_eq!(recorder.total("process_errors_total"), failures / 3);
    stop(&handle).await;
}

/// F-11, R: what a handler finished before it failed is not offered again; the error is found under layers.
#[tokio::test(start_paused = true)]
async fn only_what_is_unfinished_is_offered_again() {
    let world = World::new(1);
    world.put(0, 6, 1);
    let seen = Seen::default();
    let log = seen.clone();
    let handler = tower::service_fn(move |batch: RecordBatch| {
        let first = log.len() == 0;
        log.add(batch.records().iter().map(text).collect::<Vec<_>>().join(" "));
        async move {
            if first {
                let at = batch.records()[4].position();
                return Err(HandlerError::transient(std::io::Error::other("away")).at(at));
            }
            Ok(Ack::All)
        }
    });
    let layered = ServiceBuilder::new().layer(TimeoutLayer::new(Duration::from_secs(60))).service(handler);
    let handle = world.consumer("w1").batches(layered).build().unwrap().spawn();
    seen.until(|seen| seen.len() == 2).await;
    assert_eq!(seen.all(), ["0 1 2 3 4 5", "4 5"]);
    assert!(stop(&handle).await.is_clean());
}

/// C-14, S-021: after its attempts the shard is held idle: nothing is skipped, nothing stored past the failure, and the
/// report says so.
#[tokio::test(start_paused = true)]
async fn a_stopped_shard_is_held_idle_and_reported() {
    let world = World::new(1);
    world.put(0, 3, 1);
    let recorder = Recorder::new();
    let seen = Seen::default();
    let log = seen.clone();
    let consumer = world
        .consumer("w1")
        .metrics(Arc::new(recorder.clone()))
        .failure_policy(FailurePolicy::StopShard { attempts: 4 })
        .for_each(move |record: Record| {
            log.add(text(&record));
            let bad = text(&record) == "1";
            async move { if bad { Err(std::io::Error::other("no such table")) } else { Ok(()) } }
        });
    let handle = consumer.build().unwrap().spawn();
    seen.until(|seen| seen.len() == 5).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(seen.all(), ["0", "1", "1", "1", "1"]);
    let row = world.row(SHARD).await;
    assert_eq!(row.owner.unwrap().as_str(), "w1", "the lease is kept");
    assert_eq!(
        row.checkpoint.to_string(),
        world.kinesis.records(crate::common::STREAM).unwrap()[0].sequence_number
    );
    assert_eq!(recorder.total("process_errors_total"), 2, "at the third attempt, and when it gave up");
    let report = handle.shutdown(Duration::from_secs(5)).await.unwrap();
    let ShardOutcome::Failed { error } = &report.shards[0].outcome else { panic!("{report:?}") };
    assert!(error.contains("no such table"), "{error}");
    assert!(!report.is_clean());
}

/// A shard given back after a failure rests before anybody takes it, so that a poison record does not tour the fleet.
#[tokio::test(start_paused = true)]
async fn a_shard_given_back_rests_before_it_is_taken() {
    let world = World::new(1);
    world.put(0, 1, 1);
    let seen = Seen::default();
    let spawn = |worker: &'static str| {
        let log = seen.clone();
        let consumer = world
            .consumer(worker)
            .failure_policy(FailurePolicy::StopShard { attempts: 1 })
            .on_exhausted(OnExhausted::ReleaseLease)
            .cool_down(Duration::from_secs(300))
            .for_each(move |_: Record| {
                log.add(worker);
                async { Err::<(), _>(std::io::Error::other("poison")) }
            });
        consumer.build().unwrap().spawn()
    };
    let (one, two) = (spawn("w1"), spawn("w2"));
    seen.until(|seen| seen.len() == 1).await;
    tokio::time::sleep(Duration::from_secs(290)).await;
    assert_eq!(seen.len(), 1, "the shard rests");
    let row = world.row(SHARD).await;
    assert_eq!((row.owner, row.cool_down.unwrap().failures), (None, 1));
    seen.until(|seen| seen.len() == 2).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(world.row(SHARD).await.cool_down.unwrap().failures, 2);
    stop(&one).await;
    stop(&two).await;
}

/// The whole worker stops with an error when it was told so, and gives its leases back.
#[tokio::test(start_paused = true)]
async fn the_worker_stops_when_told_so() {
    let world = World::new(2);
    world.put(0, 4, 4);
    let consumer = world
        .consumer("w1")
        .failure_policy(FailurePolicy::StopShard { attempts: 1 })
        .on_exhausted(OnExhausted::StopWorker)
        .for_each(|_: Record| async { Err::<(), _>(std::io::Error::other("poison")) });
    let error = consumer.build().unwrap().run(std::future::pending()).await.unwrap_err();
    assert!(kinesis_core::error_chain(&error).contains("poison"), "{error}");
    assert!(world.rows().await.iter().all(|lease| lease.owner.is_none()));
}

/// Skipping needs a dead-letter service, and the position moves only when that has accepted the record; of a failing
/// batch only the bad record is skipped.
#[tokio::test(start_paused = true)]
async fn a_skipped_record_is_accepted_by_the_dead_letter_service_first() {
    let world = World::new(1);
    world.put(0, 5, 1);
    let (seen, letters) = (Seen::default(), Seen::default());
    let (log, post) = (seen.clone(), letters.clone());
    let rows = world.clone();
    let consumer = world
        .consumer("w1")
        .failure_policy(FailurePolicy::SkipAfter { attempts: 2 })
        .dead_letter(tower::service_fn(move |letter: DeadLetter| {
            let (post, rows) = (post.clone(), rows.clone());
            async move {
                assert_eq!(letter.reason, DeadLetterReason::AttemptsExhausted);
                let stored = rows.row(SHARD).await.checkpoint;
                assert!(stored < Checkpoint::At(letter.record.position().clone()));
                post.add(format!("{} after {}: {}", text(&letter.record), letter.attempts, letter.error));
                if post.len() < 3 { Err(std::io::Error::other("post office closed")) } else { Ok(()) }
            }
        }))
        .for_each_batch(move |batch: RecordBatch| {
            let records: Vec<String> = batch.records().iter().map(text).collect();
            let bad = records.contains(&"2".to_owned());
            log.add(records.join(" "));
            async move { if bad { Err(std::io::Error::other("cannot parse")) } else { Ok(()) } }
        });
    let handle = consumer.build().unwrap().spawn();
    seen.until(|seen| seen.last().is_some_and(|last| last == "4")).await;
    let report = stop(&handle).await;
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(seen.all(), ["0 1 2 3 4", "0 1 2 3 4", "0", "1", "2", "2", "3", "4"]);
    assert_eq!(letters.all(), vec!["2 after 2: cannot parse"; 3]);
}

/// A permanent failure is never retried: it is skipped, or it exhausts any other policy at once.
#[tokio::test(start_paused = true)]
async fn a_permanent_failure_is_not_retried() {
    let world = World::new(1);
    world.put(0, 2, 1);
    let seen = Seen::default();
    let log = seen.clone();
    let consumer = world.consumer("w1").for_each(move |record: Record| {
        log.add(text(&record));
        async move { Err::<(), _>(HandlerError::permanent("not an order").at(record.position())) }
    });
    let handle = consumer.build().unwrap().spawn();
    seen.until(|seen| seen.len() == 1).await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(seen.all(), ["0"]);
    let report = stop(&handle).await;
    assert!(matches!(report.shards[0].outcome, ShardOutcome::Failed { .. }));
}

/// F-16: a panic is a failure of that record: contained, retried, and other shards do not notice.
#[tokio::test(start_paused = true)]
async fn a_panic_is_contained_and_retried() {
    let world = World::new(1);
    world.put(0, 3, 1);
    let seen = Seen::default();
    let log = seen.clone();
    let consumer = world.consumer("w1").for_each(move |record: Record| {
        let panics = text(&record) == "1" && log.count("1") == 0;
        log.add(text(&record));
        async move {
            assert!(!panics, "handler bug");
            Ok::<_, Infallible>(())
        }
    });
    let handle = consumer.build().unwrap().spawn();
    seen.until(|seen| seen.len() == 4).await;
    assert_eq!(seen.all(), ["0", "1", "1", "2"]);
    assert!(stop(&handle).await.is_clean());
}

/// A payload that cannot be decoded is a permanent failure with its raw bytes; the others go on.
#[tokio::test(start_paused = true)]
async fn an_undecodable_payload_goes_to_the_dead_letter_service() {
    #[derive(Debug)]
    struct Odd;
    impl PayloadDecoder for Odd {
        fn name(&self) -> &'static str {
            "odd"
        }
        fn decode(&self, payload: &bytes::Bytes, limit: usize) -> Result<Decoded, DecodeError> {
            match &payload[..] {
                b"1" => Err(DecodeError::limit_exceeded("odd", limit)),
                other => Ok(Decoded::Changed([other, b"!"].concat().into())),
            }
        }
    }
    let world = World::new(1);
    world.put(0, 3, 1);
    let seen = Seen::default();
    let (log, post) = (seen.clone(), seen.clone());
    let consumer = world
        .consumer("w1")
        .decoder(Arc::new(Odd))
        .failure_policy(FailurePolicy::SkipAfter { attempts: 5 })
        .dead_letter(tower::service_fn(move |letter: DeadLetter| {
            post.add(format!("{} {:?} {}", text(&letter.record), letter.reason, letter.attempts));
            async { Ok::<_, Infallible>(()) }
        }))
        .for_each_batch(move |batch: RecordBatch| {
            batch.records().iter().for_each(|record| log.add(text(record)));
            async { Ok::<_, Infallible>(()) }
        });
    let handle = consumer.build().unwrap().spawn();
    seen.until(|seen| seen.len() == 3).await;
    assert_eq!(seen.all(), ["0!", "1 Undecodable 1", "2!"]);
    assert!(stop(&handle).await.is_clean());
}

/// D-03: a third-party layer composes; its error is a failure like any other.
#[tokio::test(start_paused = true)]
async fn a_timeout_layer_turns_a_hang_into_a_retry() {
    let world = World::new(1);
    world.put(0, 1, 1);
    let seen = Seen::default();
    let log = seen.clone();
    let consumer = world
        .consumer("w1")
        .for_each_batch(move |_: RecordBatch| {
            log.add("called");
            let first = log.len() == 1;
            async move {
                if first {
                    std::future::pending::<()>().await;
                }
                Ok::<_, BoxError>(())
            }
        })
        .layer(TimeoutLayer::new(Duration::from_secs(5)));
    let handle = consumer.build().unwrap().spawn();
    seen.until(|seen| seen.len() == 2).await;
    assert!(stop(&handle).await.is_clean());
}
