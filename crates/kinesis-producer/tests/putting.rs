//! Putting records: when they are sent, and what their receipts say.
#![allow(clippy::unwrap_used)] // helpers of tests may panic like tests

mod support;

use std::time::Duration;

use kinesis_producer::config::RECORD_OVERHEAD;
use kinesis_producer::{ClientSource, HashKey, OutboundRecord, Producer, PutError, StreamRef};
use kinesis_testkit::{Fault, Operation, Outcome, TestKinesis};
use support::*;

/// S-149: a producer cannot be made without a stream and clients; a blank stream name is refused by name.
#[test]
fn a_blank_stream_is_refused_by_name() {
    for blank in ["", "   "] {
        assert_eq!(StreamRef::new(blank).unwrap_err().kind(), "stream");
    }
}

/// S-149: settings are checked when the producer is made, and so is the runtime that it needs.
#[test]
fn construction_errors_name_the_setting() {
    let kinesis = TestKinesis::builder().clock(kinesis_testkit::TestClock::system()).build();
    assert_eq!(builder(&kinesis).batch_records(501).build().unwrap_err().field(), "batch_records");
    let error = builder(&kinesis).build().unwrap_err();
    assert_eq!(error.field(), "runtime");
    assert!(!error.is_retryable());
}

/// S-010: the caller's configuration is used, whether it comes as an SDK configuration, a client or a function.
#[tokio::test(start_paused = true)]
async fn clients_come_from_the_caller() {
    let kinesis = service(1);
    let client = kinesis.client();
    let sources: [ClientSource; 3] = [
        (&kinesis.sdk_config()).into(),
        kinesis.client().into(),
        ClientSource::from_fn(move |_| client.clone()),
    ];
    for (number, source) in sources.into_iter().enumerate() {
        let producer = Producer::builder(source, StreamRef::new(STREAM).unwrap()).build().unwrap();
        let sent = producer.put(record(number)).await.unwrap().await.unwrap();
        assert!(is_stored(&kinesis, &sent, &format!("value-{number}")));
        producer.close(LIMIT).await;
    }
}

/// S-150: records are buffered and share a call; each receipt says where its record is.
#[tokio::test(start_paused = true)]
async fn records_are_batched_and_receipts_say_where_they_are() {
    let kinesis = service(4);
    let producer = producer(&kinesis);
    let mut receipts = Vec::new();
    for record in records(20) {
        receipts.push(producer.put(record).await.unwrap());
    }
    assert_eq!(kinesis.calls(Operation::PutRecords), 0);
    for (number, receipt) in receipts.into_iter().enumerate() {
        let sent = receipt.await.unwrap();
        assert!(is_stored(&kinesis, &sent, &format!("value-{number}")));
        assert_eq!(sent.attempts, 1);
    }
    assert_eq!(call_sizes(&kinesis), [20]);
}

/// S-157, C-17: the tick is 100 ms unless it is set.
#[tokio::test(start_paused = true)]
async fn a_lone_record_is_sent_after_the_tick() {
    let kinesis = service(1);
    let first = producer(&kinesis);
    first.put(record(1)).await.unwrap().await.unwrap();
    let second = builder(&kinesis).linger(Duration::from_millis(250)).build().unwrap();
    second.put(record(2)).await.unwrap().await.unwrap();
    assert_eq!(call_times(&kinesis), [100, 350]);
}

/// S-154, S-157: 500 records are sent without waiting for the tick.
#[tokio::test(start_paused = true)]
async fn a_full_batch_is_sent_at_once() {
    let kinesis = service(1);
    let producer = builder(&kinesis).buffer_records(1_000).build().unwrap();
    for record in records(501) {
        drop(producer.put(record).await.unwrap());
    }
    kinesis.wait_for_calls(Operation::PutRecords, 1).await;
    assert_eq!((call_sizes(&kinesis), call_times(&kinesis)), (vec![500], vec![0]));
    producer.flush().await;
    assert_eq!((call_sizes(&kinesis), call_times(&kinesis)), (vec![500, 1], vec![0, 0]));
}

/// S-155, S-157: 5 MiB are sent without waiting for the tick, keys included.
#[tokio::test(start_paused = true)]
async fn a_batch_full_of_bytes_is_sent_at_once() {
    let kinesis = service(1);
    let producer = producer(&kinesis);
    for number in 0..5 {
        drop(producer.put(sized(number, MIB)).await.unwrap());
    }
    kinesis.wait_for_calls(Operation::PutRecords, 1).await;
    let call = kinesis.calls_of(Operation::PutRecords).remove(0);
    assert_eq!((call.entries, call.bytes, call.elapsed.as_millis()), (5, 5 * MIB as u64, 0));
}

/// S-156: without room `put` waits and `try_put` says so; room that comes free is given in order.
#[tokio::test(start_paused = true)]
async fn a_full_buffer_holds_up_the_sender() {
    let kinesis = service(1);
    kinesis.faults().next(Operation::PutRecords, 1, Fault::LateReply(Duration::from_secs(5)));
    let producer = builder(&kinesis).buffer_records(2).in_flight(1).build().unwrap();
    drop(producer.put(record(0)).await.unwrap());
    kinesis.wait_for_calls(Operation::PutRecords, 1).await;
    drop(producer.put(record(1)).await.unwrap());
    drop(producer.put(record(2)).await.unwrap());

    let error = producer.try_put(record(3)).unwrap_err();
    assert!(error == PutError::Full && error.is_retryable());
    let started = tokio::time::Instant::now();
    let receipt = producer.put(record(3)).await.unwrap();
    assert_eq!(started.elapsed().as_millis(), 4_900 + 100);
    assert_eq!(receipt.await.unwrap().attempts, 1);
    assert_eq!(call_sizes(&kinesis), [1, 2, 1]);
}

/// S-156: the bytes of records in flight count against the budget, those of stored ones do not.
#[tokio::test(start_paused = true)]
async fn the_byte_budget_covers_what_is_in_flight() {
    let kinesis = service(1);
    kinesis.faults().next(Operation::PutRecords, 2, Fault::LateReply(Duration::from_secs(5)));
    let room = 2 * (MIB + RECORD_OVERHEAD);
    let producer = builder(&kinesis).buffer_bytes(room).linger(Duration::ZERO).build().unwrap();
    drop(producer.put(sized(0, MIB)).await.unwrap());
    drop(producer.put(sized(1, MIB - 100)).await.unwrap());
    kinesis.wait_for_calls(Operation::PutRecords, 2).await;
    assert_eq!(producer.try_put(sized(2, MIB)).unwrap_err(), PutError::Full);
    let started = tokio::time::Instant::now();
    drop(producer.put(sized(2, MIB)).await.unwrap());
    assert_eq!(started.elapsed().as_millis(), 5_000);
    assert!(producer.flush().await.is_complete());
}

/// A `put` that is dropped while it waits put nothing and keeps no room.
#[tokio::test(start_paused = true)]
async fn a_put_that_is_given_up_leaves_nothing_behind() {
    let kinesis = service(1);
    kinesis.faults().next(Operation::PutRecords, 1, Fault::LateReply(Duration::from_secs(1)));
    let producer = builder(&kinesis).buffer_records(1).in_flight(1).linger(Duration::ZERO).build().unwrap();
    drop(producer.put(record(0)).await.unwrap());
    kinesis.wait_for_calls(Operation::PutRecords, 1).await;
    drop(producer.put(record(1)).await.unwrap());
    let waiting = tokio::time::timeout(Duration::from_millis(10), producer.put(record(2)));
    assert!(waiting.await.is_err());
    producer.flush().await;
    drop(producer.try_put(record(3)).unwrap());
    assert_eq!(producer.close(LIMIT).await.sent, 1);
    assert_eq!(copies(&kinesis).into_keys().collect::<Vec<_>>(), ["value-0", "value-1", "value-3"]);
}

/// Dropping a receipt has no effect on its record.
#[tokio::test(start_paused = true)]
async fn a_record_is_stored_without_its_receipt() {
    let kinesis = service(1);
    let producer = producer(&kinesis);
    drop(producer.put(record(0)).await.unwrap());
    after(100).await;
    producer.flush().await;
    assert_eq!(copies(&kinesis)["value-0"], 1);
}

/// S-151: a batch is sent at once, in one call, and its results come in the order of the records.
#[tokio::test(start_paused = true)]
async fn results_of_a_batch_are_in_its_order() {
    let kinesis = service(4);
    kinesis.faults().on(Operation::PutRecords).always().inject(Fault::partial_failure(3, THROTTLED));
    let producer = builder(&kinesis).max_retries(0).build().unwrap();
    let results = producer.put_batch(records(500)).await.unwrap();
    assert_eq!((call_sizes(&kinesis), call_times(&kinesis)), (vec![500], vec![0]));
    for (number, result) in results.into_iter().enumerate() {
        match result {
            Ok(sent) => assert!(number % 3 != 2 && is_stored(&kinesis, &sent, &format!("value-{number}"))),
            Err(error) => assert_eq!((number % 3, error.into_record()), (2, record(number))),
        }
    }
}

/// S-151: a batch may be larger than the buffer; it enters as a whole.
#[tokio::test(start_paused = true)]
async fn a_batch_may_be_larger_than_the_buffer() {
    let kinesis = service(1);
    let producer = builder(&kinesis).buffer_records(2).buffer_bytes(MIB + 256).build().unwrap();
    drop(producer.put(record(1_000)).await.unwrap());
    let results = producer.put_batch(records(500)).await.unwrap();
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(producer.put_batch(Vec::new()).await.unwrap().len(), 0);
    assert_eq!(copies(&kinesis).len(), 501);
}

/// S-152: what the service would refuse is refused before anything is sent, all of a batch with one bad record.
#[tokio::test(start_paused = true)]
async fn invalid_records_are_refused_before_sending() {
    let kinesis = service(1);
    let producer = producer(&kinesis);
    let error = producer.put_batch(records(501)).await.unwrap_err();
    assert!(matches!(error, PutError::TooManyRecords { records: 501, limit: 500, .. }));

    let large = sized(0, MIB + 1);
    let error = producer.put(large.clone()).await.unwrap_err();
    assert!(matches!(error, PutError::TooLarge { size: 1_048_577, limit: 1_048_576, .. }));
    assert_eq!(
        error.to_string(),
        "the record has 1048577 bytes with its partition key, the limit is 1048576"
    );

    let mut batch = records(3);
    batch[2] = large;
    let error = producer.put_batch(batch).await.unwrap_err();
    assert_eq!(error.to_string(), "record 2 of the batch is invalid");
    let PutError::InvalidRecord { index: 2, source, .. } = error else { panic!("{error}") };
    assert!(matches!(*source, PutError::TooLarge { .. }) && !source.is_retryable());

    for (key, chars) in [(String::new(), 0), ("k".repeat(257), 257), ("ü".repeat(257), 257)] {
        let error = producer.try_put(OutboundRecord::new(key, "x")).unwrap_err();
        assert!(matches!(error, PutError::InvalidKey { chars: found, .. } if found == chars));
    }
    assert!(producer.flush().await.is_complete());
    assert_eq!(kinesis.calls(Operation::PutRecords), 0);
}

/// F-34: multi-byte keys, records of exactly the limit and full batches: the service refuses no call.
#[tokio::test(start_paused = true)]
async fn no_call_is_refused_for_its_size() {
    let kinesis = service(4);
    let producer = builder(&kinesis).batch_bytes(10 * MIB).build().unwrap();
    let key = "ü".repeat(256);
    let mut batch: Vec<_> =
        (0..11).map(|_| OutboundRecord::new(key.as_str(), vec![b'x'; MIB - 512])).collect();
    batch.extend((11..449).map(|number| sized(number, 1_000)));
    batch.push(OutboundRecord::new("hash", "x").explicit_hash_key(HashKey::MAX));
    let results = producer.put_batch(batch).await.unwrap();
    assert!(results.iter().all(Result::is_ok));
    let calls = kinesis.calls_of(Operation::PutRecords);
    assert_eq!(calls.iter().map(|call| call.entries).sum::<usize>(), 450);
    assert_eq!(calls[0].bytes, 10 * MIB as u64);
    for call in calls {
        assert_eq!(call.outcome, Outcome::Done { records: call.entries });
    }
    let last = results[449].as_ref().unwrap();
    assert_eq!(last.shard.as_str(), "shardId-000000000003");
}

/// F-34: the calls with records of one key follow each other although they could run together.
#[tokio::test(start_paused = true)]
async fn one_key_over_several_calls_keeps_its_order() {
    let kinesis = service_in_order(1);
    kinesis
        .faults()
        .on(Operation::PutRecords)
        .every(2)
        .always()
        .inject(Fault::Hang(Duration::from_millis(300)));
    let producer = builder(&kinesis).batch_records(10).build().unwrap();
    let batch = (0..95).map(|number| OutboundRecord::new("key", format!("{number}"))).collect();
    producer.put_batch(batch).await.unwrap();
    let order: Vec<String> = stored(&kinesis).into_values().map(|(_, data)| data).collect();
    assert_eq!(order, (0..95).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!(call_sizes(&kinesis), [10, 10, 10, 10, 10, 10, 10, 10, 10, 5]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_named_by_arn_is_called_by_arn() {
    let kinesis = service(1);
    let stream = StreamRef::new(kinesis.stream_arn(STREAM)).unwrap();
    let producer = Producer::builder(kinesis.client(), stream).build().unwrap();
    producer.put_batch(records(1)).await.unwrap().remove(0).unwrap();
    assert!(kinesis.calls_of(Operation::PutRecords)[0].by_arn);
}

/// F-45, C-11: a record above the stream's limit fails at once and alone; one that the stream takes is stored, also
/// after its limit was raised.
#[tokio::test(start_paused = true)]
async fn records_above_the_streams_limit_fail_at_once_and_alone() {
    let kinesis = service(1);
    let producer = builder(&kinesis).max_record_bytes(10 * MIB).batch_bytes(10 * MIB).build().unwrap();
    let batch = || vec![sized(0, 900 * 1024), sized(1, 3 * MIB / 2), sized(2, 10 * MIB), record(3)];
    let results = producer.put_batch(batch()).await.unwrap();
    assert_eq!(attempts(&results), [1, 1, 1, 1]);
    assert_eq!(results.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, false, true]);
    let failure = results[1].as_ref().unwrap_err().failure().unwrap().to_string();
    assert!(failure.contains("1572864") && failure.contains("1048576"), "{failure}");
    assert!(!results[1].as_ref().unwrap_err().is_retryable());
    assert!(matches!(producer.try_put(sized(4, 10 * MIB + 1)), Err(PutError::TooLarge { .. })));

    let arn = kinesis.stream_arn(STREAM);
    let update = kinesis.client().update_max_record_size().stream_arn(arn).max_record_size_in_kib(10_240);
    update.send().await.unwrap();
    after(10_000).await;
    let results = producer.put_batch(batch()).await.unwrap();
    assert!(results.iter().all(Result::is_ok));
}
