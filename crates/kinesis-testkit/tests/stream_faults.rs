//! Scripted faults inside of event streams, as the SDK's client meets them.
#![allow(clippy::unwrap_used)] // helpers of tests may panic like tests

mod support;

use std::time::Duration;

use aws_sdk_kinesis::error::SdkError;
use aws_sdk_kinesis::types::SubscribeToShardEventStream;
use kinesis_testkit::{Fault, Operation, StreamFault, StreamPoint};
use support::efo::{FanOut, Subscribed, fan_out, from_oldest, texts};
use support::{SHARD_0, after, code};
use tokio::time::{Instant, timeout};

const MIB: usize = 1 << 20;

/// A subscription to a shard with three events to come, with a fault in its stream.
async fn faulty(at: StreamPoint, fault: StreamFault) -> (FanOut, Subscribed) {
    let fan_out = fan_out(1);
    for letter in [b'a', b'b', b'c'] {
        fan_out.kinesis.put("s", "k", vec![letter; MIB * 6 / 10]).unwrap();
    }
    fan_out.kinesis.faults().next(Operation::SubscribeToShard, 1, Fault::in_stream(at, fault));
    let stream = fan_out.subscribe(SHARD_0, from_oldest()).await.unwrap();
    (fan_out, stream)
}

/// The first letters of the records of the next event.
async fn letter(stream: &mut Subscribed) -> Option<char> {
    let event = stream.event().await?;
    Some(texts(&event).concat().chars().next().unwrap())
}

/// F-02: the headers arrive, the first frame never does.
#[tokio::test(start_paused = true)]
async fn the_first_frame_may_never_come() {
    let fan_out = fan_out(1);
    let silence = Fault::in_stream(StreamPoint::BeforeFirstFrame, StreamFault::Silence(Duration::MAX));
    fan_out.kinesis.faults().next(Operation::SubscribeToShard, 1, silence);
    let hung = timeout(Duration::from_secs(30), fan_out.subscribe(SHARD_0, from_oldest()));
    assert!(hung.await.is_err());
    assert!(fan_out.kinesis.subscriptions("s").unwrap().is_empty(), "the client gave it up");
    let subscribed = fan_out.subscribe(SHARD_0, from_oldest()).await;
    subscribed.unwrap();
}

/// F-02: neither do the headers.
#[tokio::test(start_paused = true)]
async fn the_headers_may_never_come() {
    let fan_out = fan_out(1);
    fan_out.kinesis.faults().next(Operation::SubscribeToShard, 1, Fault::LateReply(Duration::MAX));
    let hung = timeout(Duration::from_secs(30), fan_out.subscribe(SHARD_0, from_oldest()));
    assert!(hung.await.is_err());
    assert!(fan_out.kinesis.subscriptions("s").unwrap().is_empty());
    // For the service it was a success: the shard was in use.
    fan_out.kinesis.faults().next(Operation::SubscribeToShard, 1, Fault::LateReply(Duration::MAX));
    let again = timeout(Duration::from_secs(1), fan_out.subscribe(SHARD_0, from_oldest()));
    assert!(again.await.is_err());
    after(1_000).await;
    assert_eq!(code(fan_out.subscribe(SHARD_0, from_oldest()).await), "ResourceInUseException");
}

/// F-01: a subscription goes silent while its connection stays open, and may come back.
#[tokio::test(start_paused = true)]
async fn a_stream_may_go_silent() {
    let (_fan_out, mut stream) =
        faulty(StreamPoint::AfterEvents(1), StreamFault::Silence(Duration::from_secs(90))).await;
    assert_eq!(letter(&mut stream).await, Some('a'));
    let begun = Instant::now();
    assert_eq!(letter(&mut stream).await, Some('b'));
    assert_eq!(begun.elapsed(), Duration::from_secs(90));
}

#[tokio::test(start_paused = true)]
async fn a_silence_may_begin_at_a_time() {
    let (fan_out, mut stream) =
        faulty(StreamPoint::AfterTime(Duration::from_secs(7)), StreamFault::Silence(Duration::MAX)).await;
    let begun = Instant::now();
    for wanted in ['a', 'b', 'c'] {
        assert_eq!(letter(&mut stream).await, Some(wanted));
    }
    assert!(stream.event().await.unwrap().records().is_empty(), "a heartbeat");
    assert!(begun.elapsed() < Duration::from_secs(7));
    let silent = timeout(Duration::from_secs(200), stream.event()).await;
    assert!(silent.is_err());
    assert_eq!(fan_out.kinesis.subscriptions("s").unwrap().len(), 1);
}

/// F-03: error frames, modelled and not.
#[tokio::test(start_paused = true)]
async fn a_stream_may_end_with_an_exception() {
    for (name, wanted) in [
        ("InternalFailureException", "InternalFailureException"),
        ("ResourceInUseException", "ResourceInUseException"),
        ("ResourceNotFoundException", "ResourceNotFoundException"),
        ("KMSAccessDeniedException", "KMSAccessDeniedException"),
        ("KMSThrottlingException", "KMSThrottlingException"),
        ("NobodyKnowsException", "another"),
    ] {
        let (_fan_out, mut stream) = faulty(StreamPoint::AfterEvents(2), StreamFault::exception(name)).await;
        assert_eq!(letter(&mut stream).await, Some('a'));
        assert_eq!(letter(&mut stream).await, Some('b'));
        assert_eq!(stream.error().await, wanted);
        assert!(stream.receive().await.unwrap().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_may_end_with_an_error_frame() {
    let (_fan_out, mut stream) = faulty(StreamPoint::AfterEvents(1), StreamFault::error("Odd")).await;
    assert_eq!(letter(&mut stream).await, Some('a'));
    let error = stream.receive().await.unwrap_err();
    let SdkError::ResponseError(error) = error else { panic!("{error} is no response error") };
    assert!(format!("{:?}", error.raw()).contains("Odd"));
}

/// F-04: the transport dies inside of an event, with and without an error.
#[tokio::test(start_paused = true)]
async fn a_stream_may_break_inside_of_an_event() {
    let (fan_out, mut stream) = faulty(StreamPoint::AfterEvents(2), StreamFault::CutInside).await;
    assert_eq!(letter(&mut stream).await, Some('a'));
    assert_eq!(letter(&mut stream).await, Some('b'));
    assert!(matches!(stream.receive().await.unwrap_err(), SdkError::DispatchFailure(_)));
    assert!(fan_out.kinesis.subscriptions("s").unwrap().is_empty());

    let (_fan_out, mut stream) = faulty(StreamPoint::AfterEvents(2), StreamFault::EndInside).await;
    assert_eq!(letter(&mut stream).await, Some('a'));
    assert_eq!(letter(&mut stream).await, Some('b'));
    assert!(matches!(stream.receive().await.unwrap_err(), SdkError::ResponseError(_)));
}

#[tokio::test(start_paused = true)]
async fn a_stream_may_break_or_end_between_events() {
    let (_fan_out, mut stream) = faulty(StreamPoint::AfterEvents(1), StreamFault::Cut).await;
    assert_eq!(letter(&mut stream).await, Some('a'));
    assert!(matches!(stream.receive().await.unwrap_err(), SdkError::DispatchFailure(_)));

    let (_fan_out, mut stream) = faulty(StreamPoint::AfterEvents(1), StreamFault::End).await;
    assert_eq!(letter(&mut stream).await, Some('a'));
    assert_eq!(letter(&mut stream).await, None);
}

/// F-05: the stream ends so long after it began.
#[tokio::test(start_paused = true)]
async fn a_stream_may_end_after_a_second() {
    let fan_out = fan_out(1);
    let end = Fault::in_stream(StreamPoint::AfterTime(Duration::from_secs(1)), StreamFault::End);
    fan_out.kinesis.faults().on(Operation::SubscribeToShard).always().inject(end);
    let mut stream = fan_out.subscribe(SHARD_0, from_oldest()).await.unwrap();
    let begun = Instant::now();
    assert!(stream.event().await.is_none());
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn an_event_may_have_a_wrong_checksum() {
    let (_fan_out, mut stream) = faulty(StreamPoint::AfterEvents(1), StreamFault::CorruptChecksum).await;
    assert_eq!(letter(&mut stream).await, Some('a'));
    assert!(matches!(stream.receive().await.unwrap_err(), SdkError::ResponseError(_)));
    // Who reads on has lost the event in between.
    assert_eq!(letter(&mut stream).await, Some('c'));
}

#[tokio::test(start_paused = true)]
async fn an_event_may_be_of_an_unknown_type() {
    let fault = StreamFault::UnknownEvent { kind: "NewsEvent".to_owned() };
    let (_fan_out, mut stream) = faulty(StreamPoint::AfterEvents(1), fault).await;
    assert_eq!(letter(&mut stream).await, Some('a'));
    let unknown = stream.receive().await.unwrap().unwrap();
    assert!(!matches!(unknown, SubscribeToShardEventStream::SubscribeToShardEvent(_)));
    assert_eq!(letter(&mut stream).await, Some('b'));
}

#[tokio::test(start_paused = true)]
async fn frames_may_come_in_pieces_and_without_an_initial_response() {
    for fault in [StreamFault::Pieces(7_001), StreamFault::OmitInitialResponse] {
        let (_fan_out, mut stream) = faulty(StreamPoint::BeforeFirstFrame, fault).await;
        for wanted in ['a', 'b', 'c'] {
            assert_eq!(letter(&mut stream).await, Some(wanted));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn several_faults_happen_each_at_its_point() {
    let fan_out = fan_out(1);
    fan_out.kinesis.faults().next(
        Operation::SubscribeToShard,
        1,
        Fault::All(vec![
            Fault::Hang(Duration::from_secs(2)),
            Fault::in_stream(StreamPoint::AfterEvents(0), StreamFault::Silence(Duration::from_secs(3))),
            Fault::in_stream(StreamPoint::AfterEvents(1), StreamFault::exception("InternalFailureException")),
        ]),
    );
    fan_out.kinesis.put("s", "k", "a").unwrap();
    let begun = Instant::now();
    let mut stream = fan_out.subscribe(SHARD_0, from_oldest()).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_secs(2));
    assert_eq!(texts(&stream.event().await.unwrap()), ["a"]);
    assert_eq!(begun.elapsed(), Duration::from_secs(5));
    assert_eq!(stream.error().await, "InternalFailureException");
}

#[tokio::test(start_paused = true)]
async fn a_chance_hits_its_part_of_the_calls_the_same_way_each_time() {
    let hits = |seed| async move {
        let kinesis = kinesis_testkit::TestKinesis::builder().seed(seed).without_throughput_limits().build();
        kinesis.create_stream("s", 1).unwrap();
        kinesis.faults().on_any().always().chance(0.25).inject(Fault::InternalFailure);
        let client = kinesis.client();
        let mut hits = Vec::new();
        for call in 0..400 {
            let hit = if call % 2 == 0 {
                client.list_streams().send().await.is_err()
            } else {
                client.list_shards().stream_name("s").send().await.is_err()
            };
            hits.push(hit);
        }
        hits
    };
    let first = hits(3).await;
    let count = first.iter().filter(|hit| **hit).count();
    assert!((70..=130).contains(&count), "{count} of 400");
    assert_eq!(first, hits(3).await);
    assert_ne!(first, hits(4).await);
}

#[tokio::test(start_paused = true)]
async fn rules_come_from_a_text() {
    let fan_out = fan_out(1);
    let faults = fan_out.kinesis.faults();
    let count = faults.add_json(
        r#"[{"operation": "ListShards", "skip": 1, "times": 1, "fault": {"error": {"code": "Odd", "status": 503}}},
            {"operation": "SubscribeToShard", "shard": "shardId-000000000000",
             "fault": {"in-stream": {"at": {"after-events": 0}, "do": "exception", "code": "ResourceInUseException"}}}]"#,
    );
    assert_eq!(count.unwrap(), 2);
    let list = fan_out.client.list_shards().stream_name("s");
    list.clone().send().await.unwrap();
    assert_eq!(code(list.clone().send().await), "Odd");
    list.send().await.unwrap();
    let mut stream = fan_out.subscribe(SHARD_0, from_oldest()).await.unwrap();
    assert_eq!(stream.error().await, "ResourceInUseException");

    let pending = faults.pending();
    for (bad, reason) in [
        ("{}", "expected a sequence"),
        (r#"[{"fault": "no-such"}]"#, "unknown variant `no-such`"),
        (r#"[{"operation": "Nothing", "fault": "throttle"}]"#, "no operation has the name `Nothing`"),
        (r#"[{"chance": 2, "fault": "throttle"}]"#, "a chance of 2 is not between 0 and 1"),
        (r#"[{"fault": "throttle", "tmes": 1}]"#, "unknown field `tmes`"),
    ] {
        let error = faults.add_json(bad).unwrap_err().to_string();
        assert!(error.starts_with("the rules cannot be read: ") && error.contains(reason), "{error}");
    }
    assert_eq!(faults.pending(), pending);
}
