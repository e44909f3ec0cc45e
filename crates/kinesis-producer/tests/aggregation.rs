//! Aggregates: who shares one, where it lands, and what readers make of it.
#![allow(clippy::unwrap_used)] // helpers of tests may panic like tests

mod support;

use std::sync::Arc;
use std::time::Duration;

use kinesis_core::metrics::Recorder;
use kinesis_kpl::group_by_key;
use kinesis_producer::{Aggregation, OutboundRecord, Position, Producer, PutError, StreamRef};
use kinesis_testkit::{Fault, Operation, TestKinesis};
use support::aggregates::{counts, seen_by_the_kcl, split};
use support::*;

fn aggregating(kinesis: &TestKinesis) -> Producer {
    builder(kinesis).aggregation(Aggregation::ByShard).build().unwrap()
}

/// S-126: aggregation is off unless it is asked for, and then no shard is listed.
#[tokio::test(start_paused = true)]
async fn aggregation_is_off_by_default() {
    let kinesis = service(2);
    let producer = producer(&kinesis);
    producer.put_batch(records(10)).await.unwrap();
    assert_eq!((call_sizes(&kinesis), counts(&kinesis)), (vec![10], vec![1; 10]));
    assert_eq!(kinesis.calls(Operation::ListShards), 0);
}

/// S-126, S-128, S-129, C-03, F-30: with one option records share aggregates, each of them under the key of its first
/// record and in a shard where all its records belong, so that a reader that filters as the KCL does drops none.
#[tokio::test(start_paused = true)]
async fn an_aggregate_has_the_records_of_one_shard() {
    let kinesis = service(4);
    let producer = aggregating(&kinesis);
    let results = producer.put_batch(records(200)).await.unwrap();
    assert_eq!(call_sizes(&kinesis), [4]);
    assert_eq!(kinesis.calls(Operation::ListShards), 1);
    let stored = kinesis.records(STREAM).unwrap();
    assert_eq!(counts(&kinesis).iter().sum::<usize>(), 200);
    for record in &stored {
        assert_eq!(record.partition_key, split(&record.data)[0].0);
    }
    let seen = seen_by_the_kcl(&kinesis);
    assert_eq!((seen.len(), seen.values().max()), (200, Some(&1)));

    // Receipts tell the place in the aggregate.
    for (number, result) in results.into_iter().enumerate() {
        let sent = result.unwrap();
        let place = stored.iter().find(|record| record.sequence_number == sent.sequence.to_string()).unwrap();
        assert_eq!(place.shard_id, sent.shard.as_str());
        let (_, data) = split(&place.data).remove(sent.sub_sequence as usize);
        assert_eq!(data, format!("value-{number}"));
        assert_eq!(sent.position(), Position::new(sent.sequence.clone(), sent.sub_sequence));
    }
}

/// S-128, C-03: with the first key as the only one, a reader that drops what is misplaced loses records; this is
/// why it is an opt-in.
#[tokio::test(start_paused = true)]
async fn first_key_only_is_an_opt_in_that_such_readers_pay_for() {
    let kinesis = service(4);
    let producer = builder(&kinesis).aggregation(Aggregation::FirstKey).build().unwrap();
    producer.put_batch(records(200)).await.unwrap();
    assert_eq!((call_sizes(&kinesis), counts(&kinesis)), (vec![1], vec![200]));
    assert_eq!(kinesis.records(STREAM).unwrap()[0].partition_key, "key-0");
    assert_eq!(seen_by_the_kcl(&kinesis).len(), 0);
}

/// S-131: at 50 B, 100 B and 1 KB, one Kinesis record carries so many user records; the README has the same figures.
#[tokio::test(start_paused = true)]
async fn small_records_share_one_kinesis_record() {
    let readme = include_str!("../README.md");
    for (payload, expected) in [(50, 12), (100, 22), (1_000, 200)] {
        let kinesis = service(1);
        let producer =
            builder(&kinesis).aggregation(Aggregation::ByShard).buffer_records(20_000).build().unwrap();
        for number in 0..10_000 {
            let record = OutboundRecord::new(format!("device-{}", number % 100), vec![b'x'; payload]);
            drop(producer.put(record).await.unwrap());
        }
        producer.flush().await;
        let sent = kinesis.records(STREAM).unwrap().len();
        assert_eq!(sent, expected, "{payload} B");
        assert_eq!(counts(&kinesis).iter().sum::<usize>(), 10_000);
        let row = format!("| {payload} B | 10,000 | {sent} | {:.0} |", 10_000.0 / sent as f64);
        assert!(readme.contains(&row), "the README has no row {row}");
    }
}

/// S-133: with the option a batch of several keys is refused with its own error, and nothing is sent.
#[tokio::test(start_paused = true)]
async fn a_batch_of_several_keys_is_refused_where_that_is_asked_for() {
    let kinesis = service(1);
    let producer = builder(&kinesis).partition_key_safety(true).build().unwrap();
    let mut batch = vec![OutboundRecord::new("a", "1"), OutboundRecord::new("a", "2")];
    batch.push(OutboundRecord::new("b", "3"));
    let error = producer.put_batch(batch).await.unwrap_err();
    assert!(matches!(error, PutError::PartitionKeyMismatch { index: 2, .. }), "{error}");
    assert!(!error.is_retryable());
    assert_eq!(
        error.to_string(),
        "partition key mismatch: record 2 of the batch has another partition key than record 0"
    );
    producer.flush().await;
    assert_eq!(kinesis.calls_log().len(), 0);
}

/// S-134, S-136: with the option a batch of one key passes, and so does each group of one.
#[tokio::test(start_paused = true)]
async fn a_batch_of_one_key_passes() {
    let kinesis = service(1);
    let producer = builder(&kinesis).partition_key_safety(true).build().unwrap();
    let records = ["a", "b", "a"].map(|key| OutboundRecord::new(key, key));
    for batch in group_by_key(records, |record| record.partition_key.clone()) {
        let results = producer.put_batch(batch).await.unwrap();
        assert!(results.iter().all(Result::is_ok));
    }
    assert_eq!(call_sizes(&kinesis), [2, 1]);
}

/// S-135: without the option, which is the default, a mixed batch is sent as it is.
#[tokio::test(start_paused = true)]
async fn mixed_batches_are_sent_by_default() {
    let kinesis = service(1);
    let producer = producer(&kinesis);
    assert!(!producer.config().partition_key_safety);
    assert!(producer.put_batch(records(3)).await.unwrap().iter().all(Result::is_ok));
    assert_eq!(call_sizes(&kinesis), [3]);
}

/// S-137: with aggregation and the option together, no aggregate mixes keys.
#[tokio::test(start_paused = true)]
async fn with_the_option_no_aggregate_mixes_keys() {
    let kinesis = service(2);
    let producer =
        builder(&kinesis).aggregation(Aggregation::ByShard).partition_key_safety(true).build().unwrap();
    for number in 0..60 {
        let record = OutboundRecord::new(format!("key-{}", number % 6), format!("{number}"));
        drop(producer.put(record).await.unwrap());
    }
    producer.flush().await;
    assert_eq!((counts(&kinesis), kinesis.calls(Operation::ListShards)), (vec![10; 6], 0));
    for record in kinesis.records(STREAM).unwrap() {
        assert!(split(&record.data).iter().all(|(key, _)| *key == record.partition_key));
    }
}

/// F-31, F-34, F-45: records of random sizes and keys around every limit: the service refuses nothing, in streams with a
/// large record limit too.
#[tokio::test(start_paused = true)]
async fn no_aggregate_is_refused_for_its_size() {
    let mut random = fastrand::Rng::with_seed(3);
    for (limit, batch, records) in [(MIB, 5 * MIB, 100), (10 * MIB, 10 * MIB, 12)] {
        let kinesis = service(2);
        let arn = kinesis.stream_arn(STREAM);
        let update = kinesis.client().update_max_record_size().stream_arn(arn);
        update.max_record_size_in_kib((limit / 1024) as i32).send().await.unwrap();
        after(10_000).await;
        let producer = builder(&kinesis)
            .aggregation(Aggregation::ByShard)
            .aggregate_bytes(limit)
            .max_record_bytes(limit)
            .batch_bytes(batch)
            .build()
            .unwrap();
        let mut receipts = Vec::new();
        for number in 0..records {
            let key = format!("{number}-{}", "ü".repeat(random.usize(0..200)));
            let most = limit - key.len();
            let len = match number % 5 {
                0 => most - random.usize(0..50),
                1 => most / 2 + random.usize(0..50) - 25,
                _ => random.usize(0..limit / 20),
            };
            receipts.push(producer.put(OutboundRecord::new(key.as_str(), vec![0; len])).await.unwrap());
        }
        producer.flush().await;
        for receipt in receipts {
            assert_eq!(receipt.await.unwrap().attempts, 1);
        }
        assert_eq!(counts(&kinesis).iter().sum::<usize>(), records);
        let longest =
            kinesis.records(STREAM).unwrap().iter().map(|r| r.data.len() + r.partition_key.len()).max();
        assert!(longest.unwrap() <= limit && longest.unwrap() > limit - 50);
    }
}

/// Without the permission to list shards no aggregate mixes keys, and one line says so.
#[tokio::test(start_paused = true)]
async fn without_a_list_of_shards_records_are_packed_by_key_and_it_is_said_once() {
    let (log, _guard) = Log::capture();
    let kinesis = service(4);
    kinesis.faults().on(Operation::ListShards).always().inject(Fault::AccessDenied);
    let recorder = Recorder::new();
    let metered = builder(&kinesis).aggregation(Aggregation::ByShard).metrics(Arc::new(recorder.clone()));
    let producer = metered.build().unwrap();
    for _ in 0..100 {
        for number in 0..10 {
            drop(producer.put(record(number)).await.unwrap());
        }
        after(1_000).await;
    }
    assert_eq!(producer.flush().await.failed, 0);
    let lines = log.lines("WARN");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("kinesis:ListShards"), "{}", lines[0]);
    let listings = recorder.total("shard_listings_total");
    assert!((8..=12).contains(&listings), "{listings} listings in 100 s");
    assert_eq!(recorder.total("shard_listing_errors_total"), listings);
    assert_eq!(seen_by_the_kcl(&kinesis).values().sum::<usize>(), 1_000);
}

/// A listing that hangs holds the first records up for its time only.
#[tokio::test(start_paused = true)]
async fn a_listing_that_hangs_does_not_hold_records_up_for_long() {
    let kinesis = service(4);
    kinesis.faults().on(Operation::ListShards).always().inject(Fault::Hang(Duration::from_secs(3_600)));
    let producer = aggregating(&kinesis);
    let started = tokio::time::Instant::now();
    assert!(producer.put_batch(records(10)).await.unwrap().iter().all(Result::is_ok));
    assert_eq!(started.elapsed().as_secs(), 5);
    let report = producer.close(LIMIT).await;
    assert!(report.is_complete());
}

/// A stream that distributes records by itself is found out, said once, and packed by key.
#[tokio::test(start_paused = true)]
async fn a_stream_that_distributes_by_itself_is_packed_by_key() {
    let (log, _guard) = Log::capture();
    let kinesis = TestKinesis::builder().without_throughput_limits().build();
    let client = kinesis.client();
    let mode = aws_sdk_kinesis::types::StreamModeDetails::builder()
        .stream_mode(aws_sdk_kinesis::types::StreamMode::OnDemand)
        .build()
        .unwrap();
    let create = client.create_stream().stream_name("auto").stream_mode_details(mode);
    create.record_distribution_strategy("AUTO".into()).send().await.unwrap();
    after(60_000).await;
    let producer = Producer::builder(kinesis.client(), StreamRef::new("auto").unwrap())
        .aggregation(Aggregation::ByShard)
        .build()
        .unwrap();
    for round in 0..20 {
        let batch = (0..40).map(|number| OutboundRecord::new(format!("key-{number}"), format!("{round}")));
        assert!(producer.put_batch(batch.collect()).await.unwrap().iter().all(Result::is_ok));
        after(2_000).await;
    }
    let lines = log.lines("WARN");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("distributes records by itself"), "{}", lines[0]);
    assert_eq!(kinesis.calls(Operation::ListShards), 2);
    let last: Vec<_> = kinesis.records("auto").unwrap();
    assert!(last[last.len() - 40..].iter().all(|record| split(&record.data).len() == 1));
}
