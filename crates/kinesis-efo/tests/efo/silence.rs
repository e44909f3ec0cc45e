//! Subscriptions that say nothing any more.

use std::time::Duration;

use crate::support::*;
use kinesis_core::StartPosition;
use kinesis_core::source::{OpenShard, ShardReader};
use kinesis_testkit::{Fault, Operation, StreamFault, StreamPoint, TestKinesis, scenarios};

/// F-01, R-03: a subscription that goes silent with its connection open is replaced after the limit, behind its last
/// event, and counted.
#[tokio::test(start_paused = true)]
async fn a_silent_subscription_is_replaced() {
    for limit in [35, 7] {
        let kinesis = service(1);
        let numbers = put(&kinesis, 0..3);
        scenarios::silent_subscription(&kinesis, STREAM);
        let recorder = kinesis_core::metrics::Recorder::new();
        let source = source(kinesis.client(), config().silence_timeout(limit * SECOND));
        let source = source.metrics(std::sync::Arc::new(recorder.clone()));
        let mut reader = source.reader(OpenShard::new(shard(0), StartPosition::TrimHorizon));
        assert_eq!(read(&mut reader, 3).await.payloads, expected(0..3));
        put(&kinesis, 3..6);
        let heard = read(&mut reader, 3).await;
        assert_eq!(heard.payloads, expected(3..6));
        assert!(heard.others.is_empty(), "{heard:?}");
        let spacing = spacing(&kinesis);
        assert!(spacing.len() == 1 && is_about(spacing[0] - limit * SECOND, 1), "{spacing:?}");
        let after = ("AFTER_SEQUENCE_NUMBER".to_owned(), Some(numbers[2].clone()));
        assert_eq!(starts(&kinesis)[1], after);
        assert_eq!(counted(&recorder), (1, 1));
        assert_eq!(live(&kinesis), 1, "the silent one was closed");
    }
}

/// a subscription that is silent from its first event on is replaced too.
#[tokio::test(start_paused = true)]
async fn a_subscription_without_a_first_event_is_replaced() {
    let kinesis = service(1);
    put(&kinesis, 0..1);
    let silence = Fault::in_stream(StreamPoint::AfterEvents(0), StreamFault::Silence(FOREVER));
    kinesis.faults().next(Operation::SubscribeToShard, 1, silence);
    assert_eq!(read(&mut reader(&kinesis, StartPosition::TrimHorizon), 1).await.payloads, expected(0..1));
    let spacing = spacing(&kinesis);
    assert!(is_about(spacing[0] - 35 * SECOND, 1), "{spacing:?}");
}

/// events without records are signs of life: an idle shard is not silent.
#[tokio::test(start_paused = true)]
async fn an_idle_shard_is_not_silent() {
    let kinesis = with_stream(TestKinesis::builder().heartbeat_interval(34 * SECOND).build(), 1);
    let (mut reader, recorder) = measured(&kinesis, StartPosition::TrimHorizon);
    let heard = read_for(&mut reader, Duration::from_secs(290)).await;
    assert_eq!((heard.progress, kinesis.calls(Operation::SubscribeToShard)), (8, 1));
    assert_eq!(counted(&recorder), (0, 0));
}

/// F-01, R-03: a caller that is busy for longer than the limit while events come is no silence, however long it takes,
/// with room in the buffer and without.
#[tokio::test(start_paused = true)]
async fn a_busy_caller_is_no_silence() {
    for buffer in [OpenShard::DEFAULT_BUFFER_BYTES, 1] {
        let kinesis = service(1);
        put(&kinesis, 0..1);
        let recorder = kinesis_core::metrics::Recorder::new();
        let source = source(kinesis.client(), config()).metrics(std::sync::Arc::new(recorder.clone()));
        let request = OpenShard::new(shard(0), StartPosition::TrimHorizon).buffer_bytes(buffer);
        let mut reader = source.reader(request);
        for n in 0..5 {
            assert_eq!(read(&mut reader, 1).await.payloads, expected(n..n + 1));
            put(&kinesis, n + 1..n + 2);
            tokio::time::sleep(200 * SECOND).await;
        }
        assert_eq!(counted(&recorder), (0, 0), "{buffer}");
    }
}

/// a process that did not run takes nothing for silence that it could not have heard.
#[tokio::test(start_paused = true)]
async fn a_process_that_stood_still_takes_nothing_for_silence() {
    let kinesis = with_stream(TestKinesis::builder().heartbeat_interval(Duration::from_secs(200)).build(), 1);
    put(&kinesis, 0..1);
    let (mut reader, recorder) = measured(&kinesis, StartPosition::TrimHorizon);
    read(&mut reader, 1).await;
    // The clock jumps over the limit: no task runs in between.
    tokio::time::advance(Duration::from_secs(60)).await;
    put(&kinesis, 1..2);
    assert_eq!(read(&mut reader, 1).await.payloads, expected(1..2));
    assert_eq!((kinesis.calls(Operation::SubscribeToShard), counted(&recorder)), (1, (0, 0)));
    let _ = tokio::time::timeout(36 * SECOND, reader.next()).await;
    assert_eq!(counted(&recorder).1, 1, "silence after that is noticed");
}
