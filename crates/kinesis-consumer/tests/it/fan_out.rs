//! Consumers that read with enhanced fan-out.

use std::convert::Infallible;
use std::error::Error as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kinesis_consumer::efo::EfoConfig;
use kinesis_consumer::lease::LeaseConfig;
use kinesis_consumer::poll::PollConfig;
use kinesis_consumer::{ConsumerConfig, ConsumerError, ReadMode, Record, RecordBatch};
use kinesis_core::metrics::Recorder;
use kinesis_testkit::{Fault, Operation, StreamFault, StreamPoint, TestKinesis};
use tokio::time::Instant;

use crate::common::{Journal, STREAM, World, eventually, stop};
use crate::quiet::Captured;
use crate::shelf::Shelf;

const SHARD: &str = "shardId-000000000000";

/// S-031, S-116: by default shards are polled and nothing about consumers is called.
#[tokio::test(start_paused = true)]
async fn without_the_option_nothing_is_subscribed_to() {
    assert_eq!(ConsumerConfig::default().read_mode, ReadMode::Poll);
    let world = World::new(2);
    world.put(0, 20, 5);
    let journal = Journal::default();
    let handle = world.consumer("w1").for_each(journal.handler("w1")).build().unwrap().spawn();
    journal.until_distinct(20).await;
    stop(&handle).await;
    for operation in
        [Operation::SubscribeToShard, Operation::RegisterStreamConsumer, Operation::DescribeStreamConsumer]
    {
        assert_eq!(world.kinesis.calls(operation), 0, "{operation}");
    }
}

/// S-031, S-078, S-185: one option turns it on; no shard is polled then, and settings of polling have no effect.
#[tokio::test(start_paused = true)]
async fn one_option_turns_it_on() {
    let world = World::new(2);
    world.put(0, 20, 5);
    let journal = Journal::default();
    let recorder = Recorder::new();
    let consumer = world
        .consumer("w1")
        .enhanced_fan_out("billing")
        .poll(PollConfig::default().poll_period(Duration::from_secs(3_600)))
        .metrics(Arc::new(recorder.clone()));
    let handle = consumer.for_each(journal.handler("w1")).build().unwrap().spawn();
    journal.until_distinct(20).await;
    let begun = Instant::now();
    world.put(20, 40, 5);
    journal.until_distinct(40).await;
    assert!(begun.elapsed() < Duration::from_millis(50), "pushed at once, not polled: {:?}", begun.elapsed());
    assert!(stop(&handle).await.is_clean());
    assert_eq!(journal.duplicates(), 0);
    assert_eq!(world.kinesis.calls(Operation::GetRecords), 0);
    assert_eq!(world.kinesis.calls(Operation::SubscribeToShard), 2);
    assert_eq!(world.kinesis.calls(Operation::RegisterStreamConsumer), 1);
    assert_eq!(world.kinesis.calls(Operation::DeregisterStreamConsumer), 0);
    assert!(!recorder.names().contains(&"fetch_duration_ms"));
    assert!(world.kinesis.subscriptions(STREAM).unwrap().is_empty(), "a stop closes what is open");
}

/// S-012, S-181: a batch has its records, a checkpointer and the lag; the lag is a metric with every event, also of an
/// idle shard.
#[tokio::test(start_paused = true)]
async fn batches_and_metrics_tell_the_lag() {
    let world = World::new(1);
    world.put(0, 3, 1);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let recorder = Recorder::new();
    let lags = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&lags);
    let consumer =
        world.consumer("w1").enhanced_fan_out("billing").metrics(Arc::new(recorder.clone())).for_each_batch(
            move |batch: RecordBatch| {
                log.lock().unwrap().push((batch.records().len(), batch.behind_latest()));
                assert!(batch.checkpointer().last().is_some());
                async { Ok::<_, Infallible>(()) }
            },
        );
    let handle = consumer.build().unwrap().spawn();
    let gauge = || recorder.samples_of("millis_behind_latest")[0].1.last;
    eventually(|| !lags.lock().unwrap().is_empty() && gauge() == Some(0.0)).await;
    let (count, lag) = lags.lock().unwrap()[0];
    assert_eq!((count, lag.is_some()), (3, true));
    stop(&handle).await;
}

/// R-13, S-117: settings of enhanced fan-out are checked when it is on, by their names.
#[tokio::test]
async fn its_settings_are_checked_when_it_is_on() {
    let build = |config: ConsumerConfig| {
        let world = World { kinesis: TestKinesis::new(), leases: Arc::<Shelf>::default() };
        world.consumer("w1").config(config).for_each(Journal::default().handler("w1")).build()
    };
    let mut config = ConsumerConfig::default();
    config.efo = EfoConfig::default().silence_timeout(Duration::ZERO);
    build(config.clone()).unwrap();
    config.read_mode = ReadMode::EnhancedFanOut;
    assert_eq!(build(config.clone()).unwrap_err().field(), "consumer");
    config.read_mode = ReadMode::EnhancedFanOutOrPoll;
    config.efo.consumer = "billing".to_owned();
    assert_eq!(build(config.clone()).unwrap_err().field(), "silence_timeout");
    config.efo = EfoConfig::new("billing").activation_timeout(Duration::ZERO);
    assert_eq!(build(config.clone()).unwrap_err().field(), "activation_timeout");
    config.efo = EfoConfig::new("billing");
    build(config.clone()).unwrap();
    config.fallback.retry_interval = Duration::ZERO;
    assert_eq!(build(config).unwrap_err().field(), "retry_interval");
}

/// S-031: the read mode and its settings come from a file.
#[cfg(feature = "serde")]
#[test]
fn the_read_mode_comes_from_a_file() {
    let text = r#"{
        "read_mode": "enhanced_fan_out_or_poll",
        "efo": { "consumer": "billing" },
        "fallback": { "retry_interval": "1m" }
    }"#;
    let config: ConsumerConfig = serde_json::from_str(text).unwrap();
    assert_eq!((config.read_mode, config.efo.consumer.as_str()), (ReadMode::EnhancedFanOutOrPoll, "billing"));
    assert_eq!(config.fallback.retry_interval, Duration::from_secs(60));
}

/// S-092, R-06, R-10: a consumer that cannot be registered is an error of the start, before any lease is taken.
#[tokio::test(start_paused = true)]
async fn a_missing_permission_is_an_error_of_the_start() {
    let world = World::new(1);
    world.kinesis.faults().on(Operation::RegisterStreamConsumer).always().inject(Fault::AccessDenied);
    let start = || {
        let consumer = world.consumer("w1").enhanced_fan_out("billing");
        consumer.for_each(Journal::default().handler("w1")).build().unwrap().run(std::future::pending())
    };
    let begun = Instant::now();
    let error = start().await.unwrap_err();
    assert!(matches!(error, ConsumerError::Registration(_)) && error.is_retryable(), "{error}");
    assert!(error.source().unwrap().to_string().contains("kinesis:RegisterStreamConsumer"));
    assert!(begun.elapsed().is_zero());
    assert!(world.leases.rows().is_empty());
}

/// R-09: a stop while the consumer becomes active ends the start at once, and a later start goes on.
#[tokio::test(start_paused = true)]
async fn a_stop_during_the_registration_is_prompt() {
    let kinesis = TestKinesis::builder().register_consumer_delay(Duration::from_secs(30)).build();
    kinesis.create_stream(STREAM, 1).unwrap();
    let world = World { kinesis, leases: Arc::default() };
    world.put(0, 3, 1);
    let journal = Journal::default();
    let spawn = || {
        let consumer = world.consumer("w1").enhanced_fan_out("billing");
        consumer.for_each(journal.handler("w1")).build().unwrap().spawn()
    };
    let handle = spawn();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let begun = Instant::now();
    assert!(stop(&handle).await.is_clean());
    assert!(begun.elapsed().is_zero());
    let handle = spawn();
    journal.until_distinct(3).await;
    stop(&handle).await;
    assert_eq!(world.kinesis.calls(Operation::RegisterStreamConsumer), 1);
}

/// S-101, R-04: a shard that somebody else holds on to keeps no other waiting, is claimed like them, logs one warning
/// when it lasts and no error, and is read as soon as it is free.
#[tokio::test(start_paused = true)]
async fn a_contended_shard_holds_up_no_claim() {
    let captured = Captured::start();
    let world = World::new(10);
    world.put(0, 200, 100);
    let refuse = world.kinesis.faults().on(Operation::SubscribeToShard).shard(SHARD);
    refuse.during(Duration::from_secs(90)).always().inject(Fault::error("ResourceInUseException"));
    let journal = Journal::default();
    let consumer = world.consumer("w1").enhanced_fan_out("billing");
    let handle = consumer.for_each(journal.handler("w1")).build().unwrap().spawn();
    let begun = Instant::now();
    eventually(|| world.shares(&["w1"]) == [10]).await;
    let others = journal_without(&world, SHARD);
    journal.until_distinct(others).await;
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    journal.until_distinct(200).await;
    assert!((90..100).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    assert_eq!(captured.lines("ERROR"), Vec::<String>::new());
    let warnings = captured.lines("WARN");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains(SHARD) && warnings[0].contains("ResourceInUse"), "{warnings:?}");
    stop(&handle).await;
}

/// How many records other shards have.
fn journal_without(world: &World, shard: &str) -> usize {
    world.kinesis.records(STREAM).unwrap().iter().filter(|record| record.shard_id != shard).count()
}

/// S-100, S-115: workers that share a stream hand shards over with subscriptions open: nothing is lost, nothing but
/// debug lines is logged, and at no time has a shard two subscriptions.
#[tokio::test(start_paused = true)]
async fn hand_overs_between_workers_are_quiet_and_complete() {
    let captured = Captured::start();
    let world = World::new(4);
    let journal = Journal::default();
    let spawn = |worker| {
        let consumer = world.consumer(worker).enhanced_fan_out("billing");
        consumer.for_each(journal.handler(worker)).build().unwrap().spawn()
    };
    let one = spawn("w1");
    world.put(0, 100, 40);
    journal.until_distinct(100).await;
    let two = spawn("w2");
    eventually(|| world.shares(&["w1", "w2"]) == [2, 2]).await;
    for round in 1..20 {
        world.put(round * 100, round * 100 + 100, 40);
        journal.until_distinct(round as usize * 100 + 100).await;
        let views = world.kinesis.subscriptions(STREAM).unwrap();
        let mut shards: Vec<_> = views.iter().map(|view| view.shard_id.clone()).collect();
        shards.sort();
        shards.dedup();
        assert_eq!(shards.len(), views.len());
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
    assert!(stop(&one).await.is_clean());
    eventually(|| world.shares(&["w2"]) == [4]).await;
    world.put(2_000, 2_100, 40);
    journal.until_distinct(2_100).await;
    assert!(stop(&two).await.is_clean());
    journal.assert_order_by_key();
    assert_eq!(journal.duplicates(), 0);
    assert_eq!(captured.lines(""), Vec::<String>::new());
}

/// F-38: a handler that hangs costs no lease and no memory beyond the bound: its subscription is closed, and read on when
/// it works again.
#[tokio::test(start_paused = true)]
async fn a_handler_that_hangs_closes_its_subscription_and_keeps_its_lease() {
    let world = World::new(1);
    for number in 0..300 {
        world.kinesis.put(STREAM, "k", format!("{number:0>20000}")).unwrap();
    }
    let numbers = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&numbers);
    let consumer = world
        .consumer("w1")
        .enhanced_fan_out("billing")
        .buffer_bytes(1_000_000)
        .max_batch_records(1)
        .checkpoint_limit(1)
        .for_each(move |record: Record| {
            let number: u32 = crate::common::text(&record).parse().unwrap();
            let first = log.lock().unwrap().is_empty();
            log.lock().unwrap().push(number);
            async move {
                if first {
                    tokio::time::sleep(Duration::from_secs(90)).await;
                }
                Ok::<_, Infallible>(())
            }
        });
    let handle = consumer.build().unwrap().spawn();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(world.kinesis.subscriptions(STREAM).unwrap().is_empty(), "closed, not unread");
    assert_eq!(world.shares(&["w1"]), [1]);
    eventually(|| numbers.lock().unwrap().len() == 300).await;
    assert_eq!(*numbers.lock().unwrap(), (0..300).collect::<Vec<_>>());
    assert!(stop(&handle).await.is_clean());
}

/// S-048, S-111, R-01: while a subscription is silent, or the call for it hangs, positions are stored within
/// `checkpoint_interval` and `checkpoint_spacing`, and leases are renewed within `heartbeat_interval`.
#[tokio::test(start_paused = true)]
async fn a_silent_subscription_holds_up_no_checkpoint_and_no_renewal() {
    let silence = StreamFault::Silence(Duration::MAX);
    let faults = [Fault::in_stream(StreamPoint::AfterEvents(1), silence), Fault::Hang(Duration::MAX)];
    let settings = [(100, 0, 3_000), (1_000, 0, 3_000), (1_000, 2_000, 3_000), (2_000, 0, 5_000)];
    for (interval, spacing, heartbeat) in settings {
        let [interval, spacing, heartbeat] = [interval, spacing, heartbeat].map(Duration::from_millis);
        let world = World::new(1);
        world.put(0, 10, 10);
        let script = world.kinesis.faults().on(Operation::SubscribeToShard);
        script.times(1).inject(faults[0].clone());
        world.kinesis.faults().on(Operation::SubscribeToShard).always().inject(faults[1].clone());
        let finished = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&finished);
        let consumer = world
            .consumer("w1")
            .enhanced_fan_out("billing")
            .checkpoint_interval(interval)
            .checkpoint_spacing(spacing)
            .lease(LeaseConfig::default().heartbeat_interval(heartbeat))
            .for_each(move |record: Record| {
                let log = Arc::clone(&log);
                async move {
                    tokio::time::sleep(Duration::from_millis(170)).await;
                    log.lock().unwrap().push((Instant::now(), record));
                    Ok::<_, Infallible>(())
                }
            });
        let handle = consumer.build().unwrap().spawn();
        tokio::time::sleep(Duration::from_secs(90)).await;
        let finished = finished.lock().unwrap().clone();
        assert_eq!(finished.len(), 10);
        // The clock of the store's task wakes to the millisecond.
        let slack = Duration::from_millis(50);
        let writes = world.leases.writes_of(SHARD);
        for (at, record) in &finished {
            let stored = writes.iter().find(|(_, row)| {
                row.checkpoint.position().is_some_and(|position| position >= record.position())
            });
            let late = stored.expect("it is stored").0 - *at;
            let most = interval + spacing;
            assert!(late <= most + slack, "stored {late:?} after it was finished, not {most:?}");
        }
        let gap = writes.windows(2).map(|pair| pair[1].0 - pair[0].0).max().unwrap();
        assert!(gap <= heartbeat + slack, "{gap:?} between two writes, not {heartbeat:?}");
        assert!(world.kinesis.calls(Operation::SubscribeToShard) >= 4, "it was replaced and asked for again");
        drop(handle);
    }
}

/// S-108, S-063: every record of an aggregate whose keys differ is delivered, and a position inside of it is where the
/// next owner goes on.
#[cfg(feature = "kpl")]
#[tokio::test(start_paused = true)]
async fn aggregates_are_delivered_whole_and_resumed_inside() {
    use kinesis_consumer::kpl::{Aggregator, AggregatorConfig, RecordRef};
    use kinesis_consumer::{Ack, CheckpointError};

    let world = World::new(1);
    let mut aggregator = Aggregator::new(AggregatorConfig::default()).unwrap();
    for number in 0..100 {
        aggregator.try_push(RecordRef::new(&format!("k{number}"), number.to_string().as_bytes())).unwrap();
    }
    world.kinesis.put(STREAM, "outer", aggregator.finish().unwrap().into_data()).unwrap();
    let (log, journal) = (Journal::default(), Journal::default());
    let seen = log.clone();
    let consumer =
        world.consumer("w1").enhanced_fan_out("billing").for_each_batch(move |batch: RecordBatch| {
            batch.records().iter().for_each(|record| seen.add("w1", record));
            async move {
                batch.checkpointer().checkpoint_to(batch.records()[47].position()).await?;
                Ok::<_, CheckpointError>(Ack::Manual)
            }
        });
    let handle = consumer.build().unwrap().spawn();
    log.until_distinct(100).await;
    stop(&handle).await;
    assert!(log.all().iter().all(|seen| seen.key == format!("k{}", seen.number)));

    let consumer = world.consumer("w2").enhanced_fan_out("billing");
    let handle = consumer.for_each(journal.handler("w2")).build().unwrap().spawn();
    journal.until_distinct(52).await;
    assert!(stop(&handle).await.is_clean());
    assert_eq!(
        journal.all().iter().map(|seen| seen.number).collect::<Vec<_>>(),
        (48..100).collect::<Vec<_>>()
    );
}

/// S-110, S-112, F-06: a read waits for as long as the shard is idle, and neither that nor events without records delay
/// what comes next: there is no loop that has to come round to it. What such events say of the place is not stored.
#[tokio::test(start_paused = true)]
async fn an_idle_shard_delays_nothing() {
    let world = World::new(1);
    let journal = Journal::default();
    let consumer = world.consumer("w1").enhanced_fan_out("billing");
    let handle = consumer.for_each(journal.handler("w1")).build().unwrap().spawn();
    tokio::time::sleep(Duration::from_secs(62)).await;
    for number in 0..20 {
        let begun = Instant::now();
        world.put(number, number + 1, 1);
        while journal.len() == number as usize {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(begun.elapsed() <= Duration::from_millis(2), "{:?}", begun.elapsed());
        tokio::time::sleep(Duration::from_millis(3_700)).await;
    }
    // Many events without records, and a planned end.
    tokio::time::sleep(Duration::from_secs(400)).await;
    assert_eq!(world.kinesis.calls(Operation::SubscribeToShard), 2);
    let last = world.kinesis.records(STREAM).unwrap()[19].sequence_number.clone();
    assert_eq!(world.stored(SHARD), last);
    assert!(stop(&handle).await.is_clean());
    assert_eq!(world.stored(SHARD), last);
}
