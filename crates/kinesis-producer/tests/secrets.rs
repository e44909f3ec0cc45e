//! What shows in errors, debug output and logs.
#![allow(clippy::unwrap_used)] // helpers of tests may panic like tests

mod support;

use std::error::Error;
use std::time::Duration;

use kinesis_producer::{ClientSource, OutboundRecord, Producer, PutError, RecordErrorKind, StreamRef};
use kinesis_testkit::{Fault, Operation};
use support::*;

const PAYLOAD: &str = "marker-payload";
const KEY: &str = "marker-key";

fn secret() -> OutboundRecord {
    OutboundRecord::new(KEY, PAYLOAD)
}

/// The texts of an error and its sources, for people and for developers.
fn texts(error: &dyn Error) -> String {
    let mut text = format!("{error} {error:?} ");
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(&format!("{source} {source:?} "));
        next = source.source();
    }
    text
}

fn assert_clean(text: &str) {
    for marker in ["marker", "no-secret", "TESTKIT", "6d61726b6572"] {
        assert!(!text.contains(marker), "{marker} in {text}");
    }
}

/// F-42, S-206: payloads, keys and credentials show in no error, no debug output and no log line.
#[tokio::test(start_paused = true)]
async fn nothing_shows_payloads_keys_or_credentials() {
    let (log, _guard) = Log::capture();
    let faults = [
        Fault::partial_failure(1, THROTTLED),
        Fault::AccessDenied,
        Fault::error("ValidationException"),
        Fault::Disconnect,
        Fault::DropReply,
        Fault::Hang(Duration::MAX),
    ];
    for fault in faults {
        let kinesis = service(1);
        kinesis.faults().on(Operation::PutRecords).always().inject(fault);
        let producer = builder(&kinesis).max_retries(1).build().unwrap();
        let error = producer.put(secret()).await.unwrap().await.unwrap_err();
        assert_clean(&texts(&error));
        drop(producer.put(secret()).await.unwrap());
        assert_clean(&format!("{:?}", producer.close(Duration::from_secs(1)).await));
        let receipt = producer.clone();
        assert_clean(&format!("{receipt:?}"));
    }
    let kinesis = service(1);
    let producer = producer(&kinesis);
    let large = OutboundRecord::new(KEY, PAYLOAD.repeat(100_000));
    for error in [
        producer.put(large).await.unwrap_err(),
        producer.put(OutboundRecord::new(KEY.repeat(30), PAYLOAD)).await.unwrap_err(),
        producer.put_batch(vec![OutboundRecord::new("", PAYLOAD)]).await.unwrap_err(),
    ] {
        assert_clean(&texts(&error));
    }
    let builder = Producer::builder(kinesis.sdk_config(), StreamRef::new(STREAM).unwrap());
    assert_clean(&format!("{builder:?} {:?}", ClientSource::from(kinesis.client())));
    let receipt = producer.put(secret()).await.unwrap();
    assert_clean(&format!("{receipt:?} {producer:?}"));
    assert_clean(&format!("{:?}", receipt.await.unwrap()));
    assert!(log.text().contains("PutRecords failed"));
    assert_clean(&log.text());
}

/// S-203: errors are kinds to match on, each with a predicate.
#[tokio::test(start_paused = true)]
async fn errors_are_kinds_with_a_predicate() {
    let kinesis = service(1);
    kinesis.faults().on(Operation::PutRecords).always().inject(Fault::Hang(Duration::MAX));
    let producer = builder(&kinesis).buffer_records(1).in_flight(1).linger(Duration::ZERO).build().unwrap();
    drop(producer.put(record(0)).await.unwrap());
    kinesis.wait_for_calls(Operation::PutRecords, 1).await;
    let waiting = producer.put(record(1)).await.unwrap();
    let full = producer.try_put(record(2)).unwrap_err();
    producer.close(Duration::from_secs(1)).await;
    let closed = producer.try_put(record(2)).unwrap_err();
    for (error, kind, retryable) in [(full, "full", true), (closed, "closed", false)] {
        let found = match error {
            PutError::Full => "full",
            PutError::Closed => "closed",
            PutError::InvalidKey { .. } | PutError::TooLarge { .. } => "record",
            PutError::TooManyRecords { .. } | PutError::InvalidRecord { .. } => "batch",
            _ => "new",
        };
        assert_eq!((found, error.is_retryable()), (kind, retryable));
    }
    let error = waiting.await.unwrap_err();
    let found = match error.kind() {
        RecordErrorKind::Closed => "closed",
        RecordErrorKind::Refused | RecordErrorKind::CallFailed => "service",
        RecordErrorKind::Expired | RecordErrorKind::Abandoned => "here",
        _ => "new",
    };
    assert_eq!((found, error.is_retryable(), error.failure()), ("closed", true, None));
    assert_eq!(
        error.to_string(),
        "the record was not stored after 0 attempts: the producer was closed first"
    );
}
