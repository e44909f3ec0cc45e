//! Where reading starts, and what becomes of a start that the service does not have any more.

use std::time::Duration;

use crate::support::*;
use kinesis_core::source::{ShardReader, SourceError, SourceEvent};
use kinesis_core::{SequenceNumber, StartPosition, Timestamp};
use kinesis_testkit::{Fault, Operation, StreamFault, StreamPoint, TestKinesis, scenarios};

fn at(number: &str) -> StartPosition {
    StartPosition::AtSequenceNumber { sequence: number.parse().unwrap() }
}

fn after(number: &str) -> StartPosition {
    StartPosition::AfterSequenceNumber { sequence: number.parse().unwrap() }
}

fn now(kinesis: &TestKinesis) -> Timestamp {
    kinesis.clock().now().into()
}

fn kinds(kinesis: &TestKinesis) -> Vec<String> {
    starts(kinesis).into_iter().map(|(kind, _)| kind).collect()
}

/// The gaps that were reported, as text.
fn gaps(heard: &Heard) -> Vec<(String, Option<String>)> {
    let gap = |event: &SourceEvent| match event {
        SourceEvent::Gap(gap) => {
            Some((gap.after.to_string(), gap.resumed_at.as_ref().map(SequenceNumber::to_string)))
        }
        _ => None,
    };
    heard.others.iter().filter_map(gap).collect()
}

/// S-207: each kind of start subscribes with that kind and reads from there.
#[tokio::test(start_paused = true)]
async fn every_start_position_reads_from_there() {
    let kinesis = service(1);
    let numbers = put(&kinesis, 0..2);
    tokio::time::sleep(10 * SECOND).await;
    let timestamp = now(&kinesis);
    put(&kinesis, 2..4);
    tokio::time::sleep(10 * SECOND).await;
    let starts = [
        (StartPosition::TrimHorizon, "TRIM_HORIZON", None, 0),
        (StartPosition::AtTimestamp { timestamp }, "AT_TIMESTAMP", None, 2),
        (at(&numbers[1]), "AT_SEQUENCE_NUMBER", Some(numbers[1].clone()), 1),
        (after(&numbers[1]), "AFTER_SEQUENCE_NUMBER", Some(numbers[1].clone()), 2),
        (StartPosition::Latest, "LATEST", None, 4),
    ];
    for (start, kind, number, first) in starts {
        kinesis.clear_calls();
        let mut reader = reader(&kinesis, start);
        let heard = read_for(&mut reader, 7 * SECOND).await;
        assert_eq!(heard.payloads, expected(first..4), "{kind}");
        assert!(heard.others.is_empty(), "{kind}: {heard:?}");
        let [call] = &subscribes(&kinesis)[..] else { panic!("{kind}: one call") };
        assert_eq!((call.iterator_type.as_deref(), &call.sequence_number), (Some(kind), &number));
        assert_eq!(call.timestamp.map(Timestamp::from), (kind == "AT_TIMESTAMP").then_some(timestamp));
    }
}

/// S-104, F-08: the tip is that of the first call: what is written while it fails, or before the subscription dies
/// without an event, is read.
#[tokio::test(start_paused = true)]
async fn a_start_at_the_tip_skips_nothing_whatever_fails_first() {
    let faults = [
        Fault::Throttle,
        Fault::InternalFailure,
        Fault::Disconnect,
        Fault::Hang(FOREVER),
        Fault::DropReply,
        Fault::LateReply(FOREVER),
        Fault::in_stream(StreamPoint::BeforeFirstFrame, StreamFault::Silence(FOREVER)),
        Fault::in_stream(StreamPoint::BeforeFirstFrame, StreamFault::End),
        Fault::in_stream(StreamPoint::BeforeFirstFrame, StreamFault::exception("InternalFailureException")),
        Fault::in_stream(StreamPoint::AfterEvents(0), StreamFault::End),
        Fault::in_stream(StreamPoint::AfterEvents(0), StreamFault::Cut),
        Fault::in_stream(StreamPoint::AfterEvents(0), StreamFault::Silence(FOREVER)),
        Fault::in_stream(StreamPoint::AfterEvents(0), StreamFault::CorruptChecksum),
    ];
    for fault in faults {
        let kinesis = service(1);
        put(&kinesis, 0..5);
        tokio::time::sleep(10 * SECOND).await;
        kinesis.faults().next(Operation::SubscribeToShard, 1, fault.clone());
        let mut reader = reader(&kinesis, StartPosition::Latest);
        let writer = async {
            tokio::time::sleep(50 * MS).await;
            put(&kinesis, 5..15);
        };
        let (heard, ()) = tokio::join!(read(&mut reader, 10), writer);
        assert_eq!(heard.payloads, expected(5..15), "{fault:?}");
        let kinds = kinds(&kinesis);
        assert_eq!(
            (kinds[0].as_str(), kinds.last().unwrap().as_str()),
            ("LATEST", "AT_TIMESTAMP"),
            "{fault:?}"
        );
    }
}

/// F-08: the scripted case of a first read that fails on both paths.
#[tokio::test(start_paused = true)]
async fn a_first_subscription_that_ends_before_any_event_is_made_again_at_the_same_place() {
    let kinesis = service(1);
    put(&kinesis, 0..5);
    tokio::time::sleep(10 * SECOND).await;
    scenarios::failing_first_read(&kinesis, STREAM);
    let mut reader = reader(&kinesis, StartPosition::Latest);
    let writer = async {
        tokio::time::sleep(500 * MS).await;
        put(&kinesis, 5..15);
    };
    let (heard, ()) = tokio::join!(read(&mut reader, 10), writer);
    assert_eq!(heard.payloads, expected(5..15));
}

/// the time that a start at the tip is pinned to is the service's, not this host's, less the margin.
#[tokio::test(start_paused = true)]
async fn the_tip_is_pinned_by_the_services_clock() {
    let kinesis = service(1);
    let begun = now(&kinesis);
    kinesis.faults().next(Operation::SubscribeToShard, 1, Fault::InternalFailure);
    let config = config().latest_margin(3 * SECOND);
    read_for(&mut reader_with(&kinesis, StartPosition::Latest, config), 9 * SECOND).await;
    let pinned: Vec<_> = subscribes(&kinesis).iter().filter_map(|call| call.timestamp).collect();
    assert_eq!(pinned.into_iter().map(Timestamp::from).collect::<Vec<_>>(), [begun.minus(3 * SECOND)]);
}

/// F-09: the service starts at the oldest record by itself; the gap is reported with both ends.
#[tokio::test(start_paused = true)]
async fn an_aged_out_position_that_is_accepted_is_reported_as_a_gap() {
    let kinesis = service(1);
    let numbers = put(&kinesis, 0..110);
    kinesis.trim(STREAM, SHARD, &numbers[104]).unwrap();
    let heard = read(&mut reader(&kinesis, at(&numbers[4])), 5).await;
    assert_eq!(heard.payloads, expected(105..110));
    assert_eq!(gaps(&heard), [(numbers[4].clone(), Some(numbers[105].clone()))]);
}

/// S-103, F-09: a refused position on the first subscription falls back to the oldest record, with a warning and a gap.
#[tokio::test(start_paused = true)]
async fn a_refused_first_position_falls_back_to_the_oldest_record() {
    for start in [at, after] {
        let captured = Captured::start();
        let kinesis = service(1);
        let numbers = put(&kinesis, 0..110);
        kinesis.trim(STREAM, SHARD, &numbers[104]).unwrap();
        scenarios::refused_position(&kinesis, STREAM);
        let heard = read(&mut reader(&kinesis, start(&numbers[4])), 5).await;
        assert_eq!(heard.payloads, expected(105..110));
        assert_eq!(gaps(&heard), [(numbers[4].clone(), Some(numbers[105].clone()))]);
        assert_eq!(kinds(&kinesis)[1..], ["TRIM_HORIZON"]);
        assert_eq!(spacing(&kinesis), [SECOND]);
        let lines = captured.lines();
        assert!(lines.len() == 1 && lines[0].contains("WARN"), "{lines:?}");
    }
}

/// S-103, F-09: a continuation that ages out while a shard was left alone falls back too, and repeats nothing.
#[tokio::test(start_paused = true)]
async fn a_refused_continuation_falls_back_and_repeats_nothing() {
    let kinesis = service(1);
    put(&kinesis, 0..10);
    scenarios::planned_end(&kinesis, STREAM, 2);
    scenarios::refused_position(&kinesis, STREAM);
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon);
    assert_eq!(read_for(&mut reader, 5_500 * MS).await.payloads, expected(0..10));
    put(&kinesis, 10..20);
    let heard = read(&mut reader, 10).await;
    assert_eq!(heard.payloads, expected(10..20));
    assert_eq!(gaps(&heard), [], "it was at the tip a moment ago: nothing can be missing");
    assert_eq!(kinds(&kinesis), ["TRIM_HORIZON", "AFTER_SEQUENCE_NUMBER", "TRIM_HORIZON"]);
}

/// F-09: an argument error for another reason, here the position of another shard, is not taken for one that aged out.
#[tokio::test(start_paused = true)]
async fn a_position_of_another_shard_is_refused() {
    let kinesis = service(2);
    let other = kinesis.put_at(STREAM, u128::MAX, "key", "x").unwrap();
    assert_eq!(other.shard_id, "shardId-000000000001");
    let error = reader(&kinesis, after(&other.sequence_number)).next().await.unwrap_err();
    assert!(matches!(error, SourceError::Refused { action: "SubscribeToShard", .. }), "{error}");
    assert!(!error.is_retryable());
    assert_eq!(kinesis.calls(Operation::SubscribeToShard), 1);
}

/// S-207: a start in the future is waited for; what comes before it is not read.
#[tokio::test(start_paused = true)]
async fn a_start_in_the_future_is_waited_for() {
    let kinesis = service(1);
    let timestamp = Timestamp::from_millis(now(&kinesis).as_millis() + 30_000);
    let mut reader = reader(&kinesis, StartPosition::AtTimestamp { timestamp });
    let writer = async {
        for n in 0..90 {
            put(&kinesis, n..n + 1);
            tokio::time::sleep(SECOND).await;
        }
    };
    let (heard, ()) = tokio::join!(read(&mut reader, 60), writer);
    assert_eq!(heard.payloads, expected(30..90));
}

/// F-08: a shard whose first event was read goes on at its continuation, not at the tip of the beginning.
#[tokio::test(start_paused = true)]
async fn after_the_first_event_the_tip_is_forgotten() {
    let kinesis = service(1);
    scenarios::planned_end(&kinesis, STREAM, 2);
    let mut reader = reader(&kinesis, StartPosition::Latest);
    read_for(&mut reader, Duration::from_millis(10_500)).await;
    put(&kinesis, 0..3);
    assert_eq!(read(&mut reader, 3).await.payloads, expected(0..3));
    assert_eq!(kinds(&kinesis), ["LATEST", "AFTER_SEQUENCE_NUMBER"]);
}
