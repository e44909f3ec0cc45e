//! Aggregates while the stream is resharded.
#![allow(clippy::unwrap_used)] // helpers of tests may panic like tests

mod support;

use std::sync::Arc;
use std::time::Duration;

use kinesis_core::metrics::Recorder;
use kinesis_producer::{Aggregation, Misplaced, OutboundRecord, Producer, Receipt};
use kinesis_testkit::{Operation, TestKinesis, scenarios};
use support::aggregates::{counts, seen_by_the_kcl};
use support::*;

const FIRST: &str = "shardId-000000000000";

fn aggregating(kinesis: &TestKinesis) -> (Producer, Recorder) {
    let recorder = Recorder::new();
    let builder = builder(kinesis).aggregation(Aggregation::ByShard).metrics(Arc::new(recorder.clone()));
    (builder.build().unwrap(), recorder)
}

/// Puts `per_second` records in each of so many seconds, with keys that repeat.
async fn put_for(producer: &Producer, seconds: usize, per_second: usize, next: &mut usize) -> Vec<Receipt> {
    let mut receipts = Vec::new();
    for _ in 0..seconds * 10 {
        for _ in 0..per_second / 10 {
            let record = OutboundRecord::new(format!("key-{}", *next % 50), format!("{next}"));
            receipts.push(producer.put(record).await.unwrap());
            *next += 1;
        }
        after(100).await;
    }
    receipts
}

/// Every record has a success, and a reader that filters as the KCL does sees each; how many it sees twice.
async fn all_arrived(kinesis: &TestKinesis, receipts: Vec<Receipt>) -> usize {
    let records = receipts.len();
    for receipt in receipts {
        receipt.await.unwrap();
    }
    let seen = seen_by_the_kcl(kinesis);
    assert_eq!(seen.len(), records);
    seen.values().sum::<usize>() - records
}

/// F-35: a split under way loses nothing for a reader that drops misplaced aggregates; only what was in flight at the
/// moment of the split is sent twice, and one listing is enough.
#[tokio::test(start_paused = true)]
async fn a_split_loses_nothing_and_takes_one_listing() {
    let kinesis = service(2);
    let (producer, recorder) = aggregating(&kinesis);
    let mut next = 0;
    let mut receipts = put_for(&producer, 2, 1_000, &mut next).await;
    kinesis.split(STREAM, FIRST).unwrap();
    receipts.extend(put_for(&producer, 5, 1_000, &mut next).await);
    assert_eq!(all_arrived(&kinesis, receipts).await, 0, "the KCL drops the first copy as a whole");
    assert_eq!(kinesis.calls(Operation::ListShards), 2);
    let misplaced = recorder.total("records_misplaced_total");
    assert!((1..=100).contains(&misplaced), "{misplaced} records were sent again");
    assert_eq!(recorder.total("records_sent_total"), 7_000);
    // Three aggregates in each 100 ms at the end.
    let last = kinesis.calls_of(Operation::PutRecords).pop().unwrap();
    assert_eq!(last.entries, 3);
}

/// F-35: with lists of shards that are ten seconds late, nothing is lost, records are sent again only at the first
/// surprise, and there is no flood of calls of either kind.
#[tokio::test(start_paused = true)]
async fn late_lists_cost_neither_records_nor_calls() {
    let kinesis = scenarios::stale_shard_lists().without_throughput_limits().build();
    kinesis.create_stream(STREAM, 2).unwrap();
    after(20_000).await;
    let (producer, recorder) = aggregating(&kinesis);
    let mut next = 0;
    let mut receipts = put_for(&producer, 2, 1_000, &mut next).await;
    let before = kinesis.calls(Operation::PutRecords);
    kinesis.split(STREAM, FIRST).unwrap();
    scenarios::throttled_shard_lists(&kinesis, STREAM, Duration::from_secs(3));
    receipts.extend(put_for(&producer, 20, 1_000, &mut next).await);
    all_arrived(&kinesis, receipts).await;
    let misplaced = recorder.total("records_misplaced_total");
    assert!((1..=100).contains(&misplaced), "{misplaced} records were sent again");
    // Ten calls a second, as before, and a few.
    let calls = kinesis.calls(Operation::PutRecords) - before;
    assert!((190..=220).contains(&calls), "{calls} calls in 20 s");
    let listings = recorder.total("shard_listings_total");
    assert!((4..=10).contains(&listings), "{listings} listings");
    // By shard again.
    assert_eq!(kinesis.calls_of(Operation::PutRecords).pop().unwrap().entries, 3);
}

/// F-35: after a merge every aggregate is at home in the merged shard, so that nothing is sent again.
#[tokio::test(start_paused = true)]
async fn a_merge_sends_nothing_again() {
    let kinesis = service(2);
    let (producer, recorder) = aggregating(&kinesis);
    let mut next = 0;
    let mut receipts = put_for(&producer, 2, 1_000, &mut next).await;
    kinesis.merge(STREAM, FIRST, "shardId-000000000001").unwrap();
    receipts.extend(put_for(&producer, 2, 1_000, &mut next).await);
    assert_eq!(all_arrived(&kinesis, receipts).await, 0);
    assert_eq!(recorder.total("records_misplaced_total"), 0);
    assert_eq!(kinesis.calls(Operation::ListShards), 2);
}

/// F-35: where readers drop nothing, misplaced aggregates may count as stored: no record is sent twice.
#[tokio::test(start_paused = true)]
async fn misplaced_aggregates_are_accepted_on_request() {
    let kinesis = service(2);
    let producer =
        builder(&kinesis).aggregation(Aggregation::ByShard).misplaced(Misplaced::Accept).build().unwrap();
    let mut next = 0;
    let mut receipts = put_for(&producer, 2, 1_000, &mut next).await;
    kinesis.split(STREAM, FIRST).unwrap();
    receipts.extend(put_for(&producer, 2, 1_000, &mut next).await);
    for receipt in receipts {
        receipt.await.unwrap();
    }
    assert_eq!(counts(&kinesis).iter().sum::<usize>(), 4_000);
}

/// F-35, variant: a stream that is made anew with as many shards goes on without a listing.
#[tokio::test(start_paused = true)]
async fn a_stream_made_anew_goes_on() {
    let kinesis = service(2);
    let (producer, recorder) = aggregating(&kinesis);
    let mut next = 0;
    put_for(&producer, 2, 1_000, &mut next).await;
    producer.flush().await;
    scenarios::remade_stream(&kinesis, STREAM).unwrap();
    after(60_000).await;
    let receipts = put_for(&producer, 2, 1_000, &mut next).await;
    assert_eq!(all_arrived(&kinesis, receipts).await, 0);
    assert_eq!((recorder.total("records_misplaced_total"), kinesis.calls(Operation::ListShards)), (0, 1));
}
