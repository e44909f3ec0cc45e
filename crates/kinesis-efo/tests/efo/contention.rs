//! Several readers of one consumer and one shard: hand-overs, take-overs, the limits of the service.

use std::time::Duration;

use crate::support::*;
use kinesis_core::StartPosition;
use kinesis_core::source::{OpenShard, ShardReader, SourceEvent};
use kinesis_testkit::{Fault, Operation, StreamFault, StreamPoint, scenarios};

/// S-097: whatever ended the subscription or the call before, the next call comes a second later or more.
#[tokio::test(start_paused = true)]
async fn calls_are_a_second_apart_whatever_happened() {
    let in_stream = |fault| Fault::in_stream(StreamPoint::AfterEvents(1), fault);
    let faults = [
        in_stream(StreamFault::End),
        in_stream(StreamFault::Cut),
        in_stream(StreamFault::CutInside),
        in_stream(StreamFault::EndInside),
        in_stream(StreamFault::CorruptChecksum),
        in_stream(StreamFault::exception("ResourceInUseException")),
        in_stream(StreamFault::exception("InternalFailureException")),
        in_stream(StreamFault::error("Odd")),
        Fault::in_stream(StreamPoint::AfterEvents(0), StreamFault::End),
        Fault::error("ResourceInUseException"),
        Fault::Throttle,
        Fault::InternalFailure,
        Fault::Disconnect,
        Fault::DropReply,
    ];
    for fault in faults {
        let kinesis = service(1);
        put(&kinesis, 0..1);
        kinesis.faults().on(Operation::SubscribeToShard).always().inject(fault.clone());
        let mut reader = reader(&kinesis, StartPosition::TrimHorizon);
        let _ = read_for(&mut reader, 60 * SECOND).await;
        let spacing = spacing(&kinesis);
        assert!(spacing.len() >= 4, "{fault:?}: {spacing:?}");
        assert!(spacing.iter().all(|delay| *delay >= SECOND), "{fault:?}: {spacing:?}");
    }
}

/// S-097: a reader keeps the distance to the calls of the one before it on the same shard.
#[tokio::test(start_paused = true)]
async fn a_new_reader_keeps_the_distance_to_the_one_before() {
    let kinesis = service(1);
    put(&kinesis, 0..1);
    let source = source(kinesis.client(), config());
    for _ in 0..4 {
        let mut reader = source.reader(OpenShard::new(shard(0), StartPosition::TrimHorizon));
        assert_eq!(read(&mut reader, 1).await.payloads, expected(0..1));
        Box::new(reader).close().await;
    }
    assert_eq!(spacing(&kinesis), [5 * SECOND; 3], "after a success the service refuses for five");
    assert_eq!(refused(&kinesis), 0);
}

/// F-05: subscriptions that end a second after they were accepted, for a minute: calls stay within the limits, nothing
/// is lost, nothing is logged, and when the service behaves reading goes on within seconds.
#[tokio::test(start_paused = true)]
async fn short_subscriptions_are_followed_at_a_modest_pace() {
    let captured = Captured::start();
    let kinesis = service(1);
    scenarios::short_subscriptions(&kinesis, STREAM, 60 * SECOND);
    let (mut reader, recorder) = measured(&kinesis, StartPosition::TrimHorizon);
    let writer = async {
        for n in 0..120 {
            put(&kinesis, n..n + 1);
            tokio::time::sleep(SECOND).await;
        }
    };
    let (heard, ()) = tokio::join!(read(&mut reader, 120), writer);
    assert_eq!(heard.payloads, expected(0..120));
    let times = times(&kinesis);
    assert!(spacing(&kinesis).iter().all(|delay| *delay >= SECOND));
    let bad = times.iter().filter(|at| **at < 60 * SECOND).count();
    assert!((12..=30).contains(&bad), "{bad} calls in the bad minute");
    let last = *times.last().unwrap();
    assert!(last < 66 * SECOND, "the subscription that stays was made at {last:?}");
    assert!(recorder.total("efo_reconnects_total") >= 8, "the refused calls can be seen");
    assert_eq!(captured.lines(), Vec::<String>::new());
}

/// S-100, R-04: while another reader has the shard, subscribing stays at the service's limit without growing, is no
/// error, and is said once when it outlasts the longest delay.
#[tokio::test(start_paused = true)]
async fn a_shard_in_use_is_asked_for_at_the_floor_and_said_once() {
    let captured = Captured::start();
    let kinesis = service(1);
    put(&kinesis, 0..1);
    kinesis
        .faults()
        .on(Operation::SubscribeToShard)
        .times(110)
        .inject(Fault::error("ResourceInUseException"));
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon);
    let heard = read_for(&mut reader, 29 * SECOND).await;
    assert!(heard.others.is_empty(), "{heard:?}");
    let mut heard = read(&mut reader, 1).await;
    assert_eq!((heard.payloads.clone(), heard.story()), (expected(0..1), vec!["degraded", "recovered"]));
    let SourceEvent::Degraded { reason } = heard.others.remove(0) else { panic!("the first") };
    assert!(reason.contains("SubscribeToShard: ResourceInUseException"), "{reason}");
    let spacing = spacing(&kinesis);
    assert_eq!(spacing.len(), 110);
    assert!(spacing.iter().all(|delay| is_about(*delay, 1)), "{spacing:?}");
    assert_eq!(captured.lines(), Vec::<String>::new(), "the caller decides what is logged");
}

/// S-100, S-101: a hand-over: the new reader absorbs the refusals of the first seconds, takes over, and the old one
/// learns of it; between them nothing is lost.
#[tokio::test(start_paused = true)]
async fn a_hand_over_is_absorbed() {
    let kinesis = service(1);
    let (mut old, _) = measured(&kinesis, StartPosition::TrimHorizon);
    put(&kinesis, 0..3);
    assert_eq!(read(&mut old, 3).await.payloads, expected(0..3));
    // Another process: another source. The old one does not know yet that it lost the shard.
    let (mut new, recorder) = measured(&kinesis, StartPosition::TrimHorizon);
    let heard = read(&mut new, 3).await;
    assert_eq!((heard.payloads, heard.others.len()), (expected(0..3), 0));
    let taken_at = *times(&kinesis).last().unwrap();
    assert!(5 * SECOND <= taken_at && taken_at <= 7 * SECOND, "{taken_at:?}");
    assert!((4..=5).contains(&recorder.total("efo_reconnects_total")));
    Box::new(old).close().await;
    put(&kinesis, 3..5);
    assert_eq!(read(&mut new, 2).await.payloads, expected(3..5));
    assert_eq!(live(&kinesis), 1);
}

/// S-102: two readers that both believe that the shard is theirs take it from each other more and more rarely, although
/// each gets events in between.
#[tokio::test(start_paused = true)]
async fn two_readers_of_one_shard_damp_out() {
    let kinesis = service(1);
    let mut readers = [0, 1].map(|seed| {
        let source = source(kinesis.client(), config()).seed(seed);
        source.reader(OpenShard::new(shard(0), StartPosition::TrimHorizon))
    });
    let writer = async {
        for n in 0..600 {
            put(&kinesis, n..n + 1);
            tokio::time::sleep(SECOND).await;
        }
    };
    let [one, other] = &mut readers;
    let time = Duration::from_secs(600);
    let (one, other, ()) = tokio::join!(read_for(one, time), read_for(other, time), writer);
    assert!(one.payloads.len() > 300 && other.payloads.len() > 300);
    let times = times(&kinesis);
    let minute = |number: u64| {
        let range = 60 * number..60 * (number + 1);
        times.iter().filter(|at| range.contains(&at.as_secs())).count()
    };
    // At the floor of both it would be about 120 a minute, and a take-over every five seconds.
    assert!(minute(0) <= 40, "{}", minute(0));
    for number in 2..10 {
        assert!(minute(number) <= 12, "minute {number}: {}", minute(number));
    }
    // Each reads every record by itself, in order and once.
    for heard in [&one, &other] {
        let numbers: Vec<u32> = heard.payloads.iter().map(|text| text.parse().unwrap()).collect();
        assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]));
    }
}

/// F-03: a subscription that another reader took over is not asked for again before the service could grant it.
#[tokio::test(start_paused = true)]
async fn a_lost_subscription_is_not_asked_for_at_once() {
    let kinesis = service(1);
    put(&kinesis, 0..1);
    let (mut old, recorder) = measured(&kinesis, StartPosition::TrimHorizon);
    read(&mut old, 1).await;
    tokio::time::sleep(60 * SECOND).await;
    let (mut new, _) = measured(&kinesis, StartPosition::TrimHorizon);
    read(&mut new, 1).await;
    let lost_at = *times(&kinesis).last().unwrap();
    let _ = read_for(&mut old, 7 * SECOND).await;
    let again = *times(&kinesis).last().unwrap() - lost_at;
    assert!(is_about(again, 5), "{again:?}");
    assert_eq!(recorder.total("efo_stream_errors_total"), 1);
}
