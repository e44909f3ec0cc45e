//! Calls and records that fail.
#![allow(clippy::unwrap_used)] // helpers of tests may panic like tests

mod support;

use std::error::Error;
use std::time::Duration;

use kinesis_producer::{FailureKind, Producer, RecordErrorKind, StreamRef};
use kinesis_testkit::{Fault, Operation, Outcome, TestKinesis, scenarios};
use support::*;

/// S-153, F-32: only refused records are repeated, and every record is stored exactly once.
#[tokio::test(start_paused = true)]
async fn only_refused_records_are_repeated() {
    let kinesis = service(4);
    let refused =
        Fault::All(vec![Fault::partial_failure(7, THROTTLED), Fault::partial_failure(11, "InternalFailure")]);
    kinesis.faults().next(Operation::PutRecords, 2, refused);
    let producer = producer(&kinesis);
    let results = producer.put_batch(records(500)).await.unwrap();

    let first = (1..=500).filter(|place| place % 7 == 0 || place % 11 == 0).count();
    let second = (1..=first).filter(|place| place % 7 == 0 || place % 11 == 0).count();
    assert_eq!(call_sizes(&kinesis), [500, first, second]);
    let attempts = attempts(&results);
    let sent_times = |times| attempts.iter().filter(|found| **found == times).count();
    assert_eq!((sent_times(1), sent_times(2), sent_times(3)), (500 - first, first - second, second));
    for (number, result) in results.iter().enumerate() {
        assert!(is_stored(&kinesis, result.as_ref().unwrap(), &format!("value-{number}")));
    }
    assert_eq!(stored(&kinesis).len(), 500);
}

/// F-32: the list of results decides, not the count of failures that comes with it.
#[tokio::test(start_paused = true)]
async fn the_list_of_results_decides_not_the_count() {
    let kinesis = service(1);
    let hidden = Fault::All(vec![Fault::partial_failure(2, THROTTLED), Fault::FailedRecordCount(0)]);
    kinesis.faults().next(Operation::PutRecords, 1, hidden);
    let producer = producer(&kinesis);
    assert_eq!(attempts(&producer.put_batch(records(4)).await.unwrap()), [1, 2, 1, 2]);

    kinesis.faults().next(Operation::PutRecords, 1, Fault::FailedRecordCount(4));
    assert_eq!(attempts(&producer.put_batch(records(4)).await.unwrap()), [1, 1, 1, 1]);
    assert_eq!(call_sizes(&kinesis), [4, 2, 4]);
}

/// S-162, F-32: a call that fails as a whole is repeated as a whole.
#[tokio::test(start_paused = true)]
async fn a_failed_call_is_repeated_whole() {
    for fault in [Fault::InternalFailure, Fault::Disconnect, Fault::Throttle] {
        let kinesis = service(1);
        kinesis.faults().next(Operation::PutRecords, 2, fault);
        let producer = producer(&kinesis);
        assert_eq!(attempts(&producer.put_batch(records(3)).await.unwrap()), [3, 3, 3]);
        assert_eq!(call_sizes(&kinesis), [3, 3, 3]);
        let times = call_times(&kinesis);
        assert!((100..=200).contains(&times[1]) && (200..=400).contains(&(times[2] - times[1])), "{times:?}");
        assert_eq!(stored(&kinesis).len(), 3);
    }
}

/// F-24: connections that close under calls fail no record: each call is repeated over a fresh one.
#[tokio::test(start_paused = true)]
async fn connections_that_close_fail_no_record() {
    let kinesis = service(4);
    scenarios::retired_connections(&kinesis);
    kinesis.faults().on(Operation::PutRecords).every(7).always().inject(Fault::Disconnect);
    let producer = producer(&kinesis);
    for _ in 0..60 {
        assert!(producer.put_batch(records(20)).await.unwrap().iter().all(Result::is_ok));
    }
    let calls = kinesis.calls_of(Operation::PutRecords);
    let cut = calls.iter().filter(|call| call.outcome == Outcome::Disconnected).count();
    assert!(cut >= 8, "{cut} of {} calls were cut", calls.len());
    assert_eq!(copies(&kinesis).into_values().collect::<Vec<_>>(), [60; 20], "none was stored and then cut");
}

/// Delivery is at least once: a call whose answer is lost is repeated, though its records are stored.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_makes_duplicates_and_no_loss() {
    let kinesis = service(1);
    kinesis.faults().next(Operation::PutRecords, 1, Fault::DropReply);
    let producer = producer(&kinesis);
    assert_eq!(attempts(&producer.put_batch(records(2)).await.unwrap()), [2, 2]);
    assert_eq!(copies(&kinesis).into_values().collect::<Vec<_>>(), [2, 2]);
}

/// S-153: after the retries the record comes back with the reason; it was sent four times.
#[tokio::test(start_paused = true)]
async fn a_record_that_stays_refused_comes_back() {
    let kinesis = service(1);
    kinesis.faults().on(Operation::PutRecords).always().inject(Fault::partial_failure(1, THROTTLED));
    let error = producer(&kinesis).put(record(7)).await.unwrap().await.unwrap_err();
    assert_eq!((error.kind(), error.attempts()), (RecordErrorKind::Refused, 4));
    assert_eq!(error.failure().unwrap().kind(), FailureKind::Throttled);
    assert!(error.is_retryable() && !error.may_be_stored());
    assert_eq!(error.to_string(), "the record was not stored after 4 attempts: the service refused it");
    assert!(error.source().unwrap().to_string().starts_with(THROTTLED));
    assert_eq!(error.record(), &record(7));
    assert_eq!(error.into_record(), record(7));
    assert_eq!(call_sizes(&kinesis), [1, 1, 1, 1]);
}

/// F-13: a call that is never answered ends after the attempt timeout, the records are sent again, and records of
/// other keys go on meanwhile.
#[tokio::test(start_paused = true)]
async fn a_hanging_call_ends_and_holds_up_nothing_else() {
    let kinesis = service(1);
    kinesis.faults().next(Operation::PutRecords, 1, Fault::Hang(Duration::MAX));
    let timeout = Duration::from_secs(3);
    let producer = builder(&kinesis).attempt_timeout(timeout).linger(Duration::ZERO).build().unwrap();
    let stuck = producer.put(record(0)).await.unwrap();
    kinesis.wait_for_calls(Operation::PutRecords, 1).await;
    let other = producer.put(record(1)).await.unwrap().await.unwrap();
    assert_eq!((other.attempts, call_times(&kinesis)), (1, vec![0, 0]));
    assert_eq!(stuck.await.unwrap().attempts, 2);
    let third = call_times(&kinesis)[2];
    assert!((3_100..=3_200).contains(&third), "{third}");
}

/// F-13: while nothing is answered at all, a record still has its answer in time and says that it may be stored.
#[tokio::test(start_paused = true)]
async fn a_record_has_its_answer_in_time() {
    let kinesis = service(1);
    kinesis.faults().on(Operation::PutRecords).always().inject(Fault::Hang(Duration::MAX));
    let producer = builder(&kinesis)
        .attempt_timeout(Duration::from_secs(3))
        .delivery_timeout(Duration::from_secs(10))
        .max_retries(100)
        .build()
        .unwrap();
    let started = tokio::time::Instant::now();
    let error = producer.put(record(0)).await.unwrap().await.unwrap_err();
    assert_eq!(error.kind(), RecordErrorKind::Expired);
    assert_eq!(error.failure().unwrap().to_string(), "PutRecords had no answer within 3 s");
    assert!(error.may_be_stored() && error.is_retryable());
    assert!(started.elapsed() <= Duration::from_secs(13));
    assert_eq!(error.attempts() as usize, call_sizes(&kinesis).len());
}

/// S-203: failures that nobody can wait out are told apart and not repeated.
#[tokio::test(start_paused = true)]
async fn lasting_failures_are_final() {
    let cases = [
        (Fault::AccessDenied, FailureKind::AccessDenied),
        (Fault::error("ResourceNotFoundException"), FailureKind::NotFound),
        (Fault::error("ValidationException"), FailureKind::Invalid),
        (Fault::error("UnrecognizedClientException"), FailureKind::AccessDenied),
    ];
    for (fault, kind) in cases {
        let kinesis = service(1);
        kinesis.faults().on(Operation::PutRecords).always().inject(fault);
        let error = producer(&kinesis).put(record(0)).await.unwrap().await.unwrap_err();
        assert_eq!(error.kind(), RecordErrorKind::CallFailed);
        assert_eq!((error.failure().unwrap().kind(), error.attempts()), (kind, 1));
        assert!(!error.is_retryable() && !error.may_be_stored());
        assert_eq!(call_sizes(&kinesis), [1]);
    }
}

/// S-149: a stream that does not exist is one clear error of the record.
#[tokio::test(start_paused = true)]
async fn an_unknown_stream_is_one_clear_error() {
    let kinesis = TestKinesis::new();
    let stream = StreamRef::new("nowhere").unwrap();
    let producer = Producer::builder(kinesis.client(), stream).build().unwrap();
    let error = producer.put(record(0)).await.unwrap().await.unwrap_err();
    let failure = error.failure().unwrap();
    assert_eq!(failure.kind(), FailureKind::NotFound);
    assert!(failure.to_string().contains("nowhere"), "{failure}");
}

/// F-26: denied for two minutes, then allowed: few calls, one warning about it, and recovery without a restart.
#[tokio::test(start_paused = true)]
async fn denied_access_makes_few_calls_and_recovers() {
    let (log, _guard) = Log::capture();
    let kinesis = service(1);
    kinesis.faults().on(Operation::PutRecords).always().inject(Fault::AccessDenied);
    let producer = producer(&kinesis);
    let started = tokio::time::Instant::now();
    let mut receipts = Vec::new();
    while started.elapsed() < Duration::from_secs(120) {
        receipts.push(producer.put(record(receipts.len())).await.unwrap());
        after(100).await;
    }
    let calls = kinesis.calls(Operation::PutRecords);
    assert!((12..=30).contains(&calls), "{calls}");
    let warnings = log.lines("WARN");
    assert!(warnings.len() == 1 && warnings[0].contains("kinesis:PutRecords"), "{warnings:?}");

    kinesis.faults().clear();
    after(10_000).await;
    receipts.push(producer.put(record(receipts.len())).await.unwrap());
    assert!(receipts.pop().unwrap().await.is_ok());
    assert_eq!(log.lines("INFO").len(), 1);
    let mut failed = 0;
    for receipt in receipts {
        failed += usize::from(receipt.await.is_err());
    }
    assert_eq!(failed + kinesis.records(STREAM).unwrap().len(), 1 + 1_200);
}

/// A service that is down for a minute sees few calls, however much is put.
#[tokio::test(start_paused = true)]
async fn an_outage_makes_no_storm_of_calls() {
    let kinesis = service(1);
    kinesis.faults().on(Operation::PutRecords).always().inject(Fault::Disconnect);
    let producer = builder(&kinesis).max_retries(1_000).build().unwrap();
    let flood = {
        let producer = producer.clone();
        tokio::spawn(async move {
            for number in 0.. {
                drop(producer.put(record(number)).await);
            }
        })
    };
    after(60_000).await;
    flood.abort();
    let calls = kinesis.calls(Operation::PutRecords);
    assert!((8..=14).contains(&calls), "{calls}");

    kinesis.faults().clear();
    let report = producer.flush().await;
    assert!(report.is_complete() && report.sent >= 500, "{report:?}");
    assert_eq!(copies(&kinesis).into_values().sum::<usize>(), report.sent);
}

/// A writer that is faster than its shard is slowed down to the shard's pace and loses nothing.
#[tokio::test(start_paused = true)]
async fn a_throttled_shard_slows_the_writer_down() {
    let kinesis = TestKinesis::new();
    kinesis.create_stream(STREAM, 1).unwrap();
    let producer = builder(&kinesis).max_retries(50).build().unwrap();
    let started = tokio::time::Instant::now();
    for number in 0..5_000 {
        drop(producer.put(record(number)).await.unwrap());
    }
    let report = producer.close(LIMIT).await;
    assert_eq!((report.failed, report.unsent.len()), (0, 0));
    assert_eq!(copies(&kinesis).len(), 5_000);
    let seconds = started.elapsed().as_secs_f64();
    assert!((3.0..=12.0).contains(&seconds), "{seconds}");
    let calls = call_sizes(&kinesis).len();
    assert!(calls <= 200, "{calls}");
}

/// C-18, F-33: default mode: a record that is refused on its own may be stored after a later one of its key.
#[tokio::test(start_paused = true)]
async fn a_refused_record_may_be_overtaken() {
    let kinesis = service_in_order(1);
    kinesis.faults().next(Operation::PutRecords, 1, Fault::partial_failure(2, THROTTLED));
    let producer = producer(&kinesis);
    let batch =
        (0..3).map(|number| kinesis_producer::OutboundRecord::new("key", format!("{number}"))).collect();
    producer.put_batch(batch).await.unwrap();
    let order: Vec<String> = stored(&kinesis).into_values().map(|(_, data)| data).collect();
    assert_eq!(order, ["0", "2", "1"]);
}
