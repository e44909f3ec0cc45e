//! How subscriptions and shards end in order, and how a reader does.

use std::time::Duration;

use crate::support::*;
use futures_util::StreamExt as _;
use futures_util::stream::FusedStream as _;
use kinesis_core::StartPosition;
use kinesis_core::source::{OpenShard, ShardReader, ShardSource, SourceEvent};
use kinesis_efo::EfoStream;
use kinesis_testkit::{Fault, Operation, StreamFault, StreamPoint, TestKinesis, scenarios};

/// S-094: records are pushed: one call brings all that is written while the subscription lives.
#[tokio::test(start_paused = true)]
async fn one_call_brings_what_is_written_while_it_lives() {
    let kinesis = service(1);
    let mut reader = reader(&kinesis, StartPosition::Latest);
    let writer = async {
        for n in 0..200 {
            tokio::time::sleep(SECOND).await;
            put(&kinesis, n..n + 1);
        }
    };
    let (heard, ()) = tokio::join!(read(&mut reader, 200), writer);
    assert_eq!(heard.payloads, expected(0..200));
    assert_eq!(kinesis.calls(Operation::SubscribeToShard), 1);
    assert_eq!(kinesis.calls(Operation::GetRecords), 0);
}

/// S-095, S-096, F-06: on a quiet shard the next subscription starts after the newest continuation point, at once,
/// without a word; what was written in the gap is read.
#[tokio::test(start_paused = true)]
async fn after_a_planned_end_on_a_quiet_shard_reading_goes_on_at_the_continuation() {
    let captured = Captured::start();
    let kinesis = service(1);
    let first = put(&kinesis, 0..1);
    scenarios::planned_end(&kinesis, STREAM, 21);
    let (mut reader, recorder) = measured(&kinesis, StartPosition::TrimHorizon);
    let mut continuations = Vec::new();
    let heard = tokio::time::timeout(Duration::from_secs(103), async {
        loop {
            if let SourceEvent::Progress { continuation, behind } = reader.next().await.unwrap() {
                assert_eq!(behind, Some(Duration::ZERO));
                continuations.push(continuation.unwrap().to_string());
            }
        }
    });
    assert!(heard.await.is_err());
    put(&kinesis, 1..2);
    assert_eq!(read(&mut reader, 1).await.payloads, expected(1..2));
    assert_eq!(continuations.len(), 20);
    assert!(continuations[0] > first[0]);
    assert_eq!(
        starts(&kinesis),
        [
            ("TRIM_HORIZON".to_owned(), None),
            ("AFTER_SEQUENCE_NUMBER".to_owned(), Some(continuations[19].clone())),
        ]
    );
    assert_eq!(spacing(&kinesis), [100 * SECOND], "no pause between the two");
    assert_eq!(counted(&recorder), (0, 0));
    assert_eq!(captured.lines(), Vec::<String>::new());
}

/// S-096, F-06: a hundred planned ends under full traffic: no gap, no repetition, nothing counted as a failure, nothing
/// logged.
#[tokio::test(start_paused = true)]
async fn a_hundred_planned_ends_under_traffic_lose_and_repeat_nothing() {
    let captured = Captured::start();
    let kinesis = service(1);
    let end = Fault::in_stream(StreamPoint::AfterTime(Duration::from_secs(6)), StreamFault::End);
    kinesis.faults().on(Operation::SubscribeToShard).times(100).inject(end);
    let (mut reader, recorder) = measured(&kinesis, StartPosition::TrimHorizon);
    let writer = async {
        for n in 0..6_100 {
            put(&kinesis, n..n + 1);
            tokio::time::sleep(100 * MS).await;
        }
    };
    let (heard, ()) = tokio::join!(read(&mut reader, 6_100), writer);
    assert_eq!(heard.payloads, expected(0..6_100));
    assert!(heard.others.is_empty());
    assert_eq!(kinesis.calls(Operation::SubscribeToShard), 101);
    assert_eq!(refused(&kinesis), 0);
    assert_eq!(counted(&recorder), (0, 0));
    assert_eq!(captured.lines(), Vec::<String>::new());
}

/// S-096: the service's own end after five minutes, an hour long.
#[tokio::test(start_paused = true)]
async fn the_end_after_five_minutes_is_routine() {
    let captured = Captured::start();
    let kinesis = service(1);
    let (mut reader, recorder) = measured(&kinesis, StartPosition::TrimHorizon);
    let writer = async {
        for n in 0..3_600 {
            put(&kinesis, n..n + 1);
            tokio::time::sleep(SECOND).await;
        }
    };
    let (heard, ()) = tokio::join!(read(&mut reader, 3_600), writer);
    assert_eq!(heard.payloads, expected(0..3_600));
    assert_eq!(spacing(&kinesis), [300 * SECOND; 11]);
    assert_eq!(counted(&recorder), (0, 0));
    assert_eq!(captured.lines(), Vec::<String>::new());
}

/// F-17: the last event has children and nothing to go on after: the shard is read to its end, once, and never
/// subscribed to again.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_shard_is_told_once_with_its_children() {
    let kinesis = service(1);
    put(&kinesis, 0..3);
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon);
    assert_eq!(read(&mut reader, 3).await.payloads, expected(0..3));
    put(&kinesis, 3..5);
    let children = kinesis.split(STREAM, SHARD).unwrap();
    let heard = read_to_end(&mut reader).await;
    assert_eq!(heard.payloads, expected(3..5));
    let [SourceEvent::Ended { children: told }] = &heard.others[..] else { panic!("{heard:?}") };
    assert_eq!(told.iter().map(|child| child.id.as_str()).collect::<Vec<_>>(), children);
    assert!(told.iter().all(|child| child.parents[0].as_str() == SHARD && child.hash_range.is_some()));
    assert!(reader.next().await.is_err(), "an ended reader says so");
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(kinesis.calls(Operation::SubscribeToShard), 1);
    assert_eq!(live(&kinesis), 0);
}

/// F-17: a shard that is closed already, empty or not, is read to its end too.
#[tokio::test(start_paused = true)]
async fn a_closed_shard_is_read_to_its_end() {
    for count in [0, 7] {
        let kinesis = service(1);
        let numbers = put(&kinesis, 0..count);
        kinesis.split(STREAM, SHARD).unwrap();
        let heard = read_to_end(&mut reader(&kinesis, StartPosition::TrimHorizon)).await;
        assert_eq!(heard.payloads, expected(0..count));
        let Some(last) = numbers.last() else { continue };
        tokio::time::sleep(10 * SECOND).await;
        let after = StartPosition::AfterSequenceNumber { sequence: last.parse().unwrap() };
        let heard = read_to_end(&mut reader(&kinesis, after)).await;
        assert_eq!((heard.payloads.len(), heard.story()), (0, vec!["ended"]));
    }
}

/// Closing a reader returns when nothing is open, in whatever state it is; then another one can begin.
#[tokio::test(start_paused = true)]
async fn when_close_returns_nothing_is_open() {
    let kinesis = service(1);
    let source = source(kinesis.client(), config());
    let open = || source.open(OpenShard::new(shard(0), StartPosition::TrimHorizon));
    open().close().await;
    assert!(kinesis.calls_log().is_empty(), "opening connects to nothing");

    put(&kinesis, 0..1);
    let mut reader = open();
    while !matches!(reader.next().await.unwrap(), SourceEvent::Records(_)) {}
    assert_eq!(live(&kinesis), 1);
    reader.close().await;
    assert_eq!(live(&kinesis), 0);

    // While the call hangs.
    tokio::time::sleep(10 * SECOND).await;
    kinesis.faults().next(Operation::SubscribeToShard, 1, Fault::LateReply(FOREVER));
    let mut reader = open();
    assert!(tokio::time::timeout(SECOND, reader.next()).await.is_err());
    let begun = tokio::time::Instant::now();
    reader.close().await;
    assert_eq!((begun.elapsed(), live(&kinesis)), (Duration::ZERO, 0));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(kinesis.calls(Operation::SubscribeToShard), 2, "no task is left");
}

/// A reader that is dropped leaves neither a subscription nor a task.
#[tokio::test(start_paused = true)]
async fn a_dropped_reader_leaves_nothing_behind() {
    let kinesis = service(1);
    put(&kinesis, 0..1);
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon);
    read(&mut reader, 1).await;
    drop(reader);
    tokio::task::yield_now().await;
    assert_eq!(live(&kinesis), 0);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(kinesis.calls(Operation::SubscribeToShard), 1);
}

/// The stream yields the reader's events and ends after the end of the shard, or after an error.
#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_its_shard_or_its_error() {
    let kinesis = service(1);
    put(&kinesis, 0..5);
    kinesis.split(STREAM, SHARD).unwrap();
    let source = source(kinesis.client(), config());
    let mut stream = EfoStream::new(&source, OpenShard::new(shard(0), StartPosition::TrimHorizon));
    let mut heard = Heard::default();
    while let Some(event) = stream.next().await {
        heard.take(event.unwrap());
    }
    assert_eq!((heard.payloads.clone(), heard.story()), (expected(0..5), vec!["ended"]));
    assert!(stream.is_terminated());
    assert!(stream.next().await.is_none());

    let mut stream = EfoStream::new(&source, OpenShard::new(shard(9), StartPosition::TrimHorizon));
    assert!(stream.next().await.unwrap().is_err());
    assert!(stream.next().await.is_none());
}

/// A stream that is closed has no subscription any more.
#[tokio::test(start_paused = true)]
async fn a_closed_stream_has_no_subscription() {
    let kinesis = service(1);
    put(&kinesis, 0..1);
    let source = source(kinesis.client(), config());
    let mut stream = EfoStream::new(&source, OpenShard::new(shard(0), StartPosition::TrimHorizon));
    stream.next().await.unwrap().unwrap();
    assert_eq!(live(&kinesis), 1);
    stream.close().await;
    assert_eq!(live(&kinesis), 0);
}

/// Dropping `next` at any moment loses and repeats nothing.
#[tokio::test(start_paused = true)]
async fn a_dropped_next_loses_nothing() {
    let kinesis = with_stream(TestKinesis::builder().records_per_event(3).build(), 1);
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon);
    let writer = async {
        for n in 0..300 {
            put(&kinesis, n..n + 1);
            tokio::time::sleep(11 * MS).await;
        }
    };
    let reading = async {
        let (mut heard, mut dropped) = (Heard::default(), 0);
        while heard.payloads.len() < 300 {
            match tokio::time::timeout(7 * MS, reader.next()).await {
                Ok(event) => heard.take(event.unwrap()),
                Err(_) => dropped += 1,
            }
        }
        (heard, dropped)
    };
    let ((heard, dropped), ()) = tokio::join!(reading, writer);
    assert_eq!(heard.payloads, expected(0..300));
    assert!(dropped > 100, "{dropped}");
    assert_eq!(kinesis.calls(Operation::SubscribeToShard), 1);
}
