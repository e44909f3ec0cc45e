//! Reading ahead while the caller works, and where it stops.

use std::time::Duration;

use crate::support::*;
use bytes::Bytes;
use kinesis_core::StartPosition;
use kinesis_core::source::{OpenShard, ShardReader, ShardSource, SourceEvent};
use kinesis_poll::PollConfig;
use kinesis_testkit::{Fault, Operation, Rule, TestKinesis};

const KIB: usize = 1024;

/// What a record counts besides its payload.
const RECORD: usize = 256;

fn open(number: usize) -> OpenShard {
    OpenShard::new(shard(number), StartPosition::TrimHorizon)
}

/// A stream whose shards have this many records of 100 KiB each.
fn filled(shards: usize, records: usize) -> TestKinesis {
    let kinesis = TestKinesis::builder().without(Rule::WriteByteRate).without(Rule::ReadByteRate).build();
    kinesis.create_stream(STREAM, shards).unwrap();
    let payload = Bytes::from(vec![b'x'; 100 * KIB]);
    for shard in 0..shards {
        let key = u128::MAX / shards as u128 * shard as u128 + shards as u128;
        for _ in 0..records {
            kinesis.put_at(STREAM, key, "key", payload.clone()).unwrap();
        }
    }
    kinesis
}

/// R-02, F-38: opening requests nothing; then the next page is fetched while the caller works, and nothing further once
/// it waits to be taken.
#[tokio::test(start_paused = true)]
async fn at_the_tip_one_page_is_read_ahead() {
    let kinesis = service(1);
    put(&kinesis, 0..3);
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon, PollConfig::default());
    tokio::time::sleep(60 * SECOND).await;
    assert!(kinesis.calls_log().is_empty(), "opening connects to nothing");
    read(&mut reader, 3).await;
    put(&kinesis, 3..5);
    tokio::time::sleep(600 * SECOND).await;
    assert_eq!(kinesis.calls(Operation::GetRecords), 2);
    // It is there at once.
    let event = tokio::time::timeout(Duration::ZERO, reader.next()).await.unwrap().unwrap();
    assert!(matches!(event, SourceEvent::Records(batch) if batch.records.len() == 2));
}

/// R-02, F-38: while reading is behind, pages are read ahead until `buffer_bytes` are held; taking one makes room.
#[tokio::test(start_paused = true)]
async fn pages_are_read_ahead_until_the_buffer_is_full() {
    let kinesis = filled(1, 40);
    let source = source(&kinesis, PollConfig::default().max_records(2));
    let page = 2 * (100 * KIB + RECORD);
    let mut reader = source.reader(open(0).buffer_bytes(3 * page + page / 2));
    reader.next().await.unwrap();
    tokio::time::sleep(600 * SECOND).await;
    assert_eq!(kinesis.calls(Operation::GetRecords), 4, "one was taken, three are held");
    reader.next().await.unwrap();
    tokio::time::sleep(600 * SECOND).await;
    assert_eq!(kinesis.calls(Operation::GetRecords), 5);
    // What waited for ten minutes, longer than an iterator lives, goes on without loss.
    let heard = read(&mut reader, 36).await;
    assert_eq!(heard.payloads.len(), 36);
    assert!(!kinesis.calls_log().iter().any(is_refused));
}

/// With a buffer of 0 nothing is read before it is asked for.
#[tokio::test(start_paused = true)]
async fn without_a_buffer_each_page_is_asked_for() {
    let kinesis = service(1);
    put(&kinesis, 0..100);
    let source = source(&kinesis, PollConfig::default().max_records(10));
    let mut reader = source.reader(open(0).buffer_bytes(0));
    for calls in 1..=10 {
        read(&mut reader, 10).await;
        tokio::time::sleep(60 * SECOND).await;
        assert_eq!(kinesis.calls(Operation::GetRecords), calls);
    }
}

/// A page that is larger than the buffer, and than the budget of all readers, is read alone.
#[tokio::test(start_paused = true)]
async fn a_page_larger_than_every_budget_is_read() {
    let kinesis = filled(3, 30);
    let source = source(&kinesis, PollConfig::default().total_buffer_bytes(1).max_records(10));
    let read_all = |number: usize| {
        let mut reader = source.reader(open(number).buffer_bytes(1));
        async move { read(&mut reader, 30).await.payloads.len() }
    };
    let all = async { tokio::join!(read_all(0), read_all(1), read_all(2)) };
    let read = tokio::time::timeout(60 * SECOND, all).await.unwrap();
    assert_eq!(read, (30, 30, 30));
}

/// F-38: shards that begin far behind find full pages at once. Before the first one a reader does not know that, and
/// counts with the largest page: what is read and under way keeps within the budget, and one page on demand beyond it.
#[tokio::test(start_paused = true)]
async fn full_first_pages_of_many_shards_keep_within_the_budget() {
    const SHARDS: usize = 8;
    const RECORDS: usize = 10;
    const BYTES: usize = KIB * KIB - 16;
    /// The largest page that there is, and those of this test.
    const MOST: usize = 10 * KIB * KIB + 10_000 * RECORD;
    const PAGE: usize = RECORDS * (BYTES + RECORD);
    let builder = TestKinesis::builder().without(Rule::WriteByteRate).without(Rule::ReadByteRate);
    let kinesis = builder.build();
    kinesis.create_stream(STREAM, SHARDS).unwrap();
    let payload = Bytes::from(vec![b'x'; BYTES]);
    for view in kinesis.shards(STREAM).unwrap() {
        for _ in 0..RECORDS {
            kinesis.put_at(STREAM, view.starting_hash_key, "key", payload.clone()).unwrap();
        }
    }
    kinesis.faults().on(Operation::GetRecords).always().inject(Fault::LateReply(300 * MS));
    let budget = 2 * MOST;
    let source = source(&kinesis, PollConfig::default().total_buffer_bytes(budget as u64));
    let mut readers: Vec<_> = (0..SHARDS).map(|number| source.reader(open(number))).collect();
    // All callers ask, and then none takes anything.
    for reader in &mut readers {
        assert!(tokio::time::timeout(Duration::ZERO, reader.next()).await.is_err());
    }
    tokio::time::sleep(100 * MS).await;
    assert_eq!(kinesis.calls(Operation::GetRecords), 2 + 1, "two fit, and one is on demand");
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(kinesis.calls(Operation::GetRecords), 2 + 1);
    let mut taken = 0;
    for reader in &mut readers {
        let mut records = 0;
        while records < RECORDS {
            if let SourceEvent::Records(batch) = reader.next().await.unwrap() {
                records += batch.records.len();
            }
            // A page counts from when it was asked for; what was read at the tip behind it has no records.
            let asked = kinesis.calls_of(Operation::GetRecords);
            let firsts: std::collections::BTreeSet<_> = asked.iter().map(|call| call.shard.clone()).collect();
            let held = firsts.len() * PAGE - taken;
            assert!(held <= budget + MOST, "{held} bytes are held");
        }
        assert_eq!(records, RECORDS);
        taken += PAGE;
    }
}

/// All readers of a source share one budget: those that read ahead stop when it is used up, whoever they are.
#[tokio::test(start_paused = true)]
async fn readers_share_one_budget() {
    let kinesis = filled(4, 40);
    let page = 2 * (100 * KIB + RECORD);
    let config = PollConfig::default().max_records(2).total_buffer_bytes(9 * page as u64);
    let source = source(&kinesis, config);
    let mut readers: Vec<_> = (0..4).map(|number| source.open(open(number))).collect();
    for event in futures_util::future::join_all(readers.iter_mut().map(|reader| reader.next())).await {
        event.unwrap();
    }
    tokio::time::sleep(600 * SECOND).await;
    let calls = kinesis.calls_of(Operation::GetRecords);
    assert_eq!(calls.len(), 4 + 9, "four pages were taken, nine are held");
    for number in 0..4 {
        let id = shard(number).shard().to_string();
        let ahead = calls.iter().filter(|call| call.shard.as_deref() == Some(&id)).count() - 1;
        assert!((1..=4).contains(&ahead), "{ahead} pages ahead of shard {number}");
    }
    // What a closed reader held is given back.
    readers.remove(0).close().await;
    tokio::time::sleep(600 * SECOND).await;
    assert!(kinesis.calls(Operation::GetRecords) > 4 + 9);
}

/// F-38: callers that take nothing any more, and hold all of the budget, keep no other reader waiting.
#[tokio::test(start_paused = true)]
async fn stuck_callers_keep_no_other_waiting() {
    let kinesis = filled(3, 20);
    let page = 2 * (100 * KIB + RECORD);
    let config = PollConfig::default().max_records(2).total_buffer_bytes(4 * page as u64);
    let source = source(&kinesis, config);
    let mut stuck: Vec<_> = (0..2).map(|number| source.open(open(number))).collect();
    for reader in &mut stuck {
        reader.next().await.unwrap();
    }
    tokio::time::sleep(60 * SECOND).await;
    let mut free = source.reader(open(2));
    let began = tokio::time::Instant::now();
    assert_eq!(read(&mut free, 20).await.payloads.len(), 20);
    assert!(began.elapsed() <= 10 * 211 * MS, "{:?}", began.elapsed());
}

/// Dropping `next` again and again while pages are read ahead loses and repeats nothing.
#[tokio::test(start_paused = true)]
async fn cancelled_calls_lose_nothing_that_was_read_ahead() {
    let kinesis = service(1);
    put(&kinesis, 0..200);
    kinesis.faults().on(Operation::GetRecords).every(5).always().inject(Fault::Throttle);
    kinesis.faults().on(Operation::GetRecords).every(3).always().inject(Fault::LateReply(130 * MS));
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon, PollConfig::default().max_records(7));
    let mut heard = Heard::default();
    let mut step = 0_u32;
    while heard.payloads.len() < 200 {
        step += 1;
        if let Ok(event) = tokio::time::timeout(step % 60 * MS, reader.next()).await {
            heard.take(event.unwrap());
        }
        tokio::time::sleep(step % 7 * 50 * MS).await;
    }
    assert_eq!(heard.payloads, expected(0..200));
}

/// While behind, pages without records are read past while the caller works; it hears of the last one only.
#[tokio::test(start_paused = true)]
async fn empty_pages_do_not_pile_up() {
    let kinesis = service(1);
    put(&kinesis, 0..4);
    let empty = Fault::EmptyPage { millis_behind: 9_000 };
    kinesis.faults().on(Operation::GetRecords).skip(1).times(50).inject(empty);
    let mut reader = reader(&kinesis, StartPosition::TrimHorizon, PollConfig::default().max_records(2));
    read(&mut reader, 2).await;
    tokio::time::sleep(60 * SECOND).await;
    assert!(matches!(reader.next().await.unwrap(), SourceEvent::Progress { .. }));
    let event = tokio::time::timeout(Duration::ZERO, reader.next()).await.unwrap().unwrap();
    assert!(matches!(event, SourceEvent::Records(batch) if batch.records.len() == 2));
}

/// Closing a reader that holds pages and has a call under way ends it at once, and nothing is requested afterwards.
#[tokio::test(start_paused = true)]
async fn closing_ends_reading_ahead() {
    let kinesis = filled(1, 40);
    kinesis
        .faults()
        .on(Operation::GetRecords)
        .skip(3)
        .always()
        .inject(Fault::Hang(Duration::from_secs(3_600)));
    for drops in [false, true] {
        kinesis.clear_calls();
        let source = source(&kinesis, PollConfig::default().max_records(1));
        let mut reader = source.open(open(0));
        reader.next().await.unwrap();
        tokio::time::sleep(5 * SECOND).await;
        if drops {
            drop(reader);
        } else {
            reader.close().await;
        }
        let calls = kinesis.calls(Operation::GetRecords);
        tokio::time::sleep(120 * SECOND).await;
        assert_eq!(kinesis.calls(Operation::GetRecords), calls);
        kinesis.faults().clear();
    }
}
