//! What goes wrong with calls and subscriptions, and what comes of it.

use std::error::Error as _;
use std::time::Duration;

use crate::support::*;
use kinesis_core::StartPosition;
use kinesis_core::source::{OpenShard, ShardReader, SourceError, SourceEvent};
use kinesis_testkit::scenarios::{Break, ERROR_FRAMES, KeyTrouble};
use kinesis_testkit::{Fault, KeyState, Operation, StreamFault, StreamPoint, TestKinesis, scenarios};

/// A service whose events hold one record each, with so many records.
fn one_by_one(count: u32) -> (TestKinesis, Vec<String>) {
    let kinesis = with_stream(TestKinesis::builder().records_per_event(1).build(), 1);
    let numbers = put(&kinesis, 0..count);
    (kinesis, numbers)
}

/// F-03: whatever kind of error frame ends a subscription, reading goes on after the last event, nothing is lost,
/// repeated or taken for the end, and it is no tight loop.
#[tokio::test(start_paused = true)]
async fn after_an_error_frame_reading_goes_on_behind_the_last_event() {
    for code in ERROR_FRAMES {
        let (kinesis, numbers) = one_by_one(6);
        scenarios::error_frame(&kinesis, STREAM, code);
        let (mut reader, recorder) = measured(&kinesis, StartPosition::TrimHorizon);
        let heard = read(&mut reader, 6).await;
        assert_eq!(heard.payloads, expected(0..6), "{code}");
        assert!(heard.others.is_empty(), "{code}: {heard:?}");
        let starts = starts(&kinesis);
        let after = ("AFTER_SEQUENCE_NUMBER".to_owned(), Some(numbers[2].clone()));
        assert!(starts[1..].iter().all(|start| *start == after), "{code}: {starts:?}");
        assert!(starts.len() <= 3, "{code}: {starts:?}");
        assert_eq!(recorder.total("efo_stream_errors_total"), 1, "{code}");
    }
}

/// F-03, S-105, S-106: error frames again and again: the delays grow as long as nothing comes between them, both
/// metrics count, and a code that nobody knows is treated like any failure.
#[tokio::test(start_paused = true)]
async fn error_frames_in_a_row_make_the_delays_grow() {
    for code in ["InternalFailureException", "KMSThrottlingException", "NobodyKnowsThisException"] {
        // Without its own rule, so that every call is accepted and only our delays space them.
        let kinesis = TestKinesis::builder().without(kinesis_testkit::Rule::SubscribeInUse).build();
        let kinesis = with_stream(kinesis, 1);
        let frame = Fault::in_stream(StreamPoint::AfterEvents(0), StreamFault::exception(code));
        kinesis.faults().on(Operation::SubscribeToShard).times(7).inject(frame);
        put(&kinesis, 0..1);
        let (mut reader, recorder) = measured(&kinesis, StartPosition::TrimHorizon);
        let heard = read(&mut reader, 1).await;
        let spacing = spacing(&kinesis);
        let ladder = [1, 2, 4, 8, 16, 30, 30];
        assert_eq!(spacing.len(), 7, "{code}");
        assert!(spacing.iter().zip(ladder).all(|(delay, of)| is_about(*delay, of)), "{code}: {spacing:?}");
        assert_eq!(counted(&recorder), (7, 7), "{code}");
        assert_eq!(heard.story(), ["degraded", "recovered"], "{code}");
    }
}

/// S-099, S-105, S-106: subscriptions that end in order without an event make the delays grow, and one event starts
/// them over; each is a reconnect, none a stream error.
#[tokio::test(start_paused = true)]
async fn subscriptions_that_bring_nothing_make_the_delays_grow_until_an_event() {
    let kinesis = TestKinesis::builder().without(kinesis_testkit::Rule::SubscribeInUse).build();
    let kinesis = with_stream(kinesis, 1);
    let end = |events| Fault::in_stream(StreamPoint::AfterEvents(events), StreamFault::End);
    let faults = kinesis.faults();
    faults.on(Operation::SubscribeToShard).times(7).inject(end(0));
    // An event, then the end in order; then none again.
    faults.on(Operation::SubscribeToShard).times(1).inject(end(1));
    faults.on(Operation::SubscribeToShard).times(2).inject(end(0));
    put(&kinesis, 0..1);
    let (mut reader, recorder) = measured(&kinesis, StartPosition::TrimHorizon);
    assert_eq!(read(&mut reader, 1).await.payloads, expected(0..1));
    put(&kinesis, 1..2);
    assert_eq!(read(&mut reader, 1).await.payloads, expected(1..2));
    let spacing = spacing(&kinesis);
    let ladder = [1, 2, 4, 8, 16, 30, 30, 1, 1, 2];
    assert!(spacing.iter().zip(ladder).all(|(delay, of)| is_about(*delay, of)), "{spacing:?}");
    assert_eq!(spacing.len(), ladder.len());
    assert_eq!(spacing[7], SECOND, "the end in order after an event waits for the service's limit alone");
    assert_eq!(counted(&recorder), (9, 0));
}

/// F-04: the transport dies inside of an event: the whole ones are delivered once, the half one when it comes again;
/// the shard has not ended.
#[tokio::test(start_paused = true)]
async fn a_transport_that_dies_inside_an_event_loses_and_repeats_nothing() {
    for how in [Break::Reset, Break::End] {
        let (kinesis, numbers) = one_by_one(5);
        scenarios::broken_event(&kinesis, STREAM, how);
        let (mut reader, recorder) = measured(&kinesis, StartPosition::TrimHorizon);
        let heard = read(&mut reader, 5).await;
        assert_eq!(heard.payloads, expected(0..5), "{how:?}");
        assert!(heard.others.is_empty(), "{how:?}: {heard:?}");
        let after = ("AFTER_SEQUENCE_NUMBER".to_owned(), Some(numbers[1].clone()));
        assert_eq!(starts(&kinesis).last(), Some(&after), "{how:?}");
        assert_eq!(recorder.total("efo_stream_errors_total"), 1, "{how:?}");
    }
}

/// A frame with a bad checksum: the SDK would go on with the event after it. The stream is dropped, so nothing is
/// missing; nor is it after an error frame that no model knows, or a connection that is cut between frames.
#[tokio::test(start_paused = true)]
async fn behind_a_broken_frame_nothing_is_read() {
    for fault in [StreamFault::CorruptChecksum, StreamFault::error("OddError"), StreamFault::Cut] {
        let (kinesis, numbers) = one_by_one(6);
        let in_stream = Fault::in_stream(StreamPoint::AfterEvents(2), fault.clone());
        kinesis.faults().next(Operation::SubscribeToShard, 1, in_stream);
        let heard = read(&mut reader(&kinesis, StartPosition::TrimHorizon), 6).await;
        assert_eq!(heard.payloads, expected(0..6), "{fault:?}");
        let after = ("AFTER_SEQUENCE_NUMBER".to_owned(), Some(numbers[1].clone()));
        assert_eq!(starts(&kinesis).last(), Some(&after), "{fault:?}");
    }
}

/// F-13: every call has a limit: one that is never answered is given up and made again, and the work goes on.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_never_answered_is_given_up() {
    for fault in [Fault::Hang(FOREVER), Fault::LateReply(FOREVER)] {
        let kinesis = service(1);
        put(&kinesis, 0..3);
        kinesis.faults().next(Operation::SubscribeToShard, 1, fault.clone());
        let (mut reader, recorder) = measured(&kinesis, StartPosition::TrimHorizon);
        assert_eq!(read(&mut reader, 3).await.payloads, expected(0..3));
        let spacing = spacing(&kinesis);
        assert!(is_about(spacing[0] - 10 * SECOND, 1), "{fault:?}: {spacing:?}");
        assert_eq!(counted(&recorder), (1, 0), "{fault:?}");
    }
}

/// F-25: many shards that are throttled together for a minute come back apart, all of them, within the longest delay.
#[tokio::test(start_paused = true)]
async fn shards_throttled_together_all_come_back_and_apart() {
    const SHARDS: usize = 120;
    let kinesis = service(SHARDS);
    for shard in kinesis.shards(STREAM).unwrap() {
        kinesis.put_at(STREAM, shard.starting_hash_key, "key", "x").unwrap();
    }
    scenarios::throttled_reads(&kinesis, STREAM, 60 * SECOND);
    let source = source(kinesis.client(), config());
    let mut readers: Vec<_> = (0..SHARDS)
        .map(|number| source.reader(OpenShard::new(shard(number), StartPosition::TrimHorizon)))
        .collect();
    let all = futures_util::future::join_all(readers.iter_mut().map(|reader| read(reader, 1)));
    let heard = tokio::time::timeout(Duration::from_secs(98), all).await.unwrap();
    assert!(heard.iter().all(|heard| heard.payloads == ["x"] && heard.story() == ["degraded", "recovered"]));
    let mut at: Vec<_> = times(&kinesis).split_off(SHARDS);
    let calls = at.len();
    at.sort_unstable();
    at.dedup();
    assert!(at.len() * 10 > calls * 9, "{} moments for {calls} calls", at.len());
}

/// S-081, R-06: a bounded run ends with the shard, the call and the number of attempts.
#[tokio::test(start_paused = true)]
async fn a_bounded_run_ends_with_the_last_attempt() {
    let kinesis = service(1);
    kinesis.faults().on(Operation::SubscribeToShard).times(2).inject(Fault::Throttle);
    kinesis.faults().on(Operation::SubscribeToShard).always().inject(Fault::InternalFailure);
    let mut reader = reader_with(&kinesis, StartPosition::TrimHorizon, config().max_attempts(Some(3)));
    let error = read_to_error(&mut reader).await;
    assert!(
        matches!(error, SourceError::Exhausted { attempts: 3, action: "SubscribeToShard", .. }),
        "{error}"
    );
    assert_eq!((error.shard(), error.is_retryable()), (&shard(0), true));
    assert_eq!(kinesis.calls(Operation::SubscribeToShard), 5, "throttled calls do not count");
}

/// F-03: denials of the key in the stream, once reading worked: subscribing goes on more and more slowly, and the fifth
/// in a row is told for what it is.
#[tokio::test(start_paused = true)]
async fn denials_in_the_stream_are_told_clearly_after_slow_tries() {
    let kinesis = TestKinesis::builder().without(kinesis_testkit::Rule::SubscribeInUse).build();
    let kinesis = with_stream(kinesis, 1);
    put(&kinesis, 0..1);
    let code = "KMSAccessDeniedException";
    let frame = |events| Fault::in_stream(StreamPoint::AfterEvents(events), StreamFault::exception(code));
    kinesis.faults().next(Operation::SubscribeToShard, 1, frame(1));
    kinesis.faults().on(Operation::SubscribeToShard).always().inject(frame(0));
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon);
    assert_eq!(read(&mut reader, 1).await.payloads, expected(0..1));
    let error = read_to_error(&mut reader).await;
    assert!(matches!(error, SourceError::AccessDenied { .. }) && error.is_retryable(), "{error}");
    assert!(error.source().unwrap().to_string().contains(code), "{error}");
    let spacing = spacing(&kinesis);
    assert_eq!(spacing.len(), 4, "{spacing:?}");
    assert!(spacing.iter().zip([1, 2, 4, 8]).all(|(delay, of)| is_about(*delay, of)), "{spacing:?}");
}

/// S-081: throttling in the stream, modelled or not, never ends a bounded run; other error frames do.
#[tokio::test(start_paused = true)]
async fn throttling_in_the_stream_does_not_count_for_a_bounded_run() {
    for (frame, ends) in [
        (StreamFault::exception("KMSThrottlingException"), false),
        (StreamFault::error("ThrottlingException"), false),
        (StreamFault::exception("InternalFailureException"), true),
        (StreamFault::error("InternalFailure"), true),
    ] {
        let kinesis = TestKinesis::builder().without(kinesis_testkit::Rule::SubscribeInUse).build();
        let kinesis = with_stream(kinesis, 1);
        put(&kinesis, 0..1);
        let fault = Fault::in_stream(StreamPoint::AfterEvents(0), frame.clone());
        kinesis.faults().on(Operation::SubscribeToShard).times(5).inject(fault);
        let mut reader = reader_with(&kinesis, StartPosition::TrimHorizon, config().max_attempts(Some(2)));
        if ends {
            let error = read_to_error(&mut reader).await;
            assert!(matches!(error, SourceError::Exhausted { attempts: 2, .. }), "{frame:?}: {error}");
        } else {
            assert_eq!(read(&mut reader, 1).await.payloads, expected(0..1), "{frame:?}");
            assert_eq!(kinesis.calls(Operation::SubscribeToShard), 6, "{frame:?}");
        }
    }
}

/// what is wrong from the beginning is said at once, with the name of the permission; what passes is waited
/// for.
#[tokio::test(start_paused = true)]
async fn the_first_subscription_tells_mistakes_from_what_passes() {
    let subscribe = Operation::SubscribeToShard;
    let kinesis = service(1);
    kinesis.faults().on(subscribe).always().inject(Fault::AccessDenied);
    let error = reader(&kinesis, StartPosition::TrimHorizon).next().await.unwrap_err();
    assert!(matches!(error, SourceError::AccessDenied { .. }), "{error}");
    assert!(error.to_string().contains("kinesis:SubscribeToShard"), "{error}");
    assert_eq!(kinesis.calls(subscribe), 1);

    let kinesis = service(1);
    let source = source(kinesis.client(), config());
    let error = source.reader(OpenShard::new(shard(9), StartPosition::TrimHorizon)).next().await.unwrap_err();
    assert!(matches!(error, SourceError::NotFound { action: "SubscribeToShard", .. }), "{error}");
    assert!(!error.is_retryable());
    assert_eq!(kinesis.calls(subscribe), 2, "asked twice: it might have been the consumer that was gone");

    let passing = [
        Fault::Throttle,
        Fault::InternalFailure,
        Fault::Disconnect,
        Fault::DropReply,
        Fault::error("ResourceInUseException"),
        Fault::error("SomethingNewException"),
    ];
    for fault in passing {
        let kinesis = service(1);
        put(&kinesis, 0..1);
        kinesis.faults().next(subscribe, 3, fault.clone());
        let heard = read(&mut reader(&kinesis, StartPosition::TrimHorizon), 1).await;
        assert_eq!(heard.payloads, expected(0..1), "{fault:?}");
    }
}

/// F-26: a throttled key is throttling.
#[tokio::test(start_paused = true)]
async fn a_throttled_key_is_throttling() {
    let kinesis = service(1);
    put(&kinesis, 0..9);
    scenarios::key_trouble(&kinesis, STREAM, KeyTrouble::Throttled, 600 * SECOND).unwrap();
    let end = Fault::in_stream(StreamPoint::AfterTime(10 * SECOND), StreamFault::End);
    kinesis.faults().on(Operation::SubscribeToShard).always().inject(end);
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon);
    let heard = read_for(&mut reader, 100 * SECOND).await;
    assert_eq!((heard.payloads.len(), heard.others.len()), (9, 0));
    assert!(refused(&kinesis) >= 2);
}

/// F-26: access that is denied for two minutes once reading worked: few calls, an error that a caller sees, and
/// recovery without a restart of anything but the reader.
#[tokio::test(start_paused = true)]
async fn denied_access_is_told_after_few_calls() {
    let kinesis = service(1);
    put(&kinesis, 0..1);
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon);
    read(&mut reader, 1).await;
    kinesis.set_key_state(STREAM, KeyState::Disabled).unwrap();
    put(&kinesis, 1..2);
    let error = read_to_error(&mut reader).await;
    assert!(matches!(error, SourceError::AccessDenied { .. }) && error.is_retryable(), "{error}");
    assert!(error.source().unwrap().to_string().contains("KMSDisabledException"), "{error}");
    assert_eq!(kinesis.calls(Operation::SubscribeToShard), 5, "the subscription and four calls");
    let last = subscribes(&kinesis).last().unwrap().elapsed;
    assert!(last > 10 * SECOND, "{last:?}");

    // A denial that passes ends nothing.
    let kinesis = service(1);
    put(&kinesis, 0..1);
    let mut reader = self::reader(&kinesis, StartPosition::TrimHorizon);
    read(&mut reader, 1).await;
    kinesis.set_key_state(STREAM, KeyState::Disabled).unwrap();
    let key = async {
        tokio::time::sleep(10 * SECOND).await;
        kinesis.set_key_state(STREAM, KeyState::Enabled).unwrap();
        put(&kinesis, 1..2);
    };
    let (heard, ()) = tokio::join!(read(&mut reader, 1), key);
    assert_eq!(heard.payloads, expected(1..2));
}

/// F-02: a first frame that never comes to one shard of four does not keep the others waiting, and closing its reader
/// does not wait for it.
#[tokio::test(start_paused = true)]
async fn a_first_frame_that_never_comes_holds_up_nobody_else() {
    let kinesis = service(4);
    let views = kinesis.shards(STREAM).unwrap();
    for view in &views {
        kinesis.put_at(STREAM, view.starting_hash_key, "key", "x").unwrap();
    }
    scenarios::no_first_frame(&kinesis, STREAM, &views[2].shard_id);
    let source = source(kinesis.client(), config());
    let open = |number| source.reader(OpenShard::new(shard(number), StartPosition::TrimHorizon));
    let mut readers: Vec<_> = (0..4).map(open).collect();
    let begun = tokio::time::Instant::now();
    for number in [0, 1, 3] {
        assert_eq!(read(&mut readers[number], 1).await.payloads, ["x"]);
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(read(&mut readers[2], 1).await.payloads, ["x"]);
    let late = begun.elapsed() - 10 * SECOND;
    assert!(is_about(late, 1), "{late:?}");

    scenarios::no_first_frame(&kinesis, STREAM, &views[2].shard_id);
    tokio::time::sleep(10 * SECOND).await;
    Box::new(readers.remove(2)).close().await;
    let mut hung = open(2);
    assert!(tokio::time::timeout(SECOND, hung.next()).await.is_err());
    let begun = tokio::time::Instant::now();
    Box::new(hung).close().await;
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

/// A service that cannot be reached is said once, with the cause, and its return too.
#[tokio::test(start_paused = true)]
async fn an_unreachable_service_is_said_once() {
    let kinesis = service(1);
    put(&kinesis, 0..1);
    kinesis.faults().on(Operation::SubscribeToShard).always().inject(Fault::Disconnect);
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon);
    let heard = read_for(&mut reader, 300 * SECOND).await;
    let [SourceEvent::Degraded { reason }] = &heard.others[..] else { panic!("{heard:?}") };
    assert!(reason.starts_with("SubscribeToShard: "), "{reason}");
    kinesis.faults().clear();
    let heard = read(&mut reader, 1).await;
    assert_eq!((heard.payloads.clone(), heard.story()), (expected(0..1), vec!["recovered"]));
}

/// A consumer that somebody deregisters is registered anew, and reading goes on where it was; a stream that is deleted
/// ends the reader.
#[tokio::test(start_paused = true)]
async fn a_consumer_that_is_gone_is_registered_anew() {
    let kinesis = service(1);
    put(&kinesis, 0..2);
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon);
    read(&mut reader, 2).await;
    let client = kinesis.client();
    client
        .deregister_stream_consumer()
        .stream_arn(kinesis.stream_arn(STREAM))
        .consumer_name(CONSUMER)
        .send()
        .await
        .unwrap();
    tokio::time::sleep(600 * MS).await;
    put(&kinesis, 2..4);
    assert_eq!(read(&mut reader, 2).await.payloads, expected(2..4));
    assert_eq!(kinesis.calls(Operation::RegisterStreamConsumer), 1);

    kinesis.delete_stream(STREAM).unwrap();
    let error = read_to_error(&mut reader).await;
    assert!(matches!(error, SourceError::NotFound { .. }), "{error}");
}
