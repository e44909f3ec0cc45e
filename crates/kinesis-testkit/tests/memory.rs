//! The service does not grow without a limit, seen from the outside.
#![allow(clippy::unwrap_used)] // helpers of tests may panic like tests

mod support;

use std::time::Duration;

use aws_sdk_kinesis::primitives::Blob;
use kinesis_testkit::{Fault, Operation, Rule, TestKinesis};
use support::efo::{fan_out, from_tip};
use support::{SHARD_0, SHARD_1, after, oldest, read, with_stream};

const DAY: Duration = Duration::from_secs(86_400);

#[tokio::test(start_paused = true)]
async fn records_that_nobody_reads_age_out_of_memory() {
    let (kinesis, client) = with_stream(4);
    for n in 0..400 {
        kinesis.put("s", &n.to_string(), vec![0; 1_000]).unwrap();
    }
    let held = kinesis.stored_bytes();
    assert!(held > 400_000);
    after(86_400_000).await;
    // Any call will do: this one has nothing to do with the stream.
    client.describe_limits().send().await.unwrap();
    assert_eq!(kinesis.stored_bytes(), 0);
    assert_eq!((kinesis.record_count("s").unwrap(), kinesis.evicted_records()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn without_retention_records_stay_up_to_the_memory_limit() {
    let builder = TestKinesis::builder().without(Rule::Retention).memory_limit(100_000);
    let kinesis = builder.build();
    kinesis.create_stream("s", 2).unwrap();
    kinesis.put_at("s", u128::MAX, "k", "small").unwrap();
    kinesis.clock().advance(10 * DAY);
    for n in 0..200 {
        kinesis.put_at("s", 0, "k", format!("{n:01000}")).unwrap();
    }
    assert!(kinesis.stored_bytes() <= 100_000);
    // The oldest of the shard that holds most are gone, and readers go on with the oldest that is left.
    let kept = kinesis.records("s").unwrap();
    assert_eq!(kept.len() as u64 + kinesis.evicted_records(), 201);
    let client = kinesis.client();
    let page = read(&client, &oldest(&client, "s", SHARD_0).await).await;
    assert_eq!(page.records().len(), kept.len() - 1);
    assert_eq!(page.records().last().unwrap().data().as_ref(), format!("{:01000}", 199).as_bytes());
    assert_eq!(read(&client, &oldest(&client, "s", SHARD_1).await).await.records().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn writes_over_the_wire_keep_to_the_memory_limit() {
    let builder = TestKinesis::builder().without_throughput_limits().memory_limit(500_000);
    let kinesis = builder.build();
    kinesis.create_stream("s", 1).unwrap();
    let client = kinesis.client();
    for _ in 0..10 {
        let entries = (0..100).map(|_| support::entry("k", vec![0; 1_000])).collect();
        client.put_records().stream_name("s").set_records(Some(entries)).send().await.unwrap();
        client.put_record().stream_name("s").partition_key("k").data(Blob::new("x")).send().await.unwrap();
        assert!(kinesis.stored_bytes() <= 500_000);
    }
    assert!(kinesis.evicted_records() > 500);
}

#[tokio::test(start_paused = true)]
async fn subscriptions_and_faults_leave_nothing_behind() {
    let fan_out = fan_out(1);
    for _ in 0..200 {
        fan_out.kinesis.faults().next(Operation::ListStreams, 1, Fault::Throttle);
        assert!(fan_out.client.list_streams().send().await.is_err());
        drop(fan_out.subscribe(SHARD_0, from_tip()).await.unwrap());
        after(5_000).await;
    }
    assert_eq!(fan_out.kinesis.subscriptions("s").unwrap(), []);
    assert_eq!(fan_out.kinesis.faults().pending(), 0);
}
