//! SplitShard, MergeShards and UpdateShardCount.
#![allow(clippy::unwrap_used)] // helpers of tests may panic like tests

mod support;

use std::time::Duration;

use aws_sdk_kinesis::primitives::Blob;
use aws_sdk_kinesis::types::{ScalingType, StreamStatus};
use kinesis_testkit::{Rule, ShardView, TestKinesis};
use support::{SHARD_0, SHARD_1, SHARD_2, SHARD_3, code, oldest, read, texts, with_stream};

fn open(kinesis: &TestKinesis) -> Vec<ShardView> {
    kinesis.shards("s").unwrap().into_iter().filter(ShardView::is_open).collect()
}

/// The ranges of the open shards, which must cover every hash key once.
fn ranges(kinesis: &TestKinesis) -> Vec<(u128, u128)> {
    let mut ranges: Vec<_> =
        open(kinesis).iter().map(|shard| (shard.starting_hash_key, shard.ending_hash_key)).collect();
    ranges.sort_unstable();
    assert_eq!(ranges[0].0, 0);
    assert_eq!(ranges[ranges.len() - 1].1, u128::MAX);
    assert!(ranges.windows(2).all(|pair| pair[0].1 + 1 == pair[1].0));
    ranges
}

#[tokio::test(start_paused = true)]
async fn a_split_takes_its_time_and_the_stream_serves_meanwhile() {
    let kinesis = TestKinesis::builder().reshard_delay(Duration::from_secs(30)).build();
    kinesis.create_stream("s", 1).unwrap();
    let client = kinesis.client();
    let split = |shard: &str, key: u128| {
        client
            .split_shard()
            .stream_name("s")
            .shard_to_split(shard)
            .new_starting_hash_key(key.to_string())
            .send()
    };
    split(SHARD_0, 1 << 100).await.unwrap();
    let summary = client.describe_stream_summary().stream_name("s").send().await.unwrap();
    assert_eq!(summary.stream_description_summary.unwrap().stream_status, StreamStatus::Updating);
    let put = client.put_record().stream_name("s").partition_key("k").data(Blob::new("before"));
    assert_eq!(put.send().await.unwrap().shard_id(), SHARD_0);
    assert_eq!(code(split(SHARD_0, 1 << 90).await), "ResourceInUseException");
    assert_eq!(open(&kinesis).len(), 1);

    tokio::time::sleep(Duration::from_secs(30)).await;
    let put = client.put_record().stream_name("s").partition_key("k").data(Blob::new("after"));
    assert_eq!(put.send().await.unwrap().shard_id(), SHARD_2);
    assert_eq!(ranges(&kinesis), [(0, (1 << 100) - 1), (1 << 100, u128::MAX)]);
    assert_eq!(texts(&read(&client, &oldest(&client, "s", SHARD_0).await).await), ["before"]);
}

#[tokio::test(start_paused = true)]
async fn shards_know_their_parents_and_their_numbers_grow() {
    let (kinesis, client) = with_stream(2);
    let before = kinesis.put_at("s", 0, "k", "a").unwrap().sequence_number;
    kinesis.split("s", SHARD_0).unwrap();
    let merged = kinesis.merge("s", SHARD_3, SHARD_1).unwrap();
    let after = kinesis.put_at("s", 0, "k", "b").unwrap().sequence_number;

    let page = client.list_shards().stream_name("s").send().await.unwrap();
    let shards = page.shards();
    assert_eq!(shards[2].parent_shard_id(), Some(SHARD_0));
    assert_eq!(shards[2].adjacent_parent_shard_id(), None);
    assert_eq!(merged, "shardId-000000000004");
    assert_eq!(shards[4].parent_shard_id(), Some(SHARD_3));
    assert_eq!(shards[4].adjacent_parent_shard_id(), Some(SHARD_1));

    let numbers = |shard: usize| shards[shard].sequence_number_range().unwrap();
    let ending = numbers(0).ending_sequence_number().unwrap();
    assert!(before.as_str() < ending);
    assert!(numbers(0).starting_sequence_number() < before.as_str());
    assert!(ending < numbers(2).starting_sequence_number());
    assert!(numbers(2).starting_sequence_number() < after.as_str());
    assert_eq!(numbers(2).ending_sequence_number(), None);
    for parent in [1, 3] {
        assert!(numbers(parent).ending_sequence_number().unwrap() < numbers(4).starting_sequence_number());
    }
}

#[tokio::test(start_paused = true)]
async fn a_split_point_must_lie_inside_the_shard() {
    let kinesis = TestKinesis::builder().without(Rule::ControlCallRate).build();
    kinesis.create_stream("s", 2).unwrap();
    let client = kinesis.client();
    let half = 1_u128 << 127;
    let split = |shard: &str, key: &str| {
        client.split_shard().stream_name("s").shard_to_split(shard).new_starting_hash_key(key).send()
    };
    for key in [half, half + 1, u128::MAX, 0, 5] {
        assert_eq!(code(split(SHARD_1, &key.to_string()).await), "InvalidArgumentException", "{key}");
    }
    assert_eq!(code(split(SHARD_1, "x").await), "InvalidArgumentException");
    assert_eq!(code(split(SHARD_2, "5").await), "ResourceNotFoundException");
    split(SHARD_1, &(half + 2).to_string()).await.unwrap();
    tokio::time::sleep(kinesis_testkit::DEFAULT_DELAY).await;
    assert_eq!(code(split(SHARD_1, &(half + 9).to_string()).await), "InvalidArgumentException");
    assert_eq!(ranges(&kinesis), [(0, half - 1), (half, half + 1), (half + 2, u128::MAX)]);
}

#[tokio::test(start_paused = true)]
async fn only_neighbours_merge() {
    let (kinesis, client) = with_stream(3);
    let merge = |shard: &str, other: &str| {
        client.merge_shards().stream_name("s").shard_to_merge(shard).adjacent_shard_to_merge(other).send()
    };
    assert_eq!(code(merge(SHARD_0, SHARD_2).await), "InvalidArgumentException");
    assert_eq!(code(merge(SHARD_0, SHARD_0).await), "InvalidArgumentException");
    assert_eq!(code(merge(SHARD_0, SHARD_3).await), "ResourceNotFoundException");
    merge(SHARD_2, SHARD_1).await.unwrap();
    tokio::time::sleep(kinesis_testkit::DEFAULT_DELAY).await;
    assert_eq!(ranges(&kinesis).len(), 2);
    let child = &kinesis.shards("s").unwrap()[3];
    assert_eq!(child.parents, [SHARD_2, SHARD_1]);
    assert_eq!(kinesis.shards("s").unwrap()[1].children, [SHARD_3]);
    assert_eq!(code(merge(SHARD_0, SHARD_1).await), "InvalidArgumentException");
}

#[tokio::test(start_paused = true)]
async fn the_shard_count_changes_to_equal_ranges() {
    let (kinesis, client) = with_stream(2);
    let scale = |target| {
        client
            .update_shard_count()
            .stream_name("s")
            .target_shard_count(target)
            .scaling_type(ScalingType::UniformScaling)
            .send()
    };
    let reply = scale(3).await.unwrap();
    assert_eq!(reply.current_shard_count(), Some(2));
    assert_eq!(reply.target_shard_count(), Some(3));
    assert_eq!(code(scale(3).await), "ResourceInUseException");
    tokio::time::sleep(kinesis_testkit::DEFAULT_DELAY).await;
    let third = u128::MAX / 3;
    assert_eq!(ranges(&kinesis), [(0, third - 1), (third, 2 * third - 1), (2 * third, u128::MAX)]);

    assert_eq!(code(scale(7).await), "LimitExceededException");
    assert_eq!(code(scale(1).await), "LimitExceededException");
    assert_eq!(code(scale(0).await), "ValidationException");
    for target in [6, 4, 2, 1] {
        kinesis.scale("s", target).unwrap();
        assert_eq!(ranges(&kinesis).len(), target);
    }
    let other = client.update_shard_count().stream_name("s").target_shard_count(1).scaling_type("NEW".into());
    assert_eq!(code(other.send().await), "ValidationException");
}

#[tokio::test(start_paused = true)]
async fn scaling_leaves_shards_alone_whose_range_stays() {
    let (kinesis, _client) = with_stream(2);
    // The upper half is half of a stream of two shards, and two quarters of one of four.
    kinesis.split("s", SHARD_1).unwrap();
    assert_eq!(kinesis.scale("s", 4).unwrap(), ["shardId-000000000004", "shardId-000000000005"]);
    assert!(kinesis.shards("s").unwrap()[2].is_open());
    assert!(kinesis.scale("s", 4).unwrap().is_empty());
}
