//! Iterators that follow each other, expire and end.

use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use kinesis_core::StartPosition;
use kinesis_core::metrics::{Labels, Recorder};
use kinesis_core::source::{OpenShard, ShardReader, SourceEvent};
use kinesis_poll::PollConfig;
use kinesis_testkit::{Fault, Operation};

/// The iterator requests of the log: type and starting number.
fn iterators(kinesis: &kinesis_testkit::TestKinesis) -> Vec<(String, Option<String>)> {
    let calls = kinesis.calls_of(Operation::GetShardIterator);
    calls.into_iter().map(|call| (call.iterator_type.unwrap(), call.sequence_number)).collect()
}

/// S-068, F-17: one iterator, then each next one until the shard ends, with its children; then nothing.
#[tokio::test(start_paused = true)]
async fn reading_follows_the_next_iterator_to_the_end_of_the_shard() {
    let kinesis = service(1);
    put(&kinesis, 0..7);
    let children = kinesis.split(STREAM, SHARD).unwrap();
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon, PollConfig::default().max_records(3));
    let heard = read(&mut reader, 7).await;
    assert_eq!(heard.payloads, expected(0..7));
    let SourceEvent::Ended { children: found } = reader.next().await.unwrap() else { panic!("not the end") };
    assert_eq!(found.iter().map(|child| child.id.to_string()).collect::<Vec<_>>(), children);
    assert!(
        found.iter().all(|child| child.parents == [SHARD.parse().unwrap()] && child.hash_range.is_some())
    );
    assert_eq!((kinesis.calls(Operation::GetShardIterator), kinesis.calls(Operation::GetRecords)), (1, 3));
    // Asking again is a mistake, and no call.
    assert!(reader.next().await.is_err());
    assert_eq!(kinesis.calls(Operation::GetRecords), 3);
}

/// S-068: two merged shards end with the same child.
#[tokio::test(start_paused = true)]
async fn both_parents_of_a_merge_end_with_their_child() {
    let kinesis = service(2);
    let child = kinesis.merge(STREAM, SHARD, "shardId-000000000001").unwrap();
    for number in 0..2 {
        let source = source(&kinesis, PollConfig::default());
        let mut reader = source.reader(OpenShard::new(shard(number), StartPosition::TrimHorizon));
        let SourceEvent::Ended { children } = reader.next().await.unwrap() else { panic!("not the end") };
        let [found] = &children[..] else { panic!("one child: {children:?}") };
        assert_eq!((found.id.as_str(), found.parents.len()), (child.as_str(), 2));
    }
}

/// S-069, S-086, F-14: an expired iterator is replaced by one after the last record read, counted once and not as a
/// failure, even if asking for the new one fails at first.
#[tokio::test(start_paused = true)]
async fn an_expired_iterator_is_replaced_after_the_last_record_read() {
    let kinesis = service(1);
    let numbers = put(&kinesis, 0..6);
    let recorder = Recorder::new();
    let config = PollConfig::default().max_records(3);
    let source = source(&kinesis, config).metrics(Arc::new(recorder.clone()));
    let mut reader = source.reader(OpenShard::new(shard(0), StartPosition::TrimHorizon));
    let first = read(&mut reader, 3).await;
    kinesis.faults().next(Operation::GetRecords, 1, Fault::ExpireIterator);
    kinesis.faults().next(Operation::GetShardIterator, 2, Fault::Throttle);
    let second = read(&mut reader, 3).await;
    assert_eq!((first.payloads, second.payloads), (expected(0..3), expected(3..6)));
    assert!(second.others.is_empty(), "{:?}", second.others);
    let after = ("AFTER_SEQUENCE_NUMBER".to_owned(), Some(numbers[2].clone()));
    assert_eq!(iterators(&kinesis)[1..], [after.clone(), after.clone(), after]);
    assert_eq!(recorder.total("iterator_refreshes_total"), 1);
    assert_eq!(recorder.total("fetch_errors_total"), 0);
}

/// F-14: three times in a row the handlers of two shards take longer than an iterator lives.
#[tokio::test(start_paused = true)]
async fn handlers_slower_than_an_iterator_lives_lose_and_repeat_nothing() {
    let kinesis = service(2);
    for n in 0..12 {
        kinesis.put_at(STREAM, 0, "key", n.to_string()).unwrap();
        kinesis.put_at(STREAM, u128::MAX, "key", n.to_string()).unwrap();
    }
    let source = source(&kinesis, PollConfig::default().max_records(3));
    let slow = |number: usize| {
        // Nothing is read ahead, so that each read comes late.
        let request = OpenShard::new(shard(number), StartPosition::TrimHorizon).buffer_bytes(0);
        let mut reader = source.reader(request);
        async move {
            let mut all = Vec::new();
            for _ in 0..4 {
                all.extend(read(&mut reader, 3).await.payloads);
                tokio::time::sleep(Duration::from_secs(600)).await;
            }
            all
        }
    };
    let (one, other) = tokio::join!(slow(0), slow(1));
    assert_eq!((one, other), (expected(0..12), expected(0..12)));
    assert_eq!(kinesis.calls(Operation::GetShardIterator), 8);
    assert!(!kinesis.calls_log().iter().any(is_refused), "no read with an iterator known to be too old");
}

/// F-14, S-069: iterators that die early, again and again, lose and repeat nothing.
#[tokio::test(start_paused = true)]
async fn every_second_iterator_may_die_early() {
    let kinesis = service(1);
    put(&kinesis, 0..40);
    kinesis.faults().on(Operation::GetRecords).every(2).always().inject(Fault::ExpireIterator);
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon, PollConfig::default().max_records(2));
    let heard = read(&mut reader, 40).await;
    assert_eq!(heard.payloads, expected(0..40));
    assert!(spacing(&kinesis).iter().all(is_full_rate), "each is replaced at once");
}

/// a poll period of six minutes, longer than an iterator lives, reads every six minutes.
#[tokio::test(start_paused = true)]
async fn a_period_longer_than_an_iterator_lives_works() {
    let kinesis = service(1);
    put(&kinesis, 0..12);
    let period = Duration::from_secs(360);
    let config = PollConfig::default().poll_period(period).max_records(3);
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon, config);
    let heard = read(&mut reader, 12).await;
    assert_eq!(heard.payloads, expected(0..12));
    assert_eq!(spacing(&kinesis), [period; 3]);
    assert!(!kinesis.calls_log().iter().any(is_refused));
}

/// S-086: polls without records are counted, with stream and shard as labels.
#[tokio::test(start_paused = true)]
async fn empty_polls_failures_and_durations_are_measured() {
    let kinesis = service(1);
    let recorder = Recorder::new();
    let source = source(&kinesis, PollConfig::default()).metrics(Arc::new(recorder.clone()));
    let mut reader = source.reader(OpenShard::new(shard(0), StartPosition::TrimHorizon));
    read_for(&mut reader, 2_500 * MS).await;
    put(&kinesis, 0..1);
    kinesis.faults().next(Operation::GetRecords, 2, Fault::Throttle);
    kinesis.faults().next(Operation::GetRecords, 1, Fault::LateReply(123 * MS));
    read(&mut reader, 1).await;
    assert_eq!(recorder.total("empty_polls_total"), 3);
    assert_eq!(recorder.total("fetch_errors_total"), 2);
    let [(labels, sample)] = &recorder.samples_of("fetch_duration_ms")[..] else { panic!("one series") };
    assert_eq!(*labels, Labels::stream(STREAM.parse().unwrap()).shard(SHARD.parse().unwrap()));
    assert_eq!(sample.last, Some(123.0));

    let recorder = Recorder::new();
    let source = source.metrics(Arc::new(recorder.clone())).without_shard_label();
    drop(source.reader(OpenShard::new(shard(0), StartPosition::TrimHorizon)));
    assert_eq!(recorder.samples_of("empty_polls_total")[0].0, Labels::stream(STREAM.parse().unwrap()));
}
