//! Enhanced fan-out with a fall-back to polling.

use std::time::Duration;

use kinesis_consumer::efo::{EfoConfig, EfoSource};
use kinesis_consumer::poll::{PollConfig, PollSource};
use kinesis_consumer::{FallbackConfig, FallbackSource, ReadMode};
use kinesis_core::source::{OpenShard, ShardReader, ShardSource, SourceError, SourceEvent};
use kinesis_core::{ShardRef, StartPosition};
use kinesis_testkit::{Builder, Fault, Operation, TestKinesis};
use tokio::time::Instant;

use crate::common::{Journal, STREAM, World, eventually, stop};
use crate::quiet::Captured;

const SHARD: &str = "shardId-000000000000";
const SECOND: Duration = Duration::from_secs(1);

fn service(builder: Builder) -> TestKinesis {
    let kinesis = builder.build();
    kinesis.create_stream(STREAM, 1).unwrap();
    kinesis
}

fn source(kinesis: &TestKinesis) -> FallbackSource {
    let client = kinesis.client();
    let efo = EfoSource::new(&client, EfoConfig::new("billing")).unwrap().seed(1);
    let poll = PollSource::new(&client, PollConfig::default()).unwrap().seed(1);
    let config = FallbackConfig::default().retry_interval(60 * SECOND);
    FallbackSource::new(&client, efo, poll, config).unwrap().seed(1)
}

fn reader(kinesis: &TestKinesis, start: StartPosition) -> Box<dyn ShardReader> {
    let shard = ShardRef::new(STREAM.parse().unwrap(), SHARD.parse().unwrap());
    source(kinesis).open(OpenShard::new(shard, start))
}

fn put(kinesis: &TestKinesis, numbers: std::ops::Range<u32>) {
    for number in numbers {
        kinesis.put(STREAM, "key", number.to_string()).unwrap();
    }
}

#[derive(Default)]
struct Heard {
    payloads: Vec<u32>,
    story: Vec<&'static str>,
}

async fn read_for(reader: &mut Box<dyn ShardReader>, time: Duration) -> Heard {
    let mut heard = Heard::default();
    let until = Instant::now() + time;
    while let Ok(event) = tokio::time::timeout_at(until, reader.next()).await {
        match event.unwrap() {
            SourceEvent::Records(batch) => {
                let number = |data: &[u8]| std::str::from_utf8(data).unwrap().parse::<u32>().unwrap();
                heard.payloads.extend(batch.records.iter().map(|record| number(&record.data)));
            }
            SourceEvent::Degraded { .. } => heard.story.push("degraded"),
            SourceEvent::Recovered => heard.story.push("recovered"),
            SourceEvent::Ended { .. } => {
                heard.story.push("ended");
                return heard;
            }
            _ => {}
        }
    }
    heard
}

fn numbers(range: std::ops::Range<u32>) -> Vec<u32> {
    range.collect()
}

/// With a consumer that can be had there is no poll at all.
#[tokio::test(start_paused = true)]
async fn a_consumer_that_can_be_had_is_used() {
    let kinesis = service(TestKinesis::builder());
    put(&kinesis, 0..3);
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon);
    let heard = read_for(&mut reader, 30 * SECOND).await;
    assert_eq!((heard.payloads, heard.story.len()), (numbers(0..3), 0));
    assert_eq!(kinesis.calls(Operation::GetShardIterator), 0);
    kinesis.split(STREAM, SHARD).unwrap();
    assert_eq!(read_for(&mut reader, SECOND).await.story, ["ended"]);
}

/// A stream that takes no further consumer is polled, said once; when a place is free, reading goes over to it where it
/// was, without a loss or a repetition.
#[tokio::test(start_paused = true)]
async fn without_a_free_slot_the_shard_is_polled_until_there_is_one() {
    let kinesis = service(TestKinesis::builder().consumer_quota(1));
    kinesis.register_consumer(STREAM, "somebody").unwrap();
    put(&kinesis, 0..3);
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon);
    let heard = read_for(&mut reader, 10 * SECOND).await;
    assert_eq!((heard.payloads, heard.story), (numbers(0..3), vec!["degraded"]));
    put(&kinesis, 3..6);
    let heard = read_for(&mut reader, 300 * SECOND).await;
    assert_eq!((heard.payloads, heard.story.len()), (numbers(3..6), 0));
    assert_eq!(kinesis.calls(Operation::SubscribeToShard), 0);

    let free = kinesis.client().deregister_stream_consumer().stream_arn(kinesis.stream_arn(STREAM));
    free.consumer_name("somebody").send().await.unwrap();
    put(&kinesis, 6..9);
    let heard = read_for(&mut reader, 150 * SECOND).await;
    assert_eq!((heard.payloads, heard.story), (numbers(6..9), vec!["recovered"]));
    assert_eq!(kinesis.calls(Operation::SubscribeToShard), 1);
    let polls = kinesis.calls(Operation::GetRecords);
    put(&kinesis, 9..12);
    assert_eq!(read_for(&mut reader, 100 * SECOND).await.payloads, numbers(9..12));
    assert_eq!(kinesis.calls(Operation::GetRecords), polls, "no poll any more");
    reader.close().await;
    assert!(kinesis.subscriptions(STREAM).unwrap().is_empty());
}

/// Whatever call is denied, the shard is polled at once, and read by subscription when the permission has come; a start at
/// the tip is one too, although the call that tells the service's time is denied.
#[tokio::test(start_paused = true)]
async fn where_fan_out_is_denied_the_shard_is_polled() {
    let operations = [
        Operation::DescribeStreamSummary,
        Operation::DescribeStreamConsumer,
        Operation::RegisterStreamConsumer,
        Operation::SubscribeToShard,
    ];
    for start in [StartPosition::TrimHorizon, StartPosition::Latest] {
        for operation in operations {
            let case = format!("{operation} from {start}");
            let kinesis = service(TestKinesis::builder());
            kinesis.faults().on(operation).always().inject(Fault::AccessDenied);
            let mut reader = reader(&kinesis, start.clone());
            let writer = async {
                tokio::time::sleep(SECOND / 2).await;
                put(&kinesis, 0..3);
            };
            let (heard, ()) = tokio::join!(read_for(&mut reader, 3 * SECOND), writer);
            assert_eq!((heard.payloads, heard.story), (numbers(0..3), vec!["degraded"]), "{case}");
            let heard = read_for(&mut reader, 300 * SECOND).await;
            assert_eq!(heard.story.len(), 0, "said once, {case}");
            kinesis.faults().clear();
            put(&kinesis, 3..6);
            let heard = read_for(&mut reader, 80 * SECOND).await;
            assert_eq!((heard.payloads, heard.story), (numbers(3..6), vec!["recovered"]), "{case}");
            assert!(kinesis.calls(operation) <= 9, "{case}: {}", kinesis.calls(operation));
        }
    }
}

/// Workers that started together do not try again together: from try to try they come further apart.
#[tokio::test(start_paused = true)]
async fn a_fleet_does_not_try_again_at_one_moment() {
    let kinesis = service(TestKinesis::builder());
    kinesis.faults().on(Operation::DescribeStreamConsumer).always().inject(Fault::AccessDenied);
    let shard = ShardRef::new(kinesis.stream_arn(STREAM).parse().unwrap(), SHARD.parse().unwrap());
    let work = |worker: u64| {
        let source = source(&kinesis).seed(worker);
        let mut reader = source.open(OpenShard::new(shard.clone(), StartPosition::TrimHorizon));
        async move { read_for(&mut reader, 80 * SECOND).await }
    };
    futures_util::future::join_all((0..20).map(work)).await;
    let calls = kinesis.calls_of(Operation::DescribeStreamConsumer);
    let tries: Vec<_> = calls.iter().map(|call| call.elapsed).collect();
    let (first, second) = tries.split_at(20);
    assert!(first[19] - first[0] < SECOND);
    assert!(second.iter().all(|at| (60 * SECOND..=76 * SECOND).contains(&(*at - first[0]))), "{second:?}");
    let most =
        second.iter().map(|at| second.iter().filter(|other| at.abs_diff(**other) < SECOND).count()).max();
    assert!(most <= Some(10), "{most:?} of 20 within a second of one: {second:?}");
}

/// While the service's time is not to be had, a start at the tip waits for it and is the tip of the beginning all the same.
#[tokio::test(start_paused = true)]
async fn a_start_at_the_tip_outlives_an_outage() {
    let kinesis = service(TestKinesis::builder());
    put(&kinesis, 0..3);
    tokio::time::sleep(10 * SECOND).await;
    kinesis.faults().on(Operation::DescribeStreamSummary).always().inject(Fault::Disconnect);
    let mut reader = reader(&kinesis, StartPosition::Latest);
    let outage = async {
        tokio::time::sleep(SECOND).await;
        put(&kinesis, 3..6);
        tokio::time::sleep(300 * SECOND).await;
        kinesis.faults().clear();
    };
    let (heard, ()) = tokio::join!(read_for(&mut reader, 320 * SECOND), outage);
    assert_eq!((heard.payloads, heard.story), (numbers(3..6), vec!["degraded", "recovered"]));
    let calls = kinesis.calls(Operation::DescribeStreamSummary);
    assert!((60..300).contains(&calls), "{calls}");
}

/// A permission that is taken away while reading.
#[tokio::test(start_paused = true)]
async fn a_permission_that_goes_away_is_a_fall_back_too() {
    let kinesis = service(TestKinesis::builder());
    put(&kinesis, 0..3);
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon);
    assert_eq!(read_for(&mut reader, 10 * SECOND).await.payloads, numbers(0..3));
    kinesis.faults().on(Operation::SubscribeToShard).always().inject(Fault::AccessDenied);
    put(&kinesis, 3..6);
    assert_eq!(read_for(&mut reader, 295 * SECOND).await.payloads, numbers(3..6));
    let writer = async {
        tokio::time::sleep(10 * SECOND).await;
        put(&kinesis, 6..9);
    };
    let (heard, ()) = tokio::join!(read_for(&mut reader, 100 * SECOND), writer);
    assert_eq!((heard.payloads, heard.story), (numbers(6..9), vec!["degraded"]));
}

/// A permission that comes and goes under traffic: each change of the way goes on behind the last record.
#[tokio::test(start_paused = true)]
async fn going_back_and_forth_under_traffic_loses_and_repeats_nothing() {
    const RECORDS: u32 = 1_000;
    let kinesis = service(TestKinesis::builder().subscription_life(50 * SECOND));
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon);
    let writer = async {
        for n in 0..RECORDS {
            put(&kinesis, n..n + 1);
            tokio::time::sleep(SECOND).await;
        }
    };
    let weather = async {
        for _ in 0..3 {
            tokio::time::sleep(150 * SECOND).await;
            let rule = kinesis.faults().on(Operation::SubscribeToShard).always();
            rule.during(200 * SECOND).inject(Fault::AccessDenied);
            tokio::time::sleep(200 * SECOND).await;
        }
    };
    let (heard, (), ()) = tokio::join!(read_for(&mut reader, 1_150 * SECOND), writer, weather);
    assert_eq!(heard.payloads, numbers(0..RECORDS));
    assert_eq!(heard.story, ["degraded", "recovered"].repeat(3));
}

/// F-26: where neither way is allowed, the shard is tried at growing delays, whatever the readers said before they failed,
/// and is read when a permission comes.
#[tokio::test(start_paused = true)]
async fn where_nothing_is_allowed_the_delays_grow() {
    let world = World::new(1);
    for operation in [Operation::DescribeStreamConsumer, Operation::GetShardIterator] {
        world.kinesis.faults().on(operation).always().inject(Fault::AccessDenied);
    }
    world.put(0, 10, 1);
    let journal = Journal::default();
    let consumer = world.consumer("w1").enhanced_fan_out("billing").read_mode(ReadMode::EnhancedFanOutOrPoll);
    let handle = consumer.for_each(journal.handler("w1")).build().unwrap().spawn();
    tokio::time::sleep(600 * SECOND).await;
    let calls = world.kinesis.calls(Operation::GetShardIterator);
    assert!((10..=20).contains(&calls), "{calls}");
    world.kinesis.faults().clear();
    journal.until_distinct(10).await;
    assert!(stop(&handle).await.is_clean());
}

/// A consumer that takes long to become active is not waited for: the shard is polled meanwhile.
#[tokio::test(start_paused = true)]
async fn a_slow_activation_is_bridged_by_polling() {
    let kinesis = service(TestKinesis::builder().register_consumer_delay(40 * SECOND));
    put(&kinesis, 0..3);
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon);
    let heard = read_for(&mut reader, 7 * SECOND).await;
    assert_eq!((heard.payloads, heard.story), (numbers(0..3), vec!["degraded"]));
    put(&kinesis, 3..6);
    let heard = read_for(&mut reader, 40 * SECOND).await;
    assert_eq!((heard.payloads, heard.story), (numbers(3..6), vec!["recovered"]));
    assert_eq!(kinesis.calls(Operation::RegisterStreamConsumer), 1);
}

/// A start at the tip is the tip of the beginning, whichever way reads it in the end.
#[tokio::test(start_paused = true)]
async fn a_start_at_the_tip_is_kept_across_the_change() {
    let kinesis = service(TestKinesis::builder().register_consumer_delay(40 * SECOND));
    put(&kinesis, 0..3);
    tokio::time::sleep(10 * SECOND).await;
    let mut reader = reader(&kinesis, StartPosition::Latest);
    let writer = async {
        tokio::time::sleep(SECOND).await;
        put(&kinesis, 3..6);
        tokio::time::sleep(15 * SECOND).await;
        put(&kinesis, 6..9);
        tokio::time::sleep(25 * SECOND).await;
        put(&kinesis, 9..12);
    };
    let (heard, ()) = tokio::join!(read_for(&mut reader, 60 * SECOND), writer);
    assert_eq!((heard.payloads, heard.story), (numbers(3..12), vec!["degraded", "recovered"]));
}

/// What no fall-back can help is an error at once, and then the reader has ended.
#[tokio::test(start_paused = true)]
async fn a_stream_that_does_not_exist_is_an_error() {
    let kinesis = TestKinesis::new();
    for start in [StartPosition::TrimHorizon, StartPosition::Latest] {
        let mut reader = reader(&kinesis, start);
        assert!(matches!(reader.next().await, Err(SourceError::NotFound { .. })));
        assert!(reader.next().await.is_err());
        reader.close().await;
    }
}

/// The whole consumer: it starts without a consumer, warns once, reads everything, and says when it is back.
#[tokio::test(start_paused = true)]
async fn a_consumer_starts_without_fan_out_and_gets_it_later() {
    let captured = Captured::start();
    let world = World::new(2);
    world.kinesis.faults().on(Operation::RegisterStreamConsumer).always().inject(Fault::AccessDenied);
    world.put(0, 50, 10);
    let journal = Journal::default();
    let consumer = world
        .consumer("w1")
        .enhanced_fan_out("billing")
        .read_mode(ReadMode::EnhancedFanOutOrPoll)
        .fallback(FallbackConfig::default().retry_interval(30 * SECOND));
    let handle = consumer.for_each(journal.handler("w1")).build().unwrap().spawn();
    journal.until_distinct(50).await;
    assert_eq!(captured.lines("WARN").len(), 2, "one for each shard");
    world.kinesis.faults().clear();
    eventually(|| world.kinesis.subscriptions(STREAM).unwrap().len() == 2).await;
    world.put(50, 100, 10);
    journal.until_distinct(100).await;
    assert!(stop(&handle).await.is_clean());
    assert_eq!(journal.duplicates(), 0);
    assert_eq!((captured.lines("WARN").len(), captured.lines("ERROR").len()), (2, 0));
}
