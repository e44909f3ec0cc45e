//! Kinesis events of Lambda, as recorded.
#![cfg(feature = "lambda")]
#![allow(clippy::unwrap_used, reason = "in helpers of tests too")]

use std::error::Error as _;

use kinesis_kpl::lambda::{BatchResponse, KinesisEvent, LambdaRecord};
use kinesis_kpl::{Deaggregator, Reason, Strictness};
use serde_json::{Value, json};

const EVENT: &str = include_str!("../examples/lambda-event.json");
const FIRST: &str = "49590338271490256608559692538361571095921575989136588898";
const THIRD: &str = "49590338271490256608559692538361571095921575989136588912";

fn event() -> KinesisEvent {
    serde_json::from_str(EVENT).unwrap()
}

fn flight(record: &LambdaRecord) -> Option<String> {
    let value: Value = serde_json::from_slice(record.data()).unwrap();
    value["flight"].as_str().map(str::to_owned)
}

/// S-129, S-122: the user records of all Kinesis records, in order, each with its own key and place.
#[test]
fn an_event_is_split_into_user_records_in_order() {
    let seen: Vec<_> = event()
        .into_batch()
        .into_iter()
        .flat_map(|item| item.into_records())
        .map(|r| (r.partition_key().unwrap().to_string(), r.sub_sequence(), flight(&r).unwrap_or_default()))
        .collect();
    let expected = [
        ("LHR", 0, "BA117"),
        ("CDG", 0, "AF006"),
        ("LHR", 1, "BA304"),
        ("CDG", 2, "AF1680"),
        ("JFK", 0, "DL42"),
        ("JFK", 1, ""),
        ("AMS", 0, "KL1001"),
    ];
    assert_eq!(seen, expected.map(|(key, place, flight)| (key.to_owned(), place, flight.to_owned())));
}

/// The Kinesis record with the failed user record is reported, and nothing after it is tried.
#[test]
fn the_first_failed_kinesis_record_is_reported_and_work_stops_there() {
    let mut tried = 0;
    let response = event().for_each(|record| {
        tried += 1;
        flight(&record).map(|_| ()).ok_or("a flight without number")
    });
    assert_eq!(tried, 6);
    let json = serde_json::to_value(&response).unwrap();
    assert_eq!(json, json!({"batchItemFailures": [{"itemIdentifier": THIRD}]}));
}

#[test]
fn a_finished_event_reports_no_failure() {
    let response = event().for_each(|_| Ok::<(), ()>(()));
    assert_eq!(response, BatchResponse::default());
    assert_eq!(serde_json::to_string(&response).unwrap(), r#"{"batchItemFailures":[]}"#);
}

/// S-204: in strict mode a broken aggregate is named by shard and sequence number; its neighbours come out.
#[test]
fn a_broken_aggregate_is_named_by_shard_and_sequence_number() {
    let mut event = event();
    let mut data = event.records[1].kinesis.data.to_vec();
    *data.last_mut().unwrap() ^= 1;
    event.records[1].kinesis.data = data.into();

    let lenient = event.clone().into_batch();
    assert_eq!(lenient[1].reason(), Some(Reason::BadDigest));
    assert_eq!(lenient[1].clone().into_records().count(), 1);

    let items = event.into_batch_with(&Deaggregator::new().strictness(Strictness::Strict));
    let error = items[1].as_ref().unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("broken aggregate in shard shardId-000000000006, sequence number {}", error.sequence_number)
    );
    assert!(error.source().unwrap().to_string().starts_with("invalid aggregate of"));
    assert!(!error.is_retryable());
    assert_eq!(items.iter().filter(|item| item.is_ok()).count(), 3);
    assert_eq!(items[0].as_ref().unwrap().sequence_number.to_string(), FIRST);
}

/// Streams with record distribution `AUTO` have records without a partition key.
#[test]
fn a_record_without_partition_key_is_read() {
    let json = json!({"Records": [{"kinesis": {"sequenceNumber": "7", "data": "aGk="}}]});
    let event: KinesisEvent = serde_json::from_value(json).unwrap();
    let item = event.into_batch().swap_remove(0);
    let record = item.into_records().next().unwrap();
    assert_eq!((record.partition_key(), &record.data()[..], record.sub_sequence()), (None, &b"hi"[..], 0));
    assert!(record.user_record().is_none());
}

/// F-42: bad events are refused without quoting data, and debug output hides data and keys.
#[test]
fn neither_errors_nor_debug_output_show_data() {
    for (field, value) in [("data", "secret-not-base64!"), ("sequenceNumber", "seven")] {
        let mut kinesis = json!({"sequenceNumber": "7", "data": "aGk="});
        kinesis[field] = value.into();
        let error =
            serde_json::from_value::<KinesisEvent>(json!({"Records": [{"kinesis": kinesis}]})).unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    let event = event();
    let text = format!("{event:?} {:?}", event.clone().into_batch());
    let records: Vec<_> = event.into_batch().into_iter().flat_map(|item| item.into_records()).collect();
    for text in [text, format!("{records:?}")] {
        assert!(!text.contains("BA117") && !text.contains("LHR"), "{text}");
    }
}
