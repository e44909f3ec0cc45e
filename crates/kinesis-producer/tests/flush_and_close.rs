//! Flushing, closing and dropping a producer.
#![allow(clippy::unwrap_used)] // helpers of tests may panic like tests

mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use kinesis_producer::{CloseReport, FlushReport, PutError, RecordErrorKind};
use kinesis_testkit::{Fault, Operation};
use support::*;

/// S-158: a flush returns when what was put before it is stored, without waiting for the tick.
#[tokio::test(start_paused = true)]
async fn a_flush_sends_what_was_put_before_it() {
    let kinesis = service(2);
    let producer = producer(&kinesis);
    assert_eq!(producer.flush().await, FlushReport::default());
    for record in records(3) {
        drop(producer.put(record).await.unwrap());
    }
    let report = producer.flush().await;
    assert_eq!((report.sent, report.failed, report.unconfirmed), (3, 0, 0));
    assert!(report.is_complete());
    assert_eq!((copies(&kinesis).len(), call_times(&kinesis)), (3, vec![0]));
}

/// S-158: a flush waits for retries, and counts what is given up.
#[tokio::test(start_paused = true)]
async fn a_flush_waits_for_retries() {
    let kinesis = service(1);
    kinesis.faults().next(Operation::PutRecords, 1, Fault::partial_failure(2, THROTTLED));
    kinesis.faults().next(Operation::PutRecords, 1, Fault::AccessDenied);
    let producer = producer(&kinesis);
    for record in records(4) {
        drop(producer.put(record).await.unwrap());
    }
    let report = producer.flush().await;
    assert_eq!((report.sent, report.failed, report.unconfirmed), (2, 2, 0));
    assert!(!report.is_complete());
}

/// S-158: many tasks put and flush at the same time: each finds its own records stored when its flush returns.
#[tokio::test(start_paused = true)]
async fn every_flush_covers_the_records_of_its_task() {
    let kinesis = service(4);
    kinesis.faults().on(Operation::PutRecords).every(3).always().inject(Fault::partial_failure(3, THROTTLED));
    kinesis.faults().on(Operation::PutRecords).every(5).always().inject(Fault::InternalFailure);
    let producer = builder(&kinesis).max_retries(50).buffer_records(50).build().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..20_usize {
        let (producer, kinesis) = (producer.clone(), kinesis.clone());
        tasks.spawn(async move {
            for round in 0..5 {
                for number in 0..10 {
                    let number = task * 1_000 + round * 100 + number;
                    drop(producer.put(record(number)).await.unwrap());
                    after(task as u64 % 7).await;
                }
                assert!(producer.flush().await.is_complete());
                let stored = copies(&kinesis);
                for number in 0..10 {
                    let data = format!("value-{}", task * 1_000 + round * 100 + number);
                    assert_eq!(stored.get(&data), Some(&1), "{data}");
                }
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
    assert_eq!(copies(&kinesis).len(), 1_000);
}

/// F-36: a flush returns by its limit and counts what is not confirmed; the records stay on their way.
#[tokio::test(start_paused = true)]
async fn a_flush_returns_by_its_limit() {
    let kinesis = service(1);
    kinesis.faults().next(Operation::PutRecords, 1, Fault::Hang(Duration::MAX));
    let producer = producer(&kinesis);
    let receipt = producer.put(record(0)).await.unwrap();
    let started = tokio::time::Instant::now();
    let report = producer.flush_within(Duration::from_secs(2)).await;
    assert_eq!((report.sent, report.failed, report.unconfirmed), (0, 0, 1));
    assert_eq!(started.elapsed(), Duration::from_secs(2));
    assert_eq!(receipt.await.unwrap().attempts, 2);
}

/// S-159: closing sends what is left, loses nothing, and later puts fail.
#[tokio::test(start_paused = true)]
async fn closing_sends_the_rest() {
    let kinesis = service(2);
    let producer = producer(&kinesis);
    for record in records(7) {
        drop(producer.put(record).await.unwrap());
    }
    let clone = producer.clone();
    let report = producer.close(LIMIT).await;
    assert!(report.is_complete());
    assert_eq!((report.sent, report.failed, report.unsent.len()), (7, 0, 0));
    assert_eq!((copies(&kinesis).len(), call_times(&kinesis)), (7, vec![0]));

    assert_eq!(clone.put(record(8)).await.unwrap_err(), PutError::Closed);
    assert_eq!(clone.try_put(record(8)).unwrap_err(), PutError::Closed);
    assert_eq!(clone.put_batch(records(2)).await.unwrap_err(), PutError::Closed);
    assert!(!PutError::Closed.is_retryable());
    assert_eq!(clone.flush().await, FlushReport::default());
    assert_eq!(clone.close(LIMIT).await, report);
    assert_eq!(kinesis.calls(Operation::PutRecords), 1);
}

/// S-159: whoever waits for room is refused when the producer closes; what was put before is stored.
#[tokio::test(start_paused = true)]
async fn closing_refuses_those_who_wait() {
    let kinesis = service(1);
    kinesis.faults().next(Operation::PutRecords, 1, Fault::LateReply(Duration::from_secs(1)));
    let producer = builder(&kinesis).buffer_records(1).in_flight(1).linger(Duration::ZERO).build().unwrap();
    drop(producer.put(record(0)).await.unwrap());
    kinesis.wait_for_calls(Operation::PutRecords, 1).await;
    drop(producer.put(record(1)).await.unwrap());
    let (waited, report) = tokio::join!(producer.put(record(2)), producer.close(LIMIT));
    assert_eq!(waited.unwrap_err(), PutError::Closed);
    assert_eq!((report.sent, copies(&kinesis).len()), (2, 2));
}

/// S-159, F-36: closing takes no longer than its limit and hands the rest back, in order.
#[tokio::test(start_paused = true)]
async fn closing_hands_back_what_is_left_at_its_limit() {
    let kinesis = service(1);
    kinesis.faults().on(Operation::PutRecords).always().inject(Fault::Hang(Duration::MAX));
    let producer = builder(&kinesis).batch_records(2).in_flight(1).build().unwrap();
    let mut receipts = Vec::new();
    for record in records(5) {
        receipts.push(producer.put(record).await.unwrap());
    }
    let started = tokio::time::Instant::now();
    let (first, second) = tokio::join!(producer.close(LIMIT), producer.close(Duration::from_secs(5)));
    assert_eq!(started.elapsed(), Duration::from_secs(5));
    assert_eq!((first.sent, first.failed, &first.unsent), (0, 0, &records(5)));
    assert_eq!(first, second);
    let mut ends = Vec::new();
    for receipt in receipts {
        let error = receipt.await.unwrap_err();
        assert_eq!(error.kind(), RecordErrorKind::Closed);
        ends.push((error.attempts(), error.may_be_stored()));
    }
    assert_eq!(ends, [(1, true), (1, true), (0, false), (0, false), (0, false)]);
}

/// Closing goes on when its future is dropped.
#[tokio::test(start_paused = true)]
async fn closing_that_is_not_waited_for_goes_on() {
    let kinesis = service(1);
    kinesis.faults().next(Operation::PutRecords, 1, Fault::LateReply(Duration::from_secs(1)));
    let producer = producer(&kinesis);
    let receipt = producer.put(record(0)).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(1), producer.close(LIMIT)).await.is_err());
    assert_eq!(producer.try_put(record(1)).unwrap_err(), PutError::Closed);
    assert_eq!(receipt.await.unwrap().attempts, 1);
    assert_eq!(producer.close(LIMIT).await.sent, 1);
}

/// F-36: some calls hang, some fail, others put meanwhile: flush and close return in time and every record that was
/// taken has exactly one answer.
#[tokio::test(start_paused = true)]
async fn trouble_at_the_end_leaves_no_record_without_an_answer() {
    let kinesis = service(2);
    kinesis.faults().on(Operation::PutRecords).every(3).always().inject(Fault::Hang(Duration::MAX));
    kinesis.faults().on(Operation::PutRecords).every(2).always().inject(Fault::InternalFailure);
    let producer = builder(&kinesis)
        .batch_records(5)
        .buffer_records(20)
        .attempt_timeout(Duration::from_secs(4))
        .build()
        .unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..8_usize {
        let producer = producer.clone();
        tasks.spawn(async move {
            let mut receipts = Vec::new();
            for number in 0.. {
                match producer.put(record(task * 10_000 + number)).await {
                    Ok(receipt) => receipts.push((number, receipt)),
                    Err(error) => {
                        assert_eq!(error, PutError::Closed);
                        break;
                    }
                }
                after(20).await;
            }
            let (mut sent, mut failed) = (Vec::new(), Vec::new());
            for (number, receipt) in receipts {
                let data = format!("value-{}", task * 10_000 + number);
                match receipt.await {
                    Ok(_) => sent.push(data),
                    Err(error) => failed.push((data, error)),
                }
            }
            (sent, failed)
        });
    }
    after(500).await;
    let started = tokio::time::Instant::now();
    let flushed = producer.flush_within(Duration::from_secs(3)).await;
    assert!(started.elapsed() <= Duration::from_secs(3) && flushed.unconfirmed > 0, "{flushed:?}");
    let closed = producer.close(Duration::from_secs(2)).await;
    assert!(started.elapsed() <= Duration::from_secs(5));

    let (mut sent, mut unsent) = (BTreeSet::new(), BTreeSet::new());
    while let Some(task) = tasks.join_next().await {
        let (task_sent, task_failed) = task.unwrap();
        sent.extend(task_sent);
        for (data, error) in task_failed {
            assert_eq!(String::from_utf8(error.record().data.to_vec()).unwrap(), data);
            if error.kind() == RecordErrorKind::Closed {
                unsent.insert(data);
            }
        }
    }
    let handed_back: BTreeSet<_> =
        closed.unsent.iter().map(|record| String::from_utf8(record.data.to_vec()).unwrap()).collect();
    assert_eq!((handed_back.len(), &handed_back), (closed.unsent.len(), &unsent));
    assert!(!unsent.is_empty() && !sent.is_empty());
    let stored = copies(&kinesis);
    assert!(sent.iter().all(|data| stored.contains_key(data)));
}

/// F-36: dropped without being closed, its records are answered, a warning says so, and nothing is sent any more.
#[tokio::test(start_paused = true)]
async fn a_dropped_producer_answers_and_warns() {
    let (log, _guard) = Log::capture();
    let kinesis = service(1);
    kinesis.faults().next(Operation::PutRecords, 1, Fault::Hang(Duration::MAX));
    let producer = builder(&kinesis).batch_records(1).build().unwrap();
    let in_flight = producer.put(record(0)).await.unwrap();
    kinesis.wait_for_calls(Operation::PutRecords, 1).await;
    let waiting = producer.clone().put(kinesis_producer::OutboundRecord::new("key-0", "x")).await.unwrap();
    let unseen = producer.put(record(2)).await.unwrap();
    drop(unseen);
    drop(producer);
    for (receipt, in_doubt) in [(in_flight, true), (waiting, false)] {
        let error = receipt.await.unwrap_err();
        assert_eq!((error.kind(), error.may_be_stored()), (RecordErrorKind::Abandoned, in_doubt));
        assert!(error.record().partition_key.as_str() == "key-0" && error.is_retryable());
    }
    let warnings = log.lines("WARN");
    assert!(warnings.iter().any(|line| line.contains("dropped without being closed")), "{warnings:?}");
    after(60_000).await;
    assert_eq!((kinesis.calls(Operation::PutRecords), copies(&kinesis).len()), (1, 0));
}

/// A producer that was flushed can be dropped without a word.
#[tokio::test(start_paused = true)]
async fn a_flushed_producer_is_dropped_quietly() {
    let (log, _guard) = Log::capture();
    let kinesis = service(1);
    let producer = producer(&kinesis);
    drop(producer.put(record(0)).await.unwrap());
    producer.flush().await;
    drop(producer);
    after(1).await;
    assert_eq!(log.lines("WARN"), Vec::<String>::new());
}

/// F-36: even when its runtime goes away, every record has its answer.
#[test]
fn a_runtime_that_ends_leaves_no_record_without_an_answer() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let (producer, receipt) = first.block_on(async {
        let kinesis = service(1);
        let producer = builder(&kinesis).linger(Duration::from_secs(60)).build().unwrap();
        let receipt = producer.put(record(0)).await.unwrap();
        (producer, receipt)
    });
    drop(first);
    runtime().block_on(async {
        assert_eq!(receipt.await.unwrap_err().kind(), RecordErrorKind::Abandoned);
        assert_eq!(producer.put(record(1)).await.unwrap_err(), PutError::Closed);
        let report: CloseReport = producer.close(LIMIT).await;
        assert_eq!(report.unsent, [record(0)]);
    });
}
