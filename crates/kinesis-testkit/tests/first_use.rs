//! The service through the official SDK's client, in process and under virtual time.
#![allow(clippy::unwrap_used)] // helpers of tests may panic like tests

use aws_sdk_kinesis::primitives::Blob;
use aws_sdk_kinesis::types::{PutRecordsRequestEntry, ShardIteratorType};
use kinesis_testkit::{Operation, TestKinesis};

#[tokio::test(start_paused = true)]
async fn what_is_put_is_read_in_order() {
    let kinesis = TestKinesis::new();
    let client = kinesis.client();
    client.create_stream().stream_name("s").shard_count(1).send().await.unwrap();
    tokio::time::sleep(kinesis_testkit::DEFAULT_DELAY).await;
    let entries = (0..10).map(|n| {
        PutRecordsRequestEntry::builder().partition_key("k").data(Blob::new(format!("r{n}"))).build().unwrap()
    });
    let put =
        client.put_records().stream_name("s").set_records(Some(entries.collect())).send().await.unwrap();
    assert_eq!(put.failed_record_count(), Some(0));

    let iterator = client
        .get_shard_iterator()
        .stream_name("s")
        .shard_id("shardId-000000000000")
        .shard_iterator_type(ShardIteratorType::TrimHorizon)
        .send()
        .await
        .unwrap();
    let page = client.get_records().set_shard_iterator(iterator.shard_iterator).send().await.unwrap();
    let read: Vec<_> = page.records().iter().map(|record| record.sequence_number().to_owned()).collect();
    let mut stored: Vec<_> =
        put.records().iter().map(|record| record.sequence_number().unwrap().to_owned()).collect();
    // The entries of one call are stored in any order.
    let third = page.records().iter().find(|record| record.sequence_number() == stored[3]).unwrap();
    assert_eq!(third.data().as_ref(), b"r3");
    stored.sort();
    assert_eq!(read, stored);
    assert_eq!(page.millis_behind_latest(), Some(0));
    assert!(page.next_shard_iterator().is_some());
    assert_eq!(kinesis.calls(Operation::GetRecords), 1);
}
