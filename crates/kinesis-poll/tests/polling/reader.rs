//! What a caller of a reader may count on: cancel safety, back-pressure, ends; the stream; the settings.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::*;
use futures_util::StreamExt as _;
use futures_util::stream::FusedStream as _;
use kinesis_core::StartPosition;
use kinesis_core::aws::{ClientSource, Purpose};
use kinesis_core::source::{OpenShard, ShardReader, ShardSource, SourceEvent};
use kinesis_poll::{PollConfig, PollSource, PollStream};
use kinesis_testkit::{Fault, Operation};

/// Dropping `next` at any moment loses and repeats nothing, and starts no call twice.
#[tokio::test(start_paused = true)]
async fn a_dropped_next_loses_nothing() {
    let kinesis = service(1);
    put(&kinesis, 0..20);
    kinesis.faults().on(Operation::GetRecords).always().inject(Fault::LateReply(90 * MS));
    kinesis.faults().on(Operation::GetShardIterator).always().inject(Fault::LateReply(90 * MS));
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon, PollConfig::default().max_records(4));
    let mut heard = Heard::default();
    let mut dropped = 0;
    while heard.payloads.len() < 20 {
        match tokio::time::timeout(7 * MS, reader.next()).await {
            Ok(event) => heard.take(event.unwrap()),
            Err(_) => dropped += 1,
        }
    }
    assert_eq!(heard.payloads, expected(0..20));
    assert!(dropped > 100, "{dropped}");
    assert_eq!((kinesis.calls(Operation::GetShardIterator), kinesis.calls(Operation::GetRecords)), (1, 5));
    let spacing = spacing(&kinesis);
    assert!(
        spacing.len() == 4 && spacing.iter().all(is_full_rate),
        "a drop starts no wait over: {spacing:?}"
    );
}

/// Closing or dropping a reader with a call under way ends it, and nothing is requested afterwards.
#[tokio::test(start_paused = true)]
async fn closing_a_reader_ends_its_call() {
    let kinesis = service(1);
    kinesis.faults().on(Operation::GetRecords).always().inject(Fault::Hang(Duration::from_secs(3_600)));
    let source = source(&kinesis, PollConfig::default());
    let mut reader = source.open(OpenShard::new(shard(0), StartPosition::TrimHorizon));
    assert!(tokio::time::timeout(SECOND, reader.next()).await.is_err());
    let began = tokio::time::Instant::now();
    reader.close().await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(kinesis.calls(Operation::GetRecords), 1);
}

/// Polling asks for clients of one purpose, which its calls share with no subscription and no control call: over HTTP/2
/// each of those could hold up the others.
#[tokio::test(start_paused = true)]
async fn polling_uses_a_client_of_its_own() {
    let kinesis = service(2);
    put(&kinesis, 0..20);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (log, client) = (Arc::clone(&asked), kinesis.client());
    let clients = ClientSource::from_fn(move |purpose| {
        log.lock().unwrap().push(purpose);
        client.clone()
    });
    let source = PollSource::new(clients, PollConfig::default()).unwrap();
    kinesis.faults().on(Operation::GetRecords).every(3).times(4).inject(Fault::ExpireIterator);
    let read = |number: usize| {
        let mut reader = source.reader(OpenShard::new(shard(number), StartPosition::TrimHorizon));
        async move { read_for(&mut reader, 60 * SECOND).await.payloads.len() }
    };
    let (one, other) = tokio::join!(read(0), read(1));
    assert_eq!(one + other, 20);
    assert_eq!(*asked.lock().unwrap(), [Purpose::Read]);
}

/// The stream yields the reader's events and ends after the end of the shard.
#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_its_shard() {
    let kinesis = service(1);
    put(&kinesis, 0..5);
    kinesis.split(STREAM, SHARD).unwrap();
    let source = source(&kinesis, PollConfig::default().max_records(2));
    let mut stream = PollStream::new(&source, OpenShard::new(shard(0), StartPosition::TrimHorizon));
    let mut heard = Heard::default();
    while let Some(event) = stream.next().await {
        heard.take(event.unwrap());
    }
    assert_eq!(heard.payloads, expected(0..5));
    assert!(
        matches!(&heard.others[..], [SourceEvent::Ended { children }] if children.len() == 2),
        "{heard:?}"
    );
    assert!(stream.is_terminated());
    assert!(stream.next().await.is_none());
}

/// The stream ends after an error.
#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_its_error() {
    let kinesis = service(1);
    let source = source(&kinesis, PollConfig::default());
    let mut stream = PollStream::new(&source, OpenShard::new(shard(5), StartPosition::TrimHorizon));
    assert!(stream.next().await.unwrap().is_err());
    assert!(stream.next().await.is_none());
}

/// S-003, S-025, S-030, S-070, S-082: every setting has the default that its documentation states.
#[test]
fn defaults_are_as_documented() {
    let PollConfig {
        min_interval,
        idle_interval,
        poll_period,
        max_records,
        total_buffer_bytes,
        attempt_timeout,
        backoff_initial,
        backoff_max,
        max_attempts,
        denied_attempts,
        degraded_after,
        latest_margin,
        ..
    } = PollConfig::default();
    assert_eq!((min_interval, idle_interval, poll_period), (200 * MS, SECOND, Duration::ZERO));
    assert_eq!((max_records, attempt_timeout), (10_000, 30 * SECOND));
    assert_eq!(total_buffer_bytes, 128 * 1024 * 1024);
    assert_eq!((backoff_initial, backoff_max), (300 * MS, 5 * SECOND));
    assert_eq!((max_attempts, denied_attempts), (None, 5));
    assert_eq!((degraded_after, latest_margin), (10 * SECOND, SECOND));
}

/// S-030, S-079: settings out of their range are refused with the name of the field, before any call.
#[tokio::test(start_paused = true)]
async fn settings_out_of_range_are_refused_by_name() {
    let good = PollConfig::default;
    let day = Duration::from_secs(86_400);
    assert_eq!(good().validate(), Ok(()));
    for fine in [
        good().min_interval(Duration::ZERO),
        good().idle_interval(Duration::ZERO),
        good().poll_period(day),
        good().max_records(1),
        good().max_records(10_000),
        good().max_attempts(Some(1)),
    ] {
        assert_eq!(fine.validate(), Ok(()));
    }
    let refused = [
        ("max_records", good().max_records(0)),
        ("max_records", good().max_records(10_001)),
        ("min_interval", good().min_interval(199 * MS)),
        ("min_interval", good().min_interval(Duration::MAX)),
        ("idle_interval", good().idle_interval(day + MS)),
        ("poll_period", good().poll_period(day + MS)),
        ("total_buffer_bytes", good().total_buffer_bytes(0)),
        ("attempt_timeout", good().attempt_timeout(Duration::ZERO)),
        ("backoff_initial", good().backoff_initial(Duration::ZERO)),
        ("backoff_max", good().backoff_max(299 * MS)),
        ("max_attempts", good().max_attempts(Some(0))),
        ("denied_attempts", good().denied_attempts(0)),
        ("degraded_after", good().degraded_after(Duration::MAX)),
        ("latest_margin", good().latest_margin(Duration::MAX)),
    ];
    let kinesis = service(1);
    for (field, config) in refused {
        let error = PollSource::new(kinesis.client(), config).unwrap_err();
        assert_eq!(error.field(), field);
        assert!(error.to_string().contains(&format!("`{field}`")), "{error}");
    }
    assert!(kinesis.calls_log().is_empty());
}

/// S-206: debug output shows neither credentials nor payloads.
#[tokio::test(start_paused = true)]
async fn debug_output_shows_no_secret() {
    let kinesis = service(1);
    let source = source(&kinesis, PollConfig::default());
    let reader = source.reader(OpenShard::new(shard(0), StartPosition::TrimHorizon));
    let text = format!("{source:?} {reader:?}");
    assert!(!text.contains("no-secret") && !text.contains("TESTKIT"), "{text}");
    assert!(text.contains("PollSource") && text.contains(SHARD), "{text}");
}

/// S-030: the settings are read from a file with human durations; unknown and malformed fields are refused.
#[cfg(feature = "serde")]
#[test]
fn settings_are_read_from_a_file() {
    let text = r#"{ "min_interval": "400ms", "poll_period": "2s", "max_records": 500, "max_attempts": 8 }"#;
    let config: PollConfig = serde_json::from_str(text).unwrap();
    let expected = PollConfig::default()
        .min_interval(400 * MS)
        .poll_period(2 * SECOND)
        .max_records(500)
        .max_attempts(Some(8));
    assert_eq!(config, expected);
    let written = serde_json::to_string(&config).unwrap();
    assert_eq!(serde_json::from_str::<PollConfig>(&written).unwrap(), config);
    for bad in [r#"{ "pol_period": "2s" }"#, r#"{ "poll_period": "-2s" }"#, r#"{ "max_records": -1 }"#] {
        assert!(serde_json::from_str::<PollConfig>(bad).is_err(), "{bad}");
    }
}
