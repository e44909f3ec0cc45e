//! Where reading starts, and what becomes of a start that the service does not have any more.

use std::time::Duration;

use crate::support::*;
use kinesis_core::source::{OpenShard, ShardReader, SourceError, SourceEvent};
use kinesis_core::{SequenceNumber, ShardRef, StartPosition, Timestamp};
use kinesis_poll::PollConfig;
use kinesis_testkit::{Fault, Operation, TestKinesis};

fn at(number: &str) -> StartPosition {
    StartPosition::AtSequenceNumber { sequence: number.parse().unwrap() }
}

fn after(number: &str) -> StartPosition {
    StartPosition::AfterSequenceNumber { sequence: number.parse().unwrap() }
}

fn now(kinesis: &TestKinesis) -> Timestamp {
    kinesis.clock().now().into()
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

/// S-207: each kind of start asks for the iterator of that kind and reads from there; the default is the oldest
/// record.
#[tokio::test(start_paused = true)]
async fn every_start_position_reads_from_there() {
    let kinesis = service(1);
    let numbers = put(&kinesis, 0..2);
    tokio::time::sleep(10 * SECOND).await;
    let timestamp = now(&kinesis);
    put(&kinesis, 2..4);
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(StartPosition::default(), StartPosition::TrimHorizon);
    let starts = [
        (StartPosition::TrimHorizon, "TRIM_HORIZON", None, 0),
        (StartPosition::AtTimestamp { timestamp }, "AT_TIMESTAMP", None, 2),
        (at(&numbers[1]), "AT_SEQUENCE_NUMBER", Some(numbers[1].clone()), 1),
        (after(&numbers[1]), "AFTER_SEQUENCE_NUMBER", Some(numbers[1].clone()), 2),
        (StartPosition::Latest, "LATEST", None, 4),
    ];
    for (start, kind, number, first) in starts {
        kinesis.clear_calls();
        let mut reader = reader(&kinesis, start, PollConfig::default());
        let heard = read_for(&mut reader, SECOND / 2).await;
        assert_eq!(heard.payloads, expected(first..4), "{kind}");
        assert!(heard.others.is_empty(), "{kind}: {heard:?}");
        let [call] = &kinesis.calls_of(Operation::GetShardIterator)[..] else { panic!("{kind}: one call") };
        assert_eq!((call.iterator_type.as_deref(), &call.sequence_number), (Some(kind), &number));
        assert_eq!(call.timestamp.map(Timestamp::from), (kind == "AT_TIMESTAMP").then_some(timestamp));
        tokio::time::sleep(SECOND).await;
    }
}

/// S-068: with an ARN every call carries it; with a name none does.
#[tokio::test(start_paused = true)]
async fn every_call_carries_the_arn_where_there_is_one() {
    let kinesis = service(1);
    for (stream, by_arn) in [("arn:aws:kinesis:us-east-1:123456789012:stream/orders", true), (STREAM, false)]
    {
        kinesis.clear_calls();
        let shard = ShardRef::new(stream.parse().unwrap(), SHARD.parse().unwrap());
        let mut reader =
            source(&kinesis, PollConfig::default()).reader(OpenShard::new(shard, StartPosition::TrimHorizon));
        read_for(&mut reader, 1_500 * MS).await;
        assert_eq!(kinesis.calls_log().len(), 3);
        assert!(kinesis.calls_log().iter().all(|call| call.by_arn == by_arn));
    }
}

/// F-08: records put while the first iterator at the tip cannot be had are read.
#[tokio::test(start_paused = true)]
async fn records_put_while_the_first_call_fails_are_read() {
    let faults = [
        Fault::Throttle,
        Fault::InternalFailure,
        Fault::Disconnect,
        Fault::Hang(Duration::from_secs(3_600)),
        Fault::DropReply,
    ];
    for fault in faults {
        let kinesis = service(1);
        put(&kinesis, 0..5);
        tokio::time::sleep(10 * SECOND).await;
        kinesis.faults().next(Operation::GetShardIterator, 1, fault.clone());
        let mut reader =
            reader(&kinesis, StartPosition::Latest, PollConfig::default().attempt_timeout(5 * SECOND));
        let writer = async {
            tokio::time::sleep(50 * MS).await;
            put(&kinesis, 5..15);
        };
        let (heard, ()) = tokio::join!(read(&mut reader, 10), writer);
        assert_eq!(heard.payloads, expected(5..15), "{fault:?}");
    }
}

/// F-08: an iterator at the tip that expires before the first record skips nothing.
#[tokio::test(start_paused = true)]
async fn a_tip_whose_iterator_expires_unread_skips_nothing() {
    let kinesis = service(1);
    put(&kinesis, 0..5);
    tokio::time::sleep(10 * SECOND).await;
    let mut reader = reader(&kinesis, StartPosition::Latest, PollConfig::default());
    assert!(read_for(&mut reader, 5_500 * MS).await.payloads.is_empty());
    put(&kinesis, 5..10);
    kinesis.faults().next(Operation::GetRecords, 1, Fault::ExpireIterator);
    put(&kinesis, 10..15);
    assert_eq!(read(&mut reader, 10).await.payloads, expected(5..15));
    let kinds: Vec<_> =
        kinesis.calls_of(Operation::GetShardIterator).into_iter().map(|c| c.iterator_type.unwrap()).collect();
    assert_eq!(kinds, ["LATEST", "AT_TIMESTAMP"]);
}

/// F-08: a reader at the tip that is left alone for an hour before its first record skips nothing.
#[tokio::test(start_paused = true)]
async fn a_tip_left_alone_for_an_hour_skips_nothing() {
    let kinesis = service(1);
    let mut reader = reader(&kinesis, StartPosition::Latest, PollConfig::default());
    assert!(matches!(reader.next().await.unwrap(), SourceEvent::Progress { .. }));
    put(&kinesis, 0..3);
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(read(&mut reader, 3).await.payloads, expected(0..3));
}

/// F-09, S-083: the service starts at the oldest record by itself; the gap is reported with both ends.
#[tokio::test(start_paused = true)]
async fn an_aged_out_position_that_is_accepted_is_reported_as_a_gap() {
    let kinesis = service(1);
    let numbers = put(&kinesis, 0..110);
    kinesis.trim(STREAM, SHARD, &numbers[104]).unwrap();
    let mut reader = reader(&kinesis, at(&numbers[4]), PollConfig::default());
    let heard = read(&mut reader, 5).await;
    assert_eq!(heard.payloads, expected(105..110));
    assert_eq!(gaps(&heard), [(numbers[4].clone(), Some(numbers[105].clone()))]);
}

/// F-09, S-083: the service refuses the position; reading goes on at the oldest record with one warning, and the gap is
/// reported.
#[tokio::test(start_paused = true)]
async fn an_aged_out_position_that_is_refused_is_reported_as_a_gap() {
    let captured = Captured::start();
    for start in [at, after] {
        let kinesis = service(1);
        let numbers = put(&kinesis, 0..110);
        kinesis.trim(STREAM, SHARD, &numbers[104]).unwrap();
        kinesis.faults().next(Operation::GetShardIterator, 1, Fault::error("InvalidArgumentException"));
        let mut reader = reader(&kinesis, start(&numbers[4]), PollConfig::default());
        let heard = read(&mut reader, 5).await;
        assert_eq!(heard.payloads, expected(105..110));
        assert_eq!(gaps(&heard), [(numbers[4].clone(), Some(numbers[105].clone()))]);
        let kinds: Vec<_> = kinesis
            .calls_of(Operation::GetShardIterator)
            .into_iter()
            .map(|c| c.iterator_type.unwrap())
            .collect();
        assert_eq!(kinds[1..], ["TRIM_HORIZON"]);
        assert_eq!(times(&kinesis, Operation::GetRecords)[0], Duration::ZERO, "without a delay");
        let lines = captured.take();
        let [warning] = &lines[..] else { panic!("one line: {lines:?}") };
        assert!(
            warning.contains("WARN") && warning.contains(SHARD) && warning.contains(&numbers[4]),
            "{warning}"
        );
        assert!(warning.contains("the start position is refused; reading goes on at the oldest record"));
    }
}

/// F-09, S-084: an argument error for another reason, here the position of another shard, is not taken for one that
/// aged out.
#[tokio::test(start_paused = true)]
async fn a_position_of_another_shard_is_refused() {
    let kinesis = service(2);
    let other = kinesis.put_at(STREAM, u128::MAX, "key", "x").unwrap();
    assert_eq!(other.shard_id, "shardId-000000000001");
    let mut reader = reader(&kinesis, after(&other.sequence_number), PollConfig::default());
    let error = reader.next().await.unwrap_err();
    assert!(matches!(error, SourceError::Refused { action: "GetShardIterator", .. }), "{error}");
    assert!(!error.is_retryable());
    assert_eq!(kinesis.calls_log().len(), 1);
}

/// S-207, S-084: a start in the future is waited for; what comes before it is not read.
#[tokio::test(start_paused = true)]
async fn a_start_in_the_future_is_waited_for() {
    let kinesis = service(1);
    let timestamp = Timestamp::from_millis(now(&kinesis).as_millis() + 30_000);
    let mut reader = reader(&kinesis, StartPosition::AtTimestamp { timestamp }, PollConfig::default());
    let writer = async {
        for n in 0..60 {
            put(&kinesis, n..n + 1);
            tokio::time::sleep(SECOND).await;
        }
    };
    let (heard, ()) = tokio::join!(read(&mut reader, 30), writer);
    assert_eq!(heard.payloads, expected(30..60));
}
