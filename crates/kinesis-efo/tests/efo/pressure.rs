//! A caller that is slower than the service pushes.

use std::time::Duration;

use crate::support::*;
use kinesis_core::StartPosition;
use kinesis_core::source::{OpenShard, ShardReader, SourceEvent};
use kinesis_efo::EfoReader;
use kinesis_testkit::{Operation, TestKinesis};

const KIB: usize = 1024;

fn put_sized(kinesis: &TestKinesis, count: usize, bytes: usize) {
    for n in 0..count {
        let mut data = format!("{n:08}").into_bytes();
        data.resize(bytes, b'.');
        kinesis.put(STREAM, "key", data).unwrap();
    }
}

fn bounded(kinesis: &TestKinesis, buffer_bytes: usize) -> EfoReader {
    let request = OpenShard::new(shard(0), StartPosition::TrimHorizon).buffer_bytes(buffer_bytes);
    source(kinesis.client(), config()).reader(request)
}

/// The numbers of the next records.
async fn next_numbers(reader: &mut EfoReader) -> Vec<usize> {
    loop {
        if let SourceEvent::Records(batch) = reader.next().await.unwrap() {
            let number = |data: &[u8]| std::str::from_utf8(&data[..8]).unwrap().parse().unwrap();
            return batch.records.iter().map(|record| number(&record.data)).collect();
        }
    }
}

/// S-107, F-38: with a caller that takes nothing, the buffer fills to its bound, the subscription is closed, not left
/// unread, and no call is made until there is room.
#[tokio::test(start_paused = true)]
async fn a_full_buffer_closes_the_subscription() {
    let kinesis = with_stream(TestKinesis::builder().records_per_event(10).build(), 1);
    put_sized(&kinesis, 1_000, 10 * KIB);
    let mut reader = bounded(&kinesis, 1_000 * KIB);
    let mut numbers = next_numbers(&mut reader).await;
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(kinesis.calls(Operation::SubscribeToShard), 1);
    assert_eq!(live(&kinesis), 0, "closed, not unread");
    // What was read ahead is there without any call, and is no more than the bound and one event.
    let mut held = 0;
    while let Ok(more) = tokio::time::timeout(Duration::ZERO, next_numbers(&mut reader)).await {
        let ahead = kinesis.calls(Operation::SubscribeToShard) == 1;
        held += if ahead { more.len() * 10 * KIB } else { 0 };
        numbers.extend(more);
        if !ahead {
            break;
        }
    }
    assert!((900 * KIB..=1_100 * KIB).contains(&(held + 100 * KIB)), "{held}");
    while numbers.len() < 1_000 {
        numbers.extend(next_numbers(&mut reader).await);
    }
    assert_eq!(numbers, (0..1_000).collect::<Vec<_>>());
}

/// F-38: the subscription comes back when the buffer is below half, not sooner, and five seconds after the last success
/// at the earliest, behind the last event.
#[tokio::test(start_paused = true)]
async fn below_half_it_subscribes_again() {
    let kinesis = with_stream(TestKinesis::builder().records_per_event(1).build(), 1);
    put_sized(&kinesis, 100, 10 * KIB);
    // Ten records fill it.
    let mut reader = bounded(&kinesis, 100 * KIB);
    assert_eq!(next_numbers(&mut reader).await, [0]);
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(live(&kinesis), 0);
    // The first and four more: six or seven are left, which is more than half.
    for n in 1..5 {
        assert_eq!(next_numbers(&mut reader).await, [n]);
    }
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(kinesis.calls(Operation::SubscribeToShard), 1, "not below half");
    for n in 5..8 {
        assert_eq!(next_numbers(&mut reader).await, [n]);
    }
    tokio::time::sleep(MS).await;
    assert_eq!(kinesis.calls(Operation::SubscribeToShard), 2);
    for n in 8..100 {
        assert_eq!(next_numbers(&mut reader).await, [n]);
    }
    assert!(spacing(&kinesis)[1..].iter().all(|delay| *delay >= 5 * SECOND), "{:?}", spacing(&kinesis));
    assert_eq!(refused(&kinesis), 0);
}

/// F-38: an event that is larger than the whole buffer is read when nothing else is held.
#[tokio::test(start_paused = true)]
async fn an_event_larger_than_the_buffer_is_read() {
    let kinesis = with_stream(TestKinesis::builder().records_per_event(1).build(), 1);
    put_sized(&kinesis, 4, 500 * KIB);
    let mut reader = bounded(&kinesis, 1);
    for n in 0..4 {
        assert_eq!(next_numbers(&mut reader).await, [n]);
    }
    assert_eq!(spacing(&kinesis)[..3], [5 * SECOND; 3]);
}

/// S-107: empty records count too, so that no number of them goes beyond the bound.
#[tokio::test(start_paused = true)]
async fn empty_records_are_bounded_too() {
    let kinesis = with_stream(TestKinesis::builder().records_per_event(10).build(), 1);
    for _ in 0..1_000 {
        kinesis.put(STREAM, "k", "").unwrap();
    }
    let mut reader = bounded(&kinesis, 100 * 64);
    assert!(matches!(reader.next().await.unwrap(), SourceEvent::Records(_)));
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(live(&kinesis), 0, "about a hundred fill it");
    let mut count = 10;
    while count < 1_000 {
        if let SourceEvent::Records(batch) = reader.next().await.unwrap() {
            count += batch.records.len();
        }
    }
    assert!(kinesis.calls(Operation::SubscribeToShard) > 1);
}

/// F-38: a caller that keeps up, if only just, is never cut off: a burst waits for its turn.
#[tokio::test(start_paused = true)]
async fn a_caller_that_keeps_up_keeps_its_subscription() {
    let kinesis = TestKinesis::builder().records_per_event(100).without_throughput_limits().build();
    let kinesis = with_stream(kinesis, 1);
    put_sized(&kinesis, 2_000, KIB);
    let mut reader = bounded(&kinesis, 300 * KIB);
    let mut count = 0;
    while count < 2_000 {
        count += next_numbers(&mut reader).await.len();
    }
    assert_eq!(kinesis.calls(Operation::SubscribeToShard), 1);
}

/// F-38, S-107: twenty shards at full speed, handlers that stop for ninety seconds and then work at a tenth of the
/// rate: what is held stays below the bound, at most one subscription lives per shard, and nothing is lost or repeated.
#[tokio::test(start_paused = true)]
async fn slow_handlers_under_a_fast_push_keep_within_the_bound() {
    const SHARDS: usize = 20;
    const RECORDS: u32 = 200;
    let kinesis = with_stream(TestKinesis::builder().records_per_event(20).build(), SHARDS);
    for view in kinesis.shards(STREAM).unwrap() {
        for n in 0..RECORDS {
            let mut data = format!("{n:08}").into_bytes();
            data.resize(10 * KIB, b'.');
            kinesis.put_at(STREAM, view.starting_hash_key, "key", data).unwrap();
        }
    }
    let source = source(kinesis.client(), config());
    let calls = |number: usize| {
        let name = format!("shardId-{number:012}");
        subscribes(&kinesis).iter().filter(|call| call.shard.as_ref() == Some(&name)).count()
    };
    let slow = |number: usize| {
        let calls = &calls;
        let request = OpenShard::new(shard(number), StartPosition::TrimHorizon).buffer_bytes(500 * KIB);
        let mut reader = source.reader(request);
        async move {
            let mut numbers = next_numbers(&mut reader).await;
            tokio::time::sleep(90 * SECOND).await;
            let mut held = 0;
            while let Ok(more) = tokio::time::timeout(Duration::ZERO, next_numbers(&mut reader)).await {
                // What comes with the next subscription was not held.
                held += if calls(number) == 1 { more.len() * 10 * KIB } else { 0 };
                numbers.extend(more);
            }
            // The bound, and an event of twenty records that began below it.
            assert!((500 * KIB..=700 * KIB).contains(&held), "{held} bytes of shard {number}");
            while numbers.len() < RECORDS as usize {
                let more = next_numbers(&mut reader).await;
                // 0.2 MB/s.
                tokio::time::sleep(Duration::from_millis(50 * more.len() as u64)).await;
                numbers.extend(more);
            }
            numbers
        }
    };
    let readers = futures_util::future::join_all((0..SHARDS).map(slow));
    let watch = async {
        let mut most = 0;
        loop {
            let views = kinesis.subscriptions(STREAM).unwrap();
            let mut shards: Vec<_> = views.iter().map(|view| &view.shard_id).collect();
            shards.sort();
            shards.dedup();
            assert_eq!(shards.len(), views.len(), "two subscriptions of a shard");
            most = most.max(views.len());
            tokio::time::sleep(100 * MS).await;
            assert!(most <= SHARDS);
        }
    };
    let all = tokio::select! {
        all = readers => all,
        () = watch => unreachable!("it watches for ever"),
    };
    assert!(all.iter().all(|numbers| *numbers == (0..RECORDS as usize).collect::<Vec<_>>()));
    assert_eq!(refused(&kinesis), 0);
}
