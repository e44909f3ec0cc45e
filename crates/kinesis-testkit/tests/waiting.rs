//! The wait-until helpers, and changes of shards at an exact position.
#![allow(clippy::unwrap_used)] // helpers of tests may panic like tests

mod support;

use std::time::Duration;

use aws_sdk_kinesis::types::ScalingType;
use kinesis_testkit::{Operation, TestKinesis};
use support::efo::{fan_out, from_oldest, from_tip, texts};
use support::{ARN, SHARD_0, SHARD_1, after, entry, with_stream};
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_wait_ends_when_its_condition_holds() {
    let (kinesis, client) = with_stream(1);
    let begun = Instant::now();
    let writer = tokio::spawn({
        let kinesis = kinesis.clone();
        async move {
            for n in 0..3 {
                after(101).await;
                kinesis.put("s", "k", n.to_string()).unwrap();
            }
        }
    });
    kinesis.wait_for_records("s", 3, MINUTE).await.unwrap();
    // It looks every five milliseconds.
    assert_eq!(begun.elapsed(), Duration::from_millis(305));
    writer.await.unwrap();

    let lister = tokio::spawn(async move { client.list_shards().stream_name("s").send().await });
    let listed = |kinesis: &TestKinesis| kinesis.calls(Operation::ListShards) == 1;
    kinesis.wait_until("a list of shards", MINUTE, listed).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_millis(305), "the call itself wakes the wait");
    lister.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_wait_gives_up_at_its_limit_and_says_for_what() {
    let (kinesis, _client) = with_stream(1);
    let begun = Instant::now();
    let error = kinesis.wait_for_records("s", 1, Duration::from_secs(3)).await.unwrap_err();
    assert_eq!(error.to_string(), "waited 3 s for 1 records of stream s");
    assert_eq!(begun.elapsed(), Duration::from_secs(3));
    let error = kinesis.wait_for_active_stream("t", Duration::ZERO).await.unwrap_err();
    assert_eq!(error.what, "stream t to be ACTIVE");
    let error = kinesis.wait_for_active_consumer("s", "app", Duration::ZERO).await.unwrap_err();
    assert_eq!(error.what, "consumer app of stream s to be ACTIVE");
    let error = kinesis.wait_for_subscriptions("s", 1, Duration::ZERO).await.unwrap_err();
    assert_eq!(error.what, "1 subscriptions to stream s");
}

#[tokio::test(start_paused = true)]
async fn streams_consumers_and_subscriptions_are_waited_for() {
    let kinesis = TestKinesis::new();
    let client = kinesis.client();
    let begun = Instant::now();
    client.create_stream().stream_name("s").shard_count(2).send().await.unwrap();
    kinesis.wait_for_active_stream("s", MINUTE).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_millis(500));
    client.register_stream_consumer().stream_arn(ARN).consumer_name("app").send().await.unwrap();
    kinesis.wait_for_active_consumer("s", "app", MINUTE).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_millis(1_000));

    let scale = client.update_shard_count().stream_name("s").scaling_type(ScalingType::UniformScaling);
    scale.target_shard_count(4).send().await.unwrap();
    kinesis.wait_for_active_stream("s", MINUTE).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_millis(1_500));

    client.delete_stream().stream_name("s").send().await.unwrap();
    kinesis.wait_for_no_stream("s", MINUTE).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_millis(2_000));

    let fan_out = fan_out(2);
    let first = fan_out.subscribe(SHARD_0, from_tip()).await.unwrap();
    let _second = fan_out.subscribe(SHARD_1, from_tip()).await.unwrap();
    fan_out.kinesis.wait_for_subscriptions("s", 2, Duration::ZERO).await.unwrap();
    tokio::spawn(async move {
        after(698).await;
        drop(first);
    });
    let begun = Instant::now();
    fan_out.kinesis.wait_for_subscriptions("s", 1, MINUTE).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::from_millis(700));
}

#[tokio::test(start_paused = true)]
async fn a_shard_splits_at_an_exact_position() {
    let fan_out = fan_out(1);
    let kinesis = &fan_out.kinesis;
    kinesis.put("s", "k", "before").unwrap();
    kinesis.split_after("s", SHARD_0, 3).unwrap();
    let mut stream = fan_out.subscribe(SHARD_0, from_oldest()).await.unwrap();
    assert_eq!(texts(&stream.event().await.unwrap()), ["before"]);
    // In the middle of a call, in whatever order the service stores its entries.
    let entries = (0..5).map(|n| entry("k", n.to_string())).collect();
    let put = fan_out.client.put_records().stream_name("s").set_records(Some(entries)).send();
    let reply = put.await.unwrap();
    assert_eq!(reply.failed_record_count(), Some(0));
    let shards: Vec<_> = reply.records().iter().map(|result| result.shard_id().unwrap()).collect();
    assert_eq!(shards.iter().filter(|shard| **shard == SHARD_0).count(), 3);
    let end = stream.event().await.unwrap();
    assert_eq!((end.records().len(), end.child_shards().len()), (3, 2));
    let views = kinesis.shards("s").unwrap();
    assert_eq!(views.iter().map(|view| view.is_open()).collect::<Vec<_>>(), [false, true, true]);
    let stored = kinesis.records("s").unwrap();
    assert!(stored[3].sequence_number < *views[0].ending_sequence_number.as_ref().unwrap());
    assert!(
        stored[4].sequence_number
            > views[2].starting_sequence_number.clone().min(views[1].starting_sequence_number.clone())
    );
}

#[tokio::test(start_paused = true)]
async fn shards_merge_at_an_exact_position() {
    let (kinesis, _client) = with_stream(3);
    kinesis.merge_after("s", SHARD_1, SHARD_0, 2).unwrap();
    let middle = kinesis.shards("s").unwrap()[1].starting_hash_key;
    let shards: Vec<_> =
        (0..4).map(|n| kinesis.put_at("s", middle, "k", n.to_string()).unwrap().shard_id).collect();
    let child = "shardId-000000000003";
    assert_eq!(shards, [SHARD_1, SHARD_1, child, child]);
    assert_eq!(kinesis.shards("s").unwrap()[3].parents, [SHARD_1, SHARD_0]);
    // At once, where no record is to come.
    kinesis.split_after("s", child, 0).unwrap();
    assert_eq!(kinesis.shards("s").unwrap().len(), 6);
    // Whatever closes the shard first wins.
    kinesis.split_after("s", "shardId-000000000002", 1).unwrap();
    kinesis.split("s", "shardId-000000000002").unwrap();
    kinesis.put_at("s", u128::MAX, "k", "x").unwrap();
    assert_eq!(kinesis.shards("s").unwrap().len(), 8);
}

#[tokio::test(start_paused = true)]
async fn changes_that_cannot_be_are_refused() {
    let (kinesis, _client) = with_stream(3);
    let gone = kinesis.split_after("s", "shardId-000000000009", 1).unwrap_err();
    assert_eq!(gone.code(), "ResourceNotFoundException");
    let apart = kinesis.merge_after("s", SHARD_0, "shardId-000000000002", 1).unwrap_err();
    assert_eq!(apart.code(), "InvalidArgumentException");
    kinesis.split("s", SHARD_0).unwrap();
    let closed = kinesis.split_after("s", SHARD_0, 1).unwrap_err();
    assert_eq!(closed.code(), "InvalidArgumentException");
    kinesis.split_at("s", SHARD_1, kinesis.shards("s").unwrap()[1].starting_hash_key + 2).unwrap();
    let narrow = kinesis.split_after("s", "shardId-000000000005", 1).unwrap_err();
    assert_eq!(narrow.code(), "InvalidArgumentException");
}
